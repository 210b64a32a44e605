//! SCSI commands that ask, with their answers.

use block::Extent;
use iscsi_client::Unit;
use iscsi_client::verbs::{
    Capacity, Inquiry, LbaStatus, LunAddress, LunSelection, ModePage, ModeValues, Modes, PortGroup,
    VerbError, device_type, standard_name,
};
use serde_json::{Value, json};

use backends::{Failure, FailureKind};
use stats::figures::grouped;
use stats::table::{Align, lines, pairs};
use volume::spec::Bytes;

use crate::Answer;
use crate::pages::{self, dump, fields, fields_text, hex};

/// INQUIRY, its standard data.
///
/// # Errors
/// Also if there is no such LUN.
pub async fn inquiry(unit: &Unit) -> Result<Answer, Failure> {
    let data = unit.inquiry().await?;
    if !data.is_there() {
        return Err(Failure::new(FailureKind::NotFound, "the target has no such LUN"));
    }
    Ok(standard(&data))
}

fn standard(data: &Inquiry) -> Answer {
    let standards: Vec<String> = data.standards.iter().map(|number| format!("{number:04x}")).collect();
    let named = |number: &u16| standard_name(*number).map_or(format!("{number:04x}"), str::to_owned);
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
    Answer::of_text(pairs("", rows.into_iter().filter(|(_, value)| !value.is_empty())), &json)
}

fn yes(is: bool) -> &'static str {
    if is { "yes" } else { "no" }
}

/// TPGS (SPC-4 table 144).
fn alua(target_port_groups: u8) -> &'static str {
    match target_port_groups {
        1 => "implicit",
        2 => "explicit",
        3 => "implicit and explicit",
        _ => "no",
    }
}

/// INQUIRY, a page of vital product data, with `bytes` as bytes too.
///
/// # Errors
/// As [`Unit::vpd`], or there is no such LUN.
pub async fn vpd(unit: &Unit, page: u8, bytes: bool) -> Result<Answer, Failure> {
    let page = match unit.vpd(page).await {
        Ok(page) => page,
        // INQUIRY is answered for a LUN that is not there too, and refuses its pages as those that are not supported.
        Err(refused) => return Err(inquiry(unit).await.err().unwrap_or(refused.into())),
    };
    let bytes = if bytes { format!("\n{}", dump(&page.bytes)) } else { String::new() };
    Ok(Answer::of_text(pages::text(&page) + &bytes, &pages::to_json(&page)))
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

/// Takes what waits for every new session, such as that there was a reset before its time: it would be told in place of
/// the next command's answer. Whether the unit is ready does not matter.
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
    let writing = if modes.write_protected { "write-protected" } else { "writable" };
    let fua = if modes.force_unit_access { "FUA obeyed" } else { "FUA not obeyed" };
    let pages: String = modes.pages.iter().map(page_text).collect();
    Ok(Answer::of_text(format!("{writing}, {fua}\n{pages}"), &modes_to_json(&modes)))
}

fn page_text(page: &ModePage) -> String {
    let fields = page.fields();
    let subpage = if page.subpage == 0 { String::new() } else { format!("/{:02x}h", page.subpage) };
    let content = if fields.is_empty() { dump(&page.bytes) } else { fields_text(&fields) };
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
    let Capacity { blocks, block_bytes, physical_exponent, lowest_aligned, protection_type, .. } = capacity;
    let bytes = capacity.bytes();
    let physical = u64::from(block_bytes) << physical_exponent;
    let rows = [
        ("capacity", Bytes(bytes).to_string()),
        ("blocks", format!("{} of {block_bytes} bytes", grouped(blocks))),
        ("physical blocks", format!("of {physical} bytes, the first at block {lowest_aligned}")),
        ("protection", protection_type.map_or_else(|| "no".to_owned(), |kind| format!("type {kind}"))),
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

/// More lines than anybody reads; a map of a disk in small pieces goes on for very long.
const RUNS_MOST: usize = 65_536;

/// GET LBA STATUS: of so many blocks, or of all that follow.
///
/// # Errors
/// As [`Unit::lba_status`].
pub async fn lba_status(unit: &Unit, lba: u64, blocks: Option<u64>) -> Result<Answer, VerbError> {
    let rest = unit.read_capacity().await?.blocks.saturating_sub(lba);
    let runs = unit.lba_status(Extent::new(lba, blocks.unwrap_or(rest)), RUNS_MOST).await?;
    let runs = runs.iter().map(|run| (run.extent.lba.0, run.extent.blocks.0, status_name(run.status)));
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
    Ok(Answer::of_text(text.join("\n"), &json!({ "port_groups": json.collect::<Value>() })))
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
            let action = command.service_action.map_or_else(String::new, |action| format!("/{action:02x}"));
            let (name, cdb_bytes) = (command.to_string(), command.cdb_bytes);
            let json = json!({
                "operation_code": command.opcode,
                "service_action": command.service_action,
                "name": name,
                "cdb_bytes": cdb_bytes,
            });
            ([format!("{:02x}{action}", command.opcode), cdb_bytes.to_string(), name], json)
        })
        .unzip();
    Ok(Answer::of_text(
        lines([Align::Left, Align::Right, Align::Left], &rows).join("\n"),
        &json!({ "commands": json }),
    ))
}
