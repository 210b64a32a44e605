//! Command lines to be typed or copied in a terminal of 80 columns.

/// Columns of the terminal.
const COLUMNS: usize = 80;
/// Indentation after the label of a system.
const INDENT: usize = 12;
/// Indentation of a continued command line.
const HANGING: usize = INDENT + 2;

/// The lines of one system after its label. A line that is too long is continued with `mark`, in the syntax
/// of the shell there. A word stays whole unless it contains commas. After a comma, the continuation begins
/// in the first column, so that the shell sees one word.
pub(super) fn labelled(label: &str, lines: &[String], mark: char) -> String {
    let mut text = String::new();
    for (index, line) in lines.iter().enumerate() {
        let label = if index == 0 { label } else { "" };
        text += &broken(&format!("  {label:<9} "), line, mark);
        text.push('\n');
    }
    text
}

fn broken(label: &str, line: &str, mark: char) -> String {
    let letters = |text: &str| text.chars().count();
    if letters(label) + letters(line) <= COLUMNS {
        return format!("{label}{line}");
    }
    let (mut done, mut now) = (String::new(), label.to_owned());
    let mut is_first = true;
    for word in line.split(' ') {
        let gap = if is_first { "" } else { " " };
        // A mark may follow, after a blank.
        if letters(&now) + gap.len() + letters(word) + 2 <= COLUMNS {
            now = format!("{now}{gap}{word}");
            is_first = false;
            continue;
        }
        if !is_first && (letters(word) + HANGING + 2 <= COLUMNS || !word.contains(',')) {
            done += &format!("{now} {mark}\n");
            now = format!("{:HANGING$}{word}", "");
            continue;
        }
        now += gap;
        is_first = false;
        for part in word.split_inclusive(',') {
            if letters(&now) + letters(part) + 1 > COLUMNS && now.ends_with(',') {
                done += &format!("{now}{mark}\n");
                now.clear();
            }
            now += part;
        }
    }
    done + &now
}

/// The text as the shell parses it.
#[cfg(test)]
pub(super) fn joined(text: &str) -> String {
    let hanging = format!("\n{:HANGING$}", "");
    let text =
        ['\\', '`'].iter().fold(text.to_owned(), |text, mark| text.replace(&format!("{mark}{hanging}"), ""));
    text.replace(",\\\n", ",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_copied_is_what_was_meant() {
        let long = "word-that-is-long".repeat(6);
        for line in [
            "iscsiadm -m node -T iqn.2026-01.io.linerate:vm1 -o update -n node.session.auth.authmethod -v CHAP".to_owned(),
            format!("-blockdev driver=iscsi,{}lun=7 -snapshot", "portal=[2001:db8::1]:3260,".repeat(9)),
            format!("iscsi-inq -i 'iqn.1993-08.org.debian:01:host1' {long} x"),
            long.clone(),
            format!("{long},{long},a"),
        ] {
            for mark in ['\\', '`'] {
                let text = labelled("Linux", &[line.clone(), "ls".to_owned()], mark);
                let text = text.replace(",`\n", ",\\\n");
                assert_eq!(joined(&text), format!("  Linux     {line}\n            ls\n"), "{text}");
                let is_short = |line: &str| line.chars().count() <= COLUMNS || line.contains("word-that");
                assert!(text.lines().all(is_short), "{text}");
            }
        }
    }
}
