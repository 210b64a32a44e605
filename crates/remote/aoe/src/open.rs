//! Who is on the Ethernet, and opening one.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::io;
use std::time::Duration;

use aoe::{
    Address, Ata, Body, Config, ConfigCommand, ETHER_TYPE, ErrorCode, Frame, Header, IDENTITY_BYTES,
    Identity, SECTOR_BYTES,
};
use derive_more::Display;
use reactor::{
    DatagramAddress, DatagramBatch, DatagramEndpoint, DatagramOptions, Datagrams, MacAddress, OutDatagram,
    OutSlice,
};

use crate::device::RemoteAoe;
use crate::session::{Asked, Failed, Session};
use crate::url::Url;

/// What is not answered is asked again after this time.
const AGAIN: Duration = Duration::from_millis(250);
/// Answers of a whole window of long frames wait here.
const RECEIVE_BUFFER_BYTES: usize = 8 << 20;
/// What fits any Ethernet.
const SECTORS_USUAL: u8 = 2;
/// For so long an answer of a long frame is waited for, with some repetitions.
const PROBE: Duration = Duration::from_secs(2);
/// Servers of this model remember the tags of writes that they have carried out.
const OWN_MODEL: &str = "LINERATE";

/// Why a device could not be opened.
#[derive(Debug, Display)]
pub enum OpenError {
    /// The interface cannot be used.
    #[display("{_0}")]
    Interface(io::Error),
    /// Nobody answers.
    #[display("no AoE device {address} answers on {interface} within {} s", timeout.as_secs_f64())]
    Silent {
        /// The device.
        address: Address,
        /// The interface.
        interface: String,
        /// The time.
        timeout: Duration,
    },
    /// The server refuses.
    #[display("AoE device {_0}: {_1}")]
    Refused(Address, ErrorCode),
    /// The device has failed IDENTIFY DEVICE.
    #[display("AoE device {_0} does not say what it is: its error register is 0x{_1:02x}")]
    Unidentified(Address, u8),
    /// It has no sector.
    #[display("AoE device {_0} has no sectors")]
    Empty(Address),
}

impl std::error::Error for OpenError {}

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

/// Asks all devices on the Ethernet of an interface; those that answer within `time`, in order.
///
/// # Errors
/// The interface cannot be used.
pub async fn discover(interface: &str, time: Duration) -> Result<Vec<Found>, OpenError> {
    let datagrams = endpoint(interface)?;
    let (mut all, end) = (Vec::new(), reactor::now() + time);
    while reactor::now() < end {
        let left = end.saturating_duration_since(reactor::now());
        let mut found = Vec::new();
        let listening = query(&*datagrams, Address::ALL, &mut found, |_| false);
        let _ = reactor::timeout(left.min(AGAIN), listening).await;
        all.append(&mut found);
        all.sort();
        all.dedup();
    }
    Ok(all)
}

/// Opens a device. Its commands live on the reactor of this thread, which must run for as long as the device is in use.
///
/// # Errors
/// Why not.
pub async fn open(url: &Url) -> Result<RemoteAoe, OpenError> {
    let options = &url.options;
    let datagrams = endpoint(&url.interface)?;
    let silent = || OpenError::Silent {
        address: url.address,
        interface: url.interface.clone(),
        timeout: options.timeout,
    };
    let deadline = reactor::now() + options.timeout;
    let found = loop {
        let left = deadline.saturating_duration_since(reactor::now());
        if left.is_zero() {
            return Err(silent());
        }
        let mut found = Vec::new();
        let asked = query(&*datagrams, url.address, &mut found, |found| found.address == url.address);
        let _ = reactor::timeout(left.min(AGAIN), asked).await;
        if let Some(found) = found.pop() {
            break found;
        }
    };
    // A server before AoEr11 says 0, and takes 2.
    let of_server = if found.sectors_max == 0 { SECTORS_USUAL } else { found.sectors_max };
    let of_interface = u8::try_from(aoe::sectors_of(datagrams.payload_bytes_max())).unwrap_or(u8::MAX);
    let mut sectors = of_server.min(of_interface).min(options.sectors.unwrap_or(u8::MAX)).max(1);
    let (station, address) = (found.station, url.address);
    let session =
        Session::begin(datagrams, station, address, found.buffer_count, options.quarantine, first_tag());
    let asked =
        |ata, returns, deadline| Asked { ata, data: None, returns, claim: None, is_slow: false, deadline };
    let failed = |failed| match failed {
        Failed::Refused(code) => OpenError::Refused(address, code),
        Failed::Device(register) => OpenError::Unidentified(address, register),
        Failed::TimedOut => silent(),
    };
    let leaving = |error| {
        session.leave();
        Err(error)
    };
    let sector = match session.ask(asked(Ata::identify(), IDENTITY_BYTES, deadline)).await {
        Ok(sector) => sector,
        Err(error) => return leaving(failed(error)),
    };
    let Some(identity) = sector.first_chunk().map(Identity::parse).filter(|identity| identity.sectors > 0)
    else {
        return leaving(OpenError::Empty(address));
    };
    if identity.model.starts_with(OWN_MODEL) {
        session.server_remembers();
    }
    if sectors > SECTORS_USUAL && identity.sectors >= u64::from(sectors) {
        // Both ends carry such frames; what is between them may not, and says nothing of it.
        let probe = asked(Ata::read(0, sectors), usize::from(sectors) * SECTOR_BYTES, reactor::now() + PROBE);
        if session.ask(probe).await == Err(Failed::TimedOut) {
            tracing::warn!(device = %url, sectors, "frames of this length get no answer; shorter ones are used");
            sectors = SECTORS_USUAL;
        }
    }
    Ok(RemoteAoe::new(session, url, &identity, sectors))
}

/// Where tags begin: not where those of a client of this station began that has just ended.
fn first_tag() -> u32 {
    RandomState::new().build_hasher().finish() as u32
}

fn endpoint(interface: &str) -> Result<Box<dyn Datagrams>, OpenError> {
    let options = DatagramOptions {
        endpoint: DatagramEndpoint::Ethernet { interface: interface.to_owned(), ether_type: ETHER_TYPE },
        receive_buffer_bytes: Some(RECEIVE_BUFFER_BYTES),
        ring: None,
        payload_bytes_min: aoe::ATA_BYTES + SECTOR_BYTES,
        share: None,
    };
    reactor::world().datagrams(&options).map_err(OpenError::Interface)
}

/// Asks once, and adds those that answer, until one is wanted.
async fn query(
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
