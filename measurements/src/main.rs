//! Comparisons of Linerate with its peers and its goals, run as `cargo measure COMMAND`. Each command writes its page in
//! docs/measured. Nothing here is shipped.
//!
//! A command that has goals ends with a non-zero exit code if one was missed.

mod cell;
mod changes;
mod client;
mod diagnosis;
mod figures;
mod levels;
mod machine;
mod page;
mod pauses;
mod random;
mod runner;
mod scale;
mod scene;
mod server;
mod soak;
mod steps;
mod suites;
mod table;
mod wan;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use xtask::tally::Verdict;

#[derive(Parser)]
#[command(name = "cargo measure", about = "Compare Linerate with its peers and its goals")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// The server's speed and CPU, compared with tgt
    Peers(runner::Options),
    /// The NBD server compared with nbdkit and qemu-nbd, the NBD client with libnbd
    Nbd(runner::Options),
    /// The initiator's speed and CPU, compared with libiscsi
    Clients(runner::Options),
    /// The cost of digests in speed and CPU, on long requests and on short ones
    Digests(runner::Options),
    /// Sessions, LUNs, memory, fairness, longest waits and cores, with goals
    Scale(runner::Options),
    /// `linerate bench` compared with fio on the same storage
    Fio(runner::Options),
    /// File volumes compared with a volume in memory, fio and tgt
    Volumes(runner::Options),
    /// The cost of each RAID level, and of journals in programs
    Raid(runner::Options),
    /// Requests to a Ceph image, compared with `rbd bench` and fio's rbd engine
    Rbd(runner::Options),
    /// Document 004's tables: one disk, one server, three, and levels of RAID
    Cern(runner::Options),
    /// HyperSCSI compared with iSCSI, several servers, sessions and cores, and a link shared with TCP
    Hyperscsi(runner::Options),
    /// Document 003's configuration: a gateway between two storage networks, at wire speed
    Gateway(runner::Options),
    /// An NBD client with four channels over two links that fail, and a server that is restarted and killed
    Failover(runner::Options),
    /// Every suite of `linerate bench` on every kind of storage
    Suites(suites::Options),
    /// What `linerate diagnose` says of paths with a planted cause, and of healthy ones
    DiagnoseMatrix(diagnosis::Options),
    /// The tables of measurements by `linerate bench --suite wan`
    Wan(wan::Options),
    /// Real processes for hours, with a server that is killed, stopped and cut off, and disks that fail
    Soak(soak::Options),
    /// The longest requests of two initiators while the configuration of their server changes 200 times
    Changes(changes::Options),
    /// Notes when the machine takes a core away (for scale)
    #[command(hide = true)]
    Pauses(pauses::Options),
    /// Takes a core for a part of the time (for diagnose-matrix)
    #[command(hide = true)]
    Burn(diagnosis::disturb::BurnOptions),
    /// Stands in front of a target and sends what it says in pieces (for diagnose-matrix)
    #[command(hide = true)]
    Forward(diagnosis::disturb::ForwardOptions),
}

fn main() -> ExitCode {
    let outcome = match Arguments::parse().command {
        Command::Peers(options) => runner::run("peers", &options, &[]),
        Command::Nbd(options) => runner::run("nbd", &options, &[]),
        Command::Clients(options) => runner::run("clients", &options, &[]),
        Command::Digests(options) => runner::run("digests", &options, &[]),
        Command::Scale(options) => runner::run("scale", &options, &scale::PARTS),
        Command::Fio(options) => runner::run("fio", &options, &[]),
        Command::Volumes(options) => runner::run("volumes", &options, &[]),
        Command::Raid(options) => runner::run("raid", &options, &levels::PARTS),
        Command::Rbd(options) => runner::run("rbd", &options, &[]),
        Command::Cern(options) => runner::run("cern", &options, &[]),
        Command::Hyperscsi(options) => runner::run("hyperscsi", &options, &[]),
        Command::Gateway(options) => runner::run("gateway", &options, &[]),
        Command::Failover(options) => runner::run("failover", &options, &[]),
        Command::Suites(options) => suites::run(&options),
        Command::DiagnoseMatrix(options) => diagnosis::run(&options),
        Command::Wan(options) => wan::run(&options),
        Command::Soak(options) => soak::run(&options),
        Command::Changes(options) => changes::run(&options),
        Command::Pauses(options) => pauses::run(&options).map(|()| Verdict::Holds),
        Command::Burn(options) => Ok(diagnosis::disturb::burn(&options)),
        Command::Forward(options) => diagnosis::disturb::forward(&options),
    };
    match outcome {
        Ok(Verdict::Holds) => ExitCode::SUCCESS,
        Ok(Verdict::Fails) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("measure: {error:#}");
            ExitCode::from(2)
        }
    }
}
