//! Formats the report as Markdown: the same sections as in HTML, with numbers instead of figures.

use super::document::{Block, Document, Table};
use super::markup::is_hidden;

pub(super) fn page(document: &Document) -> String {
    let verdict = &document.verdict;
    let mut page = format!(
        "# {}\n\n{}\n",
        escaped(&document.title),
        escaped(&document.subtitle)
    );
    for lead in &verdict.lead {
        page += &format!("\n**{}** {}\n", escaped(lead.about), escaped(&lead.says));
    }
    if !verdict.says.is_empty() {
        page += &format!("\n**{} {}**\n", verdict.tone.sign(), escaped(&verdict.says));
    }
    page.push('\n');
    for headline in &verdict.headlines {
        page += &format!(
            "- {}: **{}** ({})\n",
            escaped(&headline.what),
            headline.value,
            escaped(&headline.note)
        );
    }
    if !verdict.reservations.is_empty() {
        page += "\n";
        page += &list(&verdict.reservations);
    }
    for section in &document.sections {
        page += &format!("\n## {}\n", section.title);
        section
            .blocks
            .iter()
            .map(block)
            .filter(|block| !block.is_empty())
            .for_each(|block| {
                page.push('\n');
                page.push_str(&block);
            });
    }
    page
}

fn block(block: &Block) -> String {
    match block {
        Block::Heading(title) => format!("### {}\n", escaped(title)),
        Block::Text(text) => format!("{}\n", escaped(text)),
        Block::List(sentences) => list(sentences),
        Block::Command(command) => fenced(command),
        Block::Table(table) => self::table(table),
        Block::Plot(plot, says, None) => {
            format!(
                "{}: drawn in report.html. {}\n",
                escaped(&plot.title),
                escaped(says)
            )
        }
        Block::Plot(_, says, Some(numbers)) => format!("{}\n\n{}", escaped(says), table(numbers)),
        Block::Bars(_, says) if says.is_empty() => String::new(),
        // The tables after it contain its numbers.
        Block::Heat(..) => String::new(),
        Block::Bars(_, says) => format!("{}\n", escaped(says)),
    }
}

fn list(sentences: &[String]) -> String {
    sentences
        .iter()
        .map(|sentence| format!("- {}\n", escaped(sentence)))
        .collect()
}

fn table(table: &Table) -> String {
    let mut text = String::new();
    if !table.caption.is_empty() {
        text += &format!("### {}\n\n", escaped(&table.caption));
    }
    let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
    text += &line(
        table
            .columns
            .iter()
            .map(|column| escaped(&column.title))
            .collect(),
    );
    let rule = |numbers: bool| if numbers { "---:" } else { "---" }.to_owned();
    text += &line(
        table
            .columns
            .iter()
            .map(|column| rule(column.numbers))
            .collect(),
    );
    text.extend(
        table
            .rows
            .iter()
            .map(|row| line(row.cells.iter().map(|cell| escaped(cell)).collect())),
    );
    text
}

/// Formats a code block. Its fence is longer than any sequence of backticks in the code.
fn fenced(code: &str) -> String {
    let longest = code
        .split(|letter| letter != '`')
        .map(str::len)
        .max()
        .unwrap_or(0);
    let fence = "`".repeat(longest.max(2) + 1);
    let code: String = code
        .chars()
        .map(|letter| {
            if is_hidden(letter) {
                '\u{fffd}'
            } else {
                letter
            }
        })
        .collect();
    format!("{fence}sh\n{code}\n{fence}\n")
}

/// Formats literal text: escapes Markdown syntax, and replaces line breaks by spaces.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '\n' | '\t' => out.push(' '),
            '\\' | '`' | '*' | '_' | '[' | ']' | '|' | '#' | '~' | '$' => {
                out.extend(['\\', letter])
            }
            '<' => out.push_str("&lt;"),
            '&' => out.push_str("&amp;"),
            letter if is_hidden(letter) => out.push('\u{fffd}'),
            letter => out.push(letter),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_stays_text() {
        assert_eq!(
            escaped("a|b\n<img src=x> [x](y)"),
            r"a\|b &lt;img src=x> \[x\](y)"
        );
        assert_eq!(fenced("a ``` b"), "````sh\na ``` b\n````\n");
    }
}
