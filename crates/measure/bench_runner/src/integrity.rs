//! That every block comes back, whichever way its data travelled.

use std::sync::Arc;

use backends::{Failure, hyperscsi, nbd, remote};
use bench::{RoundTrip, read_back, round_trip};
use block::{BlockDevice, Blocks, Extent};
use iscsi_client::{Settings, Url};

/// One way for data to travel.
struct Way {
    name: &'static str,
    /// As keys of a URL.
    settings: &'static [(&'static str, &'static str)],
}

const WAYS: &[Way] = &[
    Way { name: "immediate and unsolicited data", settings: &[] },
    Way { name: "immediate data only", settings: &[("initial-r2t", "yes")] },
    Way { name: "unsolicited data only", settings: &[("immediate-data", "no")] },
    Way {
        name: "nothing unasked, bursts of 16 KiB, one R2T at a time",
        settings: &[
            ("immediate-data", "no"),
            ("initial-r2t", "yes"),
            ("max-burst", "16384"),
            ("first-burst", "16384"),
            ("max-outstanding-r2t", "1"),
        ],
    },
    Way {
        name: "segments of 4 KiB, bursts of 12 KiB, four R2Ts at a time",
        settings: &[
            ("max-segment", "4096"),
            ("first-burst", "8192"),
            ("max-burst", "12288"),
            ("max-outstanding-r2t", "4"),
        ],
    },
    Way { name: "header digests", settings: &[("header-digest", "crc32c")] },
    Way {
        name: "header and data digests",
        settings: &[("header-digest", "crc32c"), ("data-digest", "crc32c")],
    },
    Way {
        name: "data digests, nothing unasked",
        settings: &[("data-digest", "crc32c"), ("immediate-data", "no"), ("initial-r2t", "yes")],
    },
    Way { name: "four connections in one session", settings: &[("connections", "4")] },
    Way {
        name: "eight connections, both digests, bursts of 64 KiB",
        settings: &[
            ("connections", "8"),
            ("header-digest", "crc32c"),
            ("data-digest", "crc32c"),
            ("first-burst", "65536"),
            ("max-burst", "65536"),
        ],
    },
];

/// Lengths of requests in blocks of 512 bytes, and how many bytes are written by each: from one block to a
/// mebibyte, odd ones among them, for whatever is off by one at the end of a burst.
const REQUESTS: &[(u64, u64)] = &[
    (1, 256 << 10),
    (3, 768 << 10),
    (8, 2 << 20),
    (33, 4 << 20),
    (128, 8 << 20),
    (513, 8 << 20),
    (2048, 16 << 20),
];

const DEPTH: u32 = 16;

/// What the LUN must have at least.
pub const LUN_BYTES: u64 = 39 << 20;

/// The same over NBD, as options of a URL, and whether over TLS.
const NBD_WAYS: &[(&str, &str, bool)] = &[
    ("NBD", "", false),
    ("NBD, four connections", "?connections=4", false),
    ("NBD over TLS 1.3, two connections", "?connections=2", true),
];

/// URLs of the same volume over other protocols, on an [own target](nbd::open_over_loopback_tls); `None` where it has none.
#[derive(Clone, Debug, Default)]
pub struct Others {
    /// Over NBD.
    pub nbd: Option<String>,
    /// Over HyperSCSI.
    pub hyperscsi: Option<String>,
}

/// Writes and reads back in every way, and by the other protocols: this share of the data, at least a
/// request of each length, in (0, 1]. `tell` hears of each by its name: bytes that came back as they were written, or what
/// was wrong with them. Gives whether all of it came back.
///
/// # Errors
/// The LUN cannot be opened.
pub async fn check(
    url: &Url,
    others: &Others,
    share: f64,
    tell: &dyn Fn(&str, &Result<u64, bench::Failure>),
) -> Result<bool, Failure> {
    let (mut sound, mut generation) = (true, 0);
    for way in WAYS {
        generation += 1;
        let outcome = travel(&by(url, way.settings), share, generation, None).await?;
        sound &= outcome.is_ok();
        tell(way.name, &outcome);
    }
    let nbd_ways = others.nbd.iter().flat_map(|export| NBD_WAYS.iter().map(move |way| (export, way)));
    for (export, (name, options, is_encrypted)) in nbd_ways {
        generation += 1;
        let url = nbd::Url::parse(&format!("{export}{options}")).map_err(Failure::failed)?;
        let device: Arc<dyn BlockDevice> = match is_encrypted {
            true => Arc::new(nbd::open_over_loopback_tls(&url).await?),
            false => Arc::new(nbd::open(&url).await?),
        };
        let outcome = made(&device, share, generation, None).await;
        sound &= outcome.is_ok();
        tell(name, &outcome);
    }
    if let Some(url) = &others.hyperscsi {
        generation += 1;
        let url = hyperscsi::Url::parse(url).map_err(Failure::failed)?;
        let device: Arc<dyn BlockDevice> = Arc::new(hyperscsi::open(&url).await?);
        let outcome = made(&device, share, generation, None).await;
        sound &= outcome.is_ok();
        tell("HyperSCSI over UDP", &outcome);
    }
    // All that the last way wrote, by a session of another kind, in requests of another length.
    let outcome = travel(url, share, generation, Some(Blocks(100))).await?;
    tell("read once more, by another session", &outcome);
    Ok(sound && outcome.is_ok())
}

fn by(url: &Url, settings: &[(&str, &str)]) -> Url {
    let mut url = url.clone();
    for (key, value) in settings {
        set(&mut url.settings, key, value);
    }
    url
}

fn set(settings: &mut Settings, key: &str, value: &str) {
    settings.set(key, value).expect("the table above has keys and values that settings take");
}

/// Bytes that made the trip, or what was wrong with them. With a length of requests they are only read back.
async fn travel(
    url: &Url,
    share: f64,
    generation: u64,
    read: Option<Blocks>,
) -> Result<Result<u64, bench::Failure>, Failure> {
    let lun = remote::open(url).await?;
    let target = Arc::clone(lun.target());
    let device: Arc<dyn BlockDevice> = Arc::new(lun);
    let outcome = made(&device, share, generation, read).await;
    target.close().await;
    Ok(outcome)
}

async fn made(
    device: &Arc<dyn BlockDevice>,
    share: f64,
    generation: u64,
    read: Option<Blocks>,
) -> Result<u64, bench::Failure> {
    let mut outcome = Ok(0);
    for trip in trips(share, generation) {
        let made = match read {
            None => round_trip(device, trip).await,
            Some(request) => read_back(device, RoundTrip { request, ..trip }).await,
        };
        outcome = outcome.and_then(|bytes| made.map(|()| bytes + device.geometry().length(trip.extent)));
    }
    outcome
}

/// One after the other over the volume.
fn trips(share: f64, generation: u64) -> impl Iterator<Item = RoundTrip> {
    let mut lba = 0;
    REQUESTS.iter().map(move |&(request, bytes)| {
        let blocks = ((bytes / 512) as f64 * share).ceil() as u64;
        let extent = Extent::new(lba, blocks.clamp(request, bytes / 512));
        lba += extent.blocks.0;
        RoundTrip { extent, request: Blocks(request), depth: DEPTH, generation }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_is_one_that_settings_can_take() {
        for way in WAYS {
            way.settings.iter().for_each(|(key, value)| set(&mut Settings::default(), key, value));
        }
    }

    #[test]
    fn all_trips_fit_on_the_volume_beside_each_other() {
        let trips: Vec<RoundTrip> = trips(1.0, 1).collect();
        assert!(trips.windows(2).all(|two| !two[0].extent.overlaps(two[1].extent)));
        let end = trips.last().and_then(|last| last.extent.end()).expect("there are trips");
        assert_eq!(end.0 * 512, LUN_BYTES);
    }

    #[test]
    fn a_small_share_still_has_a_request_of_each_length() {
        let blocks = |share| super::trips(share, 1).map(|trip| trip.extent.blocks.0).collect::<Vec<u64>>();
        assert_eq!(blocks(0.1), [52, 154, 410, 820, 1639, 1639, 3277]);
        assert_eq!(blocks(1e-9), REQUESTS.iter().map(|(request, _)| *request).collect::<Vec<u64>>());
    }
}
