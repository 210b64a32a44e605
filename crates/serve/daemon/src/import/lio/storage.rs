//! A storage object as a volume.

use ::volume::spec::Bytes;

use super::super::Note;
use super::super::json::Object;
use super::super::san::{self, Volume};
use super::attributes::{STORAGE_ATTRIBUTES, unusual};

/// The volume of a storage object without its name, or why there is none.
pub(super) fn volume(plugin: &str, object: &Object<'_>, notes: &mut Vec<Note>) -> Result<Volume, String> {
    let attributes = object.object("attributes");
    let attribute = |key: &str| attributes.as_ref().and_then(|attributes| attributes.scalar(key));
    let block: u64 = match attribute("block_size").as_deref().unwrap_or("512") {
        "512" => 512,
        "4096" => 4096,
        other => return Err(format!("there are no blocks of {other} bytes here")),
    };
    let is_set = |key: &str| attribute(key).is_some_and(|value| value != "0");
    let thick = !is_set("emulate_tpu") && !is_set("emulate_tpws");
    let device = object.scalar("dev").unwrap_or_default();
    let bytes = object.number("size").map(|size| Bytes(size - size % block)).filter(|size| size.0 > 0);
    let mut options = Vec::new();
    if block != 512 {
        options.push(format!("block={block}"));
    }
    let spec = match (plugin, bytes) {
        ("fileio", bytes) => {
            let size = bytes.filter(|_| !device.starts_with("/dev/")).map(|size| format!("size={size}"));
            let options: Vec<String> = size.into_iter().chain(options).collect();
            san::file_spec(&device, &options).ok_or("`dev` is no path of a file")?
        }
        ("block", _) => {
            options.push("direct".to_owned());
            san::file_spec(&device, &options).ok_or("`dev` is no path of a block device")?
        }
        ("ramdisk", Some(size)) => {
            let kind = if object.flag("nullio") == Some(true) { "null" } else { "ram" };
            let query = options.first().map(|block| format!("?{block}")).unwrap_or_default();
            format!("{kind}:{size}{query}")
        }
        ("ramdisk", None) => return Err("its size is no number of blocks".to_owned()),
        _ => return Err(format!("there is no equal of `{plugin}` here")),
    };
    if backends::parse(&spec).is_err() {
        return Err("its size is no size of a volume".to_owned());
    }
    if object.flag("write_back") == Some(false) && plugin == "fileio" {
        notes.push(Note::new(
            &object.place_of("write_back"),
            "`write_back` is not carried over: initiators are told of a write cache, and flush it",
        ));
    }
    // What LIO reads and writes with says nothing of the volume.
    let _ = object.scalar("aio");
    for group in object
        .objects("alua_tpgs")
        .iter()
        .filter(|group| group.scalar("name").as_deref() != Some("default_tg_pt_gp"))
    {
        notes.push(Note::new(
            &group.place(),
            "an ALUA group is not carried over: there is one, which is active and optimized",
        ));
    }
    if let Some(attributes) = &attributes {
        notes.extend(unusual(attributes, STORAGE_ATTRIBUTES));
    }
    Ok(Volume { spec, thick, readonly: object.flag("readonly") == Some(true), ..Volume::default() })
}

/// The names that the kernel gives it (`target_core_spc.c`): all are made of the unit serial number, `wwn`, and the model, which
/// is the name of the storage object if `emulate_model_alias` is set, as targetcli sets it.
pub(super) fn identify(volume: &mut Volume, plugin: &str, name: &str, wwn: &str, object: &Object<'_>) {
    let (place, named) = (object.place_of("wwn"), object.place_of("name"));
    let is_alias = object.object("attributes").and_then(|attributes| attributes.flag("emulate_model_alias"));
    let (model, revision) = match plugin {
        "fileio" => ("FILEIO", "4.0"),
        "block" => ("IBLOCK", "4.0"),
        _ => ("RAMDISK-MCP", "v4.0"),
    };
    let model: String =
        if is_alias == Some(true) { name.chars().take(16).collect() } else { model.to_owned() };
    volume.give("serial", wwn.to_owned(), "wwn", &place);
    volume.give("naa", naa(wwn), "wwn", &place);
    volume.give("t10-id", format!("LIO-ORG {model}:{wwn}"), "wwn", &place);
    volume.give("vendor", "LIO-ORG".to_owned(), "vendor", &place);
    volume.give("product", model, "name", &named);
    volume.give("revision", revision.to_owned(), "revision", &place);
}

/// NAA IEEE Registered Extended: LIO's company identifier, 001405h, and the first 25 hexadecimal digits of the unit serial
/// number, with zeroes if it has fewer.
fn naa(wwn: &str) -> String {
    let digits: String = wwn.chars().filter(char::is_ascii_hexdigit).take(25).collect();
    format!("0x6001405{:0<25}", digits.to_ascii_lowercase())
}
