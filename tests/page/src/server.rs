//! A static file server as plain hosting is: byte ranges, a folder's index.html, and 404 for what is not there.

use std::collections::BTreeMap;
use std::io::{BufReader, Read as _, Seek as _, SeekFrom, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, UNIX_EPOCH};

/// Serves a folder below a path, until the process ends.
pub struct Server {
    address: SocketAddr,
    base: &'static str,
    noted: Arc<Mutex<Noted>>,
}

/// What was asked for.
#[derive(Default)]
struct Noted {
    missing: Vec<String>,
    /// Bytes that were sent of each path.
    sent: BTreeMap<String, u64>,
    /// Browsers may keep models.
    keeps_models: bool,
    mood: Mood,
}

/// How the server treats models, or everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mood {
    /// As it should.
    #[default]
    Fair,
    /// It breaks every connection off once so many bytes of models were sent in all.
    BreaksOff(u64),
    /// It sends whole files, whatever part is asked for.
    IgnoresRanges,
    /// It says that files are longer than they are.
    Lies,
    /// One byte in the middle of each file is another.
    SendsAWrongByte,
    /// It answers nothing at all, models or not.
    Gone,
}

/// Where the tiny models are, below the page.
const FIXTURES: &str = "fixtures/";

impl Server {
    /// Serves `folder` at `base`, which starts and ends with a slash, on a free port of 127.0.0.1.
    pub fn start(folder: &Path, base: &'static str) -> std::io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        let noted = Arc::new(Mutex::new(Noted::default()));
        let (folder, shared) = (folder.to_path_buf(), noted.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (folder, noted) = (folder.clone(), shared.clone());
                // A browser that closes a connection early is no failure of the server.
                std::thread::spawn(move || answer_all(stream, &folder, base, &noted).unwrap_or_default());
            }
        });
        Ok(Self { address, base, noted })
    }

    /// Where the folder's index.html is.
    pub fn url(&self) -> String {
        format!("http://{}{}", self.address, self.base)
    }

    /// The requested paths that were not there; a page that works asks for none.
    pub fn missing(&self) -> Vec<String> {
        lock(&self.noted).missing.clone()
    }

    /// Bytes that were sent of all paths with this in them.
    pub fn sent_bytes(&self, part: &str) -> u64 {
        lock(&self.noted)
            .sent
            .iter()
            .filter(|(path, _)| path.contains(part))
            .map(|(_, n_bytes)| n_bytes)
            .sum()
    }

    /// Lets browsers keep models in their cache, as a host with long-lived files does.
    pub fn keep_models(&self) {
        lock(&self.noted).keeps_models = true;
    }

    /// Treats models otherwise from now on.
    pub fn set_mood(&self, mood: Mood) {
        lock(&self.noted).mood = mood;
    }

    /// The same page under another origin.
    pub fn url_of_another_origin(&self) -> String {
        format!("http://localhost:{}{}", self.address.port(), self.base)
    }
}

/// What a request asks for.
struct Asked {
    head_only: bool,
    path: String,
    range: Option<String>,
}

/// Answers the requests of one connection until the browser closes it.
fn answer_all(stream: TcpStream, folder: &Path, base: &str, noted: &Mutex<Noted>) -> std::io::Result<()> {
    stream.set_read_timeout(Some(Duration::from_secs(60)))?;
    let mut reader = BufReader::new(stream.try_clone()?);
    while let Some(asked) = read_request(&mut reader)? {
        if lock(noted).mood == Mood::Gone {
            return Ok(());
        }
        let file = locate(&asked.path, folder, base);
        if file.is_none() {
            lock(noted).missing.push(asked.path.clone());
        }
        match file {
            Some(file) => {
                let is_model = file.extension().is_some_and(|name| name == "gguf");
                let (keep, mood) = {
                    let noted = lock(noted);
                    (is_model && noted.keeps_models, if is_model { noted.mood } else { Mood::Fair })
                };
                if let Mood::BreaksOff(most) = mood
                    && lock(noted).sent.get(&asked.path).is_some_and(|n_bytes| *n_bytes >= most)
                {
                    return Ok(());
                }
                let n_bytes = send_file(&stream, &file, &asked, keep, mood)?;
                *lock(noted).sent.entry(asked.path).or_default() += n_bytes;
            }
            None => write!(&stream, "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")?,
        }
    }
    Ok(())
}

fn lock(noted: &Mutex<Noted>) -> MutexGuard<'_, Noted> {
    noted.lock().unwrap_or_else(PoisonError::into_inner)
}

fn read_request(reader: &mut impl std::io::BufRead) -> std::io::Result<Option<Asked>> {
    let mut line = String::new();
    if reader.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let mut words = line.split_whitespace();
    let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let path = target.split(['?', '#']).next().unwrap_or_default().to_string();
    let mut asked = Asked { head_only: method == "HEAD", path, range: None };
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 || line.trim().is_empty() {
            return Ok(Some(asked));
        }
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("range")
        {
            asked.range = Some(value.trim().to_string());
        }
    }
}

/// The file of a URL's path: below the base, inside the folder, and there.
fn locate(path: &str, folder: &Path, base: &str) -> Option<PathBuf> {
    let relative = Path::new(path.strip_prefix(base)?);
    if !relative.components().all(|part| matches!(part, Component::Normal(_))) {
        return None;
    }
    let file = match relative.strip_prefix(FIXTURES) {
        Ok(fixture) => Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures").join(fixture),
        Err(_) => folder.join(relative),
    };
    let file = if file.is_dir() { file.join("index.html") } else { file };
    file.is_file().then_some(file)
}

/// Sends what was asked for of a file, and tells how many bytes that were.
fn send_file(
    mut stream: &TcpStream,
    path: &Path,
    asked: &Asked,
    keep: bool,
    mood: Mood,
) -> std::io::Result<u64> {
    let mut file = std::fs::File::open(path)?;
    let n_bytes = file.metadata()?.len();
    let told_bytes = if mood == Mood::Lies { n_bytes + 1_000_000 } else { n_bytes };
    let caching = if keep {
        // Parts of a file are kept by browsers only with a name of its version.
        let changed = file.metadata()?.modified()?.duration_since(UNIX_EPOCH).unwrap_or_default();
        format!("max-age=86400\r\nETag: \"{n_bytes}-{}\"", changed.as_secs())
    } else {
        "no-cache".into()
    };
    let range = asked.range.as_deref().filter(|_| mood != Mood::IgnoresRanges);
    let range = range.and_then(|range| parse_range(range, n_bytes));
    let (start, end) = range.unwrap_or((0, n_bytes));
    let status = match range {
        Some(_) => format!("206 Partial Content\r\nContent-Range: bytes {start}-{}/{told_bytes}", end - 1),
        None => "200 OK".into(),
    };
    write!(
        stream,
        "HTTP/1.1 {status}\r\nContent-Type: {}\r\nContent-Length: {}\r\nAccept-Ranges: bytes\r\nCache-Control: {caching}\r\n\r\n",
        content_type(path),
        end - start
    )?;
    if asked.head_only {
        return stream.flush().map(|()| 0);
    }
    let wrong =
        (mood == Mood::SendsAWrongByte).then_some(n_bytes / 2).filter(|place| (start..end).contains(place));
    file.seek(SeekFrom::Start(start))?;
    std::io::copy(&mut (&file).take(wrong.unwrap_or(end) - start), &mut stream)?;
    if let Some(place) = wrong {
        let mut byte = [0];
        file.read_exact(&mut byte)?;
        stream.write_all(&[!byte[0]])?;
        std::io::copy(&mut (&file).take(end - place - 1), &mut stream)?;
    }
    stream.flush()?;
    Ok(end - start)
}

/// A single byte range as (start, end), the end excluded; what cannot be met is answered with the whole file.
fn parse_range(range: &str, n_bytes: u64) -> Option<(u64, u64)> {
    let (first, last) = range.strip_prefix("bytes=")?.split_once('-')?;
    let (start, end) = match (first.parse::<u64>(), last.parse::<u64>()) {
        (Ok(first), Ok(last)) => (first, last.saturating_add(1).min(n_bytes)),
        (Ok(first), Err(_)) if last.is_empty() => (first, n_bytes),
        (Err(_), Ok(length)) if first.is_empty() => (n_bytes.saturating_sub(length), n_bytes),
        _ => return None,
    };
    (start < end).then_some((start, end))
}

fn content_type(path: &Path) -> &'static str {
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("html") => "text/html; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("wasm") => "application/wasm",
        Some("json") => "application/json",
        Some("webmanifest") => "application/manifest+json",
        Some("png") => "image/png",
        Some("svg") => "image/svg+xml",
        _ => "application/octet-stream",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_cut_to_the_file() {
        let check = |range: &str, wanted| assert_eq!(parse_range(range, 100), wanted, "{range}");
        check("bytes=0-9", Some((0, 10)));
        check("bytes=90-", Some((90, 100)));
        check("bytes=90-200", Some((90, 100)));
        check("bytes=-10", Some((90, 100)));
        check("bytes=100-", None);
        check("bytes=9-3", None);
        check("items=0-9", None);
    }

    #[test]
    fn nothing_outside_the_folder_is_served() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
        assert!(locate("/a/b/Cargo.toml", folder, "/a/b/").is_some());
        for path in ["/a/b/../Cargo.toml", "/Cargo.toml", "/a/b//etc/passwd", "/a/b/missing", "/a/b/"] {
            assert_eq!(locate(path, folder, "/a/b/"), None, "{path}");
        }
    }
}
