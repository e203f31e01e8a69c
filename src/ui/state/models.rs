//! Which model answers, and which one is on its way, whoever asked for it: this tab, another one, or an engine that
//! lost its device. What is loaded never takes the conversation with it.

use super::{Engine, Part, State};
use crate::{
    protocol::{GenerateOptions, IfFull, LoadOptions, ModelInfo, ModelSource, ModelUse, Request},
    store::library::StoredModel,
    ui::{
        catalogue::{Offer, default_options},
        fit::Reach,
        progress::Progress,
    },
};

/// A load on its way.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Loading {
    /// What is loaded, as the person chose it.
    pub(crate) name: String,
    /// How far it is.
    pub(crate) progress: Progress,
    /// It waits until others leave it room; nobody knows how long.
    pub(crate) waits: bool,
    /// What this tab asked for; nothing where it only joins.
    asked: Option<Asked>,
}

impl Loading {
    /// Whether this tab asked for it, and so may stop it.
    pub(crate) fn is_own(&self) -> bool {
        self.asked.is_some()
    }

    /// Whether it comes from a server, so that what came of it stays.
    pub(crate) fn is_download(&self) -> bool {
        self.asked.as_ref().is_some_and(|asked| matches!(asked.source, ModelSource::Url { .. }))
    }
}

/// A model that this tab asked for.
#[derive(Debug, Clone, PartialEq)]
struct Asked {
    source: ModelSource,
    /// What it starts with where it was on offer.
    defaults: Option<GenerateOptions>,
    /// It answered this tab before: the client knows its files, and loads it again by itself.
    again: bool,
}

/// What an engine that takes the place of another loads first: its name, and where it comes from.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Expected(String, Asked);

/// A load that found no room beside what other tabs use.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct InUse {
    /// What was to be loaded.
    pub(crate) name: String,
    /// What holds the room.
    pub(crate) models: Vec<ModelUse>,
    asked: Asked,
}

/// The model that answers.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Loaded {
    /// What the offer calls it, or else the engine.
    pub(crate) name: String,
    /// What the engine says of it.
    pub(crate) info: ModelInfo,
    /// How it is run.
    pub(crate) options: LoadOptions,
    source: ModelSource,
}

impl State {
    /// The models on offer, or why there is no list. The first one's options are shown until one is loaded; a model that
    /// another tab loaded gets the name and the options of its offer.
    pub(crate) fn offer(&mut self, offers: Result<Vec<Offer>, String>) {
        let offers = match offers {
            Ok(offers) => offers,
            Err(sentence) => return self.notify(sentence),
        };
        self.offers = offers;
        if let Some(model) = &self.model {
            if let Some(offer) = self.offer_of(&model.source).cloned() {
                self.use_model(offer.name, offer.options);
            }
        } else if let (Some(first), None) = (self.offers.first(), &self.loading) {
            self.preferences.use_model(&first.name, first.options.clone());
            self.touch(Part::Preferences);
        }
        self.touch(Part::Models);
    }

    /// What this browser keeps of models, what it has room for, and whether it takes nothing away by itself.
    pub(crate) fn keeps(
        &mut self,
        stored: Vec<StoredModel>,
        free_bytes: Option<u64>,
        is_lasting: Option<bool>,
    ) {
        (self.stored, self.free_bytes, self.is_lasting) = (stored, free_bytes, is_lasting);
        self.touch(Part::Models);
    }

    /// Whether the browser takes nothing away by itself, now that it was asked.
    pub(crate) fn lasts(&mut self, is_lasting: Option<bool>) {
        self.is_lasting = is_lasting;
        self.touch(Part::Models);
    }

    /// What there is to compute with.
    pub(crate) fn reaches(&mut self, reach: Reach) {
        self.reach = Some(reach);
        self.touch(Part::Models);
    }

    /// Bytes of the model at a whole address that are here.
    pub(crate) fn stored_at(&self, url: Option<&str>) -> Option<&StoredModel> {
        self.stored.iter().find(|stored| Some(stored.url.as_str()) == url)
    }

    /// Asks for a model at `now_ms`: one on offer comes with its options, a person's own file uses the page's. An answer
    /// on its way goes on until the engine ends it: what was chosen may be no model.
    pub(crate) fn load(
        &mut self,
        name: &str,
        source: ModelSource,
        defaults: Option<GenerateOptions>,
        now_ms: f64,
    ) -> Request {
        self.forget_notices();
        self.ask(name.to_owned(), Asked { source, defaults, again: false }, IfFull::Ask, now_ms)
    }

    /// Asks at `now_ms` again for what found no room.
    pub(crate) fn load_again(&mut self, if_full: IfFull, now_ms: f64) -> Option<Request> {
        let InUse { name, asked, .. } = self.in_use.take()?;
        Some(self.ask(name, asked, if_full, now_ms))
    }

    /// Whether the question is about the model that answered before.
    pub(crate) fn asks_about_own(&self) -> bool {
        self.in_use.as_ref().is_some_and(|in_use| in_use.asked.again)
    }

    /// Gives up what found no room, and with it the answer that waits for it.
    pub(crate) fn cancel_load(&mut self) -> Option<Request> {
        let InUse { asked, .. } = self.in_use.take()?;
        self.touch(Part::Models);
        let is_shown = self.model.as_ref().is_some_and(|model| model.source == asked.source);
        let answering = self.answering.filter(|_| asked.again && is_shown)?;
        Some(Request::Cancel { request: answering.request })
    }

    /// The engine is given up: the next one loads what was on its way, or else what answered.
    pub(super) fn expect_again(&mut self) {
        let loading = self.loading.take().and_then(|loading| Some(Expected(loading.name, loading.asked?)));
        let own = self.model.take().map(Loaded::expected);
        self.expected = loading.or(own);
    }

    fn ask(&mut self, name: String, asked: Asked, if_full: IfFull, now_ms: f64) -> Request {
        let waits = if_full == IfFull::Wait;
        let stage = if waits { "Waiting until other tabs leave room" } else { "Asking the engine" };
        let source = asked.source.clone();
        self.in_use = None;
        self.loading = Some(Loading { name, progress: Progress::of_stage(stage), waits, asked: Some(asked) });
        if self.engine == Engine::Lost {
            self.set_engine(Engine::Starting);
        }
        self.hear_sign(now_ms);
        self.touch(Part::Models);
        self.touch(Part::Loading);
        Request::Load { source, options: self.preferences.load.clone(), if_full }
    }

    /// Whether a load is on its way that another one would disturb.
    pub(crate) fn is_loading(&self) -> bool {
        self.loading.as_ref().is_some_and(|loading| !loading.waits)
    }

    /// How far a load is, also one that this tab did not ask for.
    pub(super) fn report(&mut self, stage: String, done_bytes: u64, total_bytes: u64, now_ms: f64) {
        if self.loading.is_none() {
            let expected = self.expected.as_ref().map(|Expected(name, _)| name.clone());
            let known = self.model.as_ref().map(|model| model.name.clone()).or(expected);
            let name = known.unwrap_or_else(|| "a model".to_owned());
            self.loading = Some(Loading { name, progress: Progress::default(), waits: false, asked: None });
            self.touch(Part::Models);
            // A model that was there comes back after its GPU was lost.
            self.pause_answer();
        }
        let Some(loading) = &mut self.loading else { return };
        // A stage without bytes may still be the wait.
        let begins = loading.waits && total_bytes > 0;
        loading.waits &= !begins;
        loading.progress.report(stage, done_bytes, total_bytes, now_ms);
        self.touch(Part::Loading);
        if begins {
            self.touch(Part::Models);
        }
    }

    /// A model answers this tab from now on. It ends the load on its way, unless it is the one that answered already,
    /// come back after a loss.
    pub(super) fn ready(&mut self, info: ModelInfo, source: ModelSource, options: LoadOptions) {
        self.interrupt_bench();
        let came_back = self.model.as_ref().is_some_and(|model| model.source == source);
        let asked = self.loading.as_ref().and_then(|loading| loading.asked.as_ref());
        let is_asked = asked.is_some_and(|asked| asked.source == source);
        let is_new = asked.is_some_and(|asked| !asked.again && asked.source == source);
        let mut own = None;
        if is_asked || asked.is_none() || !came_back {
            own = self.loading.take();
        }
        let own = own.and_then(|loading| Some((loading.name, loading.asked?.defaults?)));
        let offer = || self.offer_of(&source).map(|offer| (offer.name.clone(), offer.options.clone()));
        let named = own.filter(|_| is_asked).or_else(offer);
        let (name, defaults) = named.unwrap_or_else(|| (info.name.clone(), default_options()));
        if !came_back || is_new {
            // Counts and speed were those of another model.
            self.tally = None;
            self.touch(Part::Status);
        }
        self.expected = None;
        self.in_use.take_if(|in_use| in_use.asked.source == source);
        if let Some(note) = info.storage_note.clone().filter(|_| is_new) {
            self.notify(format!("{note}."));
        }
        self.model = Some(Loaded { name: name.clone(), info, options, source });
        self.use_model(name, defaults);
        self.set_engine(Engine::Running);
    }

    fn use_model(&mut self, name: String, defaults: GenerateOptions) {
        self.preferences.use_model(&name, defaults);
        if let Some(model) = &mut self.model {
            model.name = name;
        }
        self.touch(Part::Models);
        self.touch(Part::Preferences);
    }

    pub(super) fn load_failed(&mut self, error: String, unloaded: bool) {
        (self.loading, self.expected) = (None, None);
        if unloaded {
            self.model = None;
        }
        self.touch(Part::Models);
        self.notify(error);
    }

    /// There is no room: who uses it, and what now? What this tab did not ask for is what the client loads again.
    pub(super) fn ask_for_room(&mut self, models: Vec<ModelUse>) {
        let Some(loading) = self.loading.take() else { return };
        let asked = loading.asked.map(|asked| Expected(loading.name, asked));
        let own = || self.model.clone().map(Loaded::expected);
        if let Some(Expected(name, asked)) = asked.or_else(|| self.expected.clone()).or_else(own) {
            self.in_use = Some(InUse { name, models, asked });
        }
        self.touch(Part::Models);
    }

    /// The model is gone, and so is the load that was to bring it back.
    pub(super) fn unloaded(&mut self, reason: String) {
        self.interrupt_bench();
        self.model = None;
        self.loading.take_if(|loading| loading.asked.is_none());
        self.touch(Part::Models);
        self.notify(reason);
    }

    /// The offer of the model that came from there.
    fn offer_of(&self, source: &ModelSource) -> Option<&Offer> {
        let ModelSource::Url { url } = source else { return None };
        self.offers.iter().find(|offer| offer.url == *url)
    }
}

impl Loaded {
    /// Where it came from, if that is no file of the person's own.
    pub(crate) fn url(&self) -> Option<&str> {
        match &self.source {
            ModelSource::Url { url } => Some(url),
            ModelSource::Attachments { .. } => None,
        }
    }

    /// It, as what is to be loaded again.
    fn expected(self) -> Expected {
        Expected(self.name, Asked { source: self.source, defaults: None, again: true })
    }
}
