//! Unconnected UDP sockets. Datagrams are never fragmented: if one is too long for the path, it is lost or
//! rejected, so a protocol can probe for the maximum length.

use std::io;
use std::mem;
use std::net::SocketAddr;
use std::os::fd::{AsFd as _, OwnedFd};

use libc::{c_int, sockaddr_storage};
use reactor::{DatagramAddress, DatagramOptions};
use socket2::{Domain, Protocol, SockAddr, SockAddrStorage, Socket, Type};

use super::calls::{Calls, Name, attach, get_option, remainder, set_option, set_receive_buffer};
use crate::tcp;

/// The limit for IPv4: 65,535 bytes including the IP and UDP headers.
pub(super) const PAYLOAD_BYTES_MAX: usize = 65_507;

pub(super) fn open(
    at: SocketAddr,
    options: &DatagramOptions,
) -> io::Result<(OwnedFd, DatagramAddress)> {
    let share = options.share.filter(|share| share.count > 1);
    if share.is_some_and(|share| share.index == 0) && at.port() != 0 {
        // Another process of the same user could share this port too. Binding a socket without SO_REUSEPORT
        // detects such a process.
        socket(at)?.bind(&at.into())?;
    }
    let socket = socket(at)?;
    if share.is_some() {
        socket.set_reuse_port(true)?;
    }
    let (level, name) = match at.is_ipv4() {
        true => (libc::IPPROTO_IP, libc::IP_MTU_DISCOVER),
        false => (libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER),
    };
    // IP_PMTUDISC_PROBE has the same value for IPv4 and IPv6.
    set_option(socket.as_fd(), level, name, &libc::IP_PMTUDISC_PROBE)?;
    socket.bind(&at.into())?;
    // All sockets share this program. For each datagram, it returns the number of the receiving socket, in
    // the order in which the sockets were opened (SO_ATTACH_REUSEPORT_CBPF, socket(7)). If there is no socket
    // with this number, the kernel chooses any. A datagram that the kernel joins with an earlier one also
    // goes to the socket of the earlier one.
    if let Some(share) = share.filter(|share| share.index == 0) {
        let mut program = remainder(share).to_vec();
        let give_back = (libc::BPF_RET | libc::BPF_A) as u16;
        program.push(libc::sock_filter {
            code: give_back,
            jt: 0,
            jf: 0,
            k: 0,
        });
        attach(socket.as_fd(), libc::SO_ATTACH_REUSEPORT_CBPF, &mut program)?;
    }
    let local = tcp::address(&socket.local_addr()?)?;
    let socket = OwnedFd::from(socket);
    set_receive_buffer(&socket, options.receive_buffer_bytes)?;
    Ok((socket, DatagramAddress::Udp(local)))
}

fn socket(at: SocketAddr) -> io::Result<Socket> {
    let kind = Type::DGRAM.nonblocking().cloexec();
    let socket = Socket::new(Domain::for_address(at), kind, Some(Protocol::UDP))?;
    if at.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    Ok(socket)
}

pub(super) fn name(to: SocketAddr) -> Name {
    let address = SockAddr::from(to);
    let (length, mut storage) = (address.len(), address.as_storage());
    // SAFETY: it is viewed as the type that it contains.
    (*unsafe { storage.view_as::<sockaddr_storage>() }, length)
}

pub(super) fn sender(name: &sockaddr_storage) -> Option<DatagramAddress> {
    let mut storage = SockAddrStorage::zeroed();
    // SAFETY: it is viewed as the type that it contains, and the kernel has filled in a socket address of
    // this length or less.
    let address = unsafe {
        *storage.view_as::<sockaddr_storage>() = *name;
        SockAddr::new(storage, mem::size_of::<sockaddr_storage>() as _)
    };
    address.as_socket().map(DatagramAddress::Udp)
}

/// Returns the number of datagrams dropped because the receive buffer was full.
pub(super) fn drops(socket: &OwnedFd) -> u64 {
    const DROPS: usize = libc::SK_MEMINFO_DROPS as usize;
    let mut words = [0; DROPS + 1];
    get_option(socket, libc::SOL_SOCKET, libc::SO_MEMINFO, &mut words);
    u64::from(words[DROPS])
}

// Receiving joined datagrams: with UDP_GRO (udp(7)), the kernel delivers several datagrams of equal length
// from one sender as one piece. Such a piece traverses the kernel's network stack only once.

/// Maximum length of a piece in bytes, and maximum number of pieces per call.
const PIECE_BYTES: usize = 1 << 16;
const PIECES: usize = 8;

/// Received pieces, and the position up to which they have been delivered.
pub(super) struct Joined {
    memory: Box<[u8]>,
    calls: Calls,
    pieces: Vec<Piece>,
    /// The piece being delivered, and the position in it.
    piece: usize,
    start: usize,
    /// Number of pieces to request in the next call.
    asking: usize,
}

struct Piece {
    place: usize,
    from: DatagramAddress,
    bytes: usize,
    /// Length of each datagram except the last.
    segment: usize,
}

/// The result of a receive call.
pub(super) struct Found {
    /// Number of datagrams delivered.
    pub(super) taken: usize,
    /// Whether the socket has no more datagrams.
    pub(super) is_drained: bool,
}

impl Joined {
    /// Enables receiving joined datagrams on this socket. Returns `None` if the kernel does not support it.
    pub(super) fn open(socket: &OwnedFd) -> Option<Joined> {
        set_option(socket.as_fd(), libc::SOL_UDP, libc::UDP_GRO, &(1 as c_int)).ok()?;
        let memory = vec![0; PIECES * PIECE_BYTES].into_boxed_slice();
        let calls = Calls::new(PIECES);
        Some(Joined {
            memory,
            calls,
            pieces: Vec::new(),
            piece: 0,
            start: 0,
            asking: 2,
        })
    }

    /// Whether there are received datagrams that have not been delivered to the caller.
    pub(super) fn has_any(&self) -> bool {
        self.piece < self.pieces.len()
    }

    /// Passes up to `most` available datagrams to `take`.
    pub(super) fn receive(
        &mut self,
        socket: i32,
        most: usize,
        take: &mut dyn FnMut(DatagramAddress, &mut [u8]),
    ) -> io::Result<Found> {
        let mut is_drained = false;
        if !self.has_any() {
            is_drained = self.fill(socket)?;
        }
        let mut taken = 0;
        while let Some(piece) = self.pieces.get(self.piece).filter(|_| taken < most) {
            let end = piece.bytes.min(self.start + piece.segment);
            let base = piece.place * PIECE_BYTES;
            take(piece.from, &mut self.memory[base + self.start..base + end]);
            taken += 1;
            self.start = end;
            if end == piece.bytes {
                (self.piece, self.start) = (self.piece + 1, 0);
            }
        }
        Ok(Found {
            taken,
            is_drained: is_drained && !self.has_any(),
        })
    }

    /// Receives pieces. Returns whether the socket has no more datagrams.
    fn fill(&mut self, socket: i32) -> io::Result<bool> {
        self.pieces.clear();
        (self.piece, self.start) = (0, 0);
        let asked = self.asking.min(PIECES);
        let places = self.memory.chunks_exact_mut(PIECE_BYTES).take(asked);
        let received = self.calls.receive(socket, places)?;
        self.asking = (2 * received).max(2);
        for place in 0..received {
            let message = self.calls.received(place);
            let Some(from) = sender(message.from) else {
                continue;
            };
            let segment = message
                .segment
                .filter(|segment| *segment > 0)
                .unwrap_or(PIECE_BYTES);
            self.pieces.push(Piece {
                place,
                from,
                bytes: message.bytes,
                segment,
            });
        }
        Ok(received < asked)
    }
}
