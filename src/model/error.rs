//! Why a model is refused: each error names the key or tensor, what was found, and what would help.

use crate::format::metadata::MetadataError;

/// Why a file's model cannot be run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ModelError {
    /// A key of the metadata is missing or of another type.
    #[error(transparent)]
    Metadata(#[from] MetadataError),
    /// An architecture that is not known.
    #[error("the model's architecture is {found:?}, which pagelm does not run yet; these work: {known}")]
    Architecture {
        /// As the file names it.
        found: String,
        /// What works.
        known: String,
    },
    /// A size that makes no sense.
    #[error(
        "the model states {key} = {found}, but {expected}; the file is damaged or of a kind pagelm does not know"
    )]
    Size {
        /// The key of the metadata.
        key: String,
        /// Its value.
        found: u64,
        /// What it should be.
        expected: String,
    },
    /// A constant that no computation survives.
    #[error("the model states {key} = {found}, but {expected}; the file is damaged")]
    Constant {
        /// The key of the metadata.
        key: String,
        /// Its value.
        found: String,
        /// What it should be.
        expected: &'static str,
    },
    /// A tensor that the plan does not use: to leave it out would compute something else.
    #[error(
        "the file has a tensor {name} that pagelm does not use for architecture {architecture}; it belongs to a variant that would be computed wrong without it, so take the plain model of the family"
    )]
    UnusedTensor {
        /// Its name.
        name: String,
        /// For which architecture.
        architecture: String,
    },
    /// A tensor is missing.
    #[error(
        "the file has no tensor {name}, which a model of architecture {architecture} needs; it is incomplete or of another variant"
    )]
    MissingTensor {
        /// Its name.
        name: String,
        /// For which architecture.
        architecture: String,
    },
    /// A tensor has another shape.
    #[error(
        "tensor {name} has shape {found:?}, but the model's sizes ask for {expected:?}; the file is damaged or of another variant"
    )]
    Shape {
        /// Its name.
        name: String,
        /// Innermost first.
        found: Vec<u64>,
        /// Innermost first.
        expected: Vec<u64>,
    },
    /// A kind of tensor that does not run yet.
    #[error("{what} ({found}), which pagelm does not run yet; {help}")]
    Unsupported {
        /// What.
        what: String,
        /// As the file states it.
        found: String,
        /// What would help.
        help: String,
    },
}
