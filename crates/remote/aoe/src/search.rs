//! Queries: which devices there are, and whether one is the same as before.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::io;
use std::time::Duration;

use aoe::{
    Address, Ata, Body, Config, ConfigCommand, ETHER_TYPE, Frame, Header, IDENTITY_BYTES, Identity,
    SECTOR_BYTES,
};
use reactor::{
    DatagramAddress, DatagramBatch, DatagramEndpoint, DatagramOptions, Datagrams, MacAddress, OutDatagram,
    OutSlice,
};

/// What is not answered is asked again after this time.
pub(crate) const AGAIN: Duration = Duration::from_millis(250);
/// Answers of a whole window of long frames wait here.
const RECEIVE_BUFFER_BYTES: usize = 8 << 20;

/// A device that has answered.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Found {
    /// Shelf and slot.
    pub address: Address,
    /// The server's station.
    pub station: MacAddress,
    /// How many commands may be outstanding.
    pub buffer_count: u16,
    /// The sectors that a frame may carry.
    pub sectors_max: u8,
    /// The configuration string.
    pub string: Vec<u8>,
}

/// Where tags begin: not where those of a client of this station began that has just ended.
pub(crate) fn first_tag() -> u32 {
    RandomState::new().build_hasher().finish() as u32
}

/// Datagrams of AoE on an interface.
pub(crate) fn endpoint(interface: &str) -> io::Result<Box<dyn Datagrams>> {
    let options = DatagramOptions {
        endpoint: DatagramEndpoint::Ethernet { interface: interface.to_owned(), ether_type: ETHER_TYPE },
        receive_buffer_bytes: Some(RECEIVE_BUFFER_BYTES),
        ring: None,
        payload_bytes_min: aoe::ATA_BYTES + SECTOR_BYTES,
        share: None,
    };
    reactor::world().datagrams(&options)
}

/// Asks once, and adds those that answer, until one is wanted.
pub(crate) async fn query(
    datagrams: &dyn Datagrams,
    address: Address,
    all: &mut Vec<Found>,
    is_wanted: impl Fn(&Found) -> bool,
) {
    let tag = first_tag();
    let header = Header { is_response: false, error: None, address, tag };
    let frame = Frame { header, body: Body::Config(Config::query(ConfigCommand::Read, &[])) }.write();
    let to = DatagramAddress::Ethernet(MacAddress::BROADCAST);
    // What is not sent is not answered, and asked again.
    let _ = datagrams.try_send(&[OutDatagram { to, payload: &[OutSlice::Bytes(&frame)] }]);
    let mut batch = DatagramBatch::new(64, datagrams.payload_bytes_max());
    loop {
        if datagrams.receive(&mut batch).await.is_err() {
            reactor::sleep(AGAIN).await;
            continue;
        }
        reactor::yield_now().await; // whatever arrives, the time runs out
        for (from, payload) in batch.iter() {
            let (DatagramAddress::Ethernet(station), Ok(frame)) = (from, Frame::parse(payload)) else {
                continue;
            };
            let Frame { header, body: Body::Config(config) } = frame else { continue };
            if header.is_response && header.error.is_none() && address.is_for(header.address) {
                let found = Found {
                    address: header.address,
                    station,
                    buffer_count: config.buffer_count,
                    sectors_max: config.sectors_max,
                    string: config.string.to_vec(),
                };
                let is_last = is_wanted(&found);
                all.push(found);
                if is_last {
                    return;
                }
            }
        }
    }
}

/// Asks a station once for the identity of a device.
pub(crate) async fn identify(
    datagrams: &dyn Datagrams,
    address: Address,
    station: MacAddress,
) -> io::Result<Identity> {
    let header = Header { is_response: false, error: None, address, tag: first_tag() };
    let frame = Frame { header, body: Body::Ata(Ata::identify(), &[]) }.write();
    let to = DatagramAddress::Ethernet(station);
    datagrams.try_send(&[OutDatagram { to, payload: &[OutSlice::Bytes(&frame)] }])?;
    let mut batch = DatagramBatch::new(64, datagrams.payload_bytes_max());
    loop {
        datagrams.receive(&mut batch).await?;
        reactor::yield_now().await; // whatever arrives, the time runs out
        for (_, payload) in batch.iter().filter(|(from, _)| *from == to) {
            if let Ok(Frame { header: answer, body: Body::Ata(ata, data) }) = Frame::parse(payload)
                && (answer.is_response, answer.error, answer.tag) == (true, None, header.tag)
                && !ata.has_failed()
                && let Some(sector) = data.first_chunk::<IDENTITY_BYTES>()
            {
                return Ok(Identity::parse(sector));
            }
        }
    }
}
