//! The result of a discovery, as text and as JSON. The JSON names are stable.

use std::sync::Arc;

use backends::{Failure, remote};
use block::BlockDevice;
use foreign::printable;
use iscsi_client::verbs::{LunAddress, LunSelection, device_type};
use iscsi_client::{Discovered, Portal, RemoteTarget, Settings, Unit};
use readable::table::{Align, lines};
use serde::Serialize;

#[derive(Debug, Serialize)]
pub(crate) struct Discovery {
    /// The portal that was queried.
    portal: String,
    pub(crate) targets: Vec<Target>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Target {
    pub(crate) name: String,
    pub(crate) portals: Vec<TargetPortal>,
    /// `null` if the LUNs were not requested, or could not be read.
    pub(crate) luns: Option<Vec<Lun>>,
    /// Why the LUNs could not be read.
    pub(crate) problem: Option<String>,
}

/// A portal of a target.
#[derive(Debug, Serialize)]
pub(crate) struct TargetPortal {
    pub(crate) address: String,
    /// The portal group. One session may use all portals of a group.
    pub(crate) group: Option<u16>,
    /// Why the portal could not be used, if it was tried.
    pub(crate) problem: Option<String>,
}

#[derive(Debug, Default, Serialize)]
pub(crate) struct Lun {
    /// The LUN in the usual notation.
    pub(crate) lun: String,
    /// The device type by name: `disk`, `tape` and so on.
    pub(crate) device_type: String,
    pub(crate) vendor: String,
    pub(crate) product: String,
    pub(crate) revision: String,
    /// This field and the following ones are set for disks only.
    pub(crate) bytes: Option<u64>,
    pub(crate) block_bytes: Option<u32>,
    pub(crate) thin: Option<bool>,
    pub(crate) read_only: Option<bool>,
    /// Why the LUN could not be read.
    pub(crate) problem: Option<String>,
}

impl Discovery {
    pub(crate) fn new(asked: &Portal, found: Vec<Discovered>) -> Discovery {
        let target = |found: Discovered| {
            let mut portals: Vec<TargetPortal> = found
                .addresses
                .iter()
                .map(|address| TargetPortal::of(address))
                .collect();
            if portals.is_empty() {
                // By RFC 7143 appendix C, a target without an address is at the queried portal.
                portals.push(TargetPortal {
                    address: asked.to_string(),
                    group: None,
                    problem: None,
                });
            }
            Target {
                name: printable(&found.name),
                portals,
                luns: None,
                problem: None,
            }
        };
        Discovery {
            portal: asked.to_string(),
            targets: found.into_iter().map(target).collect(),
        }
    }

    /// The result as text, with a paragraph for each target.
    pub(crate) fn text(&self) -> String {
        self.targets
            .iter()
            .map(Target::text)
            .collect::<Vec<_>>()
            .join("\n")
    }
}

impl TargetPortal {
    /// Parses `host:port,tag` (RFC 7143 section 13.8).
    fn of(address: &str) -> TargetPortal {
        let (address, tag) = address.rsplit_once(',').unwrap_or((address, ""));
        TargetPortal {
            address: printable(address),
            group: tag.parse().ok(),
            problem: None,
        }
    }

    fn cells(&self) -> [String; 3] {
        let group = self.group.map(|group| format!("group {group}"));
        let problem = self.problem.clone();
        [
            format!("portal {}", self.address),
            group.unwrap_or_default(),
            problem.unwrap_or_default(),
        ]
    }
}

impl Target {
    fn text(&self) -> String {
        let portals: Vec<_> = self.portals.iter().map(TargetPortal::cells).collect();
        let luns: Vec<_> = self.luns.iter().flatten().map(Lun::cells).collect();
        let mut text = format!("{}\n", self.name);
        let portals = lines([Align::Left; 3], &portals);
        let luns = lines(Lun::ALIGN, &luns);
        for line in portals.iter().chain(&luns) {
            text += &format!("  {line}\n");
        }
        match (&self.problem, &self.luns) {
            (Some(problem), _) => text += &format!("  {problem}\n"),
            (None, Some(luns)) if luns.is_empty() => text += "  no LUNs for this initiator\n",
            (None, _) => {}
        }
        text
    }
}

impl Lun {
    const ALIGN: [Align; 6] = [
        Align::Left,
        Align::Right,
        Align::Left,
        Align::Left,
        Align::Left,
        Align::Left,
    ];

    fn cells(&self) -> [String; 6] {
        let size = self
            .bytes
            .map(|bytes| volume::spec::Bytes(bytes).to_string());
        let blocks = self
            .block_bytes
            .map(|bytes| format!("in blocks of {bytes}"));
        let flags = [(self.thin, "thin"), (self.read_only, "read-only")];
        let flags = flags
            .iter()
            .filter(|(is, _)| *is == Some(true))
            .map(|(_, word)| *word);
        let kind = Some(self.device_type.as_str()).filter(|_| self.bytes.is_none());
        let remark: Vec<&str> = kind
            .into_iter()
            .chain(self.problem.as_deref())
            .chain(flags)
            .collect();
        let what = format!("{} {}", self.vendor, self.product);
        [
            format!("LUN {}", self.lun),
            size.unwrap_or_default(),
            blocks.unwrap_or_default(),
            what.trim().to_owned(),
            self.revision.clone(),
            remark.join(", "),
        ]
    }
}

// Logs in to a discovered target, to list its LUNs.

/// Lists a target's LUNs through the first of its portals that can be reached, and records why the earlier
/// portals could not be used.
pub(crate) async fn look(target: &mut Target, settings: &Settings) -> Result<(), Failure> {
    debug_assert!(
        target.luns.is_none() && target.problem.is_none(),
        "a target is inspected one time"
    );
    let looked = match log_in(target, settings).await {
        Ok(session) => {
            let luns = luns(&session).await;
            session.close().await;
            luns
        }
        Err(failure) => Err(failure),
    };
    match looked {
        Ok(luns) => target.luns = Some(luns),
        Err(failure) => {
            target.problem = Some(failure.to_string());
            return Err(failure);
        }
    }
    Ok(())
}

async fn log_in(target: &mut Target, settings: &Settings) -> Result<Arc<RemoteTarget>, Failure> {
    let mut last = Failure::failed("the target has no portal");
    for portal in &mut target.portals {
        match enter(&portal.address, &target.name, settings).await {
            Ok(session) => return Ok(session),
            Err(failure) if failure.is_unreachable() => {
                portal.problem = Some(failure.to_string());
                last = failure;
            }
            // A failure other than an unreachable portal applies to the target, so the other portals are not
            // tried.
            Err(failure) => return Err(failure),
        }
    }
    Err(last)
}

async fn enter(
    address: &str,
    name: &str,
    settings: &Settings,
) -> Result<Arc<RemoteTarget>, Failure> {
    let portal = Portal::parse(&format!("iscsi://{address}"));
    let (portal, _) =
        portal.map_err(|_| Failure::failed(format!("{address:?} is not a valid address")))?;
    remote::log_in(&portal, name, settings).await
}

async fn luns(session: &Arc<RemoteTarget>) -> Result<Vec<Lun>, Failure> {
    let mut luns = Vec::new();
    for lun in session.unit(0).report_luns(LunSelection::Ordinary).await? {
        luns.push(one(&Unit::new(Arc::clone(session), lun)).await);
    }
    Ok(luns)
}

/// Describes a LUN. If the LUN cannot be read, the reason replaces the description.
async fn one(unit: &Unit) -> Lun {
    let mut lun = Lun {
        lun: LunAddress::parse(unit.lun().0).to_string(),
        ..Lun::default()
    };
    if let Err(failure) = describe(&mut lun, unit).await {
        lun.problem = Some(failure.to_string());
    }
    lun
}

async fn describe(lun: &mut Lun, unit: &Unit) -> Result<(), Failure> {
    let inquiry = unit.inquiry().await?;
    device_type(inquiry.device_type).clone_into(&mut lun.device_type);
    let is_disk = inquiry.is_disk();
    (lun.vendor, lun.product, lun.revision) = (inquiry.vendor, inquiry.product, inquiry.revision);
    if is_disk {
        let disk = remote::disk(unit).await?;
        let (geometry, profile) = (disk.geometry(), disk.profile());
        lun.bytes = Some(geometry.bytes());
        lun.block_bytes = Some(geometry.block_size.bytes());
        (lun.thin, lun.read_only) = (Some(profile.thin), Some(profile.read_only));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn portal() -> Portal {
        Portal {
            host: "san1".to_owned(),
            port: 3260,
        }
    }

    #[test]
    fn a_target_that_names_no_address_is_where_it_was_asked() {
        let found = Discovered {
            name: "iqn.x:a".to_owned(),
            addresses: Vec::new(),
        };
        let discovery = Discovery::new(&portal(), vec![found]);
        assert_eq!(discovery.text(), "iqn.x:a\n  portal san1:3260\n");
    }

    #[test]
    fn a_target_is_told_with_its_portals_and_what_is_wrong_with_them() {
        let addresses = vec!["10.0.0.1:3260,1".to_owned(), "[fe80::1]:3260,2".to_owned()];
        let mut discovery = Discovery::new(
            &portal(),
            vec![Discovered {
                name: "iqn.x:a".to_owned(),
                addresses,
            }],
        );
        discovery.targets[0].portals[0].problem = Some("cannot connect".to_owned());
        let expected = "\
iqn.x:a
  portal 10.0.0.1:3260   group 1  cannot connect
  portal [fe80::1]:3260  group 2
";
        assert_eq!(discovery.text(), expected);
    }

    #[test]
    fn a_target_does_not_write_on_our_terminal_what_it_likes() {
        let found = Discovered {
            name: "iqn.x:\x1b[2Ja".to_owned(),
            addresses: vec!["\x07:1,1".to_owned()],
        };
        assert!(
            !Discovery::new(&portal(), vec![found])
                .text()
                .contains(['\x1b', '\x07'])
        );
    }

    #[test]
    fn luns_stand_in_columns() {
        let disk = Lun {
            lun: "0".to_owned(),
            vendor: "LINERATE".to_owned(),
            product: "vm1".to_owned(),
            revision: "0001".to_owned(),
            bytes: Some(50 << 30),
            block_bytes: Some(512),
            thin: Some(true),
            ..Lun::default()
        };
        let controller = Lun {
            lun: "12".to_owned(),
            device_type: "controller".to_owned(),
            vendor: "LINERATE".to_owned(),
            product: "gate".to_owned(),
            ..Lun::default()
        };
        let found = Discovered {
            name: "iqn.x:a".to_owned(),
            addresses: Vec::new(),
        };
        let mut discovery = Discovery::new(&portal(), vec![found]);
        discovery.targets[0].luns = Some(vec![disk, controller]);
        let expected = "\
iqn.x:a
  portal san1:3260
  LUN 0   50GiB  in blocks of 512  LINERATE vm1   0001  thin
  LUN 12                           LINERATE gate        controller
";
        assert_eq!(discovery.text(), expected);
    }
}
