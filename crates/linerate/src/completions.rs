//! `linerate completions`: what a shell needs to complete our command line.

use std::ffi::OsStr;

use clap::builder::{PossibleValue, TypedValueParser};
use clap::{Arg, Command};
use clap_complete::Shell;

use crate::output::say;

#[derive(Debug, clap::Args)]
pub(crate) struct CompletionsArguments {
    /// Shell
    shell: Shell,
}

/// Prints the script for this command line. It is put together in memory: whoever reads it may close the pipe.
pub(crate) fn run(arguments: &CompletionsArguments, mut command: Command) {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut command, NAME, &mut script);
    say(&with_files(arguments.shell, &String::from_utf8_lossy(&script)));
}

/// What the program is called by those who complete its name.
const NAME: &str = "linerate";

/// A suite may be a file, too. bash completes files where no word fits; the others are told.
fn with_files(shell: Shell, script: &str) -> String {
    let suites = suites().join(" ");
    let words = format!(":SUITE:({suites})");
    let line = |line: &str| match shell {
        Shell::Zsh => line.replace(
            &words,
            &format!(r#":SUITE: _alternative "suites\:suite\:({suites})" "files\:file\:_files""#),
        ),
        Shell::Fish if line.contains(" -l suite ") => line.replacen(" -r -f -a ", " -r -F -a ", 1),
        _ => line.to_owned(),
    };
    script.lines().map(|text| line(text) + "\n").collect()
}

/// Reads a value by another parser, and offers shells the words that are known; the parser may take more than these.
#[derive(Clone)]
pub(crate) struct Offering<P>(pub(crate) P, pub(crate) fn() -> Vec<&'static str>);

impl<P: TypedValueParser> TypedValueParser for Offering<P> {
    type Value = P::Value;

    fn parse_ref(
        &self,
        command: &Command,
        argument: Option<&Arg>,
        value: &OsStr,
    ) -> Result<P::Value, clap::Error> {
        self.0.parse_ref(command, argument, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new((self.1)().into_iter().map(PossibleValue::new)))
    }
}

/// The names of suites.
pub(crate) fn suites() -> Vec<&'static str> {
    bench::suite::names().chain([bench::suite::wan::NAME]).collect()
}
