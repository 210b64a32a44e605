//! `[target.session]`: what a target offers and accepts at login (RFC 7143 section 13). The results are
//! negotiated by the rules of the standard: the minimum of two numbers, and OR or AND of Booleans.

use std::str::FromStr;

use iscsi::negotiate::{DigestKind, Offers};

use crate::config::Section;
use crate::config::{Unfit, one_of};
use volume::spec::Bytes;

/// A digest by the name it has in the file.
struct Named(DigestKind);

const DIGESTS: &[(&str, DigestKind)] = &[("none", DigestKind::None), ("crc32c", DigestKind::Crc32c)];

impl FromStr for Named {
    type Err = Unfit;

    fn from_str(text: &str) -> Result<Named, Unfit> {
        one_of("digest", text, DIGESTS).map(Named)
    }
}

/// 512 to 2^24 - 1: the lengths that the standard allows for segments and bursts alike (sections 13.12 to
/// 13.14).
const LENGTHS: std::ops::RangeInclusive<u64> = 512..=0xff_ffff;

/// Reads the section; keys left out have the target's defaults.
pub(super) fn read(section: &Section<'_>) -> Offers {
    let usual = Offers::of_target();
    let max_burst_length = length(section, "max-burst").unwrap_or(usual.max_burst_length);
    let offers = Offers {
        initial_r2t: section.flag("initial-r2t").unwrap_or(usual.initial_r2t),
        immediate_data: section.flag("immediate-data").unwrap_or(usual.immediate_data),
        max_burst_length,
        first_burst_length: first_burst(section, max_burst_length)
            .unwrap_or(usual.first_burst_length.min(max_burst_length)),
        max_recv_data_segment_length: length(section, "max-segment")
            .unwrap_or(usual.max_recv_data_segment_length),
        max_outstanding_r2t: section
            .count("max-outstanding-r2t", 1..=65_535)
            .map_or(usual.max_outstanding_r2t, |count| count.value as u16),
        header_digest: digests(section, "header-digest").unwrap_or(usual.header_digest),
        data_digest: digests(section, "data-digest").unwrap_or(usual.data_digest),
        ..Offers::of_target()
    };
    section.done();
    offers
}

fn length(section: &Section<'_>, key: &'static str) -> Option<u32> {
    let bytes = section.parsed::<Bytes>(key)?;
    if LENGTHS.contains(&bytes.value.0) {
        return Some(bytes.value.0 as u32);
    }
    let sentence = format!("`{key}`: {} is out of range; write 512B to 16777215B", bytes.value);
    section.mistakes.add(bytes.at, sentence);
    None
}

/// "FirstBurstLength MUST NOT exceed MaxBurstLength" (section 13.14).
fn first_burst(section: &Section<'_>, max_burst: u32) -> Option<u32> {
    let first = length(section, "first-burst")?;
    if first <= max_burst {
        return Some(first);
    }
    let sentence = format!(
        "`first-burst` is more than `max-burst`, {}; no initiator may send so much unasked",
        Bytes(max_burst.into())
    );
    section.mistakes.add(section.placed("first-burst"), sentence);
    None
}

/// The digests that a login may end with.
fn digests(section: &Section<'_>, key: &'static str) -> Option<Vec<DigestKind>> {
    Some(section.list::<Named>(key)?.into_iter().map(|Named(digest)| digest).collect())
}
