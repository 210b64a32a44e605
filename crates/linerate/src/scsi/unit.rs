//! Opens the logical unit of a verb, and prints the result.

use backends::hyperscsi;
use inspect::Answer;
use iscsi_client::{Settings, Unit};

use crate::failure::Failure;
use crate::output::{say, say_json};
use crate::remote;

/// Its URL, and the output format.
#[derive(Debug, clap::Args)]
pub(super) struct UnitArguments {
    /// LUN: iscsi://[USER@]HOST[:PORT]/IQN/LUN[?KEY=VALUE&...], or hyperscsi://INTERFACE/TARGET/LUN
    #[arg(value_name = "URL", value_hint = clap::ValueHint::Url)]
    url: String,
    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,
}

/// The result of a verb without output.
#[derive(serde::Serialize)]
struct Done {
    verb: &'static str,
    done: bool,
}

impl UnitArguments {
    /// Logs in, does the work on the LUN's device, which need not be a disk, and logs out.
    pub(super) fn with<T>(
        &self,
        work: impl AsyncFnOnce(&Unit) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        self.with_settings(|_| {}, |_| {}, work)
    }

    /// Like [`Self::with`], for the verb `verb`, whose only result is success.
    pub(super) fn carry_out<E: Into<Failure>>(
        &self,
        verb: &'static str,
        act: impl AsyncFnOnce(&Unit) -> Result<(), E>,
    ) -> Result<(), Failure> {
        self.with(async |unit| act(unit).await.map_err(Into::into))?;
        self.done(verb)
    }

    /// Prints success as JSON, if requested; otherwise nothing.
    pub(super) fn done(&self, verb: &'static str) -> Result<(), Failure> {
        if self.json {
            say_json(&Done { verb, done: true })
        } else {
            Ok(())
        }
    }

    /// Like [`Self::with`], but first changes the settings of iSCSI or of HyperSCSI.
    pub(super) fn with_settings<T>(
        &self,
        change: impl FnOnce(&mut Settings),
        change_options: impl FnOnce(&mut hyperscsi::UrlOptions),
        work: impl AsyncFnOnce(&Unit) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        if hyperscsi::is_url(&self.url) {
            let mut url = hyperscsi::Url::parse(&self.url).map_err(Failure::refused)?;
            change_options(&mut url.options);
            return remote::run(async {
                let opened = hyperscsi::open_target(&url).await?;
                let result = work(&opened.target.reported_unit(url.lun).await).await;
                opened.target.close().await;
                result
            });
        }
        let mut url = remote::url(&self.url)?;
        change(&mut url.settings);
        remote::run(async {
            let target = remote::open_target(&url).await?;
            let result = work(&target.reported_unit(url.lun).await).await;
            target.close().await;
            result
        })
    }

    /// Like [`Self::with`], for a verb with response data.
    pub(super) fn ask<E: Into<Failure>>(
        &self,
        verb: impl AsyncFnOnce(&Unit) -> Result<Answer, E>,
    ) -> Result<(), Failure> {
        let answer = self.with(async |unit| verb(unit).await.map_err(Into::into))?;
        say(answer.printed(self.json));
        Ok(())
    }
}
