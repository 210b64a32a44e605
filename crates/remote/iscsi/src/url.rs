//! The URL of a LUN: `iscsi://[user[%secret]@]host[:port]/target/lun[?key=value&…]`.
//!
//! The form is libiscsi's, so that a URL made for QEMU or `iscsi-ls` works here; the keys after the question
//! mark are in [`settings`](crate::settings). `%` with two hexadecimal digits stands for a byte in the
//! target's name, in values, and in the secret; the first `%` of `user%secret` is what separates the two.
//! Discovery asks a portal, which is the same without a target: `iscsi://[user[%secret]@]host[:port][/][?…]`.

use std::borrow::Cow;
use std::fmt;
use std::io;
use std::net::SocketAddr;

use iscsi::chap::{Credentials, Secret};
use reactor::{BadAddress, BadHost, Ipv6Host};

use crate::settings::{SettingError, Settings};

/// A LUN of a target behind a portal.
#[derive(Clone, Debug)]
pub struct Url {
    /// Where the target is.
    pub portal: Portal,
    /// Its iSCSI name.
    pub target: String,
    /// The LUN's number, 0 to 16,383.
    pub lun: u16,
    /// Who logs in, and on what terms.
    pub settings: Settings,
}

/// A host and a TCP port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Portal {
    /// A name, an IPv4 address, or an IPv6 address without its brackets and with its zone.
    pub host: String,
    /// The port: 3260 if the URL names none.
    pub port: u16,
}

/// What is wrong with a URL, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UrlError {
    /// The first byte that is wrong, counted from 0.
    pub at: usize,
    /// What is wrong with it.
    pub problem: UrlProblem,
}

/// What can be wrong with a URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UrlProblem {
    /// It does not begin with `iscsi://`.
    Scheme,
    /// No host between `//` and the next `/`.
    NoHost,
    /// A `[` without its `]`, or something between the two that is no IPv6 address.
    Brackets,
    /// A link-local address without its interface, or with another mistake in it.
    Address(BadAddress),
    /// A `%` in the host, which is a secret's that holds a `/` or `?`: taken for the host, it would be shown.
    Percent,
    /// Not a port from 1 to 65535.
    Port,
    /// An account without a user's name.
    NoUser,
    /// `DOMAIN%5Cuser@`: in an account `%` separates the name from the secret, and stands for no byte.
    EncodedUser,
    /// `user:password@`, as URLs of the web have it.
    Password,
    /// No target name after the portal.
    NoTarget,
    /// No LUN after the target's name.
    NoLun,
    /// Not a LUN from 0 to 16383.
    Lun,
    /// `%` without two hexadecimal digits, or bytes that are not UTF-8.
    Encoding,
    /// A key or value that does not fit.
    Setting(SettingError),
    /// One session's identifier, and several sessions.
    Isid,
    /// A journal file with too small a journal, or a rule for it without the file.
    Journal,
}

impl fmt::Display for UrlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "column {}: {}", self.at + 1, self.problem)
    }
}

impl fmt::Display for UrlProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            UrlProblem::Scheme => write!(f, "the URL of an iSCSI LUN begins with iscsi://"),
            UrlProblem::NoHost => write!(f, "a host is missing: iscsi://HOST[:PORT]/TARGET/LUN"),
            UrlProblem::Brackets => write!(f, "an IPv6 address stands in brackets: [::1]"),
            UrlProblem::Address(why) => why.fmt(f),
            UrlProblem::Percent => {
                write!(f, "a host has no %; in a secret before the @, / and ? are written %2F and %3F")
            }
            UrlProblem::Port => write!(f, "a port is a number from 1 to 65535"),
            UrlProblem::NoUser => write!(f, "a user's name is missing before the @"),
            UrlProblem::EncodedUser => {
                write!(
                    f,
                    "before the @, % separates the user's name from the secret; for a name with \\ or @ write \
                     ?user=DOMAIN%5Cuser behind the LUN (a secret that begins with 5C or 40: ?secret-file=PATH)"
                )
            }
            UrlProblem::Password => {
                write!(
                    f,
                    "a user's name before the @ has no colon; for a name that has one write ?user=NAME \
                     behind the LUN, and put a secret into a file (secret-file=PATH)"
                )
            }
            UrlProblem::NoTarget => write!(f, "a target's name is missing: iscsi://HOST[:PORT]/TARGET/LUN"),
            UrlProblem::NoLun => write!(f, "a LUN is missing after the target's name, such as /0"),
            UrlProblem::Lun => write!(f, "a LUN is a number from 0 to 16383"),
            UrlProblem::Encoding => {
                write!(f, "% stands before two hexadecimal digits; write %25 for % itself")
            }
            UrlProblem::Setting(error) => error.fmt(f),
            UrlProblem::Isid => write!(f, "isid is of one session: leave it out where there are several"),
            UrlProblem::Journal => {
                write!(
                    f,
                    "a journal-file needs a journal of 64KiB or more, and journal-replay a journal-file"
                )
            }
        }
    }
}

impl std::error::Error for UrlError {}

/// The port that IANA gave to iSCSI.
pub const PORT: u16 = 3260;
const SCHEME: &str = "iscsi://";
/// What flat space addressing can say (SAM-5 4.7.7.4).
const LUN_MAX: u16 = 16_383;

impl Url {
    /// Takes a URL apart.
    pub fn parse(text: &str) -> Result<Url, UrlError> {
        let (portal, settings, path) = front(text)?;
        let (target, lun) = path.split_at_last_slash(UrlProblem::NoLun)?;
        if target.text.is_empty() {
            return Err(target.wrong(UrlProblem::NoTarget));
        }
        let number = lun.text.parse().ok().filter(|lun| *lun <= LUN_MAX);
        let number = number.ok_or_else(|| lun.wrong(UrlProblem::Lun))?;
        Ok(Url { portal, target: target.decoded()?, lun: number, settings })
    }
}

impl Portal {
    /// Takes the URL of a portal apart, which names no target, and says on what terms it is asked.
    pub fn parse(text: &str) -> Result<(Portal, Settings), UrlError> {
        let (portal, settings, _) = front(text)?;
        Ok((portal, settings))
    }

    /// Takes `HOST[:PORT]` apart, with an IPv6 address in brackets.
    pub(crate) fn from_address(text: &str) -> Option<Portal> {
        portal(UrlPart { at: 0, text }).ok()
    }

    /// Takes an address apart that a peer names, `HOST[:PORT][,TAG]` (RFC 7143 section 13.8). A link-local address comes without a zone, which
    /// differs from machine to machine: it is on the link over which the peer was asked.
    pub(crate) fn from_peer(text: &str, asked: SocketAddr) -> Result<Portal, UrlError> {
        let address = text.split_once(',').map_or(text, |(address, _tag)| address);
        let zone = match asked {
            SocketAddr::V6(asked) if asked.scope_id() != 0 => Some(asked.scope_id().to_string()),
            SocketAddr::V4(_) | SocketAddr::V6(_) => None,
        };
        portal(UrlPart { at: 0, text: &on_link(address, zone.as_deref()) })
    }

    /// The interface that a link-local address names.
    pub(crate) fn zone(&self) -> Option<String> {
        Some(self.host.parse::<Ipv6Host>().ok()?.zone()?.to_owned())
    }

    /// The addresses behind the name ([`reactor::resolve`]).
    pub async fn resolve(&self) -> io::Result<Vec<SocketAddr>> {
        reactor::resolve(&self.host, self.port).await
    }
}

impl fmt::Display for Portal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", reactor::bracketed(&self.host), self.port)
    }
}

/// Without the account and the settings: fit for a log.
impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}{}/{}/{}", self.portal, encoded(&self.target), self.lun)
    }
}

/// Everything before the path, the settings behind it, and the path itself.
fn front(text: &str) -> Result<(Portal, Settings, UrlPart<'_>), UrlError> {
    let rest = text.strip_prefix(SCHEME).ok_or(UrlError { at: 0, problem: UrlProblem::Scheme })?;
    let rest = UrlPart { at: SCHEME.len(), text: rest };
    let (rest, query) = rest.split_or_end('?');
    let (authority, path) = rest.split_or_end('/');
    let mut settings = Settings::default();
    // The last @, since a secret may hold one.
    let host = match authority.text.rfind('@') {
        Some(at) => {
            settings.account = Some(account(authority.before(at))?);
            authority.after(at + 1)
        }
        None => authority,
    };
    let portal = portal(host)?;
    for pair in query.split('&').filter(|pair| !pair.text.is_empty()) {
        let (key, value) = pair.split_or_end('=');
        let decoded = value.decoded()?;
        settings.set(key.text, &decoded).map_err(|error| pair.wrong(UrlProblem::Setting(error)))?;
        if settings.isid.is_some() && settings.paths.are_several() {
            return Err(pair.wrong(UrlProblem::Isid));
        }
    }
    if !settings.paths.is_journal_whole() {
        return Err(query.wrong(UrlProblem::Journal));
    }
    Ok((portal, settings, path))
}

fn account(part: UrlPart<'_>) -> Result<Credentials, UrlError> {
    let (user, secret) = part.split_or_end('%');
    if user.text.is_empty() {
        return Err(user.wrong(UrlProblem::NoUser));
    }
    if let Some(colon) = user.text.find(':') {
        return Err(user.after(colon).wrong(UrlProblem::Password));
    }
    // Taken for a secret, the rest of the name would be refused as a wrong one.
    if ["5C", "5c", "40"].iter().any(|byte| secret.text.starts_with(byte)) {
        return Err(user.after(user.text.len()).wrong(UrlProblem::EncodedUser));
    }
    Ok(Credentials { name: user.text.to_owned(), secret: Secret::new(secret.decoded()?.as_bytes()) })
}

/// An address that a peer behind this interface tells, `[IPv6]` and whatever follows it: with the interface, if it needs one.
pub(crate) fn on_link<'a>(address: &'a str, zone: Option<&str>) -> Cow<'a, str> {
    let inside = address.strip_prefix('[').and_then(|rest| rest.split_once(']'));
    let host = inside.and_then(|(host, rest)| Some((Ipv6Host::on_link(host, Some(zone?)).ok()?, rest)));
    host.map_or(Cow::Borrowed(address), |(host, rest)| Cow::Owned(format!("[{host}]{rest}")))
}

fn portal(part: UrlPart<'_>) -> Result<Portal, UrlError> {
    if let Some(percent) = part.text.find('%').filter(|_| !part.text.starts_with('[')) {
        return Err(part.after(percent).wrong(UrlProblem::Percent));
    }
    let (host, port) = reactor::host_and_port(part.text).map_err(|wrong| match wrong {
        BadHost::Brackets | BadHost::Address(BadAddress::Form(_)) => part.wrong(UrlProblem::Brackets),
        BadHost::Address(why) => part.after(1).wrong(UrlProblem::Address(why)),
        BadHost::Missing => part.wrong(UrlProblem::NoHost),
        BadHost::Port => {
            let host = part.text.rfind([':', ']']).unwrap_or_default();
            part.after(host).wrong(UrlProblem::Port)
        }
    })?;
    Ok(Portal { host, port: port.unwrap_or(PORT) })
}

/// A part of the URL with its offset.
#[derive(Clone, Copy)]
struct UrlPart<'a> {
    at: usize,
    text: &'a str,
}

impl<'a> UrlPart<'a> {
    fn wrong(self, problem: UrlProblem) -> UrlError {
        UrlError { at: self.at, problem }
    }

    fn before(self, at: usize) -> UrlPart<'a> {
        UrlPart { at: self.at, text: &self.text[..at] }
    }

    fn after(self, at: usize) -> UrlPart<'a> {
        UrlPart { at: self.at + at, text: &self.text[at..] }
    }

    /// What is before the first `separator` and what is behind it: nothing, if there is none.
    fn split_or_end(self, separator: char) -> (UrlPart<'a>, UrlPart<'a>) {
        match self.text.find(separator) {
            Some(at) => (self.before(at), self.after(at + separator.len_utf8())),
            None => (self, self.after(self.text.len())),
        }
    }

    fn split_at_last_slash(self, otherwise: UrlProblem) -> Result<(UrlPart<'a>, UrlPart<'a>), UrlError> {
        if self.text.is_empty() {
            return Err(self.wrong(UrlProblem::NoTarget));
        }
        let at = self.text.rfind('/').ok_or_else(|| self.after(self.text.len()).wrong(otherwise))?;
        Ok((self.before(at), self.after(at + 1)))
    }

    fn split(self, separator: char) -> impl Iterator<Item = UrlPart<'a>> {
        let mut at = self.at;
        self.text.split(separator).map(move |text| {
            let part = UrlPart { at, text };
            at += text.len() + separator.len_utf8();
            part
        })
    }

    fn decoded(self) -> Result<String, UrlError> {
        let mut bytes = Vec::with_capacity(self.text.len());
        let mut rest = self.text.bytes();
        while let Some(byte) = rest.next() {
            let byte = if byte == b'%' { hex(rest.next()).zip(hex(rest.next())) } else { Some((byte, 0)) }
                .map(|(high, low)| if byte == b'%' { high << 4 | low } else { byte });
            bytes.push(byte.ok_or_else(|| self.wrong(UrlProblem::Encoding))?);
        }
        String::from_utf8(bytes).map_err(|_| self.wrong(UrlProblem::Encoding))
    }
}

fn hex(digit: Option<u8>) -> Option<u8> {
    char::from(digit?).to_digit(16).map(|value| value as u8)
}

/// The characters that have a meaning of their own in a URL are written by their number.
fn encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.chars() {
        match byte {
            '%' | '/' | '?' | '&' | '#' | ' ' => encoded.push_str(&format!("%{:02x}", u32::from(byte))),
            other => encoded.push(other),
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn problem(text: &str) -> (usize, UrlProblem) {
        let error = Url::parse(text).expect_err(text);
        (error.at, error.problem)
    }

    #[test]
    fn every_mistake_is_shown_where_it_is() {
        assert_eq!(problem("http://a/b/0"), (0, UrlProblem::Scheme));
        assert_eq!(problem("iscsi:///iqn.x/0"), (8, UrlProblem::NoHost));
        assert_eq!(problem("iscsi://:3260/iqn.x/0"), (8, UrlProblem::NoHost));
        assert_eq!(problem("iscsi://joe%hu/sh@host/iqn.x/0"), (11, UrlProblem::Percent));
        assert_eq!(problem("iscsi://joe%hu?sh@host/iqn.x/0"), (11, UrlProblem::Percent));
        assert_eq!(problem("iscsi://[::1/iqn.x/0"), (8, UrlProblem::Brackets));
        assert_eq!(problem("iscsi://fe80::1:3260/iqn.x/0"), (8, UrlProblem::Brackets));
        assert_eq!(problem("iscsi://host:99999/iqn.x/0"), (12, UrlProblem::Port));
        assert_eq!(problem("iscsi://host:0/iqn.x/0"), (12, UrlProblem::Port));
        assert_eq!(problem("iscsi://@host/iqn.x/0"), (8, UrlProblem::NoUser));
        assert_eq!(problem("iscsi://joe:hush@host/iqn.x/0"), (11, UrlProblem::Password));
        assert_eq!(problem("iscsi://DOM%5Cuser@host/iqn.x/0"), (11, UrlProblem::EncodedUser));
        assert_eq!(problem("iscsi://joe%40example.com@host/iqn.x/0"), (11, UrlProblem::EncodedUser));
        assert_eq!(problem("iscsi://host"), (12, UrlProblem::NoTarget));
        assert_eq!(problem("iscsi://host//0"), (13, UrlProblem::NoTarget));
        assert_eq!(problem("iscsi://host/iqn.x"), (18, UrlProblem::NoLun));
        assert_eq!(problem("iscsi://host/iqn.x/16384"), (19, UrlProblem::Lun));
        assert_eq!(problem("iscsi://host/iqn.x/lun"), (19, UrlProblem::Lun));
        assert_eq!(problem("iscsi://host/iqn%2/0"), (13, UrlProblem::Encoding));
        assert!(matches!(problem("iscsi://host/iqn.x/0?speed=9"), (21, UrlProblem::Setting(_))));
    }

    #[test]
    fn a_plain_url_has_the_registered_port() {
        let url = Url::parse("iscsi://san1/iqn.2026-01.io.linerate:disk/7").unwrap();
        assert_eq!(url.portal, Portal { host: "san1".to_owned(), port: 3260 });
        assert_eq!((url.target.as_str(), url.lun), ("iqn.2026-01.io.linerate:disk", 7));
        assert!(url.settings.account.is_none());
    }

    #[test]
    fn several_sessions_have_their_own_keys() {
        let url =
            Url::parse("iscsi://a/iqn.x/0?address=b:3261&address=[::1]&sessions=4&journal=1MiB").unwrap();
        let portal = |host: &str, port| Portal { host: host.to_owned(), port };
        assert_eq!(url.settings.paths.addresses, [portal("b", 3261), portal("::1", 3260)]);
        assert!(url.settings.paths.are_several());
        for one in ["", "?sessions=1", "?source=10.0.0.1&quarantine=0"] {
            let url = Url::parse(&format!("iscsi://a/iqn.x/0{one}")).unwrap();
            assert!(!url.settings.paths.are_several(), "{one}");
        }
        let two = "iscsi://a/iqn.x/0?isid=800000000001&sessions=2";
        assert_eq!(problem(two), (36, UrlProblem::Isid));
    }

    #[test]
    fn an_ipv6_address_stands_in_brackets() {
        let url = Url::parse("iscsi://[2001:db8::1]:3261/iqn.x:y/0").unwrap();
        assert_eq!(url.portal, Portal { host: "2001:db8::1".to_owned(), port: 3261 });
        assert_eq!(url.to_string(), "iscsi://[2001:db8::1]:3261/iqn.x:y/0");
    }

    #[test]
    fn a_link_local_address_names_its_interface() {
        for text in
            ["iscsi://[fe80::1%25eth0]:3261/iqn.x:y/0", "iscsi://joe%hush@[fe80::1%eth0]:3261/iqn.x:y/0"]
        {
            let url = Url::parse(text).unwrap();
            assert_eq!(url.portal, Portal { host: "fe80::1%eth0".to_owned(), port: 3261 });
            assert_eq!(url.to_string(), "iscsi://[fe80::1%eth0]:3261/iqn.x:y/0");
        }
        let (at, problem) = problem("iscsi://[fe80::1]/iqn.x:y/0");
        assert_eq!((at, problem.to_string().contains("fe80::1%eth0")), (9, true));
    }

    #[test]
    fn a_link_local_address_from_a_peer_is_on_the_link_of_the_peer() {
        let asked = "[fe80::7%2]:3260".parse().unwrap();
        let portal = |text| Portal::from_peer(text, asked).map(|portal| portal.to_string());
        assert_eq!(portal("[fe80::1]:3261,1").as_deref(), Ok("[fe80::1%2]:3261"));
        assert_eq!(portal("[2001:db8::1],1").as_deref(), Ok("[2001:db8::1]:3260"));
        assert_eq!(portal("san1:3261").as_deref(), Ok("san1:3261"));
        let elsewhere = Portal::from_peer("[fe80::1],1", "10.0.0.1:3260".parse().unwrap());
        assert!(matches!(elsewhere, Err(UrlError { problem: UrlProblem::Address(_), .. })));
    }

    #[test]
    fn a_secret_may_hold_any_character_and_is_never_printed() {
        let url = Url::parse("iscsi://joe%p%40ss@w%25rd@host/iqn.x/0").unwrap();
        let account = url.settings.account.clone().unwrap();
        assert_eq!((account.name.as_str(), account.secret), ("joe", Secret::new(b"p@ss@w%rd")));
        assert!(!format!("{url} {url:?}").contains("ss@w"));
    }

    #[test]
    fn a_portal_needs_no_target() {
        for text in ["iscsi://host:3261", "iscsi://host:3261/", "iscsi://host:3261/?header-digest=crc32c"] {
            assert_eq!(Portal::parse(text).unwrap().0, Portal { host: "host".to_owned(), port: 3261 });
        }
    }

    proptest! {
        #[test]
        fn any_text_is_parsed_or_refused(text in "(iscsi://)?[ -~é]{0,60}") {
            if let Err(error) = Url::parse(&text) {
                prop_assert!(error.at <= text.len(), "{error:?}");
            }
        }

        #[test]
        fn what_is_printed_is_parsed_again(
            host in "[a-z0-9.-]{1,20}", port in 1u16.., target in "[ -~]{1,40}", lun in 0u16..16384,
        ) {
            let printed = format!("{SCHEME}{host}:{port}/{}/{lun}", encoded(&target));
            let url = Url::parse(&printed).unwrap();
            prop_assert_eq!(&url.target, &target);
            prop_assert_eq!(url.to_string(), printed);
        }
    }
}
