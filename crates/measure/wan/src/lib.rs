//! Measures document 002's matrix in a dedicated lab.
//!
//! ```text
//!   bench::suite::wan ──► conduct: conductor, keeper, view ──► WanCrew ─┬─► ground: lab, target, peer
//!                                                                      ├─► LocalCrew: clients in the lab
//!                                                                      └─► tcp: plain TCP
//! ```
//!
//! The crate provides a [`bench_runner::crew::Crew`] for cells whose setting specifies the conditions of the
//! path. Everything runs in this process, on threads that have entered the hosts of the lab.
//! Reading order: [`begun`] and [`resumed`] (the record), [`WanCrew`], `ground` (lab, link, target and TCP
//! peer), [`tcp`] (plain TCP). [`own_target`] and [`tcp`] are also used by other crates that need a target, a
//! TCP peer or a TCP flow in their process.
//!
//! ```
//! let record = wan::begun(model::LinkRate::GIGABIT, true, |suite| suite);
//! assert!(wan::is_subject(&record.subject) && record.suite.cells().count() > 30);
//! ```

use backends::{Failure, peers};
use bench::Go;
use bench::plan::{Cell, Setting, Span, Stop, Suite, Way};
use bench::record::{Fact, Facts, Group, Record, Subject};
use bench::suite::wan::{NAME, WanPlan, suite};
use bench_runner::client_paths::Source;
use bench_runner::crew::{CellOutcome, Crew, LocalCrew, Progress};
use bench_runner::folder::Folder;
use bench_runner::prepare;
use bench_runner::view::Purged;
use model::LinkRate;

use crate::ground::TestBed;

mod ground;
pub mod own_target;
pub mod tcp;

pub use ground::can_be_made;

/// The congestion control, which is the default of most systems, except in the cells that compare several.
const CONGESTION: &str = "cubic";

/// The kind of storage in the record. There is no storage outside this process.
const KIND: &str = "lab";

/// Whether a record belongs to this suite.
pub fn is_subject(subject: &Subject) -> bool {
    subject.kind == KIND
}

/// Creates an empty record of the matrix, or of a part of it, over a link with this rate. `shortened` may
/// shorten the suite.
pub fn begun(link: LinkRate, quick: bool, shortened: impl FnOnce(Suite) -> Suite) -> Record {
    let plan = WanPlan {
        link_bits_per_s: link.bits_per_s(),
        congestion: CONGESTION.to_owned(),
        quick,
    };
    let suite = shortened(suite(&plan));
    prepare::new_record(subject(link), on_the_volume(suite), facts(link), Vec::new())
}

/// Limits the spans of all cells to the volume.
fn on_the_volume(mut suite: Suite) -> Suite {
    for step in &mut suite.steps {
        let bench::plan::Step::Measure { cells, .. } = step else {
            continue;
        };
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
        product: Some(format!(
            "linerate {}, target and initiator, memory",
            env!("CARGO_PKG_VERSION")
        )),
        // All labs with the same link are equivalent, so a measurement can be resumed in another one.
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
    facts.0.push(of_the_way(
        "link",
        format!("{link}, between two network namespaces of this machine"),
    ));
    facts.0.push(of_the_way(
        "TCP of both hosts",
        "buffers of the size that the cell's window requires, no metrics of earlier connections \
         (tcp_no_metrics_save=1), no slow start after idle periods (tcp_slow_start_after_idle=0)"
            .to_owned(),
    ));
    facts
}

/// Returns the record of an interrupted matrix.
pub fn resumed(folder: &Folder) -> Result<Record, Failure> {
    let record = folder.load()?;
    if !is_subject(&record.subject) {
        let path = folder.path().display();
        return Err(Failure::refused(format!(
            "{path} does not contain a measurement of the suite `{NAME}`"
        )));
    }
    bench_runner::prepare::resumed(record.clone(), &record.subject)
}

/// The crew of a WAN measurement: the test bed, and the clients in it.
pub struct WanCrew {
    ground: TestBed,
    /// The clients that are logged in, with the properties of their sessions.
    crew: Option<(LocalCrew, SessionKey)>,
}

/// The properties of a session that are fixed at its login.
#[derive(Clone, Copy, PartialEq)]
struct SessionKey {
    way: Way,
    connections: u16,
}

impl SessionKey {
    fn from_setting(setting: &Setting) -> SessionKey {
        SessionKey {
            way: setting.way,
            connections: setting.connections,
        }
    }
}

impl WanCrew {
    /// Creates a crew without clients, and with an empty test bed.
    pub fn new() -> Result<WanCrew, Failure> {
        Ok(WanCrew {
            ground: TestBed::new()?,
            crew: None,
        })
    }

    /// Adapts the test bed and the sessions to the setting.
    async fn prepare(&mut self, setting: &Setting) -> Result<(), Failure> {
        let fits = self.ground.fits(setting);
        let stays =
            |(_, key): &(LocalCrew, SessionKey)| fits && *key == SessionKey::from_setting(setting);
        if !self.crew.as_ref().is_some_and(stays) {
            // Existing connections would keep metrics of the previous path.
            self.log_out().await;
        }
        if !fits {
            self.ground.make(setting)?;
        }
        if self.crew.is_none() {
            self.crew = self.logged_in(setting)?;
        }
        Ok(())
    }

    fn logged_in(&self, setting: &Setting) -> Result<Option<(LocalCrew, SessionKey)>, Failure> {
        let (Some(site), Some(url)) = (self.ground.client(), self.ground.url(setting)?) else {
            return Ok(None);
        };
        peers::record(&url.settings);
        let crew = LocalCrew::new(Source::Lun(Box::new(url)), ground::SPIN);
        Ok(Some((
            crew.beside_its_server().at(site),
            SessionKey::from_setting(setting),
        )))
    }

    async fn log_out(&mut self) {
        if let Some((crew, _)) = self.crew.take() {
            crew.close().await;
        }
    }

    async fn tcp(
        &self,
        cell: &Cell,
        stop: Stop,
        progress: &mut dyn FnMut(Progress<'_>) -> Go,
    ) -> Result<CellOutcome, Failure> {
        match (self.ground.client(), self.ground.peer()) {
            (Some(site), Some(peer)) => tcp::measure(peer, cell, stop, &site, progress).await,
            _ => Err(nothing_to_do(cell)),
        }
    }
}

/// Returns the failure for a cell without a setting. A suite of this kind has none, but a record from another
/// source may have one.
fn nothing_to_do(cell: &Cell) -> Failure {
    Failure::refused(format!(
        "cell {} does not specify its network path",
        cell.name
    ))
}

impl Crew for WanCrew {
    async fn run(
        &mut self,
        cell: &Cell,
        stop: Stop,
        progress: &mut dyn FnMut(Progress<'_>) -> Go,
    ) -> Result<CellOutcome, Failure> {
        let setting = cell.setting.as_deref().ok_or_else(|| nothing_to_do(cell))?;
        self.prepare(setting).await?;
        match (setting.way, &mut self.crew) {
            (Way::Tcp { .. }, _) => self.tcp(cell, stop, progress).await,
            (_, Some((crew, _))) => crew.run(cell, stop, progress).await,
            (_, None) => Err(nothing_to_do(cell)),
        }
    }

    async fn purge(&mut self, _: Span, _: &mut dyn FnMut(Purged) -> Go) -> Result<(), Failure> {
        Ok(()) // memory needs no purge
    }

    async fn look_alive(&mut self) -> Result<(), Failure> {
        match &mut self.crew {
            Some((crew, _)) => crew.look_alive().await,
            None => Ok(()),
        }
    }

    fn remarks(&self) -> Vec<String> {
        let Ok(counts) = self.ground.counts() else {
            return Vec::new();
        };
        vec![format!("the lab's link carried {counts}")]
    }

    async fn close(mut self) {
        self.log_out().await;
    }
}

#[cfg(test)]
mod tests;
