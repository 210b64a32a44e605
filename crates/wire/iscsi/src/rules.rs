//! The rules that combine the values of two sides (RFC 7143 section 6.2), and the types of values:
//! [`Setting`] is a value of any type.

use derive_more::Display;

use crate::text::{self, Range};

/// How a key's value is determined (section 6.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// Declared text.
    Text,
    /// A declared number, with its range and default.
    DeclaredNumber(Range, u32),
    /// "Yes" if both sides offer "Yes". The field is the default.
    And(bool),
    /// "Yes" if either side offers "Yes". The field is the default.
    Or(bool),
    /// The lesser of both numbers, with their range and default.
    Minimum(Range, u32),
    /// The greater of both numbers, with their range and default.
    Maximum(Range, u32),
    /// The first of the offered choices that the responder supports. The list contains all choices, starting
    /// with the default.
    Choice(&'static [&'static str]),
    /// A step of an exchange with separate rules: authentication, or SendTargets.
    Exchange,
    /// A key of RFC 3720, and the answer to it according to section 13.25.
    Obsolete(&'static str),
}

/// CRC32C or nothing (RFC 7143 section 13.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum DigestKind {
    /// No digest.
    #[default]
    None,
    /// CRC32C.
    Crc32c,
}

/// Determines when a task management function is answered (section 13.23).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum TaskReporting {
    /// When RFC 3720 requires it.
    #[default]
    Rfc3720,
    /// After a fence: all earlier responses have been acknowledged.
    ResponseFence,
    /// After a fence, without waiting for the initiator to end its data transfers.
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

/// A negotiated value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display)]
#[expect(missing_docs, reason = "the names are self-explanatory")]
pub enum Setting {
    #[display("{}", if *_0 { "Yes" } else { "No" })]
    Flag(bool),
    Number(u32),
    /// One of the choices in the key's rule.
    Choice(&'static str),
}

/// A type of negotiated values.
pub(crate) trait Value: Copy {
    fn setting(self) -> Setting;

    /// Converts a setting to this type; `None` if the setting has another type, or is out of range.
    fn of(setting: Setting) -> Option<Self>;
}

/// An offer of one side: a value, or several to choose from.
pub(crate) trait Offered: Sized {
    fn settings(&self) -> Vec<Setting>;

    /// The offer of these settings, if they are of its type.
    #[cfg(test)]
    fn of(settings: &[Setting]) -> Option<Self>;
}

impl<T: Value> Offered for T {
    fn settings(&self) -> Vec<Setting> {
        vec![self.setting()]
    }

    #[cfg(test)]
    fn of(settings: &[Setting]) -> Option<T> {
        settings.first().copied().and_then(Value::of)
    }
}

impl<T: Value> Offered for Vec<T> {
    fn settings(&self) -> Vec<Setting> {
        self.iter().map(|value| value.setting()).collect()
    }

    #[cfg(test)]
    fn of(settings: &[Setting]) -> Option<Vec<T>> {
        settings.iter().copied().map(Value::of).collect()
    }
}

macro_rules! values {
    ($($type:ty: |$value:ident| $setting:expr, $kind:pat => $of:expr;)*) => {$(
        impl Value for $type {
            fn setting(self) -> Setting {
                let $value = self;
                $setting
            }

            fn of(setting: Setting) -> Option<$type> {
                if let $kind = setting { $of } else { None }
            }
        }
    )*};
}

values! {
    bool: |yes| Setting::Flag(yes), Setting::Flag(yes) => Some(yes);
    u8: |number| Setting::Number(number.into()), Setting::Number(number) => number.try_into().ok();
    u16: |number| Setting::Number(number.into()), Setting::Number(number) => number.try_into().ok();
    u32: |number| Setting::Number(number), Setting::Number(number) => Some(number);
    DigestKind: |kind| Setting::Choice(kind.name()), Setting::Choice(name) => DigestKind::named(name);
    TaskReporting: |kind| Setting::Choice(kind.name()), Setting::Choice(name) => TaskReporting::named(name);
}

impl DigestKind {
    /// Its name on the wire.
    pub fn name(self) -> &'static str {
        match self {
            DigestKind::None => "None",
            DigestKind::Crc32c => "CRC32C",
        }
    }

    fn named(name: &str) -> Option<DigestKind> {
        [DigestKind::None, DigestKind::Crc32c]
            .into_iter()
            .find(|kind| kind.name() == name)
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

    fn named(name: &str) -> Option<TaskReporting> {
        [
            TaskReporting::Rfc3720,
            TaskReporting::ResponseFence,
            TaskReporting::FastAbort,
        ]
        .into_iter()
        .find(|kind| kind.name() == name)
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

    /// The type with this name.
    pub fn named(name: &str) -> Option<SessionType> {
        [SessionType::Normal, SessionType::Discovery]
            .into_iter()
            .find(|kind| kind.name() == name)
    }
}

impl Setting {
    /// Clamps a number to the range; other settings are unchanged.
    pub(crate) fn clamped(self, range: Range) -> Setting {
        match self {
            Setting::Number(number) => Setting::Number(number.clamp(range.least, range.greatest)),
            other => other,
        }
    }
}

impl Rule {
    /// The default of the standard.
    pub(crate) fn default(self) -> Option<Setting> {
        match self {
            Rule::And(yes) | Rule::Or(yes) => Some(Setting::Flag(yes)),
            Rule::DeclaredNumber(_, number)
            | Rule::Minimum(_, number)
            | Rule::Maximum(_, number) => Some(Setting::Number(number)),
            Rule::Choice(choices) => choices.first().map(|choice| Setting::Choice(choice)),
            Rule::Text | Rule::Exchange | Rule::Obsolete(_) => None,
        }
    }

    /// Parses a value according to the rule: one setting, or several to choose from. `None` if it is not
    /// admissible.
    ///
    /// Unknown choices are skipped: a list may contain vendor-specific choices before known ones.
    pub(crate) fn read(self, value: &str) -> Option<Vec<Setting>> {
        match self {
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

    /// Combines the settings of both sides into the result, which is the responder's answer. `None` if the
    /// sides share no choice.
    pub(crate) fn agree(self, offered: &[Setting], ours: &[Setting]) -> Option<Setting> {
        use Setting::{Flag, Number};
        match (self, *offered.first()?, *ours.first()?) {
            (Rule::And(_), Flag(theirs), Flag(ours)) => Some(Flag(theirs && ours)),
            (Rule::Or(_), Flag(theirs), Flag(ours)) => Some(Flag(theirs || ours)),
            (Rule::Minimum(..), Number(theirs), Number(ours)) => Some(Number(theirs.min(ours))),
            (Rule::Maximum(..), Number(theirs), Number(ours)) => Some(Number(theirs.max(ours))),
            // Section 6.2.1: "the first value it supports" of the list that was offered.
            (Rule::Choice(_), ..) => offered.iter().find(|choice| ours.contains(choice)).copied(),
            _ => None,
        }
    }

    /// Whether the rule allows this answer to an offer. For example, if the lesser number applies, the answer
    /// must not exceed the offer.
    pub(crate) fn is_fair(self, offered: &[Setting], answer: Setting) -> bool {
        self.agree(offered, &[answer]) == Some(answer)
    }
}

/// Maximum number of choices that are read from a list; further ones are ignored.
const CHOICES_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::Key;

    fn rule(key: Key) -> Rule {
        key.entry().rule
    }

    #[test]
    fn a_list_is_answered_with_the_first_shared_choice() {
        let offered = rule(Key::HeaderDigest)
            .read("X-SHA256,CRC32C,None")
            .expect("admissible");
        let ours = [Setting::Choice("None"), Setting::Choice("CRC32C")];
        assert_eq!(
            rule(Key::HeaderDigest).agree(&offered, &ours),
            Some(Setting::Choice("CRC32C"))
        );
        assert_eq!(
            rule(Key::HeaderDigest).agree(&offered[..1], &ours[..1]),
            None
        );
    }

    #[test]
    fn values_out_of_range_or_of_another_kind_are_not_admissible() {
        assert_eq!(rule(Key::MaxBurstLength).read("511"), None);
        assert_eq!(rule(Key::MaxBurstLength).read("16777216"), None);
        assert_eq!(rule(Key::MaxBurstLength).read("Yes"), None);
        assert_eq!(rule(Key::InitialR2t).read("1"), None);
        assert_eq!(rule(Key::HeaderDigest).read("MD5"), None);
    }

    #[test]
    fn an_answer_may_lower_a_minimum_and_raise_a_maximum_and_not_the_other_way_round() {
        let n = |number| Setting::Number(number);
        assert!(rule(Key::MaxBurstLength).is_fair(&[n(1024)], n(512)));
        assert!(!rule(Key::MaxBurstLength).is_fair(&[n(1024)], n(2048)));
        assert!(rule(Key::DefaultTime2Wait).is_fair(&[n(2)], n(3)));
        assert!(!rule(Key::DefaultTime2Wait).is_fair(&[n(2)], n(1)));
        assert!(!rule(Key::ImmediateData).is_fair(&[Setting::Flag(false)], Setting::Flag(true)));
        assert!(!rule(Key::InitialR2t).is_fair(&[Setting::Flag(true)], Setting::Flag(false)));
    }
}
