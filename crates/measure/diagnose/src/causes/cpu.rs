//! Causes at the two ends: CPU time used by others.

use super::words;
use crate::case::Case;
use crate::causes::Found;
use crate::{Cause, Gain, Where};

/// This machine has no CPU time left for the thread that makes the requests.
pub(crate) fn client_cpu(case: &Case<'_>) -> Option<Found> {
    if !case.symptoms.starved() || case.waited_alone().is_some_and(|waited| waited < ALONE_MIN) {
        return None;
    }
    let waited = case.symptoms.starved.min(STARVED_MAX);
    let mended = case.rate.value / (1.0 - waited);
    let most = case.setting.path.payload_per_s.unwrap_or(f64::INFINITY);
    let gain = case.gain_to(mended.min(most.max(case.rate.value)));
    let because = vec![format!(
        "For {} of the time the thread that makes the requests was ready but had no CPU; it ran for {}.",
        words::share(case.run.client_waited),
        words::share(case.run.client_busy),
    )];
    let remedies = vec![
        Where::Kernel.remedy(
            "what else runs on this machine: top -H, mpstat -P ALL 1; in a virtual machine %steal; give it \
             more CPUs or less to do",
        ),
        Where::Kernel.remedy(
            "interrupts of the network card on the same CPU: /proc/interrupts, irqbalance, ethtool -L and \
             -X, or receive packet steering (/sys/class/net/INTERFACE/queues/rx-0/rps_cpus)",
        ),
        Where::OpenIscsi
            .remedy("node.session.nr_sessions = 4 with multipath: a session is served by one CPU"),
        Where::Windows.remedy("receive side scaling: Get-NetAdapterRss, Enable-NetAdapterRss"),
        Where::Esxi
            .remedy("CPU ready time of the virtual machine in esxtop (%RDY above 5 % a vCPU is too much)"),
    ];
    Some(Found { cause: Cause::ClientCpu, because, gain, remedies, trial: None })
}

/// Single requests leave a CPU idle most of the time: a thread that waits for it then waits for other
/// programs. With many concurrent requests, the thread waits for work that the requests themselves cause, in
/// the kernel and in other programs on the path.
const ALONE_MIN: f64 = 0.35;
/// A thread that hardly ran proves nothing.
const STARVED_MAX: f64 = 0.95;

/// The target has no CPU time left: it responds to any request either immediately or much later, and the kind
/// of request makes no difference.
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
            "{}, is answered in {} at best; {} of the time that {} took was spent in answers that took many \
             times as long, up to {}.",
            match &case.evidence.nbd {
                None => "A NOP, which reaches no disk",
                Some(_) => "The shortest request that there is",
            },
            words::time(spread.usual_s),
            words::share(away),
            if case.evidence.nbd.is_some() { "these" } else { "NOPs" },
            words::time(spread.longest_s),
        ),
        format!(
            "TCP's own round trip, which the {}'s kernel answers, takes {}: the network is not what waits.",
            case.server(),
            words::time(case.layers.round_trip_s),
        ),
    ];
    let mut because = because;
    if let Some(busy) = case.run.server_busy {
        because.push(format!(
            "The {}'s busiest thread had a CPU for {} of the time.",
            case.server(),
            words::share(busy)
        ));
    }
    let remedies = vec![
        Where::Target.remedy(
            "what else runs on its CPUs: top -H, mpstat -P ALL 1, vmstat 1 there; in a virtual machine \
             %steal; move it away, or give the target CPUs of its own (CPUAffinity=, isolcpus)",
        ),
        Where::Target.remedy(
            "interrupts of its network card on the CPU that the target runs on: /proc/interrupts, \
             irqbalance, receive side scaling (ethtool -L, -X)",
        ),
        Where::Linerate.remedy(
            "reactors = the number of CPUs that are free, and a higher priority: Nice=-10 or CPUWeight= in \
             its unit",
        ),
        Where::Tgt.remedy(
            "tgtd serves all sessions in one thread: several tgtd (--control-port) for several targets",
        ),
        Where::Lio.remedy(
            "iSCSI threads of a portal run where their interrupts do: spread those, and look for a CPU \
             frequency governor that saves power",
        ),
    ];
    Some(Found { cause: Cause::TargetCpu, because, gain, remedies, trial: None })
}

/// The gain of CPU time for the target cannot be determined from outside: the wake-up time, and whether the
/// target sleeps at all, depend on the other load. With planted causes on one machine, a ratio of 6 turned
/// out as 3 to 18.
fn roughly(gain: Gain) -> Gain {
    Gain { low: gain.low.max(0.0).sqrt(), high: gain.high.powf(1.5), ..gain }
}

/// A shared machine is busy for a tenth or two of the time; from this share on, it is a cause.
const AWAY_MIN: f64 = 0.35;
/// The maximum share of the delay that this machine may have caused itself.
const OURS_MAX: f64 = 0.5;
