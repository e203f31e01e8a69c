//! Starting other programs: each child sees the toolchain this project builds with, and nothing of xtask's own cargo run.

use std::ffi::OsStr;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// An error is one sentence for the person at the terminal.
pub(crate) type Result<T> = std::result::Result<T, String>;

/// Where the project is, and how its children are started.
pub(crate) struct Context {
    /// The repository's root.
    pub(crate) root: PathBuf,
    /// The rustup toolchain that children use; the active one where absent.
    pub(crate) toolchain: Option<String>,
    /// `CARGO_HOME/bin`, where `cargo install` puts programs.
    cargo_bin: Option<PathBuf>,
}

impl Context {
    /// The project that this xtask was built from.
    pub(crate) fn new() -> Result<Self> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"))
            .parent()
            .ok_or("xtask's folder has no parent; clone the repository again")?
            .to_path_buf();
        let cargo_home = std::env::var_os("CARGO_HOME")
            .map(PathBuf::from)
            .or_else(|| std::env::home_dir().map(|home| home.join(".cargo")));
        Ok(Self { root, toolchain: None, cargo_bin: cargo_home.map(|home| home.join("bin")) })
    }

    /// Cargo's target folder.
    pub(crate) fn target(&self) -> PathBuf {
        match std::env::var_os("CARGO_TARGET_DIR") {
            Some(folder) => self.root.join(folder),
            None => self.root.join("target"),
        }
    }

    /// The folder for what xtask itself writes.
    pub(crate) fn scratch(&self) -> Result<PathBuf> {
        let folder = self.target().join("xtask");
        std::fs::create_dir_all(&folder)
            .map_err(|error| format!("cannot make {}: {error}", folder.display()))?;
        Ok(folder)
    }

    /// A command in the project's root, without the variables that `cargo run` gave xtask.
    pub(crate) fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command.current_dir(&self.root).stdin(Stdio::null());
        for (name, _) in std::env::vars_os() {
            let text = name.to_string_lossy();
            let from_cargo_run =
                ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_", "CARGO_CRATE_", "CARGO_PRIMARY_"]
                    .iter()
                    .any(|prefix| text.starts_with(prefix));
            if from_cargo_run || text == "CARGO" {
                command.env_remove(&name);
            }
        }
        if let Some(toolchain) = &self.toolchain {
            command.env("RUSTUP_TOOLCHAIN", toolchain);
        }
        if let Some(bin) = &self.cargo_bin {
            let path = std::env::var_os("PATH").unwrap_or_default();
            if !std::env::split_paths(&path).any(|folder| &folder == bin)
                && let Ok(joined) = std::env::join_paths(std::env::split_paths(&path).chain([bin.clone()]))
            {
                command.env("PATH", joined);
            }
        }
        command
    }

    /// `cargo`, of the project's toolchain.
    pub(crate) fn cargo<'a>(&self, arguments: impl IntoIterator<Item = &'a str>) -> Command {
        let mut command = self.command("cargo");
        command.args(arguments);
        command
    }

    /// A program's path, if `PATH` or cargo's folder has it.
    pub(crate) fn find(&self, program: &str) -> Option<PathBuf> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let file = format!("{program}{}", std::env::consts::EXE_SUFFIX);
        std::env::split_paths(&path)
            .chain(self.cargo_bin.clone())
            .map(|folder| folder.join(&file))
            .find(|candidate| candidate.is_file())
    }
}

/// A command as a person would type it.
pub(crate) fn describe(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

/// Runs a command to its end, its output on the terminal.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    println!("   $ {}", describe(command));
    let status = command.status().map_err(|error| not_started(command, &error))?;
    if status.success() {
        Ok(())
    } else {
        Err(format!("`{}` failed ({status}); its output is above", describe(command)))
    }
}

/// Becomes the command, so that whoever ends xtask ends it. Returns only if that failed, or where a process cannot change.
pub(crate) fn become_command(command: &mut Command) -> Result<()> {
    #[cfg(unix)]
    {
        use std::os::unix::process::CommandExt as _;
        println!("   $ {}", describe(command));
        let error = command.exec();
        Err(not_started(command, &error))
    }
    #[cfg(not(unix))]
    run(command)
}

/// Runs a command and returns what it printed on stdout; its stderr joins the error.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let output = command.output().map_err(|error| not_started(command, &error))?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        let said = String::from_utf8_lossy(&output.stderr);
        Err(format!("`{}` failed ({}): {}", describe(command), output.status, said.trim()))
    }
}

/// Runs a command, passing each line of its stdout on to the terminal and to `line`. True if it succeeded.
pub(crate) fn run_by_line(command: &mut Command, mut line: impl FnMut(&str)) -> Result<bool> {
    println!("   $ {}", describe(command));
    let mut child = command.stdout(Stdio::piped()).spawn().map_err(|error| not_started(command, &error))?;
    let stdout = child.stdout.take().ok_or("a child's stdout was not piped")?;
    for bytes in BufReader::new(stdout).split(b'\n') {
        let bytes = bytes.map_err(|error| format!("cannot read from `{}`: {error}", describe(command)))?;
        let text = String::from_utf8_lossy(&bytes);
        println!("{text}");
        line(&text);
    }
    let status = child.wait().map_err(|error| format!("lost `{}`: {error}", describe(command)))?;
    Ok(status.success())
}

/// Runs a command that may hang on a dead network; false if it failed or was ended after `limit`.
pub(crate) fn run_within(command: &mut Command, limit: Duration) -> Result<bool> {
    println!("   $ {}", describe(command));
    let mut child = command.spawn().map_err(|error| not_started(command, &error))?;
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait().map_err(|error| error.to_string())? {
            return Ok(status.success());
        }
        if start.elapsed() > limit {
            println!("   no answer within {} s; ended", limit.as_secs());
            child.kill().map_err(|error| error.to_string())?;
            child.wait().map_err(|error| error.to_string())?;
            return Ok(false);
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn not_started(command: &Command, error: &std::io::Error) -> String {
    format!("cannot start `{}`: {error}", describe(command))
}

/// A folder that is removed when it goes out of scope.
pub(crate) struct TemporaryFolder(PathBuf);

impl TemporaryFolder {
    /// An empty folder `name` for this process, inside `parent`.
    pub(crate) fn new(parent: &Path, name: &str) -> Result<Self> {
        let folder = parent.join(format!("{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder)
            .map_err(|error| format!("cannot make {}: {error}", folder.display()))?;
        Ok(Self(folder))
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TemporaryFolder {
    fn drop(&mut self) {
        // Left-overs of a temporary folder harm nobody.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A duration as a person reads it.
pub(crate) fn spoken(duration: Duration) -> String {
    let seconds = duration.as_secs_f64();
    if seconds < 60.0 { format!("{seconds:.1} s") } else { format!("{:.1} min", seconds / 60.0) }
}
