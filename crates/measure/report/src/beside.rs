//! Compares measured rates with published ones of the same class, in one column of a document's table for
//! each series. All comparisons of a report use [`conditions`] and [`published::comparable`].

use bench::plan::{Cell, Distribution, Percent, Role, Workload};
use bench::record::Subject;
use published::{Conditions, Direction, Level, Load, Medium, Path, Row, Scope, Source, comparable};

use crate::summary::CellSummary;

/// A measured rate, and the published rate of the same class.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Counterpart<'a> {
    /// The cell.
    pub(crate) summary: &'a CellSummary,
    /// The client, if the rate is that of one of several clients.
    pub(crate) client: Option<&'a str>,
    /// The measured rate, in bytes per second.
    pub(crate) measured: f64,
    /// The published number.
    pub(crate) row: &'static Row,
    /// The published rate, in bytes per second.
    pub(crate) published: f64,
}

impl Counterpart<'_> {
    /// Returns the ratio of the measured rate to the published one.
    pub(crate) fn times(&self) -> f64 {
        self.measured / self.published
    }
}

/// A measured rate with its conditions.
struct Measured<'a> {
    summary: &'a CellSummary,
    client: Option<&'a str>,
    rate: f64,
    conditions: Conditions,
    /// The position among the clients of the cell with the same conditions.
    nth: usize,
}

/// Returns the counterparts in a document, in the order of the cells. The cells of a series are compared with
/// one column, so that they form one curve: the column with the most counterparts, preferably of the same
/// protocol, and among these the one with the highest rates.
pub(crate) fn counterparts<'a>(
    subject: &Subject,
    summaries: &'a [CellSummary],
    document: &str,
) -> Vec<Counterpart<'a>> {
    let measured: Vec<Measured<'a>> = summaries
        .iter()
        .filter(|summary| summary.runs > 0)
        .flat_map(|cell| of_cell(subject, cell))
        .collect();
    let mut found: Vec<(usize, Counterpart<'a>)> = Vec::new();
    let mut rest: Vec<(usize, &Measured<'a>)> = measured.iter().enumerate().collect();
    while let Some((_, first)) = rest.first() {
        let (series, others) = rest
            .iter()
            .copied()
            .partition(|(_, other)| is_one_series(first, other));
        rest = others;
        found.extend(best_column(&series, document));
    }
    found.sort_by_key(|(at, _)| *at);
    found
        .into_iter()
        .map(|(_, counterpart)| counterpart)
        .collect()
}

fn is_one_series(one: &Measured<'_>, other: &Measured<'_>) -> bool {
    let without_length = |conditions: &Conditions| Conditions {
        block_bytes: None,
        ..conditions.clone()
    };
    one.summary.cell.series == other.summary.cell.series
        && (one.client.is_some(), one.nth) == (other.client.is_some(), other.nth)
        && without_length(&one.conditions) == without_length(&other.conditions)
}

fn best_column<'a>(
    series: &[(usize, &Measured<'a>)],
    document: &str,
) -> Vec<(usize, Counterpart<'a>)> {
    let mut columns: Vec<(Source, Vec<(usize, Counterpart<'a>)>)> = Vec::new();
    for (at, measured) in series {
        let mut shares: Vec<Source> = Vec::new();
        for (row, published) in
            rates(&measured.conditions).filter(|(row, _)| row.document == document)
        {
            let source = row.source();
            // Each column of a share is another client's.
            if measured.client.is_some() {
                if !shares.contains(&source) {
                    shares.push(source.clone());
                }
                if shares.iter().position(|known| *known == source) != Some(measured.nth) {
                    continue;
                }
            }
            let Measured {
                summary,
                client,
                rate,
                ..
            } = **measured;
            let counterpart = (
                *at,
                Counterpart {
                    summary,
                    client,
                    measured: rate,
                    row,
                    published,
                },
            );
            match columns.iter_mut().find(|(known, _)| *known == source) {
                // If throughput and requests per second were published, the throughput comes first.
                Some((_, found)) if found.iter().any(|(known, _)| known == at) => {}
                Some((_, found)) => found.push(counterpart),
                None => columns.push((source, vec![counterpart])),
            }
        }
    }
    let key = |found: &[(usize, Counterpart<'_>)]| {
        let is_same = |(_, c): &(usize, Counterpart<'_>)| {
            c.row
                .class
                .as_ref()
                .is_some_and(|class| class.path == series[0].1.conditions.path)
        };
        let rates = found
            .iter()
            .map(|(_, counterpart)| counterpart.published.ln())
            .sum::<f64>();
        (found.len(), found.iter().all(is_same), rates)
    };
    let best = columns.into_iter().max_by(|(_, one), (_, other)| {
        let (one, other) = (key(one), key(other));
        (one.0, one.1)
            .cmp(&(other.0, other.1))
            .then(one.2.total_cmp(&other.2))
    });
    best.map(|(_, found)| found).unwrap_or_default()
}

/// Returns the published rates of the same class, in bytes per second.
pub(crate) fn rates(conditions: &Conditions) -> impl Iterator<Item = (&'static Row, f64)> {
    comparable(conditions).filter_map(|row| Some((row, row.rate().filter(|rate| *rate > 0.0)?)))
}

/// Returns the rate of all clients of a cell, and the rate of each of several clients.
fn of_cell<'a>(subject: &Subject, summary: &'a CellSummary) -> Vec<Measured<'a>> {
    let Some(total) = conditions(subject, &summary.cell) else {
        return Vec::new();
    };
    let of_clients = shares(&summary.cell).into_iter().filter_map(|share| {
        let client = summary.clients.get(share.role)?;
        Some(Measured {
            summary,
            client: Some(client.role.as_str()),
            rate: client.bytes_per_s,
            conditions: within(subject, &share.conditions),
            nth: share.nth,
        })
    });
    let total = Measured {
        summary,
        client: None,
        rate: summary.bytes_per_s.median,
        conditions: total,
        nth: 0,
    };
    std::iter::once(total).chain(of_clients).collect()
}

/// One of several concurrent clients.
pub(crate) struct Share {
    /// The index of its role in the cell.
    pub(crate) role: usize,
    /// Its conditions, on unknown storage.
    pub(crate) conditions: Conditions,
    /// Its position among the clients of the cell with the same conditions.
    pub(crate) nth: usize,
}

/// Returns the clients of a cell, if there are several.
pub(crate) fn shares(cell: &Cell) -> Vec<Share> {
    let Some(total) = on_unknown_storage(cell).filter(|total| total.clients > 1) else {
        return Vec::new();
    };
    let mut shares: Vec<Share> = Vec::new();
    for (at, role) in cell.roles.iter().enumerate() {
        let Some(alone) = of_role(role) else { continue };
        let conditions = Conditions {
            clients: total.clients,
            load: total.load,
            scope: Scope::Share,
            ..alone
        };
        let is_same = |other: &&Share| other.conditions == conditions;
        let nth = shares.iter().filter(is_same).count();
        shares.push(Share {
            role: at,
            conditions,
            nth,
        });
    }
    shares
}

/// Returns the conditions of a cell, or `None` if no document has such requests: several lengths, an uneven
/// distribution, or a rate that was asked for.
pub(crate) fn conditions(subject: &Subject, cell: &Cell) -> Option<Conditions> {
    on_unknown_storage(cell).map(|conditions| within(subject, &conditions))
}

/// Returns the conditions of a cell like [`conditions`], for storage that is not known.
pub(crate) fn on_unknown_storage(cell: &Cell) -> Option<Conditions> {
    let roles: Vec<Conditions> = cell.roles.iter().map(of_role).collect::<Option<_>>()?;
    let (first, others) = roles.split_first()?;
    let clients = crate::views::clients(cell);
    let of_all = if others.is_empty() {
        first.clone()
    } else if clients == roles.len() {
        together(first, others)
    } else {
        both_ways(first, others).filter(|_| clients == 1)?
    };
    Some(Conditions {
        clients: u16::try_from(clients).ok()?,
        ..of_all
    })
}

/// Returns the conditions of a role that is the only one of its cell, on unknown storage.
fn of_role(role: &Role) -> Option<Conditions> {
    // No field is omitted, so that a new one is considered here.
    let Workload {
        accesses,
        depth,
        pace,
        distribution,
        durable,
        span: _,
        data: _,
        drain_after: _,
        seed: _,
    } = &role.workload;
    let [access] = &accesses[..] else {
        return None;
    };
    let is_even = access.random == Percent::NONE || *distribution == Distribution::Uniform;
    if !is_even || pace.per_second().is_some() || access.delay_ms > 0 || !durable.is_cached() {
        return None;
    }
    let direction = match access.read {
        Percent::ALL => Direction::Read,
        Percent::NONE => Direction::Write,
        _ => Direction::Mixed,
    };
    Some(Conditions {
        path: Path::Local,
        media: &[],
        level: if role.read_ahead_bytes.is_some() {
            Level::Cached
        } else {
            Level::Direct
        },
        clients: 1,
        load: Load::Alike,
        scope: Scope::Total,
        outstanding: depth.saturating_mul(u32::from(role.sessions)),
        direction,
        read_percent: Some(access.read.get()),
        random_percent: Some(access.random.get()),
        block_bytes: Some(access.block_bytes),
    })
}

/// Returns the conditions of several clients.
fn together(first: &Conditions, others: &[Conditions]) -> Conditions {
    if others.iter().all(|other| other == first) {
        return first.clone();
    }
    let is_one = |other: &Conditions| other.direction == first.direction;
    Conditions {
        load: Load::Different,
        direction: if others.iter().all(is_one) {
            first.direction
        } else {
            Direction::Mixed
        },
        read_percent: None,
        random_percent: None,
        block_bytes: None,
        ..first.clone()
    }
}

/// Returns the conditions of a client that reads and writes concurrently, with the same requests in both
/// directions.
fn both_ways(first: &Conditions, others: &[Conditions]) -> Option<Conditions> {
    let [second] = others else { return None };
    let is_pair = matches!(
        (first.direction, second.direction),
        (Direction::Read, Direction::Write) | (Direction::Write, Direction::Read)
    );
    let both = |one: &Conditions| Conditions {
        direction: Direction::Bidirectional,
        read_percent: None,
        ..one.clone()
    };
    (is_pair && both(first) == both(second)).then(|| both(first))
}

/// Adds the path to the storage and its possible media.
fn within(subject: &Subject, conditions: &Conditions) -> Conditions {
    let (path, media) = storage(subject);
    Conditions {
        path,
        media,
        ..conditions.clone()
    }
}

/// Media of storage that is not known.
pub(crate) const ANY_MEDIUM: &[Medium] = &[Medium::Ram, Medium::Drive, Medium::Array];

/// Returns the path to the storage, and the media that it may have. The kind of storage is the list of its
/// layers and of its store: `raid0 over nbd`.
fn storage(subject: &Subject) -> (Path, &'static [Medium]) {
    let (layers, store) = subject
        .kind
        .rsplit_once(" over ")
        .unwrap_or(("", &subject.kind));
    let has = |layer: &str| layers.split(" over ").any(|name| name.starts_with(layer));
    let protocol = store
        .split_once('+')
        .map_or(store, |(protocol, _)| protocol);
    match protocol {
        "iscsi" => (Path::Iscsi, ANY_MEDIUM),
        "nbd" | "nbds" => (Path::Nbd, ANY_MEDIUM),
        "hyperscsi" => (Path::HyperScsi, ANY_MEDIUM),
        "aoe" | "rbd" => (Path::Network, ANY_MEDIUM),
        _ if subject.place.contains("://") => (Path::Network, ANY_MEDIUM),
        _ if has("raid") => (Path::Local, &[Medium::Array]),
        _ if has("disk") => (Path::Local, &[Medium::Drive]),
        "ram" => (Path::Local, &[Medium::Ram]),
        "file" | "block device" => (Path::Local, &[Medium::Drive, Medium::Array]),
        _ => (Path::Local, ANY_MEDIUM),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::summary;
    use bench::plan::Pace;
    use bench::record::Record;
    use bench::test_record::{cell, clients, record, run};

    fn subject(kind: &str) -> Subject {
        let record = record(vec![], vec![]);
        Subject {
            kind: kind.to_owned(),
            place: "place".to_owned(),
            ..record.subject
        }
    }

    /// A record of cells whose clients complete 1000 requests a second.
    fn measured(cells: Vec<Cell>) -> Record {
        let runs = cells
            .iter()
            .map(|cell| run(cell, 0, &vec![1000.0; cell.roles.len()]))
            .collect();
        record(cells, runs)
    }

    fn sources(kind: &str, cells: Vec<Cell>, document: &str) -> Vec<String> {
        let summaries = summary::of(&measured(cells));
        let found = counterparts(&subject(kind), &summaries, document);
        found
            .iter()
            .map(|found| format!("{}: {}", found.row.printed, found.row.source()))
            .collect()
    }

    #[test]
    fn a_lun_is_not_compared_with_a_local_drive() {
        let read = || vec![cell("read-256KiB", 262_144, 1)];
        assert_eq!(
            sources("iscsi", read(), "000"),
            ["34.1: document 000, Table 6, iSCSI to RAM drive"]
        );
        let local = "1265.664: document 000, Table 4, local (no iSCSI) RAM drive";
        assert_eq!(sources("ram", read(), "000"), [local]);
        let drive = "86.3: document 000, Table 7, sequential disk access";
        assert_eq!(sources("file", read(), "000"), [drive]);
        // A model of a disk is a drive, although its data is in memory.
        assert_eq!(sources("disk over ram", read(), "000"), [drive]);
        assert_eq!(sources("raid5 over disk over ram", read(), "000"), [""; 0]);
        assert_eq!(
            sources("iscsi", vec![cell("deep", 262_144, 2)], "000"),
            [""; 0]
        );
    }

    #[test]
    fn the_cells_of_a_series_are_compared_with_one_column() {
        // At 512 KiB, document 000 has no number in table 7.
        let cells = || {
            [4096, 262_144, 524_288]
                .map(|bytes| cell(&format!("read-{bytes}"), bytes, 1))
                .to_vec()
        };
        let column = "document 000, Table 4, local (no iSCSI) hard drive";
        let printed = ["9.536", "58.624", "58.880"].map(|printed| format!("{printed}: {column}"));
        assert_eq!(sources("file", cells(), "000"), printed);
    }

    #[test]
    fn clients_are_compared_one_by_one_and_together() {
        let suite = bench::suite::named("clients").expect("a built-in suite");
        let found = sources("iscsi", suite.cells().cloned().collect(), "001");
        let test_007 = ["51.955641", "17.217302", "17.424422", "17.313917"];
        let test_008 = ["9.271509", "0.638358", "4.115037", "4.518114"];
        let printed: Vec<&str> = found
            .iter()
            .filter_map(|found| found.split(':').next())
            .collect();
        let expected = [&["55.058866"], &test_007[..], &["0.696917"], &test_008[..]].concat();
        assert_eq!(printed, expected, "{found:?}");
    }

    #[test]
    fn every_suite_of_a_document_has_counterparts() {
        for (name, kind, document, count) in [
            ("dpmeter", "iscsi", "000", 8),
            ("dd-ladder", "iscsi", "000", 13),
            ("vmware4", "iscsi", "001", 4),
            ("atto", "iscsi", "001", 30),
            // Figures 4 to 9: 512 B, and 8 KiB or 64 KiB and larger.
            ("iometer-sweep", "iscsi", "003", 9 + 9 + 6),
            ("bonnie", "iscsi", "004", 2),
            ("cern", "nbd", "004", 3),
            ("cern", "file", "004", 3),
        ] {
            let suite = bench::suite::named(name).expect("a built-in suite");
            let found = sources(kind, suite.cells().cloned().collect(), document);
            assert_eq!(found.len(), count, "{name}: {found:?}");
        }
    }

    #[test]
    fn requests_that_no_document_has_are_not_compared() {
        let workload = Workload::simple(4096, 1, Percent::ALL, Percent::ALL);
        let is_comparable =
            |workload: &Workload| conditions(&subject("ram"), &clients("c", 1, workload)).is_some();
        assert!(is_comparable(&workload));
        let distribution = Distribution::Hot {
            requests: Percent::ALL,
            span: Percent::ALL,
        };
        assert!(!is_comparable(&Workload {
            distribution,
            ..workload.clone()
        }));
        let pace = Pace::Constant { per_second: 10.0 };
        assert!(
            !is_comparable(&Workload { pace, ..workload }),
            "a rate that was asked for is no result"
        );
    }

    #[test]
    fn every_protocol_is_a_network_and_layers_are_if_a_member_is() {
        for kind in [
            "iscsi",
            "nbd",
            "nbd+unix",
            "nbds",
            "hyperscsi",
            "hyperscsi+udp",
            "aoe",
            "rbd",
        ] {
            assert!(storage(&subject(kind)).0.is_network(), "{kind}");
        }
        for kind in ["file", "ram", "block device", "raid5 over file"] {
            assert!(!storage(&subject(kind)).0.is_network(), "{kind}");
        }
        let place = "raid1:iscsi://a/t/0,iscsi://b/t/0".to_owned();
        assert!(
            storage(&Subject {
                place,
                ..subject("raid1 over iscsi")
            })
            .0
            .is_network()
        );
    }
}
