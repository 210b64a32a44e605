//! ACCESS SPECIFICATIONS: what is asked of the disks.

use super::lines::{IcfError, Line, Lines};
use super::setup::unknown;
use crate::plan::{Access, Align, Percent};

/// An access specification.
#[derive(Clone, Debug, PartialEq)]
pub struct AccessSpec {
    /// Its name.
    pub name: String,
    /// Whether disk workers have it that are not told otherwise.
    pub by_default: bool,
    /// Its lines; their shares make 100 %.
    pub lines: Vec<Access>,
}

/// Iometer's own limits on a specification are 100 lines and a name of 80 letters.
const LINES_MAX: usize = 100;
const SPECS_MAX: usize = 4096;
const NAME_LETTERS_MAX: usize = 100;

/// The longest request: 64 MiB is four times what any initiator here sends as one command.
const BYTES_MAX: u64 = 64 << 20;

/// Disks of Iometer's time had sectors of this length.
pub(super) const SECTOR_BYTES: u64 = 512;

pub(super) fn read(lines: &mut Lines<'_>, notes: &mut Vec<String>) -> Result<Vec<AccessSpec>, IcfError> {
    let mut specs: Vec<AccessSpec> = Vec::new();
    loop {
        let key = lines.expect("an access specification, or 'END access specifications,")?;
        if key.is_key("END access specifications") {
            return Ok(specs);
        }
        if !key.is_key_like("Access specification name") {
            return Err(unknown(key, "ACCESS SPECIFICATIONS"));
        }
        let heading = lines.value();
        let (name, by_default) = named(heading)?;
        let lines = access_lines(lines, heading, notes)?;
        // As in Iometer, a specification stands for an earlier one of its name.
        specs.retain(|spec| spec.name != name);
        specs.push(AccessSpec { name, by_default, lines });
        if specs.len() > SPECS_MAX {
            return Err(heading.error(format!("more than {SPECS_MAX} access specifications")));
        }
    }
}

/// The name, which may have commas, and to whom it is assigned by default.
fn named(heading: Line<'_>) -> Result<(String, bool), IcfError> {
    let wrong = || heading.error("expected a name, a comma, and NONE, ALL, DISK or NET");
    let (name, assignment) = heading.text.rsplit_once(',').ok_or_else(wrong)?;
    let by_default = match assignment.trim().to_ascii_uppercase().as_str() {
        "NONE" | "0" | "NET" | "3" => false,
        "ALL" | "1" | "DISK" | "2" => true,
        _ => return Err(wrong()),
    };
    Ok((checked_name(heading, name.trim())?, by_default))
}

/// A name as it may stand in tables and on terminals.
pub(super) fn checked_name(line: Line<'_>, name: &str) -> Result<String, IcfError> {
    let good =
        !name.is_empty() && name.chars().count() <= NAME_LETTERS_MAX && !name.chars().any(char::is_control);
    match good {
        true => Ok(name.to_owned()),
        false => Err(line.error(format!("expected a name of 1 to {NAME_LETTERS_MAX} printable letters"))),
    }
}

fn access_lines(
    lines: &mut Lines<'_>,
    heading: Line<'_>,
    notes: &mut Vec<String>,
) -> Result<Vec<Access>, IcfError> {
    if lines.peek().is_some_and(|line| line.is_key_like("size")) {
        lines.next();
    }
    let mut accesses = Vec::new();
    while let Some(line) = lines.peek().filter(|line| line.key().is_none()) {
        lines.next();
        accesses.push(access(line, notes)?);
        if accesses.len() > LINES_MAX {
            return Err(line.error(format!("an access specification has at most {LINES_MAX} lines")));
        }
    }
    let sum: u32 = accesses.iter().map(|access| u32::from(access.share.get())).sum();
    match (accesses.len(), sum) {
        (0, _) => Err(heading.error("this access specification has no lines")),
        (_, 100) => Ok(accesses),
        _ => Err(heading
            .error(format!("the shares (% of size) of this access specification make {sum} %, not 100 %"))),
    }
}

fn access(line: Line<'_>, notes: &mut Vec<String>) -> Result<Access, IcfError> {
    let numbers: Vec<Line<'_>> = line.words().collect();
    let [size, share, read, random, delay, burst, align, reply] = numbers.as_slice() else {
        let found = numbers.len();
        return Err(line.error(format!(
            "expected 8 numbers (size, % of size, % reads, % random, delay, burst, align, reply), found {found}"
        )));
    };
    let block_bytes = size.whole("the size", SECTOR_BYTES..=BYTES_MAX)?;
    if !block_bytes.is_multiple_of(SECTOR_BYTES) {
        return Err(size.error(format!(
            "the size: expected whole sectors of {SECTOR_BYTES} bytes, found {block_bytes}"
        )));
    }
    let align = match align.whole("the alignment", 0..=BYTES_MAX)? {
        0 => Align::Block,
        bytes if bytes.is_multiple_of(SECTOR_BYTES) => Align::Bytes(bytes as u32),
        bytes => {
            return Err(align.error(format!(
                "the alignment: expected whole sectors of {SECTOR_BYTES} bytes, found {bytes}"
            )));
        }
    };
    if reply.whole("the reply", 0..=u64::from(u32::MAX))? > 0 {
        let note = "Replies are for network workers, and are left out.".to_owned();
        if !notes.contains(&note) {
            notes.push(note);
        }
    }
    Ok(Access {
        // Within the ranges above and below.
        block_bytes: block_bytes as u32,
        share: percent(share, "% of size")?,
        read: percent(read, "% reads")?,
        random: percent(random, "% random")?,
        align,
        burst: burst.whole("the burst", 1..=1_000_000)? as u32,
        delay_ms: delay.whole("the delay", 0..=3_600_000)? as u32,
    })
}

fn percent(word: &Line<'_>, what: &str) -> Result<Percent, IcfError> {
    let percent = word.whole(what, 0..=100)?;
    // The range ends at 100.
    Ok(u8::try_from(percent).ok().and_then(Percent::new).unwrap_or(Percent::ALL))
}
