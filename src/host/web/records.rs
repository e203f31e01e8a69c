//! Which GPUs compute rightly, in the browser's cache storage, which workers have too.
//!
//! Invariant: a browser that refuses to keep something, or has lost it, is asked no further: the check is made again.

use futures_util::FutureExt as _;
use futures_util::future::LocalBoxFuture;
use js_sys::{Promise, encode_uri_component};
use wasm_bindgen::prelude::*;
use wasm_bindgen_futures::JsFuture;
use web_sys::Response;

use crate::host::check::Records;

#[wasm_bindgen]
extern "C" {
    type Cache;

    #[wasm_bindgen(catch, js_namespace = caches, js_name = open)]
    fn open_cache(name: &str) -> Result<Promise, JsValue>;

    #[wasm_bindgen(method, catch, js_name = match)]
    fn find(this: &Cache, url: &str) -> Result<Promise, JsValue>;

    #[wasm_bindgen(method, catch)]
    fn put(this: &Cache, url: &str, response: &Response) -> Result<Promise, JsValue>;
}

/// The cache that verdicts are in; a site's pages share it.
const NAME: &str = "pagelm.checks";

/// Verdicts in the browser's cache storage.
pub(super) struct CacheRecords;

/// No page has this address: it is but a name, below that of the worker.
fn url(key: &str) -> String {
    format!("check/{}", encode_uri_component(key))
}

async fn cache() -> Result<Cache, JsValue> {
    Ok(JsFuture::from(open_cache(NAME)?).await?.unchecked_into())
}

async fn recall(key: &str) -> Result<Option<String>, JsValue> {
    let found = JsFuture::from(cache().await?.find(&url(key))?).await?;
    let Ok(response) = found.dyn_into::<Response>() else { return Ok(None) };
    Ok(JsFuture::from(response.text()?).await?.as_string())
}

async fn keep(key: &str, text: &str) -> Result<(), JsValue> {
    let response = Response::new_with_opt_str(Some(text))?;
    JsFuture::from(cache().await?.put(&url(key), &response)?).await.map(drop)
}

impl Records for CacheRecords {
    fn recall<'a>(&'a self, key: &'a str) -> LocalBoxFuture<'a, Option<String>> {
        async move { recall(key).await.ok().flatten() }.boxed_local()
    }

    fn keep<'a>(&'a self, key: &'a str, text: &'a str) -> LocalBoxFuture<'a, ()> {
        async move { keep(key, text).await.unwrap_or_default() }.boxed_local()
    }
}
