//! The checks before a command is planned, in the order of SAM-5 5.3.3: unit attentions, reservations, a
//! SANITIZE or FORMAT UNIT in progress, and the state and write protection of the medium. Reads and writes
//! skip them while the cached view of their nexus is valid.

use std::sync::Arc;

use scsi::Condition;
use volume::RequestKind;

use crate::command::{Call, Command, find};
use crate::failure::Failure;
use crate::plan::Plan;
use crate::unit::LogicalUnit;

impl LogicalUnit {
    /// Finds the command, checks whether it is allowed, and plans it.
    pub(crate) fn admit(self: &Arc<Self>, call: &mut Call<'_>) -> Result<Plan, Failure> {
        let command = find(call.cdb, self.traits())?;
        self.check(call, command)?;
        if call.cdb.naca() {
            // INQUIRY says NORMACA = 0 (SAM-5 5.10.2).
            return Err(Condition::invalid_bit(call.cdb.layout().control_at() as u16, 2).into());
        }
        (command.plan)(call)
    }

    fn check(&self, call: &mut Call<'_>, command: &Command) -> Result<(), Failure> {
        let id = call.nexus.id;
        if command.attention
            && let Some(attention) = self.take_attention(call)
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

    /// Checks again, before a device request of a command that was accepted in generation `accepted`, whether
    /// the medium may still be used so: the data of the command may have arrived much later. Reservations are
    /// not checked again: a command that did not conflict when it was accepted is not affected by later ones
    /// (SPC-4 5.12.1).
    ///
    /// A caller that will change blocks holds its range lock, so no operation is missed: one that begins
    /// after this check waits for that lock and then overwrites the blocks; one that held the range before
    /// has changed the generation before it took its own lock.
    #[inline]
    pub(crate) fn still_permits(&self, accepted: u64, kind: RequestKind) -> Result<(), Condition> {
        if self.generation() == accepted { Ok(()) } else { self.permits_now(accepted, kind) }
    }

    #[cold]
    fn permits_now(&self, accepted: u64, kind: RequestKind) -> Result<(), Condition> {
        self.look(|state| match kind {
            RequestKind::Read => state.ready(),
            RequestKind::Change => {
                state.ready()?;
                state.writable()?;
                state.operations.none_since(accepted)
            }
            RequestKind::Flush | RequestKind::Inspect => Ok(()),
        })
    }

    /// Takes the next unit attention of the caller's nexus.
    pub(crate) fn take_attention(&self, call: &mut Call<'_>) -> Option<Condition> {
        let id = call.nexus.id;
        let quiet = |state: &super::UnitState| {
            state.nexuses.iter().all(|nexus| nexus.id != id || nexus.attentions.is_empty())
        };
        if self.look(quiet) {
            return None;
        }
        self.change(|state| state.take_attention(id)).map(|attention| attention.condition())
    }
}
