//! The settings that both formats share, in Linerate's terms: volumes, targets with their LUNs and access
//! lists, and notes on omissions.

use std::collections::{HashMap, HashSet};
use std::fmt::{self, Write as _};
use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::rc::Rc;
use std::str::FromStr;

use backends::Failure;
use derive_more::Display;
use iscsi::name::Name;
use iscsi::text::PrintableText;
use logical_unit::{Ascii, Naa};
use volume::spec::{Bytes, encode};
use zeroize::Zeroizing;

use crate::config::values::Uuid;

/// A position in a file.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Place {
    pub(super) file: Rc<str>,
    pub(super) line: usize,
}

/// A note about a setting that could not be carried over, or that has a different effect here. It contains no
/// secrets.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Display)]
#[display("{}:{}: {sentence}", place.file, place.line)]
pub struct Note {
    place: Place,
    /// The key as written in the file, and its treatment.
    sentence: String,
}

impl Note {
    pub(super) fn new(place: &Place, sentence: impl fmt::Display) -> Note {
        // A key or name may contain any character, but the note becomes a one-line comment.
        let harmless = |c: char| if c.is_control() { '?' } else { c };
        Note {
            place: place.clone(),
            sentence: sentence.to_string().chars().map(harmless).collect(),
        }
    }
}

/// Reads files, up to a limit on their number and total size.
pub(super) struct Reader {
    files_left: usize,
    bytes_left: u64,
}

/// Maximum number of files, more than a directory with one file per target contains.
const FILES_MAX: usize = 4096;
/// Maximum total size, 16 MiB. Ten thousand LUNs with an access list each need less.
const BYTES_MAX: u64 = 16 << 20;

impl Default for Reader {
    fn default() -> Reader {
        Reader {
            files_left: FILES_MAX,
            bytes_left: BYTES_MAX,
        }
    }
}

impl Reader {
    /// Reads the text of a file; bytes that are not UTF-8 become U+FFFD, which is invalid in any value.
    pub(super) fn read(&mut self, path: &Path) -> Result<Zeroizing<String>, Failure> {
        let refused = |why: &str| Failure::refused(format_args!("{}: {why}", path.display()));
        self.files_left = self
            .files_left
            .checked_sub(1)
            .ok_or_else(|| refused("too many files are included"))?;
        let mut bytes = Zeroizing::new(Vec::new());
        let file = File::open(path).map_err(|error| refused(&error.to_string()))?;
        let read = file.take(self.bytes_left + 1).read_to_end(&mut bytes);
        let length = read.map_err(|error| refused(&error.to_string()))? as u64;
        let left = self.bytes_left.checked_sub(length);
        self.bytes_left =
            left.ok_or_else(|| refused("with its included files, it is longer than 16 MiB"))?;
        Ok(Zeroizing::new(String::from_utf8_lossy(&bytes).into_owned()))
    }
}

/// The whole configuration.
#[derive(Default)]
pub(super) struct San {
    pub(super) portals: Vec<Portal>,
    pub(super) volumes: Vec<Volume>,
    pub(super) targets: Vec<Target>,
    pub(super) discovery: Option<Chap>,
    /// Notes on the configuration as a whole.
    pub(super) notes: Vec<Note>,
    /// A comment to be written to the text that does not describe an omission.
    pub(super) remark: &'static str,
    /// The index of the volume of each file. `identities` has the identities in use, as pairs of key and
    /// value.
    files: HashMap<String, usize>,
    identities: HashSet<(&'static str, String)>,
    names: HashSet<String>,
    stems: HashMap<String, u32>,
}

pub(super) struct Portal {
    pub(super) listen: std::net::SocketAddr,
    pub(super) group: u16,
}

/// A volume, with the keys that the other configuration can set.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Volume {
    pub(super) name: String,
    pub(super) spec: String,
    pub(super) uuid: Option<String>,
    /// Names by which initiators identify it: keys and values.
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
    /// `None` for all groups.
    pub(super) groups: Option<Vec<u16>>,
    /// `None` for any initiator.
    pub(super) initiators: Option<Vec<String>>,
    /// `None` for any network.
    pub(super) networks: Option<Vec<String>>,
    pub(super) luns: Vec<Lun>,
    pub(super) chap: Option<Chap>,
    /// Keys of `[target.session]`, with their values as TOML.
    pub(super) session: Vec<(&'static str, String)>,
    /// The reason to write the target as a comment: without a setting that could not be carried over, it
    /// would be accessible to more initiators, or invalid.
    pub(super) left_out: Option<&'static str>,
    pub(super) notes: Vec<Note>,
}

/// A volume at a LUN.
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

/// The highest supported LUN, with 14 bits (SAM-5 4.7.7.3).
pub(super) const LUN_MAX: u64 = 16_383;

impl San {
    pub(super) fn is_empty(&self) -> bool {
        self.targets.is_empty() && self.volumes.is_empty()
    }

    /// All notes, in the order of the text. A line that concerns several volumes has only one note.
    pub(super) fn all_notes(&self) -> Vec<Note> {
        let volumes = self.volumes.iter().flat_map(|volume| &volume.notes);
        let targets = self.targets.iter().flat_map(|target| &target.notes);
        let mut seen = HashSet::new();
        self.notes
            .iter()
            .chain(volumes)
            .chain(targets)
            .filter(|note| seen.insert(*note))
            .cloned()
            .collect()
    }

    pub(super) fn has_secrets(&self) -> bool {
        self.discovery.is_some() || self.targets.iter().any(|target| target.chap.is_some())
    }

    /// Adds a volume under a free name similar to `wanted`, and returns the name. If there is already a
    /// volume with the same file and the same settings, returns its name. If its settings differ, returns
    /// `None` and adds a note, because only one volume can use a file.
    pub(super) fn add_volume(
        &mut self,
        wanted: &str,
        mut volume: Volume,
        place: &Place,
    ) -> Option<String> {
        if let Some(path) = volume
            .spec
            .strip_prefix("file:")
            .and_then(|rest| rest.split('?').next())
        {
            let index = *self
                .files
                .entry(path.to_owned())
                .or_insert(self.volumes.len());
            if let Some(twin) = self.volumes.get_mut(index) {
                return twin.join(wanted, volume, place);
            }
        }
        let known = volume.names.len() + usize::from(volume.uuid.is_some());
        let mut is_new =
            |key: &'static str, value: &String| self.identities.insert((key, value.clone()));
        volume.uuid = volume.uuid.filter(|uuid| is_new("uuid", uuid));
        volume
            .names
            .retain(|(key, value)| !["naa", "t10-id"].contains(key) || is_new(key, value));
        if known > volume.names.len() + usize::from(volume.uuid.is_some()) {
            let sentence = "the identity is not imported completely: another volume has the same";
            volume.notes.push(Note::new(place, sentence));
        }
        volume.name = self.free_name(wanted);
        let name = volume.name.clone();
        debug_assert!(
            self.volumes.iter().all(|other| other.name != name),
            "names are unique"
        );
        self.volumes.push(volume);
        Some(name)
    }

    /// Returns a free, valid volume name that is similar to `wanted`.
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
            let name = if *used == 1 {
                stem.to_owned()
            } else {
                format!("{stem}-{used}")
            };
            // `a-2` may be another volume's original name.
            if self.names.insert(name.clone()) {
                return name;
            }
        }
    }
}

impl Volume {
    /// Adds a name by which initiators identify the volume, if the value is valid here. `theirs` is its key
    /// in the other configuration.
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
                self.notes.push(Note::new(
                    place,
                    format_args!("`{theirs}` is not imported as `{key}`: {why}"),
                ));
            }
        }
    }

    /// Returns the name of this volume for `other`, which has the same file, if their settings are the same.
    fn join(&mut self, wanted: &str, other: Volume, place: &Place) -> Option<String> {
        let is_same = self.spec == other.spec
            && (self.readonly, self.removable, self.thick)
                == (other.readonly, other.removable, other.thick);
        if is_same {
            let new: Vec<Note> = other
                .notes
                .into_iter()
                .filter(|note| !self.notes.contains(note))
                .collect();
            self.notes.extend(new);
            if self.names != other.names {
                let sentence = format_args!(
                    "the identity of `{wanted}` is not imported: the volume {} has the same file, but \
                     another identity",
                    self.name
                );
                self.notes.push(Note::new(place, sentence));
            }
            return Some(self.name.clone());
        }
        let sentence = format_args!(
            "`{wanted}` is not imported: the volume {} has the same file with other settings, and a file can \
             be served as only one volume",
            self.name
        );
        self.notes.push(Note::new(place, sentence));
        None
    }
}

/// Maximum length of the stem of a volume name. A name has up to 64 letters, and a number of up to ten digits
/// may follow the stem.
const STEM_LETTERS: usize = 52;

impl Target {
    /// Marks the target to be written as a comment. Only the first reason is kept.
    pub(super) fn leave_out(&mut self, why: &'static str, place: &Place) {
        if self.left_out.is_none() {
            self.left_out = Some(why);
            self.notes.push(Note::new(
                place,
                format_args!("the target {} is written as a comment: {why}", self.name),
            ));
        }
    }

    /// Adds a LUN, if its number is free.
    pub(super) fn add_lun(&mut self, lun: Lun, place: &Place) {
        match self.luns.iter().find(|other| other.lun == lun.lun) {
            None => {
                debug_assert!(u64::from(lun.lun) <= LUN_MAX);
                self.luns.push(lun);
            }
            Some(other) => {
                let sentence = format!(
                    "LUN {} of the volume {} is not imported: the target has the volume {} under this number",
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

/// Returns an iSCSI name in Linerate's form, if it is valid.
pub(super) fn name(text: &str) -> Option<String> {
    Name::new(text).ok().map(|name| name.as_str().to_owned())
}

/// Returns a UUID in Linerate's form.
pub(super) fn uuid(text: &str) -> Option<String> {
    text.parse::<Uuid>().ok().map(|uuid| uuid.to_string())
}

/// Returns the specification of a file or block device with these options. `None` if the path is not valid
/// here.
pub(super) fn file_spec(path: &str, options: &[String]) -> Option<String> {
    let query = if options.is_empty() {
        String::new()
    } else {
        format!("?{}", options.join("&"))
    };
    let spec = format!("file:{}{query}", encode(path.as_bytes()));
    let is_fit = path.starts_with('/') && !path.contains(char::REPLACEMENT_CHARACTER);
    (is_fit && backends::parse(&spec).is_ok()).then_some(spec)
}

impl Account {
    /// Creates an account, if the user name and the secret are valid here.
    ///
    /// # Errors
    /// A note on why the account is not imported.
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
                return Ok(Account {
                    user: user.to_owned(),
                    secret,
                    initiators,
                });
            }
        };
        let user = user.escape_debug();
        Err(Note::new(
            place,
            format_args!("the user `{user}` is not imported: {why}"),
        ))
    }
}

/// Returns the reason why a CHAP secret is not valid here; `None` if it is valid.
fn unfit(secret: &str) -> Option<String> {
    let length = secret.len();
    if PLACEHOLDERS.contains(&secret) {
        return Some(
            "it is the placeholder that `tgt-admin --dump` writes instead of the secret".to_owned(),
        );
    }
    if secret.contains(char::REPLACEMENT_CHARACTER) {
        return Some("it is not UTF-8".to_owned());
    }
    (!(12..=255).contains(&length))
        .then(|| format!("it has {length} bytes, and a CHAP secret has 12 to 255 here"))
}

/// The text that `tgt-admin --dump` prints instead of secrets. It is public, so it must not be imported as a
/// secret.
const PLACEHOLDERS: &[&str] = &["PLEASE_CORRECT_THE_PASSWORD"];

/// Carries a key over. Unsupported keys are noted, unless their value has no effect.
///
/// Returns `Err` if the standard does not define the key.
pub(super) fn take_session_key(
    target: &mut Target,
    key: &str,
    value: &str,
    place: &Place,
) -> Result<(), ()> {
    let taken = match key {
        "MaxRecvDataSegmentLength" => length(value).map(|value| ("max-segment", value)),
        "FirstBurstLength" => length(value).map(|value| ("first-burst", value)),
        "MaxBurstLength" => length(value).map(|value| ("max-burst", value)),
        "MaxOutstandingR2T" => {
            let count = value.parse::<u16>().ok().filter(|count| *count > 0);
            count.map(|count| ("max-outstanding-r2t", count.to_string()))
        }
        "InitialR2T" => flag(value).map(|value| ("initial-r2t", value)),
        "ImmediateData" => flag(value).map(|value| ("immediate-data", value)),
        "HeaderDigest" => digests(value).map(|value| ("header-digest", value)),
        "DataDigest" => digests(value).map(|value| ("data-digest", value)),
        _ => return other_key(target, key, value, place),
    };
    match taken {
        Some((ours, value)) => {
            target.session.retain(|(key, _)| *key != ours);
            target.session.push((ours, value));
        }
        None => target.note(
            place,
            format_args!("`{key}` is not imported: its value is not standard"),
        ),
    }
    Ok(())
}

fn other_key(target: &mut Target, key: &str, value: &str, place: &Place) -> Result<(), ()> {
    let Some((_, usual)) = OTHERS.iter().find(|(name, _)| *name == key) else {
        return Err(());
    };
    if !usual.is_some_and(|usual| !value.eq_ignore_ascii_case(usual)) {
        return Ok(());
    }
    target.note(
        place,
        format_args!("`{key}` is not imported: the server determines it"),
    );
    Ok(())
}

/// Keys without an equivalent here, with their usual value. Keys without a value affect only the other
/// target.
const OTHERS: &[(&str, Option<&str>)] = &[
    ("DataPDUInOrder", Some("Yes")),
    ("DataSequenceInOrder", Some("Yes")),
    ("DefaultTime2Retain", Some("20")),
    ("DefaultTime2Wait", Some("2")),
    ("ErrorRecoveryLevel", Some("0")),
    ("IFMarkInt", None),
    ("IFMarker", Some("No")),
    ("MaxConnections", Some("1")),
    ("MaxXmitDataSegmentLength", None),
    ("OFMarkInt", None),
    ("OFMarker", Some("No")),
];

/// Removes a first burst that exceeds the maximum burst (RFC 7143 section 13.14).
pub(super) fn settle_bursts(target: &mut Target, place: &Place) {
    let bytes = |target: &Target, key| {
        let value = target
            .session
            .iter()
            .find(|(name, _)| *name == key)
            .map(|(_, value)| value.trim_matches('"'));
        value
            .and_then(|value| value.parse::<Bytes>().ok())
            .map(|bytes| bytes.0)
    };
    let max = bytes(target, "max-burst").unwrap_or(u64::from(
        iscsi::negotiate::Offers::of_target().max_burst_length,
    ));
    if bytes(target, "first-burst").is_some_and(|first| first > max) {
        target.session.retain(|(key, _)| *key != "first-burst");
        target.notes.push(Note::new(
            place,
            "`FirstBurstLength` is not imported: it is more than MaxBurstLength",
        ));
    }
}

/// 512 to 2^24 - 1 (RFC 7143 sections 13.12 to 13.14).
fn length(value: &str) -> Option<String> {
    let bytes = value
        .parse::<u64>()
        .ok()
        .filter(|bytes| (512..=0xff_ffff).contains(bytes))?;
    Some(format!("\"{}\"", Bytes(bytes)))
}

fn flag(value: &str) -> Option<String> {
    match value.to_ascii_lowercase().as_str() {
        "yes" => Some("true".to_owned()),
        "no" => Some("false".to_owned()),
        _ => None,
    }
}

fn digests(value: &str) -> Option<String> {
    let known = |digest: &str| match digest.trim().to_ascii_lowercase().as_str() {
        "none" => Some("\"none\""),
        "crc32c" => Some("\"crc32c\""),
        _ => None,
    };
    let digests: Option<Vec<&str>> = value.split(',').map(known).collect();
    Some(format!("[{}]", digests?.join(", ")))
}

/// Renders the text, including its source.
pub(super) fn rendered(san: &San, source: &str) -> Zeroizing<String> {
    let mut text = Zeroizing::new(String::new());
    let source: String = source
        .chars()
        .map(|c| if c.is_control() { '?' } else { c })
        .collect();
    line(&mut text, format_args!("# Imported from {source}."));
    match san.all_notes().len() {
        0 => text.push_str("# All settings were imported.\n"),
        many => line(
            &mut text,
            format_args!(
                "# Not imported, or different here: {many}, each a comment that begins with `import:`."
            ),
        ),
    }
    notes(&mut text, &san.notes);
    text.push_str(san.remark);
    for portal in &san.portals {
        line(
            &mut text,
            format_args!("\n[[portal]]\nlisten = \"{}\"", portal.listen),
        );
        if portal.group != 1 {
            line(&mut text, format_args!("group = {}", portal.group));
        }
    }
    san.volumes.iter().for_each(|one| volume(&mut text, one));
    for one in &san.targets {
        text.push('\n');
        notes(&mut text, &one.notes);
        let section = target(one);
        match one.left_out {
            None => text.push_str(&section),
            Some(_) => section
                .lines()
                .for_each(|inside| line(&mut text, format_args!("# {inside}"))),
        }
    }
    if let Some(discovery) = &san.discovery {
        text.push('\n');
        chap(&mut text, "discovery.chap", discovery);
    }
    text
}

fn notes(text: &mut String, notes: &[Note]) {
    notes
        .iter()
        .for_each(|note| line(text, format_args!("# import: {note}")));
}

fn volume(text: &mut String, volume: &Volume) {
    text.push('\n');
    notes(text, &volume.notes);
    // A dot in a bare key starts a nested table.
    let name = if volume.name.contains('.') {
        quoted(&volume.name)
    } else {
        volume.name.clone()
    };
    line(
        text,
        format_args!("[volume.{name}]\nspec = {}", quoted(&volume.spec)),
    );
    if let Some(uuid) = &volume.uuid {
        line(text, format_args!("uuid = {}", quoted(uuid)));
    }
    volume
        .names
        .iter()
        .for_each(|(key, value)| line(text, format_args!("{key} = {}", quoted(value))));
    for (key, is_set) in [
        ("read-only", volume.readonly),
        ("removable", volume.removable),
        ("thick", volume.thick),
    ] {
        if is_set {
            line(text, format_args!("{key} = true"));
        }
    }
}

fn target(target: &Target) -> Zeroizing<String> {
    let mut text = Zeroizing::new(format!("[[target]]\nname = {}\n", quoted(&target.name)));
    if let Some(alias) = &target.alias {
        line(&mut text, format_args!("alias = {}", quoted(alias)));
    }
    if let Some(groups) = &target.groups {
        let groups: Vec<String> = groups.iter().map(u16::to_string).collect();
        line(&mut text, format_args!("groups = [{}]", groups.join(", ")));
    }
    list(&mut text, "initiators", target.initiators.as_deref());
    list(&mut text, "networks", target.networks.as_deref());
    for lun in &target.luns {
        line(
            &mut text,
            format_args!(
                "\n[[target.lun]]\nlun = {}\nvolume = {}",
                lun.lun,
                quoted(&lun.volume)
            ),
        );
        list(&mut text, "initiators", lun.initiators.as_deref());
    }
    if !target.session.is_empty() {
        text.push_str("\n[target.session]\n");
        target
            .session
            .iter()
            .for_each(|(key, value)| line(&mut text, format_args!("{key} = {value}")));
    }
    if let Some(accounts) = &target.chap {
        text.push('\n');
        chap(&mut text, "target.chap", accounts);
    }
    text
}

fn chap(text: &mut String, section: &str, chap: &Chap) {
    let accounts = chap
        .accounts
        .iter()
        .map(|account| (format!("[[{section}.account]]"), account));
    let mutual = chap
        .mutual
        .iter()
        .map(|account| (format!("[{section}.mutual]"), account));
    let mut between = "";
    for (
        heading,
        Account {
            user,
            secret,
            initiators,
        },
    ) in accounts.chain(mutual)
    {
        let secret = Zeroizing::new(quoted(secret));
        line(
            text,
            format_args!(
                "{between}{heading}\nuser = {}\nsecret = {}",
                quoted(user),
                *secret
            ),
        );
        list(text, "initiators", initiators.as_deref());
        between = "\n";
    }
}

fn list(text: &mut String, key: &str, entries: Option<&[String]>) {
    if let Some(entries) = entries {
        let entries: Vec<String> = entries.iter().map(|entry| quoted(entry)).collect();
        line(text, format_args!("{key} = [{}]", entries.join(", ")));
    }
}

/// Appends a line. Writing to a `String` does not fail.
fn line(text: &mut String, line: impl fmt::Display) {
    let _ = writeln!(text, "{line}");
}

/// Returns a basic string of TOML, on one line.
fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            c if c.is_control() => quoted += &format!("\\u{:04x}", u32::from(c)),
            c => quoted.push(c),
        }
    }
    quoted + "\""
}
