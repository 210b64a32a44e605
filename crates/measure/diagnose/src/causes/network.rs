//! Causes on the path between the two ends: the link, packet loss, packet size, separate paths, and TCP.

use model::{Direction, Prediction, Term};

use super::words;
use crate::case::{Case, Setting};
use crate::causes::{Found, settings};
use crate::layers::median;
use crate::symptoms::{FullWindow, Whose};
use crate::{
    Cause, Change, Evidence, Gain, Known, PathLayer, PathUnderLoad, Remedy, Where, ceiling,
};

// The link runs below its rated speed, for example because of a bad cable, a port with a fixed speed, or a
// slower switch.

/// The minimum ratio of the rated speed to the actual one. The next lower Ethernet speed is usually half or
/// less. TCP that has not yet filled a long path is closer to the rated speed than that.
const FALLEN_MIN: f64 = 1.8;

pub(crate) fn link_rate(case: &Case<'_>) -> Option<Found> {
    let built_for = case.ceiling.built_for?;
    let carried_per_s = case.ceiling.full_per_s(case.load().direction)?;
    if built_for.payload_per_s < FALLEN_MIN * carried_per_s {
        return None;
    }
    let gain = case.gain_of(|setting| {
        setting.path.payload_per_s = Some(built_for.payload_per_s);
        // The time of a single request includes the time of its data on the link.
        let on_link_s = 1.0 / carried_per_s - 1.0 / built_for.payload_per_s;
        setting.path.copy_per_s = setting
            .path
            .copy_per_s
            .map(|copy| 1.0 / (1.0 / copy - on_link_s).max(1.0 / built_for.payload_per_s));
    });
    let says = if built_for.said {
        "you specified"
    } else {
        "the interface reports"
    };
    let mut because = vec![match case.symptoms.queued(case.layers) {
        true => format!(
            "The throughput was {}, and the round trip grew from {} to {}: packets were queued in front of a \
             saturated link.",
            words::rate(case.rate.value),
            words::time(case.layers.round_trip_s),
            words::time(case.layers.round_trip_s + case.symptoms.queue_s),
        ),
        false => format!(
            "The throughput was {}, the same in every round.",
            words::rate(case.rate.value)
        ),
    }];
    because.push(match ceiling::step(case.evidence, carried_per_s) {
        Some(bits_per_s) => format!(
            "This is {} of the payload rate of Ethernet at {}, but {says} {}.",
            words::share(carried_per_s / ceiling::link_payload_per_s(case.evidence, bits_per_s)),
            words::bits(bits_per_s),
            words::bits(built_for.bits_per_s),
        ),
        None => format!(
            "By comparison, {says} {}, which would allow {}.",
            words::bits(built_for.bits_per_s),
            words::rate(built_for.payload_per_s)
        ),
    });
    let remedies = vec![
        Where::Network.remedy(
            "check the port speed at both ends of every cable on the path, and replace damaged cables: with \
             a broken wire pair, gigabit ports fall back to 100 Mbit/s",
        ),
        Where::Kernel.remedy(
            "check speed, duplex mode and link partner with ethtool INTERFACE, then ethtool -s INTERFACE \
             autoneg on; look for a traffic shaper with tc -s qdisc show dev INTERFACE",
        ),
        Where::Windows
            .remedy("Get-NetAdapter | Select Name, LinkSpeed; set Speed & Duplex to Auto Negotiation"),
        Where::Esxi.remedy("esxcli network nic list, then esxcli network nic set -n VMNIC -a"),
        Where::Target.remedy("check the speed of its port, and whether it limits the rate of this host"),
    ];
    Some(Found {
        cause: Cause::LinkRate,
        because,
        gain,
        remedies,
        trial: None,
    })
}

/// Packets are lost, and TCP halves its congestion window after each loss.
pub(crate) fn loss(case: &Case<'_>) -> Option<Found> {
    // A full link also drops packets, which TCP relies on. Packets do not get lost within a machine.
    let full = case.ceiling.full_per_s(case.load().direction).is_some()
        && case.modelled.binding() == Some(Term::Link);
    if !case.symptoms.lossy() || full || case.ceiling.loopback {
        return None;
    }
    let gain = case.gain_without(Setting::open_windows);
    let how = match case.load().direction {
        Direction::Write => "of the segments sent by this machine were retransmitted",
        Direction::Read => "of the received segments were out of order, after a missing segment",
    };
    let mut because = vec![
        format!("{} {how}.", words::share(case.symptoms.lost)),
        format!(
            "Without losses, {} outstanding requests of {} at a round trip of {} would reach {} instead of \
             {}.",
            case.load().depth,
            words::size(f64::from(case.load().block_bytes)),
            words::time(case.layers.round_trip_s),
            words::rate(case.rate.value * gain.predicted.unwrap_or(1.0)),
            words::rate(case.rate.value),
        ),
    ];
    if let Known::Measured(link) = &case.evidence.link
        && link.faults > 0
    {
        because.push(format!(
            "Interface {} dropped or corrupted {} packets during the measurement.",
            link.interface, link.faults
        ));
    }
    let remedies = vec![
        Where::Network.remedy(
            "check the error and drop counters of every switch port on the path; likely causes are a failing \
             cable, connector or transceiver, a duplex mismatch, or an overflowing port buffer (use flow \
             control, or fewer concurrent hosts)",
        ),
        Where::Kernel.remedy(
            "check for errors with ip -s link show INTERFACE and ethtool -S INTERFACE; enlarge the receive \
             ring with ethtool -g and -G",
        ),
        Where::Kernel.remedy(
            "until the cause is found, use BBR, which does not slow down after single losses: sysctl -w \
             net.ipv4.tcp_congestion_control=bbr on the sending side",
        ),
        Where::Url.remedy("congestion=bbr, for writes"),
        Where::Linerate.remedy("[[portal]] congestion = \"bbr\", for reads"),
    ];
    Some(Found {
        cause: Cause::Loss,
        because,
        gain,
        remedies,
        trial: None,
    })
}

// The delay of packets varies even without a load: other traffic fills a queue, or a device sends in intervals.

/// The minimum jitter, in seconds, and as a share of the shortest round trip. A machine that runs other programs delays
/// a handshake by less.
const JITTER_MIN_S: f64 = 0.002;
const JITTER_SHARE_MIN: f64 = 0.5;

pub(crate) fn jitter(case: &Case<'_>) -> Option<Found> {
    let (jitter_s, shortest_s) = (case.layers.jitter_s, case.layers.round_trip_s);
    let starts = jitter_s >= JITTER_MIN_S.max(shortest_s * JITTER_SHARE_MIN);
    if !starts
        || case.ceiling.loopback
        || case.symptoms.starved()
        || case.symptoms.target_away > 0.0
    {
        return None;
    }
    let gain = case.gain_without(|setting| {
        let path = &mut setting.path;
        path.exchange_s = (path.exchange_s - jitter_s).max(0.0);
        path.command_s = (path.command_s - jitter_s).max(0.0);
        path.copy_per_s = path.payload_per_s.or(path.copy_per_s);
    });
    let because = vec![format!(
        "Without a load, half of the TCP handshakes take more than {}, but the shortest round trip was {}.",
        words::time(shortest_s + jitter_s),
        words::time(shortest_s),
    )];
    let remedies = vec![
        Where::Network.remedy(
            "look for other traffic that fills a queue on the path (drops and queue lengths of each port), and \
             give storage its own VLAN, link or priority; avoid wireless and shared uplinks",
        ),
        Where::Kernel.remedy(
            "reduce interrupt coalescing at both ends (ethtool -C INTERFACE rx-usecs 20), and forbid deep sleep \
             states (cpupower idle-set -D 50)",
        ),
        Where::Application.remedy("until then, increase the queue depth"),
    ];
    Some(Found {
        cause: Cause::Jitter,
        because,
        gain,
        remedies,
        trial: None,
    })
}

// The path silently drops long packets: the MTU differs along the path, or a firewall drops the messages that
// path MTU discovery needs (RFC 1191, RFC 2923).

/// The length of the headers of IPv4, and of TCP with timestamps.
const HEADERS_BYTES: u32 = 52;

/// Reports lost long packets. On such a path nothing works with full-size packets, so all later measurements
/// used shorter segments.
pub(crate) fn path_mtu(evidence: &Evidence) -> Option<Found> {
    let vanished = evidence.long_packets.as_ref()?;
    let mut because = vec![format!("Short commands complete, but {}.", vanished.lost)];
    let interface = match &evidence.link {
        Known::Measured(link) => format!(
            " Interface {} accepts packets of up to {} bytes.",
            link.interface,
            words::number(f64::from(link.mtu))
        ),
        Known::Unknown(_) => String::new(),
    };
    because.push(format!(
        "TCP sent segments of up to {} bytes.{interface}",
        vanished.segment_bytes
    ));
    if let Some(works) = vanished.works_bytes {
        because.push(format!(
            "Segments of {works} bytes arrive; all later measurements used this segment size."
        ));
    }
    let mtu = vanished
        .works_bytes
        .map_or(1500, |bytes| bytes.saturating_add(HEADERS_BYTES));
    let remedies = vec![
        Where::Network.remedy(
            "set the same MTU on every interface and switch port on the path (1500, or 9000, for which \
             switches are usually set to 9216), and do not let firewalls drop ICMP \"fragmentation needed\"",
        ),
        Where::Kernel.remedy(format!(
            "find the limit of the path with ping -M do -s {} ADDRESS; until it is fixed, ip link set dev \
             INTERFACE mtu {mtu}, or sysctl -w net.ipv4.tcp_mtu_probing=1",
            mtu.saturating_sub(28)
        )),
        Where::Url.remedy(format!("tcp-segment={}", vanished.works_bytes.unwrap_or(1200))),
        Where::Windows.remedy(format!(
            "netsh interface ipv4 set subinterface \"NAME\" mtu={mtu} store=persistent; ping -f -l {} \
                 ADDRESS",
            mtu.saturating_sub(28)
        )),
        Where::Esxi.remedy(format!(
            "vmkping -d -s {} ADDRESS; esxcli network ip interface set -i VMK -m {mtu} and esxcli \
                 network vswitch standard set -v VSWITCH -m {mtu}",
            mtu.saturating_sub(28)
        )),
    ];
    let gain = Gain {
        predicted: None,
        low: 1.0,
        high: f64::MAX,
        confirmed: None,
    };
    let trial = vanished
        .works_bytes
        .map(|bytes| settings([("tcp-segment", bytes.to_string())]));
    Some(Found {
        cause: Cause::PathMtu,
        because,
        gain,
        remedies,
        trial,
    })
}

// One of several connections has a slower path than the others, so its commands complete later.

/// A connection uses another path if its round trip is at least this many times that of the best connection.
const SLOWER_MIN: f64 = 1.5;
/// The minimum difference. On paths of a tenth of a millisecond, smaller differences depend on the CPU that
/// responds.
const GAP_MIN_S: f64 = 0.000_3;

pub(crate) fn slow_path(case: &Case<'_>) -> Option<Found> {
    let ways: Vec<(&PathLayer, f64)> = case
        .evidence
        .paths
        .iter()
        .filter_map(|path| Some((path, way_s(path)?)))
        .collect();
    let (best, best_s) = ways
        .iter()
        .copied()
        .min_by(|one, other| one.1.total_cmp(&other.1))?;
    let (worst, worst_s) = ways
        .iter()
        .copied()
        .max_by(|one, other| one.1.total_cmp(&other.1))?;
    if worst_s < best_s * SLOWER_MIN || worst_s - best_s < GAP_MIN_S {
        return None;
    }
    let gain = case.gain_to(mended_per_s(case, best, best_s, ways.len()));
    let because = vec![
        format!(
            "{} takes {} on connection {} ({}), but {} on connection {} ({}).",
            if case.evidence.nbd.is_some() {
                "The round trip"
            } else {
                "A NOP"
            },
            words::time(worst_s),
            worst.cid,
            worst.peer,
            words::time(best_s),
            best.cid,
            best.peer,
        ),
        format!(
            "Connection {} carried {} of the data of all {} connections.",
            worst.cid,
            words::share(carried(case, worst.cid)),
            ways.len(),
        ),
    ];
    let remedies = vec![
        Where::Network.remedy(format!(
            "compare the paths of the connections: traceroute, port speeds, and the switch or subnet that \
             connection {} uses",
            worst.cid
        )),
        Where::Url.remedy("until this is fixed, connections=1 over the better path"),
        Where::Kernel.remedy(
            "with multipath: path_selector \"service-time 0\" in /etc/multipath.conf, which sends fewer \
             requests over the slower path",
        ),
        Where::Esxi.remedy("esxcli storage nmp psp roundrobin deviceconfig set -d DEVICE --type latency"),
        Where::Windows.remedy("Set-MSDSMGlobalDefaultLoadBalancePolicy -Policy LQD (least queue depth)"),
    ];
    // There is no trial. The first connection of a new session may be the slow one, so a session with one
    // connection less would not test this cause.
    Some(Found {
        cause: Cause::SlowPath,
        because,
        gain,
        remedies,
        trial: None,
    })
}

/// Returns the rate if all connections were like the best one. If the best connection is full, all
/// connections would carry as much as it does. Otherwise, all requests would take as long as on the best
/// connection.
fn mended_per_s(case: &Case<'_>, best: &PathLayer, best_s: f64, connections: usize) -> f64 {
    let under_load_s = case
        .run
        .paths
        .iter()
        .find(|path| path.cid == best.cid)
        .map(|path| path.round_trip_us / 1e6);
    let queued =
        under_load_s.is_some_and(|under_load_s| under_load_s > best_s * FULL_MIN + QUEUE_MIN_S);
    let share = carried(case, best.cid);
    let all_like_it = case.rate.value * share * connections as f64;
    if queued && case.load().depth > 1 {
        return all_like_it.max(case.rate.value);
    }
    if carried(case, best.cid) >= ALONE_MIN {
        return case.rate.value;
    }
    let mut setting = case.setting.clone();
    // Half of the requests are late, so the medium or the window may only appear to be full.
    setting.path.medium_per_s = None;
    setting.path.window_bytes = None;
    setting.path.round_trip_s = setting.path.round_trip_s.min(best_s);
    setting.path.exchange_s = best_s - setting.path.round_trip_s;
    setting.path.payload_per_s = setting
        .path
        .payload_per_s
        .map(|payload| payload * connections as f64);
    softly(&setting.predict())
}

/// Returns the rate of requests that choose their paths randomly, and so do not load all paths equally. If
/// the limits of depth and link are nearly equal, the rate reaches neither. The exponent was fitted in the
/// lab: with limits of 56 and 55 MB/s, the measured rate was 45 MB/s.
fn softly(prediction: &Prediction) -> f64 {
    const POWER: f64 = 3.0;
    prediction
        .terms
        .iter()
        .map(|(_, per_s)| per_s.powf(-POWER))
        .sum::<f64>()
        .powf(-1.0 / POWER)
}

/// Returns a connection's share of all data.
fn carried(case: &Case<'_>, cid: u16) -> f64 {
    let bytes = |path: &PathUnderLoad| match case.load().direction {
        Direction::Read => path.received_bytes as f64,
        Direction::Write => path.sent_bytes as f64,
    };
    let all: f64 = case.run.paths.iter().map(bytes).sum();
    let own: f64 = case
        .run
        .paths
        .iter()
        .filter(|path| path.cid == cid)
        .map(bytes)
        .sum();
    if all > 0.0 { own / all } else { 1.0 }
}

/// The connection has a queue in the network if its round trip increases at least by this factor under load.
const FULL_MIN: f64 = 2.0;
const QUEUE_MIN_S: f64 = 0.001;
/// The share of the data from which the load uses practically only the best connection.
const ALONE_MIN: f64 = 0.95;

/// Returns the time of a NOP on a connection or, if that is unknown, TCP's round trip, in seconds.
fn way_s(path: &PathLayer) -> Option<f64> {
    let told_s = path.round_trip_us / 1e6;
    let way_s = median(&path.nop).map_or(told_s, |nop| nop.value);
    (way_s > 0.0 && way_s.is_finite()).then_some(way_s)
}

/// The TCP window is smaller than the bandwidth-delay product of the path, because a buffer has a fixed size
/// or a maximum.
pub(crate) fn tcp_window(case: &Case<'_>) -> Option<Found> {
    let window = case.symptoms.window?;
    if !matches!(case.modelled.binding(), Some(Term::Window)) {
        return None;
    }
    let gain = case.gain_without(Setting::open_windows);
    let needed = case.rate.value * gain.predicted.unwrap_or(1.0) * case.layers.round_trip_s;
    let connections = case.evidence.paths.len().max(1) as f64;
    let because = vec![
        format!(
            "{} at a round trip of {} means that each connection has {} in transit, independent of the queue \
             depth.",
            words::rate(case.rate.value),
            words::time(case.layers.round_trip_s),
            words::size(window.bytes.round()),
        ),
        seen(case, window),
        format!(
            "No packets were lost or queued in the network; {} outstanding requests of {} would allow {} in \
             transit.",
            case.load().depth,
            words::size(f64::from(case.load().block_bytes)),
            words::size(
                (f64::from(case.load().depth) * f64::from(case.load().block_bytes)).round()
            ),
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
            "The {1}'s receive window prevented this machine from sending {0} of the time.",
            words::share(mean(|path| path.limited_by_receiver)),
            case.server(),
        ),
        Whose::OurSend => format!(
            "This machine's send buffer was too small to send more {} of the time.",
            words::share(mean(|path| path.limited_by_send_buffer)),
        ),
        Whose::OurReceive => "This machine's receive window does not allow more data in transit.".to_owned(),
        Whose::TargetSend => {
            "This machine's receive window would allow more data in transit: the target's send buffer is the \
             limit."
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
            "remove send-buffer and receive-buffer from [[portal]], or set them to {} or more",
            words::size(bytes as f64)
        )),
        Where::Tgt.remedy(format!("on its host: {limits}")),
        Where::Lio.remedy(format!("on its host: {limits}")),
        Where::Target.remedy(
            "increase its TCP window size or socket buffers, and enable window scaling (RFC 7323)",
        ),
    ];
    let ours = [
        Where::Url.remedy(
            "omit receive-buffer and send-buffer: the kernel then sizes them automatically",
        ),
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

/// One end holds back its last short segment until the previous one is acknowledged (Nagle's algorithm, RFC
/// 896), and the other end delays the acknowledgement (RFC 1122 section 4.2.3.2). Requests affected by both
/// wait for 40 ms (Linux) or 200 ms (Windows).
pub(crate) fn delayed_ack(case: &Case<'_>) -> Option<Found> {
    let stalls = case.symptoms.stalls?;
    let gain = case.gain(case.without_stalls(stalls));
    let because = vec![
        match stalls.others_s {
            Some(others_s) => format!(
                "Of the single requests of {}, {} took {} or more; the others took {}.",
                words::size(f64::from(case.load().block_bytes)),
                words::share(stalls.share),
                words::time(stalls.held_s),
                words::time(others_s),
            ),
            None => format!(
                "Single requests of {} take {}, while longer or concurrent ones are faster.",
                words::size(f64::from(case.load().block_bytes)),
                words::time(stalls.held_s),
            ),
        },
        format!(
            "The round trip is only {}, so the path does not explain the delay: one end delays its TCP \
             acknowledgement, and the other waits for it before it sends the rest of the data.",
            words::time(case.layers.round_trip_s),
        ),
    ];
    let remedies = vec![
        Where::Target.remedy(
            "set TCP_NODELAY on its sockets, and send a PDU's header and data in one write (writev, \
             MSG_MORE); look for a proxy or tunnel on the path that does neither",
        ),
        Where::Esxi.remedy(
            "esxcli iscsi adapter param set -A ADAPTER -k DelayedAck -v false (or the initiator's Advanced \
             Options); then restart the host",
        ),
        Where::Windows.remedy(
            "HKLM\\SYSTEM\\CurrentControlSet\\Services\\Tcpip\\Parameters\\Interfaces\\{GUID of the \
             adapter}: TcpAckFrequency = 1 and TcpNoDelay = 1 (DWORD); then restart Windows",
        ),
        Where::Kernel.remedy(
            "ip route change SUBNET dev INTERFACE quickack 1 on the side that delays acknowledgements",
        ),
    ];
    Some(Found {
        cause: Cause::DelayedAck,
        because,
        gain,
        remedies,
        trial: None,
    })
}
