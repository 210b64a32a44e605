//! Targets, exports and slots of front ends: their descriptions, and readable differences between two
//! configurations.

use std::any::Any;

use front_end_core::Portal;
use iscsi_server::NamePattern;
use volume::spec::Bytes;

use crate::config::values::VolumeName;
use crate::control::{self, TargetLun};

/// A target, an export or a slot.
pub trait Exposed: Any {
    /// Its name in the protocol.
    fn name(&self) -> String;

    /// The words in front of its name: the protocol, and the kind of export. One of them may be empty.
    fn words(&self) -> [&'static str; 2];

    /// Its volumes.
    fn contents(&self) -> Contents<'_>;

    /// Returns a description of the hosts with access to it, or to one of its LUNs.
    fn audience(&self, lun: Option<&Lun>) -> String;

    /// The access lists, for the control socket.
    fn access(&self) -> AccessLists {
        AccessLists::default()
    }

    /// Whether hosts can reach it through this portal of its front end.
    fn is_reached_by(&self, _: &Portal) -> bool {
        true
    }

    /// Returns the differences from `before`, which has the same type, apart from the contents: one word for
    /// each ([`differing`]).
    fn differences(&self, before: &dyn Exposed) -> Vec<&'static str>;

    /// Whether the hosts with access differ from those of `before`.
    fn is_for_others(&self, before: &dyn Exposed) -> bool {
        self.audience(None) != before.audience(None)
    }
}

/// Access control: names, networks and accounts.
#[derive(Default)]
pub struct AccessLists {
    /// A descriptive name.
    pub alias: Option<String>,
    /// The names, or patterns of names, that may log in; `None` allows any.
    pub initiators: Option<Vec<String>>,
    /// The networks from which hosts may connect; `None` allows any.
    pub networks: Option<Vec<String>>,
    /// The accounts that may log in; empty without authentication.
    pub users: Vec<String>,
    /// The portal to which hosts are redirected.
    pub redirect: Option<String>,
}

/// The volumes of a target, an export or a slot.
pub enum Contents<'a> {
    /// A volume.
    Volume(&'a VolumeName),
    /// Volumes with LUNs.
    Luns(&'a [Lun]),
}

/// A volume with a LUN.
#[derive(Clone, Debug, PartialEq)]
pub struct Lun {
    /// Its number.
    pub lun: u16,
    /// The name of the volume.
    pub volume: VolumeName,
    /// The initiators to which it is visible; `None` for all that may log in.
    pub initiators: Option<Vec<NamePattern>>,
}

impl<'a> Contents<'a> {
    /// Its volumes, with their LUNs if they have any.
    pub(crate) fn volumes(&self) -> Vec<(Option<u16>, &'a VolumeName)> {
        match *self {
            Contents::Volume(volume) => vec![(None, volume)],
            Contents::Luns(luns) => luns
                .iter()
                .map(|lun| (Some(lun.lun), &lun.volume))
                .collect(),
        }
    }
}

/// Returns the words whose values differ.
pub(super) fn differing(words: &[(bool, &'static str)]) -> Vec<&'static str> {
    words
        .iter()
        .filter(|(differs, _)| *differs)
        .map(|(_, word)| *word)
        .collect()
}

/// Casts the earlier value to the type that it must have.
pub(super) fn before<T: Exposed>(before: &dyn Exposed) -> &T {
    let before: &dyn Any = before;
    before
        .downcast_ref()
        .expect("all exports of a front end have one type")
}

/// Converts an optional list to texts.
pub(super) fn texts<T: ToString>(list: Option<&Vec<T>>) -> Option<Vec<String>> {
    list.map(|all| all.iter().map(ToString::to_string).collect())
}

/// Returns the description for the control socket. `portals` are the portals of all front ends.
pub(crate) fn target(
    exposed: &dyn Exposed,
    front_end: &str,
    portals: &[Portal],
) -> control::Target {
    let AccessLists {
        alias,
        initiators,
        networks,
        users,
        redirect,
    } = exposed.access();
    debug_assert!(!exposed.name().is_empty(), "hosts ask for it by name");
    let reached = portals
        .iter()
        .filter(|portal| portal.front_end == front_end && exposed.is_reached_by(portal));
    let lun = |(lun, volume): (Option<u16>, &VolumeName)| TargetLun {
        lun: lun.unwrap_or(0),
        volume: volume.to_string(),
    };
    control::Target {
        front_end: front_end.to_owned(),
        name: exposed.name(),
        alias,
        portals: reached.map(|portal| portal.listen.to_string()).collect(),
        initiators,
        networks,
        users,
        redirect,
        luns: exposed.contents().volumes().into_iter().map(lun).collect(),
        sessions: 0,
    }
}

/// Returns the lines of `serve --check`; `spec_of` returns the specification of a volume.
pub(crate) fn summary(
    exposed: &dyn Exposed,
    spec_of: &dyn Fn(&VolumeName) -> Option<String>,
) -> String {
    let spec = |volume| {
        spec_of(volume)
            .map(|spec| format!(" = {spec}"))
            .unwrap_or_default()
    };
    let [protocol, noun] = exposed.words();
    let head = format!(
        "{protocol}{noun}{} for {}\n",
        exposed.name(),
        exposed.audience(None)
    );
    match exposed.contents() {
        Contents::Volume(volume) => format!("{head}  {volume}{}\n", spec(volume)),
        Contents::Luns(luns) => luns.iter().fold(head, |text, lun| {
            let masked = if lun.initiators.is_some() {
                ", for listed initiators"
            } else {
                ""
            };
            text + &format!(
                "  LUN {}: {}{}{masked}\n",
                lun.lun,
                lun.volume,
                spec(&lun.volume)
            )
        }),
    }
}

/// Maximum LUNs on one line of text.
const LUNS_SHOWN: usize = 4;

/// Returns the lines about an export that a server prints after its start: the volumes with their sizes, and
/// `place`, its address.
pub(super) fn announced(exposed: &dyn Exposed, volumes: &[control::Volume], place: &str) -> String {
    let sized = |name: &VolumeName| {
        let volume = volumes.iter().find(|volume| volume.name == name.as_str());
        let size = volume.map(|volume| format!(" ({}, {})", volume.spec, Bytes(volume.bytes)));
        format!("{name}{}", size.unwrap_or_default())
    };
    let contents = match exposed.contents() {
        Contents::Volume(volume) => sized(volume),
        Contents::Luns([]) => "no LUNs".to_owned(),
        Contents::Luns(luns) => {
            let (shown, rest) = luns.split_at(luns.len().min(LUNS_SHOWN));
            let shown: Vec<String> = shown
                .iter()
                .map(|lun| format!("LUN {} {}", lun.lun, sized(&lun.volume)))
                .collect();
            let more = if rest.is_empty() {
                String::new()
            } else {
                format!("; {} more", rest.len())
            };
            shown.join("; ") + &more
        }
    };
    format!(
        "\n{}, for {}\n  {contents}\n  {place}\n",
        label(exposed),
        exposed.audience(None)
    )
}

/// Returns the address of a target's first LUN: its URL, and the number of further portals.
pub(super) fn place_of_target(url: &str, name: &str, luns: &[Lun], more: usize) -> String {
    let lun = luns
        .first()
        .map_or_else(String::new, |lun| format!("/{}", lun.lun));
    let elsewhere = if more == 0 {
        String::new()
    } else {
        format!(", and {more} more portals")
    };
    format!("{url}/{name}{lun}{elsewhere}")
}

/// Returns the label of an export: `NBD export vm1`.
fn label(exposed: &dyn Exposed) -> String {
    let [protocol, _] = exposed.words();
    format!("{protocol}{}", exposed.name())
}

/// Returns the differences between two lists of exports, one line each. `renamed` has the old and new names
/// of volumes that are renamed in `wanted`.
pub(crate) fn changes(
    now: &[&dyn Exposed],
    wanted: &[&dyn Exposed],
    renamed: &[(VolumeName, VolumeName)],
) -> Vec<String> {
    let title = |exposed: &dyn Exposed| {
        let [protocol, noun] = exposed.words();
        format!(
            "{}{}",
            if protocol.is_empty() { noun } else { protocol },
            exposed.name()
        )
    };
    let mut lines = Vec::new();
    for after in wanted {
        let (name, audience) = (label(*after), for_whom(&after.audience(None)));
        let Some(before) = now.iter().find(|before| before.name() == after.name()) else {
            let contents = match after.contents() {
                Contents::Volume(volume) => format!("= {volume}"),
                Contents::Luns(luns) => {
                    let luns: Vec<String> = luns
                        .iter()
                        .map(|lun| format!("LUN {} = {}", lun.lun, lun.volume))
                        .collect();
                    format!("({})", luns.join(", "))
                }
            };
            lines.push(format!("+ {} {contents} {audience}", title(*after)));
            continue;
        };
        match (before.contents(), after.contents()) {
            (Contents::Luns(before), Contents::Luns(luns)) => {
                lun_changes(*after, before, luns, renamed, &mut lines)
            }
            (Contents::Volume(before), Contents::Volume(volume))
                if called_now(before, renamed) != volume =>
            {
                lines.push(format!("~ {name}: {before} -> {volume} {audience}"));
            }
            _ => {}
        }
        lines.extend(
            after
                .differences(*before)
                .into_iter()
                .map(|word| format!("~ {name}: {word}")),
        );
        if after.is_for_others(*before) {
            lines.push(format!("~ {name} is {audience}"));
        }
    }
    let gone = now
        .iter()
        .filter(|before| wanted.iter().all(|after| after.name() != before.name()));
    lines.extend(gone.map(|before| {
        format!(
            "- {}, which was {}",
            title(*before),
            for_whom(&before.audience(None))
        )
    }));
    lines
}

fn lun_changes(
    target: &dyn Exposed,
    before: &[Lun],
    luns: &[Lun],
    renamed: &[(VolumeName, VolumeName)],
    lines: &mut Vec<String>,
) {
    let name = label(target);
    for after @ Lun {
        lun,
        volume,
        initiators,
    } in luns
    {
        let audience = for_whom(&target.audience(Some(after)));
        match before.iter().find(|old| old.lun == *lun) {
            None => lines.push(format!("+ {name} LUN {lun} = {volume} {audience}")),
            Some(old) if called_now(&old.volume, renamed) != volume => {
                lines.push(format!(
                    "~ {name} LUN {lun} = {volume} (was {}) {audience}",
                    old.volume
                ));
            }
            Some(old) if old.initiators != *initiators => {
                lines.push(format!("~ {name} LUN {lun}: access; {audience}"));
            }
            Some(_) => {}
        }
    }
    let gone = before
        .iter()
        .filter(|old| luns.iter().all(|lun| lun.lun != old.lun));
    lines.extend(gone.map(|lun| format!("- {name} LUN {} = {}", lun.lun, lun.volume)));
    if luns.is_empty() && !before.is_empty() {
        lines.push(format!(
            "~ {name} has no LUN left, and stays {}",
            for_whom(&target.audience(None))
        ));
    }
}

/// Returns the current name of a renamed volume.
fn called_now<'a>(name: &'a VolumeName, renamed: &'a [(VolumeName, VolumeName)]) -> &'a VolumeName {
    renamed
        .iter()
        .find(|(from, _)| from == name)
        .map_or(name, |(_, to)| to)
}

/// Returns the audience as shown in a change; `ANY` is in capitals, so that it stands out.
fn for_whom(audience: &str) -> String {
    format!("for {}", audience.replacen("any ", "ANY ", 1))
}

/// Returns the differences between two lists of portals, one line each; `describe` names a portal.
pub fn portal_changes(
    now: &[Portal],
    wanted: &[Portal],
    describe: impl Fn(&Portal) -> String,
) -> Vec<String> {
    let mut lines = Vec::new();
    for portal in wanted.iter().filter(|portal| !now.contains(portal)) {
        let is_there = now.iter().any(|before| before.listen == portal.listen);
        let sign = if is_there { '~' } else { '+' };
        lines.push(format!("{sign} portal {}", describe(portal)));
    }
    for portal in now {
        if wanted.iter().all(|after| after.listen != portal.listen) {
            lines.push(format!("- portal {}", describe(portal)));
        }
    }
    lines
}
