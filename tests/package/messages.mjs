// Every message of the protocol, as JavaScript reads and writes it, against the engine's own bytes.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import test from "node:test";
import { of } from "./place.mjs";

const { GENERATE_DEFAULTS, LOAD_DEFAULTS, decodeEvent, decodeRequest, encodeEvent, encodeRequest } = await of("protocol.js");
const { CHAT, CREATE, LOAD } = await of("options.js");
const written = JSON.parse(readFileSync(process.env.PAGELM_MESSAGES, "utf8"));

// What serde makes JSON of, in the package's shapes: a variant's name in `kind`, words and fields in lower case.
const plain = (value) => {
  if (typeof value === "string") return value.toLowerCase();
  if (Array.isArray(value)) return value.map(plain);
  if (value === null || typeof value !== "object") return value;
  return Object.fromEntries(Object.entries(value).map(([key, value]) => [key.replaceAll("_", "").toLowerCase(), plain(value)]));
};
const messageOf = (value) => {
  if (typeof value === "string") return { kind: value };
  const [[kind, fields]] = Object.entries(value);
  if (kind === "Text") return { kind, text: fields };
  if (Array.isArray(fields)) return { kind, ids: fields };
  return { kind, ...fields };
};
const likely = ([id, text, logprob]) => ({ id, text, logprob });
const shaped = (value) => {
  const message = messageOf(value);
  if (message.source) message.source = messageOf(message.source);
  if (message.prompt) message.prompt = messageOf(message.prompt);
  message.prompts = message.prompts?.map(messageOf);
  for (const { messages = [] } of message.prompts ?? []) messages.forEach((turn) => (turn.content = turn.content.map(messageOf)));
  const { structure } = message.options ?? {};
  if (structure) {
    const [[name, text]] = typeof structure === "string" ? [[structure]] : Object.entries(structure);
    message.options.structure = { kind: name.replaceAll("_", ""), ...(text !== undefined && { text }) };
  }
  const tokens = message.tokens ?? message.logprobs ?? [];
  tokens.forEach((token) => token && (token.top = token.top.map(likely)));
  if (message.prompts === undefined) delete message.prompts;
  return plain(message);
};

for (const [what, encode, decode] of [
  ["requests", encodeRequest, decodeRequest],
  ["events", encodeEvent, decodeEvent],
]) {
  test(`${what} are read and written as the engine does`, () => {
    for (const { bytes, message } of written[what]) {
      const decoded = decode(Uint8Array.from(bytes));
      assert.deepEqual(plain(decoded), shaped(message));
      assert.deepEqual([...encode(decoded)], bytes);
    }
  });
}

test("bytes of another build are refused", () => {
  for (const { bytes } of written.events) {
    assert.throws(() => decodeEvent(Uint8Array.from([...bytes, 0])));
    if (bytes.length > 1) assert.throws(() => decodeEvent(Uint8Array.from(bytes.slice(0, -1))));
  }
});

test("defaults are the engine's, and every one of them is an option", () => {
  assert.deepEqual(plain(GENERATE_DEFAULTS), plain(written.generate));
  assert.deepEqual(plain(LOAD_DEFAULTS), plain(written.load));
  const options = (table) => Object.keys(table).sort();
  const beside = ["signal", "tools", "templateArguments"];
  assert.deepEqual(options(CHAT), [...options(GENERATE_DEFAULTS), ...beside].sort());
  // The device is the engine's; there is nobody else who could use a model.
  const { device, keepUnusedSecs, ...load } = LOAD_DEFAULTS;
  assert.deepEqual(options(LOAD), [...options(load), "onProgress", "signal"].sort());
  assert.ok(CREATE.device);
});
