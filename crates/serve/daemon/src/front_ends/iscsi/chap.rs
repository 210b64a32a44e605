//! `[target.chap]` and `[discovery.chap]`: CHAP authentication (RFC 7143 sections 9.2.1 and 12.1.3).

use std::str::FromStr;

use iscsi::chap::{Algorithm, Credentials, Secret};
use iscsi::text::PrintableText;

use iscsi_server::NamePattern;

use super::names::patterns;
use crate::config::{Placed, Section};
use crate::config::{Unfit, one_of};
use crate::front_ends::secret;

/// CHAP for a target or for discovery.
#[derive(Clone, Debug, PartialEq)]
pub struct Chap {
    /// The accounts: at least one.
    pub accounts: Vec<Account>,
    /// The target's own credentials, for mutual authentication.
    pub mutual: Option<Credentials>,
    /// The hashes it accepts: at least one.
    pub algorithms: Vec<Algorithm>,
}

/// A user and its secret.
struct UserAndSecret<'a> {
    user: Placed<&'a str>,
    credentials: Credentials,
}

/// An account that may log in.
#[derive(Clone, Debug, PartialEq)]
pub struct Account {
    /// Its user name and secret.
    pub credentials: Credentials,
    /// The initiator names that the user may present; `None` is any. Those of one target have either one
    /// account, or each its names.
    pub initiators: Option<Vec<NamePattern>>,
}

/// What a `chap` section protects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Protected {
    /// A target: sessions, LUNs and reservations depend on the initiator's name.
    Target,
    /// Discovery, which returns only names and addresses.
    Discovery,
}

/// An algorithm by the name it has in the file.
struct Named(Algorithm);

const ALGORITHMS: &[(&str, Algorithm)] = &[
    ("sha3-256", Algorithm::Sha3_256),
    ("sha256", Algorithm::Sha256),
    ("sha1", Algorithm::Sha1),
    ("md5", Algorithm::Md5),
];

impl FromStr for Named {
    type Err = Unfit;

    fn from_str(text: &str) -> Result<Named, Unfit> {
        one_of("algorithm", text, ALGORITHMS).map(Named)
    }
}

/// 96 bits: shorter ones "MUST NOT" be used without IPsec (RFC 7143 section 9.2.1).
const SECRET_MIN: usize = 12;
/// Longer than the longest CHAP_R of any algorithm needs.
const SECRET_MAX: usize = 255;

pub(super) fn read(section: &Section<'_>, protected: Protected) -> Option<Chap> {
    let title = section.title().trim_matches(['[', ']']);
    let sections = section.sections("account", &format!("[[{title}.account]]"));
    let found: Vec<FoundAccount<'_>> = sections.iter().filter_map(account).collect();
    let mutual = section.section("mutual", &format!("[{title}.mutual]")).as_ref().and_then(mutual);
    let algorithms = section.list::<Named>("algorithms");
    section.done();
    if !section.has("account") {
        let sentence =
            format!("{} has no account; write [[{title}.account]] with user and secret", section.title());
        section.mistakes.add(section.at(), sentence);
    }
    each_user_once(section, &found);
    if protected == Protected::Target {
        each_user_has_its_names(section, &found);
    }
    mutual_differs(section, &found, mutual.as_ref());
    let account =
        |(found, initiators): (UserAndSecret<'_>, _)| Account { credentials: found.credentials, initiators };
    Some(Chap {
        accounts: found.into_iter().map(account).collect(),
        mutual: mutual.map(|found| found.credentials),
        algorithms: match algorithms {
            Some(algorithms) => algorithms.into_iter().map(|Named(algorithm)| algorithm).collect(),
            None => Algorithm::ALL.to_vec(),
        },
    })
}

/// An account's user and secret, and its initiator names.
type FoundAccount<'a> = (UserAndSecret<'a>, Option<Vec<NamePattern>>);

fn each_user_once(section: &Section<'_>, accounts: &[FoundAccount<'_>]) {
    for (index, (found, _)) in accounts.iter().enumerate() {
        if accounts.iter().take(index).any(|(other, _)| other.user.value == found.user.value) {
            let sentence = format!("the user `{}` has two secrets; keep one account", found.user.value);
            section.mistakes.add(found.user.at.clone(), sentence);
        }
    }
}

/// Reservations and LUNs depend on initiator names, which are not authenticated. Several users of a target
/// therefore need their own names each, or an explicit statement that they share them.
fn each_user_has_its_names(section: &Section<'_>, accounts: &[FoundAccount<'_>]) {
    for (found, _) in accounts.iter().filter(|(_, initiators)| initiators.is_none()) {
        if accounts.iter().all(|(other, _)| other.user.value == found.user.value) {
            continue;
        }
        let sentence = format!(
            "`{}` could log in under the initiator names of the target's other users; add initiators = \
             [\"iqn.…\"] with its own, or [\"*\"] if the users may share them",
            found.user.value
        );
        section.mistakes.add(found.user.at.clone(), sentence);
    }
}

/// With one secret for both directions an attacker can answer our challenge with our own response ("the
/// secret used by the initiator MUST be different", RFC 7143 section 9.2.1).
fn mutual_differs(section: &Section<'_>, accounts: &[FoundAccount<'_>], mutual: Option<&UserAndSecret<'_>>) {
    let Some(mutual) = mutual else { return };
    if accounts.iter().any(|(found, _)| found.credentials.secret == mutual.credentials.secret) {
        let sentence = "the target's secret is also an initiator's; give the target one of its own";
        section.mistakes.add(mutual.user.at.clone(), sentence);
    }
}

fn account<'a>(section: &Section<'a>) -> Option<FoundAccount<'a>> {
    let initiators = patterns(section);
    let found = found(section);
    section.done();
    found.map(|found| (found, initiators))
}

fn mutual<'a>(section: &Section<'a>) -> Option<UserAndSecret<'a>> {
    let found = found(section);
    section.done();
    found
}

fn found<'a>(section: &Section<'a>) -> Option<UserAndSecret<'a>> {
    let user = section.required("user", section.text("user"), "\"alice\"");
    let secret = secret::read(section, "12 to 16 letters");
    let secret = secret.and_then(|(place, bytes)| checked(section, &place, &bytes));
    let (user, secret) = (user?, secret?);
    if let Err(why) = user.value.parse::<PrintableText>() {
        return refuse(
            section,
            &user,
            format!("this cannot be a user's name: {why}; write one such as \"alice\""),
        );
    }
    let credentials = Credentials { name: user.value.to_owned(), secret };
    Some(UserAndSecret { user, credentials })
}

fn refuse<T>(section: &Section<'_>, place: &Placed<&str>, sentence: impl Into<String>) -> Option<T> {
    section.mistakes.add(place.at.clone(), sentence);
    None
}

fn checked(section: &Section<'_>, place: &Placed<&str>, bytes: &[u8]) -> Option<Secret> {
    let length = bytes.len();
    if (SECRET_MIN..=SECRET_MAX).contains(&length) {
        return Some(Secret::new(bytes));
    }
    let sentence = format!(
        "this secret has {length} bytes; a CHAP secret has {SECRET_MIN} to {SECRET_MAX}, and at most 16 for \
         Windows"
    );
    refuse(section, place, sentence)
}
