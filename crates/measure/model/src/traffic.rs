//! Traffic of a command: bytes of TCP payload in each direction.

use super::{Direction, Keys};

/// TCP payload of one command, PDU headers, digests and padding included, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// From the initiator.
    pub to_target: u64,
    /// From the target.
    pub to_initiator: u64,
}

/// A basic header segment (RFC 7143 section 11.2.1).
const BHS_BYTES: u64 = 48;
/// A CRC32C (section 13.1).
const DIGEST_BYTES: u64 = 4;
/// Data segments end at a multiple of this (section 11.2.3).
const PADDED_TO_BYTES: u32 = 4;

impl Traffic {
    /// The traffic of a read or write of `block_bytes`. The status of a read comes with its last data
    /// (section 11.7.3), as fast targets do; see [`Traffic::with_status_apart`] for others.
    pub fn of_request(direction: Direction, block_bytes: u32, keys: &Keys) -> Traffic {
        match direction {
            Direction::Read => Traffic {
                to_target: header(keys),
                to_initiator: bursts(block_bytes, keys.max_burst_bytes)
                    .map(|(burst, times)| times * pdus(burst, keys.initiator_segment_bytes, keys))
                    .sum(),
            },
            Direction::Write => write(block_bytes, keys),
        }
    }

    /// The same with a response PDU of its own.
    pub fn with_status_apart(self, keys: &Keys) -> Traffic {
        Traffic { to_initiator: self.to_initiator + header(keys), ..self }
    }

    /// Both at once.
    pub fn and(self, other: Traffic) -> Traffic {
        Traffic {
            to_target: self.to_target + other.to_target,
            to_initiator: self.to_initiator + other.to_initiator,
        }
    }

    /// The direction that has more to carry.
    pub fn more(self) -> u64 {
        self.to_target.max(self.to_initiator)
    }

    /// The direction that has less to carry.
    pub fn less(self) -> u64 {
        self.to_target.min(self.to_initiator)
    }
}

fn write(block_bytes: u32, keys: &Keys) -> Traffic {
    let immediate = keys.immediate_bytes(block_bytes);
    let unasked = keys.unasked_bytes(block_bytes);
    let command = header(keys) + data(immediate, keys);
    let unsolicited = pdus(unasked - immediate, keys.target_segment_bytes, keys);
    let solicited: u64 = bursts(block_bytes - unasked, keys.max_burst_bytes)
        .map(|(burst, times)| times * pdus(burst, keys.target_segment_bytes, keys))
        .sum();
    let r2ts = u64::from(keys.r2ts(block_bytes));
    Traffic { to_target: command + unsolicited + solicited, to_initiator: (r2ts + 1) * header(keys) }
}

/// Data in bursts: so many full ones, and one with the rest. A PDU never holds data of two.
fn bursts(bytes: u32, burst_bytes: u32) -> impl Iterator<Item = (u32, u64)> {
    let burst_bytes = burst_bytes.max(1);
    let rest = bytes % burst_bytes;
    [(burst_bytes, u64::from(bytes / burst_bytes)), (rest, u64::from(rest > 0))]
        .into_iter()
        .filter(|(_, times)| *times > 0)
}

/// Data in PDUs of at most so many bytes each.
fn pdus(bytes: u32, segment_bytes: u32, keys: &Keys) -> u64 {
    let segment_bytes = segment_bytes.max(1);
    let rest = bytes % segment_bytes;
    let full = u64::from(bytes / segment_bytes) * (header(keys) + data(segment_bytes, keys));
    full + if rest > 0 { header(keys) + data(rest, keys) } else { 0 }
}

fn header(keys: &Keys) -> u64 {
    BHS_BYTES + if keys.header_digest { DIGEST_BYTES } else { 0 }
}

/// A data segment with its padding and digest; a PDU without data has neither.
fn data(bytes: u32, keys: &Keys) -> u64 {
    let digest = if keys.data_digest && bytes > 0 { DIGEST_BYTES } else { 0 };
    u64::from(bytes).next_multiple_of(u64::from(PADDED_TO_BYTES)) + digest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_is_a_command_and_its_data() {
        let keys = Keys::default();
        let read = Traffic::of_request(Direction::Read, 65_536, &keys);
        assert_eq!(read, Traffic { to_target: 48, to_initiator: 65_536 + 8 * 48 });
        assert_eq!(read.with_status_apart(&keys).to_initiator, 65_536 + 9 * 48);
        // A PDU ends where a burst ends: 20 KiB in bursts of 12 and PDUs of 8 are 8 + 4 + 8.
        let keys = Keys { max_burst_bytes: 12 << 10, ..keys };
        assert_eq!(Traffic::of_request(Direction::Read, 20 << 10, &keys).to_initiator, (20 << 10) + 3 * 48);
    }

    #[test]
    fn a_write_begins_in_its_command_and_goes_on_when_it_is_asked_to() {
        let keys = Keys::default();
        let short = Traffic::of_request(Direction::Write, 4096, &keys);
        assert_eq!(short, Traffic { to_target: 48 + 4096, to_initiator: 48 });
        // 8 KiB in the command, then 7 Data-Outs for one R2T.
        let long = Traffic::of_request(Direction::Write, 65_536, &keys);
        assert_eq!(long, Traffic { to_target: 65_536 + 8 * 48, to_initiator: 2 * 48 });
        let solicited = Keys { immediate_data: false, max_burst_bytes: 8192, ..keys };
        let long = Traffic::of_request(Direction::Write, 65_536, &solicited);
        assert_eq!(long, Traffic { to_target: 65_536 + 9 * 48, to_initiator: 9 * 48 });
    }

    #[test]
    fn digests_and_padding_are_counted_where_they_are() {
        let keys = Keys { header_digest: true, data_digest: true, ..Keys::default() };
        let read = Traffic::of_request(Direction::Read, 510, &keys);
        assert_eq!(read, Traffic { to_target: 52, to_initiator: 52 + 512 + 4 });
        let write = Traffic::of_request(Direction::Write, 16_384, &keys);
        assert_eq!(write, Traffic { to_target: 16_384 + 2 * (52 + 4), to_initiator: 2 * 52 });
    }

    #[test]
    fn what_nobody_can_agree_on_is_counted_without_a_panic() {
        let keys = Keys {
            max_burst_bytes: 0,
            target_segment_bytes: 0,
            initiator_segment_bytes: 0,
            ..Keys::default()
        };
        assert!(Traffic::of_request(Direction::Write, u32::MAX, &keys).to_target > u64::from(u32::MAX));
        assert!(Traffic::of_request(Direction::Read, u32::MAX, &keys).to_initiator > u64::from(u32::MAX));
        assert_eq!(Traffic::of_request(Direction::Read, 0, &keys).to_initiator, 0);
    }
}
