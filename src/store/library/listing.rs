//! What is kept of models: listed, named by the person, taken away, and given out as files.
//!
//! Invariant: what lies here and cannot be read is left out, and stops nothing.

use serde::{Deserialize, Serialize};
use web_sys::Blob;

use super::super::base_name;
use super::super::manifest::Manifest;
use super::super::opfs::Folder;
use super::{ABOUT, LIST, List, MANIFEST, MODELS, folder_of, folder_of_file, name_of};

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
    /// What the page knows of it.
    pub about: About,
}

/// What the page knows of a model that is kept, as far as it does: names that stay, whatever the engine calls it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct About {
    /// What the person calls it.
    pub title: Option<String>,
    /// Block type of most weights.
    pub quantization: Option<String>,
    /// The licence that it names.
    pub license: Option<String>,
    /// Bytes that a token takes in a KV cache of half precision.
    pub kv_bytes_per_token: Option<u64>,
    /// The longest context in tokens that it was run with.
    pub context: Option<u32>,
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
    let about = folder.read_text(ABOUT).await.and_then(|text| serde_json::from_str(&text).ok());
    let about = about.unwrap_or_default();
    let mut model = StoredModel { url: list.url, kept_bytes: 0, len_bytes: 0, is_complete: true, about };
    for n in 0..list.files.len() {
        let manifest = manifest_of(folder, n).await;
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

async fn manifest_of(folder: &Folder, n: usize) -> Option<Manifest> {
    let text = folder.existing(&folder_of_file(n)).await?.read_text(MANIFEST).await?;
    Manifest::parse(&text)
}

/// Bytes of a model's files that are here.
pub(super) async fn bytes_in(folder: &Folder, list: &List) -> u64 {
    let mut n_bytes = 0;
    for n in 0..list.files.len() {
        n_bytes += manifest_of(folder, n).await.map_or(0, |manifest| manifest.kept_bytes());
    }
    n_bytes
}

/// Changes what the page knows of the model at a whole address, if that is kept. The error is a sentence.
pub async fn describe(url: &str, change: impl FnOnce(&mut About)) -> Result<(), String> {
    let models = Folder::at_root(MODELS).await?;
    let Some(folder) = models.existing(&folder_of(url)).await else { return Ok(()) };
    let Some(model) = stored_in(&folder).await.filter(|model| model.url == url) else { return Ok(()) };
    let mut about = model.about.clone();
    change(&mut about);
    if about == model.about {
        return Ok(());
    }
    folder.write(ABOUT, serde_json::to_string(&about).expect("texts and numbers").as_bytes()).await
}

/// The files of the model at a whole address, each with its name and its parts in order: the browser reads them when they
/// are written elsewhere, and nothing of them is in memory. The error is a sentence.
pub async fn parts(url: &str) -> Result<Vec<(String, Vec<Blob>)>, String> {
    let gone = || format!("{} is not whole in this browser; load it first.", base_name(url));
    let folder = Folder::at_root(MODELS).await?.existing(&folder_of(url)).await.ok_or_else(gone)?;
    let list = folder.read_text(LIST).await.and_then(|text| List::parse(&text)).ok_or_else(gone)?;
    let mut files = Vec::with_capacity(list.files.len());
    for (n, name) in list.files.iter().enumerate() {
        let manifest = manifest_of(&folder, n).await.filter(Manifest::is_complete).ok_or_else(gone)?;
        let file = folder.existing(&folder_of_file(n)).await.ok_or_else(gone)?;
        let mut blobs = Vec::with_capacity(manifest.n_parts());
        for part in 0..manifest.n_parts() {
            blobs.push(file.blob(&name_of(part)).await.ok_or_else(gone)?);
        }
        files.push((base_name(name).to_owned(), blobs));
    }
    Ok(files)
}
