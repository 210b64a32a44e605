//! The agent's side: executes the orders of an authenticated coordinator.
//!
//! One task receives messages. It answers time queries and applies stop orders immediately, even during a
//! run. The other task executes the remaining orders one by one. If the coordinator is lost, the run stops as
//! if by a stop order.

use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use agent::channel::{Broken, Channel, MessageReceiver, MessageSender};
use agent::wire::message::{Notification, Open, Opened, Order, RoleReport, Run};
use backends::Failure;
use backends::location::Location;
use bench::Go;
use bench::plan::{self, Span, Stop};
use foreign::printable;
use host::cputime;
use reactor::{Receiver, Sender, bounded_mailbox};

use crate::crew::{Crew as _, LocalCrew, Progress};
use crate::storage::Storage;
use crate::view::Purged;
use crate::{client, costs};

/// Executes orders until the connection ends, and returns the reason. `tell` receives a log line for each
/// measurement.
pub async fn work_for(channel: Channel, allow_write: bool, tell: &dyn Fn(&str)) -> Broken {
    let Channel { receiver, sender } = channel;
    let (zero, wishes, sender) = (Instant::now(), Rc::new(Wishes::default()), Rc::new(sender));
    let (orders, to_do) = bounded_mailbox(ORDERS_MAX);
    let hearing = reactor::spawn(hear(
        receiver,
        zero,
        orders,
        Rc::clone(&wishes),
        Rc::clone(&sender),
    ));
    let desk = Desk {
        allow_write,
        zero,
        wishes,
        sender,
        tell,
        crew: None,
        cell: None,
    };
    desk.work(to_do).await;
    hearing.await
}

/// Maximum length of the order queue. A coordinator that sends more orders without waiting for the results
/// violates the protocol.
const ORDERS_MAX: usize = 4;

/// The coordinator's requests for the current run.
#[derive(Default)]
struct Wishes {
    end: Cell<bool>,
    gone: Cell<bool>,
}

impl Wishes {
    fn go(&self) -> Go {
        if self.end.get() || self.gone.get() {
            Go::Stop
        } else {
            Go::On
        }
    }
}

async fn hear(
    mut receiver: MessageReceiver,
    zero: Instant,
    orders: Sender<Order>,
    wishes: Rc<Wishes>,
    sender: Rc<MessageSender>,
) -> Broken {
    let why = loop {
        let order = match receiver
            .receive()
            .await
            .map(|message| Order::parse(&message))
        {
            Ok(Ok(order)) => order,
            Ok(Err(error)) => break Broken::Unintelligible(error),
            Err(why) => break why,
        };
        match order {
            Order::Alive => {}
            Order::Time => sender.send(
                Notification::Time {
                    ns: nanoseconds(zero.elapsed()),
                }
                .text(),
            ),
            Order::Load => sender.send(load(zero.elapsed()).text()),
            Order::Stop => wishes.end.set(true),
            order => {
                // An earlier stop order applied to the previous run.
                wishes.end.set(false);
                if orders.try_send(order).is_err() {
                    break Broken::OutOfTurn;
                }
            }
        }
    };
    wishes.gone.set(true);
    why
}

/// The state in which orders are executed.
struct Desk<'a> {
    allow_write: bool,
    /// The zero of the clock that the agent reports.
    zero: Instant,
    wishes: Rc<Wishes>,
    sender: Rc<MessageSender>,
    tell: &'a dyn Fn(&str),
    /// The clients, once the storage is open, and whether it was opened for writing.
    crew: Option<(LocalCrew, bool)>,
    /// The cell for which the clients are prepared.
    cell: Option<plan::Cell>,
}

impl Desk<'_> {
    async fn work(mut self, mut orders: Receiver<Order>) {
        while let Some(order) = orders.recv().await {
            let news = self.carry_out(order).await;
            self.sender
                .send(news.unwrap_or_else(|failure| failed(&failure)).text());
        }
        self.leave().await;
    }

    async fn carry_out(&mut self, order: Order) -> Result<Notification, Failure> {
        match order {
            Order::Open(open) => self.open(open).await,
            Order::Prepare { cell } => self.prepare(cell).await,
            Order::Run(run) => self.run(run).await,
            Order::Purge { span } => self.purge(span).await,
            Order::LookAlive => {
                self.crew()?.look_alive().await?;
                Ok(Notification::Done)
            }
            // The receiving task handles these orders.
            Order::Time | Order::Load | Order::Stop | Order::Alive => Ok(Notification::Alive),
        }
    }

    async fn open(&mut self, open: Open) -> Result<Notification, Failure> {
        self.leave().await;
        let place = Location::parse(&open.place)?
            .reached_by(open.connections, open.congestion.as_deref())?;
        // Memory that is created for the measurement, and freed afterwards, contains no data to lose.
        if open.write && !self.allow_write && !place.is_fleeting() {
            return Err(Failure::refused("it was started without --allow-write"));
        }
        let storage = Storage::open(&place, open.write, None).await?;
        (self.tell)(&format!("measures {}", printable(&place.to_string())));
        let opened = Opened {
            bytes: storage.subject.bytes,
            block_bytes: storage.subject.block_bytes,
            identity: storage.subject.identity.clone(),
            facts: storage.facts(&place).await,
        };
        let crew = LocalCrew::new(storage.source.clone(), Duration::from_micros(open.poll_us));
        storage.close().await;
        self.crew = Some((crew, open.write));
        Ok(Notification::Opened(opened))
    }

    async fn prepare(&mut self, cell: plan::Cell) -> Result<Notification, Failure> {
        check(&cell)?;
        if cell.roles.iter().any(|role| role.workload.writes()) {
            self.writable()?;
        }
        self.crew()?.prepare(&cell).await?;
        self.cell = Some(cell);
        Ok(Notification::Done)
    }

    async fn run(&mut self, Run { stop, start_ns }: Run) -> Result<Notification, Failure> {
        let start = self.start(&stop, start_ns)?;
        let cell = self
            .cell
            .take()
            .ok_or_else(|| Failure::refused("the run has not been prepared"))?;
        (self.tell)(&format!("  {}", printable(&cell.name)));
        let (sender, wishes, zero) = (Rc::clone(&self.sender), Rc::clone(&self.wishes), self.zero);
        let progress = &mut |progress: Progress<'_>| {
            match progress {
                Progress::Counting => sender.send(Notification::Counting.text()),
                Progress::Sample { role, sample } => {
                    sender.send(
                        Notification::Sample {
                            role,
                            sample: *sample,
                        }
                        .text(),
                    );
                }
                // The coordinator detects the wait from the samples.
                Progress::Waiting(_) => {}
            }
            wishes.go()
        };
        let carried = self.crew()?.run_at(&cell, stop, start, progress).await?;
        let told = |part: client::RoleResult| RoleReport {
            run: part.run,
            tables: part.tables,
            started_ns: nanoseconds(part.started.saturating_duration_since(zero)),
        };
        Ok(Notification::Ended {
            parts: carried.into_iter().map(told).collect(),
        })
    }

    /// Returns the start time. Rejects a start that is too late, and a run that is too long.
    fn start(&self, stop: &Stop, start_ns: u64) -> Result<Instant, Failure> {
        let times = [stop.warm_up_s, stop.min_s, stop.max_s];
        let start = self.zero.checked_add(Duration::from_nanos(start_ns));
        let soon =
            start.filter(|start| start.saturating_duration_since(Instant::now()) < START_MAX);
        match soon {
            Some(start) if times.iter().all(|time| (0.0..=RUN_S_MAX).contains(time)) => Ok(start),
            _ => Err(Failure::refused(
                "a run must start within a minute and not take more than a week",
            )),
        }
    }

    async fn purge(&mut self, span: Span) -> Result<Notification, Failure> {
        self.writable()?;
        let (sender, wishes) = (Rc::clone(&self.sender), Rc::clone(&self.wishes));
        let progress = &mut |purged: Purged| {
            sender.send(
                Notification::Purged {
                    done_bytes: purged.done_bytes,
                    of_bytes: purged.of_bytes,
                }
                .text(),
            );
            wishes.go()
        };
        self.crew()?.purge(span, progress).await?;
        Ok(Notification::Done)
    }

    fn crew(&mut self) -> Result<&mut LocalCrew, Failure> {
        let crew = self.crew.as_mut().map(|(crew, _)| crew);
        crew.ok_or_else(|| Failure::refused("the storage has not been opened"))
    }

    /// Checks that both sides have allowed writing: the user who started the agent, and the coordinator when
    /// it opened the storage.
    fn writable(&self) -> Result<(), Failure> {
        match self.crew {
            Some((_, true)) => Ok(()),
            _ => Err(Failure::refused(
                "writing was not allowed when the storage was opened",
            )),
        }
    }

    async fn leave(&mut self) {
        if let Some((crew, _)) = self.crew.take() {
            crew.close().await;
        }
    }
}

/// Maximum time until the start of a run. Coordinators plan shorter times.
const START_MAX: Duration = Duration::from_secs(60);
/// Maximum time of a run: one week.
const RUN_S_MAX: f64 = 604_800.0;
/// The limits of the command line, so that an order cannot take more memory than a local user could request.
const ROLES_MAX: usize = 256;
const SESSIONS_MAX: u16 = 1024;
const DEPTH_MAX: u32 = 65_536;

/// Checks limits that the workloads do not check themselves.
fn check(cell: &plan::Cell) -> Result<(), Failure> {
    let roles = 1..=ROLES_MAX;
    let fits = |role: &plan::Role| {
        (1..=SESSIONS_MAX).contains(&role.sessions) && role.workload.depth <= DEPTH_MAX
    };
    match roles.contains(&cell.roles.len()) && cell.roles.iter().all(fits) {
        true => Ok(()),
        false => Err(Failure::refused(
            "more roles, sessions or outstanding requests than an agent supports",
        )),
    }
}

fn failed(failure: &Failure) -> Notification {
    Notification::Failed {
        code: failure.code(),
        sentence: failure.to_string(),
    }
}

fn load(at: Duration) -> Notification {
    let busy_ns = cputime::machine().ok().map(nanoseconds);
    Notification::Load {
        ns: nanoseconds(at),
        busy_ns,
        cpus: costs::cpus(),
    }
}

/// Converts a time to nanoseconds. 64 bits are enough for 584 years.
fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
