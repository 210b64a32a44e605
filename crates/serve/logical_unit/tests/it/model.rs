//! Reads return what was written: a logical unit is compared with a vector of bytes, with commands that
//! complete in any order.

use crate::support::*;
use block::Buffer;
use logical_unit::{Data, Job, Landing, Plan, Reply, Step};
use proptest::prelude::*;

const BLOCKS: u64 = 64;

#[derive(Clone, Copy, Debug)]
enum Action {
    Read {
        lba: u64,
        blocks: u64,
    },
    Write {
        lba: u64,
        blocks: u64,
        byte: u8,
    },
    /// UNMAP does not change the data read.
    WriteSame {
        lba: u64,
        blocks: u64,
        byte: u8,
        unmap: bool,
    },
    Unmap {
        lba: u64,
        blocks: u64,
    },
    /// Compares with `expected`, which sometimes matches.
    CompareAndWrite {
        lba: u64,
        expected: u8,
        byte: u8,
    },
    OrWrite {
        lba: u64,
        blocks: u64,
        byte: u8,
    },
}

fn action() -> impl Strategy<Value = Action> {
    let extent = (0..BLOCKS).prop_flat_map(|lba| (Just(lba), 1..=(BLOCKS - lba).min(20)));
    let bytes = (0..4u8, 0..4u8);
    (extent, bytes, any::<bool>(), 0..6u8).prop_map(
        |((lba, blocks), (byte, expected), unmap, kind)| match kind {
            0 => Action::Read { lba, blocks },
            1 => Action::Write { lba, blocks, byte },
            2 => Action::WriteSame {
                lba,
                blocks,
                byte,
                unmap,
            },
            3 => Action::Unmap { lba, blocks },
            4 => Action::CompareAndWrite {
                lba,
                expected,
                byte,
            },
            _ => Action::OrWrite { lba, blocks, byte },
        },
    )
}

impl Action {
    fn cdb_and_data(self) -> (Vec<u8>, Vec<u8>) {
        let bytes = |blocks: u64, byte: u8| vec![byte; blocks as usize * 512];
        match self {
            Action::Read { lba, blocks } => (sized(0x88, 0, lba, blocks as u32), vec![]),
            Action::Write { lba, blocks, byte } => {
                (sized(0x8a, 0, lba, blocks as u32), bytes(blocks, byte))
            }
            Action::WriteSame {
                lba,
                blocks,
                byte,
                unmap,
            } => (
                sized(0x93, u8::from(unmap) << 3, lba, blocks as u32),
                bytes(1, byte),
            ),
            Action::Unmap { lba, blocks } => {
                let (cdb, list) = unmap(&[(lba, blocks as u32)]);
                (cdb.to_vec(), list)
            }
            Action::CompareAndWrite {
                lba,
                expected,
                byte,
            } => (
                compare_and_write(lba, 1).to_vec(),
                [bytes(1, expected), bytes(1, byte)].concat(),
            ),
            Action::OrWrite { lba, blocks, byte } => {
                (sized(0x8b, 0, lba, blocks as u32), bytes(blocks, byte))
            }
        }
    }

    /// Applies the action to the model. Returns the expected data, or `None` for a miscompare.
    fn apply(self, model: &mut [u8]) -> Option<Vec<u8>> {
        let range = |lba: u64, blocks: u64| lba as usize * 512..(lba + blocks) as usize * 512;
        match self {
            Action::Read { lba, blocks } => return Some(model[range(lba, blocks)].to_vec()),
            Action::Write { lba, blocks, byte }
            | Action::WriteSame {
                lba, blocks, byte, ..
            } => {
                model[range(lba, blocks)].fill(byte);
            }
            Action::Unmap { lba, blocks } => model[range(lba, blocks)].fill(0),
            Action::OrWrite { lba, blocks, byte } => {
                model[range(lba, blocks)]
                    .iter_mut()
                    .for_each(|old| *old |= byte);
            }
            Action::CompareAndWrite {
                lba,
                expected,
                byte,
            } => {
                let block = &mut model[range(lba, 1)];
                if block.iter().any(|old| *old != expected) {
                    return None;
                }
                block.fill(byte);
            }
        }
        Some(vec![])
    }
}

/// A command that has started.
enum Begun {
    Ended(Reply),
    Job(Job, Data),
}

fn begin(bench: &mut Bench, action: Action) -> Begun {
    let (cdb, data) = action.cdb_and_data();
    let room = if data.is_empty() { 1 << 20 } else { 0 };
    match bench.begin(&cdb, data.len() as u32, room) {
        Plan::Reply(reply) => Begun::Ended(reply),
        Plan::Run(job) => Begun::Job(job, Data::None),
        Plan::Receive(receive) => match receive.place {
            // If the medium is memory, received data is already in place.
            Landing::Memory(mut blocks) => {
                blocks.put(0, &data);
                Begun::Job(receive.job, Data::Placed)
            }
            Landing::Buffer => Begun::Job(receive.job, Data::Buffer(Buffer::from(&data[..]))),
        },
    }
}

fn end(bench: &Bench, begun: Begun) -> CommandResult {
    CommandResult::from_reply(match begun {
        Begun::Ended(reply) => reply,
        Begun::Job(job, data) => match bench.unit.finish(job, data) {
            Step::Now(reply) => reply,
            Step::Later(running) => finish(running.reply),
            Step::Lasting { .. } => unreachable!("no action of the model sanitizes"),
        },
    })
}

fn check(action: Action, answer: CommandResult, model: &mut [u8]) {
    match action.apply(model) {
        Some(data) => assert_eq!(answer.good().data, data, "{action:?}"),
        None => drop(answer.check(0xe, 0x1d00)),
    }
}

proptest! {
    #[test]
    fn one_after_the_other(actions in prop::collection::vec(action(), 1..60), in_memory: bool) {
        let mut bench =
            Bench::of_disk(DiskOptions { blocks: BLOCKS, in_memory, ..DiskOptions::default() });
        let mut model = vec![0; BLOCKS as usize * 512];
        for action in actions {
            let begun = begin(&mut bench, action);
            check(action, end(&bench, begun), &mut model);
        }
        prop_assert_eq!(bench.read(0, BLOCKS as u32), model);
    }

    /// With a device that copies, a command takes effect when it completes, whenever it started.
    #[test]
    fn several_begun_and_ended_in_any_order(
        rounds in prop::collection::vec(
            prop::collection::vec((action(), any::<u32>()), 1..8).prop_shuffle(), 1..10),
    ) {
        let mut bench = Bench::of_disk(DiskOptions { blocks: BLOCKS, ..DiskOptions::default() });
        let mut model = vec![0; BLOCKS as usize * 512];
        for round in rounds {
            let mut begun: Vec<_> =
                round.iter().map(|(action, turn)| (*turn, *action, begin(&mut bench, *action))).collect();
            begun.sort_by_key(|(turn, ..)| *turn);
            for (_, action, begun) in begun {
                check(action, end(&bench, begun), &mut model);
            }
        }
        prop_assert_eq!(bench.read(0, BLOCKS as u32), model);
    }
}
