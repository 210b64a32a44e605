//! Which requests a job makes: the lines of its mix.

use super::job::Reader;
use super::values::number;
use super::{Mistake, values};
use crate::plan::{Access, Align, Percent};

/// The requests of a job.
#[derive(Debug)]
pub(super) struct Requests {
    pub(super) accesses: Vec<Access>,
    /// Reads of 100.
    pub(super) reads: u8,
    /// Whether `rw` is one of the random patterns.
    pub(super) is_random: bool,
}

/// What is asked in one direction.
#[derive(Clone, Debug, PartialEq)]
struct Direction {
    /// Lengths, with their shares of 100. None is 0.
    sizes: Vec<(u32, u8)>,
    align: Align,
    random: Percent,
}

/// As suites have it.
const BLOCK_BYTES_MAX: u64 = 64 << 20;

/// fio's `bs`.
const BS: u32 = 4096;

const READS: usize = 0;
const WRITES: usize = 1;

pub(super) fn requests(reader: &mut Reader<'_, '_>) -> Result<Requests, Mistake> {
    let (reads, is_random) = reader.read("rw", pattern)?.unwrap_or((Some(100), false));
    let reads = match reads {
        Some(reads) => reads,
        None => mix(reader)?,
    };
    let both = [direction(reader, READS, is_random)?, direction(reader, WRITES, is_random)?];
    if (1..100).contains(&reads) && !is_random {
        reader.note(
            "fio continues sequential reads and sequential writes each from the last of their kind; here a request follows \
             the one before it, whatever that was.",
        );
    }
    let accesses = match (reads, &both) {
        (100, [only, _]) | (0, [_, only]) => lines(only, reads, &shares(only, 1)),
        (reads, [one, other]) if one == other => lines(one, reads, &shares(one, 1)),
        (reads, [of_reads, of_writes]) => {
            let mut hundredths = shares(of_reads, u32::from(reads));
            hundredths.extend(shares(of_writes, 100 - u32::from(reads)));
            if hundredths.iter().any(|share| !share.is_multiple_of(100)) {
                reader.note(
                    "The shares of lengths that reads and writes have of their own are rounded to whole percent of all \
                     requests.",
                );
            }
            let whole = rounded(&hundredths);
            let (first, last) = whole.split_at(of_reads.sizes.len());
            [lines(of_reads, 100, first), lines(of_writes, 0, last)].concat()
        }
    };
    Ok(Requests { accesses, reads, is_random })
}

/// The share of reads, if the pattern says it, and whether requests go to random places.
fn pattern(text: &str) -> Result<(Option<u8>, bool), String> {
    if let Some((pattern, _)) = text.split_once(':') {
        return Err(format!(
            "what stands behind `{pattern}:` changes where requests go, and there is nothing like it here"
        ));
    }
    match text {
        "read" => Ok((Some(100), false)),
        "write" => Ok((Some(0), false)),
        "rw" | "readwrite" => Ok((None, false)),
        "randread" => Ok((Some(100), true)),
        "randwrite" => Ok((Some(0), true)),
        "randrw" => Ok((None, true)),
        "trim" | "randtrim" | "trimwrite" | "randtrimwrite" => {
            Err(format!("no workload unmaps here, as `{text}` does"))
        }
        _ => Err(format!("`{text}` is unknown; write read, write, rw, randread, randwrite or randrw")),
    }
}

/// The later one of `rwmixread` and `rwmixwrite`.
fn mix(reader: &Reader<'_, '_>) -> Result<u8, Mistake> {
    let share = |name: &str| {
        let base = reader.base(name);
        reader.read(name, |text| number(text, base, 0..=100).map(|share| share as u8))
    };
    let [reads, writes] = [share("rwmixread")?, share("rwmixwrite")?];
    let line = |name| reader.written(name).map(|written| written.line);
    Ok(match (reads, writes) {
        (Some(reads), None) => reads,
        (Some(reads), Some(_)) if line("rwmixread") > line("rwmixwrite") => reads,
        (_, Some(writes)) => 100 - writes,
        (None, None) => 50,
    })
}

fn direction(reader: &mut Reader<'_, '_>, which: usize, is_random: bool) -> Result<Direction, Mistake> {
    let sizes = match sizes_of(reader, "bssplit", which, split)? {
        Some(sizes) => sizes,
        None => match sizes_of(reader, "bsrange", which, range)? {
            Some(sizes) => sizes,
            None => sizes_of(reader, "bs", which, one_length)?.unwrap_or_else(|| vec![(BS, 100)]),
        },
    };
    let least = sizes.iter().map(|(bytes, _)| *bytes).min().unwrap_or(BS);
    let align = sizes_of(reader, "ba", which, one_length)?.map(|sizes| sizes[0].0).filter(|_| is_random);
    let align = match (align, sizes.len()) {
        (Some(bytes), _) => Align::Bytes(bytes),
        (None, 1) => Align::Natural,
        // fio aligns all to the shortest.
        (None, _) => Align::Bytes(least),
    };
    let random = match is_random {
        false => Percent::NONE,
        true => share_of(reader, "percentage_random", which)?.unwrap_or(Percent::ALL),
    };
    Ok(Direction { sizes, align, random })
}

/// What an option says of lengths in one direction.
fn sizes_of(
    reader: &mut Reader<'_, '_>,
    name: &'static str,
    which: usize,
    read: impl Fn(&str, values::KbBase) -> Result<Vec<(u32, u8)>, String>,
) -> Result<Option<Vec<(u32, u8)>>, Mistake> {
    reader.note_opposite(name);
    reader.read_directed(name, which, read)
}

fn share_of(reader: &Reader<'_, '_>, name: &'static str, which: usize) -> Result<Option<Percent>, Mistake> {
    let share = |text: &str, base| number(text, base, 0..=100).map(|share| Percent::new(share as u8));
    Ok(reader.read_directed(name, which, share)?.flatten())
}

fn length(text: &str, base: values::KbBase) -> Result<u32, String> {
    // Within 32 bits.
    number(text, base, 1..=BLOCK_BYTES_MAX).map(|bytes| bytes as u32)
}

fn one_length(text: &str, base: values::KbBase) -> Result<Vec<(u32, u8)>, String> {
    length(text, base).map(|bytes| vec![(bytes, 100)])
}

/// `4k-16k`: every multiple of the shortest, equally often.
fn range(text: &str, base: values::KbBase) -> Result<Vec<(u32, u8)>, String> {
    let (least, most) =
        text.split_once('-').ok_or_else(|| format!("`{text}` is no range, such as 4k-16k"))?;
    let (least, most) = (length(least, base)?, length(most, base)?);
    let count = most / least;
    match () {
        () if least > most => Err(format!("`{text}` ends before it begins")),
        () if least == most => Ok(vec![(least, 100)]),
        () if least.is_power_of_two() && most.is_multiple_of(least) && 100 % count == 0 => {
            Ok((1..=count).map(|times| (least * times, (100 / count) as u8)).collect())
        }
        () => Err(format!(
            "the lengths of `{text}` have no whole percentages; write a range of 2, 4, 5, 10 or 20 multiples, or `bssplit`"
        )),
    }
}

/// `4k/70:64k/30`; those without a share have what is left.
fn split(text: &str, base: values::KbBase) -> Result<Vec<(u32, u8)>, String> {
    let mut sizes = Vec::new();
    for part in text.split(':') {
        let (size, share) = part.split_once('/').unwrap_or((part, ""));
        let share = match share {
            "" => None,
            share => Some(number(share, base, 0..=100)? as u8),
        };
        sizes.push((length(size, base)?, share));
    }
    let sum: u32 = sizes.iter().filter_map(|(_, share)| *share).map(u32::from).sum();
    let without = sizes.iter().filter(|(_, share)| share.is_none()).count() as u32;
    let left = 100u32.checked_sub(sum);
    let each = match (left, without) {
        (Some(0), 0) => 0,
        (Some(left), 1..) if left.is_multiple_of(without) => (left / without) as u8,
        (Some(left), 1..) => {
            return Err(format!("{left} % is left for {without} lengths; write their shares"));
        }
        _ => return Err(format!("the shares make {sum} %, not 100 %")),
    };
    let whole = sizes.into_iter().map(|(bytes, share)| (bytes, share.unwrap_or(each)));
    Ok(whole.filter(|(_, share)| *share > 0).collect())
}

/// The shares of a direction's lengths in percent, times `of`.
fn shares(direction: &Direction, of: u32) -> Vec<u32> {
    direction.sizes.iter().map(|(_, share)| u32::from(*share) * of).collect()
}

/// Hundredths of a percent that make 100 %, as whole percent: what is lost goes to those that lost most.
fn rounded(hundredths: &[u32]) -> Vec<u32> {
    let mut whole: Vec<u32> = hundredths.iter().map(|share| share / 100).collect();
    let missing = 100u32.saturating_sub(whole.iter().sum()) as usize;
    let mut order: Vec<usize> = (0..whole.len()).collect();
    order.sort_by_key(|at| std::cmp::Reverse(hundredths[*at] % 100));
    order.into_iter().take(missing).for_each(|at| whole[at] += 1);
    whole
}

/// The lines of a direction, in so many percent of all requests each.
fn lines(direction: &Direction, reads: u8, shares: &[u32]) -> Vec<Access> {
    // Percentages, all of them.
    let percent = |share: u32| Percent::new(share as u8).unwrap_or(Percent::ALL);
    let with_shares = direction.sizes.iter().zip(shares).filter(|(_, share)| **share > 0);
    with_shares
        .map(|((block_bytes, _), share)| Access {
            block_bytes: *block_bytes,
            share: percent(*share),
            read: percent(u32::from(reads)),
            random: direction.random,
            align: direction.align,
            burst: 1,
            delay_ms: 0,
        })
        .collect()
}
