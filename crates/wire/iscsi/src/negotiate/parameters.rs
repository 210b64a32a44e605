//! Negotiated parameters, the offers of a side, and the values of keys: [`Setting`] has any kind of them, and the functions
//! by which two become one (RFC 7143 section 6.2).

use derive_more::Display;

use crate::keys::{Key, Rule};
use crate::text::{self, PrintableText, Range};

/// CRC32C or nothing (RFC 7143 section 13.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum DigestKind {
    /// No digest.
    #[default]
    None,
    /// CRC32C.
    Crc32c,
}

/// When a task management function is answered (section 13.23).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum TaskReporting {
    /// As RFC 3720 had it.
    #[default]
    Rfc3720,
    /// Behind a fence: all older responses have been acknowledged.
    ResponseFence,
    /// Behind a fence, without waiting for the initiator to end its data transfers.
    FastAbort,
}

/// The type of a session (section 13.21).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum SessionType {
    /// Access to a target.
    #[default]
    Normal,
    /// Discovery.
    Discovery,
}

/// All negotiated parameters of a connection and its session.
///
/// Both sides hold the same values, but for the two MaxRecvDataSegmentLengths, which are each other's.
#[derive(Clone, Debug, PartialEq, Eq, Display)]
#[display(
    "{} HeaderDigest={} DataDigest={} \
     MaxRecvDataSegmentLength={local_max_recv_data_segment_length}/{peer_max_recv_data_segment_length} \
     MaxConnections={max_connections} InitialR2T={} ImmediateData={} MaxBurstLength={max_burst_length} \
     FirstBurstLength={first_burst_length} MaxOutstandingR2T={max_outstanding_r2t} \
     ErrorRecoveryLevel={error_recovery_level}",
    session_type.name(),
    header_digest.name(),
    data_digest.name(),
    Setting::Flag(*initial_r2t),
    Setting::Flag(*immediate_data)
)]
#[expect(missing_docs, reason = "where a name says all")]
pub struct Parameters {
    pub session_type: SessionType,
    /// The digest behind every header of this connection.
    pub header_digest: DigestKind,
    /// The digest behind every data segment of this connection.
    pub data_digest: DigestKind,
    pub max_connections: u16,
    /// InitialR2T: no unsolicited Data-Out may be sent.
    pub initial_r2t: bool,
    pub immediate_data: bool,
    /// Our MaxRecvDataSegmentLength.
    pub local_max_recv_data_segment_length: u32,
    /// The peer's MaxRecvDataSegmentLength.
    pub peer_max_recv_data_segment_length: u32,
    pub max_burst_length: u32,
    /// FirstBurstLength: limit of unsolicited data of a command. At most `max_burst_length`.
    pub first_burst_length: u32,
    pub default_time2wait_s: u16,
    pub default_time2retain_s: u16,
    pub max_outstanding_r2t: u16,
    pub data_pdu_in_order: bool,
    pub data_sequence_in_order: bool,
    /// ErrorRecoveryLevel: 0 session, 1 digest, 2 connection recovery.
    pub error_recovery_level: u8,
    /// When a task management function is answered.
    pub task_reporting: TaskReporting,
    /// 1: RFC 7143; 2: RFC 7144 too.
    pub protocol_level: u8,
    pub initiator_alias: Option<String>,
    pub target_alias: Option<String>,
}

/// The offers of one side, which are also what it accepts.
#[expect(missing_docs, reason = "where a name says all")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offers {
    /// Header digests that are acceptable. An initiator lists the preferred first, and a target takes the first on
    /// that list that it accepts. Must not be empty; without `None` in it, a login that ends without one fails.
    pub header_digest: Vec<DigestKind>,
    /// Data digests that are acceptable, likewise.
    pub data_digest: Vec<DigestKind>,
    /// Connections for the session, 1 to 65535.
    pub max_connections: u16,
    pub initial_r2t: bool,
    pub immediate_data: bool,
    /// MaxRecvDataSegmentLength, 512 to 2^24 - 1.
    pub max_recv_data_segment_length: u32,
    /// MaxBurstLength, 512 to 2^24 - 1.
    pub max_burst_length: u32,
    /// FirstBurstLength, 512 to `max_burst_length`.
    pub first_burst_length: u32,
    /// DefaultTime2Wait, 0 to 3600.
    pub default_time2wait_s: u16,
    /// DefaultTime2Retain, 0 to 3600.
    pub default_time2retain_s: u16,
    /// MaxOutstandingR2T, 1 to 65535.
    pub max_outstanding_r2t: u16,
    pub data_pdu_in_order: bool,
    pub data_sequence_in_order: bool,
    /// 0 to 2.
    pub error_recovery_level: u8,
    /// Acceptable kinds, likewise.
    pub task_reporting: Vec<TaskReporting>,
    /// 0 to 31.
    pub protocol_level: u8,
    /// Our alias.
    pub alias: Option<PrintableText>,
}

impl Parameters {
    /// The defaults of the standard.
    pub fn defaults(session_type: SessionType) -> Parameters {
        Parameters {
            session_type,
            header_digest: DigestKind::None,
            data_digest: DigestKind::None,
            max_connections: 1,
            initial_r2t: true,
            immediate_data: true,
            local_max_recv_data_segment_length: 8192,
            peer_max_recv_data_segment_length: 8192,
            max_burst_length: 262_144,
            first_burst_length: 65_536,
            default_time2wait_s: 2,
            default_time2retain_s: 20,
            max_outstanding_r2t: 1,
            data_pdu_in_order: true,
            data_sequence_in_order: true,
            error_recovery_level: 0,
            task_reporting: TaskReporting::Rfc3720,
            protocol_level: 1,
            initiator_alias: None,
            target_alias: None,
        }
    }

    /// For a further connection: parameters of the session stay, those of the connection are reset to their
    /// defaults.
    pub fn for_another_connection(&self) -> Parameters {
        let defaults = Parameters::defaults(self.session_type);
        Parameters {
            header_digest: defaults.header_digest,
            data_digest: defaults.data_digest,
            local_max_recv_data_segment_length: defaults.local_max_recv_data_segment_length,
            peer_max_recv_data_segment_length: defaults.peer_max_recv_data_segment_length,
            ..self.clone()
        }
    }

    /// The same parameters, for the other side.
    pub fn mirrored(&self) -> Parameters {
        Parameters {
            local_max_recv_data_segment_length: self.peer_max_recv_data_segment_length,
            peer_max_recv_data_segment_length: self.local_max_recv_data_segment_length,
            ..self.clone()
        }
    }

    /// A negotiated key's value now; `None` for keys that are not negotiated by value.
    pub(super) fn setting(&self, key: Key) -> Option<Setting> {
        Some(match key {
            Key::HeaderDigest => Setting::Choice(self.header_digest.name()),
            Key::DataDigest => Setting::Choice(self.data_digest.name()),
            Key::MaxConnections => Setting::Number(self.max_connections.into()),
            Key::InitialR2t => Setting::Flag(self.initial_r2t),
            Key::ImmediateData => Setting::Flag(self.immediate_data),
            Key::MaxBurstLength => Setting::Number(self.max_burst_length),
            Key::FirstBurstLength => Setting::Number(self.first_burst_length),
            Key::DefaultTime2Wait => Setting::Number(self.default_time2wait_s.into()),
            Key::DefaultTime2Retain => Setting::Number(self.default_time2retain_s.into()),
            Key::MaxOutstandingR2t => Setting::Number(self.max_outstanding_r2t.into()),
            Key::DataPduInOrder => Setting::Flag(self.data_pdu_in_order),
            Key::DataSequenceInOrder => Setting::Flag(self.data_sequence_in_order),
            Key::ErrorRecoveryLevel => Setting::Number(self.error_recovery_level.into()),
            Key::TaskReporting => Setting::Choice(self.task_reporting.name()),
            Key::IscsiProtocolLevel => Setting::Number(self.protocol_level.into()),
            _ => return None,
        })
    }

    /// Sets a negotiated value. It is within the key's range, so the conversions lose nothing.
    pub(super) fn set(&mut self, key: Key, setting: Setting) {
        match (key, setting) {
            (Key::HeaderDigest, Setting::Choice(name)) => self.header_digest = DigestKind::named(name),
            (Key::DataDigest, Setting::Choice(name)) => self.data_digest = DigestKind::named(name),
            (Key::MaxConnections, Setting::Number(n)) => self.max_connections = n as u16,
            (Key::InitialR2t, Setting::Flag(yes)) => self.initial_r2t = yes,
            (Key::ImmediateData, Setting::Flag(yes)) => self.immediate_data = yes,
            (Key::MaxBurstLength, Setting::Number(n)) => self.max_burst_length = n,
            (Key::FirstBurstLength, Setting::Number(n)) => self.first_burst_length = n,
            (Key::DefaultTime2Wait, Setting::Number(n)) => self.default_time2wait_s = n as u16,
            (Key::DefaultTime2Retain, Setting::Number(n)) => self.default_time2retain_s = n as u16,
            (Key::MaxOutstandingR2t, Setting::Number(n)) => self.max_outstanding_r2t = n as u16,
            (Key::DataPduInOrder, Setting::Flag(yes)) => self.data_pdu_in_order = yes,
            (Key::DataSequenceInOrder, Setting::Flag(yes)) => self.data_sequence_in_order = yes,
            (Key::ErrorRecoveryLevel, Setting::Number(n)) => self.error_recovery_level = n as u8,
            (Key::TaskReporting, Setting::Choice(name)) => self.task_reporting = TaskReporting::named(name),
            (Key::IscsiProtocolLevel, Setting::Number(n)) => self.protocol_level = n as u8,
            (key, setting) => debug_assert!(false, "{key:?} has no setting {setting:?}"),
        }
    }
}

impl Offers {
    /// The offers of our target: everything that makes it fast at little cost.
    ///
    /// MaxBurstLength is the greatest that common initiators offer (open-iscsi: 16776192), so theirs decides.
    /// Digests only if the initiator insists: it lists CRC32C alone, or first.
    pub fn of_target() -> Offers {
        Offers {
            header_digest: vec![DigestKind::None, DigestKind::Crc32c],
            data_digest: vec![DigestKind::None, DigestKind::Crc32c],
            max_connections: 8,
            initial_r2t: false,
            immediate_data: true,
            max_recv_data_segment_length: 262_144,
            max_burst_length: 16_776_192,
            first_burst_length: 262_144,
            // The greater of both offers holds (section 13.15), and a new session ends the old one whenever it comes: a host
            // that offers 0 need not wait before it logs in again.
            default_time2wait_s: 0,
            default_time2retain_s: 20,
            max_outstanding_r2t: 8,
            data_pdu_in_order: true,
            data_sequence_in_order: true,
            error_recovery_level: 0,
            task_reporting: vec![TaskReporting::Rfc3720, TaskReporting::ResponseFence],
            protocol_level: 1,
            alias: None,
        }
    }

    /// The offers of our initiator: the same, with one connection, and no digests.
    pub fn of_initiator() -> Offers {
        Offers {
            header_digest: vec![DigestKind::None],
            data_digest: vec![DigestKind::None],
            max_connections: 1,
            task_reporting: vec![TaskReporting::Rfc3720],
            ..Offers::of_target()
        }
    }

    /// The values of a key, in the order of preference; `None` for keys that are not negotiated.
    pub(super) fn settings(&self, key: Key) -> Option<Vec<Setting>> {
        let one = |setting| Some(vec![setting]);
        match key {
            Key::HeaderDigest => {
                Some(self.header_digest.iter().map(|kind| Setting::Choice(kind.name())).collect())
            }
            Key::DataDigest => {
                Some(self.data_digest.iter().map(|kind| Setting::Choice(kind.name())).collect())
            }
            Key::TaskReporting => {
                Some(self.task_reporting.iter().map(|kind| Setting::Choice(kind.name())).collect())
            }
            Key::MaxConnections => one(Setting::Number(self.max_connections.into())),
            Key::InitialR2t => one(Setting::Flag(self.initial_r2t)),
            Key::ImmediateData => one(Setting::Flag(self.immediate_data)),
            Key::MaxBurstLength => one(Setting::Number(self.max_burst_length)),
            Key::FirstBurstLength => one(Setting::Number(self.first_burst_length.min(self.max_burst_length))),
            Key::DefaultTime2Wait => one(Setting::Number(self.default_time2wait_s.into())),
            Key::DefaultTime2Retain => one(Setting::Number(self.default_time2retain_s.into())),
            Key::MaxOutstandingR2t => one(Setting::Number(self.max_outstanding_r2t.into())),
            Key::DataPduInOrder => one(Setting::Flag(self.data_pdu_in_order)),
            Key::DataSequenceInOrder => one(Setting::Flag(self.data_sequence_in_order)),
            Key::ErrorRecoveryLevel => one(Setting::Number(self.error_recovery_level.into())),
            Key::IscsiProtocolLevel => one(Setting::Number(self.protocol_level.into())),
            _ => None,
        }
    }

    /// The same, with every number brought into its key's range, so that no offer breaks a rule.
    pub(super) fn settings_in_range(&self, key: Key) -> Option<Vec<Setting>> {
        let settings = self.settings(key)?;
        Some(match key.entry().rule {
            Rule::Minimum(range, _) | Rule::Maximum(range, _) => {
                settings.into_iter().map(|setting| setting.clamped(range)).collect()
            }
            _ => settings,
        })
    }
}

impl DigestKind {
    /// Its name on the wire.
    pub fn name(self) -> &'static str {
        match self {
            DigestKind::None => "None",
            DigestKind::Crc32c => "CRC32C",
        }
    }

    fn named(name: &str) -> DigestKind {
        if name == DigestKind::Crc32c.name() { DigestKind::Crc32c } else { DigestKind::None }
    }
}

impl TaskReporting {
    /// Its name on the wire.
    pub fn name(self) -> &'static str {
        match self {
            TaskReporting::Rfc3720 => "RFC3720",
            TaskReporting::ResponseFence => "ResponseFence",
            TaskReporting::FastAbort => "FastAbort",
        }
    }

    fn named(name: &str) -> TaskReporting {
        match name {
            "ResponseFence" => TaskReporting::ResponseFence,
            "FastAbort" => TaskReporting::FastAbort,
            _ => TaskReporting::Rfc3720,
        }
    }
}

impl SessionType {
    /// The value of the key SessionType.
    pub fn name(self) -> &'static str {
        match self {
            SessionType::Normal => "Normal",
            SessionType::Discovery => "Discovery",
        }
    }

    /// The type of this name.
    pub fn named(name: &str) -> Option<SessionType> {
        [SessionType::Normal, SessionType::Discovery].into_iter().find(|kind| kind.name() == name)
    }
}

/// A value that two sides can agree on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display)]
pub(super) enum Setting {
    #[display("{}", if *_0 { "Yes" } else { "No" })]
    Flag(bool),
    Number(u32),
    /// One of the choices in the key's rule.
    Choice(&'static str),
}

impl Setting {
    /// The number brought into a range; anything else as it is.
    pub(super) fn clamped(self, range: Range) -> Setting {
        match self {
            Setting::Number(number) => Setting::Number(number.clamp(range.least, range.greatest)),
            other => other,
        }
    }
}

/// What a value means by the key's rule: one setting, or several to choose from. Nothing if it is not admissible.
///
/// Choices that are unknown are passed over: a list may hold the vendor's own, and what follows them counts.
pub(super) fn read(rule: Rule, value: &str) -> Option<Vec<Setting>> {
    match rule {
        Rule::And(_) | Rule::Or(_) => Some(vec![Setting::Flag(text::boolean(value)?)]),
        Rule::Minimum(range, _) | Rule::Maximum(range, _) | Rule::DeclaredNumber(range, _) => {
            let number = text::number(value).filter(|&number| range.holds(number))?;
            Some(vec![Setting::Number(number)])
        }
        Rule::Choice(choices) => {
            let known = |name| choices.iter().find(|&&choice| choice == name);
            let listed: Vec<Setting> = value
                .split(',')
                .take(CHOICES_MAX)
                .filter_map(known)
                .map(|&name| Setting::Choice(name))
                .collect();
            (!listed.is_empty()).then_some(listed)
        }
        Rule::Text | Rule::Exchange | Rule::Obsolete(_) => None,
    }
}

/// The one setting that both sides' make: what the responder answers. Nothing if no choice is shared.
pub(super) fn agree(rule: Rule, offered: &[Setting], ours: &[Setting]) -> Option<Setting> {
    use Setting::{Flag, Number};
    match (rule, *offered.first()?, *ours.first()?) {
        (Rule::And(_), Flag(theirs), Flag(ours)) => Some(Flag(theirs && ours)),
        (Rule::Or(_), Flag(theirs), Flag(ours)) => Some(Flag(theirs || ours)),
        (Rule::Minimum(..), Number(theirs), Number(ours)) => Some(Number(theirs.min(ours))),
        (Rule::Maximum(..), Number(theirs), Number(ours)) => Some(Number(theirs.max(ours))),
        // Section 6.2.1: "the first value it supports" of the list that was offered.
        (Rule::Choice(_), ..) => offered.iter().find(|choice| ours.contains(choice)).copied(),
        _ => None,
    }
}

/// Whether an answer is one that the rule allows to an offer: no greater than a maximum asked for, one of the
/// choices, and so on.
pub(super) fn is_fair(rule: Rule, offered: &[Setting], answer: Setting) -> bool {
    agree(rule, offered, &[answer]) == Some(answer)
}

/// A list of choices longer than this is cut.
const CHOICES_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::{Key, TABLE};

    #[test]
    fn the_defaults_are_the_table_s() {
        let defaults = Parameters::defaults(SessionType::Normal);
        for entry in TABLE {
            let expected = match entry.rule {
                Rule::And(flag) | Rule::Or(flag) => Setting::Flag(flag),
                Rule::Minimum(_, number) | Rule::Maximum(_, number) => Setting::Number(number),
                Rule::Choice(choices) => Setting::Choice(choices[0]),
                Rule::Text | Rule::DeclaredNumber(..) | Rule::Exchange | Rule::Obsolete(_) => continue,
            };
            assert_eq!(defaults.setting(entry.key), Some(expected), "{}", entry.name);
        }
    }

    #[test]
    fn what_is_set_is_what_is_there() {
        let mut parameters = Parameters::defaults(SessionType::Normal);
        for entry in TABLE {
            for setting in Offers::of_target().settings(entry.key).unwrap_or_default() {
                parameters.set(entry.key, setting);
                assert_eq!(parameters.setting(entry.key), Some(setting), "{}", entry.name);
            }
        }
    }

    #[test]
    fn another_connection_negotiates_only_what_is_its_own() {
        let mut first = Parameters::defaults(SessionType::Normal);
        first.header_digest = DigestKind::Crc32c;
        first.max_connections = 4;
        let second = first.for_another_connection();
        assert_eq!((second.header_digest, second.max_connections), (DigestKind::None, 4));
    }

    fn rule(key: Key) -> Rule {
        key.entry().rule
    }

    #[test]
    fn a_list_is_answered_with_the_first_shared_choice() {
        let offered = read(rule(Key::HeaderDigest), "X-SHA256,CRC32C,None").expect("admissible");
        let ours = [Setting::Choice("None"), Setting::Choice("CRC32C")];
        assert_eq!(agree(rule(Key::HeaderDigest), &offered, &ours), Some(Setting::Choice("CRC32C")));
        assert_eq!(agree(rule(Key::HeaderDigest), &offered[..1], &ours[..1]), None);
    }

    #[test]
    fn values_out_of_range_or_of_another_kind_are_not_admissible() {
        assert_eq!(read(rule(Key::MaxBurstLength), "511"), None);
        assert_eq!(read(rule(Key::MaxBurstLength), "16777216"), None);
        assert_eq!(read(rule(Key::MaxBurstLength), "Yes"), None);
        assert_eq!(read(rule(Key::InitialR2t), "1"), None);
        assert_eq!(read(rule(Key::HeaderDigest), "MD5"), None);
    }

    #[test]
    fn an_answer_may_lower_a_minimum_and_raise_a_maximum_and_not_the_other_way_round() {
        let n = |number| Setting::Number(number);
        assert!(is_fair(rule(Key::MaxBurstLength), &[n(1024)], n(512)));
        assert!(!is_fair(rule(Key::MaxBurstLength), &[n(1024)], n(2048)));
        assert!(is_fair(rule(Key::DefaultTime2Wait), &[n(2)], n(3)));
        assert!(!is_fair(rule(Key::DefaultTime2Wait), &[n(2)], n(1)));
        assert!(!is_fair(rule(Key::ImmediateData), &[Setting::Flag(false)], Setting::Flag(true)));
        assert!(!is_fair(rule(Key::InitialR2t), &[Setting::Flag(true)], Setting::Flag(false)));
    }
}
