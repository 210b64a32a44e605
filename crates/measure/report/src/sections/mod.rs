//! The sections of a report, in the order in which they are read. Each file makes one of them, or nothing if the record has
//! no data for it.

mod appendix;
mod clients;
mod cpu;
pub(super) mod environment;
mod load;
mod loads;
mod percentiles;
mod results;
mod scaling;
mod sizes;
mod times;
mod verdict;
mod wan;

pub(super) use verdict::{fastest, listed, says, verdict};

use super::Report;
use super::document::Document;
use readable::figures::{counted, duration, size};

/// All that a report says.
pub(super) fn document(report: &Report<'_>) -> Document {
    let measured = match &report.wan {
        Some(wan) => wan::sections(wan),
        None => {
            let sections = [
                sizes::section(report),
                load::section(report),
                percentiles::section(report),
                times::section(report),
                clients::section(report),
                cpu::section(report),
                loads::section(report),
            ];
            sections.into_iter().flatten().collect()
        }
    };
    let sections = measured
        .into_iter()
        .chain(results::section(report))
        .chain([appendix::section(report)])
        .chain(environment::section(report));
    Document {
        title: title(report),
        subtitle: subtitle(report),
        verdict: verdict(report),
        sections: sections.collect(),
    }
}

/// `vmware4 on iscsi://…`
pub(super) fn title(report: &Report<'_>) -> String {
    format!("{} on {}", report.record.suite.name, report.record.subject.place)
}

fn subtitle(report: &Report<'_>) -> String {
    let (record, subject) = (report.record, &report.record.subject);
    let mut parts: Vec<String> = report.folder.iter().map(|folder| format!("folder {folder}")).collect();
    parts.push(record.suite.title.clone());
    parts.push(match &subject.product {
        Some(product) => format!("{product}, {}, {}", subject.kind, size(subject.bytes as f64)),
        None => format!("{}, {}", subject.kind, size(subject.bytes as f64)),
    });
    let seconds = |run: &bench::record::CellRun| run.clients.first().map_or(0.0, |client| client.run.seconds);
    let measured: f64 = record.runs.iter().map(seconds).sum();
    parts.push(format!("{}, {} measured", counted(record.runs.len(), "run"), duration(measured)));
    parts.push(record.begun.clone());
    parts.push(format!("linerate {}", record.version));
    parts.retain(|part| !part.is_empty());
    parts.join(" · ")
}
