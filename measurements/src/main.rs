//! Comparisons of Linerate with its peers and its goals, run as `cargo measure COMMAND`. Each command writes its page in
//! docs/measured. Nothing here is shipped.
//!
//! A command that has goals ends with a non-zero exit code if one was missed.

mod cern;
mod changes;
mod diagnosis;
mod failover;
mod gateway;
mod hyperscsi;
mod lot;
mod measuring;
mod raid;
mod rbd;
mod scale;
mod soak;
mod suites;
mod wan;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use xtask::tally;

#[derive(Parser)]
#[command(name = "cargo measure", about = "Compare Linerate with its peers and its goals")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// The server's speed and CPU beside tgt, alternating rounds; writes its page
    Peers(measuring::Options),
    /// The speed and CPU of the NBD server beside nbdkit and qemu-nbd, and of the client beside libnbd; writes its page
    Nbd(measuring::Options),
    /// The initiator's speed and CPU beside libiscsi, alternating rounds; writes its page
    Clients(measuring::Options),
    /// What digests cost in speed and CPU, on long requests and on short ones; writes its page
    Digests(measuring::Options),
    /// Sessions, LUNs, memory, fairness, longest waits and cores, with goals; writes its page
    Scale(measuring::Options),
    /// Notes when the machine takes a core away (for scale)
    #[command(hide = true)]
    Pauses(measuring::pauses::Options),
    /// `linerate bench` beside fio on the same storage, alternating rounds; writes its page
    Fio(measuring::Options),
    /// File volumes beside a volume in memory, fio and tgt, alternating rounds; writes its page
    Volumes(measuring::Options),
    /// Every suite of `linerate bench` on every kind of storage; writes its page
    Suites(suites::Options),
    /// What `linerate diagnose` says of paths with a planted cause, and of healthy ones; writes its page
    DiagnoseMatrix(diagnosis::Options),
    /// The tables of measurements by `linerate bench --suite wan`; writes docs/measured/wan.md
    Wan(wan::Options),
    /// Takes a core for a part of the time (for diagnose-matrix)
    #[command(hide = true)]
    Burn(diagnosis::burn::Options),
    /// Stands in front of a target and sends what it says in pieces (for diagnose-matrix)
    #[command(hide = true)]
    Forward(diagnosis::forward::Options),
    /// What the levels of RAID cost beside each other over members in memory, and their journals; writes its page
    Raid(raid::Options),
    /// Requests to a Ceph image beside `rbd bench` and fio's rbd engine, in rounds that alternate; writes its page
    Rbd(rbd::Options),
    /// Real processes for hours, with a server that is killed, stopped and cut off, and disks that fail; adds to docs/measured/soak.md
    Soak(soak::Options),
    /// An NBD client with four channels over two links that fail, and a server that is restarted and killed; writes its page
    Failover(failover::Options),
    /// Document 004's tables: one disk, one server, three, and levels of RAID; writes its page
    Cern(cern::Options),
    /// Several HyperSCSI servers at once, more sessions and cores, and a link shared with TCP; writes its page
    Hyperscsi(hyperscsi::Options),
    /// Document 003's configuration: a gateway between two storage networks, at wire speed; writes its page
    Gateway(gateway::Options),
    /// The longest requests of two initiators while the configuration of their server changes 200 times
    Changes(changes::Options),
}

fn main() -> ExitCode {
    let outcome = match Arguments::parse().command {
        Command::Peers(options) => measuring::run("peers", &options, &[]),
        Command::Nbd(options) => measuring::run("nbd", &options, &[]),
        Command::Clients(options) => measuring::run("clients", &options, &[]),
        Command::Digests(options) => measuring::run("digests", &options, &[]),
        Command::Scale(options) => measuring::run("scale", &options, &scale::parts())
            .and_then(|tables| Ok(tables.and(scale::run(&options)?))),
        Command::Pauses(options) => measuring::pauses::run(&options).map(|()| tally::Verdict::Holds),
        Command::Fio(options) => measuring::run("fio", &options, &[]),
        Command::Volumes(options) => measuring::run("volumes", &options, &[]),
        Command::Suites(options) => suites::run(&options),
        Command::DiagnoseMatrix(options) => diagnosis::run(&options),
        Command::Wan(options) => wan::run(&options),
        Command::Burn(options) => Ok(diagnosis::burn::run(&options)),
        Command::Forward(options) => diagnosis::forward::run(&options),
        Command::Raid(options) => raid::run(&options),
        Command::Rbd(options) => rbd::run(&options),
        Command::Soak(options) => soak::run(&options),
        Command::Failover(options) => failover::run(&options),
        Command::Cern(options) => cern::run(&options),
        Command::Hyperscsi(options) => hyperscsi::run(&options),
        Command::Gateway(options) => gateway::run(&options),
        Command::Changes(options) => changes::run(&options),
    };
    match outcome {
        Ok(tally::Verdict::Holds) => ExitCode::SUCCESS,
        Ok(tally::Verdict::Fails) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("measure: {error:#}");
            ExitCode::from(2)
        }
    }
}
