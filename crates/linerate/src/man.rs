//! `linerate man`: the manual, a page for the program and one for each of its commands.

use std::fs;
use std::path::{Path, PathBuf};

use clap::CommandFactory;
use clap_mangen::Man;

use crate::arguments::Arguments;
use crate::failure::Failure;
use crate::output::say;

/// Prints the manual page, or writes all pages to a folder
#[derive(Debug, clap::Args)]
pub(crate) struct ManArguments {
    /// The folder, such as ~/.local/share/man/man1; made if it is not there
    #[arg(value_name = "DIR")]
    folder: Option<PathBuf>,
}

/// Runs the command.
pub(crate) fn run(arguments: &ManArguments) -> Result<(), Failure> {
    match &arguments.folder {
        Some(folder) => write_all(folder),
        None => {
            let mut page = Vec::new();
            Man::new(Arguments::command()).render(&mut page).map_err(Failure::failed)?;
            say(&String::from_utf8_lossy(&page));
            Ok(())
        }
    }
}

/// `linerate.1`, `linerate-serve.1`, `linerate-scsi-inquiry.1` and so on.
fn write_all(folder: &Path) -> Result<(), Failure> {
    let written =
        fs::create_dir_all(folder).and_then(|()| clap_mangen::generate_to(Arguments::command(), folder));
    written.map_err(|error| Failure::unwritten(folder.display(), &error))
}

#[cfg(test)]
mod tests {
    use clap::Command;

    use super::*;

    /// Every command below this one, with the words that lead to it joined by hyphens.
    fn all(command: &Command, name: &str) -> Vec<(String, Command)> {
        let below = command.get_subcommands().filter(|command| command.get_name() != "help");
        let deeper = below.flat_map(|command| all(command, &format!("{name}-{}", command.get_name())));
        std::iter::once((name.to_owned(), command.clone())).chain(deeper).collect()
    }

    #[test]
    fn every_command_has_a_page() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        write_all(folder.path()).expect("pages");
        for (name, _) in all(&Arguments::command(), "linerate") {
            let page = fs::read_to_string(folder.path().join(format!("{name}.1")));
            assert!(page.is_ok_and(|page| page.contains(".SH NAME")), "{name}.1");
        }
    }

    #[test]
    fn every_command_and_every_option_says_what_it_does() {
        for (name, command) in all(&Arguments::command(), "linerate") {
            assert!(command.get_about().is_some(), "{name}");
            for argument in command.get_arguments() {
                assert!(argument.get_help().is_some(), "{name}: {}", argument.get_id());
            }
        }
    }
}
