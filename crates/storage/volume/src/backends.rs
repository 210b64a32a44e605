//! The back ends that do not depend on the operating system: the null device, and layers over one other
//! volume. To add a layer, add a section to this file and an entry to [`ALL`]. `remote/backends/src/lib.rs`
//! lists the layers that are implemented elsewhere.

use std::ops::RangeInclusive;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;
use std::{fmt, slice};

use block::{
    BlockDevice, BlockSize, Buffered, Delay, DiskCache, DiskModel, Emulated512, Fault, Limit, Null,
    Rate, RotatingDisk, ServiceTime, Stalls, Tail, Window,
};
use derive_more::Display;

use crate::backend::{Backend, BlockPlaces, Kind, OpenError, Opened, Opening, Options};
use crate::spec::{
    AtMost, BlockShape, Bytes, PerMillion, Problem, Spec, Time, Token, Written, hint,
};

/// All kinds of this module, in the order of the documentation.
pub const ALL: &[&Kind] = &[
    &NULL,
    &DELAY,
    &LIMIT,
    &DISK,
    &BUFFERED,
    &EMULATED_512,
    &FAULT,
];

/// A null device: stores no data and completes immediately.
static NULL: Kind = Kind {
    name: "null",
    usage: "null:SIZE",
    about: "no storage: discards writes and reads as zeros",
    blocks: BlockPlaces::Store,
    options: Options::Known(&["block", "physical"]),
    read: |written| {
        let blocks = BlockShape::read(written)?;
        Ok(Arc::new(NullBackend {
            size: blocks.capacity(written.argument())?,
            blocks,
        }))
    },
};

#[derive(Debug)]
struct NullBackend {
    size: Bytes,
    blocks: BlockShape,
}

impl Backend for NullBackend {
    fn kind(&self) -> &'static Kind {
        &NULL
    }

    fn argument(&self) -> String {
        self.size.to_string()
    }

    fn options(&self) -> Vec<String> {
        self.blocks.options()
    }

    fn logical_block(&self) -> Option<BlockSize> {
        Some(self.blocks.logical)
    }

    fn open<'a>(&'a self, _opening: &'a Opening) -> Opened<'a> {
        Box::pin(async { Ok(Arc::new(Null::new(self.blocks.geometry(self.size))) as _) })
    }
}

/// The part in which layers over one volume differ. Methods without a comment mean the same as in
/// [`Backend`].
trait Layer: fmt::Debug + Send + Sync + 'static {
    fn kind(&self) -> &'static Kind;

    fn argument(&self) -> String {
        String::new()
    }

    fn options(&self) -> Vec<String> {
        Vec::new()
    }

    fn logical_block(&self, inner: &Spec) -> Option<BlockSize> {
        inner.logical_block()
    }

    fn cache_outlives_process(&self, inner: &Spec) -> bool {
        inner.cache_outlives_process()
    }

    fn has_fault_layer(&self, inner: &Spec) -> bool {
        inner.has_fault_layer()
    }

    /// Creates the layer over `inner`, which was opened from `spec`.
    fn over(&self, spec: &Spec, inner: Arc<dyn BlockDevice>, opening: &Opening) -> OpenLayer;
}

type OpenLayer = Result<Arc<dyn BlockDevice>, OpenError>;

/// The back end of a layer over the single volume in its brackets.
#[derive(Debug)]
struct Layered<L> {
    layer: L,
    inner: Spec,
}

impl<L: Layer> Layered<L> {
    fn read(written: &Written<'_>, layer: L) -> Result<Arc<dyn Backend>, Problem> {
        debug_assert!(layer.kind().blocks == BlockPlaces::Below);
        Ok(Arc::new(Layered {
            layer,
            inner: written.member()?,
        }))
    }
}

impl<L: Layer> Backend for Layered<L> {
    fn kind(&self) -> &'static Kind {
        self.layer.kind()
    }

    fn argument(&self) -> String {
        self.layer.argument()
    }

    fn options(&self) -> Vec<String> {
        self.layer.options()
    }

    fn members(&self) -> &[Spec] {
        slice::from_ref(&self.inner)
    }

    fn logical_block(&self) -> Option<BlockSize> {
        self.layer.logical_block(&self.inner)
    }

    fn cache_outlives_process(&self) -> bool {
        self.layer.cache_outlives_process(&self.inner)
    }

    fn has_fault_layer(&self) -> bool {
        self.layer.has_fault_layer(&self.inner)
    }

    fn open<'a>(&'a self, opening: &'a Opening) -> Opened<'a> {
        Box::pin(async {
            let inner = self.inner.open(opening).await?;
            let bytes = inner.geometry().bytes();
            let device = self.layer.over(&self.inner, inner, opening)?;
            debug_assert_eq!(
                device.geometry().bytes(),
                bytes,
                "a layer is as long as its volume"
            );
            Ok(device)
        })
    }
}

/// Adds a delay to every request: `delay:5ms:[…]?tail=20ms&tail-share=1%`.
static DELAY: Kind = Kind {
    name: "delay",
    usage: "delay:TIME:[VOLUME]",
    about: "another volume, with each request delayed by this time; requests overlap",
    blocks: BlockPlaces::Below,
    options: Options::Known(&[
        "tail",
        "tail-share",
        "flush",
        "stall",
        "stall-every",
        "seed",
    ]),
    read: read_delay,
};

fn read_delay(written: &Written<'_>) -> Result<Arc<dyn Backend>, Problem> {
    let usual: Time = written.before_brackets("a delay needs a time", "delay:5ms:[ram:1GiB]")?;
    let tail = match written.both("tail", "tail-share")? {
        Some((time, share)) => {
            let (time, share): (Time, PerMillion) = (time.parsed()?, share.parsed()?);
            Some(Tail {
                time: time.0,
                per_million: share.0,
            })
        }
        None => None,
    };
    let stalls = match written.both("stall", "stall-every")? {
        Some((length, every)) => {
            let (time, period): (Time, Time) = (length.parsed()?, every.parsed()?);
            Some(Stalls::new(time.0, period.0).ok_or_else(|| {
                let sentence =
                    "`stall-every` must be longer than `stall`; otherwise the device would always stall";
                Problem::new(every.at.clone(), sentence)
            })?)
        }
        None => None,
    };
    let flush = written.parsed::<Time>("flush")?.map(|time| time.0);
    let seed = written.value("seed")?.map_or(Ok(0), |word| {
        let wrong = |_| Problem::new(word.at.clone(), "a seed is a whole number below 2^64");
        word.text.parse().map_err(wrong)
    })?;
    Layered::read(
        written,
        ServiceTime {
            usual: usual.0,
            tail,
            flush,
            stalls,
            seed,
        },
    )
}

impl Layer for ServiceTime {
    fn kind(&self) -> &'static Kind {
        &DELAY
    }

    fn argument(&self) -> String {
        Time(self.usual).to_string()
    }

    fn options(&self) -> Vec<String> {
        let tail = |tail: Tail| {
            format!(
                "tail={}&tail-share={}",
                Time(tail.time),
                PerMillion(tail.per_million)
            )
        };
        let stalls = |stalls: Stalls| {
            format!(
                "stall={}&stall-every={}",
                Time(stalls.length()),
                Time(stalls.every())
            )
        };
        let flush = self.flush.map(|time| format!("flush={}", Time(time)));
        let seed = (self.seed != 0).then(|| format!("seed={}", self.seed));
        self.tail
            .map(tail)
            .into_iter()
            .chain(flush)
            .chain(self.stalls.map(stalls))
            .chain(seed)
            .collect()
    }

    fn over(&self, _: &Spec, inner: Arc<dyn BlockDevice>, opening: &Opening) -> OpenLayer {
        Ok(Arc::new(Delay::new(
            inner,
            *self,
            Arc::clone(&opening.sleeper),
        )))
    }
}

/// Limits the rate of requests and bytes: `limit:1000iops:[…]`.
static LIMIT: Kind = Kind {
    name: "limit",
    usage: "limit:RATE:[VOLUME]",
    about: "another volume, limited to this rate, one request at a time: `1000iops`, `100MB/s`, or `1000iops+100MB/s`",
    blocks: BlockPlaces::Below,
    options: Options::Known(&[]),
    read: |written| {
        let rate: AtMost =
            written.before_brackets("a limit needs a rate", "limit:1000iops:[ram:1GiB]")?;
        Layered::read(written, rate)
    },
};

impl Layer for AtMost {
    fn kind(&self) -> &'static Kind {
        &LIMIT
    }

    fn argument(&self) -> String {
        self.to_string()
    }

    fn over(&self, _: &Spec, inner: Arc<dyn BlockDevice>, opening: &Opening) -> OpenLayer {
        Ok(Arc::new(Limit::new(
            inner,
            self.0,
            Arc::clone(&opening.sleeper),
        )))
    }
}

/// Makes a volume as slow as a rotating disk: `disk:sata2009:[…]?cache=0B`.
static DISK: Kind = Kind {
    name: "disk",
    usage: "disk:MODEL:[VOLUME]",
    about: "another volume, as slow as one rotating disk: `ide2004`, `sata2009`, `sas15k` or `nearline`",
    blocks: BlockPlaces::Below,
    options: Options::Known(&[
        "seek",
        "rpm",
        "rate",
        "cache",
        "per-request",
        "write-through",
    ]),
    read: read_disk,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Sheet {
    /// Average seek time.
    seek: Duration,
    turns_per_minute: u32,
    /// Media transfer rate.
    bytes_per_s: u64,
    cache_bytes: u64,
    /// Time of a request on the interface.
    request: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Model {
    name: &'static str,
    sheet: Sheet,
}

const fn model(
    name: &'static str,
    seek_us: u64,
    turns_per_minute: u32,
    rate: u64,
    cache_bytes: u64,
) -> Model {
    let seek = Duration::from_micros(seek_us);
    Model {
        name,
        sheet: Sheet {
            seek,
            turns_per_minute,
            bytes_per_s: rate * 1_000_000,
            cache_bytes,
            request: Duration::ZERO,
        },
    }
}

/// The disk models. The first two are also in `measure/model`: six drives in the servers of document 004
/// delivered 170 MB/s sequentially, and the machine of document 001 has disks of its year. The others are
/// from data sheets: of 15,000-rpm disks of 2009, and of disks of 16 TB and more.
const MODELS: [Model; 4] = [
    model("ide2004", 9_000, 7_200, 28, 2 << 20),
    model("sata2009", 8_500, 7_200, 100, 16 << 20),
    model("sas15k", 3_500, 15_000, 150, 16 << 20),
    model("nearline", 8_000, 7_200, 260, 256 << 20),
];

#[derive(Display)]
#[display("unknown disk model `{_0}`{}", hint(_0, &MODELS.map(|model| model.name)))]
struct Unknown(String);

impl FromStr for Model {
    type Err = Unknown;

    fn from_str(text: &str) -> Result<Model, Unknown> {
        MODELS
            .into_iter()
            .find(|model| model.name == text)
            .ok_or_else(|| Unknown(text.to_owned()))
    }
}

#[derive(Debug)]
struct DiskLayer {
    model: Model,
    /// The data sheet, with the changes that the options make.
    sheet: Sheet,
    write_through: bool,
}

fn read_disk(written: &Written<'_>) -> Result<Arc<dyn Backend>, Problem> {
    let model: Model =
        written.before_brackets("a disk needs a model", "disk:sata2009:[ram:1GiB]")?;
    let usual = model.sheet;
    let sheet = Sheet {
        seek: written.value("seek")?.map_or(Ok(usual.seek), seek)?,
        turns_per_minute: written
            .value("rpm")?
            .map_or(Ok(usual.turns_per_minute), turns)?,
        bytes_per_s: written.value("rate")?.map_or(Ok(usual.bytes_per_s), rate)?,
        cache_bytes: written
            .parsed::<Bytes>("cache")?
            .map_or(usual.cache_bytes, |bytes| bytes.0),
        request: written
            .value("per-request")?
            .map_or(Ok(usual.request), per_request)?,
    };
    let write_through = written.flag("write-through")?;
    Layered::read(
        written,
        DiskLayer {
            model,
            sheet,
            write_through,
        },
    )
}

fn seek(word: &Token) -> Result<Duration, Problem> {
    let Time(time) = word.parsed()?;
    if time <= Duration::from_secs(10) {
        return Ok(time);
    }
    Err(Problem::new(
        word.at.clone(),
        "the average seek time is at most 10s; current disks take 3 to 12ms",
    ))
}

fn per_request(word: &Token) -> Result<Duration, Problem> {
    let Time(time) = word.parsed()?;
    if time <= Duration::from_secs(1) {
        return Ok(time);
    }
    Err(Problem::new(
        word.at.clone(),
        "the time per request is at most 1s; interfaces of 2004 took 0.2 to 0.5ms",
    ))
}

fn turns(word: &Token) -> Result<u32, Problem> {
    let turns = word
        .text
        .parse()
        .ok()
        .filter(|turns| (1..=1_000_000).contains(turns));
    let sentence = "`rpm` is a whole number from 1 to 1000000, such as 7200";
    turns.ok_or_else(|| Problem::new(word.at.clone(), sentence))
}

fn rate(word: &Token) -> Result<u64, Problem> {
    match word.parsed()? {
        AtMost(Rate {
            requests_per_s: None,
            bytes_per_s: Some(rate),
        }) => Ok(rate.get()),
        AtMost(_) => Err(Problem::new(
            word.at.clone(),
            "the medium's rate is in bytes, such as 100MB/s",
        )),
    }
}

impl Layer for DiskLayer {
    fn kind(&self) -> &'static Kind {
        &DISK
    }

    fn argument(&self) -> String {
        self.model.name.to_owned()
    }

    fn options(&self) -> Vec<String> {
        let (usual, sheet) = (self.model.sheet, self.sheet);
        let seek = (sheet.seek != usual.seek).then(|| format!("seek={}", Time(sheet.seek)));
        let turns = (sheet.turns_per_minute != usual.turns_per_minute)
            .then(|| format!("rpm={}", sheet.turns_per_minute));
        let rate = (sheet.bytes_per_s != usual.bytes_per_s)
            .then(|| format!("rate={}/s", Bytes(sheet.bytes_per_s)));
        let cache = (sheet.cache_bytes != usual.cache_bytes)
            .then(|| format!("cache={}", Bytes(sheet.cache_bytes)));
        let request = (sheet.request != usual.request)
            .then(|| format!("per-request={}", Time(sheet.request)));
        let through = self.write_through.then(|| "write-through".to_owned());
        seek.into_iter()
            .chain(turns)
            .chain(rate)
            .chain(cache)
            .chain(request)
            .chain(through)
            .collect()
    }

    fn over(&self, _: &Spec, inner: Arc<dyn BlockDevice>, opening: &Opening) -> OpenLayer {
        let Sheet {
            seek,
            turns_per_minute,
            bytes_per_s,
            cache_bytes,
            request,
        } = self.sheet;
        let model = DiskModel {
            seek_s: seek.as_secs_f64(),
            turns_per_s: f64::from(turns_per_minute) / 60.0,
            bytes_per_s: bytes_per_s as f64,
            request_s: request.as_secs_f64(),
        };
        let cache = DiskCache {
            bytes: cache_bytes,
            write_through: self.write_through,
        };
        Ok(Arc::new(RotatingDisk::new(
            inner,
            model,
            cache,
            Arc::clone(&opening.sleeper),
        )))
    }
}

/// Adds a cache that reads ahead and writes back: `buffered:1MiB:[…]`.
static BUFFERED: Kind = Kind {
    name: "buffered",
    usage: "buffered:SIZE:[VOLUME]",
    about: "another volume behind a page cache: reads ahead of sequential readers, and collects writes, up to \
            this size each, in requests of 128 KiB. Writes are on stable storage after a flush",
    blocks: BlockPlaces::Below,
    options: Options::Known(&[]),
    read: |written| {
        let size = "a buffered volume needs a window size";
        let window: Bytes = written.before_brackets(size, "buffered:1MiB:[ram:1GiB]")?;
        if !WINDOW_BYTES.contains(&window.0) {
            let sentence =
                "the window size is 4KiB to 64MiB: a larger read-ahead mostly reads unused data";
            return Err(Problem::new(written.argument().at.clone(), sentence));
        }
        Layered::read(written, BufferedLayer { window })
    },
};

/// Permitted sizes of the window: from one page up to a size of which a small machine has memory for 17
/// copies, for 16 readers and the writers.
const WINDOW_BYTES: RangeInclusive<u64> = 4 << 10..=64 << 20;

#[derive(Debug)]
struct BufferedLayer {
    window: Bytes,
}

impl Layer for BufferedLayer {
    fn kind(&self) -> &'static Kind {
        &BUFFERED
    }

    fn argument(&self) -> String {
        self.window.to_string()
    }

    fn cache_outlives_process(&self, _: &Spec) -> bool {
        false
    }

    fn over(&self, _: &Spec, inner: Arc<dyn BlockDevice>, opening: &Opening) -> OpenLayer {
        let window = Window::new(self.window.0);
        Ok(Arc::new(Buffered::new(
            inner,
            window,
            Arc::clone(&opening.spawner),
        )))
    }
}

/// Emulates 512-byte blocks over longer blocks: `512e:[…]`.
static EMULATED_512: Kind = Kind {
    name: "512e",
    usage: "512e:[VOLUME]",
    about: "512-byte blocks over a volume with longer ones (`block=4096`), by read-modify-write",
    blocks: BlockPlaces::Below,
    options: Options::Known(&[]),
    read: |written| {
        written.nothing_before_brackets("512e", "512e:[ram:1GiB?block=4096]")?;
        match written.member()?.logical_block() {
            Some(BlockSize::B512) => {
                Err(Problem::new(written.place_of_members(), HAS_SHORT_BLOCKS))
            }
            _ => Layered::read(written, EmulatedLayer),
        }
    },
};

const HAS_SHORT_BLOCKS: &str =
    "this volume already has 512-byte blocks; use longer ones, such as 512e:[ram:1GiB?block=4096]";

#[derive(Debug)]
struct EmulatedLayer;

impl Layer for EmulatedLayer {
    fn kind(&self) -> &'static Kind {
        &EMULATED_512
    }

    fn logical_block(&self, _: &Spec) -> Option<BlockSize> {
        Some(BlockSize::B512)
    }

    fn over(&self, spec: &Spec, inner: Arc<dyn BlockDevice>, opening: &Opening) -> OpenLayer {
        if inner.geometry().block_size == BlockSize::B512 {
            return Err(format!("{spec}: {HAS_SHORT_BLOCKS}").into());
        }
        Ok(Arc::new(Emulated512::new(
            inner,
            Arc::clone(&opening.spawner),
        )))
    }
}

/// Injects faults on request through the control socket: requests hang, fail or are slow, or writes are lost.
static FAULT: Kind = Kind {
    name: "fault",
    usage: "fault:[VOLUME]",
    about: "another volume; `linerate server fault` makes its requests hang, fail or take longer",
    blocks: BlockPlaces::Below,
    options: Options::Known(&[]),
    read: |written| {
        written.nothing_before_brackets("a fault layer", "fault:[ram:1GiB]")?;
        Layered::read(written, FaultLayer)
    },
};

#[derive(Debug)]
struct FaultLayer;

impl Layer for FaultLayer {
    fn kind(&self) -> &'static Kind {
        &FAULT
    }

    fn has_fault_layer(&self, _: &Spec) -> bool {
        true
    }

    fn over(&self, _: &Spec, inner: Arc<dyn BlockDevice>, opening: &Opening) -> OpenLayer {
        Ok(Arc::new(Fault::new(
            inner,
            Arc::clone(&opening.sleeper),
            opening.faults.clone(),
        )))
    }
}
