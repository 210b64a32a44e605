//! The logical unit that a verb is for.

use initiator::verbs::VerbError;
use initiator::{Settings, Unit};

use super::answer::Answer;
use crate::failure::Failure;
use crate::remote;

/// Where it is.
#[derive(Debug, clap::Args)]
pub(super) struct UnitArguments {
    /// The LUN: iscsi://[user@]host[:port]/target/lun[?key=value&...]
    #[arg(value_name = "URL")]
    pub(super) url: String,
}

/// Where it is, and how the answer is to be printed.
#[derive(Debug, clap::Args)]
pub(super) struct AskArguments {
    #[command(flatten)]
    pub(super) unit: UnitArguments,
    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,
}

impl UnitArguments {
    /// Logs in, does the work with whatever answers at the LUN, disk or not, and logs out.
    pub(super) fn with<T>(&self, work: impl AsyncFnOnce(&Unit) -> Result<T, Failure>) -> Result<T, Failure> {
        self.with_settings(|_| {}, work)
    }

    /// The same on other terms.
    pub(super) fn with_settings<T>(
        &self,
        change: impl FnOnce(&mut Settings),
        work: impl AsyncFnOnce(&Unit) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let mut url = remote::url(&self.url)?;
        change(&mut url.settings);
        remote::run(async {
            let target = remote::open_target(&url).await?;
            let result = work(&target.unit(url.lun)).await;
            target.close().await;
            result
        })
    }
}

impl AskArguments {
    /// The same for a verb that is answered with data.
    pub(super) fn ask(
        &self,
        verb: impl AsyncFnOnce(&Unit) -> Result<Answer, VerbError>,
    ) -> Result<(), Failure> {
        self.unit.with(async |unit| Ok(verb(unit).await?))?.say(self.json)
    }
}

/// Takes what waits for every new session, such as that there was a reset before its time: it would be told in place of
/// the next command's answer. Whether the unit is ready does not matter.
pub(super) async fn settle(unit: &Unit) {
    let _ = unit.test_unit_ready().await;
}
