//! What both comparisons of speed share: where they run, what they run, who measures, and what becomes of the figures.
//!
//! Everything runs in a network namespace made for it, with its own loopback and cubic congestion control: what a
//! machine's default does to a loopback is no property of a program. The server has core 0 for itself, the client
//! core 1. Each server is started afresh and filled in each round, and measured while no other is there.

pub(crate) mod cell;
pub(crate) mod client;
pub(crate) mod cpu;
pub(crate) mod document;
pub(crate) mod figures;
pub(crate) mod machine;
pub(crate) mod namespace;

use std::path::Path;

use anyhow::Result;

use crate::serving::linerate::Linerate;
use crate::serving::tgt::Tgt;
use crate::serving::{Peer, Placement};
use client::Target;
use namespace::Namespace;

/// The size of each volume: far larger than any processor's cache.
pub(crate) const VOLUME_BYTES: u64 = 1 << 30;

/// The cores of the server and of the client.
pub(crate) const SERVER_CORE: usize = 0;
pub(crate) const CLIENT_CORE: usize = 1;

/// A server under measurement, stopped when dropped.
#[derive(Debug)]
pub(crate) struct Server {
    running: Running,
    client: Placement,
}

#[derive(Debug)]
enum Running {
    Tgt(Tgt),
    Linerate(Linerate),
}

impl Server {
    /// Starts one of either make, and writes all of its volume.
    pub(crate) fn start(peer: Peer, binary: &Path, namespace: &Namespace) -> Result<Server> {
        let here = |core| Placement { namespace: Some(namespace.name.clone()), core: Some(core) };
        let running = match peer {
            Peer::Tgt => Running::Tgt(Tgt::start(VOLUME_BYTES, &here(SERVER_CORE))?),
            Peer::Linerate => {
                let volume = format!("ram0=ram:{}MiB", VOLUME_BYTES >> 20);
                Running::Linerate(Linerate::start(binary, &[volume], 1, &here(SERVER_CORE))?)
            }
        };
        let server = Server { running, client: here(CLIENT_CORE) };
        client::fill(&server.target().url, VOLUME_BYTES, &server.client)?;
        Ok(server)
    }

    /// What a client must know of it.
    pub(crate) fn target(&self) -> Target {
        let (url, server) = match &self.running {
            Running::Tgt(tgt) => (tgt.url(), tgt.pid()),
            Running::Linerate(linerate) => (linerate.url("ram0", 0), linerate.pid()),
        };
        Target { url, server, placement: self.client.clone() }
    }
}

/// Who goes first changes with every round, so that a machine that grows slower is unjust to all alike.
pub(crate) fn in_turn<T: Copy>(everybody: &[T], round: usize) -> Vec<T> {
    let mut order = everybody.to_vec();
    order.rotate_left(round % everybody.len().max(1));
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everybody_goes_first_in_turn() {
        let orders: Vec<_> = (0..3).map(|round| in_turn(&[1, 2, 3], round)).collect();
        assert_eq!(orders, [[1, 2, 3], [2, 3, 1], [3, 1, 2]]);
        assert!(in_turn::<u8>(&[], 4).is_empty());
    }
}
