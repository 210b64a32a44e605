//! Converts tgt's `targets.conf`, interpreted as by `tgt-admin` and `tgtd`.
//!
//! LUNs without a number are assigned the lowest free number, starting at 1, in the order of their paths,
//! `backing-store` before `direct-store`. A user has one secret in all of tgtd: the secret of its first line,
//! in the order of the targets' names. tgtd's default identity of a LUN (`spc_lu_init` in its `spc.c`)
//! contains the number of the target; targets are numbered in the order of their names.

use std::collections::{BTreeMap, BTreeSet};

use front_end_core::Network;
use volume::spec::Bytes;
use zeroize::Zeroizing;

use super::apache::Entry;
use super::san::{self, Account, Chap, LUN_MAX, Lun, Note, Place, Portal, San, Target, Volume};

pub(super) fn san(entries: &[Entry]) -> San {
    let mut reader = Tgt::default();
    // Discovery users come first, as in tgt-admin.
    entries
        .iter()
        .filter(|entry| entry.key != "target" || entry.block.is_none())
        .for_each(|entry| reader.global(entry));
    reader.discovery();
    // A target that is defined twice is one target; targets are processed in the order of their names.
    let mut targets: BTreeMap<&str, Vec<&Entry>> = BTreeMap::new();
    for entry in entries
        .iter()
        .filter(|entry| entry.key == "target" && entry.block.is_some())
    {
        targets.entry(&entry.value).or_default().push(entry);
    }
    targets.values().for_each(|blocks| reader.target(blocks));
    if !(targets.is_empty() || reader.san.volumes.is_empty()) {
        reader.san.remark = REMARK;
        // tgtd's listen addresses come from its command line: `--iscsi portal=…`.
        let listen = ([0, 0, 0, 0], 3260).into();
        reader.san.portals.push(Portal { listen, group: 1 });
    }
    reader.san
}

#[derive(Default)]
struct Tgt {
    san: San,
    /// The first secret of each user, and its position.
    secrets: BTreeMap<String, (Zeroizing<String>, Place)>,
    /// The number of the last target.
    tid: u64,
    driver: Option<String>,
    discovery: Vec<(bool, String, Place)>,
}

/// A LUN, and the lines that apply to it. The lines of the LUN override those of its target.
struct Store<'a> {
    entry: &'a Entry,
    options: Vec<&'a Entry>,
}

/// A remark for administrators who added targets while tgtd was running. It does not describe an omission.
const REMARK: &str = "# tgtd derives the identity of a LUN from its number and its target's number. The identities below are those that\n\
                      # tgtd assigns when it starts with this configuration. For targets that were added later, `tgtadm --mode target\n\
                      # --op show` prints the number, the SCSI ID and the serial number.\n";

/// A user's account, or a note on why it cannot be carried over.
type Found = Result<Account, Note>;

impl Tgt {
    fn global(&mut self, entry: &Entry) {
        match entry.key.as_str() {
            "default-driver" => self.driver = Some(entry.value.clone()),
            "incomingdiscoveryuser" => {
                self.discovery
                    .push((false, entry.value.clone(), entry.place.clone()))
            }
            "outgoingdiscoveryuser" => {
                self.discovery
                    .push((true, entry.value.clone(), entry.place.clone()))
            }
            // These keys affect only tgt-admin.
            "ignore-errors" | "control-port" => {}
            key if key.starts_with("iSNS") => {
                self.san.notes.push(Note::new(
                    &entry.place,
                    format_args!("`{key}` is not imported: iSNS is not supported"),
                ));
            }
            key => self.san.notes.push(Note::new(
                &entry.place,
                format_args!("`{key}` is not imported: unknown setting"),
            )),
        }
    }

    fn discovery(&mut self) {
        let mut chap = Chap::default();
        for (outgoing, value, place) in std::mem::take(&mut self.discovery) {
            match self.account(&value, &place) {
                Ok(account) if outgoing => chap.mutual = Some(account),
                Ok(account) => self
                    .san
                    .notes
                    .extend(add_account(&mut chap, account, &place)),
                Err(note) => self.san.notes.push(note),
            }
        }
        if chap.accounts.is_empty() {
            return;
        }
        let differs = |mutual: &Account| {
            chap.accounts
                .iter()
                .all(|account| account.secret != mutual.secret)
        };
        chap.mutual = chap.mutual.take().filter(differs);
        self.san.discovery = Some(chap);
    }

    /// Returns the account from a value such as `alice secret`. tgtd uses only a user's first secret, and no
    /// target may receive another user's secret here.
    fn account(&mut self, value: &str, place: &Place) -> Found {
        let mut words = value.split(' ');
        let (user, secret) = (
            words.next().unwrap_or_default(),
            words.next().unwrap_or_default(),
        );
        if user.is_empty() || user.contains(char::REPLACEMENT_CHARACTER) {
            return Err(Note::new(place, "a user is not imported: it has no name"));
        }
        let secret = Zeroizing::new(secret.to_owned());
        let (first, at) = self
            .secrets
            .entry(user.to_owned())
            .or_insert_with(|| (secret.clone(), place.clone()));
        if *first != secret {
            let sentence = format_args!(
                "the user `{}` has a different secret in {}:{}, which tgtd uses for both; in the imported \
                 file, each account has its own secret",
                user.escape_debug(),
                at.file,
                at.line
            );
            self.san.notes.push(Note::new(place, sentence));
        }
        Account::new(user, &secret, None, place)
    }

    fn target(&mut self, blocks: &[&Entry]) {
        let Some(first) = blocks.first() else { return };
        let place = &first.place;
        let lines: Vec<&Entry> = blocks
            .iter()
            .flat_map(|entry| entry.block.iter().flatten())
            .collect();
        let given = lines
            .iter()
            .find(|entry| entry.key == "controller_tid")
            .and_then(|entry| entry.value.parse().ok());
        self.tid = given.unwrap_or(self.tid.saturating_add(1));
        let Some(name) = san::name(&first.value)
            .filter(|name| self.san.targets.iter().all(|other| other.name != *name))
        else {
            let sentence = format_args!(
                "the target `{}` is not imported: its name is not an iSCSI name, or differs from another \
                 only in case",
                first.value
            );
            self.san.notes.push(Note::new(place, sentence));
            return;
        };
        let mut target = Target {
            name,
            ..Target::default()
        };
        let (stores, lines): (Vec<&Entry>, Vec<&Entry>) = lines
            .into_iter()
            .partition(|entry| matches!(entry.key.as_str(), "backing-store" | "direct-store"));
        let driver = lines
            .iter()
            .find(|entry| entry.key == "driver")
            .map(|entry| entry.value.clone());
        if driver
            .or(self.driver.clone())
            .is_some_and(|driver| driver != "iscsi")
        {
            target.leave_out("its driver is not iscsi", place);
        }
        let (for_luns, own): (Vec<&Entry>, Vec<&Entry>) = lines
            .into_iter()
            .partition(|entry| LUN_KEYS.contains(&entry.key.as_str()));
        self.access(&mut target, &own, place);
        for entry in &own {
            target_line(&mut target, entry);
        }
        san::settle_bursts(&mut target, place);
        self.luns(&mut target, &stores, &for_luns);
        if stores.is_empty() {
            for_luns.iter().for_each(|entry| {
                target.note(
                    &entry.place,
                    format_args!("`{}` concerns no LUN", entry.key),
                )
            });
        }
        if target.luns.is_empty() {
            target.leave_out("it has no LUN", place);
        }
        self.san.targets.push(target);
    }

    /// Carries the access list over. If an entry cannot be carried over, fewer initiators are admitted. If no
    /// entry can, the target is written as a comment.
    fn access(&mut self, target: &mut Target, lines: &[&Entry], place: &Place) {
        let of = |key: &'static str| lines.iter().filter(move |entry| entry.key == key);
        let mut networks = Vec::new();
        for entry in of("initiator-address") {
            match entry.value.parse::<Network>() {
                Ok(_) => networks.push(entry.value.clone()),
                Err(_) if entry.value == "ALL" => {}
                Err(error) => target.note(
                    &entry.place,
                    format_args!("`initiator-address` is not imported: {error}"),
                ),
            }
        }
        let is_limited = of("initiator-address").next().is_some()
            && of("initiator-address").all(|entry| entry.value != "ALL");
        target.networks = is_limited.then_some(networks);
        if target.networks.as_ref().is_some_and(Vec::is_empty) {
            target.networks = None;
            target.leave_out(
                "none of its addresses could be imported, so it would be open to all",
                place,
            );
        }
        let mut names = Vec::new();
        for entry in of("initiator-name") {
            match san::name(&entry.value) {
                Some(name) => names.push(name),
                None => target.note(
                    &entry.place,
                    "`initiator-name` is not imported: it is not an iSCSI name",
                ),
            }
        }
        if of("initiator-name").next().is_some() {
            match names.is_empty() {
                false => target.initiators = Some(names),
                true => target.leave_out(
                    "none of its initiators could be imported, so it would be open to all",
                    place,
                ),
            }
        }
        self.chap(target, lines, place);
    }

    fn chap(&mut self, target: &mut Target, lines: &[&Entry], place: &Place) {
        let mut chap = Chap::default();
        let incoming = lines.iter().filter(|entry| entry.key == "incominguser");
        let mut wanted = false;
        for entry in incoming {
            wanted = true;
            match self.account(&entry.value, &entry.place) {
                Ok(account) => target
                    .notes
                    .extend(add_account(&mut chap, account, &entry.place)),
                Err(note) => target.notes.push(note),
            }
        }
        for (index, entry) in lines
            .iter()
            .filter(|entry| entry.key == "outgoinguser")
            .enumerate()
        {
            if index > 0 {
                target.note(
                    &entry.place,
                    "`outgoinguser` is not imported: tgt uses the first one only",
                );
                continue;
            }
            match self.account(&entry.value, &entry.place) {
                Err(note) => target.notes.push(note),
                Ok(_) if !wanted => target.note(
                    &entry.place,
                    "`outgoinguser` is not imported: there is no `incominguser`",
                ),
                Ok(mutual)
                    if chap
                        .accounts
                        .iter()
                        .any(|account| account.secret == mutual.secret) =>
                {
                    target.note(
                        &entry.place,
                        "`outgoinguser` is not imported: its secret is also an initiator's",
                    );
                }
                Ok(mutual) => chap.mutual = Some(mutual),
            }
        }
        if chap.accounts.len() > 1 {
            // In tgt, users are not restricted to initiator names.
            chap.accounts
                .iter_mut()
                .for_each(|account| account.initiators = Some(vec!["*".to_owned()]));
        }
        if !chap.accounts.is_empty() {
            target.chap = Some(chap);
        } else if wanted {
            target.leave_out(
                "none of its users could be imported, so it would be open to all",
                place,
            );
        }
    }

    fn luns(&mut self, target: &mut Target, stores: &[&Entry], for_all: &[&Entry]) {
        let mut stores: Vec<Store<'_>> = stores
            .iter()
            .map(|entry| Store {
                entry,
                options: entry
                    .block
                    .iter()
                    .flatten()
                    .chain(for_all.iter().copied())
                    .collect(),
            })
            .collect();
        stores.sort_by(|one, other| {
            let order = |store: &Store<'_>| (store.entry.key.clone(), store.entry.value.clone());
            order(one).cmp(&order(other))
        });
        // In tgt, a LUN that is listed twice exists only once.
        stores.dedup_by(|one, other| {
            one.entry.key == other.entry.key && one.entry.value == other.entry.value
        });
        let given = |store: &Store<'_>| store.option("lun").map(|(value, _)| value.to_owned());
        let mut taken: BTreeSet<u64> = stores
            .iter()
            .filter_map(|store| given(store)?.parse().ok())
            .collect();
        for store in &stores {
            let number = match given(store) {
                Some(number) => number.parse().ok().filter(|number| *number <= LUN_MAX),
                None => (1..=LUN_MAX).find(|number| taken.insert(*number)),
            };
            let Some(number) = number else {
                let sentence = format_args!(
                    "`{}` is not imported: a LUN is 0 to {LUN_MAX} here",
                    store.entry.value
                );
                target.note(&store.entry.place, sentence);
                continue;
            };
            self.lun(target, store, number as u16);
        }
    }

    fn lun(&mut self, target: &mut Target, store: &Store<'_>, lun: u16) {
        let place = &store.entry.place;
        let path = &store.entry.value;
        let (volume, notes) = match store.volume() {
            Ok(volume) => volume,
            Err(why) => {
                target.note(
                    place,
                    format_args!("LUN {lun}, `{path}`, is not imported: {why}"),
                );
                return;
            }
        };
        let mut volume = Volume { notes, ..volume };
        store.identify(&mut volume, self.tid, lun);
        let wanted = path
            .rsplit('/')
            .find(|part| !part.is_empty())
            .unwrap_or_default();
        let wanted = wanted.strip_suffix(".img").unwrap_or(wanted).to_owned();
        if let Some(volume) = self.san.add_volume(&wanted, volume, place) {
            target.add_lun(
                Lun {
                    lun,
                    volume,
                    initiators: None,
                },
                place,
            );
        }
    }
}

/// Adds an account, unless the user already has one: a second line for the same user has no effect.
fn add_account(chap: &mut Chap, account: Account, place: &Place) -> Option<Note> {
    match chap
        .accounts
        .iter()
        .find(|other| other.user == account.user)
    {
        None => chap.accounts.push(account),
        Some(other) if other.secret == account.secret => {}
        Some(_) => {
            let sentence = format_args!(
                "a second secret of the user `{}` is not imported",
                account.user
            );
            return Some(Note::new(place, sentence));
        }
    }
    None
}

/// Carries over a line of a target that concerns neither access control nor LUNs.
fn target_line(target: &mut Target, entry: &Entry) {
    let key = entry.key.as_str();
    // The effect of `controller_tid` is in the identities of the LUNs.
    if matches!(
        key,
        "controller_tid"
            | "driver"
            | "initiator-address"
            | "initiator-name"
            | "incominguser"
            | "outgoinguser"
    ) || san::take_session_key(target, key, &entry.value, &entry.place).is_ok()
    {
        return;
    }
    let why = match key {
        "state" => "a configured target is always in service",
        _ => "it is not supported",
    };
    target.note(&entry.place, format_args!("`{key}` is not imported: {why}"));
}

/// Keys that a target may set for all of its LUNs.
const LUN_KEYS: &[&str] = &[
    "allow-in-use",
    "block-size",
    "bs-type",
    "bsoflags",
    "bsopts",
    "device-type",
    "la_lba",
    "lbppbe",
    "lun",
    "mode_page",
    "online",
    "optimal_xfer_gran",
    "optimal_xfer_len",
    "params",
    "path",
    "product_id",
    "product_rev",
    "readonly",
    "removable",
    "scsi_id",
    "scsi_sn",
    "sense_format",
    "vendor_id",
    "write-cache",
];

impl Store<'_> {
    /// Returns the first value of a key, and its position.
    fn option(&self, key: &str) -> Option<(&str, &Place)> {
        let found = self.options.iter().find(|entry| entry.key == key)?;
        Some((&found.value, &found.place))
    }

    /// Whether a flag is set: any value except `0`, `no` and `off` sets it. tgtd parses the value as a
    /// number, and treats any other text as 0.
    fn flag(&self, key: &str) -> bool {
        self.option(key)
            .is_some_and(|(value, _)| !matches!(value, "0" | "no" | "off"))
    }

    /// Adds the names that tgtd assigns to the LUN. They are configured, or derive from the numbers of the
    /// target and the LUN. tgtd reports two NAA designators. Initiators prefer the longer one, which derives
    /// from the characters of the SCSI ID.
    fn identify(&self, volume: &mut Volume, tid: u64, lun: u16) {
        let own_id = format!("IET     {tid:04x}{lun:04x}");
        let id = self
            .option("scsi_id")
            .map_or(own_id.as_str(), |(value, _)| value);
        let digit = |byte: u8| char::from(byte).to_digit(16).unwrap_or(0);
        let number = id
            .bytes()
            .fold(0_u128, |number, byte| number << 4 | u128::from(digit(byte)));
        let naa = format!("0x6{:031x}", number & (u128::MAX >> 4));
        // A passed-through device has its own names, which are unknown here.
        let usual = |text: &str| (self.entry.key != "direct-store").then(|| text.to_owned());
        let serial = usual(&format!("beaf{tid}{lun}"));
        for (key, theirs, usual) in [
            ("serial", "scsi_sn", serial),
            ("naa", "scsi_id", Some(naa)),
            ("t10-id", "scsi_id", Some(id.to_owned())),
            ("vendor", "vendor_id", usual("IET")),
            ("product", "product_id", usual("VIRTUAL-DISK")),
            ("revision", "product_rev", usual("0001")),
        ] {
            let given = self.option(theirs).filter(|_| key != "naa");
            let place = given.map_or(&self.entry.place, |(_, place)| place);
            let Some(value) = given.map(|(value, _)| value.to_owned()).or(usual) else {
                continue;
            };
            // tgtd right-aligns the serial number in 36 bytes.
            let value = if key == "serial" {
                format!("{value:>36}")
            } else {
                value
            };
            volume.give(key, value, theirs, place);
        }
    }

    /// Returns the volume without its name, or the reason why there is none.
    fn volume(&self) -> Result<(Volume, Vec<Note>), String> {
        let mut notes = Vec::new();
        let direct = match self.option("bs-type").map(|(value, _)| value) {
            None | Some("rdwr") => self
                .option("bsoflags")
                .is_some_and(|(value, _)| value == "direct"),
            Some("aio") => true,
            Some(other) => return Err(format!("`bs-type {other}` has no equivalent here")),
        };
        if let Some((kind, _)) = self
            .option("device-type")
            .filter(|(value, _)| *value != "disk")
        {
            return Err(format!("`device-type {kind}` is not a disk"));
        }
        if self
            .option("online")
            .is_some_and(|(value, _)| matches!(value, "0" | "no"))
        {
            return Err("it is not online".to_owned());
        }
        let block: u64 = match self.option("block-size").map_or("512", |(value, _)| value) {
            "512" => 512,
            "4096" => 4096,
            other => return Err(format!("blocks of {other} bytes are not supported")),
        };
        let mut options = Vec::new();
        if block != 512 {
            options.push(format!("block={block}"));
        }
        if let Some((exponent, place)) = self.option("lbppbe") {
            let physical = exponent
                .parse::<u32>()
                .ok()
                .and_then(|bits| block.checked_mul(1_u64.checked_shl(bits)?));
            match physical.filter(|bytes| *bytes <= 65536) {
                Some(bytes) => options.push(format!("physical={}", Bytes(bytes).0)),
                None => notes.push(Note::new(
                    place,
                    "`lbppbe` is not imported: a physical block has up to 64 KiB here",
                )),
            }
        }
        if direct {
            options.push("direct".to_owned());
        }
        let spec = san::file_spec(&self.entry.value, &options)
            .ok_or("it is not the path of a file or block device")?;
        for entry in &self.options {
            notes.extend(lun_line(entry));
        }
        if self.entry.key == "direct-store" {
            let keys = ["vendor_id", "product_id", "product_rev", "scsi_sn"];
            if keys.iter().any(|key| self.option(key).is_none()) {
                let sentence = "`direct-store`: vendor, product and serial number of the device are not imported";
                notes.push(Note::new(&self.entry.place, sentence));
            }
        }
        let thin = self
            .options
            .iter()
            .any(|entry| entry.key == "params" && entry.value.contains("thin_provisioning=1"));
        let volume = Volume {
            spec,
            readonly: self.flag("readonly"),
            removable: self.flag("removable"),
            thick: !thin,
            ..Volume::default()
        };
        Ok((volume, notes))
    }
}

/// Returns the note for a line about a LUN; `None` if it is carried over.
fn lun_line(entry: &Entry) -> Option<Note> {
    let value = entry.value.as_str();
    let why = match entry.key.as_str() {
        "bs-type" | "block-size" | "device-type" | "lbppbe" | "lun" | "online" | "readonly"
        | "removable" | "product_id" | "product_rev" | "scsi_id" | "scsi_sn" | "vendor_id" => {
            return None;
        }
        "bsoflags" if value == "direct" => return None,
        "bsoflags" => "the write cache is reported to initiators, which flush it",
        "write-cache" if value != "off" => return None,
        "write-cache" => "the write cache is reported to initiators, which flush it",
        "allow-in-use" if value != "yes" => return None,
        "allow-in-use" => "Linerate locks a file or device while it serves it",
        "params" if value == "thin_provisioning=1" => return None,
        "la_lba" | "optimal_xfer_gran" | "optimal_xfer_len" => "the server determines it",
        _ => "it is not supported",
    };
    Some(Note::new(
        &entry.place,
        format_args!("`{}` is not imported: {why}", entry.key),
    ))
}
