//! `disk:sata2009:[…]?cache=0B`.

use std::fmt;
use std::slice;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use block::{Disk, DiskCache, DiskModel, Rate};

use crate::backend::{Backend, Kind, Opened, Opening, Options};
use crate::nearest::hint;
use crate::spec::{AtMost, Bytes, Problem, Spec, Time, Token, Written};

/// As slow as a rotating disk.
pub(super) static DISK: Kind = Kind {
    name: "disk",
    usage: "disk:MODEL:[VOLUME]",
    about: "another volume, as slow as one rotating disk: seek, rotation, transfer and cache of `ide2004`, `sata2009`, \
            `sas15k` or `nearline`",
    is_layer: true,
    options: Options::Known(&["seek", "rpm", "rate", "cache", "write-through"]),
    read,
};

/// A disk as a data sheet describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Sheet {
    /// An average seek.
    seek: Duration,
    turns_per_minute: u32,
    /// Of the medium.
    bytes_per_s: u64,
    cache_bytes: u64,
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
    Model { name, sheet: Sheet { seek, turns_per_minute, bytes_per_s: rate * 1_000_000, cache_bytes } }
}

/// The first two are those of `measure/model`: six drives of document 004's servers gave 170 MB/s in sequence, and
/// document 001's box has disks of its year. The others are data sheets of 15,000-rpm disks of 2009 and of disks of
/// 16 TB and more.
const MODELS: [Model; 4] = [
    model("ide2004", 9_000, 7_200, 28, 2 << 20),
    model("sata2009", 8_500, 7_200, 100, 16 << 20),
    model("sas15k", 3_500, 15_000, 150, 16 << 20),
    model("nearline", 8_000, 7_200, 260, 256 << 20),
];

/// Why there is no such model.
struct Unknown(String);

impl fmt::Display for Unknown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unknown model of a disk `{}`{}", self.0, hint(&self.0, &MODELS.map(|model| model.name)))
    }
}

impl FromStr for Model {
    type Err = Unknown;

    fn from_str(text: &str) -> Result<Model, Unknown> {
        MODELS.into_iter().find(|model| model.name == text).ok_or_else(|| Unknown(text.to_owned()))
    }
}

#[derive(Debug)]
struct DiskBackend {
    model: Model,
    /// With what the options change.
    sheet: Sheet,
    write_through: bool,
    inner: Spec,
}

fn read(written: &Written<'_>) -> Result<Arc<dyn Backend>, Problem> {
    let model: Model = written.before_brackets("a disk wants a model", "disk:sata2009:[ram:1GiB]")?;
    let usual = model.sheet;
    let sheet = Sheet {
        seek: written.value("seek")?.map_or(Ok(usual.seek), seek)?,
        turns_per_minute: written.value("rpm")?.map_or(Ok(usual.turns_per_minute), turns)?,
        bytes_per_s: written.value("rate")?.map_or(Ok(usual.bytes_per_s), rate)?,
        cache_bytes: written.parsed::<Bytes>("cache")?.map_or(usual.cache_bytes, |bytes| bytes.0),
    };
    let write_through = written.flag("write-through")?;
    Ok(Arc::new(DiskBackend { model, sheet, write_through, inner: written.member()? }))
}

fn seek(word: &Token) -> Result<Duration, Problem> {
    let Time(time) = word.parsed()?;
    if time <= Duration::from_secs(10) {
        return Ok(time);
    }
    Err(Problem::new(word.at.clone(), "an average seek takes at most 10s; disks of today take 3 to 12ms"))
}

fn turns(word: &Token) -> Result<u32, Problem> {
    let turns = word.text.parse().ok().filter(|turns| (1..=1_000_000).contains(turns));
    let sentence = "`rpm` is a whole number of turns a minute from 1 to 1000000, such as 7200";
    turns.ok_or_else(|| Problem::new(word.at.clone(), sentence))
}

fn rate(word: &Token) -> Result<u64, Problem> {
    match word.parsed()? {
        AtMost(Rate { requests_per_s: None, bytes_per_s: Some(rate) }) => Ok(rate.get()),
        AtMost(_) => Err(Problem::new(word.at.clone(), "the rate of a medium is in bytes, such as 100MB/s")),
    }
}

impl Backend for DiskBackend {
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
        let rate =
            (sheet.bytes_per_s != usual.bytes_per_s).then(|| format!("rate={}/s", Bytes(sheet.bytes_per_s)));
        let cache =
            (sheet.cache_bytes != usual.cache_bytes).then(|| format!("cache={}", Bytes(sheet.cache_bytes)));
        let through = self.write_through.then(|| "write-through".to_owned());
        seek.into_iter().chain(turns).chain(rate).chain(cache).chain(through).collect()
    }

    fn members(&self) -> &[Spec] {
        slice::from_ref(&self.inner)
    }

    fn open<'a>(&'a self, opening: &'a Opening) -> Opened<'a> {
        Box::pin(async {
            let inner = self.inner.open(opening).await?;
            let Sheet { seek, turns_per_minute, bytes_per_s, cache_bytes } = self.sheet;
            let model = DiskModel {
                seek_s: seek.as_secs_f64(),
                turns_per_s: f64::from(turns_per_minute) / 60.0,
                bytes_per_s: bytes_per_s as f64,
            };
            let cache = DiskCache { bytes: cache_bytes, write_through: self.write_through };
            Ok(Arc::new(Disk::new(inner, model, cache, Arc::clone(&opening.sleeper))) as _)
        })
    }
}
