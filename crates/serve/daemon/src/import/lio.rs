//! Converts LIO's `saveconfig.json`, interpreted as by `targetcli` and the kernel.
//!
//! If an attribute or parameter has LIO's default value, it is treated as not set, because some of Linerate's
//! defaults are better. Only other values are carried over or noted.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use ::volume::spec::Bytes;
use backends::Failure;
use iscsi::text::PrintableText;
use zeroize::Zeroizing;

use super::json::{Document, Object};
use super::san::{self, Account, Chap, LUN_MAX, Lun, Note, Place, Portal, San, Target, Volume};

/// Reads the whole configuration in the document.
///
/// # Errors
/// The document is not JSON.
pub(super) fn san(document: &Document<'_>) -> Result<San, Failure> {
    let root = document.root()?;
    let mut lio = Lio::default();
    let storage = root.objects("storage_objects");
    let targets = root.objects("targets");
    let (modules, unread) = (root.objects("fabric_modules"), root.unread());
    lio.san.notes.extend(unread);
    let mut uses: Vec<Use> = Vec::new();
    for target in &targets {
        lio.target(target, &mut uses);
    }
    lio.only_protected = only_protected(&uses);
    for object in &storage {
        lio.storage(object);
    }
    lio.luns(&uses);
    lio.portals();
    modules.iter().for_each(|module| lio.discovery(module));
    Ok(lio.san)
}

#[derive(Default)]
struct Lio {
    san: San,
    /// Storage objects that are write-protected for all initiators.
    only_protected: BTreeSet<String>,
    /// Volumes by the path of their storage object: `/backstores/fileio/disk1`.
    volumes: BTreeMap<String, String>,
    /// The portals of each target, and the tag of its portal group.
    reached_by: Vec<(Vec<SocketAddr>, u16)>,
}

/// A storage object that is mapped to a LUN number, for one initiator or for any.
struct Use {
    target: usize,
    lun: u64,
    storage: String,
    /// `None` for any initiator.
    initiator: Option<String>,
    write_protected: bool,
    place: Place,
}

/// Objects that are write-protected in all their uses. Only these become read-only, because a volume in
/// Linerate is the same for all initiators.
fn only_protected(uses: &[Use]) -> BTreeSet<String> {
    let of = |wanted: bool| -> BTreeSet<String> {
        uses.iter()
            .filter(|one| one.write_protected == wanted)
            .map(|one| one.storage.clone())
            .collect()
    };
    of(true).difference(&of(false)).cloned().collect()
}

impl Lio {
    fn storage(&mut self, object: &Object<'_>) {
        let place = object.place();
        let plugin = object.scalar("plugin").unwrap_or_default();
        let name = object.scalar("name").unwrap_or_default();
        let path = format!("/backstores/{plugin}/{name}");
        let mut notes = Vec::new();
        let built = volume(&plugin, object, &mut notes);
        let mut volume = match built {
            Ok(volume) => volume,
            Err(why) => {
                let sentence = format_args!("the storage object `{path}` is not imported: {why}");
                self.san.notes.push(Note::new(&place, sentence));
                return;
            }
        };
        if let Some(wwn) = object.scalar("wwn") {
            volume.uuid = san::uuid(&wwn);
            identify(&mut volume, &plugin, &name, &wwn, object);
        }
        volume.readonly |= self.only_protected.contains(&path);
        notes.extend(object.unread());
        volume.notes.extend(notes);
        if let Some(volume) = self.san.add_volume(&name, volume, &place) {
            self.volumes.insert(path, volume);
        }
    }

    fn target(&mut self, object: &Object<'_>, uses: &mut Vec<Use>) {
        let place = object.place();
        let wwn = object.scalar("wwn").unwrap_or_default();
        let (fabric, groups) = (
            object.scalar("fabric").unwrap_or_default(),
            object.objects("tpgs"),
        );
        self.san.notes.extend(object.unread());
        let name =
            san::name(&wwn).filter(|name| self.san.targets.iter().all(|other| other.name != *name));
        let (Some(name), "iscsi") = (name, fabric.as_str()) else {
            let sentence = format_args!(
                "the target `{wwn}` is not imported: only iSCSI targets are supported, and its fabric is \
                 `{fabric}`"
            );
            self.san.notes.push(Note::new(&place, sentence));
            return;
        };
        let mut target = Target {
            name,
            ..Target::default()
        };
        // The first portal group that is enabled represents the target.
        let chosen = groups
            .iter()
            .position(|group| group.flag("enable") != Some(false))
            .unwrap_or(0);
        for (index, group) in groups.iter().enumerate() {
            if index == chosen {
                self.group(&mut target, group, uses);
            } else {
                let sentence = "this portal group is not imported: a Linerate target has the same LUNs on \
                                all of its portals";
                target.note(&group.place(), sentence);
            }
        }
        if groups.is_empty() {
            self.reached_by.push((Vec::new(), 1));
            target.leave_out("it has no portal group", &place);
        }
        self.san.targets.push(target);
    }

    fn group(&mut self, target: &mut Target, group: &Object<'_>, uses: &mut Vec<Use>) {
        let place = group.place();
        if group.flag("enable") == Some(false) {
            target.leave_out("its portal group is not enabled", &place);
        }
        let tag = group
            .number("tag")
            .and_then(|tag| u16::try_from(tag).ok())
            .filter(|tag| *tag > 0)
            .unwrap_or(1);
        let addresses = portals(target, group);
        if addresses.is_empty() {
            target.leave_out("it has no portal", &place);
        }
        self.reached_by.push((addresses, tag));
        let attributes = group.object("attributes");
        let flag = |key: &str, usual: bool| {
            attributes
                .as_ref()
                .and_then(|attributes| attributes.flag(key))
                .unwrap_or(usual)
        };
        let access = Access {
            authentication: flag("authentication", false),
            for_anybody: flag("generate_node_acls", false),
            demo_protected: flag("demo_mode_write_protect", true),
            protected: flag("prod_mode_write_protect", false),
        };
        if let Some(attributes) = &attributes {
            target.notes.extend(unusual(attributes, GROUP_ATTRIBUTES));
        }
        let mut authentication = access.authentication;
        if let Some(parameters) = group.object("parameters") {
            authentication |= session_of(target, &parameters);
        }
        san::settle_bursts(target, &place);
        self.users(
            target,
            group,
            &Access {
                authentication,
                ..access
            },
            uses,
        );
        target.notes.extend(group.unread());
    }

    /// Reads the initiators that may log in, with their LUNs and secrets.
    fn users(
        &mut self,
        target: &mut Target,
        group: &Object<'_>,
        access: &Access,
        uses: &mut Vec<Use>,
    ) {
        let storage = luns_of(target, group);
        let acls = group.objects("node_acls");
        // Always read the login, so that its keys count as read. With node ACLs it has no effect.
        let login = login(group, None);
        if acls.is_empty() {
            self.anybody(target, (group, login), access, storage, uses);
        } else {
            self.listed(target, (group, &acls), access, &storage, uses);
        }
    }

    /// Handles a group without node ACLs: either all initiators may log in, or none.
    fn anybody(
        &mut self,
        target: &mut Target,
        (group, login): (&Object<'_>, Option<Login>),
        access: &Access,
        storage: BTreeMap<u64, (String, Place)>,
        uses: &mut Vec<Use>,
    ) {
        let (place, index) = (group.place(), self.san.targets.len());
        if !access.for_anybody {
            target.leave_out("no initiator may use it: it has no node ACL", &place);
        }
        uses.extend(storage.into_iter().map(|(lun, (storage, place))| Use {
            target: index,
            lun,
            storage,
            initiator: None,
            write_protected: access.for_anybody && access.demo_protected,
            place,
        }));
        chap(
            target,
            access.authentication,
            login.into_iter().collect(),
            &place,
        );
    }

    /// Handles a group with node ACLs: only their initiators may log in.
    fn listed(
        &mut self,
        target: &mut Target,
        (group, acls): (&Object<'_>, &[Object<'_>]),
        access: &Access,
        storage: &BTreeMap<u64, (String, Place)>,
        uses: &mut Vec<Use>,
    ) {
        let (place, index) = (group.place(), self.san.targets.len());
        if access.for_anybody {
            let sentence =
                "`generate_node_acls` is not imported: only initiators with a node ACL may log in";
            target.note(
                &group
                    .object("attributes")
                    .map_or(place.clone(), |attributes| {
                        attributes.place_of("generate_node_acls")
                    }),
                sentence,
            );
        }
        let mut names = Vec::new();
        let mut logins = Vec::new();
        for acl in acls {
            let wwn = acl.scalar("node_wwn").unwrap_or_default();
            let Some(name) = san::name(&wwn).filter(|name| !names.contains(name)) else {
                target.note(
                    &acl.place(),
                    format_args!(
                        "the node ACL of `{wwn}` is not imported: it is not an iSCSI name, or a duplicate"
                    ),
                );
                continue;
            };
            mapped(
                target,
                acl,
                storage,
                access.protected,
                |lun, storage, write_protected, place| {
                    uses.push(Use {
                        target: index,
                        lun,
                        storage,
                        initiator: Some(name.clone()),
                        write_protected,
                        place,
                    });
                },
            );
            match login(acl, Some(&name)) {
                Some(login) => logins.push(login),
                None if access.authentication => {
                    let sentence = format_args!(
                        "the node ACL of `{wwn}` is not imported: it has no user, and the target requires one"
                    );
                    target.note(&acl.place(), sentence);
                    continue;
                }
                None => {}
            }
            let _ = acl.scalar("tag");
            if let Some(attributes) = acl.object("attributes") {
                target.notes.extend(unusual(&attributes, ACL_ATTRIBUTES));
            }
            target.notes.extend(acl.unread());
            names.push(name);
        }
        target.initiators = Some(names);
        chap(target, access.authentication, logins, &place);
        if target.initiators.as_ref().is_some_and(Vec::is_empty) {
            target.initiators = None;
            target.leave_out(
                "none of its initiators could be imported, so it would be open to all",
                &place,
            );
        }
    }

    /// Adds the LUNs of all targets, each with the initiators that see its volume.
    fn luns(&mut self, uses: &[Use]) {
        // Keep the order of the file, so that the first of two volumes with the same number is kept.
        let mut luns: Vec<(usize, u64, &str, Vec<&str>, &Place)> = Vec::new();
        let mut known: BTreeMap<(usize, u64, &str), usize> = BTreeMap::new();
        for one in uses {
            let Some(target) = self.san.targets.get_mut(one.target) else {
                continue;
            };
            let initiator = one.initiator.as_deref();
            if initiator.is_some_and(|name| {
                target
                    .initiators
                    .as_ref()
                    .is_none_or(|all| !all.iter().any(|other| other == name))
            }) {
                continue; // the ACL was not carried over, which has been noted
            }
            if one.write_protected && !self.only_protected.contains(&one.storage) {
                let sentence = format_args!(
                    "LUN {} is not imported for {}: it is write-protected there, and others may write `{}`",
                    one.lun,
                    initiator.unwrap_or("any initiator"),
                    one.storage
                );
                target.note(&one.place, sentence);
                continue;
            }
            let index = *known
                .entry((one.target, one.lun, &one.storage))
                .or_insert(luns.len());
            match luns.get_mut(index) {
                Some((.., names, _)) => names.extend(initiator),
                None => luns.push((
                    one.target,
                    one.lun,
                    &one.storage,
                    initiator.into_iter().collect(),
                    &one.place,
                )),
            }
        }
        for (target, number, storage, names, place) in luns {
            let Some(target) = self.san.targets.get_mut(target) else {
                continue;
            };
            let Some(volume) = self.volumes.get(storage) else {
                target.note(
                    place,
                    format_args!("LUN {number} is not imported: `{storage}` is not"),
                );
                continue;
            };
            let all = target
                .initiators
                .as_ref()
                .is_none_or(|all| all.iter().all(|name| names.contains(&name.as_str())));
            let initiators = (!all).then(|| names.iter().map(|name| (*name).to_owned()).collect());
            match u16::try_from(number).ok().filter(|_| number <= LUN_MAX) {
                Some(lun) => target.add_lun(
                    Lun {
                        lun,
                        volume: volume.clone(),
                        initiators,
                    },
                    place,
                ),
                None => target.note(
                    place,
                    format_args!("LUN {number} is not imported: a LUN is 0 to {LUN_MAX} here"),
                ),
            }
        }
        for target in &mut self.san.targets {
            if target.luns.is_empty() && target.left_out.is_none() {
                target.left_out = Some("it has no LUN");
                let place = uses.first().map(|one| one.place.clone());
                let sentence = format!(
                    "the target {} is written as a comment: it has no LUN",
                    target.name
                );
                target
                    .notes
                    .extend(place.map(|place| Note::new(&place, sentence)));
            }
        }
    }

    /// Assigns portals to groups. In Linerate, a portal is in only one group. Portals of the same targets
    /// form a group, with their former tag if it is free.
    fn portals(&mut self) {
        let mut targets_of: BTreeMap<SocketAddr, Vec<usize>> = BTreeMap::new();
        for (target, (addresses, _)) in self.reached_by.iter().enumerate() {
            addresses
                .iter()
                .for_each(|address| targets_of.entry(*address).or_default().push(target));
        }
        let mut groups: BTreeMap<Vec<usize>, u16> = BTreeMap::new();
        for (address, targets) in &targets_of {
            let tag = targets
                .first()
                .and_then(|target| self.reached_by.get(*target))
                .map_or(1, |(_, tag)| *tag);
            let is_free = |tag: &u16| groups.values().all(|taken| taken != tag);
            let group = match groups.get(targets) {
                Some(group) => *group,
                None => std::iter::once(tag)
                    .chain(1..=u16::MAX)
                    .find(is_free)
                    .unwrap_or(tag),
            };
            groups.insert(targets.clone(), group);
            self.san.portals.push(Portal {
                listen: *address,
                group,
            });
        }
        for (index, target) in self.san.targets.iter_mut().enumerate() {
            let its: Vec<u16> = groups
                .iter()
                .filter(|(targets, _)| targets.contains(&index))
                .map(|(_, group)| *group)
                .collect();
            target.groups = (its.len() < groups.len())
                .then_some(its)
                .filter(|its| !its.is_empty());
        }
    }

    fn discovery(&mut self, module: &Object<'_>) {
        let (name, enabled) = (
            module.scalar("name").unwrap_or_default(),
            module.flag("discovery_enable_auth"),
        );
        let credentials = |user: &str, secret: &str| {
            Some(Account::new(
                &module.scalar(user)?,
                &module.scalar(secret)?,
                None,
                &module.place_of(user),
            ))
        };
        let incoming = credentials("discovery_userid", "discovery_password");
        let mutual = credentials("discovery_mutual_userid", "discovery_mutual_password");
        self.san.notes.extend(module.unread());
        if name != "iscsi" || enabled != Some(true) {
            return;
        }
        match incoming {
            Some(Ok(account)) => {
                let mutual = mutual
                    .and_then(Result::ok)
                    .filter(|mutual| mutual.secret != account.secret);
                self.san.discovery = Some(Chap {
                    accounts: vec![account],
                    mutual,
                });
            }
            Some(Err(note)) => self.san.notes.push(note),
            None => {
                let sentence = "`discovery_enable_auth` is not imported: discovery has no user, and is open here";
                self.san.notes.push(Note::new(
                    &module.place_of("discovery_enable_auth"),
                    sentence,
                ));
            }
        }
    }
}

/// Access settings of a portal group.
struct Access {
    authentication: bool,
    for_anybody: bool,
    demo_protected: bool,
    protected: bool,
}

/// Reads the storage objects of a portal group, by LUN number.
fn luns_of(target: &mut Target, group: &Object<'_>) -> BTreeMap<u64, (String, Place)> {
    let mut luns = BTreeMap::new();
    for lun in group.objects("luns") {
        let _ = lun.scalar("alias");
        if lun
            .scalar("alua_tg_pt_gp_name")
            .is_some_and(|name| name != "default_tg_pt_gp")
        {
            target.note(
                &lun.place_of("alua_tg_pt_gp_name"),
                "`alua_tg_pt_gp_name` is not imported: there is only one group, which is active",
            );
        }
        let (index, storage) = (lun.number("index"), lun.scalar("storage_object"));
        target.notes.extend(lun.unread());
        match (index, storage) {
            (Some(index), Some(storage)) => drop(luns.insert(index, (storage, lun.place()))),
            _ => target.note(
                &lun.place(),
                "a LUN is not imported: it has no `index` or no `storage_object`",
            ),
        }
    }
    luns
}

/// The LUNs of a node ACL.
fn mapped(
    target: &mut Target,
    acl: &Object<'_>,
    storage: &BTreeMap<u64, (String, Place)>,
    protected: bool,
    mut used: impl FnMut(u64, String, bool, Place),
) {
    for lun in acl.objects("mapped_luns") {
        let _ = lun.scalar("alias");
        let (index, of_group) = (lun.number("index"), lun.number("tpg_lun"));
        let write_protected = protected || lun.flag("write_protect") == Some(true);
        target.notes.extend(lun.unread());
        match (index, of_group.and_then(|lun| storage.get(&lun))) {
            (Some(index), Some((storage, _))) => {
                used(index, storage.clone(), write_protected, lun.place())
            }
            _ => target.note(
                &lun.place(),
                "a mapped LUN is not imported: the portal group has no such LUN",
            ),
        }
    }
}

/// Reads the addresses of a portal group.
fn portals(target: &mut Target, group: &Object<'_>) -> Vec<SocketAddr> {
    let mut addresses = Vec::new();
    for portal in group.objects("portals") {
        let text = portal.scalar("ip_address").unwrap_or_default();
        let address = text.trim_matches(['[', ']']).parse::<IpAddr>();
        let port = portal
            .number("port")
            .map_or(Some(3260), |port| u16::try_from(port).ok())
            .filter(|port| *port > 0);
        let special = [portal.flag("iser"), portal.flag("offload")].contains(&Some(true));
        target.notes.extend(portal.unread());
        match (address, port) {
            (Ok(address), Some(port)) if !special => {
                let address = SocketAddr::new(address, port);
                if !addresses.contains(&address) {
                    addresses.push(address);
                }
            }
            _ => target.note(
                &portal.place(),
                format_args!(
                    "the portal `{text}` is not imported: only iSCSI over TCP is supported"
                ),
            ),
        }
    }
    addresses
}

/// Carries the session parameters over. Returns whether CHAP is required.
fn session_of(target: &mut Target, parameters: &Object<'_>) -> bool {
    let mut must = false;
    for (key, value, place) in parameters.scalars() {
        let value = value.unwrap_or_default();
        match key {
            "AuthMethod" => {
                must = !value.is_empty()
                    && !value
                        .split(',')
                        .any(|method| method.trim().eq_ignore_ascii_case("none"))
            }
            "TargetAlias" if value == "LIO Target" || value.is_empty() => {}
            "TargetAlias" if value.parse::<PrintableText>().is_ok() => target.alias = Some(value),
            _ if USUAL_PARAMETERS
                .iter()
                .any(|(name, usual)| *name == key && *usual == value) => {}
            _ if san::take_session_key(target, key, &value, &place).is_ok() => {}
            _ => target.note(
                &place,
                format_args!("`{key}` is not imported: unknown setting"),
            ),
        }
    }
    must
}

/// LIO's default offers.
const USUAL_PARAMETERS: &[(&str, &str)] = &[
    ("DataDigest", "CRC32C,None"),
    ("FirstBurstLength", "65536"),
    ("HeaderDigest", "CRC32C,None"),
    ("ImmediateData", "Yes"),
    ("InitialR2T", "Yes"),
    ("MaxBurstLength", "262144"),
    ("MaxOutstandingR2T", "1"),
    ("MaxRecvDataSegmentLength", "8192"),
];

/// Returns the volume of a storage object, without its name, or the reason why there is none.
fn volume(plugin: &str, object: &Object<'_>, notes: &mut Vec<Note>) -> Result<Volume, String> {
    let attributes = object.object("attributes");
    let attribute = |key: &str| {
        attributes
            .as_ref()
            .and_then(|attributes| attributes.scalar(key))
    };
    let block: u64 = match attribute("block_size").as_deref().unwrap_or("512") {
        "512" => 512,
        "4096" => 4096,
        other => return Err(format!("blocks of {other} bytes are not supported")),
    };
    let is_set = |key: &str| attribute(key).is_some_and(|value| value != "0");
    let thick = !is_set("emulate_tpu") && !is_set("emulate_tpws");
    let device = object.scalar("dev").unwrap_or_default();
    let bytes = object
        .number("size")
        .map(|size| Bytes(size - size % block))
        .filter(|size| size.0 > 0);
    let mut options = Vec::new();
    if block != 512 {
        options.push(format!("block={block}"));
    }
    let spec = match (plugin, bytes) {
        ("fileio", bytes) => {
            let size = bytes
                .filter(|_| !device.starts_with("/dev/"))
                .map(|size| format!("size={size}"));
            let options: Vec<String> = size.into_iter().chain(options).collect();
            san::file_spec(&device, &options).ok_or("`dev` is not the path of a file")?
        }
        ("block", _) => {
            options.push("direct".to_owned());
            san::file_spec(&device, &options).ok_or("`dev` is not the path of a block device")?
        }
        ("ramdisk", Some(size)) => {
            let kind = if object.flag("nullio") == Some(true) {
                "null"
            } else {
                "ram"
            };
            let query = options
                .first()
                .map(|block| format!("?{block}"))
                .unwrap_or_default();
            format!("{kind}:{size}{query}")
        }
        ("ramdisk", None) => return Err("its size is not a whole number of blocks".to_owned()),
        _ => return Err(format!("`{plugin}` has no equivalent here")),
    };
    if backends::parse(&spec).is_err() {
        return Err("its size is not valid for a volume".to_owned());
    }
    if object.flag("write_back") == Some(false) && plugin == "fileio" {
        notes.push(Note::new(
            &object.place_of("write_back"),
            "`write_back` is not imported: the write cache is reported to initiators, which flush it",
        ));
    }
    // LIO's I/O method does not affect the volume.
    let _ = object.scalar("aio");
    for group in object
        .objects("alua_tpgs")
        .iter()
        .filter(|group| group.scalar("name").as_deref() != Some("default_tg_pt_gp"))
    {
        notes.push(Note::new(
            &group.place(),
            "an ALUA group is not imported: there is one, which is active and optimized",
        ));
    }
    if let Some(attributes) = &attributes {
        notes.extend(unusual(attributes, STORAGE_ATTRIBUTES));
    }
    Ok(Volume {
        spec,
        thick,
        readonly: object.flag("readonly") == Some(true),
        ..Volume::default()
    })
}

/// The names that the kernel assigns (`target_core_spc.c`). All of them derive from the unit serial number,
/// `wwn`, and the model. The model is the name of the storage object if `emulate_model_alias` is set, which
/// targetcli does.
fn identify(volume: &mut Volume, plugin: &str, name: &str, wwn: &str, object: &Object<'_>) {
    let (place, named) = (object.place_of("wwn"), object.place_of("name"));
    let is_alias = object
        .object("attributes")
        .and_then(|attributes| attributes.flag("emulate_model_alias"));
    let (model, revision) = match plugin {
        "fileio" => ("FILEIO", "4.0"),
        "block" => ("IBLOCK", "4.0"),
        _ => ("RAMDISK-MCP", "v4.0"),
    };
    let model: String = if is_alias == Some(true) {
        name.chars().take(16).collect()
    } else {
        model.to_owned()
    };
    volume.give("serial", wwn.to_owned(), "wwn", &place);
    volume.give("naa", naa(wwn), "wwn", &place);
    volume.give("t10-id", format!("LIO-ORG {model}:{wwn}"), "wwn", &place);
    volume.give("vendor", "LIO-ORG".to_owned(), "vendor", &place);
    volume.give("product", model, "name", &named);
    volume.give("revision", revision.to_owned(), "revision", &place);
}

/// NAA IEEE Registered Extended: LIO's company identifier, 001405h, and the first 25 hexadecimal digits of
/// the unit serial number, with zeroes if it has fewer.
fn naa(wwn: &str) -> String {
    let digits: String = wwn
        .chars()
        .filter(char::is_ascii_hexdigit)
        .take(25)
        .collect();
    format!("0x6001405{:0<25}", digits.to_ascii_lowercase())
}

/// The credentials of a node ACL, or of a portal group for any initiator.
struct Login {
    account: Result<Account, Note>,
    mutual: Option<(Result<Account, Note>, Place)>,
}

/// Reads the CHAP credentials of a node ACL or portal group, if it has a user.
fn login(object: &Object<'_>, initiator: Option<&str>) -> Option<Login> {
    let read = |user: &str, secret: &str, initiator: Option<&str>| {
        let secret = Zeroizing::new(object.scalar(secret).unwrap_or_default());
        let user = object.scalar(user).filter(|user| !user.is_empty())?;
        let initiators = initiator.map(|name| vec![name.to_owned()]);
        Some(Account::new(
            &user,
            &secret,
            initiators,
            &object.place_of("chap_userid"),
        ))
    };
    let mutual = read("chap_mutual_userid", "chap_mutual_password", None);
    let mutual = mutual.map(|mutual| (mutual, object.place_of("chap_mutual_userid")));
    Some(Login {
        account: read("chap_userid", "chap_password", initiator)?,
        mutual,
    })
}

/// Sets the required authentication. An initiator whose user cannot be carried over may not log in.
fn chap(target: &mut Target, wanted: bool, logins: Vec<Login>, place: &Place) {
    if !wanted {
        if !logins.is_empty() {
            target.note(
                place,
                "users and secrets are not imported: authentication is off, so they are unused",
            );
        }
        return;
    }
    let mut chap = Chap::default();
    for Login { account, mutual } in logins {
        match account {
            Err(note) => target.notes.push(note),
            Ok(account) => match chap
                .accounts
                .iter_mut()
                .find(|other| other.user == account.user)
            {
                None => chap.accounts.push(account),
                Some(other) if other.secret == account.secret => {
                    let names = account.initiators.into_iter().flatten();
                    other.initiators.get_or_insert_default().extend(names);
                }
                Some(_) => target.note(
                    place,
                    format_args!(
                        "the user `{}` is not imported a second time: a user has one secret here",
                        account.user
                    ),
                ),
            },
        }
        match mutual {
            None => {}
            Some((Err(note), _)) => target.notes.push(note),
            Some((Ok(mutual), place)) => match &chap.mutual {
                None => chap.mutual = Some(mutual),
                Some(first) if *first == mutual => {}
                Some(_) => target.note(
                    &place,
                    "`chap_mutual_userid` is not imported: a target has only one user and secret here",
                ),
            },
        }
    }
    if let Some(mutual) = &chap.mutual
        && chap
            .accounts
            .iter()
            .any(|account| account.secret == mutual.secret)
    {
        target.note(
            place,
            "`chap_mutual_password` is not imported: it is also an initiator's secret",
        );
        chap.mutual = None;
    }
    let proved = |name: &String| {
        chap.accounts.iter().any(|account| {
            account
                .initiators
                .as_ref()
                .is_none_or(|names| names.contains(name))
        })
    };
    if let Some(names) = &mut target.initiators {
        names.retain(proved);
    }
    match chap.accounts.is_empty() {
        false => target.chap = Some(chap),
        true => target.leave_out(
            "it requires CHAP, and none of its users could be imported",
            place,
        ),
    }
}

/// Attributes of a portal group, with LIO's defaults. Attributes without a default are handled elsewhere, or
/// have no effect here.
const GROUP_ATTRIBUTES: &[(&str, Option<&str>)] = &[
    ("authentication", None),
    ("cache_dynamic_acls", None),
    ("default_cmdsn_depth", Some("64")),
    ("default_erl", Some("0")),
    ("demo_mode_discovery", Some("1")),
    ("demo_mode_write_protect", None),
    ("fabric_prot_type", Some("0")),
    ("generate_node_acls", None),
    ("login_keys_workaround", Some("1")),
    ("login_timeout", Some("15")),
    ("netif_timeout", Some("2")),
    ("prod_mode_write_protect", None),
    ("t10_pi", Some("0")),
    ("tpg_enabled_sendtargets", Some("1")),
];

/// Attributes of a node ACL, in the form of [`GROUP_ATTRIBUTES`].
const ACL_ATTRIBUTES: &[(&str, Option<&str>)] = &[
    ("authentication", Some("-1")),
    ("dataout_timeout", Some("3")),
    ("dataout_timeout_retries", Some("5")),
    ("default_erl", Some("0")),
    ("nopin_response_timeout", Some("30")),
    ("nopin_timeout", Some("15")),
    ("random_datain_pdu_offsets", Some("0")),
    ("random_datain_seq_offsets", Some("0")),
    ("random_r2t_offsets", Some("0")),
];

/// Attributes of a storage object, in the form of [`GROUP_ATTRIBUTES`].
const STORAGE_ATTRIBUTES: &[(&str, Option<&str>)] = &[
    ("alua_support", Some("1")),
    ("block_size", None),
    ("complete_type", None),
    ("emulate_3pc", Some("1")),
    ("emulate_caw", Some("1")),
    ("emulate_dpo", None),
    ("emulate_fua_read", None),
    ("emulate_fua_write", Some("1")),
    ("emulate_model_alias", None),
    ("emulate_pr", Some("1")),
    ("emulate_rest_reord", Some("0")),
    ("emulate_rsoc", Some("1")),
    ("emulate_tas", Some("1")),
    ("emulate_tpu", None),
    ("emulate_tpws", None),
    ("emulate_ua_intlck_ctrl", Some("0")),
    ("emulate_write_cache", None),
    ("enforce_pr_isids", None),
    ("force_pr_aptpl", Some("0")),
    ("is_nonrot", None),
    ("max_unmap_block_desc_count", None),
    ("max_unmap_lba_count", None),
    ("max_write_same_len", None),
    ("optimal_sectors", None),
    ("pgr_support", Some("1")),
    ("pi_prot_format", Some("0")),
    ("pi_prot_type", Some("0")),
    ("pi_prot_verify", Some("0")),
    ("queue_depth", None),
    ("submit_type", None),
    ("unmap_granularity", None),
    ("unmap_granularity_alignment", None),
    ("unmap_zeroes_data", None),
];

/// Returns a note for each attribute that does not have LIO's default value.
fn unusual(attributes: &Object<'_>, known: &[(&str, Option<&str>)]) -> Vec<Note> {
    let is_unusual = |(name, value, place): (&str, Option<String>, Place)| {
        // Properties that the kernel or the device reports are not settings.
        let usual = known
            .iter()
            .find(|(other, _)| *other == name)
            .map(|(_, usual)| *usual);
        let is_usual = match usual {
            Some(Some(usual)) => value.as_deref() == Some(usual),
            Some(None) => true,
            None => name.starts_with("hw_"),
        };
        let sentence = format!("the attribute `{name}` is not imported: it has no equivalent here");
        (!is_usual).then(|| Note::new(&place, sentence))
    };
    attributes.scalars().filter_map(is_unusual).collect()
}
