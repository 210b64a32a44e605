//! A target in a few lines: for `linerate serve --check`, and for a server that has begun.

use std::fmt::Write;

use ::iscsi_server::{ISCSI, NamePattern};
use volume::spec::Bytes;

use super::{Account, Lun, Target, usage};
use crate::config::Config;
use crate::control::{self, TargetLun};

/// A line for the target and one for each of its LUNs.
pub(super) fn of(target: &Target, config: &Config) -> String {
    // Writing into a String does not fail.
    let mut text = format!("target {} for {}\n", target.name, audience(target, None));
    for lun in &target.luns {
        let _ = writeln!(text, "  LUN {}: {}", lun.lun, volume(config, lun));
    }
    text
}

/// The same of a target that is served: its LUNs with their sizes, and where to connect. `None` if no portal leads to it.
pub(super) fn announced(
    target: &Target,
    portals: &[front_end_core::Portal],
    volumes: &[control::Volume],
) -> Option<String> {
    let addresses = usage::addresses(target, portals);
    let first = addresses.first()?;
    let luns: Vec<String> = target.luns.iter().map(|lun| exported(volumes, lun)).collect();
    let (shown, rest) = luns.split_at(luns.len().min(LUNS_SHOWN));
    let more = if rest.is_empty() { String::new() } else { format!("; {} more", rest.len()) };
    let elsewhere = match addresses.len() {
        1 => String::new(),
        number => format!(", and {} more portals", number - 1),
    };
    let lun = target.luns.first().map_or_else(String::new, |lun| format!("/{}", lun.lun));
    Some(format!(
        "\n{}, for {}\n  {}{more}\n  iscsi://{first}/{}{lun}{elsewhere}\n",
        target.name,
        audience(target, None),
        shown.join("; "),
        target.name
    ))
}

/// A line that people read has no more.
const LUNS_SHOWN: usize = 4;

fn exported(volumes: &[control::Volume], lun: &Lun) -> String {
    let volume = volumes.iter().find(|volume| volume.name == lun.volume.as_str());
    let size =
        volume.map(|volume| format!(" ({}, {})", volume.spec, Bytes(volume.bytes))).unwrap_or_default();
    format!("LUN {} {}{size}", lun.lun, lun.volume)
}

/// The same for the control socket.
pub(super) fn told(target: &Target, portals: &[front_end_core::Portal]) -> control::Target {
    let reached =
        portals.iter().filter(|portal| portal.front_end == ISCSI && target.is_reached_by(portal.tag));
    let texts = |patterns: &Vec<NamePattern>| patterns.iter().map(ToString::to_string).collect();
    control::Target {
        front_end: ISCSI.to_owned(),
        name: target.name.to_string(),
        alias: target.alias.as_ref().map(ToString::to_string),
        portals: reached.map(|portal| portal.listen.to_string()).collect(),
        initiators: target.initiators.as_ref().map(texts),
        networks: target.networks.as_ref().map(|all| all.iter().map(ToString::to_string).collect()),
        users: target.chap.iter().flat_map(|chap| &chap.accounts).map(user).collect(),
        redirect: target.redirect.as_ref().map(|redirect| redirect.address.to_string()),
        luns: target
            .luns
            .iter()
            .map(|lun| TargetLun { lun: lun.lun, volume: lun.volume.to_string() })
            .collect(),
        sessions: 0,
    }
}

fn user(account: &Account) -> String {
    account.credentials.name.clone()
}

/// Who may use a target, or one of its LUNs.
pub(super) fn audience(target: &Target, lun: Option<&Lun>) -> String {
    let is_listed = target.initiators.is_some() || lun.is_some_and(|lun| lun.initiators.is_some());
    let who = if is_listed { "listed initiators" } else { "any initiator" };
    let near = if target.networks.is_none() { "" } else { " in listed networks" };
    let proof = match &target.chap {
        Some(chap) if chap.mutual.is_some() => ", with mutual CHAP",
        Some(_) => ", with CHAP",
        None => "",
    };
    let elsewhere = target.redirect.as_ref().map(|redirect| format!(", sent on to {}", redirect.address));
    format!("{who}{near}{proof}{}", elsewhere.unwrap_or_default())
}

fn volume(config: &Config, lun: &Lun) -> String {
    let masked = if lun.initiators.is_some() { ", for listed initiators" } else { "" };
    let spec = config.volume(&lun.volume).map(|volume| format!(" = {}", volume.spec)).unwrap_or_default();
    format!("{}{spec}{masked}", lun.volume)
}
