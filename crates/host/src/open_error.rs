//! Why a volume could not be opened, one variant per cause, each a sentence with its remedy.

use std::fmt;
use std::io;

use block::BlockSize;

/// Why a volume could not be opened.
#[derive(Debug)]
pub enum OpenError {
    /// The size asked for is none, or would cut the last block.
    NotWholeBlocks {
        /// What was asked for.
        bytes: u64,
        /// What it is not a multiple of.
        block_size: BlockSize,
    },
    /// The address space or the kernel's tables have no room for a RAM volume.
    NoMemory {
        /// What was asked for.
        bytes: u64,
        /// What the kernel said.
        source: io::Error,
    },
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OpenError::NotWholeBlocks { bytes, block_size } => write!(
                f,
                "{bytes} bytes are not a whole number of blocks of {} bytes, at least one: give a multiple",
                block_size.bytes()
            ),
            OpenError::NoMemory { bytes, source } => {
                write!(f, "no room for a RAM volume of {bytes} bytes ({source}): make it smaller")
            }
        }
    }
}

impl std::error::Error for OpenError {}
