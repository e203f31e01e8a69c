// An engine of one's own, in a page or in any runtime with WebAssembly: what the engine tells becomes promises and asynchronous
// iterators. Whatever is asked ends: with an answer, or with an Error that says why in one sentence.
import init, { PackagedEngine } from "./engine.js";
import { Answer, abort, fail, hear } from "./answer.js";
import { fetchAny, modelOf, node } from "./files.js";
import { CHAT, CREATE, GENERATE, LOAD, chatOf, promptsOf, read } from "./options.js";
import { GENERATE_DEFAULTS, LOAD_DEFAULTS, decodeEvent, encodeRequest } from "./protocol.js";

export { Answer };

// Events that are heard before the engine is told so; it holds back where 64 are not.
const EVENTS_AT_ONCE = 16;

let started = null;
// Why no engine here can go on: they share their memory.
let fault = null;

// Compiles the engine, once for all.
const start = (wasm) => {
  const load = async () => {
    const url = wasm ?? new URL("./engine_bg.wasm", import.meta.url);
    // Node fetches no files.
    const isFile = url instanceof URL && url.protocol === "file:";
    await init({ module_or_path: isFile ? await (await node("fs/promises")).readFile(url) : url });
  };
  started ??= load().catch((error) => {
    started = null;
    throw new Error(`the engine's WebAssembly could not be loaded: ${error.message}`, { cause: error });
  });
  return started;
};

export class Engine {
  static #ours = false;
  #wasm;
  #device;
  #model = null;
  // The load under way, if any.
  #load = null;
  // By their requests' numbers: answers that run, and what else is to be replied to.
  #answers = new Map();
  #replies = new Map();
  #nAsked = 0;
  #nHeard = 0;
  // Why nothing can be asked any more.
  #end = null;

  static async create(options) {
    const { device = "auto", wasm, fetch } = read("Engine.create", CREATE, options);
    await start(wasm);
    if (fault) throw new Error(`${fault} Start the program anew.`);
    Engine.#ours = true;
    return new Engine(device, fetch);
  }

  constructor(device, fetch) {
    if (!Engine.#ours) throw new TypeError("an engine is made by `await Engine.create()`, not by `new`");
    Engine.#ours = false;
    this.#device = device;
    this.#wasm = new PackagedEngine((told) => this.#hear(told), fetchAny(fetch));
  }

  get model() {
    return this.#model;
  }

  async load(source, options) {
    const { onProgress, signal, ...rest } = read("load", LOAD, options);
    this.#check();
    if (this.#load) throw new Error("a model is being loaded already; wait for it, or abort that load");
    signal?.throwIfAborted();
    const load = { onProgress, ...withResolvers() };
    this.#load = load;
    const giveUp = () => {
      load.reject(signal.reason);
      if (!this.#end) this.#send({ kind: "GiveUpLoad" });
    };
    signal?.addEventListener("abort", giveUp);
    try {
      const bring = async () => {
        const { source: wanted, blobs } = await modelOf(source);
        // What is still told of a load that was given up comes before the reply.
        await this.status();
        if (this.#load !== load || signal?.aborted) return;
        // Nobody else could use the model before: it goes as soon as no answer needs it.
        const options = { ...LOAD_DEFAULTS, keepUnusedSecs: 0, device: this.#device, ...rest };
        load.wanted = JSON.stringify([wanted, options]);
        this.#send({ kind: "Load", source: wanted, options, ifFull: "replace" }, blobs);
      };
      bring().catch(load.reject);
      return await load.promise;
    } finally {
      signal?.removeEventListener("abort", giveUp);
      this.#load = null;
    }
  }

  generate(prompt, options) {
    return this.#ask(promptsOf(prompt), read("generate", GENERATE, options));
  }

  chat(messages, options) {
    const { tools, templateArguments, ...rest } = read("chat", CHAT, options);
    return this.#ask([chatOf(messages, { tools, templateArguments })], { maxTokens: null, ...rest });
  }

  async tokenize(prompt, options) {
    const chat = read("tokenize", { tools: CHAT.tools, templateArguments: CHAT.templateArguments }, options);
    const isChat = Array.isArray(prompt) && typeof prompt[0] === "object";
    const [one, ...more] = isChat ? [chatOf(prompt, chat)] : promptsOf(prompt);
    if (more.length) throw new TypeError("tokenize takes one prompt at a time");
    const { text, ids, pieces } = await this.#reply((request) => ({ kind: "Tokenize", request, model: null, prompt: one }));
    return { text, ids, pieces };
  }

  async status() {
    const { status } = await this.#reply((request) => ({ kind: "Status", request }));
    return status;
  }

  close() {
    if (this.#end) return;
    this.#finish(new Error("the engine was closed"));
  }

  #check() {
    if (this.#end) throw new Error(`${this.#end.message}; create another with Engine.create`);
  }

  #send(request, blobs = []) {
    this.#wasm.send(encodeRequest(request), blobs);
  }

  #ask(prompts, { signal, ...options }) {
    this.#check();
    const request = ++this.#nAsked;
    const forget = (isOver) => {
      const ran = this.#answers.delete(request);
      if (ran && !isOver && !this.#end) this.#send({ kind: "Cancel", request });
    };
    const answer = new Answer(forget, signal);
    if (signal?.aborted) {
      abort(answer);
    } else {
      this.#answers.set(request, answer);
      const all = { ...GENERATE_DEFAULTS, ...options };
      this.#send({ kind: "Generate", request, model: null, prompts, options: all, generated: [] });
    }
    return answer;
  }

  async #reply(ask) {
    this.#check();
    const request = ++this.#nAsked;
    const reply = withResolvers();
    this.#replies.set(request, reply);
    try {
      this.#send(ask(request));
      return await reply.promise;
    } finally {
      this.#replies.delete(request);
    }
  }

  // Nothing can be asked any more. Unless it broke, its loop ends, which frees its models.
  #finish(error, isBroken = false) {
    if (!isBroken) queueMicrotask(() => this.#wasm.free());
    this.#end = error;
    this.#model = null;
    this.#load?.reject(error);
    this.#replies.forEach((reply) => reply.reject(error));
    this.#answers.forEach((answer) => fail(answer, error));
  }

  #hear(told) {
    if (this.#end) return;
    // Words come where the engine cannot go on.
    if (typeof told === "string") return this.#finish(new Error((fault = told)), true);
    let event;
    try {
      event = decodeEvent(told);
    } catch (error) {
      return this.#finish(error);
    }
    this.#nHeard += 1;
    if (this.#nHeard === EVENTS_AT_ONCE) {
      this.#nHeard = 0;
      this.#send({ kind: "Received", nEvents: EVENTS_AT_ONCE });
    }
    switch (event.kind) {
      case "Loading":
        return this.#progress(event);
      case "Ready":
        this.#model = event.model;
        // Another's is one that was lost with its device and is there again.
        if (this.#load?.wanted === JSON.stringify([event.source, event.options])) this.#load.resolve(this.#model);
        return;
      case "LoadFailed":
        if (event.unloaded) this.#model = null;
        return this.#load?.wanted && this.#load.reject(new Error(event.error));
      case "Unloaded":
        this.#model = null;
        return;
      case "Unacquainted":
        return this.#finish(new Error("the engine gave up on a program that asked for more and more at once"));
      case "Failed":
        this.#replies.get(event.request)?.reject(new Error(event.error));
        return fail(this.#answers.get(event.request), new Error(event.error));
      case "Tokenized":
      case "Status":
        return this.#replies.get(event.request)?.resolve(event);
      default:
        return hear(this.#answers.get(event.request), event);
    }
  }

  #progress({ stage, doneBytes, totalBytes }) {
    // What is still told of a load before is not this one's.
    const load = this.#load?.wanted && this.#load;
    try {
      load?.onProgress?.({ stage, doneBytes, totalBytes });
    } catch (error) {
      load.reject(error);
      this.#send({ kind: "GiveUpLoad" });
    }
  }
}

// `Promise.withResolvers` is younger than Node 20. Whoever waits hears of a failure; nobody else need.
const withResolvers = () => {
  let resolve, reject;
  const promise = new Promise((...both) => ([resolve, reject] = both));
  promise.catch(() => {});
  return { promise, resolve, reject };
};
