//! The summary that `linerate serve --check` prints of a valid configuration.

use std::fmt::Write;

use front_end_core::{ListenAddress, Portal};

use crate::config::{Config, Volume};

/// What is said of a valid configuration.
pub fn text(config: &Config) -> String {
    of(config, &[]) + "the configuration is good\n"
}

/// One line for each listener, for what each front end serves, and for each idle volume.
/// `bound` are the addresses of the portals, if they are listened on, with the ports that were really taken.
pub(crate) fn of(config: &Config, bound: &[ListenAddress]) -> String {
    let mut text = String::new();
    // Writing into a String does not fail.
    for (number, (front_end, portal)) in config.portals().enumerate() {
        let portal = Portal { listen: bound.get(number).cloned().unwrap_or(portal.listen), ..portal };
        let _ = writeln!(text, "listens on {}", front_end.describe(&portal));
    }
    if let Some(metrics) = &config.metrics {
        let _ = writeln!(text, "metrics on http://{}/metrics", metrics.listen);
    }
    config.front_ends().for_each(|front_end| text += &front_end.summary(config));
    let exported: Vec<&Volume> = config.exported().collect();
    let is_idle = |volume: &&Volume| !exported.iter().any(|other| other.name == volume.name);
    for volume in config.volumes.iter().filter(is_idle) {
        let _ = writeln!(text, "volume {} is not exported and will not be opened", volume.name);
    }
    text
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
volume spare is not exported and will not be opened
the configuration is good
";
        assert_eq!(super::text(&config), expected);
    }
}
