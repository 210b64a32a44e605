//! The keys of RFC 7143 (sections 12 and 13) with their rules, in one table. Both sides use this table for
//! negotiation. A vendor's key (`X-…`) would also be a row, but there is none yet: the answer to each is
//! `NotUnderstood`.
//!
//! A row contains the standard's definition. If the key's value is negotiated, the row also defines a field
//! of [`Parameters`] and [`Offers`] for it, with the default offers of our target and our initiator.

use crate::rules::{DigestKind, Offered, Rule, SessionType, Setting, TaskReporting, Value};
use crate::text::{PrintableText, Range};

/// The standard's definition of a key.
#[expect(missing_docs, reason = "the names are self-explanatory")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    pub key: Key,
    /// Its name on the wire.
    pub name: &'static str,
    /// How its value is determined.
    pub rule: Rule,
    /// The sides that may send it unsolicited.
    pub sender: Sender,
    /// When it may be sent.
    pub used: Use,
    /// The scope of its value.
    pub scope: Scope,
    /// Whether it is irrelevant in a discovery session.
    pub irrelevant_in_discovery: bool,
}

/// The sides that may send a key unsolicited ("Senders").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sender {
    /// Only the initiator.
    Initiator,
    /// Only the target.
    Target,
    /// Either.
    Both,
}

/// When a key may be sent ("Use").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// In the security stage of a login.
    Security,
    /// IO: in any login.
    Login,
    /// LO: in the login of a session's first connection.
    LeadingLogin,
    /// FFPO: in full feature phase.
    FullFeature,
    /// ALL: at any time.
    Always,
}

/// The scope of a value ("Scope").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// CO: one connection.
    Connection,
    /// SW: the whole session.
    Session,
}

/// 512 to 2^24 - 1 bytes: the range of DataSegmentLength.
const SEGMENT: Range = Range {
    least: 512,
    greatest: 0xff_ffff,
};
const COUNT: Range = Range {
    least: 1,
    greatest: 65535,
};
const SECONDS: Range = Range {
    least: 0,
    greatest: 3600,
};
const LEVELS: Range = Range {
    least: 0,
    greatest: 2,
};
const PROTOCOL_LEVELS: Range = Range {
    least: 0,
    greatest: 31,
};
const DIGESTS: &[&str] = &["None", "CRC32C"];
const TASK_REPORTING: &[&str] = &["RFC3720", "ResponseFence", "FastAbort"];
/// Whether a key is irrelevant in a discovery session.
const DISCOVERY: bool = true;
const NEVER: bool = false;
/// The type of a single offered value; several values are a `Vec`.
type One<T> = T;

/// Defines the keys. A row contains a key, its name on the wire, its rule, its senders, its use, its scope,
/// and whether it is irrelevant in a discovery session. For a negotiated key, `=>` and its field follow: the
/// field's name, the type of its offer (one value or several), and the default offers of our target and our
/// initiator.
macro_rules! keys {
    ($(
        $(#[$doc:meta])*
        $key:ident $name:literal $rule:expr, $sender:ident $used:ident $scope:ident $irrelevant:ident
        $(=> $field:ident: $offered:ident<$type:ty> = $of_target:expr, $of_initiator:expr)?;
    )*) => {
        /// A key of the table.
        #[expect(missing_docs, reason = "each key is named as in the standard")]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Key {
            $($(#[$doc])* $key,)*
        }

        /// All keys, in the order of [`Key`].
        pub const TABLE: &[Entry] = {
            use Rule::*;
            &[$(Entry {
                key: Key::$key,
                name: $name,
                rule: $rule,
                sender: Sender::$sender,
                used: Use::$used,
                scope: Scope::$scope,
                irrelevant_in_discovery: $irrelevant,
            }),*]
        };

        /// All negotiated parameters of a connection and its session.
        ///
        /// Both sides have the same values, except that the two MaxRecvDataSegmentLengths are swapped.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct Parameters {
            /// The type of the session.
            pub session_type: SessionType,
            $($(
                #[doc = concat!("The value of [`Key::", stringify!($key), "`].")]
                pub $field: $type,
            )?)*
            /// Our MaxRecvDataSegmentLength.
            pub local_max_recv_data_segment_length: u32,
            /// The peer's MaxRecvDataSegmentLength.
            pub peer_max_recv_data_segment_length: u32,
            /// The initiator's display name.
            pub initiator_alias: Option<String>,
            /// The target's display name.
            pub target_alias: Option<String>,
        }

        /// The values that one side offers and accepts.
        ///
        /// If a key has a list of values, an initiator lists them in order of preference, and a target
        /// chooses the first value of the initiator's list that it accepts. The list must not be empty. If it
        /// does not include the key's default, a login that results in the default fails.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct Offers {
            $($(
                #[doc = concat!("Acceptable for [`Key::", stringify!($key), "`].")]
                pub $field: $offered<$type>,
            )?)*
            /// MaxRecvDataSegmentLength, 512 to 2^24 - 1.
            pub max_recv_data_segment_length: u32,
            /// Our alias.
            pub alias: Option<PrintableText>,
        }

        impl Parameters {
            /// The defaults of the standard.
            pub fn defaults(session_type: SessionType) -> Parameters {
                Parameters {
                    session_type,
                    $($($field: default_of(Key::$key),)?)*
                    local_max_recv_data_segment_length: default_of(Key::MaxRecvDataSegmentLength),
                    peer_max_recv_data_segment_length: default_of(Key::MaxRecvDataSegmentLength),
                    initiator_alias: None,
                    target_alias: None,
                }
            }

            /// The current value of a negotiated key; `None` for keys that are not negotiated by value.
            pub fn setting(&self, key: Key) -> Option<Setting> {
                $($(if key == Key::$key {
                    return Some(self.$field.setting());
                })?)*
                None
            }

            /// Sets a negotiated value. The value is within the key's range, so its conversion to the field's
            /// type is lossless.
            pub(crate) fn set(&mut self, key: Key, setting: Setting) {
                $($(if key == Key::$key {
                    self.$field = Value::of(setting).unwrap_or(self.$field);
                })?)*
                debug_assert_eq!(self.setting(key), Some(setting), "{key:?} has no such setting");
            }
        }

        impl Offers {
            /// The default offers of our target: all features that improve performance at little cost.
            pub fn of_target() -> Offers {
                Offers { $($($field: $of_target,)?)* max_recv_data_segment_length: 262_144, alias: None }
            }

            /// The default offers of our initiator.
            pub fn of_initiator() -> Offers {
                Offers { $($($field: $of_initiator,)?)* max_recv_data_segment_length: 262_144, alias: None }
            }

            fn of_key(&self, key: Key) -> Option<Vec<Setting>> {
                $($(if key == Key::$key {
                    return Some(self.$field.settings());
                })?)*
                None
            }

            /// Offers these values of a negotiated key.
            #[cfg(test)]
            pub(crate) fn set(&mut self, key: Key, settings: &[Setting]) {
                $($(if key == Key::$key {
                    self.$field = Offered::of(settings).expect("values of the field's type");
                })?)*
                debug_assert_eq!(self.of_key(key).as_deref(), Some(settings), "{key:?} is not negotiated");
            }
        }
    };
}

keys! {
    AuthMethod               "AuthMethod"               Exchange,                      Both      Security     Connection NEVER;     // 12.1
    ChapA                    "CHAP_A"                   Exchange,                      Both      Security     Connection NEVER;     // 12.1.3
    ChapI                    "CHAP_I"                   Exchange,                      Both      Security     Connection NEVER;     // 12.1.3
    ChapC                    "CHAP_C"                   Exchange,                      Both      Security     Connection NEVER;     // 12.1.3
    ChapN                    "CHAP_N"                   Exchange,                      Both      Security     Connection NEVER;     // 12.1.3
    ChapR                    "CHAP_R"                   Exchange,                      Both      Security     Connection NEVER;     // 12.1.3
    /// The digest that follows every header of a connection. Our target uses CRC32C only if the initiator
    /// lists it first or lists only CRC32C.
    HeaderDigest             "HeaderDigest"             Choice(DIGESTS),               Both      Login        Connection NEVER      // 13.1
        => header_digest: Vec<DigestKind> = vec![DigestKind::None, DigestKind::Crc32c], vec![DigestKind::None];
    /// The digest that follows every data segment of a connection. It is chosen like the header digest.
    DataDigest               "DataDigest"               Choice(DIGESTS),               Both      Login        Connection NEVER      // 13.1
        => data_digest: Vec<DigestKind> = vec![DigestKind::None, DigestKind::Crc32c], vec![DigestKind::None];
    MaxConnections           "MaxConnections"           Minimum(COUNT, 1),             Both      LeadingLogin Session    DISCOVERY  // 13.2
        => max_connections: One<u16> = 8, 1;
    SendTargets              "SendTargets"              Exchange,                      Initiator FullFeature  Session    NEVER;     // 13.3
    TargetName               "TargetName"               Text,                          Both      Always       Session    NEVER;     // 13.4
    InitiatorName            "InitiatorName"            Text,                          Initiator Login        Session    NEVER;     // 13.5
    TargetAlias              "TargetAlias"              Text,                          Target    Always       Session    NEVER;     // 13.6
    InitiatorAlias           "InitiatorAlias"           Text,                          Initiator Always       Session    NEVER;     // 13.7
    TargetAddress            "TargetAddress"            Text,                          Target    Always       Session    NEVER;     // 13.8
    TargetPortalGroupTag     "TargetPortalGroupTag"     Text,                          Target    Login        Session    NEVER;     // 13.9
    /// If true, the initiator may not send unsolicited Data-Out PDUs.
    InitialR2t               "InitialR2T"               Or(true),                      Both      LeadingLogin Session    DISCOVERY  // 13.10
        => initial_r2t: One<bool> = false, false;
    ImmediateData            "ImmediateData"            And(true),                     Both      LeadingLogin Session    DISCOVERY  // 13.11
        => immediate_data: One<bool> = true, true;
    MaxRecvDataSegmentLength "MaxRecvDataSegmentLength" DeclaredNumber(SEGMENT, 8192), Both      Always       Connection NEVER;     // 13.12
    /// We offer 16776192, the greatest value that common initiators (open-iscsi) offer. The smaller offer
    /// applies, so the initiator's value decides, and one R2T can request all data of a large write.
    MaxBurstLength           "MaxBurstLength"           Minimum(SEGMENT, 262_144),     Both      LeadingLogin Session    DISCOVERY  // 13.13
        => max_burst_length: One<u32> = 16_776_192, 16_776_192;
    /// Limit on the unsolicited data of a command. It does not exceed MaxBurstLength.
    FirstBurstLength         "FirstBurstLength"         Minimum(SEGMENT, 65_536),      Both      LeadingLogin Session    DISCOVERY  // 13.14
        => first_burst_length: One<u32> = 262_144, 262_144;
    // The greater offer applies. Our target offers 0: a host need not wait before it logs in again, because
    // its new session always reinstates the old one. Our initiator offers 0, so that the target's offer
    // applies.
    DefaultTime2Wait         "DefaultTime2Wait"         Maximum(SECONDS, 2),           Both      LeadingLogin Session    NEVER      // 13.15
        => default_time2wait_s: One<u16> = 0, 0;
    DefaultTime2Retain       "DefaultTime2Retain"       Minimum(SECONDS, 20),          Both      LeadingLogin Session    NEVER      // 13.16
        => default_time2retain_s: One<u16> = 20, 20;
    MaxOutstandingR2t        "MaxOutstandingR2T"        Minimum(COUNT, 1),             Both      LeadingLogin Session    DISCOVERY  // 13.17
        => max_outstanding_r2t: One<u16> = 8, 8;
    DataPduInOrder           "DataPDUInOrder"           Or(true),                      Both      LeadingLogin Session    DISCOVERY  // 13.18
        => data_pdu_in_order: One<bool> = true, true;
    DataSequenceInOrder      "DataSequenceInOrder"      Or(true),                      Both      LeadingLogin Session    DISCOVERY  // 13.19
        => data_sequence_in_order: One<bool> = true, true;
    /// 0: session recovery; 1: also digest failure recovery; 2: also connection recovery.
    ErrorRecoveryLevel       "ErrorRecoveryLevel"       Minimum(LEVELS, 0),            Both      LeadingLogin Session    NEVER      // 13.20
        => error_recovery_level: One<u8> = 0, 0;
    SessionType              "SessionType"              Text,                          Initiator LeadingLogin Session    NEVER;     // 13.21
    /// Determines when a task management function is answered.
    TaskReporting            "TaskReporting"            Choice(TASK_REPORTING),        Both      LeadingLogin Session    DISCOVERY  // 13.23
        => task_reporting: Vec<TaskReporting> = vec![TaskReporting::Rfc3720, TaskReporting::ResponseFence], vec![TaskReporting::Rfc3720];
    /// 1: RFC 7143; 2: also RFC 7144.
    IscsiProtocolLevel       "iSCSIProtocolLevel"       Minimum(PROTOCOL_LEVELS, 1),   Both      LeadingLogin Session    DISCOVERY  // 13.24
        => protocol_level: One<u8> = 1, 1;
    // 13.25: to a marker key, "SHOULD respond with the constant "Reject" value", but "MAY alternatively
    // respond with a "No" value". An initiator that still offers markers certainly supports "No".
    IfMarker                 "IFMarker"                 Obsolete("No"),                Both      Login        Connection NEVER;
    OfMarker                 "OFMarker"                 Obsolete("No"),                Both      Login        Connection NEVER;     // 13.25
    // 13.25: to an interval, "MUST respond with the constant "Reject" value".
    IfMarkInt                "IFMarkInt"                Obsolete("Reject"),            Both      Login        Connection NEVER;
    OfMarkInt                "OFMarkInt"                Obsolete("Reject"),            Both      Login        Connection NEVER;
}

impl Key {
    /// The key with this name. The comparison is case-sensitive: "MaxBurstLength" is not "maxburstlength".
    pub fn find(name: &str) -> Option<Key> {
        TABLE
            .iter()
            .find(|entry| entry.name == name)
            .map(|entry| entry.key)
    }

    /// The key's row.
    pub fn entry(self) -> &'static Entry {
        &TABLE[self as usize]
    }

    /// The key's name on the wire.
    pub fn name(self) -> &'static str {
        self.entry().name
    }
}

fn default_of<T: Value>(key: Key) -> T {
    let default = key.entry().rule.default();
    default
        .and_then(T::of)
        .expect("a key's default has its field's type: else no `Parameters` can be made")
}

impl Parameters {
    /// Lists keys and their values for display: first the keys in `first`, then the other negotiated keys
    /// except those in `without`.
    pub fn listed(
        &self,
        first: &[Key],
        without: &[Key],
    ) -> impl Iterator<Item = (Key, Option<Setting>)> {
        let is_other = |key: &Key| {
            self.setting(*key).is_some() && !first.contains(key) && !without.contains(key)
        };
        let others = TABLE.iter().map(|entry| entry.key).filter(is_other);
        first
            .iter()
            .copied()
            .chain(others)
            .map(|key| (key, self.setting(key)))
    }

    /// The initial parameters of a further connection of the session: parameters of the session are kept, and
    /// parameters of the connection are reset to their defaults.
    pub fn for_another_connection(&self) -> Parameters {
        let defaults = Parameters::defaults(self.session_type);
        let mut another = Parameters {
            local_max_recv_data_segment_length: defaults.local_max_recv_data_segment_length,
            peer_max_recv_data_segment_length: defaults.peer_max_recv_data_segment_length,
            ..self.clone()
        };
        for Entry { key, .. } in TABLE
            .iter()
            .filter(|entry| entry.scope == Scope::Connection)
        {
            if let Some(default) = defaults.setting(*key) {
                another.set(*key, default);
            }
        }
        another
    }

    /// The same parameters from the peer's point of view.
    pub fn mirrored(&self) -> Parameters {
        Parameters {
            local_max_recv_data_segment_length: self.peer_max_recv_data_segment_length,
            peer_max_recv_data_segment_length: self.local_max_recv_data_segment_length,
            ..self.clone()
        }
    }
}

impl Offers {
    /// The offered values of a key, in order of preference; `None` for keys that are not negotiated. Numbers
    /// are clamped to the key's range, so that no offer violates a rule.
    pub fn settings(&self, key: Key) -> Option<Vec<Setting>> {
        let mut settings = self.of_key(key)?;
        if key == Key::FirstBurstLength {
            settings = vec![self.first_burst_length.min(self.max_burst_length).setting()];
        }
        if let Rule::Minimum(range, _) | Rule::Maximum(range, _) = key.entry().rule {
            settings
                .iter_mut()
                .for_each(|setting| *setting = setting.clamped(range));
        }
        Some(settings)
    }
}

/// Answers with a reserved meaning in the negotiation (section 6.2).
pub mod answer {
    /// The responder does not support the key.
    pub const NOT_UNDERSTOOD: &str = "NotUnderstood";
    /// The key is irrelevant in this session, or irrelevant because of the values already negotiated.
    pub const IRRELEVANT: &str = "Irrelevant";
    /// The offered value is not acceptable.
    pub const REJECT: &str = "Reject";

    /// Whether a value is one of these reserved answers.
    pub fn is_answer(value: &str) -> bool {
        [NOT_UNDERSTOOD, IRRELEVANT, REJECT].contains(&value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_has_its_line_and_its_name() {
        for (index, entry) in TABLE.iter().enumerate() {
            assert_eq!(entry.key as usize, index, "{}", entry.name);
            assert_eq!(entry.key.entry(), entry);
            assert_eq!(Key::find(entry.name), Some(entry.key));
        }
        assert_eq!(Key::find("maxburstlength"), None);
    }

    #[test]
    fn every_default_lies_in_its_range() {
        for entry in TABLE {
            if let Rule::DeclaredNumber(range, default)
            | Rule::Minimum(range, default)
            | Rule::Maximum(range, default) = entry.rule
            {
                assert!(range.holds(default), "{}", entry.name);
            }
        }
    }

    /// A negotiated key without a field would never be offered, and the peer's offer would be rejected.
    #[test]
    fn a_key_has_a_field_if_its_rule_makes_one_value_of_two() {
        let defaults = Parameters::defaults(SessionType::Normal);
        for Entry { key, rule, .. } in TABLE {
            let is_negotiated = match rule {
                Rule::And(_)
                | Rule::Or(_)
                | Rule::Minimum(..)
                | Rule::Maximum(..)
                | Rule::Choice(_) => true,
                Rule::Text | Rule::DeclaredNumber(..) | Rule::Exchange | Rule::Obsolete(_) => false,
            };
            assert_eq!(
                defaults.setting(*key),
                rule.default().filter(|_| is_negotiated),
                "{key:?}"
            );
        }
    }

    #[test]
    fn what_is_set_is_what_is_there() {
        let mut parameters = Parameters::defaults(SessionType::Normal);
        for entry in TABLE {
            let mut settings = Offers::of_target().settings(entry.key).unwrap_or_default();
            if let Rule::Minimum(range, _) | Rule::Maximum(range, _) = entry.rule {
                settings.extend([range.least, range.greatest].map(Setting::Number));
            }
            for setting in settings {
                parameters.set(entry.key, setting);
                assert_eq!(
                    parameters.setting(entry.key),
                    Some(setting),
                    "{}",
                    entry.name
                );
            }
        }
    }

    #[test]
    fn another_connection_negotiates_only_what_is_its_own() {
        let mut first = Parameters::defaults(SessionType::Normal);
        first.header_digest = DigestKind::Crc32c;
        first.max_connections = 4;
        let second = first.for_another_connection();
        assert_eq!(
            (second.header_digest, second.max_connections),
            (DigestKind::None, 4)
        );
    }
}
