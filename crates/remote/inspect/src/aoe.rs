//! AoE devices: discovers them on an Ethernet, and describes a single device.

use std::fmt::Write as _;

use backends::Failure;
use backends::aoe::Url;
use readable::figures::grouped;
use serde::Serialize;
use volume::spec::Bytes;

use crate::pages::Answer;

#[derive(Serialize)]
struct Devices<'a> {
    interface: &'a str,
    devices: Vec<Device>,
}

#[derive(Serialize)]
struct Device {
    address: String,
    url: String,
    station: String,
    buffer_count: u16,
    sectors_max: u8,
    /// The configuration string; invalid UTF-8 is replaced.
    configuration: String,
}

#[derive(Serialize)]
struct DeviceInfo {
    url: String,
    model: String,
    serial: String,
    firmware: String,
    bytes: u64,
    physical_block: u64,
    /// Maximum number of sectors per frame.
    sectors: u8,
    features: Vec<&'static str>,
    rotational: bool,
}

/// Discovers the devices that respond on an interface.
///
/// # Errors
/// The interface cannot be used.
pub async fn discover(interface: &str) -> Result<(Answer, Result<(), Failure>), Failure> {
    let device = |found: &backends::aoe::Found| Device {
        address: found.address.to_string(),
        url: format!("aoe://{interface}/{}", found.address),
        station: found.station.to_string(),
        buffer_count: found.buffer_count,
        sectors_max: found.sectors_max,
        configuration: String::from_utf8_lossy(&found.string).into_owned(),
    };
    let devices: Vec<Device> = backends::aoe::discover(interface)
        .await?
        .iter()
        .map(device)
        .collect();
    let nothing = format!("no AoE device responds on {interface}");
    let looked = crate::unless_empty(&devices, nothing);
    let mut text = match devices.is_empty() {
        true => String::new(),
        false => format!("aoe://{interface}\n"),
    };
    let found = Devices { interface, devices };
    for device in &found.devices {
        let Device {
            address,
            url,
            station,
            buffer_count,
            sectors_max,
            configuration,
        } = device;
        let _ = write!(
            text,
            "  {address:<9} {url}  {station}, {buffer_count} buffers, {sectors_max} sectors a frame"
        );
        // The server chooses this text, so its control characters must not reach the terminal.
        let quoted = if configuration.is_empty() {
            String::new()
        } else {
            format!(", {configuration:?}")
        };
        let _ = writeln!(text, "{quoted}");
    }
    Ok((Answer::new(text, &found), looked))
}

/// Opens the device at `aoe://INTERFACE/SHELF.SLOT`, and describes it.
///
/// # Errors
/// The URL is wrong, or the device could not be opened.
pub async fn info(url: &str) -> Result<Answer, Failure> {
    let url = Url::parse(url).map_err(Failure::refused)?;
    let device = backends::aoe::open(&url).await?;
    let identity = device.identity();
    let bytes = identity.sectors.saturating_mul(512);
    let features = [
        (identity.is_extended, "lba48"),
        (identity.has_flush || identity.has_flush_ext, "flush"),
        (identity.has_write_cache(), "write-cache"),
        (identity.trims, "trim"),
    ];
    let info = DeviceInfo {
        url: url.to_string(),
        model: identity.model.clone(),
        serial: identity.serial.clone(),
        firmware: identity.firmware.clone(),
        bytes,
        physical_block: 512 << identity.physical_exponent,
        sectors: device.sectors(),
        features: features
            .iter()
            .filter(|(has, _)| *has)
            .map(|(_, name)| *name)
            .collect(),
        rotational: !identity.is_solid_state,
    };
    let mut text = format!("{}\n", info.url);
    let medium = if info.rotational {
        "rotational"
    } else {
        "not rotational"
    };
    let lines = [
        (
            "model",
            format!(
                "{}, serial {}, firmware {}",
                info.model, info.serial, info.firmware
            ),
        ),
        (
            "size",
            format!("{} ({} bytes), {medium}", Bytes(bytes), grouped(bytes)),
        ),
        (
            "blocks",
            format!("512 bytes, physical {}", info.physical_block),
        ),
        ("frames", format!("{} sectors", info.sectors)),
        ("features", info.features.join(" ")),
    ];
    lines
        .iter()
        .for_each(|(name, value)| text += &format!("  {name:<12} {value}\n"));
    Ok(Answer::of_text(text, &info))
}
