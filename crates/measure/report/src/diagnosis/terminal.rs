//! The terminal output of a diagnosis: the verdict, the findings with their evidence and remedies, the layers
//! and the loads.
//!
//! The output does not depend on colour, and no text is cut: text wraps, and the names of omitted columns are
//! listed.

use super::before;
use super::sections::{tightest, tone};
use super::waterfall::{Step, Waterfall, unknown, waterfalls};
use super::words;
use crate::diagnosis::words::{confirmed, interval, predicted, rate, rates};
use crate::terminal::{indented, printed, used};
use diagnose::{Diagnosis, Explained, Finding, Known, LoadRun, Remedy, Where};
use readable::figures::{grouped, latency, megabytes, significant};
use readable::table::{Align, Column, hanging, wrapped};

/// The width of a layer's name and time, which precede its bar.
const LAYER_WIDTH: usize = 34;

/// Returns one screen for a terminal with this number of columns: the verdict, the first finding with the remedies for
/// this path, and the titles of the others. With 80 columns and without an earlier diagnosis, it has at most 24 lines.
pub(super) fn screen(diagnosis: &Diagnosis, before: Option<&Diagnosis>, width: usize) -> String {
    let width = used(width);
    let mut lines = heading(diagnosis, before, width);
    if let [first, others @ ..] = &diagnosis.findings[..] {
        lines.extend(spaced(short_finding(diagnosis, first, width)));
        lines.extend(
            (2..)
                .zip(others)
                .flat_map(|(number, finding)| title(diagnosis, number, finding, width)),
        );
    }
    let unknown = not_known(diagnosis, width);
    if diagnosis.findings.is_empty() && !unknown.is_empty() {
        lines.extend(spaced(unknown));
    }
    lines.extend(spaced(wrapped(
        "Layers, loads and all remedies: --details, or a report with --out DIR",
        width,
    )));
    printed(&lines)
}

/// The evidence and the remedies of a finding on one screen.
const EVIDENCE_MAX: usize = 2;
const REMEDIES_MAX: usize = 3;

fn short_finding(diagnosis: &Diagnosis, finding: &Finding, width: usize) -> Vec<String> {
    let product = diagnosis
        .evidence
        .storage
        .product
        .as_deref()
        .unwrap_or_default();
    let near = finding
        .remedies
        .iter()
        .filter(|remedy| is_near(remedy.at, product))
        .cloned();
    let is_general =
        |remedy: &Remedy| !matches!(remedy.at, Where::Linerate | Where::Lio | Where::Tgt);
    let (general, of_product): (Vec<_>, Vec<_>) = near.partition(is_general);
    let remedies = of_product
        .into_iter()
        .chain(general)
        .take(REMEDIES_MAX)
        .collect();
    let because = finding.because.iter().take(EVIDENCE_MAX).cloned().collect();
    let short = Finding {
        because,
        remedies,
        ..finding.clone()
    };
    self::finding(diagnosis, 0, &short, width)
}

/// Whether a remedy concerns this machine, the network or this target, whose INQUIRY data (SPC-4 6.4.2) has the vendor
/// and the product.
fn is_near(at: Where, product: &str) -> bool {
    match at {
        Where::Windows | Where::Esxi => false,
        Where::Linerate => product.starts_with("LINERATE"),
        Where::Lio => product.starts_with("LIO-ORG"),
        Where::Tgt => product.starts_with("IET"),
        _ => true,
    }
}

/// Returns everything for a terminal with this number of columns.
pub(super) fn details(diagnosis: &Diagnosis, before: Option<&Diagnosis>, width: usize) -> String {
    let width = used(width);
    let below = [
        layers(diagnosis, width),
        loads(diagnosis, width),
        not_known(diagnosis, width),
    ];
    let below = below
        .into_iter()
        .filter(|lines| !lines.is_empty())
        .flat_map(spaced);
    let lines = heading(diagnosis, before, width)
        .into_iter()
        .chain(findings(diagnosis, width));
    printed(&lines.chain(below).collect::<Vec<_>>())
}

fn heading(diagnosis: &Diagnosis, before: Option<&Diagnosis>, width: usize) -> Vec<String> {
    let evidence = &diagnosis.evidence;
    let mut about = vec![words::storage(&evidence.storage)];
    if let Known::Measured(link) = &evidence.link {
        about.push(words::link(link));
    }
    if let Some(path) = evidence.paths.first() {
        about.push(format!(
            "round trip {}",
            latency(path.round_trip_min_us.unwrap_or(path.round_trip_us))
        ));
    }
    let mut lines = wrapped(&evidence.place, width);
    lines.extend(wrapped(&about.join("; "), width));
    lines.push(String::new());
    let sign = tone(&diagnosis.verdict).sign();
    lines.extend(hanging(
        &format!("{sign} "),
        &format!("{}.", words::verdict(diagnosis)),
        width,
    ));
    if let Some(before) = before {
        lines.extend(spaced(before::lines(before, diagnosis, width)));
    }
    lines
}

fn findings(diagnosis: &Diagnosis, width: usize) -> Vec<String> {
    let findings = diagnosis.findings.iter().enumerate();
    findings
        .flat_map(|(index, finding)| spaced(self::finding(diagnosis, index, finding, width)))
        .collect()
}

fn finding(diagnosis: &Diagnosis, index: usize, finding: &Finding, width: usize) -> Vec<String> {
    let mut lines = title(diagnosis, index + 1, finding, width);
    if let Some((run, rates)) = diagnosis
        .evidence
        .loads
        .get(finding.load)
        .zip(rates(diagnosis, finding))
    {
        lines.extend(hanging(
            "   ",
            &format!("{}: {rates}", words::load(&run.load)),
            width,
        ));
    }
    lines.extend(
        finding
            .because
            .iter()
            .flat_map(|why| hanging("   · ", why, width)),
    );
    lines.extend(remedies(finding, width));
    let tried = finding
        .gain
        .confirmed
        .iter()
        .map(|tried| format!("tried: {}", confirmed(tried)));
    lines.extend(tried.flat_map(|tried| hanging("   ", &tried, width)));
    lines
}

fn title(diagnosis: &Diagnosis, number: usize, finding: &Finding, width: usize) -> Vec<String> {
    let title = format!(
        "{}  {}",
        words::cause(diagnosis, finding.cause),
        predicted(&finding.gain)
    );
    hanging(&format!("{number}  "), &title, width)
}

fn remedies(finding: &Finding, width: usize) -> Vec<String> {
    let longest = finding
        .remedies
        .iter()
        .map(|remedy| words::at(remedy.at).chars().count())
        .max()
        .unwrap_or(0);
    let line = |remedy: &Remedy| {
        hanging(
            &format!("   → {:<longest$}  ", words::at(remedy.at)),
            &remedy.change,
            width,
        )
    };
    finding.remedies.iter().flat_map(line).collect()
}

fn layers(diagnosis: &Diagnosis, width: usize) -> Vec<String> {
    let waterfalls = waterfalls(&diagnosis.evidence);
    let most = waterfalls
        .iter()
        .map(Waterfall::whole_us)
        .fold(0.0, f64::max);
    let room = width.saturating_sub(LAYER_WIDTH + 2);
    let waterfall = |waterfall: &Waterfall| {
        let title = format!(
            "{}, alone: {}",
            waterfall.request,
            latency(waterfall.whole_us())
        );
        let steps = waterfall
            .steps
            .iter()
            .flat_map(|step| layer(step, most, room));
        wrapped(&title, width)
            .into_iter()
            .chain(steps)
            .collect::<Vec<_>>()
    };
    waterfalls.iter().flat_map(waterfall).collect()
}

/// Formats a layer: its name, its time and its bar. The name of several merged layers takes more lines.
fn layer(step: &Step, most_us: f64, room: usize) -> Vec<String> {
    let takes = match step.is_noise() {
        true => format!("<{}", latency(step.give_us)),
        false => latency(step.takes_us()),
    };
    let names = wrapped(&step.layer, LAYER_WIDTH - 13)
        .into_iter()
        .enumerate();
    let line = |(at, name)| match at {
        0 => format!("  {name:<21} {takes:>9}  {}", piece(step, most_us, room)),
        _ => format!("  {name}"),
    };
    names.map(line).collect()
}

/// Returns the bar of a layer, which starts where the previous layer's ends. It has at least one character.
fn piece(step: &Step, most_us: f64, room: usize) -> String {
    let at = |us: f64| {
        if most_us > 0.0 {
            us / most_us * room as f64
        } else {
            0.0
        }
    };
    let begin = (at(step.from_us).round() as usize).min(room.saturating_sub(1));
    let length = (at(step.to_us).round() as usize).saturating_sub(begin);
    let drawn = if length == 0 {
        "▏".to_owned()
    } else {
        "█".repeat(length)
    };
    format!("{:begin$}{drawn}", "")
}

/// The columns, with the order in which they are omitted if they do not all fit.
const COLUMNS: [(&str, Align, u8); 9] = [
    ("loads", Align::Left, 0),
    ("MB/s", Align::Right, 0),
    ("± %", Align::Right, 5),
    ("IOPS", Align::Right, 2),
    ("p50", Align::Right, 1),
    ("p99", Align::Right, 3),
    ("longest", Align::Right, 2),
    ("model", Align::Right, 4),
    ("tightest limits", Align::Left, 1),
];

fn loads(diagnosis: &Diagnosis, width: usize) -> Vec<String> {
    let runs = &diagnosis.evidence.loads;
    if runs.is_empty() {
        return Vec::new();
    }
    let names = COLUMNS.map(|(name, ..)| name);
    let loads = runs
        .iter()
        .enumerate()
        .map(|(index, run)| load(run, diagnosis.explained.get(index)));
    let rows: Vec<[String; 9]> = [names.map(str::to_owned)]
        .into_iter()
        .chain(loads)
        .collect();
    indented(
        "  ",
        &names,
        &COLUMNS.map(|(_, align, rank)| Column { align, rank }),
        &rows,
        width,
    )
}

fn load(run: &LoadRun, explained: Option<&Explained>) -> [String; 9] {
    let rate = rate(run).unwrap_or(0.0);
    let iops = rate / f64::from(run.load.block_bytes.max(1));
    [
        words::load(&run.load),
        megabytes(rate),
        interval(run).map_or("?".to_owned(), |known| {
            significant(known.half_percent_of(rate))
        }),
        grouped(iops.round() as u64),
        latency(run.service.quantile_ns(0.5) as f64 / 1e3),
        latency(run.service.quantile_ns(0.99) as f64 / 1e3),
        latency(run.service.max_ns() as f64 / 1e3),
        explained.map_or("?".to_owned(), |explained| {
            megabytes(explained.modelled_per_s)
        }),
        explained
            .map(|explained| tightest(explained, 2))
            .unwrap_or_default(),
    ]
}

fn not_known(diagnosis: &Diagnosis, width: usize) -> Vec<String> {
    let sentences = words::long_packets(&diagnosis.evidence)
        .into_iter()
        .chain(unknown(&diagnosis.evidence));
    sentences
        .flat_map(|sentence| wrapped(&sentence, width))
        .collect()
}

fn spaced(lines: Vec<String>) -> impl Iterator<Item = String> {
    [String::new()].into_iter().chain(lines)
}
