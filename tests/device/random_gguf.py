"""Writes GGUF models of random weights in Q4_0, in the shape of published ones; nothing but Python's own library is needed.

Invariant: weights are small enough that activations stay finite through all layers, and the tokenizer reads any text.
"""

import os
import random
import struct

ALIGNMENT = 32
U32, F32, STRING, ARRAY = 4, 6, 8, 9
F32_TENSOR, Q4_0_TENSOR = 0, 2
BLOCK_VALUES, BLOCK_BYTES = 32, 18
# Random bytes are made once and begun from another place for each tensor.
N_RANDOM_BLOCKS = 1 << 16

# The vocabulary of each begins with the 256 bytes; rows are width, layers, heads, KV heads, head width, MLP width, vocabulary.
SHAPES = {
    "smollm2-shaped": (576, 30, 9, 3, 64, 1536, 49152),
    "1b-shaped": (2048, 16, 32, 8, 64, 8192, 128256),
    "tiny": (64, 2, 2, 1, 32, 128, 512),
}


def byte_characters():
    """The printable character of each byte, as byte-level BPE spells it."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    return [chr(byte) if byte in printable else chr(next(others)) for byte in range(256)]


def vocabulary(size):
    """Tokens, and a merge for each token that is longer than a byte: an earlier token and a byte."""
    tokens = byte_characters()
    merges = []
    for i in range(size - 1 - len(tokens)):
        first, second = tokens[i // 256], tokens[i % 256]
        tokens.append(first + second)
        merges.append(f"{first} {second}")
    tokens.append("<|end|>")
    return tokens, merges


def string(text):
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def value(item):
    """A metadata value with its type."""
    if isinstance(item, list):
        if item and isinstance(item[0], int):
            return struct.pack("<IIQ", ARRAY, U32 + 1, len(item)) + struct.pack(f"<{len(item)}i", *item)
        return struct.pack("<IIQ", ARRAY, STRING, len(item)) + b"".join(map(string, item))
    if isinstance(item, str):
        return struct.pack("<I", STRING) + string(item)
    if isinstance(item, float):
        return struct.pack("<If", F32, item)
    return struct.pack("<II", U32, item)


def tensors_of(shape):
    """Name, size innermost first, and type of each tensor; heads and embedding share one matrix."""
    width, n_layers, n_heads, n_kv_heads, head_dim, mlp, vocab = shape
    yield "token_embd.weight", (width, vocab), Q4_0_TENSOR
    for layer in range(n_layers):
        matrices = {
            "attn_q": (width, n_heads * head_dim), "attn_k": (width, n_kv_heads * head_dim), "attn_v": (width, n_kv_heads * head_dim),
            "attn_output": (n_heads * head_dim, width), "ffn_gate": (width, mlp), "ffn_up": (width, mlp), "ffn_down": (mlp, width),
        }
        for name, size in matrices.items():
            yield f"blk.{layer}.{name}.weight", size, Q4_0_TENSOR
        for name in ("attn_norm", "ffn_norm"):
            yield f"blk.{layer}.{name}.weight", (width,), F32_TENSOR
    yield "output_norm.weight", (width,), F32_TENSOR


def n_bytes(size, kind):
    n_values = size[0] * (size[1] if len(size) > 1 else 1)
    return n_values // BLOCK_VALUES * BLOCK_BYTES if kind == Q4_0_TENSOR else n_values * 4


def padded(n):
    return (n + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT


def write(path, name, seed=1):
    """Writes the model of a shape; the same file for the same seed."""
    shape = SHAPES[name]
    width, n_layers, n_heads, n_kv_heads, head_dim, mlp, vocab = shape
    tokens, merges = vocabulary(vocab)
    metadata = {
        "general.architecture": "llama",
        "general.name": f"random weights, {name}",
        "llama.block_count": n_layers,
        "llama.context_length": 8192,
        "llama.embedding_length": width,
        "llama.feed_forward_length": mlp,
        "llama.attention.head_count": n_heads,
        "llama.attention.head_count_kv": n_kv_heads,
        "llama.rope.dimension_count": head_dim,
        "llama.rope.freq_base": 10000.0,
        "llama.attention.layer_norm_rms_epsilon": 1e-5,
        "llama.vocab_size": vocab,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.merges": merges,
        "tokenizer.ggml.token_type": [1] * (vocab - 1) + [3],
        "tokenizer.ggml.eos_token_id": vocab - 1,
    }
    if head_dim * n_heads != width:
        metadata["llama.attention.key_length"] = metadata["llama.attention.value_length"] = head_dim
    tensors = list(tensors_of(shape))
    header = bytearray(b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(metadata)))
    for key, item in metadata.items():
        header += string(key) + value(item)
    offset = 0
    for tensor, size, kind in tensors:
        header += string(tensor) + struct.pack(f"<I{len(size)}QIQ", len(size), *size, kind, offset)
        offset += padded(n_bytes(size, kind))
    header += bytes(padded(len(header)) - len(header))

    source = random.Random(seed)
    # A product of a normed row with such a matrix has about the size of its row.
    scale = struct.pack("<e", 1 / (4.6 * width**0.5))
    blocks = b"".join(scale + source.randbytes(16) for _ in range(N_RANDOM_BLOCKS))
    with open(path, "wb") as file:
        file.write(header)
        for _, size, kind in tensors:
            length = n_bytes(size, kind)
            if kind == F32_TENSOR:
                file.write(struct.pack("<f", 1.0) * size[0])
            else:
                start, left = source.randrange(N_RANDOM_BLOCKS) * BLOCK_BYTES, length
                while left:
                    piece = blocks[start : start + left]
                    file.write(piece)
                    start, left = 0, left - len(piece)
            file.write(bytes(padded(length) - length))
    return os.path.getsize(path)
