//! What both formats say, in our terms: volumes, targets with their LUNs and access lists, and what was left out of each.

use std::collections::{HashMap, HashSet};
use std::str::FromStr;

use iscsi::name::Name;
use iscsi::text::PrintableText;
use logical_unit::{Ascii, Naa};
use volume::spec::encode;
use zeroize::Zeroizing;

use super::{Note, Place};
use crate::config::Uuid;

/// All of a configuration.
#[derive(Default)]
pub(super) struct San {
    pub(super) portals: Vec<Portal>,
    pub(super) volumes: Vec<Volume>,
    pub(super) targets: Vec<Target>,
    pub(super) discovery: Option<Chap>,
    /// What concerns none of these alone.
    pub(super) notes: Vec<Note>,
    /// Comments of the text for which nothing is lost.
    pub(super) remark: &'static str,
    /// Volumes by their files, and what of volumes is taken: names by their keys.
    files: HashMap<String, usize>,
    identities: HashSet<(&'static str, String)>,
    names: HashSet<String>,
    stems: HashMap<String, u32>,
}

/// An address to listen on.
pub(super) struct Portal {
    pub(super) listen: std::net::SocketAddr,
    pub(super) group: u16,
}

/// A volume, by the keys that the other configuration has something to say of.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Volume {
    pub(super) name: String,
    pub(super) spec: String,
    pub(super) uuid: Option<String>,
    /// Names by which initiators know it: keys and values.
    pub(super) names: Vec<(&'static str, String)>,
    pub(super) readonly: bool,
    pub(super) removable: bool,
    pub(super) thick: bool,
    pub(super) notes: Vec<Note>,
}

/// A target.
#[derive(Debug, Default)]
pub(super) struct Target {
    pub(super) name: String,
    pub(super) alias: Option<String>,
    /// `None` for all.
    pub(super) groups: Option<Vec<u16>>,
    /// `None` for any.
    pub(super) initiators: Option<Vec<String>>,
    /// `None` for anywhere.
    pub(super) networks: Option<Vec<String>>,
    pub(super) luns: Vec<Lun>,
    pub(super) chap: Option<Chap>,
    /// Keys of `[target.session]` with their values as TOML.
    pub(super) session: Vec<(&'static str, String)>,
    /// Why it is written as a comment: without something that could not be carried over it would be open to others, or no
    /// valid target.
    pub(super) left_out: Option<&'static str>,
    pub(super) notes: Vec<Note>,
}

/// A volume under a number.
#[derive(Debug)]
pub(super) struct Lun {
    pub(super) lun: u16,
    pub(super) volume: String,
    /// `None` for all that may log in.
    pub(super) initiators: Option<Vec<String>>,
}

/// CHAP accounts.
#[derive(Debug, Default)]
pub(super) struct Chap {
    pub(super) accounts: Vec<Account>,
    pub(super) mutual: Option<Account>,
}

/// A user, and the initiator names that it may present.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Account {
    pub(super) user: String,
    pub(super) secret: Zeroizing<String>,
    pub(super) initiators: Option<Vec<String>>,
}

/// Our highest LUN, with 14 bits (SAM-5 4.7.7.3).
pub(super) const LUN_MAX: u64 = 16_383;

impl San {
    pub(super) fn is_empty(&self) -> bool {
        self.targets.is_empty() && self.volumes.is_empty()
    }

    /// All notes, in the order in which the text has them. A line that concerns several volumes has one.
    pub(super) fn all_notes(&self) -> Vec<Note> {
        let volumes = self.volumes.iter().flat_map(|volume| &volume.notes);
        let targets = self.targets.iter().flat_map(|target| &target.notes);
        let mut seen = HashSet::new();
        self.notes.iter().chain(volumes).chain(targets).filter(|note| seen.insert(*note)).cloned().collect()
    }

    pub(super) fn has_secrets(&self) -> bool {
        self.discovery.is_some() || self.targets.iter().any(|target| target.chap.is_some())
    }

    /// Adds a volume, under a name like `wanted` that no other has, and says which. A file that is there already is that
    /// volume, if both say the same of it; `None` with a note if not, since a file is locked while it is served.
    pub(super) fn add_volume(&mut self, wanted: &str, mut volume: Volume, place: &Place) -> Option<String> {
        if let Some(path) = volume.spec.strip_prefix("file:").and_then(|rest| rest.split('?').next()) {
            let index = *self.files.entry(path.to_owned()).or_insert(self.volumes.len());
            if let Some(twin) = self.volumes.get_mut(index) {
                return twin.join(wanted, volume, place);
            }
        }
        let known = volume.names.len() + usize::from(volume.uuid.is_some());
        let mut is_new = |key: &'static str, value: &String| self.identities.insert((key, value.clone()));
        volume.uuid = volume.uuid.filter(|uuid| is_new("uuid", uuid));
        volume.names.retain(|(key, value)| !["naa", "t10-id"].contains(key) || is_new(key, value));
        if known > volume.names.len() + usize::from(volume.uuid.is_some()) {
            let sentence = "the identity is not carried over as a whole: another volume has the same";
            volume.notes.push(Note::new(place, sentence));
        }
        volume.name = self.free_name(wanted);
        let name = volume.name.clone();
        self.volumes.push(volume);
        Some(name)
    }

    /// A name of a volume as our rules want it.
    fn free_name(&mut self, wanted: &str) -> String {
        let letter = |c: char| match c.to_ascii_lowercase() {
            c @ ('a'..='z' | '0'..='9' | '.' | '-') => c,
            _ => '-',
        };
        let stem: String = wanted.chars().map(letter).take(STEM_LETTERS).collect();
        let stem = stem.trim_matches(['-', '.']);
        let stem = if stem.is_empty() { "volume" } else { stem };
        loop {
            let used = self.stems.entry(stem.to_owned()).or_default();
            *used += 1;
            let name = if *used == 1 { stem.to_owned() } else { format!("{stem}-{used}") };
            // `a-2` may be somebody's own name.
            if self.names.insert(name.clone()) {
                return name;
            }
        }
    }
}

impl Volume {
    /// Gives it a name by which initiators know it, if that can be one: it is `theirs` in the other configuration.
    pub(super) fn give(&mut self, key: &'static str, value: String, theirs: &str, place: &Place) {
        fn unfit<T: FromStr<Err: ToString>>(value: &str) -> Option<String> {
            value.parse::<T>().err().map(|error| error.to_string())
        }
        let unfit = match key {
            "serial" => unfit::<Ascii<1, 251>>(&value),
            "naa" => unfit::<Naa>(&value),
            "t10-id" => unfit::<Ascii<9, 255>>(&value),
            "vendor" => unfit::<Ascii<1, 8>>(&value),
            "product" => unfit::<Ascii<1, 16>>(&value),
            _ => unfit::<Ascii<1, 4>>(&value),
        };
        match unfit {
            None => self.names.push((key, value)),
            Some(why) => {
                self.notes
                    .push(Note::new(place, format_args!("`{theirs}` is not carried over as `{key}`: {why}")));
            }
        }
    }

    /// The name of this volume for `other`, which has the same file, if it says the same of it.
    fn join(&mut self, wanted: &str, other: Volume, place: &Place) -> Option<String> {
        let is_same = self.spec == other.spec
            && (self.readonly, self.removable, self.thick) == (other.readonly, other.removable, other.thick);
        if is_same {
            let new: Vec<Note> = other.notes.into_iter().filter(|note| !self.notes.contains(note)).collect();
            self.notes.extend(new);
            if self.names != other.names {
                let sentence = format_args!(
                    "the identity of `{wanted}` is not carried over: its file is the volume {}, which has one of its own",
                    self.name
                );
                self.notes.push(Note::new(place, sentence));
            }
            return Some(self.name.clone());
        }
        let sentence = format_args!(
            "`{wanted}` is not carried over: the volume {} has the same file with other settings, and a file can be \
             served as one volume only",
            self.name
        );
        self.notes.push(Note::new(place, sentence));
        None
    }
}

/// So many of a name's 64 letters, with a number of up to ten digits behind them.
const STEM_LETTERS: usize = 52;

impl Target {
    /// Leaves it out, for the first reason given.
    pub(super) fn leave_out(&mut self, why: &'static str, place: &Place) {
        if self.left_out.is_none() {
            self.left_out = Some(why);
            self.notes.push(Note::new(
                place,
                format_args!("the target {} is written as a comment: {why}", self.name),
            ));
        }
    }

    /// Adds a LUN, if its number is free here.
    pub(super) fn add_lun(&mut self, lun: Lun, place: &Place) {
        match self.luns.iter().find(|other| other.lun == lun.lun) {
            None => self.luns.push(lun),
            Some(other) => {
                let sentence = format!(
                    "LUN {} of the volume {} is not carried over: the target has the volume {} under this number",
                    lun.lun, lun.volume, other.volume
                );
                self.notes.push(Note::new(place, sentence));
            }
        }
    }

    pub(super) fn note(&mut self, place: &Place, sentence: impl std::fmt::Display) {
        self.notes.push(Note::new(place, sentence));
    }
}

/// An iSCSI name as ours are written, if it is one.
pub(super) fn name(text: &str) -> Option<String> {
    Name::new(text).ok().map(|name| name.as_str().to_owned())
}

/// A UUID as ours are written.
pub(super) fn uuid(text: &str) -> Option<String> {
    text.parse::<Uuid>().ok().map(|uuid| uuid.to_string())
}

/// The specification of a file or block device with these options. `None` if no path of ours can be this one.
pub(super) fn file_spec(path: &str, options: &[String]) -> Option<String> {
    let query = if options.is_empty() { String::new() } else { format!("?{}", options.join("&")) };
    let spec = format!("file:{}{query}", encode(path.as_bytes()));
    let is_fit = path.starts_with('/') && !path.contains(char::REPLACEMENT_CHARACTER);
    (is_fit && backends::parse(&spec).is_ok()).then_some(spec)
}

impl Account {
    /// A user with a name and a secret that can be ours.
    ///
    /// # Errors
    /// A note of why it is not carried over.
    pub(super) fn new(
        user: &str,
        secret: &str,
        initiators: Option<Vec<String>>,
        place: &Place,
    ) -> Result<Account, Note> {
        let why = match (user.parse::<PrintableText>(), unfit(secret)) {
            (Err(why), _) => format!("of its name, {why}"),
            (Ok(_), Some(why)) => format!("of its secret, {why}"),
            (Ok(_), None) => {
                let secret = Zeroizing::new(secret.to_owned());
                return Ok(Account { user: user.to_owned(), secret, initiators });
            }
        };
        let user = user.escape_debug();
        Err(Note::new(place, format_args!("the user `{user}` is not carried over: {why}")))
    }
}

/// Why a CHAP secret cannot be ours; `None` if it can.
fn unfit(secret: &str) -> Option<String> {
    let length = secret.len();
    if PLACEHOLDERS.contains(&secret) {
        return Some("it is the placeholder that `tgt-admin --dump` writes instead of the secret".to_owned());
    }
    if secret.contains(char::REPLACEMENT_CHARACTER) {
        return Some("it is not UTF-8".to_owned());
    }
    (!(12..=255).contains(&length))
        .then(|| format!("it has {length} bytes, and a CHAP secret has 12 to 255 here"))
}

/// What `tgt-admin --dump` prints in place of secrets. It is public, and therefore no secret.
const PLACEHOLDERS: &[&str] = &["PLEASE_CORRECT_THE_PASSWORD"];
