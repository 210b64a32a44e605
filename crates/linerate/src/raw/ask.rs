//! The half that asks.

use std::io;
use std::time::Duration;

use bench::raw::Direction;
use bench::raw::iscsi::{self, Asked, Figures, Load};
use iscsi_client::Url;

use super::Poll;
use crate::failure::Failure;
use crate::output::{say, say_json};
use crate::remote;
use crate::spec::{Bytes, Time};
use crate::terminal::Overwritten;

#[derive(Debug, clap::Args)]
pub(crate) struct RawAskArguments {
    /// LUN to ask: iscsi://HOST[:PORT]/IQN/LUN; keys of sessions are ignored
    #[arg(value_name = "URL", value_hint = clap::ValueHint::Url)]
    url: String,
    /// Data length of each command
    #[arg(long, value_name = "SIZE", default_value = "4KiB")]
    block: Bytes,
    /// Outstanding commands of each session
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=1024))]
    depth: u32,
    /// Sessions, all on one thread
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..))]
    sessions: u8,
    /// Write instead of reading; asks for confirmation if the disk is not empty
    #[arg(long)]
    write: bool,
    /// Overwrite what is there without asking
    #[arg(long, requires = "write")]
    yes: bool,
    /// Use random offsets instead of sequential ones
    #[arg(long)]
    random: bool,
    /// Part of the disk to use, from its start
    #[arg(long, value_name = "SIZE", default_value = "1GiB")]
    span: Bytes,
    /// Time to measure
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = crate::bench::seconds)]
    seconds: f64,
    /// Time before that, which is not counted
    #[arg(long, value_name = "TIME", default_value = "100ms")]
    warm_up: Time,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &RawAskArguments) -> Result<(), Failure> {
    let url = remote::url(&arguments.url)?;
    let load = load(arguments)?;
    if arguments.write {
        remote::run(consent(&url, arguments))?;
    }
    let asked = reactor::block_on(Poll::Always.world()?, ask(&url, arguments, load));
    let figures = Figures::new(&asked.map_err(Failure::failed)?, load);
    if arguments.json {
        return say_json(&figures);
    }
    say(&figures.to_string());
    Ok(())
}

/// The bare client knows nothing of SCSI. So a session as every command has it looks at the disk beforehand.
async fn consent(url: &Url, arguments: &RawAskArguments) -> Result<(), Failure> {
    let lun = remote::open(url).await?;
    let part = Some(format!("the first {}", arguments.span));
    let consented = Overwritten { device: &lun, name: url, part, lun: Some(&lun) }
        .consent(crate::terminal::consent(arguments.yes))
        .await;
    lun.target().close().await;
    consented
}

fn load(arguments: &RawAskArguments) -> Result<Load, Failure> {
    const BLOCK_BYTES_MAX: u64 = 16 << 20;
    let (Bytes(block), Bytes(disk_bytes)) = (arguments.block, arguments.span);
    let is_sound = block > 0 && block <= BLOCK_BYTES_MAX && block % 512 == 0 && block <= disk_bytes;
    match u32::try_from(block) {
        Ok(block_bytes) if is_sound => Ok(Load {
            direction: if arguments.write { Direction::Write } else { Direction::Read },
            block_bytes,
            depth: arguments.depth,
            random: arguments.random,
            disk_bytes,
        }),
        _ => Err(Failure::refused(
            "--block takes a multiple of 512 bytes up to 16MiB, and no more than --span",
        )),
    }
}

async fn ask(url: &Url, arguments: &RawAskArguments, load: Load) -> io::Result<Asked> {
    let address = url.portal.resolve().await?.into_iter().next().ok_or(io::ErrorKind::NotFound)?;
    let times = [arguments.warm_up.0, Duration::from_secs_f64(arguments.seconds)];
    iscsi::ask_at(address, arguments.sessions, &url.target, url.lun, load, times).await
}
