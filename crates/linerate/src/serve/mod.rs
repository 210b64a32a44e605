//! `linerate serve`: reads the configuration, says what `manage` serves of it, and runs it until a signal comes.

mod arguments;
mod end;

use std::env;
use std::process;
use std::sync::Arc;

use manage::config::Log;
use manage::{Live, Supervisor, announce, summary};

pub(crate) use arguments::ServeArguments;

use crate::failure::Failure;
use crate::output::{remark, say};

/// Serves until a signal ends it.
pub(crate) fn run(arguments: &ServeArguments, log: &Log) -> Result<(), Failure> {
    let desired = arguments.desired().or_usual();
    let config = desired.safe_config()?;
    if arguments.check {
        config.exposed.iter().for_each(|exposed| remark(format_args!("warning: {exposed}")));
        say(&summary::text(&config));
        return Ok(());
    }
    crate::log::begin(log, &config.log)?;
    let mut server = manage::start(desired, config)?;
    let announcement =
        if arguments.quiet { announce::READY.to_owned() } else { server.live().announcement() };
    end::on_signals(Arc::clone(server.live()))?;
    server.open()?;
    say(&announcement);
    supervise(server.live())?;
    server.join()
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
