//! A target as `linerate serve --check` tells of it.

use std::fmt::Write;

use super::{Lun, Target};
use crate::config::Config;

/// A line for the target and one for each of its LUNs.
pub(super) fn of(target: &Target, config: &Config) -> String {
    // Writing into a String does not fail.
    let mut text = format!("target {} for {}\n", target.name, audience(target));
    for lun in &target.luns {
        let _ = writeln!(text, "  LUN {}: {}", lun.lun, volume(config, lun));
    }
    text
}

fn audience(target: &Target) -> String {
    let who = if target.initiators.is_none() { "any initiator" } else { "listed initiators" };
    let near = if target.networks.is_none() { "" } else { " in listed networks" };
    let proof = if target.chap.is_some() { ", with CHAP" } else { "" };
    let elsewhere = target.redirect.as_ref().map(|redirect| format!(", sent on to {}", redirect.address));
    format!("{who}{near}{proof}{}", elsewhere.unwrap_or_default())
}

fn volume(config: &Config, lun: &Lun) -> String {
    let masked = if lun.initiators.is_some() { ", for listed initiators" } else { "" };
    let spec = config.volume(&lun.volume).map(|volume| format!(" = {}", volume.spec)).unwrap_or_default();
    format!("{}{spec}{masked}", lun.volume)
}
