// Sums of two weight rows over a tile of 4 activation rows; lane k mod 4 of each sum, so every tile size adds in one order.

const TILE: u32 = 4u;
struct Sums {
    a0: vec4<f32>, b0: vec4<f32>,
    a1: vec4<f32>, b1: vec4<f32>,
    a2: vec4<f32>, b2: vec4<f32>,
    a3: vec4<f32>, b3: vec4<f32>,
}

fn accumulate(sums: ptr<function, Sums>, x: u32, a: vec4<f32>, b: vec4<f32>) {
    let x0 = load4(x);
    (*sums).a0 = fma(a, x0, (*sums).a0);
    (*sums).b0 = fma(b, x0, (*sums).b0);
    let x1 = load4(x + constants.x_stride);
    (*sums).a1 = fma(a, x1, (*sums).a1);
    (*sums).b1 = fma(b, x1, (*sums).b1);
    let x2 = load4(x + 2u * constants.x_stride);
    (*sums).a2 = fma(a, x2, (*sums).a2);
    (*sums).b2 = fma(b, x2, (*sums).b2);
    let x3 = load4(x + 3u * constants.x_stride);
    (*sums).a3 = fma(a, x3, (*sums).a3);
    (*sums).b3 = fma(b, x3, (*sums).b3);
}

fn finish(sums: Sums, first_row: u32, p: u32) {
    keep(0u, first_row, p, total(sums.a0), total(sums.b0));
    keep(1u, first_row, p, total(sums.a1), total(sums.b1));
    keep(2u, first_row, p, total(sums.a2), total(sums.b2));
    keep(3u, first_row, p, total(sums.a3), total(sums.b3));
}

fn total(v: vec4<f32>) -> f32 { return (v.x + v.y) + (v.z + v.w); }
