//! `linerate completions`: what a shell needs to complete our command line.

use clap::CommandFactory;
use clap_complete::Shell;

use crate::arguments::Arguments;
use crate::output::say;

#[derive(Debug, clap::Args)]
pub(crate) struct CompletionsArguments {
    /// Shell
    shell: Shell,
}

/// Prints the script. It is put together in memory: whoever reads it may close the pipe.
pub(crate) fn run(arguments: &CompletionsArguments) {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut Arguments::command(), NAME, &mut script);
    say(&String::from_utf8_lossy(&script));
}

/// What the program is called by those who complete its name.
const NAME: &str = "linerate";
