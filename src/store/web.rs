//! Model files in the browser: dropped files, or URLs read by HTTP ranges. Only the bytes asked for enter wasm
//! memory; where a server knows no ranges, the browser keeps the whole file as a blob.

use js_sys::{Array, Function, Object, Promise, Reflect};
use wasm_bindgen::{JsCast as _, JsValue};
use wasm_bindgen_futures::JsFuture;
use web_sys::{AbortController, Blob, Response};

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
    /// A file chosen by the person, or a whole answer that the browser keeps, of this version.
    Blob(Blob, Option<String>),
    /// A URL whose server answers ranges.
    Url {
        /// What asks it.
        fetch: Function,
        /// The server's name for this version of the file, if it has one.
        version: Option<String>,
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
        Self { name: name.into(), len_bytes: blob.size() as u64, place: Place::Blob(blob, None) }
    }

    /// A URL, relative to the script that runs (a page's or a worker's). Asks the server for the length.
    pub async fn from_url(url: impl Into<String>) -> Result<Self, StoreError> {
        Self::from_url_by(&own_fetch(), url).await
    }

    async fn from_url_by(fetch: &Function, url: impl Into<String>) -> Result<Self, StoreError> {
        let name = url.into();
        let response = fetch_range(fetch, &name, 0, PROBE_BYTES - 1).await?;
        Self::from_response(fetch, name, response).await
    }

    /// The server's name for this version of the file, if it has one.
    pub fn version(&self) -> Option<&str> {
        match &self.place {
            Place::Url { version, .. } | Place::Blob(_, version) => version.as_deref(),
        }
    }

    /// The same for a file that need not be there.
    async fn from_url_if_any(fetch: &Function, url: String) -> Result<Option<Self>, StoreError> {
        let response = fetch_range(fetch, &url, 0, PROBE_BYTES - 1).await?;
        if response.response.status() == 404 || refuse_page(&response.response).is_err() {
            return Ok(None);
        }
        Self::from_response(fetch, url, response).await.map(Some)
    }

    /// The files of the model at a URL: all parts of a split GGUF file where it names one, the files beside it where it
    /// names one of a Hugging Face folder, or the one file.
    pub async fn model_files(url: &str) -> Result<Vec<Self>, OpenError> {
        Self::model_files_by(&own_fetch(), url).await
    }

    /// The same by another `fetch` than the runtime's, which answers as that would.
    pub async fn model_files_by(fetch: &Function, url: &str) -> Result<Vec<Self>, OpenError> {
        let name = base_name(url);
        let folder = url.strip_suffix(name).unwrap_or(url);
        let sibling = |other: &str| format!("{folder}{other}");
        if let Some((before, _, count)) = part_of_name(name) {
            let mut parts = vec![];
            for number in 1..=count {
                parts.push(Self::from_url_by(fetch, sibling(&name_of_part(before, number, count))).await?);
            }
            return Ok(parts);
        }
        if name != CONFIG_FILE && name != INDEX_FILE && !name.ends_with(WEIGHTS_SUFFIX) {
            return Ok(vec![Self::from_url_by(fetch, url).await?]);
        }
        let mut files = vec![Self::from_url_by(fetch, sibling(CONFIG_FILE)).await?];
        for text in TOKENIZER_FILES {
            files.extend(Self::from_url_if_any(fetch, sibling(text)).await?);
        }
        match Self::from_url_if_any(fetch, sibling(WEIGHTS_FILE)).await? {
            Some(weights) => files.push(weights),
            None => {
                let index = Self::from_url_by(fetch, sibling(INDEX_FILE)).await?;
                // One that cannot be read is told where the folder is opened.
                if let Ok(map) = WeightMap::parse(&read_all(&index, MAX_INDEX_BYTES).await?) {
                    for shard in map.files() {
                        files.push(Self::from_url_by(fetch, sibling(shard)).await?);
                    }
                }
                files.push(index);
            }
        }
        Ok(files)
    }

    async fn from_response(fetch: &Function, name: String, fetched: Fetched) -> Result<Self, StoreError> {
        let response = &fetched.response;
        let unreadable = |problem: String| StoreError::Unreadable { name: name.clone(), problem };
        refuse_page(response).map_err(unreadable)?;
        match response.status() {
            206 => {
                let range = content_range(response).map_err(unreadable)?;
                let place = Place::Url { fetch: fetch.clone(), version: version(response) };
                Ok(Self { len_bytes: range.total, place, name })
            }
            200 => {
                let version = version(response);
                let blob = blob(response).await.map_err(|error| unreadable(said(&error)))?;
                Ok(Self { len_bytes: blob.size() as u64, place: Place::Blob(blob, version), name })
            }
            500.. | 429 => Err(StoreError::Interrupted { problem: status(response), name }),
            404 => Err(unreadable("the server has no such file (HTTP 404); check the model's URL".into())),
            416 => Err(unreadable("the file on the server is empty (HTTP 416)".into())),
            _ => Err(unreadable(status(response))),
        }
    }

    async fn read_url(
        &self,
        fetch: &Function,
        version_then: Option<&str>,
        offset_bytes: u64,
        len: usize,
    ) -> Result<Vec<u8>, StoreError> {
        let last = offset_bytes + len as u64 - 1;
        let fetched = fetch_range(fetch, &self.name, offset_bytes, last).await?;
        let response = &fetched.response;
        match response.status() {
            206 => {}
            500.. | 429 => return Err(self.interrupted(status(response))),
            _ => return Err(self.unreadable(status(response))),
        }
        let range = content_range(response).map_err(|problem| self.unreadable(problem))?;
        let version_now = version(response);
        if range.total != self.len_bytes {
            return Err(self.changed(format!("it had {} bytes and has {} now", self.len_bytes, range.total)));
        }
        if let (Some(then), Some(now)) = (version_then, version_now.as_deref())
            && then != now
        {
            return Err(self.changed(format!("its version was {then} and is {now} now")));
        }
        if (range.first, range.last) != (offset_bytes, last) {
            return Err(self.unreadable(format!(
                "the server sent bytes {}-{} where {offset_bytes}-{last} were asked for",
                range.first, range.last
            )));
        }
        let bytes = match response.array_buffer() {
            Ok(bytes) => JsFuture::from(bytes).await,
            Err(error) => Err(error),
        };
        let bytes = bytes.map_err(|error| self.interrupted(said(&error)))?;
        self.complete(js_sys::Uint8Array::new(&bytes).to_vec(), len)
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
            Place::Blob(blob, _) => self.read_blob(blob, offset_bytes, len).await,
            Place::Url { fetch, version } => {
                self.read_url(fetch, version.as_deref(), offset_bytes, len).await
            }
        }
    }
}

/// The runtime's own.
fn own_fetch() -> Function {
    Reflect::get(&js_sys::global(), &"fetch".into()).unwrap_or_default().unchecked_into()
}

/// An answer. Once it is dropped, what has not come of it is not sent any more.
struct Fetched {
    response: Response,
    _abort: Abort,
}

/// Ends what it was given to when it is dropped; what is over already does not mind.
struct Abort(Option<AbortController>);

impl Default for Abort {
    fn default() -> Self {
        Self(AbortController::new().ok())
    }
}

impl Abort {
    fn signal(&self) -> JsValue {
        self.0.as_ref().map_or(JsValue::UNDEFINED, |controller| controller.signal().into())
    }
}

impl Drop for Abort {
    fn drop(&mut self) {
        if let Some(controller) = &self.0 {
            controller.abort();
        }
    }
}

/// Asks for bytes `first` to `last`, inclusive.
async fn fetch_range(fetch: &Function, url: &str, first: u64, last: u64) -> Result<Fetched, StoreError> {
    let object = |pairs: &[(&str, &JsValue)]| {
        let pairs = pairs.iter().map(|(name, value)| Array::of2(&(*name).into(), value));
        Object::from_entries(&pairs.collect::<Array>()).expect("pairs are entries")
    };
    let abort = Abort::default();
    let headers = object(&[("Range", &format!("bytes={first}-{last}").into())]);
    let request = object(&[("headers", &headers), ("signal", &abort.signal())]);
    let answer = match fetch.call2(&JsValue::UNDEFINED, &url.into(), &request) {
        Ok(answer) => JsFuture::from(Promise::resolve(&answer)).await,
        Err(error) => Err(error),
    };
    let fetched = answer.map(|response| Fetched { response: response.unchecked_into(), _abort: abort });
    fetched.map_err(|error| StoreError::Interrupted {
        name: url.to_owned(),
        problem: format!(
            "the server could not be reached ({}); check the connection and try again",
            said(&error)
        ),
    })
}

/// Development servers answer an unknown path with the page itself.
fn refuse_page(response: &Response) -> Result<(), String> {
    let content_type = header(response, "Content-Type").unwrap_or_default();
    if response.ok() && content_type.trim_start().starts_with("text/html") {
        return Err(format!(
            "the server answered with a web page (HTTP {}), so it has no such file; check the model's URL",
            response.status()
        ));
    }
    Ok(())
}

fn content_range(response: &Response) -> Result<ContentRange, String> {
    let range = header(response, "Content-Range").unwrap_or_default();
    ContentRange::parse(&range)
        .ok_or_else(|| format!("the server's Content-Range header is {range:?}, which tells no length"))
}

/// A server's name for a version of a file: its ETag, or, which other origins show of themselves, when it changed.
fn version(response: &Response) -> Option<String> {
    header(response, "ETag").or_else(|| header(response, "Last-Modified"))
}

fn header(response: &Response, name: &str) -> Option<String> {
    // The names asked for are names.
    response.headers().get(name).ok().flatten()
}

fn status(response: &Response) -> String {
    format!("the server answered with HTTP {} {}", response.status(), response.status_text())
        .trim_end()
        .to_owned()
}

async fn blob(response: &Response) -> Result<Blob, JsValue> {
    Ok(JsFuture::from(response.blob()?).await?.unchecked_into())
}

/// What a JavaScript exception says.
pub(super) fn said(error: &JsValue) -> String {
    match error.dyn_ref::<js_sys::Error>() {
        Some(error) => error.message().into(),
        None => format!("{error:?}"),
    }
}
