//! From files to a checkpoint: a GGUF file, the parts of one, or a Hugging Face folder. Which it is, the names tell; what the
//! files say is checked before any weight is read.

use super::load::LoadError;
use crate::format::hugging_face::{
    self, CONFIG_FILE, INDEX_FILE, ModelConfig, Shard, TOKENIZER_FILES, WEIGHTS_FILE, WEIGHTS_SUFFIX,
    WeightMap, number_of_shard,
};
use crate::format::safetensors::Header;
use crate::format::split;
use crate::store::files::ModelFiles;
use crate::store::{Source, base_name, read_all, read_header, read_safetensors_header};
use crate::text::{NamedFile, TokenizerFiles, tokenizer_metadata};

/// Longest configuration or index: those of the largest models have some hundred kB.
const MAX_CONFIG_BYTES: u64 = 16 << 20;
/// Longest tokenizer file: Gemma's has 33 MB.
const MAX_TOKENIZER_BYTES: u64 = 128 << 20;
/// What GGUF files end with.
const GGUF_SUFFIX: &str = ".gguf";
/// What pickled weights end with.
const PICKLE_SUFFIXES: [&str; 3] = [".bin", ".pt", ".pth"];

/// Reads what the files of a model say. A folder's files may come with others, which are left alone.
pub async fn open<S: Source>(sources: Vec<S>) -> Result<ModelFiles<S>, LoadError> {
    let named = |suffix: &str| sources.iter().find(|source| base_name(source.name()).ends_with(suffix));
    let folder_file = named(WEIGHTS_SUFFIX).or_else(|| named(INDEX_FILE)).or_else(|| named(CONFIG_FILE));
    match (named(GGUF_SUFFIX), folder_file) {
        (Some(gguf), Some(other)) if named(WEIGHTS_SUFFIX).is_some() => {
            let (first, second) = (gguf.name().to_owned(), other.name().to_owned());
            Err(LoadError::TwoModels { first, second })
        }
        (Some(_), _) => {
            open_gguf(
                sources
                    .into_iter()
                    .filter(|source| base_name(source.name()).ends_with(GGUF_SUFFIX))
                    .collect(),
            )
            .await
        }
        (None, Some(_)) => open_folder(sources).await,
        // Whatever its name: its first bytes tell what it is.
        (None, None) if sources.is_empty() => Err(LoadError::NoFile {
            missing: "the model's file",
            help: "choose a .gguf file or a Hugging Face folder",
        }),
        (None, None) => open_gguf(sources).await,
    }
}

async fn open_gguf<S: Source>(sources: Vec<S>) -> Result<ModelFiles<S>, LoadError> {
    let mut parts = Vec::new();
    for source in &sources {
        parts.push((source.name(), read_header(source).await?));
    }
    let name = sources[0].name().to_owned();
    let checkpoint = split::checkpoint(parts)?;
    Ok(ModelFiles::new(name, sources, checkpoint))
}

async fn open_folder<S: Source>(sources: Vec<S>) -> Result<ModelFiles<S>, LoadError> {
    let find = |name: &str| sources.iter().find(|source| base_name(source.name()) == name);
    let help = "choose the whole folder, or all of its files together";
    let config_source = find(CONFIG_FILE).ok_or(LoadError::NoFile { missing: CONFIG_FILE, help })?;
    let folder = folder_name(config_source.name());
    let place = folder.clone().unwrap_or_else(|| "the model's folder".to_owned());
    let wrong = |error| LoadError::Folder { name: place.clone(), error };
    let config_text = read_all(config_source, MAX_CONFIG_BYTES).await?;
    let config = ModelConfig::parse(&config_text).map_err(wrong)?;

    let weight_map = match (find(WEIGHTS_FILE), find(INDEX_FILE)) {
        (None, Some(index)) => {
            Some(WeightMap::parse(&read_all(index, MAX_CONFIG_BYTES).await?).map_err(wrong)?)
        }
        _ => None,
    };
    let mut headers: Vec<(usize, Header)> = Vec::new();
    for file in weight_files(&sources, weight_map.as_ref())? {
        headers.push((file, read_safetensors_header(&sources[file]).await?));
    }
    let shards: Vec<Shard<'_>> = headers
        .iter()
        .map(|(file, header)| Shard { file: *file, name: base_name(sources[*file].name()), header })
        .collect();
    let mut checkpoint =
        hugging_face::checkpoint(&config, folder.as_deref(), &shards, weight_map.as_ref()).map_err(wrong)?;

    let mut texts: Vec<(&str, Vec<u8>)> = Vec::new();
    for source in &sources {
        if TOKENIZER_FILES.contains(&base_name(source.name())) {
            texts.push((base_name(source.name()), read_all(source, MAX_TOKENIZER_BYTES).await?));
        }
    }
    let text = |name: &'static str| {
        let found = texts.iter().find(|(file, _)| *file == name);
        found.map(|(_, bytes)| NamedFile { name, bytes })
    };
    let embedding = checkpoint.tensor("token_embd.weight");
    let architecture = checkpoint.metadata.opt_str("general.architecture").ok().flatten().unwrap_or_default();
    let files = TokenizerFiles {
        architecture,
        n_embeddings: embedding.map_or(0, |tensor| usize::try_from(tensor.n_rows()).unwrap_or(usize::MAX)),
        tokenizer_json: text("tokenizer.json"),
        vocab_json: text("vocab.json"),
        merges_txt: text("merges.txt"),
        tokenizer_config_json: text("tokenizer_config.json"),
        special_tokens_map_json: text("special_tokens_map.json"),
        chat_template_jinja: text("chat_template.jinja"),
        generation_config_json: text("generation_config.json"),
        config_json: Some(NamedFile { name: CONFIG_FILE, bytes: &config_text }),
    };
    let keys = tokenizer_metadata(&files).map_err(|error| LoadError::Text { name: place.clone(), error })?;
    keys.into_iter().for_each(|(key, value)| checkpoint.metadata.set(&key, value));
    // Files that were chosen one by one tell no folder.
    let name = folder.clone().unwrap_or_else(|| format!("{} model", config.model_type()));
    Ok(ModelFiles::new(name, sources, checkpoint))
}

/// Which files hold the weights: those of the index, the one of the usual name, all numbered ones, or the only one.
fn weight_files<S: Source>(sources: &[S], weight_map: Option<&WeightMap>) -> Result<Vec<usize>, LoadError> {
    let position = |name: &str| sources.iter().position(|source| base_name(source.name()) == name);
    if let Some(weight_map) = weight_map {
        // A missing one is told with its name where its tensors are looked for.
        return Ok(weight_map.files().into_iter().filter_map(position).collect());
    }
    if let Some(file) = position(WEIGHTS_FILE) {
        return Ok(vec![file]);
    }
    let all: Vec<usize> = (0..sources.len())
        .filter(|file| base_name(sources[*file].name()).ends_with(WEIGHTS_SUFFIX))
        .collect();
    match &all[..] {
        [file] if number_of_shard(base_name(sources[*file].name())).is_none() => Ok(all),
        [_, ..] => Err(LoadError::NoFile {
            missing: INDEX_FILE,
            help: "choose it with the others: it says which tensor is in which file",
        }),
        [] => {
            let is_pickle = |source: &&S| PICKLE_SUFFIXES.iter().any(|end| source.name().ends_with(end));
            match sources.iter().find(is_pickle) {
                Some(source) => Err(LoadError::Pickle { name: source.name().into() }),
                None => Err(LoadError::NoFile {
                    missing: WEIGHTS_FILE,
                    help: "choose the whole folder, or all of its files together",
                }),
            }
        }
    }
}

/// The folder that a file's path names, if it names one. In Hugging Face's cache, `models--OWNER--NAME/snapshots/HASH`, that
/// is the name.
fn folder_name(path: &str) -> Option<String> {
    let mut folders = path.split(['/', '\\']).rev().skip(1);
    let folder = folders.next()?.trim_matches('.');
    let cached = (folders.next() == Some("snapshots")).then(|| folders.next()).flatten();
    let name = cached.and_then(|model| model.strip_prefix("models--")?.rsplit("--").next()).unwrap_or(folder);
    (!name.is_empty()).then(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_are_named_by_their_last_part() {
        for (path, folder) in [
            ("config.json", None),
            ("./config.json", None),
            ("a/b-1.5/config.json", Some("b-1.5")),
            ("C:\\models\\tiny\\config.json", Some("tiny")),
            ("/c/models--Qwen--Qwen3-0.6B/snapshots/9b1c0/config.json", Some("Qwen3-0.6B")),
            ("/snapshots/9b1c0/config.json", Some("9b1c0")),
        ] {
            assert_eq!(folder_name(path).as_deref(), folder, "{path}");
        }
    }
}
