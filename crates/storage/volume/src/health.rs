//! How a device fails and recovers: recorded where its requests end, for a front end, which has a clock and logs it.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use block::{DeviceError, Lock};

/// What a request asks of a device. One that reads may work while it takes no more writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum RequestKind {
    /// Reads blocks.
    Read = 1,
    /// Writes, zeroes or deallocates blocks.
    Change = 2,
    /// Brings what was acknowledged to stable storage.
    Flush = 4,
    /// What is not of its data; says nothing of its health.
    Inspect = 8,
}

/// What is known of a device by the requests that it has had.
#[derive(Default)]
pub struct Health {
    /// The kinds of which the latest request failed. Nothing else is looked at while there are none.
    failing: AtomicU8,
    failed: AtomicU64,
    details: Lock<Details>,
}

#[derive(Clone, Copy, Default)]
struct Details {
    latest: Option<StorageError>,
    /// How many front ends wait for the device to complete requests that were given up, and the longest time that it had not
    /// answered one of them when that was noticed.
    silent: Option<(usize, Duration)>,
}

/// Why a request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StorageError {
    /// The error that the initiator's sense data were made from.
    pub error: DeviceError,
    /// What the operating system said, by its number, if it was the operating system's storage that failed.
    pub os_error: Option<i32>,
}

/// How a device is at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StorageCondition {
    /// Requests that have failed for a reason that is the storage's, since the volume was opened.
    pub failed: u64,
    /// The latest request of some kind was one of them.
    pub is_failing: bool,
    /// It does not answer, for so long when that was noticed.
    pub silent: Option<Duration>,
    /// Why the latest of them failed.
    pub latest: Option<StorageError>,
}

impl Health {
    /// A request has ended; `os_error` is asked if it has failed.
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
                self.change(|details| details.latest = Some(StorageError { error, os_error: os_error() }));
                self.failing.fetch_or(kind as u8, Ordering::Relaxed);
                self.failed.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// The device has had something for so long, and does not answer.
    pub fn falls_silent(&self, time: Duration) {
        self.change(|details| {
            let (waiting, longest) = details.silent.unwrap_or_default();
            details.silent = Some((waiting + 1, longest.max(time)));
        });
    }

    /// It has answered to what one [`Health::falls_silent`] was about.
    pub fn answers(&self) {
        self.change(|details| {
            details.silent = details.silent.and_then(|(waiting, time)| Some((waiting.checked_sub(1)?, time)));
            details.silent = details.silent.filter(|(waiting, _)| *waiting > 0);
        });
    }

    /// A command was given up because the device did not answer.
    pub fn timed_out(&self) {
        self.failed.fetch_add(1, Ordering::Relaxed);
    }

    /// How the device is now.
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

/// Whether an error is a failure of the storage. The others are an answer to what was asked.
fn is_the_storages(error: DeviceError) -> bool {
    match error {
        DeviceError::NoSpace
        | DeviceError::Unreadable(_)
        | DeviceError::Unwritable(_)
        | DeviceError::NotReady
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
        assert!(condition.is_failing && condition.failed == 2, "{condition:?}");
        ended(&health, RequestKind::Flush, None);
        assert!(!health.condition().is_failing);
        let latest = StorageError { error: DeviceError::WritesLost, os_error: Some(5) };
        assert_eq!(health.condition().latest, Some(latest));
    }

    #[test]
    fn what_was_asked_wrongly_is_no_failure_of_the_storage() {
        let health = Health::default();
        for error in [DeviceError::OutOfRange, DeviceError::ReadOnly, DeviceError::Unsupported] {
            ended(&health, RequestKind::Change, Some(error));
        }
        assert_eq!(health.condition(), StorageCondition::default());
        ended(&health, RequestKind::Change, Some(DeviceError::Unwritable(Lba(7))));
        ended(&health, RequestKind::Change, Some(DeviceError::OutOfRange));
        assert!(health.condition().is_failing, "neither is it a sign that it works");
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
