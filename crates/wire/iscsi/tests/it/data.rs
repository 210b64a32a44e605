//! Data in both directions, without errors.

use iscsi::negotiate::Parameters;
use iscsi::pdu::{Lun, Pdu, Residual};

use crate::disk;
use crate::pair::{Ended, Pair, Setup, pattern};

fn r2ts(pair: &Pair) -> Vec<(u32, u32)> {
    pair.said(|pdu| match pdu {
        Pdu::R2t(r2t) => Some((r2t.buffer_offset, r2t.desired_data_transfer_length.get())),
        _ => None,
    })
}

/// The data of a short write is sent with its command. A long write sends immediate data, then unsolicited
/// data, then solicited data in bursts. With InitialR2T and without ImmediateData, all data is solicited.
#[test]
fn a_write_is_asked_for_as_agreed() {
    type Change = fn(&mut Parameters);
    type R2ts = &'static [(u32, u32)];
    let rows: [(Change, usize, R2ts); 3] = [
        (|_| {}, 4096, &[]),
        (
            |agreed| (agreed.first_burst_length, agreed.max_burst_length) = (20_000, 32_768),
            100_000,
            &[(20_000, 32_768), (52_768, 32_768), (85_536, 14_464)],
        ),
        (
            |agreed| (agreed.initial_r2t, agreed.immediate_data) = (true, false),
            10_000,
            &[(0, 10_000)],
        ),
    ];
    for (change, length, asked) in rows {
        let mut setup = Setup::new();
        change(&mut setup.parameters);
        let mut pair = setup.build();
        let data = pattern(1, length);
        let write = pair.write(0, 512, &data);
        pair.deliver();
        assert_eq!(pair.status(write), Some(0));
        assert_eq!(pair.disk.read(512, length), data);
        assert_eq!(r2ts(&pair), asked);
    }
}

#[test]
fn several_r2ts_are_outstanding_but_no_more_than_agreed() {
    let mut setup = Setup::new();
    setup.parameters.initial_r2t = true;
    setup.parameters.immediate_data = false;
    setup.parameters.max_outstanding_r2t = 3;
    setup.parameters.max_burst_length = 1024;
    let mut pair = setup.build();
    let data = pattern(4, 10 * 1024);
    let write = pair.write(0, 0, &data);
    pair.step();
    assert_eq!(r2ts(&pair).len(), 3);
    pair.deliver();
    assert_eq!(r2ts(&pair).len(), 10);
    assert_eq!(pair.disk.read(0, data.len()), data);
    assert_eq!(pair.status(write), Some(0));
}

#[test]
fn a_read_ends_with_its_last_data() {
    let mut pair = Pair::new();
    let data = pattern(5, 20_000);
    pair.disk.write(0, &data);
    let read = pair.read(0, 0, 20_000);
    pair.deliver();
    assert_eq!(pair.data(read), data);
    let responses = pair.said(|pdu| matches!(pdu, Pdu::ScsiResponse(_)).then_some(()));
    assert_eq!(responses.len(), 0, "status rides on the last Data-In");
}

#[test]
fn every_answer_tells_the_window_as_it_is_and_statuses_count() {
    let mut pair = Pair::new();
    let tasks: Vec<_> = (0..4).map(|_| pair.hang(0, Lun(0))).collect();
    pair.deliver();
    pair.under_way()
        .into_iter()
        .for_each(|task| pair.finish(task));
    pair.deliver();
    assert!(tasks.iter().all(|&task| pair.status(task) == Some(0)));
    let numbers = pair.said(|pdu| match pdu {
        Pdu::ScsiResponse(pdu) => Some((
            pdu.numbers.stat_sn.0,
            pdu.numbers.exp_cmd_sn.distance(pdu.numbers.max_cmd_sn),
        )),
        _ => None,
    });
    // Each response frees the slot of its command: MaxCmdSN leaves 32 slots minus the unanswered commands.
    assert_eq!(
        numbers,
        [(0xffff_fffe, 28), (0xffff_ffff, 29), (0, 30), (1, 31)]
    );
}

#[test]
fn check_condition_brings_its_sense_data() {
    let mut pair = Pair::new();
    let task = pair.submit(0, &disk::cdb(disk::FAIL, 0, 0), 0, &[]);
    pair.deliver();
    let Ended::Done {
        status: 2, sense, ..
    } = &pair.ended[&task]
    else {
        panic!("{:?}", pair.ended)
    };
    assert_eq!(sense, disk::SENSE);
}

#[test]
fn a_long_cdb_arrives_whole() {
    let mut pair = Pair::new();
    let mut cdb = [0x99; 32];
    cdb[31] = 7;
    pair.submit(0, &cdb, 0, &[]);
    pair.deliver();
    let task = pair.under_way()[0];
    assert_eq!(pair.commands[&task].command.cdb(), cdb);
}

#[test]
fn a_bidirectional_command_tells_both_lengths_and_both_residuals() {
    let mut pair = Pair::new();
    let task = pair.submit(0, &disk::cdb(disk::HANG, 0, 0), 600, &pattern(6, 1000));
    pair.deliver();
    let at_target = pair.under_way()[0];
    let command = &pair.commands[&at_target].command;
    assert_eq!(
        (command.data_out_bytes(), command.data_in_bytes()),
        (1000, 600)
    );
    pair.commands
        .get_mut(&at_target)
        .expect("it is under way")
        .outgoing = pattern(7, 500);
    let response = iscsi::target::Response {
        data_in: 500,
        expected: 1000,
        ..Default::default()
    };
    pair.target.respond(at_target, response);
    pair.deliver();
    assert_eq!(
        (pair.status(task), pair.data(task)),
        (Some(0), &pattern(7, 500)[..])
    );
    let residuals = pair.said(|pdu| match pdu {
        Pdu::ScsiResponse(pdu) => Some((pdu.residual, pdu.read_residual)),
        _ => None,
    });
    assert_eq!(residuals, [(Residual::None, Residual::Underflow(100))]);
}

#[test]
fn a_stream_cut_at_every_byte_changes_nothing() {
    let run = |first: usize| {
        let mut setup = Setup::with_digests();
        setup.parameters.first_burst_length = 1000;
        setup.parameters.max_burst_length = 1500;
        setup.parameters.local_max_recv_data_segment_length = 700;
        setup.initiator_segment_max = 512;
        let mut pair = setup.build();
        pair.cut = first;
        let data = pattern(7, 3001);
        let write = pair.write(0, 5, &data);
        pair.step();
        pair.cut = usize::MAX;
        pair.deliver();
        let read = pair.read(0, 5, 3001);
        pair.cut = first;
        pair.deliver();
        assert_eq!(
            (pair.status(write), pair.data(read)),
            (Some(0), &data[..]),
            "cut at {first}"
        );
        pair.said.iter().map(|(_, pdu)| *pdu).collect::<Vec<_>>()
    };
    let whole = run(usize::MAX);
    for first in 1..1200 {
        assert_eq!(run(first), whole, "cut at {first}");
    }
}

/// Every combination of the keys that control data transfer, at the lengths where one kind of data ends and
/// the next starts (RFC 7143 sections 13.10 to 13.17).
#[test]
fn every_combination_of_bursts_and_r2ts_moves_the_same_bytes() {
    let yes_or_no = [false, true];
    for (initial_r2t, immediate_data) in yes_or_no.map(|a| yes_or_no.map(|b| (a, b))).concat() {
        for (first_burst, max_burst) in [(512, 512), (512, 4096), (3000, 4096), (4096, 4096)] {
            for (segment, max_outstanding_r2t) in
                [(512, 1), (512, 4), (700, 2), (8192, 1), (8192, 16)]
            {
                let mut setup = Setup::new();
                setup.parameters.initial_r2t = initial_r2t;
                setup.parameters.immediate_data = immediate_data;
                setup.parameters.first_burst_length = first_burst;
                setup.parameters.max_burst_length = max_burst;
                setup.parameters.max_outstanding_r2t = max_outstanding_r2t;
                setup.parameters.local_max_recv_data_segment_length = segment;
                setup.initiator_segment_max = segment;
                let mut pair = setup.build();
                let edges = [
                    1,
                    segment,
                    first_burst,
                    first_burst + max_burst,
                    5 * max_burst,
                ];
                for length in edges
                    .into_iter()
                    .flat_map(|edge| [edge.max(2) - 1, edge, edge + 1])
                {
                    let data = pattern(length, length as usize);
                    let write = pair.write(0, 3, &data);
                    pair.deliver();
                    let read = pair.read(0, 3, length);
                    pair.deliver();
                    let keys = (
                        initial_r2t,
                        immediate_data,
                        first_burst,
                        max_burst,
                        segment,
                        max_outstanding_r2t,
                    );
                    assert_eq!(pair.status(write), Some(0), "{length} bytes with {keys:?}");
                    assert!(pair.data(read) == data, "{length} bytes with {keys:?}");
                }
                assert_eq!(pair.rejects().len(), 0);
            }
        }
    }
}
