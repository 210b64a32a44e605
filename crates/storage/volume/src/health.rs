//! The health of a device. Failures are recorded where requests complete. A front end, which has a clock,
//! logs changes.
//!
//! ```text
//!   healthy ── a request of some kind failed ──► failing ── the latest of each kind succeeded ──► healthy
//!   healthy or failing ── falls_silent (fenced) ──► silent ── answers (quiesced) ──► healthy or failing
//! ```

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use block::{DeviceError, Lock};

/// The kind of a request. Reads may succeed while writes fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum RequestKind {
    /// Reads blocks.
    Read = 1,
    /// Writes, zeroes or deallocates blocks.
    Change = 2,
    /// Flushes acknowledged writes to stable storage.
    Flush = 4,
    /// Queries that do not access data. They do not affect the health.
    Inspect = 8,
}

/// The health of a device, from the results of its requests.
#[derive(Default)]
pub struct Health {
    /// The kinds of requests whose latest request failed.
    failing: AtomicU8,
    failed: AtomicU64,
    details: Lock<Details>,
}

#[derive(Clone, Copy, Default)]
struct Details {
    latest: Option<StorageError>,
    /// The number of fences that wait for aborted requests, and the longest of the times without a response
    /// after which they were set.
    silent: Option<(usize, Duration)>,
}

/// The reason why a request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StorageError {
    /// The error, from which the initiator's sense data was built.
    pub error: DeviceError,
    /// The errno of the operating system, if it reported the failure.
    pub os_error: Option<i32>,
}

/// A snapshot of the health of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StorageCondition {
    /// Number of requests that failed because of the storage, since the volume was opened.
    pub failed: u64,
    /// Whether, for at least one kind, the latest request failed because of the storage.
    pub is_failing: bool,
    /// If the device is unresponsive, the time without a response after which it was fenced.
    pub silent: Option<Duration>,
    /// The reason why the latest failed request failed.
    pub latest: Option<StorageError>,
}

impl Health {
    /// Records the result of a request. If it failed because of the storage, `os_error` is called.
    pub(crate) fn ended(
        &self,
        kind: RequestKind,
        error: Option<DeviceError>,
        os_error: impl FnOnce() -> Option<i32>,
    ) {
        match error.filter(|error| is_the_storages(*error)) {
            None if error.is_none() && self.failing.load(Ordering::Relaxed) != 0 => {
                self.failing.fetch_and(!(kind as u8), Ordering::Relaxed);
            }
            None => {}
            Some(error) => {
                self.change(|details| {
                    details.latest = Some(StorageError {
                        error,
                        os_error: os_error(),
                    })
                });
                self.failing.fetch_or(kind as u8, Ordering::Relaxed);
                self.failed.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Records that the device has not completed a request within this time.
    pub fn falls_silent(&self, time: Duration) {
        self.change(|details| {
            let (waiting, longest) = details.silent.unwrap_or_default();
            details.silent = Some((waiting + 1, longest.max(time)));
        });
    }

    /// Records that the device has completed the requests that caused one call of [`Health::falls_silent`].
    pub fn answers(&self) {
        self.change(|details| {
            debug_assert!(
                details.silent.is_none_or(|(waiting, _)| waiting > 0),
                "a silence waits for something"
            );
            details.silent = details
                .silent
                .and_then(|(waiting, time)| Some((waiting.checked_sub(1)?, time)));
            details.silent = details.silent.filter(|(waiting, _)| *waiting > 0);
        });
    }

    /// Records that a command was aborted because the device did not respond.
    pub fn timed_out(&self) {
        self.failed.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the current condition of the device.
    pub fn condition(&self) -> StorageCondition {
        let is_failing = self.failing.load(Ordering::Relaxed) != 0;
        let failed = self.failed.load(Ordering::Relaxed);
        let details = *self.details.lock();
        StorageCondition {
            failed,
            is_failing,
            silent: details.silent.map(|(_, time)| time),
            latest: details.latest,
        }
    }

    fn change(&self, change: impl FnOnce(&mut Details)) {
        change(&mut self.details.lock());
    }
}

/// Returns whether the storage caused an error. Other errors are caused by the request.
fn is_the_storages(error: DeviceError) -> bool {
    match error {
        DeviceError::NoSpace
        | DeviceError::Unreadable(_)
        | DeviceError::Unwritable(_)
        | DeviceError::NotReady
        | DeviceError::Fenced
        | DeviceError::Reserved
        | DeviceError::TimedOut
        | DeviceError::WritesLost
        | DeviceError::Unsettled => true,
        DeviceError::OutOfRange
        | DeviceError::ReadOnly
        | DeviceError::Unsupported
        | DeviceError::Cancelled => false,
    }
}

#[cfg(test)]
mod tests {
    use block::Lba;

    use super::*;

    fn ended(health: &Health, kind: RequestKind, error: Option<DeviceError>) {
        health.ended(kind, error, || Some(5));
    }

    #[test]
    fn a_device_works_again_when_requests_of_every_kind_that_failed_do() {
        let health = Health::default();
        ended(&health, RequestKind::Read, None);
        assert_eq!(health.condition(), StorageCondition::default());
        ended(&health, RequestKind::Change, Some(DeviceError::NoSpace));
        ended(&health, RequestKind::Flush, Some(DeviceError::WritesLost));
        ended(&health, RequestKind::Read, None);
        ended(&health, RequestKind::Change, None);
        let condition = health.condition();
        assert!(
            condition.is_failing && condition.failed == 2,
            "{condition:?}"
        );
        ended(&health, RequestKind::Flush, None);
        assert!(!health.condition().is_failing);
        let latest = StorageError {
            error: DeviceError::WritesLost,
            os_error: Some(5),
        };
        assert_eq!(health.condition().latest, Some(latest));
    }

    #[test]
    fn what_was_asked_wrongly_is_no_failure_of_the_storage() {
        let health = Health::default();
        for error in [
            DeviceError::OutOfRange,
            DeviceError::ReadOnly,
            DeviceError::Unsupported,
        ] {
            ended(&health, RequestKind::Change, Some(error));
        }
        assert_eq!(health.condition(), StorageCondition::default());
        ended(
            &health,
            RequestKind::Change,
            Some(DeviceError::Unwritable(Lba(7))),
        );
        ended(&health, RequestKind::Change, Some(DeviceError::OutOfRange));
        assert!(
            health.condition().is_failing,
            "neither is it a sign that it works"
        );
    }

    #[test]
    fn a_silent_device_answers_when_nobody_waits_any_more() {
        let health = Health::default();
        health.falls_silent(Duration::from_secs(2));
        health.falls_silent(Duration::from_secs(30));
        health.answers();
        assert_eq!(health.condition().silent, Some(Duration::from_secs(30)));
        health.answers();
        assert_eq!(health.condition().silent, None);
    }
}
