//! PDUs (RFC 7143 section 11.1) and their framing, for peers that share no code with `iscsi`.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll, Waker};

use reactor::{InSlice, OutSlice, Stream};

/// A basic header segment.
pub(crate) type Header = [u8; 48];

/// Encodes a PDU: sets the header's DataSegmentLength, and appends the padded data.
pub(crate) fn pdu(mut header: Header, data: &[u8]) -> Vec<u8> {
    header[5..8].copy_from_slice(&(data.len() as u32).to_be_bytes()[1..]);
    let mut bytes = header.to_vec();
    bytes.extend(data);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

pub(crate) fn set_32(header: &mut Header, at: usize, value: u32) {
    header[at..at + 4].copy_from_slice(&value.to_be_bytes());
}

pub(crate) fn get_32(header: &Header, at: usize) -> u32 {
    header[at..at + 4]
        .iter()
        .fold(0, |value, byte| value << 8 | u32::from(*byte))
}

/// Writes all of `bytes`, waiting for space as necessary.
pub(crate) async fn write(stream: &dyn Stream, bytes: &[u8]) -> io::Result<()> {
    let mut rest = bytes;
    while !rest.is_empty() {
        match stream.try_write(&[OutSlice::Bytes(rest)]) {
            Ok(taken) => rest = &rest[taken..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                poll_fn(|cx| stream.poll_writable(cx)).await?;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Fills `bytes`, waiting for data as necessary.
pub(crate) async fn read(stream: &dyn Stream, bytes: &mut [u8]) -> io::Result<()> {
    let mut done = 0;
    while done < bytes.len() {
        match stream.try_read(&mut [InSlice::Bytes(&mut bytes[done..])]) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(taken) => done += taken,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                poll_fn(|cx| stream.poll_readable(cx)).await?;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Receives the next PDU. Returns its header, and its data without padding.
pub(crate) async fn read_pdu(stream: &dyn Stream) -> io::Result<(Header, Vec<u8>)> {
    let mut header = [0; 48];
    read(stream, &mut header).await?;
    let length = (get_32(&header, 4) & 0xff_ffff) as usize;
    let mut data = vec![0; length.next_multiple_of(4) + usize::from(header[4]) * 4];
    read(stream, &mut data).await?;
    data.truncate(length);
    Ok((header, data))
}

/// Data that a client has to send. A task of the connection sends it.
#[derive(Default)]
pub(crate) struct Outbox {
    bytes: VecDeque<u8>,
    writer: Option<Waker>,
}

impl Outbox {
    pub(crate) fn put(&mut self, bytes: &[u8]) {
        self.bytes.extend(bytes);
        self.take_writer().into_iter().for_each(Waker::wake);
    }

    /// Returns all pending data, once there is some; `None` if the connection is lost.
    pub(crate) fn poll_take(&mut self, cx: &Context<'_>, is_lost: bool) -> Poll<Option<Vec<u8>>> {
        if is_lost {
            return Poll::Ready(None);
        }
        if self.bytes.is_empty() {
            self.writer = Some(cx.waker().clone());
            return Poll::Pending;
        }
        Poll::Ready(Some(std::mem::take(&mut self.bytes).into()))
    }

    /// Returns the waker of the task that waits for data to send.
    pub(crate) fn take_writer(&mut self) -> Option<Waker> {
        self.writer.take()
    }
}
