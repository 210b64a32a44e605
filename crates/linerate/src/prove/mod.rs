//! `linerate prove`: that what is written comes back, and how fast, on this very machine.
//!
//! Serves a RAM volume on loopback from a reactor thread of this process, attaches to it over real TCP with our
//! own initiator, writes data that can be recognised in every way iSCSI has of sending it, reads it back, and then
//! measures one block size after the other. Nothing outside this process is needed, and nothing is left behind.

mod attached;
mod integrity;
mod ladder;
mod server;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use host::{Epoll, EpollOptions, threads};
use initiator::Url;

use self::server::Server;
use crate::bench::system_congestion;
use crate::failure::Failure;
use crate::output::say;
use crate::recording;

/// Proves on this machine that every byte comes back, and measures how fast.
#[derive(clap::Args, Debug)]
pub(crate) struct ProveArguments {
    /// How long to measure each block size in each direction
    #[arg(long, value_name = "SECONDS", default_value_t = 0.6, value_parser = crate::bench::seconds)]
    seconds: f64,
    /// Congestion control of both ends [default: cubic, as others pace what needs no pacing on loopback]
    #[arg(long, value_name = "NAME")]
    congestion: Option<String>,
    /// Look for events so long before going to sleep [default: 50, or 0 on a single CPU]
    #[arg(long, value_name = "MICROSECONDS")]
    poll_us: Option<u64>,
}

/// Runs the command. The exit code is a failure if any block came back wrong.
pub(crate) fn run(args: &ProveArguments) -> Result<ExitCode, Failure> {
    let begun = Instant::now();
    let options = EpollOptions { spin: Duration::from_micros(args.spin_us()) };
    let congestion = args.congestion.clone().or_else(usual_congestion);
    let server = Server::start(options, congestion.as_deref())?;
    let world = Epoll::shared(options).map_err(Failure::failed)?;
    heading(&server, congestion.as_deref());
    let proved = reactor::block_on(world, prove(args, &server, congestion))?;
    server.stop()?;
    closing(proved, begun.elapsed());
    Ok(if proved { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

impl ProveArguments {
    /// With one CPU, looking for events keeps the other side from causing them.
    fn spin_us(&self) -> u64 {
        let alone = threads::available().get() == 1;
        self.poll_us.unwrap_or(if alone { 0 } else { 50 })
    }
}

/// cubic, where the kernel has it: bbr, the default on some systems, halves what loopback carries
/// (`reference/crates.md`, section 1).
fn usual_congestion() -> Option<String> {
    let there = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control").ok()?;
    there.split_whitespace().find(|name| *name == "cubic").map(str::to_owned)
}

async fn prove(args: &ProveArguments, server: &Server, congestion: Option<String>) -> Result<bool, Failure> {
    let mut url = Url::parse(&server.url()).map_err(Failure::failed)?;
    url.settings.stream.congestion = congestion;
    recording::keep(&url.settings);
    let sound = integrity::check(&url).await?;
    let measured = ladder::climb(&url, Duration::from_secs_f64(args.seconds)).await?;
    Ok(sound && measured)
}

fn heading(server: &Server, congestion: Option<&str>) {
    let system = system_congestion();
    let note = match congestion {
        Some(chosen) if chosen != system => {
            format!("{chosen}, on both ends (this system's own choice is {system})")
        }
        _ => format!("{system}, this system's own choice"),
    };
    say("linerate prove: our target and our initiator, over real TCP on this machine\n\n");
    say(&format!("  volume       {} MiB of memory, in blocks of 512 bytes\n", server::VOLUME_BYTES >> 20));
    say(&format!("  target       {}, on one reactor thread\n", server.address));
    say(&format!("  initiator    on another thread, {} CPUs between them\n", threads::available()));
    say(&format!("  congestion   {note}\n"));
}

fn closing(proved: bool, took: Duration) {
    let verdict = if proved {
        "Proved: every block that was written came back as it was written."
    } else {
        "NOT PROVED: blocks came back wrong, or not at all; see above."
    };
    say(&format!("\n{verdict} ({:.1} s)\n", took.as_secs_f64()));
}
