//! Negotiated keys: offered, agreed and recommended values.
//!
//! The recommendations are in one table, [`KEYS`]. A key is marked if what came of it costs something, and
//! the reason says what. It counts in round trips: a write of B bytes, of which U travel unasked, waits for
//! `ceil((B - U) / (MaxBurstLength * MaxOutstandingR2T))` of them besides its own.

use derive_more::Display;

use iscsi::negotiate::{DigestKind, Offers, Parameters};
use serde::Serialize;

use stats::table::{Align, lines};

/// A key, as printed; the names of the JSON are promised.
#[derive(Debug, Serialize)]
pub struct Negotiated {
    key: &'static str,
    /// `null` for what is the target's alone to say.
    asked: Option<Value>,
    got: Value,
    /// `null` where there is nothing to be said against what came.
    recommended: Option<Value>,
    reason: Option<&'static str>,
}

/// A key's value, as RFC 7143 writes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Display)]
#[serde(untagged)]
enum Value {
    Number(u32),
    Word(&'static str),
}

/// How a key is read, and what it should be.
struct Key {
    name: &'static str,
    asked: fn(&Offers) -> Option<Value>,
    got: fn(&Parameters) -> Value,
    advice: Advice,
}

enum Advice {
    /// It costs as much as it is worth, or nothing.
    None,
    /// What it should be, and why.
    Be(Value, &'static str),
    /// What it should be at the least, which may depend on other keys, and why.
    AtLeast(fn(&Parameters) -> u32, &'static str),
}

/// The longest write that an operating system is likely to send in one piece (Linux: max_sectors_kb is 1280
/// at most unless somebody raises it; Windows and ESXi: 1 MiB and less).
const LONG_WRITE_BYTES: u32 = 1 << 20;
/// What open-iscsi asks for (FirstBurstLength, MaxRecvDataSegmentLength), and so what most targets have been
/// tuned by.
const USUAL_BYTES: u32 = 256 << 10;

const KEYS: &[Key] = &[
    Key {
        name: "HeaderDigest",
        asked: |offers| digest(&offers.header_digest),
        got: |got| Value::Word(got.header_digest.name()),
        advice: Advice::None,
    },
    Key {
        name: "DataDigest",
        asked: |offers| digest(&offers.data_digest),
        got: |got| Value::Word(got.data_digest.name()),
        advice: Advice::None,
    },
    Key {
        name: "MaxConnections",
        asked: |offers| Some(Value::Number(offers.max_connections.into())),
        got: |got| Value::Number(got.max_connections.into()),
        advice: Advice::None,
    },
    Key {
        name: "InitialR2T",
        asked: |offers| Some(yes_no(offers.initial_r2t)),
        got: |got| yes_no(got.initial_r2t),
        advice: Advice::Be(
            NO,
            "a write longer than its immediate data waits a round trip before its first R2T",
        ),
    },
    Key {
        name: "ImmediateData",
        asked: |offers| Some(yes_no(offers.immediate_data)),
        got: |got| yes_no(got.immediate_data),
        advice: Advice::Be(YES, "no data travel with a write's command: one PDU more, or a round trip"),
    },
    Key {
        name: "FirstBurstLength",
        asked: |offers| Some(Value::Number(offers.first_burst_length)),
        got: |got| Value::Number(got.first_burst_length),
        advice: Advice::AtLeast(
            |_| USUAL_BYTES,
            "of a longer write no more is sent before the target asks for it",
        ),
    },
    Key {
        name: "MaxBurstLength",
        asked: |offers| Some(Value::Number(offers.max_burst_length)),
        got: |got| Value::Number(got.max_burst_length),
        advice: Advice::AtLeast(
            |got| LONG_WRITE_BYTES.div_ceil(got.max_outstanding_r2t.max(1).into()),
            "a write of 1 MiB waits a round trip for each burst, unless several R2Ts are out at once",
        ),
    },
    Key {
        name: "MaxOutstandingR2T",
        asked: |offers| Some(Value::Number(offers.max_outstanding_r2t.into())),
        got: |got| Value::Number(got.max_outstanding_r2t.into()),
        advice: Advice::AtLeast(
            |got| LONG_WRITE_BYTES.div_ceil(got.max_burst_length.max(1)),
            "a write of 1 MiB waits a round trip for each burst, unless the bursts are longer",
        ),
    },
    Key {
        name: "MaxRecvDataSegmentLength, ours",
        asked: |offers| Some(Value::Number(offers.max_recv_data_segment_length)),
        got: |got| Value::Number(got.local_max_recv_data_segment_length),
        advice: Advice::AtLeast(|_| USUAL_BYTES, "reads come in shorter PDUs, each of which takes its time"),
    },
    Key {
        name: "MaxRecvDataSegmentLength, target's",
        asked: |_| None,
        got: |got| Value::Number(got.peer_max_recv_data_segment_length),
        advice: Advice::AtLeast(|_| USUAL_BYTES, "writes go in shorter PDUs, each of which takes its time"),
    },
    Key {
        name: "DefaultTime2Wait",
        asked: |offers| Some(Value::Number(offers.default_time2wait_s.into())),
        got: |got| Value::Number(got.default_time2wait_s.into()),
        advice: Advice::None,
    },
    Key {
        name: "DefaultTime2Retain",
        asked: |offers| Some(Value::Number(offers.default_time2retain_s.into())),
        got: |got| Value::Number(got.default_time2retain_s.into()),
        advice: Advice::None,
    },
    Key {
        name: "ErrorRecoveryLevel",
        asked: |offers| Some(Value::Number(offers.error_recovery_level.into())),
        got: |got| Value::Number(got.error_recovery_level.into()),
        advice: Advice::None,
    },
    Key {
        name: "TaskReporting",
        asked: |offers| offers.task_reporting.first().map(|kind| Value::Word(kind.name())),
        got: |got| Value::Word(got.task_reporting.name()),
        advice: Advice::None,
    },
    Key {
        name: "iSCSIProtocolLevel",
        asked: |offers| Some(Value::Number(offers.protocol_level.into())),
        got: |got| Value::Number(got.protocol_level.into()),
        advice: Advice::None,
    },
];

const YES: Value = Value::Word("Yes");
const NO: Value = Value::Word("No");

fn yes_no(is: bool) -> Value {
    if is { YES } else { NO }
}

fn digest(offered: &[DigestKind]) -> Option<Value> {
    offered.first().map(|kind| Value::Word(kind.name()))
}

/// Every key, in the order of [`KEYS`].
pub fn negotiated(offers: &Offers, got: &Parameters) -> Vec<Negotiated> {
    KEYS.iter().map(|key| key.look(offers, got)).collect()
}

impl Key {
    fn look(&self, offers: &Offers, parameters: &Parameters) -> Negotiated {
        let got = (self.got)(parameters);
        let (recommended, reason) = self.advice.on(got, parameters).unzip();
        Negotiated { key: self.name, asked: (self.asked)(offers), got, recommended, reason }
    }
}

impl Advice {
    /// What would be better than `got`, and why.
    fn on(&self, got: Value, parameters: &Parameters) -> Option<(Value, &'static str)> {
        match (self, got) {
            (Advice::Be(value, reason), _) => (got != *value).then_some((*value, *reason)),
            (Advice::AtLeast(least, reason), Value::Number(number)) => {
                let least = least(parameters);
                (number < least).then_some((Value::Number(least), *reason))
            }
            (Advice::None, _) | (Advice::AtLeast(..), Value::Word(_)) => None,
        }
    }
}

/// A line for each key; those that could be better are marked, with what would be and why.
pub fn table(keys: &[Negotiated]) -> String {
    let headings = [" ", "key", "asked", "got", "better"].map(str::to_owned);
    let rows: Vec<[String; 5]> = std::iter::once(headings).chain(keys.iter().map(Negotiated::row)).collect();
    let below = std::iter::once(None).chain(keys.iter().map(|key| key.reason));
    let lines = lines([Align::Left, Align::Left, Align::Right, Align::Right, Align::Right], &rows);
    let with_reason = |(line, reason): (String, Option<&str>)| match reason {
        Some(reason) => format!("{line}\n     {reason}\n"),
        None => line + "\n",
    };
    lines.into_iter().zip(below).map(with_reason).collect()
}

impl Negotiated {
    /// The key.
    pub fn name(&self) -> &'static str {
        self.key
    }

    /// What came of it.
    pub fn value(&self) -> String {
        self.got.to_string()
    }

    /// What would be better and why, if anything would.
    pub fn better(&self) -> Option<String> {
        let (value, reason) = self.recommended.zip(self.reason)?;
        Some(format!("{value}: {reason}"))
    }

    fn row(&self) -> [String; 5] {
        let mark = if self.recommended.is_some() { "!" } else { "" };
        let or_nothing = |value: Option<Value>| value.map_or_else(String::new, |value| value.to_string());
        [
            mark.to_owned(),
            self.key.to_owned(),
            or_nothing(self.asked),
            self.got.to_string(),
            or_nothing(self.recommended),
        ]
    }
}

#[cfg(test)]
mod tests {
    use iscsi::negotiate::SessionType;
    use iscsi_client::Settings;

    use super::*;

    fn marked(change: impl FnOnce(&mut Parameters)) -> Vec<&'static str> {
        let mut got = Parameters {
            initial_r2t: false,
            first_burst_length: 256 << 10,
            max_burst_length: 1 << 20,
            local_max_recv_data_segment_length: 256 << 10,
            peer_max_recv_data_segment_length: 256 << 10,
            ..Parameters::defaults(SessionType::Normal)
        };
        change(&mut got);
        let keys = negotiated(&Settings::default().offers(), &got);
        keys.iter().filter(|key| key.recommended.is_some()).map(|key| key.key).collect()
    }

    #[test]
    fn what_costs_nothing_is_not_marked() {
        assert!(marked(|_| {}).is_empty());
    }

    #[test]
    fn what_costs_round_trips_is_marked() {
        assert_eq!(marked(|got| got.initial_r2t = true), ["InitialR2T"]);
        assert_eq!(marked(|got| got.immediate_data = false), ["ImmediateData"]);
        assert_eq!(marked(|got| got.first_burst_length = 65_536), ["FirstBurstLength"]);
    }

    #[test]
    fn short_bursts_are_as_good_as_long_ones_if_several_are_asked_for_at_once() {
        let bursts = ["MaxBurstLength", "MaxOutstandingR2T"];
        assert_eq!(marked(|got| got.max_burst_length = 256 << 10), bursts);
        let several = |got: &mut Parameters| (got.max_burst_length, got.max_outstanding_r2t) = (256 << 10, 4);
        assert!(marked(several).is_empty());
    }

    #[test]
    fn a_mark_comes_with_its_reason() {
        let got = Parameters::defaults(SessionType::Normal);
        let keys = negotiated(&Settings::default().offers(), &got);
        assert!(keys.iter().all(|key| key.reason.is_some() == key.recommended.is_some()));
        let table = table(&keys);
        assert!(table.contains("!  InitialR2T "), "{table}");
    }
}
