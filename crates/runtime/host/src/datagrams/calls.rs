//! The system calls recvmmsg(2) and sendmmsg(2), with their structures.

use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::ptr;

use libc::{c_int, cmsghdr, iovec, mmsghdr, sock_filter, sock_fprog, sockaddr_storage, socklen_t};
use reactor::{DatagramAddress, DatagramShare, OutDatagram, OutSlice};
use rustix::net::sockopt;

/// The address in a message, and its length.
pub(super) type Name = (sockaddr_storage, socklen_t);

/// Message structures that every call reuses. Each call sets the pointers in them; the pointers are not used
/// after the call.
pub(super) struct Calls {
    names: Vec<sockaddr_storage>,
    /// [`OutDatagram::PIECES_MAX`] pieces for each message.
    pieces: Vec<iovec>,
    messages: Vec<mmsghdr>,
    /// A control message for each message, with the length of its joined datagrams.
    controls: Vec<Control>,
    /// Number of datagrams in each message to send.
    joined: Vec<usize>,
}

/// Space for a control message with one number, aligned for its header.
type Control = [u64; 4];

/// Maximum number of datagrams in a message (UDP_MAX_SEGMENTS in older kernels), and maximum number of bytes,
/// which is valid for both IPv4 and IPv6.
const JOINED_MAX: usize = 64;
const JOINED_BYTES_MAX: usize = 65_000;

pub(super) struct ReceivedMessage<'a> {
    pub(super) from: &'a sockaddr_storage,
    pub(super) bytes: usize,
    /// Whether the message was longer than its buffer, and was truncated.
    pub(super) is_cut: bool,
    /// If the message consists of several joined datagrams, the length of each in bytes.
    pub(super) segment: Option<usize>,
}

impl Calls {
    /// Creates structures for up to `most` messages per call.
    pub(super) fn new(most: usize) -> Calls {
        // SAFETY: all three are plain structures of numbers and pointers, for which zeros are valid values.
        let (name, piece, message) = unsafe { (mem::zeroed(), mem::zeroed(), mem::zeroed()) };
        Calls {
            names: vec![name; most],
            pieces: vec![piece; most * OutDatagram::PIECES_MAX],
            messages: vec![message; most],
            controls: vec![Control::default(); most],
            joined: vec![0; most],
        }
    }

    /// Receives messages into these buffers, at most one per structure. Returns their number.
    pub(super) fn receive<'a>(
        &mut self,
        socket: i32,
        places: impl Iterator<Item = &'a mut [u8]>,
    ) -> io::Result<usize> {
        let mut count = 0;
        let names = self.names.iter_mut().zip(&mut self.controls);
        for (place, (message, ((name, control), piece))) in places.zip(
            self.messages
                .iter_mut()
                .zip(names.zip(self.pieces.iter_mut())),
        ) {
            message.msg_hdr.msg_control = control.as_mut_ptr().cast();
            message.msg_hdr.msg_controllen = size_of::<Control>() as _;
            *piece = iovec {
                iov_base: place.as_mut_ptr().cast(),
                iov_len: place.len(),
            };
            describe(
                message,
                name,
                size_of::<sockaddr_storage>() as socklen_t,
                piece,
                1,
            );
            count += 1;
        }
        // SAFETY: each of the first `count` messages names an address, a control and a piece of this
        // structure, and a place that the iterator has borrowed mutably for longer than the call; no two are
        // the same.
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

    /// Returns a message that the last call received.
    pub(super) fn received(&self, at: usize) -> ReceivedMessage<'_> {
        let message = &self.messages[at];
        ReceivedMessage {
            from: &self.names[at],
            bytes: message.msg_len as usize,
            is_cut: message.msg_hdr.msg_flags & libc::MSG_TRUNC != 0,
            segment: segment(&message.msg_hdr),
        }
    }

    /// Sends as many of these datagrams as possible, in order, and returns their number. `name_of` converts
    /// their addresses. With `joins`, consecutive datagrams to the same address are passed to the kernel as
    /// one message if all of them except the last have the same length (UDP_SEGMENT, udp(7)).
    pub(super) fn send(
        &mut self,
        socket: i32,
        datagrams: &[OutDatagram<'_>],
        joins: bool,
        name_of: impl Fn(DatagramAddress) -> Option<Name>,
    ) -> io::Result<usize> {
        let (mut count, mut piece_count) = (0, 0);
        let mut open: Option<Open> = None;
        for (at, datagram) in datagrams.iter().enumerate().take(self.messages.len()) {
            let bytes = datagram.payload.iter().map(OutSlice::len).sum();
            let place = match open
                .as_mut()
                .filter(|open| joins && open.takes(datagram.to, bytes))
            {
                Some(_) => count - 1,
                None => {
                    let name = name_of(datagram.to);
                    let Some(name) =
                        name.filter(|_| datagram.payload.len() <= OutDatagram::PIECES_MAX)
                    else {
                        // Send the datagrams before this one. The next call then starts with this one, and
                        // returns the error.
                        if at == 0 {
                            return Err(io::ErrorKind::InvalidInput.into());
                        }
                        break;
                    };
                    self.names[count] = name.0;
                    let pieces = &mut self.pieces[piece_count];
                    describe(
                        &mut self.messages[count],
                        &mut self.names[count],
                        name.1,
                        pieces,
                        0,
                    );
                    self.messages[count].msg_hdr.msg_control = ptr::null_mut();
                    self.messages[count].msg_hdr.msg_controllen = 0;
                    self.joined[count] = 0;
                    open = Some(Open {
                        to: datagram.to,
                        segment: bytes,
                        bytes: 0,
                        count: 0,
                        pieces: 0,
                        is_full: false,
                    });
                    count += 1;
                    count - 1
                }
            };
            if datagram.payload.len() > OutDatagram::PIECES_MAX {
                break; // the next call starts with it, and rejects it
            }
            for slice in datagram.payload {
                let (start, bytes) = match slice {
                    OutSlice::Bytes(bytes) => (bytes.as_ptr().cast_mut(), bytes.len()),
                    OutSlice::Shared(bytes) => (bytes.as_ptr().cast_mut().cast(), bytes.len()),
                };
                self.pieces[piece_count] = iovec {
                    iov_base: start.cast(),
                    iov_len: bytes,
                };
                piece_count += 1;
            }
            let message = &mut self.messages[place];
            self.joined[place] += 1;
            if let Some(open) = &mut open {
                open.add(bytes, datagram.payload.len());
                message.msg_hdr.msg_iovlen = open.pieces as _;
                if open.count > 1 {
                    segment_to(
                        &mut message.msg_hdr,
                        &mut self.controls[place],
                        open.segment as u16,
                    );
                }
            }
        }
        // SAFETY: each of the first `count` messages names an address, pieces and perhaps a control of this
        // structure, and the pieces name payloads that are borrowed for longer than the call, which only
        // reads them.
        let sent = unsafe {
            let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
            libc::sendmmsg(socket, self.messages.as_mut_ptr(), count as _, flags as _)
        };
        let sent = usize::try_from(sent).map_err(|_| io::Error::last_os_error())?;
        Ok(self.joined[..sent].iter().sum())
    }
}

/// A message to be sent, to which datagrams can still be added.
struct Open {
    to: DatagramAddress,
    segment: usize,
    bytes: usize,
    count: usize,
    pieces: usize,
    /// Whether the last datagram is shorter than the others, so that no other can follow.
    is_full: bool,
}

impl Open {
    fn takes(&self, to: DatagramAddress, bytes: usize) -> bool {
        let has_room = self.count < JOINED_MAX && self.bytes + bytes <= JOINED_BYTES_MAX;
        has_room && !self.is_full && self.to == to && (1..=self.segment).contains(&bytes)
    }

    fn add(&mut self, bytes: usize, pieces: usize) {
        self.count += 1;
        self.pieces += pieces;
        self.bytes += bytes;
        self.is_full = bytes < self.segment;
    }
}

/// Adds a control message that passes the length of the joined datagrams to the kernel.
fn segment_to(header: &mut libc::msghdr, control: &mut Control, bytes: u16) {
    *control = Control::default();
    header.msg_control = control.as_mut_ptr().cast();
    // SAFETY: the control is aligned for and longer than a header with a number of 16 bits, which are written
    // into it.
    unsafe {
        header.msg_controllen = libc::CMSG_SPACE(size_of::<u16>() as _) as _;
        let head = control.as_mut_ptr().cast::<cmsghdr>();
        (*head).cmsg_level = libc::SOL_UDP;
        (*head).cmsg_type = libc::UDP_SEGMENT;
        (*head).cmsg_len = libc::CMSG_LEN(size_of::<u16>() as _) as _;
        libc::CMSG_DATA(head).cast::<u16>().write_unaligned(bytes);
    }
}

/// Returns the length of each datagram, if the kernel has joined several.
fn segment(header: &libc::msghdr) -> Option<usize> {
    if header.msg_control.is_null() {
        return None;
    }
    // SAFETY: the kernel has filled in the reported number of bytes of the control data, and the macros read
    // only those; the value of UDP_GRO is an int.
    unsafe {
        let head = libc::CMSG_FIRSTHDR(header);
        let is_it = !head.is_null()
            && (*head).cmsg_level == libc::SOL_UDP
            && (*head).cmsg_type == libc::UDP_GRO
            && (*head).cmsg_len as usize >= libc::CMSG_LEN(size_of::<c_int>() as _) as usize;
        let bytes = is_it.then(|| libc::CMSG_DATA(head).cast::<c_int>().read_unaligned());
        bytes.and_then(|bytes| usize::try_from(bytes).ok())
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

/// Creates a classic BPF program that computes the index of the receiving endpoint: a word of the payload
/// modulo the number of endpoints.
pub(super) fn remainder(share: DatagramShare) -> [sock_filter; 2] {
    let step = |code: u32, k: u32| sock_filter {
        code: code as u16,
        jt: 0,
        jf: 0,
        k,
    };
    let load = step(
        libc::BPF_LD | libc::BPF_W | libc::BPF_ABS,
        share.word_at.into(),
    );
    [
        load,
        step(libc::BPF_ALU | libc::BPF_MOD | libc::BPF_K, share.count),
    ]
}

/// Attaches a classic BPF program to a socket.
pub(super) fn attach(
    socket: BorrowedFd<'_>,
    name: libc::c_int,
    program: &mut [sock_filter],
) -> io::Result<()> {
    let len = u16::try_from(program.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    let program = sock_fprog {
        len,
        filter: program.as_mut_ptr(),
    };
    // The kernel copies the program during the call.
    set_option(socket, libc::SOL_SOCKET, name, &program)
}

/// Sets the receive buffer to the requested size, or to the largest size that the process may use.
pub(super) fn set_receive_buffer(socket: &OwnedFd, bytes: Option<usize>) -> io::Result<()> {
    let Some(bytes) = bytes else { return Ok(()) };
    if sockopt::set_socket_recv_buffer_size_force(socket, bytes).is_err() {
        sockopt::set_socket_recv_buffer_size(socket, bytes)?;
    }
    Ok(())
}

/// Calls setsockopt(2) with any plain value.
pub(super) fn set_option<T>(
    socket: BorrowedFd<'_>,
    level: libc::c_int,
    name: libc::c_int,
    value: &T,
) -> io::Result<()> {
    let length = size_of::<T>() as libc::socklen_t;
    // SAFETY: the kernel reads `length` bytes of the value, which lives for the call.
    let outcome = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            name,
            (&raw const *value).cast(),
            length,
        )
    };
    if outcome < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// Calls getsockopt(2) for an option that consists of words. Returns the number of words that the kernel has
/// filled in.
pub(super) fn get_option(
    socket: impl AsFd,
    level: libc::c_int,
    name: libc::c_int,
    words: &mut [u32],
) -> usize {
    let mut length = size_of_val(words) as libc::socklen_t;
    let (socket, to) = (socket.as_fd().as_raw_fd(), words.as_mut_ptr().cast());
    // SAFETY: the kernel writes at most `length` bytes, which the words have.
    match unsafe { libc::getsockopt(socket, level, name, to, &raw mut length) } {
        0 => length as usize / size_of::<u32>(),
        _ => 0,
    }
}
