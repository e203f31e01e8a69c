// In the place of a service worker where the page is under development: ends the one that a built page left at this address,
// with its files, and has the tabs load what is served now.
addEventListener("install", () => skipWaiting());
addEventListener("activate", (event) => {
  const end = async () => {
    const before = `pagelm files ${new URL("./", location.href).pathname} `;
    const names = (await caches.keys()).filter((name) => name.startsWith(before));
    await Promise.all(names.map((name) => caches.delete(name)));
    const tabs = await clients.matchAll({ type: "window" });
    await registration.unregister();
    tabs.forEach((tab) => tab.navigate(tab.url));
  };
  event.waitUntil(end());
});
