//! Models that are wanted: one is brought at a time, the others wait for it or for room.
//!
//! Invariant: a load is a future that the loop polls beside everything else; to drop it is to give it up.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use futures_util::FutureExt as _;
use futures_util::future::LocalBoxFuture;

use super::ConnectionId;
use super::check;
use super::load::{self, Described, LoadError, Loaded};
use super::machine::{Chosen, SharedProcessor};
use super::models::Wanted;
use super::room::Room;
use super::serve::Place;
use crate::gpu::noise::Noise;
use crate::gpu::{Gpu, GpuError};
use crate::protocol::{Event, IfFull, ModelId};
use crate::store::Source;

/// A model that is to be brought to the device.
pub(super) struct Job<P: Place> {
    pub(super) wanted: Wanted,
    pub(super) attachments: Vec<P::Attachment>,
    /// Who waits for it, and what each wants done where there is no room. Nobody by name where it is loaded again.
    pub(super) askers: BTreeMap<ConnectionId, IfFull>,
    /// The model that was lost with its device, and its files.
    pub(super) again: Option<(ModelId, Vec<P::Source>)>,
    /// What it takes, once that is known.
    pub(super) needed: Option<Room>,
    /// How far it is.
    pub(super) stage: Stage,
}

/// How far a load is, in words and bytes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Stage {
    pub(super) words: String,
    pub(super) done_bytes: u64,
    pub(super) total_bytes: u64,
}

impl Stage {
    /// A stage without bytes.
    pub(super) fn new(words: impl Into<String>) -> Self {
        Self { words: words.into(), ..Self::default() }
    }

    /// What a tab is told.
    pub(super) fn event(&self) -> Event {
        let Self { words, done_bytes, total_bytes } = self.clone();
        Event::Loading { stage: words, done_bytes, total_bytes }
    }
}

/// A model whose files were found good, and the machine that it will run on.
pub(super) struct Opened<P: Place> {
    pub(super) sources: Vec<P::Source>,
    pub(super) described: Described<P::Source>,
    pub(super) chosen: Chosen,
    pub(super) needed: Room,
}

/// What a load came to.
pub(super) enum Done<P: Place> {
    /// Its files were read, or are bad: one sentence.
    Opened(Result<Box<Opened<P>>, String>),
    /// It is on the device, or is not.
    Brought(Vec<P::Source>, Result<Box<Loaded>, LoadError>),
}

/// What a load that is under way does.
type Work<P> = LocalBoxFuture<'static, Done<P>>;

/// Where a load says how far it is.
type News = Rc<RefCell<Option<Stage>>>;

/// All loads.
pub(super) struct Loads<P: Place> {
    /// Not begun, or without room so far.
    pub(super) queue: VecDeque<Job<P>>,
    /// The one under way.
    pub(super) job: Option<Job<P>>,
    work: Option<Work<P>>,
    news: News,
}

impl<P: Place> Loads<P> {
    /// None.
    pub(super) fn new() -> Self {
        Self { queue: VecDeque::new(), job: None, work: None, news: News::default() }
    }

    /// Every job, the one under way first.
    pub(super) fn jobs(&mut self) -> impl Iterator<Item = &mut Job<P>> {
        self.job.iter_mut().chain(&mut self.queue)
    }

    /// A tab wants no load any more; one that nobody wants is given up.
    pub(super) fn leave(&mut self, connection: ConnectionId) {
        self.jobs().for_each(|job| _ = job.askers.remove(&connection));
        self.give_up_unwanted();
    }

    /// Gives up loads that nobody wants.
    pub(super) fn give_up_unwanted(&mut self) {
        self.queue.retain(|job| !job.is_unwanted());
        if self.job.as_ref().is_some_and(Job::is_unwanted) {
            self.interrupt();
        }
    }

    /// Drops the work of the load under way, and gives it back.
    pub(super) fn interrupt(&mut self) -> Option<Job<P>> {
        self.work = None;
        self.news.take();
        self.job.take()
    }

    /// Looks at what the load under way did. A job that is done is still [`Self::job`].
    pub(super) fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Done<P>>> {
        let Some(work) = &mut self.work else { return Poll::Pending };
        let polled = work.poll_unpin(context);
        if let (Some(stage), Some(job)) = (self.news.take(), &mut self.job) {
            job.stage = stage;
            if polled.is_pending() {
                return Poll::Ready(None);
            }
        }
        polled.map(|done| {
            self.work = None;
            Some(done)
        })
    }

    /// Begins with a job: its files, then a device.
    pub(super) fn open(&mut self, place: &Rc<P>, device: DeviceWanted, job: Job<P>) {
        let (place, news) = (Rc::clone(place), Rc::clone(&self.news));
        let (wanted, attachments) = (job.wanted.clone(), job.attachments.clone());
        let known = job.again.as_ref().map(|(_, sources)| sources.clone());
        let stage = job.stage.clone();
        self.job = Some(job);
        let work = async move {
            let opened = open(&*place, &wanted, &attachments, known, device, stage, &news);
            Done::Opened(opened.await.map(Box::new))
        };
        self.work = Some(work.boxed_local());
    }

    /// Goes on with it: its weights.
    pub(super) fn bring(&mut self, opened: Opened<P>) {
        let news = Rc::clone(&self.news);
        let words = self.job.as_ref().map(|job| job.stage.words.clone()).unwrap_or_default();
        let work = async move {
            let progress = |done_bytes, total_bytes| {
                *news.borrow_mut() = Some(Stage { words: words.clone(), done_bytes, total_bytes });
            };
            let loaded = opened.described.load_for_first_token(opened.chosen, progress).await;
            Done::Brought(opened.sources, loaded.map(Box::new))
        };
        self.work = Some(work.boxed_local());
    }
}

impl<P: Place> Job<P> {
    /// Whether nobody waits for it any more.
    fn is_unwanted(&self) -> bool {
        self.again.is_none() && self.askers.is_empty()
    }

    /// Those who wait for it.
    pub(super) fn asker_set(&self) -> BTreeSet<ConnectionId> {
        self.askers.keys().copied().collect()
    }

    /// Those of them who want the same where there is no room.
    pub(super) fn askers_who(&self, if_full: IfFull) -> Vec<ConnectionId> {
        self.askers.iter().filter(|(_, theirs)| **theirs == if_full).map(|(asker, _)| *asker).collect()
    }
}

/// Where a load gets its device.
pub(super) struct DeviceWanted {
    /// The one that is open.
    pub(super) gpu: Option<Rc<Gpu>>,
    /// Another was lost before.
    pub(super) is_patient: bool,
    /// Its kernels are to return noise.
    pub(super) is_noisy: bool,
    /// The processor, where there is none, or it is wanted.
    pub(super) processor: SharedProcessor,
}

/// Finds and reads a model's files, and opens a device for it.
async fn open<P: Place>(
    place: &P,
    wanted: &Wanted,
    attachments: &[P::Attachment],
    known: Option<Vec<P::Source>>,
    DeviceWanted { gpu, is_patient, is_noisy, processor }: DeviceWanted,
    mut stage: Stage,
    news: &News,
) -> Result<Opened<P>, String> {
    let is_again = known.is_some();
    let sources = match known {
        Some(sources) => sources,
        None => place.sources(&wanted.source, attachments).await?,
    };
    if !is_again {
        let total_bytes = sources.iter().map(|source| source.len_bytes()).sum();
        stage = Stage { words: words_for(&sources), done_bytes: 0, total_bytes };
        *news.borrow_mut() = Some(stage.clone());
    }
    let described = load::describe(sources.clone(), &wanted.options).await;
    let described = described.map_err(|error| place.in_words(&error))?;
    let open = async || {
        if let Some(gpu) = gpu {
            return Ok(gpu);
        }
        let mut owned = pin!(place.own_the_gpu());
        if owned.as_mut().now_or_never().is_none() {
            *news.borrow_mut() = Some(Stage::new("Waiting for another engine to give up the GPU"));
            owned.await;
            *news.borrow_mut() = Some(stage);
        }
        let gpu = open_gpu(place, is_patient).await?;
        Ok(Rc::new(if is_noisy { gpu.with_noise(Noise::default()) } else { gpu }))
    };
    let chosen = Chosen::by(described.device(), &processor, open).await;
    let mut chosen = chosen.map_err(|error| place.in_words(&error))?;
    if let Some(records) = place.records() {
        let checked = check::trusted(&described, chosen, &processor, &*records).await;
        chosen = checked.map_err(|error| place.in_words(&error))?;
    }
    let is_small = described.check_size(&chosen.machine, processor.most_bytes());
    is_small.map_err(|error| match &chosen.note {
        Some(note) => format!("{note}; {}", place.in_words(&error.into())),
        None => place.in_words(&error.into()),
    })?;
    let needed_bytes = described.needed_bytes(&chosen.machine);
    let n_bytes = needed_bytes.map_err(|error| place.in_words(&LoadError::Gpu(error)))?;
    let needed = Room { n_bytes, is_on_gpu: chosen.machine.gpu().is_some() };
    Ok(Opened { sources, described, chosen, needed })
}

/// Opens a device. Where one was just lost, a browser may need a moment until it offers another.
async fn open_gpu<P: Place>(place: &P, is_patient: bool) -> Result<Gpu, GpuError> {
    let pauses_ms: &[f64] = if is_patient { &[100.0, 400.0, 1600.0] } else { &[] };
    for pause_ms in pauses_ms {
        match Gpu::open(None).await {
            Ok(gpu) => return Ok(place.set_up(gpu)),
            Err(_) => place.sleep(*pause_ms).await,
        }
    }
    Ok(place.set_up(Gpu::open(None).await?))
}

/// What is being done, for people.
fn words_for(sources: &[impl Source]) -> String {
    if let Some(note) = sources.iter().find_map(Source::note) {
        return format!("Loading: {note}");
    }
    match sources {
        [source] => format!("Loading {}", source.name()),
        [first, _] => format!("Loading {} and 1 more file", first.name()),
        [first, ..] => format!("Loading {} and {} more files", first.name(), sources.len() - 1),
        [] => "Loading".into(),
    }
}
