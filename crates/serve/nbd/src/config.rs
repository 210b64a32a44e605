//! What is served.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use block::Profile;
use nbd::flags::transmission;
use nbd::{BlockSizes, PAYLOAD_BYTES_MAX};
use server::Network;
use volume::Volume;

/// The configuration of the front end. [`Nbd::adopt`](crate::Nbd::adopt) replaces it.
#[derive(Clone, Default)]
pub struct Config {
    /// The exports; their names differ.
    pub exports: Vec<Arc<Export>>,
    /// Limits besides those of the server.
    pub limits: Limits,
}

/// A volume under a name.
pub struct Export {
    /// What clients call it.
    pub name: String,
    /// A description for people; empty if there is none.
    pub description: String,
    /// The volume.
    pub volume: Arc<Volume>,
    /// Clients cannot write, even if the volume could be written.
    pub read_only: bool,
    /// Where clients may come from; `None` is anywhere.
    pub networks: Option<Vec<Network>>,
    /// The deadline of a device request. When it has passed, the request fails, and the volume is fenced until
    /// the device answers again.
    pub deadline: Duration,
}

/// Limits besides [`server::Limits`], against overload and hostile clients.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// From accepting a connection to the end of its handshake.
    pub handshake_time: Duration,
    /// How long a client may take nothing of its answers.
    pub send_stall: Duration,
    /// Requests that a connection may have outstanding at the device; those behind them wait in the socket.
    pub requests: usize,
    /// Memory for data of the requests of one connection, in bytes.
    pub staging_bytes: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            handshake_time: Duration::from_secs(15),
            send_stall: Duration::from_secs(60),
            requests: 256,
            staging_bytes: 256 << 20,
        }
    }
}

impl Config {
    /// The export of this name, for a client at this address. The empty name is the only export there is for
    /// it.
    pub(crate) fn find(&self, name: &str, from: IpAddr) -> Option<&Arc<Export>> {
        let mut seen = self.seen(from);
        match name {
            "" => seen.next().filter(|_| seen.next().is_none()),
            _ => seen.find(|export| export.name == name),
        }
    }

    /// The exports for a client at this address.
    pub(crate) fn seen(&self, from: IpAddr) -> impl Iterator<Item = &Arc<Export>> {
        self.exports.iter().filter(move |export| export.admits(from))
    }
}

impl Export {
    /// Whether clients at this address may use it.
    pub(crate) fn admits(&self, from: IpAddr) -> bool {
        let networks = self.networks.as_ref();
        networks.is_none_or(|networks| networks.iter().any(|network| network.contains(from)))
    }

    /// As clients are told of it now.
    pub(crate) fn as_told(&self) -> nbd::Export {
        let (geometry, profile) = (self.volume.device().geometry(), self.volume.device().profile());
        let physical = geometry.block_size.bytes() << geometry.physical_exponent;
        nbd::Export {
            name: self.name.clone(),
            description: self.description.clone(),
            bytes: geometry.bytes(),
            flags: self.flags(profile),
            // Parts of blocks are served, too: clients that have not asked need not know.
            block_sizes: BlockSizes { minimum: 1, preferred: physical.max(4096), maximum: PAYLOAD_BYTES_MAX },
        }
    }

    fn flags(&self, profile: Profile) -> u16 {
        let read_only = self.read_only || self.volume.write_protection().is_some();
        let optional = [
            (read_only, transmission::READ_ONLY),
            (!profile.solid_state, transmission::ROTATIONAL),
            (profile.thin && !read_only, transmission::SEND_TRIM),
            (!read_only, transmission::SEND_WRITE_ZEROES | transmission::SEND_FAST_ZERO),
        ];
        let always = transmission::SEND_FLUSH
            | transmission::SEND_FUA
            | transmission::CAN_MULTI_CONN
            | transmission::SEND_CACHE;
        optional.iter().filter(|(has, _)| *has).fold(always, |flags, (_, flag)| flags | flag)
    }
}
