// No learned positions, or in a dispatch of their own.

fn with_position(v: vec4<f32>, i: u32) -> vec4<f32> { return v; }
