//! Cells, and what lists in them make: one cell for each combination.

use std::ops::Range;

use super::error::Mistake;
use super::keys::{Keys, Value, bytes};
use super::{steps, workload};
use crate::plan::{Cell, Role};
use volume::spec::Bytes;

/// Keys of a cell beside those of its workload.
pub(super) const CELL: &[&str] = &["name", "series", "stop", "clients", "role"];

/// Keys of a role; a cell without roles is one itself.
pub(super) const ROLE: &[&str] = &["sessions", "read-ahead", "apart"];

const ROLE_ONLY: &[&str] = &["name", "client"];

/// Keys that may have lists, and what stands for their values in names.
const LISTS: [(&str, &str); 6] = [
    ("block", "{block}"),
    ("depth", "{depth}"),
    ("read", "{read}"),
    ("random", "{random}"),
    ("rate", "{rate}"),
    ("clients", "{clients}"),
];

/// More are a mistake: the largest preset has 69.
pub(super) const CELLS_MAX: usize = 4096;

/// In all cells of a suite: this bounds the memory that a file can ask for.
pub(super) const ROLES_MAX: usize = 16_384;

/// Memory for the requests of a cell.
const MEMORY_MAX: u64 = 4 << 30;

/// A cell and where its name stands.
pub(super) struct Placed {
    pub(super) cell: Cell,
    pub(super) at: Range<usize>,
}

/// The cells that a table makes.
pub(super) fn read(keys: &Keys<'_>) -> Result<Vec<Placed>, Mistake> {
    let mut points = vec![keys.clone()];
    for (key, values) in lists(keys)? {
        if points.len() * values.len() > CELLS_MAX {
            return Err(keys.mistake(format!("the lists of this cell make more than {CELLS_MAX} cells")));
        }
        let with_each =
            points.iter().flat_map(|point| values.iter().map(|value| point.clone().choosing(key, value)));
        points = with_each.collect();
    }
    points.iter().map(cell).collect()
}

/// The lists that a cell has, in the order in which they are written: the first changes slowest.
fn lists<'a>(keys: &Keys<'a>) -> Result<Vec<(&'static str, Vec<&'a Value<'a>>)>, Mistake> {
    let mut lists = Vec::new();
    for (key, _) in LISTS {
        let Some(value) = keys.value(key) else { continue };
        let Some(values) = value.get_ref().as_array() else { continue };
        if values.is_empty() {
            return Err(Mistake::new(value.span(), format!("`{key}`: a list with nothing in it")));
        }
        lists.push((value.span().start, key, values.iter().collect()));
    }
    lists.sort_by_key(|(at, ..)| *at);
    Ok(lists.into_iter().map(|(_, key, values)| (key, values)).collect())
}

fn cell(keys: &Keys<'_>) -> Result<Placed, Mistake> {
    let template = keys.text("name")?;
    let template = keys.required("name", template)?;
    let at = keys.value("name").map_or(0..0, Value::span);
    let name = filled_in(template, keys).and_then(checked).map_err(|why| Mistake::new(at.clone(), why))?;
    let series = match keys.text("series")? {
        Some(series) => filled_in(series, keys).and_then(checked).map_err(|why| keys.mistake(why))?,
        // `read-{block}` is of the series `read`.
        None => match template.split('{').next().map(|start| start.trim_end_matches('-')) {
            Some(start) if start.len() < template.len() && !start.is_empty() => start.to_owned(),
            _ => name.clone(),
        },
    };
    let roles = roles(keys)?;
    let stop = keys.table("stop", "this stop", steps::STOP)?.map(|stop| steps::stop(&stop)).transpose()?;
    Ok(Placed { cell: Cell { stop, ..Cell::new(name, series, roles) }, at })
}

fn roles(keys: &Keys<'_>) -> Result<Vec<Role>, Mistake> {
    let known = [workload::WORKLOAD, ROLE, ROLE_ONLY];
    let tables = keys.tables("role", "this role", &known)?;
    let clients = keys.number("clients", 1..=256)?;
    let roles = match (tables.as_slice(), clients) {
        ([], clients) => {
            let alike = |client| role(keys, client, format!("client {}", client + 1));
            (0..clients.unwrap_or(1) as u16).map(alike).collect::<Result<Vec<_>, _>>()?
        }
        (tables, None) => {
            tables.iter().map(|table| named_role(table, keys)).collect::<Result<Vec<_>, _>>()?
        }
        (_, Some(_)) => {
            return Err(keys.mistake("a cell with roles has no `clients`: each role names its own"));
        }
    };
    if let Some(twice) =
        roles.iter().enumerate().find(|(at, role)| roles[..*at].iter().any(|r| r.name == role.name))
    {
        return Err(keys.mistake(format!("two roles of this cell are called `{}`", twice.1.name)));
    }
    let memory = roles.iter().map(memory).fold(0u64, u64::saturating_add);
    match memory {
        0..=MEMORY_MAX => Ok(roles),
        _ => {
            Err(keys
                .mistake("the requests of this cell that are under way at once have more than 4 GiB of data"))
        }
    }
}

fn memory(role: &Role) -> u64 {
    let of_session = u64::from(role.workload.depth) * u64::from(role.workload.block_bytes_max());
    of_session.saturating_mul(u64::from(role.sessions))
}

fn named_role(table: &Keys<'_>, cell: &Keys<'_>) -> Result<Role, Mistake> {
    let name = table.text("name")?;
    let name = checked(table.required("name", name)?.to_owned()).map_err(|why| table.mistake(why))?;
    let client = table.number("client", 0..=255)?.unwrap_or(0);
    role(&table.clone().within(cell), client as u16, name)
}

fn role(keys: &Keys<'_>, client: u16, name: String) -> Result<Role, Mistake> {
    Ok(Role {
        name,
        client,
        sessions: keys.number("sessions", 1..=1024)?.unwrap_or(1) as u16,
        read_ahead_bytes: keys.bytes("read-ahead", 4096..=64 << 20)?.map(|bytes| bytes as u32),
        apart: keys.flag("apart")?.unwrap_or(false),
        workload: workload::read(keys)?,
    })
}

/// A name with the values of this cell where they belong.
fn filled_in(template: &str, keys: &Keys<'_>) -> Result<String, String> {
    let mut name = template.to_owned();
    for (key, place) in LISTS {
        if name.contains(place) {
            let value =
                keys.value(key).ok_or_else(|| format!("{place} is in a name, and there is no `{key}`"))?;
            name = name.replace(place, &shown(key, value)?);
        }
    }
    match name.contains(['{', '}']) {
        true => Err(format!("`{template}` has a place in braces for something that is not a list's key")),
        false => Ok(name),
    }
}

fn shown(key: &str, value: &Value<'_>) -> Result<String, String> {
    match (key, value.get_ref()) {
        ("block", value) => bytes(super::keys::text(value)?).map(|bytes| Bytes(bytes).to_string()),
        (_, toml::de::DeValue::Integer(integer)) => Ok(integer.as_str().to_owned()),
        (_, toml::de::DeValue::Float(float)) => Ok(float.as_str().to_owned()),
        (_, value) => Err(format!("`{key}`: write a number, not a value of type {}", value.type_str())),
    }
}

/// A name as it may stand in tables, files and on terminals.
fn checked(name: String) -> Result<String, String> {
    let good = !name.is_empty()
        && name.chars().count() <= 100
        && name.trim() == name
        && !name.chars().any(char::is_control);
    if good {
        Ok(name)
    } else {
        Err("a name has 1 to 100 letters, no line ends, and no blanks at its ends".to_owned())
    }
}
