//! The configuration of a target, and its events for the driver.

use std::time::Duration;

use crate::frame::{Header, Opcode, PATHS_MAX};
use crate::login::{LoginRequest, Psk, Refusal, body};
use crate::pdu::{Command, Function, MESSAGE_BYTES_MAX};

/// Limits of a target.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Maximum frame size of its interfaces.
    pub frame_bytes: u16,
    /// Maximum size of a session's partial, waiting and running commands, in bytes. At least the length of
    /// the longest message, which is slightly more than 1 MiB.
    pub credit: u32,
    /// Limit on data to return by a session's running commands plus data not acknowledged by its initiator,
    /// in bytes.
    pub send_bytes_max: usize,
    /// Maximum number of outstanding requests of a session.
    pub queue_depth: u16,
    /// Maximum number of paths of a session.
    pub paths: u8,
    /// Maximum number of concurrent sessions. An eighth of them is reserved for initiators with keys.
    pub sessions_max: usize,
    /// A session ends if nothing arrives from it for this time, or no acknowledgement of sent messages.
    pub session_timeout: Duration,
    /// The share of this state machine among several on one target port: it determines the numbers of its sessions.
    pub share: Share,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            frame_bytes: crate::FRAME_BYTES_MAX as u16,
            credit: 8 << 20,
            send_bytes_max: 8 << 20,
            queue_depth: 128,
            paths: PATHS_MAX as u8,
            sessions_max: 256,
            session_timeout: Duration::from_secs(60),
            share: Share::ALL,
        }
    }
}

impl Config {
    /// Limits all values to their valid ranges.
    pub(super) fn checked(mut self) -> Config {
        let (shortest, longest) = (crate::FRAME_BYTES_MIN as u16, crate::FRAME_BYTES_MAX as u16);
        self.frame_bytes = self.frame_bytes.clamp(shortest, longest);
        self.credit = self.credit.max(MESSAGE_BYTES_MAX as u32);
        self.queue_depth = self.queue_depth.max(2);
        self.paths = self.paths.clamp(1, PATHS_MAX as u8);
        self.share = self.share.checked();
        self
    }
}

/// How an initiator is admitted.
#[derive(Clone, Debug)]
pub enum Admission {
    /// By name only, which is not authenticated. Frames are not sealed.
    Open,
    /// If it has this key. Frames are sealed.
    Key(Psk),
}

/// The access control of a target. `A` is a network address: a MAC address and an interface, or a socket address.
pub trait Directory<A> {
    /// Whether this initiator may log in to this target from this address. Access to LUNs is up to the driver.
    ///
    /// # Errors
    /// The reason for the refusal.
    fn admit(&self, initiator: &str, target: &str, from: &A) -> Result<Admission, Refusal>;

    /// The origin to which a login request counts: an address, or all addresses that one host can take. By
    /// default all requests have one origin.
    fn origin(&self, from: &A) -> u64 {
        let _ = from;
        0
    }

    /// The targets reported to this address.
    fn targets(&self, from: &A) -> Vec<String>;
}

/// Identifies a session of a target, uniquely within a state machine for any relevant period.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(pub(super) u32);

/// Identifies a command or function: its session, and the initiator's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskId {
    /// The session.
    pub session: SessionId,
    /// The initiator's number.
    pub number: u64,
}

/// An action for the driver.
#[derive(Debug, PartialEq, Eq)]
pub enum Event {
    /// An initiator has logged in.
    SessionBegan {
        /// Its session.
        session: SessionId,
        /// Its name, proven if `is_encrypted`.
        initiator: String,
        /// The initiator's port: sessions of one name with different ports are different I_T nexuses.
        port: u32,
        /// The target.
        target: String,
        /// Whether it has proven that it has the key.
        is_encrypted: bool,
    },
    /// The last frame handled was a login request, which was refused.
    LoginRefused {
        /// The name in the request.
        initiator: String,
        /// The target in the request.
        target: String,
        /// The reason.
        refusal: Refusal,
    },
    /// A session has ended. The driver aborts its commands, and calls [`super::Target::quiesced`] once none
    /// of them can reach the medium any more; until then the initiator's next session waits.
    SessionEnded {
        /// Its identifier.
        session: SessionId,
        /// The reason.
        reason: SessionEnd,
    },
    /// A command to start. The driver completes it with [`super::Target::respond`].
    Command {
        /// Its task.
        task: TaskId,
        /// The command with its data.
        command: Command,
    },
    /// A function to execute; the driver completes it with [`super::Target::function_done`]. Commands ended
    /// by the function must also be completed, with TASK ABORTED.
    Function {
        /// Its task.
        task: TaskId,
        /// The function. Queries, and ABORT TASK for a command that is not running, are handled internally.
        function: Function,
        /// The logical unit, for the functions that concern one.
        lun: [u8; 8],
        /// The running command, for ABORT TASK.
        referenced: Option<TaskId>,
    },
    /// The initiator has received the response sent by [`super::Target::respond_with_receipt`].
    Received {
        /// The command.
        task: TaskId,
    },
}

/// Why a session has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionEnd {
    /// Its initiator closed it.
    Disconnected,
    /// The driver closed it.
    Closed,
    /// It was replaced by another session of the same initiator and port.
    Replaced,
    /// Nothing was received for the timeout, or sent messages were not acknowledged.
    Silent,
    /// The initiator violated the protocol.
    Misbehaved,
}

/// Assigns frames to several state machines on one target port, one per core.
///
/// ```text
///   frame of a session    session % count
///   login request         (hash of initiator and target + port) % count: all of a nexus to one, consecutive ports to each in turn
///   others                any machine
/// ```
///
/// Sessions of one nexus replace each other, resume, and wait for each other's end, all within one state
/// machine. The session number alone determines the machine, so that a network filter can distribute frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// The index of this state machine, below `count`.
    pub index: u32,
    /// The number of state machines, at least 1.
    pub count: u32,
}

impl Share {
    /// A single state machine with all sessions.
    pub const ALL: Share = Share { index: 0, count: 1 };

    /// The state machine that handles a frame; `None` for a malformed login request.
    pub fn owner(&self, header: &Header, frame: &mut [u8]) -> Option<u32> {
        match header.opcode {
            _ if self.count <= 1 => Some(self.index),
            Opcode::LoginRequest => {
                let (request, _) = LoginRequest::parse(body(header, frame)?)?;
                let hash = fnv_1a(&[
                    request.initiator.as_bytes(),
                    &[0],
                    request.target.as_bytes(),
                ]);
                Some(hash.wrapping_add(request.port) % self.count)
            }
            Opcode::Discovery | Opcode::LoginReply => Some(self.index),
            Opcode::Request
            | Opcode::Reply
            | Opcode::Disconnect
            | Opcode::AckRequest
            | Opcode::Ack => Some(header.session % self.count),
        }
    }

    /// Whether a session with this number belongs to this state machine.
    pub(super) fn has(&self, session: u32) -> bool {
        session % self.count == self.index
    }

    /// Limits all values to their valid ranges.
    pub(super) fn checked(self) -> Share {
        let count = self.count.max(1);
        Share {
            index: self.index.min(count - 1),
            count,
        }
    }
}

/// FNV-1a. The hash need not be unpredictable, since initiators can choose the port anyway.
fn fnv_1a(pieces: &[&[u8]]) -> u32 {
    let step = |hash: u32, byte: &u8| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193);
    pieces.iter().copied().flatten().fold(0x811c_9dc5, step)
}
