//! Building and serving the page with Trunk, whose settings are all in Trunk.toml.

use crate::process::{Context, Result, become_command, run, spoken};
use crate::setup;
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::process::Command;
use std::time::Instant;

/// What `cargo xtask serve` takes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Options {
    port: u16,
    release: bool,
}

impl Options {
    /// Reads the arguments after `serve`.
    pub(crate) fn parse(arguments: &[String]) -> Result<Self> {
        let mut options = Self { port: 8080, release: false };
        let mut rest = arguments.iter().map(String::as_str);
        while let Some(argument) = rest.next() {
            match argument.split_once('=').unwrap_or((argument, "")) {
                ("--release", "") => options.release = true,
                ("--port", value) => {
                    let value = if value.is_empty() { rest.next().unwrap_or_default() } else { value };
                    options.port =
                        value.parse().ok().filter(|port| *port > 0).ok_or_else(|| {
                            format!("--port takes a number from 1 to 65535, found `{value}`")
                        })?;
                }
                _ => return Err(format!("`serve` takes --port N and --release, found `{argument}`")),
            }
        }
        Ok(options)
    }
}

/// Sets up, builds and serves the page until it is ended.
pub(crate) fn serve(context: &mut Context, options: &Options) -> Result<()> {
    // Before minutes of set-up, not after them.
    check_port(options.port)?;
    setup::page(context)?;
    check_port(options.port)?;
    let mut trunk = trunk(context);
    trunk.args(["serve", "--port", &options.port.to_string()]);
    if options.release {
        trunk.arg("--release");
    }
    println!(
        "Building the page (minutes the first time), then serving it on http://127.0.0.1:{}/ until Ctrl-C",
        options.port
    );
    become_command(&mut trunk)
}

fn check_port(port: u16) -> Result<()> {
    match TcpListener::bind((Ipv4Addr::LOCALHOST, port)) {
        Ok(_) => Ok(()),
        Err(error) => Err(format!(
            "port {port} of 127.0.0.1 cannot be used ({error}): end what uses it, or choose another, `cargo xtask serve --port {}`",
            if port == u16::MAX { 8081 } else { port + 1 }
        )),
    }
}

/// Builds the page into dist/.
pub(crate) fn build(context: &Context) -> Result<()> {
    let start = Instant::now();
    run(trunk(context).arg("build"))?;
    println!("The page is in {}, built in {}", context.root.join("dist").display(), spoken(start.elapsed()));
    Ok(())
}

/// The command that builds the page into a folder of the tests' own, so that a running `serve` does not meet it.
pub(crate) fn build_for_tests(context: &Context, dist: &Path) -> Command {
    let mut command = trunk(context);
    command.arg("build").arg("--dist").arg(dist);
    command
}

fn trunk(context: &Context) -> Command {
    let mut command = context.command("trunk");
    // Trunk reads NO_COLOR as a truth value and stops at the customary "1".
    command.env_remove("NO_COLOR").env("TRUNK_SKIP_VERSION_CHECK", "true");
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_read_or_refused() {
        let parse =
            |text: &str| Options::parse(&text.split_whitespace().map(String::from).collect::<Vec<_>>());
        assert_eq!(parse(""), Ok(Options { port: 8080, release: false }));
        assert_eq!(parse("--port 9000 --release"), Ok(Options { port: 9000, release: true }));
        assert_eq!(parse("--port=9000"), Ok(Options { port: 9000, release: false }));
        for bad in ["--port", "--port 0", "--port 70000", "--port x", "--open", "9000"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_busy_port_is_named() {
        let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let port = taken.local_addr().expect("an address").port();
        assert!(check_port(port).expect_err("busy").contains(&port.to_string()));
    }
}
