// The cache in 8 bits: a head's values of a slot are HEAD_DIM / 4 words of four signed bytes, then the scale they share.

const ROW_WORDS: u32 = HEAD_DIM / 4u + 1u;

fn kv_scale(row: u32) -> f32 { return bitcast<f32>(kv[row + HEAD_DIM / 4u]); }

fn kv_read4(i: u32) -> vec4<f32> {
    let row = i / HEAD_DIM * ROW_WORDS;
    let word = bitcast<i32>(kv[row + i % HEAD_DIM / 4u]);
    return vec4<f32>(vec4<i32>(word << 24u, word << 16u, word << 8u, word) >> vec4<u32>(24u)) * kv_scale(row);
}

fn kv_read(i: u32) -> f32 { return kv_read4(i - i % 4u)[i % 4u]; }

// Four values that are whole numbers from -127 to 127.
fn kv_write4(i: u32, v: vec4<f32>) {
    let bytes = vec4<u32>(vec4<i32>(v)) & vec4<u32>(255u);
    kv[i / HEAD_DIM * ROW_WORDS + i % HEAD_DIM / 4u] = bytes.x | (bytes.y << 8u) | (bytes.z << 16u) | (bytes.w << 24u);
}

fn kv_write_scale(i: u32, scale: f32) { kv[i / HEAD_DIM * ROW_WORDS + HEAD_DIM / 4u] = bitcast<u32>(scale); }
