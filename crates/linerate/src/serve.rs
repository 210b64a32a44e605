//! `linerate serve` reads the configuration, prints the served volumes, and runs the server in `daemon` until
//! a signal ends it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use std::{env, process, thread};

use daemon::config::Log;
use daemon::{
    Checked, Config, Gather, Listen, Live, NamedSpec, Poll, ReloadOptions, StartOptions,
    Supervisor, announce,
};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::failure::Failure;
use crate::output::{remark, say};

/// Serves until a signal ends the process.
pub(crate) fn run(arguments: &ServeArguments, log: &Log) -> Result<(), Failure> {
    let start_options = arguments.start_options().or_usual();
    let config = start_options.safe_config()?;
    if arguments.check {
        return check(&config, log);
    }
    crate::log::begin(log, &config.log)?;
    let mut server = daemon::start(start_options, config)?;
    let announcement = if arguments.quiet {
        announce::READY.to_owned()
    } else {
        server.live().announcement()
    };
    on_signals(Arc::clone(server.live()))?;
    server.open()?;
    say(&announcement);
    supervise(server.live())?;
    server.join()
}

/// Prints the exports, or all errors.
fn check(config: &Config, log: &Log) -> Result<(), Failure> {
    let not_logged = crate::log::begin(log, &config.log).err();
    let Checked {
        mut mistakes,
        notes,
    } = daemon::check(config);
    mistakes.extend(not_logged.map(|failure| failure.to_string()));
    notes
        .iter()
        .for_each(|note| remark(format_args!("note: {note}")));
    match mistakes.is_empty() {
        true => say(&announce::summary(config)),
        false => return Err(Failure::refused(mistakes.join("\n"))),
    }
    Ok(())
}

/// Notifies the service manager, if there is one. If this fails, the server continues.
fn supervise(live: &Arc<Live>) -> Result<(), Failure> {
    match Supervisor::from_environment(|name| env::var_os(name), process::id()) {
        Ok(Some(supervisor)) => live.supervise(supervisor),
        Ok(None) => Ok(()),
        Err(error) => {
            tracing::warn!(%error, "cannot notify the service manager; it will receive no status");
            Ok(())
        }
    }
}

#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct ServeArguments {
    /// Configuration file (TOML): see linerate.toml(5), or docs/configuration.md
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Volume such as vm1=file:/data/vm1.img?size=50GiB or test=ram:1GiB, exported as LUN 0 of the target
    /// iqn.2026-01.io.linerate:NAME to any initiator; repeatable, and added to the volumes of the
    /// configuration file
    #[arg(long = "volume", value_name = "NAME=VOLUME")]
    volumes: Vec<NamedSpec>,
    /// Address to listen on, such as 0.0.0.0:3260, [::]:3260, nbd://0.0.0.0:10809 or, for a Unix socket,
    /// nbd+unix:///run/nbd.sock. Repeatable; replaces the file's addresses for the same protocol. With
    /// nbd://, the volumes of --volume are exported over NBD [default: 127.0.0.1:3260]
    #[arg(long, value_name = "[PROTOCOL://]ADDR:PORT")]
    listen: Vec<Listen>,
    /// Directory for identities and reservations of volumes [default: /var/lib/linerate for root,
    /// $XDG_STATE_HOME/linerate for others]
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
    /// Control socket, for `linerate server` [default: control.sock in the state directory]
    #[arg(long, value_name = "SOCKET")]
    control: Option<PathBuf>,
    /// Reactor threads [default: one for each CPU]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    reactors: Option<u16>,
    /// TCP congestion control of all listeners, such as cubic [default: the system's]
    #[arg(long, value_name = "NAME")]
    congestion: Option<String>,
    /// Busy-poll time of a reactor in microseconds: 0 sleeps immediately, `always` never sleeps and uses a
    /// whole CPU [default: 50]
    #[arg(long, value_name = "N", value_parser = Poll::of_microseconds)]
    poll_us: Option<Poll>,
    /// Sleep for this many microseconds after work, so that commands batch: less CPU time per command, but up
    /// to that much more latency [default: 0]
    #[arg(long, value_name = "N", value_parser = Gather::of_microseconds)]
    gather_us: Option<Gather>,
    /// File I/O engine: uring (io_uring), threads, or auto for the first that works [default: auto]
    #[arg(long, value_name = "auto|uring|threads")]
    io_engine: Option<host::IoEngine>,
    /// Try all steps of a start (open volumes for reading, bind addresses, check file modes), print the
    /// exports or all errors, and exit; nothing is modified
    #[arg(long)]
    check: bool,
    /// Print only `ready` after the start
    #[arg(long, short)]
    quiet: bool,
}

impl ServeArguments {
    /// The start options that these arguments request.
    fn start_options(&self) -> StartOptions {
        let arguments = self.clone();
        StartOptions {
            path: arguments.config,
            volumes: arguments.volumes,
            listen: arguments.listen,
            state: arguments.state,
            control: arguments.control,
            reactors: arguments.reactors,
            congestion: arguments.congestion,
            poll: arguments.poll_us,
            gather: arguments.gather_us,
            io_engine: arguments.io_engine,
            ..StartOptions::default()
        }
    }
}

// Signals of a server. The first SIGTERM or SIGINT shuts the server down cleanly, within ten seconds. The
// second one ends it immediately. SIGHUP reloads the configuration.

/// Time for outstanding commands to complete, after initiators have been asked to log out.
const GRACE: Duration = Duration::from_secs(5);
/// Time after which the process exits, even if a device is unresponsive. The documented limit is 10 s.
const LIMIT: Duration = Duration::from_millis(9500);
/// Within this limit, a volume that could not be flushed must have been recorded, with a margin for a busy
/// machine.
const _: () = assert!(
    GRACE.as_millis() + daemon::AFTER_GRACE.as_millis() + 500 <= LIMIT.as_millis(),
    "the process would end before a loss is recorded"
);

/// Waits for signals on a separate thread.
fn on_signals(live: Arc<Live>) -> Result<(), Failure> {
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP]).map_err(Failure::failed)?;
    let watch = move || {
        let mut is_asked_to_end = false;
        for signal in signals.forever() {
            match (signal, is_asked_to_end) {
                // The reload runs on a separate thread, because a shutdown must not wait for it.
                (SIGHUP, false) => reload(&live),
                (SIGHUP, true) => {}
                (_, false) => {
                    is_asked_to_end = true;
                    live.shutdown(GRACE);
                    give_up_later();
                }
                (_, true) => {
                    die("second signal: shutting down immediately; outstanding commands are lost")
                }
            }
        }
    };
    thread::Builder::new()
        .name("signals".to_owned())
        .spawn(watch)
        .map(drop)
        .map_err(Failure::failed)
}

/// Reloads the configuration. Does not remove resources in use, because there is no user to confirm this.
fn reload(live: &Arc<Live>) {
    let live = Arc::clone(live);
    // Ignore the result: the audit log contains the outcome.
    let work = move || drop(live.reload(ReloadOptions::default(), "SIGHUP"));
    if let Err(error) = thread::Builder::new().name("reload".to_owned()).spawn(work) {
        tracing::error!(%error, "cannot start a thread to reload the configuration");
    }
}

fn give_up_later() {
    let wait = || {
        thread::sleep(LIMIT);
        die("a volume could not be closed in time; outstanding commands are lost");
    };
    if let Err(error) = thread::Builder::new().name("limit".to_owned()).spawn(wait) {
        tracing::warn!(%error, "this shutdown has no time limit");
    }
}

fn die(why: &str) -> ! {
    tracing::error!("{why}");
    process::exit(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use daemon::Config;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        serve: ServeArguments,
    }

    fn config(line: &[&str]) -> Result<Config, String> {
        let line = std::iter::once("serve").chain(line.iter().copied());
        let line = Line::try_parse_from(line).map_err(|error| error.to_string())?;
        line.serve
            .start_options()
            .or_usual()
            .safe_config()
            .map_err(|failure| failure.to_string())
    }

    #[test]
    fn every_option_is_handed_on() {
        let config = config(&[
            "--volume=a=ram:1MiB",
            "--listen=[::1]:2",
            "--state=/s",
            "--control=/c",
            "--reactors=3",
            "--congestion=reno",
            "--poll-us=7",
            "--gather-us=8",
            "--io-engine=threads",
        ]);
        let config = config.expect("nothing wrong");
        assert_eq!(config.volumes[0].name.as_str(), "a");
        let (_, portal) = config.portals().next().expect("a portal");
        assert_eq!(portal.listen.to_string(), "[::1]:2");
        assert_eq!(portal.stream.congestion.as_deref(), Some("reno"));
        assert_eq!(
            (config.state, config.control),
            (Some("/s".into()), Some("/c".into()))
        );
        let microseconds =
            [config.poll, config.gather].map(|time| time.map(|time| time.as_micros()));
        assert_eq!(
            (config.reactors, microseconds),
            (Some(3), [Some(7), Some(8)])
        );
        assert_eq!(config.io_engine, Some(host::IoEngine::Threads));
    }

    #[test]
    fn mistakes_name_the_remedy() {
        for (line, says) in [
            (
                &["--volume", "ram:1GiB"][..],
                "a name, `=` and a specification",
            ),
            (&["--volume", "vm1=ram:1gib"], "write 1GiB"),
            (&["--volume", "VM1=ram:1GiB"], "such as `vm1`"),
            (&["--listen", "::1"], "write [::1]:3260"),
            (&["--reactors", "0"], "1..=1024"),
            (&["--io-engine", "magic"], "auto, uring or threads"),
            (
                &["--config", "/nonexistent.toml"],
                "cannot read the configuration /nonexistent.toml",
            ),
            (
                &["--volume", "a=ram:1MiB", "--volume", "a=ram:1MiB"],
                "two volumes are named a",
            ),
        ] {
            let error = config(line).expect_err("a mistake");
            assert!(error.contains(says), "{line:?}: {error}");
        }
    }
}
