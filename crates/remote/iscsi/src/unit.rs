//! A logical unit at a target, whatever kind of device it is, by its address alone.
//!
//! A [`Unit`] is independent of the device type: commands are sent unchanged. Named SCSI commands with
//! decoded results are methods of it too ([`crate::verbs`]).

use std::sync::Arc;

use block::Buffer;
use iscsi::pdu::{Lun, Residual};
use scsi::{Sense, cdb::Cdb};

use crate::error::CommandError;
use crate::remote_target::RemoteTarget;
use crate::tasks::Transfer;

/// A logical unit of a target, to send commands to. It keeps the session alive; a clone is the same unit.
#[derive(Clone)]
pub struct Unit {
    target: Arc<RemoteTarget>,
    lun: Lun,
}

/// The target's response to a command.
#[derive(Debug)]
pub struct CommandResult {
    /// The SCSI status (SAM-5 table 45).
    pub status: u8,
    /// The sense data, if any.
    pub sense: Option<Sense>,
    /// The data that came; nothing if none were asked for.
    pub data: Buffer,
    /// The residual count: the difference between the expected and the transferred length.
    pub residual: Residual,
}

impl Unit {
    /// The unit at an address of `target`, which may be of any of SAM-5's forms.
    pub fn new(target: Arc<RemoteTarget>, lun: Lun) -> Unit {
        Unit { target, lun }
    }

    /// The session that the unit is reached by.
    pub fn target(&self) -> &Arc<RemoteTarget> {
        &self.target
    }

    /// Its address, as it travels.
    pub fn lun(&self) -> Lun {
        self.lun
    }

    /// Sends a command unchanged and returns the target's response, with any status. Nothing is retried.
    pub async fn command(&self, cdb: Cdb, transfer: Transfer) -> Result<CommandResult, CommandError> {
        let (status, transfer) = self.target.execute(self.lun, cdb, transfer).await?;
        let data = match transfer {
            Transfer::In { mut buffer, range } => {
                buffer.copy_within(range.start..range.start + status.in_bytes.min(range.len()), 0);
                buffer.truncate(status.in_bytes);
                buffer
            }
            Transfer::None | Transfer::Out(_) => Buffer::recycled(0),
        };
        let sense = Sense::parse(&status.sense);
        Ok(CommandResult { status: status.status, sense, data, residual: status.residual })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_may_be_used_from_any_thread() {
        fn anywhere<T: Send + Sync + Clone>() {}
        anywhere::<Unit>();
    }
}
