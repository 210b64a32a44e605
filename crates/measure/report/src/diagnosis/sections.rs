//! The sections of a diagnosis, in reading order.

use diagnose::{
    Diagnosis, Evidence, Explained, Finding, Known, LinkLayer, LoadRun, Parts, PathUnderLoad,
    Timed, Verdict as Told,
};
use model::Term;
use readable::figures::{grouped, latency, latency_tick, megabytes, short, significant, size};

use crate::chart::{Axis, Bar, Bars, Group, Scale};
use crate::diagnosis::waterfall::{Step, Waterfall, unknown, waterfalls};
use crate::diagnosis::words::{
    confirmed, interval, percent, predicted, rate, rates, times, with_unit,
};
use crate::diagnosis::{DiagnosisReport, before, words};
use crate::document::{Block, Document, Headline, Lead, Section, Table, Tone, Verdict};
use crate::sections;

/// Returns the complete report of a diagnosis.
pub(super) fn document(report: &DiagnosisReport<'_>) -> Document {
    let diagnosis = report.diagnosis;
    let evidence = &diagnosis.evidence;
    let sections: [Option<Section>; 7] = [
        report
            .before
            .map(|before| before::section(before, diagnosis)),
        findings_section(diagnosis),
        layers_section(evidence),
        loads_section(diagnosis),
        connections_section(evidence),
        probes_section(evidence),
        sections::table(&evidence.environment),
    ];
    Document {
        title: format!("Diagnosis of {}", evidence.place),
        subtitle: subtitle(report),
        verdict: verdict(diagnosis),
        sections: sections.into_iter().flatten().collect(),
    }
}

fn subtitle(report: &DiagnosisReport<'_>) -> String {
    let storage = &report.diagnosis.evidence.storage;
    let mut parts = vec![words::storage(storage)];
    if storage.physical_block_bytes > storage.block_bytes {
        let [logical, physical] = [storage.block_bytes, storage.physical_block_bytes]
            .map(f64::from)
            .map(size);
        parts.push(format!(
            "blocks of {logical}, physical blocks of {physical}"
        ));
    }
    parts.push(report.begun.to_owned());
    parts.push(format!("linerate {}", report.version));
    parts.retain(|part| !part.is_empty());
    parts.join(" · ")
}

/// Returns the section on the path: the interface, and every connection at rest and under load.
fn connections_section(evidence: &Evidence) -> Option<Section> {
    let mut blocks = vec![Block::Text(link(&evidence.link))];
    blocks.extend(words::long_packets(evidence).map(Block::Text));
    if !evidence.paths.is_empty() {
        blocks.push(Block::Table(at_rest(evidence)));
    }
    let under_load = [traffic(&evidence.loads), windows(&evidence.loads)];
    blocks.extend(
        under_load
            .into_iter()
            .filter(|table| !table.rows.is_empty())
            .map(Block::Table),
    );
    Some(Section {
        id: "connections",
        title: "The path and its connections",
        blocks,
    })
}

fn link(link: &Known<LinkLayer>) -> String {
    match link {
        Known::Measured(link) => {
            let faults = match link.faults {
                0 => "it dropped or corrupted no packets during the measurement".to_owned(),
                faults => {
                    format!(
                        "it dropped or corrupted {} packets during the measurement",
                        grouped(faults)
                    )
                }
            };
            format!("The first interface is {}; {faults}.", words::link(link))
        }
        Known::Unknown(why) => format!("The first interface is unknown: {why}."),
    }
}

/// Returns the table of the idle connections. An NBD request may use any connection, so NBD connections have
/// no separate request times.
fn at_rest(evidence: &Evidence) -> Table {
    let has_nop = evidence.nbd.is_none();
    let columns = [
        "#connection",
        "peer",
        "congestion control",
        "#shortest round trip",
        "#round trip",
        "#segment",
        "#path MTU",
        "#NOP",
    ];
    let shown = if has_nop {
        columns.len()
    } else {
        columns.len() - 1
    };
    let mut table = Table::of("At rest", &columns[..shown]);
    for path in &evidence.paths {
        let cells = [
            path.cid.to_string(),
            path.peer.clone(),
            path.congestion.clone(),
            path.round_trip_min_us.map_or_else(not_told, latency),
            latency(path.round_trip_us),
            grouped(u64::from(path.segment_bytes)),
            grouped(u64::from(path.path_mtu_bytes)),
            words::median(&path.nop),
        ];
        table.row(cells.into_iter().take(shown));
    }
    table
}

/// Tables with more rows are folded.
const ROWS: usize = 12;

/// Returns the traffic of the connections, with lost and reordered segments.
fn traffic(loads: &[LoadRun]) -> Table {
    let columns = [
        "load",
        "#connection",
        "#sent, MB",
        "#received, MB",
        "#resent",
        "#out of order",
        "#round trip",
    ];
    let mut table = Table::of("Under load", &columns);
    for (run, path) in under_load(loads) {
        let disorder = path.out_of_order_segments;
        let marked =
            path.retransmitted_segments > 0 || disorder.is_some_and(|segments| segments > 0);
        let cells = [
            words::load(&run.load),
            path.cid.to_string(),
            megabytes(path.sent_bytes as f64),
            megabytes(path.received_bytes as f64),
            of(path.retransmitted_segments, path.segments_out),
            disorder.map_or_else(not_told, |segments| of(segments, path.segments_in)),
            latency(path.round_trip_us),
        ];
        table.marked_row(marked, cells);
    }
    let many = table.rows.len() > ROWS;
    table.folded(many)
}

/// Returns the windows of the connections under load, and the windows that limited the rate.
fn windows(loads: &[LoadRun]) -> Table {
    let columns = [
        "load",
        "#connection",
        "#congestion window",
        "#peer's window",
        "#our window",
        "#limited by peer",
        "#limited by our buffer",
    ];
    let window = |bytes: Option<u64>| bytes.map_or_else(not_told, |bytes| size(bytes as f64));
    let mut table = Table::of("Windows under load", &columns);
    for (run, path) in under_load(loads) {
        table.row([
            words::load(&run.load),
            path.cid.to_string(),
            size(path.congestion_window_bytes as f64),
            window(path.peer_window_bytes),
            window(path.own_window_bytes),
            percent(path.limited_by_receiver),
            percent(path.limited_by_send_buffer),
        ]);
    }
    let many = table.rows.len() > ROWS;
    table.folded(many)
}

fn under_load(loads: &[LoadRun]) -> impl Iterator<Item = (&LoadRun, &PathUnderLoad)> {
    loads
        .iter()
        .flat_map(|run| run.paths.iter().map(move |path| (run, path)))
}

/// Formats a part and its share: `12 (0.31 %)`.
fn of(part: u64, all: Option<u64>) -> String {
    match all {
        Some(all) if all > 0 && part > 0 => {
            format!("{} ({})", grouped(part), percent(part as f64 / all as f64))
        }
        _ => grouped(part),
    }
}

fn not_told() -> String {
    "?".to_owned()
}

/// Returns the section on the findings, in order of decreasing gain: evidence, expected gain, and remedies.
fn findings_section(diagnosis: &Diagnosis) -> Option<Section> {
    let findings = diagnosis.findings.iter().enumerate();
    let blocks: Vec<Block> = findings
        .flat_map(|(index, finding)| blocks(diagnosis, index, finding))
        .collect();
    (!blocks.is_empty()).then_some(Section {
        id: "findings",
        title: "Findings",
        blocks,
    })
}

fn blocks(diagnosis: &Diagnosis, index: usize, finding: &Finding) -> Vec<Block> {
    let title = format!(
        "{}. {}: {}",
        index + 1,
        words::cause(diagnosis, finding.cause),
        predicted(&finding.gain)
    );
    let mut blocks = vec![Block::Heading(title)];
    let load = diagnosis
        .evidence
        .loads
        .get(finding.load)
        .map(|run| words::load(&run.load));
    if let Some((load, rates)) = load.zip(rates(diagnosis, finding)) {
        blocks.push(Block::Text(format!("{load}: {rates}.")));
    }
    blocks.push(Block::List(finding.because.clone()));
    blocks.extend(remedies(finding));
    blocks.push(Block::Text(tried(finding)));
    blocks
}

fn remedies(finding: &Finding) -> Option<Block> {
    let mut table = Table::of("", &["where", "change"]);
    for remedy in &finding.remedies {
        table.row([words::at(remedy.at).to_owned(), remedy.change.clone()]);
    }
    (!table.rows.is_empty()).then_some(Block::Table(table))
}

/// Returns the result of the test of a finding, or the instructions for the test.
fn tried(finding: &Finding) -> String {
    match (&finding.gain.confirmed, &finding.trial) {
        (Some(tried), _) => format!("Tested, in alternating rounds: {}.", confirmed(tried)),
        (None, Some(change)) => {
            format!(
                "Not tested yet: --confirm alternates between rounds with {} and rounds without.",
                words::change(change)
            )
        }
        (None, None) => {
            "The fix cannot be tested from here: make the change, and repeat the diagnosis."
                .to_owned()
        }
    }
}

/// Returns the section on the time of one request by layer.
fn layers_section(evidence: &Evidence) -> Option<Section> {
    let waterfalls = waterfalls(evidence);
    if waterfalls.is_empty() {
        return None;
    }
    let says = "Medians of single requests; each layer starts where the previous one ends. A layer's time is \
                the difference between two commands, of which one reaches one layer deeper. The value after \
                ± is half of its 95 % interval.";
    let blocks = vec![
        Block::Bars(layers_bars(&waterfalls), says.to_owned()),
        Block::Table(table(&waterfalls).folded(true)),
    ];
    Some(Section {
        id: "layers",
        title: "Time of one request by layer",
        blocks,
    })
}

fn layers_bars(waterfalls: &[Waterfall]) -> Bars {
    let whole = waterfalls.iter().map(Waterfall::whole_us);
    Bars {
        title: "Latency by layer".to_owned(),
        axis: Axis {
            title: "time since the start of the request",
            scale: Scale::from_zero(whole),
            tick: latency_tick,
        },
        groups: waterfalls.iter().map(group).collect(),
    }
}

fn group(waterfall: &Waterfall) -> Group {
    let part = |step: &Step| Bar::new(step.layer.clone(), step.takes_us(), takes(step), step.rank);
    let parts = waterfall.steps.iter().map(part).collect();
    let mut group = Group::waterfall(waterfall.request.clone(), parts);
    group.bars.push(Bar::new(
        "total".to_owned(),
        waterfall.whole_us(),
        latency(waterfall.whole_us()),
        6,
    ));
    group
}

fn table(waterfalls: &[Waterfall]) -> Table {
    let mut table = Table::of(
        "The same values as a table",
        &["request", "layer", "#takes", "#ends at"],
    );
    for waterfall in waterfalls {
        for step in &waterfall.steps {
            let [takes, ends] = [takes(step), latency(step.to_us)];
            table.row([waterfall.request.clone(), step.layer.clone(), takes, ends]);
        }
    }
    table
}

/// Formats the time of a layer: `12.3 µs ± 0.8 µs`, or a remark that the time is below the noise.
fn takes(step: &Step) -> String {
    let takes = latency(step.takes_us());
    match step {
        step if step.reckoned => format!("{takes}, calculated"),
        step if step.is_noise() => format!("less than {}", latency(step.give_us)),
        step if step.give_us > 0.0 => format!("{takes} ± {}", latency(step.give_us)),
        _ => takes,
    }
}

/// Returns the section on the loads: the rate of each, every limit separately, and the time of its requests
/// by phase.
fn loads_section(diagnosis: &Diagnosis) -> Option<Section> {
    let runs = &diagnosis.evidence.loads;
    if runs.is_empty() {
        return None;
    }
    let limits = "Each limit is the rate that the load would reach if it were the only limit; the lowest one \
                  applies. The rate of a load that stays below all limits is unexplained.";
    let nbd = diagnosis.evidence.nbd.is_some();
    let times = match nbd {
        false => {
            "Mean times, from the time the program wanted to send a request until its last response. All \
             parts before \"the path and the target\" are waits on this machine."
        }
        true => {
            "Mean times, from the time the program wanted to send a request until its response."
        }
    };
    let mut blocks = vec![Block::Table(results(diagnosis))];
    if diagnosis
        .explained
        .iter()
        .any(|explained| !explained.terms.is_empty())
    {
        blocks.push(Block::Bars(loads_bars(diagnosis), limits.to_owned()));
    }
    blocks.push(Block::Bars(parts(runs, nbd), times.to_owned()));
    blocks.extend(
        Some(beside(runs))
            .filter(|table| !table.rows.is_empty())
            .map(Block::Table),
    );
    blocks.push(Block::Table(behaviour(runs, nbd)));
    blocks.push(Block::Table(cpu(runs, nbd)));
    Some(Section {
        id: "loads",
        title: "Loads and their limits",
        blocks,
    })
}

fn results(diagnosis: &Diagnosis) -> Table {
    let columns = [
        "load",
        "#MB/s",
        "#± %",
        "#IOPS",
        "#p50",
        "#p99",
        "#longest",
        "#model",
        "tightest limits in MB/s",
    ];
    let mut table = Table::of("", &columns);
    for (index, run) in diagnosis.evidence.loads.iter().enumerate() {
        let explained = diagnosis.explained.get(index);
        let marked = diagnosis
            .findings
            .iter()
            .any(|finding| finding.load == index)
            || run.errors > 0;
        table.marked_row(marked, result(run, explained));
    }
    table
}

fn result(run: &LoadRun, explained: Option<&Explained>) -> [String; 9] {
    let rate = rate(run).unwrap_or(0.0);
    let give = interval(run).map_or("?".to_owned(), |interval| {
        significant(interval.half_percent_of(rate))
    });
    let modelled = explained.map_or("?".to_owned(), |explained| {
        megabytes(explained.modelled_per_s)
    });
    let tightest = explained
        .map(|explained| tightest(explained, 2))
        .unwrap_or_default();
    [
        words::load(&run.load),
        megabytes(rate),
        give,
        grouped((rate / f64::from(run.load.block_bytes.max(1))).round() as u64),
        latency(run.service.quantile_ns(0.5) as f64 / 1e3),
        latency(run.service.quantile_ns(0.99) as f64 / 1e3),
        latency(run.service.max_ns() as f64 / 1e3),
        modelled,
        tightest,
    ]
}

/// Formats the lowest limits, lowest first.
pub(in crate::diagnosis) fn tightest(explained: &Explained, most: usize) -> String {
    let one = |(term, per_s): &(Term, f64)| format!("{} {}", words::term(*term), megabytes(*per_s));
    explained
        .terms
        .iter()
        .take(most)
        .map(one)
        .collect::<Vec<_>>()
        .join(", ")
}

fn loads_bars(diagnosis: &Diagnosis) -> Bars {
    let group = |(run, explained): (&LoadRun, &Explained)| {
        let measured = rate(run).unwrap_or(0.0);
        let limits = explained.terms.iter().map(|(term, per_s)| {
            Bar::new(
                words::term(*term).to_owned(),
                per_s / 1e6,
                with_unit(*per_s),
                6,
            )
        });
        let measured = Bar::new(
            "measured".to_owned(),
            measured / 1e6,
            with_unit(measured),
            0,
        );
        Group {
            name: words::load(&run.load),
            bars: [measured].into_iter().chain(limits).collect(),
        }
    };
    let groups: Vec<Group> = diagnosis
        .evidence
        .loads
        .iter()
        .zip(&diagnosis.explained)
        .map(group)
        .collect();
    let values: Vec<f64> = groups
        .iter()
        .flat_map(|group| &group.bars)
        .map(|bar| bar.value)
        .collect();
    Bars {
        title: "Loads and their limits".to_owned(),
        axis: Axis {
            title: "throughput in MB/s",
            scale: Scale::from_zero_or_log(&values),
            tick: short,
        },
        groups,
    }
}

/// Parts below this share of the whole are not drawn, since they would be too small to be visible.
const SEEN: f64 = 0.005;

fn parts(runs: &[LoadRun], nbd: bool) -> Bars {
    let group = |run: &LoadRun| {
        let named = named(&run.parts, nbd);
        let whole: f64 = named.iter().map(|(_, us)| us).sum();
        let seen = named
            .into_iter()
            .enumerate()
            .filter(|(_, (_, us))| *us > whole * SEEN);
        let bars =
            seen.map(|(index, (name, us))| Bar::new(name.to_owned(), us, latency(us), index));
        Group::waterfall(words::load(&run.load), bars.collect())
    };
    let groups: Vec<Group> = runs.iter().map(group).collect();
    let ends = groups
        .iter()
        .map(|group| group.bars.iter().map(|bar| bar.value).sum());
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

/// Returns the parts in chronological order, with their names. An invalid number counts as zero.
fn named(parts: &Parts, nbd: bool) -> [(&'static str, f64); 7] {
    let named = [
        ("waiting for the command window", parts.waiting_us),
        ("sending to the socket", parts.queued_us),
        ("sending its data", parts.sending_us),
        ("waiting for R2Ts", parts.r2t_us),
        (
            if nbd {
                "the path and the server"
            } else {
                "the path and the target"
            },
            parts.answer_us,
        ),
        ("receiving its data", parts.data_us),
        ("receiving its status", parts.status_us),
    ];
    named.map(|(name, us)| (name, if us.is_finite() && us > 0.0 { us } else { 0.0 }))
}

/// Returns the table of the same loads over other sessions.
fn beside(runs: &[LoadRun]) -> Table {
    let columns = [
        "load",
        "by another session",
        "#rounds",
        "#MB/s",
        "#MB/s so",
        "#ratio",
    ];
    let mut table = Table::of("In alternating rounds", &columns);
    for (run, beside) in runs
        .iter()
        .flat_map(|run| run.beside.iter().map(move |beside| (run, beside)))
    {
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
            diagnose::confirmed(&beside.pairs)
                .map_or_else(|| "?".to_owned(), |tried| confirmed(&tried)),
        ]);
    }
    table
}

fn behaviour(runs: &[LoadRun], nbd: bool) -> Table {
    let of_nbd = [
        "load",
        "#requested",
        "#in flight",
        "#failed",
        "#BLOCK_STATUS under load",
    ];
    let of_iscsi = [
        "load",
        "#requested",
        "#in flight",
        "#window full",
        "#R2Ts each",
        "#BUSY",
        "#failed",
        "#NOP under load",
    ];
    let columns: &[&str] = if nbd { &of_nbd } else { &of_iscsi };
    let mut table = Table::of("Other observations of the loads", columns);
    for run in runs {
        let mut cells = vec![
            words::load(&run.load),
            grouped(u64::from(run.load.depth) * u64::from(run.load.sessions.max(1))),
            significant(run.under_way),
        ];
        if !nbd {
            let seen = [
                percent(run.window_stalled),
                significant(run.r2ts_per_command),
                grouped(run.busy_answers),
            ];
            cells.extend(seen);
        }
        cells.extend([grouped(run.errors), words::median(&run.nop)]);
        table.marked_row(run.errors > 0 || run.busy_answers > 0, cells);
    }
    table.folded(true)
}

fn cpu(runs: &[LoadRun], nbd: bool) -> Table {
    let of_nbd = [
        "load",
        "#ours",
        "#waiting for a CPU",
        "#the server's busiest thread",
    ];
    let of_iscsi = [
        "load",
        "#ours",
        "#digests",
        "#waiting for a CPU",
        "#the target's busiest thread",
    ];
    let columns: &[&str] = if nbd { &of_nbd } else { &of_iscsi };
    let mut table = Table::of("CPU time", columns);
    let if_told = |share: Option<f64>| share.map_or_else(|| "?".to_owned(), percent);
    for run in runs {
        let digests = run
            .client_digests
            .map_or_else(|| "none".to_owned(), percent);
        let cells = [words::load(&run.load), percent(run.client_busy)].into_iter();
        let cells = cells.chain(Some(digests).filter(|_| !nbd));
        table.row(cells.chain([percent(run.client_waited), if_told(run.server_busy)]));
    }
    table.folded(true)
}

/// Returns the section with every probe, its median and its interval, for reference.
fn probes_section(evidence: &Evidence) -> Option<Section> {
    let columns = [
        "probe",
        "#times",
        "#shortest",
        "#median",
        "#from",
        "#to",
        "#p99",
        "#longest",
        "not known",
    ];
    let mut table = Table::of("Every probe", &columns);
    for (name, known) in probes(evidence) {
        table.marked_row(matches!(known, Known::Unknown(_)), row(name, known));
    }
    let says = "Each probe was sent alone and repeatedly, interleaved with the other probes in random order. \
                From and to are the ends of the median's 95 % interval.";
    let blocks = vec![Block::Text(says.to_owned()), Block::Table(table)];
    Some(Section {
        id: "probes",
        title: "Appendix: every probe",
        blocks,
    })
}

/// Returns all probes in the order of the ladder, with their names.
fn probes(evidence: &Evidence) -> Vec<(String, &Known<Timed>)> {
    let ladder = &evidence.ladder;
    let [block, physical] = [
        evidence.storage.block_bytes,
        evidence.storage.physical_block_bytes,
    ]
    .map(|bytes| size(f64::from(bytes)));
    let mut all = vec![(words::shortest(evidence).to_owned(), &ladder.nop)];
    if evidence.nbd.is_none() {
        all.insert(0, ("connect".to_owned(), &evidence.connect));
        all.extend(sized("NOP with", &ladder.nop_with_data));
        all.push(("TEST UNIT READY".to_owned(), &ladder.test_unit_ready));
    }
    all.push((format!("READ {block}, same block"), &ladder.cached_read));
    all.extend(sized("READ, same block,", &ladder.cached_reads));
    all.push((format!("READ {block}, new blocks"), &ladder.medium_read));
    all.push((format!("WRITE {physical}"), &ladder.write));
    all.extend(sized("WRITE", &ladder.writes));
    all.push((format!("WRITE {physical} with FUA"), &ladder.durable_write));
    all.push((
        format!("{} after a WRITE", words::flush(evidence)),
        &ladder.flush,
    ));
    all.push((
        format!("WRITE {block} into a physical block of {physical}"),
        &ladder.short_write,
    ));
    all
}

/// Names a probe for each of its lengths in bytes.
fn sized<'a>(
    what: &'a str,
    probes: &'a [(u32, Known<Timed>)],
) -> impl Iterator<Item = (String, &'a Known<Timed>)> {
    probes
        .iter()
        .map(move |(bytes, known)| (format!("{what} {}", size(f64::from(*bytes))), known))
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

/// Returns the box at the top: the verdict in one sentence, the gains in large letters, and the unknown
/// values.
fn verdict(diagnosis: &Diagnosis) -> Verdict {
    let says = format!(
        "{} {}.",
        tone(&diagnosis.verdict).sign(),
        words::verdict(diagnosis)
    );
    let remedy = diagnosis
        .findings
        .first()
        .and_then(|finding| finding.remedies.first());
    let help = match (remedy, &diagnosis.verdict) {
        (Some(remedy), _) => format!("{}: {}.", words::at(remedy.at), remedy.change),
        (None, Told::Fine { .. }) => "No change to the path would help.".to_owned(),
        (None, Told::Uncertain { .. }) => {
            "A longer diagnosis: without --quick, or with --seconds 120.".to_owned()
        }
        (None, _) => "Unknown: no useful change was found.".to_owned(),
    };
    Verdict {
        lead: vec![
            Lead {
                about: "Is it good?",
                says,
            },
            Lead {
                about: "What would help first?",
                says: help,
            },
        ],
        tone: tone(&diagnosis.verdict),
        says: String::new(),
        headlines: headlines(diagnosis),
        reservations: unknown(&diagnosis.evidence),
    }
}

pub(in crate::diagnosis) fn tone(verdict: &Told) -> Tone {
    match verdict {
        Told::HeldBack => Tone::Care,
        Told::Fine { .. } => Tone::Good,
        Told::NotKnown { .. } | Told::Uncertain { .. } => Tone::Incomplete,
    }
}

/// Returns a gain for each finding. Without findings, returns the achieved share of the limit, or the
/// unexplained share of the time.
fn headlines(diagnosis: &Diagnosis) -> Vec<Headline> {
    if !diagnosis.findings.is_empty() {
        return diagnosis
            .findings
            .iter()
            .map(|finding| gain(diagnosis, finding))
            .collect();
    }
    let (what, value, note) = match &diagnosis.verdict {
        Told::HeldBack => return Vec::new(),
        Told::Fine { term, share } => ("of the limit", percent(share.min(1.0)), words::term(*term)),
        Told::Uncertain { interval } => (
            "95 % interval",
            percent(*interval),
            "of a rate, in each direction",
        ),
        Told::NotKnown { unexplained, .. } => {
            ("not explained", percent(*unexplained), "of the time")
        }
    };
    vec![Headline {
        what: what.to_owned(),
        value,
        note: note.to_owned(),
    }]
}

fn gain(diagnosis: &Diagnosis, finding: &Finding) -> Headline {
    let load = diagnosis
        .evidence
        .loads
        .get(finding.load)
        .map(|run| words::load(&run.load));
    let (what, value) = match (&finding.gain.confirmed, finding.gain.predicted) {
        (Some(tried), _) => ("gained in a trial", times(tried.ratio)),
        (None, Some(predicted)) => ("expected gain", times(predicted)),
        (None, None) => ("expected gain", "unlimited".to_owned()),
    };
    let note = [
        Some(words::cause(diagnosis, finding.cause).to_owned()),
        load,
    ];
    Headline {
        what: what.to_owned(),
        value,
        note: note.into_iter().flatten().collect::<Vec<_>>().join("; "),
    }
}
