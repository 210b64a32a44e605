//! "Did you mean": the known word nearest to a mistyped one.

/// The known word that `typed` most likely meant: at most two slips away, and fewer than the word has letters.
pub(crate) fn nearest<'a>(typed: &str, known: &[&'a str]) -> Option<&'a str> {
    let typed = typed.to_ascii_lowercase();
    let (slips, word) =
        known.iter().map(|word| (slips(&typed, word), *word)).min_by_key(|(slips, _)| *slips)?;
    (slips <= 2 && slips < word.chars().count()).then_some(word)
}

/// `; did you mean …?`, or what there is to choose from.
pub(crate) fn hint(typed: &str, known: &[&str]) -> String {
    match nearest(typed, known) {
        Some(word) => format!("; did you mean `{word}`?"),
        None => format!("; known are {}", list(known)),
    }
}

/// `a`, `b` and `c`.
pub(crate) fn list(words: &[&str]) -> String {
    let quoted: Vec<String> = words.iter().map(|word| format!("`{word}`")).collect();
    match quoted.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} and {last}", rest.join(", ")),
        _ => quoted.concat(),
    }
}

/// Letters to insert, remove or replace to come from one word to the other (Levenshtein), row by row.
fn slips(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (above, letter) in from.chars().enumerate() {
        let mut diagonal = above;
        row[0] = above + 1;
        for (column, other) in to.iter().enumerate() {
            let replaced = diagonal + usize::from(letter != *other);
            diagonal = row[column + 1];
            row[column + 1] = replaced.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[to.len()]
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
}
