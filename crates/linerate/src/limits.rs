//! `linerate diagnose limits` computes limits of a link, frame by frame as in document 003's Appendix B: its
//! maximum throughput, the data rate of iSCSI on it, and the window and queue depth that fill it over a
//! distance. Nothing is measured.

use std::time::Duration;

use clap::{Args, ValueEnum};
use model::Keys;
use model::link::Link;

use crate::failure::Failure;
use crate::output::say;
use crate::output::width;
use crate::spec::{Bytes, NotAValue, Time};
use model::LinkRate;

use model::limits::{Distance, LinkLimits, WriteMode};
use report::limits as printed;

#[derive(Debug, Args)]
pub(crate) struct LimitsArguments {
    /// Rate of the link, such as 1G, 100Mbit/s or 2.5Gbit/s
    #[arg(long, value_name = "RATE", default_value = "1Gbit/s")]
    link: LinkRate,
    /// Largest IP packet, in bytes
    #[arg(long, value_name = "BYTES", default_value_t = 1500, value_parser = clap::value_parser!(u32).range(MTU))]
    mtu: u32,
    /// Include a VLAN tag in each frame
    #[arg(long)]
    vlan: bool,
    /// Use IPv6 instead of IPv4
    #[arg(long)]
    ipv6: bool,
    /// Include TCP timestamps, which Linux sends by default
    #[arg(long)]
    timestamps: bool,
    /// Use HeaderDigest=CRC32C
    #[arg(long)]
    header_digest: bool,
    /// Use DataDigest=CRC32C
    #[arg(long)]
    data_digest: bool,
    /// Send the status of a read in a separate response PDU, not with the last data
    #[arg(long)]
    status_apart: bool,
    /// MaxRecvDataSegmentLength of both sides [default: 8KiB, as in RFC 7143]
    #[arg(long, value_name = "SIZE", value_parser = bytes_within(KEY_LENGTHS, "this key"))]
    segment: Option<u32>,
    /// InitialR2T [default: show all three kinds of writes]
    #[arg(long, value_name = "YES|NO", ignore_case = true)]
    initial_r2t: Option<YesNo>,
    /// ImmediateData [default: show all three kinds of writes]
    #[arg(long, value_name = "YES|NO", ignore_case = true)]
    immediate_data: Option<YesNo>,
    /// FirstBurstLength [default: 64KiB, as in RFC 7143]
    #[arg(long, value_name = "SIZE", value_parser = bytes_within(KEY_LENGTHS, "this key"))]
    first_burst: Option<u32>,
    /// MaxBurstLength [default: 256KiB, as in RFC 7143]
    #[arg(long, value_name = "SIZE", value_parser = bytes_within(KEY_LENGTHS, "this key"))]
    max_burst: Option<u32>,
    /// MaxOutstandingR2T [default: 1, as in RFC 7143]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    outstanding_r2ts: Option<u16>,
    /// Block sizes of requests
    #[arg(long, value_name = "SIZE,...", value_delimiter = ',', value_parser = bytes_within(1..=BLOCK_MAX, "the block size"),
          default_value = "512,4KiB,8KiB,64KiB,256KiB,1MiB")]
    block: Vec<u32>,
    /// Round-trip time, such as 50ms: show the window and queue depth that fill the link
    #[arg(long, value_name = "TIME", value_parser = round_trip)]
    rtt: Option<Duration>,
    /// TCP window: show the throughput that it allows at that round-trip time
    #[arg(long, value_name = "SIZE", requires = "rtt", value_parser = bytes_within(1..=WINDOW_MAX, "the TCP window"))]
    window: Option<u32>,
    /// Queue depth: show the throughput that it allows at that round-trip time
    #[arg(long, value_name = "N", requires = "rtt", value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    depth: Option<u32>,
    /// Number of TCP connections, each with the window
    #[arg(long, value_name = "N", requires = "window", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    connections: u16,
    /// Print JSON, in bytes, bits and seconds
    #[arg(long)]
    json: bool,
}

/// The value of a Boolean key of RFC 7143.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum YesNo {
    Yes,
    No,
}

/// The range of MTUs. Every IPv4 host accepts packets of 68 bytes (RFC 791), and the length field of a packet
/// has 16 bits.
const MTU: std::ops::RangeInclusive<i64> = 68..=65_535;
/// The minimum MTU for IPv6: every link carries packets of 1280 bytes (RFC 8200 section 5).
const IPV6_MTU_MIN: u32 = 1280;
/// The range of lengths in iSCSI keys (RFC 7143 section 13).
const KEY_LENGTHS: std::ops::RangeInclusive<u64> = 512..=(1 << 24) - 1;
const BLOCK_MAX: u64 = 1 << 30;
/// The maximum TCP window: 65,535 bytes, shifted by 14 bits (RFC 7323 section 2.3).
const WINDOW_MAX: u64 = 65_535 << 14;
/// The maximum round-trip time, which is longer than that of any real path: a round trip to the moon takes
/// 2.6 s.
const ROUND_TRIP_MAX: Duration = Duration::from_secs(60);

pub(crate) fn run(arguments: &LimitsArguments) -> Result<(), Failure> {
    let answer = arguments.answer()?;
    say(&if arguments.json {
        printed::json(&answer).map_err(Failure::failed)?
    } else {
        printed::terminal(&answer, width())
    });
    Ok(())
}

impl LimitsArguments {
    fn answer(&self) -> Result<LinkLimits, Failure> {
        if self.ipv6 && self.mtu < IPV6_MTU_MIN {
            return Err(Failure::refused(format_args!(
                "IPv6 needs an MTU of at least {IPV6_MTU_MIN} bytes, and --mtu is {}",
                self.mtu
            )));
        }
        let keys = self.keys()?;
        let link = Link {
            bits_per_s: self.link.bits_per_s(),
            mtu: self.mtu,
            timestamps: self.timestamps,
            vlan: self.vlan,
            ipv6: self.ipv6,
        };
        let distance = self.rtt.map(|rtt| Distance {
            round_trip_s: rtt.as_secs_f64(),
            window_bytes: self.window,
            depth: self.depth,
            connections: self.connections,
        });
        Ok(LinkLimits::calculate(
            link,
            keys,
            self.status_apart,
            &self.write_modes(keys),
            &self.block,
            distance,
        ))
    }

    fn keys(&self) -> Result<Keys, Failure> {
        let defaults = Keys::default();
        let max_burst_bytes = self.max_burst.unwrap_or(defaults.max_burst_bytes);
        // Adapt defaults to the given values.
        let first_burst_bytes = self
            .first_burst
            .unwrap_or(defaults.first_burst_bytes.min(max_burst_bytes));
        if first_burst_bytes > max_burst_bytes {
            return Err(Failure::refused(format_args!(
                "a FirstBurstLength of {} exceeds the MaxBurstLength of {}, which RFC 7143 forbids",
                Bytes(first_burst_bytes.into()),
                Bytes(max_burst_bytes.into())
            )));
        }
        let segment = self.segment.unwrap_or(defaults.target_segment_bytes);
        let is = |said: Option<YesNo>, default| said.map_or(default, |said| said == YesNo::Yes);
        Ok(Keys {
            immediate_data: is(self.immediate_data, defaults.immediate_data),
            initial_r2t: is(self.initial_r2t, defaults.initial_r2t),
            first_burst_bytes,
            max_burst_bytes,
            outstanding_r2ts: self.outstanding_r2ts.unwrap_or(defaults.outstanding_r2ts),
            target_segment_bytes: segment,
            initiator_segment_bytes: segment,
            header_digest: self.header_digest,
            data_digest: self.data_digest,
        })
    }

    fn write_modes(&self, keys: Keys) -> Vec<WriteMode> {
        match (self.initial_r2t, self.immediate_data) {
            (None, None) => WriteMode::all(keys),
            _ => vec![WriteMode {
                name: "writes",
                keys,
            }],
        }
    }
}

fn bytes_within(
    range: std::ops::RangeInclusive<u64>,
    what: &'static str,
) -> impl Fn(&str) -> Result<u32, String> + Clone {
    move |text| {
        let bytes: Bytes = text.parse().map_err(|why: NotAValue| why.to_string())?;
        let fits = Some(bytes.0).filter(|bytes| range.contains(bytes));
        fits.and_then(|bytes| u32::try_from(bytes).ok())
            .ok_or_else(|| {
                format!(
                    "{what} ranges from {} to {}",
                    Bytes(*range.start()),
                    Bytes(*range.end())
                )
            })
    }
}

fn round_trip(text: &str) -> Result<Duration, String> {
    let Time(time) = text.parse().map_err(|why: NotAValue| why.to_string())?;
    match time <= ROUND_TRIP_MAX {
        true => Ok(time),
        false => Err(format!(
            "the round-trip time must be at most {}",
            Time(ROUND_TRIP_MAX)
        )),
    }
}
