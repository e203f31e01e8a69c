// The engine on WebGPU outside of a browser, by Dawn's module for Node: the same tokens as the reference.
import assert from "node:assert/strict";
import { existsSync, readFileSync } from "node:fs";
import test from "node:test";
import { fixture, moduleOf, of } from "./place.mjs";

// Where there is no GPU, Chromium's software one; Mesa's has too little for Dawn.
const software = "/usr/lib/chromium/vk_swiftshader_icd.json";
if (existsSync(software)) process.env.VK_ICD_FILENAMES = software;
const { create, globals } = await moduleOf("webgpu/index.js");
Object.assign(globalThis, globals);
Object.defineProperty(globalThis, "navigator", { value: { gpu: create([]) }, configurable: true });

const { Engine } = await of("index.js");
const { prompts } = JSON.parse(readFileSync(fixture("llama-tiny/expected.json")));

test("a runtime with WebGPU computes there", async () => {
  const engine = await Engine.create({ device: "gpu" });
  const { deviceBackend, deviceKind } = await engine.load(fixture("llama-tiny/"), { precision: "exact", kv: "f32" });
  assert.equal(deviceBackend, "webgpu");
  assert.notEqual(deviceKind, "cpu");
  const answers = prompts.slice(0, 4).map(({ prompt, greedy }) => {
    return engine.generate(prompt, { temperature: 0, maxTokens: greedy.length, ignoreEos: true }).whole();
  });
  const found = await Promise.all(answers);
  assert.deepEqual(found.map(([{ ids }]) => ids), prompts.slice(0, 4).map(({ greedy }) => greedy));
  assert.ok((await engine.status()).nGpuBuffers > 0);
  engine.close();
});
