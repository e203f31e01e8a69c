//! Tells what a file is that is not GGUF, from its first bytes: most often a download that went wrong.

/// What the first bytes look like, and what would help: the two halves of a sentence.
pub(super) fn describe(start: &[u8]) -> (String, &'static str) {
    const CONVERT: &str = "choose a .gguf file, or a Hugging Face folder with .safetensors weights";
    const OUTDATED: &str = "it is older than GGUF; convert the original model again with a current llama.cpp";
    const DOWNLOAD: &str = "download the model file itself";
    const FOLDER: &str = "choose the whole folder that it belongs to, or a .gguf file";

    let text = start.trim_ascii_start();
    let found = match start {
        [] => return ("the file is empty".into(), "download it again"),
        [b'l', b'm', b'g', b'g', ..] | [b'G', b'G', b'M', b'L', ..] => {
            return ("it is a GGML file".into(), OUTDATED);
        }
        [b'f', b'm', b'g', b'g', ..] => return ("it is a GGMF file".into(), OUTDATED),
        [b't', b'j', b'g', b'g', ..] => return ("it is a GGJT file".into(), OUTDATED),
        [b'F', b'U', b'G', b'G', ..] => return ("it is a byte-swapped GGUF file".into(), CONVERT),
        [b'P', b'K', 3, 4, ..] => "it is a zip archive, perhaps a PyTorch checkpoint",
        [0x80, 2..=5, ..] => "it is a Python pickle, perhaps a PyTorch checkpoint",
        [0x1f, 0x8b, ..] => return ("it is a gzip archive".into(), "unpack it first"),
        [.., b'{'] | [_, _, _, _, _, _, _, _, b'{', ..] if start.len() >= 9 && start[6..8] == [0, 0] => {
            return ("it is a safetensors file".into(), FOLDER);
        }
        _ if text.starts_with(b"<") => return ("it is a web page".into(), DOWNLOAD),
        _ if text.starts_with(b"version https") => return ("it is a Git LFS pointer".into(), DOWNLOAD),
        _ if text.starts_with(b"{") => return ("it is JSON text".into(), FOLDER),
        _ => return (format!("it starts with \"{}\"", start[..start.len().min(4)].escape_ascii()), CONVERT),
    };
    (found.into(), CONVERT)
}

#[cfg(test)]
mod tests {
    use super::describe;

    #[test]
    fn usual_mistakes_are_named() {
        let check = |start: &[u8], found: &str, help: &str| {
            let (was_found, was_help) = describe(start);
            assert!(was_found.contains(found) && was_help.contains(help), "{was_found}; {was_help}");
        };
        check(b"", "empty", "download it again");
        check(b"GGML", "GGML", "older than GGUF");
        check(b"lmgg\x01\0\0\0", "GGML", "older than GGUF");
        check(b"tjgg\x03\0\0\0", "GGJT", "older than GGUF");
        check(b"FUGG\0\0\0\x03", "byte-swapped", "choose a .gguf file");
        check(b"PK\x03\x04\0\0\0\0", "zip archive", "Hugging Face folder");
        check(b"\x80\x02\x8a\x0a", "pickle", "Hugging Face folder");
        check(b"\x1f\x8b\x08", "gzip", "unpack");
        check(b"\x58\x12\0\0\0\0\0\0{\"__metadata__\"", "safetensors", "the whole folder");
        check(b"\n<!DOCTYPE html>", "web page", "the model file itself");
        check(b"version https://git-lfs", "Git LFS", "the model file itself");
        check(b"{\"error\":1}", "JSON", "the whole folder");
        check(b"\x7fELF\x02\x01", "\"\\x7fELF\"", "Hugging Face folder");
        check(b"GG", "\"GG\"", "Hugging Face folder");
    }
}
