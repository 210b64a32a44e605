//! `[volume.NAME]`: a volume.

use std::time::Duration;

use super::section::{Placed, Section};
use super::values::{Uuid, VolumeName};
use volume::spec::{Spec, Time};

/// A volume and how it is presented.
#[derive(Clone, Debug)]
pub struct Volume {
    /// Its name, under which its identity is stored.
    pub name: VolumeName,
    /// What it is made of.
    pub spec: Spec,
    /// Its identity; `None`: a random one, made once and stored.
    pub uuid: Option<Uuid>,
    /// The name under which its identity was kept before.
    pub previous_name: Option<VolumeName>,
    /// The deadline of a device request.
    pub deadline: Duration,
}

impl Volume {
    /// 30 s is what Linux gives a SCSI command; a device that took as long has failed it already.
    pub const DEADLINE: Duration = Duration::from_secs(30);

    /// With everything else as usual.
    pub fn new(name: VolumeName, spec: Spec) -> Volume {
        Volume { name, spec, uuid: None, previous_name: None, deadline: Volume::DEADLINE }
    }
}

/// The names of all volumes, those of volumes with mistakes too, and the volumes without.
pub(super) fn all(named: &[(Placed<&str>, Section<'_>)]) -> (Vec<String>, Vec<Volume>) {
    let names = named.iter().map(|(name, _)| name.value.to_owned()).collect();
    let volumes: Vec<Volume> = named.iter().filter_map(|(name, section)| read(name, section)).collect();
    one_uuid_each(named, &volumes);
    (names, volumes)
}

fn read(name: &Placed<&str>, section: &Section<'_>) -> Option<Volume> {
    let known = name
        .value
        .parse()
        .map_err(|error: super::values::Unfit| section.mistakes.add(name.at.clone(), error.0));
    let spec = section.required("spec", spec(section), "\"ram:1GiB\"");
    let uuid = section.parsed("uuid").map(|uuid| uuid.value);
    let previous_name = section.parsed("previous-name").map(|name| name.value);
    let deadline = section.parsed::<Time>("deadline");
    if let Some(zero) = deadline.as_ref().filter(|time| time.value.0.is_zero()) {
        section.mistakes.add(zero.at.clone(), "a command needs some time; write a deadline such as \"30s\"");
    }
    let (readonly, removable) = (section.renamed_flag("read-only", "readonly"), section.flag("removable"));
    let thick = section.flag("thick");
    section.done();
    let mut volume = Volume::new(known.ok()?, spec?);
    volume.spec.readonly = readonly.unwrap_or(volume.spec.readonly);
    volume.spec.removable = removable.unwrap_or(volume.spec.removable);
    volume.spec.thick = thick.unwrap_or(volume.spec.thick);
    volume.deadline = deadline.map_or(volume.deadline, |time| time.value.0);
    Some(Volume { uuid, previous_name, ..volume })
}

/// The specification; a mistake in it is shown at its column in the file.
fn spec(section: &Section<'_>) -> Option<Spec> {
    let text = section.text("spec")?;
    backends::parse(text.value)
        .map_err(|error| {
            let at = section.mistakes.inside(&text.at, text.value, &error.at());
            section.mistakes.add(at, error.sentence());
        })
        .ok()
}

/// Two volumes with one UUID would be one volume by two paths to every initiator that sees both, and a
/// multipath driver would mix their data.
fn one_uuid_each(named: &[(Placed<&str>, Section<'_>)], volumes: &[Volume]) {
    for (index, volume) in volumes.iter().enumerate() {
        let twin =
            volumes.iter().take(index).find(|other| volume.uuid.is_some() && other.uuid == volume.uuid);
        let section = named.iter().find(|(name, _)| name.value == volume.name.as_str());
        if let (Some(twin), Some((name, section))) = (twin, section) {
            let sentence = format!(
                "`{}` has the UUID of `{}`, and initiators would take them for one; give it its own or none",
                volume.name, twin.name
            );
            section.mistakes.add(name.at.clone(), sentence);
        }
    }
}
