//! What differs between two configurations of iSCSI, for people.

use super::{IscsiConfig, Lun, Portal, Target};
use crate::config::VolumeName;
use crate::difference::LIMITS;
use crate::front_ends::portal_changes;

/// A line for each difference. The fields are all named, so that a new one is compared, or left out on purpose.
pub(super) fn between(
    now: &IscsiConfig,
    wanted: &IscsiConfig,
    renamed: &[(VolumeName, VolumeName)],
) -> Vec<String> {
    let IscsiConfig { portals, targets, discovery, limits } = wanted;
    let mut changes = Changes { lines: Vec::new(), renamed };
    changes.targets(&now.targets, targets);
    let [before, after] =
        [&now.portals, portals].map(|portals| portals.iter().map(Portal::of_server).collect::<Vec<_>>());
    let describe = |portal: &server::Portal| format!("{} (group {})", portal.listen, portal.tag);
    changes.lines.extend(portal_changes(&before, &after, describe));
    if now.discovery != *discovery {
        changes.line("~ discovery: CHAP accounts".to_owned());
    }
    if now.limits != *limits {
        changes.line(LIMITS.to_owned());
    }
    changes.lines
}

struct Changes<'a> {
    lines: Vec<String>,
    renamed: &'a [(VolumeName, VolumeName)],
}

impl Changes<'_> {
    fn line(&mut self, line: String) {
        self.lines.push(line);
    }

    fn targets(&mut self, now: &[Target], wanted: &[Target]) {
        for target in wanted {
            match now.iter().find(|before| before.name == target.name) {
                Some(before) => self.target(before, target),
                None => {
                    let luns: Vec<String> =
                        target.luns.iter().map(|lun| format!("LUN {} = {}", lun.lun, lun.volume)).collect();
                    self.line(format!("+ target {} ({})", target.name, luns.join(", ")));
                }
            }
        }
        for target in now {
            if wanted.iter().all(|after| after.name != target.name) {
                self.line(format!("- target {}", target.name));
            }
        }
    }

    fn target(&mut self, before: &Target, after: &Target) {
        let Target { name, alias, groups, initiators, networks, chap, offers, hidden, redirect, luns } =
            after;
        for lun in luns {
            match before.luns.iter().find(|old| old.lun == lun.lun) {
                None => self.line(format!("+ {name} LUN {} = {}", lun.lun, lun.volume)),
                Some(old) => self.lun(name.as_str(), old, lun),
            }
        }
        for lun in &before.luns {
            if luns.iter().all(|other| other.lun != lun.lun) {
                self.line(format!("- {name} LUN {} = {}", lun.lun, lun.volume));
            }
        }
        let changes = [
            (before.alias != *alias, "alias"),
            (before.groups != *groups, "portal groups"),
            (before.initiators != *initiators, "initiators"),
            (before.networks != *networks, "networks"),
            (before.chap != *chap, "CHAP accounts"),
            (before.offers != *offers, "what it negotiates (for new sessions)"),
            (before.hidden != *hidden, "whether it is hidden"),
            (before.redirect != *redirect, "redirection"),
        ];
        for (_, what) in changes.iter().filter(|(is_changed, _)| *is_changed) {
            self.line(format!("~ {name}: {what}"));
        }
    }

    fn lun(&mut self, target: &str, before: &Lun, after: &Lun) {
        let Lun { lun, volume, initiators } = after;
        if self.name_now(&before.volume) != volume {
            self.line(format!("~ {target} LUN {lun} = {volume} (was {})", before.volume));
        } else if before.initiators != *initiators {
            self.line(format!("~ {target} LUN {lun}: who sees it"));
        }
    }

    /// What the volume of this name is called from now on.
    fn name_now<'a>(&'a self, name: &'a VolumeName) -> &'a VolumeName {
        self.renamed.iter().find(|(from, _)| from == name).map_or(name, |(_, to)| to)
    }
}
