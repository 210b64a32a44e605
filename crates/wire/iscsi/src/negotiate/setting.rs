//! A key's value, whatever its kind, and the functions by which two become one (RFC 7143 section 6.2).

use derive_more::Display;

use crate::keys::Rule;
use crate::text::{self, Range};

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
    use crate::keys::Key;

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
