//! The configuration of the front end.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use block::{Blocks, Geometry, Profile};
use front_end_core::Network;
use nbd::flags::transmission;
use nbd::{BlockSizes, PAYLOAD_BYTES_MAX, TlsMode};
use volume::Volume;

/// The configuration of the front end. [`Nbd::adopt`](crate::Nbd::adopt) replaces it.
#[derive(Clone, Default)]
pub struct Config {
    /// The exports; their names differ.
    pub exports: Vec<Arc<Export>>,
    /// The TLS settings; `None` if connections are not encrypted.
    pub tls: Option<Tls>,
    /// Limits in addition to those of the server.
    pub limits: Limits,
}

/// The TLS settings of the server.
#[derive(Clone, Debug)]
pub struct Tls {
    /// Whether clients must use TLS.
    pub is_required: bool,
    /// The certificate, and the accepted clients.
    pub server: tls::Server,
}

impl Tls {
    /// Settings for a test with client and server in one process, in which TLS is optional. The certificate
    /// does not authenticate anything.
    ///
    /// # Errors
    /// The same as for [`tls::loopback::server`].
    pub fn for_loopback() -> Result<Tls, tls::CredentialsError> {
        Ok(Tls {
            is_required: false,
            server: tls::loopback::server()?,
        })
    }
}

/// A client that requests exports.
#[derive(Clone, Debug)]
pub struct Requester {
    /// Its address.
    pub address: IpAddr,
    /// The encryption of its connection; `None` if the connection is not encrypted.
    pub encryption: Option<Encryption>,
}

/// The encryption of a connection.
#[derive(Clone, Debug)]
pub struct Encryption {
    /// The cipher suite.
    pub cipher: String,
    /// The names in the client's verified certificate; empty if none was requested.
    pub names: Vec<String>,
}

/// A volume that is exported under a name.
pub struct Export {
    /// The export name.
    pub name: String,
    /// A human-readable description; empty if there is none.
    pub description: String,
    /// The volume.
    pub volume: Arc<Volume>,
    /// The volume's UUID, from which clients detect that the export has become a different disk; `None` if
    /// the volume has no persistent UUID.
    pub identity: Option<u128>,
    /// Whether clients are prevented from writing, even if the volume is writable.
    pub read_only: bool,
    /// The networks from which clients may connect; `None` allows any.
    pub networks: Option<Vec<Network>>,
    /// The client's certificate must contain one of these names. `None` allows any client, encrypted or not.
    pub clients: Option<Vec<String>>,
    /// The deadline of a device request. After the deadline, the request fails, and the volume is fenced
    /// until the device responds again.
    pub deadline: Duration,
}

/// Limits in addition to [`front_end_core::Limits`], against overload and hostile clients.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Maximum time from accepting a connection to the end of its handshake.
    pub handshake_time: Duration,
    /// Time for which a client may stop reading replies.
    pub send_stall: Duration,
    /// Maximum number of outstanding device requests of a connection. Further requests wait in the socket.
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
    /// The TLS mode of handshakes.
    pub(crate) fn tls_mode(&self) -> TlsMode {
        match &self.tls {
            None => TlsMode::Off,
            Some(Tls {
                is_required: true, ..
            }) => TlsMode::Required,
            Some(Tls {
                is_required: false, ..
            }) => TlsMode::Allowed,
        }
    }

    /// Whether the names of the exports differ.
    pub(crate) fn has_distinct_names(&self) -> bool {
        let names: BTreeSet<&str> = self.exports.iter().map(|export| &*export.name).collect();
        names.len() == self.exports.len()
    }

    /// Returns the export with this name, for this client. The empty name selects the only export visible to
    /// it.
    pub(crate) fn find(&self, name: &str, from: &Requester) -> Option<&Arc<Export>> {
        let mut exports = self.exports_for(from);
        match name {
            "" => exports.next().filter(|_| exports.next().is_none()),
            _ => exports.find(|export| export.name == name),
        }
    }

    pub(crate) fn exports_for(&self, from: &Requester) -> impl Iterator<Item = &Arc<Export>> {
        let lacks_tls = self.tls_mode() == TlsMode::Required && from.encryption.is_none();
        self.exports
            .iter()
            .filter(move |export| !lacks_tls && export.admits(from))
    }

    /// Whether this client could use the export if it used TLS.
    pub(crate) fn needs_tls(&self, name: &str, from: &Requester) -> bool {
        let mut all = self.exports.iter();
        from.encryption.is_none()
            && self.tls.is_some()
            && all.any(|export| {
                export.name == name
                    && export.clients.is_some()
                    && export.admits_address(from.address)
            })
    }
}

impl Requester {
    /// Whether the client's certificate has one of these names; `None` requires no certificate.
    pub fn is_one_of(&self, clients: Option<&[String]>) -> bool {
        let names = self
            .encryption
            .as_ref()
            .map_or(&[][..], |encryption| &encryption.names);
        clients.is_none_or(|clients| names.iter().any(|name| clients.contains(name)))
    }
}

impl Export {
    /// Whether this client may use the export.
    pub(crate) fn admits(&self, from: &Requester) -> bool {
        self.admits_address(from.address) && from.is_one_of(self.clients.as_deref())
    }

    fn admits_address(&self, from: IpAddr) -> bool {
        let networks = self.networks.as_ref();
        networks.is_none_or(|networks| networks.iter().any(|network| network.contains(from)))
    }

    /// The export's description for clients.
    pub(crate) fn as_told(&self) -> nbd::Export {
        let (geometry, profile) = (
            self.volume.device().geometry(),
            self.volume.device().profile(),
        );
        nbd::Export {
            name: self.name.clone(),
            description: self.description.clone(),
            bytes: geometry.bytes(),
            flags: self.flags(profile),
            // The minimum is 1, because parts of blocks are served as well. Clients that ignore block sizes
            // therefore still work.
            block_sizes: BlockSizes {
                minimum: 1,
                preferred: preferred_block_size(geometry, profile),
                maximum: PAYLOAD_BYTES_MAX,
            },
        }
    }

    fn flags(&self, profile: Profile) -> u16 {
        let read_only = self.read_only || self.volume.write_protection().is_some();
        let optional = [
            (read_only, transmission::READ_ONLY),
            (!profile.solid_state, transmission::ROTATIONAL),
            (profile.thin && !read_only, transmission::SEND_TRIM),
            (
                !read_only,
                transmission::SEND_WRITE_ZEROES | transmission::SEND_FAST_ZERO,
            ),
        ];
        let always = transmission::SEND_FLUSH
            | transmission::SEND_FUA
            | transmission::CAN_MULTI_CONN
            | transmission::SEND_CACHE;
        optional
            .iter()
            .filter(|(has, _)| *has)
            .fold(always, |flags, (_, flag)| flags | flag)
    }
}

/// "The preferred block size represents the minimum size at which aligned requests will have efficient I/O",
/// a power of two (NBD, Block size constraints): the stripe of a RAID set if its size is a power of two,
/// otherwise the strip.
fn preferred_block_size(geometry: Geometry, profile: Profile) -> u32 {
    let physical = (geometry.block_size.bytes() << geometry.physical_exponent).max(4096);
    let bytes = |blocks: Blocks| {
        let bytes = u32::try_from(blocks.0 << geometry.block_size.shift()).ok()?;
        (bytes.is_power_of_two() && (physical..=PAYLOAD_BYTES_MAX).contains(&bytes))
            .then_some(bytes)
    };
    let optimal = profile.optimal_transfer;
    debug_assert!(physical.is_power_of_two() && physical <= PAYLOAD_BYTES_MAX);
    optimal
        .and_then(|optimal| bytes(optimal.length).or(bytes(optimal.granularity)))
        .unwrap_or(physical)
}

#[cfg(test)]
mod tests {
    use block::{BlockDevice, BlockSize, Null, OptimalTransfer};

    use super::*;

    #[test]
    fn the_preferred_size_is_a_power_of_two_of_a_stripe() {
        let geometry = Geometry {
            block_size: BlockSize::B512,
            blocks: Blocks(1 << 20),
            physical_exponent: 3,
        };
        let profile = Null::new(geometry).profile();
        let preferred = |optimal: Option<(u64, u64)>| {
            let optimal_transfer = optimal.map(|(strip, stripe)| OptimalTransfer {
                granularity: Blocks(strip),
                length: Blocks(stripe),
            });
            preferred_block_size(
                geometry,
                Profile {
                    optimal_transfer,
                    ..profile
                },
            )
        };
        assert_eq!(preferred(None), 4096);
        assert_eq!(preferred(Some((128, 256))), 128 << 10);
        assert_eq!(
            preferred(Some((128, 384))),
            64 << 10,
            "three strips are none, a strip is one"
        );
        assert_eq!(
            preferred(Some((128, 1 << 20))),
            64 << 10,
            "longer than a request may be"
        );
    }
}
