//! The difference between two configurations, as lines of text and as actions on volumes.

use std::collections::BTreeSet;

use block::BlockSize;

use crate::config::values::VolumeName;
use crate::config::{Config, LIMITS_CHANGED, Volume};
use backends::raid::is_one_file;
use volume::backend::BlockPlaces;
use volume::spec::{Bytes, Spec};

/// The changes from one configuration to another.
#[derive(Debug, Default)]
pub(crate) struct Difference {
    /// As text, one line each: `+` is new, `-` is removed, `~` is changed.
    pub(crate) lines: Vec<String>,
    /// Changes that take effect at the next start.
    pub(crate) at_next_start: Vec<&'static str>,
    pub(crate) added: Vec<VolumeName>,
    /// Volumes that are no longer served.
    pub(crate) removed: Vec<VolumeName>,
    /// Renamed volumes: old and new name.
    pub(crate) renamed: Vec<(VolumeName, VolumeName)>,
    /// Files to enlarge, under their new names.
    pub(crate) grown: Vec<(VolumeName, Bytes)>,
    /// Volumes to truncate, with their sizes before and after.
    pub(crate) shrunk: Vec<(VolumeName, Bytes, Bytes)>,
    /// Volumes whose specifications differ only in orders for the start.
    pub(crate) reordered: Vec<VolumeName>,
    /// Volumes that must be closed and reopened, because their specification has changed.
    pub(crate) reopened: Vec<VolumeName>,
    /// Whether the metrics address has changed or was removed.
    pub(crate) metrics: bool,
}

impl Difference {
    /// Returns the changes that turn `now` into `wanted`.
    pub(crate) fn between(now: &Config, wanted: &Config) -> Difference {
        let mut difference = Difference::default();
        difference.volumes(now, wanted);
        difference.rest(now, wanted);
        let Difference {
            added,
            removed,
            renamed,
            grown,
            reopened,
            shrunk,
            ..
        } = &difference;
        debug_assert!(
            added.iter().all(|name| !removed.contains(name)),
            "a volume comes or goes"
        );
        debug_assert!(
            shrunk.iter().all(|(name, ..)| reopened.contains(name)),
            "it is shrunk while closed"
        );
        debug_assert!(
            grown.iter().all(|(name, _)| !reopened.contains(name)),
            "it grows while it is served"
        );
        debug_assert!(
            renamed
                .iter()
                .all(|(from, to)| !removed.contains(from) && !added.contains(to)),
            "a renamed volume is neither gone nor new"
        );
        difference
    }

    /// Whether there are no changes.
    pub(crate) fn is_empty(&self) -> bool {
        self.lines.is_empty() && self.at_next_start.is_empty() && self.reordered.is_empty()
    }

    /// Whether the difference removes, renames, reopens or changes the volume that currently has this name.
    pub(crate) fn touches(&self, volume: &VolumeName) -> bool {
        let named = self
            .removed
            .iter()
            .chain(&self.reopened)
            .chain(&self.reordered);
        named
            .chain(self.renamed.iter().map(|(from, _)| from))
            .chain(self.grown.iter().map(|(name, _)| name))
            .chain(self.shrunk.iter().map(|(name, ..)| name))
            .any(|name| name == volume)
    }

    fn line(&mut self, line: String) {
        self.lines.push(line);
    }

    fn volumes(&mut self, now: &Config, wanted: &Config) {
        let [served, to_serve] = [now, wanted].map(|config| config.exported().collect::<Vec<_>>());
        debug_assert!(
            [&served, &to_serve].into_iter().all(|volumes| {
                let names: BTreeSet<_> =
                    volumes.iter().map(|volume| volume.name.as_str()).collect();
                names.len() == volumes.len()
            }),
            "the names of volumes differ"
        );
        let find = |name: &VolumeName| served.iter().find(|volume| volume.name == *name).copied();
        let mut taken_over = BTreeSet::new();
        for volume in &to_serve {
            let stays = |name: &VolumeName| to_serve.iter().any(|other| other.name == *name);
            let previous = volume
                .previous_name
                .as_ref()
                .filter(|name| !stays(name))
                .and_then(find);
            match (find(&volume.name), previous) {
                (Some(before), _) => self.volume(before, volume),
                (None, Some(before)) => {
                    taken_over.insert(before.name.as_str());
                    self.line(format!(
                        "~ volume {} is renamed to {}",
                        before.name, volume.name
                    ));
                    self.renamed
                        .push((before.name.clone(), volume.name.clone()));
                    self.volume(before, volume);
                }
                (None, None) => {
                    self.line(format!("+ volume {} = {}", volume.name, volume.spec));
                    self.added.push(volume.name.clone());
                }
            }
        }
        let is_gone = |name: &VolumeName| to_serve.iter().all(|volume| volume.name != *name);
        for volume in &served {
            if is_gone(&volume.name) && !taken_over.contains(volume.name.as_str()) {
                self.line(format!("- volume {} = {}", volume.name, volume.spec));
                self.removed.push(volume.name.clone());
            }
        }
    }

    fn volume(&mut self, before: &Volume, after: &Volume) {
        // The previous name is not compared: it only serves to match the two volumes.
        let Volume {
            name,
            spec,
            uuid,
            names,
            previous_name: _,
            deadline,
        } = after;
        if before.deadline != *deadline {
            let (old, new) = (before.deadline.as_secs_f64(), deadline.as_secs_f64());
            self.line(format!("~ volume {name}: deadline {old} s -> {new} s"));
        }
        let is_same_disk = before.uuid == *uuid && before.names == *names;
        if before.spec == *spec && is_same_disk {
            return;
        }
        if !is_same_disk {
            self.line(format!(
                "~ volume {name} has new identifiers: initiators treat it as another disk"
            ));
        }
        if let Some((old, new)) = shrinking(&before.spec, spec) {
            self.shrunk.push((name.clone(), old, new));
        }
        match resized(&before.spec, spec).filter(|_| is_same_disk) {
            Some((old, new)) if new.0 > old.0 => {
                self.line(format!("~ volume {name} grows to {new}"));
                debug_assert!(
                    !self.shrunk.iter().any(|(shrunk, ..)| shrunk == name),
                    "one or the other"
                );
                self.grown.push((name.clone(), new));
            }
            Some((old, new)) if new.0 == old.0 => self.reordered.push(name.clone()),
            _ => {
                if before.spec != *spec {
                    let lost = if has_ram(&before.spec) {
                        "; the content of its RAM is lost"
                    } else {
                        ""
                    };
                    self.line(format!(
                        "~ volume {name} = {spec} (was {}){lost}",
                        before.spec
                    ));
                }
                self.reopened.push(name.clone());
            }
        }
    }

    /// Compares everything except the volumes. All fields are listed, so that a new field must be compared or
    /// omitted on purpose.
    fn rest(&mut self, now: &Config, wanted: &Config) {
        let Config {
            volumes: _,
            front_ends: _,
            limits,
            state,
            control,
            reactors,
            poll,
            gather,
            io_engine,
            metrics,
            log,
            congestion: _, // from the command line, so it does not change
        } = wanted;
        for (before, after) in now.front_ends().zip(wanted.front_ends()) {
            debug_assert_eq!(
                before.kind().name,
                after.kind().name,
                "both were read by one table"
            );
            self.lines.extend(before.changes(after, &self.renamed));
        }
        // The limits of front ends are in the same section, and may have reported it already.
        if now.limits != *limits && !self.lines.iter().any(|line| line == LIMITS_CHANGED) {
            self.line(LIMITS_CHANGED.to_owned());
        }
        self.metrics = now.metrics != *metrics;
        if self.metrics {
            self.line(match metrics {
                Some(metrics) => format!("~ metrics on {metrics}"),
                None => "- metrics".to_owned(),
            });
        }
        let fixed = [
            (now.state != *state, "state"),
            (now.control != *control, "control"),
            (now.reactors != *reactors, "reactors"),
            (now.poll != *poll, "poll"),
            (now.gather != *gather, "gather"),
            (now.io_engine != *io_engine, "io-engine"),
            (now.log != *log, "log"),
        ];
        self.at_next_start = fixed
            .iter()
            .filter(|(is_changed, _)| *is_changed)
            .map(|(_, key)| *key)
            .collect();
    }
}

/// Returns the old and new size, if a smaller `size=` truncates one of the stores, and everything else is the
/// same.
pub(crate) fn shrinking(before: &Spec, after: &Spec) -> Option<(Bytes, Bytes)> {
    match (before.backend.members(), after.backend.members()) {
        ([one], _) => shrinking(one, after),
        (_, [one]) => shrinking(before, one),
        ([], []) => {
            let (old, new) = (size(before)?, size(after)?);
            (is_one_file(before.path()?, after.path()?) && new.0 < old.0).then_some((old, new))
        }
        (old, new) => old
            .iter()
            .zip(new)
            .find_map(|(old, new)| shrinking(old, new)),
    }
}

/// Returns the `size=` of a store, below all layers.
pub(crate) fn size(spec: &Spec) -> Option<Bytes> {
    spec.store()
        .options()
        .iter()
        .find_map(|option| option.strip_prefix("size=")?.parse().ok())
}

/// Returns the new size, if only the `size=` of the store differs and is larger.
pub(crate) fn growth(before: &Spec, after: &Spec) -> Option<Bytes> {
    resized(before, after)
        .filter(|(old, new)| new.0 > old.0)
        .map(|(_, new)| new)
}

/// Whether a volume, or a member of it, is in memory, and would be empty after it is reopened.
fn has_ram(spec: &Spec) -> bool {
    spec.backend.kind().name == "ram" || spec.backend.members().iter().any(has_ram)
}

/// Returns the old and new size, if only the `size=` of the store or orders for the start differ. Both are 0
/// if neither specification has a size.
fn resized(before: &Spec, after: &Spec) -> Option<(Bytes, Bytes)> {
    let flags = |spec: &Spec| (spec.readonly, spec.removable, spec.thick);
    let (old, new) = (&before.backend, &after.backend);
    let is_size = |option: &String| {
        option.starts_with("size=") || option == "create" || option.starts_with("identity=")
    };
    let others = |options: Vec<String>| {
        options
            .into_iter()
            .filter(|option| !is_size(option))
            .collect::<Vec<_>>()
    };
    let is_alike = flags(before) == flags(after)
        && old.kind().name == new.kind().name
        && old.argument() == new.argument()
        && others(old.options()) == others(new.options());
    if !is_alike {
        return None;
    }
    match (old.members(), new.members()) {
        ([], []) => {
            let (old_size, new_size) = match (size(before), size(after)) {
                (None, None) => return Some((Bytes(0), Bytes(0))),
                (old, new) => (old?, new?),
            };
            let block = new.logical_block().unwrap_or(BlockSize::B512);
            block.exact(new_size.0).map(|_| (old_size, new_size))
        }
        ([old], [new]) if after.backend.kind().blocks == BlockPlaces::Below => resized(old, new),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: &str = "
[[portal]]
listen = \"127.0.0.1:3260\"
[volume.a]
spec = \"ram:1MiB\"
[volume.f]
spec = \"delay:1ms:[file:/data/f?size=1GiB]\"
[[target]]
name = \"iqn.2026-01.com.example:t\"
[[target.lun]]
lun = 0
volume = \"a\"
[[target.lun]]
lun = 1
volume = \"f\"
[nbd]
listen = [\"127.0.0.1:10809\"]
[[nbd.export]]
name = \"x\"
volume = \"f\" # NBD
[aoe]
listen = [\"eth0\"]
[[aoe.slot]]
address = \"7.1\"
volume = \"f\" # AoE
[hyperscsi]
listen = [\"eth0\"]
[[hyperscsi.target]]
name = \"disks\"
[[hyperscsi.target.lun]]
lun = 3
volume = \"f\" # HyperSCSI
";

    fn config(text: &str) -> Config {
        Config::parse("x.toml", text).unwrap_or_else(|error| panic!("{error}"))
    }

    fn lines(changes: &[(&str, &str)]) -> Difference {
        let text = changes.iter().fold(BASE.to_owned(), |text, (from, to)| {
            assert!(text.contains(from), "{from}");
            text.replacen(from, to, 1)
        });
        Difference::between(&config(BASE), &config(&text))
    }

    /// The cells of a table, in which `\n` stands for the end of a line.
    fn rows(table: &str) -> Vec<[String; 3]> {
        let cells = |row: &str| {
            row.split(" | ")
                .map(|cell| cell.replace("\\n", "\n"))
                .collect()
        };
        let rows = table.trim_matches('\n').lines().map(cells);
        rows.map(|cells: Vec<String>| cells.try_into().expect("three cells"))
            .collect()
    }

    #[test]
    fn the_same_is_no_difference() {
        assert!(lines(&[]).is_empty());
    }

    #[test]
    fn what_is_different_is_told_in_a_line() {
        for [from, to, line] in rows(
            r#"
ram:1MiB | ram:2MiB | ~ volume a = ram:2MiB (was ram:1MiB); the content of its RAM is lost
size=1GiB | size=2GiB | ~ volume f grows to 2GiB
delay:1ms | delay:2ms | ~ volume f = delay:2ms:[file:/data/f?size=1GiB] (was delay:1ms:[file:/data/f?size=1GiB])
spec = "ram:1MiB" | spec = "ram:1MiB"\nserial = "AB12" | ~ volume a has new identifiers: initiators treat it as another disk
lun = 1 | lun = 2 | + iqn.2026-01.com.example:t LUN 2 = f for ANY initiator
127.0.0.1:3260 | 127.0.0.1:3261 | + portal 127.0.0.1:3261 (group 1)
spec = "ram:1MiB" | spec = "ram:1MiB"\ndeadline = "5s" | ~ volume a: deadline 30 s -> 5 s
[[target.lun]] | alias = "x"\n[[target.lun]] | ~ iqn.2026-01.com.example:t: alias
[volume.a] | [limits]\nsessions = 7\n[volume.a] | ~ limits
"#,
        ) {
            let told = lines(&[(&from, &to)]).lines;
            assert_eq!(told.first(), Some(&line), "{told:?}");
        }
    }

    #[test]
    fn every_change_says_who_may_use_the_volume_afterwards() {
        for [from, to, told] in rows(
            r#"
lun = 1\nvolume = "f" | lun = 1\nvolume = "a" | ~ iqn.2026-01.com.example:t LUN 1 = a (was f) for ANY initiator
lun = 1\n | lun = 1\ninitiators = ["iqn.2026-01.com.example:i"]\n | ~ iqn.2026-01.com.example:t LUN 1: access; for listed initiators
volume = "f" # NBD | volume = "a" | ~ NBD export x: f -> a for ANY client
name = "x" | name = "y" | + NBD export y = f for ANY client\n- NBD export x, which was for ANY client
name = "x" | name = "x"\nnetworks = ["10.0.0.0/8"] | ~ NBD export x: networks\n~ NBD export x is for listed networks
volume = "f" # AoE | volume = "a" | ~ AoE 7.1: f -> a for ANY station
"7.1" | "7.2" | + AoE 7.2 = f for ANY station\n- AoE 7.1, which was for ANY station
"7.1" | "7.1"\nstations = ["02:00:00:00:00:01"] | ~ AoE 7.1: stations\n~ AoE 7.1 is for listed stations
volume = "f" # HyperSCSI | volume = "a" | ~ HyperSCSI disks LUN 3 = a (was f) for ANY initiator
lun = 3 | lun = 4 | + HyperSCSI disks LUN 4 = f for ANY initiator\n- HyperSCSI disks LUN 3 = f
name = "disks" | name = "disks"\ninitiators = ["host1"] | ~ HyperSCSI disks: initiators\n~ HyperSCSI disks is for listed initiators
"#,
        ) {
            assert_eq!(lines(&[(&from, &to)]).lines.join("\n"), told, "{to}");
        }
    }

    #[test]
    fn a_smaller_size_is_another_volume_and_a_larger_one_is_the_same() {
        let smaller = lines(&[("size=1GiB", "size=512MiB")]);
        assert_eq!(
            (
                smaller.grown.len(),
                smaller.reopened.len(),
                smaller.shrunk.len()
            ),
            (0, 1, 1)
        );
        let ordered = lines(&[("size=1GiB", "size=1GiB&create")]);
        assert_eq!(
            (ordered.lines.len(), ordered.reordered.len()),
            (0, 1),
            "it is made already"
        );
        let larger = lines(&[("size=1GiB", "size=3GiB")]);
        assert_eq!((larger.grown.len(), larger.reopened.len()), (1, 0));
    }

    #[test]
    fn a_set_of_one_member_does_not_grow_with_its_file() {
        let of = |form: &str, mib: u64| {
            let text = form.replace("MIB", &format!("{mib}MiB"));
            backends::parse(&text).expect("a specification")
        };
        let grown = |form| growth(&of(form, 1), &of(form, 2)).map(|bytes| bytes.0 >> 20);
        assert_eq!(grown("delay:1ms:[file:/a?size=MIB]"), Some(2));
        assert_eq!(grown("delay:1ms:[raid1:[file:/a?size=MIB]]"), None);
    }

    #[test]
    fn a_smaller_size_of_any_member_of_a_set_is_found() {
        let set = |mib: [u64; 2]| {
            let [a, b] = mib;
            let text = format!("delay:1ms:[raid1:[file:/a?size={a}MiB, file:/b?size={b}MiB]]");
            backends::parse(&text).expect("a specification")
        };
        let cut = |before, after| shrinking(&set(before), &set(after)).map(|(_, new)| new.0 >> 20);
        assert_eq!(cut([64, 64], [64, 64]), None);
        assert_eq!(cut([64, 64], [32, 64]), Some(32));
        assert_eq!(cut([64, 64], [64, 32]), Some(32));
    }

    #[test]
    fn a_file_with_another_identity_is_another_disk_and_does_not_grow() {
        let other = lines(&[("size=1GiB]\"", "size=3GiB]\"\nnaa = \"0x5000c50012345678\"")]);
        assert_eq!(
            (other.grown.len(), other.reopened.len(), other.lines.len()),
            (0, 1, 2)
        );
    }

    #[test]
    fn a_new_name_is_no_new_volume() {
        let renamed = lines(&[
            ("[volume.a]\n", "[volume.b]\nprevious-name = \"a\"\n"),
            ("volume = \"a\"", "volume = \"b\""),
        ]);
        assert_eq!(renamed.lines, ["~ volume a is renamed to b"]);
        assert_eq!(renamed.renamed.len(), 1);
        assert!(renamed.added.is_empty() && renamed.removed.is_empty());
        let without = lines(&[
            ("[volume.a]\n", "[volume.b]\n"),
            ("volume = \"a\"", "volume = \"b\""),
        ]);
        assert_eq!((without.added.len(), without.removed.len()), (1, 1));
    }

    #[test]
    fn what_waits_for_the_next_start_is_said() {
        let text = format!("reactors = 2\n{BASE}");
        let difference = Difference::between(&config(BASE), &config(&text));
        assert_eq!(
            (difference.lines.len(), difference.at_next_start),
            (0, vec!["reactors"])
        );
    }
}
