//! Secrets where they must not be: in URLs on a command line, which anybody may list, in files that others may read, and
//! in what is said to people, which ends in terminals, journals and reports.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use initiator::Settings;
use zeroize::Zeroizing;

/// A file with a secret in it that others than its owner may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Exposed {
    path: PathBuf,
    mode: u32,
}

impl fmt::Display for Exposed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (path, mode) = (self.path.display(), self.mode);
        write!(f, "{path} holds a secret, and its mode {mode:o} lets others use it; `chmod 600 {path}`")
    }
}

/// What is in a file that holds a secret, and whether others may use it.
pub(crate) fn read(path: &Path) -> io::Result<(Zeroizing<Vec<u8>>, Option<Exposed>)> {
    let mut file = File::open(path)?;
    // Of what was opened: the name may lead elsewhere by now.
    let exposed = exposed(path, file.metadata()?.permissions().mode());
    // With room for all of it, so that no part is left behind where it was moved from.
    let mut bytes = Zeroizing::new(Vec::with_capacity(2 * SECRET_FILE_BYTES_MAX));
    file.by_ref().take(SECRET_FILE_BYTES_MAX as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > SECRET_FILE_BYTES_MAX {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "it is too long to hold a secret"));
    }
    Ok((bytes, exposed))
}

/// Whether a file of this mode is open to others.
pub(crate) fn exposed(path: &Path, mode: u32) -> Option<Exposed> {
    const OTHERS: u32 = 0o077;
    (mode & OTHERS != 0).then(|| Exposed { path: path.to_owned(), mode: mode & 0o777 })
}

/// A longer file holds something else.
const SECRET_FILE_BYTES_MAX: usize = 4096;

/// Whether a URL holds a secret: `user%secret@`, as libiscsi writes it, `user:password@`, as the web does, or the target's.
pub(crate) fn is_in(url: &str) -> bool {
    let begin = authority(url);
    let end = url[begin..].find(['/', '?']).map_or(url.len(), |length| begin + length);
    let user = url[begin..end].rfind('@').map(|at| &url[begin..begin + at]);
    let target = query(url).any(|(key, value)| is_secret(key) && !value.is_empty());
    user.is_some_and(|user| user.contains(SEPARATORS)) || target
}

/// The same URL, and a star for every letter of what is a secret, or may be one in a URL that has a mistake: the letters
/// keep their columns.
pub(crate) fn masked_url(url: &str) -> String {
    let values = query(url).filter_map(|(key, value)| match is_secret(key) {
        true => Some(value.start..url.len()), // it may hold a & as well
        false => (!is_known(key)).then_some(value),
    });
    let secrets: Vec<Range<usize>> = account_secret(url).into_iter().chain(values).collect();
    let is_secret = |at: usize| secrets.iter().any(|secret| secret.contains(&at));
    url.char_indices().map(|(at, letter)| if is_secret(at) { '*' } else { letter }).collect()
}

/// Any text with a URL in it, or several.
pub(crate) fn masked(text: &str) -> String {
    text.split_inclusive(char::is_whitespace).map(masked_url).collect()
}

/// Between a user's name and the secret.
const SEPARATORS: [char; 2] = ['%', ':'];

/// Where user, host and port begin.
fn authority(url: &str) -> usize {
    url.find("://").map_or(0, |at| at + 3)
}

/// What follows the user. A secret may hold any character, so the last `@` counts, wherever it is; without one, a host
/// has no `%` outside of brackets, and the rest of the text is suspect.
fn account_secret(url: &str) -> Option<Range<usize>> {
    let begin = authority(url);
    if let Some(end) = url.rfind('@') {
        let secret = begin + url.get(begin..end)?.find(SEPARATORS)? + 1..end;
        let is_path = begin == 0 && url[secret.clone()].starts_with('/'); // file:/srv/disk@1
        return (!is_path).then_some(secret);
    }
    let host = url[begin..].find(['/', '?', '[']).map_or(url.len(), |length| begin + length);
    let percent = url[begin..host].find('%').filter(|_| begin > 0)?;
    Some(begin + percent + 1..url.len())
}

/// The keys behind the question mark of a URL, and where their values are. Of several URLs in one word, each has one.
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
    Settings::keys().any(|(name, _)| name == key.replace('_', "-"))
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
        for url in ["iscsi://joe@san1:3260/iqn.x:y/0?source=::1", "iscsi://[::1]:3260/iqn.x:y/0", "ram:1MiB"]
        {
            assert!(!is_in(url), "{url}");
            assert_eq!(masked_url(url), url);
        }
    }

    #[test]
    fn what_may_be_a_secret_is_not_repeated_either() {
        for (url, expected) in [
            ("iscsi://joe:hu/sh@san1/iqn.x/0", "iscsi://joe:*****@san1/iqn.x/0"),
            ("iscsi://joe:hu?sh@san1/iqn.x/0", "iscsi://joe:*****@san1/iqn.x/0"),
            ("joe:hush@san1", "joe:****@san1"),
            ("iscsi://a/b/0?target-secrt=hush&source=::1", "iscsi://a/b/0?target-secrt=****&source=::1"),
            ("iscsi://a/b/0?target-secret=hu&sh=1", "iscsi://a/b/0?target-secret=*******"),
            ("file:/data?blok=1", "file:/data?blok=1"),
            ("file:/srv/disk@1", "file:/srv/disk@1"),
            (
                "[iscsi://a/b/0?connections=2][iscsi://a/b/0?target-secret=hu]",
                "[iscsi://a/b/0?connections=2][iscsi://a/b/0?target-secret=***",
            ),
        ] {
            assert_eq!(masked_url(url), expected);
        }
        assert_eq!(masked_url("disk=nbd://joe:hush@x/y"), "disk=nbd://joe:****@x/y");
        assert_eq!(masked("error: 'isci://joe:hush@x' found\n"), "error: 'isci://joe:****@x' found\n");
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
            assert!(!shown.contains("hu") && !shown.contains("sh@") && shown.contains("**"), "{shown}");
            assert_eq!(shown.chars().count(), text.chars().count(), "a caret below it stays in its place");
        }
    }

    #[test]
    fn what_is_no_secret_is_repeated() {
        for text in [
            "iscsi://san1:3260/iqn.2026-01.com.example:disk%20one/0?secret-file=/etc/secret&connections=4",
            "iscsi://joe@[fe80::1%25eth0]:3260/iqn.x/0",
            "iscsi://[fe80::1%25eth0]:3260/iqn.x/0",
            "write to joe@example.com: 100 % of 5 are done",
            "cannot listen on [::]:3260",
        ] {
            assert_eq!(masked(text), text);
        }
    }

    #[test]
    fn a_file_that_others_may_use_is_told() {
        let said = exposed(Path::new("/etc/linerate.toml"), 0o100_640).map(|exposed| exposed.to_string());
        let expected = "/etc/linerate.toml holds a secret, and its mode 640 lets others use it; `chmod 600 /etc/linerate.toml`";
        assert_eq!(said.as_deref(), Some(expected));
        assert_eq!(exposed(Path::new("/etc/linerate.toml"), 0o100_600), None);
    }
}
