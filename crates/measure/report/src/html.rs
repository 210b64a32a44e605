//! Formats a report as a self-contained HTML file: it needs no network and no fonts, and uses JavaScript only
//! for tooltips.

use super::document::{Block, Document, Row, Section, Table, Tone, Verdict};
use super::markup::{Attribute, Markup};

pub(super) fn page(document: &Document) -> String {
    pages(document, &[])
}

/// Returns a page, followed by further pages in the same file.
pub(super) fn pages(document: &Document, parts: &[Document]) -> String {
    let mut page = Markup::default();
    page.verbatim("<!DOCTYPE html>\n");
    page.element("html", &[("lang", &"en")], |page| {
        page.element("head", &[], |head| self::head(document, head));
        page.line();
        page.element("body", &[], |body| {
            body.element("main", &[], |main| {
                self::main(document, "", main);
                links(parts, main);
                for (n, part) in parts.iter().enumerate() {
                    let id = format!("result-{}", n + 1);
                    main.element("article", &[("id", &id)], |article| {
                        self::main(part, &format!("{id}-"), article);
                    });
                }
            });
            body.element("script", &[], |script| {
                script.verbatim(include_str!("script.js"))
            });
        });
    });
    page.line();
    page.into_string()
}

fn head(document: &Document, head: &mut Markup) {
    head.empty("meta", &[("charset", &"utf-8")]);
    // If a bug lets markup through, this policy still blocks resources from the network.
    let policy = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'";
    head.empty(
        "meta",
        &[
            ("http-equiv", &"Content-Security-Policy"),
            ("content", &policy),
        ],
    );
    head.empty(
        "meta",
        &[
            ("name", &"viewport"),
            ("content", &"width=device-width, initial-scale=1"),
        ],
    );
    head.empty(
        "meta",
        &[("name", &"color-scheme"), ("content", &"light dark")],
    );
    head.with_text("title", &[], &document.title);
    head.element("style", &[], |style| {
        style.verbatim(include_str!("style.css"))
    });
}

/// Writes the body of a document. In links, a section is identified by `prefix` and its own name.
fn main(document: &Document, prefix: &str, main: &mut Markup) {
    main.element("header", &[], |header| {
        header.with_text("h1", &[], &document.title);
        header.with_text("p", &[("class", &"subtitle")], &document.subtitle);
    });
    main.line();
    verdict(&document.verdict, main);
    contents(&document.sections, prefix, main);
    for section in &document.sections {
        main.line();
        main.element(
            "section",
            &[("id", &format!("{prefix}{}", section.id))],
            |inside| {
                inside.with_text("h2", &[], section.title);
                section
                    .blocks
                    .iter()
                    .for_each(|block| self::block(block, inside));
            },
        );
    }
    main.line();
}

fn verdict(verdict: &Verdict, main: &mut Markup) {
    let class = match verdict.tone {
        Tone::Good => "verdict good",
        Tone::Care => "verdict care",
        Tone::Incomplete => "verdict incomplete",
        Tone::Bad => "verdict bad",
    };
    main.element("div", &[("class", &class)], |inside| {
        for lead in &verdict.lead {
            inside.element("p", &[("class", &"lead")], |paragraph| {
                paragraph.with_text("b", &[], lead.about);
                paragraph.text(" ");
                paragraph.text(&lead.says);
            });
        }
        inside.element("div", &[("class", &"headlines")], |inside| {
            for headline in &verdict.headlines {
                inside.element("div", &[("class", &"headline")], |inside| {
                    inside.with_text("span", &[("class", &"what")], &headline.what);
                    inside.with_text("span", &[("class", &"value")], &headline.value);
                    inside.with_text("span", &[("class", &"note")], &headline.note);
                });
            }
        });
        if !verdict.says.is_empty() {
            let says = format!("{} {}", verdict.tone.sign(), verdict.says);
            inside.with_text("p", &[("class", &"says")], &says);
        }
        list(&verdict.reservations, inside);
    });
}

fn contents(sections: &[Section], prefix: &str, main: &mut Markup) {
    main.element("nav", &[], |nav| {
        for section in sections {
            nav.with_text(
                "a",
                &[("href", &format!("#{prefix}{}", section.id))],
                section.title,
            );
            nav.line();
        }
    });
}

fn links(parts: &[Document], main: &mut Markup) {
    if parts.is_empty() {
        return;
    }
    main.element("nav", &[], |nav| {
        for (n, part) in parts.iter().enumerate() {
            nav.with_text("a", &[("href", &format!("#result-{}", n + 1))], &part.title);
            nav.line();
        }
    });
}

fn block(block: &Block, out: &mut Markup) {
    match block {
        Block::Heading(title) => out.with_text("h3", &[], title),
        Block::Text(text) => out.with_text("p", &[], text),
        Block::List(sentences) => list(sentences, out),
        Block::Command(command) => out.with_text("pre", &[], command),
        Block::Table(table) => self::table(table, out),
        Block::Plot(plot, says, numbers) => {
            figure(says, out, |inside| plot.draw(inside));
            numbers.iter().for_each(|numbers| self::table(numbers, out));
        }
        Block::Bars(bars, says) => figure(says, out, |inside| bars.draw(inside)),
        Block::Heat(heat, says) => figure(says, out, |inside| heat.draw(inside)),
    }
    out.line();
}

fn list(sentences: &[String], out: &mut Markup) {
    if !sentences.is_empty() {
        out.element("ul", &[], |list| {
            sentences
                .iter()
                .for_each(|sentence| list.with_text("li", &[], sentence));
        });
    }
}

fn figure(says: &str, out: &mut Markup, draw: impl FnOnce(&mut Markup)) {
    out.element("figure", &[], |figure| {
        figure.element("div", &[("class", &"scroll")], draw);
        if !says.is_empty() {
            figure.with_text("figcaption", &[], says);
        }
    });
}

fn table(table: &Table, out: &mut Markup) {
    if table.folded {
        out.element("details", &[], |details| {
            let title = if table.caption.is_empty() {
                "All numbers"
            } else {
                &table.caption
            };
            details.with_text(
                "summary",
                &[],
                &format!("{title} ({} rows)", table.rows.len()),
            );
            plain_table(table, details);
        });
        return;
    }
    if !table.caption.is_empty() {
        out.with_text("h3", &[], &table.caption);
    }
    plain_table(table, out);
}

fn plain_table(table: &Table, out: &mut Markup) {
    out.element("div", &[("class", &"scroll")], |inside| {
        inside.element("table", &[], |inside| {
            inside.element("thead", &[], |head| {
                head.element("tr", &[], |row| {
                    for column in &table.columns {
                        let class = if column.numbers { "n" } else { "t" };
                        row.with_text("th", &[("class", &class)], &column.title);
                    }
                });
            });
            inside.element("tbody", &[], |body| {
                table
                    .rows
                    .iter()
                    .for_each(|row| self::row(table, row, body));
            });
        });
    });
}

fn row(table: &Table, row: &Row, body: &mut Markup) {
    let class: &[Attribute<'_>] = if row.marked {
        &[("class", &"marked")]
    } else {
        &[]
    };
    body.element("tr", class, |inside| {
        for (cell, column) in row.cells.iter().zip(&table.columns) {
            if column.numbers {
                inside.with_text("td", &[("class", &"n")], cell);
            } else {
                inside.with_text("td", &[], cell);
            }
        }
    });
    body.line();
}
