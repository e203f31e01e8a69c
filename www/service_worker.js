// Keeps the page's own files of one version, so that the page starts without a network. VERSION and FILES stand before this:
// the build writes them. Models are the engine's, in OPFS, and go by.
//
// Invariant: all that one worker serves is of one version, and no worker takes another's place while a tab runs: a tab and
// the engine's worker, whose script has the same name in every version, are of one build.
const base = new URL("./", location.href);
const before = `pagelm files ${base.pathname} `;
const cacheName = before + VERSION;

// The name of one of the page's own files, if it is one.
const nameOf = ({ method, url, headers }) => {
  const { origin, pathname } = new URL(url);
  if (method !== "GET" || headers.has("range") || origin !== base.origin || !pathname.startsWith(base.pathname)) return null;
  const name = pathname.slice(base.pathname.length);
  const known = name === "" || name === "index.html" ? "./" : name;
  return Object.hasOwn(FILES, known) ? known : null;
};

// A file with no hash may differ from the build's: it is the host's to change.
const isHosts = (name) => FILES[name] === null;
const requestOf = (name) => {
  const integrity = FILES[name] ?? "";
  return new Request(new URL(name, base), { cache: "no-cache", integrity });
};

addEventListener("install", (event) => {
  // One file that is missing or of another version, as while a host is given a new one, and nothing is kept; the next visit
  // tries again.
  const keep = async () => (await caches.open(cacheName)).addAll(Object.keys(FILES).map(requestOf));
  event.waitUntil(keep());
});

addEventListener("activate", (event) => {
  const forget = async () => {
    const names = await caches.keys();
    const others = names.filter((name) => name.startsWith(before) && name !== cacheName);
    await Promise.all(others.map((name) => caches.delete(name)));
  };
  event.waitUntil(forget());
});

addEventListener("fetch", (event) => {
  const name = nameOf(event.request);
  if (name === null) return;
  // Anew, so that it has the address it was asked for by, which the engine's worker reads its options from.
  const kept = async () => {
    // Where the cache cannot be had, the host may.
    const cache = await caches.open(cacheName).catch(() => null);
    const response = await cache?.match(new URL(name, base)).catch(() => undefined);
    return response && new Response(response.body, response);
  };
  const fromHost = async () => {
    try {
      const response = await fetch(event.request);
      const copy = response.clone();
      const keep = async () => (await caches.open(cacheName)).put(new URL(name, base), copy);
      // A full storage is no fault of the host.
      if (response.ok) await keep().catch(() => {});
      return response;
    } catch (error) {
      const response = await kept();
      if (response) return response;
      throw error;
    }
  };
  const answer = async () => (isHosts(name) ? fromHost() : ((await kept()) ?? fetch(event.request)));
  event.respondWith(answer());
});

// Asked by a tab that starts: this worker waits, and may take the other's place if that tab is the only one, and still waits
// for it.
addEventListener("message", (event) => {
  const answer = async () => {
    const windows = await clients.matchAll({ type: "window", includeUncontrolled: true });
    event.ports[0]?.postMessage(windows.filter(({ url }) => url.startsWith(base.href)).length === 1);
  };
  if (event.data === "may you take over?") event.waitUntil(answer());
  if (event.data === "take over") event.waitUntil(skipWaiting());
});
