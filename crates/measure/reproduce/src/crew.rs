//! The clients of a test in the lab, and the distance between them and the storage.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use backends::Failure;
use bench::Go;
use bench::plan::{Cell, Setting, Span, Stop, Way};
use bench_runner::client::{Site, lab_failure};
use bench_runner::client_paths::Source;
use bench_runner::crew::{CellOutcome, Crew, LocalCrew, Progress};
use bench_runner::view::Purged;
use lab::{Conditions, Direction, Lab};

/// The clients of a test.
pub(crate) struct BedCrew {
    target: Target,
    distance: Option<Distance>,
    /// The clients that are logged in.
    crew: Option<LocalCrew>,
}

/// The other end of the clients.
pub(crate) enum Target {
    /// Storage, as each client opens it from its host.
    Storage(Vec<(Site, Source)>),
    /// A peer for plain TCP, and the host of its client.
    Tcp(Site, SocketAddr),
}

/// The link whose delay a test changes.
pub(crate) struct Distance {
    lab: Arc<Lab>,
    link: String,
    /// The conditions of the plan in both directions.
    planned: [Conditions; 2],
    rtt_ms: f64,
}

impl Distance {
    /// The link with its planned conditions.
    pub(crate) fn new(lab: &Arc<Lab>, link: &str, planned: [Conditions; 2]) -> Distance {
        Distance {
            lab: Arc::clone(lab),
            link: link.to_owned(),
            planned,
            rtt_ms: 0.0,
        }
    }

    /// Adds a round trip to the planned delay, half of it in each direction.
    fn set(&mut self, rtt_ms: f64) -> Result<(), Failure> {
        let link = self.lab.link(&self.link).map_err(lab_failure)?;
        // If a record contains an invalid time, use one that the lab rejects.
        let way = Duration::try_from_secs_f64(rtt_ms / 2e3).unwrap_or(Duration::MAX);
        for (direction, planned) in [Direction::Forward, Direction::Back]
            .into_iter()
            .zip(&self.planned)
        {
            let conditions = Conditions {
                delay: planned.delay.saturating_add(way),
                ..planned.clone()
            };
            link.set(direction, &conditions).map_err(lab_failure)?;
        }
        self.rtt_ms = rtt_ms;
        Ok(())
    }
}

impl BedCrew {
    /// Creates a crew without clients. They are started with their cells.
    pub(crate) fn new(target: Target, distance: Option<Distance>) -> BedCrew {
        BedCrew {
            target,
            distance,
            crew: None,
        }
    }

    /// Sets the distance of a cell. Connections over another distance are closed, since TCP would keep
    /// metrics of it.
    async fn move_to(&mut self, setting: &Setting) -> Result<(), Failure> {
        let is_there = |distance: &Distance| distance.rtt_ms == setting.rtt_ms;
        if self.distance.as_ref().is_none_or(is_there) {
            return Ok(());
        }
        self.log_out().await;
        match &mut self.distance {
            Some(distance) => distance.set(setting.rtt_ms),
            None => Ok(()),
        }
    }

    async fn log_out(&mut self) {
        if let Some(crew) = self.crew.take() {
            crew.close().await;
        }
    }

    /// The clients, which are created if there are none.
    fn clients(&mut self) -> Result<&mut LocalCrew, Failure> {
        let crew = match (self.crew.take(), &self.target) {
            (Some(crew), _) => crew,
            (None, Target::Storage(seats)) => started(seats)?,
            (None, Target::Tcp(..)) => return Err(nothing_to_measure()),
        };
        Ok(self.crew.insert(crew))
    }
}

/// Clients do not poll: the hosts and the links of the lab share the CPUs.
const SPIN: Duration = Duration::ZERO;

fn started(seats: &[(Site, Source)]) -> Result<LocalCrew, Failure> {
    let ((site, source), others) = seats.split_first().ok_or_else(nothing_to_measure)?;
    // The threads of the lab's links are in the same process.
    let crew = LocalCrew::new(source.clone(), SPIN).beside_its_server();
    let others = others.iter().cloned();
    Ok(others.fold(crew.at(site.clone()), |crew, (site, source)| {
        crew.and_at(site, source)
    }))
}

/// A plan that passed its checks does not cause this.
fn nothing_to_measure() -> Failure {
    Failure::refused("the cell measures storage, but the test has none")
}

impl Crew for BedCrew {
    async fn run(
        &mut self,
        cell: &Cell,
        stop: Stop,
        progress: &mut dyn FnMut(Progress<'_>) -> Go,
    ) -> Result<CellOutcome, Failure> {
        if let Some(setting) = cell.setting.as_deref() {
            self.move_to(setting).await?;
            if let (Way::Tcp { .. }, Target::Tcp(site, peer)) = (setting.way, &self.target) {
                return wan::tcp::measure(*peer, cell, stop, site, progress).await;
            }
        }
        self.clients()?.run(cell, stop, progress).await
    }

    async fn purge(
        &mut self,
        span: Span,
        progress: &mut dyn FnMut(Purged) -> Go,
    ) -> Result<(), Failure> {
        self.clients()?.purge(span, progress).await
    }

    async fn look_alive(&mut self) -> Result<(), Failure> {
        match &mut self.crew {
            Some(crew) => crew.look_alive().await,
            None => Ok(()),
        }
    }

    async fn close(mut self) {
        self.log_out().await;
        if let Some(distance) = &mut self.distance {
            // The next test starts with the planned link, or fails for the same reason.
            let _ = distance.set(0.0);
        }
    }
}
