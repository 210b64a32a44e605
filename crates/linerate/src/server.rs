//! `linerate server` shows the volumes, targets, sessions and events of a running server, and changes its
//! configuration while it runs. It uses the control socket.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use daemon::control::{
    Change, ControlReply, ControlRequest, FaultMode, ask, subscribe, tables, unexpected,
};
use daemon::{NamedSpec, VolumeName};
use serde::Serialize;

use crate::failure::Failure;
use crate::help::Offering;
use crate::output::{self, remark, say, say_json, say_json_list, width};
use crate::spec::Bytes;

#[derive(Debug, clap::Args)]
pub(crate) struct ServerArguments {
    #[command(subcommand)]
    command: Command,
    /// Configuration file of the server, which contains the path of its control socket
    #[arg(long, global = true, value_name = "FILE", conflicts_with = "control")]
    config: Option<PathBuf>,
    /// Control socket of the server [default: control.sock in the state directory]
    #[arg(long, global = true, value_name = "SOCKET")]
    control: Option<PathBuf>,
    /// Print JSON
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// List sessions: initiators, negotiated parameters, current rates
    Sessions,
    /// List volumes, their sizes and their addresses for initiators
    #[command(alias = "list")]
    Volumes,
    /// List targets: portals, access control, LUNs
    Targets,
    /// Add a volume
    ///
    /// This also changes the configuration file, and keeps its comments. Other sessions are not affected.
    Add {
        /// Volume, such as vm2=file:/data/vm2.img?size=50GiB; use absolute paths for files
        #[arg(value_name = "NAME=VOLUME")]
        volume: NamedSpec,
        /// Front end that exports the volume [default: iscsi]
        #[arg(long, value_name = "NAME", hide_possible_values = true,
            value_parser = Offering(clap::builder::StringValueParser::new(), front_ends))]
        front_end: Option<String>,
        /// Target for the volume, created if it does not exist [default: iqn.2026-01.io.linerate:NAME]
        #[arg(long, value_name = "IQN")]
        target: Option<String>,
        /// LUN in the target [default: the first free one]
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(0..=16_383))]
        lun: Option<u16>,
        /// Initiator that may use the volume: a name, or a prefix with `*`; repeatable [default: all that may
        /// log in to the target]
        #[arg(long = "initiator", value_name = "NAME")]
        initiators: Vec<String>,
        /// Key of [volume.NAME] with its value, such as naa=0x6001405…; repeatable
        #[arg(long = "set", value_name = "KEY=VALUE", value_parser = daemon::control::key_and_value)]
        keys: Vec<(String, String)>,
        #[command(flatten)]
        how: DryRun,
    },
    /// Remove a volume; its data is kept
    Remove {
        /// Name of the volume
        volume: VolumeName,
        /// Remove the volume even if it is in use; its commands are aborted
        #[arg(long)]
        force: bool,
        #[command(flatten)]
        how: DryRun,
    },
    /// Grow a volume, or shrink it; initiators are notified
    Resize {
        /// Name of a volume whose specification has a size=
        volume: VolumeName,
        /// New size, such as 60GiB
        size: Bytes,
        /// Allow a smaller size, if the part to be cut off contains no data
        #[arg(long)]
        shrink: bool,
        /// Allow a smaller size even if the part to be cut off contains data
        #[arg(long, requires = "shrink")]
        discard_data: bool,
        /// Shrink the volume even if it is in use; its commands are aborted
        #[arg(long, requires = "shrink")]
        force: bool,
        #[command(flatten)]
        how: DryRun,
    },
    /// End sessions
    ///
    /// Initiators are asked to log out within five seconds. They may log in again: to exclude an initiator,
    /// remove it from the `initiators` of its target.
    Drop {
        /// Session by its number (TSIH, or nbd:N of an NBD client), or all sessions of an initiator by its name
        #[arg(value_name = "TSIH|INITIATOR")]
        sessions: String,
        /// Close the connections immediately
        #[arg(long)]
        force: bool,
    },
    /// Apply a changed configuration file
    ///
    /// Prints the changes. Sessions that are not affected continue. If the file has an error, nothing
    /// changes.
    Reload {
        /// Also remove LUNs, targets and portals that are in use; their commands are aborted
        #[arg(long)]
        force: bool,
        #[command(flatten)]
        how: DryRun,
    },
    /// Make a volume with a fault: layer hang, fail, respond slowly or lose writes
    Fault {
        /// Name of a volume whose specification has a fault: layer, as in fault:[ram:1GiB]
        volume: VolumeName,
        /// Behaviour: pass, hang, fail, lose (flushes fail as if acknowledged writes were lost), or slow=TIME
        /// such as slow=5ms
        #[arg(value_name = "pass|hang|fail|lose|slow=TIME", hide_possible_values = true,
            value_parser = Offering(str::parse::<FaultMode>, || vec!["pass", "hang", "fail", "lose", "slow="]))]
        mode: FaultMode,
    },
    /// Print the metrics in the Prometheus text format
    Metrics,
    /// Print the commands that attach the volumes on Linux, Windows and ESXi, and with QEMU and libiscsi
    Usage,
    /// Print events as they happen, one line of JSON each
    Events,
}

fn front_ends() -> Vec<&'static str> {
    daemon::front_ends::ALL
        .iter()
        .map(|kind| kind.name)
        .collect()
}

#[derive(Debug, clap::Args)]
struct DryRun {
    /// Print the changes without making them
    #[arg(long)]
    dry_run: bool,
}

pub(crate) fn run(arguments: &ServerArguments) -> Result<(), Failure> {
    let socket =
        daemon::state::control_socket(arguments.control.as_deref(), arguments.config.as_deref())?;
    let ask = |request| ask(&socket, &request).map_err(Failure::from);
    let json = arguments.json;
    let tell = |reply| tell(reply, json);
    let (change, how, force) = match &arguments.command {
        Command::Sessions => return sessions(&socket, json),
        Command::Volumes => match ask(ControlRequest::Volumes)? {
            ControlReply::Volumes { volumes } if json => return say_json_list("volumes", &volumes),
            ControlReply::Volumes { volumes } => {
                return say_table(&tables::volumes(&volumes, width()));
            }
            other => return Err(unexpected(other)),
        },
        Command::Targets => match ask(ControlRequest::Targets)? {
            ControlReply::Targets { targets } if json => return say_json_list("targets", &targets),
            ControlReply::Targets { targets } => {
                return say_table(&tables::targets(&targets, width()));
            }
            other => return Err(unexpected(other)),
        },
        Command::Events => return events(&socket),
        Command::Metrics => return tell(ask(ControlRequest::Metrics)?),
        Command::Usage => return tell(ask(ControlRequest::Usage)?),
        Command::Fault { volume, mode } => {
            return tell(ask(ControlRequest::Fault {
                volume: volume.to_string(),
                mode: *mode,
            })?);
        }
        Command::Drop { sessions, force } => {
            return tell(ask(ControlRequest::Drop {
                sessions: sessions.clone(),
                force: *force,
            })?);
        }
        Command::Reload { force, how } => {
            return tell(ask(ControlRequest::Reload {
                dry_run: how.dry_run,
                force: *force,
            })?);
        }
        Command::Add {
            volume,
            front_end,
            target,
            lun,
            initiators,
            keys,
            how,
        } => {
            let change = Change::Add {
                volume: volume.name.clone(),
                spec: volume.spec.to_string(),
                front_end: front_end.clone(),
                target: target.clone(),
                lun: *lun,
                initiators: initiators.clone(),
                keys: keys.clone(),
            };
            (change, how, false)
        }
        Command::Remove { volume, force, how } => (
            Change::Remove {
                volume: volume.clone(),
            },
            how,
            *force,
        ),
        Command::Resize {
            volume,
            size,
            shrink,
            discard_data,
            force,
            how,
        } => {
            let (shrink, discard_data) = (*shrink, *discard_data);
            (
                Change::Resize {
                    volume: volume.clone(),
                    bytes: size.0,
                    shrink,
                    discard_data,
                },
                how,
                *force,
            )
        }
    };
    tell(ask(ControlRequest::Change {
        change,
        dry_run: how.dry_run,
        force,
    })?)
}

/// The changes that a request has made, or a preview of them.
#[derive(Serialize)]
struct Changed<'a> {
    changes: &'a [String],
    notes: &'a [String],
    /// The changes that failed.
    failed: &'a [String],
}

/// Prints the outcome of a request.
pub(crate) fn tell(reply: ControlReply, json: bool) -> Result<(), Failure> {
    match reply {
        ControlReply::Reloaded {
            changes,
            notes,
            failed,
        } => {
            if json {
                say_json(&Changed {
                    changes: &changes,
                    notes: &notes,
                    failed: &failed,
                })?;
            } else {
                let lines: String = changes.iter().map(|line| format!("{line}\n")).collect();
                say(if changes.is_empty() {
                    "no changes\n"
                } else {
                    &lines
                });
                notes.iter().for_each(remark);
            }
            if !failed.is_empty() {
                return Err(Failure::failed(failed.join("\n")));
            }
        }
        ControlReply::Refused { reason } => return Err(Failure::refused(reason)),
        ControlReply::Dropped { sessions } if json => {
            say_json(&serde_json::json!({ "done": true, "sessions": sessions }))?
        }
        ControlReply::Metrics { text } | ControlReply::Usage { text } if json => {
            say_json(&serde_json::json!({ "text": text }))?
        }
        ControlReply::Done if json => say_json(&serde_json::json!({ "done": true }))?,
        ControlReply::Metrics { text } | ControlReply::Usage { text } => say(&text),
        ControlReply::Dropped { sessions: 1 } => say("ending 1 session\n"),
        ControlReply::Dropped { sessions } => say(&format!("ending {sessions} sessions\n")),
        ControlReply::Done => {}
        other => return Err(unexpected(other)),
    }
    Ok(())
}

fn say_table(table: &str) -> Result<(), Failure> {
    say(table);
    Ok(())
}

/// The interval between the two samples for rates.
const INTERVAL: Duration = Duration::from_secs(1);

/// Prints the sessions. Queries them twice, with a wait in between, because rates need two samples. One query
/// is enough for JSON, which contains only sums, and for a server without sessions.
fn sessions(socket: &Path, json: bool) -> Result<(), Failure> {
    let sample = || match ask(socket, &ControlRequest::Sessions).map_err(Failure::from)? {
        ControlReply::Sessions { sessions } => Ok(sessions),
        other => Err(unexpected(other)),
    };
    let (first, begin) = (sample()?, Instant::now());
    if json {
        return say_json_list(
            "sessions",
            &tables::sessions_json(&first).map_err(Failure::failed)?,
        );
    }
    let second = if first.is_empty() {
        Vec::new()
    } else {
        thread::sleep(INTERVAL);
        sample()?
    };
    say(&tables::sessions(&first, &second, begin.elapsed(), width()));
    Ok(())
}

fn events(socket: &Path) -> Result<(), Failure> {
    let mut subscription = subscribe(socket)?;
    while let Some(event) = subscription.next_event().map_err(Failure::failed)? {
        let json = serde_json::to_string(&event).map_err(Failure::failed)?;
        let mut out = std::io::stdout().lock();
        let written = writeln!(out, "{json}").and_then(|()| out.flush());
        if written.is_err() {
            output::note(written);
            return Ok(()); // the reader has closed the pipe
        }
    }
    Err(Failure::failed("the server has shut down"))
}
