//! Device errors: one variant for each case that a front end can report.

use derive_more::Display;

use crate::Lba;

/// Why a request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display)]
pub enum DeviceError {
    /// The extent does not lie within the device.
    #[display("beyond the end of the device")]
    OutOfRange,
    /// The device is read-only, or was opened so.
    #[display("the device is read-only")]
    ReadOnly,
    /// The device does not support this request.
    #[display("the device cannot do this")]
    Unsupported,
    /// A thin device, or the storage below it, is full.
    #[display("no space left for the device's data")]
    NoSpace,
    /// Data at this block could not be read.
    #[display("block {} could not be read", _0.0)]
    Unreadable(Lba),
    /// Data at this block could not be written.
    #[display("block {} could not be written", _0.0)]
    Unwritable(Lba),
    /// The device is missing, or out of service. A later retry may succeed.
    #[display("the device is not ready")]
    NotReady,
    /// The storage carries out nothing of this host any more, because another one has taken the device over. It stays so until
    /// the device is opened again.
    #[display("the device is fenced: another host has taken it over")]
    Fenced,
    /// Another host has reserved the device.
    #[display("the device is reserved by another initiator")]
    Reserved,
    /// The device did not complete the request before its deadline.
    #[display("the device did not answer in time")]
    TimedOut,
    /// The request was cancelled before it was carried out, because its command was aborted.
    #[display("the request was cancelled")]
    Cancelled,
    /// Writes that were acknowledged since the last successful flush may be lost: a write-back failed, or the
    /// remote device has lost its cache. Only a flush, or a write with [`crate::Durability::Stable`], fails
    /// with it.
    #[display("acknowledged writes may be lost")]
    WritesLost,
    /// An earlier write of these blocks failed, and may still be carried out at any time: their content is
    /// unknown, and new data could be overwritten.
    #[display("an earlier write may still be carried out by a path that was lost")]
    Unsettled,
}

impl DeviceError {
    /// Whether a flush that failed with it may have lost writes: what could not be written is dropped, so
    /// that no later flush writes it. Other errors leave it in the cache.
    pub fn is_loss(self) -> bool {
        matches!(self, DeviceError::Unwritable(_) | DeviceError::NoSpace | DeviceError::WritesLost)
    }
}

impl std::error::Error for DeviceError {}
