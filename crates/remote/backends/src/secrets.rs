//! Handling of secrets:
//!
//! - reads secrets from files that only their owner can access
//! - finds secrets in URLs on the command line, which other users can list
//! - masks secrets in messages, which end up in terminals, logs and bug reports

use std::ffi::OsString;
use std::io;
use std::iter;
use std::ops::Range;
use std::sync::OnceLock;

use volume::backend::Kind;
use zeroize::Zeroizing;

use crate::GRAMMAR;

pub use iscsi_client::secret_file::{
    Exposed, exposed, in_environment, read, read_key, without_line_end,
};

/// Prompts for a secret without echo; `None` if there is no terminal.
pub type Ask = fn(&str) -> Option<io::Result<String>>;

static ASK: OnceLock<Ask> = OnceLock::new();

/// Sets the function that prompts for secrets which are neither in a file nor in the environment; once per
/// process.
pub fn ask_by(ask: Ask) {
    let _ = ASK.set(ask); // later calls have no effect
}

static WORDS: OnceLock<Vec<String>> = OnceLock::new();

/// Sets the words of the command line; once per process. A URL in such a word ends at the end of the word.
pub fn mask_words(words: impl Iterator<Item = OsString>) {
    let words = words.map(|word| word.to_string_lossy().into_owned());
    let _ = WORDS.set(words.collect()); // later calls have no effect
}

/// Prompts for a secret; `None` if there is no terminal.
///
/// # Errors
/// Reading the answer failed.
pub fn ask(question: &str) -> io::Result<Option<Zeroizing<Vec<u8>>>> {
    let answer = ASK.get().and_then(|ask| ask(question)).transpose();
    let answer = answer.map_err(|error| {
        io::Error::new(
            error.kind(),
            format!("cannot prompt for the secret: {error}"),
        )
    })?;
    Ok(answer.map(|answer| without_line_end(Zeroizing::new(answer.into_bytes()))))
}

/// Returns whether a URL contains a secret: `user%secret@`, as in libiscsi's URLs; `user:password@`, as in
/// web URLs; or the secret of the target.
pub fn is_in(url: &str) -> bool {
    let begin = authority(url);
    let end = url[begin..]
        .find(['/', '?'])
        .map_or(url.len(), |length| begin + length);
    let user = url[begin..end].rfind('@').map(|at| &url[begin..begin + at]);
    let target = query(url).any(|(key, value)| is_secret(key) && !value.is_empty());
    user.is_some_and(|user| user.contains(SEPARATORS)) || target
}

/// Replaces every character of a secret, or of a possible secret in a malformed URL, with an asterisk. The
/// columns of the URL do not change.
pub fn masked_url(url: &str) -> String {
    let values = query(url).filter_map(|(key, value)| match is_secret(key) {
        true => Some(value.start..url.len()), // the secret may contain a &
        false => (!is_known(key)).then_some(value),
    });
    let secrets: Vec<Range<usize>> = account_secret(url).into_iter().chain(values).collect();
    let is_secret = |at: usize| secrets.iter().any(|secret| secret.contains(&at));
    url.char_indices()
        .map(|(at, letter)| if is_secret(at) { '*' } else { letter })
        .collect()
}

/// Masks a text that contains one or more URLs. [Words of the command line](mask_words) are recognised.
/// Elsewhere a secret may contain spaces, and doubtful parts are masked.
pub fn masked(text: &str) -> String {
    masked_beside(text, WORDS.get().map_or(&[], Vec::as_slice))
}

fn masked_beside(text: &str, words: &[String]) -> String {
    let mut text = text.to_owned();
    for word in words {
        let masked = masked_url(word);
        // Text after a `=` may be shown without the text before it: --volume=disk=iscsi://…
        let starts = word
            .match_indices('=')
            .map(|(at, _)| at + 1)
            .filter(|at| word[*at..].contains("://"));
        for start in iter::once(0).chain(starts) {
            let (shown, hidden): (&str, String) = (
                &word[start..],
                masked.chars().skip(word[..start].chars().count()).collect(),
            );
            if shown != hidden {
                text = text.replace(shown, &hidden);
            }
        }
    }
    // A possible secret ends at the end of its line.
    text.split('\n')
        .map(masked_line)
        .collect::<Vec<String>>()
        .join("\n")
}

/// Splits a line into parts, each of which starts at a word with a URL.
fn masked_line(line: &str) -> String {
    let mut parts: Vec<String> = vec![String::new()];
    for word in line.split_inclusive(char::is_whitespace) {
        match parts.last_mut() {
            Some(part) if !word.contains("://") => part.push_str(word),
            _ => parts.push(word.to_owned()),
        }
    }
    parts.iter().map(|part| masked_part(part)).collect()
}

fn masked_part(part: &str) -> String {
    let end = part.find(char::is_whitespace).unwrap_or(part.len());
    let (first, rest) = part.split_at(end);
    if first.contains("://") && (has_open_account(first, rest) || has_open_value(first)) {
        return masked_url(part);
    }
    let masked = |word: &str| masked_url(word.trim_end()) + &word[word.trim_end().len()..];
    part.split_inclusive(char::is_whitespace)
        .map(masked)
        .collect()
}

/// Returns whether an account's secret starts in a URL and may continue after a space. It continues up to an
/// `@`, or even without one if there is a `%`, because a host contains none. A secret that has been masked
/// does not continue, and neither does a port that is followed by a path.
fn has_open_account(url: &str, rest: &str) -> bool {
    let front = &url[authority(url)..];
    let front = &front[..front.find(['/', '?', '[']).unwrap_or(front.len())];
    let Some((separator, secret)) = front
        .find(SEPARATORS)
        .map(|at| (&front[at..=at], &front[at + 1..]))
    else {
        return false;
    };
    let is_port = front.len() < url.len() - authority(url)
        && secret.bytes().all(|byte| byte.is_ascii_digit());
    let is_open = match separator {
        "%" => rest.contains('@') || !front.contains('@'),
        _ => rest.contains('@') && !is_port,
    };
    is_open && !secret.starts_with('*')
}

/// Returns whether the target's secret starts in a URL; any later word may belong to it.
fn has_open_value(url: &str) -> bool {
    query(url)
        .any(|(key, value)| is_secret(key) && !value.is_empty() && !url[value].starts_with('*'))
}

/// The characters that separate a user name from the secret.
const SEPARATORS: [char; 2] = ['%', ':'];

/// Returns the offset of the user name, host and port in a URL.
fn authority(url: &str) -> usize {
    url.find("://").map_or(0, |at| at + 3)
}

/// Returns the part of a URL after the user name. A secret may contain any character, so it ends at the last
/// `@`, wherever that is. If there is no `@` but a `%` outside of brackets, the rest of the text may be a
/// secret, because a host contains no `%`.
fn account_secret(url: &str) -> Option<Range<usize>> {
    let begin = authority(url);
    if let Some(end) = url.rfind('@') {
        let secret = begin + url.get(begin..end)?.find(SEPARATORS)? + 1..end;
        let is_path = begin == 0 && url[secret.clone()].starts_with('/'); // file:/srv/disk@1
        return (!is_path).then_some(secret);
    }
    let host = url[begin..]
        .find(['/', '?', '['])
        .map_or(url.len(), |length| begin + length);
    let percent = url[begin..host].find('%').filter(|_| begin > 0)?;
    Some(begin + percent + 1..url.len())
}

/// Returns the keys after the question mark of a URL, and the positions of their values. If a word contains
/// several URLs, returns the keys of each.
fn query(url: &str) -> impl Iterator<Item = (&str, Range<usize>)> {
    let mark = url.find('?').filter(|_| url.contains("://"));
    let mut at = mark.map_or(url.len(), |mark| mark + 1);
    url[at..].split(['?', '&']).map(move |pair| {
        let key = pair.split('=').next().unwrap_or_default();
        let end = at + pair.len();
        let value = end.min(at + key.len() + 1)..end;
        at = end + 1;
        (key, value)
    })
}

fn is_secret(key: &str) -> bool {
    ["target-secret", "target-password"].contains(&key.replace('_', "-").as_str())
}

fn is_known(key: &str) -> bool {
    GRAMMAR
        .kinds()
        .filter_map(Kind::url)
        .any(|url| (url.has_key)(key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_found_in_every_form() {
        for url in [
            "iscsi://joe%hush@san1/iqn.x/0",
            "iscsi://joe:hush@san1/iqn.x/0",
            "iscsi://joe:hu@sh@san1",
            "iscsi://san1/iqn.x/0?target-user=san&target_secret=hush",
            "iscsi://san1/iqn.x/0?target-password=hush",
        ] {
            assert!(is_in(url), "{url}");
            assert!(
                !masked_url(url).contains("hu") && masked_url(url).len() == url.len(),
                "{}",
                masked_url(url)
            );
        }
        for url in [
            "iscsi://joe@san1:3260/iqn.x:y/0?source=::1",
            "iscsi://[::1]:3260/iqn.x:y/0",
            "ram:1MiB",
        ] {
            assert!(!is_in(url), "{url}");
            assert_eq!(masked_url(url), url);
        }
    }

    #[test]
    fn what_may_be_a_secret_is_not_repeated_either() {
        for (url, expected) in [
            (
                "iscsi://joe:hu/sh@san1/iqn.x/0",
                "iscsi://joe:*****@san1/iqn.x/0",
            ),
            (
                "iscsi://joe:hu?sh@san1/iqn.x/0",
                "iscsi://joe:*****@san1/iqn.x/0",
            ),
            ("joe:hush@san1", "joe:****@san1"),
            (
                "iscsi://a/b/0?target-secrt=hush&source=::1",
                "iscsi://a/b/0?target-secrt=****&source=::1",
            ),
            (
                "iscsi://a/b/0?target-secret=hu&sh=1",
                "iscsi://a/b/0?target-secret=*******",
            ),
            ("file:/data?blok=1", "file:/data?blok=1"),
            ("file:/srv/disk@1", "file:/srv/disk@1"),
            (
                "[iscsi://a/b/0?connections=2][iscsi://a/b/0?target-secret=hu]",
                "[iscsi://a/b/0?connections=2][iscsi://a/b/0?target-secret=***",
            ),
        ] {
            assert_eq!(masked_url(url), expected);
        }
        assert_eq!(
            masked_url("disk=nbd://joe:hush@x/y"),
            "disk=nbd://joe:****@x/y"
        );
        assert_eq!(
            masked("error: 'isci://joe:hush@x' found\n"),
            "error: 'isci://joe:****@x' found\n"
        );
    }

    #[test]
    fn a_secret_in_a_url_is_not_repeated() {
        for text in [
            "iscsi://joe%hush-hush@host/iqn.x/0",
            "iscsi://joe%hush/hush@host/iqn.x/0",
            "iscsi://joe%hu?sh@host/iqn.x/0",
            "iscsi://joe%hush@hush@host/iqn.x/0",
            "iscsi://joe:hush-hush@host/iqn.x/0",
            "iscsi://joe%hush-hush",
            "nbd://joe%hush-hush/0",
            "iscsi://host/iqn.x/0?target-user=san&Target-Secret=hush-hush&chap=md5",
            "iscsi://host/iqn.x/0?target_password=hush-hush",
            "iscsi://host/iqn.x/0?target%2Dsecret=hush-hush",
            "cannot do this with 'a=delay:5ms:[iscsi://joe%hush-hush@h/iqn.x/0]' or that",
        ] {
            let shown = masked(text);
            assert!(
                !shown.contains("hu") && !shown.contains("sh@") && shown.contains("**"),
                "{shown}"
            );
            assert_eq!(
                shown.chars().count(),
                text.chars().count(),
                "a caret below it stays in its place"
            );
        }
    }

    #[test]
    fn a_secret_with_blanks_is_not_repeated() {
        for text in [
            "error: unexpected argument 'iscsi://joe%correct horse@san1/iqn.x/0' found",
            "error: unexpected argument 'iscsi://joe:correct horse@san1/iqn.x/0' found",
            "spec = \"iscsi://joe%cor@rect horse battery@san1/iqn.x/0\"",
            "spec = \"iscsi://joe%33 horse@san1/iqn.x/0\"",
            "spec = \"iscsi://san1/iqn.x/0?target-secret=correct horse\"",
            "iscsi://joe%correct horse",
            "iscsi://san1/iqn.x/0 iscsi://joe%correct horse@san1/iqn.x/0",
        ] {
            let shown = masked(text);
            assert!(
                !shown.contains("ho") && !shown.contains("rect") && shown.contains("**"),
                "{shown}"
            );
            assert_eq!(
                shown.chars().count(),
                text.chars().count(),
                "a caret below it stays in its place"
            );
        }
    }

    /// In other texts, the end of a secret that contains spaces cannot be determined. On the command line,
    /// the secret ends at the end of the word.
    #[test]
    fn a_word_of_the_command_line_is_masked_wherever_it_is_shown() {
        let words = [
            "--volume=disk=iscsi://a/b/0?target-secret=correct horse",
            "é=nbd://joe%a:b c@x",
        ];
        let words = words.map(str::to_owned);
        for (text, expected) in [
            (
                "invalid value 'disk=iscsi://a/b/0?target-secret=correct horse' for --volume",
                "invalid value 'disk=iscsi://a/b/0?target-secret=************** for --volume",
            ),
            (
                "cannot reach nbd://joe%a:b c@x: no route to host",
                "cannot reach nbd://joe%*****@x: no route to host",
            ),
        ] {
            assert_eq!(masked_beside(text, &words), expected);
        }
    }

    #[test]
    fn the_line_below_a_masked_url_stays_a_line() {
        for (url, shown) in [
            ("iscsi://a/b/0?mtux=1", "iscsi://a/b/0?mtux=*"),
            ("iscsi://j%x@a/b", "iscsi://j%*@a/b"),
        ] {
            assert_eq!(
                masked_beside(&format!("wrong\n  {url}\n    ^"), &[]),
                format!("wrong\n  {shown}\n    ^")
            );
            assert_eq!(
                masked_beside(&format!("{url} is wrong"), &[]),
                format!("{shown} is wrong")
            );
        }
    }

    #[test]
    fn what_is_no_secret_is_repeated() {
        for text in [
            "iscsi://san1:3260/iqn.2026-01.com.example:disk%20one/0?secret-file=/etc/secret&connections=4",
            "iscsi://joe@[fe80::1%25eth0]:3260/iqn.x/0",
            "iscsi://[fe80::1%25eth0]:3260/iqn.x/0",
            "write to joe@example.com: 100 % of 5 are done",
            "from iscsi://san1:3260/iqn.x/0 to iscsi://joe@san2:3260/iqn.y/0, as joe@example.com wants",
            "iscsi://joe%****@san1/iqn.x/0: a secret on the command line; 100 % of them can be read",
            "cannot listen on [::]:3260",
        ] {
            assert_eq!(masked(text), text);
        }
    }
}
