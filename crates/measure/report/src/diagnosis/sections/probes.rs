//! What it takes to judge the rest: every probe with its median and the interval of that.

use crate::diagnosis::words;
use crate::document::{Block, Section, Table};
use diagnose::{Evidence, Known, Timed};
use readable::figures::{grouped, latency, size};

pub(super) fn section(evidence: &Evidence) -> Option<Section> {
    let columns =
        ["probe", "#times", "#shortest", "#median", "#from", "#to", "#p99", "#longest", "not known"];
    let mut table = Table::of("Every probe", &columns);
    for (name, known) in probes(evidence) {
        table.marked_row(matches!(known, Known::Unknown(_)), row(name, known));
    }
    let says = "Each was asked alone, again and again, in between all the others and in random order. From and to are \
                the 95 % interval of the median.";
    let blocks = vec![Block::Text(says.to_owned()), Block::Table(table)];
    Some(Section { id: "probes", title: "Appendix: every probe", blocks })
}

/// In the order of the ladder.
fn probes(evidence: &Evidence) -> Vec<(String, &Known<Timed>)> {
    let ladder = &evidence.ladder;
    let [block, physical] = [evidence.storage.block_bytes, evidence.storage.physical_block_bytes]
        .map(|bytes| size(f64::from(bytes)));
    let mut all = vec![(words::shortest(evidence).to_owned(), &ladder.nop)];
    if evidence.nbd.is_none() {
        all.insert(0, ("connect".to_owned(), &evidence.connect));
        all.extend(sized("NOP with", &ladder.nop_with_data));
        all.push(("TEST UNIT READY".to_owned(), &ladder.test_unit_ready));
    }
    all.push((format!("READ {block}, the same place"), &ladder.cached_read));
    all.extend(sized("READ, the same place,", &ladder.cached_reads));
    all.push((format!("READ {block}, new places"), &ladder.medium_read));
    all.push((format!("WRITE {physical}"), &ladder.write));
    all.extend(sized("WRITE", &ladder.writes));
    all.push((format!("WRITE {physical} with FUA"), &ladder.durable_write));
    all.push((format!("{} behind a WRITE", words::flush(evidence)), &ladder.flush));
    all.push((format!("WRITE {block} of a block of {physical}"), &ladder.short_write));
    all
}

/// The same probe with so many bytes.
fn sized<'a>(
    what: &'a str,
    probes: &'a [(u32, Known<Timed>)],
) -> impl Iterator<Item = (String, &'a Known<Timed>)> {
    probes.iter().map(move |(bytes, known)| (format!("{what} {}", size(f64::from(*bytes))), known))
}

fn row(name: String, known: &Known<Timed>) -> [String; 9] {
    let timed = match known {
        Known::Measured(timed) => timed,
        Known::Unknown(why) => {
            let [a, b, c, d, e, f, g] = [const { String::new() }; 7];
            return [name, a, b, c, d, e, f, g, why.clone()];
        }
    };
    let shortest = timed.times.0.first().map_or(0, |(ns, _)| *ns);
    let quantiles = [timed.times.quantile_ns(0.99), timed.times.max_ns()];
    let [p99, longest] = quantiles.map(|ns| latency(ns as f64 / 1e3));
    [
        name,
        grouped(timed.times.count()),
        latency(shortest as f64 / 1e3),
        latency(timed.median_us),
        latency(timed.low_us),
        latency(timed.high_us),
        p99,
        longest,
        String::new(),
    ]
}
