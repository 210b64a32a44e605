//! What befalls the server, one thing after the other, by lot.

use std::fmt;
use std::iter;
use std::thread;
use std::time::Duration;

use anyhow::Result;

use super::world::World;
use crate::lot::Lot;

/// Draws what comes next.
pub(super) struct Trouble<'a> {
    world: &'a World,
    lot: Lot,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    /// SIGKILL, and a start.
    Killed,
    /// SIGTERM, and a start.
    Ended,
    /// SIGSTOP for a while.
    Stopped,
    /// The link is down for a while.
    Cut,
    /// A disk does this for a while ([`World::set_fault`]).
    Disk(&'static str),
    /// A disk is full for a while.
    Full,
}

/// How often each comes, of twenty times.
const LOT: [(Kind, usize); 9] = [
    (Kind::Killed, 11),
    (Kind::Ended, 1),
    (Kind::Stopped, 1),
    (Kind::Cut, 2),
    (Kind::Disk("hang"), 1),
    (Kind::Disk("fail"), 1),
    (Kind::Disk("lose"), 1),
    (Kind::Disk("slow=20ms"), 1),
    (Kind::Full, 1),
];

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Kind::Killed => f.write_str("server killed"),
            Kind::Ended => f.write_str("server ended"),
            Kind::Stopped => f.write_str("server stopped for a while"),
            Kind::Cut => f.write_str("link cut"),
            Kind::Disk("hang") => f.write_str("disk hangs"),
            Kind::Disk("fail") => f.write_str("disk fails"),
            Kind::Disk("lose") => f.write_str("disk loses writes"),
            Kind::Disk(_) => f.write_str("disk is slow"),
            Kind::Full => f.write_str("disk is full"),
        }
    }
}

impl Trouble<'_> {
    pub(super) fn new(world: &World, seed: u64) -> Trouble<'_> {
        Trouble { world, lot: Lot::new(seed, "trouble", 0) }
    }

    /// Waits a while, and makes the next one; ends when all is whole again.
    pub(super) fn next(&mut self, told: impl FnOnce(Kind)) -> Result<()> {
        self.sleep(1.0, 11.0);
        let all: Vec<Kind> = LOT.iter().flat_map(|(kind, times)| iter::repeat_n(*kind, *times)).collect();
        let (world, kind) = (self.world, self.lot.one_of(&all));
        told(kind);
        match kind {
            Kind::Killed => {
                world.kill();
                self.sleep(0.0, 3.0);
                world.start()
            }
            Kind::Ended => {
                world.stop();
                world.start()
            }
            Kind::Stopped => {
                world.pause();
                self.sleep(1.0, 8.0);
                world.resume();
                Ok(())
            }
            Kind::Cut => {
                world.set_link(false)?;
                self.sleep(0.2, 8.0);
                world.set_link(true)
            }
            Kind::Disk(mode) => {
                world.set_fault(mode)?;
                self.sleep(0.2, 8.0);
                world.set_fault("pass")
            }
            Kind::Full => {
                let filler = world.fill()?;
                self.sleep(1.0, 8.0);
                drop(filler);
                Ok(())
            }
        }
    }

    fn sleep(&mut self, least: f64, most: f64) {
        thread::sleep(Duration::from_secs_f64(self.lot.between(least, most)));
    }
}
