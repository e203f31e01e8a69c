//! Model files kept in parts: fetched once, gone on with where a download broke off, and never other than what was fetched.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
#![cfg(feature = "native")]

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::rc::Rc;

use pagelm::store::kept::{Coming, Kept, Origin, Shelf};
use pagelm::store::manifest::{Hash, Manifest, PART_BYTES};
use pagelm::store::{Source, StoreError};
use pollster::block_on;
use sha2::{Digest as _, Sha256};

const URL: &str = "https://example.org/model.gguf";
const N_PARTS: usize = 4;
const LEN: usize = 3 * PART_BYTES as usize + 1000;

/// A shelf in memory that can be tampered with.
#[derive(Clone, Default)]
struct MemoryShelf {
    manifest: Rc<RefCell<Option<String>>>,
    parts: Rc<RefCell<BTreeMap<usize, Vec<u8>>>>,
    /// Bytes that it has room for; all if absent.
    room_bytes: Rc<Cell<Option<usize>>>,
    paused_ms: Rc<RefCell<Vec<f64>>>,
}

impl Shelf for MemoryShelf {
    async fn manifest(&self) -> Option<String> {
        self.manifest.borrow().clone()
    }

    async fn keep_manifest(&self, text: &str) -> Result<(), String> {
        self.manifest.replace(Some(text.to_owned()));
        Ok(())
    }

    async fn part(&self, part: usize) -> Option<Vec<u8>> {
        self.parts.borrow().get(&part).cloned()
    }

    async fn keep_part(&self, part: usize, bytes: &[u8]) -> Result<(), String> {
        let used = self.parts.borrow().values().map(Vec::len).sum::<usize>();
        if self.room_bytes.get().is_some_and(|room| used + bytes.len() > room) {
            return Err("there is no room".into());
        }
        self.parts.borrow_mut().insert(part, bytes.to_vec());
        Ok(())
    }

    async fn clear(&self) {
        self.manifest.take();
        self.parts.take();
    }

    async fn hash(&self, bytes: &[u8]) -> Result<Hash, String> {
        let mut hasher = DefaultHasher::new();
        bytes.hash(&mut hasher);
        let mut hash = Hash::default();
        hash[..8].copy_from_slice(&hasher.finish().to_le_bytes());
        Ok(hash)
    }

    async fn pause(&self, ms: f64) {
        self.paused_ms.borrow_mut().push(ms);
    }
}

/// A server with one file.
#[derive(Clone)]
struct Server {
    bytes: Rc<RefCell<Vec<u8>>>,
    version: Rc<RefCell<Option<String>>>,
    /// What its address promises.
    promised: Rc<RefCell<Option<Hash>>>,
    /// Reads that it still answers.
    answers: Rc<Cell<usize>>,
    /// Reads that it breaks off before it answers one.
    slips: Rc<Cell<usize>>,
    n_opened: Rc<Cell<usize>>,
    reads: Rc<RefCell<Vec<(u64, usize)>>>,
}

struct Opened {
    server: Server,
    len_bytes: u64,
    version: Option<String>,
}

impl Server {
    fn new() -> Self {
        let bytes: Vec<u8> = (0..LEN as u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        Self {
            bytes: Rc::new(RefCell::new(bytes)),
            version: Rc::new(RefCell::new(Some("a".into()))),
            promised: Rc::default(),
            answers: Rc::new(Cell::new(usize::MAX)),
            slips: Rc::default(),
            n_opened: Rc::default(),
            reads: Rc::default(),
        }
    }

    fn open(&self, shelf: &MemoryShelf) -> Kept<Self, MemoryShelf> {
        self.try_open(shelf).unwrap()
    }

    /// As the library does it.
    fn try_open(&self, shelf: &MemoryShelf) -> Result<Kept<Self, MemoryShelf>, StoreError> {
        block_on(async {
            match Kept::open_complete(self.clone(), shelf.clone()).await {
                Some(kept) => Ok(kept),
                None => Kept::open(self.clone(), shelf.clone(), Origin::open(self).await?).await,
            }
        })
    }

    fn n_reads(&self) -> usize {
        self.reads.borrow().len()
    }
}

impl Origin for Server {
    type Source = Opened;

    fn name(&self) -> &str {
        "model.gguf"
    }

    fn url(&self) -> &str {
        URL
    }

    fn sha_256(&self) -> Option<Hash> {
        *self.promised.borrow()
    }

    async fn open(&self) -> Result<Opened, StoreError> {
        self.n_opened.set(self.n_opened.get() + 1);
        let len_bytes = self.bytes.borrow().len() as u64;
        Ok(Opened { server: self.clone(), len_bytes, version: self.version.borrow().clone() })
    }

    fn version(source: &Opened) -> Option<&str> {
        source.version.as_deref()
    }

    fn begin_to_read(source: Rc<Opened>, offset_bytes: u64, len: usize) -> Coming {
        // It goes on by itself, and nothing here takes time.
        Box::pin(std::future::ready(block_on(source.read(offset_bytes, len))))
    }
}

impl Source for Opened {
    fn name(&self) -> &str {
        "model.gguf"
    }

    fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    async fn read(&self, offset_bytes: u64, len: usize) -> Result<Vec<u8>, StoreError> {
        let (name, server) = ("model.gguf".to_owned(), &self.server);
        if server.answers.get() == 0 {
            return Err(StoreError::Unreadable { name, problem: "HTTP 403".into() });
        }
        if server.slips.get() > 0 {
            server.slips.set(server.slips.get() - 1);
            return Err(StoreError::Interrupted { name, problem: "the connection broke off".into() });
        }
        if *server.version.borrow() != self.version {
            return Err(StoreError::Changed { name, problem: "its ETag is another".into() });
        }
        server.answers.set(server.answers.get() - 1);
        server.reads.borrow_mut().push((offset_bytes, len));
        let start = offset_bytes as usize;
        Ok(server.bytes.borrow()[start..start + len].to_vec())
    }
}

/// Reads all of it in pieces that fit no part, and finds what the server has.
fn read_through(kept: &Kept<Server, MemoryShelf>, server: &Server) {
    const PIECE: usize = 1_000_003;
    let mut found = Vec::new();
    while found.len() < LEN {
        let len = PIECE.min(LEN - found.len());
        found.extend(block_on(kept.read(found.len() as u64, len)).unwrap());
    }
    assert!(found == *server.bytes.borrow(), "what is read is what the server has");
}

#[test]
fn a_file_is_fetched_once() {
    let (server, shelf) = (Server::new(), MemoryShelf::default());
    let kept = server.open(&shelf);
    assert_eq!((kept.len_bytes(), kept.kept_bytes(), kept.name()), (LEN as u64, 0, "model.gguf"));
    read_through(&kept, &server);
    assert_eq!((kept.kept_bytes(), kept.fetched_bytes(), kept.refusal()), (LEN as u64, LEN as u64, None));
    assert_eq!(server.n_reads(), N_PARTS, "each part once: {:?}", server.reads.borrow());

    server.answers.set(0);
    let again = server.open(&shelf);
    read_through(&again, &server);
    assert_eq!(
        (server.n_opened.get(), again.fetched_bytes()),
        (1, 0),
        "no server is asked for what is there"
    );
}

#[test]
fn reads_of_any_place_are_the_file_s() {
    let (server, shelf) = (Server::new(), MemoryShelf::default());
    let kept = server.open(&shelf);
    let mut state = 7u64;
    let mut random = |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) as usize % below
    };
    for _ in 0..60 {
        let offset = random(LEN);
        let len = random((LEN - offset).min(6 << 20) + 1);
        let found = block_on(kept.read(offset as u64, len)).unwrap();
        assert!(found == server.bytes.borrow()[offset..offset + len], "{len} bytes at {offset}");
    }
    for (offset, len) in [(LEN as u64, 1), (LEN as u64 - 1, 2), (u64::MAX, 1)] {
        let error = block_on(kept.read(offset, len)).unwrap_err();
        assert!(matches!(error, StoreError::PastEnd { .. }), "{error}");
    }
    assert!(block_on(kept.read(LEN as u64, 0)).unwrap().is_empty());
}

#[test]
fn a_download_goes_on_where_it_broke_off() {
    let (server, shelf) = (Server::new(), MemoryShelf::default());
    server.answers.set(2);
    let kept = server.open(&shelf);
    let error = block_on(kept.read(0, LEN)).unwrap_err();
    assert!(error.to_string().contains("HTTP 403"), "{error}");
    drop(kept);

    server.answers.set(usize::MAX);
    let kept = server.open(&shelf);
    assert_eq!(kept.kept_bytes(), 2 * PART_BYTES);
    read_through(&kept, &server);
    assert_eq!(kept.fetched_bytes(), LEN as u64 - 2 * PART_BYTES, "only what was missing");
}

#[test]
fn a_server_that_breaks_off_is_asked_again_with_patience() {
    let (server, shelf) = (Server::new(), MemoryShelf::default());
    let kept = server.open(&shelf);
    server.slips.set(3);
    read_through(&kept, &server);
    assert_eq!(*shelf.paused_ms.borrow(), [500.0, 1000.0, 2000.0]);

    let (server, shelf) = (Server::new(), MemoryShelf::default());
    let kept = server.open(&shelf);
    server.slips.set(usize::MAX);
    let error = block_on(kept.read(0, 1)).unwrap_err();
    assert!(error.is_transient() && error.to_string().contains("the connection broke off"), "{error}");
    assert_eq!(shelf.paused_ms.borrow().len(), 4, "not for ever");
}

#[test]
fn a_damaged_part_is_fetched_again_alone() {
    for damage in [
        |parts: &mut BTreeMap<usize, Vec<u8>>| parts.get_mut(&1).unwrap()[77] ^= 1,
        |parts: &mut BTreeMap<usize, Vec<u8>>| parts.get_mut(&1).unwrap().truncate(5),
        |parts: &mut BTreeMap<usize, Vec<u8>>| drop(parts.remove(&1)),
    ] {
        let (server, shelf) = (Server::new(), MemoryShelf::default());
        read_through(&server.open(&shelf), &server);
        damage(&mut shelf.parts.borrow_mut());
        let kept = server.open(&shelf);
        read_through(&kept, &server);
        assert_eq!(kept.fetched_bytes(), PART_BYTES);
        assert_eq!(server.reads.borrow().last(), Some(&(PART_BYTES, PART_BYTES as usize)));
        read_through(&server.open(&shelf), &server);
        assert_eq!(server.n_reads(), N_PARTS + 1, "it is there again");
    }
}

#[test]
fn another_version_starts_over() {
    let changes: [fn(&Server); 2] = [
        |server| drop(server.version.replace(Some("b".into()))),
        |server| {
            server.bytes.borrow_mut().push(0);
            server.version.replace(None);
        },
    ];
    for change in changes {
        let (server, shelf) = (Server::new(), MemoryShelf::default());
        server.answers.set(2);
        let kept = server.open(&shelf);
        assert!(block_on(kept.read(0, LEN)).is_err());
        server.answers.set(usize::MAX);
        change(&server);
        let kept = server.open(&shelf);
        assert_eq!((kept.kept_bytes(), kept.len_bytes()), (0, server.bytes.borrow().len() as u64));
        let len = server.bytes.borrow().len();
        assert!(block_on(kept.read(0, len)).unwrap() == *server.bytes.borrow());
    }
}

#[test]
fn a_version_that_changes_meanwhile_is_told_and_mixed_with_none() {
    let (server, shelf) = (Server::new(), MemoryShelf::default());
    let kept = server.open(&shelf);
    block_on(kept.read(0, 10)).unwrap();
    server.version.replace(Some("b".into()));
    let error = block_on(kept.read(PART_BYTES, 10)).unwrap_err();
    assert!(matches!(error, StoreError::Changed { .. }), "{error}");

    // A part that is damaged is not mended with another version's.
    let (server, shelf) = (Server::new(), MemoryShelf::default());
    read_through(&server.open(&shelf), &server);
    shelf.parts.borrow_mut().remove(&1);
    server.version.replace(Some("b".into()));
    let kept = server.open(&shelf);
    let error = block_on(kept.read(0, LEN)).unwrap_err();
    assert!(matches!(error, StoreError::Changed { .. }), "{error}");
    let kept = server.open(&shelf);
    read_through(&kept, &server);
    assert_eq!(kept.fetched_bytes(), LEN as u64, "all of the new one");
}

#[test]
fn the_next_part_is_asked_for_before_it_is_wanted() {
    let (server, shelf) = (Server::new(), MemoryShelf::default());
    let kept = server.open(&shelf);
    block_on(kept.read(0, 10)).unwrap();
    assert_eq!(server.n_reads(), 1, "a beginning alone asks for nothing more");
    block_on(kept.read(PART_BYTES, 10)).unwrap();
    assert_eq!((server.n_reads(), kept.fetched_bytes()), (3, 2 * PART_BYTES), "the third is on its way");
    // Whoever goes elsewhere is not given the wrong one.
    let last = 3 * PART_BYTES;
    assert_eq!(block_on(kept.read(last, 10)).unwrap(), server.bytes.borrow()[last as usize..][..10]);
    read_through(&kept, &server);
    // What is here is not asked for ahead.
    shelf.parts.borrow_mut().remove(&0);
    let n_before = server.n_reads();
    read_through(&server.open(&shelf), &server);
    assert_eq!(server.n_reads(), n_before + 1);
}

#[test]
fn a_file_that_is_not_the_promised_one_is_refused() {
    let promise = |server: &Server| {
        let hash: Hash = Sha256::digest(&*server.bytes.borrow()).into();
        server.promised.replace(Some(hash));
    };
    // Also where a part of it came before, and where the shelf has no room.
    for (n_before, room) in [(0, None), (2, None), (0, Some(0))] {
        let (server, shelf) = (Server::new(), MemoryShelf::default());
        promise(&server);
        shelf.room_bytes.set(room);
        server.bytes.borrow_mut()[5_000_000] ^= 1;
        if n_before > 0 {
            server.answers.set(n_before);
            assert!(block_on(server.open(&shelf).read(0, LEN)).is_err());
            server.answers.set(usize::MAX);
        }
        let kept = server.open(&shelf);
        let error = block_on(kept.read(0, LEN)).unwrap_err();
        assert!(matches!(error, StoreError::NotPromised { .. }), "{error}");
        assert!(shelf.parts.borrow().is_empty() && shelf.manifest.borrow().is_none(), "nothing of it stays");
        // A server that does better is heard again.
        server.bytes.borrow_mut()[5_000_000] ^= 1;
        read_through(&kept, &server);
        if room.is_none() {
            read_through(&server.open(&shelf), &server);
            assert_eq!(server.open(&shelf).kept_bytes(), LEN as u64);
        }
    }
    // What was kept without a promise is compared by the next load that has one; another promise starts over.
    let (server, shelf) = (Server::new(), MemoryShelf::default());
    read_through(&server.open(&shelf), &server);
    promise(&server);
    read_through(&server.open(&shelf), &server);
    assert_eq!(server.n_reads(), N_PARTS);
    server.bytes.borrow_mut()[7] ^= 1;
    promise(&server);
    read_through(&server.open(&shelf), &server);
    assert_eq!(server.n_reads(), 2 * N_PARTS);
}

#[test]
fn what_nobody_reads_is_compared_too() {
    for is_wrong in [false, true] {
        let (server, shelf) = (Server::new(), MemoryShelf::default());
        let hash: Hash = Sha256::digest(&*server.bytes.borrow()).into();
        server.promised.replace(Some(hash));
        if is_wrong {
            server.bytes.borrow_mut()[2 * PART_BYTES as usize] ^= 1;
        }
        let kept = server.open(&shelf);
        for part in [0, 1, 3] {
            block_on(kept.read(part * PART_BYTES, 10)).unwrap();
        }
        let finished = block_on(kept.finish());
        assert_eq!(matches!(finished, Err(StoreError::NotPromised { .. })), is_wrong);
        if !is_wrong {
            assert_eq!((kept.kept_bytes(), finished.is_ok()), (LEN as u64, true));
            let n_before = server.n_reads();
            block_on(server.open(&shelf).finish()).unwrap();
            assert_eq!(server.n_reads(), n_before, "once is enough");
        }
    }
}

#[test]
fn a_shelf_without_room_costs_no_reading() {
    for room in [0, PART_BYTES as usize] {
        let (server, shelf) = (Server::new(), MemoryShelf::default());
        shelf.room_bytes.set(Some(room));
        let kept = server.open(&shelf);
        read_through(&kept, &server);
        assert_eq!(kept.refusal().as_deref(), Some("there is no room"));
        assert_eq!((server.n_reads(), kept.kept_bytes()), (N_PARTS, room as u64), "read in order, each once");
    }
}

#[test]
fn what_is_no_manifest_is_no_obstacle() {
    let good = Manifest::new(URL.into(), LEN as u64, None).to_text();
    let others = [
        String::new(),
        "null".into(),
        "{}".into(),
        good.replace("\"form\":1", "\"form\":2"),
        good.replace(&format!("\"len_bytes\":{LEN}"), "\"len_bytes\":18446744073709551615"),
        good.replace("\"hashes\":[null,", "\"hashes\":["),
        good.replace("model.gguf", "other.gguf"),
    ];
    for text in others {
        assert_ne!(text, good);
        let (server, shelf) = (Server::new(), MemoryShelf::default());
        shelf.manifest.replace(Some(text));
        let kept = server.open(&shelf);
        read_through(&kept, &server);
        assert_eq!((kept.kept_bytes(), kept.refusal()), (LEN as u64, None));
    }
    assert_eq!(Manifest::parse(&good), Some(Manifest::new(URL.into(), LEN as u64, None)));
}

#[test]
fn lengths_that_no_file_has_are_refused() {
    for len in [0, (1 << 40) + 1, 1 << 50, (1 << 54) + 1, u64::MAX] {
        let (server, shelf) = (Server::new(), MemoryShelf::default());
        let source = Opened { server: server.clone(), len_bytes: len, version: None };
        let error = block_on(Kept::open(server, shelf.clone(), source)).err().unwrap();
        assert!(error.to_string().contains(&format!("{len} bytes, which no model has")), "{error}");
        assert_eq!(*shelf.manifest.borrow(), None);
    }
    assert_eq!(Manifest::parse(&Manifest::new(URL.into(), 0, None).to_text()), None);
}

#[test]
fn what_is_here_is_read_while_the_server_is_away() {
    let (server, shelf) = (Server::new(), MemoryShelf::default());
    server.answers.set(2);
    assert!(block_on(server.open(&shelf).read(0, LEN)).is_err());
    let (origin, shelf) = (server.clone(), shelf.clone());
    let kept = block_on(Kept::open_away(origin, shelf)).unwrap();
    assert_eq!(block_on(kept.read(77, 1000)).unwrap(), server.bytes.borrow()[77..1077]);
    assert!(block_on(kept.read(2 * PART_BYTES, 1)).is_err());
    assert!(block_on(Kept::open_away(server, MemoryShelf::default())).is_none());
}
