//! An export in a few lines, for people.

use nbd_server::NBD;
use server::Portal;
use volume::spec::Bytes;

use super::export::Export;
use crate::config::Config;
use crate::control;

/// For `linerate serve --check`.
pub(super) fn of(export: &Export, config: &Config) -> String {
    let spec = config.volume(&export.volume).map(|volume| format!(" = {}", volume.spec)).unwrap_or_default();
    format!("NBD export {} for {}\n  {}{spec}\n", export.name, audience(export), export.volume)
}

/// For a server that has begun. `None` without a portal.
pub(super) fn announced(export: &Export, portals: &[Portal], volumes: &[control::Volume]) -> Option<String> {
    let volume = volumes.iter().find(|volume| volume.name == export.volume.as_str());
    let size =
        volume.map(|volume| format!(" ({}, {})", volume.spec, Bytes(volume.bytes))).unwrap_or_default();
    let url = url(export, portals)?;
    let (name, audience, volume) = (&export.name, audience(export), &export.volume);
    Some(format!("\nNBD export {name}, for {audience}\n  {volume}{size}\n  {url}\n"))
}

/// What to type on a host.
pub(super) fn usage(export: &Export, portals: &[Portal]) -> Option<String> {
    let portal = portals.iter().find(|portal| portal.front_end == NBD)?;
    let (url, address, name) = (url(export, portals)?, portal.listen, &export.name);
    let (host, port) = (address.ip(), address.port());
    Some(format!(
        "NBD export {name}\n  Linux     nbd-client -N {name} {host} {port} /dev/nbd0\n  QEMU      -drive file={url},format=raw\n  \
         libnbd    nbdinfo {url}\n"
    ))
}

/// For the control socket.
pub(super) fn told(export: &Export, portals: &[Portal]) -> control::Target {
    let own = portals.iter().filter(|portal| portal.front_end == NBD);
    control::Target {
        front_end: NBD.to_owned(),
        name: export.name.clone(),
        alias: Some(export.description.clone()).filter(|text| !text.is_empty()),
        portals: own.map(|portal| portal.listen.to_string()).collect(),
        initiators: None,
        networks: export.networks.as_ref().map(|all| all.iter().map(ToString::to_string).collect()),
        users: Vec::new(),
        redirect: None,
        luns: vec![control::TargetLun { lun: 0, volume: export.volume.to_string() }],
        sessions: 0,
    }
}

fn url(export: &Export, portals: &[Portal]) -> Option<String> {
    let portal = portals.iter().find(|portal| portal.front_end == NBD)?;
    Some(format!("nbd://{}/{}", portal.listen, export.name))
}

fn audience(export: &Export) -> String {
    let who = if export.networks.is_none() { "anybody" } else { "listed networks" };
    format!("{who}{}", if export.read_only { ", read-only" } else { "" })
}
