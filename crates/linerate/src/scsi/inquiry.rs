//! INQUIRY: the standard data and the pages of vital product data.

use initiator::Unit;
use initiator::verbs::{Inquiry, Vpd, VpdContent, device_type, page_name};
use serde_json::{Value, json};

use super::answer::{Answer, dump, fields, fields_text, hex, words};
use super::unit::AskArguments;
use crate::failure::{Failure, Kind};
use crate::table::pairs;

#[derive(Debug, clap::Args)]
pub(super) struct InquiryArguments {
    #[command(flatten)]
    ask: AskArguments,
}

#[derive(Debug, clap::Args)]
pub(super) struct VpdArguments {
    #[command(flatten)]
    ask: AskArguments,
    /// The page by its hexadecimal number, such as 83; the list of them if not given
    #[arg(value_name = "PAGE", value_parser = page)]
    page: Option<u8>,
    /// Print its bytes too
    #[arg(long)]
    hex: bool,
}

/// `83`, `0x83` or `83h`, as people and standards write it.
pub(crate) fn page(text: &str) -> Result<u8, String> {
    let digits = text.strip_prefix("0x").or_else(|| text.strip_suffix('h')).unwrap_or(text);
    u8::from_str_radix(digits, 16)
        .map_err(|_| format!("{text:?} is no page; write two hexadecimal digits such as b0"))
}

pub(super) fn inquiry(asked: &InquiryArguments) -> Result<(), Failure> {
    let looked = async |unit: &Unit| Ok(unit.inquiry().await?);
    let data = asked.ask.unit.with(looked)?;
    if !data.is_there() {
        return Err(Failure::new(Kind::NotFound, "the target has nothing at this LUN"));
    }
    standard(&data).say(asked.ask.json)
}

fn standard(data: &Inquiry) -> Answer {
    let standards: Vec<String> = data.standards.iter().map(|number| format!("{number:04x}")).collect();
    let yes = |is: bool| if is { "yes" } else { "no" }.to_owned();
    let rows = [
        ("device type", device_type(data.device_type).to_owned()),
        ("vendor", data.vendor.clone()),
        ("product", data.product.clone()),
        ("revision", data.revision.clone()),
        ("standard", data.version_name().to_owned()),
        ("also", standards.join(" ")),
        ("removable", yes(data.removable)),
        ("command queue", yes(data.command_queuing)),
        ("ALUA", alua(data.target_port_groups).to_owned()),
        ("XCOPY", yes(data.third_party_copy)),
        ("protection", yes(data.protection)),
    ];
    let json = json!({
        "device_type": device_type(data.device_type),
        "vendor": data.vendor,
        "product": data.product,
        "revision": data.revision,
        "version": data.version_name(),
        "version_descriptors": standards,
        "removable": data.removable,
        "command_queuing": data.command_queuing,
        "alua": alua(data.target_port_groups),
        "third_party_copy": data.third_party_copy,
        "protection": data.protection,
    });
    Answer::new(pairs("", rows.into_iter().filter(|(_, value)| !value.is_empty())), json)
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

pub(super) fn vpd(asked: &VpdArguments) -> Result<(), Failure> {
    asked.ask.ask(async |unit| {
        let page = unit.vpd(asked.page.unwrap_or(0)).await?;
        let bytes = if asked.hex { format!("\n{}", dump(&page.bytes)) } else { String::new() };
        Ok(Answer::new(format!("{}{bytes}", text(&page)), json(&page)))
    })
}

/// Numbers in columns; everything else has words of its own.
pub(crate) fn text(page: &Vpd) -> String {
    let VpdContent::Fields(all) = &page.content else { return format!("{page}\n") };
    format!("{} ({:02x}h)\n{}", page_name(page.code), page.code, fields_text(all))
}

/// A page, by what kind of thing is in it.
pub(crate) fn json(page: &Vpd) -> Value {
    let (kind, content) = match &page.content {
        VpdContent::Pages(pages) => {
            ("pages", pages.iter().map(|code| json!(format!("{code:02x}"))).collect())
        }
        VpdContent::SerialNumber(serial) => ("serial_number", json!(serial)),
        VpdContent::Designators(designators) => ("designators", words(designators)),
        VpdContent::ModePagePolicies(policies) => ("policies", words(policies)),
        VpdContent::Ports(ports) => {
            let port = |port: &initiator::verbs::Port| {
                json!({
                    "relative_port": port.relative,
                    "initiator": port.initiator.as_ref().map(ToString::to_string),
                    "designators": words(&port.designators),
                })
            };
            ("ports", ports.iter().map(port).collect())
        }
        VpdContent::Fields(all) => ("fields", fields(all)),
        VpdContent::Bytes(_) => ("unknown", Value::Null),
    };
    json!({
        "page": format!("{:02x}", page.code),
        "name": page_name(page.code),
        kind: content,
        "bytes": hex(&page.bytes),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_written_as_people_and_standards_do() {
        assert_eq!(["83", "0x83", "83h", "B0"].map(page), [Ok(0x83), Ok(0x83), Ok(0x83), Ok(0xb0)]);
        assert!(page("131").is_err() && page("block").is_err() && page("").is_err());
    }
}
