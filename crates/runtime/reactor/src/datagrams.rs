//! Datagrams: payloads of UDP, or of raw Ethernet frames of one EtherType on one interface. In both cases
//! each payload has an address. Datagrams may be lost, duplicated or reordered.
//!
//! An Ethernet payload contains neither header nor checksum, but may end in padding, because network cards
//! pad short frames to 60 bytes. So a protocol over Ethernet must encode its own lengths.

use std::net::SocketAddr;
use std::num::ParseIntError;
use std::str::FromStr;
use std::task::{Context, Poll};
use std::{fmt, io};

use derive_more::Display;

use crate::stream::{Detached, OutSlice};

/// Receives and sends datagrams without blocking.
pub trait Datagrams {
    /// Empties the batch, and receives available datagrams into it, up to its capacity. Returns their number.
    /// `WouldBlock` means that nothing is available yet. 0 means that all frames were for other hosts, and
    /// that the caller should retry. `NetworkDown` is returned once when the interface goes down or
    /// disappears; when it comes up again, reception resumes.
    fn try_receive(&self, into: &mut DatagramBatch) -> io::Result<usize>;
    /// Receives available datagrams and passes each one to `take`, which may change it in place. The
    /// datagrams are in memory shared with the kernel if the endpoint has a ring, otherwise in the batch.
    /// Returns their number, a few dozen at most. `take` must not receive from the same endpoint.
    fn receive_each(
        &self,
        batch: &mut DatagramBatch,
        take: &mut dyn FnMut(DatagramAddress, &mut [u8]),
    ) -> io::Result<usize> {
        let received = self.try_receive(batch)?;
        batch.each_mut(take);
        Ok(received)
    }
    /// Sends datagrams in order while there is space for them, and returns the number sent. `WouldBlock`
    /// means that there is no space now. An error applies to the first datagram, and nothing is sent;
    /// `InvalidInput` means that it is too long for the path. A datagram that counts as sent may still be
    /// lost, even in the interface's queue.
    fn try_send(&self, datagrams: &[OutDatagram<'_>]) -> io::Result<usize>;
    /// From now on, receives only datagrams whose payload contains one of these big-endian words at offset
    /// `at`. Datagrams for other sockets on the interface then cost this socket nothing. If the system cannot
    /// filter, all datagrams are received.
    fn take_only(&self, at: u16, words: &[u32]) -> io::Result<()> {
        let _ = (at, words);
        Ok(())
    }
    /// Ready when `try_receive` may find a datagram. Keeps only the last caller's waker.
    fn poll_receivable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;
    /// Ready when `try_send` may find space. Keeps only the last caller's waker.
    fn poll_sendable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;
    /// The local address.
    fn local(&self) -> DatagramAddress;
    /// The longest payload that can be sent, in bytes. For Ethernet, this is the interface's current MTU. For
    /// UDP, it is the protocol's maximum, although the path may support less.
    fn payload_bytes_max(&self) -> usize;
    /// The number of datagrams lost on this machine since the endpoint was opened.
    fn drops(&self) -> DatagramDrops;
}

/// Numbers of datagrams lost on this machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DatagramDrops {
    /// Received, but not consumed in time: the receive buffer was full.
    pub receive_buffer_full: u64,
    /// Received, but longer than a slot of the batch.
    pub too_long: u64,
    /// Rejected by the send queue of the interface.
    pub send_queue_full: u64,
}

/// Options of an endpoint of datagrams.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DatagramOptions {
    /// The endpoint.
    pub endpoint: DatagramEndpoint,
    /// Size of the receive buffer in bytes. A process with CAP_NET_ADMIN can exceed the system's limit
    /// (`net.core.rmem_max`). `None` is the system's default.
    pub receive_buffer_bytes: Option<usize>,
    /// Receive Ethernet frames into a ring of memory shared with the kernel, no larger than the receive
    /// buffer. If the kernel does not support it, frames are received with ordinary system calls.
    pub ring: Option<DatagramRing>,
    /// Reject an interface whose MTU is smaller than this.
    pub payload_bytes_min: usize,
    /// Share this address with endpoints of other threads, which divide the received datagrams among
    /// themselves. The endpoints must be opened in the order of their indexes. Over UDP, a datagram may
    /// occasionally reach the wrong endpoint.
    pub share: Option<DatagramShare>,
}

/// The share of one of several endpoints at the same address. A word of the payload determines which endpoint
/// receives a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DatagramShare {
    /// The index of this endpoint, below `count`. The endpoint receives the datagrams whose word modulo
    /// `count` equals its index.
    pub index: u32,
    /// Number of endpoints, at least 1.
    pub count: u32,
    /// Offset of the big-endian word in the payload. Datagrams whose payload is too short are dropped, or
    /// delivered to the first endpoint.
    pub word_at: u16,
}

/// An endpoint in transit to the thread that will use it.
pub struct DetachedDatagrams {
    /// The local address.
    pub local: DatagramAddress,
    /// The endpoint itself, which only [`World::adopt_datagrams`](crate::World::adopt_datagrams) of the same
    /// kind of world can interpret.
    pub endpoint: Detached,
}

/// A ring for received frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DatagramRing {
    /// Maximum payload length in bytes. If the interface has the usual MTU when the ring is created, the
    /// slots are shorter, and longer payloads are dropped even if the MTU is raised later.
    pub payload_bytes: usize,
    /// Maximum number of slots.
    pub places_max: usize,
}

/// An endpoint of datagrams.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DatagramEndpoint {
    /// Frames with this EtherType, on the interface of this name. Frames of a VLAN arrive only at the VLAN's
    /// interface.
    Ethernet {
        /// The interface's name.
        interface: String,
        /// The EtherType, such as 0x88A2.
        ether_type: u16,
    },
    /// A UDP socket at this address. Port 0 selects a free port.
    Udp(SocketAddr),
}

/// The address of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Display)]
pub enum DatagramAddress {
    /// A MAC address.
    Ethernet(MacAddress),
    /// An IP address and UDP port.
    Udp(SocketAddr),
}

/// A MAC address, written `02:00:00:00:00:01`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MacAddress(pub [u8; 6]);

impl MacAddress {
    /// The broadcast address.
    pub const BROADCAST: MacAddress = MacAddress([0xff; 6]);
}

impl fmt::Display for MacAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

/// The error for a text that is not a MAC address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display)]
#[display("a MAC address must be six hexadecimal bytes, such as 02:00:00:00:00:01")]
pub struct NotAMacAddress;

impl std::error::Error for NotAMacAddress {}

impl FromStr for MacAddress {
    type Err = NotAMacAddress;

    fn from_str(text: &str) -> Result<MacAddress, NotAMacAddress> {
        let byte = |text: &str| match text.len() {
            2 if !text.starts_with('+') => {
                u8::from_str_radix(text, 16).map_err(|_: ParseIntError| NotAMacAddress)
            }
            _ => Err(NotAMacAddress),
        };
        let bytes: Vec<u8> = text.split(':').map(byte).collect::<Result<_, _>>()?;
        bytes.try_into().map(MacAddress).map_err(|_| NotAMacAddress)
    }
}

/// A datagram to send.
#[derive(Clone, Copy, Debug)]
pub struct OutDatagram<'a> {
    /// The destination, which must be of the same kind as the endpoint's own address.
    pub to: DatagramAddress,
    /// The payload, in up to [`OutDatagram::PIECES_MAX`] consecutive pieces.
    pub payload: &'a [OutSlice<'a>],
}

impl OutDatagram<'_> {
    /// Maximum number of pieces of a payload.
    pub const PIECES_MAX: usize = 8;
}

/// Slots to receive datagrams into, and the received datagrams.
#[derive(Debug)]
pub struct DatagramBatch {
    /// Contiguous slots of equal length.
    memory: Box<[u8]>,
    pub(crate) place_bytes: usize,
    received: Vec<Placed>,
}

#[derive(Clone, Copy, Debug)]
struct Placed {
    place: usize,
    from: DatagramAddress,
    bytes: usize,
}

impl DatagramBatch {
    /// Creates a batch for `places` datagrams with payloads of up to `place_bytes` bytes.
    ///
    /// # Panics
    /// If either is 0.
    pub fn new(places: usize, place_bytes: usize) -> DatagramBatch {
        assert!(places > 0 && place_bytes > 0, "a batch has space");
        let memory = vec![0; places * place_bytes].into_boxed_slice();
        DatagramBatch {
            memory,
            place_bytes,
            received: Vec::with_capacity(places),
        }
    }

    /// The received datagrams in order: sender and payload of each.
    pub fn iter(&self) -> impl Iterator<Item = (DatagramAddress, &[u8])> {
        self.received.iter().map(|datagram| {
            let start = datagram.place * self.place_bytes;
            (datagram.from, &self.memory[start..start + datagram.bytes])
        })
    }

    /// Returns received datagram number `index` for changes in place, such as decryption.
    pub fn get_mut(&mut self, index: usize) -> Option<(DatagramAddress, &mut [u8])> {
        let datagram = self.received.get(index)?;
        let start = datagram.place * self.place_bytes;
        Some((
            datagram.from,
            &mut self.memory[start..start + datagram.bytes],
        ))
    }

    /// Passes each received datagram to `take`, which may change it in place.
    pub fn each_mut(&mut self, take: &mut dyn FnMut(DatagramAddress, &mut [u8])) {
        for datagram in &self.received {
            let start = datagram.place * self.place_bytes;
            take(
                datagram.from,
                &mut self.memory[start..start + datagram.bytes],
            );
        }
    }

    /// For the code that fills the batch: copies a payload to the slot `place`. Returns false if the payload
    /// is too long or the slot does not exist.
    pub fn put(&mut self, place: usize, from: DatagramAddress, payload: &[u8]) -> bool {
        let at = self.memory.chunks_exact_mut(self.place_bytes).nth(place);
        let Some(at) = at.and_then(|at| at.get_mut(..payload.len())) else {
            return false;
        };
        at.copy_from_slice(payload);
        self.received.push(Placed {
            place,
            from,
            bytes: payload.len(),
        });
        true
    }

    /// For the code that fills the batch: removes all datagrams, and returns the empty slots.
    pub fn clear(&mut self) -> impl ExactSizeIterator<Item = &mut [u8]> {
        self.received.clear();
        self.memory.chunks_exact_mut(self.place_bytes)
    }

    /// For the code that fills the batch: records that slot `place` contains a payload of this many bytes
    /// from this sender.
    ///
    /// # Panics
    /// If the slot does not exist, or is shorter than the payload.
    pub fn note(&mut self, place: usize, from: DatagramAddress, bytes: usize) {
        assert!(
            place < self.memory.len() / self.place_bytes && bytes <= self.place_bytes,
            "a place of the batch"
        );
        self.received.push(Placed { place, from, bytes });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mac_address_is_read_as_it_is_written() {
        let address = MacAddress([2, 0, 0, 0xab, 0, 0x1f]);
        assert_eq!(address.to_string(), "02:00:00:ab:00:1f");
        assert_eq!("02:00:00:AB:00:1f".parse(), Ok(address));
        for wrong in [
            "",
            "02:00:00:ab:00",
            "02:00:00:ab:00:1f:00",
            "2:0:0:0:0:1",
            "02:00:00:ab:00:+f",
            "0x:00:00:00:00:00",
        ] {
            assert_eq!(wrong.parse::<MacAddress>(), Err(NotAMacAddress), "{wrong}");
        }
    }

    #[test]
    fn a_batch_gives_what_was_noted_in_its_places() {
        let mut batch = DatagramBatch::new(2, 4);
        let from = DatagramAddress::Ethernet(MacAddress([1; 6]));
        assert_eq!(batch.clear().len(), 2);
        batch
            .clear()
            .nth(1)
            .expect("a place")
            .copy_from_slice(b"abcd");
        batch.note(1, from, 3);
        assert_eq!(batch.iter().collect::<Vec<_>>(), [(from, &b"abc"[..])]);
        batch.get_mut(0).expect("one").1[0] = b'x';
        assert_eq!(batch.iter().collect::<Vec<_>>(), [(from, &b"xbc"[..])]);
        assert!(batch.get_mut(1).is_none());
        batch.clear().for_each(drop);
        assert_eq!(batch.iter().count(), 0);
    }
}
