//! `cargo xtask test`: every check as a stage. A stage that cannot run has failed; nothing is skipped in silence.

mod count;
mod list;

use crate::process::{Context, Result, describe, run_by_line, spoken};
use crate::setup;
use count::Tally;
use list::{Kind, STAGES, Stage};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

/// What `cargo xtask test` takes.
#[derive(Debug, PartialEq, Eq, Default)]
pub(crate) struct Options {
    only: Vec<String>,
    filters: Vec<String>,
    list: bool,
}

impl Options {
    /// Reads the arguments after `test`.
    pub(crate) fn parse(arguments: &[String]) -> Result<Self> {
        let mut options = Self::default();
        let mut rest = arguments.iter().map(String::as_str);
        while let Some(argument) = rest.next() {
            match argument.split_once('=').unwrap_or((argument, "")) {
                ("--list", "") => options.list = true,
                ("--only", value) => {
                    let value = if value.is_empty() { rest.next().unwrap_or_default() } else { value };
                    for name in value.split(',') {
                        if !STAGES.iter().any(|stage| stage.name == name) {
                            return Err(format!("there is no stage `{name}`; the stages are {}", names()));
                        }
                        options.only.push(name.into());
                    }
                }
                _ if argument.starts_with('-') => {
                    return Err(format!(
                        "`test` takes --only STAGE,…, --list and filters, found `{argument}`"
                    ));
                }
                _ => options.filters.push(argument.into()),
            }
        }
        Ok(options)
    }

    /// A filter names tests, so it leaves out the stages that have none.
    fn wants(&self, stage: &Stage) -> bool {
        let named = self.only.is_empty() || self.only.iter().any(|name| name == stage.name);
        let on_page = |name: &String| list::ON_PAGE.contains(&name.as_str());
        let needed = stage.name == list::PAGE_BUILD && self.only.iter().any(on_page);
        (named && (self.filters.is_empty() || stage.kind == Kind::Tests)) || needed
    }
}

fn names() -> String {
    STAGES.iter().map(|stage| stage.name).collect::<Vec<_>>().join(", ")
}

/// What became of a stage.
struct Outcome {
    stage: &'static str,
    tally: Tally,
    took: Duration,
}

/// Sets up, runs the stages, and ends with one line `N passed, N failed`.
pub(crate) fn run(context: &mut Context, options: &Options) -> Result<ExitCode> {
    if options.list {
        for stage in STAGES {
            println!("{:14}{}", stage.name, stage.what);
        }
        return Ok(ExitCode::SUCCESS);
    }
    setup::tests(context)?;
    let start = Instant::now();
    let mut outcomes = Vec::new();
    for stage in STAGES.iter().filter(|stage| options.wants(stage)) {
        println!("\n== {}: {}", stage.name, stage.what);
        let start = Instant::now();
        let tally = run_stage(context, stage, &options.filters);
        let took = start.elapsed();
        println!("== {}: {} in {}", stage.name, tally.spoken(), spoken(took));
        outcomes.push(Outcome { stage: stage.name, tally, took });
    }
    Ok(report(&outcomes, &options.filters, start.elapsed()))
}

/// Builds the page and measures it in Chromium, as the options say.
pub(crate) fn bench(context: &mut Context, options: &[String]) -> Result<()> {
    setup::tests(context)?;
    list::page_bench(context, options)?.iter_mut().try_for_each(crate::process::run)
}

/// Builds the page and takes pictures of every view.
pub(crate) fn shots(context: &mut Context, folder: &[String]) -> Result<()> {
    setup::tests(context)?;
    list::shots(context, folder)?.iter_mut().try_for_each(crate::process::run)
}

/// Draws the icons.
pub(crate) fn icons(context: &mut Context) -> Result<()> {
    setup::tests(context)?;
    crate::process::run(&mut list::icons(context)?)
}

/// Writes README's speeds from the files of measurements.
pub(crate) fn speed(context: &Context) -> Result<()> {
    crate::process::run(&mut list::speed(context))
}

fn run_stage(context: &Context, stage: &Stage, filters: &[String]) -> Tally {
    let mut tally = Tally::default();
    let commands = match (stage.commands)(context, filters) {
        Ok(commands) => commands,
        Err(sentence) => {
            tally.fail(sentence);
            return tally;
        }
    };
    for mut command in commands {
        match stage.kind {
            Kind::Check => check(&mut command, &mut tally),
            Kind::Tests => test(&mut command, &mut tally, filters),
        }
    }
    // However many commands a check takes, it counts once.
    if stage.kind == Kind::Check && tally.failures.is_empty() {
        tally.passed = 1;
    }
    tally
}

fn check(command: &mut Command, tally: &mut Tally) {
    match run_by_line(command, |_| ()) {
        Ok(true) => (),
        Ok(false) => tally.fail(format!("`{}` failed; its output is above", describe(command))),
        Err(sentence) => tally.fail(sentence),
    }
}

fn test(command: &mut Command, tally: &mut Tally, filters: &[String]) {
    let (passed, failed) = (tally.passed, tally.failures.len());
    let success = match run_by_line(command, |line| tally.read(line)) {
        Ok(success) => success,
        Err(sentence) => return tally.fail(sentence),
    };
    if !success && tally.failures.len() == failed {
        tally.fail(format!("`{}` failed before or beside its tests; its output is above", describe(command)));
    } else if success && tally.passed == passed && filters.is_empty() {
        tally.fail(format!("`{}` ran no test", describe(command)));
    }
}

fn report(outcomes: &[Outcome], filters: &[String], took: Duration) -> ExitCode {
    println!("\nStages, {} in all", spoken(took));
    for outcome in outcomes {
        println!("{:14}{:>9}   {}", outcome.stage, spoken(outcome.took), outcome.tally.spoken());
    }
    let passed: u64 = outcomes.iter().map(|outcome| outcome.tally.passed).sum();
    let failed: usize = outcomes.iter().map(|outcome| outcome.tally.failures.len()).sum();
    if failed > 0 {
        println!("\nFailed:");
    }
    for outcome in outcomes {
        for failure in &outcome.tally.failures {
            println!("  {}: {failure}", outcome.stage);
        }
    }
    let nothing = passed == 0 && failed == 0;
    if nothing {
        println!("\nNo test has a name that contains {}", filters.join(" or "));
    }
    println!("\n{passed} passed, {failed} failed");
    if failed == 0 && !nothing { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Options> {
        Options::parse(&text.split_whitespace().map(String::from).collect::<Vec<_>>())
    }

    #[test]
    fn a_stage_runs_when_it_was_asked_for() {
        let wanted = |text: &str| {
            let options = parse(text).expect("arguments");
            STAGES.iter().filter(|stage| options.wants(stage)).map(|stage| stage.name).collect::<Vec<_>>()
        };
        assert_eq!(wanted("").len(), STAGES.len());
        assert_eq!(wanted("--only fmt,clippy"), ["fmt", "clippy"]);
        assert_eq!(wanted("--only=page"), ["page-build", "page"], "the page's tests need the built page");
        assert_eq!(wanted("--only=package"), ["page-build", "package"], "and so does the package");
        assert!(!wanted("paris").contains(&"fmt"), "a filter names tests");
        assert!(wanted("paris").contains(&"page"));
    }

    #[test]
    fn unknown_arguments_are_refused() {
        assert!(parse("--only nothing").expect_err("no such stage").contains("page-build"));
        assert!(parse("--quick").is_err());
    }
}
