//! HyperSCSI with its published header layout, without I/O: SCSI commands in raw Ethernet frames, or in UDP.
//!
//! Of the original HyperSCSI, only the layout of the first five bytes of a frame is documented, in
//! Wireshark's dissector. Frames follow this layout. Everything after these bytes is defined by this project,
//! and frozen in `docs/hyperscsi-format.md`. This implementation does not interoperate with the one of 2002.
//!
//! ```text
//!   commands ──► Initiator ─┐                                           ┌─ Target ──► commands
//!                           ├─ login ─ pdu ─ transport ─ path ─ frame ─┤
//!   results  ◄──────────────┘            (an epoch)    (numbers)       └────────◄── responses
//! ```
//!
//! - [`Initiator`] handles one session with one target, and [`Target`] handles all sessions of one target
//!   port. Their inputs are frames, commands, responses and the current time; their outputs are frames,
//!   events and the next deadline. Random numbers are derived from a seed.
//! - [`discovery`] finds targets.
//! - [`Header`] is the start of every frame.
//!
//! Commands and data pass through the state machines, because every byte must be included in a checksum or
//! encrypted anyway. Data to send is copied only by the kernel ([`Frame`]), unless it is encrypted. Received
//! data is copied once, into its message.

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
    CRC_BYTES, Cipher, ETHERTYPE, FRAGMENTS_MAX, FRAME_BYTES_MAX, FRAME_BYTES_MIN, Frame,
    HEADER_BYTES, Header, MESSAGES_OPEN_MAX, Malformed, NUMBER_END, Opcode, PATHS_MAX, Payload,
    SESSION_AT, TAG_BYTES, UDP_PORT, VERSION,
};
pub use initiator::Initiator;
pub use login::{NAME_BYTES_MAX, PATTERN, Psk, Refusal, is_name};
pub use pdu::{
    CDB_BYTES_MAX, Command, DATA_BYTES_MAX, Function, FunctionResult, Response, SENSE_BYTES_MAX,
    TaskAttribute,
};
pub use target::Target;
pub use transport::Counters;
