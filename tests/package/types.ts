// Uses all that the package declares; the compiler reads it, and nothing runs it.
import { Engine, type GenerateOptions, type Message, type Output, type Piece } from "pagelm";

const engine: Engine = await Engine.create({ device: "cpu", fetch: (url, init) => fetch(url, init) });
const info = await engine.load(new URL("./model.gguf", import.meta.url), {
  context: 2048,
  kv: "q8",
  onProgress: ({ stage, doneBytes, totalBytes }) => console.log(stage, doneBytes / totalBytes),
  signal: AbortSignal.timeout(1000),
});
const name: string = info.name;
await engine.load([{ name: "config.json", data: new Uint8Array() }, new File([], "model.safetensors")]);

const options: GenerateOptions = { maxTokens: null, stop: "\n", logitBias: { 5: -1 }, seed: 7 };
for await (const piece of engine.generate(["a", [1, 2]], options)) {
  const { output, text, ids }: Piece = piece;
  console.log(name, output, text, ids, piece.usage?.generatedTokens, piece.logprobs?.[0]?.top[0]?.logprob);
}
const messages: Message[] = [{ role: "user", content: [{ type: "text", text: "Hello" }] }];
const outputs: Output[] = await engine.chat(messages, { tools: [{}], templateArguments: { enable_thinking: false } }).whole();
const reason: "stop" | "length" | "cancelled" | "unmet" | undefined = outputs[0]?.reason;
const { ids }: { ids: number[] } = await engine.tokenize(messages);
const { steps } = await engine.status();
console.log(reason, ids, steps, engine.model?.hasChatTemplate);
engine.close();

engine.generate("a", { structure: { jsonSchema: { type: "object" } } });
engine.generate("a", { structure: "json" });
// @ts-expect-error: a grammar is a text
engine.generate("a", { structure: { grammar: {} } });
// @ts-expect-error: there is no such option
engine.generate("a", { topq: 1 });
// @ts-expect-error: an engine is made by Engine.create
new Engine();
// @ts-expect-error: not a number type of the cache
await engine.load("model.gguf", { kv: "f64" });
