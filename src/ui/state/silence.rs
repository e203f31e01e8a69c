//! Notices an engine that says nothing, and gives it up when the person does.

use super::{Engine, Part, State};
use crate::{
    protocol::{FinishReason, Request},
    ui::turn::Stage,
};

/// So long (ms) an engine that was asked to stop or to load may say nothing before the page offers to restart it.
const MAX_SILENCE_MS: f64 = 10_000.0;

impl State {
    /// Notices at `now_ms` whether the engine owes a sign: it was asked to stop or to load, and has long said nothing.
    pub(crate) fn tick(&mut self, now_ms: f64) {
        let owes = self.is_loading() || self.answering.is_some_and(|answering| answering.stopping);
        let silent = owes && now_ms - self.last_sign_ms >= MAX_SILENCE_MS;
        if self.silent != silent {
            self.silent = silent;
            self.touch(Part::Silence);
        }
    }

    /// The person gives up on the engine, which is replaced; the client has the new one load again what this tab used.
    /// The answer on its way has ended for good.
    pub(crate) fn restart(&mut self) -> Option<Request> {
        let request = self.answering.map(|answering| answering.request);
        self.interrupt_bench();
        self.expect_again();
        self.in_use = None;
        self.live = None;
        self.set_engine(Engine::Starting);
        self.end_answer(Stage::Done(FinishReason::Cancelled));
        self.refuse(
            "The engine was restarted; what it held is loaded again, or load another model.".to_owned(),
        );
        self.silent = false;
        for part in [Part::Silence, Part::Models, Part::Live] {
            self.touch(part);
        }
        request.map(|request| Request::Cancel { request })
    }

    /// The engine said something at `now_ms`, or was asked to.
    pub(super) fn hear_sign(&mut self, now_ms: f64) {
        self.last_sign_ms = now_ms;
        self.tick(now_ms);
    }
}
