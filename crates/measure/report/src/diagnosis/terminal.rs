//! What is seen at the end of a diagnosis: the verdict, the findings, the layers and the loads, in at most [`LINES`] lines.
//!
//! Nothing needs colour. What has no room is in the report: evidence and settings are cut, findings are not, and where there
//! are several, only the layers and loads that they are about are shown.

use super::gain::{confirmed, interval, predicted, rate, rates};
use super::sections::{tightest, tone};
use super::unknown::unknown;
use super::waterfall::{Step, Waterfall, waterfalls};
use super::words;
use crate::terminal::{WIDTH_MAX, WIDTH_MIN, fitted};
use diagnose::{Diagnosis, Explained, Finding, Known, LoadRun, Remedy};
use model::Direction;
use stats::figures::{grouped, latency, megabytes, significant};

/// So many can be read without scrolling in a window of the usual size made a little taller.
const LINES: usize = 40;
/// For what is not known.
const UNKNOWN_LINES: usize = 3;
/// Loads that are shown; the first are those that the person named.
const LOADS: usize = 6;
/// Before the figures of a waterfall.
const LAYER_WIDTH: usize = 34;

/// The summary, for a terminal of so many columns.
pub(super) fn summary(diagnosis: &Diagnosis, width: usize) -> String {
    let width = width.clamp(WIDTH_MIN, WIDTH_MAX);
    let above = heading(diagnosis, width);
    let below = [layers(diagnosis, width), loads(diagnosis, width), not_known(diagnosis, width)];
    let below: Vec<String> = below.into_iter().filter(|lines| !lines.is_empty()).flat_map(spaced).collect();
    let room = LINES.saturating_sub(above.len() + below.len());
    let found = findings(diagnosis, room, width);
    let lines = above.into_iter().chain(found).chain(below);
    lines.map(|line| fitted(line.trim_end(), width) + "\n").collect()
}

fn heading(diagnosis: &Diagnosis, width: usize) -> Vec<String> {
    let evidence = &diagnosis.evidence;
    let mut about = vec![words::storage(&evidence.storage)];
    if let Known::Measured(link) = &evidence.link {
        about.push(words::link(link));
    }
    if let Some(path) = evidence.paths.first() {
        about.push(format!("round trip {}", latency(path.round_trip_min_us.unwrap_or(path.round_trip_us))));
    }
    let mut lines = vec![evidence.place.clone(), about.join("; "), String::new()];
    let sign = tone(&diagnosis.verdict).sign();
    lines.extend(hanging(&format!("{sign} "), &format!("{}.", words::verdict(diagnosis)), width, 3));
    lines
}

/// Each finding has the same share of the room, and the first what is over.
fn findings(diagnosis: &Diagnosis, room: usize, width: usize) -> Vec<String> {
    let count = diagnosis.findings.len().max(1);
    let (each, over) = (room / count, room % count);
    let finding = |(index, finding): (usize, &Finding)| {
        let room = each + if index == 0 { over } else { 0 };
        let mut lines = vec![String::new()];
        lines.extend(self::finding(diagnosis, index, finding, room.saturating_sub(1), width));
        lines
    };
    diagnosis.findings.iter().enumerate().flat_map(finding).collect()
}

fn finding(diagnosis: &Diagnosis, index: usize, finding: &Finding, room: usize, width: usize) -> Vec<String> {
    let title = format!("{}  {}  {}", index + 1, words::cause(finding.cause), predicted(&finding.gain));
    let mut lines = vec![title];
    if let Some((run, rates)) = diagnosis.evidence.loads.get(finding.load).zip(rates(diagnosis, finding)) {
        lines.push(format!("   {}: {rates}", words::load(&run.load)));
    }
    let tried: Vec<String> =
        finding.gain.confirmed.iter().map(|tried| format!("   tried: {}", confirmed(tried))).collect();
    // Half of what is left is for evidence, and what settings do not take.
    let left = room.saturating_sub(lines.len() + tried.len());
    let remedies = remedies(finding, width);
    let evidence: Vec<String> =
        finding.because.iter().flat_map(|why| hanging("   · ", why, width, 2)).collect();
    let for_evidence = left.saturating_sub(remedies.len()).max(left.div_ceil(2)).min(evidence.len());
    let for_remedies = left - for_evidence;
    lines.extend(cut(evidence, for_evidence));
    lines.extend(cut(remedies, for_remedies));
    lines.extend(tried);
    lines
}

fn remedies(finding: &Finding, width: usize) -> Vec<String> {
    let longest =
        finding.remedies.iter().map(|remedy| words::at(remedy.at).chars().count()).max().unwrap_or(0);
    let line = |remedy: &Remedy| {
        hanging(&format!("   → {:<longest$}  ", words::at(remedy.at)), &remedy.change, width, 2)
    };
    finding.remedies.iter().flat_map(line).collect()
}

/// Of reads and of writes; where there is little room, of what the first finding is about.
fn layers(diagnosis: &Diagnosis, width: usize) -> Vec<String> {
    let about = first_direction(diagnosis).filter(|_| diagnosis.findings.len() > 1);
    let mut waterfalls = waterfalls(&diagnosis.evidence);
    if let Some(about) = about.filter(|about| waterfalls.iter().any(|one| one.direction == *about)) {
        waterfalls.retain(|waterfall| waterfall.direction == about);
    }
    let most = waterfalls.iter().map(Waterfall::whole_us).fold(0.0, f64::max);
    let room = width.saturating_sub(LAYER_WIDTH + 2);
    let waterfall = |waterfall: &Waterfall| {
        let title = format!("{}, alone: {}", waterfall.request, latency(waterfall.whole_us()));
        let steps = waterfall.steps.iter().map(|step| layer(step, most, room));
        [title].into_iter().chain(steps).collect::<Vec<_>>()
    };
    waterfalls.iter().flat_map(waterfall).collect()
}

fn first_direction(diagnosis: &Diagnosis) -> Option<Direction> {
    let first = diagnosis.findings.first()?;
    Some(diagnosis.evidence.loads.get(first.load)?.load.direction)
}

fn layer(step: &Step, most_us: f64, room: usize) -> String {
    let takes = match step.is_noise() {
        true => format!("<{}", latency(step.give_us)),
        false => latency(step.takes_us()),
    };
    let name = fitted(&step.layer, LAYER_WIDTH - 13);
    format!("  {name:<21} {takes:>9}  {}", piece(step, most_us, room))
}

/// A piece of a bar, from where the layer before it ended; never nothing at all.
fn piece(step: &Step, most_us: f64, room: usize) -> String {
    let at = |us: f64| if most_us > 0.0 { us / most_us * room as f64 } else { 0.0 };
    let begin = (at(step.from_us).round() as usize).min(room.saturating_sub(1));
    let length = (at(step.to_us).round() as usize).saturating_sub(begin);
    let drawn = if length == 0 { "▏".to_owned() } else { "█".repeat(length) };
    format!("{:begin$}{drawn}", "")
}

fn loads(diagnosis: &Diagnosis, width: usize) -> Vec<String> {
    let runs = &diagnosis.evidence.loads;
    if runs.is_empty() {
        return Vec::new();
    }
    let shown = shown(diagnosis);
    let heading = ["loads", "MB/s", "± %", "IOPS", "p50", "model"].map(str::to_owned);
    let mut lines = vec![row(&heading, "tightest limits")];
    lines.extend(shown.iter().map(|index| load(&runs[*index], diagnosis.explained.get(*index))));
    if runs.len() > shown.len() {
        lines.push(format!("  and {} more, in the report", runs.len() - shown.len()));
    }
    lines.into_iter().map(|line| fitted(&line, width)).collect()
}

/// The loads that are shown: if there are several findings, those that they are about.
fn shown(diagnosis: &Diagnosis) -> Vec<usize> {
    let runs = diagnosis.evidence.loads.len();
    let about = |index: &usize| diagnosis.findings.iter().any(|finding| finding.load == *index);
    let all = 0..runs;
    match diagnosis.findings.len() {
        0 | 1 => all.take(LOADS).collect(),
        _ => all.filter(about).collect(),
    }
}

fn load(run: &LoadRun, explained: Option<&Explained>) -> String {
    let rate = rate(run).unwrap_or(0.0);
    let iops = rate / f64::from(run.load.block_bytes.max(1));
    let cells = [
        words::load(&run.load),
        megabytes(rate),
        interval(run).map_or("?".to_owned(), |known| significant(known.half_percent_of(rate))),
        grouped(iops.round() as u64),
        latency(run.service.quantile_ns(0.5) as f64 / 1e3),
        explained.map_or("?".to_owned(), |explained| megabytes(explained.modelled_per_s)),
    ];
    row(&cells, &explained.map(|explained| tightest(explained, 2)).unwrap_or_default())
}

fn row(cells: &[String; 6], limits: &str) -> String {
    let [load, rate, give, iops, p50, model] = cells;
    format!("  {load:<30} {rate:>7} {give:>5} {iops:>8} {p50:>8} {model:>7}  {limits}")
}

fn not_known(diagnosis: &Diagnosis, width: usize) -> Vec<String> {
    let mut all: Vec<String> = words::long_packets(&diagnosis.evidence).into_iter().collect();
    all.extend(unknown(&diagnosis.evidence));
    let lines: Vec<String> = all.iter().flat_map(|sentence| hanging("", sentence, width, 2)).collect();
    cut(lines, UNKNOWN_LINES)
}

/// No more lines than so many; the last says that there were more.
fn cut(mut lines: Vec<String>, most: usize) -> Vec<String> {
    if lines.len() > most {
        lines.truncate(most);
        if let Some(last) = lines.last_mut() {
            last.push_str(" …");
        }
    }
    lines
}

fn spaced(lines: Vec<String>) -> impl Iterator<Item = String> {
    [String::new()].into_iter().chain(lines)
}

/// A text in lines of at most this width, the first behind `mark`, the others below its beginning; at most so many lines.
fn hanging(mark: &str, text: &str, width: usize, most: usize) -> Vec<String> {
    let indent = mark.chars().count();
    let room = width.saturating_sub(indent).max(1);
    let mut lines: Vec<String> = Vec::new();
    let mut line = String::new();
    for word in text.split_whitespace() {
        if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > room {
            lines.push(std::mem::take(&mut line));
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    lines.push(line);
    let marked = lines.iter().enumerate().map(|(index, line)| match index {
        0 => format!("{mark}{}", fitted(line, room)),
        _ => format!("{:indent$}{}", "", fitted(line, room)),
    });
    cut(marked.collect(), most)
}
