//! A model file in memory.

use pagelm::store::{Source, StoreError};

/// The file's name and bytes.
pub(crate) struct MemorySource {
    name: String,
    bytes: Vec<u8>,
}

impl MemorySource {
    pub(crate) fn new(name: &str, bytes: Vec<u8>) -> Self {
        Self { name: name.into(), bytes }
    }
}

impl Source for MemorySource {
    fn name(&self) -> &str {
        &self.name
    }

    fn len_bytes(&self) -> u64 {
        self.bytes.len() as u64
    }

    async fn read(&self, offset_bytes: u64, len: usize) -> Result<Vec<u8>, StoreError> {
        let start = offset_bytes as usize;
        match self.bytes.get(start..start + len) {
            Some(bytes) => Ok(bytes.to_vec()),
            None => Err(StoreError::PastEnd {
                name: self.name.clone(),
                offset_bytes,
                len,
                len_bytes: self.len_bytes(),
            }),
        }
    }
}
