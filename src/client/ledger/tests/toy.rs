//! Random schedules against a toy engine, which comes and goes, and whose other tabs load and unload what they like.

use std::collections::VecDeque;

use super::*;

/// A model: its name, and the context it runs with.
type Wanted = (&'static str, Option<u32>);

const NAMES: [&str; 3] = ["a", "b", "c"];

/// A tab, its page, and the engine, with what is under way between them.
#[derive(Default)]
struct World {
    n_draws: u64,
    ledger: Ledger<u8>,
    /// The page's requests that have not ended, and the tokens that came of them.
    live: BTreeMap<RequestId, Vec<u32>>,
    n_requests: RequestId,
    /// The page was told that there is no room, and has not decided.
    is_asked: bool,
    is_connected: bool,
    to_engine: VecDeque<Request>,
    to_tab: VecDeque<Event>,
    /// The latest last, and whether its device is lost.
    slots: Vec<(Wanted, bool)>,
    of_tab: Option<Wanted>,
    job: Option<(Wanted, IfFull)>,
    running: BTreeMap<RequestId, (Wanted, Vec<u32>)>,
}

fn name_of(source: &ModelSource) -> &'static str {
    NAMES.into_iter().find(|name| super::source(name) == *source).unwrap()
}

fn files_of(name: &str) -> Vec<u8> {
    vec![name.as_bytes()[0]]
}

fn token(of: Wanted, place: usize) -> u32 {
    u32::from(of.0.as_bytes()[0]) * 1000 + place as u32
}

fn ready_with((name, context): Wanted) -> Event {
    let Event::Ready { model, source, .. } = ready(name) else { panic!() };
    Event::Ready { model, source, options: LoadOptions { context, ..LoadOptions::default() } }
}

fn loading() -> Event {
    Event::Loading { stage: String::new(), done_bytes: 0, total_bytes: 0 }
}

impl World {
    fn draw(&mut self, n: usize) -> usize {
        self.n_draws += 1;
        let mut bits = self.n_draws.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        for factor in [0xBF58_476D_1CE4_E5B9, 0x94D0_49BB_1331_11EB] {
            bits = (bits ^ (bits >> 30)).wrapping_mul(factor);
        }
        ((bits >> 33) % n as u64) as usize
    }

    fn wanted(&mut self) -> Wanted {
        (NAMES[self.draw(3)], [None, Some(64)][self.draw(2)])
    }

    fn make(&mut self, moves: Moves<u8>) {
        for (request, files) in moves.send {
            if let Request::Load { source, .. } = &request {
                assert_eq!(files, files_of(name_of(source)), "a model goes with its files");
            }
            assert!(self.is_connected, "nobody hears {request:?}");
            self.to_engine.push_back(request);
        }
        for event in moves.tell {
            match event {
                Event::Tokens { request, ids, .. } => self.live.get_mut(&request).unwrap().extend(ids),
                Event::Finished { request, n_left: 0, .. }
                | Event::Tokenized { request, .. }
                | Event::Status { request: Some(request), .. }
                | Event::Failed { request: Some(request), .. } => {
                    assert!(self.live.remove(&request).is_some(), "{request} ended before");
                }
                Event::InUse { .. } => self.is_asked = true,
                _ => {}
            }
        }
    }

    fn ask(&mut self, request: Request, files: Vec<u8>) {
        let moves = self.ledger.ask(request, files);
        self.make(moves);
    }

    fn ask_something(&mut self) {
        self.n_requests += 1;
        let request = self.n_requests;
        let (name, context) = self.wanted();
        let asked = match self.draw(8) {
            0 | 1 => {
                let if_full = [IfFull::Ask, IfFull::Wait, IfFull::Replace][self.draw(3)];
                let options = LoadOptions { context, ..LoadOptions::default() };
                self.is_asked = false;
                let load = Request::Load { source: source(name), options, if_full };
                return self.ask(load, files_of(name));
            }
            2 => {
                let nth = self.draw(self.live.len().max(1));
                let Some(request) = self.live.keys().nth(nth).copied() else { return };
                return self.ask(Request::Cancel { request }, vec![]);
            }
            3 => Request::Status { request },
            4 => Request::Tokenize { request, model: None, prompt: Prompt::Text("hi".into()) },
            _ => generate(request, 1, vec![]),
        };
        self.live.insert(request, Vec::new());
        self.ask(asked, vec![]);
    }

    fn tell(&mut self, event: Event) {
        self.to_tab.push_back(event);
    }

    fn greet(&mut self) {
        self.is_connected = true;
        self.tell(welcome(BUILD));
        self.slots = (0..self.draw(3)).map(|_| (self.wanted(), false)).collect();
        self.of_tab = self.slots.last().map(|(wanted, _)| *wanted);
        self.of_tab.into_iter().for_each(|wanted| self.tell(ready_with(wanted)));
    }

    fn die(&mut self) {
        let n_draws = self.n_draws;
        let kept = (mem::take(&mut self.ledger), mem::take(&mut self.live), self.n_requests, self.is_asked);
        *self = Self { n_draws, ..Self::default() };
        (self.ledger, self.live, self.n_requests, self.is_asked) = kept;
        let moves = self.ledger.lose();
        self.make(moves);
    }

    fn answer(&mut self, request: Request) {
        let there = self.of_tab.filter(|wanted| self.slots.iter().any(|(slot, _)| slot == wanted));
        let no_model = |request| Event::Failed { request: Some(request), error: "no model".into() };
        match request {
            Request::Load { source, options, if_full } => {
                let wanted = (name_of(&source), options.context);
                let slot = self.slots.iter().find(|(slot, _)| *slot == wanted).copied();
                self.job = slot.is_none().then_some((wanted, if_full));
                self.of_tab = slot.map(|(wanted, _)| wanted).or(self.of_tab);
                let is_there = slot.is_some_and(|(_, is_lost)| !is_lost);
                self.tell(if is_there { ready_with(wanted) } else { loading() });
            }
            Request::Generate { request, generated, .. } => {
                let Some(of) = there else { return self.tell(no_model(request)) };
                let before = generated.into_iter().next().unwrap_or_default();
                let whole: Vec<u32> = (0..before.len()).map(|place| token((of.0, None), place)).collect();
                assert_eq!(before, whole, "tokens of another model than {of:?}");
                if let Some(seen) = self.live.get(&request) {
                    assert_eq!(*seen, before, "what the page saw");
                }
                self.running.insert(request, (of, before));
                self.tell(started(request));
            }
            Request::Tokenize { request, .. } if there.is_none() => self.tell(no_model(request)),
            Request::Tokenize { request, .. } => {
                let (ids, pieces, bytes) = (vec![], vec![], vec![]);
                self.tell(Event::Tokenized { request, text: String::new(), ids, pieces, bytes });
            }
            Request::Status { request } => {
                self.tell(Event::Status { request: Some(request), status: Status::default() });
            }
            Request::Cancel { request } => self.end(|id, _| id == request, FinishReason::Cancelled),
            other => panic!("{other:?}"),
        }
    }

    fn end(&mut self, is_meant: impl Fn(RequestId, Wanted) -> bool, reason: FinishReason) {
        let ended: Vec<_> = self.running.extract_if(.., |id, (of, _)| is_meant(*id, *of)).collect();
        ended.into_iter().for_each(|(id, _)| self.tell(finished(id, 0, reason, 0)));
    }

    fn unload(&mut self, gone: Wanted, is_quiet: bool) {
        self.slots.retain(|(slot, _)| *slot != gone);
        self.end(|_, of| of == gone, FinishReason::Cancelled);
        if self.of_tab.take_if(|wanted| *wanted == gone).is_some() && !is_quiet {
            self.tell(Event::Unloaded { reason: String::new() });
        }
    }

    /// The load under way ends, if there is room or the tab does not wait for it.
    fn end_load(&mut self, is_full: bool, fails: bool) {
        let Some((wanted, if_full)) = self.job else { return };
        match if_full {
            _ if fails => {
                let unloaded = self.of_tab.is_none();
                self.tell(Event::LoadFailed { error: String::new(), unloaded });
            }
            IfFull::Ask if is_full => self.tell(Event::InUse { models: vec![] }),
            IfFull::Wait if is_full => return,
            _ => {
                let slots: Vec<Wanted> = self.slots.iter().map(|(slot, _)| *slot).collect();
                slots.into_iter().filter(|_| is_full).for_each(|slot| self.unload(slot, true));
                self.slots.push((wanted, false));
                self.of_tab = Some(wanted);
                self.tell(ready_with(wanted));
            }
        }
        self.job = None;
    }

    /// The first running output gets a token, or ends.
    fn work(&mut self, ends: bool) {
        let slots = self.slots.clone();
        let works = |of: &Wanted| slots.contains(&(*of, false));
        let Some((id, (of, ids))) = self.running.iter_mut().find(|(_, (of, _))| works(of)) else { return };
        let (id, next) = (*id, token((of.0, None), ids.len()));
        if ends {
            return self.end(|of, _| of == id, FinishReason::Stop);
        }
        ids.push(next);
        self.tell(tokens(id, 0, &[next]));
    }

    fn recover(&mut self) {
        let lost: Vec<Wanted> = self.slots.iter().filter(|(_, lost)| *lost).map(|(slot, _)| *slot).collect();
        self.slots.iter_mut().for_each(|(_, is_lost)| *is_lost = false);
        let back = self.of_tab.filter(|wanted| lost.contains(wanted));
        back.into_iter().for_each(|wanted| self.tell(ready_with(wanted)));
    }

    fn deliver(&mut self) {
        if let Some(event) = self.to_tab.pop_front() {
            let files = match &event {
                Event::Ready { source, .. } => files_of(name_of(source)),
                _ => vec![],
            };
            let moves = self.ledger.hear(event, files);
            self.make(moves);
        }
    }

    fn step(&mut self) {
        let nth = self.draw(self.slots.len().max(1));
        let slot = self.slots.get(nth).map(|(slot, _)| *slot);
        match (self.draw(24), slot) {
            (0..4, _) => self.ask_something(),
            (4, _) if self.is_connected => self.die(),
            _ if !self.is_connected => self.greet(),
            (5..10, _) => self.deliver(),
            (10..15, _) => {
                let request = self.to_engine.pop_front();
                request.into_iter().for_each(|request| self.answer(request));
            }
            (15..17, _) => {
                let (is_full, fails) = (self.draw(2) == 0, self.draw(5) == 0);
                self.end_load(is_full, fails);
            }
            (17..20, _) => {
                let ends = self.draw(4) == 0;
                self.work(ends);
            }
            (20, None) => {
                let wanted = self.wanted();
                self.slots.push((wanted, false));
            }
            (20, Some(slot)) => {
                let is_quiet = self.job.is_some() && self.draw(2) == 0;
                self.unload(slot, is_quiet);
            }
            (21, _) => self.slots.iter_mut().for_each(|(_, is_lost)| *is_lost = true),
            (22, _) => self.recover(),
            _ => {}
        }
    }

    /// Nothing breaks any more, and the person decides where they are asked.
    fn settle(&mut self) {
        for round in 0..60 {
            if !self.is_connected {
                self.greet();
            }
            while let Some(request) = self.to_engine.pop_front() {
                self.answer(request);
            }
            self.recover();
            self.end_load(round % 3 > 0, false);
            (0..10).for_each(|_| self.work(true));
            while !self.to_tab.is_empty() {
                self.deliver();
            }
            if mem::take(&mut self.is_asked) && self.ledger.standing == Standing::NoRoom {
                let waiting = self.live.keys().next().copied();
                match (self.draw(2), waiting, &self.ledger.first) {
                    (0, Some(request), _) => self.ask(Request::Cancel { request }, vec![]),
                    (_, _, Some(first)) => {
                        let (source, options) = (first.source.clone(), first.options.clone());
                        self.ask(Request::Load { source, options, if_full: IfFull::Replace }, vec![]);
                    }
                    _ => panic!("nothing is asked about"),
                }
            }
        }
    }
}

#[test]
fn every_request_ends_and_no_tokens_reach_another_model() {
    for schedule in 0..3000 {
        let mut world = World { n_draws: schedule << 32, ..World::default() };
        (0..120).for_each(|_| world.step());
        world.settle();
        let World { live, ledger, .. } = &world;
        assert!(live.is_empty() && ledger.open.is_empty(), "schedule {schedule}: {live:?}, {ledger:?}");
        assert_eq!(ledger.standing, Standing::Here, "schedule {schedule}");
    }
}
