//! `linerate bench agent`: a machine that does what a coordinator (`linerate bench --agents`) tells it to, so that several
//! machines measure the same storage at the same time.
//!
//! What is said is the library `agent`'s; what is done for a coordinator, and the coordinator's side, are `bench_runner::agents`.

use std::fs::File;
use std::net::SocketAddr;
use std::path::PathBuf;

use agent::channel::Channel;
use agent::{PORT, door};
use bench_runner::agents::{secret, work_for};
use host::{Epoll, EpollOptions};
use reactor::StreamOptions;

use crate::failure::Failure;
use crate::listen;
use crate::output::say;

#[derive(Debug, clap::Args)]
pub(crate) struct AgentArguments {
    /// Address to listen on, such as 0.0.0.0 or 10.0.0.7:9860
    #[arg(long, value_name = "ADDRESS[:PORT]", value_parser = |text: &str| listen::address(text, PORT))]
    listen: SocketAddr,
    /// File with the secret that agents and coordinator share, for its owner only (mode 0600) [default: the environment
    /// variable LINERATE_AGENT_SECRET, or a question]
    #[arg(long, value_name = "FILE")]
    secret_file: Option<PathBuf>,
    /// Let coordinators write, which destroys the data on the storage that they name
    #[arg(long)]
    allow_write: bool,
}

/// Runs until a signal ends it.
pub(crate) fn run(arguments: &AgentArguments) -> Result<(), Failure> {
    let secret = secret::find(arguments.secret_file.as_deref(), "--secret-file")?;
    // A coordinator may name a place that wants a secret: nobody is asked for it then, in the middle of a run.
    let nobody = File::open("/dev/null").map_err(Failure::failed)?;
    rustix::stdio::dup2_stdin(nobody).map_err(Failure::failed)?;
    let world = Epoll::shared(EpollOptions::default()).map_err(Failure::failed)?;
    reactor::block_on(world, async {
        let listener = listen::at(arguments.listen, StreamOptions::default())?;
        let may =
            if arguments.allow_write { "read and write" } else { "read only (--allow-write is not given)" };
        say(&format!("listens on {}; coordinators may {may}\nready\n", listener.local()));
        let allow_write = arguments.allow_write;
        let gone = door::keep(&*listener, secret, move |channel| Box::pin(work(channel, allow_write)));
        match gone.await {}
    })
}

async fn work(channel: Channel, allow_write: bool) {
    let peer = channel.peer();
    say(&format!("{peer} coordinates\n"));
    let why = work_for(channel, allow_write, &|line| say(&format!("{line}\n"))).await;
    say(&format!("{peer} is gone: {why}\n"));
}
