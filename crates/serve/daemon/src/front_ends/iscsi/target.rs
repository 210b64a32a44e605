//! `[[target]]`: a target, its access control and its LUNs. `[target.chap]` and `[discovery.chap]`: CHAP
//! authentication (RFC 7143 sections 9.2.1 and 12.1.3). `[target.session]`: the values that a target offers
//! and accepts at login (section 13). By the rules of the standard, the result of a negotiation is the
//! minimum of two numbers, or the OR or AND of two Boolean values.

use std::ops::Range;
use std::str::FromStr;

use front_end_core::{Network, Portal};
use iscsi::chap::{Algorithm, Credentials, Secret};
use iscsi::name::{NAME_BYTES_MAX, Name, TargetAddress};
use iscsi::negotiate::{DigestKind, Offers};
use iscsi::text::PrintableText;
use iscsi_server::{NamePattern, Redirect};
use volume::spec::Bytes;

use crate::config::Document;
use crate::config::section::{Placed, Section};
use crate::config::values::{Unfit, VolumeName, one_of};
use crate::front_ends::exposed::{AccessLists, Contents, Exposed, Lun, before, differing, texts};
use crate::front_ends::sections::luns;

/// A target and its access control.
#[derive(Clone, Debug, PartialEq)]
pub struct Target {
    /// Its iSCSI name.
    pub name: Name,
    /// A descriptive name.
    pub alias: Option<PrintableText>,
    /// The portal groups that reach it; `None` means all.
    pub groups: Option<Vec<u16>>,
    /// Initiators that may use it; `None` for any.
    pub initiators: Option<Vec<NamePattern>>,
    /// The networks that initiators may connect from; `None` allows any.
    pub networks: Option<Vec<Network>>,
    /// The authentication of initiators.
    pub chap: Option<Chap>,
    /// The values that it offers and accepts at login.
    pub offers: Offers,
    /// Whether the target appears not to exist to initiators without access.
    pub hidden: bool,
    /// The address to which logins are redirected.
    pub redirect: Option<Redirect>,
    /// Its LUNs, each number once.
    pub luns: Vec<Lun>,
}

impl Target {
    /// Creates a target for any initiator, with one volume at LUN 0.
    pub(super) fn of_volume(volume: &VolumeName) -> Target {
        Target {
            name: own_target(volume),
            alias: None,
            groups: None,
            initiators: None,
            networks: None,
            chap: None,
            offers: Offers::of_target(),
            hidden: true,
            redirect: None,
            luns: vec![Lun {
                lun: 0,
                volume: volume.clone(),
                initiators: None,
            }],
        }
    }

    /// Whether the target is accessible through portals of this group.
    pub(super) fn is_in(&self, group: u16) -> bool {
        self.groups
            .as_ref()
            .is_none_or(|groups| groups.contains(&group))
    }

    /// Reads a target; returns it with its name and the position of the name. `groups` are the groups of all
    /// portals.
    pub(super) fn read(
        section: &Section<'_>,
        document: &Document<'_>,
        groups: &[u16],
    ) -> Option<(Name, Range<usize>, Option<Target>)> {
        let name = section.required(
            "name",
            section.parsed::<Name>("name"),
            "\"iqn.2026-01.com.example:disks\"",
        );
        let alias = section.parsed("alias").map(|alias| alias.value);
        let groups = reached_groups(section, groups);
        let (initiators, networks) = (patterns(section), section.list("networks"));
        let chap = section.section("chap", "[target.chap]");
        let chap = chap.and_then(|section| Chap::read(&section, Protected::Target));
        let offers = section.section("session", "[target.session]");
        let offers = offers.map_or_else(Offers::of_target, |section| read_offers(&section));
        let hidden = section.flag("hidden").unwrap_or(true);
        let redirect = section.section("redirect", "[target.redirect]");
        let (redirected, redirect) = (
            redirect.is_some(),
            redirect.as_ref().and_then(read_redirect),
        );
        let luns = luns(section, "[[target.lun]]", document, patterns);
        section.done();
        // A target may have no LUN if it has host settings: they remain after its last volume is removed, and
        // apply to the next volume.
        let says_more = [
            "alias",
            "groups",
            "initiators",
            "networks",
            "chap",
            "session",
            "hidden",
        ];
        if !section.has("lun") && !redirected && !says_more.iter().any(|key| section.has(key)) {
            let sentence = "this target has no LUN; add [[target.lun]] with lun = 0 and volume = \"…\" below it";
            section.mistakes.add(section.at(), sentence);
        }
        let Placed { value, at } = name?;
        let name = value.normalised();
        let target = Target {
            name: name.clone(),
            alias,
            groups,
            initiators,
            networks,
            chap,
            offers,
            hidden,
            redirect,
            luns,
        };
        Some((name, at, Some(target)))
    }
}

/// Returns the name of the target created for a single volume of the command line or of `server add`.
pub(super) fn own_target(volume: &VolumeName) -> Name {
    // Volume names contain only characters that are valid in iSCSI names, and are short enough: `VolumeName`
    // enforces both.
    let name = Name::new(&format!("iqn.2026-01.io.linerate:{volume}"));
    name.expect("a volume's name makes an iSCSI name")
        .normalised()
}

/// Reports a group without a portal: the target would be unreachable.
fn reached_groups(section: &Section<'_>, known: &[u16]) -> Option<Vec<u16>> {
    let groups = section.counts("groups", 1..=65_535)?;
    for group in groups
        .iter()
        .filter(|group| !known.contains(&(group.value as u16)))
    {
        let sentence = format!(
            "no [[portal]] has group = {}; add it to a [[portal]], or remove it here",
            group.value
        );
        section.mistakes.add(group.at.clone(), sentence);
    }
    Some(groups.iter().map(|group| group.value as u16).collect())
}

fn read_redirect(section: &Section<'_>) -> Option<Redirect> {
    let address = section.required(
        "address",
        section.parsed::<TargetAddress>("address"),
        "\"192.0.2.2:3260\"",
    );
    let permanent = section.flag("permanent").unwrap_or(false);
    section.done();
    Some(Redirect {
        address: address?.value,
        permanent,
    })
}

impl Exposed for Target {
    fn name(&self) -> String {
        self.name.to_string()
    }

    fn words(&self) -> [&'static str; 2] {
        ["", "target "]
    }

    fn contents(&self) -> Contents<'_> {
        Contents::Luns(&self.luns)
    }

    fn audience(&self, lun: Option<&Lun>) -> String {
        let is_listed =
            self.initiators.is_some() || lun.is_some_and(|lun| lun.initiators.is_some());
        let who = if is_listed {
            "listed initiators"
        } else {
            "any initiator"
        };
        let near = if self.networks.is_none() {
            ""
        } else {
            " in listed networks"
        };
        let proof = match &self.chap {
            Some(chap) if chap.mutual.is_some() => ", with mutual CHAP",
            Some(_) => ", with CHAP",
            None => "",
        };
        let elsewhere = self
            .redirect
            .as_ref()
            .map(|redirect| format!(", moved to {}", redirect.address));
        format!("{who}{near}{proof}{}", elsewhere.unwrap_or_default())
    }

    fn access(&self) -> AccessLists {
        let accounts = self.chap.iter().flat_map(|chap| &chap.accounts);
        AccessLists {
            alias: self.alias.as_ref().map(ToString::to_string),
            initiators: texts(self.initiators.as_ref()),
            networks: texts(self.networks.as_ref()),
            users: accounts
                .map(|account| account.credentials.name.clone())
                .collect(),
            redirect: self
                .redirect
                .as_ref()
                .map(|redirect| redirect.address.to_string()),
        }
    }

    fn is_reached_by(&self, portal: &Portal) -> bool {
        self.is_in(portal.tag)
    }

    fn differences(&self, old: &dyn Exposed) -> Vec<&'static str> {
        // All fields are listed, so that a new field must be compared, or omitted deliberately.
        let Target {
            name: _,
            alias,
            groups,
            initiators,
            networks,
            chap,
            offers,
            hidden,
            redirect,
            luns: _,
        } = self;
        let old: &Target = before(old);
        differing(&[
            (old.alias != *alias, "alias"),
            (old.groups != *groups, "portal groups"),
            (old.initiators != *initiators, "initiators"),
            (old.networks != *networks, "networks"),
            (old.chap != *chap, "CHAP accounts"),
            (old.offers != *offers, "negotiated keys (for new sessions)"),
            (old.hidden != *hidden, "visibility in discovery"),
            (old.redirect != *redirect, "redirection"),
        ])
    }

    fn is_for_others(&self, old: &dyn Exposed) -> bool {
        let old: &Target = before(old);
        old.initiators != self.initiators || old.networks != self.networks || old.chap != self.chap
    }
}

/// An iSCSI name, or the beginning of a name followed by `*`.
struct InitiatorPattern(NamePattern);

/// Reads the `initiators` of a section; `None` allows any.
fn patterns(section: &Section<'_>) -> Option<Vec<NamePattern>> {
    Some(
        section
            .list::<InitiatorPattern>("initiators")?
            .into_iter()
            .map(|pattern| pattern.0)
            .collect(),
    )
}

impl FromStr for InitiatorPattern {
    type Err = Unfit;

    fn from_str(text: &str) -> Result<InitiatorPattern, Unfit> {
        match text.strip_suffix('*') {
            // A text of any other form is probably an error; a star marks it as intended.
            None => Name::new(text).map(drop).map_err(|error| {
                Unfit(format!(
                    "{error}; for an initiator whose name has another form write `{text}*`"
                ))
            })?,
            Some(stem) if stem.len() <= NAME_BYTES_MAX && stem.bytes().all(legal) => {}
            Some(stem) => {
                let sentence = format!(
                    "`{stem}` is not the start of an iSCSI name; write one such as iqn.1993-08.org.debian:*"
                );
                return Err(Unfit(sentence));
            }
        }
        Ok(InitiatorPattern(NamePattern::new(text)))
    }
}

/// Whether this is an ASCII character that is valid in names (RFC 7143 section 4.2.7.1), or the underscore
/// that some appliances use.
fn legal(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-.:_".contains(&byte)
}

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

struct UserAndSecret<'a> {
    user: Placed<&'a str>,
    credentials: Credentials,
}

/// An account that may log in.
#[derive(Clone, Debug, PartialEq)]
pub struct Account {
    /// Its user name and secret.
    pub credentials: Credentials,
    /// The initiator names that the user may present; `None` allows any. A target has either a single
    /// account, or initiator names for each account.
    pub initiators: Option<Vec<NamePattern>>,
}

/// The scope of a `chap` section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Protected {
    /// A target: sessions, LUNs and reservations depend on the initiator's name.
    Target,
    /// Discovery, which returns only names and addresses.
    Discovery,
}

/// An algorithm, by its name in the file.
struct NamedAlgorithm(Algorithm);

const ALGORITHMS: &[(&str, Algorithm)] = &[
    ("sha3-256", Algorithm::Sha3_256),
    ("sha256", Algorithm::Sha256),
    ("sha1", Algorithm::Sha1),
    ("md5", Algorithm::Md5),
];

impl FromStr for NamedAlgorithm {
    type Err = Unfit;

    fn from_str(text: &str) -> Result<NamedAlgorithm, Unfit> {
        one_of("algorithm", text, ALGORITHMS).map(NamedAlgorithm)
    }
}

/// Minimum length of a secret, 96 bits: shorter secrets "MUST NOT" be used without IPsec (RFC 7143 section
/// 9.2.1).
const SECRET_MIN: usize = 12;
/// Maximum length of a secret, more than the longest CHAP_R of any algorithm.
const SECRET_MAX: usize = 255;

impl Chap {
    pub(super) fn read(section: &Section<'_>, protected: Protected) -> Option<Chap> {
        let title = section.title().trim_matches(['[', ']']);
        let sections = section.sections("account", &format!("[[{title}.account]]"));
        let found: Vec<FoundAccount<'_>> = sections.iter().filter_map(account).collect();
        let mutual = section
            .section("mutual", &format!("[{title}.mutual]"))
            .and_then(|section| {
                let found = user_and_secret(&section);
                section.done();
                found
            });
        let algorithms = section.list::<NamedAlgorithm>("algorithms");
        section.done();
        if !section.has("account") {
            let sentence = format!(
                "{} has no account; write [[{title}.account]] with user and secret",
                section.title()
            );
            section.mistakes.add(section.at(), sentence);
        }
        for (index, (one, _)) in found.iter().enumerate() {
            if found
                .iter()
                .take(index)
                .any(|(other, _)| other.user.value == one.user.value)
            {
                let sentence = format!(
                    "the user `{}` has two secrets; keep one account",
                    one.user.value
                );
                section.mistakes.add(one.user.at.clone(), sentence);
            }
        }
        if protected == Protected::Target {
            each_user_has_its_names(section, &found);
        }
        // With one secret for both directions an attacker can answer our challenge with our own response
        // ("the secret used by the initiator MUST be different", RFC 7143 section 9.2.1).
        if let Some(mutual) = &mutual
            && found
                .iter()
                .any(|(one, _)| one.credentials.secret == mutual.credentials.secret)
        {
            let sentence =
                "the target's secret is also an initiator's; use a different secret for the target";
            section.mistakes.add(mutual.user.at.clone(), sentence);
        }
        let account = |(found, initiators): FoundAccount<'_>| Account {
            credentials: found.credentials,
            initiators,
        };
        Some(Chap {
            accounts: found.into_iter().map(account).collect(),
            mutual: mutual.map(|found| found.credentials),
            algorithms: match algorithms {
                Some(algorithms) => algorithms
                    .into_iter()
                    .map(|NamedAlgorithm(algorithm)| algorithm)
                    .collect(),
                None => Algorithm::ALL.to_vec(),
            },
        })
    }
}

/// An account's user and secret, and its initiator names.
type FoundAccount<'a> = (UserAndSecret<'a>, Option<Vec<NamePattern>>);

/// Reservations and LUNs depend on initiator names, which are not authenticated. If a target has several
/// users, each of them therefore needs its own names, or must explicitly be allowed any name.
fn each_user_has_its_names(section: &Section<'_>, accounts: &[FoundAccount<'_>]) {
    for (found, _) in accounts
        .iter()
        .filter(|(_, initiators)| initiators.is_none())
    {
        if accounts
            .iter()
            .all(|(other, _)| other.user.value == found.user.value)
        {
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

fn account<'a>(section: &Section<'a>) -> Option<FoundAccount<'a>> {
    let initiators = patterns(section);
    let found = user_and_secret(section);
    section.done();
    Some((found?, initiators))
}

fn user_and_secret<'a>(section: &Section<'a>) -> Option<UserAndSecret<'a>> {
    let user = section.required("user", section.text("user"), "\"alice\"");
    let secret = section.secret("12 to 16 letters");
    let secret = secret.and_then(|(place, bytes)| checked(section, &place, &bytes));
    let (user, secret) = (user?, secret?);
    if let Err(why) = user.value.parse::<PrintableText>() {
        return refuse(
            section,
            &user,
            format!("this is not a valid user name: {why}; write one such as \"alice\""),
        );
    }
    let credentials = Credentials {
        name: user.value.to_owned(),
        secret,
    };
    Some(UserAndSecret { user, credentials })
}

fn refuse<T>(
    section: &Section<'_>,
    place: &Placed<&str>,
    sentence: impl Into<String>,
) -> Option<T> {
    section.mistakes.add(place.at.clone(), sentence);
    None
}

fn checked(section: &Section<'_>, place: &Placed<&str>, bytes: &[u8]) -> Option<Secret> {
    let length = bytes.len();
    if (SECRET_MIN..=SECRET_MAX).contains(&length) {
        return Some(Secret::new(bytes));
    }
    let sentence = format!(
        "this secret has {length} bytes; a CHAP secret needs {SECRET_MIN} to {SECRET_MAX}; Windows: up to 16"
    );
    refuse(section, place, sentence)
}

/// A digest, by its name in the file.
struct NamedDigest(DigestKind);

const DIGESTS: &[(&str, DigestKind)] =
    &[("none", DigestKind::None), ("crc32c", DigestKind::Crc32c)];

impl FromStr for NamedDigest {
    type Err = Unfit;

    fn from_str(text: &str) -> Result<NamedDigest, Unfit> {
        one_of("digest", text, DIGESTS).map(NamedDigest)
    }
}

/// 512 to 2^24 - 1: the lengths that the standard allows for segments and bursts alike (sections 13.12 to
/// 13.14).
const LENGTHS: std::ops::RangeInclusive<u64> = 512..=0xff_ffff;

/// Reads `[target.session]`; omitted keys have the target's defaults.
fn read_offers(section: &Section<'_>) -> Offers {
    let usual = Offers::of_target();
    let max_burst_length = length(section, "max-burst").unwrap_or(usual.max_burst_length);
    let offers = Offers {
        initial_r2t: section.flag("initial-r2t").unwrap_or(usual.initial_r2t),
        immediate_data: section
            .flag("immediate-data")
            .unwrap_or(usual.immediate_data),
        max_burst_length,
        first_burst_length: first_burst(section, max_burst_length)
            .unwrap_or(usual.first_burst_length.min(max_burst_length)),
        max_recv_data_segment_length: length(section, "max-segment")
            .unwrap_or(usual.max_recv_data_segment_length),
        max_outstanding_r2t: section
            .count("max-outstanding-r2t", 1..=65_535)
            .map_or(usual.max_outstanding_r2t, |count| count.value as u16),
        header_digest: digests(section, "header-digest").unwrap_or(usual.header_digest),
        data_digest: digests(section, "data-digest").unwrap_or(usual.data_digest),
        ..Offers::of_target()
    };
    section.done();
    offers
}

fn length(section: &Section<'_>, key: &'static str) -> Option<u32> {
    let bytes = section.parsed::<Bytes>(key)?;
    if LENGTHS.contains(&bytes.value.0) {
        return Some(bytes.value.0 as u32);
    }
    let sentence = format!(
        "`{key}`: {} is out of range; write 512B to 16777215B",
        bytes.value
    );
    section.mistakes.add(bytes.at, sentence);
    None
}

/// "FirstBurstLength MUST NOT exceed MaxBurstLength" (section 13.14).
fn first_burst(section: &Section<'_>, max_burst: u32) -> Option<u32> {
    let first = length(section, "first-burst")?;
    if first <= max_burst {
        return Some(first);
    }
    let sentence = format!(
        "`first-burst` must not be larger than `max-burst`, which is {}",
        Bytes(max_burst.into())
    );
    section
        .mistakes
        .add(section.placed("first-burst"), sentence);
    None
}

/// Reads the digests that a login may negotiate.
fn digests(section: &Section<'_>, key: &'static str) -> Option<Vec<DigestKind>> {
    Some(
        section
            .list::<NamedDigest>(key)?
            .into_iter()
            .map(|NamedDigest(digest)| digest)
            .collect(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_name_of_a_volume_makes_the_name_of_a_target() {
        let volume = "vm-1.".to_owned() + &"x".repeat(59);
        let name = own_target(&volume.parse().expect("64 letters"));
        assert_eq!(name.as_str(), format!("iqn.2026-01.io.linerate:{volume}"));
    }

    #[test]
    fn a_pattern_is_a_name_or_the_beginning_of_one() {
        assert!(
            "iqn.1993-08.org.debian:*"
                .parse::<InitiatorPattern>()
                .is_ok()
        );
        assert!(
            "iqn.1993-08.org.debian:01:abc"
                .parse::<InitiatorPattern>()
                .is_ok()
        );
        assert!("*".parse::<InitiatorPattern>().is_ok());
        let long = format!("iqn.1993-08.org.debian:{}*", "x".repeat(300));
        for bad in [
            "",
            "debian",
            "iqn.1993-08.org.debian*:x",
            "a b*",
            "iqn.a\n*",
            &long,
        ] {
            assert!(bad.parse::<InitiatorPattern>().is_err(), "{bad}");
        }
    }
}
