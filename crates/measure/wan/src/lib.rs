//! Document 002's matrix, measured in a lab of its own.
//!
//! ```text
//!   bench::suite::wan ──► conduct: conductor, keeper, view ──► WanCrew ─┬─► ground: lab, target, peer
//!                                                                      ├─► LocalCrew: clients in the lab
//!                                                                      └─► tcp: plain TCP
//! ```
//!
//! A [`bench_runner::crew::Crew`] whose cells specify the conditions of the path by their setting. Everything runs
//! in this process, on threads that have entered the hosts of the lab.
//!
//! Reading order: [`begun`] and [`resumed`] (the record), `crew`, `ground` (lab, link, target), `tcp` and
//! `peer` (plain TCP); [`own_target`] and [`service`] are also for other crates that need a target, or the
//! peer of plain TCP, in their process.
//!
//! ```
//! let record = wan::begun(model::LinkRate::GIGABIT, true, |suite| suite);
//! assert!(wan::is_subject(&record.subject) && record.suite.cells().count() > 30);
//! ```

mod crew;
mod ground;
pub mod own_target;
mod peer;
pub mod service;
mod tcp;
#[cfg(test)]
mod tests;

use backends::Failure;
use bench::plan::Suite;
use bench::record::{Fact, Facts, Group, Record, Subject};
use bench::suite::wan::{NAME, WanPlan, suite};
use bench_runner::begin;
use bench_runner::folder::Folder;
use model::LinkRate;

pub use crew::WanCrew;
pub use ground::can_be_made;

/// Where it is not what a cell asks about. What most systems have.
const CONGESTION: &str = "cubic";

/// What is measured, for the record: there is nothing outside this process.
const KIND: &str = "lab";

/// Whether a record is of this suite.
pub fn is_subject(subject: &Subject) -> bool {
    subject.kind == KIND
}

/// A record of nothing yet, of the matrix or a part of it over such a link, with a suite that `shortened` may
/// shorten.
pub fn begun(link: LinkRate, quick: bool, shortened: impl FnOnce(Suite) -> Suite) -> Record {
    let plan = WanPlan { link_bits_per_s: link.bits_per_s(), congestion: CONGESTION.to_owned(), quick };
    let suite = shortened(suite(&plan));
    begin::record(subject(link), on_the_volume(suite), facts(link), Vec::new())
}

/// All cells within the volume.
fn on_the_volume(mut suite: Suite) -> Suite {
    for step in &mut suite.steps {
        let bench::plan::Step::Measure { cells, .. } = step else { continue };
        let roles = cells.iter_mut().flat_map(|cell| &mut cell.roles);
        roles.for_each(|role| role.workload.span.bytes = Some(ground::VOLUME_BYTES));
    }
    suite
}

fn subject(link: LinkRate) -> Subject {
    Subject {
        place: format!("a lab with a link of {link}"),
        kind: KIND.to_owned(),
        bytes: ground::VOLUME_BYTES,
        block_bytes: 512,
        product: Some(format!("linerate {}, target and initiator, memory", env!("CARGO_PKG_VERSION"))),
        // Every lab is like every other, so that one can be gone on with in another.
        identity: Some(format!("lab {link}")),
    }
}

fn facts(link: LinkRate) -> Facts {
    let mut facts = environment::machine();
    let of_the_way = |name: &str, value: String| Fact {
        group: Group::Network,
        name: name.to_owned(),
        value,
        better: None,
    };
    facts.0.push(of_the_way("link", format!("{link}, between two network namespaces of this machine")));
    facts.0.push(of_the_way(
        "TCP of both hosts",
        "buffers as large as the window of a cell asks for, no memory of earlier connections \
         (tcp_no_metrics_save=1), no slow start after a rest (tcp_slow_start_after_idle=0)"
            .to_owned(),
    ));
    facts
}

/// The record of a matrix that was interrupted.
pub fn resumed(folder: &Folder) -> Result<Record, Failure> {
    let record = folder.load()?;
    if !is_subject(&record.subject) {
        let path = folder.path().display();
        return Err(Failure::refused(format!("{path} holds no measurement of the suite `{NAME}`")));
    }
    bench_runner::resume::resumed(record.clone(), &record.subject)
}
