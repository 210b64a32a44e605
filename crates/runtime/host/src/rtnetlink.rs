//! Configures interfaces, addresses and neighbours of a network namespace through rtnetlink(7).
//!
//! Only a few messages are needed, so neither a library nor `ip` is used.

use std::ffi::CStr;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::ptr;

use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

use crate::namespace::Namespace;

/// An rtnetlink socket of one namespace, usable from any thread.
#[derive(Debug)]
pub struct Rtnetlink {
    socket: OwnedFd,
}

/// Settings of an interface.
#[derive(Clone, Copy, Debug, Default)]
pub struct InterfaceSettings {
    /// Its Ethernet address.
    pub ethernet: Option<[u8; 6]>,
    /// The longest IP packet, in bytes.
    pub mtu: Option<u32>,
    /// Transmit queue length in packets.
    pub queue: Option<u32>,
    /// Maximum number of frames in one segment that TCP passes to the interface for segmentation (GSO).
    pub segment_frames_max: Option<u32>,
}

impl Rtnetlink {
    /// Opens a socket for the namespace of the calling thread.
    pub fn open() -> io::Result<Rtnetlink> {
        let socket = rustix::net::socket_with(
            AddressFamily::NETLINK,
            SocketType::RAW,
            SocketFlags::CLOEXEC,
            None, // protocol 0, NETLINK_ROUTE
        )?;
        rustix::net::bind(&socket, &SocketAddrNetlink::new(0, 0))?;
        Ok(Rtnetlink { socket })
    }

    /// Returns the number of an interface.
    pub fn index(&self, name: &str) -> io::Result<u32> {
        Ok(rustix::net::netdevice::name_to_index(&self.socket, name)?)
    }

    /// Applies the settings that are not `None`, and brings the interface up.
    pub fn set_up(&self, index: u32, settings: &InterfaceSettings) -> io::Result<()> {
        let mut message = Message::new(libc::RTM_NEWLINK, 0);
        let up = libc::IFF_UP as u32;
        // struct ifinfomsg: family, type, number, flags, and a mask of the flags to change.
        message.bytes(&[0; 4]).word(index).word(up).word(up);
        if let Some(ethernet) = settings.ethernet {
            message.attribute(libc::IFLA_ADDRESS, &ethernet);
        }
        let words = [
            (libc::IFLA_MTU, settings.mtu),
            (libc::IFLA_TXQLEN, settings.queue),
            (libc::IFLA_GSO_MAX_SEGS, settings.segment_frames_max),
        ];
        for (kind, value) in words {
            if let Some(value) = value {
                message.attribute(kind, &value.to_ne_bytes());
            }
        }
        self.ask(message)
    }

    /// Brings an interface down.
    pub fn set_down(&self, index: u32) -> io::Result<()> {
        let mut message = Message::new(libc::RTM_NEWLINK, 0);
        message
            .bytes(&[0; 4])
            .word(index)
            .word(0)
            .word(libc::IFF_UP as u32);
        self.ask(message)
    }

    /// Assigns an address to an interface. The kernel also adds a route to the addresses with the same first
    /// `prefix` bits.
    pub fn add_address(&self, index: u32, address: IpAddr, prefix: u8) -> io::Result<()> {
        let mut message = Message::new(libc::RTM_NEWADDR, CREATE);
        let (family, octets) = family_and_octets(address);
        // struct ifaddrmsg: family, prefix, flags, scope (0: universal), number.
        message.bytes(&[family, prefix, 0, 0]).word(index);
        message
            .attribute(libc::IFA_LOCAL, &octets)
            .attribute(libc::IFA_ADDRESS, &octets);
        if address.is_ipv6() {
            // Skip duplicate address detection, so that the address can be used immediately: duplicates are
            // impossible here.
            message.attribute(libc::IFA_FLAGS, &libc::IFA_F_NODAD.to_ne_bytes());
        }
        self.ask(message)
    }

    /// Adds a permanent neighbour entry, which maps an IP address to an Ethernet address, so that the kernel
    /// does not resolve the address.
    pub fn add_neighbour(&self, index: u32, address: IpAddr, ethernet: [u8; 6]) -> io::Result<()> {
        let mut message = Message::new(libc::RTM_NEWNEIGH, CREATE);
        let (family, octets) = family_and_octets(address);
        // struct ndmsg: family, padding, number, state, flags, type.
        message.bytes(&[family, 0, 0, 0]).word(index);
        message
            .bytes(&libc::NUD_PERMANENT.to_ne_bytes())
            .bytes(&[0, 0]);
        message
            .attribute(libc::NDA_DST, &octets)
            .attribute(libc::NDA_LLADDR, &ethernet);
        self.ask(message)
    }

    /// Creates a pair of connected interfaces (veth(4)): one in this namespace, and its peer in the same or
    /// another namespace. If one of them is removed, for example with its namespace, the other one is removed
    /// too.
    pub fn add_pair(&self, name: &str, peer: &str, peer_in: &Namespace) -> io::Result<()> {
        let zero_ended = |name: &str| [name.as_bytes(), &[0]].concat();
        let mut peer_link = Message(vec![0; IFINFOMSG_BYTES]);
        peer_link.attribute(libc::IFLA_IFNAME, &zero_ended(peer));
        peer_link.attribute(
            libc::IFLA_NET_NS_FD,
            &peer_in.as_fd().as_raw_fd().to_ne_bytes(),
        );
        let mut data = Message(Vec::new());
        data.attribute(VETH_INFO_PEER, &peer_link.0);
        let mut info = Message(Vec::new());
        info.attribute(libc::IFLA_INFO_KIND, &zero_ended("veth"))
            .attribute(libc::IFLA_INFO_DATA, &data.0);
        let mut message = Message::new(libc::RTM_NEWLINK, libc::NLM_F_CREATE | libc::NLM_F_EXCL);
        message
            .bytes(&[0; IFINFOMSG_BYTES])
            .attribute(libc::IFLA_IFNAME, &zero_ended(name));
        message.attribute(libc::IFLA_LINKINFO, &info.0);
        self.ask(message)
    }

    /// Sends a message and returns the kernel's result.
    fn ask(&self, message: Message) -> io::Result<()> {
        rustix::net::send(&self.socket, &message.finished(), SendFlags::empty())?;
        let mut answer = [0; 512];
        let (length, _) = rustix::net::recv(&self.socket, &mut answer, RecvFlags::empty())?;
        outcome(&answer[..length.min(answer.len())])
    }
}

/// Decodes a reply: a struct nlmsghdr of type NLMSG_ERROR, followed by a negative error number or 0.
fn outcome(answer: &[u8]) -> io::Result<()> {
    let kind = answer
        .get(4..6)
        .and_then(|bytes| bytes.try_into().ok())
        .map(u16::from_ne_bytes);
    let error = answer
        .get(16..20)
        .and_then(|bytes| bytes.try_into().ok())
        .map(i32::from_ne_bytes);
    match (kind.map(i32::from), error) {
        (Some(libc::NLMSG_ERROR), Some(0)) => Ok(()),
        (Some(libc::NLMSG_ERROR), Some(error)) => {
            Err(io::Error::from_raw_os_error(error.wrapping_neg()))
        }
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

fn family_and_octets(address: IpAddr) -> (u8, Vec<u8>) {
    match address {
        IpAddr::V4(address) => (libc::AF_INET as u8, address.octets().to_vec()),
        IpAddr::V6(address) => (libc::AF_INET6 as u8, address.octets().to_vec()),
    }
}

/// Flags for creating an object, or replacing it if it exists. (Interfaces are changed without these flags.)
const CREATE: libc::c_int = libc::NLM_F_CREATE | libc::NLM_F_REPLACE;

/// struct ifinfomsg.
const IFINFOMSG_BYTES: usize = 16;

/// From linux/veth.h; missing from libc.
const VETH_INFO_PEER: u16 = 1;

/// A message under construction: a struct nlmsghdr, then the header of the message's kind, then attributes,
/// each padded to 4 bytes.
struct Message(Vec<u8>);

impl Message {
    fn new(kind: u16, create: libc::c_int) -> Message {
        let flags = libc::NLM_F_REQUEST | libc::NLM_F_ACK | create;
        let mut message = Message(vec![0; 4]); // the length, once it is known
        message
            .bytes(&kind.to_ne_bytes())
            .bytes(&(flags as u16).to_ne_bytes());
        message.word(0).word(0); // sequence and port are not needed: one request at a time
        message
    }

    fn bytes(&mut self, bytes: &[u8]) -> &mut Message {
        self.0.extend_from_slice(bytes);
        self
    }

    fn word(&mut self, word: u32) -> &mut Message {
        self.bytes(&word.to_ne_bytes())
    }

    fn attribute(&mut self, kind: u16, value: &[u8]) -> &mut Message {
        let length = 4 + value.len() as u16;
        self.bytes(&length.to_ne_bytes())
            .bytes(&kind.to_ne_bytes())
            .bytes(value);
        let padded = self.0.len().next_multiple_of(4);
        self.0.resize(padded, 0);
        self
    }

    fn finished(mut self) -> Vec<u8> {
        let length = self.0.len() as u32;
        self.0[..4].copy_from_slice(&length.to_ne_bytes());
        self.0
    }
}

/// Returns the IP addresses of all interfaces in this network namespace, each with the interface's name.
#[allow(unsafe_code)] // getifaddrs(3) and its list, which is walked once and freed
pub fn addresses() -> io::Result<Vec<(String, IpAddr)>> {
    let mut first: *mut libc::ifaddrs = ptr::null_mut();
    // SAFETY: fills `first` with a list that is ours until freeifaddrs.
    if unsafe { libc::getifaddrs(&mut first) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let mut found = Vec::new();
    let mut next = first;
    // SAFETY: `next` is null or a node of the list, which is not freed before the loop has ended.
    while let Some(node) = unsafe { next.as_ref() } {
        // SAFETY: the name of a node is a C string that lives as long as the list.
        let name = unsafe { CStr::from_ptr(node.ifa_name) };
        found.extend(address(node).map(|address| (name.to_string_lossy().into_owned(), address)));
        next = node.ifa_next;
    }
    // SAFETY: `first` came from getifaddrs and the list is no longer in use.
    unsafe { libc::freeifaddrs(first) };
    Ok(found)
}

/// Returns the address of a node, if it has an IP address.
#[allow(unsafe_code)]
fn address(node: &libc::ifaddrs) -> Option<IpAddr> {
    // SAFETY: null or a socket address that lives as long as the list; all kinds begin with their family.
    let family = unsafe { node.ifa_addr.as_ref() }?.sa_family;
    match i32::from(family) {
        libc::AF_INET => {
            // SAFETY: of this family, so that it is a sockaddr_in; getifaddrs aligns it for all kinds.
            let address = unsafe { ptr::read_unaligned(node.ifa_addr.cast::<libc::sockaddr_in>()) };
            Some(Ipv4Addr::from(u32::from_be(address.sin_addr.s_addr)).into())
        }
        libc::AF_INET6 => {
            // SAFETY: of this family, so that it is a sockaddr_in6; getifaddrs aligns it for all kinds.
            let address =
                unsafe { ptr::read_unaligned(node.ifa_addr.cast::<libc::sockaddr_in6>()) };
            Some(Ipv6Addr::from(address.sin6_addr.s6_addr).into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attribute_is_padded_and_says_its_length_without() {
        let mut message = Message::new(libc::RTM_NEWLINK, 0);
        message.attribute(libc::IFLA_ADDRESS, &[1, 2, 3, 4, 5, 6]);
        let bytes = message.finished();
        assert_eq!(bytes.len(), 16 + 12);
        assert_eq!(bytes[..4], 28u32.to_ne_bytes());
        assert_eq!(bytes[16..18], 10u16.to_ne_bytes());
        assert_eq!(bytes[20..], [1, 2, 3, 4, 5, 6, 0, 0]);
    }

    #[test]
    fn a_refusal_becomes_the_systems_error() {
        let mut answer = [0; 20];
        answer[4..6].copy_from_slice(&(libc::NLMSG_ERROR as u16).to_ne_bytes());
        assert!(outcome(&answer).is_ok());
        answer[16..20].copy_from_slice(&(-libc::EPERM).to_ne_bytes());
        assert_eq!(
            outcome(&answer).expect_err("refused").kind(),
            io::ErrorKind::PermissionDenied
        );
        assert_eq!(
            outcome(&answer[..12]).expect_err("short").kind(),
            io::ErrorKind::InvalidData
        );
    }

    #[test]
    fn the_loopback_has_a_number_in_every_namespace() {
        let rtnetlink = Rtnetlink::open().expect("no privilege is needed to ask");
        assert!(rtnetlink.index("lo").expect("is there") > 0);
        assert!(rtnetlink.index("nothing-such").is_err());
    }

    #[test]
    fn the_loopback_has_its_address() {
        let all = addresses().expect("Linux tells");
        assert!(
            all.contains(&("lo".to_owned(), Ipv4Addr::LOCALHOST.into())),
            "{all:?}"
        );
    }
}
