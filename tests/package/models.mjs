// Models into the engine, from wherever their bytes are; loads that fail or are given up; engines that end.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { createReadStream, openAsBlob, readFileSync, readdirSync, truncateSync, writeFileSync } from "node:fs";
import { cp } from "node:fs/promises";
import { createServer } from "node:http";
import { basename, join, relative } from "node:path";
import { Readable } from "node:stream";
import test, { after, before } from "node:test";
import { fileURLToPath, pathToFileURL } from "node:url";
import { addressOf, fixture, of, scratch, smollm2, tinyFile, until } from "./place.mjs";

const { Engine } = await of("index.js");
const [{ prompt, greedy }] = JSON.parse(readFileSync(fixture("llama-tiny/expected.json"))).prompts;
const exact = { precision: "exact", kv: "f32" };
const path = tinyFile("llama-tiny");
const bytes = new Uint8Array(readFileSync(path));
const folder = fileURLToPath(fixture("llama-tiny/"));

let engine;
before(async () => (engine = await Engine.create({ device: "cpu" })));

const answer = async (asked = engine, text = prompt) => {
  const options = { temperature: 0, maxTokens: greedy.length, ignoreEos: true };
  return (await asked.generate(text, options).whole())[0].ids;
};

// What a server was asked for; `/whole/` knows no ranges.
const asked = [];
const server = createServer((request, response) => {
  const range = request.headers.range?.match(/bytes=(\d+)-(\d+)/);
  asked.push({ url: request.url, range: range?.[0], key: request.headers.key });
  const [, way, name] = request.url.split("/");
  if (name === "page.gguf") return response.writeHead(200, { "Content-Type": "text/html" }).end("<!doctype html>");
  const found = name === basename(path) ? bytes : readdirSync(folder).includes(name) && readFileSync(join(folder, name));
  if (!found) return response.writeHead(404).end();
  if (way === "whole") return response.writeHead(200).end(found);
  const [first, last] = [Number(range[1]), Math.min(Number(range[2]), found.length - 1)];
  response.writeHead(206, { "Content-Range": `bytes ${first}-${last}/${found.length}` });
  response.end(found.subarray(first, last + 1));
});
let address;
before(async () => {
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  address = `http://127.0.0.1:${server.address().port}`;
});
after(() => server.close());

const named = () => readdirSync(folder).map((name) => ({ name: `llama-tiny/${name}`, data: readFileSync(join(folder, name)) }));
const sources = {
  "a Uint8Array": () => bytes,
  "an ArrayBuffer": () => bytes.buffer.slice(0),
  "a Blob": () => new Blob([bytes]),
  "a File": () => new File([bytes], "tiny.gguf"),
  "a file's Blob": () => openAsBlob(path),
  "a path": () => relative(process.cwd(), path),
  "a file URL": () => pathToFileURL(path),
  "a folder's path": () => folder,
  "a folder's URL without a slash": () => pathToFileURL(folder.slice(0, -1)).href,
  "a folder's files": named,
  "a folder's Files": () => named().map(({ name, data }) => new File([data], basename(name))),
  "an http URL, by ranges": () => `${address}/ranges/${basename(path)}`,
  "an http URL, whole": () => new URL(`${address}/whole/${basename(path)}`),
  "a folder's http URL": () => `${address}/ranges/`,
  "a stream": () => Readable.toWeb(createReadStream(path)),
  "a Response": () => fetch(`${address}/whole/${basename(path)}`),
};
for (const [what, source] of Object.entries(sources)) {
  test(`a model is loaded from ${what}`, async () => {
    const model = await engine.load(await source(), exact);
    assert.equal(model.architecture, "llama");
    assert.deepEqual(engine.model, model);
    assert.deepEqual(await answer(), greedy);
  });
}

test("a load tells how far it is", async () => {
  const told = [];
  await engine.load(smollm2, { onProgress: (progress) => told.push(progress) });
  assert.match(told.at(-1).stage, /^Loading .*SmolLM2/);
  const done = told.map(({ doneBytes }) => doneBytes);
  assert.deepEqual(done, done.toSorted((a, b) => a - b));
  const { doneBytes, totalBytes } = told.at(-1);
  assert.ok(told.length > 10 && doneBytes > totalBytes / 2, `${doneBytes} of ${totalBytes} bytes, told ${told.length} times`);
});

test("of a URL no byte is asked for that is not needed, and by the program's own fetch", async () => {
  const own = await Engine.create({
    device: "cpu",
    fetch: (url, init) => fetch(url, { ...init, headers: { ...init.headers, key: "secret" } }),
  });
  asked.length = 0;
  await own.load(`${address}/ranges/${basename(path)}`);
  assert.ok(asked.every(({ range, key }) => range && key === "secret"));
  own.close();
});

test("two engines are two: each has its model", async () => {
  const other = await Engine.create({ device: "cpu" });
  await Promise.all([engine.load(path, exact), other.load(tinyFile("qwen2-tiny"), exact)]);
  assert.deepEqual([engine.model.architecture, other.model.architecture], ["llama", "qwen2"]);
  const [theirs] = JSON.parse(readFileSync(fixture("qwen2-tiny/expected.json"))).prompts;
  assert.deepEqual(await Promise.all([answer(), answer(other, theirs.prompt)]), [greedy, theirs.greedy]);
  other.close();
  assert.deepEqual(await answer(), greedy);
});

test("models of one length are not taken for each other", async () => {
  const changed = bytes.slice();
  changed.fill(0, changed.length - 4096);
  await engine.load(bytes, exact);
  assert.deepEqual(await answer(), greedy);
  await engine.load(changed, exact);
  assert.notDeepEqual(await answer(), greedy);
});

test("a model takes the place of the one before, whose answers go on, and which is gone then", async () => {
  await engine.load(path, exact);
  const running = engine.generate(prompt, { temperature: 0, maxTokens: null, ignoreEos: true });
  const { value } = await running.next();
  await engine.load(tinyFile("qwen2-tiny"), exact);
  assert.equal(engine.model.architecture, "qwen2");
  const [{ ids, reason }] = await running.whole();
  assert.equal(reason, "length");
  assert.deepEqual([...value.ids, ...ids].slice(0, greedy.length), greedy);
  await until(async () => (await engine.status()).nModels === 1);
});

test("a load is given up, and the next one begins", async () => {
  await engine.load(path, exact);
  const controller = new AbortController();
  const onProgress = ({ doneBytes }) => doneBytes > 0 && controller.abort();
  await assert.rejects(engine.load(smollm2, { signal: controller.signal, onProgress }), { name: "AbortError" });
  assert.deepEqual(await answer(), greedy, "the model before still answers");
  const unhappy = () => {
    throw new Error("the listener's own");
  };
  await assert.rejects(engine.load(smollm2, { onProgress: unhappy }), /^Error: the listener's own$/);
  await assert.rejects(engine.load(smollm2, { signal: AbortSignal.abort() }), { name: "AbortError" });
  const first = engine.load(path, exact);
  await assert.rejects(engine.load(path), /^Error: a model is being loaded already; wait for it, or abort that load$/);
  await first;
  assert.deepEqual(await answer(), greedy);
});

// A folder whose weights take more than there is: a file without blocks on the disk.
const enormous = async () => {
  const place = join(scratch, "enormous");
  await cp(folder, place, { recursive: true });
  const config = JSON.parse(readFileSync(join(place, "config.json")));
  const { hidden_size: width } = config;
  config.intermediate_size = 16 << 20;
  writeFileSync(join(place, "config.json"), JSON.stringify(config));
  const weights = readFileSync(join(place, "model.safetensors"));
  const header = JSON.parse(weights.subarray(8, 8 + Number(weights.readBigUInt64LE(0))));
  let end = 0;
  for (const [name, tensor] of Object.entries(header).filter(([name]) => name !== "__metadata__")) {
    if (/(gate|up)_proj/.test(name)) tensor.shape = [config.intermediate_size, width];
    if (/down_proj/.test(name)) tensor.shape = [width, config.intermediate_size];
    const n = tensor.shape.reduce((product, size) => product * size, 1);
    tensor.data_offsets = [end, (end += n * 2)];
  }
  const text = Buffer.from(JSON.stringify(header));
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(text.length));
  writeFileSync(join(place, "model.safetensors"), Buffer.concat([length, text]));
  truncateSync(join(place, "model.safetensors"), 8 + text.length + end);
  return place;
};

test("a model that cannot be loaded is told in one sentence, and the one before stays", async () => {
  await engine.load(path, exact);
  const wrong = [
    [join(scratch, "none.gguf"), {}, /^Error: cannot read .*none\.gguf: there is no such file$/],
    [`${address}/ranges/none.gguf`, {}, /^Error: cannot read http.*: the server has no such file \(HTTP 404\); check/],
    [`${address}/ranges/page.gguf`, {}, /^Error: cannot read http.*: the server answered with a web page/],
    ["http://127.0.0.1:1/none.gguf", {}, /^Error: cannot read http.*: the server could not be reached/],
    ["http://:none.gguf", {}, /^TypeError: "http:.*" is not an address that can be read from here; give a whole URL$/],
    [await fetch(`${address}/ranges/none.gguf`), {}, /^Error: cannot read none\.gguf: the server answered with HTTP 404$/],
    [new TextEncoder().encode("no model"), {}, /^Error: model\.gguf: .*GGUF/],
    [bytes.slice(0, -100), {}, /^Error: model\.gguf: /],
    [[], {}, /^TypeError: load needs at least one file of the model, found an empty array$/],
    [[bytes], {}, /^TypeError: each of several files must be a File, or an object/],
    [5, {}, /^TypeError: a model is loaded from a URL, a Uint8Array, .*, found number/],
    [null, {}, /^TypeError: a model is loaded from a URL, .*, found null/],
    [path, { context: 1 }, /^Error: a context of 1 tokens was asked for, but it must lie between 2 and \d+/],
    [path, { kv: "f64" }, /^TypeError: kv must be one of "f16", "f32", "q8", found "f64"$/],
    [path, { device: "cpu" }, /^TypeError: load has no option "device"; there are context, kv, /],
    [await enormous(), {}, /^Error: the model's weights take 12\.9 GB, but without a GPU no more than .* fit here; take a smaller/],
  ];
  for (const [source, options, sentence] of wrong) {
    const said = await engine.load(source, options).then(() => "nothing", String);
    assert.match(said, sentence);
    assert.deepEqual(await answer(), greedy, said);
  }
  const gpu = await Engine.create({ device: "gpu" });
  await assert.rejects(gpu.load(path), /^Error: .*WebGPU/);
  gpu.close();
  const bare = await Engine.create();
  await assert.rejects(bare.generate("a").whole(), /^Error: no model is loaded; load one first$/);
  await assert.rejects(bare.tokenize("a"), /^Error: no model is loaded; load one first$/);
  bare.close();
});

test("memory of an engine that was closed is used again", async () => {
  const sizes = [];
  for (let n = 0; n < 6; n++) {
    const own = await Engine.create({ device: "cpu" });
    await own.load(smollm2);
    sizes.push((await own.status()).memoryBytes);
    own.close();
  }
  // The first few may find the free memory cut into pieces that are too small.
  assert.equal(sizes[5], sizes[3], "the memory does not grow");
});

test("the README's program runs", () => {
  const [, example] = readFileSync(addressOf("README.md"), "utf8").match(/```js\n(.*?)```/s);
  const program = join(scratch, "example.mjs");
  const inPlace = example.replace('"pagelm"', JSON.stringify(addressOf("index.js").href));
  writeFileSync(program, inPlace.replace(basename(smollm2.pathname), fileURLToPath(smollm2)));
  const said = execFileSync(process.execPath, [program], { encoding: "utf8", timeout: 60_000 });
  assert.match(said, /^The capital of France is Paris\.\[\n/);
  assert.equal(said.match(/reason: 'length'/g)?.length, 2);
});

const run = (how) => {
  const program = fileURLToPath(new URL("program.mjs", import.meta.url));
  const parts = [program, fileURLToPath(addressOf(".")), path, how];
  // A process that does not end by itself is ended, which fails the test.
  return execFileSync(process.execPath, parts, { encoding: "utf8", timeout: 60_000, stdio: ["ignore", "pipe", "ignore"] });
};

test("a program ends by itself, whether it closed the engine or not", () => {
  assert.equal(run("read"), "4\n");
  const closed = "Error: the engine was closed";
  const anew = `${closed}; create another with Engine.create`;
  assert.equal(run("close"), `${closed}\n${anew}\n${anew}\n`);
});

test("a fault of the engine ends what waits for it", () => {
  const fault = "Error: The engine stopped by a fault of its own (";
  const said = run("panic").trim().split(/\n(?=Error: )/);
  assert.equal(said.length, 2);
  assert.ok(said.every((sentence) => sentence.startsWith(fault)), said.join("\n"));
  assert.match(said[1], /Start the program anew\.$/);
});
