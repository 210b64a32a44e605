//! The negotiated keys that determine how often a command waits for a round trip.

use serde::{Deserialize, Serialize};

use super::Direction;

/// Keys of a session (RFC 7143 section 13), as negotiated or as offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Keys {
    /// ImmediateData: a write's first data travel with the command.
    pub immediate_data: bool,
    /// InitialR2T: even a write's first data, but the immediate ones, wait to be asked for.
    pub initial_r2t: bool,
    /// FirstBurstLength, in bytes: what is sent of a write unasked.
    pub first_burst_bytes: u32,
    /// MaxBurstLength, in bytes: what one R2T asks for at most.
    pub max_burst_bytes: u32,
    /// MaxOutstandingR2T: R2Ts of one command at once.
    pub outstanding_r2ts: u16,
    /// The target's MaxRecvDataSegmentLength, in bytes: the longest PDU of a write.
    pub target_segment_bytes: u32,
    /// The initiator's MaxRecvDataSegmentLength, in bytes: the longest PDU of a read.
    pub initiator_segment_bytes: u32,
    /// HeaderDigest=CRC32C.
    pub header_digest: bool,
    /// DataDigest=CRC32C.
    pub data_digest: bool,
}

impl Default for Keys {
    /// The defaults without negotiation (RFC 7143 section 13).
    fn default() -> Keys {
        Keys {
            immediate_data: true,
            initial_r2t: true,
            first_burst_bytes: 65_536,
            max_burst_bytes: 262_144,
            outstanding_r2ts: 1,
            target_segment_bytes: 8192,
            initiator_segment_bytes: 8192,
            header_digest: false,
            data_digest: false,
        }
    }
}

impl Keys {
    /// What travels within the command PDU of a write of so many bytes.
    pub fn immediate_bytes(&self, block_bytes: u32) -> u32 {
        match self.immediate_data {
            true => block_bytes.min(self.first_burst_bytes).min(self.target_segment_bytes),
            false => 0,
        }
    }

    /// What is sent of a write of so many bytes before the target asks for anything: with InitialR2T=Yes no
    /// more than the command PDU holds.
    pub fn unasked_bytes(&self, block_bytes: u32) -> u32 {
        match self.initial_r2t {
            true => self.immediate_bytes(block_bytes),
            false => block_bytes.min(self.first_burst_bytes),
        }
    }

    /// R2Ts for a write of so many bytes. A target that asks for less than it might at a time sends more.
    pub fn r2ts(&self, block_bytes: u32) -> u32 {
        let asked_for = block_bytes - self.unasked_bytes(block_bytes);
        asked_for.div_ceil(self.max_burst_bytes.max(1))
    }

    /// How often there is a wait for the other side in a command of so many bytes: once for its answer, and
    /// for a write once more for as many R2Ts as may be outstanding.
    pub fn exchanges(&self, direction: Direction, block_bytes: u32) -> u32 {
        match direction {
            Direction::Read => 1,
            Direction::Write => 1 + self.r2ts(block_bytes).div_ceil(u32::from(self.outstanding_r2ts).max(1)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: u32 = 1024;

    #[test]
    fn a_write_waits_for_what_it_may_not_send_unasked() {
        let solicited = Keys { immediate_data: false, ..Keys::default() };
        let immediate = Keys::default();
        let unsolicited = Keys { initial_r2t: false, ..Keys::default() };
        let exchanges = |keys: Keys| [4, 8, 64, 256].map(|kib| keys.exchanges(Direction::Write, kib * KIB));
        assert_eq!(exchanges(solicited), [2, 2, 2, 2]);
        assert_eq!(exchanges(immediate), [1, 1, 2, 2]);
        assert_eq!(exchanges(unsolicited), [1, 1, 1, 2]);
        assert_eq!(unsolicited.exchanges(Direction::Read, 1 << 20), 1);
    }

    #[test]
    fn immediate_data_fit_into_the_targets_pdu_and_the_first_burst() {
        let keys = Keys { target_segment_bytes: 4096, first_burst_bytes: 2048, ..Keys::default() };
        assert_eq!(keys.immediate_bytes(512), 512);
        assert_eq!(keys.immediate_bytes(65_536), 2048);
        let keys = Keys { first_burst_bytes: 65_536, ..keys };
        assert_eq!(keys.immediate_bytes(65_536), 4096);
    }

    #[test]
    fn several_r2ts_at_once_are_one_wait() {
        let keys = Keys { max_burst_bytes: 8192, immediate_data: false, ..Keys::default() };
        assert_eq!(keys.exchanges(Direction::Write, 65_536), 9);
        let keys = Keys { outstanding_r2ts: 4, ..keys };
        assert_eq!((keys.r2ts(65_536), keys.exchanges(Direction::Write, 65_536)), (8, 3));
        // These cannot be negotiated, and do not panic either.
        let nonsense = Keys { max_burst_bytes: 0, outstanding_r2ts: 0, ..keys };
        assert_eq!(nonsense.exchanges(Direction::Write, 512), 513);
    }
}
