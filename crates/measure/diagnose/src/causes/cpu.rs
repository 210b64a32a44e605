//! Causes at the two ends: other programs use the CPU time.

use super::words;
use crate::case::Case;
use crate::causes::Found;
use crate::{Cause, Gain, Where};

/// This machine does not have enough CPU time for the thread that makes the requests.
pub(crate) fn client_cpu(case: &Case<'_>) -> Option<Found> {
    if !case.symptoms.starved() || case.waited_alone().is_some_and(|waited| waited < ALONE_MIN) {
        return None;
    }
    let waited = case.symptoms.starved.min(STARVED_MAX);
    let mended = case.rate.value / (1.0 - waited);
    let most = case.setting.path.payload_per_s.unwrap_or(f64::INFINITY);
    let gain = case.gain_to(mended.min(most.max(case.rate.value)));
    let because = vec![format!(
        "The thread that sends the requests was runnable but waiting for a CPU {} of the time, and ran {} of \
         the time.",
        words::share(case.run.client_waited),
        words::share(case.run.client_busy),
    )];
    let remedies = vec![
        Where::Kernel.remedy(
            "find what else uses the CPUs of this machine: top -H, mpstat -P ALL 1; in a virtual machine, \
             check %steal; add CPUs or reduce the load",
        ),
        Where::Kernel.remedy(
            "check whether the network card's interrupts use the same CPU (/proc/interrupts); distribute \
             them with irqbalance, ethtool -L and -X, or receive packet steering \
             (/sys/class/net/INTERFACE/queues/rx-0/rps_cpus)",
        ),
        Where::OpenIscsi.remedy("node.session.nr_sessions = 4 with multipath: each session uses one CPU"),
        Where::Windows.remedy("enable receive side scaling: Get-NetAdapterRss, Enable-NetAdapterRss"),
        Where::Esxi.remedy(
            "check the virtual machine's CPU ready time in esxtop: %RDY should be below 5 % per vCPU",
        ),
    ];
    Some(Found {
        cause: Cause::ClientCpu,
        because,
        gain,
        remedies,
        trial: None,
    })
}

/// The minimum share of the time for which a load of single requests waits for a CPU. Single requests leave a
/// CPU idle most of the time, so a thread that waits then waits for other programs. With many concurrent
/// requests, the thread also waits for work that the requests themselves cause, in the kernel and in other
/// programs on the path.
const ALONE_MIN: f64 = 0.35;
/// The maximum share that is used for a prediction: a thread that hardly ran is no basis for one.
const STARVED_MAX: f64 = 0.95;

/// The target does not have enough CPU time: it responds to any request either immediately or much later,
/// regardless of the kind of request.
pub(crate) fn target_cpu(case: &Case<'_>) -> Option<Found> {
    let away = case.symptoms.target_away;
    let ours = case.waited_alone().unwrap_or(0.0);
    if away < AWAY_MIN || ours > away * OURS_MAX || case.symptoms.stalls.is_some() {
        return None;
    }
    let spread = case.layers.nop_spread?;
    let gain = roughly(case.gain(case.without_waits()));
    let because = vec![
        format!(
            "{}, completes in {} at best, but {} of the total time of {} was spent on slow ones, the slowest \
             of which took {}.",
            match &case.evidence.nbd {
                None => "A NOP, which does not access a disk",
                Some(_) => "The shortest request of the protocol",
            },
            words::time(spread.usual_s),
            words::share(away),
            if case.evidence.nbd.is_some() {
                "these"
            } else {
                "NOPs"
            },
            words::time(spread.longest_s),
        ),
        format!(
            "The TCP round trip, which involves only the {}'s kernel, takes {}: the network does not cause \
             the delay.",
            case.server(),
            words::time(case.layers.round_trip_s),
        ),
    ];
    let mut because = because;
    if let Some(busy) = case.run.server_busy {
        because.push(format!(
            "The {}'s busiest thread ran {} of the time.",
            case.server(),
            words::share(busy)
        ));
    }
    let remedies = vec![
        Where::Target.remedy(
            "find what else uses its CPUs: run top -H, mpstat -P ALL 1 and vmstat 1 there; in a virtual \
             machine, check %steal; move other programs elsewhere, or reserve CPUs for the target \
             (CPUAffinity=, isolcpus)",
        ),
        Where::Target.remedy(
            "check whether the network card's interrupts use the target's CPU (/proc/interrupts); distribute \
             them with irqbalance or receive side scaling (ethtool -L, -X)",
        ),
        Where::Linerate.remedy(
            "set reactors to the number of free CPUs, and raise the priority of its unit (Nice=-10 or \
             CPUWeight=)",
        ),
        Where::Tgt.remedy(
            "tgtd serves all sessions in one thread: run a separate tgtd (--control-port) for each target",
        ),
        Where::Lio.remedy(
            "the iSCSI threads of a portal run on the CPUs that handle its interrupts: distribute the \
             interrupts, and check for a power-saving CPU frequency governor",
        ),
    ];
    Some(Found {
        cause: Cause::TargetCpu,
        because,
        gain,
        remedies,
        trial: None,
    })
}

/// Widens the range of a gain. The gain from more CPU time for the target cannot be determined from outside,
/// since the wake-up time, and whether the target sleeps at all, depend on the other load. In tests with
/// planted causes on one machine, a predicted ratio of 6 was measured as 3 to 18.
fn roughly(gain: Gain) -> Gain {
    Gain {
        low: gain.low.max(0.0).sqrt(),
        high: gain.high.powf(1.5),
        ..gain
    }
}

/// The share of the time from which an unresponsive target is a cause. A shared machine is normally busy for
/// a tenth or two tenths of the time.
const AWAY_MIN: f64 = 0.25;
/// The maximum share of the delay that this machine may have caused itself.
const OURS_MAX: f64 = 0.5;
