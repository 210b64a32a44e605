//! recvmmsg(2) and sendmmsg(2), with the structures that they take.

use std::io;
use std::mem;
use std::ptr;

use libc::{iovec, mmsghdr, sockaddr_storage, socklen_t};
use reactor::{DatagramAddress, OutDatagram, OutSlice};

/// The address in a message, and how long it is.
pub(super) type Name = (sockaddr_storage, socklen_t);

/// Structures for messages, used again by every call. Their pointers are set by each call and used in none after it.
pub(super) struct Calls {
    names: Vec<sockaddr_storage>,
    /// [`OutDatagram::PIECES_MAX`] for each message.
    pieces: Vec<iovec>,
    messages: Vec<mmsghdr>,
}

/// A message that was received.
pub(super) struct ReceivedMessage<'a> {
    pub(super) from: &'a sockaddr_storage,
    pub(super) bytes: usize,
    /// It was longer than its place.
    pub(super) is_cut: bool,
}

impl Calls {
    /// For so many messages in a call.
    pub(super) fn new(most: usize) -> Calls {
        // SAFETY: all three are plain structures of numbers and pointers, for which zeros stand for nothing.
        let (name, piece, message) = unsafe { (mem::zeroed(), mem::zeroed(), mem::zeroed()) };
        Calls {
            names: vec![name; most],
            pieces: vec![piece; most * OutDatagram::PIECES_MAX],
            messages: vec![message; most],
        }
    }

    /// Receives into these places, at most as many as there are structures; how many.
    pub(super) fn receive<'a>(
        &mut self,
        socket: i32,
        places: impl Iterator<Item = &'a mut [u8]>,
    ) -> io::Result<usize> {
        let mut count = 0;
        for (place, (message, (name, piece))) in
            places.zip(self.messages.iter_mut().zip(self.names.iter_mut().zip(self.pieces.iter_mut())))
        {
            *piece = iovec { iov_base: place.as_mut_ptr().cast(), iov_len: place.len() };
            describe(message, name, size_of::<sockaddr_storage>() as socklen_t, piece, 1);
            count += 1;
        }
        // SAFETY: each of the first `count` messages names an address and a piece of this structure, and a place that the iterator
        // has borrowed mutably for longer than the call; no two are the same.
        let received = unsafe {
            libc::recvmmsg(
                socket,
                self.messages.as_mut_ptr(),
                count,
                libc::MSG_DONTWAIT as _,
                ptr::null_mut(),
            )
        };
        usize::try_from(received).map_err(|_| io::Error::last_os_error())
    }

    /// A message that the last call received.
    pub(super) fn received(&self, at: usize) -> ReceivedMessage<'_> {
        let message = &self.messages[at];
        ReceivedMessage {
            from: &self.names[at],
            bytes: message.msg_len as usize,
            is_cut: message.msg_hdr.msg_flags & libc::MSG_TRUNC != 0,
        }
    }

    /// Sends the first of these, by their names; how many.
    pub(super) fn send(
        &mut self,
        socket: i32,
        datagrams: &[OutDatagram<'_>],
        name_of: impl Fn(DatagramAddress) -> Option<Name>,
    ) -> io::Result<usize> {
        let mut count = 0;
        for (at, datagram) in datagrams.iter().enumerate().take(self.messages.len()) {
            let pieces = &mut self.pieces[at * OutDatagram::PIECES_MAX..][..OutDatagram::PIECES_MAX];
            let Some((name, length)) =
                name_of(datagram.to).filter(|_| datagram.payload.len() <= pieces.len())
            else {
                // Those before it go; then it is the first.
                if at == 0 {
                    return Err(io::ErrorKind::InvalidInput.into());
                }
                break;
            };
            self.names[at] = name;
            for (piece, slice) in pieces.iter_mut().zip(datagram.payload) {
                let (start, bytes) = match slice {
                    OutSlice::Bytes(bytes) => (bytes.as_ptr().cast_mut(), bytes.len()),
                    OutSlice::Shared(bytes) => (bytes.as_ptr().cast_mut().cast(), bytes.len()),
                };
                *piece = iovec { iov_base: start.cast(), iov_len: bytes };
            }
            let count_of_pieces = datagram.payload.len();
            describe(&mut self.messages[at], &mut self.names[at], length, &mut pieces[0], count_of_pieces);
            count += 1;
        }
        // SAFETY: each of the first `count` messages names an address and pieces of this structure, and the pieces payloads that are
        // borrowed for longer than the call, which only reads them.
        let sent = unsafe {
            let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
            libc::sendmmsg(socket, self.messages.as_mut_ptr(), count, flags as _)
        };
        usize::try_from(sent).map_err(|_| io::Error::last_os_error())
    }
}

fn describe(
    message: &mut mmsghdr,
    name: &mut sockaddr_storage,
    name_bytes: socklen_t,
    pieces: &mut iovec,
    count: usize,
) {
    message.msg_hdr.msg_name = (&raw mut *name).cast();
    message.msg_hdr.msg_namelen = name_bytes;
    message.msg_hdr.msg_iov = pieces;
    message.msg_hdr.msg_iovlen = count as _;
    message.msg_hdr.msg_flags = 0;
    message.msg_len = 0;
}
