//! Synthetic diagnoses: of a limited path, of a good path, of an unexplained path, and of a malicious target.

use bench::record::{Fact, Facts, Group, Histogram};
use diagnose::{
    Cause, Change, Confirmed, Diagnosis, Evidence, Explained, Finding, Gain, Known, Ladder,
    LinkLayer, LoadRun, LongPackets, Parts, PathLayer, PathUnderLoad, Remedy, Storage, Timed,
    Verdict, Where,
};
use model::{Direction, Keys, Load, Term};

/// All causes.
pub(crate) const CAUSES: [Cause; 18] = [
    Cause::Depth,
    Cause::CommandWindow,
    Cause::TcpWindow,
    Cause::Solicitation,
    Cause::SmallBursts,
    Cause::SmallSegments,
    Cause::Digests,
    Cause::LinkRate,
    Cause::PathMtu,
    Cause::Loss,
    Cause::SlowPath,
    Cause::Medium,
    Cause::Flush,
    Cause::Misalignment,
    Cause::TargetCpu,
    Cause::ClientCpu,
    Cause::DelayedAck,
    Cause::Jitter,
];

/// Returns a diagnosis with three findings about writes over 10 ms, one of which was tested.
pub(crate) fn held_back() -> Diagnosis {
    let evidence = evidence();
    let explained = evidence.loads.iter().map(explained).collect();
    let mut first = finding(Cause::Solicitation, 2, 1.9);
    first.gain.confirmed = Some(Confirmed {
        ratio: 1.853,
        low: 1.80,
        high: 1.90,
    });
    let findings = vec![
        first,
        finding(Cause::TcpWindow, 0, 1.46),
        finding(Cause::Flush, 4, 1.21),
    ];
    Diagnosis {
        evidence,
        explained,
        findings,
        verdict: Verdict::HeldBack,
    }
}

/// Returns a diagnosis of the same path with only this cause.
pub(crate) fn with(cause: Cause) -> Diagnosis {
    let mut diagnosis = held_back();
    diagnosis.findings = vec![finding(cause, 0, 2.5)];
    diagnosis
}

/// Returns a diagnosis of a path without problems.
pub(crate) fn fine() -> Diagnosis {
    let verdict = Verdict::Fine {
        term: Term::Link,
        share: 0.97,
    };
    Diagnosis {
        findings: Vec::new(),
        verdict,
        ..held_back()
    }
}

/// Returns a diagnosis of an unexplained path: most probes are rejected, and a load failed.
pub(crate) fn not_known() -> Diagnosis {
    let mut diagnosis = Diagnosis {
        findings: Vec::new(),
        verdict: Verdict::NotKnown {
            unexplained: 0.31,
            load: 0,
        },
        explained: Vec::new(),
        ..held_back()
    };
    let evidence = &mut diagnosis.evidence;
    let refused = || Known::Unknown("the target refused it: ILLEGAL REQUEST (05/20/00)".to_owned());
    let not_allowed = || Known::Unknown("writing was not allowed (--allow-write)".to_owned());
    let ladder = &mut evidence.ladder;
    (ladder.nop, ladder.test_unit_ready, ladder.medium_read) = (refused(), refused(), refused());
    (ladder.write, ladder.durable_write, ladder.flush) =
        (not_allowed(), not_allowed(), not_allowed());
    ladder.writes.clear();
    evidence.link = Known::Unknown("no interface has a way there".to_owned());
    evidence.loads.truncate(2);
    evidence.loads[1].bytes_per_s.clear();
    evidence.loads[1].errors = 12;
    evidence.loads[1].first_failure =
        Some("MEDIUM ERROR, unrecovered read error (03/11/00)".to_owned());
    evidence.long_packets = Some(LongPackets {
        lost: "a READ of 65,536 bytes had no response in 3 s".to_owned(),
        segment_bytes: 8948,
        works_bytes: Some(1448),
    });
    diagnosis
}

/// Returns a diagnosis of a target with a malicious name and implausible numbers.
pub(crate) fn hostile() -> Diagnosis {
    let mut diagnosis = not_known();
    let evil = "<script>alert(1)</script>\"'&\u{1b}[31m\u{202e}|\n# x";
    let evidence = &mut diagnosis.evidence;
    evidence.place = format!("iscsi://{evil}");
    evidence.storage.product = Some(evil.repeat(20));
    evidence.paths[0].peer = evil.to_owned();
    evidence.paths[0].congestion = evil.to_owned();
    evidence.ladder.flush = Known::Unknown(evil.to_owned());
    evidence.loads[0].first_failure = Some(evil.to_owned());
    evidence.loads[0].errors = 1;
    evidence.environment.0[0].value = evil.to_owned();
    evidence.ladder.nop = timed(f64::NAN);
    evidence.ladder.cached_read = timed(-5.0);
    evidence.loads[0].bytes_per_s = vec![f64::INFINITY, f64::NAN, 0.0];
    evidence.loads[0].parts.r2t_us = f64::NAN;
    let mut finding = finding(Cause::PathMtu, 99, f64::INFINITY);
    finding.because = vec![evil.to_owned()];
    finding.remedies = vec![Remedy {
        at: Where::Target,
        change: evil.to_owned(),
    }];
    finding.gain.predicted = None;
    diagnosis.findings = vec![finding.clone(), Finding { load: 0, ..finding }];
    diagnosis.verdict = Verdict::HeldBack;
    diagnosis
}

/// Returns all these diagnoses, with their names.
pub(crate) fn all() -> [(&'static str, Diagnosis); 4] {
    [
        ("held-back", held_back()),
        ("fine", fine()),
        ("not-known", not_known()),
        ("hostile", hostile()),
    ]
}

fn finding(cause: Cause, load: usize, ratio: f64) -> Finding {
    let remedy = |at, change: &str| Remedy {
        at,
        change: change.to_owned(),
    };
    Finding {
        cause,
        load,
        because: vec![
            "A write of 64 KiB takes 20.9 ms and a read of the same length 10.7 ms: one round trip of 10.2 ms more."
                .to_owned(),
            "The session agreed on InitialR2T=Yes and ImmediateData=No: no data travel before the target has asked, \
             and each command was asked once (1.00 R2Ts a command)."
                .to_owned(),
            "Requests spent 10.3 ms of 20.9 ms waiting for R2Ts.".to_owned(),
        ],
        gain: Gain { predicted: Some(ratio), low: ratio * 0.93, high: ratio * 1.08, confirmed: None },
        remedies: vec![
            remedy(Where::OpenIscsi, "node.session.iscsi.InitialR2T = No and node.session.iscsi.ImmediateData = Yes"),
            remedy(Where::Url, "initial-r2t=no&immediate-data=yes"),
            remedy(Where::Esxi, "esxcli iscsi adapter param set -A vmhba64 -k InitialR2T -v false"),
            remedy(Where::Lio, "/iscsi/IQN/tpg1 set parameter InitialR2T=No ImmediateData=Yes"),
            remedy(Where::Tgt, "tgtadm --op update --mode target --tid 1 -n InitialR2T -v No"),
        ],
        trial: Some(Change {
            settings: vec![("initial-r2t".to_owned(), "no".to_owned())],
            depth: None,
            block_bytes: None,
        }),
    }
}

fn explained(run: &LoadRun) -> Explained {
    let rate = run.bytes_per_s[0];
    let terms = [Term::Window, Term::Link, Term::Depth, Term::Medium];
    let terms = terms
        .into_iter()
        .zip([1.02, 8.7, 9.4, 31.0])
        .map(|(term, times)| (term, rate * times));
    Explained {
        bytes_per_s: rate,
        modelled_per_s: rate * 1.02,
        terms: terms.collect(),
    }
}

fn evidence() -> Evidence {
    let way = 10_050.0;
    let got = Keys {
        immediate_data: false,
        ..Keys::default()
    };
    let load = |direction, kib: u32, depth, random, durable| Load {
        direction,
        block_bytes: kib * 1024,
        depth,
        sessions: 1,
        random,
        durable,
    };
    Evidence {
        place: "iscsi://10.0.0.7/iqn.2003-01.org.example:disk1/0".to_owned(),
        expected_link_bits_per_s: None,
        storage: Storage {
            bytes: 50 << 30,
            block_bytes: 512,
            physical_block_bytes: 4096,
            read_only: false,
            write_cache: Some(true),
            product: Some("ACME FlashArray".to_owned()),
        },
        asked: Some(Keys {
            initial_r2t: false,
            ..got
        }),
        got: Some(got),
        nbd: None,
        link: Known::Measured(LinkLayer {
            interface: "eth0".to_owned(),
            bits_per_s: Some(1e9),
            full_duplex: Some(true),
            mtu: 1500,
            loopback: false,
            faults: 0,
        }),
        connect: timed(10_110.0),
        paths: vec![path(1, way), path(2, way * 1.01)],
        command_window: Some(128),
        long_packets: None,
        ladder: Ladder {
            nop: timed(way + 85.0),
            nop_with_data: vec![(4096, timed(way + 130.0)), (65_536, timed(way + 990.0))],
            test_unit_ready: timed(way + 92.0),
            cached_read: timed(way + 120.0),
            cached_reads: vec![(4096, timed(way + 133.0)), (65_536, timed(way + 700.0))],
            medium_read: timed(way + 5200.0),
            write: timed(way * 2.0 + 230.0),
            writes: vec![(65_536, timed(way * 2.0 + 900.0))],
            durable_write: timed(way * 2.0 + 9100.0),
            flush: timed(way + 8700.0),
            short_write: Known::Unknown("blocks are read and written whole here".to_owned()),
        },
        loads: vec![
            run(load(Direction::Read, 64, 32, false, false), 13.1e6),
            run(load(Direction::Read, 4, 1, true, false), 0.267e6),
            run(load(Direction::Write, 64, 32, false, false), 12.3e6),
            run(load(Direction::Write, 4, 1, true, false), 0.198e6),
            run(load(Direction::Write, 4, 1, true, true), 0.139e6),
        ],
        environment: Facts(vec![
            fact(Group::Client, "kernel", "Linux 6.12.8", None),
            fact(Group::Network, "congestion control", "cubic", None),
            fact(
                Group::Negotiated,
                "InitialR2T",
                "Yes",
                Some("No: a write waits a round trip before its first R2T"),
            ),
            fact(Group::Negotiated, "MaxBurstLength", "262144", None),
            fact(Group::Storage, "write cache", "on", None),
        ]),
    }
}

fn fact(group: Group, name: &str, value: &str, better: Option<&str>) -> Fact {
    Fact {
        group,
        name: name.to_owned(),
        value: value.to_owned(),
        better: better.map(str::to_owned),
    }
}

fn path(cid: u16, round_trip_us: f64) -> PathLayer {
    PathLayer {
        cid,
        peer: "10.0.0.7:3260".to_owned(),
        congestion: "cubic".to_owned(),
        round_trip_min_us: Some(round_trip_us),
        round_trip_us: round_trip_us * 1.04,
        segment_bytes: 1448,
        path_mtu_bytes: 1500,
        nop: timed(round_trip_us + 85.0),
    }
}

/// Returns sixty times around a median.
fn timed(median_us: f64) -> Known<Timed> {
    let times = (0..60).map(|n| ((median_us * (0.97 + 0.001 * f64::from(n)) * 1e3) as u64, 1));
    Known::Measured(Timed {
        times: Histogram(times.collect()),
        median_us,
        low_us: median_us * 0.999,
        high_us: median_us * 1.001,
    })
}

fn run(load: Load, bytes_per_s: f64) -> LoadRun {
    let latency_us = f64::from(load.block_bytes) * f64::from(load.depth) / bytes_per_s * 1e6;
    let solicited = load.direction == Direction::Write;
    LoadRun {
        load,
        named: false,
        bytes_per_s: [1.0, 0.985, 1.012, 1.004, 0.993]
            .map(|noise| bytes_per_s * noise)
            .to_vec(),
        service: Histogram(vec![
            ((latency_us * 1e3) as u64, 990),
            ((latency_us * 2.1e3) as u64, 10),
        ]),
        under_way: f64::from(load.depth) * 0.98,
        parts: Parts {
            waiting_us: 0.0,
            queued_us: latency_us * 0.01,
            sending_us: if solicited { latency_us * 0.1 } else { 0.0 },
            r2t_us: if solicited { latency_us * 0.45 } else { 0.0 },
            answer_us: latency_us * 0.4,
            data_us: if solicited { 0.0 } else { latency_us * 0.55 },
            status_us: latency_us * 0.02,
        },
        window_stalled: 0.02,
        r2ts_per_command: if solicited { 1.0 } else { 0.0 },
        busy_answers: 0,
        errors: 0,
        first_failure: None,
        nop: timed(10_900.0),
        connect: timed(10_300.0),
        paths: vec![under_load(1, bytes_per_s, 0), under_load(2, bytes_per_s, 3)],
        beside: Vec::new(),
        client_busy: 0.12,
        client_waited: 0.01,
        client_digests: None,
        server_busy: None,
    }
}

fn under_load(cid: u16, bytes_per_s: f64, retransmitted_segments: u64) -> PathUnderLoad {
    PathUnderLoad {
        cid,
        sent_bytes: bytes_per_s as u64,
        received_bytes: bytes_per_s as u64 / 70,
        segments_in: Some(bytes_per_s as u64 / 90_000),
        segments_out: Some(bytes_per_s as u64 / 1448),
        retransmitted_segments,
        out_of_order_segments: Some(0),
        round_trip_us: 10_400.0,
        congestion_window_bytes: 1 << 20,
        peer_window_bytes: Some(65_536),
        own_window_bytes: Some(6 << 20),
        limited_by_receiver: 0.93,
        limited_by_send_buffer: 0.0,
    }
}
