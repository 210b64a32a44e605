//! The entries of the command table ([`Command`]), commands to be planned ([`Call`]), and the plans that a
//! planner can return.

use std::future::Future;
use std::sync::Arc;

use block::{Buffer, Geometry};
use scsi::{CommandCode, CommandTimeouts};

use crate::access::DeviceAccess;
use crate::cdb::Cdb;
use crate::failure::Failure;
use crate::nexus::View;
use crate::plan::{
    Background, CommandIn, DataIn, Deferred, Ending, Job, Landing, Outcome, Plan, Receive, Reply,
    Work,
};
use crate::state::Reserved;
use crate::unit::{LogicalUnit, Nexus, UnitTraits};

/// Plans a command that has passed the checks of `LogicalUnit::admit`.
pub(crate) type Planner = fn(&mut Call<'_>) -> Result<Plan, Failure>;

/// A command in the table.
pub(crate) struct Command {
    /// Its operation code and service action. All supported service actions are in bits 4..0 of byte 1.
    pub(crate) kind: CommandCode,
    /// CDB usage data (SPC-4 6.35.3) after the operation code: a one for each bit that is evaluated, and the
    /// service action. Together with the operation code, it is as long as the CDB.
    pub(crate) usage: &'static [u8],
    /// Its nominal and recommended timeouts.
    pub(crate) timeouts: CommandTimeouts,
    pub(crate) reserved: Reserved,
    /// Whether the unit reports a pending unit attention instead of executing the command: true except for
    /// INQUIRY, REPORT LUNS and REQUEST SENSE (SAM-5 5.14).
    pub(crate) attention: bool,
    /// Whether the command needs the medium. Such a command is rejected while the medium is stopped, ejected
    /// or fenced.
    pub(crate) medium: bool,
    /// Whether the command changes the medium. Such a command is rejected while the medium is write
    /// protected.
    pub(crate) writes: bool,
    /// The logical units on which the command exists.
    pub(crate) exists: Exists,
    pub(crate) plan: Planner,
}

impl Command {
    /// Creates a command that neither accesses the medium nor conflicts with persistent reservations.
    pub(crate) const fn new(kind: CommandCode, usage: &'static [u8], plan: Planner) -> Command {
        Command {
            kind,
            usage,
            timeouts: CommandTimeouts {
                nominal_s: 1,
                recommended_s: 30,
            },
            reserved: Reserved::Status,
            attention: true,
            medium: false,
            writes: false,
            exists: Exists::Always,
            plan,
        }
    }

    pub(crate) const fn reserved(self, reserved: Reserved) -> Command {
        Command { reserved, ..self }
    }

    /// Makes the command execute regardless of unit attentions and reservations.
    pub(crate) const fn always(self) -> Command {
        Command {
            attention: false,
            reserved: Reserved::Never,
            ..self
        }
    }

    pub(crate) const fn needs_medium(self) -> Command {
        Command {
            medium: true,
            ..self
        }
    }

    pub(crate) const fn reads(self) -> Command {
        self.needs_medium().reserved(Reserved::Read)
    }

    pub(crate) const fn writes(self) -> Command {
        Command {
            writes: true,
            ..self.needs_medium().reserved(Reserved::Write)
        }
    }

    pub(crate) const fn if_thin(self) -> Command {
        Command {
            exists: Exists::Thin,
            ..self
        }
    }

    pub(crate) const fn if_volatile(self) -> Command {
        Command {
            exists: Exists::Volatile,
            ..self
        }
    }

    /// Sets the timeouts of a command whose duration grows with the number of blocks.
    pub(crate) const fn takes(self, nominal_s: u32, recommended_s: u32) -> Command {
        Command {
            timeouts: CommandTimeouts {
                nominal_s,
                recommended_s,
            },
            ..self
        }
    }
}

/// The logical units on which a command exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exists {
    /// All units.
    Always,
    /// Units whose blocks can be deallocated.
    Thin,
    /// RAM units, where deallocation destroys data.
    Volatile,
}

impl Exists {
    /// Whether the command exists on a unit with these traits.
    pub(crate) fn on(self, traits: UnitTraits) -> bool {
        match self {
            Exists::Always => true,
            Exists::Thin => traits.thin,
            Exists::Volatile => traits.volatile,
        }
    }
}

/// A command to plan.
pub(crate) struct Call<'a> {
    pub(crate) unit: &'a Arc<LogicalUnit>,
    pub(crate) nexus: &'a mut Nexus,
    pub(crate) view: View,
    pub(crate) cdb: Cdb<'a>,
    pub(crate) command: &'a CommandIn<'a>,
}

impl Call<'_> {
    pub(crate) fn geometry(&self) -> Geometry {
        self.view.geometry
    }

    /// Returns a plan that completes the command with GOOD.
    pub(crate) fn good(&self) -> Result<Plan, Failure> {
        Ok(Plan::Reply(Reply::good(0)))
    }

    /// Returns a plan that completes the command with parameter data, truncated to the ALLOCATION LENGTH. The
    /// truncation is not an overflow (SPC-4 4.2.5.6), and the length fields inside the data still give the
    /// full length.
    pub(crate) fn parameter_data(
        &self,
        mut data: Vec<u8>,
        allocation_length: u32,
    ) -> Result<Plan, Failure> {
        self.command.returns_data()?;
        data.truncate(allocation_length as usize);
        Ok(Plan::Reply(Reply::data(
            DataIn::Bytes(data),
            self.command.data_in_bytes,
        )))
    }

    /// Returns a plan to receive `expected_bytes`, or fewer if the initiator offers fewer, and then to run
    /// `then`, which needs an additional `working_bytes` of memory.
    pub(crate) fn receive<F>(
        &self,
        expected_bytes: u32,
        working_bytes: usize,
        then: impl FnOnce(DeviceAccess, Buffer) -> F + Send + 'static,
    ) -> Result<Plan, Failure>
    where
        F: Future<Output = Result<Outcome, Failure>> + 'static,
    {
        let deferred: Deferred = Box::new(move |access, data| Box::pin(then(access, data)));
        self.receive_into(Work::Other(deferred), expected_bytes, working_bytes)
    }

    /// [`Call::receive`] for a command that starts an operation of the logical unit.
    pub(crate) fn receive_and_start(
        &self,
        expected_bytes: u32,
        start: impl FnOnce(Arc<LogicalUnit>, Buffer) -> Result<(Background, Ending), Failure>
        + Send
        + 'static,
    ) -> Result<Plan, Failure> {
        self.receive_into(Work::Lasting(Box::new(start)), expected_bytes, 0)
    }

    fn receive_into(
        &self,
        work: Work,
        expected_bytes: u32,
        working_bytes: usize,
    ) -> Result<Plan, Failure> {
        if expected_bytes > 0 {
            self.command.takes_data()?;
        }
        let job = Job {
            working_bytes,
            ..self.job(work, u64::from(expected_bytes))
        };
        match expected_bytes.min(self.command.data_out_bytes) {
            0 => Ok(Plan::Run(job)),
            bytes => Ok(Plan::Receive(Receive {
                bytes,
                place: Landing::Buffer,
                job,
            })),
        }
    }

    /// Returns a plan to run `then` immediately; it needs `working_bytes` of memory.
    pub(crate) fn run<F>(
        &self,
        working_bytes: usize,
        then: impl FnOnce(DeviceAccess) -> F + Send + 'static,
    ) -> Result<Plan, Failure>
    where
        F: Future<Output = Result<Outcome, Failure>> + 'static,
    {
        let deferred: Deferred = Box::new(move |access, _| Box::pin(then(access)));
        Ok(Plan::Run(Job {
            working_bytes,
            ..self.job(Work::Other(deferred), 0)
        }))
    }

    pub(crate) fn job(&self, work: Work, expected_bytes: u64) -> Job {
        let (nexus, accepted, format) = (self.nexus.id, self.view.generation, self.view.format);
        let data_in_bytes = self.command.data_in_bytes;
        Job {
            work,
            nexus,
            accepted,
            expected_bytes,
            data_in_bytes,
            format,
            working_bytes: 0,
        }
    }
}
