//! `linerate selftest` tests data integrity and throughput on this machine.
//!
//! The steps are:
//!
//! - Serve a RAM volume on loopback from a reactor thread of this process, and connect to it over TCP with
//!   Linerate's initiator.
//! - Write verifiable data in every way that iSCSI supports, and over NBD, with and without TLS, and read it
//!   back.
//! - Run the `quick` suite like `linerate bench`, and compare the result with this machine's TCP ceiling and
//!   with published results.
//! - Diagnose the path.
//!
//! Nothing outside this process is needed, and only the report remains afterwards.

use std::cell::RefCell;
use std::io::{IsTerminal, stderr};
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use ::report::measured::{Beside, Measured};
use ::wan::own_target::{self, OwnTarget, OwnTargetOptions};
use bench::plan::{Step, Stop, Suite};
use bench::record::Record;
use bench_runner::client::Site;
use bench_runner::folder::{self, Folder};
use bench_runner::selftest::{self, OwnStorage};
use bench_runner::view::View;
use host::{Epoll, EpollOptions, threads};
use iscsi_client::Url;
use iscsi_server::Limits;
use reactor::StreamOptions;

use crate::bench::ProgressLine;
use crate::diagnose;
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::output::{say, say_json};

#[derive(clap::Args, Debug)]
pub(crate) struct ProveArguments {
    /// Maximum time for each cell of the suite in each of three rounds; values below 1s also reduce the
    /// amount of verified data
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = crate::bench::seconds)]
    seconds: f64,
    /// Directory for the report; an earlier report there is replaced
    #[arg(long, value_name = "DIR", default_value = "linerate-selftest")]
    out: PathBuf,
    /// TCP congestion control of target and initiator [default: cubic, because other algorithms
    /// pace unnecessarily on loopback]
    #[arg(long, value_name = "NAME")]
    congestion: Option<String>,
    /// Busy-poll time in microseconds [default: 50, or 0 on a single CPU]
    #[arg(long, value_name = "MICROSECONDS")]
    poll_us: Option<u64>,
    /// Print JSON, one line at the end
    #[arg(long)]
    json: bool,
}

/// The results in JSON.
#[derive(serde::Serialize)]
struct Proof {
    proved: bool,
    seconds: f64,
    ways: Vec<Way>,
    /// The runs, in the format of `linerate bench --json`.
    runs: Vec<serde_json::Value>,
    report: String,
}

/// The result of the data verification over one path.
#[derive(serde::Serialize)]
struct Way {
    way: String,
    /// Number of verified bytes; `None` after an error.
    bytes: Option<u64>,
    error: Option<String>,
}

/// Runs the command. It fails if any block had wrong content.
pub(crate) fn run(args: &ProveArguments) -> Result<ExitCode, Failure> {
    let begun = Instant::now();
    let options = EpollOptions {
        spin: Duration::from_micros(args.spin_us()),
        ..EpollOptions::default()
    };
    let congestion = args.congestion.clone().or_else(usual_congestion);
    let server = serve(options, congestion.as_deref())?;
    let world = Epoll::shared(options).map_err(Failure::failed)?;
    args.heading(&server, congestion.as_deref());
    let proof = reactor::block_on(world, prove(args, &server, options, congestion))?;
    server.stop()?;
    let proof = Proof {
        seconds: begun.elapsed().as_secs_f64(),
        ..proof
    };
    args.closing(&proof)?;
    Ok(if proof.proved {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

impl ProveArguments {
    /// The busy-poll time. On a single CPU it is 0 by default, because busy polling would take the CPU time
    /// that the peer needs to produce events.
    fn spin_us(&self) -> u64 {
        let alone = threads::available().get() == 1;
        self.poll_us.unwrap_or(if alone { 0 } else { 50 })
    }

    /// The quick suite, limited to the time of a self-test.
    fn suite(&self) -> Suite {
        let mut suite = bench::suite::named("quick").expect("it is built in, and tested");
        for step in &mut suite.steps {
            if let Step::Measure { stop, .. } = step {
                let most = self.seconds;
                let (warm_up_s, min_s) = (stop.warm_up_s.min(most), stop.min_s.min(most));
                *stop = Stop {
                    warm_up_s,
                    min_s,
                    max_s: most,
                    ..*stop
                };
            }
        }
        suite
    }
}

/// The ratio of the diagnosis's time to a cell's. The diagnosis takes a dozen seconds, unless the time is
/// limited.
const DIAGNOSIS: f64 = 12.0;

/// Size of the volume. It is larger than the caches of most machines, and smaller than their memory.
const VOLUME_BYTES: u64 = 256 << 20;

/// Starts the target under test on loopback, on a port that the system selects.
fn serve(epoll: EpollOptions, congestion: Option<&str>) -> Result<OwnTarget, Failure> {
    let options = OwnTargetOptions {
        name: "iqn.2026-01.io.linerate:prove",
        listen: (Ipv4Addr::LOCALHOST, 0).into(),
        unit: own_target::memory(VOLUME_BYTES)?,
        stream: StreamOptions {
            congestion: congestion.map(str::to_owned),
            ..StreamOptions::default()
        },
        by_all_protocols: true,
        limits: Limits::default(),
        epoll,
    };
    OwnTarget::start(options, &Site::Here)
}

/// The default congestion control: cubic, if the kernel has it. bbr, the default on some systems, halves the
/// throughput of loopback.
fn usual_congestion() -> Option<String> {
    let there =
        std::fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control").ok()?;
    there
        .split_whitespace()
        .find(|name| *name == "cubic")
        .map(str::to_owned)
}

async fn prove(
    args: &ProveArguments,
    server: &OwnTarget,
    options: EpollOptions,
    congestion: Option<String>,
) -> Result<Proof, Failure> {
    let mut url = Url::parse(&server.url()).map_err(Failure::failed)?;
    url.settings.stream.congestion = congestion;
    backends::peers::record(&url.settings);
    args.say("\nData integrity\n");
    let ways = RefCell::new(Vec::new());
    let others = selftest::Others {
        nbd: server.nbd_url(),
        hyperscsi: server.hyperscsi_url(),
    };
    let sound = selftest::check_integrity(&url, &others, args.seconds.min(1.0), &|way, outcome| {
        args.say(&match outcome {
            Ok(bytes) => format!(
                "  ✓ {way:<58} {:>5.1} MiB\n",
                *bytes as f64 / f64::from(1 << 20)
            ),
            Err(failure) => format!("  ✗ {way:<58} {failure}\n"),
        });
        let (bytes, error) = (
            outcome.as_ref().ok().copied(),
            outcome.as_ref().err().map(ToString::to_string),
        );
        ways.borrow_mut().push(Way {
            way: way.to_owned(),
            bytes,
            error,
        });
    })
    .await?;
    let suite = args.suite();
    args.say("\nThroughput: medians of three rounds, with target and initiator on this machine\n");
    let stream = StreamOptions {
        congestion: url.settings.stream.congestion.clone(),
        ..StreamOptions::default()
    };
    // Use as much memory as the volume has, so that the CPU caches have the same effect.
    let limits = selftest::measure_ceiling(&suite, VOLUME_BYTES as usize, options, &stream).await?;
    let interrupt = Interrupt::listen()?;
    let server = environment::server::Server::here("linerate", server.thread);
    let storage = OwnStorage {
        url: url.clone(),
        spin: options.spin,
        out: &args.out,
        limits,
        server,
    };
    let is_watched = stderr().is_terminal() && !args.json;
    let mut view: Box<dyn View> = if is_watched {
        Box::new(ProgressLine::new())
    } else {
        Box::new(())
    };
    let record = storage
        .measure(suite, &mut *view, &|| interrupt.is_asked())
        .await?;
    drop(view);
    args.say(&::report::proof::table(&record));
    let report = args.out.join("report.html").display().to_string();
    args.say(&format!("\nReport: {report}\n"));
    args.say("\nBottleneck: the path layer by layer, as in `linerate diagnose`\n\n");
    diagnose::of_own(
        &url,
        args.seconds * DIAGNOSIS,
        args.out.join("diagnosis"),
        args.json,
    )
    .await?;
    // Write the report again, now with the diagnosis.
    folder::write_report(&Folder::open(&args.out), &record, &[])?;
    let proved = sound && args.went_well(&record);
    let beside = Beside::new(&record, url.settings.stream.congestion.as_deref(), false);
    let run = |run| {
        Measured::of(run, &beside)
            .json()
            .and_then(|line| serde_json::from_str(&line))
    };
    let runs = record
        .runs
        .iter()
        .map(run)
        .collect::<Result<_, _>>()
        .map_err(Failure::failed)?;
    Ok(Proof {
        proved,
        seconds: 0.0,
        ways: ways.take(),
        runs,
        report,
    })
}

impl ProveArguments {
    /// Prints text, unless JSON is requested.
    fn say(&self, text: &str) {
        if !self.json {
            say(text);
        }
    }

    /// Whether every request completed, with the right data.
    fn went_well(&self, record: &Record) -> bool {
        let runs = record.runs.iter().flat_map(|run| &run.clients);
        let mut failures = runs
            .filter_map(|client| client.run.first_failure.as_deref())
            .peekable();
        let well = failures.peek().is_none();
        failures.for_each(|failure| self.say(&format!("  ✗ a request failed: {failure}\n")));
        well
    }

    fn heading(&self, server: &OwnTarget, congestion: Option<&str>) {
        let system = environment::system_congestion();
        let note = match congestion {
            Some(chosen) if chosen != system => {
                format!("{chosen}, on both ends (the system's default is {system})")
            }
            _ => format!("{system}, the system's default"),
        };
        self.say(
            "linerate selftest: Linerate's target and initiator, over TCP on this machine\n\n",
        );
        self.say(&format!(
            "  volume       {} MiB of memory, in blocks of 512 bytes\n",
            VOLUME_BYTES >> 20
        ));
        self.say(&format!(
            "  target       {}, on one reactor thread\n",
            server.address
        ));
        self.say(&format!(
            "  initiator    on another thread, {} CPUs between them\n",
            threads::available()
        ));
        self.say(&format!("  congestion   {note}\n"));
    }

    fn closing(&self, proof: &Proof) -> Result<(), Failure> {
        if self.json {
            return say_json(proof);
        }
        let verdict = match proof.proved {
            true => "PASSED: every written block was read back correctly.",
            false => "FAILED: blocks were wrong or could not be read back; see above.",
        };
        say(&format!("\n{verdict} ({:.1} s)\n", proof.seconds));
        Ok(())
    }
}
