//! The second half of a command: its data have arrived, and it accesses the device.

use std::future::Future;
use std::rc::Rc;
use std::sync::Arc;

use block::{Buffer, Durability, Extent};
use volume::RequestKind;

use crate::failure::Failure;
use crate::nexus::NexusId;
use crate::plan::{Data, DataIn, Ended, Job, Outcome, Reply, Running, Step, Work};
use crate::unit::{DeviceAccess, LogicalUnit};

/// Longer requests become tasks, so that others run in between: a copy of 256 KiB takes some 30 µs.
pub const AT_ONCE_BYTES_MAX: usize = 256 << 10;

impl LogicalUnit {
    /// Carries out the rest of a command whose plan was to receive or to run.
    pub fn finish(self: &Arc<Self>, job: Job, data: Data) -> Step {
        let ended = Ended {
            expected_bytes: job.expected_bytes,
            data_in_bytes: job.data_in_bytes,
            format: job.format,
        };
        match job.work {
            Work::Placed(_, lock) => {
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
            Work::Read { extent, bytes, flush } => {
                if !flush && let Some(outcome) = self.read_nowait(extent, bytes, job.accepted) {
                    return Step::Now(Reply::from_outcome(Ok(outcome), ended));
                }
                self.later(job.nexus, job.accepted, move |access| async move {
                    match access.read(extent, bytes, flush).await {
                        // What is asked for may be more than what is read, if the initiator has no room for
                        // it.
                        Ok(outcome) => Reply::from_outcome(Ok(outcome), ended),
                        Err(failure) => Reply::failure(failure, ended.format),
                    }
                })
            }
            Work::Other(deferred) => {
                let watch = Rc::default();
                let access = DeviceAccess::new(Arc::clone(self), job.nexus, job.accepted, Rc::clone(&watch));
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

    /// A read or a write.
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

    /// Completes a write that need not wait without a task. False if it must wait or be refused.
    fn write_nowait(&self, extent: Extent, data: &[u8], durability: Durability, accepted: u64) -> bool {
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

    /// Completes a read that need not wait without a task; `None` if it must wait or be refused.
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
        self.volume().record_end(RequestKind::Read, &Ok(()));
        buffer.truncate(bytes as usize);
        Some(DataIn::Buffer(buffer).into())
    }
}

impl DeviceAccess {
    async fn write(&self, extent: Extent, data: Buffer, durability: Durability) -> Result<Outcome, Failure> {
        let geometry = self.device().geometry();
        let mut data = data;
        // The initiator may have offered less than the CDB asks for: whole blocks of it are written.
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

/// The received data; empty if the front end passed none although it was asked to.
fn buffer(data: Data) -> Buffer {
    match data {
        Data::Buffer(buffer) => buffer,
        Data::None | Data::Placed => Buffer::recycled(0),
    }
}
