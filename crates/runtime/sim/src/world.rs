//! The reactor world of one core.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use reactor::{Detached, ListenOptions, Listener, Park, Stream, StreamOptions, Unpark, World};

use crate::cores::{self, Core, Machine};
use crate::network;
use crate::universe;

/// What stands behind a simulated core's reactor.
pub(crate) struct SimWorld {
    machine: Machine,
    core: Core,
}

impl SimWorld {
    pub(crate) fn new(machine: Machine, core: Core) -> SimWorld {
        SimWorld { machine, core }
    }
}

impl World for SimWorld {
    fn now(&self) -> Instant {
        universe::now()
    }

    fn listen(&self, at: SocketAddr, _: &ListenOptions) -> io::Result<Box<dyn Listener>> {
        network::listen(self.machine, at)
    }

    fn connect(&self, to: SocketAddr, _: &StreamOptions) -> io::Result<Box<dyn Stream>> {
        network::connect(self.machine, to)
    }

    fn adopt(&self, stream: Detached) -> io::Result<Box<dyn Stream>> {
        network::adopt(stream)
    }

    fn turn(&self, park: Park) {
        cores::turn(self.core, park);
    }

    fn unpark(&self) -> Arc<dyn Unpark> {
        cores::unpark(self.core)
    }

    fn batch(&self) -> usize {
        universe::draw(|random| random.between(1, 4)) as usize
    }
}
