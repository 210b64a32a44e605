//! Command lines that people copy from a message into a shell.

/// A word of a command line as a shell reads it: in quotes if it has letters that mean something to one.
pub fn word(text: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "/._-+=:@%,".contains(letter);
    match !text.is_empty() && text.chars().all(is_plain) {
        true => text.to_owned(),
        false => format!("'{}'", text.replace('\'', r"'\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_shell_would_read_otherwise_is_in_quotes() {
        for (text, expected) in [
            ("iscsi://san1:3260/iqn.x:a/0", "iscsi://san1:3260/iqn.x:a/0"),
            ("nbd://san1/x?timeout=5", "'nbd://san1/x?timeout=5'"),
            ("delay:1ms:[ram:1MiB]", "'delay:1ms:[ram:1MiB]'"),
            ("it's", r"'it'\''s'"),
            ("", "''"),
        ] {
            assert_eq!(word(text), expected);
        }
    }
}
