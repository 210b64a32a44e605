//! Descriptions of portals, targets, sessions and LUNs, each as text and as JSON: an [`Answer`].
//!
//! Reading order: [`discover`] (a portal's targets and their LUNs), [`info`] (a session and its LUNs),
//! [`commands`] (single SCSI commands that query), [`reservations`]; [`pages`] formats pages and bytes.
//! Information that a target does not provide is omitted. For example, an old disk has neither a Block Limits
//! page nor ALUA.
//!
//! ```
//! use iscsi_client::verbs::Vpd;
//!
//! let page = Vpd::parse(0x80, b"\x00\x80\x00\x04A123").expect("a Unit Serial Number page");
//! assert_eq!(inspect::pages::to_json(&page)["serial_number"], "A123");
//! assert_eq!(inspect::pages::dump(&page.bytes[4..]), format!("  0000  {:<47}  A123\n", "41 31 32 33"));
//! ```

pub mod aoe;
pub mod commands;
mod discovery;
pub mod disk;
pub mod hyperscsi;
pub mod nbd;
pub mod negotiation;
pub mod pages;

use backends::{Failure, FailureKind, remote};
use iscsi_client::{Portal, Settings, Url};
use readable::table::pairs;
use serde::Serialize;

pub use pages::Answer;

/// Fails with `nothing` if a discovery found nothing.
fn unless_empty<T>(found: &[T], nothing: impl std::fmt::Display) -> Result<(), Failure> {
    match found.is_empty() {
        true => Err(Failure::new(FailureKind::NotFound, nothing)),
        false => Ok(()),
    }
}

/// Lists a portal's targets and, with `luns`, the LUNs of each target. If a target cannot be inspected, its
/// entry contains the failure. The first such failure, or the failure to find any target, is returned together
/// with the answer.
///
/// # Errors
/// The portal cannot be queried.
pub async fn discover(
    portal: &Portal,
    settings: &Settings,
    luns: bool,
) -> Result<(Answer, Result<(), Failure>), Failure> {
    let mut discovery =
        discovery::Discovery::new(portal, remote::discover(portal, settings).await?);
    let mut looked = unless_empty(&discovery.targets, no_targets(portal));
    for target in discovery.targets.iter_mut().filter(|_| luns) {
        looked = looked.and(discovery::look(target, settings).await);
    }
    Ok((Answer::new(discovery.text(), &discovery), looked))
}

fn no_targets(portal: &Portal) -> String {
    format!("{portal} has no targets for this initiator")
}

/// Describes the storage that a text names: a LUN, a target with its LUNs, a portal with its targets, or
/// storage over another protocol. `pages` are the vital product data pages to show in full.
///
/// # Errors
/// The text is invalid, or the storage cannot be inspected.
pub async fn describe(text: &str, pages: &[u8]) -> Result<Answer, Failure> {
    if backends::nbd::is_url(text) {
        return nbd::info(text).await;
    }
    if backends::aoe::is_url(text) {
        return aoe::info(text).await;
    }
    if backends::hyperscsi::is_url(text) {
        return hyperscsi::info(text, pages).await;
    }
    if remote::is_portal(text) {
        let (portal, settings) = remote::portal(text)?;
        return info_of_all(&portal, &settings, pages).await;
    }
    let (url, lun) = remote::target_url(text)?;
    info(&url, lun, pages).await
}

/// Logs in to the target of a URL, and describes the session and the LUN `lun`, or all LUNs of the target.
///
/// # Errors
/// The login fails, the session is lost, or there is no such LUN.
pub async fn info(url: &Url, lun: Option<u16>, pages: &[u8]) -> Result<Answer, Failure> {
    looked_at(url, lun, pages)
        .await
        .map(|info| Answer::new(info.text(), &info))
}

async fn looked_at(url: &Url, lun: Option<u16>, pages: &[u8]) -> Result<Info, Failure> {
    if url.settings.paths.are_several() {
        return by_paths(url, lun, pages).await;
    }
    let target = remote::open_target(url).await?;
    let looked = match lun {
        Some(number) => disk::UnitInfo::look(&target.unit(number), pages)
            .await
            .map(|unit| vec![unit]),
        None => disk::look_at_all(&target, pages).await,
    };
    let info = match looked {
        // Query the session last: by now the connections have carried data, so TCP has measured their paths.
        Ok(luns) => Ok(Info {
            session: negotiation::Session::look(&target, url).await,
            luns,
            paths: Vec::new(),
        }),
        Err(failure) => Err(failure),
    };
    target.close().await;
    info
}

/// Like [`info`], for a URL with several paths: uses the first path that works, and describes all paths.
async fn by_paths(url: &Url, lun: Option<u16>, pages: &[u8]) -> Result<Info, Failure> {
    let mut looked = Err(Failure::failed("the URL has no path"));
    for one in url.paths() {
        looked = Box::pin(looked_at(&one, lun, pages)).await;
        if looked.is_ok() {
            break;
        }
    }
    Ok(Info {
        paths: negotiation::look(url).await,
        ..looked?
    })
}

/// Describes each target of a portal as [`info`] does, through the first reachable address of the target, in
/// one answer.
///
/// # Errors
/// The portal cannot be queried or has no targets, or as for [`info`].
pub async fn info_of_all(
    portal: &Portal,
    settings: &Settings,
    pages: &[u8],
) -> Result<Answer, Failure> {
    let found = discovery::Discovery::new(portal, remote::discover(portal, settings).await?);
    unless_empty(&found.targets, no_targets(portal))?;
    let mut targets = Vec::new();
    for target in &found.targets {
        let mut answer = Err(Failure::failed(format!("{} has no portal", target.name)));
        for portal in &target.portals {
            let url = Url::parse(&format!("iscsi://{}/{}/0", portal.address, target.name));
            let url =
                url.map_err(|_| Failure::failed(format!("invalid address {:?}", portal.address)))?;
            answer = looked_at(
                &Url {
                    settings: settings.clone(),
                    ..url
                },
                None,
                pages,
            )
            .await;
            if !answer.as_ref().is_err_and(Failure::is_unreachable) {
                break;
            }
        }
        targets.push(answer?);
    }
    let text: Vec<String> = targets.iter().map(Info::text).collect();
    Ok(Answer::new(
        text.join("\n"),
        &InfoOfAll {
            portal: portal.to_string(),
            targets,
        },
    ))
}

/// The JSON names are stable.
#[derive(Serialize)]
struct InfoOfAll {
    portal: String,
    targets: Vec<Info>,
}

/// The JSON names are stable.
#[derive(Serialize)]
struct Info {
    session: negotiation::Session,
    /// The paths of a LUN over several sessions.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    paths: Vec<negotiation::PathInfo>,
    luns: Vec<disk::UnitInfo>,
}

impl Info {
    fn text(&self) -> String {
        let luns: String = self
            .luns
            .iter()
            .map(|lun| format!("\n{}", lun.text()))
            .collect();
        let paths = match self.paths.is_empty() {
            true => String::new(),
            false => format!(
                "\n{}",
                pairs("  ", self.paths.iter().map(negotiation::PathInfo::row))
            ),
        };
        self.session.text() + &paths + &luns
    }
}
