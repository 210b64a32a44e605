//! The secret that a coordinator shares with its agents: from a file, from the environment, or from whoever sits at the
//! terminal, and never from the command line, where anybody who may list processes reads it.

use std::path::Path;

use agent::wire::Secret;
use zeroize::Zeroizing;

use backends::{Failure, secrets};

/// Where it may stand in the environment.
const VARIABLE: &str = "LINERATE_AGENT_SECRET";

/// Finds it. `option` is what names its file on the command line.
///
/// # Errors
/// There is none, it is too short, or others than its owner may read its file.
pub fn find(file: Option<&Path>, option: &str) -> Result<Secret, Failure> {
    let (text, from) = match (file, secrets::in_environment(VARIABLE)) {
        (Some(file), _) => (of_file(file)?, file.display().to_string()),
        (None, Some(text)) => (text, VARIABLE.to_owned()),
        (None, None) => (asked_for(option)?, "the terminal".to_owned()),
    };
    Secret::new(&text).ok_or_else(|| {
        let least = Secret::BYTES_MIN;
        Failure::refused(format!(
            "the agents' secret from {from} is shorter than {least} bytes, and could be guessed; make one with \
             `openssl rand -hex 32`"
        ))
    })
}

fn of_file(file: &Path) -> Result<Zeroizing<Vec<u8>>, Failure> {
    let path = file.display();
    secrets::read(file)
        .map_err(|error| Failure::refused(format!("cannot read the agents' secret from {path}: {error}")))
}

fn asked_for(option: &str) -> Result<Zeroizing<Vec<u8>>, Failure> {
    secrets::ask("secret of the agents: ").map_err(Failure::refused)?.ok_or_else(|| {
        Failure::refused(format!(
            "the agents' secret is missing: name a file that holds it with {option}, or set {VARIABLE}"
        ))
    })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn found(text: &str, mode: u32) -> Result<Secret, Failure> {
        let file = tempfile::NamedTempFile::new().expect("a temporary file");
        fs::write(file.path(), text).expect("a temporary file");
        fs::set_permissions(file.path(), fs::Permissions::from_mode(mode)).expect("our own file");
        find(Some(file.path()), "--secret-file")
    }

    #[test]
    fn a_file_that_others_may_read_is_refused() {
        let said = found("correct horse battery\n", 0o640).expect_err("a refusal").to_string();
        assert!(said.contains("mode 640") && said.contains("chmod 600"), "{said}");
    }

    #[test]
    fn a_short_secret_is_refused_and_not_repeated() {
        let said = found("hush-hush\n", 0o600).expect_err("a refusal").to_string();
        assert!(said.contains("shorter than 16 bytes") && !said.contains("hush"), "{said}");
    }

    #[test]
    fn the_end_of_the_line_is_no_part_of_it() {
        found("0123456789abcdef\n", 0o600).expect("a secret");
        found("0123456789abcde\n", 0o600).expect_err("16 bytes with the end of the line only");
    }
}
