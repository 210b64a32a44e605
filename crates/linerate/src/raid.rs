//! `linerate raid` creates and maintains RAID sets of volumes. A specification refers to a set that is not in
//! use (`backends::raid`); the name of a volume refers to a set of a running server (`daemon`).

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use backends::parse;
use backends::raid::{self, Creation, Order, Scrub, SetState, SetStatus};
use clap::{Args, Subcommand};
use daemon::control::{RaidOrder, ServedSet};
use volume::spec::{Bytes, Spec};

use crate::failure::{Failure, FailureKind};
use crate::output::{remark, say, say_json};
use crate::{remote, server, terminal};

#[derive(Debug, Args)]
pub(crate) struct RaidArguments {
    #[command(subcommand)]
    command: RaidCommand,
    /// Configuration file of the volume's server, which contains the path of its control socket
    #[arg(long, global = true, value_name = "FILE", conflicts_with = "control")]
    config: Option<PathBuf>,
    /// Control socket of that server [default: control.sock in the state directory]
    #[arg(long, global = true, value_name = "SOCKET")]
    control: Option<PathBuf>,
}

/// A set that is not in use, or a set of a running server.
#[derive(Clone, Debug)]
enum Set {
    Unused(Spec),
    Served(ServedSet),
}

/// Parses a specification or a volume name. Volume names contain no colon, and do not start with a slash or a
/// dot.
fn set(text: &str) -> Result<Set, String> {
    match text.contains(':') || text.starts_with(['/', '.']) {
        true => parse(text)
            .map(Set::Unused)
            .map_err(|error| error.to_string()),
        false => text.parse().map(Set::Served),
    }
}

#[derive(Debug, Subcommand)]
enum RaidCommand {
    /// Create a set with volumes as its members
    ///
    /// Missing files are created. Existing data on the volumes is lost.
    Create {
        /// Set, such as 'raid5:64KiB:[file:/disk1/a,file:/disk2/b,nbd://san3/c]'
        #[arg(value_name = "SPEC", value_parser = parse)]
        set: Spec,
        /// Display name of the set
        #[arg(long, default_value = "", hide_default_value = true)]
        name: String,
        /// Volume that automatically replaces a failed member; repeatable
        #[arg(long = "spare", value_name = "VOLUME", value_parser = parse)]
        spares: Vec<Spec>,
        /// Size of the journal on each member that has one; RAID 5 and 6 only [default: 32MiB]. 0 selects a
        /// bitmap instead of a journal; a crash that also loses a member can then corrupt data
        #[arg(long, value_name = "SIZE")]
        journal: Option<Bytes>,
        /// Separate volume for the journal; RAID 5 and 6 only. Afterwards, list this volume in the brackets
        /// of the set's specification
        ///
        /// If this volume fails, writes that are only in the journal are lost. To keep two copies, use
        /// `raid1:[…]`.
        #[arg(long, value_name = "VOLUME", value_parser = parse)]
        journal_on: Option<Spec>,
        /// Store a checksum (CRC32C) of each block, to identify the member that returns a wrong block
        #[arg(long)]
        checksums: bool,
        /// Overwrite existing data without asking
        #[arg(long)]
        yes: bool,
    },
    /// Find the sets that volumes belong to, or restart a stopped set of a running server
    ///
    /// Given volumes, the command prints the specifications that open their sets, and modifies nothing. The
    /// exit code is 10 if a set cannot start, or is degraded.
    Assemble {
        /// Volumes, in any order; with --discard-journal also a set, such as 'raid6:[A,B]?missing-are-lost';
        /// or a volume of a running server whose set has stopped
        #[arg(value_name = "VOLUME", value_parser = set, required = true)]
        volumes: Vec<Set>,
        /// Start a set without its lost journal, and recompute parity
        ///
        /// The latest writes before the set stopped may be lost or corrupted.
        #[arg(long)]
        discard_journal: bool,
        /// Accept that the latest writes may be lost or corrupted
        #[arg(long, requires = "discard_journal")]
        yes: bool,
    },
    /// Show sets and their members
    ///
    /// The exit code is 10 if a set cannot start, or is degraded.
    Status {
        /// Set that is not in use (its specification, or any of its members); or a volume of a running server
        #[arg(value_name = "SPEC|VOLUME", value_parser = set)]
        set: Set,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Read and compare all data of a set
    ///
    /// The scrub starts once rebuilds and resynchronisation of the set are complete.
    Scrub {
        /// Set that is not in use; or a volume of a running server, which is scrubbed while in use
        #[arg(value_name = "SPEC|VOLUME", value_parser = set)]
        set: Set,
        /// Repair inconsistent stripes: data is kept, and parity and further copies are rewritten
        #[arg(long)]
        repair: bool,
        /// Cancel a running scrub of a server, which would otherwise resume after a restart
        #[arg(long, conflicts_with = "repair")]
        cancel: bool,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Mark a member as failed
    ///
    /// The set continues degraded. Refused if this would lose data.
    Fail {
        /// Set; or a volume of a running server
        #[arg(value_name = "SPEC|VOLUME", value_parser = set)]
        set: Set,
        /// Member number, from `raid status`
        #[arg(value_name = "MEMBER")]
        member: usize,
    },
    /// Replace a missing or failed member
    ///
    /// The set is rebuilt while in use. A running server starts the rebuild immediately; otherwise it starts
    /// when the set is next opened with the new volume among its members.
    Replace {
        /// Set's specification without the lost volume; or a volume of a running server
        #[arg(value_name = "SPEC|VOLUME", value_parser = set)]
        set: Set,
        /// Member number, from `raid status`
        #[arg(value_name = "MEMBER")]
        member: usize,
        /// New volume; use absolute paths for files
        #[arg(value_name = "NEW", value_parser = parse)]
        volume: Spec,
        /// Overwrite existing data without asking
        #[arg(long)]
        yes: bool,
    },
    /// Add a spare, which automatically replaces a failed member
    Add {
        /// Set; or a volume of a running server
        #[arg(value_name = "SPEC|VOLUME", value_parser = set)]
        set: Set,
        /// New volume; use absolute paths for files
        #[arg(value_name = "NEW", value_parser = parse)]
        volume: Spec,
        /// Overwrite existing data without asking
        #[arg(long)]
        yes: bool,
    },
    /// Grow the set after all its members have grown
    Grow {
        /// Set; or a volume of a running server
        #[arg(value_name = "SPEC|VOLUME", value_parser = set)]
        set: Set,
    },
}

/// The interval of progress lines.
const TELL_EVERY: Duration = Duration::from_secs(5);

/// Runs the command.
pub(crate) fn run(arguments: &RaidArguments) -> Result<ExitCode, Failure> {
    let socket =
        || daemon::state::control_socket(arguments.control.as_deref(), arguments.config.as_deref());
    let order = |set: &ServedSet, order| server::tell(set.order(&socket()?, order)?, false);
    match &arguments.command {
        RaidCommand::Create {
            set,
            name,
            spares,
            journal,
            journal_on,
            checksums,
            yes,
        } => {
            let (name, spares, journal_on) = (name.clone(), spares.clone(), journal_on.clone());
            let creation = Creation {
                name,
                journal: *journal,
                checksums: *checksums,
                spares,
                journal_on,
            };
            let consent = terminal::consent(*yes);
            remote::run(async { raid::create(set, &creation, consent).await })?;
            // A new set may be degraded until its parity was computed, which is not a failure.
            created(set, &creation)?;
        }
        RaidCommand::Assemble {
            volumes,
            discard_journal: false,
            ..
        } => match &volumes[..] {
            [Set::Served(set)] => order(set, RaidOrder::Assemble)?,
            volumes => return assemble(&unused(volumes)?),
        },
        RaidCommand::Assemble {
            volumes,
            discard_journal: true,
            yes,
        } => {
            discard_journal(&unused(volumes)?, *yes)?;
        }
        RaidCommand::Status {
            set: Set::Unused(set),
            json,
        } => return status(set, *json),
        RaidCommand::Status {
            set: Set::Served(set),
            json,
        } => {
            return served_status(&set.states(&socket()?)?, *json);
        }
        RaidCommand::Scrub {
            set: Set::Unused(set),
            cancel: true,
            ..
        } => alone(set, Order::CancelScrub)?,
        RaidCommand::Scrub {
            set: Set::Served(set),
            cancel: true,
            ..
        } => order(set, RaidOrder::CancelScrub)?,
        RaidCommand::Scrub {
            set: Set::Unused(set),
            repair,
            json,
            ..
        } => {
            let mut tells = teller();
            scrubbed(
                remote::run(async { raid::scrub(set, *repair, &mut tells).await })?,
                *json,
            )?;
        }
        RaidCommand::Scrub {
            set: Set::Served(set),
            repair,
            json,
            ..
        } => {
            scrubbed(set.scrub(&socket()?, *repair, &mut teller())?, *json)?;
        }
        RaidCommand::Replace {
            set: Set::Unused(set),
            member,
            volume,
            yes,
        } => {
            let consent = terminal::consent(*yes);
            remote::run(async { raid::replace(set, *member, volume, consent).await })?;
            let all: Vec<Spec> = set
                .backend()
                .members()
                .iter()
                .chain([volume])
                .cloned()
                .collect();
            let (sets, _) = remote::run(async { raid::look(&all).await })?;
            let written = sets
                .first()
                .map(|set| format!(", as '{}'", set.specification));
            let written = written.unwrap_or_default();
            say(&format!(
                "{volume} is now member {member}; it is rebuilt when the set is next opened with it{written}\n"
            ));
        }
        RaidCommand::Replace {
            set: Set::Served(set),
            member,
            volume,
            yes,
        } => {
            order(
                set,
                RaidOrder::Replace {
                    member: *member,
                    with: volume.to_string(),
                    overwrite: *yes,
                },
            )?;
        }
        RaidCommand::Fail {
            set: Set::Unused(set),
            member,
        } => alone(set, Order::Fail { member: *member })?,
        RaidCommand::Fail {
            set: Set::Served(set),
            member,
        } => order(set, RaidOrder::Fail { member: *member })?,
        RaidCommand::Add {
            set: Set::Unused(set),
            volume,
            yes,
        } => {
            alone(
                set,
                Order::Add {
                    spare: volume.clone(),
                    overwrites: *yes,
                },
            )?;
        }
        RaidCommand::Add {
            set: Set::Served(set),
            volume,
            yes,
        } => {
            order(
                set,
                RaidOrder::Add {
                    spare: volume.to_string(),
                    overwrite: *yes,
                },
            )?;
        }
        RaidCommand::Grow {
            set: Set::Unused(set),
        } => alone(set, Order::Grow)?,
        RaidCommand::Grow {
            set: Set::Served(set),
        } => order(set, RaidOrder::Grow)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Executes an order on a set that is not in use.
fn alone(set: &Spec, order: Order) -> Result<(), Failure> {
    let said = remote::run(async { raid::alone(set, order).await })?;
    say(&format!("{said}\n"));
    Ok(())
}

/// The exit code for a set. If the set is degraded or cannot start, it is that of a failed data check.
fn code(is_healthy: bool) -> ExitCode {
    if is_healthy {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(Failure::new(FailureKind::Mismatch, "").code())
    }
}

/// Sets, and volumes without a set.
#[derive(serde::Serialize)]
struct Shown {
    sets: Vec<SetStatus>,
    others: Vec<String>,
}

impl Shown {
    fn code(&self) -> ExitCode {
        code(!self.sets.is_empty() && self.sets.iter().all(SetStatus::is_healthy))
    }
}

/// Prints a new set. From now on, spares and the journal's volume must be listed inside the brackets of its
/// specification.
fn created(set: &Spec, creation: &Creation) -> Result<(), Failure> {
    let beside = creation.spares.iter().chain(&creation.journal_on);
    let volumes: Vec<Spec> = set
        .backend()
        .members()
        .iter()
        .chain(beside)
        .cloned()
        .collect();
    let (sets, _) = remote::run(async { raid::look(&volumes).await })?;
    for made in &sets {
        say(&format!("{made}\n"));
        if volumes.len() > set.backend().members().len() {
            say(&format!("  open it as '{}'\n", made.specification));
        }
    }
    Ok(())
}

fn status(set: &Spec, json: bool) -> Result<ExitCode, Failure> {
    let (sets, others) = remote::run(async { raid::status(set).await })?;
    let shown = Shown { sets, others };
    if json {
        say_json(&shown)?;
        return Ok(shown.code());
    }
    shown.sets.iter().for_each(|set| say(&format!("{set}\n")));
    shown
        .others
        .iter()
        .for_each(|other| say(&format!("{other}\n")));
    Ok(shown.code())
}

fn served_status(sets: &[SetState], json: bool) -> Result<ExitCode, Failure> {
    match json {
        true => say_json(&serde_json::json!({ "sets": sets }))?,
        false => sets.iter().for_each(|set| say(&format!("{set}\n"))),
    }
    Ok(code(sets.iter().all(SetState::is_healthy)))
}

/// Checks that all volumes are specifications, not volumes of a running server.
fn unused(volumes: &[Set]) -> Result<Vec<Spec>, Failure> {
    let unused = volumes.iter().map(|set| match set {
        Set::Unused(spec) => Ok(spec.clone()),
        Set::Served(_) => Err(Failure::refused(
            "name one volume of a running server, or the volumes to search for sets, such as file:/disk1/a",
        )),
    });
    unused.collect()
}

fn assemble(volumes: &[Spec]) -> Result<ExitCode, Failure> {
    let (sets, others) = remote::run(async { raid::look(volumes).await })?;
    let shown = Shown { sets, others };
    for set in &shown.sets {
        say(&format!(
            "{set}\n  open it as '{0}', or:\n\n  [volume.NAME]\n  spec = \"{0}\"\n\n",
            set.specification
        ));
    }
    shown
        .others
        .iter()
        .for_each(|other| say(&format!("{other}\n")));
    Ok(shown.code())
}

fn discard_journal(volumes: &[Spec], yes: bool) -> Result<(), Failure> {
    let spec = match volumes {
        // Keep the set's options, such as `missing-are-lost`.
        [set] if raid::is_set(set) => set.clone(),
        volumes => {
            let (sets, _) = remote::run(async { raid::look(volumes).await })?;
            let [set] = &sets[..] else {
                return Err(Failure::refused(format_args!(
                    "the volumes belong to {} sets; name the volumes of only one set",
                    sets.len()
                )));
            };
            parse(&set.specification).map_err(Failure::refused)?
        }
    };
    let mut tells = teller();
    scrubbed(
        remote::run(async { raid::discard_journal(&spec, yes, &mut tells).await })?,
        false,
    )
}

/// Returns a function that prints the progress of a scrub at intervals.
fn teller() -> impl FnMut(u64, u64) {
    let (begun, mut told) = (Instant::now(), Duration::ZERO);
    move |done: u64, stripes: u64| {
        let time = begun.elapsed();
        if time < told + TELL_EVERY {
            return;
        }
        told = time;
        if done == 0 {
            return remark("the scrub is waiting for the end of a rebuild or resynchronisation");
        }
        let left = time.as_secs_f64() * (stripes - done) as f64 / done as f64;
        remark(format_args!(
            "{} % scrubbed, {left:.0} s left",
            100 * done / stripes
        ));
    }
}

fn scrubbed(found: Scrub, json: bool) -> Result<(), Failure> {
    if json {
        say_json(&found)?;
    }
    if !found.is_proof() {
        return Err(Failure::new(FailureKind::Mismatch, found));
    }
    if !json {
        say(&format!("{found}\n"));
    }
    Ok(())
}
