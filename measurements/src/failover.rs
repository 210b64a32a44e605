//! `cargo measure failover`: verified load by an NBD client with four channels over two links, while a connection, a link and the
//! server are taken away. Writes docs/measured/failover.md.
//!
//! ```text
//!   client                      links                         server
//!     linerate bench --verify ──┬── a ──┬── linerate serve, or nbdkit, of a file
//!                               └── b ──┘
//! ```

use std::fmt::Write as _;
use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use lab::{Conditions, Direction, Host, HostPlan, Lab, LinkPlan, Plan};
use serde_json::Value;

use crate::measuring::machine;
use xtask::document;
use xtask::process::{self, Background};
use xtask::tally::Verdict;
use xtask::workspace;

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// How long the server is dead, in seconds
    #[arg(long, default_value_t = 60)]
    dead: u64,
    /// How long each other step takes, in seconds
    #[arg(long, default_value_t = 8)]
    step: u64,
    /// Use this binary instead of building one
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
    /// Leave the page as it is
    #[arg(long)]
    dry: bool,
}

const LINK_BITS: f64 = 100e6;
const THROTTLED: f64 = 0.1;
/// After so many seconds without a byte a connection is given up.
const STALL_S: u64 = 2;
/// A pause that is longer has no reason, as long as the server is there: the stall, the longest back-off of 5 s, and the quarantine
/// of 10 s, which a journal waits for with a server that cannot say that a connection has ended.
const PAUSE_MAX: Duration = Duration::from_secs(STALL_S + 5 + 10);
const KILLED: &str = "the server is killed";
/// A server listens in this time, on a machine that has other work, too.
const START_MAX: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(20);

/// Who serves.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Contestant {
    Linerate,
    Nbdkit,
}

struct World<'a> {
    contestant: Contestant,
    lab: &'a Lab,
    binary: &'a Path,
    folder: &'a Path,
    server: Option<Background>,
}

/// What happens, and what is told of it.
struct Step {
    what: &'static str,
    seconds: u64,
    begin: fn(&mut World<'_>) -> Result<()>,
}

/// What came of a step.
struct Seen {
    what: &'static str,
    seconds: f64,
    /// Bytes by each link.
    bytes: [u64; 2],
    /// The longest time in which no link carried a byte of a request.
    silence: Duration,
}

pub(crate) fn run(options: &Options) -> Result<Verdict> {
    process::require(&["nbdkit"])?;
    let binary = options.binary.clone().map_or_else(workspace::release_binary, Ok)?;
    let mut page = String::from("# `cargo measure failover`\n\n");
    let mut verdict = Verdict::Holds;
    writeln!(
        page,
        "`linerate bench --verify` writes and reads blocks of 16 KiB at random (half of each, depth 64) over four NBD channels and two links of \
         {:.0} Mbit/s, while the steps below happen one after the other; `stall={STALL_S}`, `timeout` longer than the server is dead. Bytes are those that each \
         link carried, in both directions; a pause is the longest time in which neither carried more than acknowledgements. At a tenth, b has {:.0} % of what both can carry. After \
         its restart nbdkit cannot say that the connections of before have ended: what was not flushed is written again once their `quarantine` of 10 s is over.\n",
        LINK_BITS / 1e6,
        100.0 * THROTTLED / (1.0 + THROTTLED)
    )?;
    for contestant in [Contestant::Linerate, Contestant::Nbdkit] {
        let (seen, result) = fail_over(contestant, &binary, options)?;
        let (section, holds) = told(contestant, &seen, &result)?;
        print!("{section}");
        page += &section;
        verdict = verdict.and(Verdict::of(holds));
    }
    writeln!(page, "Machine: {}, Linux {}.", machine::machine(), machine::kernel())?;
    if !options.dry {
        document::write("failover", &page)?;
    }
    Ok(verdict)
}

/// Lets all of it happen, and returns what bench says in the end.
fn fail_over(contestant: Contestant, binary: &Path, options: &Options) -> Result<(Vec<Seen>, Value)> {
    let plan = Plan {
        hosts: vec![HostPlan::new("client"), HostPlan::new("server")],
        links: ["a", "b"].map(|name| LinkPlan::new(name, "client", "server", at_rate(LINK_BITS))).into(),
    };
    let lab = Lab::build(&plan).context("building the lab")?;
    let folder = workspace::target_directory().join(format!("xtask/failover-{}", std::process::id()));
    fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    fs::File::create(folder.join("disk.img"))?.set_len(64 << 20)?;
    let mut world = World { contestant, lab: &lab, binary, folder: &folder, server: None };
    world.start()?;
    let steps = world.steps(options);
    let seconds: u64 = steps.iter().map(|step| step.seconds).sum();
    let mut load = world.load(seconds, options)?;
    let seen = steps.iter().map(|step| world.watch(step)).collect::<Result<Vec<Seen>>>()?;
    // It waits in the pipe, in which it has room.
    let mut text = String::new();
    load.child.stdout.take().context("bench's standard output")?.read_to_string(&mut text)?;
    drop((load, world));
    fs::remove_dir_all(&folder).with_context(|| folder.display().to_string())?;
    Ok((seen, serde_json::from_str(&text).with_context(|| format!("bench: {text}"))?))
}

fn at_rate(bits_per_s: f64) -> Conditions {
    Conditions { bits_per_s: Some(bits_per_s), ..Conditions::default() }
}

impl World<'_> {
    fn host(&self, name: &str) -> Result<&Host> {
        Ok(self.lab.host(name)?)
    }

    fn steps(&self, options: &Options) -> Vec<Step> {
        let Options { step, dead, .. } = *options;
        let ours = self.contestant == Contestant::Linerate;
        let mut steps = vec![
            Step { what: "both links whole", seconds: step, begin: |_| Ok(()) },
            Step { what: "one connection is ended", seconds: step, begin: |world| world.drop_one() },
            Step {
                what: "link b at a tenth",
                seconds: 2 * step,
                begin: |world| world.set("b", &at_rate(LINK_BITS * THROTTLED)),
            },
            Step {
                what: "link b carries nothing",
                seconds: step,
                begin: |world| world.set("b", &Conditions { loss: 1.0, ..at_rate(LINK_BITS) }),
            },
            Step {
                what: "link b is back",
                seconds: 2 * step,
                begin: |world| world.set("b", &at_rate(LINK_BITS)),
            },
            Step { what: "the server is ended and started", seconds: step, begin: |world| world.restart() },
            Step { what: KILLED, seconds: dead, begin: |world| world.kill() },
            Step { what: "the server is started again", seconds: 2 * step, begin: |world| world.start() },
        ];
        // nbdkit has no command for it.
        steps.retain(|step| ours || step.what != "one connection is ended");
        steps
    }

    fn start(&mut self) -> Result<()> {
        let host = self.host("server")?;
        let disk = self.folder.join("disk.img");
        self.server = Some(match self.contestant {
            Contestant::Linerate => {
                let mut command = host.command(self.binary);
                command.args(["--log", "error", "serve", "--listen", "nbd://0.0.0.0:10809", "--volume"]);
                command.arg(format!("disk=file:{}", disk.display())).arg("--state").arg(self.folder);
                Background::start_ready(&mut command)?
            }
            Contestant::Nbdkit => {
                let mut command = host.command("nbdkit");
                let listening = self.folder.join("nbdkit.pid");
                let _ = fs::remove_file(&listening); // there is none before the first start
                command.arg("--pidfile").arg(&listening);
                // One thread: 1.32 aborts when a connection is reset while several answer.
                command.args(["--foreground", "--threads=1", "--exportname=disk", "file"]).arg(disk);
                let nbdkit = Background::start(&mut command)?;
                let until = Instant::now() + START_MAX;
                while !listening.exists() {
                    ensure!(Instant::now() < until, "nbdkit does not listen after {} s", START_MAX.as_secs());
                    thread::sleep(LOOK);
                }
                nbdkit
            }
        });
        Ok(())
    }

    fn kill(&mut self) -> Result<()> {
        self.server.as_mut().context("a server")?.kill();
        Ok(())
    }

    fn restart(&mut self) -> Result<()> {
        self.server.as_mut().context("a server")?.stop();
        self.start()
    }

    fn set(&self, link: &str, conditions: &Conditions) -> Result<()> {
        let link = self.lab.link(link)?;
        [Direction::Forward, Direction::Back]
            .into_iter()
            .try_for_each(|direction| Ok(link.set(direction, conditions)?))
    }

    /// By the server, without a word to the client.
    fn drop_one(&mut self) -> Result<()> {
        let ours = |arguments: &[&str]| -> Result<String> {
            let mut command = self.host("server")?.command(self.binary);
            command.arg("server").args(arguments).arg("--control").arg(self.folder.join("control.sock"));
            process::capture(command)
        };
        let sessions: Value = serde_json::from_str(&ours(&["sessions", "--json"])?)?;
        let number = sessions["sessions"][0]["tsih"].as_u64().context("an NBD client among the sessions")?;
        let name = format!("nbd:{number}");
        ours(&["drop", "--force", &name]).map(drop)
    }

    fn load(&self, seconds: u64, options: &Options) -> Result<Background> {
        let mut command = self.host("client")?.command(self.binary);
        let timeout = options.dead + 60;
        let url = format!(
            "nbd://10.77.0.2/disk?address=10.77.1.2&connections=4&stall={STALL_S}&timeout={timeout}&congestion=cubic"
        );
        command.args(["--log", "error", "bench", &url, "--verify", "--allow-write", "--yes", "--json"]);
        command.args([
            "--block",
            "16KiB",
            "--depth",
            "64",
            "--random",
            "100",
            "--read",
            "50",
            "--progress",
            "none",
        ]);
        command.args(["--seconds", &seconds.to_string()]).stdout(Stdio::piped());
        Background::start(&mut command)
    }

    fn bytes(&self) -> Result<[u64; 2]> {
        Ok([self.lab.link("a")?.counts().bytes, self.lab.link("b")?.counts().bytes])
    }

    fn watch(&mut self, step: &Step) -> Result<Seen> {
        (step.begin)(self).context(step.what)?;
        let (begun, before) = (Instant::now(), self.bytes()?);
        let (mut last, mut since, mut silence) = (before, begun, Duration::ZERO);
        while begun.elapsed() < Duration::from_secs(step.seconds) {
            thread::sleep(LOOK);
            let now = self.bytes()?;
            // Less is acknowledgements, probes, and attempts to connect.
            if now.iter().zip(last).any(|(now, last)| now - last > QUIET_BYTES) {
                since = Instant::now();
            }
            (last, silence) = (now, silence.max(since.elapsed()));
        }
        let bytes = [0, 1].map(|link| last[link] - before[link]);
        Ok(Seen { what: step.what, seconds: begun.elapsed().as_secs_f64(), bytes, silence })
    }
}

/// No request of the load is shorter than a packet.
const QUIET_BYTES: u64 = 1500;

/// The section of the page, and whether everything is as it should be.
fn told(contestant: Contestant, seen: &[Seen], result: &Value) -> Result<(String, bool)> {
    let name = match contestant {
        Contestant::Linerate => "linerate serve",
        Contestant::Nbdkit => "nbdkit file, one thread",
    };
    let head = "| step | seconds | MB/s by a | MB/s by b | share of b | longest pause |\n|---|---:|---:|---:|---:|---:|";
    let mut text = format!("## {name}\n\n{head}\n");
    for Seen { what, seconds, bytes, silence } in seen {
        let [a, b] = bytes.map(|bytes| bytes as f64 / 1e6 / seconds);
        let share = if a + b < 0.1 { "-".to_owned() } else { format!("{:.0} %", 100.0 * b / (a + b)) };
        let pause = silence.as_secs_f64();
        writeln!(text, "| {what} | {seconds:.0} | {a:.1} | {b:.1} | {share} | {pause:.2} s |")?;
    }
    let count = |key: &str| result[key].as_u64().with_context(|| format!("{key} in {result}"));
    let (ios, errors, mismatches) = (count("ios")?, count("errors")?, count("mismatches")?);
    let longest = result["latency_us"]["max"].as_f64().context("the longest request")? / 1e6;
    writeln!(
        text,
        "\n{ios} requests, {errors} errors, {mismatches} blocks with other data than were written last; the longest request took {longest:.1} s.\n"
    )?;
    let bounded = seen.iter().all(|seen| seen.what == KILLED || seen.silence <= PAUSE_MAX);
    Ok((text, errors == 0 && mismatches == 0 && ios > 0 && bounded))
}
