//! Common parts of back ends whose storage is on another host (a peer). These back ends are written as URLs
//! and share one type; a [`UrlKind`] has the specifics of each kind. [`channels`] finds the channels of an
//! open device, whatever layers are above it.
//!
//! A peer may accept a connection and then not respond, so that a login takes as long as its time limit. The
//! first such wait of the process is announced. Flight recorders keep the recent PDUs of all iSCSI sessions,
//! for analysis with Wireshark.

use std::fmt::Display;
use std::path::Path;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::Duration;

use iscsi_client::{FlightRecorder, Settings};
use volume::backend::{Backend, BlockPlaces, Kind, Opened, Opening, Options, UrlKind};
use volume::spec::{Problem, Spec, Time, Written};

use crate::failure::{Failure, FailureKind};
use crate::secrets::masked_url;

pub use failover::{ChannelStatus, Channelled, Status};

/// Creates a kind of back end that is written as a URL.
pub(crate) const fn kind(
    name: &'static str,
    usage: &'static str,
    about: &'static str,
    url: &'static UrlKind,
) -> Kind {
    Kind {
        name,
        usage,
        about,
        blocks: BlockPlaces::Store,
        options: Options::Url(url),
        read,
    }
}

/// Storage on another host, by its URL.
#[derive(Debug)]
struct RemoteBackend {
    kind: &'static Kind,
    /// The text after the scheme and its colon.
    argument: String,
    options: Vec<String>,
}

fn read(written: &Written<'_>) -> Result<Arc<dyn Backend>, Problem> {
    let argument = written.argument();
    let wrong = |sentence| Problem::new(argument.at.clone(), sentence);
    let (kind, text) = (written.kind(), argument.text.clone());
    let backend = RemoteBackend {
        kind,
        argument: text,
        options: written.own_options(),
    };
    let text = text_of(&backend);
    require_slashes(&text, kind).map_err(wrong)?;
    (backend.url().check)(&text).map_err(wrong)?;
    Ok(Arc::new(backend))
}

impl RemoteBackend {
    fn url(&self) -> &'static UrlKind {
        self.kind.url().expect("its kind was made by `kind`")
    }
}

impl Backend for RemoteBackend {
    fn kind(&self) -> &'static Kind {
        self.kind
    }

    fn argument(&self) -> String {
        self.argument.clone()
    }

    /// Includes the options `socket` and `station`, because a URL with one of these has no host.
    fn place(&self) -> String {
        place_with(self, &["socket", "station"])
    }

    fn options(&self) -> Vec<String> {
        self.options.clone()
    }

    fn keeps_data(&self) -> bool {
        true
    }

    fn is_remote(&self) -> bool {
        true
    }

    fn open<'a>(&'a self, opening: &'a Opening) -> Opened<'a> {
        (self.url().open)(text_of(self), opening)
    }
}

/// Returns the argument of a back end, followed by its options with these keys.
pub(crate) fn place_with(backend: &dyn Backend, keys: &[&str]) -> String {
    let options = backend.options().into_iter();
    let selecting = options.filter(|option| {
        option
            .split_once('=')
            .is_some_and(|(key, _)| keys.contains(&key))
    });
    let mut parts: Vec<String> = selecting.collect();
    parts.sort_unstable();
    parts.insert(0, backend.argument());
    parts.join(" ")
}

/// Returns the text of a back end without the options common to all volumes. If the back end is written as a
/// URL, this is the URL.
pub(crate) fn text_of(backend: &dyn Backend) -> String {
    let options = backend.options();
    let mark = if options.is_empty() { "" } else { "?" };
    format!(
        "{}:{}{mark}{}",
        backend.kind().name,
        backend.argument(),
        options.join("&")
    )
}

/// Returns the URL of a back end, if it has one of these schemes.
pub(crate) fn url_of(backend: &dyn Backend, schemes: &[&str]) -> Option<String> {
    schemes
        .contains(&backend.kind().name)
        .then(|| text_of(backend))
}

/// Returns whether a text begins with one of these schemes.
pub(crate) fn has_scheme(text: &str, schemes: &[&str]) -> bool {
    text.split_once("://")
        .is_some_and(|(scheme, _)| schemes.contains(&scheme))
}

/// Rejects a URL of this kind in which slashes are missing, such as `iscsi:/HOST/IQN/0`.
///
/// # Errors
/// Returns a message that suggests the correct URL.
pub(crate) fn require_slashes(text: &str, kind: &Kind) -> Result<(), String> {
    let scheme = kind.name;
    let rest = text
        .strip_prefix(scheme)
        .and_then(|rest| rest.strip_prefix(':'));
    let Some(rest) = rest.filter(|rest| kind.url().is_some() && !rest.starts_with("//")) else {
        return Ok(());
    };
    // A URL of a Unix socket has no host, and its path begins with another slash.
    let root = if scheme.ends_with("+unix") { "/" } else { "" };
    let meant = masked_url(&format!(
        "{scheme}://{root}{}",
        rest.trim_start_matches('/')
    ));
    Err(format!(
        "a URL has two slashes after `{scheme}:`; did you mean {meant}?"
    ))
}

/// The devices with channels that this process has opened, by the names of their stores.
static CHANNELLED: Mutex<Vec<(String, Weak<dyn Channelled>)>> = Mutex::new(Vec::new());

/// Returns the device opened most recently as the store of this volume, if it has channels and is still open.
pub fn channels(spec: &Spec) -> Option<Arc<dyn Channelled>> {
    let (url, opened) = (
        text_of(spec.store()),
        CHANNELLED.lock().unwrap_or_else(PoisonError::into_inner),
    );
    opened
        .iter()
        .rev()
        .filter(|(other, _)| *other == url)
        .find_map(|(_, device)| device.upgrade())
}

/// Registers the device of a URL for [`channels`].
pub(crate) fn keep_channels(url: String, device: &Arc<impl Channelled + 'static>) {
    let device: Weak<dyn Channelled> = Arc::downgrade(device) as _;
    let mut opened = CHANNELLED.lock().unwrap_or_else(PoisonError::into_inner);
    opened.retain(|(_, device)| device.strong_count() > 0);
    opened.push((url, device));
}

/// Returns the reason why a device cannot be reached; `None` if any of its channels is connected.
pub async fn unreachable(device: &dyn Channelled) -> Option<Failure> {
    let channels = device.status().await?.channels;
    let is_lost = channels.iter().all(|channel| !channel.is_connected);
    let why = channels
        .into_iter()
        .find_map(|channel| channel.last_error)
        .filter(|_| is_lost)?;
    Some(Failure::new(
        FailureKind::Unreachable,
        format_args!("no path is available: {why}"),
    ))
}

/// The time to wait before an announcement. Shorter waits are normal, for instance while a server starts or a
/// path fails over.
const ANNOUNCED_AFTER: Duration = Duration::from_secs(2);

static ANNOUNCE: OnceLock<fn(&str)> = OnceLock::new();
static IS_ANNOUNCED: AtomicBool = AtomicBool::new(false);

/// Sets the function that announces a wait to the user, once per process. Without it, waits are not
/// announced.
pub fn announce_waits_by(announce: fn(&str)) {
    let _ = ANNOUNCE.set(announce); // later calls have no effect
}

// Announcements of peers that accept a connection and do not respond. Without an announcement, a login could
// take as long as its time limit without any output. Only the first such wait of the process is announced.

/// Awaits the response of a peer. `limit` is the URL key that limits the wait, with its value.
pub(crate) async fn announced<T>(
    peer: impl Display,
    (key, limit): (&str, Duration),
    answer: impl Future<Output = T>,
) -> T {
    let announce = || {
        if let Some(announce) = ANNOUNCE.get()
            && !IS_ANNOUNCED.swap(true, Ordering::Relaxed)
        {
            announce(&format!(
                "waiting for a response from {peer}, for up to {} ({key})",
                Time(limit)
            ));
        }
    };
    slow(answer, announce).await
}

/// Awaits `work`, and calls `announce` if it takes longer than [`ANNOUNCED_AFTER`].
async fn slow<T>(work: impl Future<Output = T>, announce: impl FnOnce()) -> T {
    let mut work = pin!(work);
    match reactor::timeout(ANNOUNCED_AFTER, work.as_mut()).await {
        Ok(output) => output,
        Err(_) => {
            announce();
            work.await
        }
    }
}

/// The environment variable that names the directory in which a file is written for each lost connection.
const RECORD_FOLDER: &str = "LINERATE_RECORD_DIR";

static RECORDERS: Mutex<Vec<FlightRecorder>> = Mutex::new(Vec::new());

/// Adds the sessions of these settings to [`recordings`].
pub fn record(settings: &Settings) {
    if let Some(folder) = std::env::var_os(RECORD_FOLDER) {
        settings.recorder.write_endings_to(Path::new(&folder));
    }
    RECORDERS
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .push(settings.recorder.clone());
}

/// Returns everything recorded so far, as a file for Wireshark.
pub fn recordings() -> Vec<u8> {
    iscsi_client::pcapng(
        RECORDERS
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .iter(),
    )
}

/// Fills `bytes` with random numbers, for session identifiers and CHAP challenges.
///
/// # Panics
/// If the system cannot provide random numbers.
pub fn random(bytes: &mut [u8]) {
    getrandom::fill(bytes).expect("the system has random numbers once it has started");
}

#[cfg(test)]
mod tests {
    use reactor::Alone;

    use super::*;

    #[test]
    fn a_wait_is_announced_after_two_seconds() {
        for (milliseconds, expected) in [(1900, 0), (2100, 1), (15_000, 1)] {
            let mut announced = 0;
            reactor::block_on(Alone::virtual_time(), async {
                slow(reactor::sleep(Duration::from_millis(milliseconds)), || {
                    announced += 1
                })
                .await;
            });
            assert_eq!(announced, expected, "{milliseconds} ms");
        }
    }
}
