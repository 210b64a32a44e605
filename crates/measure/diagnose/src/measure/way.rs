//! The path to the LUN or export: a session that is reopened when it is lost, so that a probe that breaks it
//! does not affect the other probes.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use iscsi_client::{Settings, Url};
use nbd_client::flags::transmission;

use backends::Failure;
use backends::{nbd, remote};
use reactor::StreamOptions;

use crate::measure::Subject;
use crate::measure::device::Device;

/// A session, which may be closed.
pub(super) struct Way {
    subject: Subject,
    device: Option<Device>,
    /// The number of times that the session was reopened.
    again: u32,
}

/// The address of a target, and the options of the session's sockets.
pub(super) type Address = (SocketAddr, StreamOptions);

/// Maximum number of sessions to reopen. A target that ends more sessions is not probed further.
const AGAIN_MAX: u32 = 12;
/// The timeout of the login, unless the URL sets a shorter one.
const LOGIN_TIME: Duration = Duration::from_secs(10);
/// A time longer than any diagnosis.
const NEVER: Duration = Duration::from_secs(3600);

impl Way {
    /// Logs in.
    pub(super) async fn open(subject: &Subject) -> Result<Way, Failure> {
        let subject = patient(subject);
        let device = open(&subject).await?;
        Ok(Way {
            subject,
            device: Some(device),
            again: 0,
        })
    }

    /// Returns the device, in a session that is not known to be lost. On failure, returns the reason.
    pub(super) async fn device(&mut self) -> Result<Device, String> {
        if let Some(device) = &self.device {
            if device
                .told()
                .await
                .is_some_and(|told| !told.connections.is_empty())
            {
                return Ok(device.clone());
            }
            self.device = None;
        }
        if self.again >= AGAIN_MAX {
            return Err(format!("the session was lost {} times", self.again));
        }
        self.again += 1;
        let opened = open(&self.subject).await;
        let device =
            opened.map_err(|failure| format!("the session was lost, and then: {failure}"))?;
        self.device = Some(device.clone());
        Ok(device)
    }

    /// Abandons an unresponsive session without a logout.
    pub(super) fn give_up(&mut self) {
        self.device = None;
    }

    /// The LUN or export.
    pub(super) fn subject(&self) -> &Subject {
        &self.subject
    }

    /// Returns the target's address for further TCP connections. `None` over NBD, because NBD servers log an error for
    /// each client that disconnects without a handshake.
    pub(super) fn address(&self, device: &Device) -> Option<Address> {
        let Subject::Lun(url) = &self.subject else {
            return None;
        };
        Some((
            device.lun()?.target().nexus().address,
            url.settings.stream.clone(),
        ))
    }

    /// Logs out if possible.
    pub(super) async fn close(self) {
        if let Some(device) = self.device {
            device.close().await;
        }
    }
}

async fn open(subject: &Subject) -> Result<Device, Failure> {
    let url = match subject {
        Subject::Lun(url) => return Ok(Device::Lun(Arc::new(remote::open(url).await?))),
        Subject::Export(url) => &nbd::beside(url),
    };
    let export = Arc::new(nbd::open(url).await?);
    // If a server allows only one connection, it rejects a second one.
    let aside = match export.session().export.flags & transmission::CAN_MULTI_CONN != 0 {
        true => {
            let mut url = url.clone();
            url.options.connections = 1;
            Arc::new(nbd::open(&url).await?)
        }
        false => Arc::clone(&export),
    };
    Ok(Device::Export { export, aside })
}

/// Disables automatic reconnection, so that a lost session is detected immediately and reopened by this
/// module. A command that times out is only aborted, because a diagnosis must not reset a LUN that others
/// use.
fn patient(subject: &Subject) -> Subject {
    match subject {
        Subject::Lun(url) => Subject::Lun(Box::new(Url {
            settings: patient_settings(&url.settings),
            ..(**url).clone()
        })),
        Subject::Export(url) => {
            let mut url = url.clone();
            url.options.timeout = url.options.timeout.min(LOGIN_TIME);
            Subject::Export(url)
        }
    }
}

fn patient_settings(settings: &Settings) -> Settings {
    Settings {
        reconnect_time: Duration::ZERO,
        login_time: settings.login_time.min(LOGIN_TIME),
        abort_time: NEVER,
        reset_time: NEVER,
        ..settings.clone()
    }
}
