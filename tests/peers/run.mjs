// Measures pagelm and its peers side by side on this machine, in turns, with the same weights, prompts and lengths:
//
//     node tests/peers/run.mjs [--rounds 3] [--prompt-tokens 64] [--max-tokens 17] [--only PART,PART] [--built]
//
// It installs the peers by package.json and requirements.txt below target/peers/, makes the ONNX model there from the GGUF file and
// checks it against tests/fixtures, builds pagelm and its page (--built takes what is built), then measures each peer once a round.
// Every measurement has a process or browser of its own and a warm-up with a prompt of the same length. It writes
// target/peers/peers.json and target/peers/peers.md: medians of the rounds. Three rounds take about 20 minutes; nothing else
// should run meanwhile. --only takes the peers whose names contain a PART. It needs cargo, npm, Python 3 and Chromium.
//
// wllama runs on the processor: its WebGPU refuses the software adapter.

import { execFileSync, spawnSync } from "node:child_process";
import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { cpus } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { show, switchesOf } from "./browser.mjs";

const HERE = dirname(fileURLToPath(import.meta.url));
const ROOT = join(HERE, "../..");
const TARGET = process.env.CARGO_TARGET_DIR ?? join(ROOT, "target");
const WORK = join(TARGET, "peers");
const MODULES = join(WORK, "node_modules");
const MODEL = join(ROOT, "www/models/SmolLM2-135M-Instruct.Q4_1.gguf");
const PAGE = join(TARGET, "xtask/dist");
const EXPECTED = JSON.parse(readFileSync(join(ROOT, "tests/fixtures/smollm2-135m/expected.json"), "utf8"));
const CHROMIUM = process.env.CHROMIUM ?? "/usr/bin/chromium";
const ONNX = { plain: join(WORK, "onnx"), int8: join(WORK, "onnx-int8") };
// Sequences at once, where that is measured too.
const CROWD = 8;
// Chromium on two cores, with the slowest peer.
const BROWSER_LIMIT_SECS = 900;

const { values: options } = parseArgs({
    options: {
        rounds: { type: "string", default: "3" },
        "prompt-tokens": { type: "string", default: "64" },
        "max-tokens": { type: "string", default: "17" },
        only: { type: "string", default: "" },
        built: { type: "boolean", default: false },
    },
});
const [N_ROUNDS, PROMPT_TOKENS, MAX_TOKENS] = ["rounds", "prompt-tokens", "max-tokens"].map((name) => Number(options[name]));

/// Each peer: what computes, which those of the same place are compared by, and one measurement: tokens a second of one sequence,
/// and of a crowd.
const PEERS = [
    { name: "pagelm, llvmpipe, exact", where: "llvmpipe", measure: () => pagelm("exact", "gpu", [1]) },
    { name: "pagelm, llvmpipe, fast", where: "llvmpipe", measure: () => pagelm("fast", "gpu", [1]) },
    { name: "llama.cpp, Vulkan", where: "llvmpipe", isPeer: true, measure: () => llama("vulkan", 1) },
    { name: "pagelm, processor, exact", where: "processor", measure: () => pagelm("exact", "cpu", [1, CROWD]) },
    { name: "pagelm, processor, fast", where: "processor", measure: () => pagelm("fast", "cpu", [1, CROWD]) },
    { name: "llama.cpp, processor", where: "processor", isPeer: true, measure: () => llama("cpu", CROWD) },
    { name: "pagelm in Chromium, SwiftShader, exact", where: "SwiftShader", measure: () => page("Exact", "Gpu") },
    { name: "pagelm in Chromium, SwiftShader, fast", where: "SwiftShader", measure: () => page("Fast", "Gpu") },
    { name: "transformers.js, WebGPU, q4", where: "SwiftShader", isPeer: true, measure: () => transformers("webgpu", "plain") },
    { name: "transformers.js, WebGPU, q4, 8-bit activations", where: "SwiftShader", isPeer: true, measure: () => transformers("webgpu", "int8") },
    { name: "pagelm in Chromium, processor, exact", where: "wasm", measure: () => page("Exact", "Cpu") },
    { name: "pagelm in Chromium, processor, fast", where: "wasm", measure: () => page("Fast", "Cpu") },
    { name: "wllama, wasm", where: "wasm", isPeer: true, measure: () => wllama() },
    { name: "transformers.js, wasm, q4", where: "wasm", isPeer: true, measure: () => transformers("wasm", "plain") },
];

function pagelm(precision, device, sequences) {
    const program = join(TARGET, "release/pagelm");
    const counts = ["--prompt-tokens", `${PROMPT_TOKENS}`, "--max-tokens", `${MAX_TOKENS}`, "--sequences", `${sequences}`, "--runs", "1"];
    const text = output(program, ["bench", "--model", MODEL, "--device", device, "--precision", precision, ...counts, "--json"]);
    const { device: { name }, results } = JSON.parse(text);
    const [one, crowd] = results;
    return { adapter: name, prefill: one.prefill_tokens_per_sec, decode: one.decode_tokens_per_sec, crowd: crowd?.decode_tokens_per_sec };
}

function llama(backend, nSequences) {
    const counts = [PROMPT_TOKENS, MAX_TOKENS, nSequences].map(String);
    const text = output("node", [join(HERE, "llama.mjs"), MODULES, MODEL, backend, ...counts], { GGML_VK_VISIBLE_DEVICES: "0" });
    // ggml writes warnings to stdout too.
    const { adapter, times, crowd } = JSON.parse(text.trim().split("\n").at(-1));
    return { adapter, ...rates(times), crowd: crowd && rates(crowd).decode * nSequences };
}

async function page(precision, device) {
    return inBrowser("/peers/pagelm.html", { precision, device }, { "/page/": PAGE });
}

async function wllama() {
    // It takes texts, no tokens, and says how many tokens a text was.
    return inBrowser("/peers/wllama.html", { device: "wasm" }, { "/npm/": MODULES, "/models/": dirname(MODEL) });
}

async function transformers(device, model) {
    return inBrowser("/peers/transformers.html", { device }, { "/npm/": MODULES, "/models/smollm2/": ONNX[model] });
}

/// A page's answers: the fixture's first prompt to see that it is right, a warm-up, and what is measured.
async function inBrowser(page, asked, folders) {
    const { ids, prompt, greedy, decoded: expected } = EXPECTED.prompts[0];
    const words = EXPECTED.perplexity.text.split(" ");
    const prompts = [
        { ids, prompt, max_new_tokens: 4, expected },
        { ids: madeUp(0), prompt: words.slice(0, words.length / 2).join(" "), max_new_tokens: 2 },
        { ids: madeUp(1000), prompt: words.slice(words.length / 2).join(" "), max_new_tokens: MAX_TOKENS },
    ];
    const switches = switchesOf(ROOT);
    const told = await show({
        page, folders: { "/peers/": HERE, ...folders }, asked: { ...asked, prompts }, switches, chromium: CHROMIUM, limitSecs: BROWSER_LIMIT_SECS,
    });
    const { adapter } = told.find((message) => message.adapter);
    const answers = told.filter((message) => message.times);
    // Where a page takes texts alone, it compares them itself.
    if (asked.precision !== "Fast" && answers[0].tokens && `${answers[0].tokens}` !== `${greedy.slice(0, 4)}`) {
        throw new Error(`${page} answered ${answers[0].tokens} where the fixture has ${greedy.slice(0, 4)}`);
    }
    const { times, n_prompt_tokens } = answers.at(-1);
    return { adapter: asked.device === "wasm" ? "the processor, one thread" : adapter, ...rates(times, n_prompt_tokens) };
}

/// Tokens that nobody wrote: prompts of other firsts do not begin alike.
function madeUp(first) {
    return Array.from({ length: PROMPT_TOKENS }, (_, i) => 500 + ((first + i * 37) % 9000));
}

/// Tokens a second until the first token, and from it to the last.
function rates(times, nPromptTokens = PROMPT_TOKENS) {
    const [first, last] = [times[0], times.at(-1)];
    return { prefill: (nPromptTokens / first) * 1000, decode: ((MAX_TOKENS - 1) / (last - first)) * 1000 };
}

/// Brings the peers, the ONNX models, pagelm and its page.
function setUp(peers) {
    mkdirSync(WORK, { recursive: true });
    for (const name of ["package.json", "requirements.txt"]) {
        writeFileSync(join(WORK, name), readFileSync(join(HERE, name)));
    }
    if (peers.some((peer) => !peer.name.startsWith("pagelm"))) {
        // No scripts: one of onnxruntime-node's would fetch from elsewhere what is not needed.
        run("npm", ["install", "--ignore-scripts", "--no-audit", "--no-fund", "--prefix", WORK]);
    }
    if (peers.some((peer) => peer.name.startsWith("transformers.js"))) {
        const python = join(WORK, "venv/bin/python");
        if (!existsSync(python)) run("python3", ["-m", "venv", join(WORK, "venv")]);
        run(python, ["-m", "pip", "install", "--quiet", "--requirement", join(WORK, "requirements.txt")]);
        const expected = join(ROOT, "tests/fixtures/smollm2-135m/expected.json");
        for (const [level, folder] of [["0", ONNX.plain], ["4", ONNX.int8]]) {
            if (existsSync(join(folder, "checked"))) continue;
            run(python, [join(HERE, "onnx_from_gguf.py"), MODEL, folder, "--accuracy-level", level, "--check", expected]);
            writeFileSync(join(folder, "checked"), "");
        }
    }
    if (!options.built) {
        run("cargo", ["build", "--release", "--locked", "--bin", "pagelm"]);
        run("cargo", ["xtask", "test", "--only", "page-build"]);
    }
}

function run(program, args) {
    const { status, error } = spawnSync(program, args, { cwd: ROOT, stdio: ["ignore", "inherit", "inherit"] });
    if (status !== 0) throw new Error(`${program} ${args.join(" ")}: ${error ?? `exit code ${status}`}`);
}

function output(program, args, variables = {}) {
    const { status, error, stdout, stderr } = spawnSync(program, args, { cwd: ROOT, env: { ...process.env, ...variables }, encoding: "utf8", maxBuffer: 1 << 28 });
    if (status !== 0) throw new Error(`${error ?? stderr.trim().split("\n").at(-1)}`);
    return stdout;
}

function median(numbers) {
    const sorted = [...numbers].sort((a, b) => a - b);
    return (sorted[(sorted.length - 1) >> 1] + sorted[sorted.length >> 1]) / 2;
}

function versions() {
    const of = (name) => existsSync(join(MODULES, name)) ? JSON.parse(readFileSync(join(MODULES, name, "package.json"), "utf8")).version : null;
    return {
        pagelm: execFileSync("git", ["describe", "--always", "--dirty"], { cwd: ROOT, encoding: "utf8" }).trim(),
        "node-llama-cpp": of("node-llama-cpp"),
        wllama: of("@wllama/wllama"),
        "transformers.js": of("@huggingface/transformers"),
        "onnxruntime-web": of("onnxruntime-web"),
        chromium: execFileSync(CHROMIUM, ["--version"], { encoding: "utf8" }).trim(),
    };
}

/// Each peer with its medians, and how many times as fast the best of pagelm is where they meet.
function summarize(peers, measured) {
    const rows = peers.map(({ name, where, isPeer }) => {
        const { runs, error } = measured.get(name);
        const of = (key) => runs[0]?.[key] ? Number(median(runs.map((run) => run[key])).toFixed(3)) : null;
        const [prefill, decode, crowd] = ["prefill", "decode", "crowd"].map(of);
        return { name, where, is_peer: Boolean(isPeer), adapter: runs[0]?.adapter ?? null, prefill, decode, crowd, runs, error };
    });
    for (const row of rows.filter((row) => row.is_peer && row.runs.length)) {
        for (const key of ["prefill", "decode", "crowd"]) {
            for (const precision of ["exact", "fast"]) {
                const ours = rows.find((other) => other.where === row.where && other.name.startsWith("pagelm") && other.name.endsWith(precision));
                if (ours?.[key] && row[key]) row[`${key}_ratio_${precision}`] = Number((ours[key] / row[key]).toFixed(1));
            }
        }
    }
    return rows;
}

function table({ date, processor, versions, prompt_tokens, max_tokens, n_rounds, rows }) {
    const cell = (number, digits) => number === null || number === undefined ? "–" : number.toFixed(digits);
    const ratio = (row, key) => row.is_peer ? [`${cell(row[`${key}_ratio_exact`], 1)}`, `${cell(row[`${key}_ratio_fast`], 1)}`].join(" / ") : "";
    const lines = rows.map((row) => {
        const adapter = row.adapter ?? row.error ?? "";
        return `| ${row.name} | ${adapter} | ${cell(row.decode, 2)} | ${ratio(row, "decode")} | ${cell(row.prefill, 2)} | ${ratio(row, "prefill")} | ${cell(row.crowd, 1)} | ${row.crowd ? ratio(row, "crowd") : ""} |`;
    });
    return [
        `SmolLM2-135M-Instruct Q4_1 (the same blocks as ONNX), one sequence, a prompt of ${prompt_tokens} tokens, ${max_tokens - 1} tokens decoded, tokens a second; medians of ${n_rounds} rounds, ${date}, ${processor};`,
        `pagelm ${versions.pagelm}, node-llama-cpp ${versions["node-llama-cpp"]}, transformers.js ${versions["transformers.js"]} (onnxruntime-web ${versions["onnxruntime-web"]}), wllama ${versions.wllama}, ${versions.chromium}. × is pagelm, exact / fast, over the peer.`,
        "",
        `| | adapter | decode | × | prefill | × | decode, ${CROWD} sequences | × |`,
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
        ...lines,
        "",
    ].join("\n");
}

const parts = options.only.split(",").filter(Boolean);
const peers = PEERS.filter((peer) => !parts.length || parts.some((part) => peer.name.includes(part)));
if (!peers.length) throw new Error(`--only ${options.only} names none of ${PEERS.map((peer) => peer.name).join("; ")}`);
setUp(peers);
const measured = new Map(peers.map((peer) => [peer.name, { runs: [], error: null }]));
for (let round = 1; round <= N_ROUNDS; round++) {
    for (const { name, measure } of peers) {
        const start = performance.now();
        try {
            const run = await measure();
            measured.get(name).runs.push(run);
            const secs = ((performance.now() - start) / 1000).toFixed(0);
            console.log(`round ${round}: ${name}: decode ${run.decode.toFixed(2)}, prefill ${run.prefill.toFixed(2)} tokens/s (${secs} s)`);
        } catch (error) {
            measured.get(name).error = `${error.message}`.split("\n")[0];
            console.log(`round ${round}: ${name}: ${error.message}`);
        }
    }
}
const result = {
    date: new Date().toISOString().slice(0, 10),
    processor: `${cpus().length} cores of ${cpus()[0].model.trim()}`,
    versions: versions(),
    prompt_tokens: PROMPT_TOKENS,
    max_tokens: MAX_TOKENS,
    n_rounds: N_ROUNDS,
    rows: summarize(peers, measured),
};
writeFileSync(join(WORK, "peers.json"), `${JSON.stringify(result, null, 1)}\n`);
writeFileSync(join(WORK, "peers.md"), table(result));
console.log(`\n${table(result)}\nwritten to ${WORK}/peers.json and peers.md`);
