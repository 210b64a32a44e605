//! The secret that a coordinator shares with its agents: from a file, from the environment, or from whoever sits at the
//! terminal, and never from the command line, where anybody who may list processes reads it.

use std::fs;
use std::io::{IsTerminal as _, Read as _, stdin};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use zeroize::Zeroizing;

use super::wire::Secret;
use crate::failure::Failure;

/// Where it may stand in the environment.
const VARIABLE: &str = "LINERATE_AGENT_SECRET";

/// A longer file holds something else.
const BYTES_MAX: u64 = 4096;

/// Finds it. `option` is what names its file on the command line.
pub(crate) fn find(file: Option<&Path>, option: &str) -> Result<Secret, Failure> {
    let (text, from) = match (file, std::env::var(VARIABLE)) {
        (Some(file), _) => (of_file(file)?, file.display().to_string()),
        (None, Ok(text)) => (Zeroizing::new(text), VARIABLE.to_owned()),
        (None, Err(_)) => (asked_for(option)?, "the terminal".to_owned()),
    };
    Secret::new(text.trim_end_matches(['\r', '\n']).as_bytes()).ok_or_else(|| {
        let least = Secret::BYTES_MIN;
        Failure::refused(format!(
            "the agents' secret from {from} is shorter than {least} bytes, and could be guessed; make one with \
             `openssl rand -hex 32`"
        ))
    })
}

fn of_file(file: &Path) -> Result<Zeroizing<String>, Failure> {
    const OTHERS: u32 = 0o077;
    let path = file.display();
    let cannot = |error| Failure::refused(format!("cannot read the agents' secret from {path}: {error}"));
    let mut open = fs::File::open(file).map_err(cannot)?;
    let mode = open.metadata().map_err(cannot)?.permissions().mode();
    if mode & OTHERS != 0 {
        let mode = mode & 0o777;
        return Err(Failure::refused(format!(
            "{path} holds the agents' secret, and its mode {mode:o} lets others use it; `chmod 600 {path}`"
        )));
    }
    let mut text = Zeroizing::new(String::new());
    open.by_ref().take(BYTES_MAX).read_to_string(&mut text).map_err(cannot)?;
    Ok(text)
}

fn asked_for(option: &str) -> Result<Zeroizing<String>, Failure> {
    if !stdin().is_terminal() {
        return Err(Failure::refused(format!(
            "the agents' secret is missing: name a file that holds it with {option}, or set {VARIABLE}"
        )));
    }
    let secret = rpassword::prompt_password("secret of the agents: ");
    secret
        .map(Zeroizing::new)
        .map_err(|error| Failure::refused(format!("cannot ask for the secret: {error}")))
}

#[cfg(test)]
mod tests {
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
