//! Words in messages: the known word nearest to a mistyped one, and words of command lines for copying into a
//! shell.

/// The known word nearest to `typed`: with an edit distance of at most two, and less than the length of the
/// word.
pub fn nearest<'a>(typed: &str, known: &[&'a str]) -> Option<&'a str> {
    let typed = typed.to_ascii_lowercase();
    let (slips, word) = known
        .iter()
        .map(|word| (strsim::levenshtein(&typed, word), *word))
        .min_by_key(|(slips, _)| *slips)?;
    (slips <= 2 && slips < word.chars().count()).then_some(word)
}

/// `; did you mean …?`, or the list of known words.
pub fn hint(typed: &str, known: &[&str]) -> String {
    match nearest(typed, known) {
        Some(word) => format!("; did you mean `{word}`?"),
        None => format!("; known are {}", list(known)),
    }
}

/// `a`, `b` and `c`.
pub fn list(words: &[&str]) -> String {
    let quoted: Vec<String> = words.iter().map(|word| format!("`{word}`")).collect();
    match quoted.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} and {last}", rest.join(", ")),
        _ => quoted.concat(),
    }
}

/// A word of a command line for a shell: quoted if it contains special characters.
pub fn shell_word(text: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "/._-+=:@%,".contains(letter);
    match !text.is_empty() && text.chars().all(is_plain) {
        true => text.to_owned(),
        false => format!("'{}'", text.replace('\'', r"'\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: &[&str] = &["block", "physical", "readonly", "size"];

    #[test]
    fn a_slip_of_the_finger_is_understood() {
        assert_eq!(nearest("blok", KNOWN), Some("block"));
        assert_eq!(nearest("ReadOnly", KNOWN), Some("readonly"));
        assert_eq!(nearest("sise", KNOWN), Some("size"));
    }

    #[test]
    fn another_word_is_not_taken_for_a_slip() {
        assert_eq!(nearest("compression", KNOWN), None);
        assert_eq!(nearest("", KNOWN), None);
        assert_eq!(hint("compression", &["a", "b", "c"]), "; known are `a`, `b` and `c`");
    }

    #[test]
    fn what_a_shell_would_read_otherwise_is_in_quotes() {
        for (text, expected) in [
            ("iscsi://san1:3260/iqn.x:a/0", "iscsi://san1:3260/iqn.x:a/0"),
            ("nbd://san1/x?timeout=5", "'nbd://san1/x?timeout=5'"),
            ("delay:1ms:[ram:1MiB]", "'delay:1ms:[ram:1MiB]'"),
            ("it's", r"'it'\''s'"),
            ("", "''"),
        ] {
            assert_eq!(shell_word(text), expected);
        }
    }
}
