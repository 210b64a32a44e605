//! `linerate lab peer`: the other end of plain TCP, so that what a path carries can be measured without any storage at its end.
//!
//! It answers `bench::raw`'s requests: data that are thrown away, and data out of memory that means nothing. Whoever
//! reaches it may ask, and can take bandwidth and CPU time with that but no more memory than [`service`](wan::service) allows. So it
//! listens on loopback only, unless an address is named.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use host::{Epoll, EpollOptions};
use reactor::StreamOptions;

use crate::failure::Failure;
use crate::listen;
use crate::output::say;
use crate::spec::Bytes;

/// Where peers listen if nobody says otherwise. Not assigned by IANA.
pub(crate) const PORT: u16 = 9861;

#[derive(Debug, clap::Args)]
pub(crate) struct PeerArguments {
    /// Address to listen on, such as 0.0.0.0 or 10.0.0.7:9861
    #[arg(long, value_name = "ADDRESS[:PORT]", value_parser = |text: &str| listen::address(text, PORT))]
    #[arg(default_value_t = LOOPBACK)]
    listen: SocketAddr,
    /// TCP congestion control of its sockets, such as cubic
    #[arg(long, value_name = "NAME")]
    congestion: Option<String>,
    /// Receive buffer of its sockets, which limits TCP's window [default: the system's automatic size]
    #[arg(long, value_name = "SIZE")]
    receive_buffer: Option<Bytes>,
}

const LOOPBACK: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), PORT);

/// Runs until a signal ends it.
pub(crate) fn run(arguments: &PeerArguments) -> Result<(), Failure> {
    let receive_buffer_bytes = arguments.receive_buffer.map(|Bytes(bytes)| bytes as usize);
    let stream = StreamOptions {
        congestion: arguments.congestion.clone(),
        receive_buffer_bytes,
        ..StreamOptions::default()
    };
    let world = Epoll::shared(EpollOptions::default()).map_err(Failure::failed)?;
    reactor::block_on(world, async {
        let listener = listen::at(arguments.listen, stream)?;
        say(&announcement(listener.local()));
        match wan::service::keep(&*listener).await {}
    })
}

/// What it is, for whoever finds it running.
fn announcement(at: SocketAddr) -> String {
    let who = match at.ip().is_loopback() {
        true => "whoever is on this machine",
        false => "whoever reaches that address, without a secret",
    };
    format!(
        "linerate lab peer: plain TCP, to measure what a path carries\n\
         listens on {at}; answers {who}, at most {} connections at once; keeps nothing and shows nothing\nready\n",
        wan::service::CONNECTIONS_MAX
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_that_others_reach_says_so() {
        assert!(announcement(LOOPBACK).contains("whoever is on this machine"));
        let wide = announcement((Ipv4Addr::UNSPECIFIED, PORT).into());
        assert!(wide.contains("whoever reaches that address, without a secret"));
    }
}
