//! A logical unit: who made it, what it is, who has reserved it, by which ports it is best reached.

use std::sync::Arc;

use iscsi_client::verbs::{
    Association, Inquiry, LunAddress, LunSelection, PortGroup, Registration, VpdContent, device_type,
};
use iscsi_client::{RemoteTarget, Unit};
use serde::Serialize;

use crate::disk::Disk;
use crate::reservations::registered;
use crate::{known, pages};
use backends::{Failure, FailureKind};
use stats::table::pairs;

/// The names of the JSON are promised; `null` is what the target does not know or was not willing to say.
#[derive(Debug, Serialize)]
pub(crate) struct UnitInfo {
    /// As people number it.
    lun: String,
    device_type: &'static str,
    vendor: String,
    product: String,
    revision: String,
    standard: &'static str,
    removable: bool,
    serial_number: Option<String>,
    /// `naa.…`, `t10.…` and so on.
    names: Vec<String>,
    disk: Option<Disk>,
    /// Why it could not be looked at as a disk, or its first block not be read.
    problem: Option<String>,
    reservation: Option<Held>,
    registrations: Option<Vec<Registered>>,
    /// By which group of ports it is best reached (ALUA).
    port_groups: Option<Vec<String>>,
    vpd_pages: Vec<String>,
    /// Those that were asked for in whole.
    vpd: Vec<serde_json::Value>,
    #[serde(skip)]
    vpd_text: String,
    /// How many commands it knows.
    commands: Option<usize>,
}

#[derive(Debug, Serialize)]
struct Held {
    r#type: String,
    key: String,
}

#[derive(Debug, Serialize)]
struct Registered {
    key: String,
    initiator: Option<String>,
}

/// Every logical unit that the target shows us. One that cannot be looked at is no reason to leave out the others.
pub(crate) async fn look_at_all(target: &Arc<RemoteTarget>, vpd: &[u8]) -> Result<Vec<UnitInfo>, Failure> {
    let luns = target.unit(0).report_luns(LunSelection::Ordinary).await?;
    let mut units = Vec::new();
    for lun in luns {
        units.push(UnitInfo::look(&Unit::new(Arc::clone(target), lun), vpd).await?);
    }
    Ok(units)
}

impl UnitInfo {
    pub(crate) async fn look(unit: &Unit, vpd: &[u8]) -> Result<UnitInfo, Failure> {
        let inquiry = unit.inquiry().await?;
        if !inquiry.is_there() {
            let lun = LunAddress::parse(unit.lun().0);
            return Err(Failure::new(FailureKind::NotFound, format_args!("the target has no LUN {lun}")));
        }
        let vpd_pages = known(unit.vpd_pages().await)?.unwrap_or_default();
        let (disk, problem) = match inquiry.is_disk() {
            true => Disk::look(unit).await.map_or_else(
                |failure| (None, Some(failure.to_string())),
                |mut disk| {
                    let problem = disk.problem.take();
                    (Some(disk), problem)
                },
            ),
            false => (None, None),
        };
        let mut whole = Vec::new();
        for page in vpd {
            whole.push(unit.vpd(*page).await?);
        }
        let reservation = known(unit.reservation().await)?.flatten();
        let commands = known(unit.supported_commands().await)?.map(|commands| commands.len());
        Ok(UnitInfo {
            lun: LunAddress::parse(unit.lun().0).to_string(),
            standard: inquiry.version_name(),
            device_type: device_type(inquiry.device_type),
            serial_number: serial_number(unit, &vpd_pages).await?,
            names: names(unit, &vpd_pages).await?,
            port_groups: port_groups(unit, &inquiry).await?,
            registrations: known(registered(unit).await)?
                .map(|all| all.iter().map(Registered::new).collect()),
            reservation: reservation
                .map(|held| Held { r#type: held.kind.to_string(), key: format!("{:x}", held.key) }),
            disk,
            problem,
            vpd_pages: vpd_pages.iter().map(|code| format!("{code:02x}")).collect(),
            vpd: whole.iter().map(pages::to_json).collect(),
            vpd_text: whole
                .iter()
                .map(|page| format!("\n{}{}", pages::text(page), pages::dump(&page.bytes)))
                .collect(),
            commands,
            vendor: inquiry.vendor,
            product: inquiry.product,
            revision: inquiry.revision,
            removable: inquiry.removable,
        })
    }

    /// A heading and a line for each thing that is known.
    pub(crate) fn text(&self) -> String {
        let UnitInfo { lun, device_type, vendor, product, revision, standard, .. } = self;
        let removable = if self.removable { "removable " } else { "" };
        let head =
            format!("LUN {lun}: {vendor} {product} {revision}, {removable}{device_type}, {standard}\n");
        let disk = self.disk.iter().flat_map(Disk::rows);
        let rows = disk.chain(self.rows()).filter(|(_, value)| !value.is_empty());
        head + &pairs("  ", rows) + &self.vpd_text
    }

    fn rows(&self) -> Vec<(&'static str, String)> {
        vec![
            ("problem", self.problem.clone().unwrap_or_default()),
            ("reservation", self.reservations()),
            ("ports", self.port_groups.iter().flatten().map(String::as_str).collect::<Vec<_>>().join("; ")),
            ("names", self.names.join(", ")),
            ("serial", self.serial_number.clone().unwrap_or_default()),
            ("VPD pages", self.vpd_pages.join(" ")),
            ("commands", self.commands.map_or_else(String::new, |count| count.to_string())),
        ]
    }

    fn reservations(&self) -> String {
        let Some(registrations) = &self.registrations else { return String::new() };
        let held = self.reservation.as_ref().map(|held| format!("{} by key {}", held.r#type, held.key));
        let held = held.unwrap_or_else(|| "none".to_owned());
        let who: Vec<String> = registrations.iter().map(Registered::text).collect();
        let who = if who.is_empty() {
            "nobody registered".to_owned()
        } else {
            format!("registered: {}", who.join(", "))
        };
        format!("{held}, {who}")
    }
}

impl Registered {
    fn new(registration: &Registration) -> Registered {
        Registered {
            key: format!("{:x}", registration.key),
            initiator: registration.initiator.as_ref().map(ToString::to_string),
        }
    }

    fn text(&self) -> String {
        let of = self.initiator.as_ref().map_or_else(String::new, |initiator| format!(" of {initiator}"));
        format!("{}{of}", self.key)
    }
}

/// A name is the unit's own; those of its ports and its target say nothing about it.
async fn names(unit: &Unit, pages: &[u8]) -> Result<Vec<String>, Failure> {
    const DEVICE_IDENTIFICATION: u8 = 0x83;
    if !pages.contains(&DEVICE_IDENTIFICATION) {
        return Ok(Vec::new());
    }
    let page = known(unit.vpd(DEVICE_IDENTIFICATION).await)?;
    let Some(VpdContent::Designators(all)) = page.map(|page| page.content) else { return Ok(Vec::new()) };
    let own = all.iter().filter(|one| one.association == Association::LogicalUnit);
    Ok(own.map(|one| one.name.to_string()).collect())
}

async fn serial_number(unit: &Unit, pages: &[u8]) -> Result<Option<String>, Failure> {
    const UNIT_SERIAL_NUMBER: u8 = 0x80;
    if !pages.contains(&UNIT_SERIAL_NUMBER) {
        return Ok(None);
    }
    let page = known(unit.vpd(UNIT_SERIAL_NUMBER).await)?;
    Ok(match page.map(|page| page.content) {
        Some(VpdContent::SerialNumber(serial)) => Some(serial),
        _ => None,
    })
}

/// Asked only of those that say in INQUIRY that they have groups (TPGS).
async fn port_groups(unit: &Unit, inquiry: &Inquiry) -> Result<Option<Vec<String>>, Failure> {
    if inquiry.target_port_groups == 0 {
        return Ok(None);
    }
    let groups = known(unit.target_port_groups().await)?;
    Ok(groups.map(|groups| groups.iter().map(PortGroup::to_string).collect()))
}
