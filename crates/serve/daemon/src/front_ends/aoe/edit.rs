//! Slots that are written into, and taken out of, the text of a configuration file.

use aoe::Address;
use toml_edit::{Item, Table, TableLike};

use crate::config::{Addition, Tables, VolumeName, fill, not_editable, text_of, vacate};

/// A slot more: at the address that the addition names as its target, or the first that is free in shelf 0.
pub(super) fn add(root: &mut Table, addition: &Addition<'_>) -> Result<(), String> {
    if addition.lun.is_some() || !addition.initiators.is_empty() {
        return Err("an AoE slot has neither a LUN nor initiators".to_owned());
    }
    let aoe = section(root).ok_or("the file has no [aoe]; add one with listen = [\"eth0\"]")?;
    let mut slots = Tables::under(aoe, "slot")?;
    let mut is_taken = |address: &Address| slots.any(|slot| address_of(slot) == Some(*address));
    let address: Address = match addition.target {
        Some(text) => text.parse().map_err(|error| format!("`{text}`: {error}"))?,
        None => {
            let mut all = (0..u8::MAX).map(|minor| Address { major: 0, minor });
            all.find(|address| !is_taken(address))
                .ok_or("shelf 0 has no free slot; name one as the target")?
        }
    };
    let known = slots.tables().into_iter().find(|slot| address_of(&**slot) == Some(address));
    if let Some(known) = known {
        return match text_of(&*known, "volume") {
            Some("") => {
                fill(known, addition.volume);
                Ok(())
            }
            _ => Err(format!("there is a slot {address} already")),
        };
    }
    slots.push(vec![("address", address.to_string().into()), ("volume", addition.volume.as_str().into())]);
    Ok(())
}

/// Without the slots of this volume. One that says who may use it stays, without a volume: the next one is for the same stations.
pub(super) fn remove(root: &mut Table, volume: &VolumeName) -> Result<(), String> {
    let Some(aoe) = section(root).filter(|aoe| aoe.contains_key("slot")) else { return Ok(()) };
    let mut slots = Tables::under(aoe, "slot")?;
    slots.retain(|slot| {
        text_of(&*slot, "volume") != Some(volume.as_str()) || vacate(slot, &["address", "volume"])
    });
    match slots.any(|_| true) {
        true => Ok(()),
        false => aoe.remove("slot").map(drop).ok_or_else(not_editable),
    }
}

/// The address as a number: `07.1` is 7.1.
fn address_of(slot: &dyn TableLike) -> Option<Address> {
    text_of(slot, "address")?.parse().ok()
}

fn section(root: &mut Table) -> Option<&mut dyn TableLike> {
    root.get_mut("aoe").and_then(Item::as_table_like_mut)
}
