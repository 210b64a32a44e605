//! INQUIRY: the standard data and the pages of vital product data.

use initiator::Unit;
use initiator::verbs::{Inquiry, device_type, standard_name};
use serde_json::json;

use super::answer::Answer;
use super::unit::AskArguments;
use crate::failure::{Failure, Kind};
use crate::page;
use stats::table::pairs;

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
    #[arg(value_name = "PAGE", value_parser = page::code)]
    page: Option<u8>,
    /// Print its bytes too
    #[arg(long)]
    hex: bool,
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
    let named = |number: &u16| standard_name(*number).map_or(format!("{number:04x}"), str::to_owned);
    let names: Vec<String> = data.standards.iter().map(named).collect();
    let yes = |is: bool| if is { "yes" } else { "no" }.to_owned();
    let rows = [
        ("device type", device_type(data.device_type).to_owned()),
        ("vendor", data.vendor.clone()),
        ("product", data.product.clone()),
        ("revision", data.revision.clone()),
        ("standard", data.version_name().to_owned()),
        ("also", names.join(", ")),
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
        let bytes = if asked.hex { format!("\n{}", page::dump(&page.bytes)) } else { String::new() };
        Ok(Answer::new(format!("{}{bytes}", page::text(&page)), page::to_json(&page)))
    })
}
