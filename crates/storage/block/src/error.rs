//! How a device fails: one variant per thing a front end can say about it.

use std::fmt;

use crate::Lba;

/// Why a request was not carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceError {
    /// The extent does not lie within the device.
    OutOfRange,
    /// The device, or the way it was opened, allows no writing.
    ReadOnly,
    /// The device cannot do this at all.
    Unsupported,
    /// A thin device, or what lies under it, is full.
    NoSpace,
    /// Data at this block could not be read.
    Unreadable(Lba),
    /// Data at this block could not be written.
    Unwritable(Lba),
    /// The device is gone, or has been taken out of service. Trying again later may help.
    NotReady,
    /// Somebody else has reserved the device.
    Reserved,
    /// The device did not answer in the time it had.
    TimedOut,
    /// The request was given up before it was carried out, because its command was aborted.
    Cancelled,
    /// Writes that were acknowledged since the last successful flush may be lost: a write-back failed, or the remote
    /// device has lost its cache. Only a flush, or a write with [`crate::Durability::Stable`], ends with it.
    WritesLost,
    /// An earlier write of these blocks failed, and may still be carried out at any time: what is in them is not known, and
    /// what is written to them now could be written over.
    Unsettled,
}

impl DeviceError {
    /// Whether a flush that ended with it may have lost writes: what could not be written is dropped, and is not written
    /// by a later flush. Others leave it in the cache.
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
