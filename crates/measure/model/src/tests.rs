//! Compares the model with the documents' tables, and tests properties that hold for any constants.

use super::*;
use proptest::prelude::*;
use published::Row;

const KIB: u32 = 1024;
const MS: f64 = 1e-3;

/// Document 002 does not state the burst lengths of its testbed. A "most unsolicited" write of 256 KiB took
/// two round trips, so the bursts must have had 128 KiB.
fn keys_of_002(solicited: bool) -> Keys {
    Keys {
        immediate_data: !solicited,
        initial_r2t: solicited,
        first_burst_bytes: 128 * KIB,
        max_burst_bytes: 128 * KIB,
        target_segment_bytes: 64 * KIB,
        initiator_segment_bytes: 64 * KIB,
        ..Keys::default()
    }
}

/// Returns constants that fit document 002's table of reads and writes.
fn path_of_002(direction: Direction) -> Path {
    Path {
        payload_per_s: Some(19.3e6),
        exchange_s: 0.35 * MS,
        command_s: 0.30 * MS,
        copy_per_s: Some(70e6),
        commands_at_once: Some(match direction {
            Direction::Read => 24.0,
            Direction::Write => 16.0,
        }),
        writes_under_way_bytes: Some(245e3),
        exchanges_per_s: Some(17_100.0),
        ..Path::of_round_trip(0.0)
    }
}

/// Returns half a unit of the last printed digit, converted to base units.
fn rounding(row: &Row) -> f64 {
    let decimals = row
        .printed
        .split_once('.')
        .map_or(0, |(_, after)| after.len() as i32);
    let number: f64 = row.printed.parse().expect("a number");
    0.5 * 10f64.powi(-decimals) * row.bytes_per_s().expect("a rate") / number
}

fn measured(row: &Row) -> Measured {
    let block_bytes = row.block_bytes;
    let load = block_bytes.map(|block_bytes| Load {
        direction: match row.direction {
            Some(published::Direction::Read) => Direction::Read,
            _ => Direction::Write,
        },
        block_bytes,
        depth: row.depth.unwrap_or(1),
        sessions: 1,
        random: false,
        durable: false,
    });
    Measured {
        load,
        keys: keys_of_002(
            row.table.contains("Most Solicited") || row.pattern.contains("most solicited"),
        ),
        round_trip_s: row.rtt_ms.unwrap_or(0.0) * MS,
        connections: 1,
        bytes_per_s: row.bytes_per_s().expect("a rate"),
        rounding_per_s: rounding(row),
    }
}

/// Whether the model reproduces a cell: it is within 10 % of the cell, or rounds to it.
fn is_reproduced(measured: &Measured, path: &Path) -> bool {
    let modelled = measured.modelled(path);
    (modelled - measured.bytes_per_s).abs()
        <= measured.rounding_per_s.max(0.1 * measured.bytes_per_s)
}

/// Returns the cells of document 002 with a round trip: 32 of reads, or 64 of writes.
fn wan(direction: Direction) -> Vec<Measured> {
    let rows = published::rows()
        .iter()
        .filter(|row| row.document == "002" && row.rtt_ms.is_some());
    let cells = rows.filter(|row| row.block_bytes.is_some()).map(measured);
    cells
        .filter(|cell| cell.load.is_some_and(|load| load.direction == direction))
        .collect()
}

#[test]
fn the_constants_of_the_reference_reproduce_90_of_the_96_cells_of_document_002() {
    let cells = |direction| {
        let cells = wan(direction);
        let path = path_of_002(direction);
        (
            cells
                .iter()
                .filter(|cell| is_reproduced(cell, &path))
                .count(),
            cells.len(),
        )
    };
    let (reads, writes) = (cells(Direction::Read), cells(Direction::Write));
    assert_eq!((reads.1, writes.1), (32, 64));
    assert!(reads.0 + writes.0 >= 90, "{reads:?} {writes:?}");
}

#[test]
fn a_fit_finds_constants_as_good_in_the_tables_themselves() {
    use Constant::*;
    let known = Path::of_round_trip(0.0);
    let reads = wan(Direction::Read);
    let read = fit(
        &known,
        &reads,
        &[Link, Command, Copy, CommandsAtOnce, Exchanges],
    )
    .expect("a fit");
    let writes = wan(Direction::Write);
    let free = [
        Link,
        Exchange,
        Command,
        Copy,
        CommandsAtOnce,
        WritesUnderWay,
        Exchanges,
    ];
    let write = fit(&known, &writes, &free).expect("a fit");
    let count = |cells: &[Measured], path: &Path| {
        cells
            .iter()
            .filter(|cell| is_reproduced(cell, path))
            .count()
    };
    let reproduced = count(&reads, &read.path) + count(&writes, &write.path);
    assert!(reproduced >= 90, "{reproduced}: {read:?} {write:?}");
    assert!(
        read.median_off < 0.05 && write.median_off < 0.05,
        "{} {}",
        read.median_off,
        write.median_off
    );
    // The document does not mention this: of 32 commands, fewer were ever outstanding, and outstanding write
    // data is limited to about 245 kB.
    let at_once = write.path.commands_at_once.expect("it binds");
    assert!((14.0..20.0).contains(&at_once), "{at_once}");
    let under_way = write.path.writes_under_way_bytes.expect("it binds");
    assert!((230e3..260e3).contains(&under_way), "{under_way}");
}

#[test]
fn the_windows_of_document_002_are_found_in_its_tcp_tables() {
    let rows = |direction, window| {
        let rows = published::rows().iter().filter(move |row| {
            row.document == "002"
                && row.block_bytes.is_none()
                && row.direction == Some(direction)
                && row.tcp_window_bytes == Some(window)
        });
        rows.map(measured).collect::<Vec<_>>()
    };
    let default_window = 65_536;
    for (direction, window) in [
        (published::Direction::InitiatorToTarget, 45.5e3),
        (published::Direction::TargetToInitiator, 33.2e3),
    ] {
        let cells = rows(direction, default_window);
        assert_eq!(cells.len(), 4);
        let reference = Path {
            payload_per_s: Some(19.15e6),
            window_bytes: Some(window),
            window_delay_s: 0.44 * MS,
            ..Path::of_round_trip(0.0)
        };
        assert!(cells.iter().all(|cell| is_reproduced(cell, &reference)));
        let known = Path::of_round_trip(0.0);
        let free = [Constant::Link, Constant::Window, Constant::WindowDelay];
        let fitted = fit(&known, &cells, &free).expect("a fit");
        assert!(
            cells.iter().all(|cell| is_reproduced(cell, &fitted.path)),
            "{fitted:?}"
        );
        let found = fitted.path.window_bytes.expect("it binds");
        assert!((found / window - 1.0).abs() < 0.05, "{found}");
        // With a window of 10 MiB, only the link remains as a limit.
        let large = rows(direction, 10 << 20);
        let fitted = fit(&known, &large, &free).expect("a fit");
        assert_eq!((large.len(), fitted.path.window_bytes), (4, None));
    }
}

fn load() -> impl Strategy<Value = Load> {
    let direction = prop_oneof![Just(Direction::Read), Just(Direction::Write)];
    (direction, 9..21u32, 1..257u32, 1..5u16).prop_map(|(direction, power, depth, sessions)| Load {
        direction,
        block_bytes: 1 << power,
        depth,
        sessions,
        random: false,
        durable: false,
    })
}

fn keys() -> impl Strategy<Value = Keys> {
    let flags = any::<[bool; 4]>();
    (flags, 9..20u32, 9..20u32, 9..20u32, 1..5u16).prop_map(|(flags, first, max, segment, r2ts)| {
        Keys {
            immediate_data: flags[0],
            initial_r2t: flags[1],
            first_burst_bytes: 1 << first.min(max),
            max_burst_bytes: 1 << max,
            outstanding_r2ts: r2ts,
            target_segment_bytes: 1 << segment,
            initiator_segment_bytes: 1 << segment,
            header_digest: flags[2],
            data_digest: flags[3],
        }
    })
}

fn path() -> impl Strategy<Value = Path> {
    let limits = (
        1e6..1e9f64,
        1e4..1e7f64,
        1.0..64.0f64,
        1e4..1e7f64,
        1e3..1e6f64,
    );
    let times = (0.0..0.1f64, 0.0..1e-3f64, 1e-6..1e-3f64);
    (limits, times, 1..5u16).prop_map(|(limits, times, connections)| Path {
        payload_per_s: Some(limits.0),
        window_bytes: Some(limits.1),
        commands_at_once: Some(limits.2),
        writes_under_way_bytes: Some(limits.3),
        exchanges_per_s: Some(limits.4),
        exchange_s: times.1,
        command_s: times.2,
        copy_per_s: Some(limits.0),
        medium_per_s: Some(limits.0),
        window_delay_s: times.1,
        connections,
        ..Path::of_round_trip(times.0)
    })
}

proptest! {
    #[test]
    fn a_shorter_way_a_wider_window_and_more_depth_never_harm(
        path in path(), keys in keys(), load in load()
    ) {
        let rate = |path: &Path, load: &Load| predict(path, &keys, load).bytes_per_s;
        let now = rate(&path, &load);
        prop_assert!(now.is_finite() && now > 0.0);
        let shorter = Path { round_trip_s: path.round_trip_s / 2.0, ..path };
        let wider = Path { window_bytes: path.window_bytes.map(|window| window * 2.0), ..path };
        let deeper = Load { depth: load.depth * 2, ..load };
        let more = Load { sessions: load.sessions * 2, ..load };
        let better = [rate(&shorter, &load), rate(&wider, &load), rate(&path, &deeper), rate(&path, &more)];
        prop_assert!(better.iter().all(|better| *better >= now), "{:?} {}", better, now);
    }

    #[test]
    fn a_request_takes_no_less_among_others_than_alone(path in path(), keys in keys(), load in load()) {
        let prediction = predict(&path, &keys, &load);
        prop_assert!(prediction.latency_s >= prediction.alone_s);
        prop_assert!(prediction.alone_s >= f64::from(prediction.exchanges) * path.round_trip_s);
        prop_assert_eq!(prediction.terms[0].1, prediction.bytes_per_s);
        prop_assert!(prediction.terms.is_sorted_by(|one, next| one.1 <= next.1));
    }

    #[test]
    fn nothing_that_a_path_can_say_makes_a_prediction_panic(path in path(), keys in keys(), odd in 0..6u8) {
        let odd = [0.0, -1.0, f64::NAN, f64::INFINITY, f64::MIN_POSITIVE, f64::MAX][usize::from(odd)];
        let path = Path {
            round_trip_s: odd,
            payload_per_s: Some(odd),
            copy_per_s: Some(odd),
            connections: 0,
            ..path
        };
        let nothing = Load {
            direction: Direction::Write,
            block_bytes: 0,
            depth: 0,
            sessions: 0,
            random: false,
            durable: false,
        };
        predict(&path, &keys, &nothing);
        let huge = Load { block_bytes: u32::MAX, depth: u32::MAX, sessions: u16::MAX, ..nothing };
        predict(&path, &keys, &huge);
    }
}

/// Returns every combination of a WAN matrix, as predicted for a path.
fn matrix(path: &Path, direction: Direction) -> Vec<Measured> {
    let mut cells = Vec::new();
    for solicited in [true, false] {
        for round_trip_ms in [0.0, 2.0, 10.0, 50.0] {
            for (block_kib, depth) in [
                (1, 1),
                (8, 1),
                (64, 1),
                (256, 1),
                (1, 32),
                (8, 32),
                (64, 32),
                (256, 32),
            ] {
                let block_bytes = block_kib * KIB;
                let load = Load {
                    direction,
                    block_bytes,
                    depth,
                    sessions: 1,
                    random: false,
                    durable: false,
                };
                let cell = Measured {
                    load: Some(load),
                    keys: keys_of_002(solicited),
                    round_trip_s: round_trip_ms * MS,
                    connections: 1,
                    bytes_per_s: 0.0,
                    rounding_per_s: 0.0,
                };
                cells.push(Measured {
                    bytes_per_s: cell.modelled(path),
                    ..cell
                });
            }
        }
    }
    cells
}

#[test]
fn a_fit_of_what_was_predicted_gives_back_the_constants() {
    use Constant::*;
    let truth = path_of_002(Direction::Write);
    // The window is omitted: over one connection, it has the same effect as the limit of outstanding data.
    let free = [
        Link,
        Exchange,
        Command,
        Copy,
        CommandsAtOnce,
        WritesUnderWay,
        Exchanges,
        Medium,
    ];
    let fitted = fit(
        &Path::of_round_trip(0.0),
        &matrix(&truth, Direction::Write),
        &free,
    )
    .expect("a fit");
    assert!(fitted.median_off < 1e-3, "{fitted:?}");
    let near = |found: f64, truth: f64| {
        assert!(
            (found / truth - 1.0).abs() < 0.02,
            "{found} {truth}: {fitted:?}"
        )
    };
    let path = fitted.path;
    near(path.exchange_s, truth.exchange_s);
    near(path.command_s, truth.command_s);
    let limits = |path: &Path| {
        [
            path.payload_per_s,
            path.copy_per_s,
            path.commands_at_once,
            path.writes_under_way_bytes,
            path.exchanges_per_s,
        ]
    };
    for (found, truth) in limits(&path).into_iter().zip(limits(&truth)) {
        near(found.unwrap_or(f64::INFINITY), truth.expect("it is set"));
    }
    // A limit is not found if another one explains its effect.
    assert_eq!(path.medium_per_s, None);
}

#[test]
fn a_fit_of_nothing_is_none() {
    let fitted =
        |measured: &[Measured]| fit(&Path::of_round_trip(0.0), measured, &[Constant::Link]);
    assert_eq!(fitted(&[]), None);
    let nothing = matrix(&path_of_002(Direction::Read), Direction::Read)
        .into_iter()
        .map(|cell| Measured {
            bytes_per_s: f64::NAN,
            ..cell
        });
    assert_eq!(fitted(&nothing.collect::<Vec<_>>()), None);
}

/// Document 000's Table 2 contains writes to memory. The paper attributes the change between 8 and 16 KiB to
/// "overhead in writing each chunk", but the cause is the first R2T. Its sessions had ImmediateData=Yes,
/// InitialR2T=Yes and 8192 bytes per PDU.
#[test]
fn the_knee_of_document_000_is_the_first_r2t() {
    let rows = published::rows().iter().filter(|row| {
        row.document == "000" && row.table == "Table 2" && row.test == "iSCSI to RAM drive"
    });
    let cells: Vec<Measured> = rows.map(measured).collect();
    assert!(cells.len() >= 10, "{}", cells.len());
    let off = |keys: Keys| {
        let cells: Vec<Measured> = cells
            .iter()
            .map(|cell| Measured { keys, ..*cell })
            .collect();
        let free = [Constant::Exchange, Constant::Command, Constant::Copy];
        let fitted = fit(&Path::of_round_trip(0.0), &cells, &free).expect("a fit");
        let squares = fitted.off.iter().map(|off| (1.0 + off).ln().powi(2));
        (
            (squares.sum::<f64>() / cells.len() as f64).sqrt(),
            fitted.path.exchange_s,
        )
    };
    let (with, exchange_s) = off(Keys::default());
    let unasked = Keys {
        initial_r2t: false,
        first_burst_bytes: u32::MAX,
        ..Keys::default()
    };
    let (without, _) = off(unasked);
    // A fit by another method has a root mean square error of 4.7 % with the R2T and 10.9 % without, and
    // finds 120 µs for each R2T. Our loss function differs.
    assert!(with < 0.06 && without > 2.0 * with, "{with} {without}");
    assert!((0.1e-3..0.14e-3).contains(&exchange_s), "{exchange_s}");
}

/// Tests the cost of an additional round trip on document 002's Gigabit Ethernet: the times of single
/// solicited and unsolicited writes differ by one exchange.
#[test]
fn the_price_of_an_r2t_is_in_document_002() {
    let time = |block_bytes: u32, solicited: bool| {
        let name = if solicited {
            "most solicited"
        } else {
            "most unsolicited"
        };
        let row = published::rows().iter().find(|row| {
            row.document == "002"
                && row.rtt_ms.is_none()
                && row.depth == Some(1)
                && row.block_bytes == Some(block_bytes)
                && row.pattern.starts_with(name)
        });
        f64::from(block_bytes) / row.and_then(Row::bytes_per_s).expect("002 has it")
    };
    let price = |kib: u32| {
        let exchanges = |solicited| keys_of_002(solicited).exchanges(Direction::Write, kib * KIB);
        let more = f64::from(exchanges(true) - exchanges(false));
        (time(kib * KIB, true) - time(kib * KIB, false)) / more / MS
    };
    let prices = [1, 8, 64, 256].map(|kib| format!("{:.3}", price(kib)));
    assert_eq!(prices, ["0.115", "0.143", "0.174", "0.396"]);
}
