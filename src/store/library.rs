//! Models that came from URLs, kept in the browser: each has a folder with its list of files, and each file a folder with its
//! parts.
//!
//! Invariant: a list names all files of its model, so that a model whose files are complete is opened without a server.

use std::pin::pin;
use std::rc::Rc;

use futures_channel::oneshot;
use futures_util::future::{Either, select};
use serde::{Deserialize, Serialize};
use wasm_bindgen::prelude::*;
use wasm_bindgen_futures::{JsFuture, spawn_local};

pub use self::listing::{About, StoredModel, describe, parts, remove, stored};
use super::kept::{Coming, Kept, Origin, Shelf};
use super::manifest::Hash;
use super::opfs::{Folder, free_bytes, sha_256};
use super::web::WebSource;
use super::whole::{split_hash, without_hash};
use super::{OpenError, Source, StoreError, base_name};

mod listing;

#[wasm_bindgen]
extern "C" {
    #[wasm_bindgen(js_name = setTimeout)]
    fn set_timeout(then: &js_sys::Function, ms: f64) -> f64;

    #[wasm_bindgen(js_namespace = ["location"], js_name = toString)]
    fn location() -> String;
}

/// The folder of all models.
const MODELS: &str = "models";
/// A model's list of files.
const LIST: &str = "model.json";
/// What the page knows of a model.
const ABOUT: &str = "about.json";
/// A file's manifest.
const MANIFEST: &str = "manifest.json";
/// So much of the browser's room is left to others: chats, and two versions of the page's own files.
const SPARE_BYTES: u64 = 32 << 20;
/// The form of the list. Another is not read: the model is fetched again.
const FORM: u32 = 1;

/// A file that an engine in the browser reads.
#[derive(Clone)]
pub enum ModelFile {
    /// One that is kept.
    Kept(Kept<Url, Shelved>),
    /// One that is read where it is.
    Plain(WebSource),
}

/// The files of a model.
#[derive(Debug, Serialize, Deserialize)]
struct List {
    form: u32,
    url: String,
    /// Their URLs, as they are asked for.
    files: Vec<String>,
    /// The hash that the file which the URL names was promised to have, whoever asks for it next.
    #[serde(default)]
    sha_256: Option<Hash>,
}

impl List {
    /// Reads a list; `None` where it is none of this form.
    fn parse(text: &str) -> Option<Self> {
        serde_json::from_str::<Self>(text).ok().filter(|list| list.form == FORM)
    }
}

/// A file on a server.
#[derive(Debug, Clone)]
pub struct Url {
    name: String,
    whole: String,
    sha_256: Option<Hash>,
}

impl Origin for Url {
    type Source = WebSource;

    fn name(&self) -> &str {
        &self.name
    }

    fn url(&self) -> &str {
        &self.whole
    }

    fn sha_256(&self) -> Option<Hash> {
        self.sha_256
    }

    async fn open(&self) -> Result<WebSource, StoreError> {
        WebSource::from_url(&self.name).await
    }

    fn version(source: &WebSource) -> Option<&str> {
        source.version()
    }

    fn begin_to_read(source: Rc<WebSource>, offset_bytes: u64, len: usize) -> Coming {
        let (mut sender, receiver) = oneshot::channel();
        let name = source.name().to_owned();
        spawn_local(async move {
            let read = pin!(source.read(offset_bytes, len));
            let given_up = sender.cancellation();
            if let Either::Left((read, _)) = select(read, given_up).await {
                // Whoever is gone misses nothing.
                let _ = sender.send(read);
            }
        });
        let broken_off = StoreError::Interrupted { name, problem: "it was broken off".to_owned() };
        Box::pin(async move { receiver.await.unwrap_or(Err(broken_off)) })
    }
}

/// Where a file's parts lie.
#[derive(Debug, Clone)]
pub enum Shelved {
    /// In a folder of its model's.
    In {
        /// The model's.
        model: Folder,
        /// The file's name there.
        name: String,
        /// The file's.
        folder: Folder,
    },
    /// Nowhere: it is only held against what is promised of it.
    Nowhere,
}

impl Shelf for Shelved {
    async fn manifest(&self) -> Option<String> {
        self.existing()?.read_text(MANIFEST).await
    }

    async fn keep_manifest(&self, text: &str) -> Result<(), String> {
        self.folder().await?.write(MANIFEST, text.as_bytes()).await
    }

    async fn part(&self, part: usize) -> Option<Vec<u8>> {
        self.existing()?.read(&name_of(part)).await
    }

    async fn keep_part(&self, part: usize, bytes: &[u8]) -> Result<(), String> {
        self.folder().await?.write(&name_of(part), bytes).await
    }

    async fn clear(&self) {
        if let Self::In { model, name, .. } = self {
            // What stays is of another version, and is told by its manifest.
            let _ = model.remove(name).await;
        }
    }

    async fn hash(&self, bytes: &[u8]) -> Result<Hash, String> {
        sha_256(bytes).await
    }

    async fn pause(&self, ms: f64) {
        let timer = js_sys::Promise::new(&mut |then, _| _ = set_timeout(&then, ms));
        // A timer is never refused.
        let _ = JsFuture::from(timer).await;
    }
}

impl Shelved {
    fn existing(&self) -> Option<&Folder> {
        match self {
            Self::In { folder, .. } => Some(folder),
            Self::Nowhere => None,
        }
    }

    /// The folder, also where it was taken away meanwhile.
    async fn folder(&self) -> Result<Folder, String> {
        match self {
            Self::In { model, name, .. } => model.folder(name).await,
            Self::Nowhere => Err("nothing of it is".to_owned()),
        }
    }
}

fn folder_of_file(n: usize) -> String {
    format!("{n:03}")
}

fn name_of(part: usize) -> String {
    format!("{part:05}.part")
}

impl Source for ModelFile {
    fn name(&self) -> &str {
        match self {
            Self::Kept(file) => file.name(),
            Self::Plain(file) => file.name(),
        }
    }

    fn len_bytes(&self) -> u64 {
        match self {
            Self::Kept(file) => file.len_bytes(),
            Self::Plain(file) => file.len_bytes(),
        }
    }

    fn note(&self) -> Option<String> {
        match self {
            Self::Kept(file) => file.note(),
            Self::Plain(_) => None,
        }
    }

    async fn finish(&self) -> Result<(), StoreError> {
        match self {
            Self::Kept(file) => file.finish().await,
            Self::Plain(_) => Ok(()),
        }
    }

    async fn read(&self, offset_bytes: u64, len: usize) -> Result<Vec<u8>, StoreError> {
        match self {
            Self::Kept(file) => file.read(offset_bytes, len).await,
            Self::Plain(file) => file.read(offset_bytes, len).await,
        }
    }
}

/// The files of the model at a URL, kept if the browser keeps anything. A server is asked only where something is missing.
/// Behind the URL may stand the SHA-256 of the file that it names ([`split_hash`]).
pub async fn open(url: &str) -> Result<Vec<ModelFile>, OpenError> {
    let (url, promised) = split_hash(url).map_err(|problem| {
        OpenError::Store(StoreError::Unreadable { name: without_hash(url).to_owned(), problem })
    })?;
    let promised = Promise { url, hash: promised };
    let unkept = async |why: &str| {
        let found = WebSource::model_files(url).await?;
        unkept(found, &promised, why).await
    };
    let Some(whole) = whole_url(url) else { return unkept("its address is not on a server").await };
    let Ok(models) = Folder::at_root(MODELS).await else {
        return unkept("the page may keep nothing there").await;
    };
    let folder_name = folder_of(&whole);
    let known = match models.existing(&folder_name).await {
        Some(folder) => {
            folder.read_text(LIST).await.and_then(|text| List::parse(&text)).map(|list| (folder, list))
        }
        None => None,
    };
    let known = known.filter(|(_, list)| list.url == whole);
    let before = known.as_ref().and_then(|(_, list)| list.sha_256);
    let promised = Promise { hash: promised.hash.or(before), ..promised };
    if let Some((folder, list)) = &known
        && let Some(files) =
            shelved(folder, list, &promised, async |url, shelf| Kept::open_complete(url, shelf).await).await
    {
        return Ok(files);
    }
    let found = match (WebSource::model_files(url).await, &known) {
        (Ok(found), _) => found,
        // What is missing may be of no use to the model.
        (Err(OpenError::Store(error)), Some((folder, list))) if error.is_transient() => {
            let files =
                shelved(folder, list, &promised, async |url, shelf| Kept::open_away(url, shelf).await).await;
            return files.ok_or(error.into());
        }
        (Err(error), _) => return Err(error),
    };
    let names: Vec<String> = found.iter().map(|file| file.name().to_owned()).collect();
    let addresses = |names: &[String]| names.iter().map(|name| whole_url(name)).collect::<Vec<_>>();
    let known = match known {
        // Its files have other numbers now.
        Some((_, list)) if addresses(&list.files) != addresses(&names) => {
            let _ = models.remove(&folder_name).await;
            None
        }
        known => known,
    };
    let kept_bytes = match &known {
        Some((folder, list)) => listing::bytes_in(folder, list).await,
        None => 0,
    };
    let len_bytes = found.iter().map(Source::len_bytes).sum::<u64>();
    let too_little = no_room(len_bytes.saturating_sub(kept_bytes), free_bytes().await);
    if let (Some(why), None) = (&too_little, &known) {
        return self::unkept(found, &promised, why).await;
    }
    let list = List { form: FORM, url: whole, files: names, sha_256: promised.hash };
    let folder = match models.folder(&folder_name).await {
        Ok(folder) => folder,
        Err(problem) => return self::unkept(found, &promised, &problem).await,
    };
    let text = serde_json::to_string(&list).expect("texts");
    if let Err(problem) = folder.write(LIST, text.as_bytes()).await {
        return self::unkept(found, &promised, &problem).await;
    }
    let mut opened = Vec::with_capacity(found.len());
    for (n, file) in found.into_iter().enumerate() {
        opened.push(match shelf_of(&folder, n, file.name(), &promised).await {
            Some((url, shelf)) => {
                let kept = Kept::open(url, shelf, file).await?;
                if let Some(why) = &too_little {
                    kept.keep_no_more(why.clone());
                }
                ModelFile::Kept(kept)
            }
            None => ModelFile::Plain(file),
        });
    }
    Ok(opened)
}

/// Files that are kept nowhere, for a reason, and are what is promised of them all the same.
async fn unkept(
    files: Vec<WebSource>,
    promised: &Promise<'_>,
    why: &str,
) -> Result<Vec<ModelFile>, OpenError> {
    let mut opened = Vec::with_capacity(files.len());
    for file in files {
        let name = file.name().to_owned();
        let whole = whole_url(&name).unwrap_or_else(|| name.clone());
        let url = Url { sha_256: promised.of(&name), name, whole };
        let kept = Kept::open(url, Shelved::Nowhere, file).await?;
        kept.keep_no_more(why.to_owned());
        opened.push(ModelFile::Kept(kept));
    }
    Ok(opened)
}

/// The hash that the file at a URL is promised to have.
struct Promise<'a> {
    url: &'a str,
    hash: Option<Hash>,
}

impl Promise<'_> {
    /// The same for the file of that name, which may be another one of the model's.
    fn of(&self, name: &str) -> Option<Hash> {
        let is_it = name == self.url || whole_url(name).is_some_and(|name| whole_url(self.url) == Some(name));
        self.hash.filter(|_| is_it)
    }
}

/// Why what is missing of a model does not fit into what the browser has free, if it does not. Where it tells nothing, it
/// is tried.
fn no_room(missing_bytes: u64, free_bytes: Option<u64>) -> Option<String> {
    let free_bytes = free_bytes.filter(|free| *free < missing_bytes.saturating_add(SPARE_BYTES))?;
    let mb = |bytes: u64| bytes.div_ceil(1_000_000);
    Some(format!(
        "it needs {} MB of its storage, which has room for {} MB; to keep it, delete another model and load it again",
        mb(missing_bytes),
        mb(free_bytes)
    ))
}

/// All files of a list from their shelves, if each can be had so.
async fn shelved(
    folder: &Folder,
    list: &List,
    promised: &Promise<'_>,
    open: impl AsyncFn(Url, Shelved) -> Option<Kept<Url, Shelved>>,
) -> Option<Vec<ModelFile>> {
    let mut files = Vec::with_capacity(list.files.len());
    for (n, name) in list.files.iter().enumerate() {
        let (url, shelf) = shelf_of(folder, n, name, promised).await?;
        files.push(ModelFile::Kept(open(url, shelf).await?));
    }
    (!files.is_empty()).then_some(files)
}

/// Where the file of that number lies.
async fn shelf_of(model: &Folder, n: usize, name: &str, promised: &Promise<'_>) -> Option<(Url, Shelved)> {
    let whole = whole_url(name)?;
    let folder_name = folder_of_file(n);
    let folder = model.folder(&folder_name).await.ok()?;
    let shelf = Shelved::In { model: model.clone(), name: folder_name, folder };
    Some((Url { name: name.to_owned(), whole, sha_256: promised.of(name) }, shelf))
}

/// The whole address of a URL that is on a server, without the hash behind it.
pub fn whole_url(url: &str) -> Option<String> {
    let whole = web_sys::Url::new_with_base(without_hash(url), &location()).ok()?;
    matches!(whole.protocol().as_str(), "http:" | "https:").then(|| whole.href())
}

/// A folder's name for a URL: people who look into the browser's storage know it again. Should two URLs share one, its list
/// tells whose it is.
fn folder_of(url: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let name: String = base_name(url).chars().filter(|c| plain(*c)).take(80).collect();
    // FNV-1a, 64 bits.
    let hash = url.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("{name}-{hash:016x}")
}
