//! The wanted configuration of a server, as a value that changes at random from a seed: the server, its
//! initiators and its file are compared with it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::PathBuf;

use testkit::Random;

use crate::server::free_port;

/// The target with the LUN under load.
pub(super) const TARGET: &str = "iqn.2026-01.com.example:t";
/// The target whose secret changes.
pub(super) const SECRET_TARGET: &str = "iqn.2026-01.com.example:s";
/// The prefix of the names of all initiators of the scene.
pub(super) const INITIATORS: &str = "iqn.2026-01.com.example:";

/// The configuration.
#[derive(Clone)]
pub(super) struct Model {
    random: Random,
    port: u16,
    state: PathBuf,
    volumes: BTreeMap<String, Volume>,
    /// The LUNs of [`TARGET`]. LUN 0 is the one under load; LUN 1 is also a file.
    luns: BTreeMap<u16, Lun>,
    /// Volumes that are LUN 0 of separate targets.
    alone: BTreeSet<String>,
    /// Number of names and devices used so far.
    count: u64,
    second_portal: Option<u16>,
    secret: u64,
    /// Whether [`TARGET`] is restricted to listed names and networks, which include all initiators of the
    /// scene.
    has_access_lists: bool,
    limits: u64,
    alias: u64,
}

#[derive(Clone)]
struct Volume {
    /// The number of the device. A different number means a different device.
    device: u64,
    /// The file's name in the state directory; `None` for memory.
    file: Option<String>,
    mib: u64,
    deadline_s: u64,
    previous_name: Option<String>,
}

#[derive(Clone)]
struct Lun {
    volume: String,
    is_hidden: bool,
}

/// A LUN as an initiator sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) device: u64,
    pub(super) mib: u64,
}

/// The way to make a change, once the model has changed.
pub(super) struct Change {
    pub(super) what: String,
    /// The arguments of `linerate server`; without them, the file is written and reloaded.
    pub(super) command: Option<Vec<String>>,
}

impl Change {
    fn of_file(what: String) -> Option<Change> {
        Some(Change {
            what,
            command: None,
        })
    }

    fn command(words: &[&str]) -> Option<Change> {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        Some(Change {
            what: format!("server {}", words.join(" ")),
            command: Some(words),
        })
    }
}

impl Model {
    pub(super) fn new(seed: u64, port: u16, state: PathBuf) -> Model {
        let mut model = Model {
            random: Random::new(seed),
            port,
            state,
            volumes: BTreeMap::new(),
            luns: BTreeMap::new(),
            alone: BTreeSet::new(),
            count: 0,
            second_portal: None,
            secret: 0,
            has_access_lists: false,
            limits: 0,
            alias: 0,
        };
        for (lun, file, mib) in [(0, "a", 8), (1, "f", 1)] {
            let volume = model.add(Some(file.to_owned()), mib);
            model.luns.insert(
                lun,
                Lun {
                    volume,
                    is_hidden: false,
                },
            );
        }
        model
    }

    pub(super) fn below(&mut self, limit: u64) -> u64 {
        self.random.below(limit)
    }

    /// Continues another model's random numbers, and never reuses its names.
    pub(super) fn draw_on(&mut self, other: &Model) {
        (self.random, self.count) = (other.random.clone(), other.count);
    }

    fn one_of<T: Copy>(&mut self, choices: &[T]) -> Option<T> {
        let index = self.below(choices.len().max(1) as u64) as usize;
        choices.get(index).copied()
    }

    fn name(&mut self) -> String {
        self.count += 1;
        format!("v{}", self.count)
    }

    fn add(&mut self, file: Option<String>, mib: u64) -> String {
        let name = self.name();
        let volume = Volume {
            device: self.count,
            file,
            mib,
            deadline_s: 30,
            previous_name: None,
        };
        self.volumes.insert(name.clone(), volume);
        name
    }

    fn spec(&self, volume: &Volume) -> String {
        match &volume.file {
            Some(file) => format!(
                "file:{}/{file}?size={}MiB",
                self.state.display(),
                volume.mib
            ),
            None => format!("ram:{}MiB", volume.mib),
        }
    }

    /// The configuration file.
    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        let mut put = |part: String| text.write_str(&part).expect("memory");
        for port in [Some(self.port), self.second_portal].into_iter().flatten() {
            put(format!("[[portal]]\nlisten = \"127.0.0.1:{port}\"\n"));
        }
        put(format!(
            "[limits]\nsessions = {}\nlogin-time = \"{}s\"\n",
            100 + self.limits,
            20 + self.limits
        ));
        for (name, volume) in &self.volumes {
            put(format!(
                "[volume.{name}]\nspec = \"{}\"\n",
                self.spec(volume)
            ));
            put(format!("deadline = \"{}s\"\n", volume.deadline_s));
            put(volume
                .previous_name
                .iter()
                .map(|name| format!("previous-name = \"{name}\"\n"))
                .collect());
        }
        put(format!(
            "[[target]]\nname = \"{TARGET}\"\nalias = \"disks {}\"\n",
            self.alias
        ));
        if self.has_access_lists {
            put(format!(
                "initiators = [\"{INITIATORS}*\"]\nnetworks = [\"127.0.0.0/8\"]\n"
            ));
        }
        for (lun, Lun { volume, is_hidden }) in &self.luns {
            put(format!(
                "[[target.lun]]\nlun = {lun}\nvolume = \"{volume}\"\n"
            ));
            let hidden = format!("initiators = [\"{INITIATORS}nobody\"]\n");
            put(if *is_hidden { hidden } else { String::new() });
        }
        put(format!(
            "[[target]]\nname = \"{SECRET_TARGET}\"\nlun = [{{ lun = 0, volume = \"{}\" }}]\n\
             [target.chap]\n[[target.chap.account]]\nuser = \"alice\"\nsecret = \"{}\"\n",
            self.luns[&1].volume,
            self.secret()
        ));
        for volume in &self.alone {
            let name = own_target(volume);
            put(format!(
                "[[target]]\nname = \"{name}\"\nlun = [{{ lun = 0, volume = \"{volume}\" }}]\n"
            ));
        }
        text
    }

    /// The initiators' view of [`TARGET`].
    pub(super) fn seen(&self) -> BTreeMap<u16, Seen> {
        let shown = self.luns.iter().filter(|(_, lun)| !lun.is_hidden);
        shown
            .map(|(number, lun)| {
                let Volume { device, mib, .. } = self.volumes[&lun.volume];
                (*number, Seen { device, mib })
            })
            .collect()
    }

    /// The served volumes, with their sizes in MiB, and their LUNs.
    pub(super) fn served(&self) -> BTreeMap<String, (u64, BTreeSet<(String, u16)>)> {
        let places = |name: &String| {
            let its = self.luns.iter().filter(|(_, lun)| lun.volume == *name);
            let its = its.map(|(number, _)| (TARGET.to_owned(), *number));
            let alone = self.alone.get(name).map(|name| (own_target(name), 0));
            let secret = (self.luns[&1].volume == *name).then(|| (SECRET_TARGET.to_owned(), 0));
            its.chain(alone).chain(secret).collect()
        };
        self.volumes
            .iter()
            .map(|(name, volume)| (name.clone(), (volume.mib, places(name))))
            .collect()
    }

    /// The names of the two permanent files.
    pub(super) fn files(&self) -> [&str; 2] {
        [0, 1].map(|lun| self.luns[&lun].volume.as_str())
    }

    /// The targets that discovery must find.
    pub(super) fn targets(&self) -> BTreeSet<String> {
        let fixed = [TARGET.to_owned(), SECRET_TARGET.to_owned()];
        self.alone
            .iter()
            .map(|name| own_target(name))
            .chain(fixed)
            .collect()
    }

    pub(super) fn second_portal(&self) -> Option<u16> {
        self.second_portal
    }

    pub(super) fn secret(&self) -> String {
        format!("correct-horse-{:06}", self.secret)
    }

    /// Changes something.
    pub(super) fn change(&mut self) -> Change {
        loop {
            let kind = self.below(15);
            if let Some(change) = self.try_to(kind) {
                return change;
            }
        }
    }

    /// Makes a change of this kind. Returns `None`, and changes nothing, if no such change is possible now.
    fn try_to(&mut self, kind: u64) -> Option<Change> {
        let free: Vec<u16> = (2..8).filter(|lun| !self.luns.contains_key(lun)).collect();
        let more: Vec<u16> = self
            .luns
            .keys()
            .copied()
            .filter(|lun| (2..8).contains(lun))
            .collect();
        let is_command = self.below(2) == 0;
        match kind {
            0 | 1 => {
                let lun = self.one_of(&free)?;
                self.add_lun(lun, is_command)
            }
            2 => {
                let lun = self.one_of(&more)?;
                self.remove_lun(lun, is_command)
            }
            3 => {
                let lun = self.one_of(&[0, 1])?;
                self.grow(lun, is_command)
            }
            4 => {
                let lun = self.one_of(&[0, 1])?;
                self.rename(lun)
            }
            5 => {
                let (from, to) = (self.one_of(&more)?, self.one_of(&free)?);
                let lun = self.luns.remove(&from)?;
                self.luns.insert(to, lun);
                Change::of_file(format!("LUN {from} is LUN {to}"))
            }
            6 => {
                let (one, other) = (self.one_of(&more)?, self.one_of(&more)?);
                if one == other {
                    return None;
                }
                let (first, second) = (self.luns.remove(&one)?, self.luns.remove(&other)?);
                self.luns.extend([(one, second), (other, first)]);
                Change::of_file(format!("LUNs {one} and {other} are exchanged"))
            }
            7 => {
                let lun = self.one_of(&more)?;
                let lun_there = self.luns.get_mut(&lun)?;
                lun_there.is_hidden = !lun_there.is_hidden;
                Change::of_file(format!("LUN {lun} is hidden: {}", lun_there.is_hidden))
            }
            8 => {
                let lun = self.one_of(&more)?;
                self.replace_device(lun)
            }
            9 => self.own_target(is_command),
            10 => {
                self.secret += 1;
                Change::of_file("another secret".to_owned())
            }
            11 => {
                self.second_portal = match self.second_portal {
                    Some(_) => None,
                    None => Some(free_port()),
                };
                Change::of_file(format!("the second portal is {:?}", self.second_portal))
            }
            12 => {
                self.has_access_lists = !self.has_access_lists;
                Change::of_file(format!("access lists: {}", self.has_access_lists))
            }
            13 => {
                (self.limits, self.alias) = (1 + self.limits % 50, self.alias + 1);
                let under_load = self.luns.get(&0)?.volume.clone();
                self.volumes.get_mut(&under_load)?.deadline_s = 30 + self.limits;
                Change::of_file("limits, a deadline and an alias".to_owned())
            }
            _ => self.second_lun(),
        }
    }

    fn add_lun(&mut self, lun: u16, is_command: bool) -> Option<Change> {
        let mib = 1 + self.below(4);
        let file = is_command.then(|| format!("x{}", self.count));
        let name = self.add(file, mib);
        self.luns.insert(
            lun,
            Lun {
                volume: name.clone(),
                is_hidden: false,
            },
        );
        if !is_command {
            return Change::of_file(format!("LUN {lun} is new"));
        }
        let volume = format!("{name}={}", self.spec(&self.volumes[&name]));
        Change::command(&[
            "add",
            &volume,
            "--target",
            TARGET,
            "--lun",
            &lun.to_string(),
        ])
    }

    fn remove_lun(&mut self, lun: u16, is_command: bool) -> Option<Change> {
        let Lun { volume, .. } = self.luns.remove(&lun)?;
        self.volumes.remove(&volume);
        match is_command {
            true => Change::command(&["remove", &volume, "--force"]),
            false => Change::of_file(format!("LUN {lun} is gone")),
        }
    }

    fn grow(&mut self, lun: u16, is_command: bool) -> Option<Change> {
        let name = self.luns.get(&lun)?.volume.clone();
        let volume = self.volumes.get_mut(&name)?;
        volume.mib += 1;
        match is_command {
            true => Change::command(&["resize", &name, &format!("{}MiB", volume.mib)]),
            false => Change::of_file(format!("LUN {lun} has {} MiB", volume.mib)),
        }
    }

    fn rename(&mut self, lun: u16) -> Option<Change> {
        let (old, new) = (self.luns.get(&lun)?.volume.clone(), self.name());
        let volume = self.volumes.remove(&old)?;
        let its = self.luns.values_mut().filter(|lun| lun.volume == old);
        its.for_each(|lun| lun.volume.clone_from(&new));
        let what = format!("{old} is called {new}");
        self.volumes.insert(
            new,
            Volume {
                previous_name: Some(old),
                ..volume
            },
        );
        Change::of_file(what)
    }

    fn replace_device(&mut self, lun: u16) -> Option<Change> {
        self.count += 1;
        let (device, mib) = (self.count, 1 + self.below(4));
        let name = self.luns.get(&lun)?.volume.clone();
        let volume = self.volumes.get_mut(&name)?;
        // Only a RAM volume can be replaced this way, because a larger file would be the same device.
        let is_other = volume.file.is_none() && volume.mib != mib;
        is_other.then(|| (volume.device, volume.mib) = (device, mib))?;
        Change::of_file(format!("LUN {lun} is another device of {mib} MiB"))
    }

    fn own_target(&mut self, is_command: bool) -> Option<Change> {
        match (self.alone.pop_first(), is_command) {
            (Some(name), true) => {
                self.volumes.remove(&name);
                Change::command(&["remove", &name])
            }
            (Some(name), false) => {
                self.volumes.remove(&name);
                Change::of_file(format!("the target of {name} is gone"))
            }
            (None, true) => {
                let name = self.add(None, 2);
                self.alone.insert(name.clone());
                Change::command(&["add", &format!("{name}=ram:2MiB")])
            }
            (None, false) => {
                let name = self.add(None, 2);
                self.alone.insert(name.clone());
                Change::of_file(format!("{name} has a separate target"))
            }
        }
    }

    /// Adds a second LUN for the volume under load, or removes it.
    fn second_lun(&mut self) -> Option<Change> {
        let volume = self.luns.get(&0)?.volume.clone();
        if self.luns.remove(&SECOND_LUN).is_none() {
            self.luns.insert(
                SECOND_LUN,
                Lun {
                    volume,
                    is_hidden: false,
                },
            );
        }
        Change::of_file(format!("LUN {SECOND_LUN} is LUN 0, too, or not"))
    }
}

/// The second LUN of the volume under load.
const SECOND_LUN: u16 = 8;

fn own_target(volume: &str) -> String {
    format!("iqn.2026-01.io.linerate:{volume}")
}
