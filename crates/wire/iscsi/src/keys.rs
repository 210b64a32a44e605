//! Every key that RFC 7143 defines (sections 12 and 13) with its rule, in one table. Both roles negotiate by it.
//!
//! The table has what the standard says. The values of each side are in [`crate::negotiate::Offers`].

use crate::text::Range;

/// A key of the standard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "each key is named as in the standard, and explained in the table")]
pub enum Key {
    AuthMethod,
    ChapA,
    ChapI,
    ChapC,
    ChapN,
    ChapR,
    HeaderDigest,
    DataDigest,
    MaxConnections,
    SendTargets,
    TargetName,
    InitiatorName,
    TargetAlias,
    InitiatorAlias,
    TargetAddress,
    TargetPortalGroupTag,
    InitialR2t,
    ImmediateData,
    MaxRecvDataSegmentLength,
    MaxBurstLength,
    FirstBurstLength,
    DefaultTime2Wait,
    DefaultTime2Retain,
    MaxOutstandingR2t,
    DataPduInOrder,
    DataSequenceInOrder,
    ErrorRecoveryLevel,
    SessionType,
    TaskReporting,
    IscsiProtocolLevel,
    IfMarker,
    OfMarker,
    IfMarkInt,
    OfMarkInt,
}

/// A row of the table.
#[expect(missing_docs, reason = "where a name says all")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    pub key: Key,
    /// Its name on the wire.
    pub name: &'static str,
    /// How its value is determined.
    pub rule: Rule,
    /// Who may send it unasked.
    pub sender: Sender,
    /// When it may be sent.
    pub used: Use,
    /// The scope of its value.
    pub scope: Scope,
    /// Whether it is irrelevant in a discovery session.
    pub irrelevant_in_discovery: bool,
}

/// How a key's value is determined (section 6.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// Declared text.
    Text,
    /// A declared number.
    DeclaredNumber(Range, u32),
    /// "Yes" if both say so; the default.
    And(bool),
    /// "Yes" if either says so; the default.
    Or(bool),
    /// The lesser of both numbers; the default.
    Minimum(Range, u32),
    /// The greater of both numbers; the default.
    Maximum(Range, u32),
    /// The first of the offered choices that the responder supports; the list of all, the default first.
    Choice(&'static [&'static str]),
    /// A step of an exchange with rules of its own: authentication, or SendTargets.
    Exchange,
    /// A key of RFC 3720, and the answer to it now (section 13.25).
    Obsolete(&'static str),
}

/// Who may send a key unasked ("Senders").
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
    /// CO: its connection.
    Connection,
    /// SW: the whole session.
    Session,
}

impl Key {
    /// The key of this name. Names are compared as they are: "MaxBurstLength" is not "maxburstlength".
    pub fn find(name: &str) -> Option<Key> {
        TABLE.iter().find(|entry| entry.name == name).map(|entry| entry.key)
    }

    /// The key's row.
    pub fn entry(self) -> &'static Entry {
        // The table has a row for every key, in the order of the keys: a test checks it.
        debug_assert_eq!(TABLE[self as usize].key, self);
        &TABLE[self as usize]
    }

    /// The key's name on the wire.
    pub fn name(self) -> &'static str {
        self.entry().name
    }
}

/// Values that are answers of the negotiation itself (section 6.2).
pub mod answer {
    /// The responder does not know the key.
    pub const NOT_UNDERSTOOD: &str = "NotUnderstood";
    /// The key has no meaning in this session, or with what is already agreed.
    pub const IRRELEVANT: &str = "Irrelevant";
    /// The value offered cannot be accepted.
    pub const REJECT: &str = "Reject";

    /// Whether a value is one of these.
    pub fn is_answer(value: &str) -> bool {
        [NOT_UNDERSTOOD, IRRELEVANT, REJECT].contains(&value)
    }
}

/// 512 to 2^24 - 1 bytes: what DataSegmentLength can say.
const SEGMENT: Range = Range { least: 512, greatest: 0xff_ffff };
const COUNT: Range = Range { least: 1, greatest: 65535 };
const SECONDS: Range = Range { least: 0, greatest: 3600 };
const LEVELS: Range = Range { least: 0, greatest: 2 };
const PROTOCOL_LEVELS: Range = Range { least: 0, greatest: 31 };
const DIGESTS: &[&str] = &["None", "CRC32C"];

/// All keys, in the order of [`Key`]. The number behind each is its section in RFC 7143.
#[rustfmt::skip]
pub const TABLE: [Entry; 34] = {
    use Key::*;
    use Rule::*;
    use Scope::*;
    use Sender::*;
    use Use::*;
    const NEVER: bool = false;
    const DISCOVERY: bool = true;
    [
        line(AuthMethod,               "AuthMethod",               Exchange,                     Both,      Security,     Connection, NEVER),     // 12.1
        line(ChapA,                    "CHAP_A",                   Exchange,                     Both,      Security,     Connection, NEVER),     // 12.1.3
        line(ChapI,                    "CHAP_I",                   Exchange,                     Both,      Security,     Connection, NEVER),     // 12.1.3
        line(ChapC,                    "CHAP_C",                   Exchange,                     Both,      Security,     Connection, NEVER),     // 12.1.3
        line(ChapN,                    "CHAP_N",                   Exchange,                     Both,      Security,     Connection, NEVER),     // 12.1.3
        line(ChapR,                    "CHAP_R",                   Exchange,                     Both,      Security,     Connection, NEVER),     // 12.1.3
        line(HeaderDigest,             "HeaderDigest",             Choice(DIGESTS),              Both,      Login,        Connection, NEVER),     // 13.1
        line(DataDigest,               "DataDigest",               Choice(DIGESTS),              Both,      Login,        Connection, NEVER),     // 13.1
        line(MaxConnections,           "MaxConnections",           Minimum(COUNT, 1),            Both,      LeadingLogin, Session,    DISCOVERY), // 13.2
        line(SendTargets,              "SendTargets",              Exchange,                     Initiator, FullFeature,  Session,    NEVER),     // 13.3
        line(TargetName,               "TargetName",               Text,                         Both,      Always,       Session,    NEVER),     // 13.4
        line(InitiatorName,            "InitiatorName",            Text,                         Initiator, Login,        Session,    NEVER),     // 13.5
        line(TargetAlias,              "TargetAlias",              Text,                         Target,    Always,       Session,    NEVER),     // 13.6
        line(InitiatorAlias,           "InitiatorAlias",           Text,                         Initiator, Always,       Session,    NEVER),     // 13.7
        line(TargetAddress,            "TargetAddress",            Text,                         Target,    Always,       Session,    NEVER),     // 13.8
        line(TargetPortalGroupTag,     "TargetPortalGroupTag",     Text,                         Target,    Login,        Session,    NEVER),     // 13.9
        line(InitialR2t,               "InitialR2T",               Or(true),                     Both,      LeadingLogin, Session,    DISCOVERY), // 13.10
        line(ImmediateData,            "ImmediateData",            And(true),                    Both,      LeadingLogin, Session,    DISCOVERY), // 13.11
        line(MaxRecvDataSegmentLength, "MaxRecvDataSegmentLength", DeclaredNumber(SEGMENT, 8192), Both,     Always,       Connection, NEVER),     // 13.12
        line(MaxBurstLength,           "MaxBurstLength",           Minimum(SEGMENT, 262_144),    Both,      LeadingLogin, Session,    DISCOVERY), // 13.13
        line(FirstBurstLength,         "FirstBurstLength",         Minimum(SEGMENT, 65_536),     Both,      LeadingLogin, Session,    DISCOVERY), // 13.14
        line(DefaultTime2Wait,         "DefaultTime2Wait",         Maximum(SECONDS, 2),          Both,      LeadingLogin, Session,    NEVER),     // 13.15
        line(DefaultTime2Retain,       "DefaultTime2Retain",       Minimum(SECONDS, 20),         Both,      LeadingLogin, Session,    NEVER),     // 13.16
        line(MaxOutstandingR2t,        "MaxOutstandingR2T",        Minimum(COUNT, 1),            Both,      LeadingLogin, Session,    DISCOVERY), // 13.17
        line(DataPduInOrder,           "DataPDUInOrder",           Or(true),                     Both,      LeadingLogin, Session,    DISCOVERY), // 13.18
        line(DataSequenceInOrder,      "DataSequenceInOrder",      Or(true),                     Both,      LeadingLogin, Session,    DISCOVERY), // 13.19
        line(ErrorRecoveryLevel,       "ErrorRecoveryLevel",       Minimum(LEVELS, 0),           Both,      LeadingLogin, Session,    NEVER),     // 13.20
        line(SessionType,              "SessionType",              Text,                         Initiator, LeadingLogin, Session,    NEVER),     // 13.21
        line(TaskReporting,            "TaskReporting",            Choice(&["RFC3720", "ResponseFence", "FastAbort"]),
                                                                                                 Both,      LeadingLogin, Session,    DISCOVERY), // 13.23
        line(IscsiProtocolLevel,       "iSCSIProtocolLevel",       Minimum(PROTOCOL_LEVELS, 1),  Both,      LeadingLogin, Session,    DISCOVERY), // 13.24
        // 13.25: to a marker key, "SHOULD respond with the constant "Reject" value", but "MAY alternatively
        // respond with a "No" value". An initiator that still offers one has certainly heard of "No".
        line(IfMarker,                 "IFMarker",                 Obsolete("No"),               Both,      Login,        Connection, NEVER),
        line(OfMarker,                 "OFMarker",                 Obsolete("No"),               Both,      Login,        Connection, NEVER),
        // 13.25: to an interval, "MUST respond with the constant "Reject" value".
        line(IfMarkInt,                "IFMarkInt",                Obsolete("Reject"),           Both,      Login,        Connection, NEVER),
        line(OfMarkInt,                "OFMarkInt",                Obsolete("Reject"),           Both,      Login,        Connection, NEVER),
    ]
};

const fn line(
    key: Key,
    name: &'static str,
    rule: Rule,
    sender: Sender,
    used: Use,
    scope: Scope,
    irrelevant_in_discovery: bool,
) -> Entry {
    Entry { key, name, rule, sender, used, scope, irrelevant_in_discovery }
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
        assert_eq!(Key::OfMarkInt as usize + 1, TABLE.len());
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
}
