//! What both comparisons of speed share: where they run, what they run, who measures, and what becomes of the figures.
//!
//! Everything runs in a network namespace made for it, with its own loopback and cubic congestion control: what a
//! machine's default does to a loopback is no property of a program. The server has core 0 for itself, the client
//! core 1. Each server is started afresh and filled in each round, and measured while every other is gone or paused.

pub(crate) mod cell;
pub(crate) mod client;
pub(crate) mod cpu;
pub(crate) mod document;
pub(crate) mod figures;
pub(crate) mod machine;
pub(crate) mod namespace;
pub(crate) mod scope;
pub(crate) mod usage;

use std::path::Path;

use anyhow::Result;

use crate::process::Background;
use crate::serving::istgt::Istgt;
use crate::serving::linerate::Linerate;
use crate::serving::raw::Raw;
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
    Istgt(Istgt),
    Raw(Raw),
    Linerate(Linerate),
}

/// What makes our server look for work all the time.
const POLLING: &[&str] = &["--poll-us", "always"];
/// What makes it let requests gather.
const GATHERING: &[&str] = &["--gather-us", "100"];

impl Server {
    /// Starts one of any make, and sees to it that all of its volume is written.
    pub(crate) fn start(peer: Peer, binary: &Path, namespace: &Namespace) -> Result<Server> {
        let here = |core| Placement { namespace: Some(namespace.name.clone()), core: Some(core) };
        let core = here(SERVER_CORE);
        let linerate = |options| {
            let volume = format!("ram0=ram:{}MiB", VOLUME_BYTES >> 20);
            Linerate::start_with(options, binary, &[volume], 1, &core).map(Running::Linerate)
        };
        let raw = |poll| Raw::start(binary, VOLUME_BYTES, poll, &core).map(Running::Raw);
        let running = match peer {
            Peer::Tgt => Running::Tgt(Tgt::start(VOLUME_BYTES, &core)?),
            // On the machine this was tried on it answers 73,000 random reads of 4 KiB at depth 32 a second; `rdwr`
            // 50,000, with 1 to 16 threads; `null`, which keeps nothing, 100,000.
            Peer::TgtAio => Running::Tgt(Tgt::start_over("aio", VOLUME_BYTES, &core)?),
            Peer::Istgt => Running::Istgt(Istgt::start(VOLUME_BYTES, &core)?),
            Peer::RawSleeping => raw("never")?,
            Peer::RawSpinning => raw("always")?,
            Peer::Linerate => linerate(&[])?,
            Peer::LineratePolling => linerate(POLLING)?,
            Peer::LinerateGathering => linerate(GATHERING)?,
        };
        let server = Server { running, client: here(CLIENT_CORE) };
        if matches!(server.running, Running::Tgt(_) | Running::Linerate(_)) {
            client::fill(&server.target().url, VOLUME_BYTES, &server.client)?; // the others begin with theirs written
        }
        Ok(server)
    }

    /// What a client must know of it.
    pub(crate) fn target(&self) -> Target {
        let (url, server) = match &self.running {
            Running::Tgt(tgt) => (tgt.url(), tgt.process().pid()),
            Running::Istgt(istgt) => (istgt.url(), istgt.process().pid()),
            Running::Raw(raw) => (raw.url(), raw.process().pid()),
            Running::Linerate(linerate) => (linerate.url("ram0", 0), linerate.pid()),
        };
        Target { url, server, placement: self.client.clone() }
    }

    /// Its process, to be paused while another server is measured.
    pub(crate) fn process(&self) -> &Background {
        match &self.running {
            Running::Tgt(tgt) => tgt.process(),
            Running::Istgt(istgt) => istgt.process(),
            Running::Raw(raw) => raw.process(),
            Running::Linerate(linerate) => linerate.process(),
        }
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
