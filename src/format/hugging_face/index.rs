//! `model.safetensors.index.json`: which tensor is in which file.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::{HuggingFaceError, INDEX_FILE};

/// File names by tensor name, in the file's order.
#[derive(Debug, Clone, PartialEq)]
pub struct WeightMap {
    entries: Vec<(String, String)>,
}

impl WeightMap {
    /// Reads the text of the file.
    pub fn parse(text: &[u8]) -> Result<Self, HuggingFaceError> {
        let damaged = |problem: String| HuggingFaceError::Json { file: INDEX_FILE, problem };
        let root: Map<String, Value> =
            serde_json::from_slice(text).map_err(|error| damaged(error.to_string()))?;
        let Some(Value::Object(map)) = root.get("weight_map") else {
            return Err(damaged("it has no object weight_map".into()));
        };
        let entry = |(tensor, file): (&String, &Value)| match file.as_str() {
            // The files are beside the index, and nowhere else.
            Some(file) if !file.is_empty() && !file.contains(['/', '\\', ':', '?', '#']) => {
                Ok((tensor.clone(), file.to_owned()))
            }
            _ => Err(damaged(format!(
                "the file of tensor {tensor:?} is {file}, which names no file beside it"
            ))),
        };
        Ok(Self { entries: map.iter().map(entry).collect::<Result<_, _>>()? })
    }

    /// Tensor and file names.
    pub fn entries(&self) -> impl Iterator<Item = (&str, &str)> {
        self.entries.iter().map(|(tensor, file)| (tensor.as_str(), file.as_str()))
    }

    /// The files, each once.
    pub fn files(&self) -> BTreeSet<&str> {
        self.entries.iter().map(|(_, file)| file.as_str()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_beside_the_index_are_named() {
        let map =
            WeightMap::parse(br#"{"weight_map": {"a": "x.safetensors", "b": "x.safetensors"}}"#).unwrap();
        assert_eq!(map.files().into_iter().collect::<Vec<_>>(), ["x.safetensors"]);
        assert_eq!(map.entries().count(), 2);
        for text in [
            "",
            "[]",
            "{}",
            r#"{"weight_map": []}"#,
            r#"{"weight_map": {"a": 3}}"#,
            r#"{"weight_map": {"a": "../x.safetensors"}}"#,
            r#"{"weight_map": {"a": "https://x"}}"#,
        ] {
            assert!(
                matches!(WeightMap::parse(text.as_bytes()), Err(HuggingFaceError::Json { .. })),
                "{text}"
            );
        }
    }
}
