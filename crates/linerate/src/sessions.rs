//! `linerate sessions`: who is logged in, what was negotiated, and how busy each session is.

use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use crate::bench::width;
use crate::failure::Failure;
use crate::output::say;
use manage::control::{Reply, Request, Session, ask, unexpected};
use manage::sessions;

/// Between the two samples that rates are made of.
const INTERVAL: Duration = Duration::from_secs(1);

/// Lists the sessions of a running server
#[derive(Debug, clap::Args)]
pub(crate) struct SessionsArguments {
    /// The control socket of the server [default: control.sock in the state directory]
    #[arg(long, value_name = "SOCKET")]
    control: Option<PathBuf>,
    /// Prints JSON: an array of sessions with sums since login, without rates
    #[arg(long)]
    json: bool,
}

/// Asks, waits and asks again, since rates need two samples; JSON has sums only and is asked for once.
pub(crate) fn run(arguments: &SessionsArguments) -> Result<(), Failure> {
    let socket = manage::state::control_socket(arguments.control.as_deref())?;
    let first = sample(&socket)?;
    if arguments.json {
        say(&sessions::json(&first).map_err(Failure::failed)?);
        return Ok(());
    }
    let begin = Instant::now();
    thread::sleep(INTERVAL);
    let second = sample(&socket)?;
    say(&sessions::table(&first, &second, begin.elapsed(), width()));
    Ok(())
}

fn sample(socket: &Path) -> Result<Vec<Session>, Failure> {
    match ask(socket, &Request::Sessions).map_err(Failure::failed)? {
        Reply::Sessions { sessions } => Ok(sessions),
        other => Err(unexpected(other)),
    }
}
