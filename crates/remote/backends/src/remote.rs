//! LUNs of iSCSI targets: `iscsi://host/target/lun?connections=4` as a back end, which makes a server a
//! gateway. This module also opens sessions with targets that are specified by URL or portal.
//!
//! Secrets are never on the command line, which other users can list. They come from a file (the keys
//! `secret-file` and `target-secret-file`), from the environment, or from the function set with
//! [`secrets::ask_by`].

use std::future::Future;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use host::{Epoll, EpollOptions};
use iscsi::chap::{Credentials, Secret};
use iscsi_client::verbs::{LunAddress, VerbError};
use iscsi_client::{
    Discovered, MultipathLun, OpenError, Portal, RemoteLun, RemoteTarget, SettingError, Settings,
    Unit, Url, UrlError, UrlProblem,
};
use reactor::{BadAddress, Ipv6Host};
use volume::backend::{Kind, UrlKind};
use volume::spec::hint;
use zeroize::Zeroizing;

use crate::failure::Failure;
use crate::peers::{self, random};
use crate::{GRAMMAR, raid, secrets};

/// A LUN of another target.
pub(crate) static ISCSI: Kind = peers::kind(
    "iscsi",
    "iscsi://HOST/TARGET/LUN",
    "a LUN of another iSCSI target; options are those of URLs ([urls.md](urls.md))",
    &UrlKind {
        has_key: |key| Settings::keys().any(|(name, _)| name == key.replace('_', "-")),
        check,
        open: |text, opening| {
            Box::pin(async move {
                let mut url = url(&text)?;
                if opening.read_only {
                    url.settings.paths.journal_file = None; // it is only for writers
                }
                if !url.settings.paths.are_several() {
                    return Ok(Arc::new(open(&url).await?) as _);
                }
                let lun = Arc::new(open_paths(&url).await?);
                peers::keep_channels(text, &lun);
                Ok(lun as _)
            })
        },
        unreachable: None,
        close: None,
    },
);

/// Environment variable: the secret of the initiator.
const SECRET: &str = "LINERATE_SECRET";
/// Environment variable: the secret of the target.
const TARGET_SECRET: &str = "LINERATE_TARGET_SECRET";

/// Parses the URL of a LUN, and adds its secrets.
///
/// # Errors
/// The text is invalid, or a secret cannot be found.
pub fn url(text: &str) -> Result<Url, Failure> {
    refuse_secrets(text)?;
    require_slashes(text)?;
    let mut url = Url::parse(text).map_err(|error| pointed_at(text, &error))?;
    find_secrets(&mut url.settings)?;
    peers::record(&url.settings);
    Ok(url)
}

/// Returns the reason why the session with a LUN's target is permanently lost, if it is. A request to such a
/// LUN only returns "not ready"; the session records the reason.
pub async fn lost(unit: &Unit) -> Option<Failure> {
    match unit.test_unit_ready().await {
        Err(VerbError::Lost(lost)) => Some(Failure::from(lost)),
        _ => None,
    }
}

/// Rejects a URL of any kind in which slashes are missing.
fn require_slashes(text: &str) -> Result<(), Failure> {
    let kind = text
        .split_once(':')
        .and_then(|(scheme, _)| GRAMMAR.kind(scheme));
    kind.map_or(Ok(()), |kind| peers::require_slashes(text, kind))
        .map_err(Failure::refused)
}

/// Checks the URL of a LUN without looking up its secrets. The error is one sentence.
fn check(text: &str) -> Result<(), String> {
    if secrets::is_in(text) {
        return Err(format!(
            "other users can read a secret in a specification; put it into a file (secret-file=PATH, \
             target-secret-file=PATH) or the environment ({SECRET}, {TARGET_SECRET})"
        ));
    }
    Url::parse(text)
        .map(drop)
        .map_err(|error| sentence(&error.problem))
}

/// Parses the URL of a target, with a LUN if it names one; otherwise the LUN in the URL is 0.
///
/// # Errors
/// Returns the same errors as [`url`].
pub fn target_url(text: &str) -> Result<(Url, Option<u16>), Failure> {
    if let Err(UrlError {
        problem: UrlProblem::NoLun,
        ..
    }) = Url::parse(text)
    {
        let (path, query) = text.split_at(text.find('?').unwrap_or(text.len()));
        return Ok((url(&format!("{path}/0{query}"))?, None));
    }
    let url = url(text)?;
    let lun = url.lun;
    Ok((url, Some(lun)))
}

/// Returns whether a text names only a portal, in a form that [`portal`] accepts, and no target.
pub fn is_portal(text: &str) -> bool {
    !text.contains("://")
        || matches!(
            Url::parse(text),
            Err(UrlError {
                problem: UrlProblem::NoTarget,
                ..
            })
        )
}

/// Returns whether a text looks like `HOST:PORT`.
pub(crate) fn has_port(text: &str) -> bool {
    let port = text
        .rsplit_once(':')
        .filter(|(host, _)| !host.is_empty() && !host.contains('/'));
    port.is_some_and(|(_, port)| port.parse::<u16>().is_ok())
}

/// Parses a portal and its secrets: `HOST`, `HOST:PORT`, an IPv6 address with or without brackets, or a URL.
///
/// # Errors
/// Returns the same errors as [`url`].
pub fn portal(text: &str) -> Result<(Portal, Settings), Failure> {
    if GRAMMAR.is_meant(text) && !text.contains("://") && !has_port(text) {
        require_slashes(text)?;
        return Err(Failure::refused(format!(
            "{text} is a volume, not a portal: serve it (`linerate serve --volume disk={text}`) and use that \
             portal, or measure it locally (`linerate bench {text}`)"
        )));
    }
    let address = match text.parse::<Ipv6Host>() {
        Ok(bare) => format!("iscsi://[{bare}]"),
        Err(BadAddress::Form(_)) if text.contains("://") => text.to_owned(),
        Err(BadAddress::Form(_)) => format!("iscsi://{text}"),
        Err(wrong) => return Err(Failure::refused(wrong)),
    };
    refuse_secrets(&address)?;
    let (portal, mut settings) =
        Portal::parse(&address).map_err(|error| pointed_at(&address, &error))?;
    find_secrets(&mut settings)?;
    peers::record(&settings);
    Ok((portal, settings))
}

/// Logs in and attaches the LUN. The session lives in the runtime environment of this thread: see [`run`].
///
/// # Errors
/// The LUN cannot be opened.
pub async fn open(url: &Url) -> Result<RemoteLun, Failure> {
    let target = open_target(url).await?;
    target
        .lun(url.lun)
        .await
        .map_err(|error| refused(error, &url.settings))
}

/// Logs in over all paths of a URL that specifies several paths, and attaches the LUN. The sessions live in
/// the runtime environment of this thread.
///
/// # Errors
/// Returns the same errors as [`open`], for the path tried last.
pub async fn open_paths(url: &Url) -> Result<MultipathLun, Failure> {
    iscsi_client::open_paths(url, random)
        .await
        .map_err(|error| refused(error, &url.settings))
}

/// Returns whether this is the URL of a LUN over several sessions.
pub fn has_paths(text: &str) -> bool {
    Url::parse(text).is_ok_and(|url| url.settings.paths.are_several())
}

/// Logs in to a target, without attaching a LUN.
///
/// # Errors
/// Returns the same errors as [`open`].
pub async fn open_target(url: &Url) -> Result<Arc<RemoteTarget>, Failure> {
    log_in(&url.portal, &url.target, &url.settings).await
}

/// Like [`open_target`], without a URL.
///
/// # Errors
/// Returns the same errors as [`open`].
pub async fn log_in(
    portal: &Portal,
    target: &str,
    settings: &Settings,
) -> Result<Arc<RemoteTarget>, Failure> {
    let opened = iscsi_client::open_target(portal, target, settings, random);
    let opened = peers::announced(portal, login_time(settings), opened).await;
    opened.map_err(|error| refused(error, settings))
}

/// Queries the targets that a portal reports.
///
/// # Errors
/// Returns the same errors as [`open`].
pub async fn discover(portal: &Portal, settings: &Settings) -> Result<Vec<Discovered>, Failure> {
    let found = peers::announced(
        portal,
        login_time(settings),
        iscsi_client::discover(portal, settings, random),
    );
    found.await.map_err(|error| refused(error, settings))
}

/// Returns the key that limits the duration of a login, and its value.
fn login_time(settings: &Settings) -> (&'static str, Duration) {
    ("login-time", settings.login_time)
}

/// Converts an error of opening. If a login without a user name was rejected, the failure explains how to
/// specify one.
fn refused(error: OpenError, settings: &Settings) -> Failure {
    let failure = Failure::from(error);
    if failure.is_about_secrets() && settings.account.is_none() {
        return failure.and("name a user in the URL, as in iscsi://USER@HOST");
    }
    failure
}

/// Opens a unit as a disk, for access to its blocks.
///
/// # Errors
/// The unit is not a disk; the failure names its type.
pub async fn disk(unit: &Unit) -> Result<RemoteLun, Failure> {
    match LunAddress::parse(unit.lun().0) {
        LunAddress::Number(number) if number <= LUN_MAX => {
            Ok(unit.target().lun(number as u16).await?)
        }
        other => Err(Failure::failed(format!(
            "LUN {other} cannot be used as a disk"
        ))),
    }
}

/// Maximum LUN: the maximum of flat space addressing (SAM-5 4.7.7.4), as in URLs.
const LUN_MAX: u64 = 16_383;

/// Time limit for closing the RAID sets that the work has opened. Closing may have to flush a large page
/// cache. A set that is not closed is resynchronised, or replays its journal, when it is next opened.
const CLOSE_TIME: Duration = Duration::from_mins(1);
/// Time limit for logging out of sessions. Without a logout, peers would keep the sessions for a minute.
const FAREWELL_TIME: Duration = Duration::from_secs(10);

/// Runs the work in a runtime environment and an executor on this thread.
///
/// # Errors
/// The work failed, or a runtime environment could not be created.
pub fn run<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let world = Epoll::shared(EpollOptions::default()).map_err(Failure::failed)?;
    reactor::block_on(world, async {
        let result = work.await;
        let _ = reactor::timeout(CLOSE_TIME, raid::closed()).await;
        let _ = reactor::timeout(FAREWELL_TIME, async {
            for close in GRAMMAR.kinds().filter_map(|kind| kind.url()?.close) {
                close().await;
            }
        })
        .await;
        result
    })
}

/// Returns an error in a URL, with a mark at its position.
fn pointed_at(text: &str, error: &UrlError) -> Failure {
    let before = text
        .get(..error.at)
        .map_or(0, |before| before.chars().count());
    Failure::refused(format!(
        "{} (column {})\n  {}\n  {:before$}^",
        sentence(&error.problem),
        before + 1,
        secrets::masked_url(text),
        ""
    ))
}

fn sentence(problem: &UrlProblem) -> String {
    match problem {
        // This key is the rest of a password that contains a `?`.
        UrlProblem::Setting(SettingError::Unknown(key)) if key.contains('@') => {
            "not a key of an iSCSI URL; if it belongs to a secret, put that into a file (secret-file=PATH)"
                .to_owned()
        }
        UrlProblem::Setting(SettingError::Unknown(key)) => {
            let known: Vec<_> = Settings::keys().map(|(name, _)| name).collect();
            format!("unknown key `{key}`{}", hint(key, &known))
        }
        problem => problem.to_string(),
    }
}

/// Rejects a text with a secret, before parsing: an error message could quote a part of it.
fn refuse_secrets(text: &str) -> Result<(), Failure> {
    if !secrets::is_in(text) {
        return Ok(());
    }
    Err(Failure::refused(format!(
        "{}: every user can read a secret on the command line in the list of processes; put it into a file \
         (secret-file=PATH, target-secret-file=PATH) or the environment ({SECRET}, {TARGET_SECRET}); for a user \
         name with a colon, use the key user",
        secrets::masked_url(text)
    )))
}

/// Puts the secrets into the settings used for the login.
fn find_secrets(settings: &mut Settings) -> Result<(), Failure> {
    find_secret(
        settings.account.as_mut(),
        settings.secret_file.as_deref(),
        SECRET,
    )?;
    find_secret(
        settings.target_account.as_mut(),
        settings.target_secret_file.as_deref(),
        TARGET_SECRET,
    )
}

/// Finds the secret of one account. Does nothing if there is a secret file, because that is read at every
/// login.
fn find_secret(
    account: Option<&mut Credentials>,
    file: Option<&Path>,
    variable: &str,
) -> Result<(), Failure> {
    if file.is_some() {
        return Ok(());
    }
    let Some(account) = account else {
        return Ok(());
    };
    let secret = match secrets::in_environment(variable) {
        Some(secret) => secret,
        None => asked_for(&account.name, variable)?,
    };
    account.secret = Secret::new(&secret);
    Ok(())
}

fn asked_for(name: &str, variable: &str) -> Result<Zeroizing<Vec<u8>>, Failure> {
    secrets::ask(&format!("secret of {name}: "))
        .map_err(Failure::refused)?
        .ok_or_else(|| {
            Failure::refused(format!(
                "the secret of {name:?} is missing: set {variable}, or name a file that contains it"
            ))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(text: &str) -> String {
        url(text).expect_err(text).to_string()
    }

    #[test]
    fn a_mistake_in_a_url_is_pointed_at() {
        let said = refusal("iscsi://sään:x/iqn.x/0");
        let expected = "the port must be a number from 1 to 65535 (column 13)\n  \
             iscsi://sään:x/iqn.x/0\n              ^";
        assert_eq!(said, expected);
    }

    #[test]
    fn a_secret_on_the_command_line_is_refused_and_not_repeated() {
        for text in [
            "iscsi://joe%hush-hush-hush@host/iqn.x/0",
            "iscsi://host/iqn.x/0?target-user=san&target-secret=hush-hush-hush&chap=md5",
            "iscsi://joe%hush-hush-hush@host/iqn.x/nought",
            "iscsi://host/iqn.x/0?target_user=san&target_password=hush-hush-hush&tempo=9",
            "iscsi://joe%hush/hush@host/iqn.x/0",
            "iscsi://joe%hush?hush@host/iqn.x/0",
            "iscsi://joe%hush-hush",
            "iscsi://host/iqn.x/0?password=hush-hush-hush",
        ] {
            let said = refusal(text);
            assert!(!said.contains("hush") && said.contains("**"), "{said}");
        }
    }

    #[test]
    fn a_misspelt_key_is_answered_with_the_right_one() {
        let said = refusal("iscsi://host/iqn.x/0?conections=4");
        assert!(
            said.starts_with("unknown key `conections`; did you mean `connections`? (column 22)"),
            "{said}"
        );
    }

    #[test]
    fn a_url_without_its_slashes_is_told_of_them() {
        let [url, portal] = [
            |text| url(text).expect_err(text).to_string(),
            |text| portal(text).expect_err(text).to_string(),
        ] as [fn(&str) -> String; 2];
        let volume = |text| crate::parse(text).expect_err(text).to_string();
        for (text, whole) in [
            ("iscsi:/san1/iqn.x/0", "iscsi://san1/iqn.x/0"),
            ("iscsi:san1/iqn.x/0", "iscsi://san1/iqn.x/0"),
            ("nbds:/san1/x", "nbds://san1/x"),
            ("nbd+unix:/x?socket=/run/s", "nbd+unix:///x?socket=/run/s"),
        ] {
            for said in [url(text), portal(text), volume(text)] {
                assert!(
                    said.contains("two slashes") && said.contains(whole),
                    "{text}: {said}"
                );
            }
        }
        let said = url("iscsi:/san1/iqn.x/0?target-secret=hush-hush-hush");
        assert!(!said.contains("hush"), "{said}");
    }

    #[test]
    fn a_volume_is_no_portal() {
        let said = portal("ram:1GiB").expect_err("a volume").to_string();
        testkit::says(&said, &["`linerate serve --volume disk=ram:1GiB`"]);
        assert!(
            portal("ram").is_ok() && portal("ram:3260").is_ok(),
            "a host may have any name"
        );
    }

    #[test]
    fn the_documentation_has_every_key() {
        let page = include_str!("../../../../docs/urls.md");
        for (name, _) in Settings::keys() {
            assert!(page.contains(&format!("\n| `{name}` |")), "{name}");
        }
    }

    #[test]
    fn a_target_may_be_named_without_a_lun() {
        let lun = |text| {
            target_url(text)
                .unwrap_or_else(|failure| panic!("{text}: {failure}"))
                .1
        };
        assert_eq!(lun("iscsi://host/iqn.x?header-digest=crc32c"), None);
        assert_eq!(lun("iscsi://host/iqn.x"), None);
        assert_eq!(lun("iscsi://host/iqn.x/7"), Some(7));
        assert!(target_url("iscsi://host/iqn.x/x").is_err());
    }

    #[test]
    fn a_portal_is_written_as_people_write_hosts() {
        for (text, expected) in [
            ("san1", "san1:3260"),
            ("san1:3261", "san1:3261"),
            ("10.0.0.7", "10.0.0.7:3260"),
            ("::1", "[::1]:3260"),
            ("[::1]:3261", "[::1]:3261"),
            ("iscsi://san1:3261/", "san1:3261"),
        ] {
            assert_eq!(
                portal(text)
                    .unwrap_or_else(|failure| panic!("{failure}"))
                    .0
                    .to_string(),
                expected
            );
        }
    }
}
