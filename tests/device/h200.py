"""Holds pagelm against what a GPU allows, and writes one JSON and a summary of targets met or missed. h200.sh starts it.

Targets, on an NVIDIA H200 through Vulkan:
- the greedy tokens of the tiny models of tests/fixtures are the reference's;
- decode of one sequence of the SmolLM2-shaped model at least 70 % of the bound
  1 / (dispatches × an empty dependent dispatch + bytes / bandwidth), both measured (`pagelm bench --floor`), both counted (`--plan`);
- 64 sequences of it at least 10 × one;
- the matvec dispatches of the 1B-shaped model, by timestamps (`--ops`), at least 50 % of the measured bandwidth.

With PAGELM_TINY=1 it runs on whatever adapter there is with tiny models: the way is tried, and no target is judged.
"""

import argparse
import datetime
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

import random_gguf

ROOT = pathlib.Path(__file__).resolve().parents[2]
TINY = os.environ.get("PAGELM_TINY", "") not in ("", "0")
FIXTURES = ["llama-tiny"] if TINY else ["llama-tiny", "gpt2-tiny", "qwen3-tiny", "gemma3-tiny", "llama3-rope-tiny", "qwen2-tiny"]
SMALL, LARGE = ("tiny", "tiny") if TINY else ("smollm2-shaped", "1b-shaped")
MANY = 4 if TINY else 64
RUNS = 1 if TINY else 3
PROMPT_TOKENS, MAX_TOKENS = (8, 8) if TINY else (32, 96)
LIMIT_SECS = 330
# Greedy tokens after a near tie say nothing.
CERTAIN_GAP = 0.01
STARTED = time.monotonic()
NO_GPU = 3


class Failure(Exception):
    """What could not be measured, in a sentence."""


def run(binary, *arguments):
    """What `pagelm` prints as JSON."""
    left = LIMIT_SECS - (time.monotonic() - STARTED)
    if left <= 0:
        raise Failure(f"no time was left for `pagelm {' '.join(arguments)}`")
    try:
        done = subprocess.run([binary, *arguments, "--json"], capture_output=True, text=True, timeout=left)
    except subprocess.TimeoutExpired:
        raise Failure(f"`pagelm {' '.join(arguments)}` was still running when {LIMIT_SECS} s were over") from None
    if done.returncode:
        said = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        raise Failure(f"`pagelm {' '.join(arguments)}`: {said}")
    return json.loads(done.stdout)


def adapter(binary):
    """The name of the GPU to measure; ends the program where there is none."""
    devices = run(binary, "devices")["devices"]
    gpus = [device for device in devices if device["kind"] == "gpu"]
    if not gpus and not TINY:
        names = ", ".join(f"{device['name']} ({device['kind']})" for device in devices) or "no adapter at all"
        print(f"There is no GPU here that Vulkan shows: {names}. Nothing was measured.")
        sys.exit(NO_GPU)
    nvidia = [device for device in gpus if "nvidia" in device["name"].lower()]
    return (nvidia or gpus or devices)[0]["name"]


def check_fixtures(binary, name):
    """Of each fixture, how many prompts' certain greedy tokens are the reference's."""
    found = {}
    for fixture in FIXTURES:
        folder = ROOT / "tests/fixtures" / fixture
        prompts = json.loads((folder / "expected.json").read_text())["prompts"]
        prompts = [prompt for prompt in prompts if len(prompt["ids"]) < 64][: 1 if TINY else 4]
        right = 0
        for prompt in prompts:
            n = len(prompt["greedy"])
            options = ["--temperature", "0", "--max-tokens", str(n), "--ignore-eos", "--kv", "f32", "--adapter-name", name]
            answer = run(binary, "generate", "--model", str(folder), "--prompt", prompt["prompt"], *options)
            gaps = prompt["greedy_gap"]
            certain = next((i for i, gap in enumerate(gaps) if gap < CERTAIN_GAP), n)
            right += answer["token_ids"][:certain] == prompt["greedy"][:certain]
        found[fixture] = {"right": right, "prompts": len(prompts)}
    return found


def rates(binary, name, model, sequences, max_tokens):
    """Decoded tokens a second by the number of sequences."""
    counts = ",".join(map(str, sequences))
    options = ["--prompt-tokens", str(PROMPT_TOKENS), "--max-tokens", str(max_tokens), "--runs", str(RUNS)]
    report = run(binary, "bench", "--model", model, "--sequences", counts, *options, "--adapter-name", name)
    return {result["sequences"]: result["decode_tokens_per_sec"] for result in report["results"]}, report


def bound(binary, floor, model, max_tokens):
    """Tokens a second that the adapter allows for one sequence, and what they are made of."""
    # The token in the middle of those that are measured.
    plan = run(binary, "bench", "--plan", "--model", model, "--position", str(PROMPT_TOKENS + max_tokens // 2))
    n_bytes = plan["weight_bytes"] + plan["kv_bytes"]
    secs = plan["dispatches"] * floor["dispatch_us"] * 1e-6 + n_bytes / (floor["bandwidth_gb_per_sec"] * 1e9)
    return 1 / secs, plan


def target(name, found, wanted, unit):
    return {"name": name, "found": found, "wanted": wanted, "unit": unit, "met": found >= wanted}


def measure(binary, scratch, result):
    """Fills `result` step by step, so that what was measured is kept when a later step fails."""
    targets = result["targets"]
    name = result["adapter"] = adapter(binary)
    floor = result["floor"] = run(binary, "bench", "--floor", "--adapter-name", name)
    print(f"{name}: an empty dispatch {floor['dispatch_us']:.2f} µs, memory {floor['bandwidth_gb_per_sec']:.1f} GB/s")

    fixtures = result["fixtures"] = check_fixtures(binary, name)
    right, n = (sum(each[key] for each in fixtures.values()) for key in ("right", "prompts"))
    targets.append(target("fixtures' greedy tokens", right, n, "prompts"))

    model = str(scratch / "small.gguf")
    random_gguf.write(model, SMALL)
    most, plan = bound(binary, floor, model, MAX_TOKENS)
    by_count, report = rates(binary, name, model, [1, MANY], MAX_TOKENS)
    result["small"] = {"shape": SMALL, "bound_tokens_per_sec": most, "plan": plan, "bench": report}
    targets.append(target(f"{SMALL}: decode of one over the bound of {most:.0f} tokens/s", by_count[1] / most, 0.70, ""))
    targets.append(target(f"{SMALL}: {MANY} sequences over one ({by_count[1]:.0f} tokens/s)", by_count[MANY] / by_count[1], 10.0, "×"))

    model = str(scratch / "large.gguf")
    random_gguf.write(model, LARGE)
    ops = run(binary, "bench", "--ops", "--model", model, "--prompt-tokens", str(PROMPT_TOKENS), "--runs", "9", "--adapter-name", name)
    matvecs = [op for op in ops["ops"] if op["name"].startswith(("matmul", "matvec"))]
    read, ms = sum(op["weight_bytes"] for op in matvecs), sum(op["ms"] for op in matvecs)
    rate = read / ms / 1e6 if ms > 0 else 0.0
    result["large"] = {"shape": LARGE, "ops": ops, "matvec_gb_per_sec": rate}
    of = rate / floor["bandwidth_gb_per_sec"]
    targets.append(target(f"{LARGE}: matvecs' {rate:.1f} GB/s over the measured bandwidth", of, 0.50, ""))
    most, plan = bound(binary, floor, model, 32 if not TINY else MAX_TOKENS)
    by_count, report = rates(binary, name, model, [1], 32 if not TINY else MAX_TOKENS)
    result["large"] |= {"bound_tokens_per_sec": most, "plan": plan, "bench": report}
    targets.append(target(f"{LARGE}: decode of one over the bound of {most:.0f} tokens/s", by_count[1] / most, 0.70, ""))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    arguments = parser.parse_args()
    binary = os.path.abspath(arguments.binary)
    if not os.access(binary, os.X_OK):
        sys.exit(f"{binary} is no program; `sh tests/device/h200.sh prepare` makes it, or PAGELM=PATH names one")
    result = {"date": datetime.date.today().isoformat(), "tiny": TINY, "targets": [], "failure": None}
    with tempfile.TemporaryDirectory() as scratch:
        try:
            measure(binary, pathlib.Path(scratch), result)
        except Failure as failure:
            result["failure"] = str(failure)
    result["seconds"] = round(time.monotonic() - STARTED, 1)
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps(result, indent=1) + "\n")
    for each in result["targets"]:
        word = "tried" if TINY else "met" if each["met"] else "MISSED"
        print(f"{word:6}  {each['name']}: {each['found']:.2f} {each['unit']}, wanted {each['wanted']:.2f}".replace("  ,", ","))
    if result["failure"]:
        print(f"FAILED  {result['failure']}")
    print(f"{arguments.out}, after {result['seconds']:.0f} s" + (", tiny: a try, not a measurement" if TINY else ""))
    is_good = result["failure"] is None and (TINY or all(each["met"] for each in result["targets"]))
    sys.exit(0 if is_good else 1)


if __name__ == "__main__":
    main()
