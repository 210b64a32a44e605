//! A LUN with the interface of tokio's files: it has a position in bytes, and each read, write or seek
//! moves it.

use std::future::Future;
use std::io::{self, ErrorKind, SeekFrom};
use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use block::{Buffer, DeviceError, Slice};
use tokio::io::{AsyncRead, AsyncSeek, AsyncWrite, ReadBuf};

use crate::lun::{Ended, Lun, Request};

/// A LUN with a position, for tokio's `AsyncReadExt`, `AsyncWriteExt`, `AsyncSeekExt` and `copy`. It belongs
/// to one task; each other task needs its own over the same [`Lun`].
///
/// - One request is outstanding at a time. For more, use the [`Lun`], whose [`Request`]s tokio polls like any
///   future.
/// - Positions are in bytes. Blocks that are written in part are read first ([`Lun::write_bytes`]).
/// - Reads stop at the end of the LUN. A write beyond the end fails with `StorageFull`.
/// - As with `tokio::fs::File`, a write copies its data and returns, and the next call reports its error.
///   Call `flush` before dropping the `TokioLun`, which cancels an outstanding write.
/// - `flush` and `shutdown` flush earlier writes to stable storage. The session is closed when its last
///   [`Lun`] is dropped.
pub struct TokioLun {
    lun: Lun,
    position: u64,
    outstanding: Outstanding,
}

enum Outstanding {
    None,
    /// A read at the position, and its number of bytes.
    Read(Request<Slice, DeviceError>, usize),
    /// A write. The position is already after the end of the write.
    Write(Request<(), DeviceError>),
    Flush(Request<(), DeviceError>),
}

/// The maximum length of a request. A longer buffer takes several calls.
const REQUEST_BYTES_MAX: usize = 1 << 20;

impl TokioLun {
    /// Starts at the LUN's first byte.
    pub fn new(lun: Lun) -> TokioLun {
        TokioLun {
            lun,
            position: 0,
            outstanding: Outstanding::None,
        }
    }

    /// The LUN, for requests at other positions.
    pub fn lun(&self) -> &Lun {
        &self.lun
    }

    /// Bytes from the position to the LUN's end, at most `wanted`.
    fn within(&self, wanted: usize) -> usize {
        let left = self.lun.geometry().bytes().saturating_sub(self.position);
        usize::try_from(left)
            .unwrap_or(usize::MAX)
            .min(wanted)
            .min(REQUEST_BYTES_MAX)
    }

    /// Waits for the outstanding write.
    fn poll_written(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Outstanding::Write(request) = &mut self.outstanding else {
            return Poll::Ready(Ok(()));
        };
        let written = ready!(Pin::new(request).poll(cx));
        self.outstanding = Outstanding::None;
        Poll::Ready(written.map_err(io_error))
    }

    fn poll_flushed(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_written(cx))?;
        let mut request = match mem::replace(&mut self.outstanding, Outstanding::None) {
            Outstanding::Flush(request) => request,
            _ => self.lun.flush(),
        };
        match Pin::new(&mut request).poll(cx) {
            Poll::Ready(flushed) => Poll::Ready(flushed.map_err(io_error)),
            Poll::Pending => {
                self.outstanding = Outstanding::Flush(request);
                Poll::Pending
            }
        }
    }
}

impl AsyncRead for TokioLun {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(this.poll_written(cx))?;
        let length = this.within(into.remaining());
        if length == 0 {
            return Poll::Ready(Ok(()));
        }
        // If the caller has dropped a read, the next read continues it. The buffer of that next read may be
        // shorter.
        let (mut request, asked) = match mem::replace(&mut this.outstanding, Outstanding::None) {
            Outstanding::Read(request, asked) if asked <= length => (request, asked),
            _ => (
                this.lun
                    .read_bytes(this.position..this.position + length as u64),
                length,
            ),
        };
        match Pin::new(&mut request).poll(cx) {
            Poll::Ready(read) => {
                let bytes = read.map_err(io_error)?;
                debug_assert_eq!(bytes.len(), asked, "a read returns the bytes of its range");
                into.put_slice(&bytes);
                this.position += bytes.len() as u64;
                Poll::Ready(Ok(()))
            }
            Poll::Pending => {
                this.outstanding = Outstanding::Read(request, asked);
                Poll::Pending
            }
        }
    }
}

impl AsyncWrite for TokioLun {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        ready!(this.poll_written(cx))?;
        let length = this.within(data.len());
        if length == 0 && !data.is_empty() {
            return Poll::Ready(Err(ErrorKind::StorageFull.into()));
        }
        let data = Buffer::from(&data[..length]).share();
        this.outstanding = Outstanding::Write(this.lun.write_bytes(this.position, data));
        this.position += length as u64;
        Poll::Ready(Ok(length))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().poll_flushed(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().poll_flushed(cx)
    }
}

impl AsyncSeek for TokioLun {
    fn start_seek(self: Pin<&mut Self>, to: SeekFrom) -> io::Result<()> {
        let this = self.get_mut();
        let size = this.lun.geometry().bytes();
        let position = match to {
            SeekFrom::Start(position) => Some(position),
            SeekFrom::End(distance) => size.checked_add_signed(distance),
            SeekFrom::Current(distance) => this.position.checked_add_signed(distance),
        };
        this.position = position.ok_or_else(|| io::Error::from(ErrorKind::InvalidInput))?;
        if matches!(this.outstanding, Outstanding::Read(..)) {
            this.outstanding = Outstanding::None;
        }
        Ok(())
    }

    fn poll_complete(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<u64>> {
        Poll::Ready(Ok(self.position))
    }
}

/// Converts a device error to the error kind that a file would report, with the device error as its source.
fn io_error(error: DeviceError) -> io::Error {
    let kind = match error {
        DeviceError::OutOfRange => ErrorKind::InvalidInput,
        DeviceError::ReadOnly => ErrorKind::ReadOnlyFilesystem,
        DeviceError::Unsupported => ErrorKind::Unsupported,
        DeviceError::NoSpace => ErrorKind::StorageFull,
        DeviceError::NotReady | DeviceError::Fenced => ErrorKind::NotConnected,
        DeviceError::Reserved => ErrorKind::ResourceBusy,
        DeviceError::TimedOut => ErrorKind::TimedOut,
        DeviceError::Cancelled => ErrorKind::Interrupted,
        DeviceError::Unreadable(_)
        | DeviceError::Unwritable(_)
        | DeviceError::WritesLost
        | DeviceError::Unsettled => ErrorKind::Other,
    };
    io::Error::new(kind, error)
}

impl From<Ended> for io::Error {
    fn from(error: Ended) -> io::Error {
        io::Error::new(ErrorKind::NotConnected, error)
    }
}
