//! The layout of a set: the location of its blocks on its members.
//!
//! A *strip* is a range of consecutive blocks on one member. A *stripe* consists of strips that depend on
//! each other: the strips of one row in RAID 5 and 6, and the copies of one strip in RAID 0, 1 and 10. All
//! strips of a set have the same size.
//!
//! ```text
//!   RAID 5, 4 members (left-symmetric)     RAID 10, 4 members        RAID 10, 3 members
//!     0   1   2   P                          0   0   1   1             0   0   1
//!     4   5   P   3                          2   2   3   3             1   2   2
//!     8   P   6   7                          4   4   5   5             3   3   4
//!     P   9  10  11
//! ```
//!
//! RAID 6 is like RAID 5, with Q after P. Both have the layout that Linux calls left-symmetric; RAID 10 has
//! Linux's layout `near=2`. RAID 0 has one copy of each strip, and RAID 1 has a copy on each member.

use block::{BlockSize, Blocks, Extent};
use derive_more::{Display, Error};

/// Maximum number of members of a set, because Q has 255 different factors.
pub const MEMBERS_MAX: usize = 255;
/// Minimum length of a strip: a page.
const STRIP_BYTES_MIN: u64 = 4 << 10;
/// Maximum length of a strip.
const STRIP_BYTES_MAX: u64 = 1 << 20;

/// The redundancy scheme of a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Display)]
pub enum Level {
    /// Striped, without redundancy.
    #[display("RAID 0")]
    Raid0,
    /// A copy on each member.
    #[display("RAID 1")]
    Raid1,
    /// One strip of each stripe is parity, so the set survives the failure of one member.
    #[display("RAID 5")]
    Raid5,
    /// Two strips of each stripe are parity, so the set survives the failure of any two members.
    #[display("RAID 6")]
    Raid6,
    /// Striped, with two copies of each strip on adjacent members.
    #[display("RAID 10")]
    Raid10,
}

impl Level {
    /// Returns the minimum number of members.
    pub fn members_min(self) -> usize {
        match self {
            Level::Raid0 | Level::Raid1 | Level::Raid10 => 2,
            Level::Raid5 => 3,
            Level::Raid6 => 4,
        }
    }

    /// Returns the number of parity strips in a stripe.
    pub fn parity_strips(self) -> usize {
        match self {
            Level::Raid0 | Level::Raid1 | Level::Raid10 => 0,
            Level::Raid5 => 1,
            Level::Raid6 => 2,
        }
    }
}

/// The reason why a layout is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display, Error)]
pub enum BadLayout {
    /// Too few members.
    #[display("{level} needs at least {} members, but {members} were given", level.members_min())]
    TooFewMembers {
        /// The level.
        level: Level,
        /// The number of members that was given.
        members: usize,
    },
    /// Too many members.
    #[display("a set has at most {MEMBERS_MAX} members, but {members} were given")]
    TooManyMembers {
        /// The number of members that was given.
        members: usize,
    },
    /// The strip size is not a power of two from 4 KiB to 1 MiB.
    #[display(
        "a strip length of {bytes} bytes is not valid; use a power of two from 4096 to 1048576"
    )]
    StripSize {
        /// The size that was given.
        bytes: u64,
    },
    /// A strip is shorter than a block.
    #[display(
        "a strip of {strip_bytes} bytes is shorter than a block of the members ({block_bytes} bytes)"
    )]
    StripShorterThanBlock {
        /// The size that was given.
        strip_bytes: u64,
        /// The members' block size.
        block_bytes: u32,
    },
    /// The smallest member has no space for a strip.
    #[display(
        "the smallest member has {bytes} bytes for data, which is less than one strip of {strip_bytes}"
    )]
    MemberTooSmall {
        /// Bytes for data on the smallest member.
        bytes: u64,
        /// The strip size.
        strip_bytes: u64,
    },
    /// The set would have more blocks than can be addressed.
    #[display("the set would have more than 2^63 bytes")]
    TooLarge,
}

/// The layout of a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    level: Level,
    members: usize,
    block_size: BlockSize,
    /// Number of blocks in a strip.
    strip: u64,
    /// Number of strips of a member.
    rows: u64,
}

/// The location of a strip.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Strip {
    /// The index of the member.
    pub member: usize,
    /// The member's block at which the strip starts.
    pub lba: u64,
}

/// The part of a request that lies in one data strip of a stripe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The stripe.
    pub stripe: u64,
    /// The index of the data strip in the stripe, which is always 0 without parity.
    pub strip: usize,
    /// The first block, counted from the start of the strip.
    pub column: u64,
    /// Number of blocks.
    pub blocks: u64,
    /// The position of the piece in the request, in blocks.
    pub offset: u64,
}

impl Layout {
    /// Creates the layout of a set of `members`, the smallest of which has `member_blocks` blocks for data.
    pub fn new(
        level: Level,
        members: usize,
        strip_bytes: u64,
        block_size: BlockSize,
        member_blocks: Blocks,
    ) -> Result<Layout, BadLayout> {
        if members < level.members_min() {
            return Err(BadLayout::TooFewMembers { level, members });
        }
        if members > MEMBERS_MAX {
            return Err(BadLayout::TooManyMembers { members });
        }
        if !strip_bytes.is_power_of_two()
            || !(STRIP_BYTES_MIN..=STRIP_BYTES_MAX).contains(&strip_bytes)
        {
            return Err(BadLayout::StripSize { bytes: strip_bytes });
        }
        let strip = strip_bytes >> block_size.shift();
        if strip == 0 {
            return Err(BadLayout::StripShorterThanBlock {
                strip_bytes,
                block_bytes: block_size.bytes(),
            });
        }
        let rows = member_blocks.0 / strip;
        if rows == 0 {
            let bytes = member_blocks.0 << block_size.shift();
            return Err(BadLayout::MemberTooSmall { bytes, strip_bytes });
        }
        // Every address below is then at most the total size of all members in bytes, which fits.
        let all = u128::from(rows) * u128::from(strip_bytes) * members as u128;
        if all > 1 << 63 {
            return Err(BadLayout::TooLarge);
        }
        Ok(Layout {
            level,
            members,
            block_size,
            strip,
            rows,
        })
    }

    /// Returns the level.
    pub fn level(&self) -> Level {
        self.level
    }

    /// Returns the number of members.
    pub fn members(&self) -> usize {
        self.members
    }

    /// Returns the block size of the set and of its members.
    pub fn block_size(&self) -> BlockSize {
        self.block_size
    }

    /// Returns the number of blocks in a strip.
    pub fn strip_blocks(&self) -> u64 {
        self.strip
    }

    /// Whether stripes have parity (RAID 5 and 6).
    pub fn has_parity(&self) -> bool {
        self.level.parity_strips() > 0
    }

    /// Returns the number of data strips in a stripe, which is 1 without parity.
    pub fn data_strips(&self) -> usize {
        if self.has_parity() {
            self.members - self.level.parity_strips()
        } else {
            1
        }
    }

    /// Returns the number of strips in a stripe: the data strips, then P, then Q; or the copies.
    pub fn strips(&self) -> usize {
        match self.level {
            Level::Raid0 => 1,
            Level::Raid10 => 2,
            Level::Raid1 | Level::Raid5 | Level::Raid6 => self.members,
        }
    }

    /// Returns the number of stripes.
    pub fn stripes(&self) -> u64 {
        if self.has_parity() {
            self.rows
        } else {
            self.rows * self.members as u64 / self.strips() as u64
        }
    }

    /// Returns the number of data blocks in a stripe.
    pub fn stripe_blocks(&self) -> u64 {
        self.strip * self.data_strips() as u64
    }

    /// Returns the capacity of the set.
    pub fn blocks(&self) -> Blocks {
        Blocks(self.stripes() * self.stripe_blocks())
    }

    /// Returns the number of blocks for data that every member must have.
    pub fn member_blocks(&self) -> Blocks {
        Blocks(self.rows * self.strip)
    }

    /// Returns the same layout with `rows` strips per member.
    pub(crate) fn with_rows(self, rows: u64) -> Layout {
        Layout { rows, ..self }
    }

    pub(crate) fn rows(&self) -> u64 {
        self.rows
    }

    /// Returns the first block of a member after its last strip in use.
    pub fn free_from(&self, member: usize) -> u64 {
        let (used, members) = (self.stripes() * self.strips() as u64, self.members as u64);
        let row = match self.has_parity() {
            true => self.rows,
            false => used / members + u64::from((member as u64) < used % members),
        };
        row * self.strip
    }

    /// Returns the blocks of the set that are in this stripe.
    pub fn stripe_extent(&self, stripe: u64) -> Extent {
        Extent::new(stripe * self.stripe_blocks(), self.stripe_blocks())
    }

    /// Returns the location of a stripe's strip with this index, in the order of [`Layout::strips`].
    pub fn strip(&self, stripe: u64, strip: usize) -> Strip {
        debug_assert!(strip < self.strips(), "a strip of the stripe");
        let members = self.members as u64;
        if !self.has_parity() {
            let position = stripe * self.strips() as u64 + strip as u64;
            return Strip {
                member: (position % members) as usize,
                lba: position / members * self.strip,
            };
        }
        let p = members - 1 - stripe % members;
        // Positions from the member with P on: P, Q, then the data strips.
        let parity = self.level.parity_strips();
        let data = self.data_strips();
        let from_p = if strip < data {
            strip + parity
        } else {
            strip - data
        };
        Strip {
            member: ((p + from_p as u64) % members) as usize,
            lba: stripe * self.strip,
        }
    }

    /// Returns the index of the strip that a member has in a stripe, if it has one.
    pub fn strip_of(&self, stripe: u64, member: usize) -> Option<usize> {
        debug_assert!(member < self.members);
        (0..self.strips()).find(|strip| self.strip(stripe, *strip).member == member)
    }

    /// Returns the pieces of `extent`, which must lie within the set, in order.
    pub fn pieces(&self, extent: Extent) -> impl Iterator<Item = Piece> + use<> {
        let (strip, data) = (self.strip, self.data_strips() as u64);
        debug_assert!(
            extent.lba.0.checked_add(extent.blocks.0).is_some(),
            "an extent of the set"
        );
        let head = (strip - extent.lba.0 % strip).min(extent.blocks.0);
        let rest = Extent::new(extent.lba.0 + head, extent.blocks.0 - head);
        let parts = (head > 0)
            .then_some(Extent::new(extent.lba.0, head))
            .into_iter()
            .chain(rest.chunks(strip));
        parts.map(move |part| Piece {
            stripe: part.lba.0 / strip / data,
            strip: (part.lba.0 / strip % data) as usize,
            column: part.lba.0 % strip,
            blocks: part.blocks.0,
            offset: part.lba.0 - extent.lba.0,
        })
    }

    /// Whether all data survives without these members.
    pub fn survives(&self, lacking: &[bool]) -> bool {
        let lacks = |member: usize| lacking.get(member).copied().unwrap_or(true);
        if self.has_parity() {
            return (0..self.members).filter(|member| lacks(*member)).count()
                <= self.level.parity_strips();
        }
        // The placement of copies repeats after as many stripes as there are members.
        (0..self.members as u64)
            .all(|stripe| (0..self.strips()).any(|copy| !lacks(self.strip(stripe, copy).member)))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn layout(level: Level, members: usize, rows: u64) -> Layout {
        Layout::new(level, members, 4096, BlockSize::B512, Blocks(rows * 8)).expect("a layout")
    }

    /// Draws the members' strips as in the module's comment: numbers for data, letters for parity.
    fn drawn(layout: Layout, rows: u64) -> String {
        let mut table = vec![vec![String::new(); layout.members()]; rows as usize];
        for stripe in 0..layout.stripes() {
            for strip in 0..layout.strips() {
                let place = layout.strip(stripe, strip);
                let data = layout.data_strips();
                let name = match strip {
                    _ if !layout.has_parity() => stripe.to_string(),
                    strip if strip < data => (stripe as usize * data + strip).to_string(),
                    strip => ["P", "Q"][strip - data].to_owned(),
                };
                table[(place.lba / layout.strip_blocks()) as usize][place.member] = name;
            }
        }
        table
            .into_iter()
            .map(|row| row.join(" "))
            .collect::<Vec<_>>()
            .join("\n")
    }

    #[test]
    fn strips_lie_as_in_linux() {
        assert_eq!(
            drawn(layout(Level::Raid5, 4, 4), 4),
            "0 1 2 P\n4 5 P 3\n8 P 6 7\nP 9 10 11"
        );
        assert_eq!(
            drawn(layout(Level::Raid6, 4, 4), 4),
            "Q 0 1 P\n2 3 P Q\n5 P Q 4\nP Q 6 7"
        );
        assert_eq!(drawn(layout(Level::Raid10, 4, 2), 2), "0 0 1 1\n2 2 3 3");
        assert_eq!(drawn(layout(Level::Raid10, 3, 3), 3), "0 0 1\n1 2 2\n3 3 ");
        assert_eq!(drawn(layout(Level::Raid1, 3, 2), 2), "0 0 0\n1 1 1");
        assert_eq!(drawn(layout(Level::Raid0, 3, 2), 2), "0 1 2\n3 4 5");
    }

    #[test]
    fn what_is_impossible_is_refused_with_a_sentence() {
        let refusal = |level, members, strip, blocks| {
            Layout::new(level, members, strip, BlockSize::B512, Blocks(blocks))
                .expect_err("refused")
                .to_string()
        };
        assert_eq!(
            refusal(Level::Raid6, 3, 4096, 800),
            "RAID 6 needs at least 4 members, but 3 were given"
        );
        assert!(refusal(Level::Raid0, 256, 4096, 800).contains("at most 255 members"));
        for strip in [0, 2048, 12_288, 2 << 20] {
            assert!(
                refusal(Level::Raid5, 3, strip, 8000).contains("power of two"),
                "{strip}"
            );
        }
        assert!(refusal(Level::Raid5, 3, 65_536, 100).contains("less than one strip of 65536"));
        assert!(refusal(Level::Raid0, 2, 4096, u64::MAX / 1024).contains("2^63"));
        let block = BlockSize::new(65_536).expect("a size");
        let refused = Layout::new(Level::Raid5, 3, 4096, block, Blocks(8)).expect_err("refused");
        assert!(refused.to_string().contains("shorter than a block"));
    }

    #[test]
    fn a_set_survives_what_its_level_promises() {
        let survives = |level, members, lacking: &[usize]| {
            let flags: Vec<bool> = (0..members)
                .map(|member| lacking.contains(&member))
                .collect();
            layout(level, members, 8).survives(&flags)
        };
        assert!(survives(Level::Raid5, 5, &[2]) && !survives(Level::Raid5, 5, &[2, 4]));
        assert!(survives(Level::Raid6, 5, &[2, 4]) && !survives(Level::Raid6, 5, &[0, 2, 4]));
        assert!(survives(Level::Raid1, 3, &[0, 2]) && !survives(Level::Raid1, 3, &[0, 1, 2]));
        assert!(survives(Level::Raid10, 4, &[0, 3]) && !survives(Level::Raid10, 4, &[2, 3]));
        assert!(survives(Level::Raid10, 4, &[1, 2]) && !survives(Level::Raid10, 3, &[1, 2]));
        assert!(!survives(Level::Raid10, 3, &[0, 2]) && !survives(Level::Raid0, 2, &[1]));
    }

    fn any_layout() -> impl Strategy<Value = Layout> {
        let levels = [
            Level::Raid0,
            Level::Raid1,
            Level::Raid5,
            Level::Raid6,
            Level::Raid10,
        ];
        (
            proptest::sample::select(levels.to_vec()),
            4..9usize,
            1..9u64,
        )
            .prop_map(|(level, members, rows)| layout(level, members, rows))
    }

    proptest! {
        #[test]
        fn every_strip_of_a_member_is_used_at_most_once(layout in any_layout()) {
            let mut used = std::collections::BTreeSet::new();
            for stripe in 0..layout.stripes() {
                for strip in 0..layout.strips() {
                    let place = layout.strip(stripe, strip);
                    prop_assert!(place.lba + layout.strip_blocks() <= layout.member_blocks().0);
                    prop_assert!(used.insert((place.member, place.lba)));
                    prop_assert_eq!(layout.strip_of(stripe, place.member), Some(strip));
                }
            }
        }

        #[test]
        fn pieces_cover_the_extent_in_order(layout in any_layout(), start in 0..1000u64, length in 0..1000u64) {
            let blocks = layout.blocks().0;
            let start = start % blocks;
            let extent = Extent::new(start, length.min(blocks - start));
            let mut next = extent.lba.0;
            for piece in layout.pieces(extent) {
                prop_assert_eq!(extent.lba.0 + piece.offset, next);
                let strip_start = piece.stripe * layout.stripe_blocks() + piece.strip as u64 * layout.strip_blocks();
                prop_assert_eq!(strip_start + piece.column, next);
                prop_assert!(piece.blocks > 0 && piece.column + piece.blocks <= layout.strip_blocks());
                next += piece.blocks;
            }
            prop_assert_eq!(Some(block::Lba(next)), extent.end());
        }
    }
}
