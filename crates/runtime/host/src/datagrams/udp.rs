//! UDP sockets that send to and receive from anybody. Nothing is fragmented: a datagram that is too long for the path is lost or
//! refused, so that a protocol can find out how long they may be.

use std::io;
use std::mem;
use std::net::SocketAddr;
use std::os::fd::{AsFd as _, OwnedFd};

use libc::sockaddr_storage;
use reactor::{DatagramAddress, DatagramOptions};
use socket2::{Domain, Protocol, SockAddr, SockAddrStorage, Socket, Type};

use super::calls::Name;
use super::{attach, get_option, remainder, set_option, set_receive_buffer};
use crate::tcp;

/// What IPv4 has room for: 65,535 bytes with both headers.
pub(super) const PAYLOAD_BYTES_MAX: usize = 65_507;

pub(super) fn open(at: SocketAddr, options: &DatagramOptions) -> io::Result<(OwnedFd, DatagramAddress)> {
    let share = options.share.filter(|share| share.count > 1);
    if share.is_some_and(|share| share.index == 0) && at.port() != 0 {
        // Who shares a port may share it with any process of the same user. This one finds such a process.
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
    // The same number in both.
    set_option(socket.as_fd(), level, name, &libc::IP_PMTUDISC_PROBE)?;
    socket.bind(&at.into())?;
    // A number in the order of opening is what the kernel is told by the program, which is all sockets' (SO_ATTACH_REUSEPORT_CBPF,
    // socket(7)). Where there is none of this number, it takes any. So it does for what it joins with an earlier datagram.
    if let Some(share) = share.filter(|share| share.index == 0) {
        let mut program = remainder(share).to_vec();
        let give_back = (libc::BPF_RET | libc::BPF_A) as u16;
        program.push(libc::sock_filter { code: give_back, jt: 0, jf: 0, k: 0 });
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
    // SAFETY: it is viewed as the type that it holds.
    (*unsafe { storage.view_as::<sockaddr_storage>() }, length)
}

pub(super) fn sender(name: &sockaddr_storage) -> Option<DatagramAddress> {
    let mut storage = SockAddrStorage::zeroed();
    // SAFETY: it is viewed as the type that it holds, and the kernel has filled in a socket address of this length or less.
    let address = unsafe {
        *storage.view_as::<sockaddr_storage>() = *name;
        SockAddr::new(storage, mem::size_of::<sockaddr_storage>() as _)
    };
    address.as_socket().map(DatagramAddress::Udp)
}

/// How many datagrams were dropped for want of room.
pub(super) fn drops(socket: &OwnedFd) -> u64 {
    const DROPS: usize = libc::SK_MEMINFO_DROPS as usize;
    let mut words = [0; DROPS + 1];
    get_option(socket, libc::SOL_SOCKET, libc::SO_MEMINFO, &mut words);
    u64::from(words[DROPS])
}
