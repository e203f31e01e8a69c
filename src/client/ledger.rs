//! What this tab asked and no engine has answered yet, so that another engine can go on where one was lost.
//!
//! Invariant: nothing here knows a browser. Whoever asked sees one answer, however many engines worked on it: a request
//! starts once, no token comes twice, no model gets another's tokens, and every request ends.

use std::{collections::BTreeMap, mem};

use self::open::{Open, Output};
use crate::protocol::{
    BUILD, Event, GIVEN_UP, IfFull, LoadOptions, ModelSource, ModelUse, Request, RequestId, VERSION,
};

/// Why what waited for a model ends.
const NO_ROOM: &str = "the model that this tab used is not loaded: there is no room beside what other tabs use; load it again, or a smaller one";

mod open;

/// What follows from something said: messages to the engine, with what travels beside them, and events for the page.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Moves<A> {
    pub(super) send: Vec<(Request, Vec<A>)>,
    pub(super) tell: Vec<Event>,
}

/// The tab's model, its requests, and how it stands with the engine.
#[derive(Debug)]
pub(super) struct Ledger<A> {
    standing: Standing,
    /// The one that answers this tab, or did when the engine was lost.
    model: Option<Model<A>>,
    /// What must be loaded before anything that needs a model goes out; there while reloading or without room.
    first: Option<Model<A>>,
    /// What the engine said of `model` while `first` was on its way: the page hears it only if `first` does not come.
    withheld: Option<Event>,
    asked: Option<Model<A>>,
    asked_is_sent: bool,
    /// What found no room last: its files, should it be asked for again.
    roomless: Option<Model<A>>,
    /// The page was told of a model, and not that it went.
    is_shown: bool,
    open: BTreeMap<RequestId, Open>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    /// No engine of this build has welcomed the tab.
    Away,
    /// The tab's model is on its way to an engine that is new; what needs a model waits.
    Reloading,
    /// It found no room there: what waited waits for the person.
    NoRoom,
    /// All that is asked goes out at once.
    Here,
}

#[derive(Debug, Clone)]
struct Model<A> {
    source: ModelSource,
    options: LoadOptions,
    /// What was said for the case that it finds no room, until it is there.
    if_full: IfFull,
    attachments: Vec<A>,
}

impl<A> Default for Moves<A> {
    fn default() -> Self {
        Self { send: Vec::new(), tell: Vec::new() }
    }
}

impl<A> Default for Ledger<A> {
    fn default() -> Self {
        Self {
            standing: Standing::Away,
            model: None,
            first: None,
            withheld: None,
            asked: None,
            asked_is_sent: false,
            roomless: None,
            is_shown: false,
            open: BTreeMap::new(),
        }
    }
}

impl<A: Clone> Ledger<A> {
    /// Notes a request; it goes out now, or once an engine can take it.
    pub(super) fn ask(&mut self, request: Request, attachments: Vec<A>) -> Moves<A> {
        let mut moves = Moves::default();
        match request {
            Request::Load { source, options, if_full } => {
                let attachments = if attachments.is_empty() { self.files_of(&source) } else { attachments };
                self.load(Model { source, options, if_full, attachments }, &mut moves);
            }
            Request::Generate { request: id, .. }
            | Request::Tokenize { request: id, .. }
            | Request::Status { request: id }
            | Request::Batch { request: id } => {
                let mut open = Open::new(request);
                match self.standing {
                    Standing::NoRoom if open.needs_model() => {
                        moves.tell.push(Event::Failed { request: Some(id), error: NO_ROOM.to_owned() });
                        return moves;
                    }
                    Standing::Here => moves.send.push((open.resend(), Vec::new())),
                    Standing::Reloading | Standing::NoRoom if !open.needs_model() => {
                        moves.send.push((open.resend(), Vec::new()));
                    }
                    Standing::Away | Standing::Reloading | Standing::NoRoom => {}
                }
                self.open.insert(id, open);
            }
            Request::Cancel { request: id } => self.cancel(id, &mut moves),
            Request::GiveUpLoad => match self.standing {
                Standing::Here | Standing::Reloading => moves.send.push((request, Vec::new())),
                Standing::Away | Standing::NoRoom => {
                    if self.asked.take().is_some() {
                        let unloaded = self.model.is_none();
                        moves.tell.push(Event::LoadFailed { error: GIVEN_UP.to_owned(), unloaded });
                    }
                }
            },
            // These are about the connection itself.
            Request::Hello { .. } | Request::Received { .. } | Request::Bye | Request::Break { .. } => {
                moves.send.push((request, attachments));
            }
        }
        moves
    }

    /// Notes what the engine said. What the page need not hear, because it heard it from the engine before, is left out.
    pub(super) fn hear(&mut self, event: Event, attachments: Vec<A>) -> Moves<A> {
        let mut moves = Moves::default();
        match event {
            Event::Welcome { version, ref build, .. } => {
                let is_ours = version == VERSION && build == BUILD;
                moves.tell.push(event);
                if is_ours {
                    self.greeted(&mut moves);
                }
            }
            Event::Ready { ref source, ref options, .. } => {
                let (source, options) = (source.clone(), options.clone());
                self.ready(Model { source, options, if_full: IfFull::Ask, attachments }, event, &mut moves);
            }
            Event::LoadFailed { error, unloaded } => self.load_failed(error, unloaded, &mut moves),
            Event::InUse { models } => self.in_use(models, &mut moves),
            Event::Unloaded { .. } => {
                (self.model, self.withheld) = (None, None);
                match (self.standing, &self.first) {
                    // It may have been the one on its way, of which nothing more is said then. To ask twice is no harm.
                    (Standing::Reloading, Some(first)) => moves.send.push(first.load()),
                    (Standing::NoRoom, _) => {}
                    _ => {
                        self.is_shown = false;
                        moves.tell.push(event);
                    }
                }
            }
            Event::Started { request, .. } => {
                let of = self.model.as_ref().map(|model| &model.source);
                let again = self.open.get_mut(&request).is_some_and(|open| open.start(of));
                if !again {
                    moves.tell.push(event);
                }
            }
            Event::PromptLogprobs { request, output, .. } => {
                let again =
                    self.output(request, output).is_some_and(|output| mem::replace(&mut output.scored, true));
                if !again {
                    moves.tell.push(event);
                }
            }
            Event::Tokens { request, output, ref ids, .. } => match self.output(request, output) {
                Some(output) if output.finished => {}
                Some(output) if ids.is_empty() => {
                    let n_ids = output.ids.len();
                    if output.tail_after.replace(n_ids) != Some(n_ids) {
                        moves.tell.push(event);
                    }
                }
                Some(output) => {
                    output.ids.extend(ids);
                    moves.tell.push(event);
                }
                None => moves.tell.push(event),
            },
            Event::Finished { request, output, reason, usage, n_left } => {
                let n_left = match self.finish(request, output) {
                    None => n_left,
                    Some(Ok(n_left)) => n_left,
                    Some(Err(Again)) => return moves,
                };
                moves.tell.push(Event::Finished { request, output, reason, usage, n_left });
            }
            Event::Tokenized { request, .. }
            | Event::Status { request: Some(request), .. }
            | Event::Batch { request, .. }
            | Event::Failed { request: Some(request), .. } => {
                self.open.remove(&request);
                moves.tell.push(event);
            }
            // The engine does not know the tab: nothing of this connection counts.
            Event::Unacquainted => return self.lose(),
            // Of another model than the page asks about.
            Event::Loading { .. } if self.standing == Standing::NoRoom => {}
            Event::Loading { .. }
            | Event::Prefilling { .. }
            | Event::OpTimes { .. }
            | Event::Status { request: None, .. }
            | Event::Failed { request: None, .. } => moves.tell.push(event),
        }
        moves
    }

    /// The engine is gone, and what it was told with it.
    pub(super) fn lose(&mut self) -> Moves<A> {
        let mut moves = Moves::default();
        self.standing = Standing::Away;
        self.model = self.first.take().or(self.model.take());
        self.withheld = None;
        self.asked_is_sent = false;
        self.open.values_mut().for_each(Open::lose);
        let cancelled = self.open.extract_if(.., |_, open| open.cancelled);
        moves.tell = cancelled.flat_map(|(id, open)| open.cancelled_events(id)).collect();
        moves
    }

    fn greeted(&mut self, moves: &mut Moves<A>) {
        if self.standing != Standing::Away {
            moves.tell.extend(self.lose().tell);
        }
        // Nobody waits for room that another one does not need.
        self.model.take_if(|own| own.if_full == IfFull::Wait && self.asked.is_some());
        let next = self.model.as_ref().or(self.asked.as_ref()).map(|model| model.source.clone());
        self.end_those_of_another(next.as_ref(), moves);
        let is_awaited = self.open.values().any(Open::needs_model);
        let own = self.model.take();
        // An answer goes on with its own model; the one asked for comes after it.
        self.first = own.filter(|_| is_awaited || self.asked.is_none());
        if self.first.is_none() && is_awaited {
            self.first = self.asked.take();
        }
        self.standing = match &self.first {
            Some(first) => {
                moves.send.push(first.load());
                Standing::Reloading
            }
            None => Standing::Here,
        };
        self.send_what_waits(moves);
    }

    /// A model is asked for: the last one counts.
    fn load(&mut self, model: Model<A>, moves: &mut Moves<A>) {
        self.asked_is_sent = self.standing != Standing::Away;
        if self.asked_is_sent {
            moves.send.push(model.load());
        }
        match &mut self.first {
            Some(first) => {
                *first = model;
                self.asked = None;
                self.standing = Standing::Reloading;
                let source = first.source.clone();
                self.end_those_of_another(Some(&source), moves);
            }
            // It is the one that is loaded again anyway.
            None if !self.asked_is_sent && self.model.as_ref().is_some_and(|own| own.is_same(&model)) => {
                (self.model, self.asked) = (Some(model), None);
            }
            None => self.asked = Some(model),
        }
    }

    fn ready(&mut self, model: Model<A>, event: Event, moves: &mut Moves<A>) {
        match &self.first {
            // An engine gives a tab that greets what is there. It is not what the page shows and waits for.
            Some(first) if !first.is_same(&model) => {
                (self.model, self.withheld) = (Some(model), Some(event));
                return;
            }
            // Its files are at hand already.
            Some(_) => self.model = self.first.take(),
            None if self.asked.as_ref().is_some_and(|asked| asked.is_same(&model)) => {
                self.model = self.asked.take();
            }
            None if self.model.as_ref().is_some_and(|own| own.is_same(&model)) => {}
            None => self.model = Some(model),
        }
        if let Some(model) = &mut self.model {
            model.if_full = IfFull::Ask;
        }
        self.withheld = None;
        self.is_shown = true;
        moves.tell.push(event);
        if matches!(self.standing, Standing::Reloading | Standing::NoRoom) {
            self.standing = Standing::Here;
            self.send_what_waits(moves);
        }
    }

    fn load_failed(&mut self, error: String, unloaded: bool, moves: &mut Moves<A>) {
        if unloaded {
            (self.model, self.withheld) = (None, None);
        }
        let sentence = format!("the answer cannot go on, its model was not loaded again: {error}");
        if self.first.take().is_none() {
            self.asked.take_if(|_| self.asked_is_sent);
            self.is_shown &= !unloaded;
            moves.tell.push(Event::LoadFailed { error, unloaded });
            return;
        }
        let unloaded = self.withheld.is_none();
        self.is_shown &= !unloaded;
        moves.tell.push(match (&self.asked, unloaded) {
            (None, _) => Event::LoadFailed { error, unloaded },
            // It is not the load that the page waits for.
            (Some(_), true) => Event::Unloaded { reason: error },
            (Some(_), false) => Event::Failed { request: None, error },
        });
        self.settle(&sentence, moves);
    }

    /// What was asked for last found no room.
    fn in_use(&mut self, models: Vec<ModelUse>, moves: &mut Moves<A>) {
        let is_awaited = self.open.values().any(|open| !open.sent && open.needs_model());
        let waits = |model: &Model<A>| model.if_full == IfFull::Wait;
        match &self.first {
            // Said of an earlier load: this one waits for the room.
            Some(first) if waits(first) => {}
            None if self.asked_is_sent && self.asked.as_ref().is_some_and(waits) => {}
            Some(_) if self.asked.is_some() => {
                self.asked.take().into_iter().for_each(|asked| self.load(asked, moves));
            }
            Some(_) => {
                moves.tell.push(Event::InUse { models });
                if is_awaited {
                    self.standing = Standing::NoRoom;
                } else {
                    self.settle(NO_ROOM, moves);
                }
            }
            None => {
                self.roomless = self.asked.take_if(|_| self.asked_is_sent).or(self.roomless.take());
                moves.tell.push(Event::InUse { models });
                self.show_what_is_there(moves);
            }
        }
    }

    /// The model that was to be there first does not come: what waited for it ends, and the one that is there answers.
    fn settle(&mut self, sentence: &str, moves: &mut Moves<A>) {
        self.roomless = self.first.take().or(self.roomless.take());
        self.standing = Standing::Here;
        self.end_waiting(sentence, moves, Open::needs_model);
        self.show_what_is_there(moves);
        self.send_what_waits(moves);
    }

    fn show_what_is_there(&mut self, moves: &mut Moves<A>) {
        if let Some(event) = self.withheld.take() {
            self.is_shown = true;
            moves.tell.push(event);
        } else if self.model.is_none() && mem::replace(&mut self.is_shown, false) {
            moves.tell.push(Event::Unloaded { reason: NO_ROOM.to_owned() });
        }
    }

    /// What an engine can take goes out, and after it the load that was asked for meanwhile.
    fn send_what_waits(&mut self, moves: &mut Moves<A>) {
        let is_here = self.standing == Standing::Here;
        if is_here {
            let source = self.model.as_ref().map(|model| model.source.clone());
            self.end_those_of_another(source.as_ref(), moves);
        }
        for open in self.open.values_mut().filter(|open| !open.sent) {
            if is_here || !open.needs_model() {
                moves.send.push((open.resend(), Vec::new()));
            }
        }
        if is_here && !self.asked_is_sent {
            self.asked_is_sent = true;
            moves.send.extend(self.asked.as_ref().map(Model::load));
        }
    }

    /// Ends what another model than this one began: its tokens mean something else to this one.
    fn end_those_of_another(&mut self, source: Option<&ModelSource>, moves: &mut Moves<A>) {
        let sentence = "the answer cannot go on, another model was loaded since it began; ask again";
        self.end_waiting(sentence, moves, |open| {
            open.is_begun() && (open.of.is_none() || open.of.as_ref() != source)
        });
    }

    fn end_waiting(&mut self, sentence: &str, moves: &mut Moves<A>, is_meant: impl Fn(&Open) -> bool) {
        let ended = self.open.extract_if(.., |_, open| !open.sent && is_meant(open));
        let event = |(id, _)| Event::Failed { request: Some(id), error: sentence.to_owned() };
        moves.tell.extend(ended.map(event));
    }

    /// The files of a model that this tab knows.
    fn files_of(&self, source: &ModelSource) -> Vec<A> {
        let known = [&self.first, &self.asked, &self.roomless, &self.model].into_iter().flatten();
        known
            .filter(|model| model.source == *source)
            .map(|model| model.attachments.clone())
            .next()
            .unwrap_or_default()
    }

    fn cancel(&mut self, id: RequestId, moves: &mut Moves<A>) {
        match self.open.get_mut(&id) {
            // It ended already, and that is none of anybody's concern.
            None => {}
            Some(open) if open.sent => {
                open.cancelled = true;
                moves.send.push((Request::Cancel { request: id }, Vec::new()));
            }
            Some(_) => {
                let open = self.open.remove(&id).expect("it was just there");
                moves.tell = open.cancelled_events(id);
                if self.standing == Standing::NoRoom {
                    // The person does not want it any more.
                    self.settle(NO_ROOM, moves);
                }
            }
        }
    }

    /// The output of a request that still runs.
    fn output(&mut self, id: RequestId, output: u32) -> Option<&mut Output> {
        let open = self.open.get_mut(&id)?;
        let output = output as usize;
        if (output as u64) < open.n_outputs() && open.outputs.len() <= output {
            open.outputs.resize(output + 1, Output::default());
        }
        open.outputs.get_mut(output)
    }

    /// Marks an output as finished. Tells how many of the request are left, or that it was finished before.
    fn finish(&mut self, id: RequestId, output: u32) -> Option<Result<u32, Again>> {
        let finished = &mut self.output(id, output)?.finished;
        if mem::replace(finished, true) {
            return Some(Err(Again));
        }
        let open = self.open.get(&id)?;
        let n_left = open.n_outputs() - open.outputs.iter().filter(|output| output.finished).count() as u64;
        if n_left == 0 {
            self.open.remove(&id);
        }
        Some(Ok(n_left as u32))
    }
}

/// Said before.
struct Again;

impl<A: Clone> Model<A> {
    fn load(&self) -> (Request, Vec<A>) {
        let (source, options, if_full) = (self.source.clone(), self.options.clone(), self.if_full);
        (Request::Load { source, options, if_full }, self.attachments.clone())
    }

    /// Whether an engine takes the two for one.
    fn is_same(&self, other: &Self) -> bool {
        let without_time = |options: &LoadOptions| LoadOptions { keep_unused_secs: None, ..options.clone() };
        self.source == other.source && without_time(&self.options) == without_time(&other.options)
    }
}

#[cfg(test)]
mod tests;
