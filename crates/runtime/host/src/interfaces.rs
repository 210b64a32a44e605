//! Network interfaces and their addresses.

// SAFETY of this file: getifaddrs(3) and its list, which is walked once and given back.
#![allow(unsafe_code)]

use std::ffi::CStr;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ptr;

/// The interfaces of this machine (of this network namespace) with their IP addresses: a name for each
/// address.
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
    // SAFETY: `first` came from getifaddrs and nothing of the list is in use any more.
    unsafe { libc::freeifaddrs(first) };
    Ok(found)
}

/// The address of a node, if it has one and it is IP.
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
            let address = unsafe { ptr::read_unaligned(node.ifa_addr.cast::<libc::sockaddr_in6>()) };
            Some(Ipv6Addr::from(address.sin6_addr.s6_addr).into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_has_its_address() {
        let all = addresses().expect("Linux tells");
        assert!(all.contains(&("lo".to_owned(), Ipv4Addr::LOCALHOST.into())), "{all:?}");
    }
}
