//! The native binary: `pagelm help` tells what it does.

fn main() -> std::process::ExitCode {
    pagelm::host::native::run(std::env::args_os().skip(1))
}
