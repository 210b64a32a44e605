//! Mapping of the kernel's errors to device errors.

use std::io;
use std::sync::atomic::{AtomicI32, Ordering};

use block::{DeviceError, Lba};

/// What was tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    Read,
    Write,
    Inspect,
}

/// The latest errno, until it is read; 0 for none.
#[derive(Debug, Default)]
pub(crate) struct LatestError(AtomicI32);

impl LatestError {
    /// The error of a request that did not get past `lba`, which is noted.
    pub(crate) fn told(&self, error: &io::Error, verb: Verb, lba: Lba) -> DeviceError {
        self.0.store(error.raw_os_error().unwrap_or(0), Ordering::Relaxed);
        told(error, verb, lba)
    }

    pub(crate) fn take(&self) -> Option<i32> {
        Some(self.0.swap(0, Ordering::Relaxed)).filter(|number| *number != 0)
    }
}

fn told(error: &io::Error, verb: Verb, lba: Lba) -> DeviceError {
    match (error.raw_os_error(), verb) {
        (Some(libc::ENOSPC | libc::EDQUOT | libc::EFBIG), _) => DeviceError::NoSpace,
        (Some(libc::EROFS | libc::EPERM | libc::EACCES | libc::EBADF), Verb::Write) => DeviceError::ReadOnly,
        (Some(libc::EOPNOTSUPP | libc::ENOSYS | libc::ENOTTY), _) => DeviceError::Unsupported,
        (Some(libc::ENODEV | libc::ENXIO | libc::ENOMEDIUM | libc::ESTALE | libc::ESHUTDOWN), _) => {
            DeviceError::NotReady
        }
        // What was short for a moment: memory, io_uring's workers, a network file system's server.
        (Some(libc::ENOMEM | libc::EAGAIN | libc::ENOBUFS | libc::EHOSTUNREACH), _) => DeviceError::NotReady,
        (Some(libc::ETIMEDOUT), _) => DeviceError::TimedOut,
        (Some(libc::ECANCELED), _) => DeviceError::Cancelled,
        // EIO, EILSEQ, EREMOTEIO, an end of file before the block: the data at this place is the trouble.
        (_, Verb::Read | Verb::Inspect) => DeviceError::Unreadable(lba),
        (_, Verb::Write) => DeviceError::Unwritable(lba),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cause_has_its_name() {
        let told = |errno, verb| told(&io::Error::from_raw_os_error(errno), verb, Lba(7));
        assert_eq!(told(libc::ENOSPC, Verb::Write), DeviceError::NoSpace);
        assert_eq!(told(libc::EIO, Verb::Write), DeviceError::Unwritable(Lba(7)));
        assert_eq!(told(libc::EIO, Verb::Read), DeviceError::Unreadable(Lba(7)));
        assert_eq!(told(libc::EROFS, Verb::Write), DeviceError::ReadOnly);
        assert_eq!(told(libc::ENODEV, Verb::Read), DeviceError::NotReady);
        assert_eq!(told(libc::ETIMEDOUT, Verb::Read), DeviceError::TimedOut);
        assert_eq!(told(libc::EOPNOTSUPP, Verb::Write), DeviceError::Unsupported);
    }
}
