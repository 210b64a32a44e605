//! The monitoring of volumes by the first core, which detects failures and growth, and the flush of volumes
//! before they are closed.
//!
//! One line is logged when a volume starts to fail, hangs or runs out of space. A second line is logged once
//! the volume has worked again for a while, with the number of failed requests and the duration. The number
//! of lines does not depend on the load, so a failing volume cannot fill the log.
//!
//! ```text
//!   well ── a request fails, or the device is unresponsive ──► ERROR ──► failing
//!   failing ── no failure for QUIET, and the latest request of each kind succeeded ──► WARN ──► well
//! ```
//!
//! The kernel sends no notification when a file grows, so its size is polled. Front ends notify their hosts
//! of the growth; in SCSI by the unit attention CAPACITY DATA HAS CHANGED (SBC-3 4.10).
//!
//! If the kernel later fails to write data that was acknowledged through a closed device, the next open of
//! the device may not report this. An unsuccessful last flush therefore counts as a loss, whatever the
//! reason.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use block::DeviceError;
use derive_more::Display;
use volume::{RequestKind, Snapshot, StorageCondition, StorageError, Volume};

/// Receives the events of monitored volumes.
pub(crate) trait Watcher: 'static {
    /// Requests of a volume have started to fail, or its device is unresponsive.
    fn volume_failed(&self, name: &str, cause: &str);

    /// A volume has recovered: `failed` requests failed in a period of `time`.
    fn volume_recovered(&self, name: &str, failed: u64, time: Duration);

    /// A volume has grown.
    fn volume_grew(&self, volume: &Arc<Volume>, name: &str);
}

/// Polling interval. Polling is cheap: `volume` already records the results of requests of all front ends,
/// and checking the size costs a stat(2).
const LOOK: Duration = Duration::from_secs(1);
/// Failures that are less than this time apart belong to one episode.
const QUIET: Duration = Duration::from_secs(5);

/// Logs the failures of a volume while it is served, under its current name.
pub(crate) async fn watch_failures(
    server: Arc<impl Watcher>,
    name: Rc<Name>,
    volume: Weak<Volume>,
) {
    let mut observed = Observed::default();
    loop {
        reactor::sleep(LOOK).await;
        let Some(volume) = volume.upgrade() else {
            return;
        };
        let Some(line) = observed.look(reactor::now(), &volume.health().condition()) else {
            continue;
        };
        let name = name.now();
        match line {
            LogLine::Failing { cause } => {
                tracing::error!(volume = name, cause, "storage fails");
                server.volume_failed(&name, &cause);
            }
            LogLine::Recovered {
                cause,
                failed,
                time,
            } => {
                let seconds = time.as_secs_f64().round() as u64;
                tracing::warn!(
                    volume = name,
                    cause,
                    failed_requests = failed,
                    seconds,
                    "storage works again"
                );
                server.volume_recovered(&name, failed, time);
            }
        }
    }
}

/// The state of a volume at the last poll.
#[derive(Default)]
struct Observed {
    failed: u64,
    episode: Option<Episode>,
}

struct Episode {
    begun: Instant,
    failed_before: u64,
    cause: String,
    works_since: Option<Instant>,
}

#[derive(Debug, PartialEq, Eq)]
enum LogLine {
    Failing {
        cause: String,
    },
    Recovered {
        cause: String,
        failed: u64,
        time: Duration,
    },
}

impl Observed {
    fn look(&mut self, now: Instant, condition: &StorageCondition) -> Option<LogLine> {
        let failed_before = std::mem::replace(&mut self.failed, condition.failed);
        debug_assert!(failed_before <= condition.failed, "the count only grows");
        let fails =
            condition.is_failing || condition.silent.is_some() || condition.failed > failed_before;
        match &mut self.episode {
            None if !fails => None,
            None => {
                let cause = cause(condition);
                let begun = Episode {
                    begun: now,
                    failed_before,
                    cause: cause.clone(),
                    works_since: None,
                };
                self.episode = Some(begun);
                Some(LogLine::Failing { cause })
            }
            Some(episode) if fails => {
                episode.works_since = None;
                None
            }
            Some(episode) => {
                let since = *episode.works_since.get_or_insert(now);
                if now.duration_since(since) < QUIET {
                    return None;
                }
                let Episode {
                    begun,
                    failed_before,
                    cause,
                    ..
                } = self.episode.take()?;
                debug_assert!(begun <= since, "a volume recovers after it has failed");
                let failed = condition.failed - failed_before;
                Some(LogLine::Recovered {
                    cause,
                    failed,
                    time: since.duration_since(begun),
                })
            }
        }
    }
}

fn cause(condition: &StorageCondition) -> String {
    match (condition.silent, condition.latest) {
        (Some(time), _) => format!(
            "the device has been unresponsive for {} s",
            time.as_secs_f64().round()
        ),
        (
            None,
            Some(StorageError {
                error,
                os_error: Some(number),
            }),
        ) => {
            format!("{error}: {}", std::io::Error::from_raw_os_error(number))
        }
        (
            None,
            Some(StorageError {
                error,
                os_error: None,
            }),
        ) => error.to_string(),
        (None, None) => "the device timed out".to_owned(), // and has timed out again since
    }
}

/// Checks the size of a volume while it is served. Each volume has its own task, so that a hanging volume
/// does not delay the others.
pub(crate) async fn watch_growth(server: Arc<impl Watcher>, name: Rc<Name>, volume: Weak<Volume>) {
    let mut known = match volume.upgrade() {
        Some(volume) => volume.device().geometry().blocks,
        None => return,
    };
    loop {
        reactor::sleep(LOOK).await;
        let Some(volume) = volume.upgrade() else {
            return;
        };
        if let Err(error) = volume.device().refresh().await {
            // Users of the volume will report the failure; its size is unchanged.
            tracing::debug!(volume = name.now(), %error, "cannot check the size");
            // When another host takes the device over, there may be no outstanding request that reports this.
            if error == DeviceError::Fenced {
                volume.record_end(RequestKind::Inspect, &Err::<(), _>(error));
            }
        }
        let blocks = volume.device().geometry().blocks;
        if known < blocks {
            let name = name.now();
            tracing::info!(volume = name, blocks = blocks.0, "the volume has grown");
            server.volume_grew(&volume, &name);
        }
        known = blocks;
    }
}

/// The name of a served volume, which can change.
pub(crate) struct Name(RefCell<String>);

impl Name {
    /// The current name of the volume, or its last name if it is no longer served.
    pub(crate) fn now(&self) -> String {
        self.0.borrow().clone()
    }
}

/// The monitored volumes.
#[derive(Default)]
pub(crate) struct Watched(Vec<(Weak<Volume>, Rc<Name>)>);

impl Watched {
    /// Adapts to the volumes that are served now. Returns the added volumes.
    pub(crate) fn adapt(&mut self, served: &Snapshot) -> Vec<(Weak<Volume>, Rc<Name>)> {
        self.0.retain(|(volume, _)| volume.strong_count() > 0);
        let mut new = Vec::new();
        for (name, volume) in served.iter() {
            match self
                .0
                .iter()
                .find(|(known, _)| known.as_ptr() == Arc::as_ptr(volume))
            {
                Some((_, known)) => name.clone_into(&mut known.0.borrow_mut()),
                None => new.push((
                    Arc::downgrade(volume),
                    Rc::new(Name(RefCell::new(name.to_owned()))),
                )),
            }
        }
        self.0.extend(new.iter().cloned());
        debug_assert!(
            self.0.len() >= served.iter().count(),
            "all that is served is looked after"
        );
        new
    }
}

/// The reason why a volume could not be flushed before it was closed.
#[derive(Debug, Display)]
pub enum Unflushed {
    /// Its device reported an error.
    Failed(DeviceError),
    /// Its device was unresponsive for this time.
    #[display("the device has been unresponsive for {:.1} s", _0.as_secs_f64())]
    Unanswered(Duration),
}

/// Flushes a volume within a time limit. If that fails, the loss is counted and recorded for the next start.
///
/// # Errors
/// Acknowledged writes may be lost.
pub async fn last_flush(volume: &Volume, limit: Duration) -> Result<(), Unflushed> {
    let unflushed = match reactor::timeout(limit, volume.flush()).await {
        Ok(Ok(())) => return Ok(()),
        Ok(Err(error)) if error.is_loss() => return Err(Unflushed::Failed(error)), // counted by the flush
        Ok(Err(error)) => Unflushed::Failed(error),
        Err(_) => Unflushed::Unanswered(limit),
    };
    // The record has a time limit, because a state directory on the same disk may also hang.
    let _ = reactor::timeout(RECORD_TIME, volume.abandon_unflushed()).await;
    Err(unflushed)
}

/// Maximum time to wait for the record of a loss when a volume is closed.
pub(crate) const RECORD_TIME: Duration = Duration::from_secs(1);

#[cfg(test)]
pub(crate) mod tests {
    use std::pin::Pin;
    use std::sync::Mutex;

    use block::{
        BlockDevice, BlockSize, Blocks, Fault, FaultControl, Geometry, Null, Pending, Sleeper,
    };
    use volume::{LossMark, PersistentState, Registry, VolumeOptions};

    use super::*;

    const FULL: Option<StorageError> = Some(StorageError {
        error: DeviceError::NoSpace,
        os_error: Some(28),
    });
    const CAUSE: &str =
        "no space left in the underlying storage: No space left on device (os error 28)";

    fn lines(looks: impl IntoIterator<Item = StorageCondition>) -> Vec<(u64, LogLine)> {
        let (begin, mut observed) = (Instant::now(), Observed::default());
        let looks = (0..).zip(looks);
        looks
            .filter_map(|(at, condition)| {
                Some((
                    at,
                    observed.look(begin + Duration::from_secs(at), &condition)?,
                ))
            })
            .collect()
    }

    fn full(failed: u64, is_failing: bool) -> StorageCondition {
        StorageCondition {
            failed,
            is_failing,
            silent: None,
            latest: FULL,
        }
    }

    #[test]
    fn an_episode_has_a_line_at_its_beginning_and_one_at_its_end() {
        let fails = (1..=1000).map(|count| full(100 * count, true));
        let works = std::iter::repeat_n(full(100_000, false), 1000);
        let told = lines(
            [StorageCondition::default()]
                .into_iter()
                .chain(fails)
                .chain(works),
        );
        let [
            (1, LogLine::Failing { cause }),
            (1006, LogLine::Recovered { failed, time, .. }),
        ] = &told[..]
        else {
            panic!("{told:?}")
        };
        assert_eq!(cause, CAUSE);
        assert_eq!((*failed, time.as_secs()), (100_000, 1000));
    }

    #[test]
    fn storage_that_fails_now_and_then_is_one_episode() {
        let told = lines((0..100).map(|at| full(1 + at / 4, at % 2 == 0)));
        assert_eq!(told.len(), 1, "{told:?}");
    }

    #[test]
    fn a_failure_that_is_over_before_anybody_looks_is_told() {
        let told = lines(
            [full(1, false)]
                .into_iter()
                .chain(std::iter::repeat_n(full(1, false), 10)),
        );
        assert!(
            matches!(
                &told[..],
                [
                    (0, LogLine::Failing { .. }),
                    (6, LogLine::Recovered { failed: 1, .. })
                ]
            ),
            "{told:?}"
        );
    }

    #[test]
    fn a_device_that_does_not_answer_is_told_with_its_time() {
        let silent = StorageCondition {
            silent: Some(Duration::from_secs(30)),
            ..StorageCondition::default()
        };
        let told = lines([silent]);
        let cause = "the device has been unresponsive for 30 s".to_owned();
        assert_eq!(told, [(0, LogLine::Failing { cause })]);
    }

    #[test]
    fn a_volume_that_gets_another_name_is_the_same_one() {
        let geometry = Geometry {
            block_size: BlockSize::B512,
            blocks: Blocks(8),
            physical_exponent: 0,
        };
        let volume =
            Volume::new(Arc::new(Null::new(geometry)), Default::default()).expect("a volume");
        let registry = Registry::new(vec![("old".to_owned(), Arc::clone(&volume))]);
        let mut watched = Watched::default();
        let new = watched.adapt(&registry.snapshot());
        let [(_, name)] = &new[..] else {
            panic!("one is new")
        };
        assert_eq!(name.now(), "old");
        registry.replace(vec![("new".to_owned(), volume)]);
        assert!(watched.adapt(&registry.snapshot()).is_empty());
        assert_eq!(name.now(), "new");
        registry.replace(Vec::new());
        watched.adapt(&registry.snapshot());
        assert_eq!(name.now(), "new", "what it was called last");
    }

    /// Records the mark of the last loss, after a delay.
    #[derive(Default)]
    pub(crate) struct Paper {
        mark: Mutex<Option<LossMark>>,
        time: Duration,
    }

    impl Paper {
        pub(crate) fn slow(time: Duration) -> Paper {
            Paper {
                time,
                ..Paper::default()
            }
        }

        pub(crate) fn mark(&self) -> Option<LossMark> {
            *self.mark.lock().expect("not poisoned")
        }
    }

    impl PersistentState for Paper {
        fn save<'a>(&'a self, _: Vec<u8>) -> Pending<'a, ()> {
            Box::pin(async { Ok(()) })
        }

        fn load(&self) -> Option<Vec<u8>> {
            None
        }

        fn loss_mark(&self) -> LossMark {
            self.mark().unwrap_or_default()
        }

        fn new_loss_mark(&self) -> LossMark {
            [7; 16]
        }

        fn record_loss(&self, mark: LossMark) -> Pending<'_, ()> {
            Box::pin(async move {
                reactor::sleep(self.time).await;
                *self.mark.lock().expect("not poisoned") = Some(mark);
                Ok(())
            })
        }
    }

    pub(crate) struct ReactorSleep;

    impl Sleeper for ReactorSleep {
        fn now(&self) -> Instant {
            reactor::now()
        }

        fn sleep(&self, duration: Duration) -> Pin<Box<dyn Future<Output = ()>>> {
            Box::pin(reactor::sleep(duration))
        }
    }

    /// Closes a volume. Returns the error of the last flush, and the mark that the next start finds.
    fn closed(misbehave: impl FnOnce(&FaultControl)) -> (Option<String>, Option<LossMark>) {
        let (faults, paper) = (FaultControl::default(), Arc::new(Paper::default()));
        let geometry = Geometry {
            block_size: BlockSize::B512,
            blocks: Blocks(8),
            physical_exponent: 0,
        };
        let device = Fault::new(Null::new(geometry), Arc::new(ReactorSleep), faults.clone());
        let options = VolumeOptions {
            persistent_state: Some(Arc::clone(&paper) as Arc<dyn PersistentState>),
            ..VolumeOptions::default()
        };
        let volume = Volume::new(Arc::new(device) as Arc<dyn BlockDevice>, options)
            .expect("nothing is kept");
        misbehave(&faults);
        let flushed = last_flush(&volume, Duration::from_secs(4));
        let outcome = reactor::block_on(reactor::Alone::virtual_time(), flushed);
        (outcome.err().map(|why| why.to_string()), paper.mark())
    }

    #[test]
    fn a_last_flush_without_success_is_a_loss_for_the_next_start() {
        assert_eq!(closed(|_| {}), (None, None));
        let (why, mark) = closed(FaultControl::hang);
        assert_eq!(
            why.as_deref(),
            Some("the device has been unresponsive for 4.0 s")
        );
        assert_eq!(
            mark,
            Some([7; 16]),
            "what the device does with it later has no witness"
        );
        let (_, mark) = closed(|faults| faults.fail(DeviceError::NotReady));
        assert_eq!(mark, Some([7; 16]));
        let (_, mark) = closed(FaultControl::lose);
        assert_eq!(mark, Some([7; 16]));
    }
}
