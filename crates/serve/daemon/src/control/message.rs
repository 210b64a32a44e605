//! Lines of the control socket: a request or a reply with the version of the protocol.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Of the protocol. What is added to it later (a request, a key of a reply) leaves it as it is; it changes when a client that
/// knows this one would misunderstand the answer.
pub const VERSION: u32 = 1;

#[derive(Serialize)]
struct Message<'a, T> {
    version: u32,
    #[serde(flatten)]
    body: &'a T,
}

/// A request or a reply as a line.
pub(super) fn line<T: Serialize>(body: &T) -> serde_json::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(&Message { version: VERSION, body })?;
    line.push(b'\n');
    Ok(line)
}

/// Reads one. The error is a sentence.
pub(super) fn read<T: DeserializeOwned>(line: &[u8]) -> Result<T, String> {
    let mut value: Value = serde_json::from_slice(line).map_err(|error| error.to_string())?;
    let version = value.as_object_mut().and_then(|message| message.remove("version"));
    match version {
        Some(version) if version != VERSION => Err(format!(
            "version {version} of the control protocol is not known here; this is version {VERSION}"
        )),
        _ => serde_json::from_value(value).map_err(|error| error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Reply, Request};
    use super::*;

    #[test]
    fn a_message_says_its_version_and_one_without_is_of_the_first() {
        let request = Request::Reload { dry_run: true, force: false };
        let text = line(&request).expect("JSON");
        assert_eq!(text, b"{\"version\":1,\"request\":\"reload\",\"dry_run\":true,\"force\":false}\n");
        assert_eq!(read(&text), Ok(request));
        assert_eq!(read(br#"{"request":"sessions"}"#), Ok(Request::Sessions));
        assert_eq!(line(&Reply::Done).expect("JSON"), b"{\"version\":1,\"reply\":\"done\"}\n");
    }

    #[test]
    fn another_version_is_refused() {
        for version in ["2", "0", "\"1\"", "1.0", "null"] {
            let text = format!(r#"{{"version":{version},"request":"sessions"}}"#);
            let refused = read::<Request>(text.as_bytes()).expect_err("it is not known");
            assert!(refused.contains("this is version 1"), "{refused}");
        }
        assert!(read::<Request>(br#"{"request":"reload","versoin":1}"#).is_err(), "nor are other keys");
    }
}
