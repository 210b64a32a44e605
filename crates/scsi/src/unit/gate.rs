//! What every command but the quickest must pass before it is planned, in the order of SAM-5 5.3.3: unit
//! attentions, then reservations, then a SANITIZE or FORMAT UNIT under way, then whether the medium is there and may be written.

use std::sync::Arc;

use crate::command::{Call, Command, find};
use crate::failure::Failure;
use crate::plan::Plan;
use crate::sense::Condition;
use crate::unit::LogicalUnit;

impl LogicalUnit {
    /// Finds the command and, if nothing forbids it, plans it.
    pub(crate) fn admit(self: &Arc<Self>, call: &mut Call<'_>) -> Result<Plan, Failure> {
        let command = find(call.cdb, self.kind())?;
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
                state.operation.in_progress()?;
            }
            if command.medium {
                state.ready()?;
            }
            if command.writes {
                state.writable(self.read_only())?;
            }
            Ok(())
        })
    }

    /// The next unit attention of the caller's nexus, which is then done with.
    pub(crate) fn take_attention(&self, call: &mut Call<'_>) -> Option<Condition> {
        let id = call.nexus.id;
        let quiet = |state: &super::State| {
            state.nexuses.iter().all(|nexus| nexus.id != id || nexus.attentions.is_empty())
        };
        if self.look(quiet) {
            return None;
        }
        self.change(|state| state.take_attention(id)).map(|attention| attention.condition())
    }
}
