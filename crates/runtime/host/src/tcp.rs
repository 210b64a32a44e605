//! Non-blocking TCP streams and listeners, over sockets registered with an epoll. Connected Unix sockets are
//! streams of the same type.

#![allow(unsafe_code)]

use std::cell::Cell;
use std::io;
use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::task::{Context, Poll};

use reactor::{Detached, InSlice, Listener, OutSlice, PathInfo, Stream, StreamOptions};
use rustix::io::ioctl_fionread;
use socket2::{Domain, Protocol, SockAddr, SockRef, Socket, Type};

use crate::local_socket::{BACKLOG, SocketFile};
use crate::path;
use crate::poller::Source;

/// Maximum number of slices passed to the kernel in one call; the others are left for the next call. 64
/// slices take 1 KiB of stack.
const SLICES: usize = 64;

/// Opens a listening socket. Also returns its address.
pub(crate) fn listen(at: SocketAddr, options: &StreamOptions) -> io::Result<(OwnedFd, SocketAddr)> {
    let socket = new_socket(at)?;
    socket.set_reuse_address(true)?;
    if at.is_ipv6() {
        // This allows listening on both 0.0.0.0 and [::], in any order.
        socket.set_only_v6(true)?;
    }
    // Set the buffer sizes before listening: accepted sockets inherit them, and they determine the window
    // scale in the handshake.
    apply(&socket, options)?;
    socket.bind(&at.into())?;
    socket.listen(BACKLOG)?;
    let local = address(&socket.local_addr()?)?;
    Ok((socket.into(), local))
}

/// Starts to connect a socket.
pub(crate) fn connect(to: SocketAddr, options: &StreamOptions) -> io::Result<OwnedFd> {
    let socket = new_socket(to)?;
    apply(&socket, options)?;
    if let Some(bytes) = options.segment_bytes {
        // Set this before connecting: the handshake announces the value to the peer.
        socket.set_tcp_mss(bytes.into())?;
    }
    if let Some(source) = options.source {
        socket.bind(&source.into())?;
    }
    match socket.connect(&to.into()) {
        Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) => Ok(socket.into()),
        Err(error) => Err(error),
        Ok(()) => Ok(socket.into()),
    }
}

/// The address that stands for either end of a Unix socket.
pub(crate) const LOCAL: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

fn new_socket(family_of: SocketAddr) -> io::Result<Socket> {
    Socket::new(
        Domain::for_address(family_of),
        Type::STREAM.nonblocking().cloexec(),
        Some(Protocol::TCP),
    )
}

pub(crate) fn apply(socket: &Socket, options: &StreamOptions) -> io::Result<()> {
    // Disable Nagle's algorithm: a reply must not wait until the previous one is acknowledged.
    socket.set_tcp_nodelay(true)?;
    if let Some(name) = &options.congestion {
        socket
            .set_tcp_congestion(name.as_bytes())
            .map_err(|error| no_congestion_control(name, error))?;
    }
    if let Some(bytes) = options.send_buffer_bytes {
        socket.set_send_buffer_size(bytes)?;
    }
    if let Some(bytes) = options.receive_buffer_bytes {
        socket.set_recv_buffer_size(bytes)?;
    }
    Ok(())
}

/// Explains the failure to set TCP_CONGESTION: for an unknown name the kernel returns "no such file"
/// (tcp(7)), which does not show the cause.
fn no_congestion_control(name: &str, error: io::Error) -> io::Error {
    const AVAILABLE: &str = "/proc/sys/net/ipv4/tcp_available_congestion_control";
    if error.kind() != io::ErrorKind::NotFound {
        return error;
    }
    let available = std::fs::read_to_string(AVAILABLE).unwrap_or_default();
    let available: Vec<&str> = available.split_whitespace().collect();
    let why = format!(
        "congestion={name}: unknown TCP congestion control; this machine has {} ({AVAILABLE})",
        available.join(", ")
    );
    io::Error::new(io::ErrorKind::NotFound, why)
}

/// Returns the number of bytes that one call can receive from a socket. Both this count and a receive call
/// stop at urgent data (SIOCINQ, tcp(7)).
pub(crate) fn readable_bytes(socket: impl AsFd) -> usize {
    ioctl_fionread(socket)
        .ok()
        .and_then(|bytes| usize::try_from(bytes).ok())
        .unwrap_or(0)
}

pub(crate) fn address(address: &SockAddr) -> io::Result<SocketAddr> {
    let local = address.is_unix().then_some(LOCAL);
    address
        .as_socket()
        .or(local)
        .ok_or_else(|| io::ErrorKind::AddrNotAvailable.into())
}

pub(crate) struct TcpStream {
    source: Source,
    peer: SocketAddr,
    local: Cell<SocketAddr>,
    /// Whether the connection attempt is still outstanding.
    connecting: Cell<bool>,
}

/// A TCP connection in transit from one thread to another.
pub(crate) struct DetachedTcp {
    pub(crate) socket: OwnedFd,
    pub(crate) peer: SocketAddr,
    pub(crate) connecting: bool,
}

impl TcpStream {
    pub(crate) fn new(source: Source, peer: SocketAddr, connecting: bool) -> io::Result<TcpStream> {
        let local = address(&SockRef::from(source.socket()).local_addr()?)?;
        if connecting {
            // The socket is not writable until the handshake completes, which the kernel reports as an event.
            source.readiness.writing.is_exhausted();
            source.readiness.reading.is_exhausted();
        }
        Ok(TcpStream {
            source,
            peer,
            local: Cell::new(local),
            connecting: Cell::new(connecting),
        })
    }

    /// Returns the result of the connection attempt, once the socket has had its first event.
    fn connected(&self) -> io::Result<()> {
        if self.connecting.get() {
            let socket = SockRef::from(self.source.socket());
            if let Some(error) = socket.take_error()? {
                return Err(error);
            }
            self.local.set(address(&socket.local_addr()?)?);
            self.connecting.set(false);
        }
        Ok(())
    }
}

impl Stream for TcpStream {
    fn try_read(&self, into: &mut [InSlice<'_>]) -> io::Result<usize> {
        let reading = &self.source.readiness.reading;
        reading.check()?;
        let wanted = InVector::from_slices(into);
        if wanted.bytes == 0 {
            return Ok(0);
        }
        let received = wanted.receive(self.source.raw());
        match &received {
            // If a read returns fewer bytes than requested, no more data is available now (epoll(7)).
            Ok(received) if *received < wanted.bytes && *received > 0 => reading.is_exhausted(),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => reading.is_exhausted(),
            _ => {}
        }
        received
    }

    fn readable_bytes(&self) -> usize {
        readable_bytes(self.source.socket())
    }

    fn try_write(&self, from: &[OutSlice<'_>]) -> io::Result<usize> {
        let writing = &self.source.readiness.writing;
        writing.check()?;
        self.connected()?;
        let offered = OutVector::from_slices(from);
        if offered.bytes == 0 {
            return Ok(0);
        }
        let sent = offered.send(self.source.raw());
        // A short write does not mean that the buffer is full; only WouldBlock does.
        if sent
            .as_ref()
            .is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
        {
            writing.is_exhausted();
        }
        sent
    }

    fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.source.readiness.reading.poll(cx)
    }

    fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.source.readiness.writing.poll(cx)
    }

    fn gather(&self, bytes: usize) {
        let bytes = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX);
        // SAFETY: the option is an int, which lives for as long as the call. A kernel without it signals
        // every byte.
        unsafe {
            libc::setsockopt(
                self.source.raw(),
                libc::SOL_SOCKET,
                libc::SO_RCVLOWAT,
                (&raw const bytes).cast(),
                size_of::<libc::c_int>() as libc::socklen_t,
            );
        }
    }

    fn peer(&self) -> SocketAddr {
        self.peer
    }

    fn local(&self) -> SocketAddr {
        self.local.get()
    }

    fn shutdown(&self) {
        // This fails only if the peer closed the connection first, which has the same effect.
        let _ = SockRef::from(self.source.socket()).shutdown(std::net::Shutdown::Both);
    }

    fn reset(&self) {
        // The close that follows sends a reset and drops the send buffer (SO_LINGER, socket(7)).
        let _ = SockRef::from(self.source.socket()).set_linger(Some(std::time::Duration::ZERO));
    }

    fn path(&self) -> Option<PathInfo> {
        path::info(self.source.socket())
    }

    fn detach(self: Box<Self>) -> Detached {
        let TcpStream {
            source,
            peer,
            connecting,
            ..
        } = *self;
        Box::new(DetachedTcp {
            socket: source.take(),
            peer,
            connecting: connecting.get(),
        })
    }
}

/// A listening TCP or Unix socket.
pub(crate) struct TcpListener {
    pub(crate) source: Source,
    pub(crate) local: SocketAddr,
    pub(crate) options: StreamOptions,
    /// The file of a Unix socket; `None` for TCP.
    pub(crate) file: Option<SocketFile>,
}

impl Listener for TcpListener {
    fn try_accept(&self) -> io::Result<Box<dyn Stream>> {
        let arriving = &self.source.readiness.reading;
        arriving.check()?;
        match SockRef::from(self.source.socket()).accept4(libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC)
        {
            Ok((socket, peer)) => {
                // These options do not exist on Unix sockets.
                if self.file.is_none() {
                    apply(&socket, &self.options)?;
                }
                let source = self.source.accepted(socket.into())?;
                Ok(Box::new(TcpStream::new(source, address(&peer)?, false)?))
            }
            Err(error) => {
                if error.kind() == io::ErrorKind::WouldBlock {
                    arriving.is_exhausted();
                }
                Err(error)
            }
        }
    }

    fn poll_acceptable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.source.readiness.reading.poll(cx)
    }

    fn local(&self) -> SocketAddr {
        self.local
    }
}

/// Buffers to receive into, in the kernel's form.
pub(crate) struct InVector<'a> {
    vector: Vector,
    pub(crate) bytes: usize,
    _borrowed: std::marker::PhantomData<&'a mut ()>,
}

impl<'a> InVector<'a> {
    pub(crate) fn from_slices(slices: &'a mut [InSlice<'_>]) -> InVector<'a> {
        let mut vector = Vector::empty();
        for slice in slices.iter_mut().take(SLICES) {
            match slice {
                InSlice::Bytes(bytes) => vector.push(bytes.as_mut_ptr(), bytes.len()),
                // Atomics may be written through a shared reference.
                InSlice::Shared(bytes) => {
                    vector.push(bytes.as_ptr().cast_mut().cast(), bytes.len())
                }
            }
        }
        InVector {
            bytes: vector.bytes,
            vector,
            _borrowed: std::marker::PhantomData,
        }
    }

    pub(crate) fn receive(&self, socket: i32) -> io::Result<usize> {
        let mut message = self.vector.message();
        // SAFETY: the vector names memory that `from_slices` borrowed mutably, or atomics that anyone may
        // write, for as long as `self` lives, which is longer than the call.
        let received = unsafe { libc::recvmsg(socket, &raw mut message, 0) };
        usize::try_from(received).map_err(|_| io::Error::last_os_error())
    }
}

/// Bytes to send, in the kernel's form.
pub(crate) struct OutVector<'a> {
    vector: Vector,
    pub(crate) bytes: usize,
    _borrowed: std::marker::PhantomData<&'a ()>,
}

impl<'a> OutVector<'a> {
    pub(crate) fn from_slices(slices: &'a [OutSlice<'_>]) -> OutVector<'a> {
        let mut vector = Vector::empty();
        for slice in slices.iter().take(SLICES) {
            match slice {
                OutSlice::Bytes(bytes) => vector.push(bytes.as_ptr().cast_mut(), bytes.len()),
                OutSlice::Shared(bytes) => {
                    vector.push(bytes.as_ptr().cast_mut().cast(), bytes.len())
                }
            }
        }
        OutVector {
            bytes: vector.bytes,
            vector,
            _borrowed: std::marker::PhantomData,
        }
    }

    pub(crate) fn send(&self, socket: i32) -> io::Result<usize> {
        let message = self.vector.message();
        // SAFETY: the vector names memory that `from_slices` borrowed for as long as `self` lives, which is
        // longer than the call; sendmsg only reads it. NOSIGNAL: a closed connection is an error and must not
        // end this process.
        let sent = unsafe { libc::sendmsg(socket, &raw const message, libc::MSG_NOSIGNAL) };
        usize::try_from(sent).map_err(|_| io::Error::last_os_error())
    }
}

/// A vector of up to [`SLICES`] pieces of memory, stored on the stack.
struct Vector {
    pieces: [MaybeUninit<libc::iovec>; SLICES],
    count: usize,
    bytes: usize,
}

impl Vector {
    fn empty() -> Vector {
        Vector {
            pieces: [const { MaybeUninit::uninit() }; SLICES],
            count: 0,
            bytes: 0,
        }
    }

    fn push(&mut self, start: *mut u8, length: usize) {
        if length > 0 && self.count < SLICES {
            self.pieces[self.count].write(libc::iovec {
                iov_base: start.cast(),
                iov_len: length,
            });
            self.count += 1;
            self.bytes += length;
        }
    }

    /// Returns a message that consists of the pieces. It points into `self`, and must not outlive it.
    fn message(&self) -> libc::msghdr {
        // SAFETY: a msghdr of zeros is one without address, pieces and control data.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        // The kernel only reads the pieces; the first `count` of them were written by `push`.
        message.msg_iov = self.pieces.as_ptr().cast_mut().cast();
        message.msg_iovlen = self.count;
        message
    }
}
