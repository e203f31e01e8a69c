//! A model in several GGUF files, as llama.cpp's `gguf-split` cuts it: the parts are put together only when all are there
//! and say that they belong together.

use super::checkpoint::{Checkpoint, Tensor};
use super::gguf::{Header, quoted};
use super::metadata::MetadataError;

const NUMBER: &str = "split.no";
const COUNT: &str = "split.count";
const N_TENSORS: &str = "split.tensors.count";
/// What every key about the split begins with.
const PREFIX: &str = "split.";

/// Why parts do not make a model.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SplitError {
    /// A key of a part.
    #[error("{file}: {error}")]
    Metadata {
        /// The part's file.
        file: String,
        /// What is wrong with it.
        error: MetadataError,
    },
    /// Not a part at all.
    #[error("{file} is a model of its own, not a part of one; choose it alone, or the parts of one model")]
    NoPart {
        /// The file.
        file: String,
    },
    /// A part is not there.
    #[error(
        "{file} is part of a model in {count} files, and part {missing} is missing{likely}; put it with the others"
    )]
    Missing {
        /// A part that is there.
        file: String,
        /// Parts in all.
        count: u64,
        /// The missing one, counted from 1.
        missing: u64,
        /// What it is called, where that is known.
        likely: String,
    },
    /// Two files claim one place.
    #[error(
        "{first} and {second} both say that they are part {number} of {count}; choose the files of one model only"
    )]
    Twice {
        /// A part.
        first: String,
        /// Another.
        second: String,
        /// Counted from 1.
        number: u64,
        /// Parts in all.
        count: u64,
    },
    /// Parts of different models.
    #[error("{first} is a part of {count} and {second} of {other}; choose the files of one model only")]
    Counts {
        /// A part.
        first: String,
        /// Parts of its model.
        count: u64,
        /// Another.
        second: String,
        /// Parts of its model.
        other: u64,
    },
    /// More or fewer tensors than were promised.
    #[error(
        "the parts of {file} hold {found} tensors, but {N_TENSORS} is {stated}; a part is of another model: download them again"
    )]
    Tensors {
        /// The first part.
        file: String,
        /// In all parts.
        found: u64,
        /// As the first part states it.
        stated: u64,
    },
    /// A tensor in two parts.
    #[error("tensor {name} is in {first} and in {second}; a part is of another model: download them again")]
    TensorTwice {
        /// The tensor, quoted.
        name: String,
        /// A part.
        first: String,
        /// Another.
        second: String,
    },
}

/// The number and the count in a name such as `model-00002-of-00003.gguf`, and what stands before them.
pub fn part_of_name(name: &str) -> Option<(&str, u32, u32)> {
    const DIGITS: usize = 5;
    let (rest, count) = name.strip_suffix(".gguf")?.rsplit_once("-of-")?;
    let (before, number) = rest.rsplit_once('-')?;
    let digits = |text: &str| {
        (text.len() == DIGITS && text.bytes().all(|byte| byte.is_ascii_digit())).then(|| text.parse().ok())?
    };
    let (number, count) = (digits(number)?, digits(count)?);
    (1..=count).contains(&number).then_some((before, number, count))
}

/// The name of another part.
pub fn name_of_part(before: &str, number: u32, count: u32) -> String {
    format!("{before}-{number:05}-of-{count:05}.gguf")
}

/// The checkpoint of one GGUF file, or of the parts of one in any order; file `i` of its tensors is `parts[i]`.
///
/// # Errors
/// If the parts are not exactly those of one model.
pub fn checkpoint(parts: Vec<(&str, Header)>) -> Result<Checkpoint, SplitError> {
    let mut order = Vec::new();
    for (index, (file, header)) in parts.iter().enumerate() {
        let key = |key| {
            header.metadata.opt_u64(key).map_err(|error| SplitError::Metadata { file: (*file).into(), error })
        };
        let (number, count) = (key(NUMBER)?.unwrap_or(0), key(COUNT)?.unwrap_or(1));
        if count <= 1 && (parts.len() > 1 || number > 0) {
            return Err(SplitError::NoPart { file: (*file).into() });
        }
        order.push((number, count, index));
    }
    order.sort_unstable();
    check_numbers(&order, &parts)?;

    let mut headers: Vec<Option<(&str, Header)>> = parts.into_iter().map(Some).collect();
    let (mut metadata, mut tensors, mut file_of) = (None, Vec::new(), std::collections::HashMap::new());
    let mut first_file = "";
    for (_, _, index) in order {
        let (file, header) = headers[index].take().expect("every part has its own place");
        for info in header.tensors {
            if let Some(first) = file_of.insert(info.name.clone(), file) {
                return Err(SplitError::TensorTwice {
                    name: quoted(&info.name),
                    first: first.into(),
                    second: file.into(),
                });
            }
            tensors.push(Tensor::from_gguf(info, index));
        }
        if metadata.is_none() {
            (metadata, first_file) = (Some(header.metadata), file);
        }
    }
    let mut metadata = metadata.unwrap_or_default();
    let stated = metadata
        .opt_u64(N_TENSORS)
        .map_err(|error| SplitError::Metadata { file: first_file.into(), error })?;
    let found = tensors.len() as u64;
    if let Some(stated) = stated.filter(|stated| *stated != found) {
        return Err(SplitError::Tensors { file: first_file.into(), found, stated });
    }
    metadata.remove(|key| key.starts_with(PREFIX));
    Ok(Checkpoint::new(metadata, tensors))
}

/// Checks sorted places: each number from 0 to the count once.
fn check_numbers(order: &[(u64, u64, usize)], parts: &[(&str, Header)]) -> Result<(), SplitError> {
    let file = |index: usize| parts[index].0.to_owned();
    let Some(&(_, count, first)) = order.first() else { return Ok(()) };
    for (place, &(number, other, index)) in order.iter().enumerate() {
        if other != count {
            return Err(SplitError::Counts { first: file(first), count, second: file(index), other });
        }
        if place > 0 && order[place - 1].0 == number {
            let before = file(order[place - 1].2);
            return Err(SplitError::Twice { first: before, second: file(index), number: number + 1, count });
        }
        if number != place as u64 {
            return Err(missing(file(index), place as u64, count));
        }
    }
    if order.len() as u64 == count { Ok(()) } else { Err(missing(file(first), order.len() as u64, count)) }
}

fn missing(file: String, place: u64, count: u64) -> SplitError {
    let likely = match (part_of_name(&file), u32::try_from(place + 1)) {
        (Some((before, _, count)), Ok(number)) => {
            format!(" ({})", name_of_part(before, number, count))
        }
        _ => String::new(),
    };
    SplitError::Missing { file, count, missing: place + 1, likely }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_parts_are_read_and_made() {
        assert_eq!(part_of_name("a/b-00002-of-00003.gguf"), Some(("a/b", 2, 3)));
        assert_eq!(name_of_part("a/b", 3, 3), "a/b-00003-of-00003.gguf");
        for name in [
            "b.gguf",
            "b-2-of-3.gguf",
            "b-00004-of-00003.gguf",
            "b-00000-of-00003.gguf",
            "b-00001-of-00003.bin",
            "-of-.gguf",
            "b-0000a-of-00003.gguf",
        ] {
            assert_eq!(part_of_name(name), None, "{name}");
        }
    }
}
