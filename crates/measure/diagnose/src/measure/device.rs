//! An open LUN or export, with the operations that differ between iSCSI and NBD.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use block::{BlockDevice, DeviceError, Extent};
use iscsi::negotiate::{DigestKind, Offers, Parameters};
use iscsi::pdu::Cid;
use iscsi_client::{CommandError, ConnectionStatistics, RemoteLun, Statistics};
use model::Keys;
use nbd_client::flags::transmission;
use nbd_client::{RemoteExport, ReplyForm};

use crate::NbdSession;
use crate::measure::Subject;
use crate::measure::probe::{NoTime, never, of_device, since};

/// An open session.
#[derive(Clone)]
pub(super) enum Device {
    Lun(Arc<RemoteLun>),
    Export {
        /// The connection for requests.
        export: Arc<RemoteExport>,
        /// The connection for probes during loads. It is separate, so that a probe waits only for the network
        /// and the server's CPU. On the same connection, it would also wait behind data, or for the thread
        /// that serves the connection. If the server allows only one connection, this is the same as
        /// `export`.
        aside: Arc<RemoteExport>,
    },
}

/// The state that a session reports.
pub(super) struct Told {
    pub(super) connections: Vec<ConnectionStatistics>,
    /// The statistics of the initiator; `None` for an export.
    pub(super) session: Option<Statistics>,
}

impl Deref for Device {
    type Target = dyn BlockDevice;

    fn deref(&self) -> &Self::Target {
        match self {
            Device::Lun(lun) => &**lun,
            Device::Export { export, .. } => &**export,
        }
    }
}

impl Device {
    /// Returns the device for requests that may outlive this value.
    pub(super) fn shared(&self) -> Arc<dyn BlockDevice> {
        match self {
            Device::Lun(lun) => lun.clone(),
            Device::Export { export, .. } => export.clone(),
        }
    }

    pub(super) fn lun(&self) -> Option<&Arc<RemoteLun>> {
        match self {
            Device::Lun(lun) => Some(lun),
            Device::Export { .. } => None,
        }
    }

    /// Returns the state of the session. Returns `None` for a LUN if the session's thread has ended, or if
    /// the session is not an iSCSI session. A lost export has no connections.
    pub(super) async fn told(&self) -> Option<Told> {
        match self {
            Device::Lun(lun) => {
                let statistics = lun.target().statistics().await?;
                Some(Told {
                    connections: statistics.connections.clone(),
                    session: Some(statistics),
                })
            }
            Device::Export { export, .. } => {
                let connection = |connection: nbd_client::ConnectionState| ConnectionStatistics {
                    cid: Cid(connection.number as u16), // the number of its channel, of at most 64
                    local: connection.local,
                    peer: connection.peer,
                    path: connection.path,
                };
                let connections = export
                    .connections()
                    .await
                    .into_iter()
                    .map(connection)
                    .collect();
                Some(Told {
                    connections,
                    session: None,
                })
            }
        }
    }

    /// Returns the time of one exchange: a NOP with this number of bytes, on this connection or on any. Over
    /// NBD, it is a BLOCK_STATUS; connection and length are ignored.
    pub(super) async fn ping(&self, by: Option<Cid>, bytes: u32) -> Result<Duration, NoTime> {
        match self {
            Device::Lun(lun) => ping(lun, by, bytes).await,
            Device::Export { export, .. } => status(export).await,
        }
    }

    /// Returns the time of an exchange during a load.
    pub(super) async fn ping_aside(&self) -> Result<Duration, NoTime> {
        match self {
            Device::Lun(lun) => ping(lun, None, 0).await,
            Device::Export { aside, .. } => status(aside).await,
        }
    }

    /// Returns the negotiated parameters of an export; `None` for a LUN.
    pub(super) async fn nbd(&self, subject: &Subject) -> Option<NbdSession> {
        let Device::Export { export, .. } = self else {
            return None;
        };
        let session = export.session();
        let replies = match session.form {
            ReplyForm::Simple => "simple",
            ReplyForm::Structured => "structured",
            ReplyForm::Extended => "extended",
        };
        Some(NbdSession {
            replies: replies.to_owned(),
            encrypted: subject.is_encrypted(),
            unix_socket: subject.is_local(),
            multi_conn: session.export.flags & transmission::CAN_MULTI_CONN != 0,
            base_allocation: session.allocation.is_some(),
            connections: u16::try_from(export.connections().await.len()).unwrap_or(u16::MAX),
        })
    }

    /// Logs out if possible. An export disconnects when it is dropped.
    pub(super) async fn close(self) {
        if let Device::Lun(lun) = self {
            lun.target().close().await;
        }
    }
}

async fn ping(lun: &RemoteLun, by: Option<Cid>, bytes: u32) -> Result<Duration, NoTime> {
    let data: Vec<u8> = (0..bytes)
        .map(|index| index as u8 ^ (index >> 8) as u8)
        .collect();
    let pong = lun
        .target()
        .ping(by, &data)
        .await
        .map_err(|error| match error {
            CommandError::Rejected => never("the target rejects the request"),
            error => NoTime::Failed(error.to_string()),
        })?;
    match pong.data.len() {
        echoed if echoed < data.len() => Err(never(&format!("only {echoed} bytes were returned"))),
        _ if pong.data != data => Err(never("the returned data differs from the sent data")),
        _ => Ok(pong.time),
    }
}

/// Returns the time of a BLOCK_STATUS of the first block, whose allocation a server is likely to have in
/// memory.
async fn status(export: &RemoteExport) -> Result<Duration, NoTime> {
    if export.session().allocation.is_none() {
        return Err(never(
            "the server does not support base:allocation, and NBD has no other request without storage \
             access or data",
        ));
    }
    let begun = reactor::now();
    export
        .allocation(Extent::new(0, 1), 1)
        .await
        .map_err(|error: DeviceError| of_device(error))?;
    Ok(since(begun))
}

// The keys of a session that determine how often a command waits: those that the client offered, and those
// that were negotiated.

/// Returns the offered keys. The target's MaxRecvDataSegmentLength is not negotiable, so it is the value that
/// the target declared.
pub(super) fn asked(offers: &Offers, got: &Parameters) -> Keys {
    Keys {
        immediate_data: offers.immediate_data,
        initial_r2t: offers.initial_r2t,
        first_burst_bytes: offers.first_burst_length,
        max_burst_bytes: offers.max_burst_length,
        outstanding_r2ts: offers.max_outstanding_r2t,
        target_segment_bytes: got.peer_max_recv_data_segment_length,
        initiator_segment_bytes: offers.max_recv_data_segment_length,
        header_digest: offers.header_digest.contains(&DigestKind::Crc32c),
        data_digest: offers.data_digest.contains(&DigestKind::Crc32c),
    }
}

/// Returns the negotiated keys.
pub(super) fn got(got: &Parameters) -> Keys {
    Keys {
        immediate_data: got.immediate_data,
        initial_r2t: got.initial_r2t,
        first_burst_bytes: got.first_burst_length,
        max_burst_bytes: got.max_burst_length,
        outstanding_r2ts: got.max_outstanding_r2t,
        target_segment_bytes: got.peer_max_recv_data_segment_length,
        initiator_segment_bytes: got.local_max_recv_data_segment_length,
        header_digest: got.header_digest == DigestKind::Crc32c,
        data_digest: got.data_digest == DigestKind::Crc32c,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use iscsi::negotiate::SessionType;

    #[test]
    fn what_is_asked_for_is_ours_and_what_is_got_is_agreed_on() {
        let parameters = Parameters {
            initial_r2t: true,
            ..Parameters::defaults(SessionType::Normal)
        };
        let offers = Offers {
            data_digest: vec![DigestKind::Crc32c],
            ..Offers::of_initiator()
        };
        let (asked, got) = (asked(&offers, &parameters), got(&parameters));
        assert_eq!((asked.initial_r2t, got.initial_r2t), (false, true));
        assert_eq!((asked.data_digest, got.data_digest), (true, false));
        assert_eq!(asked.target_segment_bytes, got.target_segment_bytes);
    }
}
