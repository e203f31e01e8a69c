//! Models that came from URLs, kept in the browser: each has a folder with its list of files, and each file a folder with its
//! parts.
//!
//! Invariant: a list names all files of its model, so that a model whose files are complete is opened without a server.

use serde::{Deserialize, Serialize};
use wasm_bindgen::prelude::*;
use wasm_bindgen_futures::JsFuture;

use super::kept::{Kept, Origin, Shelf};
use super::manifest::{Hash, Manifest};
use super::opfs::{Folder, sha_256};
use super::web::WebSource;
use super::{OpenError, Source, StoreError, base_name};

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
/// A file's manifest.
const MANIFEST: &str = "manifest.json";
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
}

impl Origin for Url {
    type Source = WebSource;

    fn name(&self) -> &str {
        &self.name
    }

    fn url(&self) -> &str {
        &self.whole
    }

    async fn open(&self) -> Result<WebSource, StoreError> {
        WebSource::from_url(&self.name).await
    }

    fn version(source: &WebSource) -> Option<&str> {
        source.version()
    }
}

/// A file's folder in its model's.
#[derive(Debug, Clone)]
pub struct Shelved {
    model: Folder,
    name: String,
    folder: Folder,
}

impl Shelf for Shelved {
    async fn manifest(&self) -> Option<String> {
        self.folder.read_text(MANIFEST).await
    }

    async fn keep_manifest(&self, text: &str) -> Result<(), String> {
        self.folder().await?.write(MANIFEST, text.as_bytes()).await
    }

    async fn part(&self, part: usize) -> Option<Vec<u8>> {
        self.folder.read(&name_of(part)).await
    }

    async fn keep_part(&self, part: usize, bytes: &[u8]) -> Result<(), String> {
        self.folder().await?.write(&name_of(part), bytes).await
    }

    async fn clear(&self) {
        // What stays is of another version, and is told by its manifest.
        let _ = self.model.remove(&self.name).await;
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
    /// The folder, also where it was taken away meanwhile.
    async fn folder(&self) -> Result<Folder, String> {
        self.model.folder(&self.name).await
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

    async fn read(&self, offset_bytes: u64, len: usize) -> Result<Vec<u8>, StoreError> {
        match self {
            Self::Kept(file) => file.read(offset_bytes, len).await,
            Self::Plain(file) => file.read(offset_bytes, len).await,
        }
    }
}

/// A model that is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredModel {
    /// Its whole address.
    pub url: String,
    /// Bytes that are here.
    pub kept_bytes: u64,
    /// Bytes of all files whose length is known.
    pub len_bytes: u64,
    /// Whether nothing of it is missing.
    pub is_complete: bool,
}

/// What is kept, by address.
pub async fn stored() -> Vec<StoredModel> {
    let Ok(models) = Folder::at_root(MODELS).await else { return Vec::new() };
    let mut stored = Vec::new();
    for name in models.names().await.unwrap_or_default() {
        if let Some(folder) = models.existing(&name).await {
            stored.extend(stored_in(&folder).await);
        }
    }
    stored.sort_by(|a: &StoredModel, b| a.url.cmp(&b.url));
    stored
}

async fn stored_in(folder: &Folder) -> Option<StoredModel> {
    let list = List::parse(&folder.read_text(LIST).await?)?;
    let mut model = StoredModel { url: list.url, kept_bytes: 0, len_bytes: 0, is_complete: true };
    for n in 0..list.files.len() {
        let manifest = match folder.existing(&folder_of_file(n)).await {
            Some(file) => file.read_text(MANIFEST).await.and_then(|text| Manifest::parse(&text)),
            None => None,
        };
        model.is_complete &= manifest.as_ref().is_some_and(Manifest::is_complete);
        if let Some(manifest) = manifest {
            model.kept_bytes += manifest.kept_bytes();
            model.len_bytes += manifest.len_bytes;
        }
    }
    Some(model)
}

/// Takes what is kept of the model at a whole address away. The error is a sentence.
pub async fn remove(url: &str) -> Result<(), String> {
    let models = Folder::at_root(MODELS).await?;
    models.remove(&folder_of(url)).await.map_err(|error| {
        let name = base_name(url);
        format!("{name} could not be deleted ({error}); it may be in use by another tab, so try again later.")
    })
}

/// The files of the model at a URL, kept if the browser keeps anything. A server is asked only where something is missing.
pub async fn open(url: &str) -> Result<Vec<ModelFile>, OpenError> {
    let Some(whole) = whole_url(url) else { return plain(WebSource::model_files(url).await?) };
    let Ok(models) = Folder::at_root(MODELS).await else {
        return plain(WebSource::model_files(url).await?);
    };
    let folder_name = folder_of(&whole);
    let known = match models.existing(&folder_name).await {
        Some(folder) => {
            folder.read_text(LIST).await.and_then(|text| List::parse(&text)).map(|list| (folder, list))
        }
        None => None,
    };
    let known = known.filter(|(_, list)| list.url == whole);
    if let Some((folder, list)) = &known
        && let Some(files) =
            shelved(folder, &list.files, async |url, shelf| Kept::open_complete(url, shelf).await).await
    {
        return Ok(files);
    }
    let found = match (WebSource::model_files(url).await, &known) {
        (Ok(found), _) => found,
        // What is missing may be of no use to the model.
        (Err(OpenError::Store(error)), Some((folder, list))) if error.is_transient() => {
            let files =
                shelved(folder, &list.files, async |url, shelf| Kept::open_away(url, shelf).await).await;
            return files.ok_or(error.into());
        }
        (Err(error), _) => return Err(error),
    };
    let names: Vec<String> = found.iter().map(|file| file.name().to_owned()).collect();
    if known.as_ref().is_some_and(|(_, list)| list.files != names) {
        // Its files have other numbers now.
        let _ = models.remove(&folder_name).await;
    }
    let list = List { form: FORM, url: whole, files: names };
    let Ok(folder) = models.folder(&folder_name).await else { return plain(found) };
    let text = serde_json::to_string(&list).expect("texts");
    if folder.write(LIST, text.as_bytes()).await.is_err() {
        return plain(found);
    }
    let mut opened = Vec::with_capacity(found.len());
    for (n, file) in found.into_iter().enumerate() {
        opened.push(match shelf_of(&folder, n, file.name()).await {
            Some((url, shelf)) => ModelFile::Kept(Kept::open(url, shelf, file).await?),
            None => ModelFile::Plain(file),
        });
    }
    Ok(opened)
}

/// All files of a list from their shelves, if each can be had so.
async fn shelved(
    folder: &Folder,
    names: &[String],
    open: impl AsyncFn(Url, Shelved) -> Option<Kept<Url, Shelved>>,
) -> Option<Vec<ModelFile>> {
    let mut files = Vec::with_capacity(names.len());
    for (n, name) in names.iter().enumerate() {
        let (url, shelf) = shelf_of(folder, n, name).await?;
        files.push(ModelFile::Kept(open(url, shelf).await?));
    }
    (!files.is_empty()).then_some(files)
}

/// Where the file of that number lies.
async fn shelf_of(model: &Folder, n: usize, name: &str) -> Option<(Url, Shelved)> {
    let whole = whole_url(name)?;
    let folder_name = folder_of_file(n);
    let folder = model.folder(&folder_name).await.ok()?;
    let shelf = Shelved { model: model.clone(), name: folder_name, folder };
    Some((Url { name: name.to_owned(), whole }, shelf))
}

fn plain(files: Vec<WebSource>) -> Result<Vec<ModelFile>, OpenError> {
    Ok(files.into_iter().map(ModelFile::Plain).collect())
}

/// The whole address of a URL that is on a server.
pub fn whole_url(url: &str) -> Option<String> {
    let whole = web_sys::Url::new_with_base(url, &location()).ok()?;
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
