//! This machine has no CPU time left for the thread that makes the requests.

use super::Found;
use crate::case::Case;
use crate::{Cause, Where, words};

pub(crate) fn find(case: &Case<'_>) -> Option<Found> {
    if !case.signs.starved() || case.waited_alone().is_some_and(|waited| waited < ALONE_MIN) {
        return None;
    }
    let waited = case.signs.starved.min(STARVED_MAX);
    let mended = case.rate.value / (1.0 - waited);
    let most = case.setting.path.payload_per_s.unwrap_or(f64::INFINITY);
    let gain = case.gain_to(mended.min(most.max(case.rate.value)));
    let because = vec![format!(
        "For {} of the time the thread that makes the requests could have gone on and had no CPU; it ran for \
         {}.",
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

/// Single requests leave a CPU idle most of the time: who has to wait for it then waits for others. Of many at once the
/// thread waits for what they make the machine do themselves, in the kernel and in other programs on the way.
const ALONE_MIN: f64 = 0.35;
/// Nothing follows from a thread that hardly ran.
const STARVED_MAX: f64 = 0.95;
