// One measurement of llama.cpp through node-llama-cpp: `node llama.mjs NODE_MODULES MODEL.gguf vulkan|cpu PROMPT_TOKENS MAX_TOKENS
// N_SEQUENCES`: one sequence, then so many at once if several.
// The Vulkan backend overlooks devices that are processors, unless GGML_VK_VISIBLE_DEVICES names them. Prints one JSON object.

import { join } from "node:path";
import { pathToFileURL } from "node:url";

const [modules, modelPath, backend, promptTokens, maxTokens, nSequences] = process.argv.slice(2);
const { getLlama } = await import(pathToFileURL(join(modules, "node-llama-cpp/dist/index.js")).href);

const onGpu = backend !== "cpu";
const llama = await getLlama({ gpu: onGpu ? backend : false, build: "never", skipDownload: true, logLevel: "error", maxThreads: 0 });
const model = await llama.loadModel({ modelPath, gpuLayers: onGpu ? "max" : 0 });
const context = await model.createContext({ contextSize: 512, batchSize: 512, sequences: Number(nSequences), threads: 0 });
const sequences = Array.from({ length: Number(nSequences) }, () => context.getSequence());

/// When each token came, in ms from the start.
async function answer(sequence, first, nTokens) {
    await sequence.clearHistory();
    const prompt = Array.from({ length: Number(promptTokens) }, (_, i) => 500 + ((first + i * 37) % 9000));
    const times = [];
    const start = performance.now();
    for await (const _ of sequence.evaluate(prompt, { temperature: 0, yieldEogToken: true })) {
        times.push(performance.now() - start);
        if (times.length === nTokens) break;
    }
    return times;
}

// Pipelines are compiled by the first prompt of a length.
await answer(sequences[0], 0, 2);
const times = await answer(sequences[0], 1000, Number(maxTokens));
let crowd;
if (sequences.length > 1) {
    const all = (first, nTokens) => Promise.all(sequences.map((sequence, i) => answer(sequence, first + i * 100, nTokens)));
    await all(2000, 2);
    // From the moment when all have their first token to that when all have their last.
    const each = await all(3000, Number(maxTokens));
    crowd = [Math.max(...each.map((times) => times[0])), Math.max(...each.map((times) => times.at(-1)))];
}
const adapter = onGpu ? (await llama.getGpuDeviceNames()).join(", ") : `${llama.cpuMathCores} threads`;
console.log(JSON.stringify({ adapter, layers_on_gpu: model.gpuLayers, times, crowd }));
process.exit(0);
