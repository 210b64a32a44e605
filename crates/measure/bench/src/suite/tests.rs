//! Tests of accepted and rejected suites, and of the document about the presets.

use super::*;
use crate::plan::{Align, Cell, Data, Distribution, Order, Pace, Percent, Rule, Span, Step};
use volume::spec::Bytes;

const HEAD: &str = "name = \"x\"\ntitle = \"X\"\nabout = \"a\"\n";
const STEP: &str = "[[step]]\nstop = { time = \"1s\" }\n";
const CELL: &str =
    "[[step.cell]]\nname = \"c\"\nblock = \"4KiB\"\ndepth = 1\nread = 100\nrandom = 0\n";

fn mistake(text: &str) -> String {
    parse(text).expect_err("a mistake").to_string()
}

/// Returns the error of a cell in which these lines replace, or follow, the default lines.
fn mistake_in_cell(lines: &str) -> String {
    let keys = |line: &str| line.split(" =").next().unwrap_or_default().to_owned();
    let said: Vec<String> = lines.lines().map(keys).collect();
    let usual = CELL.lines().filter(|line| !said.contains(&keys(line)));
    let cell: String = usual
        .chain(lines.lines())
        .map(|line| format!("{line}\n"))
        .collect();
    mistake(&format!("{HEAD}{STEP}{cell}"))
}

fn cells(lines: &str) -> Vec<Cell> {
    let suite = parse(&format!("{HEAD}{lines}")).unwrap_or_else(|error| panic!("{error}"));
    suite.cells().cloned().collect()
}

#[test]
fn what_is_no_suite_is_refused_at_its_place() {
    assert!(
        mistake("name = \"x").starts_with("line 1, column 10: the file is not valid TOML: "),
        "{}",
        mistake("name = \"x")
    );
    assert_eq!(
        mistake(""),
        "line 1, column 1: a suite requires the key `name`"
    );
    assert_eq!(
        mistake("nmae = \"x\""),
        "line 1, column 1: a suite has no key `nmae`; valid keys: `name`, `title`, `about`, `document`, \
         `assumed`, `each` and `step`"
    );
    assert_eq!(
        mistake(HEAD),
        "line 1, column 1: a suite needs at least one [[step]] with a [[step.cell]]"
    );
    let upper = HEAD.replace("\"x\"", "\"X y\"");
    assert!(
        mistake(&format!("{upper}{STEP}{CELL}"))
            .starts_with("line 1, column 8: a suite name must have")
    );
}

#[test]
fn what_is_no_step_is_refused() {
    let both = format!("{HEAD}[[step]]\npurge = true\nstop = {{ time = \"1s\" }}\n{CELL}");
    assert_eq!(
        mistake(&both),
        "line 4, column 1: a step must have exactly one of `purge`, `fill` and `cell`"
    );
    let stopless = format!("{HEAD}[[step]]\n{CELL}");
    assert_eq!(
        mistake(&stopless),
        "line 4, column 1: this step requires the key `stop`"
    );
    let ends = [
        "time = \"1s\", most = \"2s\"",
        "most = \"2s\"",
        "least = \"3s\", most = \"2s\", bytes = \"1MB\"",
    ];
    for end in ends {
        let text = format!("{HEAD}[[step]]\nstop = {{ {end} }}\n{CELL}");
        assert!(
            mistake(&text).starts_with("line 5, column 8: use either a `time`, or a `most`"),
            "{end}"
        );
    }
    let unsteady = format!("{HEAD}{STEP}steady = \"d\"\nrounds = 25\n{CELL}");
    assert!(
        mistake(&unsteady)
            .ends_with("this step has no cell with the name `d`, which `steady` names")
    );
    let backwards = format!("{HEAD}{STEP}repeats = [5, 3]\n{CELL}");
    assert!(mistake(&backwards).starts_with("line 6, column 11: `repeats`: use a number"));
}

#[test]
fn what_is_no_cell_is_refused_where_it_is_wrong() {
    assert_eq!(
        mistake_in_cell("read = 101"),
        "line 11, column 8: `read`: 101 is not from 0 to 100"
    );
    assert_eq!(
        mistake_in_cell("depth = 0"),
        "line 11, column 9: `depth`: 0 is not from 1 to 65536"
    );
    assert_eq!(
        mistake_in_cell("block = \"4kb\"").split(": ").nth(2),
        Some("unknown unit `kb`; write 4kB")
    );
    assert!(mistake_in_cell("block = \"1GiB\"").ends_with("`block`: write 512B to 64MiB"));
    assert!(mistake_in_cell("block = []").ends_with("`block`: an empty list"));
    assert!(mistake_in_cell("poisson = true").ends_with("`poisson` requires `rate`"));
    assert!(
        mistake_in_cell("name = \"c-{depht}\"")
            .ends_with("with a name that is not the key of a list")
    );
    assert!(
        mistake_in_cell("mix = [{ share = 60 }, { share = 60 }]")
            .ends_with("up to 120 %, not 100 %")
    );
    assert!(
        mistake_in_cell("distribution = { zipf = 11 }")
            .contains("zipf:1.1 (above 0, at most 10), pareto")
    );
    assert!(mistake_in_cell("depth = [1, 2]").ends_with("to the name, such as {block}"));
    assert!(
        mistake_in_cell("block = \"64MiB\"\ndepth = 65536").ends_with("4 GiB of data in total")
    );
    let many = format!(
        "name = \"c\"\nblock = [{}]\ndepth = [{}]",
        "\"4KiB\",".repeat(100),
        "1,".repeat(100)
    );
    assert!(mistake_in_cell(&many).ends_with("expand to more than 4096 cells"));
}

#[test]
fn a_list_makes_a_cell_of_each_and_the_first_changes_slowest() {
    let cells = cells(&format!(
        "[each]\nrandom = 100\n{STEP}[[step.cell]]\nname = \"{{read}}-{{block}}\"\nread = [100, 0]\nblock = [\"4KiB\", \
         \"1.5MiB\"]\ndepth = 2\n"
    ));
    let names: Vec<&str> = cells.iter().map(|cell| cell.name.as_str()).collect();
    assert_eq!(names, ["100-4KiB", "100-1536KiB", "0-4KiB", "0-1536KiB"]);
    let workload = &cells[3].roles[0].workload;
    assert_eq!(
        (workload.accesses[0].block_bytes, workload.depth),
        (1_572_864, 2)
    );
    assert_eq!(
        (workload.accesses[0].read, workload.accesses[0].random),
        (Percent::NONE, Percent::ALL)
    );
}

#[test]
fn a_role_has_what_it_does_not_say_from_its_cell() {
    let cells = cells(&format!(
        "{STEP}{CELL}block = [\"4KiB\", \"8KiB\"]\n[[step.cell.role]]\nname = \"a\"\n[[step.cell.role]]\nname = \
         \"b\"\nclient = 1\nread = 0\nblock = \"64KiB\"\n"
    )
    .replace("name = \"c\"\nblock = \"4KiB\"", "name = \"c-{block}\""));
    let blocks: Vec<Vec<u32>> = cells
        .iter()
        .map(|cell| {
            cell.roles
                .iter()
                .map(|role| role.workload.accesses[0].block_bytes)
                .collect()
        })
        .collect();
    assert_eq!(blocks, [[4096, 65_536], [8192, 65_536]]);
    assert_eq!(
        (cells[0].roles[1].client, cells[0].roles[1].workload.reads()),
        (1, false)
    );
    assert_eq!(cells[0].series, "c");
}

#[test]
fn everything_that_a_workload_can_be_can_be_said() {
    let cells = cells(&format!(
        "{STEP}[[step.cell]]\nname = \"all\"\nmix = [{{ share = 70, block = \"4KiB\" }}, {{ share = 30, block = \
         \"64KiB\", read = 0, align = \"4KiB\", burst = 8, delay = 5 }}]\nread = 100\nrandom = 50\nalign = \
         \"block\"\ndepth = 8\nrate = 1000\npoisson = true\nspan = {{ start = \"1MiB\", length = \"1GiB\" \
         }}\ndistribution = {{ hot = [90, 10] }}\ndata = \"stamped\"\ndrain-after = 500\nseed = 7\nclients = \
         2\nsessions = 3\nread-ahead = \"1MiB\"\nstop = {{ requests = 10, most = \"1min\" }}\n"
    ));
    let (cell, role) = (&cells[0], &cells[0].roles[1]);
    assert_eq!(
        (role.name.as_str(), role.client, role.sessions),
        ("client 2", 1, 3)
    );
    assert_eq!(role.read_ahead_bytes, Some(1 << 20));
    let workload = &role.workload;
    let aligns: Vec<Align> = workload
        .accesses
        .iter()
        .map(|access| access.align)
        .collect();
    assert_eq!(aligns, [Align::Block, Align::Bytes(4096)]);
    assert_eq!(
        (workload.accesses[1].burst, workload.accesses[1].delay_ms),
        (8, 5)
    );
    assert_eq!(workload.pace, Pace::Poisson { per_second: 1000.0 });
    assert_eq!(
        workload.span,
        Span {
            start_bytes: 1 << 20,
            bytes: Some(1 << 30)
        }
    );
    let share = |percent| Percent::new(percent).expect("a share");
    assert_eq!(
        workload.distribution,
        Distribution::Hot {
            requests: share(90),
            span: share(10)
        }
    );
    assert_eq!(
        (workload.data, workload.drain_after, workload.seed),
        (Data::Stamped, Some(500), 7)
    );
    assert_eq!(
        cell.stop.map(|stop| stop.rule),
        Some(Rule::Requests { requests: 10 })
    );
}

#[test]
fn the_four_patterns_are_those_of_the_published_grammar() {
    let vmware4 = named("vmware4").expect("a preset");
    let lines: Vec<(u32, u8, u8)> = vmware4
        .cells()
        .map(|cell| &cell.roles[0].workload.accesses[0])
        .map(|access| (access.block_bytes, access.read.get(), access.random.get()))
        .collect();
    assert_eq!(
        lines,
        [
            (32_768, 100, 0),
            (8192, 65, 60),
            (32_768, 50, 0),
            (8192, 70, 100)
        ]
    );
    for cell in vmware4.cells() {
        let workload = &cell.roles[0].workload;
        assert_eq!((workload.depth, workload.drain_after), (64, Some(500)));
        assert_eq!(workload.accesses[0].align, Align::Block);
        assert_eq!(workload.span.bytes, Some(8_000_000 * 512));
    }
}

#[test]
fn a_documents_suite_has_the_lengths_of_its_tables() {
    for (suite, table, series) in [
        ("dd-ladder", ("000", "Table 2"), "write"),
        ("dpmeter", ("000", "Table 3"), "read"),
        ("atto", ("001", "Super ATTO Clone pattern"), "read"),
        ("atto", ("001", "Super ATTO Clone pattern"), "write"),
    ] {
        let rows = published::rows()
            .iter()
            .filter(|row| (row.document.as_str(), row.table.as_str()) == table);
        let published: std::collections::BTreeSet<u32> =
            rows.filter_map(|row| row.block_bytes).collect();
        let suite = named(suite).expect("a preset");
        let cells = suite.cells().filter(|cell| cell.series == series);
        let measured: Vec<u32> = cells
            .map(|cell| cell.roles[0].workload.block_bytes_max())
            .collect();
        assert!(
            published.iter().eq(&measured),
            "{}: {published:?} {measured:?}",
            suite.name
        );
    }
}

#[test]
fn quick_takes_about_a_minute() {
    let quick = named("quick").expect("a preset");
    let reading = quick
        .cells()
        .filter(|cell| !cell.roles[0].workload.writes())
        .count();
    assert_eq!((reading, quick.cells().count()), (9, 15));
    // This time excludes logins and the inspection of the storage.
    assert!(
        (45.0..60.0).contains(&quick.longest_s()),
        "{}",
        quick.longest_s()
    );
}

#[test]
fn every_document_with_storage_tests_has_its_suites() {
    for document in ["000", "001", "003", "004"] {
        assert!(
            presets()
                .iter()
                .any(|suite| suite.document.as_deref() == Some(document)),
            "{document}"
        );
    }
    for suite in presets().iter().filter(|suite| suite.document.is_some()) {
        assert!(!suite.assumed.is_empty(), "{}", suite.name);
    }
}

#[test]
fn every_example_in_the_document_is_a_suite() {
    let page = include_str!("../../../../../docs/suites.md");
    let examples: Vec<&str> = page
        .split("```toml\n")
        .skip(1)
        .map(|rest| rest.split("```").next().unwrap_or_default())
        .collect();
    assert_eq!(examples.len(), 2);
    for example in examples {
        // The second example is a cell, which needs the headings of a suite and a step.
        let text = match example.starts_with("name") {
            true => example.to_owned(),
            false => format!("{HEAD}{STEP}{example}"),
        };
        parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    }
    let of_the_module = include_str!("mod.rs")
        .lines()
        .take_while(|line| line.starts_with("//!"));
    let fenced = of_the_module.map(|line| line.trim_start_matches("//!").trim_start());
    let example: Vec<&str> = fenced
        .skip_while(|line| *line != "```toml")
        .skip(1)
        .collect();
    let end = example
        .iter()
        .position(|line| *line == "```")
        .expect("its end");
    parse(&example[..end].join("\n")).expect("the module's example");
}

/// docs/suites.md is generated from the presets; `LINERATE_WRITE_DOCS=1 cargo test -p linerate-bench suite`
/// regenerates it.
#[test]
fn the_document_lists_what_the_presets_are() {
    const BEGIN: &str = "<!-- presets: made by a test of crates/measure/bench/src/suite -->\n";
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../docs/suites.md");
    let page = std::fs::read_to_string(path).expect("docs/suites.md");
    let (before, found) = page.split_once(BEGIN).expect("where the presets begin");
    let wanted: String = presets().iter().map(described).collect();
    if std::env::var_os("LINERATE_WRITE_DOCS").is_some() {
        std::fs::write(path, format!("{before}{BEGIN}{wanted}")).expect("docs/suites.md");
    } else {
        assert!(
            found == wanted,
            "docs/suites.md is stale: LINERATE_WRITE_DOCS=1 cargo test -p linerate-bench suite"
        );
    }
}

fn described(suite: &Suite) -> String {
    let mut text = format!(
        "\n## `{}`: {}\n\n{}\n\n",
        suite.name, suite.title, suite.about
    );
    let mut series: Vec<&str> = Vec::new();
    for cell in suite.cells() {
        if !series.contains(&cell.series.as_str()) {
            series.push(&cell.series);
        }
    }
    for series in series {
        let cells: Vec<&Cell> = suite.cells().filter(|cell| cell.series == series).collect();
        text += &row(series, &cells);
    }
    text += &format!("\n{}\n", ends(suite));
    text
}

fn row(series: &str, cells: &[&Cell]) -> String {
    let of = |value: fn(&crate::plan::Workload) -> Vec<String>| {
        let mut values: Vec<String> = Vec::new();
        for role in cells.iter().flat_map(|cell| &cell.roles) {
            values.extend(
                value(&role.workload)
                    .into_iter()
                    .filter(|v| !values.contains(v))
                    .collect::<Vec<_>>(),
            );
        }
        match values.as_slice() {
            [first, .., last] if values.len() > 3 => format!("{first} … {last}"),
            _ => values.join(", "),
        }
    };
    let blocks = of(|workload| {
        workload
            .accesses
            .iter()
            .map(|a| Bytes(u64::from(a.block_bytes)).to_string())
            .collect()
    });
    let depths = of(|workload| vec![workload.depth.to_string()]);
    let kinds = of(|workload| {
        workload
            .accesses
            .iter()
            .map(|a| format!("{}/{}", a.read.get(), a.random.get()))
            .collect()
    });
    let mut clients: Vec<String> = Vec::new();
    for cell in cells {
        let count = cell
            .roles
            .iter()
            .map(|role| role.client)
            .max()
            .map_or(1, |client| client + 1)
            .to_string();
        if !clients.contains(&count) {
            clients.push(count);
        }
    }
    let clients = match clients.join(", ").as_str() {
        "1" => String::new(),
        clients => format!(" ({clients} clients)"),
    };
    format!("- {series}{clients}: {blocks}; depth {depths}; {kinds}\n")
}

fn ends(suite: &Suite) -> String {
    let mut sentences: Vec<String> = Vec::new();
    for step in &suite.steps {
        let sentence = match step {
            Step::Purge => "Deallocate all blocks.".to_owned(),
            Step::Fill {
                block_bytes,
                depth,
                passes,
            } => {
                let size = Bytes(u64::from(*block_bytes));
                format!("Write the span {passes} times in order: {size}, depth {depth}.")
            }
            Step::Measure { stop, order, .. } => {
                let end = match stop.rule {
                    Rule::Time => format!("{} s", stop.max_s),
                    Rule::Confidence { percent } => {
                        format!(
                            "until the rate is known to {percent} %, {} to {} s",
                            stop.min_s, stop.max_s
                        )
                    }
                    Rule::Bytes { bytes } => format!("{}, or {} s", Bytes(bytes), stop.max_s),
                    Rule::Requests { requests } => {
                        format!("{requests} requests, or {} s", stop.max_s)
                    }
                };
                let order = match order {
                    Order::Once => "once, in this order".to_owned(),
                    Order::Interleaved {
                        repeats_min,
                        repeats_max,
                    } if repeats_min == repeats_max => {
                        format!("{repeats_min} interleaved rounds")
                    }
                    Order::Interleaved {
                        repeats_min,
                        repeats_max,
                    } => {
                        format!("{repeats_min} to {repeats_max} interleaved rounds")
                    }
                    Order::SteadyRounds {
                        tracked,
                        rounds_max,
                    } => {
                        format!("rounds until {tracked} is steady, at most {rounds_max}")
                    }
                };
                format!("Each cell: {end}; {order}.")
            }
        };
        if sentences.last() != Some(&sentence) {
            sentences.push(sentence);
        }
    }
    let longest = suite.longest_s();
    let longest = if longest < 7200.0 {
        format!("{:.0} min", longest / 60.0)
    } else {
        format!("{:.0} h", longest / 3600.0)
    };
    let prepares = suite
        .steps
        .iter()
        .any(|step| !matches!(step, Step::Measure { .. }));
    let without = if prepares {
        ", plus the time to deallocate and to write all of the storage"
    } else {
        ""
    };
    format!(
        "{} At most {longest} in total{without}.",
        sentences.join(" ")
    )
}

#[test]
fn every_preset_is_a_suite_of_its_files_name() {
    for text in FILES {
        parse(text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    }
    assert!(names().eq([
        "quick",
        "dd-ladder",
        "dpmeter",
        "vmware4",
        "vmware4-aligned",
        "atto",
        "clients",
        "iometer-sweep",
        "bonnie",
        "cern",
        "pts",
    ]));
    assert_eq!(
        named("quick").map(|suite| suite.name),
        Some("quick".to_owned())
    );
    assert_eq!(named("slow"), None);
}
