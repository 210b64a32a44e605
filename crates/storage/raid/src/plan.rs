//! Plans the reads before a write to a stripe with parity, and computes the new parity. This module does no
//! I/O.
//!
//! A write of adjacent blocks covers different strips in different columns. So its columns are divided into
//! at most three segments. In all columns of a segment, the same strips are written:
//!
//! ```text
//!              strip 0   strip 1   strip 2   written
//!   columns 0            xxxxxxx   xxxxxxx     1, 2         a write from the middle of strip 0 to
//!           2  xxxxxxx   xxxxxxx   xxxxxxx     all          the beginning of strip 2
//!           3  xxxxxxx   xxxxxxx               0, 1
//! ```
//!
//! For each segment, the plan uses the cheapest method that the missing strips permit: no reads (if all data
//! is new), reconstruct-write (the other data is read), read-modify-write (the old data and parity are read),
//! or reconstruction of missing strips from all other strips.

use std::ops::Range;

use block::Buffer;

use crate::parity::{add_to_q, recover_data_and_data, recover_data_by_q, syndromes, xor_into};

/// Columns of a stripe in which the same data strips are written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    /// The columns, in blocks from the start of each strip.
    pub(crate) columns: Range<u64>,
    /// The data strips that are written, in order.
    pub(crate) written: Vec<usize>,
}

/// Returns the segments of some writes, whose blocks are counted from the start of the stripe's data. The
/// ranges must not be empty, overlap or be adjacent, so that each strip of a segment belongs to one write.
pub(crate) fn segments(writes: &[Range<u64>], strip: u64, data: usize) -> Vec<Segment> {
    debug_assert!(
        writes
            .iter()
            .all(|blocks| !blocks.is_empty() && blocks.end <= strip * data as u64)
    );
    let ends = writes
        .iter()
        .flat_map(|blocks| [blocks.start % strip, (blocks.end - 1) % strip + 1]);
    let mut cuts: Vec<u64> = ends.chain([0, strip]).collect();
    cuts.sort_unstable();
    let mut segments: Vec<Segment> = Vec::new();
    for columns in cuts
        .windows(2)
        .map(|cut| cut[0]..cut[1])
        .filter(|columns| !columns.is_empty())
    {
        let is_written = |index: &usize| {
            let block = *index as u64 * strip + columns.start;
            writes.iter().any(|blocks| blocks.contains(&block))
        };
        let written: Vec<usize> = (0..data).filter(is_written).collect();
        match segments.last_mut() {
            Some(last) if last.columns.end == columns.start && last.written == written => {
                last.columns.end = columns.end;
            }
            _ if written.is_empty() => {}
            _ => segments.push(Segment { columns, written }),
        }
    }
    segments
}

/// The method for computing parity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Method {
    /// Computes parity from all data of the stripe, new and old.
    Reconstruct,
    /// Computes parity from the old parity and the change of the data.
    Modify,
}

/// The reads needed before parity can be computed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) method: Method,
    /// The strips to read, as indices in the order data, P, Q.
    pub(crate) reads: Vec<usize>,
}

/// The strips of a stripe with parity, some of which may be missing.
#[derive(Clone, Debug)]
pub(crate) struct Stripe {
    /// Number of data strips.
    pub(crate) data: usize,
    /// For each strip, whether a member has it. Only such strips are written.
    pub(crate) held: Vec<bool>,
    /// For each strip, whether it can be read. Only strips that are held can be readable.
    pub(crate) readable: Vec<bool>,
}

impl Stripe {
    /// Returns the cheapest plan for a write to the data strips `written`; `None` if too many strips are
    /// missing. If parity may be wrong, it is recomputed instead of modified where possible.
    pub(crate) fn write(&self, written: &[usize], parity_is_right: bool) -> Option<Plan> {
        self.debug_check();
        debug_assert!(
            written.iter().all(|strip| *strip < self.data),
            "only data is written"
        );
        let others = || (0..self.data).filter(|strip| !written.contains(strip));
        let parity = || (self.data..self.held.len()).filter(|strip| self.held[*strip]);
        let reconstruct: Vec<usize> = others().collect();
        let modify: Vec<usize> = if parity().next().is_none() {
            Vec::new() // no parity to update
        } else {
            written.iter().copied().chain(parity()).collect()
        };
        let possible = |reads: &[usize]| reads.iter().all(|strip| self.readable[*strip]);
        match (possible(&reconstruct), possible(&modify)) {
            (true, true)
                if modify.len() < reconstruct.len() && (parity_is_right || modify.is_empty()) =>
            {
                Some(Plan {
                    method: Method::Modify,
                    reads: modify,
                })
            }
            (true, _) => Some(Plan {
                method: Method::Reconstruct,
                reads: reconstruct,
            }),
            (false, true) => Some(Plan {
                method: Method::Modify,
                reads: modify,
            }),
            (false, false) => self.recovery().map(|reads| Plan {
                method: Method::Reconstruct,
                reads,
            }),
        }
    }

    fn debug_check(&self) {
        debug_assert!(self.data < self.held.len() && self.held.len() == self.readable.len());
        debug_assert!(
            self.held
                .iter()
                .zip(&self.readable)
                .all(|(held, readable)| *held || !readable)
        );
    }

    /// Returns the strips from which all data can be obtained; `None` if too many are missing.
    pub(crate) fn recovery(&self) -> Option<Vec<usize>> {
        self.debug_check();
        let readable = |strips: Range<usize>| strips.filter(|strip| self.readable[*strip]);
        let lacking = self.data - readable(0..self.data).count();
        let reads: Vec<usize> = readable(0..self.data)
            .chain(readable(self.data..self.held.len()).take(lacking))
            .collect();
        (reads.len() == self.data).then_some(reads)
    }
}

/// Reconstructs missing data strips from those that [`Stripe::recovery`] returns. `strips` contains the
/// strips of a stripe in the order data, P, Q, each with `length` bytes. If too many are missing, returns
/// false and changes nothing.
pub(crate) fn recover(strips: &mut [Option<Buffer>], data: usize, length: usize) -> bool {
    let lacking: Vec<usize> = (0..data).filter(|strip| strips[*strip].is_none()).collect();
    let copy = |strip: usize| {
        strips
            .get(strip)
            .and_then(Option::as_ref)
            .map(|buffer| Buffer::from(&buffer[..]))
    };
    let known =
        || (0..data).filter_map(|strip| strips[strip].as_ref().map(|buffer| (strip, buffer)));
    let without_known_in_p = |mut p: Buffer| {
        known().for_each(|(_, strip)| xor_into(&mut p, strip));
        p
    };
    let without_known_in_q = |mut q: Buffer| {
        known().for_each(|(index, strip)| add_to_q(&mut q, strip, index));
        q
    };
    debug_assert!(strips.iter().flatten().all(|strip| strip.len() == length));
    match (&lacking[..], copy(data), copy(data + 1)) {
        ([], ..) => true,
        ([one], Some(p), _) => {
            let recovered = without_known_in_p(p);
            strips[*one] = Some(recovered);
            true
        }
        ([one], None, Some(q)) => {
            let mut recovered = without_known_in_q(q);
            recover_data_by_q(*one, &mut recovered);
            strips[*one] = Some(recovered);
            true
        }
        ([a, b], Some(p), Some(q)) => {
            let (mut recovered_a, mut recovered_b) = (without_known_in_p(p), without_known_in_q(q));
            recover_data_and_data(*a, *b, &mut recovered_a, &mut recovered_b);
            (strips[*a], strips[*b]) = (Some(recovered_a), Some(recovered_b));
            true
        }
        _ => false,
    }
}

/// Computes P of a stripe's data, and Q if there are two parity strips.
pub(crate) fn parity_of(data: &[&[u8]], parity: usize, length: usize) -> Vec<Buffer> {
    debug_assert!((1..=2).contains(&parity), "P, or P and Q");
    debug_assert!(
        data.iter().all(|strip| strip.len() == length),
        "strips have one length"
    );
    let mut p = Buffer::recycled(length);
    if parity == 2 {
        let mut q = Buffer::recycled(length);
        syndromes(data, &mut p, &mut q);
        return vec![p, q];
    }
    crate::parity::parity(data, &mut p);
    vec![p]
}

/// Updates parity for a change of data strip `index` from `old` to `new`. Missing parity strips are `None`.
pub(crate) fn modify_parity(
    parity: &mut [Option<Buffer>],
    index: usize,
    mut old: Buffer,
    new: &[u8],
) {
    xor_into(&mut old, new);
    if let Some(Some(p)) = parity.get_mut(0) {
        xor_into(p, &old);
    }
    if let Some(Some(q)) = parity.get_mut(1) {
        add_to_q(q, &old, index);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn stripe(data: usize, parity: usize, lacking: &[usize]) -> Stripe {
        let held: Vec<bool> = (0..data + parity)
            .map(|strip| !lacking.contains(&strip))
            .collect();
        Stripe {
            data,
            readable: held.clone(),
            held,
        }
    }

    fn plan(
        data: usize,
        parity: usize,
        lacking: &[usize],
        written: Range<usize>,
    ) -> (Method, Vec<usize>) {
        let plan = stripe(data, parity, lacking)
            .write(&written.collect::<Vec<_>>(), true)
            .expect("possible");
        (plan.method, plan.reads)
    }

    #[test]
    fn a_write_of_whole_columns_reads_nothing() {
        assert_eq!(plan(4, 1, &[], 0..4), (Method::Reconstruct, vec![]));
        assert_eq!(plan(4, 2, &[1, 5], 0..4), (Method::Reconstruct, vec![]));
    }

    #[test]
    fn whichever_reads_less_is_taken() {
        assert_eq!(plan(4, 1, &[], 1..2), (Method::Modify, vec![1, 4]));
        assert_eq!(plan(4, 1, &[], 0..3), (Method::Reconstruct, vec![3]));
        assert_eq!(plan(2, 1, &[], 0..1), (Method::Reconstruct, vec![1]));
        assert_eq!(plan(8, 2, &[], 2..3), (Method::Modify, vec![2, 8, 9]));
    }

    #[test]
    fn a_degraded_write_keeps_what_lacks() {
        // The written strip is missing. Parity must represent it, so the others are read.
        assert_eq!(plan(4, 1, &[1], 1..2), (Method::Reconstruct, vec![0, 2, 3]));
        // Another strip is missing. Old parity represents it, so parity is modified.
        assert_eq!(plan(4, 1, &[3], 0..3), (Method::Modify, vec![0, 1, 2, 4]));
        // The parity strip is missing, so there is nothing to update.
        assert_eq!(plan(4, 1, &[4], 0..1), (Method::Modify, vec![]));
        // A written strip and another one are missing, so all data is reconstructed.
        assert_eq!(
            plan(4, 2, &[1, 3], 1..2),
            (Method::Reconstruct, vec![0, 2, 4, 5])
        );
        assert_eq!(stripe(4, 1, &[1, 3]).write(&[1], true), None);
    }

    #[test]
    fn parity_that_is_held_and_cannot_be_read_is_computed_anew() {
        let mut stripe = stripe(4, 1, &[]);
        stripe.readable[4] = false;
        let plan = stripe.write(&[0], true).expect("possible");
        assert_eq!(
            plan,
            Plan {
                method: Method::Reconstruct,
                reads: vec![1, 2, 3]
            }
        );
    }

    #[test]
    fn parity_that_may_be_wrong_is_computed_anew_if_all_data_are_there() {
        let plan = |lacking: &[usize], written: &[usize]| {
            let plan = stripe(4, 1, lacking)
                .write(written, false)
                .expect("possible");
            (plan.method, plan.reads)
        };
        assert_eq!(plan(&[], &[1]), (Method::Reconstruct, vec![0, 2, 3]));
        assert_eq!(plan(&[1], &[1]), (Method::Reconstruct, vec![0, 2, 3]));
        // Old parity, whether right or wrong, determines the data of the missing member.
        assert_eq!(plan(&[3], &[1]), (Method::Modify, vec![1, 4]));
        assert_eq!(plan(&[4], &[1]), (Method::Modify, vec![]));
    }

    #[test]
    fn segments_of_writes() {
        let cut = |writes: &[(u64, u64)]| {
            let writes: Vec<Range<u64>> = writes.iter().map(|(start, end)| *start..*end).collect();
            let columns = |segment: Segment| (segment.columns, segment.written);
            segments(&writes, 8, 3)
                .into_iter()
                .map(columns)
                .collect::<Vec<_>>()
        };
        assert_eq!(cut(&[(0, 24)]), [(0..8, vec![0, 1, 2])]);
        assert_eq!(cut(&[(2, 4)]), [(2..4, vec![0])]);
        assert_eq!(cut(&[(6, 10)]), [(0..2, vec![1]), (6..8, vec![0])]);
        assert_eq!(cut(&[(3, 19)]), [(0..3, vec![1, 2]), (3..8, vec![0, 1])]);
        assert_eq!(
            cut(&[(2, 22)]),
            [
                (0..2, vec![1, 2]),
                (2..6, vec![0, 1, 2]),
                (6..8, vec![0, 1])
            ]
        );
        assert_eq!(
            cut(&[(0, 2), (4, 6), (8, 14)]),
            [(0..2, vec![0, 1]), (2..4, vec![1]), (4..6, vec![0, 1])]
        );
        assert_eq!(cut(&[(0, 8), (16, 24)]), [(0..8, vec![0, 2])]);
    }

    proptest! {
        #[test]
        fn segments_cover_every_block_once(
            writes in proptest::collection::vec((1..20u64, 1..20u64), 1..4)
        ) {
            let mut end = 0;
            let writes: Vec<Range<u64>> = writes.into_iter().map(|(gap, length)| {
                let start = end + gap;
                end = start + length;
                start..end
            }).collect();
            let mut covered = std::collections::BTreeSet::new();
            for segment in segments(&writes, 8, 16) {
                for strip in segment.written {
                    for column in segment.columns.clone() {
                        prop_assert!(covered.insert(strip as u64 * 8 + column));
                    }
                }
            }
            prop_assert!(covered.into_iter().eq(writes.into_iter().flatten()));
        }

        #[test]
        fn every_plan_keeps_parity_right(
            data in 2..7usize, parity in 1..3usize, lacking in proptest::collection::vec(0..9usize, 0..3),
            first in 0..7usize, count in 1..7usize,
        ) {
            let count_lacking = lacking.iter().collect::<std::collections::BTreeSet<_>>().len();
            prop_assume!(count_lacking <= parity && lacking.iter().all(|strip| *strip < data + parity));
            let written = first % data..(first % data + count).min(data);
            let fill = |strip: usize, salt: u8| -> Vec<u8> { (0..32u8).map(|at| at.wrapping_mul(7) ^ salt ^ (strip as u8 * 37)).collect() };
            let old: Vec<Vec<u8>> = (0..data).map(|strip| fill(strip, 1)).collect();
            let mut new = old.clone();
            written.clone().for_each(|strip| new[strip] = fill(strip, 99));
            let parity_of = |data: &[Vec<u8>]| parity_of(&data.iter().map(Vec::as_slice).collect::<Vec<_>>(), parity, 32);
            let before: Vec<Vec<u8>> = old.iter().cloned().chain(parity_of(&old).iter().map(|p| p.to_vec())).collect();
            let stripe = stripe(data, parity, &lacking);
            let plan = stripe.write(&written.clone().collect::<Vec<_>>(), true).expect("possible");
            let mut strips: Vec<Option<Buffer>> = vec![(); data + parity].into_iter().map(|()| None).collect();
            for strip in &plan.reads {
                prop_assert!(stripe.readable[*strip]);
                strips[*strip] = Some(Buffer::from(&before[*strip][..]));
            }
            let after: Vec<Option<Buffer>> = match plan.method {
                Method::Modify => {
                    let mut kept = strips.split_off(data);
                    for strip in written.clone() {
                        if let Some(old) = strips[strip].take() {
                            modify_parity(&mut kept, strip, old, &new[strip]);
                        }
                    }
                    kept
                }
                Method::Reconstruct => {
                    let new_ones: Vec<usize> = written.clone().collect();
                    if plan.reads.iter().any(|strip| *strip >= data) {
                        prop_assert!(recover(&mut strips, data, 32));
                    }
                    new_ones.iter().for_each(|strip| strips[*strip] = Some(Buffer::from(&new[*strip][..])));
                    let all: Vec<Vec<u8>> = strips[..data].iter().map(|strip| strip.as_ref().expect("read").to_vec()).collect();
                    parity_of(&all).into_iter().map(Some).collect()
                }
            };
            for (at, right) in parity_of(&new).iter().enumerate() {
                if stripe.held[data + at] && !(plan.method == Method::Modify && plan.reads.is_empty()) {
                    prop_assert_eq!(&after[at].as_ref().expect("kept")[..], &right[..]);
                }
            }
        }
    }
}
