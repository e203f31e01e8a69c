// Options by their names and kinds: what is none of them is refused here, in one sentence. Ranges are the engine's to check.

// A kind of value: what it is called, how it is told, and what the engine takes for it.
const kind = (wanted, is, turn = (value) => value) => ({ wanted, is, turn });
const every = (is) => (value) => Array.isArray(value) && value.every(is);
const isText = (value) => typeof value === "string";
const isCount = (value) => Number.isInteger(value) && value >= 0 && value <= 0xffffffff;
const isPlain = (value) => value !== null && typeof value === "object" && !Array.isArray(value);

// One of some words.
const oneOf = (...words) => {
  const listed = words.map((word) => JSON.stringify(word));
  return kind(`one of ${listed.join(", ")}`, (value) => words.includes(value));
};

const flag = kind("true or false", (value) => typeof value === "boolean");
const number = kind("a number", Number.isFinite);
const integer = kind("a whole number", (value) => Number.isInteger(value) && Math.abs(value) <= 0x7fffffff);
const count = kind("a whole number from 0 on", isCount);
const seed = kind("a whole number from 0 to 2^53 − 1", (value) => Number.isSafeInteger(value) && value >= 0);
const limit = kind("a whole number, or null for what the context leaves", (value) => value === null || isCount(value));
const ids = kind("an array of token ids", every(isCount));
const texts = kind(
  "a string or an array of strings",
  (value) => isText(value) || every(isText)(value),
  (value) => [value].flat(),
);
const biases = kind(
  "an object or a Map from token ids to numbers",
  (value) => {
    const isBias = ([id, bias]) => isCount(Number(id)) && Number.isFinite(bias);
    return (value instanceof Map ? [...value] : isPlain(value) ? Object.entries(value) : [[]]).every(isBias);
  },
  (value) => (value instanceof Map ? [...value] : Object.entries(value)).map(([id, bias]) => [Number(id), bias]),
);
const callback = kind("a function", (value) => typeof value === "function");
const quantize = { ...oneOf("none", "q8_0", "q4_0"), turn: (value) => value.replace("_0", "") };
const signal = kind("an AbortSignal", (value) => value instanceof AbortSignal);
const structure = kind(
  'null, "json", { jsonSchema } with an object or a string, or { grammar } with a string',
  (value) => {
    if (value === null || value === "json") return true;
    const [[name, text] = [], ...others] = isPlain(value) ? Object.entries(value) : [];
    return !others.length && ((name === "jsonSchema" && (isText(text) || isPlain(text))) || (name === "grammar" && isText(text)));
  },
  (value) => {
    if (value === null) return null;
    if (value === "json") return { kind: "Json" };
    const { jsonSchema, grammar } = value;
    if (grammar !== undefined) return { kind: "Grammar", text: grammar };
    return { kind: "JsonSchema", text: isText(jsonSchema) ? jsonSchema : JSON.stringify(jsonSchema) };
  },
);
const anything = kind("anything", () => true);
const tools = kind("an array of objects", every(isPlain), (value) => value.map((tool) => JSON.stringify(tool)));
const templateArguments = kind("an object", isPlain, (value) =>
  Object.entries(value).map(([name, value]) => [name, JSON.stringify(value)]),
);
export const CREATE = {
  device: oneOf("auto", "gpu", "cpu"),
  wasm: anything,
  fetch: callback,
};

export const LOAD = {
  context: count,
  kv: oneOf("f16", "f32", "q8"),
  precision: oneOf("auto", "exact", "fast"),
  quantize,
  onProgress: callback,
  signal,
};

export const GENERATE = {
  n: count,
  temperature: number,
  topK: integer,
  topP: number,
  minP: number,
  repetitionPenalty: number,
  presencePenalty: number,
  frequencyPenalty: number,
  seed,
  maxTokens: limit,
  minTokens: count,
  stop: texts,
  stopTokenIds: ids,
  includeStopStrInOutput: flag,
  ignoreEos: flag,
  badWords: texts,
  logitBias: biases,
  logprobs: count,
  promptLogprobs: count,
  skipSpecialTokens: flag,
  reusePrefix: flag,
  timeOps: flag,
  structure,
  signal,
};

export const CHAT = { ...GENERATE, tools, templateArguments };

// The options that were given, as the engine takes them. `undefined` is as good as nothing.
export const read = (what, table, options = {}) => {
  if (!isPlain(options)) throw new TypeError(`${what} takes its options as an object, found ${shown(options)}`);
  const given = Object.entries(options).filter(([, value]) => value !== undefined);
  const taken = given.map(([name, value]) => {
    if (!Object.hasOwn(table, name)) {
      const names = Object.keys(table).join(", ");
      throw new TypeError(`${what} has no option ${JSON.stringify(name)}; there are ${names}`);
    }
    const { wanted, is, turn } = table[name];
    if (!is(value)) throw new TypeError(`${name} must be ${wanted}, found ${shown(value)}`);
    return [name, turn(value)];
  });
  return Object.fromEntries(taken);
};

// Prompts: one text, or one as tokens, or several of them.
export const promptsOf = (prompt) => {
  const isTokens = (value) => value instanceof Uint32Array || (Array.isArray(value) && value.length && value.every(isCount));
  const one = (value) => {
    if (isText(value)) return { kind: "Text", text: value };
    if (isTokens(value)) return { kind: "Tokens", ids: [...value] };
    throw new TypeError(`a prompt must be a string or an array of token ids, found ${shown(value)}`);
  };
  return Array.isArray(prompt) && !isTokens(prompt) ? prompt.map(one) : [one(prompt)];
};

// A conversation, as the engine takes it.
export const chatOf = (messages, { tools = [], templateArguments = [] }) => {
  if (!Array.isArray(messages)) throw new TypeError(`chat takes an array of messages, found ${shown(messages)}`);
  return { kind: "Chat", messages: messages.map(messageOf), tools, templateArguments };
};

const messageOf = (message, index) => {
  const wrong = (problem) => new TypeError(`message ${index + 1} of the chat ${problem}`);
  if (!isPlain(message)) throw wrong(`must be an object with \`role\` and \`content\`, found ${shown(message)}`);
  const { role, content = "", toolCalls = [], ...others } = message;
  const [other] = Object.keys(others);
  if (other !== undefined) throw wrong(`has a field ${JSON.stringify(other)}; there are role, content and toolCalls`);
  if (!isText(role)) throw wrong(`must have a string as its role, found ${shown(role)}`);
  const textOf = (part) => {
    if (isText(part)) return { kind: "Text", text: part };
    if (part?.type === "text" && isText(part.text)) return { kind: "Text", text: part.text };
    throw wrong(`must have text as its content, found ${shown(part)}`);
  };
  const callOf = ({ id = "", name, arguments: given = {} } = {}) => {
    if (!isText(id) || !isText(name)) throw wrong("has a tool call whose id and name are not both strings");
    return { id, name, arguments: isText(given) ? given : JSON.stringify(given) };
  };
  if (!Array.isArray(toolCalls)) throw wrong(`must have an array as its toolCalls, found ${shown(toolCalls)}`);
  return { role, content: [content].flat().map(textOf), toolCalls: toolCalls.map(callOf) };
};

// A value, short enough for a sentence.
const shown = (value) => {
  if (value === null || ["number", "boolean", "undefined", "bigint"].includes(typeof value)) return String(value);
  if (isText(value)) return JSON.stringify(value.length > 40 ? `${value.slice(0, 40)}…` : value);
  return Array.isArray(value) ? "an array" : `a value of type ${value.constructor?.name ?? typeof value}`;
};
