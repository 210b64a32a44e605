//! Reassembles messages from fragments, in bounded memory. Every fragment contains the length of its message.
//! Every fragment of an epoch has the same length, except the last of a message. The memory of a message is
//! charged to the credit with its first fragment. No allocation depends on an unchecked number from a peer.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::frame::{FRAGMENTS_MAX, Header, MESSAGES_OPEN_MAX, Opcode};

/// A message being reassembled.
#[derive(Debug)]
struct Partial {
    opcode: Opcode,
    /// Length of the whole message; `bytes` extends to the last byte that arrived.
    total: usize,
    bytes: Vec<u8>,
    /// A bit for each fragment that arrived.
    arrived: [u64; FRAGMENTS_MAX / 64],
    missing: usize,
}

/// A complete message, delivered once.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Delivered {
    pub(crate) opcode: Opcode,
    pub(crate) bytes: Vec<u8>,
    /// Bytes of credit to return when the message is finished.
    pub(crate) charge: u64,
}

/// The result of adding a fragment.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Fragment {
    /// It completed its message.
    Complete(Delivered),
    /// It was stored, or was already present.
    Taken,
    /// It violates the protocol, and is neither stored nor acknowledged.
    Refused,
}

/// The messages of one epoch.
#[derive(Debug)]
pub(crate) struct Reassembly {
    fragment_bytes: usize,
    message_bytes_max: usize,
    /// Messages that arrived completely.
    delivered: ReplayWindow,
    partial: BTreeMap<u32, Partial>,
    /// Bytes of messages started in this epoch, and their limit.
    charged: u64,
    granted: u64,
}

impl Reassembly {
    pub(crate) fn new(fragment_bytes: usize, message_bytes_max: usize, credit: u64) -> Reassembly {
        Reassembly {
            fragment_bytes,
            message_bytes_max: message_bytes_max.min(fragment_bytes * FRAGMENTS_MAX),
            delivered: ReplayWindow::default(),
            partial: BTreeMap::new(),
            charged: 0,
            granted: credit,
        }
    }

    pub(crate) fn granted(&self) -> u64 {
        self.granted
    }

    /// Returns the credit of a finished message.
    pub(crate) fn release(&mut self, charge: u64) {
        self.granted += charge;
    }

    /// Bytes of memory used by partial messages.
    pub(crate) fn held_bytes(&self) -> usize {
        self.partial.values().map(|partial| partial.total).sum()
    }

    /// Adds a fragment of an authentic and new frame.
    pub(crate) fn take(&mut self, header: &Header, body: &[u8]) -> Fragment {
        let serial = u64::from(header.message);
        if self.delivered.contains(serial) {
            return Fragment::Taken;
        }
        // A tag is freed when its message is acknowledged, so no two open messages are this far apart.
        if serial >= self.delivered.lowest() + u64::from(MESSAGES_OPEN_MAX) {
            return Fragment::Refused;
        }
        let total = header.message_bytes as usize;
        let count = total.div_ceil(self.fragment_bytes).max(1);
        let index = usize::from(header.fragment);
        let expected = self
            .fragment_bytes
            .min(total.saturating_sub(index * self.fragment_bytes));
        let is_right = total <= self.message_bytes_max
            && index < count
            && header.last == (index + 1 == count)
            && body.len() == expected
            && (!header.control || count == 1);
        if !is_right {
            return Fragment::Refused;
        }
        if count == 1 {
            return self.whole(header, body);
        }
        if !self.partial.contains_key(&header.message) {
            if !self.charge(total as u64) {
                return Fragment::Refused;
            }
            let bytes = Vec::with_capacity(total);
            let partial = Partial {
                opcode: header.opcode,
                total,
                bytes,
                arrived: [0; _],
                missing: count,
            };
            self.partial.insert(header.message, partial);
        }
        let Some(partial) = self.partial.get_mut(&header.message) else {
            return Fragment::Refused;
        };
        if partial.opcode != header.opcode || partial.total != total {
            return Fragment::Refused;
        }
        let (word, bit) = (&mut partial.arrived[index / 64], 1 << (index % 64));
        if *word & bit != 0 {
            return Fragment::Taken;
        }
        *word |= bit;
        let start = index * self.fragment_bytes;
        // Nearly all fragments arrive in order; gaps are filled in later.
        if start >= partial.bytes.len() {
            partial.bytes.resize(start, 0);
            partial.bytes.extend_from_slice(body);
        } else {
            partial.bytes[start..start + expected].copy_from_slice(body);
        }
        debug_assert!(partial.missing > 0, "a whole message is delivered");
        partial.missing -= 1;
        if partial.missing > 0 {
            return Fragment::Taken;
        }
        let bytes = self
            .partial
            .remove(&header.message)
            .map_or(Vec::new(), |partial| partial.bytes);
        debug_assert_eq!(bytes.len(), total, "a message of its announced length");
        self.delivered.insert(serial);
        Fragment::Complete(Delivered {
            opcode: header.opcode,
            bytes,
            charge: total as u64,
        })
    }

    /// Delivers a message of one fragment.
    fn whole(&mut self, header: &Header, body: &[u8]) -> Fragment {
        if self.partial.contains_key(&header.message) {
            return Fragment::Refused;
        }
        let charge = if header.control { 0 } else { body.len() as u64 };
        if !self.charge(charge) {
            return Fragment::Refused;
        }
        self.delivered.insert(u64::from(header.message));
        Fragment::Complete(Delivered {
            opcode: header.opcode,
            bytes: body.to_vec(),
            charge,
        })
    }

    fn charge(&mut self, bytes: u64) -> bool {
        debug_assert!(self.charged <= self.granted, "messages beyond the credit");
        let is_granted = self.charged + bytes <= self.granted;
        if is_granted {
            self.charged += bytes;
        }
        is_granted
    }
}

/// The numbers seen so far.
#[derive(Debug, Default)]
pub(crate) struct ReplayWindow {
    next: u64,
    missing: BTreeSet<u64>,
}

impl ReplayWindow {
    pub(crate) fn contains(&self, number: u64) -> bool {
        number < self.next && !self.missing.contains(&number)
    }

    /// The lowest number not seen yet.
    pub(crate) fn lowest(&self) -> u64 {
        self.missing.first().copied().unwrap_or(self.next)
    }

    /// Number of missing numbers once this one is added.
    pub(crate) fn missing_with(&self, number: u64) -> u64 {
        let is_one = u64::from(self.missing.contains(&number));
        self.missing.len() as u64 - is_one + number.saturating_sub(self.next)
    }

    /// Notes a number. The caller has checked [`ReplayWindow::missing_with`].
    pub(crate) fn insert(&mut self, number: u64) {
        if number < self.next {
            self.missing.remove(&number);
        } else {
            self.missing.extend(self.next..number);
            self.next = number + 1;
        }
        debug_assert!(self.contains(number) && self.lowest() <= self.next);
    }
}

// Open messages, by number. The numbers are consecutive except for finished messages, and the oldest and
// newest are never far apart, so a number determines a position.

/// A value for each open message.
#[derive(Debug)]
pub(crate) struct OpenMessages<T> {
    /// The number of the first position, which is occupied unless the list is empty.
    first: u32,
    places: VecDeque<Option<T>>,
    count: usize,
}

impl<T> OpenMessages<T> {
    pub(crate) fn new() -> OpenMessages<T> {
        OpenMessages {
            first: 0,
            places: VecDeque::new(),
            count: 0,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.count
    }

    /// The lowest number.
    pub(crate) fn oldest(&self) -> Option<u32> {
        (self.count > 0).then_some(self.first)
    }

    fn place(&self, number: u32) -> Option<usize> {
        number.checked_sub(self.first).map(|place| place as usize)
    }

    pub(crate) fn get(&self, number: u32) -> Option<&T> {
        self.places.get(self.place(number)?)?.as_ref()
    }

    pub(crate) fn get_mut(&mut self, number: u32) -> Option<&mut T> {
        let place = self.place(number)?;
        self.places.get_mut(place)?.as_mut()
    }

    /// Adds a message with a number higher than all others. The list grows by the distance to the oldest,
    /// which the caller limits.
    pub(crate) fn push(&mut self, number: u32, value: T) {
        if self.places.is_empty() {
            self.first = number;
        }
        let place = self.place(number).unwrap_or_default();
        debug_assert!(place >= self.places.len(), "numbers rise");
        self.places.resize_with(place, || None);
        self.places.push_back(Some(value));
        self.count += 1;
    }

    pub(crate) fn remove(&mut self, number: u32) -> Option<T> {
        let place = self.place(number)?;
        let value = self.places.get_mut(place)?.take()?;
        self.count -= 1;
        while let Some(None) = self.places.front() {
            self.places.pop_front();
            self.first += 1;
        }
        debug_assert!(
            self.count <= self.places.len() && (self.count > 0) != self.places.is_empty()
        );
        Some(value)
    }

    /// The values, in the order of their numbers.
    pub(crate) fn into_values(self) -> impl Iterator<Item = T> {
        self.places.into_iter().flatten()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    const F: usize = 100;

    fn fragment(message: u32, total: usize, index: usize) -> (Header, Vec<u8>) {
        let count = total.div_ceil(F).max(1);
        let start = index * F;
        let body: Vec<u8> = (start..total.min(start + F))
            .map(|at| (at as u32 * 7 + message) as u8)
            .collect();
        let header = Header {
            last: index + 1 == count,
            fragment: index as u16,
            length: body.len() as u16,
            message,
            message_bytes: total as u32,
            ..Header::plain(Opcode::Request)
        };
        (header, body)
    }

    fn reassembly() -> Reassembly {
        Reassembly::new(F, 1000, 2000)
    }

    #[test]
    fn fragments_in_any_order_and_twice_make_one_message() {
        let mut all = reassembly();
        for index in [2, 0, 2, 0] {
            let (header, body) = fragment(3, 250, index);
            assert_eq!(all.take(&header, &body), Fragment::Taken);
        }
        let (header, body) = fragment(3, 250, 1);
        let Fragment::Complete(delivered) = all.take(&header, &body) else {
            panic!("it is whole")
        };
        let wanted: Vec<u8> = (0..3).flat_map(|index| fragment(3, 250, index).1).collect();
        assert_eq!(
            (delivered.bytes, delivered.charge, all.held_bytes()),
            (wanted, 250, 0)
        );
        assert_eq!(
            all.take(&header, &body),
            Fragment::Taken,
            "a late one is not delivered again"
        );
    }

    #[test]
    fn a_message_of_no_bytes_arrives_too() {
        let (header, body) = fragment(0, 0, 0);
        assert!(matches!(
            reassembly().take(&header, &body),
            Fragment::Complete(_)
        ));
    }

    #[test]
    fn what_breaks_a_rule_is_refused_and_takes_no_memory() {
        let good = fragment(0, 250, 1);
        let with = |change: fn(&mut Header, &mut Vec<u8>)| {
            let (mut header, mut body) = good.clone();
            change(&mut header, &mut body);
            (header, body)
        };
        let bad = [
            ("behind the end", with(|header, _| header.fragment = 3)),
            ("the last of many", with(|header, _| header.fragment = 1023)),
            (
                "a last one in the middle",
                with(|header, _| header.last = true),
            ),
            ("too short", with(|_, body| body.truncate(99))),
            ("too long", with(|_, body| body.push(0))),
            ("a giant", with(|header, _| header.message_bytes = u32::MAX)),
            (
                "longer than agreed on",
                with(|header, _| header.message_bytes = 1001),
            ),
            (
                "control of many fragments",
                with(|header, _| header.control = true),
            ),
            ("too far ahead", with(|header, _| header.message = 512)),
        ];
        for (what, (header, body)) in bad {
            let mut all = reassembly();
            assert_eq!(all.take(&header, &body), Fragment::Refused, "{what}");
            assert_eq!((all.held_bytes(), all.charged), (0, 0), "{what}");
        }
    }

    #[test]
    fn fragments_of_one_message_agree() {
        let mut all = reassembly();
        let (header, body) = fragment(0, 250, 0);
        assert_eq!(all.take(&header, &body), Fragment::Taken);
        let (longer, body) = fragment(0, 350, 1);
        assert_eq!(all.take(&longer, &body), Fragment::Refused);
        let (other, body) = fragment(0, 250, 1);
        let other = Header {
            opcode: Opcode::Reply,
            ..other
        };
        assert_eq!(all.take(&other, &body), Fragment::Refused);
        let (whole, body) = fragment(0, 50, 0);
        assert_eq!(all.take(&whole, &body), Fragment::Refused);
    }

    #[test]
    fn messages_that_never_end_take_no_more_than_the_credit() {
        let mut all = reassembly();
        for message in 0..400 {
            let (header, body) = fragment(message, 1000, 0);
            let taken = all.take(&header, &body);
            assert_eq!(
                taken,
                if message < 2 {
                    Fragment::Taken
                } else {
                    Fragment::Refused
                }
            );
        }
        assert_eq!(all.held_bytes(), 2000);
        all.release(1000);
        let (header, body) = fragment(9, 1000, 0);
        assert_eq!(all.take(&header, &body), Fragment::Taken);
    }

    proptest! {
        #[test]
        fn it_is_a_set(numbers in proptest::collection::vec(0u64..64, 0..80)) {
            let (mut replay_window, mut model) = (ReplayWindow::default(), BTreeSet::new());
            for number in numbers {
                prop_assert_eq!(replay_window.contains(number), model.contains(&number));
                let missing = replay_window.missing_with(number);
                replay_window.insert(number);
                model.insert(number);
                prop_assert_eq!(missing, replay_window.missing.len() as u64);
                prop_assert_eq!(replay_window.lowest(), (0..).find(|number| !model.contains(number)).unwrap());
            }
        }
    }

    proptest! {
        #[test]
        fn it_is_a_map(steps in proptest::collection::vec((any::<bool>(), 0u32..40), 0..200)) {
            let (mut open, mut model) = (OpenMessages::new(), BTreeMap::new());
            let mut next = 5;
            for (is_push, number) in steps {
                if is_push {
                    next += number % 3;
                    open.push(next, number);
                    model.insert(next, number);
                    next += 1;
                } else {
                    prop_assert_eq!(open.remove(number), model.remove(&number));
                }
                prop_assert_eq!((open.len(), open.oldest()), (model.len(), model.keys().next().copied()));
                for number in 0..next + 2 {
                    prop_assert_eq!(open.get(number), model.get(&number));
                    prop_assert_eq!(open.get_mut(number), model.get_mut(&number));
                }
            }
            prop_assert!(open.into_values().eq(model.into_values()));
        }
    }
}
