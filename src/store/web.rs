//! Model files in the browser: dropped files, or URLs read by HTTP ranges. Only the bytes asked for enter wasm
//! memory; where a server knows no ranges, the browser keeps the whole file as a blob.

use gloo_net::http::{Request, Response};
use wasm_bindgen::{JsCast as _, JsValue};
use wasm_bindgen_futures::JsFuture;
use web_sys::Blob;

use super::content_range::ContentRange;
use super::{OpenError, Source, StoreError, base_name, check_range, read_all};
use crate::format::hugging_face::{
    CONFIG_FILE, INDEX_FILE, TOKENIZER_FILES, WEIGHTS_FILE, WEIGHTS_SUFFIX, WeightMap,
};
use crate::format::split::{name_of_part, part_of_name};

/// A file that the browser holds or can fetch. Works in pages and in every kind of worker.
#[derive(Debug, Clone)]
pub struct WebSource {
    name: String,
    len_bytes: u64,
    place: Place,
}

#[derive(Debug, Clone)]
enum Place {
    /// A file chosen by the person, or a whole answer that the browser keeps.
    Blob(Blob),
    /// A URL whose server answers ranges.
    Url {
        /// The server's name for this version of the file, if it has one.
        etag: Option<String>,
    },
}

/// Longest index of shards that is read.
const MAX_INDEX_BYTES: u64 = 16 << 20;
/// Bytes asked for to learn a file's length.
const PROBE_BYTES: u64 = 16;

impl WebSource {
    /// A `File` or `Blob`. Its bytes are read when asked for.
    pub fn from_blob(name: impl Into<String>, blob: Blob) -> Self {
        // A JavaScript number holds sizes up to 2^53 exactly.
        Self { name: name.into(), len_bytes: blob.size() as u64, place: Place::Blob(blob) }
    }

    /// A URL, relative to the script that runs (a page's or a worker's). Asks the server for the length.
    pub async fn from_url(url: impl Into<String>) -> Result<Self, StoreError> {
        let name = url.into();
        let response = fetch_range(&name, 0, PROBE_BYTES - 1).await?;
        Self::from_response(name, response).await
    }

    /// The server's name for this version of the file, if it has one.
    pub fn etag(&self) -> Option<&str> {
        match &self.place {
            Place::Url { etag } => etag.as_deref(),
            Place::Blob(_) => None,
        }
    }

    /// The same for a file that need not be there.
    async fn from_url_if_any(url: String) -> Result<Option<Self>, StoreError> {
        let response = fetch_range(&url, 0, PROBE_BYTES - 1).await?;
        if response.status() == 404 || refuse_page(&response).is_err() {
            return Ok(None);
        }
        Self::from_response(url, response).await.map(Some)
    }

    /// The files of the model at a URL: all parts of a split GGUF file where it names one, the files beside it where it
    /// names one of a Hugging Face folder, or the one file.
    pub async fn model_files(url: &str) -> Result<Vec<Self>, OpenError> {
        let name = base_name(url);
        let folder = url.strip_suffix(name).unwrap_or(url);
        let sibling = |other: &str| format!("{folder}{other}");
        if let Some((before, _, count)) = part_of_name(name) {
            let mut parts = vec![];
            for number in 1..=count {
                parts.push(Self::from_url(sibling(&name_of_part(before, number, count))).await?);
            }
            return Ok(parts);
        }
        if name != CONFIG_FILE && name != INDEX_FILE && !name.ends_with(WEIGHTS_SUFFIX) {
            return Ok(vec![Self::from_url(url).await?]);
        }
        let mut files = vec![Self::from_url(sibling(CONFIG_FILE)).await?];
        for text in TOKENIZER_FILES {
            files.extend(Self::from_url_if_any(sibling(text)).await?);
        }
        match Self::from_url_if_any(sibling(WEIGHTS_FILE)).await? {
            Some(weights) => files.push(weights),
            None => {
                let index = Self::from_url(sibling(INDEX_FILE)).await?;
                // One that cannot be read is told where the folder is opened.
                if let Ok(map) = WeightMap::parse(&read_all(&index, MAX_INDEX_BYTES).await?) {
                    for shard in map.files() {
                        files.push(Self::from_url(sibling(shard)).await?);
                    }
                }
                files.push(index);
            }
        }
        Ok(files)
    }

    async fn from_response(name: String, response: Response) -> Result<Self, StoreError> {
        let unreadable = |problem: String| StoreError::Unreadable { name: name.clone(), problem };
        refuse_page(&response).map_err(unreadable)?;
        match response.status() {
            206 => {
                let range = content_range(&response).map_err(unreadable)?;
                Ok(Self { len_bytes: range.total, place: Place::Url { etag: etag(&response) }, name })
            }
            200 => {
                let blob = blob(response).await.map_err(|error| unreadable(said(&error)))?;
                Ok(Self::from_blob(name, blob))
            }
            500.. | 429 => Err(StoreError::Interrupted { problem: status(&response), name }),
            404 => Err(unreadable("the server has no such file (HTTP 404); check the model's URL".into())),
            416 => Err(unreadable("the file on the server is empty (HTTP 416)".into())),
            _ => Err(unreadable(status(&response))),
        }
    }

    async fn read_url(
        &self,
        etag_then: Option<&str>,
        offset_bytes: u64,
        len: usize,
    ) -> Result<Vec<u8>, StoreError> {
        let last = offset_bytes + len as u64 - 1;
        let response = fetch_range(&self.name, offset_bytes, last).await?;
        match response.status() {
            206 => {}
            500.. | 429 => return Err(self.interrupted(status(&response))),
            _ => return Err(self.unreadable(status(&response))),
        }
        let range = content_range(&response).map_err(|problem| self.unreadable(problem))?;
        let etag_now = etag(&response);
        if range.total != self.len_bytes {
            return Err(self.changed(format!("it had {} bytes and has {} now", self.len_bytes, range.total)));
        }
        if let (Some(then), Some(now)) = (etag_then, etag_now.as_deref())
            && then != now
        {
            return Err(self.changed(format!("its ETag was {then} and is {now} now")));
        }
        if (range.first, range.last) != (offset_bytes, last) {
            return Err(self.unreadable(format!(
                "the server sent bytes {}-{} where {offset_bytes}-{last} were asked for",
                range.first, range.last
            )));
        }
        let bytes = response.binary().await.map_err(|error| self.interrupted(error.to_string()))?;
        self.complete(bytes, len)
    }

    async fn read_blob(&self, blob: &Blob, offset_bytes: u64, len: usize) -> Result<Vec<u8>, StoreError> {
        let end = offset_bytes + len as u64;
        let slice = blob.slice_with_f64_and_f64(offset_bytes as f64, end as f64);
        let slice = slice.map_err(|error| self.unreadable(said(&error)))?;
        // The browser refuses if the file on disk was changed or removed since it was chosen.
        let buffer = JsFuture::from(slice.array_buffer()).await.map_err(|error| {
            self.unreadable(format!("{}; if the file was moved or changed, choose it again", said(&error)))
        })?;
        self.complete(js_sys::Uint8Array::new(&buffer).to_vec(), len)
    }

    fn complete(&self, bytes: Vec<u8>, len: usize) -> Result<Vec<u8>, StoreError> {
        if bytes.len() == len {
            return Ok(bytes);
        }
        Err(self.interrupted(format!("{} bytes came where {len} were asked for; try again", bytes.len())))
    }

    fn unreadable(&self, problem: String) -> StoreError {
        StoreError::Unreadable { name: self.name.clone(), problem }
    }

    fn interrupted(&self, problem: String) -> StoreError {
        StoreError::Interrupted { name: self.name.clone(), problem }
    }

    fn changed(&self, problem: String) -> StoreError {
        StoreError::Changed { name: self.name.clone(), problem }
    }
}

impl Source for WebSource {
    fn name(&self) -> &str {
        &self.name
    }

    fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    async fn read(&self, offset_bytes: u64, len: usize) -> Result<Vec<u8>, StoreError> {
        check_range(self, offset_bytes, len)?;
        if len == 0 {
            return Ok(Vec::new());
        }
        match &self.place {
            Place::Blob(blob) => self.read_blob(blob, offset_bytes, len).await,
            Place::Url { etag } => self.read_url(etag.as_deref(), offset_bytes, len).await,
        }
    }
}

/// Asks for bytes `first` to `last`, inclusive.
async fn fetch_range(url: &str, first: u64, last: u64) -> Result<Response, StoreError> {
    let request = Request::get(url).header("Range", &format!("bytes={first}-{last}"));
    request.send().await.map_err(|error| StoreError::Interrupted {
        name: url.to_owned(),
        problem: format!("the server could not be reached ({error}); check the connection and try again"),
    })
}

/// Development servers answer an unknown path with the page itself.
fn refuse_page(response: &Response) -> Result<(), String> {
    let content_type = response.headers().get("Content-Type").unwrap_or_default();
    if response.ok() && content_type.trim_start().starts_with("text/html") {
        return Err(format!(
            "the server answered with a web page (HTTP {}), so it has no such file; check the model's URL",
            response.status()
        ));
    }
    Ok(())
}

fn content_range(response: &Response) -> Result<ContentRange, String> {
    let header = response.headers().get("Content-Range").unwrap_or_default();
    ContentRange::parse(&header)
        .ok_or_else(|| format!("the server's Content-Range header is {header:?}, which tells no length"))
}

fn etag(response: &Response) -> Option<String> {
    response.headers().get("ETag")
}

fn status(response: &Response) -> String {
    format!("the server answered with HTTP {} {}", response.status(), response.status_text())
        .trim_end()
        .to_owned()
}

async fn blob(response: Response) -> Result<Blob, JsValue> {
    let promise = web_sys::Response::from(response).blob()?;
    Ok(JsFuture::from(promise).await?.unchecked_into())
}

/// What a JavaScript exception says.
pub(super) fn said(error: &JsValue) -> String {
    match error.dyn_ref::<js_sys::Error>() {
        Some(error) => error.message().into(),
        None => format!("{error:?}"),
    }
}
