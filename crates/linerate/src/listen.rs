//! The commands that listen for connections, except servers: `linerate lab peer`, a peer for plain TCP, and
//! `linerate bench agent`.

use std::fs::File;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use agent::PORT;
use agent::channel::{self, Channel};
use bench_runner::agents::{find_secret, work_for};
use host::{Epoll, EpollOptions};
use reactor::{BadAddress, ListenOptions, Listener, StreamOptions};

use crate::failure::Failure;
use crate::output::say;
use crate::spec::Bytes;

/// Parses `ADDRESS` or `ADDRESS:PORT`. `usual` is the default port.
pub(crate) fn address(text: &str, usual: u16) -> Result<SocketAddr, String> {
    // An IPv6 address without brackets has no port.
    let address = match reactor::numeric_address(text, usual) {
        Err(BadAddress::Form(_)) => reactor::listen_address(text, Some(usual)),
        whole => whole,
    };
    address.map_err(|why| match why {
        BadAddress::Form(_) => {
            format!("`{text}` is not an address; write one such as 0.0.0.0 or [::]:{usual}")
        }
        why => why.to_string(),
    })
}

/// Listens at this address, in this thread's runtime environment, with these socket options.
pub(crate) fn at(address: SocketAddr, stream: StreamOptions) -> Result<Box<dyn Listener>, Failure> {
    let listener = reactor::world().listen(address, &ListenOptions { stream });
    listener.map_err(|error| Failure::refused(format!("cannot listen on {address}: {error}")))
}

/// The default port of peers, which is not assigned by IANA.
pub(crate) const PEER_PORT: u16 = 9861;

// `linerate lab peer` is a peer for plain TCP, to measure the throughput of a path without storage.
//
// The peer serves the requests of `bench::raw`: it discards received data, and sends meaningless data from
// memory. Every host that can reach the peer may use it, and so consume bandwidth and CPU time, but no more
// memory than [`service`](wan::service) allows. Therefore, the peer listens only on loopback by default.

#[derive(Debug, clap::Args)]
pub(crate) struct PeerArguments {
    /// Address to listen on, such as 0.0.0.0 or 10.0.0.7:9861
    #[arg(long, value_name = "ADDRESS[:PORT]", value_parser = |text: &str| address(text, PEER_PORT))]
    #[arg(default_value_t = LOOPBACK)]
    listen: SocketAddr,
    /// TCP congestion control of its sockets, such as cubic
    #[arg(long, value_name = "NAME")]
    congestion: Option<String>,
    /// Receive buffer of its sockets, which limits TCP's window [default: the system's automatic size]
    #[arg(long, value_name = "SIZE")]
    receive_buffer: Option<Bytes>,
}

const LOOPBACK: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), PEER_PORT);

/// Runs the command until a signal ends the process.
pub(crate) fn run_peer(arguments: &PeerArguments) -> Result<(), Failure> {
    let receive_buffer_bytes = arguments.receive_buffer.map(|Bytes(bytes)| bytes as usize);
    let stream = StreamOptions {
        congestion: arguments.congestion.clone(),
        receive_buffer_bytes,
        ..StreamOptions::default()
    };
    let world = Epoll::shared(EpollOptions::default()).map_err(Failure::failed)?;
    reactor::block_on(world, async {
        let listener = at(arguments.listen, stream)?;
        say(&announcement(listener.local()));
        match wan::tcp::keep(&*listener).await {}
    })
}

/// A line that describes the service and who can use it.
fn announcement(at: SocketAddr) -> String {
    let who = match at.ip().is_loopback() {
        true => "all users of this machine",
        false => "every host that can reach this address, without a secret",
    };
    format!(
        "linerate lab peer: plain TCP, to measure the throughput of a path\n\
         listens on {at}; serves {who}, up to {} concurrent connections; stores nothing and reveals nothing\nready\n",
        wan::tcp::CONNECTIONS_MAX
    )
}

// `linerate bench agent` executes the orders of a coordinator (`linerate bench --agents`), so that several
// machines can measure the same storage concurrently.
//
// The library `agent` has the messages; `bench_runner::agents` executes the orders, and has the coordinator's
// side.

#[derive(Debug, clap::Args)]
pub(crate) struct AgentArguments {
    /// Address to listen on, such as 0.0.0.0 or 10.0.0.7:9860
    #[arg(long, value_name = "ADDRESS[:PORT]", value_parser = |text: &str| address(text, PORT))]
    listen: SocketAddr,
    /// File with the secret shared by agents and coordinator, readable only by its owner (mode 0600)
    /// [default: the environment variable LINERATE_AGENT_SECRET, or a prompt]
    #[arg(long, value_name = "FILE")]
    secret_file: Option<PathBuf>,
    /// Allow coordinators to write; data on the storage that they specify is lost
    #[arg(long)]
    allow_write: bool,
}

/// Runs the command until a signal ends the process.
pub(crate) fn run_agent(arguments: &AgentArguments) -> Result<(), Failure> {
    let secret = find_secret(arguments.secret_file.as_deref(), "--secret-file")?;
    // A coordinator may name storage that requires a secret. The agent must not prompt for it in the middle
    // of a run.
    let nobody = File::open("/dev/null").map_err(Failure::failed)?;
    rustix::stdio::dup2_stdin(nobody).map_err(Failure::failed)?;
    let world = Epoll::shared(EpollOptions::default()).map_err(Failure::failed)?;
    reactor::block_on(world, async {
        let listener = at(arguments.listen, StreamOptions::default())?;
        let may = if arguments.allow_write {
            "read and write"
        } else {
            "read only (--allow-write is not given)"
        };
        say(&format!(
            "listens on {}; coordinators may {may}\nready\n",
            listener.local()
        ));
        let allow_write = arguments.allow_write;
        let gone = channel::keep(&*listener, secret, move |channel| {
            Box::pin(work(channel, allow_write))
        });
        match gone.await {}
    })
}

async fn work(channel: Channel, allow_write: bool) {
    let peer = channel.peer();
    say(&format!("{peer}: coordinator connected\n"));
    let why = work_for(channel, allow_write, &|line| say(&format!("{line}\n"))).await;
    say(&format!("{peer}: coordinator disconnected: {why}\n"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_may_come_without_a_port() {
        for (text, expected) in [
            ("0.0.0.0", Some("0.0.0.0:9860")),
            ("10.0.0.7:7000", Some("10.0.0.7:7000")),
            ("::", Some("[::]:9860")),
            ("[::]", Some("[::]:9860")),
            ("[::1]:7000", Some("[::1]:7000")),
            ("fe80::1%lo", Some("[fe80::1%1]:9860")),
            ("[fe80::1%25lo]:7000", Some("[fe80::1%1]:7000")),
            ("client1", None),
        ] {
            assert_eq!(
                address(text, 9860).ok().map(|at| at.to_string()).as_deref(),
                expected,
                "{text}"
            );
        }
    }

    /// Regression: for an address without brackets, the message contained no advice, because the address was
    /// parsed again as one with a port.
    #[test]
    fn a_wrong_zone_is_named_with_and_without_brackets() {
        for (text, expected) in [
            ("fe80::1", "add the interface, as in fe80::1%eth0"),
            ("[fe80::1]:7000", "add the interface, as in fe80::1%eth0"),
            ("fe80::1%nosuch0", "this machine has no interface `nosuch0`"),
            (
                "[fe80::1%nosuch0]",
                "this machine has no interface `nosuch0`",
            ),
            ("client1", "`client1` is not an address"),
        ] {
            let why = address(text, 9860).expect_err(text);
            assert!(why.contains(expected), "{text}: {why}");
        }
    }

    #[test]
    fn a_peer_that_others_reach_says_so() {
        assert!(announcement(LOOPBACK).contains("all users of this machine"));
        let wide = announcement((Ipv4Addr::UNSPECIFIED, PEER_PORT).into());
        assert!(wide.contains("every host that can reach this address, without a secret"));
    }
}
