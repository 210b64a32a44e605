//! Between which ends a cell is measured, where whoever measures makes the way to the storage too: a lab's link and
//! distance, TCP's window, and what a session agrees on.

use serde::{Deserialize, Serialize};

use model::{Direction, Keys};

/// The way to the storage that a cell is measured over. Two cells with the same setting need nothing made anew.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Setting {
    /// Which of a suite's questions the cell helps to answer.
    pub part: Part,
    /// How the data go.
    pub way: Way,
    /// What the link carries in each direction, headers and gaps of Ethernet included, in bits a second.
    pub link_bits_per_s: f64,
    /// The time there and back that the link adds, in milliseconds.
    pub rtt_ms: f64,
    /// The largest IP packet, in bytes.
    pub mtu: u32,
    /// The share of packets that the link loses, from 0 to 1.
    #[serde(default)]
    pub loss: f64,
    /// What TCP may have on the way in each direction of a connection, in bytes; as much as the system likes if `None`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tcp_window_bytes: Option<u32>,
    /// TCP connections of each session.
    pub connections: u16,
    /// Sessions, each of which has as many requests under way as the workload says.
    pub sessions: u16,
    /// Commands that the target lets be under way in a session; its own choice if `None`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command_window: Option<u32>,
    /// TCP's congestion control at both ends: `cubic`, `bbr`, `reno`.
    pub congestion: String,
}

/// A question that a WAN suite asks: a table of document 002, or an axis that it names and does not print.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// Request size by outstanding commands by round trip, for reads and both ways of writing.
    Wan,
    /// TCP alone, with a small and with a large window.
    Tcp,
    /// The same as [`Part::Wan`] on Gigabit Ethernet without a delay.
    Lan,
    /// Connections of a session.
    Connections,
    /// Sessions.
    Sessions,
    /// The largest packet.
    Mtu,
    /// The target's command window.
    CommandWindow,
    /// TCP's congestion control, without and with loss.
    Congestion,
}

/// How data cross the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Way {
    /// Plain TCP without iSCSI.
    Tcp {
        /// From the initiator to the target; the other way if not.
        to_target: bool,
    },
    /// SCSI reads.
    Reads,
    /// Writes whose data all wait to be asked for (`InitialR2T=Yes`, `ImmediateData=No`): document 002's
    /// "FirstBurstLength = 0".
    MostSolicited,
    /// Writes whose data all come unasked (`InitialR2T=No`, `ImmediateData=Yes`, FirstBurstLength at least the request).
    MostUnsolicited,
}

impl Way {
    /// Which way that is for the data.
    pub fn direction(self) -> Direction {
        match self {
            Way::Reads | Way::Tcp { to_target: false } => Direction::Read,
            Way::MostSolicited | Way::MostUnsolicited | Way::Tcp { to_target: true } => Direction::Write,
        }
    }

    /// What is offered at login, the best of it: bursts of 16 MiB and eight R2Ts at once. `None` for plain TCP.
    pub fn keys(self) -> Option<Keys> {
        let asked = match self {
            Way::Tcp { .. } => return None,
            Way::MostSolicited => true,
            Way::Reads | Way::MostUnsolicited => false,
        };
        Some(Keys {
            immediate_data: !asked,
            initial_r2t: asked,
            first_burst_bytes: LONGEST_BYTES,
            max_burst_bytes: 16_776_192, // 2^24 - 1024, as open-iscsi offers it
            outstanding_r2ts: 8,
            target_segment_bytes: LONGEST_BYTES,
            initiator_segment_bytes: LONGEST_BYTES,
            header_digest: false,
            data_digest: false,
        })
    }
}

/// The longest request of document 002, which must fit into a first burst.
const LONGEST_BYTES: u32 = 256 << 10;
