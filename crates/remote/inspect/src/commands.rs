//! SCSI commands that only query, and their results as text and JSON.

use backends::hyperscsi::UrlOptions as Options;
use backends::{Failure, FailureKind};
use block::Extent;
use iscsi::pdu::Isid;
use iscsi_client::verbs::{
    Capacity, Inquiry, LbaStatus, LunAddress, LunSelection, ModePage, ModeValues, Modes, PortGroup,
    Registration, TransportId, VerbError, device_type, standard_name,
};
use iscsi_client::{Settings, Unit};
use readable::figures::grouped;
use readable::table::{Align, lines, pairs};
use serde_json::{Value, json};
use volume::spec::Bytes;

use crate::pages::Answer;
use crate::pages::{self, dump, fields, fields_text, hex};

/// Standard data of INQUIRY.
///
/// # Errors
/// The command failed, or there is no such LUN.
pub async fn inquiry(unit: &Unit) -> Result<Answer, Failure> {
    let data = unit.inquiry().await?;
    if !data.is_there() {
        return Err(Failure::new(
            FailureKind::NotFound,
            "the target has no such LUN",
        ));
    }
    Ok(standard(&data))
}

fn standard(data: &Inquiry) -> Answer {
    let standards: Vec<String> = data
        .standards
        .iter()
        .map(|number| format!("{number:04x}"))
        .collect();
    let named =
        |number: &u16| standard_name(*number).map_or(format!("{number:04x}"), str::to_owned);
    let names: Vec<String> = data.standards.iter().map(named).collect();
    let rows = [
        ("device type", device_type(data.device_type)),
        ("vendor", &data.vendor),
        ("product", &data.product),
        ("revision", &data.revision),
        ("standard", data.version_name()),
        ("also", &names.join(", ")),
        ("removable", yes(data.removable)),
        ("command queue", yes(data.command_queuing)),
        ("ALUA", alua(data.target_port_groups)),
        ("XCOPY", yes(data.third_party_copy)),
        ("protection", yes(data.protection)),
    ];
    let json = json!({
        "device_type": device_type(data.device_type),
        "vendor": data.vendor,
        "product": data.product,
        "revision": data.revision,
        "standard": data.version_name(),
        "version_descriptors": standards,
        "removable": data.removable,
        "command_queuing": data.command_queuing,
        "alua": alua(data.target_port_groups),
        "third_party_copy": data.third_party_copy,
        "protection": data.protection,
    });
    Answer::of_text(
        pairs("", rows.into_iter().filter(|(_, value)| !value.is_empty())),
        &json,
    )
}

fn yes(is: bool) -> &'static str {
    if is { "yes" } else { "no" }
}

/// Describes the value of the TPGS field (SPC-4 table 144).
fn alua(target_port_groups: u8) -> &'static str {
    match target_port_groups {
        1 => "implicit",
        2 => "explicit",
        3 => "implicit and explicit",
        _ => "no",
    }
}

/// A page of vital product data (INQUIRY). With `bytes`, also as a hex dump.
///
/// # Errors
/// Errors of [`Unit::vpd`], or there is no such LUN.
pub async fn vpd(unit: &Unit, page: u8, bytes: bool) -> Result<Answer, Failure> {
    let page = match unit.vpd(page).await {
        Ok(page) => page,
        // For a missing LUN, a target rejects all pages as unsupported, but succeeds with standard INQUIRY
        // data. So query this data to determine whether the LUN exists.
        Err(refused) => return Err(inquiry(unit).await.err().unwrap_or(refused.into())),
    };
    let bytes = if bytes {
        format!("\n{}", dump(&page.bytes))
    } else {
        String::new()
    };
    Ok(Answer::of_text(
        pages::text(&page) + &bytes,
        &pages::to_json(&page),
    ))
}

/// REQUEST SENSE.
///
/// # Errors
/// As [`Unit::request_sense`].
pub async fn sense(unit: &Unit) -> Result<Answer, VerbError> {
    settle(unit).await;
    let sense = unit.request_sense().await?;
    let text = sense.map_or_else(|| "nothing".to_owned(), |sense| sense.to_string());
    let json = sense.map(|sense| {
        json!({
            "key": sense.key,
            "code": sense.code,
            "qualifier": sense.qualifier,
            "information": sense.information,
            "progress": sense.progress().map(|progress| f64::from(progress) / 65_536.0),
            "words": sense.to_string(),
        })
    });
    Ok(Answer::of_text(text, &json))
}

/// Clears unit attention conditions that are pending for every new session, such as an earlier reset.
/// Otherwise, the target would report them instead of executing the next command. The result of TEST UNIT
/// READY itself is ignored.
pub async fn settle(unit: &Unit) {
    let _ = unit.test_unit_ready().await;
}

/// MODE SENSE: all pages, or one.
///
/// # Errors
/// As [`Unit::mode_sense`].
pub async fn modes(unit: &Unit, page: Option<u8>, values: ModeValues) -> Result<Answer, VerbError> {
    let modes = match page {
        Some(page) => unit.mode_sense(page, 0, values).await?,
        None => unit.modes(values).await?,
    };
    let writing = if modes.write_protected {
        "write-protected"
    } else {
        "writable"
    };
    let fua = if modes.force_unit_access {
        "FUA obeyed"
    } else {
        "FUA not obeyed"
    };
    let pages: String = modes.pages.iter().map(page_text).collect();
    Ok(Answer::of_text(
        format!("{writing}, {fua}\n{pages}"),
        &modes_to_json(&modes),
    ))
}

fn page_text(page: &ModePage) -> String {
    let fields = page.fields();
    let subpage = if page.subpage == 0 {
        String::new()
    } else {
        format!("/{:02x}h", page.subpage)
    };
    let content = if fields.is_empty() {
        dump(&page.bytes)
    } else {
        fields_text(&fields)
    };
    format!("\n{} ({:02x}h{subpage})\n{content}", page.name(), page.code)
}

fn modes_to_json(modes: &Modes) -> Value {
    let page = |page: &ModePage| {
        json!({
            "page": format!("{:02x}", page.code),
            "subpage": format!("{:02x}", page.subpage),
            "name": page.name(),
            "saveable": page.saveable,
            "fields": fields(&page.fields()),
            "bytes": hex(&page.bytes),
        })
    };
    json!({
        "write_protected": modes.write_protected,
        "force_unit_access": modes.force_unit_access,
        "pages": modes.pages.iter().map(page).collect::<Value>(),
    })
}

/// READ CAPACITY.
///
/// # Errors
/// As [`Unit::read_capacity`].
pub async fn capacity(unit: &Unit) -> Result<Answer, VerbError> {
    let capacity = unit.read_capacity().await?;
    let Capacity {
        blocks,
        block_bytes,
        physical_exponent,
        lowest_aligned,
        protection_type,
        ..
    } = capacity;
    let bytes = capacity.bytes();
    let physical = u64::from(block_bytes) << physical_exponent;
    let rows = [
        ("capacity", Bytes(bytes).to_string()),
        (
            "blocks",
            format!("{} of {block_bytes} bytes", grouped(blocks)),
        ),
        (
            "physical blocks",
            format!("of {physical} bytes, the first at block {lowest_aligned}"),
        ),
        (
            "protection",
            protection_type.map_or_else(|| "no".to_owned(), |kind| format!("type {kind}")),
        ),
        ("thin", yes(capacity.thin).to_owned()),
    ];
    let json = json!({
        "bytes": bytes,
        "blocks": blocks,
        "block_bytes": block_bytes,
        "physical_block_bytes": physical,
        "lowest_aligned_lba": lowest_aligned,
        "protection_type": protection_type,
        "thin": capacity.thin,
    });
    Ok(Answer::of_text(pairs("", rows), &json))
}

/// Maximum number of lines. The map of a fragmented disk could be much longer.
const RUNS_MOST: usize = 65_536;

/// GET LBA STATUS of `blocks` blocks from `lba`, or of all blocks up to the end.
///
/// # Errors
/// As [`Unit::lba_status`].
pub async fn lba_status(unit: &Unit, lba: u64, blocks: Option<u64>) -> Result<Answer, VerbError> {
    let rest = unit.read_capacity().await?.blocks.saturating_sub(lba);
    let runs = unit
        .lba_status(Extent::new(lba, blocks.unwrap_or(rest)), RUNS_MOST)
        .await?;
    let runs = runs.iter().map(|run| {
        (
            run.extent.lba.0,
            run.extent.blocks.0,
            status_name(run.status),
        )
    });
    let (rows, json): (Vec<_>, Vec<_>) = runs
        .map(|(lba, blocks, status)| {
            let json = json!({ "lba": lba, "blocks": blocks, "status": status });
            ([lba.to_string(), blocks.to_string(), status], json)
        })
        .unzip();
    Ok(Answer::of_text(
        lines([Align::Right, Align::Right, Align::Left], &rows).join("\n"),
        &json!({ "extents": json }),
    ))
}

fn status_name(status: LbaStatus) -> String {
    match status {
        LbaStatus::Mapped => "mapped".to_owned(),
        LbaStatus::Deallocated => "deallocated".to_owned(),
        LbaStatus::Anchored => "anchored".to_owned(),
        LbaStatus::Other(code) => format!("status {code}"),
    }
}

/// REPORT LUNS.
///
/// # Errors
/// As [`Unit::report_luns`].
pub async fn luns(unit: &Unit) -> Result<Answer, VerbError> {
    let luns = unit.report_luns(LunSelection::All).await?;
    let (names, json): (Vec<_>, Vec<_>) = luns
        .iter()
        .map(|lun| (LunAddress::parse(lun.0).to_string(), lun.0))
        .map(|(name, address)| {
            let json = json!({ "lun": name, "address": format!("{address:016x}") });
            (name, json)
        })
        .unzip();
    Ok(Answer::of_text(names.join("\n"), &json!({ "luns": json })))
}

/// REPORT TARGET PORT GROUPS.
///
/// # Errors
/// As [`Unit::target_port_groups`].
pub async fn port_groups(unit: &Unit) -> Result<Answer, VerbError> {
    let groups = unit.target_port_groups().await?;
    let text: Vec<String> = groups.iter().map(PortGroup::to_string).collect();
    let json = groups.iter().map(|group| {
        json!({
            "group": group.group,
            "state": group.state.to_string(),
            "preferred": group.preferred,
            "relative_ports": group.ports,
        })
    });
    Ok(Answer::of_text(
        text.join("\n"),
        &json!({ "port_groups": json.collect::<Value>() }),
    ))
}

/// REPORT SUPPORTED OPERATION CODES: numbers, length and name of each, as `9e/10  16  READ CAPACITY(16)`.
///
/// # Errors
/// As [`Unit::supported_commands`].
pub async fn opcodes(unit: &Unit) -> Result<Answer, VerbError> {
    let commands = unit.supported_commands().await?;
    let (rows, json): (Vec<_>, Vec<_>) = commands
        .iter()
        .map(|command| {
            let action = command
                .service_action
                .map_or_else(String::new, |action| format!("/{action:02x}"));
            let (name, cdb_bytes) = (command.to_string(), command.cdb_bytes);
            let json = json!({
                "operation_code": command.opcode,
                "service_action": command.service_action,
                "name": name,
                "cdb_bytes": cdb_bytes,
            });
            (
                [
                    format!("{:02x}{action}", command.opcode),
                    cdb_bytes.to_string(),
                    name,
                ],
                json,
            )
        })
        .unzip();
    Ok(Answer::of_text(
        lines([Align::Left, Align::Right, Align::Left], &rows).join("\n"),
        &json!({ "commands": json }),
    ))
}

// Persistent reservations (SPC-4 5.13): the registrations, the holder of the reservation, and the nexus that
// sends a command.
//
// A registration belongs to an I_T nexus: the initiator's name together with the session's ISID. A program
// that registers in one session and reserves in another must use the same ISID for both ([`stable_isid`]).

/// Sets a missing ISID to one that depends only on the initiator's name, in the random format (RFC 7143
/// section 11.12.5). FNV-1a distributes names well enough. A collision is harmless, because the name is also
/// part of the I_T nexus.
pub fn stable_isid(settings: &mut Settings) {
    let [_, _, _, spread @ ..] = spread(&settings.initiator).to_be_bytes();
    let mut isid = [0x80; 6];
    isid[1..].copy_from_slice(&spread);
    settings.isid.get_or_insert(Isid(isid));
}

/// Sets a missing HyperSCSI port to one that depends only on the initiator's name.
pub fn stable_port(options: &mut Options) {
    let port = spread(&options.name) as u32;
    options.port.get_or_insert(port);
}

fn spread(name: &str) -> u64 {
    const OFFSET_BASIS: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0100_0000_01b3;
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(PRIME);
    name.bytes().fold(OFFSET_BASIS, step)
}

/// Explains a RESERVATION CONFLICT response to PERSISTENT RESERVE OUT with this key, if the registrations
/// show the cause. Either the key is registered through a different port from this session's, or this I_T
/// nexus is not registered with the key. By SPC-4 5.13.5, all service actions except REGISTER conflict if the
/// nexus is not registered, or is registered with another key.
pub async fn explained(unit: &Unit, key: u64, failure: Failure) -> Failure {
    let elsewhere = unit.registrations_elsewhere().await.unwrap_or_default();
    let Some(registration) = elsewhere
        .iter()
        .find(|registration| registration.key == key)
    else {
        return unregistered(unit, key).await.unwrap_or(failure);
    };
    let group = unit.target().nexus().target_portal_group_tag;
    let group = group.map_or_else(String::new, |tag| format!(" (portal group {tag})"));
    failure.and(format_args!(
        "the key is registered at port {} of the target, but this session uses another one{group}, where it must \
         also be registered",
        registration.relative_port
    ))
}

async fn unregistered(unit: &Unit, key: u64) -> Option<Failure> {
    let nexus = unit.target().nexus();
    let initiator = nexus.initiator.clone();
    let ours = TransportId::Iscsi {
        name: nexus.initiator,
        isid: Some(nexus.isid.0),
    };
    let registrations = unit.registrations().await.ok()?;
    let own = registrations
        .iter()
        .find(|registration| registration.initiator.as_ref() == Some(&ours));
    let why = match own {
        Some(registration) if registration.key == key => return None,
        Some(_) => format!("is registered with a key other than {key:x}"),
        None => "has no registration with the LUN".to_owned(),
    };
    let sentence = format_args!(
        "the target refused PERSISTENT RESERVE OUT: RESERVATION CONFLICT: this initiator ({initiator}) {why}; \
         `linerate scsi registrations` shows the registrations"
    );
    Some(Failure::failed(sentence))
}

/// PERSISTENT RESERVE IN: the registrations, and the holder of the reservation.
///
/// # Errors
/// As [`Unit::registrations`].
pub async fn registrations(unit: &Unit) -> Result<Answer, VerbError> {
    let reservation = unit.reservation().await?;
    let registered = registered(unit).await?;
    let rows: Vec<[String; 3]> = registered.iter().map(row).collect();
    let list = lines([Align::Left; 3], &rows).join("\n");
    let head = match reservation {
        Some(reservation) => format!("reserved: {}, key {:x}", reservation.kind, reservation.key),
        None => "not reserved".to_owned(),
    };
    let none = if registered.is_empty() {
        "no registrations"
    } else {
        ""
    };
    let json = json!({
        "reservation": reservation.map(|held| json!({ "type": held.kind.to_string(), "key": hex_key(held.key) })),
        "registrations": registered.iter().map(to_json).collect::<Value>(),
    });
    Ok(Answer::of_text(format!("{head}\n{none}{list}"), &json))
}

/// Queries the registrations. If the target cannot report the owners of keys, returns only the keys.
pub(crate) async fn registered(unit: &Unit) -> Result<Vec<Registration>, VerbError> {
    match unit.registrations().await {
        Err(error) if error.is_unsupported() => Ok(unit
            .registered_keys()
            .await?
            .keys
            .into_iter()
            .map(of_nobody)
            .collect()),
        registered => registered,
    }
}

fn of_nobody(key: u64) -> Registration {
    Registration {
        key,
        holds: None,
        all_ports: false,
        relative_port: 0,
        initiator: None,
    }
}

fn row(registration: &Registration) -> [String; 3] {
    let initiator = registration
        .initiator
        .as_ref()
        .map_or_else(|| "unknown".to_owned(), ToString::to_string);
    let holds = registration
        .holds
        .map_or_else(String::new, |_| "holds the reservation".to_owned());
    [format!("key {:x}", registration.key), initiator, holds]
}

fn to_json(registration: &Registration) -> Value {
    json!({
        "key": hex_key(registration.key),
        "initiator": registration.initiator.as_ref().map(ToString::to_string),
        "holds": registration.holds.map(|kind| kind.to_string()),
        "all_ports": registration.all_ports,
        "relative_port": registration.relative_port,
    })
}

/// A key as a JSON string, because JSON numbers are not precise enough.
pub(crate) fn hex_key(key: u64) -> String {
    format!("{key:x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn isid_of(initiator: &str) -> Option<Isid> {
        let mut settings = Settings {
            initiator: initiator.to_owned(),
            ..Settings::default()
        };
        stable_isid(&mut settings);
        settings.isid
    }

    #[test]
    fn a_name_has_one_isid_of_the_random_format() {
        let (one, other) = (
            isid_of("iqn.2026-01.com.example:a"),
            isid_of("iqn.2026-01.com.example:b"),
        );
        assert_eq!(one, isid_of("iqn.2026-01.com.example:a"));
        assert_ne!(one, other);
        assert_eq!(one.map(|isid| isid.0[0]), Some(0x80));
    }

    #[test]
    fn an_isid_of_the_callers_own_stays() {
        let own = Some(Isid([0x80, 1, 2, 3, 4, 5]));
        let mut settings = Settings {
            isid: own,
            ..Settings::default()
        };
        stable_isid(&mut settings);
        assert_eq!(settings.isid, own);
    }
}
