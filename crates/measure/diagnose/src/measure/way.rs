//! The way to the LUN: a session that is made again when it is lost, so that one probe that a target takes ill does not
//! end all the others.

use std::sync::Arc;
use std::time::Duration;

use initiator::{RemoteLun, Settings, Statistics, Url};

use backends::Failure;
use backends::remote;

/// A session with the LUN, or none for the moment.
pub(super) struct Way {
    url: Url,
    lun: Option<Arc<RemoteLun>>,
    /// How often it was made again.
    again: u32,
}

/// A target that ends more sessions than this does not want to be asked.
const AGAIN_MAX: u32 = 12;
/// How long a target may take to let us in; unless the URL wants less.
const LOGIN_TIME: Duration = Duration::from_secs(10);
/// Longer than any diagnosis.
const NEVER: Duration = Duration::from_secs(3600);

impl Way {
    /// Logs in.
    pub(super) async fn open(url: &Url) -> Result<Way, Failure> {
        let url = Url { settings: patient(&url.settings), ..url.clone() };
        let lun = Arc::new(remote::open(&url).await?);
        Ok(Way { url, lun: Some(lun), again: 0 })
    }

    /// The LUN, in a session that is alive as far as is known. A sentence says why there is none.
    pub(super) async fn lun(&mut self) -> Result<Arc<RemoteLun>, String> {
        if let Some(lun) = &self.lun {
            if told(lun).await.is_some_and(|told| !told.connections.is_empty()) {
                return Ok(Arc::clone(lun));
            }
            self.lun = None;
        }
        if self.again >= AGAIN_MAX {
            return Err(format!("the session was lost {} times", self.again));
        }
        self.again += 1;
        let opened = remote::open(&self.url).await;
        let lun = Arc::new(opened.map_err(|failure| format!("the session was lost, and then: {failure}"))?);
        self.lun = Some(Arc::clone(&lun));
        Ok(lun)
    }

    /// Leaves the session without a word: it does not answer any more.
    pub(super) fn give_up(&mut self) {
        self.lun = None;
    }

    /// How it is reached.
    pub(super) fn url(&self) -> &Url {
        &self.url
    }

    /// Logs out, as far as there is anybody to listen.
    pub(super) async fn close(self) {
        if let Some(lun) = self.lun {
            lun.target().close().await;
        }
    }
}

/// What the session of a LUN tells of itself.
pub(super) async fn told(lun: &RemoteLun) -> Option<Statistics> {
    lun.target().statistics().await
}

/// A session that is lost is to be seen at once, and made again by us. And a command that we give up is aborted and no
/// more: whoever asks why something is slow must not reset other people's LUN.
fn patient(settings: &Settings) -> Settings {
    Settings {
        reconnect_time: Duration::ZERO,
        login_time: settings.login_time.min(LOGIN_TIME),
        abort_time: NEVER,
        reset_time: NEVER,
        ..settings.clone()
    }
}
