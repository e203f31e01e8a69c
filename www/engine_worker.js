// Starts the engine in a worker. Listens first, loads second: messages sent meanwhile are handed over, in order.
const early = [];
onmessage = ({ data }) => early.push(data);

// The page hears the first only: after a panic, the engine's own words come before those for the trap that ends it.
const fatal = (sentence) => postMessage(["fatal", sentence]);

// What the engine's own panic hook cannot tell: a trap without a panic, such as memory that cannot grow.
addEventListener("error", (event) => {
  event.preventDefault();
  fatal(`The engine stopped: ${event.message}. Load a model to start it again.`);
});
addEventListener("unhandledrejection", ({ reason }) => {
  if (reason instanceof WebAssembly.RuntimeError) {
    fatal(`The engine stopped: ${reason.message}. Load a model to start it again.`);
  }
});

try {
  const { default: init, attach } = await import("./engine.js");
  await init({ module_or_path: new URL("./engine_bg.wasm", import.meta.url) });
  // From here on the engine owns `onmessage`.
  attach(globalThis, early);
} catch (error) {
  fatal(`The engine could not be loaded (${error?.message ?? error}); reload the page, in a current browser.`);
}
