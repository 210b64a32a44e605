//! `linerate serve`: joins the configuration, the devices of `host` and the front ends, and runs them until a signal
//! comes.

mod announce;
mod arguments;
mod end;
mod paste;

use std::io;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex, PoisonError};

use host::{EpollOptions, threads};
use manage::config::{Config, Log};
use manage::control::{BindError, Socket, SocketFile};
use manage::state::{self, CONTROL, State};
use manage::{Live, join, summary, volumes};
use server::{Core, Server};
use target::Iscsi;

pub(crate) use arguments::ServeArguments;

use crate::failure::Failure;
use crate::output::{remark, say};

/// Serves until a signal ends it.
pub(crate) fn run(arguments: &ServeArguments, log: &Log) -> Result<(), Failure> {
    let desired = arguments.desired().or_usual()?;
    let config = desired.safe_config()?;
    if arguments.check {
        config.exposed.iter().for_each(|exposed| remark(format_args!("warning: {exposed}")));
        say(&summary::of(&config));
        return Ok(());
    }
    crate::log::begin(log, &config.log)?;
    config.exposed.iter().for_each(|exposed| tracing::warn!("{exposed}"));
    config.io_engine.unwrap_or_default().choose().map_err(|error| {
        Failure::refused(format!("io_uring is not to be had here ({error}); leave --io-engine at auto"))
    })?;
    tracing::debug!(open_files = ?host::limits::raise_open_files(), "limits");
    let state = open_state(&config)?;
    let volumes = volumes::open(&config, &state)?;
    let cores = config.reactors.and_then(NonZeroUsize::new).unwrap_or_else(threads::available);
    let served = join::server(&config, &volumes);
    let iscsi = Iscsi::new(served.iscsi, cores.get());
    let (server, parts) = Server::new(served.server, cores.get(), vec![iscsi.clone()]);
    let (reactors, bound) = start(&config, cores, parts)?;
    let addresses = addresses(&bound)?;
    let socket = control(&config, &state)?;
    let announcement = announce::text(&config, &volumes, &addresses);
    let live = Live::new(desired, state, Arc::clone(&server), iscsi, config, volumes);
    let live = Arc::new(live);
    let _control = socket.map(|socket| answer(socket, &live)).transpose()?;
    end::on_signals(Arc::clone(&live))?;
    server.open();
    say(&announcement);
    let flushed = reactors.join().map_err(Failure::failed)?;
    match flushed.into_iter().all(|flushed| flushed) {
        true => Ok(()),
        false => {
            Err(Failure::failed("a volume could not be flushed; what it acknowledged may not be on its disk"))
        }
    }
}

fn open_state(config: &Config) -> Result<State, Failure> {
    let directory = match &config.state {
        Some(directory) => directory.clone(),
        None => state::usual_directory().map_err(Failure::refused)?,
    };
    State::open(&directory).map_err(Failure::refused)
}

type Bound = Receiver<io::Result<Vec<SocketAddr>>>;

/// Starts the reactor threads, each with its part of the server. The receiver hears of the portals.
fn start(
    config: &Config,
    cores: NonZeroUsize,
    parts: Vec<Core>,
) -> Result<(threads::Reactors<bool>, Bound), Failure> {
    let usual = EpollOptions::default();
    let options = EpollOptions {
        spin: config.poll.unwrap_or(usual.spin),
        gather: config.gather.unwrap_or(usual.gather),
    };
    let parts: Vec<Option<Core>> = parts.into_iter().map(Some).collect();
    let parts = Arc::new(Mutex::new(parts));
    let (report, bound) = mpsc::channel();
    let main = move |number: usize| {
        let mut parts = parts.lock().unwrap_or_else(PoisonError::into_inner);
        let part = parts.get_mut(number).and_then(Option::take);
        let report = report.clone();
        async move {
            match part {
                Some(part) => part.run(report).await,
                None => true,
            }
        }
    };
    let reactors = threads::start(cores, options, main).map_err(Failure::failed)?;
    Ok((reactors, bound))
}

fn addresses(bound: &Bound) -> Result<Vec<SocketAddr>, Failure> {
    match bound.recv() {
        Ok(Ok(addresses)) => Ok(addresses),
        Ok(Err(error)) => {
            Err(Failure::refused(format!("cannot listen on {error}; {}", remedy(error.kind()))))
        }
        Err(_) => Err(Failure::failed("the reactor threads ended before they listened")),
    }
}

fn remedy(kind: io::ErrorKind) -> &'static str {
    match kind {
        io::ErrorKind::AddrInUse => "stop what listens there, or name another address or port with --listen",
        io::ErrorKind::AddrNotAvailable => "name an address that this machine has with --listen",
        io::ErrorKind::PermissionDenied => "take a port above 1023, such as 3260",
        // What setting TCP_CONGESTION says of an unknown name.
        io::ErrorKind::NotFound => {
            "--congestion names no algorithm of this machine; see /proc/sys/net/ipv4/tcp_available_congestion_control"
        }
        _ => "see --listen",
    }
}

/// The control socket. Two servers may share a state directory as long as their volumes differ; then the
/// second has no socket, unless it was named.
fn control(config: &Config, state: &State) -> Result<Option<Socket>, Failure> {
    let usual = state.directory().join(CONTROL);
    match (Socket::bind(config.control.as_ref().unwrap_or(&usual)), &config.control) {
        (Ok(socket), _) => Ok(Some(socket)),
        (Err(error @ BindError::InUse(_)), None) => {
            tracing::warn!(%error, "`linerate sessions` will not find this server");
            Ok(None)
        }
        (Err(error), _) => Err(Failure::refused(error)),
    }
}

fn answer(socket: Socket, live: &Arc<Live>) -> Result<SocketFile, Failure> {
    let live = Arc::clone(live);
    socket.serve(move |request| live.answer(&request)).map_err(Failure::failed)
}
