// Sums of two weight rows over a tile of 8 activation rows; lane k mod 4 of each sum, so every tile size adds in one order.

const TILE: u32 = 8u;
struct Sums {
    a0: vec4<f32>, b0: vec4<f32>,
    a1: vec4<f32>, b1: vec4<f32>,
    a2: vec4<f32>, b2: vec4<f32>,
    a3: vec4<f32>, b3: vec4<f32>,
    a4: vec4<f32>, b4: vec4<f32>,
    a5: vec4<f32>, b5: vec4<f32>,
    a6: vec4<f32>, b6: vec4<f32>,
    a7: vec4<f32>, b7: vec4<f32>,
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
    let x4 = load4(x + 4u * constants.x_stride);
    (*sums).a4 = fma(a, x4, (*sums).a4);
    (*sums).b4 = fma(b, x4, (*sums).b4);
    let x5 = load4(x + 5u * constants.x_stride);
    (*sums).a5 = fma(a, x5, (*sums).a5);
    (*sums).b5 = fma(b, x5, (*sums).b5);
    let x6 = load4(x + 6u * constants.x_stride);
    (*sums).a6 = fma(a, x6, (*sums).a6);
    (*sums).b6 = fma(b, x6, (*sums).b6);
    let x7 = load4(x + 7u * constants.x_stride);
    (*sums).a7 = fma(a, x7, (*sums).a7);
    (*sums).b7 = fma(b, x7, (*sums).b7);
}

fn finish(sums: Sums, first_row: u32, p: u32) {
    keep(0u, first_row, p, total(sums.a0), total(sums.b0));
    keep(1u, first_row, p, total(sums.a1), total(sums.b1));
    keep(2u, first_row, p, total(sums.a2), total(sums.b2));
    keep(3u, first_row, p, total(sums.a3), total(sums.b3));
    keep(4u, first_row, p, total(sums.a4), total(sums.b4));
    keep(5u, first_row, p, total(sums.a5), total(sums.b5));
    keep(6u, first_row, p, total(sums.a6), total(sums.b6));
    keep(7u, first_row, p, total(sums.a7), total(sums.b7));
}

fn total(v: vec4<f32>) -> f32 { return (v.x + v.y) + (v.z + v.w); }
