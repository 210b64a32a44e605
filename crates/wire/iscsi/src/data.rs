//! Data segments, as a session of either side passes them to its driver. `T` is the side's identifier of tasks.

/// The data segment that follows a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment<T> {
    /// Bytes of data, without padding.
    pub length: u32,
    /// Where they belong.
    pub destination: Destination<T>,
}

/// Where a received data segment belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Destination<T> {
    /// There is no data.
    None,
    /// The machine: the driver passes it to `handle_segment` as a whole. At most our MaxRecvDataSegmentLength.
    Inline,
    /// The task's data.
    ///
    /// At the target it begins within what the driver takes for the task, and may reach beyond, but never beyond the
    /// EDTL: the driver drops what lies beyond, and all of it if it has answered the task. At the initiator all of it
    /// is within the command's `read_bytes`; the driver drops it if the command has ended since: a function answered
    /// on another connection may have aborted it.
    Task {
        /// The task.
        task: T,
        /// Bytes from the start of the command's data.
        offset: u32,
    },
    /// Nowhere: the driver drops it.
    Discard,
}

/// The data of a PDU to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Payload<T> {
    /// None.
    None,
    /// These bytes.
    Inline(Vec<u8>),
    /// A part of a task's data.
    Task {
        /// The task.
        task: T,
        /// Bytes from the start of the command's data.
        offset: u32,
        /// Bytes.
        length: u32,
    },
}

impl<T> Payload<T> {
    pub(crate) fn inline(data: Vec<u8>) -> Payload<T> {
        if data.is_empty() { Payload::None } else { Payload::Inline(data) }
    }
}
