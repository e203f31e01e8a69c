// One invocation samples a row, without barriers: on software adapters, where a test asks for it.

const LANES: u32 = 1u;

@compute @workgroup_size(WORKGROUP)
fn sample_serial(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x >= n_samples()) { return; }
    sample_row(read_row(id.x), 0u);
}

fn best_of_all(own: Place, lane: u32) -> Place { return own; }

fn total_of_all(own: vec3<f32>, lane: u32) -> vec3<f32> { return own; }

fn same_for_all(own: bool, lane: u32) -> bool { return own; }
