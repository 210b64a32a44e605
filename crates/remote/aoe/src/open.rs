//! The devices on an Ethernet, and opening one.

use std::io;
use std::time::Duration;

use aoe::{Address, Ata, ErrorCode, IDENTITY_BYTES, Identity, SECTOR_BYTES};
use derive_more::Display;

use crate::device::RemoteAoe;
use crate::search::{AGAIN, Found, endpoint, query};
use crate::session::{Asked, Failed, Route, Session};
use crate::url::Url;

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

/// Asks all devices on the Ethernet of an interface; those that answer within `time`, in order.
///
/// # Errors
/// The interface cannot be used.
pub async fn discover(interface: &str, time: Duration) -> Result<Vec<Found>, OpenError> {
    let datagrams = endpoint(interface).map_err(OpenError::Interface)?;
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
    let datagrams = endpoint(&url.interface).map_err(OpenError::Interface)?;
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
    let route = Route { interface: url.interface.clone(), address, datagrams: datagrams.into(), station };
    let session = Session::begin(route, found.buffer_count, options.quarantine);
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
    session.identified(identity.clone());
    Ok(RemoteAoe::new(session, url, &identity, sectors))
}
