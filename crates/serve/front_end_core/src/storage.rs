//! Logging of storage failures: one line when a volume begins to fail, to hang or to run out of space, and
//! one when it has worked again for a while, with the number of failed requests and the duration. The number
//! of lines does not depend on the load, so a failing volume cannot fill the log.
//!
//! ```text
//!   well ── a request fails, or the device does not answer ──► ERROR ──► failing
//!   failing ── no failure for QUIET, and the latest request of each kind succeeded ──► WARN ──► well
//! ```

use std::rc::Rc;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use volume::{StorageCondition, StorageError, Volume};

use crate::server::Server;
use crate::watched::Name;

/// How often volumes are looked at: `volume` records the results of requests of all front ends.
const LOOK: Duration = Duration::from_secs(1);
/// Failures less than this apart are one episode.
const QUIET: Duration = Duration::from_secs(5);

/// Logs the failures of a volume for as long as it is served, by the name that it has then.
pub(crate) async fn watch(server: Arc<Server>, name: Rc<Name>, volume: Weak<Volume>) {
    let mut observed = Observed::default();
    loop {
        reactor::sleep(LOOK).await;
        let Some(volume) = volume.upgrade() else { return };
        let Some(line) = observed.look(reactor::now(), &volume.health().condition()) else { continue };
        let name = name.now();
        match line {
            LogLine::Failing { cause } => {
                tracing::error!(volume = name, cause, "storage fails");
                server.tell(|observer| observer.volume_failed(&name, &cause));
            }
            LogLine::Recovered { cause, failed, time } => {
                let seconds = time.as_secs_f64().round() as u64;
                tracing::warn!(
                    volume = name,
                    cause,
                    failed_requests = failed,
                    seconds,
                    "storage works again"
                );
                server.tell(|observer| observer.volume_recovered(&name, failed, time));
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
    Failing { cause: String },
    Recovered { cause: String, failed: u64, time: Duration },
}

impl Observed {
    fn look(&mut self, now: Instant, condition: &StorageCondition) -> Option<LogLine> {
        let failed_before = std::mem::replace(&mut self.failed, condition.failed);
        let fails = condition.is_failing || condition.silent.is_some() || condition.failed > failed_before;
        match &mut self.episode {
            None if !fails => None,
            None => {
                let cause = cause(condition);
                let begun = Episode { begun: now, failed_before, cause: cause.clone(), works_since: None };
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
                let Episode { begun, failed_before, cause, .. } = self.episode.take()?;
                let failed = condition.failed - failed_before;
                Some(LogLine::Recovered { cause, failed, time: since.duration_since(begun) })
            }
        }
    }
}

fn cause(condition: &StorageCondition) -> String {
    match (condition.silent, condition.latest) {
        (Some(time), _) => format!("the device does not answer for {} s", time.as_secs_f64().round()),
        (None, Some(StorageError { error, os_error: Some(number) })) => {
            format!("{error}: {}", std::io::Error::from_raw_os_error(number))
        }
        (None, Some(StorageError { error, os_error: None })) => error.to_string(),
        (None, None) => "the device did not answer in time".to_owned(), // and has meanwhile
    }
}

#[cfg(test)]
mod tests {
    use block::DeviceError;

    use super::*;

    const FULL: Option<StorageError> = Some(StorageError { error: DeviceError::NoSpace, os_error: Some(28) });
    const CAUSE: &str = "no space left for the device's data: No space left on device (os error 28)";

    fn lines(looks: impl IntoIterator<Item = StorageCondition>) -> Vec<(u64, LogLine)> {
        let (begin, mut observed) = (Instant::now(), Observed::default());
        let looks = (0..).zip(looks);
        looks
            .filter_map(|(at, condition)| {
                Some((at, observed.look(begin + Duration::from_secs(at), &condition)?))
            })
            .collect()
    }

    fn full(failed: u64, is_failing: bool) -> StorageCondition {
        StorageCondition { failed, is_failing, silent: None, latest: FULL }
    }

    #[test]
    fn an_episode_has_a_line_at_its_beginning_and_one_at_its_end() {
        let fails = (1..=1000).map(|count| full(100 * count, true));
        let works = std::iter::repeat_n(full(100_000, false), 1000);
        let told = lines([StorageCondition::default()].into_iter().chain(fails).chain(works));
        let [(1, LogLine::Failing { cause }), (1006, LogLine::Recovered { failed, time, .. })] = &told[..]
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
        let told = lines([full(1, false)].into_iter().chain(std::iter::repeat_n(full(1, false), 10)));
        assert!(
            matches!(&told[..], [(0, LogLine::Failing { .. }), (6, LogLine::Recovered { failed: 1, .. })]),
            "{told:?}"
        );
    }

    #[test]
    fn a_device_that_does_not_answer_is_told_with_its_time() {
        let silent =
            StorageCondition { silent: Some(Duration::from_secs(30)), ..StorageCondition::default() };
        let told = lines([silent]);
        let cause = "the device does not answer for 30 s".to_owned();
        assert_eq!(told, [(0, LogLine::Failing { cause })]);
    }
}
