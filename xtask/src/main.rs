//! `cargo xtask serve` and `cargo xtask test`: everything between a fresh clone and a running page.
//!
//! Every step first looks whether its work is there, so that a second run starts in seconds.

mod package;
mod page_files;
mod process;
mod serve;
mod setup;
mod stages;

use process::{Context, Result};
use std::process::ExitCode;

const HELP: &str = "\
cargo xtask setup                       make this machine able to build and serve the page
cargo xtask build                       the same, then build the page into dist/
cargo xtask serve [--port N] [--release] the same, then serve it on http://127.0.0.1:8080
cargo xtask test  [--only STAGE,…] [FILTER…]
                                        set up what tests need, run them all, or those whose name contains a FILTER
cargo xtask test --list                 name the stages
cargo xtask package                     build the engine as an npm-style package, in target/xtask/package
cargo xtask bench [OPTION…]             measure the built page in Chromium; options and JSON are those of `pagelm bench`
cargo xtask bench reload                measure its first token after a reload, with the model in the browser's cache
cargo xtask speed                       write README's speeds from tests/speed/*.json
cargo xtask shots [FOLDER]              build the page and take pictures of every view, in target/xtask/shots
cargo xtask icons                       draw www/icons from www/icon.svg, with the page built before";

fn main() -> ExitCode {
    match run(std::env::args().skip(1).collect()) {
        Ok(code) => code,
        Err(sentence) => {
            eprintln!("xtask: {sentence}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: Vec<String>) -> Result<ExitCode> {
    let mut context = Context::new()?;
    let (command, rest) = match arguments.split_first() {
        Some((command, rest)) => (command.as_str(), rest),
        None => ("help", &[][..]),
    };
    match command {
        "setup" => {
            refuse_arguments(rest)?;
            setup::page(&mut context)?;
        }
        "build" => {
            refuse_arguments(rest)?;
            setup::page(&mut context)?;
            serve::build(&context)?;
        }
        "serve" => serve::serve(&mut context, &serve::Options::parse(rest)?)?,
        "test" => return stages::run(&mut context, &stages::Options::parse(rest)?),
        "package" => {
            refuse_arguments(rest)?;
            package::build(&mut context)?;
        }
        "bench" => stages::bench(&mut context, rest)?,
        "shots" => stages::shots(&mut context, rest)?,
        "icons" => {
            refuse_arguments(rest)?;
            stages::icons(&mut context)?;
        }
        // Trunk's hook.
        "page-files" => {
            refuse_arguments(rest)?;
            page_files::write()?;
        }
        "speed" => {
            refuse_arguments(rest)?;
            stages::speed(&context)?;
        }
        "help" | "--help" | "-h" => println!("{HELP}"),
        other => return Err(format!("there is no command `{other}`\n{HELP}")),
    }
    Ok(ExitCode::SUCCESS)
}

fn refuse_arguments(arguments: &[String]) -> Result<()> {
    match arguments.first() {
        None => Ok(()),
        Some(first) => Err(format!("this command takes no argument, found `{first}`\n{HELP}")),
    }
}
