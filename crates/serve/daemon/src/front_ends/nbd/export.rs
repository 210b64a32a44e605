//! `[[nbd.export]]`: a volume under a name.

use std::sync::Arc;

use front_end_core::Network;
use nbd::STRING_BYTES_MAX;
use nbd_server::Requester;

use super::tls::Tls;

use super::summary::audience;
use crate::config::{Section, VolumeName};
use crate::front_ends::{Document, Serving, for_whom};

/// A volume under a name, and who may use it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Export {
    /// What clients call it; its volume's name unless said otherwise.
    pub(super) name: String,
    pub(super) volume: VolumeName,
    /// For people; empty if there is none.
    pub(super) description: String,
    /// Clients cannot write.
    pub(super) read_only: bool,
    /// Where clients may come from; `None` is anywhere.
    pub(super) networks: Option<Vec<Network>>,
    /// The names of clients in their certificates; `None` is any client.
    pub(super) clients: Option<Vec<String>>,
}

impl Export {
    /// A volume under its own name, for anybody.
    pub(super) fn of_volume(volume: &VolumeName) -> Export {
        Export {
            name: volume.to_string(),
            volume: volume.clone(),
            description: String::new(),
            read_only: false,
            networks: None,
            clients: None,
        }
    }

    pub(super) fn admits(&self, from: &Requester) -> bool {
        let networks = self.networks.as_ref();
        networks.is_none_or(|networks| networks.iter().any(|network| network.contains(from.address)))
            && from.is_one_of(self.clients.as_deref())
    }

    pub(super) fn served(&self, serving: Serving<'_>) -> Option<nbd_server::Export> {
        Some(nbd_server::Export {
            name: self.name.clone(),
            description: self.description.clone(),
            volume: Arc::clone(serving.volumes.unit(&self.volume)?.volume()),
            identity: Some(u128::from_be_bytes(serving.volumes.unit(&self.volume)?.identity().uuid)),
            read_only: self.read_only,
            networks: self.networks.clone(),
            clients: self.clients.clone(),
            deadline: serving.config.volume(&self.volume)?.deadline,
        })
    }
}

/// All exports of `[nbd]`.
pub(super) fn all(section: &Section<'_>, document: &Document<'_>, tls: Option<&Tls>) -> Vec<Export> {
    // A certificate or key that cannot be read is a mistake of its own.
    let is_unread = tls.is_none() && section.has("tls-certificate") && section.has("tls-client-ca");
    let is_off = section.text("tls").is_some_and(|mode| mode.value == "off");
    let asks_clients = tls.map_or(is_unread && !is_off, |tls| tls.served.server.asks_clients());
    let mut exports: Vec<(String, Option<Export>)> = Vec::new();
    for section in section.sections("export", "[[nbd.export]]") {
        let Some((name, export)) = read(&section, document) else { continue };
        if section.has("clients") && !asks_clients {
            let sentence = "names of clients are in their certificates: [nbd] needs tls-client-ca, and tls that is not off";
            section.mistakes.add(section.placed("clients"), sentence);
        }
        if exports.iter().any(|(other, _)| *other == name) {
            let sentence = format!("there are two exports `{name}`; give one a `name` of its own");
            section.mistakes.add(section.at(), sentence);
        }
        exports.push((name, export));
    }
    exports.into_iter().filter_map(|(_, export)| export).collect()
}

/// An export, which may have no volume, and its name.
fn read(section: &Section<'_>, document: &Document<'_>) -> Option<(String, Option<Export>)> {
    let volume = section.required("volume", section.text("volume"), "\"vm1\"");
    let name = section.text("name");
    if let Some(name) = name.as_ref().filter(|name| name.value.is_empty() || !is_printable(name.value)) {
        let sentence =
            format!("a name of an export has 1 to {STRING_BYTES_MAX} bytes and no control characters");
        section.mistakes.add(name.at.clone(), sentence);
    }
    let description = section.text("description");
    if let Some(text) = description.as_ref().filter(|text| !is_printable(text.value)) {
        let sentence =
            format!("a description has at most {STRING_BYTES_MAX} bytes and no control characters");
        section.mistakes.add(text.at.clone(), sentence);
    }
    let (read_only, networks) = (section.flag("read-only").unwrap_or(false), section.list("networks"));
    let clients = section.list("clients");
    section.done();
    let volume = volume?;
    if volume.value.is_empty() && name.is_none() {
        section.mistakes.add(volume.at.clone(), "an export without a volume needs a `name`".to_owned());
    }
    let name = name.map_or(volume.value, |name| name.value).to_owned();
    let description = description.map(|text| text.value.to_owned()).unwrap_or_default();
    let of_volume = |volume| Export { name: name.clone(), volume, description, read_only, networks, clients };
    let export = document.volume(section, &volume).map(of_volume);
    Some((name, export))
}

/// NBD's strings are UTF-8 without NUL; clients print them, so line ends are refused as well.
fn is_printable(text: &str) -> bool {
    text.len() <= STRING_BYTES_MAX && !text.contains(char::is_control)
}

/// What is different between two lists of exports, a line each.
pub(super) fn changes(
    now: &[Export],
    wanted: &[Export],
    renamed: &[(VolumeName, VolumeName)],
) -> Vec<String> {
    let mut lines = Vec::new();
    for after in wanted {
        let Export { name, volume, description, read_only, networks, clients } = after;
        let Some(before) = now.iter().find(|before| before.name == *name) else {
            lines.push(format!("+ NBD export {name} = {volume} {}", for_whom(&audience(after))));
            continue;
        };
        let called_now = renamed.iter().find(|(from, _)| *from == before.volume);
        if called_now.map_or(&before.volume, |(_, to)| to) != volume {
            let audience = for_whom(&audience(after));
            lines.push(format!("~ NBD export {name}: {} -> {volume} {audience}", before.volume));
        }
        let differences = [
            (before.description != *description, "description"),
            (before.read_only != *read_only, "read-only"),
            (before.networks != *networks, "networks"),
            (before.clients != *clients, "clients"),
        ];
        let differs = differences.iter().filter(|(differs, _)| *differs);
        lines.extend(differs.map(|(_, key)| format!("~ NBD export {name}: {key}")));
        if audience(before) != audience(after) {
            lines.push(format!("~ NBD export {name} is {}", for_whom(&audience(after))));
        }
    }
    let is_gone = |before: &&Export| wanted.iter().all(|after| after.name != before.name);
    let gone = now.iter().filter(is_gone);
    lines.extend(
        gone.map(|before| format!("- NBD export {}, which was {}", before.name, for_whom(&audience(before)))),
    );
    lines
}
