// Turns the i-th pair of a head by the angle of its row's position.

const HALF: u32 = HEAD_DIM / 2u;

fn rotate_pair(row: u32, i: u32, pair: vec2<f32>) -> vec2<f32> {
    if (constants.rotary == NONE) { return pair; }
    let angle = constants.rotary + (position_of(row) * HALF + i) * 2u;
    let cosine = table1(angle);
    let sine = table1(angle + 1u);
    return vec2<f32>(fma(pair.x, cosine, -(pair.y * sine)), fma(pair.x, sine, pair.y * cosine));
}
