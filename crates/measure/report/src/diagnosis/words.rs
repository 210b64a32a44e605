//! How causes, places, limits and loads are called.

pub(super) use bench::plan::load_words as load;

use super::gain::{confirmed, percent, predicted};
use diagnose::{
    Cause, Change, Diagnosis, Evidence, Known, LinkLayer, Otherwise, Storage, Timed, Verdict, Where,
};
use model::Term;
use readable::figures::{grouped, latency, short, size};

/// A cause as a sentence without a full stop.
pub(super) fn cause(diagnosis: &Diagnosis, cause: Cause) -> &'static str {
    match cause {
        Cause::Medium if diagnosis.evidence.nbd.is_some() => "The storage behind the server is slow",
        Cause::TargetCpu if diagnosis.evidence.nbd.is_some() => "The server has no CPU time left",
        Cause::Depth => "Too few requests are under way at once",
        Cause::CommandWindow => "The target takes too few commands at once",
        Cause::TcpWindow => "The TCP window is too small for the distance",
        Cause::Solicitation => "Writes wait to be asked for their first data",
        Cause::SmallBursts => "Writes are asked for in small pieces, one after the other",
        Cause::SmallSegments => "Data travel in many short PDUs",
        Cause::Digests => "Digests take a CPU's time",
        Cause::LinkRate => "The link runs slower than it is built for",
        Cause::PathMtu => "Long packets do not arrive",
        Cause::Loss => "Packets are lost on the way",
        Cause::SlowPath => "One connection has a slower way than the others",
        Cause::Medium => "The storage behind the target is slow",
        Cause::Flush => "Making writes durable is slow",
        Cause::Misalignment => "Writes do not fit the physical blocks",
        Cause::TargetCpu => "The target has no CPU time left",
        Cause::ClientCpu => "This machine has no CPU time left",
        Cause::DelayedAck => "Acknowledgements are held back, and somebody waits for them",
        Cause::Connections => "One connection gives less than several",
        Cause::Tls => "Encryption takes a CPU's time",
    }
}

/// The shortest request that is asked.
pub(super) fn shortest(evidence: &Evidence) -> &'static str {
    if evidence.nbd.is_some() { "BLOCK_STATUS" } else { "NOP" }
}

/// What was changed of the session that a load was tried by: behind the load.
pub(super) fn otherwise(otherwise: Otherwise) -> String {
    match otherwise {
        Otherwise::Connections(count) => format!("by {count} connections"),
        Otherwise::Plain => "without TLS".to_owned(),
    }
}

/// What writes a cache.
pub(super) fn flush(evidence: &Evidence) -> &'static str {
    if evidence.nbd.is_some() { "FLUSH" } else { "SYNCHRONIZE CACHE" }
}

/// Where a setting is, as people call it.
pub(crate) fn at(at: Where) -> &'static str {
    match at {
        Where::Url => "linerate's URL",
        Where::OpenIscsi => "open-iscsi",
        Where::Windows => "Windows",
        Where::Esxi => "ESXi",
        Where::Kernel => "this machine",
        Where::Network => "network",
        Where::Linerate => "linerate serve",
        Where::Lio => "LIO",
        Where::Tgt => "tgt",
        Where::Target => "target",
        Where::Server => "server",
        Where::NbdClient => "nbd-client",
        Where::Nbdcopy => "nbdcopy",
        Where::Application => "application",
    }
}

/// A limit, in a word or two.
pub(crate) fn term(term: Term) -> &'static str {
    match term {
        Term::Link => "link",
        Term::Window => "TCP window",
        Term::Depth => "requests at once",
        Term::WritesUnderWay => "writes under way",
        Term::Exchanges => "exchanges",
        Term::Medium => "medium",
    }
}

/// What a limit does, behind "of what".
fn allows(term: Term) -> &'static str {
    match term {
        Term::Link => "the link carries",
        Term::Window => "the TCP window lets through",
        Term::Depth => "so many requests at once can bring",
        Term::WritesUnderWay => "the target takes of writes at once",
        Term::Exchanges => "the two ends can handle",
        Term::Medium => "the storage gives",
    }
}

/// `ACME FlashArray, 50 GiB`.
pub(super) fn storage(storage: &Storage) -> String {
    let product = storage.product.as_ref().map(|product| format!("{product}, ")).unwrap_or_default();
    let read_only = if storage.read_only { ", write-protected" } else { "" };
    format!("{product}{}{read_only}", size(storage.bytes as f64))
}

/// `eth0 at 1 Gbit/s, MTU 1,500`.
pub(super) fn link(link: &LinkLayer) -> String {
    if link.loopback {
        return format!(
            "{}, which does not leave this machine, MTU {}",
            link.interface,
            grouped(link.mtu.into())
        );
    }
    let speed = link.bits_per_s.map(|bits| format!(" at {}bit/s", short_unit(bits))).unwrap_or_default();
    let half = if link.full_duplex == Some(false) { ", half duplex" } else { "" };
    format!("{}{speed}{half}, MTU {}", link.interface, grouped(link.mtu.into()))
}

/// `1 G`, `100 M`: bits a second without their unit.
fn short_unit(bits_per_s: f64) -> String {
    let text = match bits_per_s {
        bits if bits >= 1e6 => short(bits),
        bits => format!("{}k", short(bits / 1e3)),
    };
    let unit = text.find(|letter: char| letter.is_ascii_alphabetic()).unwrap_or(text.len());
    format!("{} {}", &text[..unit], &text[unit..])
}

/// What was seen of long packets that vanish, if any did.
pub(super) fn long_packets(evidence: &Evidence) -> Option<String> {
    let seen = evidence.long_packets.as_ref()?;
    let segment = grouped(seen.segment_bytes.into());
    let then = match seen.works_bytes {
        Some(works) => {
            let works = grouped(works.into());
            format!("with segments of {works} bytes it went on, and all that follows was measured with these")
        }
        None => "no shorter segment was found that gets through".to_owned(),
    };
    Some(format!("Long packets do not arrive: {}, with TCP segments of {segment} bytes; {then}.", seen.lost))
}

/// A probe's median, or that it is not known.
pub(super) fn median(known: &Known<Timed>) -> String {
    match known {
        Known::Measured(timed) => latency(timed.median_us),
        Known::Unknown(_) => "?".to_owned(),
    }
}

/// A change on our side: `initial-r2t=no, 32 requests at once`.
pub(super) fn change(change: &Change) -> String {
    let settings = change.settings.iter().map(|(key, value)| format!("{key}={value}"));
    let depth = change.depth.map(|depth| format!("{depth} requests at once"));
    let block = change.block_bytes.map(|bytes| format!("requests of {}", size(f64::from(bytes))));
    settings.chain(depth).chain(block).collect::<Vec<_>>().join(", ")
}

/// The one sentence.
pub(super) fn verdict(diagnosis: &Diagnosis) -> String {
    match (&diagnosis.verdict, diagnosis.findings.first()) {
        (Verdict::HeldBack, Some(finding)) => {
            let gain = &finding.gain;
            let brings = match &gain.confirmed {
                Some(tried) if tried.brings() => {
                    format!("changing it gained {} when it was tried", confirmed(tried))
                }
                Some(tried) => {
                    format!("so it seems, but changing it gained {} when it was tried", confirmed(tried))
                }
                None if gain.predicted.is_none() => predicted(gain),
                None => format!("expected gain about {}", predicted(gain)),
            };
            format!("{}: {brings}", cause(diagnosis, finding.cause))
        }
        (Verdict::HeldBack, None) => "Something holds it back".to_owned(),
        (Verdict::Fine { term, share }, _) => {
            let does = if *share <= 1.0 { percent(*share) } else { "all".to_owned() };
            format!("Nothing is wrong: it does {does} of what {}", allows(*term))
        }
        (Verdict::NotKnown { unexplained }, _) => {
            format!("Not known: nothing that was measured explains {} of the time", percent(*unexplained))
        }
        (Verdict::Uncertain { interval }, _) => format!(
            "The figures are too uncertain to conclude: a rate is known to ±{} only. Diagnose again without --quick, or with \
             --seconds 120, while little else uses this machine and the path",
            percent(*interval)
        ),
    }
}
