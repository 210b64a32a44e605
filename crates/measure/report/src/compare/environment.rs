//! What is different around two measurements.

use serde::Serialize;

use bench::record::{Fact, Group, Record};

/// One thing that is not the same in both.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// What it is: `kernel`, `MTU`, `FirstBurstLength`.
    pub name: String,
    /// In A, if it is known there.
    pub a: Option<String>,
    /// In B.
    pub b: Option<String>,
}

/// What was measured, what measured, and every fact that differs, in the order of A; what only B knows comes last.
pub(super) fn differences(a: &Record, b: &Record) -> Vec<Difference> {
    let about = |name: &str, of: fn(&Record) -> String| Difference {
        name: name.to_owned(),
        a: Some(of(a)),
        b: Some(of(b)),
    };
    let head = [
        about("storage", |record| record.subject.place.clone()),
        about("kind of storage", |record| record.subject.kind.clone()),
        about("product", |record| record.subject.product.clone().unwrap_or_else(|| "unknown".to_owned())),
        about("capacity in bytes", |record| record.subject.bytes.to_string()),
        about("logical block in bytes", |record| record.subject.block_bytes.to_string()),
        about("suite", |record| record.suite.name.clone()),
        about("linerate", |record| record.version.clone()),
    ];
    let known: Vec<(Group, &str)> = a.environment.0.iter().map(key).collect();
    let added = b.environment.0.iter().map(key).filter(|key| !known.contains(key));
    let facts = known.iter().copied().chain(added).map(|(group, name)| Difference {
        name: name.to_owned(),
        a: a.environment.value(group, name).map(str::to_owned),
        b: b.environment.value(group, name).map(str::to_owned),
    });
    head.into_iter().chain(facts).filter(|one| one.a != one.b).collect()
}

fn key(fact: &Fact) -> (Group, &str) {
    (fact.group, &fact.name)
}
