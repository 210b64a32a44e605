//! The sections of a diagnosis, in the order in which they are read.

mod connections;
mod findings;
mod layers;
mod loads;
mod probes;
mod verdict;

pub(super) use loads::tightest;
pub(super) use verdict::tone;

use super::{DiagnosisReport, words};
use crate::document::{Document, Section};
use crate::sections::environment;
use readable::figures::size;

/// All that is said.
pub(super) fn document(report: &DiagnosisReport<'_>) -> Document {
    let diagnosis = report.diagnosis;
    let evidence = &diagnosis.evidence;
    let sections: [Option<Section>; 6] = [
        findings::section(diagnosis),
        layers::section(evidence),
        loads::section(diagnosis),
        connections::section(evidence),
        probes::section(evidence),
        environment::table(&evidence.environment),
    ];
    Document {
        title: format!("Diagnosis of {}", evidence.place),
        subtitle: subtitle(report),
        verdict: verdict::verdict(diagnosis),
        sections: sections.into_iter().flatten().collect(),
    }
}

fn subtitle(report: &DiagnosisReport<'_>) -> String {
    let storage = &report.diagnosis.evidence.storage;
    let mut parts = vec![words::storage(storage)];
    if storage.physical_block_bytes > storage.block_bytes {
        let [logical, physical] =
            [storage.block_bytes, storage.physical_block_bytes].map(f64::from).map(size);
        parts.push(format!("blocks of {logical}, physically {physical}"));
    }
    parts.push(report.begun.to_owned());
    parts.push(format!("linerate {}", report.version));
    parts.retain(|part| !part.is_empty());
    parts.join(" · ")
}
