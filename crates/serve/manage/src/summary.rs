//! The summary that `linerate serve --check` prints of a valid configuration.

use std::collections::HashSet;
use std::fmt::Write;

use crate::config::Config;
use crate::front_ends::iscsi::{Lun, Target};

/// One line for each listener, target, LUN and idle volume.
pub fn text(config: &Config) -> String {
    let mut text = String::new();
    // Writing into a String does not fail.
    for portal in &config.portals {
        let _ = writeln!(text, "listens on {} (portal group {})", portal.listen.0, portal.group);
    }
    if let Some(metrics) = &config.metrics {
        let _ = writeln!(text, "metrics on http://{}/metrics", metrics.listen);
    }
    for target in &config.targets {
        let _ = writeln!(text, "target {} for {}", target.name, audience(target));
        for lun in &target.luns {
            let _ = writeln!(text, "  LUN {}: {}", lun.lun, volume(config, lun));
        }
    }
    let shown = shown(config);
    for volume in config.volumes.iter().filter(|volume| !shown.contains(volume.name.as_str())) {
        let _ = writeln!(text, "volume {} is under no LUN and will not be opened", volume.name);
    }
    text + "the configuration is good\n"
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
    let spec = config.volumes.iter().find(|volume| volume.name == lun.volume).map(|volume| &volume.spec);
    let spec = spec.map(|spec| format!(" = {spec}")).unwrap_or_default();
    format!("{}{spec}{masked}", lun.volume)
}

/// The names of the volumes that a LUN of any target shows.
pub(crate) fn shown(config: &Config) -> HashSet<&str> {
    config.targets.iter().flat_map(|target| &target.luns).map(|lun| lun.volume.as_str()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_is_told_in_few_lines() {
        let text = "
[[portal]]
listen = \"[::]:3260\"
group = 2
[volume.vm1]
spec = \"ram:1GiB\"
[volume.spare]
spec = \"ram:1GiB\"
[[target]]
name = \"iqn.2026-01.com.example:disks\"
networks = [\"fd00::/8\"]
[[target.lun]]
lun = 3
volume = \"vm1\"
initiators = [\"iqn.1993-08.org.debian:*\"]
";
        let config = Config::parse("x.toml", text).expect("nothing wrong");
        let expected = "\
listens on [::]:3260 (portal group 2)
target iqn.2026-01.com.example:disks for any initiator in listed networks
  LUN 3: vm1 = ram:1GiB, for listed initiators
volume spare is under no LUN and will not be opened
the configuration is good
";
        assert_eq!(super::text(&config), expected);
    }
}
