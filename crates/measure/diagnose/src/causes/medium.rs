//! The storage behind the target is slow: each access takes long, or so many a second and no more.

use super::Found;
use crate::case::Case;
use crate::{Cause, Gain, Remedy, Where, words};
use model::Direction;

/// What an access may take on top of TEST UNIT READY before it is called slow: a solid state disk takes a tenth, a hard
/// disk ten times as much.
const ACCESS_MIN_S: f64 = 0.001;

pub(crate) fn find(case: &Case<'_>) -> Option<Found> {
    if case.signs.starved() || case.signs.stalls.is_some() {
        return None;
    }
    let load = case.load();
    let what = if load.direction == Direction::Read { "read" } else { "write" };
    let access_s = access_s(case);
    let (gain, because) = match case.signs.medium_full {
        true => full(case, what, access_s),
        false if access_s >= ACCESS_MIN_S => slow(case, what, access_s),
        false => return None,
    };
    Some(Found { cause: Cause::Medium, because, gain, remedies: remedies(), trial: None })
}

/// What an access takes beside what the target takes for any command, in seconds.
fn access_s(case: &Case<'_>) -> f64 {
    let flush_s = if case.load().durable { case.layers.flush_s } else { 0.0 };
    let short_s = if case.layers.short_of_a_block(case.load()) { case.layers.short_s } else { 0.0 };
    case.setting.path.command_s - case.layers.dispatch_s() - flush_s - short_s
}

fn slow(case: &Case<'_>, what: &str, access_s: f64) -> (Gain, Vec<String>) {
    let gain = case.gain_of(|setting| {
        setting.path.command_s -= access_s;
        // What data take cannot be told from what a slow access takes more or less.
        setting.path.copy_per_s = setting.path.payload_per_s.or(setting.path.copy_per_s);
    });
    let quick = match (&case.evidence.nbd, case.layers.nop) {
        (None, _) => format!(
            "A NOP takes {}, TEST UNIT READY {}: the network and the target are quick.",
            words::time(case.layers.exchange_s()),
            words::time(case.layers.exchange_s() + case.layers.dispatch_s()),
        ),
        (Some(_), Some(nop)) => {
            format!("A BLOCK_STATUS takes {}: the network and the server are quick.", words::time(nop.value))
        }
        (Some(_), None) => {
            format!("The round trip takes {}: the network is quick.", words::time(case.layers.exchange_s()))
        }
    };
    let because = vec![
        quick,
        format!(
            "A {what} of one block takes {} more than that: it waits for the medium.",
            words::time(access_s)
        ),
    ];
    (gain, because)
}

fn full(case: &Case<'_>, what: &str, access_s: f64) -> (Gain, Vec<String>) {
    // A medium that takes so many a second makes single requests wait as well.
    let gain = case.gain_without(|setting| {
        setting.path.medium_per_s = None;
        setting.path.command_s -= if access_s >= ACCESS_MIN_S { access_s } else { 0.0 };
    });
    let because = vec![
        format!(
            "With {} {what}s at once each takes {}, and alone {}: they wait for each other at {}, {} a \
             second.",
            case.load().depth,
            words::time(case.service_s()),
            words::time(case.modelled_alone_s()),
            words::rate(case.rate.value),
            words::number(case.rate.value / f64::from(case.load().block_bytes)),
        ),
        format!(
            "Beside them {} takes {}: neither the network nor the {} has a queue, so the medium behind it has.",
            case.shortest().replacen('A', "a", 1),
            words::time(case.layers.probe_s() + case.signs.nop_queue_s.unwrap_or(0.0).max(0.0)),
            case.server(),
        ),
    ];
    (gain, because)
}

fn remedies() -> Vec<Remedy> {
    vec![
        Where::Target.remedy(
            "look at the disks behind the target: iostat -x 1 there (r_await, w_await, %util), a RAID that \
             rebuilds or is degraded, a pool that is nearly full, a limit (QoS) for this volume",
        ),
        Where::Target.remedy(
            "put the volume on faster disks, or a cache in front of them (bcache, dm-cache, an SSD for ZFS: \
             L2ARC for reads, SLOG for writes)",
        ),
        Where::Linerate.remedy(
            "a delay: or limit: around the volume, if there is one; file: with direct=off lets the host's \
             page cache help",
        ),
        Where::Lio.remedy("a fileio backstore with write_back=true, or a block backstore on faster disks"),
        Where::Tgt.remedy(
            "--bsoflags without direct and sync lets the host's page cache help; --bstype aio for fast disks",
        ),
        Where::Application.remedy("more requests at once, if the disks are many: each then works on one"),
    ]
}
