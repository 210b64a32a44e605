//! Datagrams: payloads of raw Ethernet frames of one EtherType on one interface, or of UDP. Either way an address goes
//! with each payload, and nothing says that it arrives once, or in order.
//!
//! A payload of Ethernet has neither header nor checksum, but may end in padding: a network card fills a frame up to 60 bytes. So
//! a protocol states its lengths.

use std::net::SocketAddr;
use std::num::ParseIntError;
use std::str::FromStr;
use std::task::{Context, Poll};
use std::{fmt, io};

use crate::stream::{Detached, OutSlice};

/// Receives and sends datagrams, and never blocks.
pub trait Datagrams {
    /// Receives what is there into an emptied batch, at most as many as it has room for; how many. `WouldBlock` means that nothing
    /// is there yet; 0 that what was there was for nobody here, and to try again. `NetworkDown` is told once when the interface
    /// goes down or away; after it has come back up, datagrams arrive as before.
    fn try_receive(&self, into: &mut DatagramBatch) -> io::Result<usize>;
    /// The same, and hands each to `take`, to be changed in place: in memory shared with the system where it has a ring, else in the
    /// batch. At most some dozens; how many. `take` must not receive from the same endpoint.
    fn receive_each(
        &self,
        batch: &mut DatagramBatch,
        take: &mut dyn FnMut(DatagramAddress, &mut [u8]),
    ) -> io::Result<usize> {
        let received = self.try_receive(batch)?;
        batch.each_mut(take);
        Ok(received)
    }
    /// Sends the first of these, as many as fit; how many. `WouldBlock` means nothing fits now. An error is that of the first
    /// one, which is not sent; `InvalidInput` if it is longer than the path takes. That a datagram counts as sent says nothing of its
    /// arrival, not even that the interface's queue had room.
    fn try_send(&self, datagrams: &[OutDatagram<'_>]) -> io::Result<usize>;
    /// From now on only datagrams whose payload has one of these words (big-endian) at this place are received, so that others of many
    /// sockets on an interface cost nothing here. Where the system cannot tell them apart, all are.
    fn take_only(&self, at: u16, words: &[u32]) -> io::Result<()> {
        let _ = (at, words);
        Ok(())
    }
    /// Ready when `try_receive` may find something. Keeps the waker of the last caller.
    fn poll_receivable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;
    /// Ready when `try_send` may find room. Keeps the waker of the last caller.
    fn poll_sendable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;
    /// This end.
    fn local(&self) -> DatagramAddress;
    /// The longest payload that can be sent, in bytes: the MTU of an interface as it is now; what the protocol has room for
    /// in UDP, whose path may take less.
    fn payload_bytes_max(&self) -> usize;
    /// What has been lost on this machine since the beginning.
    fn drops(&self) -> DatagramDrops;
}

/// Datagrams that were lost here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DatagramDrops {
    /// Received, and not taken in time: the receive buffer was full.
    pub receive_buffer_full: u64,
    /// Received, and longer than a place of the batch.
    pub too_long: u64,
    /// To be sent, and refused by the queue of the interface.
    pub send_queue_full: u64,
}

/// How datagrams are received and sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DatagramOptions {
    /// Where.
    pub endpoint: DatagramEndpoint,
    /// The receive buffer in bytes, beyond the system's limit (`net.core.rmem_max`) where the process may exceed it (CAP_NET_ADMIN).
    /// `None` is the system's usual size.
    pub receive_buffer_bytes: Option<usize>,
    /// Frames of Ethernet are received into a ring of memory that is shared with the system, no larger than the receive buffer; in the
    /// usual way where the system has none.
    pub ring: Option<DatagramRing>,
    /// An interface with a smaller MTU is refused.
    pub payload_bytes_min: usize,
    /// Several threads have an endpoint each at the same place, and share what arrives. They are to be opened in the order of their
    /// numbers. Over UDP what arrives may come to another one than it is for, at times.
    pub share: Option<DatagramShare>,
}

/// One of several endpoints at the same place: what arrives is divided among them by a word of its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DatagramShare {
    /// The number of this one, below `count`. It gets the payloads whose word leaves this remainder, divided by `count`.
    pub index: u32,
    /// So many, at least 1.
    pub count: u32,
    /// Where payloads have the word (big-endian). What ends before is for nobody, or for the first.
    pub word_at: u16,
}

/// An endpoint on its way to the thread that will receive from it.
pub struct DetachedDatagrams {
    /// This end.
    pub local: DatagramAddress,
    /// What [`World::adopt_datagrams`](crate::World::adopt_datagrams) of the same kind of world makes an endpoint of.
    pub endpoint: Detached,
}

/// A ring for frames that are received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DatagramRing {
    /// Bytes of the longest payload. An interface with a usual MTU has shorter places, and drops longer payloads even if its MTU grows.
    pub payload_bytes: usize,
    /// The most places.
    pub places_max: usize,
}

/// An endpoint of datagrams.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DatagramEndpoint {
    /// Frames with this EtherType, on the interface of this name. Those of a VLAN arrive at the VLAN's interface only.
    Ethernet {
        /// The interface's name.
        interface: String,
        /// Such as 0x88A2.
        ether_type: u16,
    },
    /// A UDP socket at this address; port 0 is any.
    Udp(SocketAddr),
}

/// The address of one end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DatagramAddress {
    /// A station of the Ethernet.
    Ethernet(MacAddress),
    /// A UDP port.
    Udp(SocketAddr),
}

impl fmt::Display for DatagramAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DatagramAddress::Ethernet(address) => address.fmt(f),
            DatagramAddress::Udp(address) => address.fmt(f),
        }
    }
}

/// The address of a station, written `02:00:00:00:00:01`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MacAddress(pub [u8; 6]);

impl MacAddress {
    /// All stations.
    pub const BROADCAST: MacAddress = MacAddress([0xff; 6]);
}

impl fmt::Display for MacAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

/// A text that is no MAC address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotAMacAddress;

impl fmt::Display for NotAMacAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a MAC address is six hexadecimal bytes, such as 02:00:00:00:00:01")
    }
}

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

/// A datagram to be sent.
#[derive(Clone, Copy, Debug)]
pub struct OutDatagram<'a> {
    /// Its destination, of the kind of the endpoint.
    pub to: DatagramAddress,
    /// Its payload, in order; at most [`OutDatagram::PIECES_MAX`] pieces.
    pub payload: &'a [OutSlice<'a>],
}

impl OutDatagram<'_> {
    /// The pieces that one payload may have.
    pub const PIECES_MAX: usize = 8;
}

/// Places to receive datagrams into, and those that have been received.
#[derive(Debug)]
pub struct DatagramBatch {
    /// Places of equal length, one behind the other.
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
    /// Room for so many datagrams with payloads of so many bytes.
    ///
    /// # Panics
    /// If either is 0.
    pub fn new(places: usize, place_bytes: usize) -> DatagramBatch {
        assert!(places > 0 && place_bytes > 0, "a batch has room");
        let memory = vec![0; places * place_bytes].into_boxed_slice();
        DatagramBatch { memory, place_bytes, received: Vec::with_capacity(places) }
    }

    /// What has been received, in order: the sender and the payload of each.
    pub fn iter(&self) -> impl Iterator<Item = (DatagramAddress, &[u8])> {
        self.received.iter().map(|datagram| {
            let start = datagram.place * self.place_bytes;
            (datagram.from, &self.memory[start..start + datagram.bytes])
        })
    }

    /// What was received as number `index`, to be changed in place: protocols decrypt so.
    pub fn get_mut(&mut self, index: usize) -> Option<(DatagramAddress, &mut [u8])> {
        let datagram = self.received.get(index)?;
        let start = datagram.place * self.place_bytes;
        Some((datagram.from, &mut self.memory[start..start + datagram.bytes]))
    }

    /// Hands everything that was received to `take`, to be changed in place.
    pub fn each_mut(&mut self, take: &mut dyn FnMut(DatagramAddress, &mut [u8])) {
        for datagram in &self.received {
            let start = datagram.place * self.place_bytes;
            take(datagram.from, &mut self.memory[start..start + datagram.bytes]);
        }
    }

    /// For those who fill it: copies a payload to `place`. False if it is too long, or there is no such place.
    pub fn put(&mut self, place: usize, from: DatagramAddress, payload: &[u8]) -> bool {
        let at = self.memory.chunks_exact_mut(self.place_bytes).nth(place);
        let Some(at) = at.and_then(|at| at.get_mut(..payload.len())) else { return false };
        at.copy_from_slice(payload);
        self.received.push(Placed { place, from, bytes: payload.len() });
        true
    }

    /// For those who fill it: removes all, and gives the places.
    pub fn clear(&mut self) -> impl ExactSizeIterator<Item = &mut [u8]> {
        self.received.clear();
        self.memory.chunks_exact_mut(self.place_bytes)
    }

    /// For those who fill it: `place` has a payload of so many bytes from there.
    ///
    /// # Panics
    /// If there is no such place, or it is not so long.
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
        batch.clear().nth(1).expect("a place").copy_from_slice(b"abcd");
        batch.note(1, from, 3);
        assert_eq!(batch.iter().collect::<Vec<_>>(), [(from, &b"abc"[..])]);
        batch.get_mut(0).expect("one").1[0] = b'x';
        assert_eq!(batch.iter().collect::<Vec<_>>(), [(from, &b"xbc"[..])]);
        assert!(batch.get_mut(1).is_none());
        batch.clear().for_each(drop);
        assert_eq!(batch.iter().count(), 0);
    }
}
