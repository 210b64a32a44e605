//! The plan of a reproduction: its beds and tests, and their format in TOML (`docs/reproduce.md`).

use backends::location::Location;
use bench::plan::{Step, Suite};
use bench::suite::wan::{self, WanPlan};
use lab::PlanError;
use lab::section::{self, Mistake, Read, Section, placed};
use published::{DOCUMENTS, Document, Row};
use report::reproduced::measured_by;
use toml::Spanned;
use toml::de::{DeTable, DeValue};
use volume::spec::hint;

/// A plan.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The document.
    pub document: &'static Document,
    /// Whether each cell is measured only once and briefly, to check the plan.
    pub is_quick: bool,
    /// The beds, in the order of the file.
    pub beds: Vec<Bed>,
    /// The tests, in the order of the file.
    pub tests: Vec<Test>,
}

/// Hosts, links and storage on which tests are carried out.
#[derive(Clone, Debug)]
pub struct Bed {
    /// The name of the bed.
    pub name: String,
    /// The bed in a sentence.
    pub about: String,
    /// The settings that were chosen so that results match the document, with their values.
    pub fitted: Vec<String>,
    /// Texts that replace `{NAME}` in programs and storage.
    names: Vec<(String, String)>,
    /// Files for programs, with their contents.
    pub files: Vec<(String, String)>,
    /// The lab. Its programs contain no `{NAME}`, except [`STATE`] and [`FILES`].
    pub lab: lab::Plan,
}

/// Numbers of a document, and their measurement.
#[derive(Clone, Debug)]
pub struct Test {
    /// The name of the test's directory.
    pub name: String,
    /// The numbers; at least one.
    pub rows: Vec<&'static Row>,
    /// The part of a suite that measures them.
    pub suite: Suite,
    /// The client of each host, in order.
    pub clients: Vec<ClientPlan>,
    /// A program with its arguments that prepares the storage, in the host of the first client; empty if there
    /// is none. `{NAME}` stands for a text of the bed.
    prepare: Vec<String>,
    /// The link whose delay grows by the round trips of the suite's cells.
    pub link: Option<String>,
    /// A remark about the published numbers; empty if there is none.
    pub note: String,
}

/// A client of a test.
#[derive(Clone, Debug)]
pub struct ClientPlan {
    /// The host on which it runs.
    pub host: String,
    /// The measured storage, in which `{NAME}` stands for a text of the bed.
    pub storage: String,
}

/// Stands for a directory for the state of a program, which is removed with the lab.
pub const STATE: &str = "{state}";
/// Stands for the directory with the [files](Bed::files) of a bed.
pub const FILES: &str = "{files}";

/// The plans of the documents, which are part of the program.
const PLANS: [(&str, &str); 5] = [
    ("000", include_str!("../plans/000.toml")),
    ("001", include_str!("../plans/001.toml")),
    ("002", include_str!("../plans/002.toml")),
    ("003", include_str!("../plans/003.toml")),
    ("004", include_str!("../plans/004.toml")),
];

/// Returns the text of the plan for a document.
///
/// # Errors
/// There is no such document. The error contains a suggestion.
pub fn of_document(number: &str) -> Result<&'static str, String> {
    let found = PLANS.iter().find(|(known, _)| *known == number);
    found.map(|(_, text)| *text).ok_or_else(|| {
        let known = PLANS.map(|(number, _)| number);
        format!(
            "there is no document `{number}`{}; the documents are {}",
            hint(number, &known),
            known.join(", ")
        )
    })
}

/// Returns the text of a plan with quick runs.
pub fn quick(text: &str) -> String {
    format!("quick = true\n{text}")
}

/// Returns the numbers of the documents for which there are plans.
pub fn documents() -> impl Iterator<Item = &'static str> {
    PLANS.into_iter().map(|(number, _)| number)
}

impl Plan {
    /// Parses a plan.
    ///
    /// # Errors
    /// Returns the first error, with its position.
    pub fn parse(text: &str) -> Result<Plan, PlanError> {
        let whole = section::document(text)?;
        let file = Section {
            at: 0..0,
            table: &whole,
        };
        read(&file).map_err(|mistake| placed(text, mistake))
    }
}

fn read(file: &Section<'_>) -> Read<Plan> {
    file.knows(&["document", "quick", "bed", "test"])?;
    let known = DOCUMENTS.map(|document| document.number);
    let number = file
        .text("document")?
        .ok_or_else(|| file.wrong("the document is missing: document = \"002\""))?;
    let document = DOCUMENTS
        .iter()
        .find(|document| document.number == number)
        .ok_or_else(|| {
            let hint = hint(number, &known);
            file.wrong_at("document", format!("there is no document `{number}`{hint}"))
        })?;
    let sections = file.tables("bed")?;
    let beds: Vec<Bed> = sections
        .iter()
        .map(|(name, section)| bed(name, section, &sections))
        .collect::<Read<_>>()?;
    if beds.is_empty() {
        return Err(file.wrong("the plan has no bed; add [bed.NAME]"));
    }
    let mut tests: Vec<Test> = Vec::new();
    for section in file.sections("test")? {
        tests.push(test(&section, number, &beds, tests.len())?);
    }
    if tests.is_empty() {
        return Err(file.wrong("the plan has no test; add [[test]]"));
    }
    let is_quick = match file.table.get("quick").map(Spanned::get_ref) {
        None => false,
        Some(DeValue::Boolean(is_quick)) => *is_quick,
        Some(_) => return Err(file.wrong_at("quick", "use true or false")),
    };
    Ok(Plan {
        document,
        is_quick,
        beds,
        tests,
    })
}

fn bed(name: &str, section: &Section<'_>, all: &[(&str, Section<'_>)]) -> Read<Bed> {
    let is_plain = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit();
    if name.is_empty() || !name.chars().all(|letter| is_plain(letter) || letter == '-') {
        let what = "the name of a bed consists of lower-case letters, digits and dashes";
        return Err(section.wrong(what));
    }
    let own: &[&str] = &["about", "like", "fitted", "names", "files"];
    section.knows(&[lab::Plan::KEYS, own].concat())?;
    let merged;
    let section = match section.text("like")? {
        None => section.clone(),
        Some(like) => {
            merged = with(section, like, all)?;
            Section {
                at: section.at.clone(),
                table: &merged,
            }
        }
    };
    let names = resolved(texts(&section, "names")?).map_err(|what| section.wrong(what))?;
    let mut files = texts(&section, "files")?;
    for (_, text) in &mut files {
        *text = replaced(text, &names).map_err(|what| section.wrong(what))?;
    }
    let fitted = section.texts("fitted")?.unwrap_or_default();
    let fitted = fitted.into_iter().map(|(at, path)| {
        let value = value_at(section.table, path).ok_or_else(|| Mistake {
            at,
            what: format!("bed {name} has no setting `{path}`"),
        })?;
        Ok(format!("{path} = {value}"))
    });
    let fitted = fitted.collect::<Read<_>>()?;
    let mut lab = lab::Plan::read(&section)?;
    for host in &mut lab.hosts {
        for word in &mut host.run {
            *word = replaced(word, &names).map_err(|what| section.wrong(what))?;
        }
    }
    Ok(Bed {
        name: name.to_owned(),
        about: section.text("about")?.unwrap_or_default().to_owned(),
        fitted,
        names,
        files,
        lab,
    })
}

/// Reads a table of texts.
fn texts(section: &Section<'_>, key: &str) -> Read<Vec<(String, String)>> {
    let Some(table) = section.section(key)? else {
        return Ok(Vec::new());
    };
    let text = |(name, value): (&Spanned<_>, &Spanned<DeValue<'_>>)| {
        let name: &std::borrow::Cow<'_, str> = name.get_ref();
        let text = value.get_ref().as_str();
        let text = text.ok_or_else(|| table.wrong_at(name, "use a string in quotes"))?;
        Ok((name.to_string(), text.to_owned()))
    };
    table.table.iter().map(text).collect()
}

/// Replaces the names that texts contain.
fn resolved(mut names: Vec<(String, String)>) -> Result<Vec<(String, String)>, String> {
    for _ in 0..names.len() {
        let known = names.clone();
        for (_, text) in &mut names {
            *text = replaced(text, &known)?;
        }
    }
    match names.iter().find(|(_, text)| text.contains('{')) {
        Some((name, _)) => Err(format!("the name `{name}` stands for itself")),
        None => Ok(names),
    }
}

/// Returns the table of a bed that is like another one except for its own keys.
fn with<'a>(section: &Section<'a>, like: &str, all: &[(&str, Section<'a>)]) -> Read<DeTable<'a>> {
    let base = all.iter().find(|(name, _)| *name == like);
    let (_, base) = base.ok_or_else(|| {
        let known: Vec<&str> = all.iter().map(|(name, _)| *name).collect();
        section.wrong_at(
            "like",
            format!("there is no bed `{like}`{}", hint(like, &known)),
        )
    })?;
    if base.table.contains_key("like") {
        return Err(section.wrong_at("like", format!("bed `{like}` is itself like another one")));
    }
    // The fitted settings of the other bed are not those of this one.
    let mut table = base.table.clone();
    table.remove("fitted");
    Ok(merged(&table, section.table))
}

fn merged<'a>(base: &DeTable<'a>, own: &DeTable<'a>) -> DeTable<'a> {
    let mut all = base.clone();
    for (key, value) in own {
        let value = match (all.remove(key.get_ref().as_ref()), value.get_ref()) {
            (Some(below), DeValue::Table(table)) => match below.get_ref() {
                DeValue::Table(base) => {
                    Spanned::new(below.span(), DeValue::Table(merged(base, table)))
                }
                _ => value.clone(),
            },
            _ => value.clone(),
        };
        all.insert(key.clone(), value);
    }
    all
}

/// Returns the text of the value at a path such as `link.wire.rate`.
fn value_at(table: &DeTable<'_>, path: &str) -> Option<String> {
    let (first, rest) = path.split_once('.').unwrap_or((path, ""));
    match (table.get(first)?.get_ref(), rest) {
        (DeValue::Table(table), rest) if !rest.is_empty() => value_at(table, rest),
        (DeValue::String(text), "") => Some(text.to_string()),
        (DeValue::Integer(number), "") => Some(number.as_str().to_owned()),
        (DeValue::Float(number), "") => Some(number.as_str().to_owned()),
        _ => None,
    }
}

/// Replaces each `{NAME}`, except [`STATE`].
fn replaced(text: &str, names: &[(String, String)]) -> Result<String, String> {
    let mut done = String::new();
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once('{') {
        let Some((name, after)) = behind.split_once('}') else {
            return Err(format!("`{text}` has a {{ without a }}"));
        };
        let known = names.iter().find(|(known, _)| known == name);
        done += before;
        match known {
            Some((_, value)) => done += value,
            None if STATE == format!("{{{name}}}") => done += STATE,
            None if FILES == format!("{{{name}}}") => done += FILES,
            None => {
                let names: Vec<&str> = names.iter().map(|(name, _)| name.as_str()).collect();
                return Err(format!(
                    "`{{{name}}}` stands for nothing{}; add it to `names`",
                    hint(name, &names)
                ));
            }
        }
        rest = after;
    }
    Ok(done + rest)
}

impl Bed {
    /// Returns the storage of a client on this bed.
    ///
    /// # Errors
    /// The storage contains a name that the bed does not define. Parsed plans have none.
    pub fn storage(&self, client: &ClientPlan) -> Result<String, String> {
        replaced(&client.storage, &self.names)
    }

    /// Returns the program that prepares a test on this bed.
    ///
    /// # Errors
    /// As for [`Bed::storage`].
    pub fn preparation(&self, test: &Test) -> Result<Vec<String>, String> {
        self.words(&test.prepare)
    }

    fn words(&self, words: &[String]) -> Result<Vec<String>, String> {
        let replaced = words.iter().map(|word| replaced(word, &self.names));
        replaced.collect()
    }
}

fn test(section: &Section<'_>, document: &str, beds: &[Bed], number: usize) -> Read<Test> {
    section.knows(&[
        "table", "column", "suite", "storage", "host", "prepare", "link", "note",
    ])?;
    let needed = |key: &'static str| {
        let missing = || section.wrong(format!("the test has no `{key}`"));
        section.text(key)?.ok_or_else(missing)
    };
    let rows = rows(section, document, needed("table")?)?;
    let name = needed("suite")?;
    let suite = suite(name).ok_or_else(|| {
        let names: Vec<&str> = bench::suite::names().chain([wan::NAME]).collect();
        section.wrong_at(
            "suite",
            format!("unknown suite `{name}`{}", hint(name, &names)),
        )
    })?;
    let suite = only(suite, &rows).ok_or_else(|| {
        section.wrong_at(
            "suite",
            format!("the suite `{name}` measures none of these numbers"),
        )
    })?;
    let storages = one_or_several(section, "storage")?;
    let hosts = match section.table.get("host") {
        Some(_) => one_or_several(section, "host")?,
        None => vec![beds[0].lab.hosts[0].name.clone()],
    };
    if hosts.len() != storages.len() {
        let what = format!(
            "specify one storage for each of the {} hosts: a client in each host measures its storage",
            hosts.len()
        );
        return Err(section.wrong_at("storage", what));
    }
    let prepare = section.words("prepare")?.unwrap_or_default();
    let link = section.text("link")?.map(str::to_owned);
    let clients: Vec<ClientPlan> = hosts
        .into_iter()
        .zip(storages)
        .map(|(host, storage)| ClientPlan { host, storage })
        .collect();
    for bed in beds {
        for client in &clients {
            check(client, &clients, bed, section)?;
        }
        bed.words(&prepare)
            .map_err(|what| section.wrong_at("prepare", what))?;
        let is_link = |link: &str| bed.lab.links.iter().any(|other| other.name == link);
        if let Some(link) = link.as_deref().filter(|link| !is_link(link)) {
            let what = format!("bed {} has no link `{link}`", bed.name);
            return Err(section.wrong_at("link", what));
        }
    }
    if link.is_none() && suite.cells().any(|cell| cell.setting.is_some()) {
        let what = "the suite changes the distance; add the `link` whose delay it changes";
        return Err(section.wrong(what));
    }
    Ok(Test {
        name: format!("{:02}-{}", number + 1, plain(&rows[0].source().table)),
        rows,
        suite,
        clients,
        prepare,
        link,
        note: section.text("note")?.unwrap_or_default().to_owned(),
    })
}

/// Checks that a client can measure its storage on a bed.
fn check(client: &ClientPlan, all: &[ClientPlan], bed: &Bed, section: &Section<'_>) -> Read<()> {
    if !bed.lab.hosts.iter().any(|host| host.name == client.host) {
        let what = format!("bed {} has no host `{}`", bed.name, client.host);
        return Err(section.wrong_at("host", what));
    }
    let storage = bed
        .storage(client)
        .map_err(|what| section.wrong_at("storage", what))?;
    if storage.starts_with(TCP) {
        return match peer(&storage) {
            Some(_) => Ok(()),
            None => Err(section.wrong_at("storage", "use tcp://ADDRESS:PORT for plain TCP")),
        };
    }
    match Location::parse(&storage) {
        Err(failure) => Err(section.wrong_at("storage", failure.to_string())),
        Ok(Location::Lun(_)) => Ok(()),
        Ok(_) if all.len() == 1 => Ok(()),
        Ok(_) => Err(section.wrong_at("storage", "several clients can share only an iSCSI LUN")),
    }
}

const TCP: &str = "tcp://";

/// Returns the address of a peer for plain TCP, if the storage is one.
pub(crate) fn peer(storage: &str) -> Option<std::net::SocketAddr> {
    storage.strip_prefix(TCP)?.parse().ok()
}

/// Reads a string, or a list of strings.
fn one_or_several(section: &Section<'_>, key: &str) -> Read<Vec<String>> {
    let value = section.table.get(key).map(Spanned::get_ref);
    let texts = match value {
        Some(DeValue::String(text)) => vec![text.to_string()],
        _ => section.words(key)?.unwrap_or_default(),
    };
    if texts.is_empty() {
        return Err(section.wrong(format!("the test has no `{key}`")));
    }
    Ok(texts)
}

/// Quantities that a suite measures.
const METRICS: [&str; 5] = [
    "throughput",
    "iops",
    "latency_avg",
    "latency_max",
    "cpu_load_client",
];

/// Returns the measurable numbers of a table, and of the columns whose name contains `column`.
fn rows(section: &Section<'_>, document: &str, table: &str) -> Read<Vec<&'static Row>> {
    let is_measured = |row: &&Row| {
        let is_tcp = row.table.starts_with("TCP Throughput");
        row.document == document
            && row.si.is_some()
            && METRICS.contains(&row.metric.as_str())
            && (row.class.is_some() || is_tcp)
    };
    let all: Vec<&'static Row> = published::rows().iter().filter(is_measured).collect();
    let of_table: Vec<&'static Row> = all
        .iter()
        .copied()
        .filter(|row| row.source().table == table)
        .collect();
    if of_table.is_empty() {
        let tables: Vec<String> = all.iter().map(|row| row.source().table).collect();
        let tables: Vec<&str> = tables.iter().map(String::as_str).collect();
        let what = format!("unknown table `{table}`{}", hint(table, &tables));
        return Err(section.wrong_at("table", what));
    }
    let Some(column) = section.text("column")? else {
        return Ok(of_table);
    };
    let is_chosen = |row: &&Row| row.source().column.contains(column);
    let rows: Vec<&'static Row> = of_table.iter().copied().filter(is_chosen).collect();
    if rows.is_empty() {
        let mut columns: Vec<String> = of_table.iter().map(|row| row.source().column).collect();
        columns.dedup();
        let what = format!(
            "the table has no column `{column}`; its columns: {}",
            columns.join("; ")
        );
        return Err(section.wrong_at("column", what));
    }
    Ok(rows)
}

fn suite(name: &str) -> Option<Suite> {
    if name != wan::NAME {
        return bench::suite::named(name);
    }
    Some(wan::suite(&WanPlan {
        link_bits_per_s: wan::LAN_BITS_PER_S,
        congestion: "cubic".to_owned(),
        quick: false,
    }))
}

/// Returns the cells of a suite that measure any of these numbers; `None` if there are none. A series over the
/// length of requests is kept as a whole, because its curve is a figure.
fn only(mut suite: Suite, rows: &[&'static Row]) -> Option<Suite> {
    let measures = |cell: &bench::plan::Cell| !measured_by(cell, rows).is_empty();
    let series: Vec<String> = suite
        .cells()
        .filter(|cell| measures(cell))
        .map(|cell| cell.series.clone())
        .collect();
    for step in &mut suite.steps {
        if let Step::Measure { cells, .. } = step {
            cells.retain(|cell| match cell.setting {
                Some(_) => measures(cell),
                None => series.contains(&cell.series),
            });
        }
    }
    let is_empty = |step: &Step| matches!(step, Step::Measure { cells, .. } if cells.is_empty());
    suite.steps.retain(|step| !is_empty(step));
    (!series.is_empty()).then_some(suite)
}

/// Returns a name for a directory.
fn plain(text: &str) -> String {
    let letter = |letter: char| {
        if letter.is_ascii_alphanumeric() {
            letter.to_ascii_lowercase()
        } else {
            '-'
        }
    };
    let dashed: String = text.chars().map(letter).take(40).collect();
    dashed.trim_matches('-').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAN: &str = r#"
document = "003"
[bed.document]
about = "modelled"
fitted = ["names.disk", "link.wire.rate"]
names = { disk = "limit:23500iops:[ram:64MiB]" }
[bed.document.host.client]
[bed.document.host.server]
run = ["linerate", "serve", "--volume", "d={disk}", "--state", "{state}"]
ready = 3260
[bed.document.link.wire]
between = ["client", "server"]
rate = "1Gbit/s"
[bed.machine]
like = "document"
names = { disk = "ram:64MiB" }
[[test]]
table = "figures 5 and 8"
suite = "iometer-sweep"
storage = "iscsi://10.77.0.2/iqn.2026-01.io.linerate:d/0"
"#;

    fn refused(change: (&str, &str)) -> String {
        let text = PLAN.replacen(change.0, change.1, 1);
        assert_ne!(text, PLAN, "{change:?}");
        let error = Plan::parse(&text).expect_err("a mistake");
        error.shown_in(&text)
    }

    #[test]
    fn every_document_has_a_sound_plan_for_all_its_measurements() {
        for number in documents() {
            let text = of_document(number).expect("a plan");
            let plan = Plan::parse(text)
                .unwrap_or_else(|error| panic!("{number}.toml:{}", error.shown_in(text)));
            assert_eq!(plan.document.number, number);
            assert!(plan.beds.len() >= 2, "{number}: a model, and the machine");
            let rows = plan.tests.iter().flat_map(|test| &test.rows);
            let mut tested: Vec<*const Row> = rows.map(|row| *row as *const Row).collect();
            let count = tested.len();
            tested.sort_unstable();
            tested.dedup();
            assert_eq!(tested.len(), count, "{number}: a number is measured twice");
            let missing: Vec<&Row> = published::rows()
                .iter()
                .filter(|row| row.document == number && row.class.is_some())
                .filter(|row| !tested.contains(&(*row as *const Row)))
                .collect();
            assert!(missing.is_empty(), "{number}: {missing:?}");
        }
    }

    #[test]
    fn every_number_of_a_plan_has_a_cell() {
        for number in documents() {
            let plan = Plan::parse(of_document(number).expect("a plan")).expect("sound");
            for test in &plan.tests {
                let measured: Vec<*const Row> = test
                    .suite
                    .cells()
                    .flat_map(|cell| measured_by(cell, &test.rows))
                    .map(|(_, row)| row as *const Row)
                    .collect();
                let has_cell = |row: &&&Row| !measured.contains(&(**row as *const Row));
                let missing: Vec<_> = test.rows.iter().filter(has_cell).collect();
                assert!(missing.is_empty(), "{number}, {}: {missing:?}", test.name);
            }
        }
    }

    /// "Fewer than one for ten cells."
    #[test]
    fn a_plan_fits_fewer_settings_than_one_for_ten_numbers() {
        for number in documents() {
            let plan = Plan::parse(of_document(number).expect("a plan")).expect("sound");
            let numbers: usize = plan.tests.iter().map(|test| test.rows.len()).sum();
            let fitted = plan.beds.iter().map(|bed| bed.fitted.len()).max();
            let fitted = fitted.unwrap_or(0);
            assert!(
                fitted * 10 <= numbers.max(10),
                "{number}: {fitted} of {numbers}"
            );
        }
    }

    #[test]
    fn a_bed_is_like_another_except_for_its_own_keys() {
        let plan = Plan::parse(PLAN).unwrap_or_else(|error| panic!("{error}"));
        let run = |bed: &Bed| bed.lab.hosts[1].run[3].clone();
        assert_eq!(run(&plan.beds[0]), "d=limit:23500iops:[ram:64MiB]");
        assert_eq!(run(&plan.beds[1]), "d=ram:64MiB");
        assert_eq!(plan.beds[0].lab.links, plan.beds[1].lab.links);
        assert_eq!(
            plan.beds[0].fitted,
            [
                "names.disk = limit:23500iops:[ram:64MiB]",
                "link.wire.rate = 1Gbit/s"
            ]
        );
        assert!(plan.beds[1].fitted.is_empty());
        let test = &plan.tests[0];
        assert_eq!((test.rows.len(), test.suite.cells().count()), (2, 12));
        assert_eq!(test.name, "01-figures-5-and-8");
    }

    #[test]
    fn mistakes_are_shown_with_their_place_and_a_remedy() {
        let said = refused(("\"003\"", "\"005\""));
        assert!(
            said.starts_with("2:12: `document`: there is no document `005`; did you mean"),
            "{said}"
        );
        assert!(
            said.ends_with("document = \"005\"\n             ^"),
            "{said}"
        );
        let said = refused(("[bed.machine]\nlike", "[bed.machine]\nlik"));
        assert!(said.starts_with("15:1: unknown key `lik`"), "{said}");
        let said = refused(("like = \"document\"", "like = \"documents\""));
        assert!(
            said.contains("there is no bed `documents`; did you mean `document`?"),
            "{said}"
        );
        let said = refused(("\"link.wire.rate\"", "\"link.wire.delay\""));
        assert!(
            said.starts_with("5:25: bed document has no setting `link.wire.delay`"),
            "{said}"
        );
        let said = refused(("d={disk}", "d={dsk}"));
        assert!(
            said.contains("`{dsk}` stands for nothing; did you mean `disk`?; add it to `names`"),
            "{said}"
        );
        let said = refused(("figures 5 and 8", "figures 5 and 9"));
        assert!(
            said.contains("unknown table `figures 5 and 9`; did you mean `figures 5 and 8`?"),
            "{said}"
        );
        let said = refused(("iometer-sweep", "vmware4"));
        assert!(
            said.contains("the suite `vmware4` measures none of these numbers"),
            "{said}"
        );
        let said = refused(("iscsi://10", "iscsy://10"));
        assert!(said.contains("`storage`: "), "{said}");
        let said = refused((
            "suite = \"iometer-sweep\"",
            "suite = \"iometer-sweep\"\nhost = \"moon\"",
        ));
        assert!(said.contains("bed document has no host `moon`"), "{said}");
        let said = refused(("rate = \"1Gbit/s\"", "rate = \"1G\""));
        assert!(
            said.starts_with("13:8: `rate`: `1G` is not a rate"),
            "{said}"
        );
        let said = refused(("suite = \"iometer", "column = \"seek\"\nsuite = \"iometer"));
        assert!(
            said.contains("the table has no column `seek`; its columns: read"),
            "{said}"
        );
    }

    #[test]
    fn an_unknown_document_is_named_with_the_known_ones() {
        let said = of_document("006").expect_err("none");
        assert!(said.starts_with("there is no document `006`"), "{said}");
        assert!(
            said.ends_with("the documents are 000, 001, 002, 003, 004"),
            "{said}"
        );
    }
}
