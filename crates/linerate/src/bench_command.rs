//! `linerate bench`: one workload against one volume, ours or anybody's.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use bench::plan::{Data, Percent, Span, Workload};
use bench::record::Run;
use bench::{Go, Orders};
use block::BlockDevice;
use host::{Epoll, EpollOptions, cputime};
use initiator::{RemoteTarget, Statistics, Url};
use serde::Serialize;

use crate::failure::Failure;
use crate::figures::{grouped, significant};
use crate::output::say;
use crate::remote;
use crate::spec::{Bytes, Spec};

/// Measures one workload: a number of requests always under way, each followed by the next.
#[derive(clap::Args, Debug)]
pub(crate) struct BenchArguments {
    /// What to measure: iscsi://[user@]host[:port]/target/lun[?key=value&...], or a volume such as
    /// ram:1GiB or file:/data/vm1.img
    #[arg(value_name = "URL")]
    volume: String,
    /// Length of each request
    #[arg(long, value_name = "SIZE", default_value = "4KiB")]
    block: Bytes,
    /// Requests under way at once, in each session
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    depth: u32,
    /// How many of the requests are reads
    #[arg(long, value_name = "PERCENT", default_value_t = 100, value_parser = clap::value_parser!(u8).range(..=100))]
    read: u8,
    /// How many of the requests go to random places; the others follow the one before them
    #[arg(long, value_name = "PERCENT", default_value_t = 100, value_parser = clap::value_parser!(u8).range(..=100))]
    random: u8,
    /// How long to measure
    #[arg(long, value_name = "SECONDS", default_value_t = 5.0, value_parser = seconds)]
    seconds: f64,
    /// The part of the volume to use, from its start; all of it if not given
    #[arg(long, value_name = "SIZE")]
    span: Option<Bytes>,
    /// Sessions to open, each with its own requests
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1024))]
    sessions: u16,
    /// Connections of each session; the same as the key `connections` in the URL
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=8))]
    connections: Option<u16>,
    /// Congestion control of our sockets, such as cubic; the same as the key `congestion` in the URL
    #[arg(long, value_name = "NAME")]
    congestion: Option<String>,
    /// Write data that can be recognised, and check it in reads
    #[arg(long)]
    verify: bool,
    /// Where random places and data come from
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Look for answers so long before going to sleep; worth it where this program has a CPU to itself
    #[arg(long, value_name = "MICROSECONDS", default_value_t = 100)]
    poll_us: u64,
    /// Let requests write, which destroys what is on the volume
    #[arg(long)]
    allow_write: bool,
    /// Tell what each session did: what its commands waited for, what moved, and what the kernel knows of its
    /// connections
    #[arg(long)]
    statistics: bool,
    /// Print one line of JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn seconds(text: &str) -> Result<f64, String> {
    let seconds: f64 = text.parse().map_err(|_| format!("{text:?} is not a number of seconds"))?;
    let fits = (0.001..=86_400.0).contains(&seconds);
    if fits { Ok(seconds) } else { Err("a run takes from 0.001 to 86400 seconds".to_owned()) }
}

/// Runs the command.
pub(crate) fn run(args: &BenchArguments) -> Result<ExitCode, Failure> {
    let workload = args.workload()?;
    let source = args.source()?;
    let spin = Duration::from_micros(args.poll_us);
    let world = Epoll::shared(EpollOptions { spin }).map_err(Failure::failed)?;
    let (report, first_failure) = reactor::block_on(world, measure(args, &source, &workload))?;
    let text = if args.json { report.json()? } else { report.text(args) + &report.tables() };
    say(&text);
    Ok(if first_failure { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// What is measured.
enum Source {
    Remote(Box<Url>),
    Local(Spec),
}

impl BenchArguments {
    fn source(&self) -> Result<Source, Failure> {
        if !self.volume.starts_with("iscsi:") {
            return self.volume.parse().map(Source::Local).map_err(Failure::refused);
        }
        let mut url = remote::url(&self.volume)?;
        let settings = &mut url.settings;
        settings.connections = self.connections.unwrap_or(settings.connections);
        settings.stream.congestion = self.congestion.clone().or(settings.stream.congestion.take());
        Ok(Source::Remote(Box::new(url)))
    }

    fn workload(&self) -> Result<Workload, Failure> {
        if self.read < 100 && !self.allow_write {
            let why = "writing destroys what is on the volume; say --allow-write if that is meant";
            return Err(Failure::refused(why));
        }
        let share = |percent| Percent::new(percent).ok_or_else(|| Failure::refused("a share is 0 to 100"));
        let block_bytes = u32::try_from(self.block.0);
        let block_bytes = block_bytes.map_err(|_| Failure::refused("a request is shorter than 4 GiB"))?;
        Ok(Workload {
            span: Span { start_bytes: 0, bytes: self.span.map(|span| span.0) },
            data: if self.verify { Data::Stamped } else { Data::Random },
            seed: self.seed,
            ..Workload::simple(block_bytes, self.depth, share(self.read)?, share(self.random)?)
        })
    }
}

async fn measure(
    args: &BenchArguments,
    source: &Source,
    workload: &Workload,
) -> Result<(Report, bool), Failure> {
    let (attached, congestion) = match source {
        Source::Remote(url) => (sessions(url, args.sessions).await?, Some(congestion(url))),
        Source::Local(spec) => (vec![Attached::here(spec)?], None),
    };
    let devices: Vec<_> = attached.iter().map(|attached| Arc::clone(&attached.device)).collect();
    let sessions_before = told(&attached).await;
    let before = cputime::process();
    let orders = Orders::for_time(Duration::from_secs_f64(args.seconds));
    let run = bench::run(&devices, workload, &orders, &mut |_| Go::On).await.map_err(Failure::refused)?;
    let measured = Measurement::of(&run).with_cpu(cputime::process() - before);
    let sessions = since(&sessions_before, &told(&attached).await);
    let failed = measured.first_failure.is_some();
    let geometry = devices.first().map(|device| device.geometry());
    let device_bytes = geometry.map_or(0, |geometry| geometry.bytes());
    for attached in attached {
        attached.detach().await;
    }
    let sessions = args.statistics.then_some(sessions);
    Ok((Report { measured, congestion, device_bytes, sessions }, failed))
}

/// What the sessions tell of themselves.
async fn told(attached: &[Attached]) -> Vec<Statistics> {
    let mut told = Vec::new();
    for target in attached.iter().filter_map(|attached| attached.target.as_ref()) {
        told.extend(target.statistics().await);
    }
    told
}

fn since(before: &[Statistics], after: &[Statistics]) -> Vec<Statistics> {
    after.iter().zip(before).map(|(after, before)| after.since(before)).collect()
}

async fn sessions(url: &Url, count: u16) -> Result<Vec<Attached>, Failure> {
    let mut sessions = Vec::new();
    for _ in 0..count {
        sessions.push(Attached::to(url).await?);
    }
    Ok(sessions)
}

/// A device, and the session that it is reached by if it is not here.
pub(crate) struct Attached {
    pub(crate) device: Arc<dyn BlockDevice>,
    target: Option<Arc<RemoteTarget>>,
}

impl Attached {
    /// A LUN by a session of its own.
    pub(crate) async fn to(url: &Url) -> Result<Attached, Failure> {
        let lun = remote::open(url).await?;
        let target = Some(Arc::clone(lun.target()));
        Ok(Attached { device: Arc::new(lun), target })
    }

    fn here(spec: &Spec) -> Result<Attached, Failure> {
        let device = crate::volume::open(spec).map_err(Failure::refused)?;
        Ok(Attached { device, target: None })
    }

    /// Says good-bye, so that the target need not find out by itself.
    pub(crate) async fn detach(self) {
        if let Some(target) = self.target {
            target.close().await;
        }
    }
}

/// The congestion control of our own sockets: it is writes that it slows down, reads are up to the target's.
fn congestion(url: &Url) -> String {
    url.settings.stream.congestion.clone().unwrap_or_else(system_congestion)
}

/// The system's choice for sockets that make none.
pub(crate) fn system_congestion() -> String {
    let default = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_congestion_control");
    default.map_or_else(|_| "unknown".to_owned(), |name| name.trim().to_owned())
}

/// What a run came to, in the numbers that people read.
#[derive(Debug, Serialize)]
pub(crate) struct Measurement {
    /// Requests that ended well, per second.
    pub(crate) iops: f64,
    /// Data they moved, in 10^6 bytes per second.
    pub(crate) mb_per_s: f64,
    /// How long they took.
    pub(crate) latency_us: Latency,
    /// CPU time of this side per request that ended well, in microseconds.
    client_cpu_us_per_io: Option<f64>,
    pub(crate) ios: u64,
    reads: u64,
    errors: u64,
    mismatches: u64,
    pub(crate) first_failure: Option<String>,
    seconds: f64,
}

/// How long requests took, in microseconds.
#[derive(Debug, Serialize)]
pub(crate) struct Latency {
    pub(crate) p50: f64,
    pub(crate) p99: f64,
    p999: f64,
    mean: f64,
    max: f64,
}

impl Measurement {
    pub(crate) fn of(run: &Run) -> Measurement {
        let latency = run.reads.service.merged(&run.writes.service);
        let us = |share| latency.quantile_ns(share) as f64 / 1e3;
        let mean = latency.mean_ns() / 1e3;
        Measurement {
            iops: run.iops(),
            mb_per_s: run.bytes_per_s() / 1e6,
            latency_us: Latency { p50: us(0.5), p99: us(0.99), p999: us(0.999), mean, max: us(1.0) },
            client_cpu_us_per_io: None,
            ios: run.ios(),
            reads: run.reads.ios,
            errors: run.errors,
            mismatches: run.mismatches,
            first_failure: run.first_failure.clone(),
            seconds: run.seconds,
        }
    }

    /// The same with the CPU time that this side spent on the run.
    fn with_cpu(mut self, spent: Duration) -> Measurement {
        self.client_cpu_us_per_io = (self.ios > 0).then(|| spent.as_secs_f64() * 1e6 / self.ios as f64);
        self
    }
}

/// What is printed. The names and units of the JSON are promised.
#[derive(Serialize)]
struct Report {
    #[serde(flatten)]
    measured: Measurement,
    /// `null` where no network is involved.
    congestion: Option<String>,
    device_bytes: u64,
    /// During the run, of each session.
    #[serde(skip_serializing_if = "Option::is_none")]
    sessions: Option<Vec<Statistics>>,
}

impl Report {
    fn json(&self) -> Result<String, Failure> {
        serde_json::to_string(self).map(|line| line + "\n").map_err(Failure::failed)
    }

    fn text(&self, args: &BenchArguments) -> String {
        let Measurement { latency_us: latency, .. } = &self.measured;
        let us = |time: f64| format!("{} µs", significant(time));
        let cpu = self.measured.client_cpu_us_per_io.map_or_else(|| "-".to_owned(), us);
        format!(
            "{}\n{}\n\n  {} IOPS   {} MB/s\n  latency   p50 {}   p99 {}   p99.9 {}   mean {}   longest {}\n  \
             CPU       {cpu} per request on this side\n  requests  {} in {:.1} s, {}\n",
            self.what(args),
            asked(args),
            grouped(self.measured.iops.round() as u64),
            significant(self.measured.mb_per_s),
            us(latency.p50),
            us(latency.p99),
            us(latency.p999),
            us(latency.mean),
            us(latency.max),
            grouped(self.measured.ios),
            self.measured.seconds,
            self.failures(),
        )
    }

    fn tables(&self) -> String {
        self.sessions.iter().flatten().map(|statistics| format!("\n{statistics}")).collect()
    }

    fn what(&self, args: &BenchArguments) -> String {
        let size = Bytes(self.device_bytes);
        let network = self.congestion.as_ref().map(|name| format!(", congestion control {name}"));
        // Who logs in is nobody else's business.
        let volume = args.volume.rsplit_once('@').map_or(args.volume.as_str(), |(_, behind)| behind);
        format!("{volume}: {size}{}", network.unwrap_or_default())
    }

    fn failures(&self) -> String {
        match (&self.measured.first_failure, self.measured.errors + self.measured.mismatches) {
            (None, _) => "none failed".to_owned(),
            (Some(first), count) => format!("{} FAILED, the first because {first}", grouped(count)),
        }
    }
}

fn asked(args: &BenchArguments) -> String {
    let sessions =
        if args.sessions == 1 { String::new() } else { format!(" in each of {} sessions", args.sessions) };
    format!(
        "requests of {}, {} at once{sessions}, {} % reads, {} % random",
        args.block, args.depth, args.read, args.random
    )
}
