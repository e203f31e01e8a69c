//! What the browser keeps of models, and what it has to compute with, as the page asks it.

use js_sys::{Array, Promise, Reflect};
use leptos::prelude::*;
use wasm_bindgen::{JsCast as _, JsValue};
use wasm_bindgen_futures::JsFuture;
use web_sys::{Blob, HtmlElement, Url};

use super::Screen;
use crate::{
    protocol::{KvType, LoadOptions, ModelInfo},
    store::{
        library::{self, About, whole_url},
        opfs,
    },
    ui::fit::{Adapter, DEFAULT_CONTEXT, Reach},
};

/// So long (ms) a file that is given out can be read by the browser that writes it elsewhere.
const GIVEN_OUT: std::time::Duration = std::time::Duration::from_secs(600);

impl Screen {
    /// Looks at what this browser keeps.
    pub(super) fn look_at_library(self) {
        leptos::task::spawn_local(async move {
            let (stored, free_bytes) = (library::stored().await, opfs::free_bytes().await);
            let is_lasting = opfs::is_lasting().await;
            self.change(|state| state.keeps(stored, free_bytes, is_lasting));
        });
    }

    /// Looks at what there is to compute with.
    pub(super) fn look_at_machine(self) {
        leptos::task::spawn_local(async move {
            let reach = Reach { gpu: adapter().await };
            self.change(|state| state.reaches(reach));
        });
    }

    /// Asks the browser not to take away what is kept; once is enough.
    pub(super) fn keep_lastingly(self) {
        if self.peek(|state| state.is_lasting != Some(true)) {
            leptos::task::spawn_local(async move {
                // A browser that asks the person for it may answer late, or never.
                let is_lasting = opfs::persist().await;
                self.change(|state| state.lasts(is_lasting));
            });
        }
    }

    /// Notes what the engine said of a model, for the time before the next load.
    pub(super) fn describe_stored(self, url: &str, info: &ModelInfo, options: &LoadOptions) {
        let Some(whole) = whole_url(url) else { return };
        let (quantization, license) = (info.quantization.clone(), info.license.clone());
        let kv_bytes = info.kv_bytes.checked_div(u64::from(info.kv_tokens));
        let kv_bytes_per_token = match options.kv {
            KvType::F16 => kv_bytes,
            KvType::F32 => kv_bytes.map(|n_bytes| n_bytes / 2),
            KvType::Q8 => None,
        };
        // Else it is as long as was asked for, or as memory allowed, and says nothing of the model.
        let is_own = options.context.is_none() && info.kv_note.is_none() && info.context < DEFAULT_CONTEXT;
        let context = is_own.then_some(info.context);
        leptos::task::spawn_local(async move {
            // Without it less is said of the model in the list.
            let _ = library::describe(&whole, |about| {
                about.quantization = Some(quantization).filter(|name| !name.is_empty());
                about.license = license.or(about.license.take());
                about.kv_bytes_per_token = kv_bytes_per_token.or(about.kv_bytes_per_token);
                about.context = context;
            })
            .await;
            self.look_at_library();
        });
    }

    /// Takes a model out of the browser's storage; one that answers goes on.
    pub(crate) fn delete_stored(self, url: String) {
        self.then_look(async move { library::remove(&url).await });
    }

    /// Calls a model that is kept otherwise; nothing gives it its own name back.
    pub(crate) fn rename_stored(self, url: String, title: &str) {
        let title = Some(title.trim().to_owned()).filter(|title| !title.is_empty());
        self.then_look(async move { library::describe(&url, |about: &mut About| about.title = title).await });
    }

    /// Gives the files of a model that is kept out, to be saved elsewhere.
    pub(crate) fn export_stored(self, url: String) {
        self.then_look(async move {
            for (name, parts) in library::parts(&url).await? {
                give_out(&name, &parts).map_err(|_thrown| {
                    format!("{name} could not be given out; the browser refuses downloads.")
                })?;
            }
            Ok(())
        });
    }

    /// Does something with what is kept, says what went wrong, and looks what came of it.
    fn then_look(self, work: impl Future<Output = Result<(), String>> + 'static) {
        leptos::task::spawn_local(async move {
            if let Err(sentence) = work.await {
                self.change(|state| state.notify(sentence));
            }
            self.look_at_library();
        });
    }
}

/// Downloads a file that lies in parts, none of which is read into memory.
fn give_out(name: &str, parts: &[Blob]) -> Result<(), JsValue> {
    let parts: Array = parts.iter().collect();
    let whole = Blob::new_with_blob_sequence(&parts)?;
    let url = Url::create_object_url_with_blob(&whole)?;
    let link = document().create_element("a")?.unchecked_into::<HtmlElement>();
    link.set_attribute("href", &url)?;
    link.set_attribute("download", name)?;
    link.click();
    // Whoever still reads it then has it open.
    set_timeout(move || _ = Url::revoke_object_url(&url), GIVEN_OUT);
    Ok(())
}

/// The GPU that the browser offers, if it offers one.
async fn adapter() -> Option<Adapter> {
    let get =
        |of: &JsValue, name: &str| Reflect::get(of, &name.into()).ok().filter(|found| !found.is_undefined());
    let gpu = get(&window().navigator(), "gpu")?;
    let request = get(&gpu, "requestAdapter")?.dyn_into::<js_sys::Function>().ok()?;
    let asked = request.call0(&gpu).ok()?.dyn_into::<Promise>().ok()?;
    let adapter = JsFuture::from(asked).await.ok().filter(|adapter| !adapter.is_null())?;
    let max_buffer_bytes = get(&get(&adapter, "limits")?, "maxBufferSize")?.as_f64()? as u64;
    let info = get(&adapter, "info").unwrap_or_default();
    let is_fallback = [&adapter, &info]
        .into_iter()
        .any(|of| get(of, "isFallbackAdapter").is_some_and(|is_fallback| is_fallback.is_truthy()));
    let is_swiftshader = get(&info, "architecture")
        .and_then(|name| name.as_string())
        .is_some_and(|name| name == "swiftshader");
    Some(Adapter { max_buffer_bytes, is_software: is_fallback || is_swiftshader })
}
