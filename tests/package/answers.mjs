// Answers of the engine in Node: the native binary's tokens, one batch, and what becomes of answers that nobody wants any more.
import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import test, { before } from "node:test";
import { fileURLToPath } from "node:url";
import { fixture, native, of, scratch, smollm2, until } from "./place.mjs";

const { Engine } = await of("index.js");
const expected = JSON.parse(readFileSync(fixture("smollm2-135m/expected.json")));
const prompts = expected.prompts.slice(0, 4).map(({ prompt }) => prompt);

let engine;
before(async () => {
  engine = await Engine.create({ device: "cpu" });
  await engine.load(smollm2);
});

const idsOf = (answers) => Promise.all(answers.map(async (answer) => (await answer.whole())[0].ids));

for (const [precision, sampling, flags] of [
  ["fast", { temperature: 0 }, ["--temperature", "0"]],
  ["exact", { temperature: 0 }, ["--temperature", "0"]],
  ["fast", { temperature: 0.8, topK: 40, seed: 7 }, ["--temperature", "0.8", "--top-k", "40", "--seed", "7"]],
]) {
  test(`four at once have the native binary's tokens, ${precision}, ${flags.join(" ")}`, async () => {
    const file = join(scratch, "prompts.jsonl");
    writeFileSync(file, prompts.map((prompt) => `${JSON.stringify(prompt)}\n`).join(""));
    const asked = ["--device", "cpu", "--precision", precision, "--prompts", file, "--max-tokens", "24", "--ignore-eos", ...flags];
    const answered = JSON.parse(native("generate", "--model", fileURLToPath(smollm2), "--json", ...asked));
    assert.equal(answered[0].device.kind, "cpu");

    const { deviceKind, precision: found } = await engine.load(smollm2, { precision });
    assert.deepEqual([deviceKind, found], ["cpu", precision]);
    const options = { ...sampling, maxTokens: 24, ignoreEos: true };
    const ids = await idsOf(prompts.map((prompt) => engine.generate(prompt, options)));
    assert.deepEqual(ids, answered.map(({ token_ids }) => token_ids));
  });
}

test("four at once are one batch: one step serves them all", async () => {
  const options = { temperature: 0, maxTokens: 16, ignoreEos: true, reusePrefix: false };
  const steps = async (ask) => {
    const before = (await engine.status()).steps;
    const ids = await ask();
    return { ids, steps: (await engine.status()).steps - before };
  };
  const alone = await steps(async () => {
    const ids = [];
    for (const prompt of prompts) ids.push(...(await idsOf([engine.generate(prompt, options)])));
    return ids;
  });
  const together = await steps(() => idsOf(prompts.map((prompt) => engine.generate(prompt, options))));
  assert.deepEqual(together.ids, alone.ids);
  assert.ok(alone.steps >= 4 * 16, `${alone.steps} steps`);
  // A prompt takes a step or two, as the machine is busy or not.
  assert.ok(together.steps < 2 * 16, `${together.steps} steps`);
});

test("answers have the form that is asked for, beside free ones", async () => {
  const jsonSchema = {
    type: "object",
    properties: { name: { type: "string", maxLength: 20 }, age: { type: "integer", minimum: 1, maximum: 99 } },
    required: ["name", "age"],
    additionalProperties: false,
  };
  const messages = [{ role: "user", content: "Invent a person. Answer in JSON." }];
  const free = { temperature: 0, maxTokens: 12 };
  const [alone] = await engine.generate(prompts[0], free).whole();
  const [beside, ...answers] = await Promise.all([
    engine.generate(prompts[0], free).whole(),
    ...[0, 1, 2].map((seed) => engine.chat(messages, { seed, structure: { jsonSchema } }).whole()),
  ]);
  assert.deepEqual(beside[0].ids, alone.ids);
  for (const [{ text, reason }] of answers) {
    assert.equal(reason, "stop");
    const { name, age, ...others } = JSON.parse(text);
    assert.ok(typeof name === "string" && Number.isInteger(age) && age > 0 && age < 100, text);
    assert.deepEqual(others, {});
  }
  const grammar = { grammar: 'start: "yes" | "no"' };
  const [{ text }] = await engine.chat(messages, { structure: grammar }).whole();
  assert.ok(["yes", "no"].includes(text), text);
  const refused = (structure) => engine.generate("a", { structure }).whole();
  await assert.rejects(refused({ jsonSchema: { enum: [] } }), /cannot be met/);
  await assert.rejects(refused({ grammar: "start: (" }), /the grammar cannot be kept: line 1/);
  assert.throws(() => engine.generate("a", { structure: { regex: "a" } }), /structure must be null, "json"/);
});

test("a chat streams, and its pieces are the whole", async () => {
  const messages = [{ role: "user", content: "What is the capital of France?" }];
  const pieces = [];
  for await (const piece of engine.chat(messages, { temperature: 0 })) pieces.push(piece);
  assert.ok(pieces.length > 4);
  const [whole] = await engine.chat(messages, { temperature: 0 }).whole();
  assert.equal(pieces.map(({ text }) => text).join(""), whole.text);
  assert.deepEqual(pieces.flatMap(({ ids }) => ids), whole.ids);
  assert.deepEqual(Object.keys(whole).sort(), ["ids", "reason", "text", "usage"]);
  assert.match(whole.text, /Paris/);
  assert.deepEqual([whole.reason, pieces.at(-1).reason], ["stop", "stop"]);
  assert.equal(whole.usage.generatedTokens, whole.ids.length);
  assert.ok(whole.usage.cachedTokens > 0, "the second finds the first one's prompt");
  assert.ok(pieces.slice(0, -1).every(({ reason }) => reason === undefined));
});

test("rendered chats and texts are the reference's tokens", async () => {
  for (const { messages, ids } of expected.chats) assert.deepEqual((await engine.tokenize(messages)).ids, ids);
  for (const { prompt, ids } of expected.prompts) assert.deepEqual((await engine.tokenize(prompt)).ids, ids);
});

test("outputs are numbered, and tell log-probabilities where asked", async () => {
  const options = { n: 2, maxTokens: 3, seed: 1, logprobs: 2, promptLogprobs: 1 };
  const outputs = await engine.generate(prompts.slice(0, 2), options).whole();
  assert.equal(outputs.length, 4);
  for (const { ids, logprobs, promptLogprobs } of outputs) {
    assert.deepEqual(logprobs.map(({ id }) => id), ids);
    assert.ok(logprobs.every(({ top }) => top.length === 2 && top[0].logprob >= top[1].logprob));
    assert.equal(promptLogprobs[0], null);
    assert.equal(typeof promptLogprobs[1].top[0].text, "string");
  }
  const { ids } = expected.prompts[0];
  const [byIds] = await engine.generate(ids, { ...options, n: 1 }).whole();
  assert.deepEqual(byIds.ids, outputs[0].ids, "a prompt may be its tokens");
});

test("to leave the loop ends the answer", async () => {
  const answer = engine.generate(prompts[0], { maxTokens: null, ignoreEos: true });
  for await (const { ids } of answer) {
    // What came before the loop looked waits in one piece.
    assert.ok(ids.length > 0);
    break;
  }
  await until(async () => (await engine.status()).running === 0);
  assert.deepEqual(await answer.next(), { done: true, value: undefined });
});

test("an aborted answer throws the reason, and its neighbour goes on", async () => {
  const controller = new AbortController();
  const options = { temperature: 0, maxTokens: 24, ignoreEos: true };
  const [alone] = await idsOf([engine.generate(prompts[1], options)]);
  const neighbour = engine.generate(prompts[1], options);
  const aborted = engine.generate(prompts[0], { ...options, maxTokens: null, signal: controller.signal });
  let n = 0;
  await assert.rejects(async () => {
    for await (const _ of aborted) if (++n === 3) controller.abort();
  }, { name: "AbortError" });
  assert.equal(n, 3, "nothing comes after");
  assert.deepEqual(await idsOf([neighbour]), [alone]);
  assert.equal((await engine.status()).running, 0);

  const reason = new Error("changed my mind");
  const late = engine.generate(prompts[0], { signal: AbortSignal.abort(reason) });
  await assert.rejects(late.next(), reason);
});

test("what nobody reads waits in one piece, and holds nobody up", async () => {
  const unread = engine.generate(prompts[0], { temperature: 0, maxTokens: 200, ignoreEos: true, n: 2 });
  const [read] = await engine.generate(prompts[1], { maxTokens: 20, ignoreEos: true }).whole();
  assert.equal(read.ids.length, 20);
  await until(async () => (await engine.status()).running === 0);
  const pieces = [];
  for await (const piece of unread) pieces.push(piece);
  assert.deepEqual(pieces.map(({ output, ids, reason }) => [output, ids.length, reason]).sort(), [
    [0, 200, "length"],
    [1, 200, "length"],
  ]);
});

test("more than the engine takes at once is refused, and all of it is answered", async () => {
  const asked = Array.from({ length: 3000 }, () => engine.generate("a", { maxTokens: 1 }).whole().then(() => null, String));
  const refused = (await Promise.all(asked)).filter((error) => error !== null);
  assert.ok(refused.length > 1000 && refused.length < 3000, `${refused.length} were refused`);
  assert.match(refused[0], /^Error: .*(queue|waiting|full|wait)/);
  await engine.generate("a", { maxTokens: 1 }).whole();
});

test("a mistake is told in one sentence", async () => {
  const wrong = [
    [() => engine.generate("a", { topq: 1 }), /^TypeError: generate has no option "topq"; there are n, temperature, topK, /],
    [() => engine.generate("a", { temperature: "hot" }), /^TypeError: temperature must be a number, found "hot"$/],
    [() => engine.generate("a", { maxTokens: 1.5 }), /^TypeError: maxTokens must be a whole number, or null .*, found 1.5$/],
    [() => engine.generate("a", { logitBias: { a: 1 } }), /^TypeError: logitBias must be an object or a Map/],
    [() => engine.generate("a", { signal: {} }), /^TypeError: signal must be an AbortSignal, found a value of type Object$/],
    [() => engine.generate("a", 5), /^TypeError: generate takes its options as an object, found 5$/],
    [() => engine.generate({ text: "a" }), /^TypeError: a prompt must be a string or an array of token ids/],
    [() => engine.chat("Hello"), /^TypeError: chat takes an array of messages, found "Hello"$/],
    [() => engine.chat([{ role: "user", text: "Hello" }]), /^TypeError: message 1 of the chat has a field "text"/],
    [() => engine.generate("a", { topP: 2 }).next(), /^Error: .*top_p.* 2/],
    [() => engine.generate("a", { maxTokens: 0 }).next(), /^Error: .*max_tokens/],
    [() => engine.generate([]).next(), /^Error: the request has no prompt; give at least one$/],
    [() => engine.generate([49152]).next(), /^Error: .*49152/],
    [() => engine.tokenize(["a", "b"]), /^TypeError: tokenize takes one prompt at a time$/],
    [() => new Engine(), /^TypeError: an engine is made by/],
    [() => Engine.create({ device: "tpu" }), /^TypeError: device must be one of "auto", "gpu", "cpu", found "tpu"$/],
  ];
  for (const [ask, sentence] of wrong) {
    const said = await Promise.resolve().then(ask).then(() => "nothing", String);
    assert.match(said, sentence);
  }
});
