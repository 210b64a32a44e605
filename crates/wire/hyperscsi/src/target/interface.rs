//! What a target is told at its beginning, and what it tells its driver.

use std::time::Duration;

use crate::frame::{Header, Opcode, PATHS_MAX};
use crate::login::{LoginRequest, Psk, Refusal, body};
use crate::pdu::{Command, Function, MESSAGE_BYTES_MAX};

/// Limits of a target.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Bytes of the longest frame that its interfaces carry.
    pub frame_bytes: u16,
    /// Bytes of commands that a session may have here, partial, waiting or at work; 1 MiB and some at least.
    pub credit: u32,
    /// Bytes of data that a session's running commands may return and that its initiator has not acknowledged.
    pub send_bytes_max: usize,
    /// Requests that a session may have without an answer.
    pub queue_depth: u16,
    /// Paths of a session.
    pub paths: u8,
    /// Sessions at once. An eighth of them is for initiators with keys alone.
    pub sessions_max: usize,
    /// A session from which nothing comes for so long, or no acknowledgement of what was sent, has ended.
    pub session_timeout: Duration,
    /// Which of several machines at its place this is: its sessions have their numbers by that.
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
    /// With what is out of range brought into it.
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

/// How an initiator is let in.
#[derive(Clone, Debug)]
pub enum Admission {
    /// By its name alone, which anybody can give. Frames are not sealed.
    Open,
    /// If it knows this key. Frames are sealed.
    Key(Psk),
}

/// Who may log in to what. `A` is an address of the network: a MAC address and an interface, or a socket address.
pub trait Directory<A> {
    /// Whether this initiator may log in to this target from there. LUNs are the driver's matter.
    ///
    /// # Errors
    /// Why not.
    fn admit(&self, initiator: &str, target: &str, from: &A) -> Result<Admission, Refusal>;

    /// What counts as one origin of requests to log in: an address, or all those that one host can take. By default all are one.
    fn origin(&self, from: &A) -> u64 {
        let _ = from;
        0
    }

    /// The targets that somebody there is told of.
    fn targets(&self, from: &A) -> Vec<String>;
}

/// A session of a target. No two of one machine are the same within any relevant time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(pub(super) u32);

/// A command or function: its session, and the initiator's number of it.
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
        /// Whether it has proven to know the key.
        is_encrypted: bool,
    },
    /// The frame that was handled last asked for a login, which was refused.
    LoginRefused {
        /// The name that it gave.
        initiator: String,
        /// The target that it named.
        target: String,
        /// Why.
        refusal: Refusal,
    },
    /// A session has ended. The driver aborts its commands, and calls [`super::Target::quiesced`] when none of them
    /// can reach the medium any more: until then the initiator's next session waits.
    SessionEnded {
        /// Which.
        session: SessionId,
        /// Why.
        reason: SessionEnd,
    },
    /// A command to begin. It ends by [`super::Target::respond`].
    Command {
        /// Its task.
        task: TaskId,
        /// The command with its data.
        command: Command,
    },
    /// A function to execute; it ends by [`super::Target::function_done`]. The commands that it ends are answered too,
    /// with TASK ABORTED.
    Function {
        /// Its task.
        task: TaskId,
        /// The function. Questions, and ABORT TASK for a command that is not running, never come here.
        function: Function,
        /// The logical unit, for the functions that concern one.
        lun: [u8; 8],
        /// The running command, for ABORT TASK.
        referenced: Option<TaskId>,
    },
    /// The initiator has the response that [`super::Target::respond_with_receipt`] sent.
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
    /// Another session of the same initiator and port has begun.
    Replaced,
    /// Nothing came for too long.
    Silent,
    /// The initiator broke a rule of the protocol.
    Misbehaved,
}

/// Several machines that serve at one place, a core each, and which frames are for which of them.
///
/// ```text
///   frame of a session    session % count
///   login request         (hash of initiator and target + port) % count: all of a nexus to one, consecutive ports to each in turn
///   others                any machine
/// ```
///
/// Sessions of one nexus replace each other, resume and wait for each other's end, all of which a machine does by itself. The number of
/// a session alone says whose it is, so that a filter of the network can tell its frames apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// The number of this machine, below `count`.
    pub index: u32,
    /// Of so many, at least 1.
    pub count: u32,
}

impl Share {
    /// A machine that has all sessions.
    pub const ALL: Share = Share { index: 0, count: 1 };

    /// The machine that a frame is for; `None` if it is for none: a login request that no machine understands.
    pub fn owner(&self, header: &Header, frame: &mut [u8]) -> Option<u32> {
        match header.opcode {
            _ if self.count <= 1 => Some(self.index),
            Opcode::LoginRequest => {
                let (request, _) = LoginRequest::parse(body(header, frame)?)?;
                let hash = fnv_1a(&[request.initiator.as_bytes(), &[0], request.target.as_bytes()]);
                Some(hash.wrapping_add(request.port) % self.count)
            }
            Opcode::Discovery | Opcode::LoginReply => Some(self.index),
            Opcode::Request | Opcode::Reply | Opcode::Disconnect | Opcode::AckRequest | Opcode::Ack => {
                Some(header.session % self.count)
            }
        }
    }

    /// Whether a session of this number is one of this machine's.
    pub(super) fn has(&self, session: u32) -> bool {
        session % self.count == self.index
    }

    /// With what is out of range brought into it.
    pub(super) fn checked(self) -> Share {
        let count = self.count.max(1);
        Share { index: self.index.min(count - 1), count }
    }
}

/// FNV-1a: nothing depends on who can guess it, since a port can be chosen anyway.
fn fnv_1a(pieces: &[&[u8]]) -> u32 {
    let step = |hash: u32, byte: &u8| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193);
    pieces.iter().copied().flatten().fold(0x811c_9dc5, step)
}
