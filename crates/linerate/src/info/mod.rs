//! `linerate info`: what a login came to and what is on the target, on a screen or two.
//!
//! [`session`] tells of the login, [`negotiation`] of its keys and what would be better, [`unit`] and [`disk`] of a
//! logical unit.
//! What a target does not know is left out: a disk of 1996 has neither a Block Limits page nor ALUA.

mod session;
mod unit;

use std::sync::Arc;

use initiator::{RemoteTarget, Url};
use serde::Serialize;

use self::session::Session;
use self::unit::UnitInfo;
use crate::failure::Failure;
use crate::output::say;
use crate::page;
use crate::remote;

/// Tells what a session with a target is like, and what its LUNs are
#[derive(Debug, clap::Args)]
pub(crate) struct InfoArguments {
    /// The LUN, or the target with all its LUNs: iscsi://[user@]host[:port]/target[/lun][?key=value&...]
    #[arg(value_name = "URL")]
    url: String,
    /// Show this page of vital product data too, in words and bytes: its hexadecimal number, such as b0. Repeatable
    #[arg(long, value_name = "PAGE", value_parser = page::code)]
    vpd: Vec<u8>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// What is printed. The names of the JSON are promised.
#[derive(Debug, Serialize)]
struct Info {
    session: Session,
    luns: Vec<UnitInfo>,
}

/// Runs the command.
pub(crate) fn run(arguments: &InfoArguments) -> Result<(), Failure> {
    let (url, lun) = remote::target_url(&arguments.url)?;
    let info = remote::run(async {
        let target = remote::open_target(&url).await?;
        let info = look(&target, &url, lun, &arguments.vpd).await;
        target.close().await;
        info
    })?;
    say(&if arguments.json {
        serde_json::to_string_pretty(&info).map_err(Failure::failed)? + "\n"
    } else {
        info.text()
    });
    Ok(())
}

async fn look(target: &Arc<RemoteTarget>, url: &Url, lun: Option<u16>, vpd: &[u8]) -> Result<Info, Failure> {
    let luns = match lun {
        Some(number) => vec![UnitInfo::look(&target.unit(number), vpd).await?],
        None => unit::look_at_all(target, vpd).await?,
    };
    // Last, when the connections have carried something and know their path.
    Ok(Info { session: Session::look(target, url).await, luns })
}

impl Info {
    fn text(&self) -> String {
        let luns: String = self.luns.iter().map(|lun| format!("\n{}", lun.text())).collect();
        self.session.text() + &luns
    }
}
