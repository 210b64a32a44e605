//! The displayed names of causes, places, limits and loads.

pub(super) use bench::plan::load_words as load;
use diagnose::{
    Cause, Change, Confirmed, Diagnosis, Evidence, Finding, Gain, Known, LinkLayer, LoadRun,
    Otherwise, Storage, Timed, Verdict, Where,
};
use model::Term;
use readable::figures::{grouped, latency, megabytes, short, significant, size};
use stats::{Interval, median_interval};

/// Returns a cause as a sentence without a full stop.
pub(super) fn cause(diagnosis: &Diagnosis, cause: Cause) -> &'static str {
    match cause {
        Cause::Medium if diagnosis.evidence.nbd.is_some() => {
            "The storage behind the server is slow"
        }
        Cause::TargetCpu if diagnosis.evidence.nbd.is_some() => "The server has no CPU time left",
        Cause::Depth => "Too few requests are outstanding",
        Cause::CommandWindow => "The target accepts too few commands",
        Cause::TcpWindow => "The TCP window is too small for the distance",
        Cause::Solicitation => "Writes wait for an R2T for their first data",
        Cause::SmallBursts => "Writes are requested in small bursts, one by one",
        Cause::SmallSegments => "Data is sent in many short PDUs",
        Cause::Digests => "Digests occupy a CPU",
        Cause::LinkRate => "The link is slower than its rated speed",
        Cause::PathMtu => "Long packets do not arrive",
        Cause::Loss => "Packets are lost on the path",
        Cause::SlowPath => "One connection has a slower path than the others",
        Cause::Medium => "The storage behind the target is slow",
        Cause::Jitter => "The delay of the path varies",
        Cause::Stalls => "Requests make no progress at times",
        Cause::Flush => "Flushes to stable storage are slow",
        Cause::Misalignment => "Writes are not aligned to physical blocks",
        Cause::TargetCpu => "The target has no CPU time left",
        Cause::ClientCpu => "This machine has no CPU time left",
        Cause::DelayedAck => "Requests wait for delayed acknowledgements",
        Cause::Connections => "One connection is slower than several",
        Cause::Tls => "Encryption occupies a CPU",
    }
}

/// Returns the name of the protocol's shortest request.
pub(super) fn shortest(evidence: &Evidence) -> &'static str {
    if evidence.nbd.is_some() {
        "BLOCK_STATUS"
    } else {
        "NOP"
    }
}

/// Returns the change of the session over which a load was tested, to be appended to the load's name.
pub(super) fn otherwise(otherwise: Otherwise) -> String {
    match otherwise {
        Otherwise::Connections(count) => format!("over {count} connections"),
        Otherwise::Plain => "without TLS".to_owned(),
    }
}

/// Returns the name of the command that flushes the cache.
pub(super) fn flush(evidence: &Evidence) -> &'static str {
    if evidence.nbd.is_some() {
        "FLUSH"
    } else {
        "SYNCHRONIZE CACHE"
    }
}

/// Returns the displayed name of the place of a setting.
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

/// Returns the name of a limit, in one or two words.
pub(crate) fn term(term: Term) -> &'static str {
    match term {
        Term::Link => "link",
        Term::Window => "TCP window",
        Term::Depth => "queue depth",
        Term::WritesUnderWay => "outstanding writes",
        Term::Exchanges => "exchanges",
        Term::Medium => "medium",
    }
}

/// Returns a limit as a clause that follows "of what".
fn allows(term: Term) -> &'static str {
    match term {
        Term::Link => "the link carries",
        Term::Window => "the TCP window permits",
        Term::Depth => "this queue depth permits",
        Term::WritesUnderWay => "the target's limit of outstanding writes permits",
        Term::Exchanges => "both ends can process",
        Term::Medium => "the storage provides",
    }
}

/// Describes the storage: `ACME FlashArray, 50 GiB`.
pub(super) fn storage(storage: &Storage) -> String {
    let product = storage
        .product
        .as_ref()
        .map(|product| format!("{product}, "))
        .unwrap_or_default();
    let read_only = if storage.read_only {
        ", write-protected"
    } else {
        ""
    };
    format!("{product}{}{read_only}", size(storage.bytes as f64))
}

/// Describes the link: `eth0 at 1 Gbit/s, MTU 1,500`.
pub(super) fn link(link: &LinkLayer) -> String {
    if link.loopback {
        return format!(
            "{} (loopback), MTU {}",
            link.interface,
            grouped(link.mtu.into())
        );
    }
    let speed = link
        .bits_per_s
        .map(|bits| format!(" at {}bit/s", short_unit(bits)))
        .unwrap_or_default();
    let half = if link.full_duplex == Some(false) {
        ", half duplex"
    } else {
        ""
    };
    format!(
        "{}{speed}{half}, MTU {}",
        link.interface,
        grouped(link.mtu.into())
    )
}

/// Formats bits per second without the rest of the unit: `1 G`, `100 M`.
fn short_unit(bits_per_s: f64) -> String {
    let text = match bits_per_s {
        bits if bits >= 1e6 => short(bits),
        bits => format!("{}k", short(bits / 1e3)),
    };
    let unit = text
        .find(|letter: char| letter.is_ascii_alphabetic())
        .unwrap_or(text.len());
    format!("{} {}", &text[..unit], &text[unit..])
}

/// Describes lost long packets, if there were any.
pub(super) fn long_packets(evidence: &Evidence) -> Option<String> {
    let seen = evidence.long_packets.as_ref()?;
    let segment = grouped(seen.segment_bytes.into());
    let then = match seen.works_bytes {
        Some(works) => {
            let works = grouped(works.into());
            format!(
                "segments of {works} bytes arrive, and all later measurements used this segment size"
            )
        }
        None => "shorter segments did not arrive either".to_owned(),
    };
    Some(format!(
        "Long packets do not arrive: {}, with TCP segments of {segment} bytes; {then}.",
        seen.lost
    ))
}

/// Formats the median of a probe, or a remark that it is unknown.
pub(super) fn median(known: &Known<Timed>) -> String {
    match known {
        Known::Measured(timed) => latency(timed.median_us),
        Known::Unknown(_) => "?".to_owned(),
    }
}

/// Describes a change on the client, such as `initial-r2t=no, queue depth 32`.
pub(super) fn change(change: &Change) -> String {
    let settings = change
        .settings
        .iter()
        .map(|(key, value)| format!("{key}={value}"));
    let depth = change.depth.map(|depth| format!("queue depth {depth}"));
    let block = change
        .block_bytes
        .map(|bytes| format!("requests of {}", size(f64::from(bytes))));
    settings
        .chain(depth)
        .chain(block)
        .collect::<Vec<_>>()
        .join(", ")
}

/// Returns the verdict as one sentence.
pub(super) fn verdict(diagnosis: &Diagnosis) -> String {
    match (&diagnosis.verdict, diagnosis.findings.first()) {
        (Verdict::HeldBack, Some(finding)) => {
            let gain = &finding.gain;
            let brings = match &gain.confirmed {
                Some(tried) if tried.brings() => {
                    format!("in a trial, the fix gained {}", confirmed(tried))
                }
                Some(tried) => {
                    format!(
                        "a probable cause, but in a trial, the fix gained {}",
                        confirmed(tried)
                    )
                }
                None if gain.predicted.is_none() => predicted(gain),
                None => format!("expected gain about {}", predicted(gain)),
            };
            format!("{}: {brings}", cause(diagnosis, finding.cause))
        }
        (Verdict::HeldBack, None) => "There is a bottleneck".to_owned(),
        (Verdict::Fine { term, share }, _) => {
            let does = if *share <= 1.0 {
                percent(*share)
            } else {
                "all".to_owned()
            };
            let assumed = if *term == Term::Link {
                assumed_speed(&diagnosis.evidence)
            } else {
                String::new()
            };
            format!(
                "Nothing is wrong: the path reaches {does} of what {}{assumed}",
                allows(*term)
            )
        }
        (
            Verdict::NotKnown {
                unexplained,
                load: index,
            },
            _,
        ) => {
            let run = diagnosis.evidence.loads.get(*index);
            let of = run.map_or(String::new(), |run| format!(" of {}", load(&run.load)));
            format!(
                "Unknown: the measurements do not explain {} of the time{of}",
                percent(*unexplained)
            )
        }
        (Verdict::Uncertain { interval }, _) => format!(
            "The result is too uncertain for a conclusion: the error of a rate is ±{}. Repeat the diagnosis \
             without --quick, or with --seconds 120, while this machine and the path are mostly idle",
            percent(*interval)
        ),
    }
}

/// Returns a sentence with the rated speed of the link that the verdict assumes, unless the user specified it. It follows
/// the end of another sentence.
fn assumed_speed(evidence: &Evidence) -> String {
    let Known::Measured(link) = &evidence.link else {
        return String::new();
    };
    let advice = "if the link was built for more, specify its speed with --link";
    match (evidence.expected_link_bits_per_s, link.bits_per_s) {
        _ if link.loopback => String::new(),
        (Some(_), _) => String::new(),
        (None, Some(bits)) => format!(
            ". The interface reports {}bit/s; {advice}",
            short_unit(bits)
        ),
        (None, None) => format!(". The interface does not report its speed; {advice}"),
    }
}

/// Formats a ratio: `×1.17`, with the number of digits that is meaningful for noisy rates.
pub(super) fn times(ratio: f64) -> String {
    match ratio {
        ratio if !ratio.is_finite() => "×?".to_owned(),
        ratio if ratio >= 9.95 => format!("×{}", grouped(ratio.round() as u64)),
        ratio if ratio >= 1.995 => format!("×{ratio:.1}"),
        ratio => format!("×{ratio:.2}"),
    }
}

/// Formats a predicted gain: `×1.90 (1.74 to 2.10)`, or a remark that nothing works without the fix.
pub(super) fn predicted(gain: &Gain) -> String {
    match gain.predicted {
        Some(ratio) => format!(
            "{} ({} to {})",
            times(ratio),
            bare(gain.low),
            bare(gain.high)
        ),
        None => "no data passes now".to_owned(),
    }
}

/// Formats a measured gain: `×1.85 (1.80 to 1.90)`, with a remark if the gain is not clear.
pub(super) fn confirmed(confirmed: &Confirmed) -> String {
    let figures = format!(
        "{} ({} to {})",
        times(confirmed.ratio),
        bare(confirmed.low),
        bare(confirmed.high)
    );
    match confirmed {
        tried if tried.brings() => figures,
        tried if tried.brings_nothing() => format!("{figures}: no gain"),
        _ => format!("{figures}: inconclusive"),
    }
}

pub(super) fn bare(ratio: f64) -> String {
    times(ratio).split_off('×'.len_utf8())
}

/// Returns the load of a finding, or `None` if its index is invalid.
fn load_of<'a>(diagnosis: &'a Diagnosis, finding: &Finding) -> Option<&'a LoadRun> {
    diagnosis.evidence.loads.get(finding.load)
}

/// Returns the median rate of a load's rounds, in bytes per second, or `None` if there are no rounds.
pub(super) fn rate(run: &LoadRun) -> Option<f64> {
    (!run.bytes_per_s.is_empty())
        .then(|| stats::median(&run.bytes_per_s))
        .filter(|rate| rate.is_finite())
}

pub(super) fn interval(run: &LoadRun) -> Option<Interval> {
    median_interval(&run.bytes_per_s)
}

/// Formats the current and the expected rate: `12.3 MB/s now, about 23.4 MB/s (21.4 to 25.8) after the fix`.
pub(super) fn rates(diagnosis: &Diagnosis, finding: &Finding) -> Option<String> {
    let now = rate(load_of(diagnosis, finding)?)?;
    let gain = &finding.gain;
    Some(match gain.predicted {
        Some(ratio) => format!(
            "{} now, about {} ({} to {}) after the fix",
            with_unit(now),
            with_unit(now * ratio),
            megabytes(now * gain.low),
            megabytes(now * gain.high)
        ),
        None => format!("{} now", with_unit(now)),
    })
}

/// Formats bytes per second, in MB of 10^6 bytes.
pub(super) fn with_unit(bytes_per_s: f64) -> String {
    format!("{} MB/s", megabytes(bytes_per_s))
}

/// Formats a share: `97 %`.
pub(super) fn percent(share: f64) -> String {
    let percent = share * 100.0;
    match percent {
        percent if !percent.is_finite() => "? %".to_owned(),
        // The share is too small to matter.
        percent if percent.abs() < 0.0005 => "0 %".to_owned(),
        percent if percent.abs() < 0.95 => format!("{} %", significant(percent)),
        percent => format!("{percent:.0} %"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_has_as_many_digits_as_it_deserves() {
        assert_eq!(
            [1.166, 1.996, 9.94, 31.4, 1234.0].map(times),
            ["×1.17", "×2.0", "×9.9", "×31", "×1,234"]
        );
        assert_eq!(times(f64::INFINITY), "×?");
    }

    #[test]
    fn a_share_of_nothing_has_no_digits_behind_the_point() {
        assert_eq!(
            [0.0, 0.00031, 0.0312, 0.973, f64::NAN].map(percent),
            ["0 %", "0.031 %", "3 %", "97 %", "? %"]
        );
    }

    #[test]
    fn what_was_tried_in_vain_is_told_from_what_nobody_could_tell() {
        let tried = |low, high| {
            confirmed(&Confirmed {
                ratio: 1.04,
                low,
                high,
            })
        };
        assert_eq!(tried(1.01, 1.08), "×1.04 (1.01 to 1.08)");
        assert_eq!(tried(0.97, 1.08), "×1.04 (0.97 to 1.08): no gain");
        assert_eq!(tried(0.2, 5.0), "×1.04 (0.20 to 5.0): inconclusive");
    }

    #[test]
    fn a_gain_without_an_end_is_said_in_words() {
        let gain = Gain {
            predicted: None,
            low: 1.0,
            high: f64::INFINITY,
            confirmed: None,
        };
        assert_eq!(predicted(&gain), "no data passes now");
        let gain = Gain {
            predicted: Some(1.9),
            low: 1.74,
            high: 2.1,
            confirmed: None,
        };
        assert_eq!(predicted(&gain), "×1.90 (1.74 to 2.1)");
    }
}
