//! A client: a thread with its own world and its own paths to the storage, which runs one role at a time.
//!
//! On one machine it stands for an initiator: clients share only the machine. An agent has clients too, in
//! another process. The owner of a client sends it orders and receives every sample; the client itself
//! decides nothing except when its orders are complete.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::{Duration, Instant};

use backends::Failure;
use backends::peers::Channelled;
use bench::plan::{Data, Role, Rule, Stop};
use bench::record::{ClientRun, Run, Sample};
use bench::{Go, Orders};
use host::{Epoll, EpollOptions};
use lab::{Lab, LabError};
use reactor::{Receiver, Sender, mailbox};

use crate::client_paths::{Source, StoragePaths, settle};
use crate::costs::{Cost, Costs};
use crate::storage::journal_of_run;

/// The handle of a client, which logs out and ends when this handle is dropped.
pub struct Client {
    name: String,
    orders: Sender<Order>,
    ended: Receiver<()>,
}

/// Options of a client.
pub struct ClientOptions {
    /// Its name in the record: `client 1`.
    pub name: String,
    /// The storage that it measures.
    pub source: Source,
    /// The busy-poll time of its thread.
    pub spin: Duration,
    /// On which network.
    pub site: Site,
    /// The journal file of acknowledged writes, for a verified workload.
    pub log: Option<PathBuf>,
}

/// A task of a client.
pub struct Task {
    /// Its role in the cell.
    pub role: Role,
    /// The time of its regular end.
    pub stop: Stop,
    /// The time of the first request; now, if that is past.
    pub start: Instant,
    /// Ends it early.
    pub end: StopFlag,
    /// Whether this is the process's only activity. All CPU time is then this client's, including that of the
    /// threads which serve files where io_uring is forbidden.
    pub alone: bool,
}

/// A shared flag that asks clients to end.
#[derive(Clone, Default)]
pub struct StopFlag(Arc<AtomicBool>);

/// A report of a client.
pub enum Report {
    /// The warm-up is over, and requests are counted.
    Counting,
    /// The sample of a short interval.
    Sample(Sample),
    /// The run has ended. No more notifications follow.
    Ended(Box<Result<RoleResult, Failure>>),
}

/// The result of a role.
pub struct RoleResult {
    /// The part for the record.
    pub run: ClientRun,
    /// The statistics of its sessions as text.
    pub tables: Vec<String>,
    /// The actual start time.
    pub started: Instant,
}

enum Order {
    Prepare { sessions: u16, done: Sender<Result<(), Failure>> },
    LookAlive { done: Sender<Result<(), Failure>> },
    Run { task: Box<Task>, index: usize, reports: Sender<(usize, Report)> },
}

impl Client {
    /// Starts its thread. Nothing is opened yet.
    pub fn start(options: ClientOptions) -> Result<Client, Failure> {
        let (orders, received) = mailbox();
        let (end, ended) = mailbox();
        let name = options.name.clone();
        let thread = thread::Builder::new().name(name.replace(' ', "-"));
        let started = thread.spawn(move || {
            if let Err(failure) = options.site.run(|| live(&options, received)) {
                // Senders of orders get an error, because the receiver is dropped.
                tracing::error!(%failure, "a client has no network");
            }
            // Dropped before the end is announced: afterwards, the storage is no longer in use.
            drop(options);
            // The receiver may have been dropped.
            let _ = end.send(());
        });
        started
            .map_err(|error| Failure::failed(format_args!("cannot start a thread for {name}: {error}")))?;
        Ok(Client { name, orders, ended })
    }

    /// Opens paths to the storage until there are `sessions`.
    pub async fn prepare(&self, sessions: u16) -> Result<(), Failure> {
        self.ask(|done| Order::Prepare { sessions, done }).await
    }

    /// Checks that each of its paths still leads to the storage, with the time that an initiator needs to
    /// reconnect.
    pub async fn look_alive(&self) -> Result<(), Failure> {
        self.ask(|done| Order::LookAlive { done }).await
    }

    /// Starts a prepared role. Its reports carry `index`.
    pub fn begin(&self, task: Task, index: usize, reports: &Sender<(usize, Report)>) {
        let order = Order::Run { task: Box::new(task), index, reports: reports.clone() };
        if self.orders.send(order).is_err() {
            // The receiver of its reports gets an error.
            let _ = reports.send((index, Report::Ended(Box::new(Err(self.gone())))));
        }
    }

    /// Logs out and ends, or gives up after a few seconds.
    pub async fn close(self) {
        let Client { orders, mut ended, .. } = self;
        drop(orders);
        let _ = reactor::timeout(PATIENCE, ended.recv()).await;
    }

    async fn ask(&self, order: impl FnOnce(Sender<Result<(), Failure>>) -> Order) -> Result<(), Failure> {
        let (done, mut answer) = mailbox();
        let sent = self.orders.send(order(done)).is_ok();
        let answer = if sent { answer.recv().await } else { None };
        answer.unwrap_or_else(|| Err(self.gone()))
    }

    fn gone(&self) -> Failure {
        Failure::failed(format_args!("{} stopped unexpectedly", self.name))
    }
}

/// A target that does not respond to a logout is abandoned.
const PATIENCE: Duration = Duration::from_secs(5);

impl StopFlag {
    /// Asks for it.
    pub fn ask(&self) {
        self.0.store(true, Relaxed);
    }

    /// Whether that was asked for.
    pub fn is_asked(&self) -> bool {
        self.0.load(Relaxed)
    }
}

/// The thread.
fn live(options: &ClientOptions, orders: Receiver<Order>) {
    match Epoll::shared(EpollOptions { spin: options.spin, ..EpollOptions::default() }) {
        Ok(world) => reactor::block_on(world, obey(options, orders)),
        // Senders of orders get an error, because the receiver is dropped.
        Err(error) => tracing::error!(%error, "a client has no epoll set"),
    }
}

async fn obey(options: &ClientOptions, mut orders: Receiver<Order>) {
    let mut paths = StoragePaths::none(&options.source);
    while let Some(order) = orders.recv().await {
        match order {
            Order::Prepare { sessions, done } => {
                let _ = done.send(paths.prepare(sessions).await);
            }
            Order::LookAlive { done } => {
                let _ = done.send(paths.look_alive().await);
            }
            Order::Run { task, index, reports } => {
                let told = reports.clone();
                let tell = move |report| drop(told.send((index, report)));
                // All clients share the channels: one reports.
                let channels = paths.channels().filter(|_| index == 0);
                let outcome = carry_out(options, &paths, channels, &task, tell).await;
                let _ = reports.send((index, Report::Ended(Box::new(outcome))));
            }
        }
    }
    paths.close().await;
}

async fn carry_out(
    options: &ClientOptions,
    paths: &StoragePaths,
    channels: Option<&Arc<dyn Channelled>>,
    task: &Task,
    tell: impl Fn(Report) + Clone + 'static,
) -> Result<RoleResult, Failure> {
    let devices = paths.devices(&task.role).await?;
    let orders = orders(&task.stop, task.start);
    let counting = task.start + orders.warm_up;
    let began = reactor::spawn(began(task.start));
    let costs = Costs::begin(task.alone, counting, paths, channels, {
        let tell = tell.clone();
        move || tell(Report::Counting)
    });
    let mut each = |sample: &Sample| {
        costs.note();
        tell(Report::Sample(*sample));
        if task.end.is_asked() { Go::Stop } else { Go::On }
    };
    let workload = &task.role.workload;
    let run = match (&options.log, devices.first()) {
        // A fill of a new file is not covered by guarantees.
        (Some(log), Some(device)) if workload.data == Data::Stamped => {
            let journal = journal_of_run(log, workload, device.geometry())?;
            bench::run_with_journal(&devices, workload, &orders, &journal, &mut each).await
        }
        _ => bench::run(&devices, workload, &orders, &mut each).await,
    };
    let run = run.map_err(Failure::refused)?;
    let cost = costs.end(paths).await;
    if task.role.read_ahead_bytes.is_some() && run.errors == 0 {
        for device in &devices {
            settle(&**device).await?;
        }
    }
    Ok(part(options, &task.role, run, cost, began.await))
}

/// This thread wakes slightly late, and so does the run, in the same turn of its reactor.
async fn began(start: Instant) -> Instant {
    reactor::sleep_until(start).await;
    Instant::now()
}

fn part(options: &ClientOptions, role: &Role, run: Run, cost: Cost, started: Instant) -> RoleResult {
    let Cost { cpu, statistics, channels, frames } = cost;
    let tables = statistics.iter().map(ToString::to_string);
    let tables = tables.chain(channels.iter().map(ToString::to_string));
    let tables = tables.chain(frames.iter().map(ToString::to_string)).collect();
    // Statistics are numbers and names: all of them can be written as JSON.
    let sessions = statistics.iter().filter_map(|told| serde_json::to_value(told).ok());
    let sessions = sessions.chain(channels.iter().filter_map(|told| serde_json::to_value(told).ok()));
    let sessions = sessions.chain(frames.iter().filter_map(|told| serde_json::to_value(told).ok())).collect();
    let (role, client) = (role.name.clone(), options.name.clone());
    let run = ClientRun { role, client, run, cpu, late_us: 0.0, late_error_us: 0.0, sessions };
    RoleResult { run, tables, started }
}

/// The part of a stop condition that the loop evaluates; the rest is decided by the receiver of all samples.
fn orders(stop: &Stop, start: Instant) -> Orders {
    let (bytes, requests) = match stop.rule {
        Rule::Bytes { bytes } => (Some(bytes), None),
        Rule::Requests { requests } => (None, Some(requests)),
        Rule::Time | Rule::Confidence { .. } => (None, None),
    };
    Orders {
        warm_up: Duration::from_secs_f64(stop.warm_up_s.max(0.0)),
        max: Duration::from_secs_f64(stop.max_s.max(0.0)),
        interval: interval(stop),
        bytes,
        requests,
        start: Some(start),
        patience: bench::PATIENCE,
    }
}

/// The length of a sample: some two hundred in a run, as needed for the confidence interval of an
/// autocorrelated series. Samples are rare enough to cost nothing, and frequent enough for a display.
fn interval(stop: &Stop) -> Duration {
    const SAMPLES: f64 = 200.0;
    Duration::from_secs_f64((stop.max_s / SAMPLES).clamp(0.05, 1.0))
}

/// A network to work on.
#[derive(Clone)]
pub enum Site {
    /// The one that this process is on.
    Here,
    /// The network of a lab's host, which exists as long as this value.
    Host {
        /// The lab.
        lab: Arc<Lab>,
        /// Its host.
        name: &'static str,
    },
}

impl Site {
    /// Runs `work` there and waits for it; in a separate thread unless it is here.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, Failure> {
        match self {
            Site::Here => Ok(work()),
            Site::Host { lab, name } => lab.host(name).and_then(|host| host.run(work)).map_err(lab_failure),
        }
    }
}

/// Missing rights of the machine or the user for a lab are a refusal; all other errors are failures.
pub fn lab_failure(error: LabError) -> Failure {
    match error {
        LabError::Plan(_) | LabError::Missing(_) | LabError::NoSuch(_) => Failure::refused(error),
        LabError::System { .. } | LabError::NotReady(_) => Failure::failed(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_neither_too_many_nor_too_rare() {
        let after = |seconds| interval(&Stop::after(seconds)).as_secs_f64();
        assert_eq!([0.5, 20.0, 3600.0].map(after), [0.05, 0.1, 1.0]);
    }
}
