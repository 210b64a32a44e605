//! What differs between two configurations of iSCSI, for people.

use super::summary::audience;
use super::{IscsiConfig, Lun, Portal, Target};
use crate::config::VolumeName;
use crate::difference::LIMITS;
use crate::front_ends::{for_whom, portal_changes};

/// A line for each difference. The fields are all named, so that a new one is compared, or left out on purpose.
pub(super) fn between(
    now: &IscsiConfig,
    wanted: &IscsiConfig,
    renamed: &[(VolumeName, VolumeName)],
) -> Vec<String> {
    let IscsiConfig { portals, has_portal: _, targets, discovery, limits } = wanted;
    let mut changes = Changes { lines: Vec::new(), renamed };
    changes.targets(&now.targets, targets);
    let [before, after] =
        [&now.portals, portals].map(|portals| portals.iter().map(Portal::of_server).collect::<Vec<_>>());
    let describe = |portal: &front_end_core::Portal| format!("{} (group {})", portal.listen, portal.tag);
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
                    let audience = for_whom(&audience(target, None));
                    self.line(format!("+ target {} ({}) {audience}", target.name, luns.join(", ")));
                }
            }
        }
        for target in now {
            if wanted.iter().all(|after| after.name != target.name) {
                self.line(format!(
                    "- target {}, which was {}",
                    target.name,
                    for_whom(&audience(target, None))
                ));
            }
        }
    }

    fn target(&mut self, before: &Target, after: &Target) {
        let Target { name, alias, groups, initiators, networks, chap, offers, hidden, redirect, luns } =
            after;
        for lun in luns {
            match before.luns.iter().find(|old| old.lun == lun.lun) {
                None => {
                    let audience = for_whom(&audience(after, Some(lun)));
                    self.line(format!("+ {name} LUN {} = {} {audience}", lun.lun, lun.volume));
                }
                Some(old) => self.lun(after, old, lun),
            }
        }
        for lun in &before.luns {
            if luns.iter().all(|other| other.lun != lun.lun) {
                self.line(format!("- {name} LUN {} = {}", lun.lun, lun.volume));
            }
        }
        if luns.is_empty() && !before.luns.is_empty() {
            self.line(format!("~ {name} has no LUN now, and stays {}", for_whom(&audience(after, None))));
        }
        let is_for_others =
            before.initiators != *initiators || before.networks != *networks || before.chap != *chap;
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
        if is_for_others {
            self.line(format!("~ {name} is {}", for_whom(&audience(after, None))));
        }
    }

    fn lun(&mut self, target: &Target, before: &Lun, after: &Lun) {
        let (Lun { lun, volume, initiators }, name) = (after, &target.name);
        let audience = for_whom(&audience(target, Some(after)));
        if self.name_now(&before.volume) != volume {
            self.line(format!("~ {name} LUN {lun} = {volume} (was {}) {audience}", before.volume));
        } else if before.initiators != *initiators {
            self.line(format!("~ {name} LUN {lun}: who sees it; {audience}"));
        }
    }

    /// What the volume of this name is called from now on.
    fn name_now<'a>(&'a self, name: &'a VolumeName) -> &'a VolumeName {
        self.renamed.iter().find(|(from, _)| from == name).map_or(name, |(_, to)| to)
    }
}
