// IQ4_NL: 32 codes of 4 bits, d as f16: value = d · number.

fn block_scale(block: u32) -> Scale { return Scale(f32_from_f16(half_scale(block))); }
