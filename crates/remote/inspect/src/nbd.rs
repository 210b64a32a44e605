//! Describes an export of an NBD server, and lists the exports of a server.

use std::fmt::Write as _;

use backends::Failure;
use nbd_client::flags::transmission;
use nbd_client::{ReplyForm, Url};
use readable::figures::grouped;
use serde::Serialize;
use volume::spec::Bytes;

use crate::pages::Answer;

/// A server's description of an export.
#[derive(Serialize)]
struct ExportInfo {
    url: String,
    export: String,
    description: String,
    bytes: u64,
    read_only: bool,
    /// Whether the server reports a rotational medium.
    rotational: bool,
    minimum_block: u32,
    preferred_block: u32,
    maximum_payload: u32,
    /// `simple`, `structured` or `extended`.
    replies: &'static str,
    base_allocation: bool,
    /// Other features, by their names in the standard.
    features: Vec<&'static str>,
    /// Whether the server ends connections that the client reports as lost, so that none of their writes is
    /// executed late. False also means that this is unknown.
    fences: bool,
    channels: Vec<ChannelInfo>,
}

/// A channel to the server.
#[derive(Serialize)]
struct ChannelInfo {
    path: String,
    connected: bool,
    last_error: Option<String>,
    reconnects: u64,
}

/// Transmission flags, and their names in the output.
const FEATURES: &[(u16, &str)] = &[
    (transmission::SEND_FLUSH, "flush"),
    (transmission::SEND_FUA, "fua"),
    (transmission::SEND_TRIM, "trim"),
    (transmission::SEND_WRITE_ZEROES, "write-zeroes"),
    (transmission::SEND_FAST_ZERO, "fast-zero"),
    (transmission::SEND_CACHE, "cache"),
    (transmission::SEND_DF, "df"),
    (transmission::CAN_MULTI_CONN, "multi-conn"),
];

/// The exports of a server.
#[derive(Serialize)]
struct Exports {
    server: String,
    exports: Vec<ListedExport>,
}

#[derive(Serialize)]
struct ListedExport {
    name: String,
    description: String,
    url: String,
}

/// Lists the exports of a server by its URL, such as `nbd://HOST[:PORT]`.
///
/// # Errors
/// The URL is wrong, or the server could not be queried.
pub async fn discover(url: &str) -> Result<(Answer, Result<(), Failure>), Failure> {
    let url = Url::parse(url).map_err(Failure::refused)?;
    let listed = backends::nbd::list(&url)
        .await?
        .into_iter()
        .map(|(name, description)| ListedExport {
            url: Url {
                export: name.clone(),
                ..url.clone()
            }
            .to_string(),
            name,
            description,
        });
    let found = Exports {
        server: Url {
            export: String::new(),
            ..url.clone()
        }
        .to_string(),
        exports: listed.collect(),
    };
    let nothing = format!("{} has no exports for this client", found.server);
    let looked = crate::unless_empty(&found.exports, nothing);
    let mut text = match found.exports.is_empty() {
        true => String::new(),
        false => format!("{}\n", found.server),
    };
    for ListedExport {
        name,
        description,
        url,
    } in &found.exports
    {
        // The server chooses this text, so its control characters must not reach the terminal.
        let _ = writeln!(
            text,
            "  {:<12} {url}  {}",
            shown(name),
            description.escape_debug()
        );
    }
    Ok((Answer::new(text.replace("  \n", "\n"), &found), looked))
}

/// The display form of an export's name. A server may have an export with an empty name, which is the default
/// export.
fn shown(name: &str) -> String {
    match name {
        "" => "\"\" (the default export)".to_owned(),
        name => name.escape_debug().to_string(),
    }
}

/// Connects to the export at `nbd://HOST[:PORT]/EXPORT`, or another NBD URL, and describes it.
///
/// # Errors
/// The URL is wrong, or the export could not be opened.
pub async fn info(url: &str) -> Result<Answer, Failure> {
    let url = Url::parse(url).map_err(Failure::refused)?;
    let mut url = backends::nbd::beside(&url);
    url.options.by_bytes = true; // the length need not be a multiple of 512 bytes
    let device = backends::nbd::open(&url).await?;
    let session = device.session();
    let export = &session.export;
    let has = |flag: u16| export.flags & flag != 0;
    let status = device.status().await.unwrap_or_default();
    let channel = |channel: nbd_client::ChannelStatus| ChannelInfo {
        path: channel.path,
        connected: channel.is_connected,
        last_error: channel.last_error,
        reconnects: channel.reconnects,
    };
    let info = ExportInfo {
        url: url.to_string(),
        export: export.name.clone(),
        description: export.description.clone(),
        bytes: export.bytes,
        read_only: has(transmission::READ_ONLY),
        rotational: has(transmission::ROTATIONAL),
        minimum_block: export.block_sizes.minimum,
        preferred_block: export.block_sizes.preferred,
        maximum_payload: export.block_sizes.maximum,
        replies: match session.form {
            ReplyForm::Simple => "simple",
            ReplyForm::Structured => "structured",
            ReplyForm::Extended => "extended",
        },
        base_allocation: session.allocation.is_some(),
        features: FEATURES
            .iter()
            .filter(|(flag, _)| has(*flag))
            .map(|(_, name)| *name)
            .collect(),
        fences: status.fences,
        channels: status.channels.into_iter().map(channel).collect(),
    };
    Ok(Answer::of_text(info.text(), &info))
}

impl ExportInfo {
    fn text(&self) -> String {
        let mut text = format!("{}\n", self.url);
        // The server chooses names and descriptions, so their control characters must not reach the terminal.
        let printable = |text: &str| text.escape_debug().to_string();
        let mut line = |name: &str, value: &str| {
            // Writing into a String does not fail.
            let _ = writeln!(text, "  {name:<12} {value}");
        };
        line("export", &shown(&self.export));
        if !self.description.is_empty() {
            line("description", &printable(&self.description));
        }
        let medium = if self.rotational {
            "rotational"
        } else {
            "not rotational"
        };
        let writable = if self.read_only {
            "read-only"
        } else {
            "writable"
        };
        line(
            "size",
            &format!(
                "{} ({} bytes), {medium}, {writable}",
                Bytes(self.bytes),
                grouped(self.bytes)
            ),
        );
        let (minimum, preferred, maximum) = (
            self.minimum_block,
            self.preferred_block,
            self.maximum_payload,
        );
        line(
            "blocks",
            &format!(
                "minimum {minimum}, preferred {preferred} bytes; requests of up to {}",
                Bytes(u64::from(maximum))
            ),
        );
        let holes = if self.base_allocation {
            ", holes are reported (base:allocation)"
        } else {
            ""
        };
        line("replies", &format!("{}{holes}", self.replies));
        line("features", &self.features.join(" "));
        let fencing = if self.fences {
            "by the server"
        } else {
            "by a quarantine"
        };
        line(
            "fencing",
            &format!("{fencing}, for writes of lost connections"),
        );
        for channel in self.channels.iter() {
            let state = if channel.connected {
                "connected"
            } else {
                "not connected"
            };
            let why = channel
                .last_error
                .as_ref()
                .map_or_else(String::new, |why| format!(": {}", printable(why)));
            line("channel", &format!("{}, {state}{why}", channel.path));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_export_without_a_name_is_seen_and_no_name_moves_the_cursor() {
        assert_eq!(shown(""), "\"\" (the default export)");
        assert_eq!(shown("vm\u{1b}1"), "vm\\u{1b}1");
    }
}
