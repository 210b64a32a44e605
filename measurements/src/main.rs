//! Comparisons of Linerate with its peers and its goals, run as `cargo measure COMMAND`. Each command writes its page in
//! docs/measured. Nothing here is shipped.
//!
//! A command with goals exits with a non-zero code if it misses one.

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
#[command(
    name = "cargo measure",
    about = "Compare Linerate with its peers and its goals"
)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Compare the server's speed and CPU time with tgt
    Peers(runner::Options),
    /// Compare the NBD server with nbdkit and qemu-nbd, and the NBD client with libnbd
    Nbd(runner::Options),
    /// Compare the initiator's speed and CPU time with libiscsi
    Clients(runner::Options),
    /// Measure the cost of digests in speed and CPU time, for long and short requests
    Digests(runner::Options),
    /// Measure scaling: sessions, LUNs, memory, fairness, longest waits and cores, with goals
    Scale(runner::Options),
    /// Compare `linerate bench` with fio on the same storage
    Fio(runner::Options),
    /// Compare file volumes with a RAM volume, fio and tgt
    Volumes(runner::Options),
    /// Measure the cost of each RAID level, and of journals in programs
    Raid(runner::Options),
    /// Compare requests to a Ceph image with `rbd bench` and fio's rbd engine
    Rbd(runner::Options),
    /// Measure document 004's tables: one disk, one server, three servers, and RAID levels
    Cern(runner::Options),
    /// Compare HyperSCSI with iSCSI: several servers, sessions and cores, and a link shared with TCP
    Hyperscsi(runner::Options),
    /// Measure document 003's configuration: a gateway between two storage networks, at wire speed
    Gateway(runner::Options),
    /// Measure failover: an NBD client with four channels over two failing links, and a server that is restarted and killed
    Failover(runner::Options),
    /// Run every suite of `linerate bench` on every kind of storage
    Suites(suites::Options),
    /// Check `linerate diagnose` on paths with a planted cause and on healthy paths
    DiagnoseMatrix(diagnosis::Options),
    /// Diagnose random paths, and measure the truth by removing each impairment
    DiagnosePaths(diagnosis::paths::Options),
    /// Write the tables of measurements made with `linerate bench --suite wan`
    Wan(wan::Options),
    /// Run real processes for hours, with a server that is killed, stopped and disconnected, and with failing disks
    Soak(soak::Options),
    /// Measure the longest requests of two initiators while their server's configuration changes 200 times
    Changes(changes::Options),
    /// Record times when the machine withdraws a core (for scale)
    #[command(hide = true)]
    Pauses(pauses::Options),
    /// Keep a core busy for part of the time (for diagnose-matrix)
    #[command(hide = true)]
    Burn(diagnosis::disturb::BurnOptions),
    /// Forward a target's PDUs in separate pieces (for diagnose-matrix)
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
        Command::DiagnosePaths(options) => diagnosis::paths::run(&options),
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
