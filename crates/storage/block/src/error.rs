//! Device errors: one variant for each case that a front end can report.

use std::fmt;

use crate::Lba;

/// Why a request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceError {
    /// The extent does not lie within the device.
    OutOfRange,
    /// The device is read-only, or was opened so.
    ReadOnly,
    /// The device does not support this request.
    Unsupported,
    /// A thin device, or the storage below it, is full.
    NoSpace,
    /// Data at this block could not be read.
    Unreadable(Lba),
    /// Data at this block could not be written.
    Unwritable(Lba),
    /// The device is missing, or out of service. A later retry may succeed.
    NotReady,
    /// Another host has reserved the device.
    Reserved,
    /// The device did not complete the request before its deadline.
    TimedOut,
    /// The request was cancelled before it was carried out, because its command was aborted.
    Cancelled,
    /// Writes that were acknowledged since the last successful flush may be lost: a write-back failed, or the
    /// remote device has lost its cache. Only a flush, or a write with [`crate::Durability::Stable`], fails
    /// with it.
    WritesLost,
    /// An earlier write of these blocks failed, and may still be carried out at any time: their content is
    /// unknown, and new data could be overwritten.
    Unsettled,
}

impl DeviceError {
    /// Whether a flush that failed with it may have lost writes: what could not be written is dropped, so
    /// that no later flush writes it. Other errors leave it in the cache.
    pub fn is_loss(self) -> bool {
        matches!(self, DeviceError::Unwritable(_) | DeviceError::NoSpace | DeviceError::WritesLost)
    }
}

impl fmt::Display for DeviceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DeviceError::OutOfRange => write!(f, "beyond the end of the device"),
            DeviceError::ReadOnly => write!(f, "the device is read-only"),
            DeviceError::Unsupported => write!(f, "the device cannot do this"),
            DeviceError::NoSpace => write!(f, "no space left for the device's data"),
            DeviceError::Unreadable(lba) => write!(f, "block {} could not be read", lba.0),
            DeviceError::Unwritable(lba) => write!(f, "block {} could not be written", lba.0),
            DeviceError::NotReady => write!(f, "the device is not ready"),
            DeviceError::Reserved => write!(f, "the device is reserved by another initiator"),
            DeviceError::TimedOut => write!(f, "the device did not answer in time"),
            DeviceError::Cancelled => write!(f, "the request was cancelled"),
            DeviceError::WritesLost => write!(f, "acknowledged writes may be lost"),
            DeviceError::Unsettled => {
                write!(f, "an earlier write may still be carried out by a path that was lost")
            }
        }
    }
}

impl std::error::Error for DeviceError {}
