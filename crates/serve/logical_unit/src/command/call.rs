//! A command passed to its planner, and the plans that a planner can return.

use std::future::Future;
use std::sync::Arc;

use block::{Buffer, Geometry};

use crate::cdb::Cdb;
use crate::failure::Failure;
use crate::nexus::{Nexus, View};
use crate::plan::{
    Background, CommandIn, DataIn, Deferred, Ending, Job, Landing, Outcome, Plan, Receive, Reply, Work,
};
use crate::unit::{DeviceAccess, LogicalUnit};

/// A command to be planned.
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

    /// GOOD.
    pub(crate) fn good(&self) -> Result<Plan, Failure> {
        Ok(Plan::Reply(Reply::good(0)))
    }

    /// Parameter data, cut at the ALLOCATION LENGTH. That is no overflow (SPC-4 4.2.5.6): lengths inside the
    /// data are those of the whole.
    pub(crate) fn parameter_data(&self, mut data: Vec<u8>, allocation_length: u32) -> Result<Plan, Failure> {
        self.command.returns_data()?;
        data.truncate(allocation_length as usize);
        Ok(Plan::Reply(Reply::data(DataIn::Bytes(data), self.command.data_in_bytes)))
    }

    /// Receive `expected_bytes`, or as many of them as the initiator offers, then run `then`, which needs
    /// `working_bytes` of memory besides.
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
        start: impl FnOnce(Arc<LogicalUnit>, Buffer) -> Result<(Background, Ending), Failure> + Send + 'static,
    ) -> Result<Plan, Failure> {
        self.receive_into(Work::Lasting(Box::new(start)), expected_bytes, 0)
    }

    fn receive_into(&self, work: Work, expected_bytes: u32, working_bytes: usize) -> Result<Plan, Failure> {
        if expected_bytes > 0 {
            self.command.takes_data()?;
        }
        let job = Job { working_bytes, ..self.job(work, u64::from(expected_bytes)) };
        match expected_bytes.min(self.command.data_out_bytes) {
            0 => Ok(Plan::Run(job)),
            bytes => Ok(Plan::Receive(Receive { bytes, place: Landing::Buffer, job })),
        }
    }

    /// Run `then` at once, which needs `working_bytes` of memory.
    pub(crate) fn run<F>(
        &self,
        working_bytes: usize,
        then: impl FnOnce(DeviceAccess) -> F + Send + 'static,
    ) -> Result<Plan, Failure>
    where
        F: Future<Output = Result<Outcome, Failure>> + 'static,
    {
        let deferred: Deferred = Box::new(move |access, _| Box::pin(then(access)));
        Ok(Plan::Run(Job { working_bytes, ..self.job(Work::Other(deferred), 0) }))
    }

    pub(crate) fn job(&self, work: Work, expected_bytes: u64) -> Job {
        let (nexus, accepted, format) = (self.nexus.id, self.view.generation, self.view.format);
        let data_in_bytes = self.command.data_in_bytes;
        Job { work, nexus, accepted, expected_bytes, data_in_bytes, format, working_bytes: 0 }
    }
}
