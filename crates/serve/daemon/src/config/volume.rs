//! `[volume.NAME]`: a volume.

use std::collections::HashMap;
use std::time::Duration;

use super::section::{Placed, Section};
use super::values::{Uuid, VolumeName};
use logical_unit::{GivenNames, Identity};
use volume::spec::{Spec, Time};

/// A volume, and the names that it presents to initiators.
#[derive(Clone, Debug)]
pub struct Volume {
    /// The name of the volume, under which its identity is stored.
    pub name: VolumeName,
    /// Its specification.
    pub spec: Spec,
    /// The identity of the volume; `None` for a random identity, which is created once and stored.
    pub uuid: Option<Uuid>,
    /// Names presented to initiators, instead of the names that are derived from the UUID.
    pub names: GivenNames,
    /// The previous name of the volume, under which its identity was stored.
    pub previous_name: Option<VolumeName>,
    /// The deadline of a device request.
    pub deadline: Duration,
}

impl Volume {
    /// The default deadline. Linux times out a SCSI command after 30 s, so a device that takes this long has
    /// already failed for the initiator.
    pub const DEADLINE: Duration = Duration::from_secs(30);

    /// Creates a volume with defaults for everything else.
    pub fn new(name: VolumeName, spec: Spec) -> Volume {
        let (uuid, names, previous_name) = (None, GivenNames::default(), None);
        Volume {
            name,
            spec,
            uuid,
            names,
            previous_name,
            deadline: Volume::DEADLINE,
        }
    }
}

/// Reads the names of all volumes, including invalid ones, and the valid volumes.
pub(super) fn all(named: &[(Placed<&str>, Section<'_>)]) -> (Vec<String>, Vec<Volume>) {
    let names = named
        .iter()
        .map(|(name, _)| name.value.to_owned())
        .collect();
    let volumes: Vec<Volume> = named
        .iter()
        .filter_map(|(name, section)| read(name, section))
        .collect();
    one_identity_each(named, &volumes);
    one_successor_each(named, &volumes);
    (names, volumes)
}

fn read(name: &Placed<&str>, section: &Section<'_>) -> Option<Volume> {
    let known = name
        .value
        .parse()
        .map_err(|error: super::values::Unfit| section.mistakes.add(name.at.clone(), error.0));
    let spec = section.required("spec", spec(section), "\"ram:1GiB\"");
    let uuid = section.parsed("uuid").map(|uuid| uuid.value);
    let names = GivenNames {
        serial: section.parsed("serial").map(|serial| serial.value),
        naa: section.parsed("naa").map(|naa| naa.value),
        t10_id: section.parsed("t10-id").map(|id| id.value),
        vendor: section.parsed("vendor").map(|vendor| vendor.value),
        product: section.parsed("product").map(|product| product.value),
        revision: section.parsed("revision").map(|revision| revision.value),
    };
    let previous_name = section.parsed("previous-name").map(|name| name.value);
    let deadline = section.parsed::<Time>("deadline");
    if let Some(zero) = deadline.as_ref().filter(|time| time.value.0.is_zero()) {
        section.mistakes.add(
            zero.at.clone(),
            "the deadline must not be 0; write one such as \"30s\"",
        );
    }
    let (readonly, removable) = (section.flag("read-only"), section.flag("removable"));
    let thick = section.flag("thick");
    section.done();
    let mut volume = Volume::new(known.ok()?, spec?);
    volume.spec.readonly = readonly.unwrap_or(volume.spec.readonly);
    volume.spec.removable = removable.unwrap_or(volume.spec.removable);
    volume.spec.thick = thick.unwrap_or(volume.spec.thick);
    volume.deadline = deadline.map_or(volume.deadline, |time| time.value.0);
    Some(Volume {
        uuid,
        names,
        previous_name,
        ..volume
    })
}

/// Reads the specification; an error in it is reported at its column in the file.
fn spec(section: &Section<'_>) -> Option<Spec> {
    let text = section.text("spec")?;
    backends::parse(text.value)
        .map_err(|error| {
            let at = section.mistakes.inside(&text.at, text.value, &error.at());
            section.mistakes.add(at, error.sentence());
        })
        .ok()
}

/// Refuses two volumes with the same previous name, because only one of them can have its identity.
fn one_successor_each(named: &[(Placed<&str>, Section<'_>)], volumes: &[Volume]) {
    let mut taken: HashMap<&str, &VolumeName> = HashMap::new();
    for volume in volumes {
        let Some(previous) = &volume.previous_name else {
            continue;
        };
        let twin = taken.insert(previous.as_str(), &volume.name);
        let section = named
            .iter()
            .find(|(name, _)| name.value == volume.name.as_str());
        if let (Some(twin), Some((_, section))) = (twin, section) {
            let sentence = format!(
                "`{twin}` has the same previous name, and only one volume can be renamed from it"
            );
            section
                .mistakes
                .add(section.placed("previous-name"), sentence);
        }
    }
}

/// Refuses two volumes with the same UUID or designator. To an initiator that sees both, they would appear as
/// one volume with two paths, and a multipath driver would mix their data. The serial number is not checked,
/// because initiators use it only if there is no designator.
fn one_identity_each(named: &[(Placed<&str>, Section<'_>)], volumes: &[Volume]) {
    let mut taken: HashMap<(&str, Vec<u8>), &VolumeName> = HashMap::new();
    for volume in volumes {
        let identity = Identity {
            given: volume.names.clone(),
            ..Identity::new(volume.uuid.map_or([0; 16], |uuid| uuid.0))
        };
        let [naa, t10_id] = identity.names().map(|name| name.designator());
        // Skip names that are neither specified nor derived from a UUID in the configuration.
        let is_known = |is_given: bool| is_given || volume.uuid.is_some();
        let keys = [
            ("uuid", "UUID", volume.uuid.map(|uuid| uuid.0.to_vec())),
            (
                "naa",
                "NAA identifier",
                Some(naa).filter(|_| is_known(volume.names.naa.is_some())),
            ),
            (
                "t10-id",
                "T10 identifier",
                Some(t10_id).filter(|_| is_known(volume.names.t10_id.is_some())),
            ),
        ];
        let twin = keys.into_iter().find_map(|(key, what, value)| {
            let twin = taken.insert((key, value?), &volume.name)?;
            Some((key, what, twin))
        });
        let section = named
            .iter()
            .find(|(name, _)| name.value == volume.name.as_str());
        if let (Some((key, what, twin)), Some((name, section))) = (twin, section) {
            let sentence = format!(
                "`{}` and `{twin}` have the same {what}, so initiators would treat them as one disk; change \
                 or remove one of them",
                volume.name
            );
            let at = if section.has(key) {
                section.placed(key)
            } else {
                name.at.clone()
            };
            section.mistakes.add(at, sentence);
        }
    }
}
