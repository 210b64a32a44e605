//! The functions that front ends call for a command: [`LogicalUnit::begin`] checks and plans it immediately;
//! [`LogicalUnit::finish`] executes the part that needs data from the initiator or the device. Reads and
//! writes have a fast path: a single generation number covers everything that could forbid them.
//!
//! The checks before a command is planned follow the order of SAM-5 5.3.3: unit attentions, reservations, a
//! SANITIZE or FORMAT UNIT in progress, and the state and write protection of the medium. Reads and writes
//! skip them while the cached view of their nexus is valid.

use std::future::Future;
use std::rc::Rc;
use std::sync::Arc;

use block::{Buffer, DeviceError, Durability, Extent};
use scsi::{Condition, SenseKey, asc};
use volume::RequestKind;

use crate::access::DeviceAccess;
use crate::cdb::Cdb;
use crate::command::call::{Call, Command};
use crate::command::{self, read_write};
use crate::failure;
use crate::failure::Failure;
use crate::nexus::NexusId;
use crate::plan::{CommandIn, Data, DataIn, Ended, Job, Outcome, Plan, Reply, Running, Step, Work};
use crate::unit::{LogicalUnit, Nexus};

impl LogicalUnit {
    /// Plans a command. Never blocks.
    pub fn begin(self: &Arc<Self>, nexus: &mut Nexus, command: &CommandIn<'_>) -> Plan {
        debug_assert!(Arc::ptr_eq(&nexus.unit, self), "a nexus is at one unit");
        if nexus.view.generation != self.generation() {
            self.look_again(nexus);
        }
        let cdb = Cdb(command.cdb);
        let view = nexus.view;
        let mut call = Call {
            unit: self,
            nexus,
            view,
            cdb,
            command,
        };
        let plan = match cdb.opcode() {
            0x08 | 0x28 | 0x88 | 0xa8 if view.reads && !cdb.naca() => {
                read_write::plan_read(&mut call)
            }
            0x0a | 0x2a | 0x8a | 0xaa if view.writes && !cdb.naca() => {
                read_write::plan_write(&mut call)
            }
            _ => self.admit(&mut call),
        };
        plan.unwrap_or_else(|failure| Plan::Reply(Reply::failure(failure, view.format)))
    }

    fn look_again(&self, nexus: &mut Nexus) {
        // Read the generation before the state: a change between the two then makes the view stale, but never
        // wrong.
        let generation = self.generation();
        let geometry = self.device().geometry();
        let id = nexus.id;
        nexus.view = self.look(|state| state.view(id, geometry, generation));
    }

    /// Finds the command, checks whether it is allowed, and plans it.
    pub(crate) fn admit(self: &Arc<Self>, call: &mut Call<'_>) -> Result<Plan, Failure> {
        let command = command::find(call.cdb, self.traits())?;
        self.check(call, command)?;
        if call.cdb.naca() {
            // INQUIRY reports NORMACA = 0 (SAM-5 5.10.2).
            return Err(Condition::invalid_bit(call.cdb.layout().control_at() as u16, 2).into());
        }
        (command.plan)(call)
    }

    fn check(&self, call: &mut Call<'_>, command: &Command) -> Result<(), Failure> {
        let id = call.nexus.id;
        if command.attention
            && let Some(attention) = self.take_attention(id)
        {
            return Err(attention.into());
        }
        self.look(|state| {
            state.reserved(id, command.reserved)?;
            if command.attention {
                state.operations.in_progress()?;
            }
            if command.medium {
                state.ready()?;
            }
            if command.writes {
                state.writable()?;
            }
            Ok(())
        })
    }
}

/// The longest read or write that is completed without a task. Longer ones become tasks, so that other
/// commands run in between: copying 256 KiB takes about 30 µs.
pub const AT_ONCE_BYTES_MAX: usize = 256 << 10;

impl LogicalUnit {
    /// Executes the rest of a command whose plan was [`Plan::Receive`] or [`Plan::Run`].
    pub fn finish(self: &Arc<Self>, job: Job, data: Data) -> Step {
        let ended = Ended {
            expected_bytes: job.expected_bytes,
            data_in_bytes: job.data_in_bytes,
            format: job.format,
        };
        match job.work {
            Work::Placed(_, lock) => {
                debug_assert!(
                    matches!(data, Data::Placed),
                    "the lock is released when the data is in place"
                );
                drop(lock);
                Step::Now(Reply::good(job.expected_bytes))
            }
            Work::Write(extent, durability) => {
                let data = buffer(data);
                if self.write_nowait(extent, &data, durability, job.accepted) {
                    return Step::Now(Reply::from_outcome(Ok(Outcome::default()), ended));
                }
                self.later(job.nexus, job.accepted, |access| async move {
                    Reply::from_outcome(access.write(extent, data, durability).await, ended)
                })
            }
            Work::Read {
                extent,
                bytes,
                flush,
            } => {
                if !flush && let Some(outcome) = self.read_nowait(extent, bytes, job.accepted) {
                    return Step::Now(Reply::from_outcome(Ok(outcome), ended));
                }
                self.later(job.nexus, job.accepted, move |access| async move {
                    match access.read(extent, bytes, flush).await {
                        // The command may request more than is read, if the initiator's buffer is too small.
                        Ok(outcome) => Reply::from_outcome(Ok(outcome), ended),
                        Err(failure) => Reply::failure(failure, ended.format),
                    }
                })
            }
            Work::Other(deferred) => {
                let watch = Rc::default();
                let access =
                    DeviceAccess::new(Arc::clone(self), job.nexus, job.accepted, Rc::clone(&watch));
                let ending = deferred(access, buffer(data));
                Step::Later(Running {
                    reply: Box::pin(async move { Reply::from_outcome(ending.await, ended) }),
                    watch,
                })
            }
            Work::Lasting(start) => match start(Arc::clone(self), buffer(data)) {
                Err(failure) => Step::Now(Reply::from_outcome(Err(failure), ended)),
                Ok((work, ending)) => Step::Lasting {
                    reply: Box::pin(async move { Reply::from_outcome(ending.await, ended) }),
                    work,
                },
            },
        }
    }

    /// Runs a read or a write as a task.
    fn later<F: Future<Output = Reply> + 'static>(
        self: &Arc<Self>,
        nexus: NexusId,
        accepted: u64,
        work: impl FnOnce(DeviceAccess) -> F,
    ) -> Step {
        let watch = Rc::default();
        let access = DeviceAccess::new(Arc::clone(self), nexus, accepted, Rc::clone(&watch));
        let reply = Box::pin(work(access));
        Step::Later(Running { reply, watch })
    }

    /// Completes a write without a task. Returns false if the write must wait or be rejected.
    fn write_nowait(
        &self,
        extent: Extent,
        data: &[u8],
        durability: Durability,
        accepted: u64,
    ) -> bool {
        let whole = self.device().geometry().length(extent) == data.len() as u64;
        let is_written = durability == Durability::Cached
            && whole
            && data.len() <= AT_ONCE_BYTES_MAX
            && self.locks().try_share(extent).is_some_and(|_shared| {
                self.still_permits(accepted, RequestKind::Change).is_ok()
                    && self.device().write_nowait(extent, data)
            });
        if is_written {
            self.volume().record_end(RequestKind::Change, &Ok(()));
        }
        is_written
    }

    /// Completes a read without a task. Returns `None` if the read must wait or be rejected.
    fn read_nowait(&self, extent: Extent, bytes: u32, accepted: u64) -> Option<Outcome> {
        let length = usize::try_from(self.device().geometry().length(extent)).ok()?;
        if length > AT_ONCE_BYTES_MAX {
            return None;
        }
        let _shared = self.locks().try_share(extent)?;
        self.still_permits(accepted, RequestKind::Read).ok()?;
        let mut buffer = Buffer::recycled(length);
        if !self.device().read_nowait(extent, &mut buffer) {
            return None;
        }
        debug_assert!(bytes as usize <= length, "the requested bytes were read");
        self.volume().record_end(RequestKind::Read, &Ok(()));
        buffer.truncate(bytes as usize);
        Some(DataIn::Buffer(buffer).into())
    }
}

impl DeviceAccess {
    async fn write(
        &self,
        extent: Extent,
        data: Buffer,
        durability: Durability,
    ) -> Result<Outcome, Failure> {
        let geometry = self.device().geometry();
        let mut data = data;
        // The initiator may have offered less data than the CDB requires. Only whole blocks of the received
        // data are written.
        let blocks = (data.len() as u64 >> geometry.block_size.shift()).min(extent.blocks.0);
        let extent = Extent::new(extent.lba.0, blocks);
        data.truncate(geometry.length(extent) as usize);
        let _shared = self.locks().share(extent).await;
        self.store(extent, data.share(), durability).await?;
        Ok(Outcome::default())
    }

    async fn read(&self, extent: Extent, bytes: u32, flush: bool) -> Result<Outcome, Failure> {
        let _shared = self.locks().share(extent).await;
        if flush {
            self.flush_untold().await?;
        }
        let mut buffer = self.fetch(extent).await?;
        buffer.truncate(bytes as usize);
        Ok(DataIn::Buffer(buffer).into())
    }
}

/// Returns the received data; empty if the front end passed no buffer.
fn buffer(data: Data) -> Buffer {
    match data {
        Data::Buffer(buffer) => buffer,
        Data::None | Data::Placed => Buffer::recycled(0),
    }
}

/// The reason why a command's data was not received. RFC 7143 section 11.4.7.2 defines the sense data; the
/// sense key is always ABORTED COMMAND.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransferFault {
    /// A digest did not match.
    Digest,
    /// The initiator sent data that was neither requested nor allowed by the negotiated parameters.
    UnexpectedUnsolicited,
    /// The initiator sent less unsolicited data than it announced.
    NotEnoughUnsolicited,
}

/// Errors in the direction or task attribute that the transport declares for a command, independent of the
/// CDB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Misdeclared {
    /// The command declares data in both directions; no supported command transfers data in both.
    BothDirections,
    /// The task attribute is ACA, but Linerate never establishes an auto contingent allegiance (NORMACA is
    /// zero).
    Aca,
}

impl LogicalUnit {
    /// Returns the reply to a command whose data did not arrive.
    pub fn transfer_failed(&self, fault: TransferFault) -> Reply {
        let code = match fault {
            TransferFault::Digest => asc::PROTOCOL_SERVICE_CRC_ERROR,
            TransferFault::UnexpectedUnsolicited => asc::UNEXPECTED_UNSOLICITED_DATA,
            TransferFault::NotEnoughUnsolicited => asc::NOT_ENOUGH_UNSOLICITED_DATA,
        };
        self.refuse(&Condition::new(SenseKey::AbortedCommand, code))
    }

    /// Returns the reply to a command that was aborted during a device request.
    pub fn gave_up(&self, error: DeviceError) -> Reply {
        self.refuse(&failure::condition(error))
    }

    /// Returns the reply to a command with an invalid declaration.
    pub fn misdeclared(&self, fault: Misdeclared) -> Reply {
        self.refuse(&match fault {
            Misdeclared::BothDirections => Condition::INVALID_INFORMATION_UNIT,
            // SAM-5 8.9.
            Misdeclared::Aca => {
                Condition::new(SenseKey::IllegalRequest, asc::INVALID_MESSAGE_ERROR)
            }
        })
    }

    fn refuse(&self, condition: &Condition) -> Reply {
        Reply::check(condition, self.look(|state| state.sense_format()))
    }
}
