// The engine's messages (src/protocol.rs) as bytes, in postcard's format: fields in their order, an enum by its number, whole
// numbers seven bits a byte. A test compares every message with what the engine itself writes and reads.

// A kind of value: `write` appends one to an array of bytes, `read` takes one from where a reader stands.
const kind = (write, read) => ({ write, read });

const unsigned = kind(
  (out, value) => {
    for (; value > 127; value = Math.floor(value / 128)) out.push((value % 128) + 128);
    out.push(value);
  },
  (from) => {
    for (let value = 0, unit = 1; ; unit *= 128) {
      const byte = from.view.getUint8(from.at++);
      value += (byte % 128) * unit;
      if (byte < 128) return value;
    }
  },
);

const byte = kind(
  (out, value) => out.push(value),
  (from) => from.view.getUint8(from.at++),
);

const signed = kind(
  (out, value) => unsigned.write(out, value < 0 ? -2 * value - 1 : 2 * value),
  (from) => {
    const folded = unsigned.read(from);
    return folded % 2 ? -(folded + 1) / 2 : folded / 2;
  },
);

const float = (nBytes, get, set) =>
  kind(
    (out, value) => {
      const view = new DataView(new ArrayBuffer(nBytes));
      view[set](0, value, true);
      out.push(...new Uint8Array(view.buffer));
    },
    (from) => from.view[get]((from.at += nBytes) - nBytes, true),
  );
const f32 = float(4, "getFloat32", "setFloat32");
const f64 = float(8, "getFloat64", "setFloat64");

const flag = kind(
  (out, value) => out.push(value ? 1 : 0),
  (from) => from.view.getUint8(from.at++) === 1,
);

const text = kind(
  (out, value) => {
    const bytes = new TextEncoder().encode(value);
    unsigned.write(out, bytes.length);
    bytes.forEach((byte) => out.push(byte));
  },
  (from) => {
    const length = unsigned.read(from);
    const bytes = new Uint8Array(from.view.buffer, from.view.byteOffset + from.at, length);
    from.at += length;
    return new TextDecoder().decode(bytes);
  },
);

const several = (one) =>
  kind(
    (out, values) => {
      unsigned.write(out, values.length);
      values.forEach((value) => one.write(out, value));
    },
    (from) => Array.from({ length: unsigned.read(from) }, () => one.read(from)),
  );

const maybe = (one) =>
  kind(
    (out, value) => {
      flag.write(out, value !== null);
      if (value !== null) one.write(out, value);
    },
    (from) => (flag.read(from) ? one.read(from) : null),
  );

const pair = (first, second) =>
  kind(
    (out, [a, b]) => {
      first.write(out, a);
      second.write(out, b);
    },
    (from) => [first.read(from), second.read(from)],
  );

const fields = (named) =>
  kind(
    (out, value) => Object.entries(named).forEach(([name, one]) => one.write(out, value[name])),
    (from) => Object.fromEntries(Object.entries(named).map(([name, one]) => [name, one.read(from)])),
  );

// One of some words.
const word = (...words) =>
  kind(
    (out, value) => unsigned.write(out, words.indexOf(value)),
    (from) => words[unsigned.read(from)],
  );

// One of some messages: which, its `kind` tells.
const message = (variants) => {
  const [names, parts] = [Object.keys(variants), Object.values(variants).map(fields)];
  return kind(
    (out, value) => {
      const index = names.indexOf(value.kind);
      unsigned.write(out, index);
      parts[index].write(out, value);
    },
    (from) => {
      const index = unsigned.read(from);
      return { kind: names[index], ...parts[index].read(from) };
    },
  );
};

const source = message({
  Url: { url: text },
  Attachments: { files: several(fields({ name: text, lenBytes: unsigned, modifiedMs: unsigned })) },
});

const loadOptions = fields({
  context: maybe(unsigned),
  kv: word("f16", "f32", "q8"),
  precision: word("auto", "exact", "fast"),
  device: word("auto", "gpu", "cpu"),
  quantize: word("none", "q8", "q4"),
  keepUnusedSecs: maybe(unsigned),
});

const chatMessage = fields({
  role: text,
  content: several(message({ Text: { text } })),
  toolCalls: several(fields({ id: text, name: text, arguments: text })),
});

const prompt = message({
  Text: { text },
  Chat: { messages: several(chatMessage), tools: several(text), templateArguments: several(pair(text, text)) },
  Tokens: { ids: several(unsigned) },
});

const structure = message({ Json: {}, JsonSchema: { text }, Grammar: { text } });

const generateOptions = fields({
  n: unsigned,
  temperature: f32,
  topK: signed,
  topP: f32,
  minP: f32,
  repetitionPenalty: f32,
  presencePenalty: f32,
  frequencyPenalty: f32,
  seed: maybe(unsigned),
  maxTokens: maybe(unsigned),
  minTokens: unsigned,
  stop: several(text),
  stopTokenIds: several(unsigned),
  includeStopStrInOutput: flag,
  ignoreEos: flag,
  badWords: several(text),
  logitBias: several(pair(unsigned, f32)),
  logprobs: maybe(unsigned),
  promptLogprobs: maybe(unsigned),
  skipSpecialTokens: flag,
  reusePrefix: flag,
  timeOps: flag,
  structure: maybe(structure),
});

const model = maybe(unsigned);

const request = message({
  Hello: { version: unsigned, build: text, lock: text },
  Load: { source, options: loadOptions, ifFull: word("ask", "wait", "replace") },
  GiveUpLoad: {},
  Generate: {
    request: unsigned,
    model,
    prompts: several(prompt),
    options: generateOptions,
    generated: several(several(unsigned)),
  },
  Tokenize: { request: unsigned, model, prompt },
  Status: { request: unsigned },
  Batch: { request: unsigned },
  Cancel: { request: unsigned },
  Received: { nEvents: unsigned },
  Bye: {},
  Break: { fault: word("destroyDevice", "loseDevice", "panic", "noise") },
});

const likely = { id: unsigned, text, logprob: f32 };
const tokenLogprob = fields({ ...likely, top: several(fields(likely)) });

const modelInfo = fields({
  id: unsigned,
  name: text,
  architecture: text,
  quantization: text,
  license: maybe(text),
  nParameters: unsigned,
  fileBytes: unsigned,
  storageNote: maybe(text),
  weightBytes: unsigned,
  context: unsigned,
  kvTokens: unsigned,
  kvBytes: unsigned,
  kvNote: maybe(text),
  deviceName: text,
  deviceBackend: text,
  deviceKind: word("gpu", "software", "cpu"),
  deviceNote: maybe(text),
  deviceDetails: text,
  precision: word("auto", "exact", "fast"),
  nLayers: unsigned,
  vocabSize: unsigned,
  hasChatTemplate: flag,
  templateArguments: several(text),
});

const status = fields({
  nTabs: unsigned,
  nModels: unsigned,
  nLoads: unsigned,
  nLosses: unsigned,
  nGpuBuffers: unsigned,
  gpuBytes: unsigned,
  nPipelinesLeft: unsigned,
  memoryBytes: maybe(unsigned),
  running: unsigned,
  waiting: unsigned,
  own: unsigned,
  freeBlocks: unsigned,
  cachedBlocks: unsigned,
  nBlocks: unsigned,
  steps: unsigned,
  preemptions: unsigned,
  tokensPerSec: f64,
  ownTokensPerSec: f64,
});

const sequenceStatus = fields({
  tab: unsigned,
  isOwn: flag,
  isRunning: flag,
  promptTokens: unsigned,
  nTokens: unsigned,
  cachedTokens: unsigned,
  prefillRows: unsigned,
  decodeRows: unsigned,
  aloneBlocks: unsigned,
  sharedBlocks: unsigned,
});

const batchStatus = fields({
  steps: unsigned,
  sequences: several(sequenceStatus),
  aloneBlocks: unsigned,
  sharedBlocks: unsigned,
  cachedBlocks: unsigned,
  emptyBlocks: unsigned,
});

const usage = fields({
  promptTokens: unsigned,
  cachedTokens: unsigned,
  generatedTokens: unsigned,
  queueMs: f64,
  prefillMs: f64,
  decodeMs: f64,
});

const opTime = { name: text, dispatches: unsigned, ms: f64, weightBytes: unsigned };
const modelUse = fields({ name: text, nBytes: unsigned, nTabs: unsigned, nSequences: unsigned });
const output = { request: unsigned, output: unsigned };

const event = message({
  Welcome: { version: unsigned, build: text, epoch: text },
  Unacquainted: {},
  Loading: { stage: text, doneBytes: unsigned, totalBytes: unsigned },
  Ready: { model: modelInfo, source, options: loadOptions },
  LoadFailed: { error: text, unloaded: flag },
  InUse: { models: several(modelUse) },
  Unloaded: { reason: text },
  Started: { request: unsigned, promptTokens: several(unsigned), openings: several(text) },
  PromptLogprobs: { ...output, tokens: several(maybe(tokenLogprob)) },
  Prefilling: { ...output, doneTokens: unsigned, totalTokens: unsigned },
  Tokens: { ...output, text, ids: several(unsigned), logprobs: several(tokenLogprob) },
  OpTimes: { request: unsigned, position: unsigned, ops: several(fields(opTime)) },
  Tokenized: { request: unsigned, text, ids: several(unsigned), pieces: several(text), bytes: several(several(byte)) },
  Status: { request: maybe(unsigned), status },
  Batch: { request: unsigned, batch: batchStatus },
  Finished: { ...output, reason: word("stop", "length", "cancelled", "unmet"), usage, nLeft: unsigned },
  Failed: { request: maybe(unsigned), error: text },
});

const write = (one, value) => {
  const bytes = [];
  one.write(bytes, value);
  return Uint8Array.from(bytes);
};

const read = (one, bytes) => {
  const from = { view: new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength), at: 0 };
  const value = one.read(from);
  if (from.at !== bytes.byteLength) throw new Error("the engine and its package are of different builds; install it again");
  return value;
};

export const encodeRequest = (value) => write(request, value);
export const decodeRequest = (bytes) => read(request, bytes);
export const encodeEvent = (value) => write(event, value);
export const decodeEvent = (bytes) => read(event, bytes);

// What the engine takes where nothing is said.
export const LOAD_DEFAULTS = {
  context: null,
  kv: "f16",
  precision: "auto",
  device: "auto",
  quantize: "none",
  keepUnusedSecs: null,
};

export const GENERATE_DEFAULTS = {
  n: 1,
  temperature: 1,
  topK: 0,
  topP: 1,
  minP: 0,
  repetitionPenalty: 1,
  presencePenalty: 0,
  frequencyPenalty: 0,
  seed: null,
  maxTokens: 16,
  minTokens: 0,
  stop: [],
  stopTokenIds: [],
  includeStopStrInOutput: false,
  ignoreEos: false,
  badWords: [],
  logitBias: [],
  logprobs: null,
  promptLogprobs: null,
  skipSpecialTokens: true,
  reusePrefix: true,
  timeOps: false,
  structure: null,
};
