//! The browser's private files of this origin: folders, and files that are written whole or not at all. Works in pages and
//! in every kind of worker; a browser that has none, or refuses them, says so in the error.

use js_sys::{Promise, Reflect, Uint8Array};
use wasm_bindgen::prelude::*;
use wasm_bindgen_futures::JsFuture;
use web_sys::{
    Blob, FileSystemDirectoryHandle, FileSystemFileHandle, FileSystemGetDirectoryOptions,
    FileSystemGetFileOptions, FileSystemRemoveOptions, FileSystemWritableFileStream,
};

use super::manifest::Hash;
use super::web::said;

#[wasm_bindgen]
extern "C" {
    #[wasm_bindgen(catch, js_namespace = ["navigator", "storage"], js_name = getDirectory)]
    fn get_directory() -> Result<Promise, JsValue>;

    #[wasm_bindgen(catch, js_namespace = ["navigator", "storage"], js_name = estimate)]
    fn get_estimate() -> Result<Promise, JsValue>;

    #[wasm_bindgen(catch, js_namespace = ["navigator", "storage"], js_name = persist)]
    fn ask_to_persist() -> Result<Promise, JsValue>;

    #[wasm_bindgen(catch, js_namespace = ["navigator", "storage"], js_name = persisted)]
    fn ask_whether_persisted() -> Result<Promise, JsValue>;

    #[wasm_bindgen(catch, js_namespace = ["crypto", "subtle"], js_name = digest)]
    fn digest(algorithm: &str, bytes: &Uint8Array) -> Result<Promise, JsValue>;
}

/// A folder.
#[derive(Debug, Clone)]
pub struct Folder(FileSystemDirectoryHandle);

impl Folder {
    /// The folder of that name at the root, made if it is not there.
    pub async fn at_root(name: &str) -> Result<Self, String> {
        let root = awaited::<FileSystemDirectoryHandle>(get_directory()).await?;
        Self(root).folder(name).await
    }

    /// A folder in this one, made if it is not there.
    pub async fn folder(&self, name: &str) -> Result<Self, String> {
        let options = FileSystemGetDirectoryOptions::new();
        options.set_create(true);
        awaited(Ok(self.0.get_directory_handle_with_options(name, &options))).await.map(Self)
    }

    /// The folder in this one, if it is there.
    pub async fn existing(&self, name: &str) -> Option<Self> {
        awaited(Ok(self.0.get_directory_handle(name))).await.ok().map(Self)
    }

    /// The names of what lies in it.
    pub async fn names(&self) -> Result<Vec<String>, String> {
        let keys = self.0.keys();
        let mut names = Vec::new();
        loop {
            let next = JsFuture::from(keys.next().map_err(|error| said(&error))?).await;
            let next = next.map_err(|error| said(&error))?;
            if Reflect::get(&next, &"done".into()).is_ok_and(|done| done.is_truthy()) {
                return Ok(names);
            }
            names.extend(Reflect::get(&next, &"value".into()).ok().and_then(|name| name.as_string()));
        }
    }

    /// A file as it is now, if it is there.
    pub async fn blob(&self, name: &str) -> Option<Blob> {
        let handle: FileSystemFileHandle = awaited(Ok(self.0.get_file_handle(name))).await.ok()?;
        awaited(Ok(handle.get_file())).await.ok()
    }

    /// A file's bytes, if it can be read.
    pub async fn read(&self, name: &str) -> Option<Vec<u8>> {
        let file = self.blob(name).await?;
        let buffer = JsFuture::from(file.array_buffer()).await.ok()?;
        Some(Uint8Array::new(&buffer).to_vec())
    }

    /// The same as text.
    pub async fn read_text(&self, name: &str) -> Option<String> {
        String::from_utf8(self.read(name).await?).ok()
    }

    /// Writes a file in the place of the one before: it changes when all is written.
    pub async fn write(&self, name: &str, bytes: &[u8]) -> Result<(), String> {
        let options = FileSystemGetFileOptions::new();
        options.set_create(true);
        let handle = self.0.get_file_handle_with_options(name, &options);
        let handle: FileSystemFileHandle = awaited(Ok(handle)).await?;
        if !Reflect::has(&handle, &"createWritable".into()).unwrap_or(false) {
            return Err("this browser writes such files in dedicated workers alone".into());
        }
        let stream: FileSystemWritableFileStream = awaited(Ok(handle.create_writable())).await?;
        let open = Open { stream: &stream, is_done: false };
        open.write(bytes).await.map_err(|error| said(&error))
    }

    /// Takes a file or a folder with all that is in it away.
    pub async fn remove(&self, name: &str) -> Result<(), String> {
        let options = FileSystemRemoveOptions::new();
        options.set_recursive(true);
        let removed = JsFuture::from(self.0.remove_entry_with_options(name, &options)).await;
        removed.map(drop).map_err(|error| said(&error))
    }
}

/// A file that is being written. Given up, it lets the file go: others could not write it, or take it away.
struct Open<'a> {
    stream: &'a FileSystemWritableFileStream,
    is_done: bool,
}

impl Open<'_> {
    async fn write(mut self, bytes: &[u8]) -> Result<(), JsValue> {
        // A copy outside of wasm memory, which may move while the browser writes.
        JsFuture::from(self.stream.write_with_js_u8_array(&Uint8Array::from(bytes))?).await?;
        JsFuture::from(self.stream.close()).await?;
        self.is_done = true;
        Ok(())
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        if !self.is_done {
            // Whoever waits for nothing needs no answer; one that is refused is caught.
            let aborted = JsFuture::from(self.stream.abort());
            wasm_bindgen_futures::spawn_local(async move { _ = aborted.await });
        }
    }
}

/// Bytes that this origin may still keep, if the browser tells.
pub async fn free_bytes() -> Option<u64> {
    let estimate = JsFuture::from(get_estimate().ok()?).await.ok()?;
    let [quota, usage] = ["quota", "usage"].map(|key| Reflect::get(&estimate, &key.into()).ok()?.as_f64());
    Some((quota? - usage?).max(0.0) as u64)
}

/// Asks the browser to keep what is here until the person takes it away, and tells whether it will, if it tells. Works in
/// pages alone.
pub async fn persist() -> Option<bool> {
    JsFuture::from(ask_to_persist().ok()?).await.ok()?.as_bool()
}

/// Whether the browser takes nothing away of what is here by itself, if it tells.
pub async fn is_lasting() -> Option<bool> {
    JsFuture::from(ask_whether_persisted().ok()?).await.ok()?.as_bool()
}

/// SHA-256, by the browser.
pub async fn sha_256(bytes: &[u8]) -> Result<Hash, String> {
    let promise = digest("SHA-256", &Uint8Array::from(bytes)).map_err(|error| said(&error))?;
    let buffer = JsFuture::from(promise).await.map_err(|error| said(&error))?;
    let bytes = Uint8Array::new(&buffer).to_vec();
    bytes.try_into().map_err(|_other| "the browser's SHA-256 has another length".to_owned())
}

/// What a promise comes to.
async fn awaited<T: JsCast>(promise: Result<Promise, JsValue>) -> Result<T, String> {
    let promise = promise.map_err(|error| said(&error))?;
    JsFuture::from(promise).await.map(JsCast::unchecked_into).map_err(|error| said(&error))
}
