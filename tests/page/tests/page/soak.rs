//! Many requests of many clients, some cancelled: nothing is left of them.

use crate::answers::generate;
use crate::foreign::numbered;
use page_tests::Page;
use page_tests::lines::{Lines, Planned};
use pagelm::protocol::{BUILD, Event, Request, Status, VERSION};
use std::time::Duration;

const CLIENTS: u64 = 8;
/// Requests of a client, before memory is looked at for the first time and after.
const WARM_UP: u64 = 13;
const AFTER: u64 = 50;
const LIMIT: Duration = Duration::from_secs(600);
const AT_ONCE: Duration = Duration::from_secs(60);

/// A tab with a model, and clients beside it.
pub(crate) fn five_hundred_requests_leave_nothing_behind(page: &Page) -> Result<(), String> {
    let lines = Lines::open(page, CLIENTS as usize, true)?;
    for line in 0..CLIENTS as usize {
        lines.say(line, &Request::Hello { version: VERSION, build: BUILD.into(), lock: String::new() })?;
        lines.hear(line, |event| matches!(event, Event::Ready { .. }))?;
    }
    let mut random = Random(4);
    let warm = run(page, &lines, 0..WARM_UP, &mut random)?;
    let end = run(page, &lines, WARM_UP..WARM_UP + AFTER, &mut random)?;
    assert_eq!((warm.free_blocks, end.free_blocks), (end.n_blocks, end.n_blocks), "{end:?}");
    assert_eq!((end.n_gpu_buffers, end.gpu_bytes), (warm.n_gpu_buffers, warm.gpu_bytes), "{end:?}");
    assert_eq!(end.memory_bytes, warm.memory_bytes, "wasm memory grew");
    assert_eq!((end.n_tabs, end.n_loads, end.n_losses), (CLIENTS as u32 + 1, 1, 0), "{end:?}");
    Ok(())
}

/// Has every client ask the requests of these numbers; how the engine stands at rest after that.
fn run(
    page: &Page,
    lines: &Lines<'_>,
    numbers: std::ops::Range<u64>,
    random: &mut Random,
) -> Result<Status, String> {
    let mut plan =
        |client: u64| -> Vec<Planned> { numbers.clone().map(|id| random.request(client, id)).collect() };
    let plans: Vec<Vec<Planned>> = (0..CLIENTS).map(&mut plan).collect();
    let soaked = lines.soak(&plans, LIMIT)?;
    let asked = CLIENTS * (numbers.end - numbers.start);
    assert!(soaked.n_finished == asked && soaked.failures.is_empty(), "{asked} were asked: {soaked:?}");
    page.wait_for_status(AT_ONCE, "an engine at rest", |status| status.running + status.waiting == 0)
}

/// Numerical Recipes' linear congruential generator: the same schedule every time.
struct Random(u32);

impl Random {
    fn below(&mut self, bound: u32) -> u32 {
        self.0 = self.0.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (self.0 >> 8) % bound
    }

    /// A request of some length, that one time of three is cancelled.
    fn request(&mut self, client: u64, id: u64) -> Planned {
        let n_tokens = 1 + self.below(24);
        let text = format!("Client {client} asks {id}: {}", "and so on ".repeat(self.below(6) as usize));
        let request = numbered(id, generate(&text, n_tokens));
        let cancel_after = (self.below(3) == 0).then(|| self.below(8));
        Planned { request, id, cancel_after }
    }
}
