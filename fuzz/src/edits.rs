//! Texts that are nearly right: a good one with some places changed, so that the fuzzer gets past the first line.

use crate::Script;

/// `good` with as many changes as the script has, or the rest of the script as it is.
pub fn edited(good: &str, script: &mut Script<'_>, words: &[&str]) -> String {
    if script.byte() >= 0xe0 {
        return String::from_utf8_lossy(script.0).into_owned();
    }
    let mut lines: Vec<String> = good.lines().map(str::to_owned).collect();
    while !script.is_over() && !lines.is_empty() && lines.len() < 1000 {
        edit(&mut lines, script, words);
    }
    lines.join("\n")
}

/// One change of one line: a word or letters instead of some of its letters, away with it, there twice, or elsewhere.
fn edit(lines: &mut Vec<String>, script: &mut Script<'_>, words: &[&str]) {
    let at = usize::from(u16::from_be_bytes([script.byte(), script.byte()])) % lines.len();
    let elsewhere = usize::from(script.byte()) % lines.len();
    match script.byte() {
        0..0xa0 => {
            let letters: Vec<char> = lines[at].chars().collect();
            let from = usize::from(script.byte()) % (letters.len() + 1);
            let to = (from + usize::from(script.byte() % 16)).min(letters.len());
            let instead = match script.byte() {
                0..0xc0 => script.pick(words).to_owned(),
                count => String::from_utf8_lossy(script.bytes(usize::from(count - 0xc0))).into_owned(),
            };
            lines[at] = letters[..from].iter().collect::<String>() + &instead;
            lines[at].extend(&letters[to..]);
        }
        0xa0..0xc0 => {
            lines.remove(at);
        }
        0xc0..0xe0 => lines.insert(elsewhere, lines[at].clone()),
        _ => lines.swap(at, elsewhere),
    }
}

/// That a mistake stands where the text has a line and a column, or just behind.
pub fn assert_in_text(text: &str, line: usize, column: usize) {
    let lines = text.split('\n').count();
    assert!((1..=lines + 1).contains(&line), "line {line} of {lines}");
    let letters = text.split('\n').nth(line - 1).map_or(0, |line| line.chars().count());
    assert!((1..=letters + 1).contains(&column), "column {column} of {letters} in line {line}");
}
