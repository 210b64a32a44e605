//! `linerate serve`: reads the configuration, says what `daemon` serves of it, and runs it until a signal comes.

mod arguments;
mod end;

use std::env;
use std::process;
use std::sync::Arc;

use daemon::config::Log;
use daemon::{Checked, Config, Live, Supervisor, announce};

pub(crate) use arguments::ServeArguments;

use crate::failure::Failure;
use crate::output::{remark, say};

/// Serves until a signal ends it.
pub(crate) fn run(arguments: &ServeArguments, log: &Log) -> Result<(), Failure> {
    let desired = arguments.desired().or_usual();
    let config = desired.safe_config()?;
    if arguments.check {
        return check(&config, log);
    }
    crate::log::begin(log, &config.log)?;
    let mut server = daemon::start(desired, config)?;
    let announcement =
        if arguments.quiet { announce::READY.to_owned() } else { server.live().announcement() };
    end::on_signals(Arc::clone(server.live()))?;
    server.open()?;
    say(&announcement);
    supervise(server.live())?;
    server.join()
}

/// Says what would be served, or all that is wrong.
fn check(config: &Config, log: &Log) -> Result<(), Failure> {
    let not_logged = crate::log::begin(log, &config.log).err();
    let Checked { mut mistakes, notes } = daemon::check(config);
    mistakes.extend(not_logged.map(|failure| failure.to_string()));
    notes.iter().for_each(|note| remark(format_args!("note: {note}")));
    match mistakes.is_empty() {
        true => say(&announce::summary(config)),
        false => return Err(Failure::refused(mistakes.join("\n"))),
    }
    Ok(())
}

/// Tells the service manager, if there is one. One that cannot be told ends no server.
fn supervise(live: &Arc<Live>) -> Result<(), Failure> {
    match Supervisor::from_environment(|name| env::var_os(name), process::id()) {
        Ok(Some(supervisor)) => live.supervise(supervisor),
        Ok(None) => Ok(()),
        Err(error) => {
            tracing::warn!(%error, "the service manager will not be told how the server goes");
            Ok(())
        }
    }
}
