//! Notices an engine that says nothing, and gives it up when the person does.

use super::{Engine, Part, State};
use crate::{protocol::FinishReason, ui::turn::Stage};

/// So long (ms) an engine that was asked to stop or to load may say nothing before the page offers to restart it.
const MAX_SILENCE_MS: f64 = 10_000.0;

impl State {
    /// Notices at `now_ms` whether the engine owes a sign: it was asked to stop or to load, and has long said nothing.
    pub(crate) fn tick(&mut self, now_ms: f64) {
        let owes = self.loading.is_some() || self.answering.is_some_and(|answering| answering.stopping);
        let silent = owes && now_ms - self.last_sign_ms >= MAX_SILENCE_MS;
        if self.silent != silent {
            self.silent = silent;
            self.touch(Part::Silence);
        }
    }

    /// The person gives up on the engine, which is replaced: says what to load again.
    pub(crate) fn restart(&mut self) {
        let loading = self.loading.take().map(|loading| loading.name);
        let name = loading.or(self.model.take().map(|model| model.name));
        self.model = None;
        self.engine = Engine::Starting;
        self.end_answer(Stage::Done(FinishReason::Cancelled));
        self.forget_notices();
        let what = name.unwrap_or_else(|| "a model".to_owned());
        self.notify(format!(
            "The engine was restarted and holds no model now; load {what} again, or another."
        ));
        self.silent = false;
        self.touch(Part::Silence);
        self.touch(Part::Models);
    }

    /// The engine said something at `now_ms`, or was asked to.
    pub(super) fn hear_sign(&mut self, now_ms: f64) {
        self.last_sign_ms = now_ms;
        self.tick(now_ms);
    }
}
