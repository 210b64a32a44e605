//! Secrets in what people typed. None belongs into a URL on a command line, where anybody may list it, and none is
//! repeated: an error may end in a log.

use std::ops::Range;

use initiator::Settings;

/// Whether a URL holds a secret: `user%secret@`, as libiscsi writes it, `user:password@`, as the web does, or the target's.
pub(crate) fn is_in(url: &str) -> bool {
    let begin = authority(url);
    let end = url[begin..].find(['/', '?']).map_or(url.len(), |length| begin + length);
    let user = url[begin..end].rfind('@').map(|at| &url[begin..begin + at]);
    let target = query(url).any(|(key, value)| is_secret(key) && !value.is_empty());
    user.is_some_and(|user| user.contains(SEPARATORS)) || target
}

/// The same text, and a star for every letter of what is a secret, or may be one in a URL that has a mistake: the letters
/// keep their columns.
pub(crate) fn masked(url: &str) -> String {
    let begin = authority(url);
    // A password may hold any character, so that the last @ counts, wherever it is.
    let user = url.rfind('@').and_then(|end| {
        let separator = url.get(begin..end)?.find(SEPARATORS)?;
        Some(begin + separator + 1..end)
    });
    let values = query(url).filter_map(|(key, value)| match is_secret(key) {
        true => Some(value.start..url.len()), // it may hold a & as well
        false => (!is_known(key)).then_some(value),
    });
    let secrets: Vec<Range<usize>> = user.into_iter().chain(values).collect();
    let is_secret = |at: usize| secrets.iter().any(|secret| secret.contains(&at));
    url.char_indices().map(|(at, letter)| if is_secret(at) { '*' } else { letter }).collect()
}

/// Any text with a URL in it, or several.
pub(crate) fn masked_words(text: &str) -> String {
    text.split_inclusive(char::is_whitespace).map(masked).collect()
}

/// Between a user's name and the secret.
const SEPARATORS: [char; 2] = ['%', ':'];

/// Where user, host and port begin.
fn authority(url: &str) -> usize {
    url.find("://").map_or(0, |at| at + 3)
}

/// The keys behind the question mark of a URL, and where their values are.
fn query(url: &str) -> impl Iterator<Item = (&str, Range<usize>)> {
    let mark = url.find('?').filter(|_| url.contains("://"));
    let mut at = mark.map_or(url.len(), |mark| mark + 1);
    url[at..].split('&').map(move |pair| {
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
            assert!(!masked(url).contains("hu") && masked(url).len() == url.len(), "{}", masked(url));
        }
        for url in ["iscsi://joe@san1:3260/iqn.x:y/0?source=::1", "iscsi://[::1]:3260/iqn.x:y/0", "ram:1MiB"]
        {
            assert!(!is_in(url), "{url}");
            assert_eq!(masked(url), url);
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
        ] {
            assert_eq!(masked(url), expected);
        }
        assert_eq!(masked("disk=nbd://joe:hush@x/y"), "disk=nbd://joe:****@x/y");
        assert_eq!(masked_words("error: 'isci://joe:hush@x' found\n"), "error: 'isci://joe:****@x' found\n");
    }
}
