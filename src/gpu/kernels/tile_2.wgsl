// Sums of two weight rows over a tile of 2 activation rows; lane k mod 4 of each sum, so every tile size adds in one order.

const TILE: u32 = 2u;
struct Sums {
    a0: vec4<f32>, b0: vec4<f32>,
    a1: vec4<f32>, b1: vec4<f32>,
}

fn accumulate(sums: ptr<function, Sums>, x: u32, a: vec4<f32>, b: vec4<f32>) {
    let x0 = load4(x);
    (*sums).a0 = fma(a, x0, (*sums).a0);
    (*sums).b0 = fma(b, x0, (*sums).b0);
    let x1 = load4(x + constants.x_stride);
    (*sums).a1 = fma(a, x1, (*sums).a1);
    (*sums).b1 = fma(b, x1, (*sums).b1);
}

fn finish(sums: Sums, first_row: u32, p: u32) {
    keep(0u, first_row, p, total(sums.a0), total(sums.b0));
    keep(1u, first_row, p, total(sums.a1), total(sums.b1));
}

fn total(v: vec4<f32>) -> f32 { return (v.x + v.y) + (v.z + v.w); }
