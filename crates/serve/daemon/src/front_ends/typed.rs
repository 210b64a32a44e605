//! Command lines to be typed or copied from a terminal of 80 columns.

/// Columns of it.
const COLUMNS: usize = 80;
/// Behind the label of a system.
const INDENT: usize = 12;
/// Of a command line that continues.
const HANGING: usize = INDENT + 2;

/// The lines of one system behind its label. One that is too long continues on the next line as the shell there wants it: behind
/// `mark`. A word stays whole unless it has commas, behind which a continued line begins in the first column, so that the shell sees
/// one word.
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
        // A mark may follow it, with a blank in front.
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

/// As the shell sees it.
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
