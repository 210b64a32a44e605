//! `linerate compare`: which differences between two results are real, for people and for whoever gates a build with it.

use std::path::PathBuf;
use std::process::ExitCode;

use ::report::compare::{Comparison, compare, listed};
use clap::Args;
use serde::Serialize;

use crate::bench::{read_result, width};
use crate::failure::{Failure, FailureKind};
use crate::output::{say, say_json};

#[derive(Debug, Args)]
pub(crate) struct CompareArguments {
    /// Baseline: a directory that `linerate bench --out` wrote, or its result.json
    #[arg(value_name = "A")]
    a: PathBuf,
    /// Result to judge
    #[arg(value_name = "B")]
    b: PathBuf,
    /// Fail only if something is worse by more than this
    #[arg(long, value_name = "PERCENT", default_value = "0", value_parser = percent)]
    fail_above: f64,
    /// Print JSON
    #[arg(long, conflicts_with = "markdown")]
    json: bool,
    /// Print Markdown, for a merge request
    #[arg(long)]
    markdown: bool,
}

/// What programs are told.
#[derive(Serialize)]
struct Told<'a> {
    a: &'a PathBuf,
    b: &'a PathBuf,
    fail_above_percent: f64,
    /// Names of the cells for which the command fails.
    worse: Vec<&'a str>,
    #[serde(flatten)]
    comparison: &'a Comparison,
}

/// Runs the command.
pub(crate) fn run(arguments: &CompareArguments) -> Result<ExitCode, Failure> {
    let (a, b) = (read_result(&arguments.a)?, read_result(&arguments.b)?);
    let comparison = compare(&a, &b);
    if comparison.cells.is_empty() {
        return Err(Failure::refused(format_args!(
            "nothing to compare: {} and {} have no cell in common (suites {} and {})",
            arguments.a.display(),
            arguments.b.display(),
            a.suite.name,
            b.suite.name
        )));
    }
    match (arguments.json, arguments.markdown) {
        (true, _) => json(arguments, &comparison)?,
        (_, true) => say(&comparison.markdown()),
        _ => say(&comparison.terminal(width())),
    }
    verdict(&comparison, arguments.fail_above)
}

fn json(arguments: &CompareArguments, comparison: &Comparison) -> Result<(), Failure> {
    let told = Told {
        a: &arguments.a,
        b: &arguments.b,
        fail_above_percent: arguments.fail_above,
        worse: comparison.worse(arguments.fail_above).map(|cell| cell.cell.as_str()).collect(),
        comparison,
    };
    say_json(&told)
}

/// Nothing judged is no success: a gate that has nothing to go by must not let everything through.
fn verdict(comparison: &Comparison, fail_above: f64) -> Result<ExitCode, Failure> {
    let worse: Vec<&str> = comparison.worse(fail_above).map(|cell| cell.cell.as_str()).collect();
    if !worse.is_empty() {
        return Err(Failure::new(FailureKind::Worse, format_args!("B is worse in {}", listed(&worse))));
    }
    if comparison.judged() == 0 {
        return Err(Failure::failed("none of the cells could be judged: too little was measured of them"));
    }
    Ok(ExitCode::SUCCESS)
}

fn percent(text: &str) -> Result<f64, String> {
    let percent = text.trim_end_matches('%').trim_end().parse::<f64>().ok();
    let possible = percent.filter(|percent| percent.is_finite() && *percent >= 0.0);
    possible.ok_or_else(|| "give a percentage of 0 or more, such as 5".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentage_may_have_its_sign() {
        assert_eq!(percent("2.5%"), Ok(2.5));
        assert_eq!(percent("0"), Ok(0.0));
        for wrong in ["-1", "five", "inf", "nan", ""] {
            assert!(percent(wrong).is_err(), "{wrong}");
        }
    }
}
