//! The command line of `linerate serve`. How it joins with a configuration file is `daemon`'s.

use std::path::PathBuf;

use daemon::{Desired, Gather, Listen, NamedSpec, Poll};

#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct ServeArguments {
    /// Configuration file (TOML): see linerate.toml(5), or docs/serve.md
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Volume such as vm1=file:/data/vm1.img?size=50GiB or test=ram:1GiB, as LUN 0 of the target
    /// iqn.2026-01.io.linerate:NAME, for any initiator; repeatable, and adds to those of the file
    #[arg(long = "volume", value_name = "NAME=VOLUME")]
    volumes: Vec<NamedSpec>,
    /// Address to listen on, such as 0.0.0.0:3260, [::]:3260, nbd://0.0.0.0:10809 or, for a Unix socket,
    /// nbd+unix:///run/nbd.sock; repeatable, and replaces those of the file for the same protocol; nbd:// exports the
    /// volumes of --volume by NBD [default: 127.0.0.1:3260]
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
    /// Busy-poll time of a reactor in microseconds: 0 sleeps at once, `always` never sleeps and uses a whole CPU [default:
    /// 50]
    #[arg(long, value_name = "N", value_parser = Poll::of_microseconds)]
    poll_us: Option<Poll>,
    /// Sleep after work, in microseconds, so that commands which arrive meanwhile are answered together: less CPU time
    /// for each, and that much more latency [default: 0]
    #[arg(long, value_name = "N", value_parser = Gather::of_microseconds)]
    gather_us: Option<Gather>,
    /// Engine for files: uring (io_uring), threads, or auto for the first of them that works [default: auto]
    #[arg(long, value_name = "auto|uring|threads")]
    io_engine: Option<host::IoEngine>,
    /// Try everything that a start needs, print what would be served or every mistake found, and exit: open volumes for
    /// reading, bind addresses, check file modes; nothing is changed
    #[arg(long)]
    pub(super) check: bool,
    /// Print only `ready` after the start
    #[arg(long, short)]
    pub(super) quiet: bool,
}

impl ServeArguments {
    /// What they ask for.
    pub(super) fn desired(&self) -> Desired {
        let arguments = self.clone();
        Desired {
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
            ..Desired::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use daemon::Config;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        serve: ServeArguments,
    }

    fn config(line: &[&str]) -> Result<Config, String> {
        let line = std::iter::once("serve").chain(line.iter().copied());
        let line = Line::try_parse_from(line).map_err(|error| error.to_string())?;
        line.serve.desired().or_usual().safe_config().map_err(|failure| failure.to_string())
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
        assert_eq!((config.state, config.control), (Some("/s".into()), Some("/c".into())));
        let microseconds = [config.poll, config.gather].map(|time| time.map(|time| time.as_micros()));
        assert_eq!((config.reactors, microseconds), (Some(3), [Some(7), Some(8)]));
        assert_eq!(config.io_engine, Some(host::IoEngine::Threads));
    }

    #[test]
    fn mistakes_name_the_remedy() {
        for (line, says) in [
            (&["--volume", "ram:1GiB"][..], "a name, `=` and a specification"),
            (&["--volume", "vm1=ram:1gib"], "write 1GiB"),
            (&["--volume", "VM1=ram:1GiB"], "write `vm1`"),
            (&["--listen", "::1"], "write [::1]:3260"),
            (&["--reactors", "0"], "1..=1024"),
            (&["--io-engine", "magic"], "auto, uring and threads"),
            (&["--config", "/nonexistent.toml"], "cannot read the configuration /nonexistent.toml"),
            (&["--volume", "a=ram:1MiB", "--volume", "a=ram:1MiB"], "two volumes named a"),
        ] {
            let error = config(line).expect_err("a mistake");
            assert!(error.contains(says), "{line:?}: {error}");
        }
    }
}
