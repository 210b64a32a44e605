//! Loads: requests of one kind, so many at once, in short rounds between which everything else is asked, and for each
//! layer what it had to do with that.
//!
//! Reading order: [`Loads`], `round` (one round), `snapshot` (what is looked at before and after), `sum` (all rounds).

mod durable;
mod round;
mod snapshot;
mod sum;

use crate::LoadRun;
use model::Load;

pub(super) use round::Times;
use round::{Where, round};
pub(super) use sum::Sum;

use super::device::Device;
use super::places::Part;
use super::way::Way;
use environment::server::Server;

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

    /// One that need not be tried: a sentence says why.
    pub(super) fn failed(load: &Load, named: bool, why: &str) -> Running {
        let mut running = Running::new(load, named);
        running.sum.fail(why.to_owned());
        running
    }

    /// Whether another round may bring something.
    pub(super) fn goes_on(&self) -> bool {
        !self.sum.is_hopeless()
    }

    pub(super) fn load(&self) -> &Load {
        &self.load
    }

    /// Runs a round of it on this part of the LUN, and gives its rate in bytes a second. What goes wrong is part of what came
    /// of it.
    pub(super) async fn round(
        &mut self,
        way: &mut Way,
        part: Part,
        server: Option<&Server>,
        times: Times,
        seed: u64,
    ) -> Option<f64> {
        match self.devices(way).await {
            Ok(devices) => {
                let place = Where { devices: &devices, part, server };
                match round(place, &self.load, times, seed).await {
                    Ok(round) => return Some(self.sum.add(round)),
                    Err(why) => self.sum.fail(why),
                }
            }
            Err(why) => self.sum.fail(why),
        }
        None
    }

    /// One for each session, the first of which is there.
    async fn devices(&mut self, way: &mut Way) -> Result<Vec<Device>, String> {
        while self.others.len() + 1 < usize::from(self.load.sessions) {
            self.others.push(Way::open(way.subject()).await.map_err(|failure| failure.to_string())?);
        }
        let mut devices = vec![way.device().await?];
        for other in &mut self.others {
            devices.push(other.device().await?);
        }
        Ok(devices)
    }

    /// What all rounds came to.
    pub(super) async fn finish(self) -> LoadRun {
        for other in self.others {
            other.close().await;
        }
        self.sum.finish()
    }
}
