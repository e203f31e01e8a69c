// Bindings and row arithmetic that every kernel shares. Offsets into activations and tables count f32 values. `Input` is
// vec4<f32>, or vec4<u32> where activations are packed; `Output` is f32 or u32.

@group(0) @binding(0) var<storage, read> batch: array<u32>;         // header (16), then the arrays it points to
@group(0) @binding(1) var<storage, read> tables: array<vec4<f32>>;  // norms and biases, then rotary (positions, head_dim / 2, cos sin)
@group(0) @binding(2) var<storage, read> inputs: array<Input>;      // activations read, region by region: (rows, width)
@group(0) @binding(3) var<storage, read_write> outputs: array<Output>; // activations written: (rows, width)
@group(0) @binding(4) var<storage, read> quants: array<vec4<u32>>;  // a matrix, or some rows of it: (rows, blocks of 32, words)
@group(0) @binding(5) var<storage, read> scales: array<u32>;        // its scales where they lie apart: (rows, blocks of 32)
@group(0) @binding(6) var<storage, read_write> kv: array<u32>;      // a layer's cache: (blocks, K V, 32 slots, kv heads, head_dim);
                                                                    // without a layer what was sampled: (slots of steps, logit rows, words)
@group(0) @binding(7) var<uniform> constants: Constants;

// What a dispatch does; written once, when its plan is compiled.
struct Constants {
    rows: u32,           // DECODE, PREFILL or LOGITS: which rows of the batch
    n_blocks: u32,       // columns of the matrix / 32
    first_output: u32,   // where this binding's first weight row stands among the outputs of its operation
    segment_rows: u32,   // weight rows held by this binding
    x: u32,              // inputs: (rows, x_stride)
    x_stride: u32,
    y: u32,              // outputs: (rows, y_stride)
    y_stride: u32,
    n_heads: u32,
    n_kv_heads: u32,
    cache: u32,          // which of the plan's caches: whose slots and block tables
    window: u32,         // a position sees so many positions; 0: all before it
    value: f32,          // a norm's epsilon, attention scale or embedding scale
    softcap: f32,        // values become softcap · tanh(value / softcap); 0: they do not
    nonlinearity: u32,   // NO_FUNCTION, SILU or GELU_TANH
    adds: u32,           // 1: to what is there
    weight: u32,         // tables: a norm's weight, also where a projection does it; in `rotate` that of queries
    key_weight: u32,     // tables: in `rotate` the weight of keys
    bias: u32,           // tables: a norm's or a projection's bias, or NONE
    rotary: u32,         // tables: (positions, head_dim / 2, cos sin), or NONE
    split_half: u32,     // 1: rotary pairs are (i, i + head_dim / 2); 0: (2i, 2i + 1)
    is_layer_norm: u32,  // 1: the mean is taken out first
    norm_bias: u32,      // tables: the bias of a norm done by a projection, or NONE
    n_ranges: u32,       // ranges of positions that a workgroup of split attention takes one after the other
    plain: u32,          // outputs: where a norm that quantizes keeps its f32 values too, (rows, width), or NONE
    unused_0: u32,
    unused_1: u32,
    unused_2: u32,
}

const DECODE: u32 = 0u;
const PREFILL: u32 = 1u;
const LOGITS: u32 = 2u;
const NONE: u32 = 0xffffffffu;
const BLOCK_TOKENS: u32 = 32u;
const SAMPLED: u32 = 0x80000000u;   // of a token: it lies in what was sampled

// The batch's header.
fn n_decode() -> u32 { return batch[0]; }
fn n_prefill() -> u32 { return batch[1]; }
fn first_prefill_row() -> u32 { return batch[2]; }   // n_decode rounded up to a tile of 8
fn n_logits() -> u32 { return batch[3]; }

// Its arrays, by activation row.
fn token_of(row: u32) -> u32 {
    let token = batch[batch[4] + row];
    if ((token & SAMPLED) == 0u) { return token; }
    return kv[token & ~SAMPLED];
}
fn position_of(row: u32) -> u32 { return batch[batch[5] + row]; }
fn slot_of(row: u32) -> u32 { return batch[batch[6] + constants.cache * batch[9] + row]; }
fn block_table_of(row: u32) -> u32 { return batch[batch[7] + constants.cache * batch[9] + row]; }
fn logit_row(i: u32) -> u32 { return batch[batch[8] + i]; }

// First row and number of rows of a tile of `attend_tiled`.
fn attention_tile(i: u32) -> vec2<u32> { return vec2<u32>(batch[batch[12] + 2u * i], batch[batch[12] + 2u * i + 1u]); }

// Rows of the kind this dispatch computes.
fn n_kind_rows() -> u32 {
    if (constants.rows == DECODE) { return n_decode(); }
    if (constants.rows == PREFILL) { return n_prefill(); }
    return n_logits();
}

// Activation row of the i-th row of the kind; logit rows lie packed in a region of their own.
fn first_kind_row() -> u32 {
    return select(0u, first_prefill_row(), constants.rows == PREFILL);
}

// Adds a projection's bias, where it has one.
fn with_bias(value: f32, output: u32) -> f32 {
    if (constants.bias == NONE) { return value; }
    return value + table1(constants.bias + output);
}

// Clamped, since some implementations of tanh overflow where it has long been 1.
fn tanh_clamped(x: f32) -> f32 { return tanh(clamp(x, -15.0, 15.0)); }

fn capped(x: f32) -> f32 {
    if (constants.softcap == 0.0) { return x; }
    return constants.softcap * tanh_clamped(x / constants.softcap);
}

fn load4(i: u32) -> vec4<f32> { return bitcast<vec4<f32>>(inputs[i / 4u]); }

fn table1(i: u32) -> f32 { return tables[i / 4u][i % 4u]; }

// From a multiple of 4 on, as vectors start.
fn table4(i: u32) -> vec4<f32> { return tables[i / 4u]; }

// Exact for every finite f16, subnormals too, which unpack2x16float may flush to zero.
fn f32_from_f16(bits: u32) -> f32 {
    let magnitude = bits & 0x7fffu;
    let normal = bitcast<f32>((magnitude << 13u) + 0x38000000u);
    let subnormal = f32(i32(magnitude)) * 0x1p-24f;
    let value = select(normal, subnormal, magnitude < 0x400u);
    return select(value, -value, (bits & 0x8000u) != 0u);
}
