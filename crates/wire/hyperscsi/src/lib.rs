//! HyperSCSI with its published header layout, without I/O: SCSI commands in raw Ethernet frames, or in UDP.
//!
//! Only the layout of five bytes survives from HyperSCSI, in Wireshark's dissector. Frames follow it;
//! everything after these bytes is defined by this project and frozen in `docs/hyperscsi-format.md`. Nothing
//! here interoperates with the implementation of 2002.
//!
//! ```text
//!   commands ──► Initiator ─┐                                           ┌─ Target ──► commands
//!                           ├─ login ─ pdu ─ transport ─ path ─ frame ─┤
//!   results  ◄──────────────┘            (an epoch)    (numbers)       └────────◄── responses
//! ```
//!
//! - [`Initiator`] is one session with one target, [`Target`] all sessions of one target port: frames,
//!   commands, responses and `now` go in; frames, events and the next deadline come out. Randomness comes
//!   from a seed.
//! - [`discovery`] finds targets.
//! - [`Header`] is the start of every frame.
//!
//! Commands and data pass through the state machines: every byte is summed or encrypted anyway. Only the
//! kernel copies data to send ([`Frame`]), unless it is encrypted; received data is copied once, into its
//! message.

pub mod discovery;
mod frame;
pub mod initiator;
mod login;
mod path;
mod pdu;
mod reassembly;
pub mod target;
mod transport;

pub use frame::{
    CRC_BYTES, Cipher, ETHERTYPE, FRAGMENTS_MAX, FRAME_BYTES_MAX, FRAME_BYTES_MIN, Frame, HEADER_BYTES,
    Header, MESSAGES_OPEN_MAX, Malformed, NUMBER_END, Opcode, PATHS_MAX, Payload, SESSION_AT, TAG_BYTES,
    UDP_PORT, VERSION,
};
pub use initiator::Initiator;
pub use login::{NAME_BYTES_MAX, PATTERN, Psk, Refusal, is_name};
pub use pdu::{
    CDB_BYTES_MAX, Command, DATA_BYTES_MAX, Function, FunctionResult, Response, SENSE_BYTES_MAX,
    TaskAttribute,
};
pub use target::Target;
pub use transport::Counters;
