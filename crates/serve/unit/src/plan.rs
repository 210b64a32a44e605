//! What passes between a logical unit and the front end that serves it: a command comes in, a plan goes out,
//! data are moved as the plan says, a reply ends it.
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

use crate::failure::Failure;
use crate::nexus::NexusId;
use crate::unit::{DeviceAccess, LogicalUnit, Watch};

/// A command as a transport delivers it.
pub struct CommandIn<'a> {
    /// The CDB, at least as long as its operation code demands; missing bytes count as zero.
    pub cdb: &'a [u8],
    /// What the initiator offers to send, in bytes (iSCSI: the Expected Data Transfer Length of a write).
    pub data_out_bytes: u32,
    /// What the initiator has room for, in bytes (iSCSI: the Expected Data Transfer Length of a read).
    pub data_in_bytes: u32,
    /// The other logical units that this nexus sees.
    pub luns: &'a Arc<dyn SiblingUnits>,
    /// Data must neither land on the medium before they have been checked nor be sent from where they may change
    /// (data digests are in use).
    pub stage: bool,
}

impl CommandIn<'_> {
    /// Refuses a command that takes data from the initiator if that expects data of it.
    pub(crate) fn takes_data(&self) -> Result<(), Condition> {
        if self.data_in_bytes == 0 { Ok(()) } else { Err(Condition::INVALID_INFORMATION_UNIT) }
    }

    /// Refuses a command that returns data if the initiator offers data to it.
    pub(crate) fn returns_data(&self) -> Result<(), Condition> {
        if self.data_out_bytes == 0 { Ok(()) } else { Err(Condition::INVALID_INFORMATION_UNIT) }
    }
}

/// What a logical unit may learn about the others at the same target.
pub trait SiblingUnits: Send + Sync {
    /// The LUNs this nexus sees, in the eight-byte form of REPORT LUNS (SAM-5 4.7), in ascending order.
    fn luns(&self) -> Vec<u64>;

    /// The logical unit that has this designator (the DESIGNATOR field of VPD page 83h), for EXTENDED COPY.
    fn by_designator(&self, designator: &[u8]) -> Option<Arc<LogicalUnit>>;
}

/// What is to be done about a command.
pub enum Plan {
    /// Nothing more: it has ended.
    Reply(Reply),
    /// Bring data from the initiator, then [`LogicalUnit::finish`].
    Receive(Receive),
    /// [`LogicalUnit::finish`] it with [`Data::None`].
    Run(Job),
}

/// Data that a command wants from the initiator.
pub struct Receive {
    /// How many, never more than the initiator offers, never none.
    pub bytes: u32,
    /// Where to put them.
    pub place: Landing,
    /// What to finish then. Dropping it gives the command up.
    pub job: Job,
}

/// Where data from the initiator go.
pub enum Landing {
    /// Straight onto the medium, which is memory of just this length.
    Memory(WholeBlocks),
    /// Into a buffer of just this length.
    Buffer,
}

/// Data that have arrived.
pub enum Data {
    /// None were asked for.
    None,
    /// They lie in [`Landing::Memory`].
    Placed,
    /// They lie here.
    Buffer(Buffer),
}

impl Data {
    /// How many bytes a request will carry.
    pub fn buffer_bytes(&self) -> usize {
        match self {
            Data::None | Data::Placed => 0,
            Data::Buffer(buffer) => buffer.len(),
        }
    }
}

/// How a command goes on.
pub enum Step {
    /// It has ended.
    Now(Reply),
    /// It is at work.
    Later(Running),
    /// It ends when `reply` does, and has set off something of the logical unit's own (SANITIZE, SBC-3 4.11):
    /// `work` must be run to its end, whatever becomes of the command, its task set or its nexus.
    Lasting {
        /// The rest of the command, as with `Later`.
        reply: Pin<Box<dyn Future<Output = Reply>>>,
        /// What goes on.
        work: Background,
    },
}

/// A command at work.
pub struct Running {
    /// Ends with the command. Dropping it gives the command up, unless [`Watch::is_committed`] says that it must be run to
    /// its end; what the device cannot take back any more is what [`LogicalUnit::quiesced`] waits for.
    pub reply: Pin<Box<dyn Future<Output = Reply>>>,
    /// How it stands.
    pub watch: Rc<Watch>,
}

/// Work of a logical unit that no command owns.
pub type Background = Pin<Box<dyn Future<Output = ()>>>;

/// The end of a command.
#[derive(Debug)]
pub struct Reply {
    /// Its status.
    pub status: Status,
    /// Its sense data, with CHECK CONDITION.
    pub sense: Option<SenseData>,
    /// Data for the initiator, no longer than it has room for.
    pub data: DataIn,
    /// What the command asks to move in its direction, whatever the initiator has room for or offers: the
    /// difference is the residual count.
    pub expected_bytes: u64,
    /// What the front end has to do besides, before it sends the status.
    pub effects: Option<Box<[Effect]>>,
}

/// Data for the initiator.
#[derive(Default)]
pub enum DataIn {
    /// None.
    #[default]
    None,
    /// Parameter data.
    Bytes(Vec<u8>),
    /// Blocks in a buffer.
    Buffer(Buffer),
    /// Blocks where they lie on the medium, and what keeps atomic writes away from them until they are sent.
    Region(Region, Option<Shared>),
}

/// What a command demands of the front end.
#[derive(Debug)]
pub enum Effect {
    /// Abort all other commands of these nexuses (PREEMPT AND ABORT, SPC-4 5.12.11.2.6).
    AbortTasks {
        /// For this logical unit.
        unit: Arc<LogicalUnit>,
        /// Whose.
        nexuses: Vec<NexusId>,
        /// Who demands it.
        by: NexusId,
    },
}

/// A command that has not ended yet.
pub struct Job {
    pub(crate) work: Work,
    /// Whose command it is.
    pub(crate) nexus: NexusId,
    /// The generation of the unit's state in which it was accepted.
    pub(crate) accepted: u64,
    /// What it asks to move from the initiator, whether or not that is offered.
    pub(crate) expected_bytes: u64,
    pub(crate) data_in_bytes: u32,
    pub(crate) format: SenseFormat,
    /// Memory that finishing it takes, in bytes.
    pub(crate) working_bytes: usize,
}

impl Job {
    /// Memory that finishing it takes, besides the data from the initiator, in bytes.
    pub fn working_bytes(&self) -> usize {
        self.working_bytes
    }

    /// Whether it is a write that receives onto the medium, and another command may be waiting for its blocks.
    pub fn is_in_the_way(&self) -> bool {
        matches!(&self.work, Work::Placed(_, lock) if lock.is_contended())
    }

    /// Takes a write off the medium whose data are slow to come: its range is free for others again. What has landed so
    /// far counts as data like any other, and the blocks that have yet to land go to a buffer.
    /// Others than such writes come back as they are.
    pub fn withdraw(self, blocks: &WholeBlocks) -> Result<(Job, Buffer), Job> {
        let Job { work: Work::Placed(extent, lock), .. } = self else {
            return Err(self);
        };
        let landed = (blocks.rest_start() / blocks.block_bytes()) as u64;
        let rest = Extent::new(extent.lba.0 + landed, extent.blocks.0 - landed);
        let buffer = blocks.rest();
        drop(lock);
        Ok((Job { work: Work::Write(rest, Durability::Cached), ..self }, buffer))
    }
}

/// What is left to do. Reading and writing have their own kinds, which need no allocation to describe.
pub(crate) enum Work {
    /// The data are received onto the medium under this lock; when they are there, all is done.
    Placed(Extent, Shared),
    /// Write the data received.
    Write(Extent, Durability),
    /// Read whole blocks and give the first so many bytes of them. `flush` first for FUA.
    Read { extent: Extent, bytes: u32, flush: bool },
    /// Anything else.
    Other(Deferred),
    /// What outlives the command.
    Lasting(Start),
}

/// The rest of a command: data from the initiator (empty if there are none) in, outcome out.
pub(crate) type Deferred = Box<dyn FnOnce(DeviceAccess, Buffer) -> Ending + Send>;

/// The same for a command that sets off something of the logical unit's own.
pub(crate) type Start =
    Box<dyn FnOnce(Arc<LogicalUnit>, Buffer) -> Result<(Background, Ending), Failure> + Send>;

/// The end of a command at work.
pub(crate) type Ending = Pin<Box<dyn Future<Output = Result<Outcome, Failure>>>>;

/// How a command that succeeded ends.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) data: DataIn,
    pub(crate) effects: Vec<Effect>,
}

impl From<DataIn> for Outcome {
    fn from(data: DataIn) -> Outcome {
        Outcome { data, effects: Vec::new() }
    }
}

impl DataIn {
    /// How many bytes there are.
    pub fn len(&self) -> usize {
        match self {
            DataIn::None => 0,
            DataIn::Bytes(bytes) => bytes.len(),
            DataIn::Buffer(buffer) => buffer.len(),
            DataIn::Region(region, _) => region.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Leaves off what the initiator has no room for. A region is never longer: `begin` sees to that.
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
    /// GOOD, without data.
    pub fn good(expected_bytes: u64) -> Reply {
        Reply { status: Status::Good, sense: None, data: DataIn::None, expected_bytes, effects: None }
    }

    /// GOOD, with data of which the initiator has room for `room` bytes.
    pub fn data(mut data: DataIn, room: u32) -> Reply {
        let expected_bytes = data.len() as u64;
        data.truncate(room as usize);
        Reply { data, ..Reply::good(expected_bytes) }
    }

    /// CHECK CONDITION.
    pub fn check(condition: &Condition, format: SenseFormat) -> Reply {
        Reply { sense: Some(condition.encode(format)), ..Reply::status(Status::CheckCondition) }
    }

    /// A status alone.
    pub fn status(status: Status) -> Reply {
        Reply { status, ..Reply::good(0) }
    }

    pub(crate) fn failure(failure: Failure, format: SenseFormat) -> Reply {
        match failure {
            Failure::Check(condition) => Reply::check(&condition, format),
            Failure::ReservationConflict => Reply::status(Status::ReservationConflict),
        }
    }

    /// The end of a job: what it asked for is told in either case, since data may have been moved for it.
    pub(crate) fn from_outcome(result: Result<Outcome, Failure>, ended: Ended) -> Reply {
        match result {
            Ok(outcome) => {
                let effects = (!outcome.effects.is_empty()).then(|| outcome.effects.into_boxed_slice());
                let reply = Reply::data(outcome.data, ended.data_in_bytes);
                let expected_bytes = reply.expected_bytes.max(ended.expected_bytes);
                Reply { effects, expected_bytes, ..reply }
            }
            Err(failure) => {
                Reply { expected_bytes: ended.expected_bytes, ..Reply::failure(failure, ended.format) }
            }
        }
    }
}

/// What of a job its reply still needs.
#[derive(Clone, Copy)]
pub(crate) struct Ended {
    pub(crate) expected_bytes: u64,
    pub(crate) data_in_bytes: u32,
    pub(crate) format: SenseFormat,
}
