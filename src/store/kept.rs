//! A model file that is kept: what lies on the shelf is read there, and what does not is fetched and laid there, part by
//! part. So a download that breaks off goes on where it was, and the next load asks no server.
//!
//! Invariant: what is read is what was fetched: a part whose hash is another than when it was laid down is fetched again,
//! alone. Where the whole file's hash is known, the last part is given out only once all of them have it. A shelf that
//! refuses costs the keeping, never the reading.

use std::cell::RefCell;
use std::future::Future;
use std::ops::Range;
use std::pin::Pin;
use std::rc::Rc;

use super::manifest::{Hash, MAX_LEN_BYTES, Manifest};
use super::whole::{Whole, hex};
use super::{Source, StoreError, base_name, check_range};

/// Pauses (ms) before a part is asked for again that could not be had.
const PAUSES_MS: [f64; 4] = [500.0, 1000.0, 2000.0, 4000.0];

/// Where one file's parts lie. Its futures need not be `Send`. Errors are sentences.
pub trait Shelf {
    /// The manifest, if there is one.
    fn manifest(&self) -> impl Future<Output = Option<String>>;

    /// Lays a manifest down in the place of the one before.
    fn keep_manifest(&self, text: &str) -> impl Future<Output = Result<(), String>>;

    /// A part's bytes, if they can be read.
    fn part(&self, part: usize) -> impl Future<Output = Option<Vec<u8>>>;

    /// Lays a part down, whole or not at all.
    fn keep_part(&self, part: usize, bytes: &[u8]) -> impl Future<Output = Result<(), String>>;

    /// Takes all of it away.
    fn clear(&self) -> impl Future<Output = ()>;

    /// SHA-256.
    fn hash(&self, bytes: &[u8]) -> impl Future<Output = Result<Hash, String>>;

    /// Waits.
    fn pause(&self, ms: f64) -> impl Future<Output = ()>;
}

/// Where a file is fetched from.
pub trait Origin {
    /// What it is read by.
    type Source: Source + 'static;

    /// What a person knows it by.
    fn name(&self) -> &str;

    /// Its whole address.
    fn url(&self) -> &str;

    /// The SHA-256 that the whole file is promised to have, if it is.
    fn sha_256(&self) -> Option<Hash>;

    /// Asks the server for it.
    fn open(&self) -> impl Future<Output = Result<Self::Source, StoreError>>;

    /// The server's name for the version of it that was opened, if it has one.
    fn version(source: &Self::Source) -> Option<&str>;

    /// Begins to read, and goes on whether or not anybody waits for it. Dropped, it is given up.
    fn begin_to_read(source: Rc<Self::Source>, offset_bytes: u64, len: usize) -> Coming;
}

/// Bytes that were asked for.
pub type Coming = Pin<Box<dyn Future<Output = Result<Vec<u8>, StoreError>>>>;

/// A file that is kept. A copy is the same file.
pub struct Kept<O: Origin, S> {
    file: Rc<File<O, S>>,
}

struct File<O: Origin, S> {
    origin: O,
    shelf: S,
    len_bytes: u64,
    state: RefCell<State<O::Source>>,
}

struct State<N> {
    manifest: Manifest,
    /// The server, once it was asked.
    opened: Option<Rc<N>>,
    /// The part that was read last, until its end was read.
    last: Option<(usize, Rc<Vec<u8>>)>,
    /// The part that was fetched last.
    fetched: Option<usize>,
    /// The part that is on its way, so that the line is busy while the one before is used.
    ahead: Option<(usize, Coming)>,
    /// What was read so far of a file whose hash is yet to be compared.
    whole: Option<Whole>,
    /// Why no more is laid down.
    refusal: Option<String>,
    fetched_bytes: u64,
}

impl<O: Origin, S> Clone for Kept<O, S> {
    fn clone(&self) -> Self {
        Self { file: Rc::clone(&self.file) }
    }
}

impl<O: Origin, S: Shelf> Kept<O, S> {
    /// Opens it without its server, if that is asked for nothing: all parts are here.
    pub async fn open_complete(origin: O, shelf: S) -> Option<Self> {
        let manifest = Self::known(&origin, &shelf).await.filter(Manifest::is_complete)?;
        Some(Self::new(origin, shelf, manifest, None, None))
    }

    /// Opens it without its server, which may be asked later for parts that are missing.
    pub async fn open_away(origin: O, shelf: S) -> Option<Self> {
        let manifest = Self::known(&origin, &shelf).await?;
        Some(Self::new(origin, shelf, manifest, None, None))
    }

    /// Opens it as its server has it now. Where that is another version than what is here, it starts over.
    pub async fn open(origin: O, shelf: S, source: O::Source) -> Result<Self, StoreError> {
        let known = Self::known(&origin, &shelf).await;
        let (len_bytes, version) = (source.len_bytes(), O::version(&source).map(str::to_owned));
        if !(1..=MAX_LEN_BYTES).contains(&len_bytes) {
            let problem = format!(
                "the server says that it has {len_bytes} bytes, which no model has; check its address"
            );
            return Err(StoreError::Unreadable { name: origin.name().to_owned(), problem });
        }
        let mut refusal = None;
        let known = known.filter(|manifest| manifest.is_of(len_bytes, version.as_deref()));
        let manifest = match known {
            Some(manifest) => manifest,
            None => {
                shelf.clear().await;
                let manifest = Manifest::new(origin.url().to_owned(), len_bytes, version);
                refusal = shelf.keep_manifest(&manifest.to_text()).await.err();
                manifest
            }
        };
        Ok(Self::new(origin, shelf, manifest, Some(source), refusal))
    }

    async fn known(origin: &O, shelf: &S) -> Option<Manifest> {
        let manifest = Manifest::parse(&shelf.manifest().await?)?;
        let is_promised = |whole: Hash| origin.sha_256().is_none_or(|promised| promised == whole);
        let is_it = manifest.url == origin.url() && manifest.whole.is_none_or(is_promised);
        is_it.then_some(manifest)
    }

    fn new(
        origin: O,
        shelf: S,
        manifest: Manifest,
        opened: Option<O::Source>,
        refusal: Option<String>,
    ) -> Self {
        let len_bytes = manifest.len_bytes;
        let promised = origin.sha_256().filter(|promised| manifest.whole != Some(*promised));
        let state = State {
            manifest,
            opened: opened.map(Rc::new),
            last: None,
            fetched: None,
            ahead: None,
            whole: promised.map(Whole::new),
            refusal,
            fetched_bytes: 0,
        };
        Self { file: Rc::new(File { origin, shelf, len_bytes, state: RefCell::new(state) }) }
    }

    /// Why it is not kept, if it is not.
    pub fn refusal(&self) -> Option<String> {
        self.file.state.borrow().refusal.clone()
    }

    /// Lays no more of it down, for this reason.
    pub fn keep_no_more(&self, why: String) {
        self.file.state.borrow_mut().refusal = Some(why);
    }

    /// Bytes that lie on the shelf.
    pub fn kept_bytes(&self) -> u64 {
        self.file.state.borrow().manifest.kept_bytes()
    }

    /// Bytes that were fetched since it was opened.
    pub fn fetched_bytes(&self) -> u64 {
        self.file.state.borrow().fetched_bytes
    }
}

impl<O: Origin, S: Shelf> File<O, S> {
    /// A part, from the shelf or else from the server.
    async fn part(&self, part: usize) -> Result<Rc<Vec<u8>>, StoreError> {
        let last = self.state.borrow().last.clone();
        if let Some((_, bytes)) = last.filter(|(last, _)| *last == part) {
            return Ok(bytes);
        }
        let hash = self.state.borrow().manifest.hash(part).copied();
        let shelved = match hash {
            Some(hash) => self.shelved(part, &hash).await,
            None => None,
        };
        let bytes = match shelved {
            Some(bytes) => bytes,
            None => {
                let bytes = self.fetch(part).await?;
                self.look_ahead(part);
                self.keep(part, &bytes).await;
                bytes
            }
        };
        self.compare_whole(part, &bytes).await?;
        let bytes = Rc::new(bytes);
        self.state.borrow_mut().last = Some((part, Rc::clone(&bytes)));
        Ok(bytes)
    }

    /// What lies on the shelf, if it is what was laid there.
    async fn shelved(&self, part: usize, hash: &Hash) -> Option<Vec<u8>> {
        let bytes = self.shelf.part(part).await?;
        let found = self.shelf.hash(&bytes).await.ok()?;
        (found == *hash).then_some(bytes)
    }

    async fn fetch(&self, part: usize) -> Result<Vec<u8>, StoreError> {
        let range = self.state.borrow().manifest.range(part);
        let mut pauses_ms = PAUSES_MS.into_iter();
        let mut ahead = self.state.borrow_mut().ahead.take().filter(|(ahead, _)| *ahead == part);
        loop {
            let fetched = match ahead.take() {
                Some((_, coming)) => coming.await.inspect(|bytes| self.count(bytes)),
                None => self.fetch_range(&range).await,
            };
            match fetched {
                Err(error) if error.is_transient() => match pauses_ms.next() {
                    Some(ms) => self.shelf.pause(ms).await,
                    None => return Err(error),
                },
                done => return done,
            }
        }
    }

    /// Bytes from the server, which is asked for the file first where that was not done yet.
    async fn fetch_range(&self, range: &Range<u64>) -> Result<Vec<u8>, StoreError> {
        let opened = self.state.borrow().opened.clone();
        let source = match opened {
            Some(source) => source,
            None => Rc::new(self.origin.open().await?),
        };
        let is_same = self.state.borrow().manifest.is_of(source.len_bytes(), O::version(&source));
        if !is_same {
            // Its parts would be of two versions; the next load starts over.
            self.shelf.clear().await;
            let problem = "the server has another version of it now".to_owned();
            return Err(StoreError::Changed { name: self.origin.name().to_owned(), problem });
        }
        self.state.borrow_mut().opened = Some(Rc::clone(&source));
        let bytes = source.read(range.start, (range.end - range.start) as usize).await?;
        self.count(&bytes);
        Ok(bytes)
    }

    fn count(&self, bytes: &[u8]) {
        self.state.borrow_mut().fetched_bytes += bytes.len() as u64;
    }

    /// Once two parts were fetched one after the other, asks the server for the one behind them, if it is missing, and waits
    /// for nothing. Not before: of many files the beginnings are read first, and a server gives few answers at once.
    fn look_ahead(&self, fetched: usize) {
        let mut state = self.state.borrow_mut();
        let before = state.fetched.replace(fetched);
        let part = fetched + 1;
        if before.is_none_or(|before| before + 1 != fetched) {
            return;
        }
        let is_missing = part < state.manifest.n_parts() && state.manifest.hash(part).is_none();
        let Some(source) = state.opened.clone().filter(|_| is_missing) else { return };
        let range = state.manifest.range(part);
        let coming = O::begin_to_read(source, range.start, (range.end - range.start) as usize);
        state.ahead = Some((part, coming));
    }

    /// Adds a part to the hash of the whole, and compares that with the promised one once all parts were there.
    async fn compare_whole(&self, part: usize, bytes: &[u8]) -> Result<(), StoreError> {
        let compared = {
            let mut state = self.state.borrow_mut();
            let n_parts = state.manifest.n_parts();
            let Some(whole) = &mut state.whole else { return Ok(()) };
            whole.add(part, bytes);
            if whole.n_parts() < n_parts {
                return Ok(());
            }
            state.whole.take().map(Whole::compare)
        };
        match compared {
            Some(Err((promised, found))) => {
                self.shelf.clear().await;
                let mut state = self.state.borrow_mut();
                state.whole = Some(Whole::new(promised));
                // Nor is what is in memory of it given out again.
                (state.last, state.ahead, state.fetched) = (None, None, None);
                let Manifest { url, len_bytes, version, .. } = state.manifest.clone();
                state.manifest = Manifest::new(url, len_bytes, version);
                let name = self.origin.name().to_owned();
                Err(StoreError::NotPromised { name, promised: hex(&promised), found: hex(&found) })
            }
            Some(Ok(hash)) => {
                self.state.borrow_mut().manifest.whole = Some(hash);
                let text = self.state.borrow().manifest.to_text();
                if self.state.borrow().refusal.is_none() {
                    // One that is not laid down means that the next load compares again.
                    let _ = self.shelf.keep_manifest(&text).await;
                }
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Lays a part down, and then says so in the manifest. After a refusal no more is tried.
    async fn keep(&self, part: usize, bytes: &[u8]) {
        if self.state.borrow().refusal.is_some() {
            return;
        }
        if let Err(refusal) = self.try_to_keep(part, bytes).await {
            self.state.borrow_mut().refusal = Some(refusal);
        }
    }

    async fn try_to_keep(&self, part: usize, bytes: &[u8]) -> Result<(), String> {
        let hash = self.shelf.hash(bytes).await?;
        self.shelf.keep_part(part, bytes).await?;
        self.state.borrow_mut().manifest.set_hash(part, Some(hash));
        let text = self.state.borrow().manifest.to_text();
        self.shelf.keep_manifest(&text).await
    }
}

impl<O: Origin, S: Shelf> Source for Kept<O, S> {
    fn name(&self) -> &str {
        self.file.origin.name()
    }

    fn len_bytes(&self) -> u64 {
        self.file.len_bytes
    }

    fn note(&self) -> Option<String> {
        self.refusal().map(|why| format!("{} is not kept in this browser: {why}", base_name(self.name())))
    }

    async fn finish(&self) -> Result<(), StoreError> {
        let n_parts = self.file.state.borrow().manifest.n_parts();
        loop {
            let next = self.file.state.borrow().whole.as_ref().map(Whole::n_parts);
            match next.filter(|part| *part < n_parts) {
                Some(part) => drop(self.file.part(part).await?),
                None => return Ok(()),
            }
        }
    }

    async fn read(&self, offset_bytes: u64, len: usize) -> Result<Vec<u8>, StoreError> {
        check_range(self, offset_bytes, len)?;
        if len == 0 {
            return Ok(Vec::new());
        }
        let wanted = offset_bytes..offset_bytes + len as u64;
        let parts = self.file.state.borrow().manifest.parts_of(&wanted);
        let mut bytes = Vec::with_capacity(len);
        for part in parts {
            let range = self.file.state.borrow().manifest.range(part);
            let of_part = |place: u64| (place.clamp(range.start, range.end) - range.start) as usize;
            let whole = self.file.part(part).await?;
            bytes.extend_from_slice(&whole[of_part(wanted.start)..of_part(wanted.end)]);
            if wanted.end >= range.end {
                self.file.state.borrow_mut().last = None;
            }
        }
        Ok(bytes)
    }
}
