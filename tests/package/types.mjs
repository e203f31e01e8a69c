// What the package says of itself: its types, its version, its files.
import assert from "node:assert/strict";
import { execFileSync, spawnSync } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import test from "node:test";
import { fileURLToPath } from "node:url";
import { addressOf, addressOfModule, of, repository, scratch } from "./place.mjs";

const manifest = JSON.parse(readFileSync(addressOf("package.json")));

test("a program in TypeScript compiles, and its mistakes do not", () => {
  const config = join(scratch, "tsconfig.json");
  const compilerOptions = {
    strict: true,
    noEmit: true,
    target: "es2022",
    lib: ["es2022", "dom", "dom.iterable", "dom.asynciterable"],
    module: "nodenext",
    moduleDetection: "force",
    types: [],
    paths: { pagelm: [fileURLToPath(addressOf("index.d.ts"))] },
  };
  const program = join(scratch, "types.mts");
  writeFileSync(program, readFileSync(new URL("types.ts", import.meta.url)));
  writeFileSync(config, JSON.stringify({ compilerOptions, files: [program] }));
  const { status, stdout } = spawnSync(process.execPath, [fileURLToPath(addressOfModule("typescript/lib/tsc.js")), "--project", config], { encoding: "utf8" });
  assert.equal(status, 0, stdout);
});

test("every option and method is declared", async () => {
  const declared = readFileSync(addressOf("index.d.ts"), "utf8");
  const { CHAT, CREATE, LOAD } = await of("options.js");
  for (const name of Object.keys({ ...CHAT, ...CREATE, ...LOAD })) assert.match(declared, new RegExp(`^  ${name}\\?:`, "m"));
  const { Engine, Answer } = await of("index.js");
  for (const { prototype } of [Engine, Answer]) {
    const names = Object.getOwnPropertyNames(prototype).filter((name) => name !== "constructor");
    for (const name of names) assert.match(declared, new RegExp(`^  (get )?${name}\\(`, "m"));
  }
});

test("the manifest names the version of the engine, and all that is needed is packed", () => {
  const cargo = readFileSync(new URL("Cargo.toml", repository), "utf8");
  const field = (name) => cargo.match(new RegExp(`^${name} = "(.*)"`, "m"))[1];
  assert.equal(manifest.version, field("version"));
  assert.equal(manifest.license, field("license"));
  const packed = execFileSync("npm", ["pack", "--dry-run", "--json"], { cwd: addressOf("."), encoding: "utf8" });
  const files = JSON.parse(packed)[0].files.map(({ path }) => path);
  for (const file of ["index.js", "index.d.ts", "engine.js", "engine_bg.wasm", "README.md", "LICENSE-MIT", "LICENSE-APACHE"]) {
    assert.ok(files.includes(file), `${file} is not packed`);
  }
  const imported = readFileSync(addressOf("index.js"), "utf8").matchAll(/from "\.\/(.*)"/g);
  for (const [, file] of imported) assert.ok(files.includes(file), `${file} is not packed`);
});
