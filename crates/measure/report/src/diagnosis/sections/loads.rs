//! What each load came to, beside every limit by itself, and where its requests spent their time.

use crate::chart::{Axis, Bar, Bars, Group, Scale};
use crate::diagnosis::gain::{confirmed, interval, percent, rate, with_unit};
use crate::diagnosis::words;
use crate::document::{Block, Section, Table};
use diagnose::{Diagnosis, Explained, LoadRun, Parts};
use model::Term;
use readable::figures::{grouped, latency, latency_tick, megabytes, short, significant};

pub(super) fn section(diagnosis: &Diagnosis) -> Option<Section> {
    let runs = &diagnosis.evidence.loads;
    if runs.is_empty() {
        return None;
    }
    let limits = "A limit is what the load would come to if nothing but this limited it; the shortest binds. A load that \
                  stays below all of them is not explained.";
    let nbd = diagnosis.evidence.nbd.is_some();
    let times = match nbd {
        false => {
            "Means, from when the program wanted to send a request until its last answer. What lies before \"the way and \
             the target\" is waiting on this side."
        }
        true => "Means, from when the program wanted to send a request until its answer.",
    };
    let mut blocks = vec![Block::Table(results(diagnosis))];
    if diagnosis.explained.iter().any(|explained| !explained.terms.is_empty()) {
        blocks.push(Block::Bars(bars(diagnosis), limits.to_owned()));
    }
    blocks.push(Block::Bars(parts(runs, nbd), times.to_owned()));
    blocks.extend(Some(beside(runs)).filter(|table| !table.rows.is_empty()).map(Block::Table));
    blocks.push(Block::Table(behaviour(runs, nbd)));
    blocks.push(Block::Table(cpu(runs, nbd)));
    Some(Section { id: "loads", title: "Loads and their limits", blocks })
}

fn results(diagnosis: &Diagnosis) -> Table {
    let columns =
        ["load", "#MB/s", "#± %", "#IOPS", "#p50", "#p99", "#by the model", "tightest limits in MB/s"];
    let mut table = Table::of("", &columns);
    for (index, run) in diagnosis.evidence.loads.iter().enumerate() {
        let explained = diagnosis.explained.get(index);
        let marked = diagnosis.findings.iter().any(|finding| finding.load == index) || run.errors > 0;
        table.marked_row(marked, result(run, explained));
    }
    table
}

fn result(run: &LoadRun, explained: Option<&Explained>) -> [String; 8] {
    let rate = rate(run).unwrap_or(0.0);
    let give = interval(run).map_or("?".to_owned(), |interval| significant(interval.half_percent_of(rate)));
    let modelled = explained.map_or("?".to_owned(), |explained| megabytes(explained.modelled_per_s));
    let tightest = explained.map(|explained| tightest(explained, 2)).unwrap_or_default();
    [
        words::load(&run.load),
        megabytes(rate),
        give,
        grouped((rate / f64::from(run.load.block_bytes.max(1))).round() as u64),
        latency(run.service.quantile_ns(0.5) as f64 / 1e3),
        latency(run.service.quantile_ns(0.99) as f64 / 1e3),
        modelled,
        tightest,
    ]
}

/// `link 117, requests at once 240`.
pub(in crate::diagnosis) fn tightest(explained: &Explained, most: usize) -> String {
    let one = |(term, per_s): &(Term, f64)| format!("{} {}", words::term(*term), megabytes(*per_s));
    explained.terms.iter().take(most).map(one).collect::<Vec<_>>().join(", ")
}

fn bars(diagnosis: &Diagnosis) -> Bars {
    let group = |(run, explained): (&LoadRun, &Explained)| {
        let measured = rate(run).unwrap_or(0.0);
        let limits = explained
            .terms
            .iter()
            .map(|(term, per_s)| Bar::new(words::term(*term).to_owned(), per_s / 1e6, with_unit(*per_s), 6));
        let measured = Bar::new("measured".to_owned(), measured / 1e6, with_unit(measured), 0);
        Group { name: words::load(&run.load), bars: [measured].into_iter().chain(limits).collect() }
    };
    let groups: Vec<Group> = diagnosis.evidence.loads.iter().zip(&diagnosis.explained).map(group).collect();
    let values: Vec<f64> = groups.iter().flat_map(|group| &group.bars).map(|bar| bar.value).collect();
    Bars {
        title: "Loads and their limits".to_owned(),
        axis: Axis { title: "throughput in MB/s", scale: Scale::from_zero_or_log(&values), tick: short },
        groups,
    }
}

/// Parts that are less than this share of the whole are too short to be seen.
const SEEN: f64 = 0.005;

fn parts(runs: &[LoadRun], nbd: bool) -> Bars {
    let group = |run: &LoadRun| {
        let named = named(&run.parts, nbd);
        let whole: f64 = named.iter().map(|(_, us)| us).sum();
        let seen = named.into_iter().enumerate().filter(|(_, (_, us))| *us > whole * SEEN);
        let bars = seen.map(|(index, (name, us))| Bar::new(name.to_owned(), us, latency(us), index));
        Group::waterfall(words::load(&run.load), bars.collect())
    };
    let groups: Vec<Group> = runs.iter().map(group).collect();
    let ends = groups.iter().map(|group| group.bars.iter().map(|bar| bar.value).sum());
    Bars {
        title: "Where requests spend their time under load".to_owned(),
        axis: Axis {
            title: "time since the program wanted to send",
            scale: Scale::from_zero(ends.collect::<Vec<f64>>()),
            tick: latency_tick,
        },
        groups,
    }
}

/// The parts in the order in which they happen; a part that is no number is none.
fn named(parts: &Parts, nbd: bool) -> [(&'static str, f64); 7] {
    let named = [
        ("no room in the command window", parts.waiting_us),
        ("on the way to the socket", parts.queued_us),
        ("sending its data", parts.sending_us),
        ("waiting for R2Ts", parts.r2t_us),
        (if nbd { "the way and the server" } else { "the way and the target" }, parts.answer_us),
        ("its data coming", parts.data_us),
        ("its status coming", parts.status_us),
    ];
    named.map(|(name, us)| (name, if us.is_finite() && us > 0.0 { us } else { 0.0 }))
}

/// What the same loads came to by other sessions.
fn beside(runs: &[LoadRun]) -> Table {
    let columns = ["load", "by another session", "#rounds", "#MB/s", "#MB/s so", "#ratio"];
    let mut table = Table::of("In rounds that took turns", &columns);
    for (run, beside) in runs.iter().flat_map(|run| run.beside.iter().map(move |beside| (run, beside))) {
        if beside.pairs.is_empty() {
            continue;
        }
        let (without, with) = beside.medians();
        table.row([
            words::load(&run.load),
            words::otherwise(beside.otherwise),
            grouped(beside.pairs.len() as u64),
            megabytes(without),
            megabytes(with),
            diagnose::confirmed(&beside.pairs).map_or_else(|| "?".to_owned(), |tried| confirmed(&tried)),
        ]);
    }
    table
}

fn behaviour(runs: &[LoadRun], nbd: bool) -> Table {
    let of_nbd = ["load", "#asked", "#under way", "#failed", "#BLOCK_STATUS beside it"];
    let of_iscsi =
        ["load", "#asked", "#under way", "#window full", "#R2Ts each", "#BUSY", "#failed", "#NOP beside it"];
    let columns: &[&str] = if nbd { &of_nbd } else { &of_iscsi };
    let mut table = Table::of("What else was seen of the loads", columns);
    for run in runs {
        let mut cells = vec![
            words::load(&run.load),
            grouped(u64::from(run.load.depth) * u64::from(run.load.sessions.max(1))),
            significant(run.under_way),
        ];
        if !nbd {
            let seen =
                [percent(run.window_stalled), significant(run.r2ts_per_command), grouped(run.busy_answers)];
            cells.extend(seen);
        }
        cells.extend([grouped(run.errors), words::median(&run.nop)]);
        table.marked_row(run.errors > 0 || run.busy_answers > 0, cells);
    }
    table.folded(true)
}

fn cpu(runs: &[LoadRun], nbd: bool) -> Table {
    let of_nbd = ["load", "#ours", "#waited for a CPU", "#the server's busiest thread"];
    let of_iscsi = ["load", "#ours", "#of it digests", "#waited for a CPU", "#the target's busiest thread"];
    let columns: &[&str] = if nbd { &of_nbd } else { &of_iscsi };
    let mut table = Table::of("CPU time", columns);
    let if_told = |share: Option<f64>| share.map_or_else(|| "?".to_owned(), percent);
    for run in runs {
        let digests = run.client_digests.map_or_else(|| "none".to_owned(), percent);
        let cells = [words::load(&run.load), percent(run.client_busy)].into_iter();
        let cells = cells.chain(Some(digests).filter(|_| !nbd));
        table.row(cells.chain([percent(run.client_waited), if_told(run.server_busy)]));
    }
    table.folded(true)
}
