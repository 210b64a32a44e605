//! `linerate server`: what a running server serves, what happens in it, and one volume more, less or larger.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use crate::failure::Failure;
use crate::output::{self, say};
use crate::reload;
use crate::spec::Bytes;
use manage::NamedSpec;
use manage::VolumeName;
use manage::control::{Change, Reply, Request, Volume, ask, subscribe, unexpected};
use stats::table::{Align, lines};

/// Lists and changes what a running server serves, one volume at a time
///
/// The server's configuration file is changed with it, its comments kept; sessions that it does not concern go on.
#[derive(Debug, clap::Args)]
pub(crate) struct ServerArguments {
    #[command(subcommand)]
    command: Command,
    /// The control socket of the server [default: control.sock in the state directory]
    #[arg(long, global = true, value_name = "SOCKET")]
    control: Option<PathBuf>,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Lists volumes, their sizes and where initiators find them
    List {
        /// Prints JSON: an array of volumes
        #[arg(long)]
        json: bool,
    },
    /// Prints what happens from now on, a line of JSON for each event, until it is interrupted or the server ends
    Events,
    /// Prints the metrics of the server, as Prometheus reads them
    Metrics,
    /// Prints what to type on Linux, Windows and ESXi, and for QEMU and libiscsi, to use what is served
    Usage,
    /// Serves one volume more
    Add {
        /// The volume, such as vm2=file:/data/vm2.img?size=50GiB; files by their whole paths
        #[arg(value_name = "NAME=SPEC")]
        volume: NamedSpec,
        /// The front end that exports it [default: iscsi]
        #[arg(long, value_name = "NAME")]
        front_end: Option<String>,
        /// The target that has it; one that is not there is made [default: iqn.2026-01.io.linerate:NAME]
        #[arg(long, value_name = "IQN")]
        target: Option<String>,
        /// Its LUN there [default: the first that is free]
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(0..=16_383))]
        lun: Option<u16>,
        /// Who sees it: an iSCSI name, or the beginning of one with `*`; may be repeated [default: all who may log in to
        /// the target]
        #[arg(long = "initiator", value_name = "NAME")]
        initiators: Vec<String>,
        /// Only prints what would change
        #[arg(long)]
        dry_run: bool,
    },
    /// Serves a volume no more; what is on it stays where it is
    Remove {
        /// The volume
        volume: VolumeName,
        /// Also if initiators use it: their commands for it are ended, and they are told
        #[arg(long)]
        force: bool,
        /// Only prints what would change
        #[arg(long)]
        dry_run: bool,
    },
    /// Makes a volume larger, which initiators are told
    Resize {
        /// The volume; its specification has a size=
        volume: VolumeName,
        /// Its size from now on, such as 60GiB
        size: Bytes,
        /// Only prints what would change
        #[arg(long)]
        dry_run: bool,
    },
}

pub(crate) fn run(arguments: &ServerArguments) -> Result<(), Failure> {
    let socket = manage::state::control_socket(arguments.control.as_deref())?;
    let ask = |request| ask(&socket, &request).map_err(Failure::failed);
    let (change, dry_run, force) = match &arguments.command {
        Command::List { json } => return list(ask(Request::Volumes)?, *json),
        Command::Events => return events(&socket),
        Command::Metrics => return print(ask(Request::Metrics)?),
        Command::Usage => return print(ask(Request::Usage)?),
        Command::Add { volume, front_end, target, lun, initiators, dry_run } => {
            let change = Change::Add {
                volume: volume.name.clone(),
                spec: volume.spec.to_string(),
                front_end: front_end.clone(),
                target: target.clone(),
                lun: *lun,
                initiators: initiators.clone(),
            };
            (change, *dry_run, false)
        }
        Command::Remove { volume, force, dry_run } => {
            (Change::Remove { volume: volume.clone() }, *dry_run, *force)
        }
        Command::Resize { volume, size, dry_run } => {
            (Change::Resize { volume: volume.clone(), bytes: size.0 }, *dry_run, false)
        }
    };
    reload::tell(ask(Request::Change { change, dry_run, force })?)
}

fn print(reply: Reply) -> Result<(), Failure> {
    match reply {
        Reply::Metrics { text } | Reply::Usage { text } => {
            say(&text);
            Ok(())
        }
        other => Err(unexpected(other)),
    }
}

fn list(reply: Reply, json: bool) -> Result<(), Failure> {
    match reply {
        Reply::Volumes { volumes } if json => {
            let json = serde_json::to_string_pretty(&volumes).map_err(Failure::failed)?;
            say(&(json + "\n"));
            Ok(())
        }
        Reply::Volumes { volumes } => {
            say(&table(&volumes));
            Ok(())
        }
        other => Err(unexpected(other)),
    }
}

fn events(socket: &Path) -> Result<(), Failure> {
    let mut subscription = subscribe(socket)?;
    while let Some(event) = subscription.next_event().map_err(Failure::failed)? {
        let json = serde_json::to_string(&event).map_err(Failure::failed)?;
        let mut out = std::io::stdout().lock();
        let written = writeln!(out, "{json}").and_then(|()| out.flush());
        if written.is_err() {
            output::note(written);
            return Ok(()); // there is no reader any more
        }
    }
    Err(Failure::failed("the server has ended"))
}

/// A line for each export of each volume.
fn table(volumes: &[Volume]) -> String {
    let headings = ["VOLUME", "SIZE", "BLOCK", "TARGET", "LUN", "MADE OF"].map(str::to_owned);
    let mut rows = vec![headings];
    for volume in volumes {
        for (index, lun) in volume.luns.iter().enumerate() {
            let once = |text: String| if index == 0 { text } else { String::new() };
            rows.push([
                once(volume.name.clone()),
                once(Bytes(volume.bytes).to_string()),
                once(volume.block_bytes.to_string()),
                lun.target.clone(),
                lun.lun.map_or_else(String::new, |lun| lun.to_string()),
                once(volume.spec.clone()),
            ]);
        }
    }
    let columns = [Align::Left, Align::Right, Align::Right, Align::Left, Align::Right, Align::Left];
    lines(columns, &rows).into_iter().map(|line| line + "\n").collect()
}
