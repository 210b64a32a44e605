//! The medium as a whole: ready or not, started, stopped, flushed.

use initiator::verbs::StartStop;
use serde_json::json;

use super::answer::Answer;
use super::unit::{self, AskArguments, UnitArguments};
use crate::failure::Failure;
use crate::output::say;

pub(super) fn ready(asked: &UnitArguments) -> Result<(), Failure> {
    asked.with(async |unit| Ok(unit.test_unit_ready().await?))?;
    say("ready\n");
    Ok(())
}

pub(super) fn sense(asked: &AskArguments) -> Result<(), Failure> {
    asked.ask(async |unit| {
        unit::settle(unit).await;
        let sense = unit.request_sense().await?;
        let text = sense.map_or_else(|| "nothing".to_owned(), |sense| sense.to_string());
        let json = sense.map(|sense| {
            json!({
                "key": sense.key,
                "code": sense.code,
                "qualifier": sense.qualifier,
                "information": sense.information,
                "progress": sense.progress().map(|progress| f64::from(progress) / 65_536.0),
                "words": sense.to_string(),
            })
        });
        Ok(Answer::new(text, json!(json)))
    })
}

pub(super) fn sync(asked: &UnitArguments) -> Result<(), Failure> {
    asked.with(async |unit| Ok(unit.synchronize_cache().await?))
}

pub(super) fn start(asked: &UnitArguments) -> Result<(), Failure> {
    asked.with(async |unit| Ok(unit.start_stop(StartStop::Start).await?))
}

pub(super) fn stop(asked: &UnitArguments) -> Result<(), Failure> {
    asked.with(async |unit| Ok(unit.start_stop(StartStop::Stop).await?))
}
