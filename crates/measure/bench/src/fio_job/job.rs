//! A job of a fio job file, and the interpretation of its options.

use std::time::Duration;

use crate::fio_job::keys::{
    self, Amount, KbBase, Options, Section, Written, amount, directions, flag, is_opposite, latest,
    number, time,
};
use crate::plan::{Access, Align, Data, Distribution, Durable, Pace, Percent, Span, Workload};
use crate::suite::SuiteError as Mistake;

/// The workload of a job, and the conditions that end it.
#[derive(Clone, Debug, PartialEq)]
pub struct Job {
    /// The value of the option `name`, or else the name of the job's section.
    pub name: String,
    /// The number of concurrent clients (`numjobs`): 1 to 256.
    pub clients: u16,
    /// The workload of each client. Its span is set once the capacity of the storage is known.
    pub workload: Workload,
    /// The start of the first client's part of the storage.
    pub offset: Amount,
    /// The distance between the parts of successive clients.
    pub offset_increment: Amount,
    /// The length of each part; `None` extends it to the end of the storage.
    pub size: Option<Amount>,
    /// The number of bytes to transfer, if it differs from `size`.
    pub io_size: Option<Amount>,
    /// The number of requests after which the job ends, if set.
    pub requests: Option<u64>,
    /// The number of repetitions.
    pub loops: u64,
    /// The maximum run time.
    pub runtime: Option<Duration>,
    /// Whether the job repeats its work until `runtime` has passed.
    pub time_based: bool,
    /// The warm-up time, which is not measured.
    pub ramp: Duration,
    /// Whether the job starts only after all earlier jobs have ended.
    pub stonewall: bool,
}

/// Reads the options of a job.
pub(super) struct Reader<'o, 't> {
    options: &'o Options<'t>,
    notes: &'o mut Vec<String>,
}

impl<'t> Reader<'_, 't> {
    pub(super) fn written(&self, name: &str) -> Option<Written<'t>> {
        latest(self.options, name)
    }

    /// Returns an option's value, parsed by `read`, which returns a message on error.
    pub(super) fn read<T>(
        &self,
        name: &str,
        read: impl FnOnce(&'t str) -> Result<T, String>,
    ) -> Result<Option<T>, Mistake> {
        let Some(written) = self.written(name) else {
            return Ok(None);
        };
        read(value(&written)?)
            .map(Some)
            .map_err(|why| written.wrong(why))
    }

    /// Like `read`, for the value that applies to reads (0) or to writes (1).
    pub(super) fn read_directed<T>(
        &self,
        name: &str,
        which: usize,
        read: impl FnOnce(&'t str, KbBase) -> Result<T, String>,
    ) -> Result<Option<T>, Mistake> {
        let Some(written) = self.options.get(name).and_then(|said| said[which]) else {
            return Ok(None);
        };
        let said = directions(value(&written)?)
            .and_then(|said| said[which].map(|text| read(text, written.base)).transpose());
        said.map_err(|why| written.wrong(why))
    }

    fn flag(&self, name: &str) -> Result<bool, Mistake> {
        let Some(written) = self.written(name) else {
            return Ok(false);
        };
        flag(written.value).map_err(|why| written.wrong(why))
    }

    fn number(
        &self,
        name: &str,
        range: std::ops::RangeInclusive<u64>,
    ) -> Result<Option<u64>, Mistake> {
        let base = self.base(name);
        self.read(name, |text| number(text, base, range))
    }

    /// Returns the meaning of `k` in an option.
    pub(super) fn base(&self, name: &str) -> KbBase {
        self.written(name)
            .map(|written| written.base)
            .unwrap_or_default()
    }

    fn amount(&mut self, name: &str) -> Result<Option<Amount>, Mistake> {
        self.note_opposite(name);
        let base = self.base(name);
        self.read(name, |text| amount(text, base))
    }

    fn time(&self, name: &str, unit: Duration) -> Result<Option<Duration>, Mistake> {
        self.read(name, |text| time(text, unit))
    }

    /// Returns an error at the position of an option.
    fn wrong<T>(&self, name: &str, why: &str) -> Result<T, Mistake> {
        let unplaced = || Mistake {
            line: 1,
            column: 1,
            why: why.to_owned(),
        };
        Err(self
            .written(name)
            .map_or_else(unplaced, |written| written.wrong(why)))
    }

    pub(super) fn note(&mut self, note: &str) {
        self.notes.push(note.to_owned());
    }

    /// Adds a note if a size has a unit such as `KiB`, which fio interprets as a power of ten by default.
    pub(super) fn note_opposite(&mut self, name: &str) {
        let said = self.options.get(name).into_iter().flatten().flatten();
        let opposite: Vec<&str> = said
            .filter_map(|written| written.value.filter(|text| is_opposite(text, written.base)))
            .collect();
        for text in opposite {
            self.notes.push(format!(
                "`{text}` is read as fio reads it: KiB is 1,000 bytes and k is 1,024, unless kb_base=1000."
            ));
        }
    }
}

/// Returns the text after `=`.
fn value<'t>(written: &Written<'t>) -> Result<&'t str, Mistake> {
    let value = written.value.filter(|value| !value.is_empty());
    let value = value.ok_or_else(|| written.wrong("expected a value"))?;
    if written.name != "name" && value.contains(char::is_whitespace) {
        return Err(
            written.wrong("omit the blank: fio ignores a unit after a blank (`bs= 8k` is 8 bytes)")
        );
    }
    Ok(value)
}

/// fio's I/O engines that have only one outstanding request.
const SYNCHRONOUS: &[&str] = &[
    "sync", "psync", "vsync", "pvsync", "pvsync2", "mmap", "splice", "gfapi", "mtd", "pmemblk",
    "dev-dax", "libpmem",
];

/// fio's I/O engines that do not measure storage.
const NO_STORAGE: &[&str] = &[
    "cpuio",
    "net",
    "netsplice",
    "rdma",
    "ftruncate",
    "filecreate",
    "filestat",
    "filedelete",
    "falloc",
    "e4defrag",
    "exec",
];

/// The checksum methods of fio's `verify` option.
const CHECKSUMS: &[&str] = &[
    "crc32c",
    "crc32c-intel",
    "crc32",
    "crc64",
    "crc16",
    "crc7",
    "md5",
    "xxhash",
    "sha1",
    "sha256",
    "sha512",
    "sha3-224",
    "sha3-256",
    "sha3-384",
    "sha3-512",
    "meta",
];

pub(super) fn read(
    section: &Section<'_>,
    options: &Options<'_>,
    notes: &mut Vec<String>,
) -> Result<Job, Mistake> {
    let mut reader = Reader { options, notes };
    let reader = &mut reader;
    reader.read("kb_base", KbBase::named)?;
    let requests = requests(reader)?;
    let loops = reader.number("loops", 1..=1_000_000)?.unwrap_or(1);
    let job = Job {
        name: name(section, reader)?,
        // The range fits in a `u16`.
        clients: reader.number("numjobs", 1..=256)?.unwrap_or(1) as u16,
        workload: workload(reader, requests)?,
        offset: reader.amount("offset")?.unwrap_or(Amount::Bytes(0)),
        offset_increment: reader
            .amount("offset_increment")?
            .unwrap_or(Amount::Bytes(0)),
        size: reader
            .amount("size")?
            .filter(|size| *size != Amount::Bytes(0)),
        io_size: reader
            .amount("io_size")?
            .filter(|size| *size != Amount::Bytes(0)),
        requests: reader
            .number("number_ios", 0..=u64::MAX / loops)?
            .filter(|count| *count > 0),
        loops,
        runtime: reader
            .time("runtime", Duration::from_secs(1))?
            .filter(|time| !time.is_zero()),
        time_based: reader.flag("time_based")?,
        ramp: reader
            .time("ramp_time", Duration::from_secs(1))?
            .unwrap_or_default(),
        stonewall: reader.flag("stonewall")?,
    };
    match job.time_based && job.runtime.is_none() {
        true => reader.wrong("time_based", "`runtime` is missing"),
        false => Ok(job),
    }
}

fn name(section: &Section<'_>, reader: &Reader<'_, '_>) -> Result<String, Mistake> {
    let name = reader
        .read("name", |name| Ok(name.trim().to_owned()))?
        .unwrap_or_else(|| section.name.to_owned());
    let good = !name.trim().is_empty()
        && name.chars().count() <= 60
        && !name.chars().any(char::is_control);
    let why = "the name of a job must have 1 to 60 letters".to_owned();
    if good {
        Ok(name.trim().to_owned())
    } else {
        Err(Mistake {
            line: section.line,
            column: 1,
            why,
        })
    }
}

fn workload(reader: &mut Reader<'_, '_>, requests: Requests) -> Result<Workload, Mistake> {
    let Requests {
        mut accesses,
        reads,
        is_random,
    } = requests;
    let distribution = reader
        .read("random_distribution", Distribution::of_fio)?
        .unwrap_or_default();
    if is_random && distribution == Distribution::Uniform && !reader.flag("norandommap")? {
        reader.note(
            "fio accesses each block once before it repeats any, unless norandommap is set; here every \
             random offset is chosen independently.",
        );
    }
    let is_direct = reader
        .read("direct", |text| flag(Some(text)))?
        .unwrap_or(false)
        || !reader
            .read("buffered", |text| flag(Some(text)))?
            .unwrap_or(true);
    if !is_direct {
        reader
            .note("fio uses the page cache unless direct=1; here requests bypass the page cache.");
    }
    let pace = pace(reader, reads, &accesses)?;
    let drain_after = think(reader, &mut accesses)?;
    if pace.is_open() && drain_after.is_some() {
        return reader.wrong("thinktime", "a job cannot have both a rate and pauses here");
    }
    Ok(Workload {
        accesses,
        depth: depth(reader)?,
        pace,
        span: Span::default(),
        distribution: if is_random {
            distribution
        } else {
            Distribution::Uniform
        },
        data: data(reader, reads)?,
        drain_after,
        durable: durable(reader)?,
        seed: reader.number("randseed", 0..=u64::MAX)?.unwrap_or(1),
    })
}

fn depth(reader: &mut Reader<'_, '_>) -> Result<u32, Mistake> {
    let engine = reader
        .read("ioengine", |engine| {
            Ok(engine.split(':').next().unwrap_or(engine))
        })?
        .unwrap_or("psync");
    if NO_STORAGE.contains(&engine) {
        return reader.wrong("ioengine", &format!("`{engine}` does not measure storage"));
    }
    // The range fits in a `u32`.
    let depth = reader.number("iodepth", 1..=65_536)?.unwrap_or(1) as u32;
    if depth > 1 && SYNCHRONOUS.contains(&engine) {
        reader.note(&format!(
            "iodepth={depth} is taken as 1: fio's engine {engine} sends one request at a time \
             (ioengine=libaio does not)."
        ));
        return Ok(1);
    }
    Ok(depth)
}

/// Returns the pace of requests: `rate_iops`, or `rate` if all requests have the same length.
fn pace(reader: &mut Reader<'_, '_>, reads: u8, accesses: &[Access]) -> Result<Pace, Mistake> {
    let rate = |name: &str| {
        match reads {
        100 => reader.read_directed(name, 0, |text, base| number(text, base, 0..=1 << 40)),
        0 => reader.read_directed(name, 1, |text, base| number(text, base, 0..=1 << 40)),
        _ if reader.written(name).is_none() => Ok(None),
        _ => reader.wrong(
            name,
            "separate rates for reads and writes are not supported; a job that does both has one rate here",
        ),
    }
    };
    let [iops, bytes_per_second] = [rate("rate_iops")?, rate("rate")?];
    let (bytes, others) = accesses
        .split_first()
        .map_or((1, accesses), |(first, others)| (first.block_bytes, others));
    let (name, per_second) = match (
        iops.filter(|rate| *rate > 0),
        bytes_per_second.filter(|rate| *rate > 0),
    ) {
        (Some(_), Some(_)) => return reader.wrong("rate", "`rate_iops` is also set"),
        (Some(iops), None) => ("rate_iops", iops as f64),
        (None, Some(_)) if others.iter().any(|other| other.block_bytes != bytes) => {
            return reader.wrong("rate", "requests have several lengths; use `rate_iops`");
        }
        (None, Some(rate)) => ("rate", rate as f64 / f64::from(bytes)),
        (None, None) => return Ok(Pace::Closed),
    };
    if !(0.01..=1e7).contains(&per_second) {
        return reader.wrong(name, "a rate must be 0.01 to 10000000 requests per second");
    }
    reader.note(
        "fio limits a rate by delaying requests; here requests are sent at this rate, up to the queue depth, \
         even if earlier ones have not completed, and latency is measured from the due time.",
    );
    Ok(
        match reader.read("rate_process", process)?.unwrap_or(false) {
            true => Pace::Poisson { per_second },
            false => Pace::Constant { per_second },
        },
    )
}

/// Returns whether the intervals between requests are random.
fn process(text: &str) -> Result<bool, String> {
    match text {
        "linear" => Ok(false),
        "poisson" => Ok(true),
        _ => Err(format!("`{text}` is not linear or poisson")),
    }
}

/// Adds the pauses of `thinktime` to the access lines. Returns the number of requests between two pauses,
/// after which outstanding requests drain, or `None` without pauses.
fn think(reader: &mut Reader<'_, '_>, accesses: &mut [Access]) -> Result<Option<u32>, Mistake> {
    let time = reader
        .time("thinktime", Duration::from_micros(1))?
        .filter(|time| !time.is_zero());
    let Some(time) = time else { return Ok(None) };
    // The range fits in a `u32`.
    let blocks = reader
        .number("thinktime_blocks", 1..=1_000_000)?
        .unwrap_or(1) as u32;
    let ms = time.as_millis();
    if !time.as_micros().is_multiple_of(1000) || ms > 3_600_000 {
        return reader.wrong(
            "thinktime",
            "pauses must be whole milliseconds here, up to an hour",
        );
    }
    if blocks > 1 && accesses.len() > 1 {
        return reader.wrong(
            "thinktime_blocks",
            "the requests between two pauses must have the same length and direction here",
        );
    }
    for access in accesses {
        (access.burst, access.delay_ms) = (blocks, ms as u32);
    }
    Ok(Some(blocks))
}

/// Returns the guarantee that writes request: `fsync` or `fdatasync` after a number of writes, or `sync`.
fn durable(reader: &mut Reader<'_, '_>) -> Result<Durable, Mistake> {
    let is_sync = |text: &str| match text {
        "0" | "none" => Ok(false),
        "1" | "sync" | "dsync" => Ok(true),
        _ => Err(format!("`{text}` is not none, sync or dsync")),
    };
    let is_sync = reader.read("sync", is_sync)?.unwrap_or(false);
    let mut after = None;
    for name in ["fsync", "fdatasync"] {
        // The range fits in a `u32`.
        let writes = reader
            .number(name, 0..=1_000_000)?
            .map(|writes| writes as u32);
        after = after.or(writes.filter(|writes| *writes > 0));
    }
    match (is_sync, after) {
        (true, Some(_)) => reader.wrong("sync", "`fsync` is also set; use one of both"),
        (true, None) => Ok(Durable::Fua),
        (false, Some(writes)) => Ok(Durable::FlushAfter(writes)),
        (false, None) => Ok(Durable::Cached),
    }
}

fn data(reader: &mut Reader<'_, '_>, reads: u8) -> Result<Data, Mistake> {
    let is_verified = |text: &str| match text {
        "0" | "none" => Ok(false),
        text if CHECKSUMS.contains(&text) => Ok(true),
        _ => Err(format!(
            "`{text}` is not supported for verification; use a checksum such as crc32c"
        )),
    };
    let verify = reader.read("verify", is_verified)?.unwrap_or(false);
    let does = reader.number("do_verify", 0..=1)?.unwrap_or(1) == 1;
    match (verify, reads) {
        (false, _) if reader.flag("zero_buffers")? => Ok(Data::Zeros),
        (false, _) => {
            let share = reader.number("buffer_compress_percentage", 0..=100)?;
            // The range fits in a percentage.
            let share = share.and_then(|share| Percent::new(share as u8));
            Ok(share
                .filter(|share| *share > Percent::NONE)
                .map_or(Data::Random, Data::Compressible))
        }
        (true, 0) if does => reader.wrong(
            "verify",
            "only the job's own reads are verified here, but the job has no reads; use randrw",
        ),
        (true, 100) => reader.wrong(
            "verify",
            "only data that the job has written is verified here,
                but the job only reads",
        ),
        (true, _) => {
            reader.note(
                "fio reads back the data that it has written and verifies its checksum; here each read of a \
                 written block is verified immediately, with a different checksum.",
            );
            Ok(Data::Stamped)
        }
    }
}

/// The access lines of a job.
#[derive(Debug)]
pub(super) struct Requests {
    pub(super) accesses: Vec<Access>,
    /// The percentage of reads.
    pub(super) reads: u8,
    /// Whether `rw` is one of the random patterns.
    pub(super) is_random: bool,
}

/// The requests of one direction.
#[derive(Clone, Debug, PartialEq)]
struct Direction {
    /// Lengths with their shares in percent; no share is 0.
    sizes: Vec<(u32, u8)>,
    align: Align,
    random: Percent,
}

/// Maximum request length, the same as in suites.
const BLOCK_BYTES_MAX: u64 = 64 << 20;

/// The default of fio's `bs`.
const BS: u32 = 4096;

const READS: usize = 0;
const WRITES: usize = 1;

pub(super) fn requests(reader: &mut Reader<'_, '_>) -> Result<Requests, Mistake> {
    let (reads, is_random) = reader.read("rw", pattern)?.unwrap_or((Some(100), false));
    let reads = match reads {
        Some(reads) => reads,
        None => mix(reader)?,
    };
    let both = [
        direction(reader, READS, is_random)?,
        direction(reader, WRITES, is_random)?,
    ];
    if (1..100).contains(&reads) && !is_random {
        reader.note(
            "fio continues sequential reads from the last read, and sequential writes from the last write; \
             here each request follows the previous one of either kind.",
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
                    "The separate length shares of reads and writes are rounded to whole percentages of all \
                     requests.",
                );
            }
            let whole = rounded(&hundredths);
            let (first, last) = whole.split_at(of_reads.sizes.len());
            [lines(of_reads, 100, first), lines(of_writes, 0, last)].concat()
        }
    };
    Ok(Requests {
        accesses,
        reads,
        is_random,
    })
}

/// Parses `rw`: the percentage of reads, if the pattern determines it, and whether offsets are random.
fn pattern(text: &str) -> Result<(Option<u8>, bool), String> {
    if let Some((pattern, _)) = text.split_once(':') {
        return Err(format!(
            "the value after `{pattern}:` changes the positions of requests, which is not supported here"
        ));
    }
    match text {
        "read" => Ok((Some(100), false)),
        "write" => Ok((Some(0), false)),
        "rw" | "readwrite" => Ok((None, false)),
        "randread" => Ok((Some(100), true)),
        "randwrite" => Ok((Some(0), true)),
        "randrw" => Ok((None, true)),
        "trim" | "randtrim" | "trimwrite" | "randtrimwrite" => Err(format!(
            "`{text}` trims blocks, which is not supported here"
        )),
        _ => Err(format!(
            "`{text}` is unknown; use read, write, rw, randread, randwrite or randrw"
        )),
    }
}

/// Returns the percentage of reads, from `rwmixread` or `rwmixwrite`; if both are present, the later one
/// counts.
fn mix(reader: &Reader<'_, '_>) -> Result<u8, Mistake> {
    let share = |name: &str| {
        let base = reader.base(name);
        reader.read(name, |text| {
            number(text, base, 0..=100).map(|share| share as u8)
        })
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

fn direction(
    reader: &mut Reader<'_, '_>,
    which: usize,
    is_random: bool,
) -> Result<Direction, Mistake> {
    let sizes = match sizes_of(reader, "bssplit", which, split)? {
        Some(sizes) => sizes,
        None => match sizes_of(reader, "bsrange", which, range)? {
            Some(sizes) => sizes,
            None => sizes_of(reader, "bs", which, one_length)?.unwrap_or_else(|| vec![(BS, 100)]),
        },
    };
    let least = sizes.iter().map(|(bytes, _)| *bytes).min().unwrap_or(BS);
    let align = sizes_of(reader, "ba", which, one_length)?
        .map(|sizes| sizes[0].0)
        .filter(|_| is_random);
    let align = match (align, sizes.len()) {
        (Some(bytes), _) => Align::Bytes(bytes),
        (None, 1) => Align::Natural,
        // fio aligns all requests to the shortest length.
        (None, _) => Align::Bytes(least),
    };
    let random = match is_random {
        false => Percent::NONE,
        true => share_of(reader, "percentage_random", which)?.unwrap_or(Percent::ALL),
    };
    Ok(Direction {
        sizes,
        align,
        random,
    })
}

/// Returns the lengths that an option sets for one direction.
fn sizes_of(
    reader: &mut Reader<'_, '_>,
    name: &'static str,
    which: usize,
    read: impl Fn(&str, keys::KbBase) -> Result<Vec<(u32, u8)>, String>,
) -> Result<Option<Vec<(u32, u8)>>, Mistake> {
    reader.note_opposite(name);
    reader.read_directed(name, which, read)
}

fn share_of(
    reader: &Reader<'_, '_>,
    name: &'static str,
    which: usize,
) -> Result<Option<Percent>, Mistake> {
    let share =
        |text: &str, base| number(text, base, 0..=100).map(|share| Percent::new(share as u8));
    Ok(reader.read_directed(name, which, share)?.flatten())
}

fn length(text: &str, base: keys::KbBase) -> Result<u32, String> {
    // The range fits in a `u32`.
    number(text, base, 1..=BLOCK_BYTES_MAX).map(|bytes| bytes as u32)
}

fn one_length(text: &str, base: keys::KbBase) -> Result<Vec<(u32, u8)>, String> {
    length(text, base).map(|bytes| vec![(bytes, 100)])
}

/// Parses a range such as `4k-16k`: every multiple of the shortest length, with equal shares.
fn range(text: &str, base: keys::KbBase) -> Result<Vec<(u32, u8)>, String> {
    let (least, most) = text
        .split_once('-')
        .ok_or_else(|| format!("`{text}` is not a range, such as 4k-16k"))?;
    let (least, most) = (length(least, base)?, length(most, base)?);
    let count = most / least;
    match () {
        () if least > most => Err(format!("the end of `{text}` is before its start")),
        () if least == most => Ok(vec![(least, 100)]),
        () if least.is_power_of_two() && most.is_multiple_of(least) && 100 % count == 0 => Ok((1
            ..=count)
            .map(|times| (least * times, (100 / count) as u8))
            .collect()),
        () => Err(format!(
            "the lengths of `{text}` do not divide 100 % evenly; use a range of 2, 4, 5, 10 or 20 multiples, \
             or `bssplit`"
        )),
    }
}

/// Parses a list such as `4k/70:64k/30`. Entries without a share divide the remainder equally.
fn split(text: &str, base: keys::KbBase) -> Result<Vec<(u32, u8)>, String> {
    let mut sizes = Vec::new();
    for part in text.split(':') {
        let (size, share) = part.split_once('/').unwrap_or((part, ""));
        let share = match share {
            "" => None,
            share => Some(number(share, base, 0..=100)? as u8),
        };
        sizes.push((length(size, base)?, share));
    }
    let sum: u32 = sizes
        .iter()
        .filter_map(|(_, share)| *share)
        .map(u32::from)
        .sum();
    let without = sizes.iter().filter(|(_, share)| share.is_none()).count() as u32;
    let left = 100u32.checked_sub(sum);
    let each = match (left, without) {
        (Some(0), 0) => 0,
        (Some(left), 1..) if left.is_multiple_of(without) => (left / without) as u8,
        (Some(left), 1..) => {
            return Err(format!(
                "{left} % cannot be divided among {without} lengths; specify their shares"
            ));
        }
        _ => return Err(format!("the shares add up to {sum} %, not 100 %")),
    };
    let whole = sizes
        .into_iter()
        .map(|(bytes, share)| (bytes, share.unwrap_or(each)));
    Ok(whole.filter(|(_, share)| *share > 0).collect())
}

/// Returns the shares of a direction's lengths, in percent, multiplied by `of`.
fn shares(direction: &Direction, of: u32) -> Vec<u32> {
    direction
        .sizes
        .iter()
        .map(|(_, share)| u32::from(*share) * of)
        .collect()
}

/// Rounds hundredths of a percent, which add up to 100 %, to whole percent. The remainder is added to the
/// values that were reduced most by rounding.
fn rounded(hundredths: &[u32]) -> Vec<u32> {
    let mut whole: Vec<u32> = hundredths.iter().map(|share| share / 100).collect();
    let missing = 100u32.saturating_sub(whole.iter().sum()) as usize;
    let mut order: Vec<usize> = (0..whole.len()).collect();
    order.sort_by_key(|at| std::cmp::Reverse(hundredths[*at] % 100));
    order
        .into_iter()
        .take(missing)
        .for_each(|at| whole[at] += 1);
    whole
}

/// Returns the access lines of a direction, with their shares of all requests in percent.
fn lines(direction: &Direction, reads: u8, shares: &[u32]) -> Vec<Access> {
    // All values are percentages.
    let percent = |share: u32| Percent::new(share as u8).unwrap_or(Percent::ALL);
    let with_shares = direction
        .sizes
        .iter()
        .zip(shares)
        .filter(|(_, share)| **share > 0);
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
