//! An export in a few lines, for people.

use front_end_core::{ListenAddress, Portal};
use nbd_server::NBD;
use volume::spec::Bytes;

use super::export::Export;
use super::tls::Tls;
use crate::config::Config;
use crate::control;
use crate::front_ends::typed::labelled;

/// For `linerate serve --check`.
pub(super) fn of(export: &Export, config: &Config) -> String {
    let spec = config.volume(&export.volume).map(|volume| format!(" = {}", volume.spec)).unwrap_or_default();
    format!("NBD export {} for {}\n  {}{spec}\n", export.name, audience(export), export.volume)
}

/// The same for all of them.
pub(super) fn encryption(tls: &Tls) -> String {
    let mode = if tls.served.is_required { "required" } else { "allowed" };
    let clients = if tls.served.server.asks_clients() { ", clients with certificates" } else { "" };
    format!("NBD over TLS, {mode}{clients}\n")
}

/// For a server that has begun. `None` without a portal.
pub(super) fn announced(
    export: &Export,
    scheme: &str,
    portals: &[Portal],
    volumes: &[control::Volume],
) -> Option<String> {
    let volume = volumes.iter().find(|volume| volume.name == export.volume.as_str());
    let size =
        volume.map(|volume| format!(" ({}, {})", volume.spec, Bytes(volume.bytes))).unwrap_or_default();
    let url = url(export, scheme, portals)?;
    let (name, audience, volume) = (&export.name, audience(export), &export.volume);
    Some(format!("\nNBD export {name}, for {audience}\n  {volume}{size}\n  {url}\n"))
}

/// What to type on a host.
pub(super) fn usage(export: &Export, tls: Option<&Tls>, portals: &[Portal]) -> Option<String> {
    let name = &export.name;
    let (linux, qemu) = match shown(portals)? {
        ListenAddress::Inet(address) => {
            let (host, port) = (address.ip(), address.port());
            (format!("{host} {port}"), format!("host={host},port={port}"))
        }
        ListenAddress::Unix(path) => {
            (format!("-unix {}", path.display()), format!("path={}", path.display()))
        }
        ListenAddress::Datagrams(_) => return None, // NBD has none
    };
    let url = url(export, if tls.is_some() { "nbds" } else { NBD }, portals)?;
    if let Some(tls) = tls {
        let key = if url.contains('?') { '&' } else { '?' };
        let (own_certificate, own) = match tls.served.server.asks_clients() {
            true => {
                (" -certfile client-cert.pem -keyfile client-key.pem", "&tls-certificate=FILE&tls-key=FILE")
            }
            false => ("", ""),
        };
        return Some(told_by_system(
            &format!("NBD export {name}, where DIR has ca-cert.pem, client-cert.pem and client-key.pem"),
            [
                (
                    "Linux",
                    format!(
                        "nbd-client -N {name} -enable-tls -cacertfile ca-cert.pem{own_certificate} {linux} /dev/nbd0"
                    ),
                ),
                (
                    "QEMU",
                    format!(
                        "-object tls-creds-x509,id=tls0,endpoint=client,dir=DIR -drive \
                     driver=nbd,{qemu},export={name},tls-creds=tls0"
                    ),
                ),
                ("libnbd", format!("nbdinfo '{url}{key}tls-certificates=DIR'")),
                ("Linerate", format!("linerate info '{url}{key}tls-ca=FILE{own}'")),
            ],
        ));
    }
    // For a shell.
    let url = if url.contains('?') { format!("'{url}'") } else { url };
    Some(told_by_system(
        &format!("NBD export {name}"),
        [
            ("Linux", format!("nbd-client -N {name} {linux} /dev/nbd0")),
            ("QEMU", format!("-drive file={url},format=raw")),
            ("libnbd", format!("nbdinfo {url}")),
        ],
    ))
}

fn told_by_system<const N: usize>(head: &str, systems: [(&str, String); N]) -> String {
    systems
        .into_iter()
        .fold(format!("{head}\n"), |text, (system, line)| text + &labelled(system, &[line], '\\'))
}

/// For the control socket.
pub(super) fn told(export: &Export, portals: &[Portal]) -> control::Target {
    let own = portals.iter().filter(|portal| portal.front_end == NBD);
    control::Target {
        front_end: NBD.to_owned(),
        name: export.name.clone(),
        alias: Some(export.description.clone()).filter(|text| !text.is_empty()),
        portals: own.map(|portal| portal.listen.to_string()).collect(),
        initiators: export.clients.clone(),
        networks: export.networks.as_ref().map(|all| all.iter().map(ToString::to_string).collect()),
        users: Vec::new(),
        redirect: None,
        luns: vec![control::TargetLun { lun: 0, volume: export.volume.to_string() }],
        sessions: 0,
    }
}

fn url(export: &Export, scheme: &str, portals: &[Portal]) -> Option<String> {
    let name = &export.name;
    Some(match shown(portals)? {
        ListenAddress::Inet(address) => format!("{scheme}://{address}/{name}"),
        ListenAddress::Unix(path) => format!("{scheme}+unix:///{name}?socket={}", path.display()),
        ListenAddress::Datagrams(_) => return None,
    })
}

/// Where people are told to connect: on a Unix socket only if there is nothing else.
fn shown(portals: &[Portal]) -> Option<&ListenAddress> {
    let own = portals.iter().filter(|portal| portal.front_end == NBD).map(|portal| &portal.listen);
    own.min_by_key(|listen| listen.inet().is_none())
}

pub(super) fn audience(export: &Export) -> String {
    let who = match (&export.clients, &export.networks) {
        (None, None) => "any client",
        (None, Some(_)) => "listed networks",
        (Some(_), None) => "listed clients",
        (Some(_), Some(_)) => "listed clients in listed networks",
    };
    format!("{who}{}", if export.read_only { ", read-only" } else { "" })
}
