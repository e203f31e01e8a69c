// The rule of src/plan/sample.rs for one row of logits, by LANES invocations that run it together; how they agree is in
// sample_reduce.wgsl. Amounts are added in one order, so a row alone is sampled as in a crowd.

const GROUP_BITS: u32 = 2u;          // thresholds are found by so many bits a turn
const N_TURNS: u32 = 16u;
const LEAST: u32 = 0x007fffffu;      // key of −∞
const NO_NUMBER: u32 = 0x007ffffeu;  // key of NaN
const GREATEST: u32 = 0xff7fffffu;   // key of the largest f32
const PAST: u32 = 0u;                // past the vocabulary

// How a row is sampled, and where its words go: token, has a NaN, log-probability, 0, 20 likeliest tokens, 20 of theirs.
struct Row {
    logits: u32,         // inputs: (vocabulary)
    result: u32,         // kv, which holds what is sampled
    temperature: f32,
    top_k: u32,
    top_p: f32,
    min_p: f32,
    seed: vec2<u32>,
    place: u32,
    n_logprobs: u32,     // or NONE
}
const TOP: u32 = 4u;
const MAX_TOP: u32 = 20u;

fn n_samples() -> u32 { return batch[10]; }

fn read_row(i: u32) -> Row {
    let at = batch[11] + i * 10u;
    return Row(
        constants.x + batch[at] * constants.x_stride,
        batch[at + 1u],
        bitcast<f32>(batch[at + 2u]),
        batch[at + 3u],
        bitcast<f32>(batch[at + 4u]),
        bitcast<f32>(batch[at + 5u]),
        vec2<u32>(batch[at + 6u], batch[at + 7u]),
        batch[at + 8u],
        batch[at + 9u],
    );
}

// A token and the key of its logit: keys compare as logits do.
struct Place { key: u32, id: u32 }

// The likelier comes first, of equal ones the lower id.
fn is_before(a: Place, b: Place) -> bool { return a.key > b.key || (a.key == b.key && a.id < b.id); }

fn key_of(bits: u32) -> u32 {
    let magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) { return NO_NUMBER; }
    if (magnitude == 0u) { return 0x80000000u; }
    return min(select(bits | 0x80000000u, ~bits, (bits >> 31u) == 1u), GREATEST);
}

fn value_of(key: u32) -> f32 { return bitcast<f32>(select(~key, key ^ 0x80000000u, key >= 0x80000000u)); }

fn n_groups() -> u32 { return (constants.segment_rows + 3u) / 4u; }

// Keys of tokens 4g to 4g + 3; rows begin anywhere, loads do not.
fn keys_of(row: Row, g: u32) -> vec4<u32> {
    let at = row.logits + 4u * g;
    let a = bitcast<vec4<u32>>(inputs[at / 4u]);
    let b = bitcast<vec4<u32>>(inputs[min(at / 4u + 1u, arrayLength(&inputs) - 1u)]);
    var words = a;
    switch at % 4u {
        case 1u: { words = vec4<u32>(a.yzw, b.x); }
        case 2u: { words = vec4<u32>(a.zw, b.xy); }
        case 3u: { words = vec4<u32>(a.w, b.xyz); }
        default: {}
    }
    var keys = vec4<u32>();
    for (var c = 0u; c < 4u; c++) { keys[c] = select(PAST, key_of(words[c]), 4u * g + c < constants.segment_rows); }
    return keys;
}

// The likeliest after another.
fn next_likeliest(row: Row, lane: u32, last: Place) -> Place {
    var best = Place(PAST, NONE);
    for (var g = lane; g < n_groups(); g += LANES) {
        let keys = keys_of(row, g);
        for (var c = 0u; c < 4u; c++) {
            let place = Place(keys[c], 4u * g + c);
            if (place.key != PAST && is_before(last, place) && is_before(place, best)) { best = place; }
        }
    }
    return best_of_all(best, lane);
}

fn sample_row(row: Row, lane: u32) {
    // The only pass of a greedy choice.
    var n_nan = 0.0;
    var best = Place(PAST, NONE);
    for (var g = lane; g < n_groups(); g += LANES) {
        let keys = keys_of(row, g);
        for (var c = 0u; c < 4u; c++) {
            n_nan += select(0.0, 1.0, keys[c] == NO_NUMBER);
            if (keys[c] != PAST && is_before(Place(keys[c], 4u * g + c), best)) { best = Place(keys[c], 4u * g + c); }
        }
    }
    let n_nan_of_all = total_of_all(vec3<f32>(n_nan), lane).x;
    let likeliest = best_of_all(best, lane);
    var chosen = likeliest;
    if (row.temperature > 0.0) {
        let drawn = draw(row, lane, value_of(likeliest.key));
        if (likeliest.key > LEAST && drawn != NONE) { chosen = Place(key_at(row, drawn), drawn); }
    }
    if (chosen.key <= LEAST) { chosen.id = 0u; }
    if (lane == 0u) {
        kv[row.result] = chosen.id;
        kv[row.result + 1u] = u32(n_nan_of_all > 0.0);
    }
    if (row.n_logprobs == NONE) { return; }
    let log_sum = log_of_sum(row, lane, value_of(likeliest.key));
    if (lane == 0u) { kv[row.result + 2u] = logprob(chosen.key, likeliest.key, log_sum); }
    var last = Place(0xffffffffu, 0u);
    for (var i = 0u; i < min(row.n_logprobs, MAX_TOP); i++) {
        last = next_likeliest(row, lane, last);
        if (lane == 0u) {
            kv[row.result + TOP + i] = last.id;
            kv[row.result + TOP + MAX_TOP + i] = logprob(last.key, likeliest.key, log_sum);
        }
    }
}

fn key_at(row: Row, id: u32) -> u32 {
    let at = row.logits + id;
    return key_of(bitcast<u32>(inputs[at / 4u][at % 4u]));
}

// Of the exponentials of all logits over the largest one's.
fn log_of_sum(row: Row, lane: u32, greatest: f32) -> f32 {
    var sum = 0.0;
    for (var g = lane; g < n_groups(); g += LANES) {
        let keys = keys_of(row, g);
        for (var c = 0u; c < 4u; c++) {
            if (keys[c] > LEAST) { sum += exp(value_of(keys[c]) - greatest); }
        }
    }
    return log(total_of_all(vec3<f32>(sum), lane).x);
}

fn logprob(key: u32, greatest: u32, log_sum: f32) -> u32 {
    if (key <= LEAST) { return 0xff800000u; }
    return bitcast<u32>(value_of(key) - value_of(greatest) - log_sum);
}

// Tokens that may be drawn: those up to a place, and likely enough.
struct Kept { last: Place, greatest: f32, temperature: f32, min_p: f32 }

fn is_kept(kept: Kept, place: Place) -> bool { return !is_before(kept.last, place); }

fn scaled(kept: Kept, key: u32) -> f32 { return (value_of(key) - kept.greatest) / kept.temperature; }

fn weight(kept: Kept, key: u32) -> f32 {
    let weight = exp(scaled(kept, key));
    return select(0.0, weight, weight >= kept.min_p);
}

// The token that is drawn, or NONE where there is none to draw.
fn draw(row: Row, lane: u32, greatest: f32) -> u32 {
    var kept = Kept(Place(LEAST + 1u, NONE), greatest, row.temperature, row.min_p);
    // One place in the text for both, as compilers write functions out where they are called.
    for (var stage = 0u; stage < 2u; stage++) {
        let by_weight = stage == 1u;
        let drops = select(row.top_k > 0u, row.top_p < 1.0, by_weight);
        if (drops) { kept.last = last_of(row, lane, kept, by_weight, select(f32(row.top_k), row.top_p, by_weight)); }
    }
    var best = Place(PAST, NONE);
    for (var g = lane; g < n_groups(); g += LANES) {
        let keys = keys_of(row, g);
        // Most groups have none where some tokens were dropped, and noise costs more than all else.
        if (all(keys < vec4<u32>(kept.last.key))) { continue; }
        let words = philox4x32(vec4<u32>(g, row.place, 0u, 0u), row.seed);
        for (var c = 0u; c < 4u; c++) {
            let id = 4u * g + c;
            if (is_kept(kept, Place(keys[c], id)) && (kept.min_p == 0.0 || weight(kept, keys[c]) > 0.0)) {
                let score = Place(key_of(bitcast<u32>(scaled(kept, keys[c]) + gumbel(words[c]))), id);
                if (is_before(score, best)) { best = score; }
            }
        }
    }
    return best_of_all(best, lane).id;
}

// What the kept tokens at or above each of three keys amount to: their number, or their weight.
fn amounts(row: Row, lane: u32, kept: Kept, by_weight: bool, thresholds: vec3<u32>) -> vec3<f32> {
    var sums = vec3<f32>(0.0);
    for (var g = lane; g < n_groups(); g += LANES) {
        let keys = keys_of(row, g);
        for (var c = 0u; c < 4u; c++) {
            if (is_kept(kept, Place(keys[c], 4u * g + c))) {
                var amount = 1.0;
                if (by_weight) { amount = weight(kept, keys[c]); }
                sums += select(vec3<f32>(0.0), vec3<f32>(amount), vec3<u32>(keys[c]) >= thresholds);
            }
        }
    }
    return total_of_all(sums, lane);
}

// The last of the fewest likeliest kept tokens that are so many, or hold such a share of all their weight.
fn last_of(row: Row, lane: u32, kept: Kept, by_weight: bool, share: f32) -> Place {
    var key = 0u;
    var wanted = share;
    var above = 0.0;
    var n_equal = 0.0;
    // What all amount to; then the key by GROUP_BITS a turn; then what is above it, and how many have that very key.
    for (var turn = 0u; turn < N_TURNS + 3u; turn++) {
        let is_search = turn > 0u && turn <= N_TURNS;
        let step = 1u << (GROUP_BITS * (N_TURNS - select(N_TURNS, turn, is_search)));
        let ahead = select(vec3<u32>(0u, 1u, 1u), vec3<u32>(1u, 2u, 3u) * step, is_search);
        let found = amounts(row, lane, kept, by_weight && turn < N_TURNS + 2u, vec3<u32>(key) + ahead);
        if (is_search) {
            let reached = found >= vec3<f32>(wanted);
            key += step * (u32(reached.x) + u32(reached.y) + u32(reached.z));
        } else if (turn == 0u) {
            wanted *= select(1.0, found.x, by_weight);
        } else if (turn == N_TURNS + 1u) {
            above = found.y;
        } else {
            n_equal = found.x - found.y;
        }
    }
    // Of those with that very key the lowest ids, as many as it takes.
    var each = 1.0;
    if (by_weight) { each = weight(kept, key); }
    let n_needed = max(1.0, ceil((wanted - above) / each));
    let are_all = key < kept.last.key || n_needed >= n_equal;
    var last = Place(key, NONE);
    if (key <= kept.last.key) { last = kept.last; }
    if (same_for_all(are_all, lane)) { return last; }
    last = Place(key, 0u);
    for (var turn = 1u; turn <= N_TURNS; turn++) {
        let step = 1u << (GROUP_BITS * (N_TURNS - turn));
        let ids = vec3<u32>(last.id) + vec3<u32>(1u, 2u, 3u) * step;
        let is_short = count_before(row, lane, key, ids) < vec3<f32>(n_needed);
        last.id += step * (u32(is_short.x) + u32(is_short.y) + u32(is_short.z));
    }
    return last;
}

// Tokens of one key whose ids are below each of three.
fn count_before(row: Row, lane: u32, key: u32, ids: vec3<u32>) -> vec3<f32> {
    var sums = vec3<f32>(0.0);
    for (var g = lane; g < n_groups(); g += LANES) {
        let keys = keys_of(row, g);
        for (var c = 0u; c < 4u; c++) {
            if (keys[c] == key) {
                sums += select(vec3<f32>(0.0), vec3<f32>(1.0), vec3<u32>(4u * g + c) < ids);
            }
        }
    }
    return total_of_all(sums, lane);
}

// Philox4x32-10 (Salmon, Moraes, Dror and Shaw 2011).
fn philox4x32(start: vec4<u32>, seed: vec2<u32>) -> vec4<u32> {
    var counter = start;
    var key = seed;
    for (var i = 0u; i < 10u; i++) {
        let left = product(counter.x, 0xd2511f53u);
        let right = product(counter.z, 0xcd9e8d57u);
        counter = vec4<u32>(right.y ^ counter.y ^ key.x, right.x, left.y ^ counter.w ^ key.y, left.x);
        key += vec2<u32>(0x9e3779b9u, 0xbb67ae85u);
    }
    return counter;
}

// Low and high word.
fn product(a: u32, b: u32) -> vec2<u32> {
    let a_low = a & 0xffffu;
    let a_high = a >> 16u;
    let b_low = b & 0xffffu;
    let b_high = b >> 16u;
    let middle = a_high * b_low + ((a_low * b_low) >> 16u);
    let other = a_low * b_high + (middle & 0xffffu);
    return vec2<u32>(a * b, a_high * b_high + (middle >> 16u) + (other >> 16u));
}

// −ln(−ln(1 − u)): the inner logarithm by its series where `log` is not exact enough.
fn gumbel(word: u32) -> f32 {
    let u = (f32(word) + 0.5) * 0x1p-32f;
    let near = u * (1.0 + u * (0.5 + u * (0.33333333 + u * (0.25 + u * (0.2 + u * 0.16666667)))));
    let far = -log(1.0 - min(u, 0.99999994));
    return -log(select(far, near, u < 0.0625));
}
