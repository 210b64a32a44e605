//! Packet sockets (packet(7)), which send and receive frames of one EtherType on one interface. The kernel
//! adds and removes the Ethernet header (SOCK_DGRAM), so that the program handles only payloads, as with UDP.
//!
//! If a frame is tagged with a VLAN for which there is no local interface, the kernel passes it to the socket
//! of the underlying interface. The tag is removed, and the frame is marked as addressed to another host.
//! Frames for other hosts that are received in promiscuous mode have the same mark. This module ignores all
//! frames with the mark.

use std::cell::{Cell, RefCell};
use std::ffi::CStr;
use std::io;
use std::mem;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::atomic::{AtomicU32, Ordering};

use libc::{sock_filter, sockaddr_ll, sockaddr_storage, socklen_t, tpacket_req, tpacket2_hdr};
use reactor::{DatagramAddress, DatagramOptions, DatagramRing, DatagramShare, MacAddress};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};

use super::calls::{Name, attach, get_option, remainder, set_option, set_receive_buffer};
use crate::tap::request;

/// Size of a ring in bytes if no receive buffer size is requested.
const RING_BYTES: usize = 4 << 20;

/// The binding of a packet socket.
pub(super) struct Packet {
    interface: String,
    bound: sockaddr_ll,
    /// The last known MTU.
    mtu: Cell<usize>,
}

impl Packet {
    pub(super) fn open(
        interface: &str,
        ether_type: u16,
        options: &DatagramOptions,
    ) -> io::Result<(OwnedFd, Packet, Option<ReceiveRing>)> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        // Without a protocol, the socket receives nothing until it is bound.
        let socket =
            rustix::net::socket_with(AddressFamily::PACKET, SocketType::DGRAM, flags, None)
                .map_err(|errno| not_allowed(interface, errno))?;
        let index = rustix::net::netdevice::name_to_index(&socket, interface)
            .map_err(|errno| unknown(interface, errno))?;
        let asked = sockaddr_ll {
            sll_family: libc::AF_PACKET as _,
            sll_protocol: ether_type.to_be(),
            sll_ifindex: index as i32,
            ..zeroed()
        };
        let is_short =
            mtu(&socket, interface).is_some_and(|mtu| mtu <= ReceiveRing::SHORT_PAYLOAD_BYTES);
        let ring = options.ring.and_then(|DatagramRing { payload_bytes, places_max }| {
            let longest = if is_short { ReceiveRing::SHORT_PAYLOAD_BYTES } else { usize::MAX };
            let bytes = options.receive_buffer_bytes.unwrap_or(RING_BYTES);
            let ring = ReceiveRing::open(&socket, payload_bytes.min(longest), bytes, places_max);
            ring.inspect_err(|error| tracing::debug!(interface, %error, "frames are received without a ring"))
                .ok()
        });
        if ring.is_none() {
            set_receive_buffer(&socket, options.receive_buffer_bytes)?;
        }
        // Ignore frames that this machine sends. Linux before 4.20 does not have this option, but marks these
        // frames, so `sender_of` ignores them.
        let _ = set_option(
            socket.as_fd(),
            libc::SOL_PACKET,
            libc::PACKET_IGNORE_OUTGOING,
            &1i32,
        );
        if let Some(share) = options.share.filter(|share| share.count > 1) {
            take_share(&socket, share)?;
        }
        let bound = bind(&socket, &asked)?;
        if !matches!(bound.sll_hatype, libc::ARPHRD_ETHER | libc::ARPHRD_LOOPBACK)
            || bound.sll_halen != 6
        {
            let why = format!("{interface} is not an Ethernet interface; use one (ip link)");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        if !is_up(&socket, interface)? {
            let why =
                format!("interface {interface} is down; bring it up (ip link set {interface} up)");
            return Err(io::Error::new(io::ErrorKind::NetworkDown, why));
        }
        let packet = Packet {
            interface: interface.to_owned(),
            bound,
            mtu: Cell::new(0),
        };
        let (mtu, least) = (packet.mtu(&socket), options.payload_bytes_min);
        if mtu < least {
            let why = format!(
                "the MTU of interface {interface} is {mtu} bytes, but must be at least {least}; raise it (ip \
                 link set {interface} mtu {least})"
            );
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        Ok((socket, packet, ring))
    }

    pub(super) fn local(&self) -> DatagramAddress {
        address(&self.bound)
    }

    /// Returns the current MTU of the interface, or the last known one if the interface no longer exists.
    pub(super) fn mtu(&self, socket: &OwnedFd) -> usize {
        if let Some(mtu) = mtu(socket, &self.interface) {
            self.mtu.set(mtu);
        }
        self.mtu.get()
    }

    /// Creates the address structure for sending a frame to this MAC address.
    pub(super) fn name(&self, to: MacAddress) -> Name {
        let mut name = self.bound;
        name.sll_halen = 6;
        name.sll_addr[..6].copy_from_slice(&to.0);
        // SAFETY: a storage of zeros is a legal one, larger than and aligned for any socket address.
        let storage = unsafe {
            let mut storage: sockaddr_storage = mem::zeroed();
            (&raw mut storage).cast::<sockaddr_ll>().write(name);
            storage
        };
        (storage, size_of::<sockaddr_ll>() as socklen_t)
    }
}

/// Returns the primary name of the interface with this name. Since Linux 5.5, the kernel also accepts
/// alternative names (`ip link property`).
pub(crate) fn interface_name(name: &str) -> io::Result<String> {
    // Any socket can be used for the query. A Unix socket needs no privileges.
    let socket = rustix::net::socket_with(
        AddressFamily::UNIX,
        SocketType::DGRAM,
        SocketFlags::CLOEXEC,
        None,
    )?;
    let index = rustix::net::netdevice::name_to_index(&socket, name)?;
    Ok(rustix::net::netdevice::index_to_name(&socket, index)?)
}

/// Attaches a filter (classic BPF, socket(7)), with which the kernel drops frames that do not contain one of
/// these words, before it copies them.
pub(super) fn take_only(socket: &OwnedFd, at: u16, words: &[u32]) -> io::Result<()> {
    let step = |code: u32, jt: usize, k: u32| sock_filter {
        code: code as u16,
        jt: jt as u8,
        jf: 0,
        k,
    };
    let mut program = vec![step(
        libc::BPF_LD | libc::BPF_W | libc::BPF_ABS,
        0,
        at.into(),
    )];
    let compare = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    // A match jumps past the instruction that rejects the frame.
    program.extend(
        words
            .iter()
            .enumerate()
            .map(|(place, word)| step(compare, words.len() - place, *word)),
    );
    program.extend([0, u32::MAX].map(|bytes| step(libc::BPF_RET | libc::BPF_K, 0, bytes)));
    match words.len() <= usize::from(u8::MAX) {
        true => attach(socket.as_fd(), libc::SO_ATTACH_FILTER, &mut program),
        false => Err(io::ErrorKind::InvalidInput.into()),
    }
}

/// Attaches a filter that accepts a frame if the word's remainder equals this socket's index. Each socket of
/// an interface has its own filter, so the assignment does not depend on the other sockets. (PACKET_FANOUT
/// assigns frames by positions in a list of sockets, which change when an interface goes down or a socket is
/// closed.)
fn take_share(socket: &OwnedFd, share: DatagramShare) -> io::Result<()> {
    let step = |code: u32, jf: u8, k: u32| sock_filter {
        code: code as u16,
        jt: 0,
        jf,
        k,
    };
    let mut program = remainder(share).to_vec();
    program.push(step(
        libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K,
        1,
        share.index,
    ));
    program.extend([u32::MAX, 0].map(|bytes| step(libc::BPF_RET | libc::BPF_K, 0, bytes)));
    attach(socket.as_fd(), libc::SO_ATTACH_FILTER, &mut program)
}

/// Returns the sender of a frame; `None` if the frame is not for this host.
pub(super) fn sender(name: &sockaddr_storage) -> Option<DatagramAddress> {
    // SAFETY: the kernel supplies a sockaddr_ll with each frame of a packet socket, and a storage is large
    // enough for any address.
    sender_of(unsafe { &*(&raw const *name).cast::<sockaddr_ll>() })
}

/// Returns the sender contained in an address of a packet socket; `None` if the frame is not for this host.
pub(super) fn sender_of(name: &sockaddr_ll) -> Option<DatagramAddress> {
    let is_ours = matches!(
        name.sll_pkttype,
        libc::PACKET_HOST | libc::PACKET_BROADCAST | libc::PACKET_MULTICAST
    );
    (is_ours && name.sll_halen == 6).then(|| address(name))
}

/// Returns the number of frames dropped since the last query because the receive queue was full.
pub(super) fn drops(socket: &OwnedFd) -> u64 {
    let mut statistics = [0; 2]; // struct tpacket_stats: all, and those dropped
    get_option(
        socket,
        libc::SOL_PACKET,
        libc::PACKET_STATISTICS,
        &mut statistics,
    );
    u64::from(statistics[1])
}

fn mtu(socket: &OwnedFd, interface: &str) -> Option<usize> {
    let mut request = request(interface).ok()?;
    // SAFETY: SIOCGIFMTU reads the name and writes a number; the structure lives for the call.
    let outcome =
        unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFMTU as _, &raw mut request) };
    // SAFETY: SIOCGIFMTU has just written this field.
    (outcome == 0).then(|| usize::try_from(unsafe { request.ifr_ifru.ifru_mtu }).unwrap_or(0))
}

fn address(name: &sockaddr_ll) -> DatagramAddress {
    let [a, b, c, d, e, g, ..] = name.sll_addr;
    DatagramAddress::Ethernet(MacAddress([a, b, c, d, e, g]))
}

fn zeroed() -> sockaddr_ll {
    // SAFETY: a structure of numbers.
    unsafe { mem::zeroed() }
}

/// Binds a socket. Returns its address, to which the kernel has added the MAC address of the interface.
fn bind(socket: &OwnedFd, to: &sockaddr_ll) -> io::Result<sockaddr_ll> {
    let (mut bound, mut length) = (zeroed(), size_of::<sockaddr_ll>() as socklen_t);
    // SAFETY: the first call reads one address, the second writes one; both live for the calls, and `length` is theirs.
    let outcome = unsafe {
        match libc::bind(socket.as_raw_fd(), (&raw const *to).cast(), length) {
            0 => libc::getsockname(socket.as_raw_fd(), (&raw mut bound).cast(), &raw mut length),
            refused => refused,
        }
    };
    if outcome < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(bound)
    }
}

fn is_up(socket: &OwnedFd, interface: &str) -> io::Result<bool> {
    let mut request = request(interface)?;
    // SAFETY: SIOCGIFFLAGS reads the name and writes the flags; the structure lives for the call.
    let outcome = unsafe {
        libc::ioctl(
            socket.as_raw_fd(),
            libc::SIOCGIFFLAGS as _,
            &raw mut request,
        )
    };
    if outcome < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: SIOCGIFFLAGS has just written this field.
    let flags = unsafe { request.ifr_ifru.ifru_flags };
    Ok(libc::c_int::from(flags) & libc::IFF_UP != 0)
}

fn not_allowed(interface: &str, errno: Errno) -> io::Error {
    match errno {
        Errno::PERM | Errno::ACCESS => {
            let why = format!(
                "raw Ethernet on {interface} requires CAP_NET_RAW; grant it (setcap cap_net_raw+ep on the \
                 program, or AmbientCapabilities=CAP_NET_RAW in its systemd unit), or use a protocol over \
                 UDP or TCP"
            );
            io::Error::new(io::ErrorKind::PermissionDenied, why)
        }
        errno => errno.into(),
    }
}

fn unknown(interface: &str, errno: Errno) -> io::Error {
    let all = names().join(", ");
    let why = match errno {
        Errno::NODEV | Errno::INVAL | Errno::NAMETOOLONG => {
            format!("there is no interface {interface}; this machine has {all} (ip link)")
        }
        errno => format!("interface {interface}: {errno}"),
    };
    io::Error::new(io::ErrorKind::NotFound, why)
}

/// The names of all interfaces.
fn names() -> Vec<String> {
    let mut names = Vec::new();
    // SAFETY: the loop stops at the end of the list, an index of 0; the list is freed once; its names are C
    // strings.
    unsafe {
        let first = libc::if_nameindex();
        let mut next = first;
        while !next.is_null() && (*next).if_index != 0 {
            names.push(
                CStr::from_ptr((*next).if_name)
                    .to_string_lossy()
                    .into_owned(),
            );
            next = next.add(1);
        }
        if !first.is_null() {
            libc::if_freenameindex(first);
        }
    }
    names
}

// The receive ring of a packet socket (PACKET_RX_RING, packet(7), version 2): the kernel writes frames to
// memory from which this process reads them in place. Per frame, this saves a system call, a page and a copy.
//
// ```text
//  slot:  tpacket2_hdr │ sockaddr_ll │ gap │ payload          a block has a whole number of slots
//  status: KERNEL ── a frame was written ──► USER ── read ──► KERNEL
// ```
//
// Version 3 delivers whole blocks, after a timeout of a millisecond or more. That is far too slow for a
// single outstanding request.

/// Offsets of the address and of the payload in a slot (`tpacket_rcv` in the kernel).
const NAME_AT: usize = align(size_of::<tpacket2_hdr>());
const PAYLOAD_AT: usize = align(NAME_AT + size_of::<sockaddr_ll>()) + 16;
/// Size of a block, which is contiguous memory in the kernel.
const BLOCK_BYTES: usize = 64 << 10;

const fn align(bytes: usize) -> usize {
    bytes.next_multiple_of(libc::TPACKET_ALIGNMENT)
}

pub(crate) struct ReceiveRing {
    memory: NonNull<u8>,
    blocks: usize,
    slot_bytes: usize,
    slots_per_block: usize,
    /// The next slot to read. Borrowed while slots are read.
    next: RefCell<usize>,
    /// Number of datagrams that were longer than a slot.
    pub(super) too_long: Cell<u64>,
}

// SAFETY: the mapping may be read and written from any thread; `Send` without `Sync` restricts the ring to
// one thread at a time.
unsafe impl Send for ReceiveRing {}

impl ReceiveRing {
    /// Maximum payload length in a 2 KiB slot, which is sufficient for an interface with the usual MTU.
    pub(super) const SHORT_PAYLOAD_BYTES: usize = (2 << 10) - PAYLOAD_AT;

    /// Adds a ring to a socket that is not bound yet. The ring has about `bytes` bytes and at most
    /// `places_max` slots, each for a payload of `payload_bytes` bytes.
    pub(super) fn open(
        socket: &OwnedFd,
        payload_bytes: usize,
        bytes: usize,
        slots_max: usize,
    ) -> io::Result<ReceiveRing> {
        let slot_bytes = align(PAYLOAD_AT + payload_bytes);
        let slots_per_block = BLOCK_BYTES / slot_bytes;
        if slots_per_block == 0 {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let blocks = (bytes / BLOCK_BYTES)
            .min(slots_max / slots_per_block)
            .max(1);
        let version = libc::tpacket_versions::TPACKET_V2 as libc::c_int;
        set_option(
            socket.as_fd(),
            libc::SOL_PACKET,
            libc::PACKET_VERSION,
            &version,
        )?;
        let request = tpacket_req {
            tp_block_size: BLOCK_BYTES as _,
            tp_block_nr: blocks as _,
            tp_frame_size: slot_bytes as _,
            tp_frame_nr: (slots_per_block * blocks) as _,
        };
        set_option(
            socket.as_fd(),
            libc::SOL_PACKET,
            libc::PACKET_RX_RING,
            &request,
        )?;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: the kernel chooses the address, so no existing memory is touched; a ring of this length was
        // just created.
        let memory = unsafe {
            libc::mmap(
                ptr::null_mut(),
                blocks * BLOCK_BYTES,
                protection,
                libc::MAP_SHARED,
                socket.as_raw_fd(),
                0,
            )
        };
        if memory == libc::MAP_FAILED {
            let error = io::Error::last_os_error();
            // Remove the ring: otherwise the kernel would continue to fill it although no thread reads it.
            let none = tpacket_req {
                tp_block_size: 0,
                tp_block_nr: 0,
                tp_frame_size: 0,
                tp_frame_nr: 0,
            };
            set_option(
                socket.as_fd(),
                libc::SOL_PACKET,
                libc::PACKET_RX_RING,
                &none,
            )?;
            return Err(error);
        }
        let memory = NonNull::new(memory.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        let (next, too_long) = (RefCell::new(0), Cell::new(0));
        Ok(ReceiveRing {
            memory,
            blocks,
            slot_bytes,
            slots_per_block,
            next,
            too_long,
        })
    }

    /// Maximum payload length.
    pub(super) fn payload_bytes_max(&self) -> usize {
        self.slot_bytes - PAYLOAD_AT
    }

    fn slot(&self, number: usize) -> NonNull<u8> {
        let (block, place) = (number / self.slots_per_block, number % self.slots_per_block);
        debug_assert!(block < self.blocks);
        // SAFETY: the mapping has `blocks` blocks, and each the space of `slots_per_block` slots.
        unsafe {
            self.memory
                .add(block * BLOCK_BYTES + place * self.slot_bytes)
        }
    }

    /// Whether a frame is available.
    pub(crate) fn has_any(&self) -> bool {
        self.next
            .try_borrow()
            .is_ok_and(|next| self.status(*next) & libc::TP_STATUS_USER != 0)
    }

    fn status(&self, number: usize) -> u32 {
        self.status_word(number).load(Ordering::Acquire)
    }

    fn status_word(&self, number: usize) -> &AtomicU32 {
        let header = self.slot(number).cast::<tpacket2_hdr>();
        // SAFETY: a slot begins with its header, which is aligned to 16 bytes and lives as long as the
        // mapping. The kernel and this process access the word only as a whole, so it is atomic for both.
        unsafe { AtomicU32::from_ptr(&raw mut (*header.as_ptr()).tp_status) }
    }

    /// Passes the payloads in up to `most` slots to `take`. Returns the number of slots read, including those
    /// with frames for other hosts; 0 means that the ring is empty.
    pub(super) fn receive(
        &self,
        most: usize,
        take: &mut dyn FnMut(DatagramAddress, &mut [u8]),
    ) -> usize {
        // While `next` is borrowed, no other call can read slots, so no slot is passed on twice.
        let Ok(mut next) = self.next.try_borrow_mut() else {
            return 0;
        };
        for count in 0..most {
            if self.status(*next) & libc::TP_STATUS_USER == 0 {
                return count;
            }
            let slot = self.slot(*next);
            let number = *next;
            *next = (number + 1) % (self.slots_per_block * self.blocks);
            // Returns the slot to the kernel after reading, even if `take` panics.
            let _given_back = GiveBack(self.status_word(number));
            // SAFETY: according to the status, the kernel has written the slot; it does not write there again
            // until the slot is returned. The header and the address after it are plain integers, aligned to
            // 16 bytes.
            let (header, name) = unsafe {
                (
                    slot.cast::<tpacket2_hdr>().read(),
                    slot.add(NAME_AT).cast::<sockaddr_ll>().read(),
                )
            };
            let (start, bytes) = (usize::from(header.tp_mac), header.tp_snaplen as usize);
            if header.tp_snaplen < header.tp_len {
                self.too_long.set(self.too_long.get() + 1);
                continue;
            }
            let is_inside = start >= PAYLOAD_AT && start + bytes <= self.slot_bytes;
            if let (true, Some(from)) = (is_inside, sender_of(&name)) {
                // SAFETY: inside the slot, which is ours until it is returned; `next` is borrowed, so this is
                // the only reference.
                let payload = unsafe { slice::from_raw_parts_mut(slot.add(start).as_ptr(), bytes) };
                take(from, payload);
            }
        }
        most
    }
}

/// Returns a slot to the kernel when dropped.
struct GiveBack<'a>(&'a AtomicU32);

impl Drop for GiveBack<'_> {
    fn drop(&mut self) {
        self.0.store(libc::TP_STATUS_KERNEL, Ordering::Release);
    }
}

impl Drop for ReceiveRing {
    fn drop(&mut self) {
        // SAFETY: mapped by `open` with this length; no reference to it outlives a call of `receive`.
        unsafe { libc::munmap(self.memory.as_ptr().cast(), self.blocks * BLOCK_BYTES) };
    }
}
