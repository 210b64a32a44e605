//! The logical unit that a verb is for.

use initiator::verbs::VerbError;
use initiator::{Settings, Unit};
use inspect::Answer;

use crate::failure::Failure;
use crate::output::say;
use crate::remote;

/// Where it is.
#[derive(Debug, clap::Args)]
pub(super) struct UnitArguments {
    /// LUN: iscsi://[USER@]HOST[:PORT]/IQN/LUN[?KEY=VALUE&...]
    #[arg(value_name = "URL", value_hint = clap::ValueHint::Url)]
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

    /// The same with a command that is answered with nothing but success.
    pub(super) fn carry_out(
        &self,
        verb: impl AsyncFnOnce(&Unit) -> Result<(), VerbError>,
    ) -> Result<(), Failure> {
        self.with(async |unit| Ok(verb(unit).await?))
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
    pub(super) fn ask<E: Into<Failure>>(
        &self,
        verb: impl AsyncFnOnce(&Unit) -> Result<Answer, E>,
    ) -> Result<(), Failure> {
        let answer = self.unit.with(async |unit| verb(unit).await.map_err(Into::into))?;
        say(answer.printed(self.json));
        Ok(())
    }
}
