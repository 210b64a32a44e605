//! The commands: one table, one file per family.
//!
//! The table has the common properties of each command: the CDB bits that are evaluated and the timeouts
//! (both for REPORT SUPPORTED OPERATION CODES), how it conflicts with reservations, and its preconditions.
//! Its planner does the rest.

mod call;
mod table;

pub(crate) mod atomic;
pub(crate) mod cache;
pub(crate) mod capacity;
pub(crate) mod defects;
pub(crate) mod diagnostic;
pub(crate) mod inquiry;
pub(crate) mod lba_status;
pub(crate) mod log_sense;
pub(crate) mod luns;
pub(crate) mod read;
pub(crate) mod ready;
pub(crate) mod removal;
pub(crate) mod report;
pub(crate) mod request_sense;
pub(crate) mod transfer;
pub(crate) mod unmap;
pub(crate) mod verify;
pub(crate) mod vpd;
pub(crate) mod write;
pub(crate) mod write_same;

pub(crate) use call::Call;

use scsi::{CommandCode, CommandTimeouts, Condition, SenseKey, asc};

use crate::cdb::Cdb;
use crate::failure::Failure;
use crate::plan::Plan;
use crate::unit::Reserved;
use table::TABLE;

/// Plans a command that has passed the gate.
pub(crate) type Planner = fn(&mut Call<'_>) -> Result<Plan, Failure>;

/// A command, as the table knows it.
pub(crate) struct Command {
    /// Its codes. All service actions of ours are in bits 4..0 of byte 1.
    pub(crate) kind: CommandCode,
    /// CDB usage data (SPC-4 6.35.3) behind the operation code: a one for each bit that is looked at, and the
    /// service action. With the operation code, they are as long as the CDB.
    pub(crate) usage: &'static [u8],
    /// Its nominal and recommended timeouts.
    pub(crate) timeouts: CommandTimeouts,
    pub(crate) reserved: Reserved,
    /// Reports pending unit attentions instead; all but INQUIRY, REPORT LUNS and REQUEST SENSE (SAM-5 5.14).
    pub(crate) attention: bool,
    /// Needs the medium: not while it is ejected or fenced.
    pub(crate) medium: bool,
    /// Changes the medium: not while it is protected.
    pub(crate) writes: bool,
    /// What the logical unit must be for the command to exist.
    pub(crate) exists: Exists,
    pub(crate) plan: Planner,
}

impl Command {
    /// A command that neither accesses the medium nor conflicts with persistent reservations.
    const fn new(kind: CommandCode, usage: &'static [u8], plan: Planner) -> Command {
        Command {
            kind,
            usage,
            timeouts: CommandTimeouts { nominal_s: 1, recommended_s: 30 },
            reserved: Reserved::Status,
            attention: true,
            medium: false,
            writes: false,
            exists: Exists::Always,
            plan,
        }
    }

    const fn reserved(self, reserved: Reserved) -> Command {
        Command { reserved, ..self }
    }

    /// Never stopped by unit attentions or reservations.
    const fn always(self) -> Command {
        Command { attention: false, reserved: Reserved::Never, ..self }
    }

    const fn needs_medium(self) -> Command {
        Command { medium: true, ..self }
    }

    const fn reads(self) -> Command {
        self.needs_medium().reserved(Reserved::Read)
    }

    const fn writes(self) -> Command {
        Command { writes: true, ..self.needs_medium().reserved(Reserved::Write) }
    }

    const fn if_thin(self) -> Command {
        Command { exists: Exists::Thin, ..self }
    }

    const fn if_volatile(self) -> Command {
        Command { exists: Exists::Volatile, ..self }
    }

    /// Its time grows with the blocks it names.
    const fn takes(self, nominal_s: u32, recommended_s: u32) -> Command {
        Command { timeouts: CommandTimeouts { nominal_s, recommended_s }, ..self }
    }
}

/// On which logical units a command exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exists {
    /// All.
    Always,
    /// Those whose blocks can be deallocated.
    Thin,
    /// Those in memory, where deallocated data are destroyed.
    Volatile,
}

/// Properties of a logical unit that determine which commands exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UnitTraits {
    pub(crate) thin: bool,
    pub(crate) volatile: bool,
}

impl UnitTraits {
    fn has(self, exists: Exists) -> bool {
        match exists {
            Exists::Always => true,
            Exists::Thin => self.thin,
            Exists::Volatile => self.volatile,
        }
    }
}

/// The commands of such a logical unit.
pub(crate) fn commands(traits: UnitTraits) -> impl Iterator<Item = &'static Command> {
    TABLE.iter().filter(move |command| traits.has(command.exists))
}

/// The command of this CDB, or an error that points at the invalid field.
pub(crate) fn find(cdb: Cdb<'_>, traits: UnitTraits) -> Result<&'static Command, Condition> {
    let mut opcode_known = false;
    for command in commands(traits).filter(|command| command.kind.opcode == cdb.opcode()) {
        match command.kind.service_action {
            Some(action) if action != cdb.byte(1) & 0x1f => opcode_known = true,
            _ => return Ok(command),
        }
    }
    // SERVICE ACTION is bits 4..0 of byte 1.
    let service_action = Condition::invalid_bit(1, 4);
    let opcode = Condition::new(SenseKey::IllegalRequest, asc::INVALID_COMMAND_OPERATION_CODE);
    Err(if opcode_known { service_action } else { opcode })
}
