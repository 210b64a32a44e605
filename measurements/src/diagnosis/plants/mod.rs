//! The causes that are planted, each with the path that it is planted in and the same path without it.
//!
//! Each repeat draws its own distances, rates and sizes, from a range in which the cause is what binds: the
//! model says so, and the numbers are in the comment of each plant.

mod cores;
mod healthy;
mod keys;
mod nbd;
mod network;
mod storage;

use diagnose::Cause;

use super::scene::Scene;
use crate::lot::Lot;

pub(super) use healthy::healthy;
pub(super) use nbd::healthy as healthy_nbd;

/// A cause in a path, and the way out.
pub(super) struct Planted {
    /// What was drawn, for people.
    pub(super) details: String,
    pub(super) scene: Scene,
    pub(super) cure: Cure,
}

/// What takes the cause away.
pub(super) enum Cure {
    /// Another path in place of the planted one.
    Path(Box<Scene>),
    /// Another load: what the finding itself would try.
    Trial,
}

impl Planted {
    fn new(details: impl Into<String>, scene: Scene, cured: Scene) -> Planted {
        Planted { details: details.into(), scene, cure: Cure::Path(Box::new(cured)) }
    }
}

/// One row of the matrix.
pub(super) struct Plant {
    pub(super) cause: Cause,
    /// In a path to an NBD export.
    pub(super) nbd: bool,
    /// What is planted, in a few words.
    pub(super) what: &'static str,
    pub(super) plant: fn(&mut Lot) -> Planted,
}

pub(super) const ALL: &[Plant] = {
    use Cause::*;
    &[
        row(TcpWindow, "a TCP window of 32 to 64 KiB, 10 to 20 ms away", network::tcp_window),
        row(Solicitation, "InitialR2T=Yes with ImmediateData=No, 4 to 15 ms away", keys::solicitation),
        row(
            SmallBursts,
            "MaxBurstLength of 4 or 8 KiB, one R2T at a time, 20 to 30 ms away",
            keys::small_bursts,
        ),
        row(SmallSegments, "MaxRecvDataSegmentLength of 512 bytes", keys::small_segments),
        row(CommandWindow, "a command window of 1 or 2, 8 to 15 ms away", keys::command_window),
        row(Depth, "a client that asks one at a time, 2 to 10 ms away", keys::depth),
        row(LinkRate, "a link that fell back to a tenth of its rate", network::link_rate),
        row(PathMtu, "interfaces of 9000 bytes, a path of 1500", network::path_mtu),
        row(Loss, "0.5 to 2 % of packets lost", network::loss),
        row(SlowPath, "two connections, one by a slow lane", network::slow_path),
        row(Medium, "a medium that takes 2 to 10 ms, or has a low rate", storage::medium),
        row(Flush, "a flush that takes 10 to 40 ms", storage::flush),
        row(
            Misalignment,
            "writes of 512 bytes on blocks of 4 KiB, or across their ends",
            storage::misalignment,
        ),
        row(TargetCpu, "60 to 85 % of the target's core taken by others", cores::target),
        row(ClientCpu, "60 to 85 % of the client's core taken by others", cores::client),
        row(
            DelayedAck,
            "a target that sends header and data separately, without TCP_NODELAY",
            network::delayed_ack,
        ),
        nbd_row(Medium, "NBD: nbdkit's filters delay reads by 4 to 20 ms, or limit their rate", nbd::medium),
        nbd_row(
            Connections,
            "NBD: what one connection gives, by a TCP window of 32 to 64 KiB or by nbdkit's filter",
            nbd::connections,
        ),
        nbd_row(TargetCpu, "NBD: 60 to 85 % of the server's core taken by others", nbd::server_cpu),
        nbd_row(Tls, "NBD: TLS on loopback, a core for each end", nbd::tls),
    ]
};

const fn row(cause: Cause, what: &'static str, plant: fn(&mut Lot) -> Planted) -> Plant {
    Plant { cause, nbd: false, what, plant }
}

const fn nbd_row(cause: Cause, what: &'static str, plant: fn(&mut Lot) -> Planted) -> Plant {
    Plant { cause, nbd: true, what, plant }
}

impl Plant {
    /// What it is called on the command line: as its cause, and `nbd-medium` over NBD.
    pub(super) fn name(&self) -> String {
        named(Some(self.cause), self.nbd)
    }
}

/// What a plant, or a healthy path, is called.
pub(super) fn named(cause: Option<Cause>, nbd: bool) -> String {
    let cause = cause.map_or_else(|| "healthy".to_owned(), name);
    if nbd { format!("nbd-{cause}") } else { cause }
}

/// A cause as it is called in JSON and on the command line.
pub(super) fn name(cause: Cause) -> String {
    match serde_json::to_value(cause) {
        Ok(serde_json::Value::String(name)) => name,
        // Unit variants are strings; anything else would show at once.
        other => format!("{other:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_plant_has_a_name_of_its_own_and_draws_differently_each_time() {
        for (at, plant) in ALL.iter().enumerate() {
            assert!(ALL[..at].iter().all(|other| other.name() != plant.name()));
            let mut details: Vec<String> =
                (0..10).map(|repeat| (plant.plant)(&mut Lot::new(1, plant.what, repeat)).details).collect();
            details.sort();
            details.dedup();
            assert!(details.len() >= 5, "{}: {details:?}", plant.what);
        }
    }

    #[test]
    fn causes_have_the_names_that_json_has() {
        assert_eq!(name(Cause::TcpWindow), "tcp-window");
    }
}
