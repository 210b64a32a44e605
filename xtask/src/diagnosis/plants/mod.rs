//! The causes that are planted, each with the path that it is planted in and the same path without it.
//!
//! Each repeat draws its own distances, rates and sizes, from a range in which the cause is what binds: the
//! model says so, and the numbers are in the comment of each plant.

mod cores;
mod healthy;
mod keys;
mod network;
mod storage;

use diagnose::Cause;

use super::scene::Scene;
use crate::lot::Lot;

pub(super) use healthy::healthy;

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
    /// What it is called on the command line, after the cause.
    pub(super) cause: Cause,
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
    ]
};

const fn row(cause: Cause, what: &'static str, plant: fn(&mut Lot) -> Planted) -> Plant {
    Plant { cause, what, plant }
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
    fn every_plant_has_a_cause_of_its_own_and_draws_differently_each_time() {
        for (at, plant) in ALL.iter().enumerate() {
            assert!(ALL[..at].iter().all(|other| other.cause != plant.cause));
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
