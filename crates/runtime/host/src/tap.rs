//! A tap device: an Ethernet interface whose other end is this process. The process reads the frames that the
//! kernel sends, and writes the frames that the kernel receives.
//!
//! Each frame begins with a virtio header ([`HEADER_BYTES`], `struct virtio_net_hdr` in the machine's byte
//! order). The kernel leaves checksums and TCP segmentation to the reader, as it does to a network card, and
//! accepts frames in the same form. So one read can return a segment of many frames.

// SAFETY of this file: ioctl(2) with the structures that each request reads and writes.
#![allow(unsafe_code)]

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt as _;

use rustix::net::{AddressFamily, SocketType};

/// The virtio header in front of each frame.
pub const HEADER_BYTES: usize = 10;

/// A tap interface, which is removed when this is dropped.
#[derive(Debug)]
pub struct Tap {
    file: File,
}

impl Tap {
    /// Creates an interface in the network namespace of the calling thread. Reads and writes do not block.
    /// Needs `CAP_NET_ADMIN` there, and the right to open `/dev/net/tun`.
    ///
    /// # Errors
    /// System errors; [`io::ErrorKind::InvalidInput`] for an invalid interface name.
    pub fn new(name: &str) -> io::Result<Tap> {
        let mut request = request(name)?;
        let flags = libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_VNET_HDR;
        request.ifr_ifru.ifru_flags = flags as libc::c_short;
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_NONBLOCK)
            .open("/dev/net/tun")?;
        // SAFETY: TUNSETIFF reads and writes one ifreq, which lives for the call.
        checked(unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF, &raw mut request) })?;
        let offload = libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6;
        // SAFETY: TUNSETOFFLOAD takes its flags by value.
        checked(unsafe {
            libc::ioctl(
                file.as_raw_fd(),
                libc::TUNSETOFFLOAD,
                libc::c_ulong::from(offload),
            )
        })?;
        Ok(Tap { file })
    }

    /// Reads the next packet that the kernel sends: a virtio header followed by one frame, or by one segment
    /// of many frames. If the packet is longer than `buffer`, it is truncated.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] if there is no packet.
    pub fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        Ok(rustix::io::read(&self.file, buffer)?)
    }

    /// Passes a virtio header and a frame or segment to the kernel. The data is in the receiver's socket
    /// before this returns.
    pub fn write(&self, packet: &[u8]) -> io::Result<()> {
        rustix::io::write(&self.file, packet)?;
        Ok(())
    }
}

impl AsFd for Tap {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Sets the speed in Mbit/s that an interface of the calling thread's namespace reports in
/// `/sys/class/net/NAME/speed` and to ethtool. The actual speed does not change.
pub fn report_speed(name: &str, megabits: u32) -> io::Result<()> {
    let mut settings = EthtoolSettings {
        command: ETHTOOL_SSET,
        speed_low: (megabits & 0xffff) as u16,
        duplex: DUPLEX_FULL,
        speed_high: (megabits >> 16) as u16,
        ..EthtoolSettings::default()
    };
    let mut request = request(name)?;
    request.ifr_ifru.ifru_data = (&raw mut settings).cast();
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::DGRAM, None)?;
    // SAFETY: SIOCETHTOOL reads the ifreq and the ethtool_cmd that it points to; both live for the call.
    checked(unsafe {
        libc::ioctl(
            socket.as_raw_fd(),
            libc::SIOCETHTOOL as libc::Ioctl,
            &raw mut request,
        )
    })
}

/// `struct ethtool_cmd` (linux/ethtool.h); missing from libc.
#[repr(C)]
#[derive(Default)]
struct EthtoolSettings {
    command: u32,
    supported: u32,
    advertising: u32,
    speed_low: u16,
    duplex: u8,
    port: u8,
    address: u8,
    transceiver: u8,
    negotiate: u8,
    mdio: u8,
    packets_max: [u32; 2],
    speed_high: u16,
    crossed: [u8; 2],
    partner: u32,
    reserved: [u32; 2],
}

const ETHTOOL_SSET: u32 = 2;
const DUPLEX_FULL: u8 = 1;

/// Creates an ifreq that contains only the name of an interface.
pub(crate) fn request(name: &str) -> io::Result<libc::ifreq> {
    // SAFETY: all zeroes are a legal ifreq: characters, and a union of numbers and pointers.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    // The last byte must stay zero, because it terminates the name.
    if name.is_empty() || name.len() >= request.ifr_name.len() || name.bytes().any(|byte| byte == 0)
    {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    request
        .ifr_name
        .iter_mut()
        .zip(name.bytes())
        .for_each(|(to, byte)| *to = byte as libc::c_char);
    Ok(request)
}

fn checked(outcome: libc::c_int) -> io::Result<()> {
    if outcome < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_too_long_for_an_interface_is_refused() {
        let refused = |name| Tap::new(name).expect_err("refused").kind();
        assert_eq!(
            refused("an-interface-with-a-name"),
            io::ErrorKind::InvalidInput
        );
        assert_eq!(refused(""), io::ErrorKind::InvalidInput);
    }

    #[test]
    fn the_settings_have_the_length_that_the_kernel_expects() {
        assert_eq!(size_of::<EthtoolSettings>(), 44);
    }
}
