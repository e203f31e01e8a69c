// What pagelm gives to TypeScript. The README shows how it is used.

/** Which device computes: `auto` takes a GPU where the runtime has one that the processor does not imitate, else the processor. */
export type Device = "auto" | "gpu" | "cpu";

export interface CreateOptions {
  /** `auto` if absent. */
  device?: Device;
  /** Where engine_bg.wasm is, or what it is, where it does not lie beside the package's own modules. */
  wasm?: URL | Request | Response | BufferSource | WebAssembly.Module;
  /** Is asked for models' URLs instead of the runtime's `fetch`, as to send a header along. Ranges are asked for. */
  fetch?: (url: string, init: { headers: { Range: string } }) => Promise<Response>;
}

/** Bytes of a file. A stream is read whole into a Blob before anything is loaded. */
export type FileBytes = Uint8Array | ArrayBuffer | Blob | ReadableStream<Uint8Array> | Response;

/**
 * Where a model is. A URL is read by ranges where its server has them; it names a `.gguf` file, any part of a split one, or a
 * Hugging Face folder by `config.json`, a `.safetensors` file or a slash at its end. In Node, Deno and Bun it may be a path or a
 * `file:` URL. Several files are all parts of a split `.gguf` file, or those of a Hugging Face folder.
 */
export type ModelSource = string | URL | FileBytes | Array<File | { name: string; data: FileBytes }>;

export interface LoadOptions {
  /** Longest conversation in tokens; the model's own limit, or 4096 where that is larger, if absent. */
  context?: number;
  /** Number type of the KV cache; `f16` if absent. */
  kv?: "f16" | "f32" | "q8";
  /** Arithmetic of activations; `auto`, the default, is exact on GPUs and fast on the processor. */
  precision?: "auto" | "exact" | "fast";
  /** What weights that are plain numbers become while they are loaded. */
  quantize?: "none" | "q8_0" | "q4_0";
  /** Hears how far the load is. */
  onProgress?: (progress: Progress) => void;
  /** Gives the load up. */
  signal?: AbortSignal;
}

export interface Progress {
  /** What is being done, in words. */
  stage: string;
  doneBytes: number;
  /** 0 while unknown. */
  totalBytes: number;
}

/** How to choose tokens, with vLLM's meanings and defaults. */
export interface GenerateOptions {
  /** Outputs for each prompt, 1–64; 1 if absent. */
  n?: number;
  /** Divides the logits; 0 takes the likeliest token. 1 if absent. */
  temperature?: number;
  /** Keeps the k likeliest tokens; 0 or −1 keeps all. */
  topK?: number;
  /** Keeps the likeliest tokens whose probabilities sum to p, in (0, 1]. */
  topP?: number;
  /** Drops tokens less likely than this times the likeliest, in [0, 1]. */
  minP?: number;
  /** Divides positive and multiplies negative logits of tokens in prompt or output, > 0. */
  repetitionPenalty?: number;
  /** Is subtracted once from tokens in the output, in [−2, 2]. */
  presencePenalty?: number;
  /** Is subtracted for each occurrence in the output, in [−2, 2]. */
  frequencyPenalty?: number;
  /** Makes sampling repeatable on the same device and build. */
  seed?: number;
  /** Most tokens; null is what the context leaves. 16 for `generate` if absent, null for `chat`. */
  maxTokens?: number | null;
  /** No end is reached before so many tokens. */
  minTokens?: number;
  /** Strings that end the answer. */
  stop?: string | string[];
  /** Token ids that end the answer. */
  stopTokenIds?: number[];
  /** Keeps the stop string in the text. */
  includeStopStrInOutput?: boolean;
  /** Goes on past end-of-generation tokens. */
  ignoreEos?: boolean;
  /** Texts that must not be generated. */
  badWords?: string | string[];
  /** Added to the logits of token ids, each in [−100, 100]. */
  logitBias?: Record<number, number> | Map<number, number>;
  /** Tells the log-probability of each token, and of so many likeliest ones, ≤ 20. */
  logprobs?: number;
  /** The same for the prompt's tokens. */
  promptLogprobs?: number;
  /** Leaves special tokens out of the text; true if absent. */
  skipSpecialTokens?: boolean;
  /** Uses what the cache holds of the prompt's beginning; true if absent. */
  reusePrefix?: boolean;
  /** Times a decode step by operation, where the device has a clock. */
  timeOps?: boolean;
  /**
   * What form the answer has: a JSON object, JSON of a JSON Schema, or what a grammar in llguidance's Lark describes. An answer
   * whose `reason` is "length" or "unmet" is not whole.
   */
  structure?: Structure | null;
  /** Cancels the answer: the iterator throws the signal's reason. */
  signal?: AbortSignal;
}

export interface ChatOptions extends GenerateOptions, TemplateOptions {}

/** What a chat template is told beside the messages. */
export interface TemplateOptions {
  /** Tools offered to the model. */
  tools?: object[];
  /** Further arguments of the template, such as `enable_thinking`. */
  templateArguments?: Record<string, unknown>;
}

export type Structure = "json" | { jsonSchema: object | string } | { grammar: string };

/** A text, or its tokens. */
export type Prompt = string | number[] | Uint32Array;

export interface Message {
  /** `system`, `user`, `assistant`, `tool`, or what the template knows. */
  role: string;
  content?: string | Array<string | { type: "text"; text: string }>;
  toolCalls?: Array<{ id?: string; name: string; arguments?: string | object }>;
}

export interface Likely {
  id: number;
  /** U+FFFD where the token is part of a character. */
  text: string;
  /** Natural logarithm of its probability, of the raw logits. */
  logprob: number;
}

export interface TokenLogprob extends Likely {
  /** The likeliest tokens at this place, likeliest first. */
  top: Likely[];
}

export interface Usage {
  promptTokens: number;
  /** Of these, tokens that were found in the cache. */
  cachedTokens: number;
  generatedTokens: number;
  /** From acceptance until it first ran. */
  queueMs: number;
  /** From then to the first token. */
  prefillMs: number;
  /** From the first token to the last. */
  decodeMs: number;
}

/** What an output came to, or a piece of it. */
export interface Output {
  /** Whole characters that became certain; may be empty. */
  text: string;
  ids: number[];
  /** One entry a token, if asked for. */
  logprobs?: TokenLogprob[];
  /** One entry a prompt token, if asked for; the first is null. */
  promptLogprobs?: Array<TokenLogprob | null>;
  /** If asked for. */
  opTimes?: { position: number; ops: Array<{ name: string; dispatches: number; ms: number; weightBytes: number }> };
  /** Why the output ended; in its last piece. */
  reason?: "stop" | "length" | "cancelled" | "unmet";
  /** What it took; in its last piece. */
  usage?: Usage;
}

export interface Piece extends Output {
  /** Which output it belongs to, from 0: prompt by prompt, `n` of each. */
  output: number;
}

/**
 * An answer, which runs from the moment it was asked for. Leaving its loop cancels it. What is not read yet waits in one piece an
 * output. It throws an Error where the engine refuses or cannot go on.
 */
export class Answer implements AsyncIterableIterator<Piece> {
  private constructor();
  [Symbol.asyncIterator](): this;
  next(): Promise<IteratorResult<Piece, undefined>>;
  return(): Promise<IteratorResult<Piece, undefined>>;
  /** Reads to the end, and gives all outputs in their order. */
  whole(): Promise<Output[]>;
}

export interface ModelInfo {
  id: number;
  name: string;
  architecture: string;
  /** How most weights are packed, as GGUF calls it. */
  quantization: string;
  /** The licence that the file names. */
  license: string | null;
  nParameters: number;
  fileBytes: number;
  /** Why the page does not keep it; a program decides that by itself. */
  storageNote: string | null;
  weightBytes: number;
  /** Longest conversation in tokens. */
  context: number;
  /** Tokens that the KV pool holds, all sequences together. */
  kvTokens: number;
  kvBytes: number;
  /** The KV pool was made smaller than asked, and why. */
  kvNote: string | null;
  deviceName: string;
  deviceBackend: string;
  deviceKind: "gpu" | "software" | "cpu";
  /** Why it is this device, where nobody chose and it is not the first choice. */
  deviceNote: string | null;
  /** The kernels in use and what the device allows, in words. */
  deviceDetails: string;
  precision: "auto" | "exact" | "fast";
  nLayers: number;
  vocabSize: number;
  hasChatTemplate: boolean;
  /** Arguments that the template reads beside those that every conversation has, such as `enable_thinking`. */
  templateArguments: string[];
}

export interface Status {
  nTabs: number;
  nModels: number;
  nLoads: number;
  nLosses: number;
  nGpuBuffers: number;
  gpuBytes: number;
  /** Until they are made, slower ones stand in for them. */
  nPipelinesLeft: number;
  memoryBytes: number | null;
  running: number;
  waiting: number;
  own: number;
  freeBlocks: number;
  cachedBlocks: number;
  nBlocks: number;
  /** Steps since the model was loaded; each brings every running answer a token. */
  steps: number;
  preemptions: number;
  tokensPerSec: number;
  ownTokensPerSec: number;
}

/** An engine of one's own, with one model at a time. What is asked at once runs as one batch. */
export class Engine {
  private constructor();
  static create(options?: CreateOptions): Promise<Engine>;
  /** The model that answers, if one is loaded. */
  get model(): ModelInfo | null;
  /**
   * Loads a model in place of the one before. Answers of that one go on, unless its memory is needed: then they end as cancelled.
   * After a load that failed the one before is still there, but for the same reason; `model` tells.
   */
  load(source: ModelSource, options?: LoadOptions): Promise<ModelInfo>;
  /** Continues a text, or several. */
  generate(prompt: Prompt | Prompt[], options?: GenerateOptions): Answer;
  /** Answers a conversation, by the model's chat template. */
  chat(messages: Message[], options?: ChatOptions): Answer;
  /** What the model reads of a prompt or of a conversation. */
  tokenize(prompt: Prompt | Message[], options?: TemplateOptions): Promise<{ text: string; ids: number[]; pieces: string[] }>;
  /** How the engine stands. */
  status(): Promise<Status>;
  /** Ends all that runs and frees the model. */
  close(): void;
}
