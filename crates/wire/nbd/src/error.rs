//! Errors of replies (section "Error values").

use derive_more::Display;
use num_enum::TryFromPrimitive;

/// Why a request failed: the numbers that the standard allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Display, TryFromPrimitive)]
#[repr(u32)]
pub enum Errno {
    /// The export is read-only, or somebody else has reserved it.
    #[display("operation not permitted")]
    Eperm = 1,
    /// The device failed.
    #[display("input/output error")]
    Eio = 5,
    /// No memory.
    #[display("cannot allocate memory")]
    Enomem = 12,
    /// The request is not one that the standard allows here.
    #[display("invalid argument")]
    Einval = 22,
    /// The storage is full, or a write goes past the end of the export.
    #[display("no space left on device")]
    Enospc = 28,
    /// A read is too long for a reply that must not be fragmented.
    #[display("value too large")]
    Eoverflow = 75,
    /// Zeroes cannot be written faster than data.
    #[display("operation not supported")]
    Enotsup = 95,
    /// The server ends.
    #[display("server is shutting down")]
    Eshutdown = 108,
}
