//! NBD clients on the volumes of the initiators: simple clients (`writing`), and one that violates the
//! protocol (`adversary`). They exist only in simulations with [`crate::Addition::Nbd`]; other simulations
//! draw no random numbers for them.

pub(crate) mod adversary;
pub(crate) mod flood;
mod simple;
pub(crate) mod writing;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use nbd_server::{Config, Export, Limits};

use crate::adversary::LUN;
use crate::checker::{OUR_FIRST_WRITER, Writer};
use crate::simulation::Simulation;

/// Address at which the server listens for NBD clients.
pub(crate) fn portal() -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 255, 0, 200)), 10809)
}

/// The export that the adversary may write.
const VICTIM: &str = "adversary";

/// The lowest writer number of simple NBD clients. Their numbers are below those of our initiators.
const FIRST_WRITER: Writer = 500;

/// Whether a writer is a simple NBD client. Such a writer has no registration. If a reservation excludes the
/// writer, its outstanding requests no longer take effect.
pub(crate) fn is_client(writer: Writer) -> bool {
    (FIRST_WRITER..OUR_FIRST_WRITER).contains(&writer)
}

pub(crate) fn export_name(lun: u16) -> String {
    match lun {
        LUN => VICTIM.to_owned(),
        lun => format!("volume{lun}"),
    }
}

/// Returns the configuration of the NBD exports for these LUNs, except hidden ones.
pub(crate) fn config(simulation: &Simulation, exports: &[iscsi_server::Export]) -> Config {
    let hidden = simulation.hidden.get();
    let served = exports
        .iter()
        .filter(|export| hidden >> export.lun & 1 == 0);
    let export = |export: &iscsi_server::Export| {
        Arc::new(Export {
            clients: None,
            name: export_name(export.lun),
            description: String::new(),
            volume: Arc::clone(export.unit.volume()),
            identity: Some(u128::from_be_bytes(export.unit.identity().uuid)),
            read_only: false,
            networks: None,
            deadline: export.deadline,
        })
    };
    let limits = Limits {
        send_stall: simulation.limits.send_stall,
        requests: simulation.limits.window as usize,
        staging_bytes: simulation.limits.session_staging_bytes,
        ..Limits::default()
    };
    Config {
        exports: served.map(export).collect(),
        limits,
        tls: None,
    }
}
