// Starts the page: takes a new version where one waits, then the application, then the service worker that keeps the page's
// own files for when there is no network. index.html says where the application is; a script of its own, since no inline
// script may run.
const at = (path) => new URL(path, document.baseURI).href;
const named = (name) => document.querySelector(`meta[name="${name}"]`);
/** A worker that does not answer within this is left alone. */
const ANSWER_MS = 2000;
const container = navigator.serviceWorker;

const within = (ms, promise) => Promise.race([promise, new Promise((resolve) => setTimeout(resolve, ms, false))]);

// The worker says whether it may take over: only for the one tab there is, since tabs that run must not meet files of
// another version. It does so once it is told to, so that one that answers too late does nothing.
const mayTakeOver = (worker) =>
  new Promise((resolve) => {
    const { port1, port2 } = new MessageChannel();
    port1.onmessage = ({ data }) => resolve(data === true);
    worker.postMessage("may you take over?", [port2]);
  });

const takeNewVersion = async () => {
  if (!container?.controller) return;
  const waiting = (await container.getRegistration())?.waiting;
  if (!waiting) return;
  if ((await within(ANSWER_MS, mayTakeOver(waiting))) !== true) return;
  const changed = new Promise((resolve) => container.addEventListener("controllerchange", resolve, { once: true }));
  waiting.postMessage("take over");
  if ((await within(5 * ANSWER_MS, changed)) === false) {
    // It takes long: the older version starts, and gives way once the new one takes its files away.
    changed.then(() => location.reload());
    return;
  }
  location.reload();
  // Nothing of the older version starts meanwhile.
  await new Promise(() => {});
};

const announce = () => dispatchEvent(new Event("pagelm-new-version"));

const keepFiles = async () => {
  // A page under development has none: it is never an older one.
  const script = named("service-worker")?.content;
  if (!script) return;
  const registration = await container.register(at(script), { updateViaCache: "none" });
  // The first worker waits for nobody; a later one waits for the tabs that are controlled by the one before.
  const announceOnceWaiting = (worker) =>
    worker?.addEventListener("statechange", () => {
      if (worker.state === "installed" && registration.active) announce();
    });
  if (registration.waiting && registration.active) announce();
  announceOnceWaiting(registration.installing);
  registration.addEventListener("updatefound", () => announceOnceWaiting(registration.installing));
};

const start = async () => {
  await takeNewVersion().catch(() => {});
  const application = named("application");
  const bindings = await import(at(application.content));
  const wasm = await bindings.default({ module_or_path: at(application.dataset.wasm) });
  // For tests and developers.
  window.wasmBindings = bindings;
  dispatchEvent(new CustomEvent("TrunkApplicationStarted", { detail: { wasm } }));
};

try {
  await start();
} catch (error) {
  const told = document.querySelector(".first-paint p");
  if (told) told.textContent = `The page could not be started (${error?.message ?? error}); reload it, in a current browser.`;
  throw error;
}
// Only secure contexts have it. Where it cannot be had, as in some private windows, the page works as long as its host answers.
if (container) await keepFiles().catch((error) => console.info(`The page is not kept for offline use: ${error?.message ?? error}`));
