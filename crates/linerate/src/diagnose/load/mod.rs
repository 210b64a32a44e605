//! Loads: requests of one kind, so many at once, in short rounds between which everything else is asked, and for each
//! layer what it had to do with that.
//!
//! Reading order: [`Loads`], `round` (one round), `snapshot` (what is looked at before and after), `sum` (all rounds).

mod durable;
mod round;
mod snapshot;
mod sum;

use std::sync::Arc;

use bench::Random;
use bench::diagnosis::LoadRun;
use bench::model::{Direction, Load};
use initiator::{RemoteLun, Url};

pub(super) use round::Times;
use round::{Where, round};
pub(super) use sum::Sum;

use super::places::Part;
use super::way::Way;
use crate::environment::server::Server;
use crate::failure::Failure;

/// A load, and the sessions beside the first that it wants.
pub(super) struct Running {
    load: Load,
    sum: Sum,
    others: Vec<Way>,
}

impl Running {
    pub(super) fn new(load: &Load, named: bool) -> Running {
        Running { load: *load, sum: Sum::new(load, named), others: Vec::new() }
    }

    /// Whether another round may bring something.
    pub(super) fn goes_on(&self) -> bool {
        !self.sum.is_hopeless()
    }

    pub(super) fn load(&self) -> &Load {
        &self.load
    }

    /// Runs a round of it on this part of the LUN. What goes wrong is part of what came of it.
    pub(super) async fn round(
        &mut self,
        way: &mut Way,
        part: Part,
        server: Option<&Server>,
        times: Times,
        seed: u64,
    ) {
        match self.luns(way).await {
            Ok(luns) => {
                let place = Where { luns: &luns, part, server };
                match round(place, &self.load, times, seed).await {
                    Ok(round) => self.sum.add(round),
                    Err(why) => self.sum.fail(why),
                }
            }
            Err(why) => self.sum.fail(why),
        }
    }

    /// One for each session, the first of which is there.
    async fn luns(&mut self, way: &mut Way) -> Result<Vec<Arc<RemoteLun>>, String> {
        while self.others.len() + 1 < usize::from(self.load.sessions) {
            self.others.push(Way::open(way.url()).await.map_err(|failure| failure.to_string())?);
        }
        let mut luns = vec![way.lun().await?];
        for other in &mut self.others {
            luns.push(other.lun().await?);
        }
        Ok(luns)
    }

    /// What all rounds came to.
    pub(super) async fn finish(self) -> LoadRun {
        for other in self.others {
            other.close().await;
        }
        self.sum.finish()
    }
}

/// A load, in a word or two: `64 KiB reads in order, 32 at once`.
pub(super) fn described(load: &Load) -> String {
    let length = match load.block_bytes {
        bytes if bytes.is_multiple_of(1024) => format!("{} KiB", bytes / 1024),
        bytes => format!("{bytes} B"),
    };
    let what = match (load.direction, load.durable) {
        (Direction::Read, _) => "reads",
        (Direction::Write, false) => "writes",
        (Direction::Write, true) => "durable writes",
    };
    let order = if load.random { "at random" } else { "in order" };
    format!("{length} {what} {order}, {} at once", load.depth)
}

/// Puts a load on the LUN of `url` for some rounds, in a session of its own: what `--confirm` compares. Writes go to
/// `part`, reads anywhere if it is `None`.
#[allow(dead_code)] // until `--confirm` compares by it
pub(super) async fn run_load(
    url: &Url,
    load: &Load,
    part: Option<Part>,
    rounds: u32,
    times: Times,
    seed: u64,
) -> Result<LoadRun, Failure> {
    let mut way = Way::open(url).await?;
    let lun = way.lun().await.map_err(Failure::failed)?;
    let part = match (part, load.direction) {
        (Some(part), _) => part,
        (None, Direction::Read) => Part::whole(block::BlockDevice::geometry(&*lun)),
        (None, Direction::Write) => return Err(Failure::refused(super::probe::NOT_ALLOWED)),
    };
    let server = Server::of(lun.target()).await;
    let (mut running, mut random) = (Running::new(load, true), Random::new(seed));
    for _ in 0..rounds {
        if running.goes_on() {
            running.round(&mut way, part, server.as_ref(), times, random.next()).await;
        }
    }
    let run = running.finish().await;
    way.close().await;
    Ok(run)
}
