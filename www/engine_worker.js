// Hosts the engine in a worker: one that all tabs share, or, where no such worker has WebGPU, one of the leading tab's own,
// which the others reach over a channel. It listens first and loads second: what is said meanwhile waits in the ports.
const isShared = "onconnect" in globalThis;
const base = new URL(".", location.href).pathname;
const withoutGpu = new URL(location.href).searchParams.has("without-gpu");
// The instance tells this worker from the one before it; the leading tab chooses that of its own.
const [channelName, instance] = isShared ? ["", `${Date.now()}-${Math.random()}`] : globalThis.name.split("\n");
// All that are open. The engine takes one out when its tab is gone.
const ports = new Set();
let attach = null;
let lastWords = null;

const meet = (port) => {
  if (lastWords) {
    port.postMessage(lastWords);
    return close();
  }
  ports.add(port);
  port.postMessage(["open", instance]);
  attach?.(port);
};

// Ends the worker. Its locks are free then, which tells every tab; the words are for the person.
const end = (...words) => {
  if (lastWords) return;
  lastWords = words;
  toAll(words);
  // Where a shared worker closes before its first tab connects, that tab never hears anything.
  if (!isShared || ports.size > 0) close();
};
globalThis.fatal = (sentence) => end("fatal", sentence, instance);
let toAll = (words) => ports.forEach((port) => port.postMessage(words));

// A tab's end of the channel, as a port: keeps what comes before anybody listens.
class TabPort {
  #early = [];
  #hear = null;

  constructor(line) {
    this.line = line;
  }

  set onmessage(hear) {
    this.#hear = hear;
    if (hear) this.#early.splice(0).forEach((data) => hear({ data }));
  }

  deliver(data) {
    if (this.#hear) this.#hear({ data });
    else this.#early.push(data);
  }

  postMessage(message) {
    channel.postMessage({ to: this.line, from: "engine", message });
  }

  close() {
    lines.delete(this.line);
  }
}

const lines = new Map();
const channel = isShared ? null : new BroadcastChannel(channelName);

if (isShared) {
  globalThis.onconnect = ({ ports: [port] }) => meet(port);
} else {
  toAll = (message) => channel.postMessage({ to: "all", from: "engine", message });
  channel.onmessage = ({ data }) => {
    if (data?.to !== "engine" || typeof data.from !== "string") return;
    if (data.message?.[0] === "knock") {
      channel.postMessage({ to: data.from, from: "engine", message: lastWords ?? ["open", instance] });
      return;
    }
    let port = lines.get(data.from);
    if (!port) {
      port = new TabPort(data.from);
      lines.set(data.from, port);
      ports.add(port);
      attach?.(port);
    }
    port.deliver(data.message);
  };
  toAll(["open", instance]);
}

// What the engine's own panic hook cannot tell: a trap without a panic, such as memory that cannot grow.
addEventListener("error", (event) => {
  event.preventDefault();
  fatal(`The engine stopped: ${event.message}.`);
});
addEventListener("unhandledrejection", ({ reason }) => {
  if (reason instanceof WebAssembly.RuntimeError) fatal(`The engine stopped: ${reason.message}.`);
});

// Asked before the engine is fetched: a shared worker without WebGPU leaves at once and holds no lock, unless the tab found
// that it has none either; then the processor computes, and the worker may as well be shared. Where the GPU's process
// just crashed, a browser may need a moment until it offers an adapter.
const hasGpu = async () => {
  if (!navigator.gpu) return false;
  for (const pauseMs of [0, 100, 400, 1600]) {
    await new Promise((resolve) => setTimeout(resolve, pauseMs));
    if (await navigator.gpu.requestAdapter().catch(() => null)) return true;
  }
  return false;
};

// Not awaited here: a shared worker's first tab connects when this script has run to its end.
const load = async () => {
  if (isShared && !withoutGpu && !(await hasGpu())) return end("no-gpu");
  const engine = await import("./engine.js");
  await engine.default({ module_or_path: new URL("./engine_bg.wasm", import.meta.url) });
  engine.start(base, ports);
  attach = engine.attach;
  ports.forEach((port) => attach(port));
};
load().catch((error) => {
  fatal(`The engine could not be loaded (${error?.message ?? error}); reload the page, in a current browser.`);
});
