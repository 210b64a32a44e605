//! A TCP window that is smaller than what the path holds: a buffer was set to a fixed size, or may not grow.

use super::{Found, settings};
use crate::case::{Case, Setting};
use crate::signs::{FullWindow, Whose};
use crate::{Cause, Change, Remedy, Where, words};
use model::Term;

pub(crate) fn find(case: &Case<'_>) -> Option<Found> {
    let window = case.signs.window?;
    if !matches!(case.modelled.binding(), Some(Term::Window)) {
        return None;
    }
    let gain = case.gain_without(Setting::open_windows);
    let needed = case.rate.value * gain.predicted.unwrap_or(1.0) * case.layers.round_trip_s;
    let connections = case.evidence.paths.len().max(1) as f64;
    let because = vec![
        format!(
            "{} in a round trip of {} is {} at once on each connection, whatever is asked for.",
            words::rate(case.rate.value),
            words::time(case.layers.round_trip_s),
            words::size(window.bytes.round()),
        ),
        seen(case, window),
        format!(
            "No packets were lost, and none waited in the network; {} requests of {} could fill {}.",
            case.load().depth,
            words::size(f64::from(case.load().block_bytes)),
            words::size((f64::from(case.load().depth) * f64::from(case.load().block_bytes)).round()),
        ),
    ];
    let bytes = (2.0 * needed / connections).max(1_048_576.0) as u64;
    let bytes = bytes.checked_next_power_of_two().unwrap_or(bytes);
    Some(Found {
        cause: Cause::TcpWindow,
        because,
        gain,
        remedies: remedies(window.whose, bytes),
        trial: trial(window.whose, bytes),
    })
}

fn seen(case: &Case<'_>, window: FullWindow) -> String {
    let mean = |of: fn(&crate::PathUnderLoad) -> f64| {
        stats::mean(&case.run.paths.iter().map(of).collect::<Vec<_>>())
    };
    match window.whose {
        Whose::TargetReceive => format!(
            "For {} of the time the {}'s receive window kept this machine from sending.",
            words::share(mean(|path| path.limited_by_receiver)),
            case.server(),
        ),
        Whose::OurSend => format!(
            "For {} of the time this machine's own send buffer was too small for more.",
            words::share(mean(|path| path.limited_by_send_buffer)),
        ),
        Whose::OurReceive => "This machine's receive window does not let more be on the way.".to_owned(),
        Whose::TargetSend => {
            "This machine's receive window would let more be on the way: it is the target's send buffer that \
             does not."
                .to_owned()
        }
    }
}

fn remedies(whose: Whose, bytes: u64) -> Vec<Remedy> {
    let limits = format!(
        "sysctl -w net.ipv4.tcp_{{rmem,wmem}}='4096 131072 {bytes}' net.core.{{rmem,wmem}}_max={bytes} \
         net.ipv4.tcp_window_scaling=1"
    );
    let target = [
        Where::Linerate.remedy(format!(
            "take send-buffer and receive-buffer out of [[portal]], or set them to {} or more",
            words::size(bytes as f64)
        )),
        Where::Tgt.remedy(format!("on its host: {limits}")),
        Where::Lio.remedy(format!("on its host: {limits}")),
        Where::Target.remedy("its TCP window size or socket buffers, and window scaling (RFC 7323)"),
    ];
    let ours = [
        Where::Url.remedy("leave out receive-buffer and send-buffer: the kernel then sizes them by itself"),
        Where::Kernel.remedy(limits.clone()),
        Where::OpenIscsi.remedy(format!("node.conn[0].tcp.window_size = {bytes}")),
        Where::Windows.remedy("netsh interface tcp set global autotuninglevel=normal"),
    ];
    match whose {
        Whose::OurReceive | Whose::OurSend => ours.into_iter().chain(target).collect(),
        Whose::TargetReceive | Whose::TargetSend => target.into_iter().chain(ours).collect(),
    }
}

fn trial(whose: Whose, bytes: u64) -> Option<Change> {
    match whose {
        Whose::OurReceive => Some(settings([("receive-buffer", bytes.to_string())])),
        Whose::OurSend => Some(settings([("send-buffer", bytes.to_string())])),
        Whose::TargetReceive | Whose::TargetSend => None,
    }
}
