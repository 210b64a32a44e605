//! An open LUN or export, where the two differ.

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
        /// The connection of requests.
        export: Arc<RemoteExport>,
        /// The connection of probes during loads. It is separate, so that a probe waits only for the network
        /// and for the server's CPU, and not behind data or for a thread that serves one connection. The same
        /// as `export` if the server allows only one connection.
        aside: Arc<RemoteExport>,
    },
}

/// The state reported by a session.
pub(super) struct Told {
    pub(super) connections: Vec<ConnectionStatistics>,
    /// The initiator's counters; `None` for an export.
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
    /// For requests that outlive this value.
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

    /// `None` for a LUN whose session's thread has ended, or whose session is not iSCSI. An export that is gone has no
    /// connections.
    pub(super) async fn told(&self) -> Option<Told> {
        match self {
            Device::Lun(lun) => {
                let statistics = lun.target().statistics().await?;
                Some(Told { connections: statistics.connections.clone(), session: Some(statistics) })
            }
            Device::Export { export, .. } => {
                let connection = |connection: nbd_client::ConnectionState| ConnectionStatistics {
                    cid: Cid(connection.number as u16), // the number of its channel, of at most 64
                    local: connection.local,
                    peer: connection.peer,
                    path: connection.path,
                };
                let connections = export.connections().await.into_iter().map(connection).collect();
                Some(Told { connections, session: None })
            }
        }
    }

    /// The time of one exchange: a NOP on this connection, or on any, with this many bytes. Over NBD it is a BLOCK_STATUS, and
    /// connection and length are ignored.
    pub(super) async fn ping(&self, by: Option<Cid>, bytes: u32) -> Result<Duration, NoTime> {
        match self {
            Device::Lun(lun) => ping(lun, by, bytes).await,
            Device::Export { export, .. } => status(export).await,
        }
    }

    /// The same during a load.
    pub(super) async fn ping_aside(&self) -> Result<Duration, NoTime> {
        match self {
            Device::Lun(lun) => ping(lun, None, 0).await,
            Device::Export { aside, .. } => status(aside).await,
        }
    }

    /// The negotiated parameters, if it is an export.
    pub(super) async fn nbd(&self, subject: &Subject) -> Option<NbdSession> {
        let Device::Export { export, .. } = self else { return None };
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

    /// Logs out, if possible. An export disconnects when it is dropped.
    pub(super) async fn close(self) {
        if let Device::Lun(lun) = self {
            lun.target().close().await;
        }
    }
}

async fn ping(lun: &RemoteLun, by: Option<Cid>, bytes: u32) -> Result<Duration, NoTime> {
    let data: Vec<u8> = (0..bytes).map(|index| index as u8 ^ (index >> 8) as u8).collect();
    let pong = lun.target().ping(by, &data).await.map_err(|error| match error {
        CommandError::Rejected => never("the target rejects the request"),
        error => NoTime::Failed(error.to_string()),
    })?;
    match pong.data.len() {
        echoed if echoed < data.len() => Err(never(&format!("only {echoed} bytes were returned"))),
        _ if pong.data != data => Err(never("the returned data differs from the sent data")),
        _ => Ok(pong.time),
    }
}

/// Always of the first block, whose allocation a server is likely to have in memory.
async fn status(export: &RemoteExport) -> Result<Duration, NoTime> {
    if export.session().allocation.is_none() {
        return Err(never(
            "the server does not support base:allocation, and NBD has no other request without storage \
             access or data",
        ));
    }
    let begun = reactor::now();
    export.allocation(Extent::new(0, 1), 1).await.map_err(|error: DeviceError| of_device(error))?;
    Ok(since(begun))
}

// The offered and negotiated keys of a session that determine how often a command waits.

/// Our offers. The target's MaxRecvDataSegmentLength is not negotiable: it is the value that the target
/// declared.
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

/// The negotiated keys.
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
        let parameters = Parameters { initial_r2t: true, ..Parameters::defaults(SessionType::Normal) };
        let offers = Offers { data_digest: vec![DigestKind::Crc32c], ..Offers::of_initiator() };
        let (asked, got) = (asked(&offers, &parameters), got(&parameters));
        assert_eq!((asked.initial_r2t, got.initial_r2t), (false, true));
        assert_eq!((asked.data_digest, got.data_digest), (true, false));
        assert_eq!(asked.target_segment_bytes, got.target_segment_bytes);
    }
}
