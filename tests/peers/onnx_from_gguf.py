"""Writes a Llama-like GGUF model of Q4_1 and Q8_0 matrices as the folder that transformers.js loads as `dtype: "q4"`.

Invariant: the matrices keep the GGUF's own blocks. Q4_1 (d·q + m) is MatMulNBits with the scale d and the zero point -m / d, Q8_0 is
it with 8 bits; no weight is rounded again, unless --zero-points=uint8 asks for whole zero points.

The graph is laid out as `onnx-community/SmolLM2-135M-Instruct-ONNX` lays it out: GroupQueryAttention that rotates, fused norms, one
past_key_values input and one present output a layer and kind. Logits are those of the last position alone, which favours the peer.

    python onnx_from_gguf.py MODEL.gguf FOLDER [--zero-points float|uint8] [--accuracy-level 0|4] [--check EXPECTED.json]

--check runs the model on onnxruntime's CPU device and compares its greedy tokens with those of the fixture.
"""

import argparse
import json
import pathlib
import sys

import numpy as np
import onnx
from gguf import GGMLQuantizationType, GGUFReader
from onnx import TensorProto, helper, numpy_helper

MICROSOFT = "com.microsoft"
BLOCK = 32


def read(path):
    """The metadata and the tensors of a file, by name."""
    reader = GGUFReader(path)
    meta = {name: field.contents() for name, field in reader.fields.items() if not name.startswith("tokenizer.ggml.m")}
    return meta, {tensor.name: tensor for tensor in reader.tensors}


def half_rotated(rows, n_heads):
    """Rows of q or k from the order of pairs (2i, 2i + 1), which GGUF has, to pairs (i, i + d / 2)."""
    per_head = rows.reshape(n_heads, rows.shape[0] // n_heads // 2, 2, *rows.shape[1:])
    return np.ascontiguousarray(per_head.swapaxes(1, 2).reshape(rows.shape))


def q4_1(blocks):
    """Quants with value 2j in the low half of byte j, scales and zero points of (rows, blocks · 20) bytes."""
    rows = blocks.shape[0]
    blocks = blocks.reshape(rows, -1, 20)
    halves = blocks[:, :, :4].copy().view(np.float16).astype(np.float32)
    nibbles = np.concatenate([blocks[:, :, 4:] & 15, blocks[:, :, 4:] >> 4], axis=2)
    scales, minima = halves[:, :, 0], halves[:, :, 1]
    # A block of one value has no scale: any does, with the zero point that gives the value.
    flat = scales == 0
    scales = np.where(flat, np.where(minima == 0, 1, np.abs(minima)), scales)
    return nibbles[:, :, 0::2] | nibbles[:, :, 1::2] << 4, scales, -minima / scales


def q8_0(blocks):
    """Quants shifted by 128, MatMulNBits' own zero point for 8 bits, and scales, of (rows, blocks · 34) bytes."""
    blocks = blocks.reshape(blocks.shape[0], -1, 34)
    scales = blocks[:, :, :2].copy().view(np.float16).astype(np.float32)[:, :, 0]
    return blocks[:, :, 2:] ^ 128, scales


class Graph:
    """Nodes and weights as they are added."""

    def __init__(self, tensors, zero_points, accuracy_level):
        self.tensors, self.zero_points, self.accuracy_level = tensors, zero_points, accuracy_level
        self.nodes, self.weights = [], []

    def add(self, op, inputs, outputs, domain="", **attributes):
        outputs = [outputs] if isinstance(outputs, str) else outputs
        self.nodes.append(helper.make_node(op, inputs, outputs, name=f"/{outputs[0]}/{op}", domain=domain, **attributes))
        return outputs[0]

    def weight(self, name, array):
        self.weights.append(numpy_helper.from_array(np.ascontiguousarray(array), name))
        return name

    def vector(self, name):
        return self.weight(name, np.array(self.tensors[name].data, dtype=np.float32))

    def matmul(self, source, name, output, n_heads=None):
        """A projection by a packed matrix; with `n_heads` its rows are those of q or k."""
        tensor = self.tensors[name]
        rows = tensor.data if n_heads is None else half_rotated(tensor.data, n_heads)
        columns, n_rows = (int(size) for size in tensor.shape)
        inputs = [source]
        if tensor.tensor_type == GGMLQuantizationType.Q4_1:
            bits, (quants, scales, zeros) = 4, q4_1(rows)
            inputs += [self.weight(f"{name}.quants", quants), self.weight(f"{name}.scales", scales.astype(np.float32))]
            if self.zero_points == "uint8":
                zeros = np.clip(np.rint(zeros), 0, 15).astype(np.uint8)
                zeros = np.pad(zeros, ((0, 0), (0, zeros.shape[1] % 2)))
                zeros = zeros[:, 0::2] | zeros[:, 1::2] << 4
            else:
                zeros = zeros.astype(np.float32)
            inputs.append(self.weight(f"{name}.zeros", zeros))
        elif tensor.tensor_type == GGMLQuantizationType.Q8_0:
            bits, (quants, scales) = 8, q8_0(rows)
            inputs += [self.weight(f"{name}.quants", quants), self.weight(f"{name}.scales", scales.astype(np.float32))]
        else:
            sys.exit(f"{name} is {tensor.tensor_type.name}; this script takes Q4_1 and Q8_0")
        sizes = {"K": columns, "N": n_rows, "bits": bits, "block_size": BLOCK, "accuracy_level": self.accuracy_level}
        return self.add("MatMulNBits", inputs, output, MICROSOFT, **sizes)


def config_of(meta):
    of = lambda key: meta[f"llama.{key}"]
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": of("embedding_length"),
        "intermediate_size": of("feed_forward_length"),
        "num_hidden_layers": of("block_count"),
        "num_attention_heads": of("attention.head_count"),
        "num_key_value_heads": of("attention.head_count_kv"),
        "head_dim": of("embedding_length") // of("attention.head_count"),
        "max_position_embeddings": of("context_length"),
        "rms_norm_eps": of("attention.layer_norm_rms_epsilon"),
        "rope_theta": of("rope.freq_base"),
        "hidden_act": "silu",
        "tie_word_embeddings": True,
        "vocab_size": len(meta["tokenizer.ggml.tokens"]),
        "bos_token_id": meta["tokenizer.ggml.bos_token_id"],
        "eos_token_id": meta["tokenizer.ggml.eos_token_id"],
        "use_cache": True,
    }


def build(config, tensors, zero_points, accuracy_level, context):
    """The model of a configuration."""
    width, n_layers, vocabulary = config["hidden_size"], config["num_hidden_layers"], config["vocab_size"]
    n_heads, n_kv, head_dim = config["num_attention_heads"], config["num_key_value_heads"], config["head_dim"]
    g = Graph(tensors, zero_points, accuracy_level)
    norm = {"axis": -1, "epsilon": config["rms_norm_eps"], "stash_type": 1}

    # Lengths for the attention: of each sequence, less one, and of all.
    one = g.weight("one", np.array([1], dtype=np.int64))
    g.add("ReduceSum", ["attention_mask", one], "mask_sum", keepdims=1)
    g.add("Sub", ["mask_sum", one], "seqlens_long")
    seqlens = g.add("Cast", ["seqlens_long"], "seqlens_k", to=TensorProto.INT32)
    g.add("Shape", ["attention_mask"], "mask_shape")
    g.add("Gather", ["mask_shape", g.weight("axis", np.array(1, dtype=np.int64))], "total_long", axis=0)
    total = g.add("Cast", ["total_long"], "total_sequence_length", to=TensorProto.INT32)

    angles = np.arange(context, dtype=np.float32)[:, None] * (
        1 / np.float32(config["rope_theta"]) ** (np.arange(0, head_dim, 2, dtype=np.float32) / head_dim)
    )
    cos, sin = g.weight("cos_cache", np.cos(angles)), g.weight("sin_cache", np.sin(angles))

    # The published models keep the embedding in f32: a step reads one row a token.
    quants, scales = q8_0(tensors["token_embd.weight"].data)
    embedding = ((quants.astype(np.float32) - 128) * scales[:, :, None]).reshape(vocabulary, width)
    stream = g.add("Gather", [g.weight("embed_tokens", embedding), "input_ids"], "embedded", axis=0)
    normed = g.add("SimplifiedLayerNormalization", [stream, g.vector("blk.0.attn_norm.weight")], "normed.0", **norm)
    for layer in range(n_layers):
        at = f"blk.{layer}"
        q = g.matmul(normed, f"{at}.attn_q.weight", f"q.{layer}", n_heads)
        k = g.matmul(normed, f"{at}.attn_k.weight", f"k.{layer}", n_kv)
        v = g.matmul(normed, f"{at}.attn_v.weight", f"v.{layer}")
        past = [f"past_key_values.{layer}.{kind}" for kind in ("key", "value")]
        present = [f"present.{layer}.{kind}" for kind in ("key", "value")]
        attended = g.add(
            "GroupQueryAttention", [q, k, v, *past, seqlens, total, cos, sin], [f"attended.{layer}", *present], MICROSOFT,
            num_heads=n_heads, kv_num_heads=n_kv, scale=head_dim**-0.5, do_rotary=1, rotary_interleaved=0, local_window_size=-1,
        )
        projected = g.matmul(attended, f"{at}.attn_output.weight", f"projected.{layer}")
        skip = lambda added, gain, out, sum: g.add(
            "SkipSimplifiedLayerNormalization", [stream, added, g.vector(gain)], [out, "", "", sum], MICROSOFT, epsilon=norm["epsilon"]
        )
        normed = skip(projected, f"{at}.ffn_norm.weight", f"mlp_normed.{layer}", f"stream.{layer}.a")
        stream = f"stream.{layer}.a"
        gate = g.matmul(normed, f"{at}.ffn_gate.weight", f"gate.{layer}")
        up = g.matmul(normed, f"{at}.ffn_up.weight", f"up.{layer}")
        sigmoid = g.add("Sigmoid", [gate], f"sigmoid.{layer}")
        silu = g.add("Mul", [gate, sigmoid], f"silu.{layer}")
        down = g.matmul(g.add("Mul", [silu, up], f"gated.{layer}"), f"{at}.ffn_down.weight", f"down.{layer}")
        gain = f"blk.{layer + 1}.attn_norm.weight" if layer + 1 < n_layers else "output_norm.weight"
        normed = skip(down, gain, f"normed.{layer + 1}", f"stream.{layer}.b")
        stream = f"stream.{layer}.b"
    last = g.weight("last", np.array([-1], dtype=np.int64))
    end = g.weight("end", np.array([np.iinfo(np.int64).max], dtype=np.int64))
    final = g.add("Slice", [normed, last, end, one], "last_normed")
    g.matmul(final, "token_embd.weight", "logits")

    value = lambda name, shape, kind=TensorProto.FLOAT: helper.make_tensor_value_info(name, kind, shape)
    cache = lambda prefix, length: [
        value(f"{prefix}.{layer}.{kind}", ["batch_size", n_kv, length, head_dim])
        for layer in range(n_layers) for kind in ("key", "value")
    ]
    inputs = [
        value("input_ids", ["batch_size", "sequence_length"], TensorProto.INT64),
        value("attention_mask", ["batch_size", "total_sequence_length"], TensorProto.INT64),
        *cache("past_key_values", "past_sequence_length"),
    ]
    outputs = [value("logits", ["batch_size", 1, vocabulary]), *cache("present", "total_sequence_length")]
    graph = helper.make_graph(g.nodes, "model", inputs, outputs, g.weights)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid(MICROSOFT, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10, producer_name="onnx_from_gguf")


def check(path, config, expected):
    """How many greedy tokens of the fixture's prompts agree, up to the first near tie."""
    import onnxruntime

    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    cache = [info.name for info in session.get_inputs() if info.name.startswith("past")]
    empty = np.zeros((1, config["num_key_value_heads"], 0, config["head_dim"]), dtype=np.float32)
    total = agreed = 0
    for prompt in expected["prompts"][:3]:
        past, ids, length = {name: empty for name in cache}, prompt["ids"], 0
        for token, gap in zip(prompt["greedy"], prompt["greedy_gap"]):
            length += len(ids)
            feeds = {"input_ids": np.array([ids]), "attention_mask": np.ones((1, length), dtype=np.int64), **past}
            logits, *present = session.run(None, feeds)
            past = dict(zip(cache, present))
            total += 1
            agreed += int(logits[0, -1].argmax()) == token or gap < 0.1
            ids = [token]
    print(f"{agreed} of {total} greedy tokens are those of the fixture, given the ones before")
    return agreed, total


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--zero-points", choices=["float", "uint8"], default="float")
    # 0 is what transformers.js's own conversion leaves; 4 lets the device round activations to 8 bits.
    parser.add_argument("--accuracy-level", type=int, choices=[0, 4], default=0)
    parser.add_argument("--check")
    arguments = parser.parse_args()
    meta, tensors = read(arguments.model)
    config = config_of(meta)
    (arguments.folder / "onnx").mkdir(parents=True, exist_ok=True)
    path = arguments.folder / "onnx" / "model_q4.onnx"
    context = min(2048, config["max_position_embeddings"])
    onnx.save(build(config, tensors, arguments.zero_points, arguments.accuracy_level, context), path)
    (arguments.folder / "config.json").write_text(json.dumps(config, indent=1))
    (arguments.folder / "generation_config.json").write_text(json.dumps({"eos_token_id": config["eos_token_id"]}))
    print(f"{path}: {path.stat().st_size / 1e6:.1f} MB")
    if arguments.check:
        agreed, total = check(path, config, json.loads(pathlib.Path(arguments.check).read_text()))
        if agreed < 0.95 * total:
            sys.exit(f"only {agreed} of {total} greedy tokens agree: this is not the same model")


if __name__ == "__main__":
    main()
