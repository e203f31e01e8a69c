// A program of its own, for what ends a process: `node program.mjs PACKAGE MODEL HOW`.
const [folder, model, how] = process.argv.slice(2);
const { Engine } = await import(`${folder}/index.js`);
const { PackagedEngine } = await import(`${folder}/engine.js`);
const { encodeRequest } = await import(`${folder}/protocol.js`);

const engine = await Engine.create({ device: "cpu" });
await engine.load(model);
const say = (error) => console.log(String(error));
const run = engine.generate("a", { maxTokens: how === "panic" ? null : 4, ignoreEos: true });

if (how === "read") console.log((await run.whole())[0].ids.length);
if (how === "close") {
  await run.next();
  engine.close();
  await run.whole().catch(say);
  await engine.load(model).catch(say);
  try {
    engine.generate("a");
  } catch (error) {
    say(error);
  }
}
if (how === "panic") {
  // Where nobody catches what the engine's own turn throws, Node ends the process.
  process.on("uncaughtException", () => {});
  await run.next();
  // A request that the package itself does not make.
  const other = new PackagedEngine(() => {}, fetch);
  other.send(encodeRequest({ kind: "Break", fault: "panic" }), []);
  await run.whole().catch(say);
  await Engine.create().catch(say);
}
