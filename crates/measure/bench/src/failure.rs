//! Failures of a request.

use std::fmt;

use block::{DeviceError, Lba};
use serde::{Serialize, Serializer};

/// A request that failed, or that returned wrong data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The device returned an error.
    Device(DeviceError),
    /// The block does not start with the marker that this program writes.
    NotOurs {
        /// The block that was read.
        lba: Lba,
    },
    /// The block has a wrong checksum: it is a mixture of two writes, or was corrupted in transit.
    Damaged {
        /// The block that was read.
        lba: Lba,
    },
    /// The block is intact, but contains the address of a different block.
    WrongBlock {
        /// The block that was read.
        lba: Lba,
        /// The address stored in the block.
        found: Lba,
    },
    /// The block is intact and has the right address, but not the generation of the last write.
    WrongGeneration {
        /// The block that was read.
        lba: Lba,
        /// The generation of the last write.
        expected: u64,
        /// The generation stored in the block.
        found: u64,
    },
}

impl Failure {
    /// Returns whether the device reported success, but returned wrong data.
    pub fn is_mismatch(&self) -> bool {
        !matches!(self, Failure::Device(_))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Device(error) => error.fmt(f),
            Failure::NotOurs { lba } => {
                write!(f, "block {} does not contain the data written to it", lba.0)
            }
            Failure::Damaged { lba } => write!(f, "block {} was read back corrupted", lba.0),
            Failure::WrongBlock { lba, found } => {
                write!(
                    f,
                    "block {} was read back with the data of block {}",
                    lba.0, found.0
                )
            }
            Failure::WrongGeneration {
                lba,
                expected,
                found,
            } => {
                // The upper half identifies the run; the message only says whether it differs.
                let (expected_in, found_in) = (expected >> 32, found >> 32);
                let other = if found_in == expected_in {
                    ""
                } else {
                    " of another run"
                };
                let (lba, expected, found) = (lba.0, *expected as u32, *found as u32);
                write!(
                    f,
                    "block {lba} was read back in generation {found}{other}, but generation {expected} was \
                     written last"
                )
            }
        }
    }
}

impl Serialize for Failure {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
