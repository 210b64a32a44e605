//! `linerate raid`: makes RAID sets of volumes, and looks after them. `backends::raid` does the work.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use backends::parse;
use backends::raid::{self, Creation, Scrub, SetStatus};
use clap::{Args, Subcommand};
use volume::spec::{Bytes, Spec};

use crate::failure::{Failure, Kind};
use crate::output::{remark, say, say_json};
use crate::{remote, terminal};

#[derive(Debug, Args)]
pub(crate) struct RaidArguments {
    #[command(subcommand)]
    command: RaidCommand,
}

#[derive(Debug, Subcommand)]
enum RaidCommand {
    /// Make volumes the members of a new set
    ///
    /// Files that do not exist are made. What is on the volumes is lost.
    Create {
        /// Set, such as 'raid5:64KiB:[file:/disk1/a,file:/disk2/b,nbd://san3/c]'
        #[arg(value_name = "SPEC", value_parser = parse)]
        set: Spec,
        /// Name, for people
        #[arg(long, default_value = "")]
        name: String,
        /// Volume that can replace a member, by itself. Repeatable
        #[arg(long = "spare", value_name = "VOLUME", value_parser = parse)]
        spares: Vec<Spec>,
        /// Size of the journal on each member that has it, RAID 5 and 6 only. 0: a bitmap in its place, with which a crash that
        /// costs a member, too, can damage data
        #[arg(long, value_name = "SIZE", default_value = "32MiB")]
        journal: Bytes,
        /// Overwrite what is there without asking
        #[arg(long)]
        yes: bool,
    },
    /// Show the sets of which volumes are members, and how they are
    Status {
        /// Set as it is written, or with any of its members
        #[arg(value_name = "SPEC", value_parser = parse)]
        set: Spec,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Read and compare all of a set that is not in use
    Scrub {
        /// Set
        #[arg(value_name = "SPEC", value_parser = parse)]
        set: Spec,
        /// Make strips fit each other: data count, parity and later copies are written anew
        #[arg(long)]
        repair: bool,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Put a volume in the place of a member that is missing or has failed
    ///
    /// It is rebuilt when the set is opened next, with the new volume named among its members.
    Replace {
        /// Set, without the volume that is gone
        #[arg(value_name = "SPEC", value_parser = parse)]
        set: Spec,
        /// Number of the member, as `raid status` shows it
        #[arg(value_name = "MEMBER")]
        member: usize,
        /// Volume
        #[arg(value_name = "VOLUME", value_parser = parse)]
        volume: Spec,
        /// Overwrite what is there without asking
        #[arg(long)]
        yes: bool,
    },
}

/// What takes longer says how far it is.
const TELL_EVERY: Duration = Duration::from_secs(5);

/// Runs the command.
pub(crate) fn run(arguments: &RaidArguments) -> Result<ExitCode, Failure> {
    match &arguments.command {
        RaidCommand::Create { set, name, spares, journal, yes } => {
            let creation = Creation { name: name.clone(), journal: *journal, spares: spares.clone() };
            let consent = terminal::consent(*yes);
            remote::run(async { raid::create(set, &creation, consent).await })?;
            status(set, false)
        }
        RaidCommand::Status { set, json } => status(set, *json),
        RaidCommand::Scrub { set, repair, json } => scrub(set, *repair, *json),
        RaidCommand::Replace { set, member, volume, yes } => {
            let consent = terminal::consent(*yes);
            remote::run(async { raid::replace(set, *member, volume, consent).await })?;
            say(&format!("{volume} is member {member} now; it is rebuilt when the set is opened with it\n"));
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// Sets, and volumes that are of none.
#[derive(serde::Serialize)]
struct Shown {
    sets: Vec<SetStatus>,
    others: Vec<String>,
}

fn status(set: &Spec, json: bool) -> Result<ExitCode, Failure> {
    let (sets, others) = remote::run(async { raid::status(set).await })?;
    if json {
        say_json(&Shown { sets, others })?;
        return Ok(ExitCode::SUCCESS);
    }
    sets.iter().for_each(|set| say(&format!("{set}\n")));
    others.iter().for_each(|other| say(&format!("{other}\n")));
    Ok(ExitCode::SUCCESS)
}

fn scrub(set: &Spec, repair: bool, json: bool) -> Result<ExitCode, Failure> {
    let (begun, mut told) = (Instant::now(), Duration::ZERO);
    let mut tells = |done: u64, stripes: u64| {
        let time = begun.elapsed();
        if time >= told + TELL_EVERY {
            told = time;
            let left = time.as_secs_f64() * (stripes - done) as f64 / done as f64;
            remark(format_args!("{} % scrubbed, {left:.0} s left", 100 * done / stripes));
        }
    };
    let found: Scrub = remote::run(async { raid::scrub(set, repair, &mut tells).await })?;
    if json {
        say_json(&found)?;
    }
    if !found.is_right() {
        return Err(Failure::new(Kind::Mismatch, found));
    }
    if !json {
        say(&format!("{found}\n"));
    }
    Ok(ExitCode::SUCCESS)
}
