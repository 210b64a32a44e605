//! A client: a thread with its own reactor and its own paths to the storage, which runs one role at a time.
//!
//! On one machine, a client stands for an initiator; clients share only the machine. An agent also has
//! clients, in its own process. The owner of a client sends it orders and receives every sample. The client
//! decides only when a run has completed its own limits of time, bytes or requests.

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

/// The handle of a client. When the handle is dropped, the client logs out and its thread exits.
pub struct Client {
    name: String,
    orders: Sender<Order>,
    ended: Receiver<()>,
}

/// Options of a client.
pub struct ClientOptions {
    /// The name in the record: `client 1`.
    pub name: String,
    /// The storage to measure.
    pub source: Source,
    /// The time for which the client's thread polls before it sleeps.
    pub spin: Duration,
    /// The network on which the client runs.
    pub site: Site,
    /// The journal file of acknowledged writes, for a verified workload.
    pub log: Option<PathBuf>,
}

/// One run of a role.
pub struct Task {
    /// The role in the cell.
    pub role: Role,
    /// The condition that ends the run.
    pub stop: Stop,
    /// The time of the first request. If it is in the past, the run starts immediately.
    pub start: Instant,
    /// Ends the run early.
    pub end: StopFlag,
    /// Whether nothing else runs in this process. All CPU time of the process is then counted for this
    /// client, including threads that perform file I/O where io_uring is forbidden.
    pub alone: bool,
}

/// A shared flag that requests the end of a run.
#[derive(Clone, Default)]
pub struct StopFlag(Arc<AtomicBool>);

/// A report of a client.
pub enum Report {
    /// The warm-up is over, and requests are counted.
    Counting,
    /// The sample of a short interval.
    Sample(Sample),
    /// The run has ended. No further reports follow.
    Ended(Box<Result<RoleResult, Failure>>),
}

/// The result of one run of a role.
pub struct RoleResult {
    /// The result for the record.
    pub run: ClientRun,
    /// The statistics of the client's sessions, as text.
    pub tables: Vec<String>,
    /// The actual start time.
    pub started: Instant,
}

enum Order {
    Prepare {
        sessions: u16,
        done: Sender<Result<(), Failure>>,
    },
    LookAlive {
        done: Sender<Result<(), Failure>>,
    },
    Run {
        task: Box<Task>,
        index: usize,
        reports: Sender<(usize, Report)>,
    },
}

impl Client {
    /// Starts the client's thread, without opening the storage.
    pub fn start(options: ClientOptions) -> Result<Client, Failure> {
        let (orders, received) = mailbox();
        let (end, ended) = mailbox();
        let name = options.name.clone();
        let thread = thread::Builder::new().name(name.replace(' ', "-"));
        let started = thread.spawn(move || {
            if let Err(failure) = options.site.run(|| live(&options, received)) {
                // Once the receiver of orders is dropped, sending an order fails.
                tracing::error!(%failure, "a client has no network");
            }
            // Drop the paths before the end is announced, so that the storage is no longer in use afterwards.
            drop(options);
            // The receiver may have been dropped.
            let _ = end.send(());
        });
        started.map_err(|error| {
            Failure::failed(format_args!("cannot start a thread for {name}: {error}"))
        })?;
        Ok(Client {
            name,
            orders,
            ended,
        })
    }

    /// Opens paths to the storage until there are at least `sessions`.
    pub async fn prepare(&self, sessions: u16) -> Result<(), Failure> {
        self.ask(|done| Order::Prepare { sessions, done }).await
    }

    /// Checks that each path still leads to the storage, allowing the time that an initiator needs to
    /// reconnect.
    pub async fn look_alive(&self) -> Result<(), Failure> {
        self.ask(|done| Order::LookAlive { done }).await
    }

    /// Starts a prepared role. The client's reports carry `index`.
    pub fn begin(&self, task: Task, index: usize, reports: &Sender<(usize, Report)>) {
        let order = Order::Run {
            task: Box::new(task),
            index,
            reports: reports.clone(),
        };
        if self.orders.send(order).is_err() {
            // The receiver of the reports receives an error.
            let _ = reports.send((index, Report::Ended(Box::new(Err(self.gone())))));
        }
    }

    /// Logs out and ends the thread, or gives up after a few seconds.
    pub async fn close(self) {
        let Client {
            orders, mut ended, ..
        } = self;
        drop(orders);
        let _ = reactor::timeout(PATIENCE, ended.recv()).await;
    }

    async fn ask(
        &self,
        order: impl FnOnce(Sender<Result<(), Failure>>) -> Order,
    ) -> Result<(), Failure> {
        let (done, mut answer) = mailbox();
        let sent = self.orders.send(order(done)).is_ok();
        let answer = if sent { answer.recv().await } else { None };
        answer.unwrap_or_else(|| Err(self.gone()))
    }

    fn gone(&self) -> Failure {
        Failure::failed(format_args!("{} stopped unexpectedly", self.name))
    }
}

/// Time to wait for the logout. A target that does not respond in this time is abandoned.
const PATIENCE: Duration = Duration::from_secs(5);

impl StopFlag {
    /// Requests the end of the run.
    pub fn ask(&self) {
        self.0.store(true, Relaxed);
    }

    /// Returns whether the end of the run has been requested.
    pub fn is_asked(&self) -> bool {
        self.0.load(Relaxed)
    }
}

/// Runs the client's thread.
fn live(options: &ClientOptions, orders: Receiver<Order>) {
    match Epoll::shared(EpollOptions {
        spin: options.spin,
        ..EpollOptions::default()
    }) {
        Ok(world) => reactor::block_on(world, obey(options, orders)),
        // Once the receiver of orders is dropped, sending an order fails.
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
            Order::Run {
                task,
                index,
                reports,
            } => {
                let told = reports.clone();
                let tell = move |report| drop(told.send((index, report)));
                // All clients share the channels, so only the first client reports them.
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
        if task.end.is_asked() {
            Go::Stop
        } else {
            Go::On
        }
    };
    let workload = &task.role.workload;
    let run = match (&options.log, devices.first()) {
        // The journal does not cover the fill of a new file, which is not stamped.
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

/// Waits for the start of the run. Returns the actual time: the thread wakes slightly late, and the run
/// starts in the same turn of its reactor.
async fn began(start: Instant) -> Instant {
    reactor::sleep_until(start).await;
    Instant::now()
}

fn part(
    options: &ClientOptions,
    role: &Role,
    run: Run,
    cost: Cost,
    started: Instant,
) -> RoleResult {
    let Cost {
        cpu,
        statistics,
        channels,
        frames,
    } = cost;
    let tables = statistics.iter().map(ToString::to_string);
    let tables = tables.chain(channels.iter().map(ToString::to_string));
    let tables = tables
        .chain(frames.iter().map(ToString::to_string))
        .collect();
    // Statistics consist of numbers and names, so they can always be written as JSON.
    let sessions = statistics
        .iter()
        .filter_map(|told| serde_json::to_value(told).ok());
    let sessions = sessions.chain(
        channels
            .iter()
            .filter_map(|told| serde_json::to_value(told).ok()),
    );
    let sessions = sessions
        .chain(
            frames
                .iter()
                .filter_map(|told| serde_json::to_value(told).ok()),
        )
        .collect();
    let (role, client) = (role.name.clone(), options.name.clone());
    let run = ClientRun {
        role,
        client,
        run,
        cpu,
        late_us: 0.0,
        late_error_us: 0.0,
        sessions,
    };
    RoleResult {
        run,
        tables,
        started,
    }
}

/// Returns the part of a stop condition that the client's loop evaluates. The receiver of all samples
/// evaluates the rest.
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

/// Returns the length of a sample. A run has about two hundred samples, as the confidence interval of an
/// autocorrelated series requires. The samples are rare enough to have a negligible cost, and frequent enough
/// for a display.
fn interval(stop: &Stop) -> Duration {
    const SAMPLES: f64 = 200.0;
    Duration::from_secs_f64((stop.max_s / SAMPLES).clamp(0.05, 1.0))
}

/// The network on which a client runs.
#[derive(Clone)]
pub enum Site {
    /// The network of this process.
    Here,
    /// The network of a host in a lab. The host exists as long as this value.
    Host {
        /// The lab.
        lab: Arc<Lab>,
        /// The name of the host.
        name: String,
    },
}

impl Site {
    /// Runs `work` on this network and waits for it. On the network of a lab, `work` runs in a separate
    /// thread.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, Failure> {
        match self {
            Site::Here => Ok(work()),
            Site::Host { lab, name } => lab
                .host(name)
                .and_then(|host| host.run(work))
                .map_err(lab_failure),
        }
    }
}

/// Converts a lab's error. Without a required right of the machine or the user, the failure is a refusal.
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
