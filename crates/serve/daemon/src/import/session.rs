//! The keys of RFC 7143 section 13 that both formats have, as keys of `[target.session]`.

use volume::spec::Bytes;

use super::san::Target;
use super::{Note, Place};

/// Takes a key over. Those that are not ours are noted, unless their value changes nothing.
///
/// `Err` if it is no key of the standard.
pub(super) fn take(target: &mut Target, key: &str, value: &str, place: &Place) -> Result<(), ()> {
    let taken = match key {
        "MaxRecvDataSegmentLength" => length(value).map(|value| ("max-segment", value)),
        "FirstBurstLength" => length(value).map(|value| ("first-burst", value)),
        "MaxBurstLength" => length(value).map(|value| ("max-burst", value)),
        "MaxOutstandingR2T" => {
            let count = value.parse::<u16>().ok().filter(|count| *count > 0);
            count.map(|count| ("max-outstanding-r2t", count.to_string()))
        }
        "InitialR2T" => flag(value).map(|value| ("initial-r2t", value)),
        "ImmediateData" => flag(value).map(|value| ("immediate-data", value)),
        "HeaderDigest" => digests(value).map(|value| ("header-digest", value)),
        "DataDigest" => digests(value).map(|value| ("data-digest", value)),
        _ => return other(target, key, value, place),
    };
    match taken {
        Some((ours, value)) => {
            target.session.retain(|(key, _)| *key != ours);
            target.session.push((ours, value));
        }
        None => target.note(
            place,
            format_args!("`{key}` is not carried over: its value is none that the standard has"),
        ),
    }
    Ok(())
}

fn other(target: &mut Target, key: &str, value: &str, place: &Place) -> Result<(), ()> {
    let Some((_, usual)) = OTHERS.iter().find(|(name, _)| *name == key) else { return Err(()) };
    if !usual.is_some_and(|usual| !value.eq_ignore_ascii_case(usual)) {
        return Ok(());
    }
    target.note(place, format_args!("`{key}` is not carried over: this server decides it"));
    Ok(())
}

/// Keys without an equal here, with the value that everybody has; those without one concern the other target only.
const OTHERS: &[(&str, Option<&str>)] = &[
    ("DataPDUInOrder", Some("Yes")),
    ("DataSequenceInOrder", Some("Yes")),
    ("DefaultTime2Retain", Some("20")),
    ("DefaultTime2Wait", Some("2")),
    ("ErrorRecoveryLevel", Some("0")),
    ("IFMarkInt", None),
    ("IFMarker", Some("No")),
    ("MaxConnections", Some("1")),
    ("MaxXmitDataSegmentLength", None),
    ("OFMarkInt", None),
    ("OFMarker", Some("No")),
];

/// What is more than a burst may be cannot be sent unasked (RFC 7143 section 13.14).
pub(super) fn settle(target: &mut Target, place: &Place) {
    let bytes = |target: &Target, key| {
        let value =
            target.session.iter().find(|(name, _)| *name == key).map(|(_, value)| value.trim_matches('"'));
        value.and_then(|value| value.parse::<Bytes>().ok()).map(|bytes| bytes.0)
    };
    let max = bytes(target, "max-burst")
        .unwrap_or(u64::from(iscsi::negotiate::Offers::of_target().max_burst_length));
    if bytes(target, "first-burst").is_some_and(|first| first > max) {
        target.session.retain(|(key, _)| *key != "first-burst");
        target
            .notes
            .push(Note::new(place, "`FirstBurstLength` is not carried over: it is more than MaxBurstLength"));
    }
}

/// 512 to 2^24 - 1 (RFC 7143 sections 13.12 to 13.14).
fn length(value: &str) -> Option<String> {
    let bytes = value.parse::<u64>().ok().filter(|bytes| (512..=0xff_ffff).contains(bytes))?;
    Some(format!("\"{}\"", Bytes(bytes)))
}

fn flag(value: &str) -> Option<String> {
    match value.to_ascii_lowercase().as_str() {
        "yes" => Some("true".to_owned()),
        "no" => Some("false".to_owned()),
        _ => None,
    }
}

fn digests(value: &str) -> Option<String> {
    let known = |digest: &str| match digest.trim().to_ascii_lowercase().as_str() {
        "none" => Some("\"none\""),
        "crc32c" => Some("\"crc32c\""),
        _ => None,
    };
    let digests: Option<Vec<&str>> = value.split(',').map(known).collect();
    Some(format!("[{}]", digests?.join(", ")))
}
