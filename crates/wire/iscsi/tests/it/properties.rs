//! Any mix of immediate, unsolicited and solicited data, in any segmentation, yields the same bytes.

use iscsi::negotiate::{DigestKind, Parameters, SessionType};
use iscsi::pdu::Sn;
use proptest::prelude::*;

use crate::pair::{Setup, pattern};

#[derive(Clone, Debug)]
struct Scene {
    parameters: Parameters,
    initiator_segment_max: u32,
    connections: u16,
    cmd_sn: u32,
    cut: usize,
    /// Connection, offset, length.
    writes: Vec<(u16, u32, u32)>,
}

fn parameters() -> impl Strategy<Value = (Parameters, u32)> {
    let bursts = (512u32..40_000, 512u32..60_000);
    let segments = (512u32..10_000, 512u32..10_000);
    let flags = (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>());
    (bursts, segments, flags, 1u16..5).prop_map(
        |((first, max), (local, peer), flags, outstanding)| {
            let digest = |on| {
                if on {
                    DigestKind::Crc32c
                } else {
                    DigestKind::None
                }
            };
            let parameters = Parameters {
                initial_r2t: flags.0,
                immediate_data: flags.1,
                header_digest: digest(flags.2),
                data_digest: digest(flags.3),
                first_burst_length: first.min(max),
                max_burst_length: max,
                local_max_recv_data_segment_length: local,
                max_outstanding_r2t: outstanding,
                ..Parameters::defaults(SessionType::Normal)
            };
            (parameters, peer)
        },
    )
}

fn scene() -> impl Strategy<Value = Scene> {
    let cut = prop_oneof![1usize..100, 100usize..5000, Just(usize::MAX)];
    let writes = prop::collection::vec((0u16..4, 0u32..100_000, 1u32..100_000), 1..8);
    (parameters(), 1u16..5, any::<u32>(), cut, writes).prop_map(
        |((parameters, initiator_segment_max), connections, cmd_sn, cut, writes)| Scene {
            parameters,
            initiator_segment_max,
            connections,
            cmd_sn,
            cut,
            writes,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases / 4))]

    #[test]
    fn what_is_written_is_there_and_is_read(scene in scene()) {
        let mut pair = Setup {
            parameters: scene.parameters,
            connections: scene.connections,
            cmd_sn: Sn(scene.cmd_sn),
            initiator_segment_max: scene.initiator_segment_max,
            ..Setup::new()
        }
        .build();
        pair.cut = scene.cut;
        let mut expected = vec![0; crate::disk::DISK_BYTES];
        for (seed, &(wire, offset, length)) in (0u32..).zip(&scene.writes) {
            // One after the other, since the order of overlapping writes is not guaranteed.
            let data = pattern(seed, length as usize);
            let write = pair.write(usize::from(wire % scene.connections), offset, &data);
            pair.deliver();
            prop_assert_eq!(pair.status(write), Some(0));
            expected[offset as usize..(offset + length) as usize].copy_from_slice(&data);
        }
        prop_assert!(pair.disk.0 == expected);
        let reads: Vec<_> = scene
            .writes
            .iter()
            .map(|&(wire, offset, length)| (pair.read(usize::from(wire % scene.connections), offset, length), offset))
            .collect();
        pair.deliver();
        for (read, offset) in reads {
            let data = pair.data(read);
            prop_assert!(data == &expected[offset as usize..][..data.len()]);
        }
        prop_assert_eq!(pair.initiator.in_flight() + pair.target.commands_in_flight(), 0);
        prop_assert_eq!(pair.rejects().len(), 0);
    }

    #[test]
    fn writes_at_once_land_where_they_belong_in_any_order_of_arrival(
        (parameters, initiator_segment_max) in parameters(),
        lengths in prop::collection::vec(1u32..30_000, 2..20),
        schedule in prop::collection::vec((0usize..3, any::<bool>()), 0..200),
    ) {
        let setup = Setup { parameters, connections: 3, initiator_segment_max, ..Setup::new() };
        let mut pair = setup.build();
        let mut tasks = Vec::new();
        for (i, &length) in (0u32..).zip(&lengths) {
            tasks.push(pair.write(i as usize % 3, i * 30_000, &pattern(i, length as usize)));
        }
        pair.cut = 1000;
        for (wire, held) in schedule {
            pair.wires[wire].held = held;
            pair.step();
        }
        pair.wires.iter_mut().for_each(|wire| wire.held = false);
        pair.deliver();
        for (i, (&length, task)) in (0u32..).zip(lengths.iter().zip(tasks)) {
            prop_assert_eq!(pair.status(task), Some(0));
            prop_assert!(pair.disk.read(i as usize * 30_000, length as usize) == pattern(i, length as usize));
        }
        prop_assert_eq!(pair.target.exp_cmd_sn(), pair.initiator.cmd_sn());
    }
}
