//! The interface between a logical unit and its front end. The front end passes a command to the logical
//! unit, which returns a plan. The front end transfers data according to the plan, and receives the reply
//! that completes the command.
//!
//! ```text
//!  CommandIn ── begin ──> Plan ─┬─ Reply                                     done
//!                               ├─ Receive ── data from the initiator ─┐
//!                               └─ Run ────────────────────────────────┴─ finish ──> Step ──> Reply
//! ```

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;

use block::{Buffer, Durability, Extent, Region, Shared, WholeBlocks};
use scsi::{Condition, SenseData, SenseFormat, Status};

use crate::access::{DeviceAccess, Watch};
use crate::failure::Failure;
use crate::nexus::NexusId;
use crate::unit::LogicalUnit;

/// A command as a transport delivers it.
pub struct CommandIn<'a> {
    /// The CDB, at least as long as its operation code requires; missing bytes count as zero.
    pub cdb: &'a [u8],
    /// Bytes that the initiator offers to send (iSCSI: the Expected Data Transfer Length of a write).
    pub data_out_bytes: u32,
    /// The size of the initiator's buffer, in bytes (iSCSI: the Expected Data Transfer Length of a read).
    pub data_in_bytes: u32,
    /// The other logical units visible to this nexus.
    pub luns: &'a Arc<dyn SiblingUnits>,
    /// Whether data digests are in use. If so, the front end must verify received data before it is stored,
    /// and must copy data before it is sent.
    pub stage: bool,
}

impl CommandIn<'_> {
    /// Rejects a command that takes data from the initiator if the initiator expects data.
    pub(crate) fn takes_data(&self) -> Result<(), Condition> {
        if self.data_in_bytes == 0 {
            Ok(())
        } else {
            Err(Condition::INVALID_INFORMATION_UNIT)
        }
    }

    /// Rejects a command that returns data if the initiator offers data.
    pub(crate) fn returns_data(&self) -> Result<(), Condition> {
        if self.data_out_bytes == 0 {
            Ok(())
        } else {
            Err(Condition::INVALID_INFORMATION_UNIT)
        }
    }
}

/// Gives a logical unit access to the other logical units of its target.
pub trait SiblingUnits: Send + Sync {
    /// The LUNs visible to this nexus, in the eight-byte form of REPORT LUNS (SAM-5 4.7), in ascending order.
    fn luns(&self) -> Vec<u64>;

    /// Returns the logical unit that has this designator (the DESIGNATOR field of VPD page 83h), for EXTENDED
    /// COPY.
    fn by_designator(&self, designator: &[u8]) -> Option<Arc<LogicalUnit>>;

    /// Records that this nexus has read the list of its LUNs. No logical unit then needs to report a change
    /// of the list ([`LogicalUnit::luns_reported`]).
    fn luns_reported(&self);
}

/// The steps that are required to execute a command.
pub enum Plan {
    /// The command is complete.
    Reply(Reply),
    /// Receive data from the initiator, then call [`LogicalUnit::finish`].
    Receive(Receive),
    /// Call [`LogicalUnit::finish`] with [`Data::None`].
    Run(Job),
}

/// Data to receive from the initiator.
pub struct Receive {
    /// The length of the data in bytes: at least one, and at most the length that the initiator offers.
    pub bytes: u32,
    /// The destination of the data.
    pub place: Landing,
    /// The job to finish once the data has arrived. Dropping the job aborts the command.
    pub job: Job,
}

/// The destination of data from the initiator.
pub enum Landing {
    /// The blocks in the volume's own memory, as long as the data.
    Memory(WholeBlocks),
    /// A buffer as long as the data, which the front end provides.
    Buffer,
}

/// Data received from the initiator.
pub enum Data {
    /// No data was requested.
    None,
    /// The data was stored in [`Landing::Memory`].
    Placed,
    /// The data is in this buffer.
    Buffer(Buffer),
}

impl Data {
    /// The length of the buffer in bytes; 0 without a buffer.
    pub fn buffer_bytes(&self) -> usize {
        match self {
            Data::None | Data::Placed => 0,
            Data::Buffer(buffer) => buffer.len(),
        }
    }
}

/// The result of [`LogicalUnit::finish`].
pub enum Step {
    /// The command is complete.
    Now(Reply),
    /// The command waits for a device.
    Later(Running),
    /// The command completes with `reply`, and has started an operation of the logical unit (SANITIZE, SBC-3
    /// 4.11). `work` must run to completion, even if the command, its task set or its nexus is aborted.
    Lasting {
        /// The rest of the command, as in [`Step::Later`].
        reply: Pin<Box<dyn Future<Output = Reply>>>,
        /// The operation of the logical unit.
        work: Background,
    },
}

/// A running command.
pub struct Running {
    /// Resolves when the command completes. Dropping it aborts the command, unless [`Watch::is_committed`]
    /// requires that it run to completion. [`LogicalUnit::quiesced`] waits for requests that the device can
    /// no longer cancel.
    pub reply: Pin<Box<dyn Future<Output = Reply>>>,
    /// The progress of the command.
    pub watch: Rc<Watch>,
}

/// Work of a logical unit that no command owns.
pub type Background = Pin<Box<dyn Future<Output = ()>>>;

/// The reply that completes a command.
#[derive(Debug)]
pub struct Reply {
    /// The SCSI status.
    pub status: Status,
    /// The sense data; present with CHECK CONDITION.
    pub sense: Option<SenseData>,
    /// Data for the initiator, no longer than its buffer.
    pub data: DataIn,
    /// The length of data that the CDB requests. The difference from the length that the initiator expects is
    /// the residual count.
    pub expected_bytes: u64,
    /// Effects that the front end must apply before it sends the status.
    pub effects: Option<Box<[Effect]>>,
}

/// Data for the initiator.
#[derive(Default)]
pub enum DataIn {
    /// No data.
    #[default]
    None,
    /// Parameter data.
    Bytes(Vec<u8>),
    /// Blocks in a buffer.
    Buffer(Buffer),
    /// Blocks in the volume's own memory, with a lock that excludes atomic writes until the blocks have been
    /// sent.
    Region(Region, Option<Shared>),
}

/// An effect of a command that the front end must apply.
#[derive(Debug)]
pub enum Effect {
    /// Abort all other commands of these nexuses (PREEMPT AND ABORT, SPC-4 5.12.11.2.6).
    AbortTasks {
        /// The logical unit whose commands are aborted.
        unit: Arc<LogicalUnit>,
        /// The nexuses whose commands are aborted.
        nexuses: Vec<NexusId>,
        /// The nexus that issued the command.
        by: NexusId,
    },
}

/// A command that has not ended yet.
pub struct Job {
    pub(crate) work: Work,
    /// The nexus that sent the command.
    pub(crate) nexus: NexusId,
    /// The generation of the unit's state in which the command was accepted.
    pub(crate) accepted: u64,
    /// The length of data that the command requests from the initiator, even if the initiator offers less.
    pub(crate) expected_bytes: u64,
    pub(crate) data_in_bytes: u32,
    pub(crate) format: SenseFormat,
    /// Memory that finishing the command needs, in bytes.
    pub(crate) working_bytes: usize,
}

impl Job {
    /// Memory that finishing the command needs in addition to the data from the initiator, in bytes.
    pub fn working_bytes(&self) -> usize {
        self.working_bytes
    }

    /// Whether the data from the initiator consists of blocks to write, not of parameters.
    pub fn writes_blocks(&self) -> bool {
        matches!(&self.work, Work::Placed(..) | Work::Write(..))
    }

    /// Whether this is a write into the volume's own memory, and another command may be waiting for its
    /// blocks.
    pub fn is_in_the_way(&self) -> bool {
        matches!(&self.work, Work::Placed(_, lock) if lock.is_contended())
    }

    /// Redirects a write whose data arrives slowly from the volume's own memory to a buffer, and unlocks the
    /// range of the write. Blocks that have been stored stay in memory; the returned buffer receives the
    /// missing blocks. Any other job is left unchanged, and the result is `None`.
    pub fn withdraw(&mut self, blocks: &WholeBlocks) -> Option<Buffer> {
        let Work::Placed(extent, _) = &self.work else {
            return None;
        };
        let landed = (blocks.rest_start() / blocks.block_bytes()) as u64;
        let rest = Extent::new(extent.lba.0 + landed, extent.blocks.0 - landed);
        let buffer = blocks.rest();
        debug_assert_eq!(
            buffer.len() as u64,
            rest.blocks.0 * blocks.block_bytes() as u64,
            "the buffer is for the missing blocks"
        );
        self.work = Work::Write(rest, Durability::Cached);
        Some(buffer)
    }
}

/// The work of a job. Reads and writes have their own variants, which need no allocation.
pub(crate) enum Work {
    /// The data is received into the medium under this lock. The job is done when all data has arrived.
    Placed(Extent, Shared),
    /// Write the data received.
    Write(Extent, Durability),
    /// Read whole blocks, and return their first `bytes` bytes. If `flush` is set (FUA), flush before the
    /// read.
    Read {
        extent: Extent,
        bytes: u32,
        flush: bool,
    },
    /// Any other command.
    Other(Deferred),
    /// An operation that outlives the command.
    Lasting(Start),
}

/// The rest of a command: takes data from the initiator (empty if there is none) and returns the outcome.
pub(crate) type Deferred = Box<dyn FnOnce(DeviceAccess, Buffer) -> Ending + Send>;

/// The rest of a command that starts an operation of the logical unit.
pub(crate) type Start =
    Box<dyn FnOnce(Arc<LogicalUnit>, Buffer) -> Result<(Background, Ending), Failure> + Send>;

/// A running command, which resolves to its outcome.
pub(crate) type Ending = Pin<Box<dyn Future<Output = Result<Outcome, Failure>>>>;

/// The outcome of a command that succeeded.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) data: DataIn,
    pub(crate) effects: Vec<Effect>,
}

impl From<DataIn> for Outcome {
    fn from(data: DataIn) -> Outcome {
        Outcome {
            data,
            effects: Vec::new(),
        }
    }
}

impl DataIn {
    /// Number of bytes.
    pub fn len(&self) -> usize {
        match self {
            DataIn::None => 0,
            DataIn::Bytes(bytes) => bytes.len(),
            DataIn::Buffer(buffer) => buffer.len(),
            DataIn::Region(region, _) => region.len(),
        }
    }

    /// Whether the data is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Truncates the data to the length that the initiator expects. A region is never longer; `begin` ensures
    /// that.
    fn truncate(&mut self, room: usize) {
        match self {
            DataIn::None | DataIn::Region(..) => {}
            DataIn::Bytes(bytes) => bytes.truncate(room),
            DataIn::Buffer(buffer) => buffer.truncate(room),
        }
    }
}

impl std::fmt::Debug for DataIn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "DataIn({} bytes)", self.len())
    }
}

impl Reply {
    /// Creates a reply with GOOD and no data.
    pub fn good(expected_bytes: u64) -> Reply {
        Reply {
            status: Status::Good,
            sense: None,
            data: DataIn::None,
            expected_bytes,
            effects: None,
        }
    }

    /// Creates a reply with GOOD and `data`, truncated to the `room` bytes of the initiator's buffer.
    pub fn data(mut data: DataIn, room: u32) -> Reply {
        let expected_bytes = data.len() as u64;
        data.truncate(room as usize);
        debug_assert!(
            data.len() <= room as usize,
            "the initiator has space for it"
        );
        Reply {
            data,
            ..Reply::good(expected_bytes)
        }
    }

    /// Creates a reply with CHECK CONDITION.
    pub fn check(condition: &Condition, format: SenseFormat) -> Reply {
        Reply {
            sense: Some(condition.encode(format)),
            ..Reply::status(Status::CheckCondition)
        }
    }

    /// Creates a reply with this status and no data.
    pub fn status(status: Status) -> Reply {
        Reply {
            status,
            ..Reply::good(0)
        }
    }

    pub(crate) fn failure(failure: Failure, format: SenseFormat) -> Reply {
        match failure {
            Failure::Check(condition) => Reply::check(&condition, format),
            Failure::ReservationConflict => Reply::status(Status::ReservationConflict),
        }
    }

    /// Creates the reply to a job. An error reply also reports the expected length, because data may have
    /// been transferred.
    pub(crate) fn from_outcome(result: Result<Outcome, Failure>, ended: Ended) -> Reply {
        match result {
            Ok(outcome) => {
                let effects =
                    (!outcome.effects.is_empty()).then(|| outcome.effects.into_boxed_slice());
                let reply = Reply::data(outcome.data, ended.data_in_bytes);
                let expected_bytes = reply.expected_bytes.max(ended.expected_bytes);
                Reply {
                    effects,
                    expected_bytes,
                    ..reply
                }
            }
            Err(failure) => Reply {
                expected_bytes: ended.expected_bytes,
                ..Reply::failure(failure, ended.format)
            },
        }
    }
}

/// The parts of a job that its reply still needs.
#[derive(Clone, Copy)]
pub(crate) struct Ended {
    pub(crate) expected_bytes: u64,
    pub(crate) data_in_bytes: u32,
    pub(crate) format: SenseFormat,
}
