// Where things are: the package, the native binary, tools and models. xtask names all but the last.
import { execFileSync } from "node:child_process";
import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after } from "node:test";
import { fileURLToPath, pathToFileURL } from "node:url";

const named = (variable) => {
  const value = process.env[variable];
  if (!value) throw new Error(`${variable} is not set; run \`cargo xtask test --only package\``);
  return value;
};

// A tool from npm's registry.
export const addressOfModule = (file) => new URL(file, pathToFileURL(`${named("PAGELM_MODULES")}/`));
export const moduleOf = (file) => import(addressOfModule(file));

// A module of the package, also one that it does not export.
export const addressOf = (file) => new URL(file, pathToFileURL(`${named("PAGELM_PACKAGE")}/`));
export const of = (file) => import(addressOf(file));

export const repository = new URL("../../", import.meta.url);
export const fixture = (name) => new URL(`tests/fixtures/${name}`, repository);
export const smollm2 = new URL("www/models/SmolLM2-135M-Instruct.Q4_1.gguf", repository);

// A folder that goes with the tests of a file.
export const scratch = mkdtempSync(join(tmpdir(), "pagelm-package-"));
after(() => rmSync(scratch, { recursive: true }));

// The native binary, to its end; what it printed.
export const native = (...parts) => execFileSync(named("PAGELM_NATIVE"), parts, { encoding: "utf8", stdio: ["ignore", "pipe", "pipe"] });

// A tiny model as a GGUF file, made by the native binary.
export const tinyFile = (name) => {
  const path = join(scratch, `${name}.gguf`);
  if (!existsSync(path)) native("convert", fileURLToPath(fixture(name)), path);
  return path;
};

// Asks again and again until it is so; the runner ends a test that never is.
export const until = async (isSo) => {
  while (!(await isSo())) await new Promise((resolve) => setTimeout(resolve, 5));
};
