//! Tests the effects of a link on its traffic.

use std::collections::BTreeMap;
use std::time::Duration;

use lab::{Conditions, Direction, Plan, Spread};

use crate::scene::{build, connection, host, losses, pair, round_trip, send, udp};

/// A time longer than any datagram takes, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(240);

fn gigabit() -> Conditions {
    Conditions {
        bits_per_s: Some(1e9),
        ..Conditions::default()
    }
}

#[test]
fn a_packet_longer_than_the_path_carries_vanishes_without_a_word() {
    let mut plan = Plan::pair(Conditions {
        mtu: 1400,
        ..gigabit()
    });
    for end in &mut plan.links[0].ends {
        end.interface_mtu = Some(1500);
    }
    let Some(lab) = build(&plan) else { return };
    let (from, _) = udp(host(&lab, "client"));
    let (to, address) = udp(host(&lab, "server"));
    // The IPv4 and UDP headers take 28 bytes.
    from.send_to(&[0; 1373], address)
        .expect("no error for the sender");
    from.send_to(&[0; 1372], address).expect("sends");
    let mut buffer = [0; 2000];
    to.set_read_timeout(Some(PATIENCE)).expect("not zero");
    assert_eq!(to.recv(&mut buffer).expect("the shorter one arrives"), 1372);
    to.set_read_timeout(Some(Duration::from_millis(200)))
        .expect("not zero");
    assert!(
        to.recv(&mut buffer).is_err(),
        "the longer one must not arrive"
    );
    assert_eq!(lab.link("wire").expect("there").counts().too_long, 1);
}

#[test]
fn the_same_seed_loses_the_same_frames() {
    let lossy = |seed| {
        pair(Conditions {
            loss: 0.02,
            seed,
            ..gigabit()
        })
        .map(|lab| losses(&lab, 2000))
    };
    let (Some(once), Some(again), Some(other)) = (lossy(5), lossy(5), lossy(6)) else {
        return;
    };
    let lost = once.values().max().copied().unwrap_or(0);
    assert!((1..100).contains(&lost), "{lost}");
    // The kernel may send other frames at any time, so only the frames with numbers that occur in both runs
    // are compared.
    let in_both = |other: &BTreeMap<u64, u64>| -> Vec<(u64, u64)> {
        once.iter()
            .filter_map(|(frame, lost)| Some((*lost, *other.get(frame)?)))
            .collect()
    };
    assert!(
        in_both(&again).len() > 1000,
        "{} of {} frames",
        in_both(&again).len(),
        once.len()
    );
    assert!(in_both(&again).iter().all(|(once, again)| once == again));
    assert!(in_both(&other).iter().any(|(once, other)| once != other));
}

#[test]
fn data_are_whole_behind_a_link_that_loses_and_reorders() {
    let conditions = Conditions {
        loss: 0.01,
        reorder: 0.01,
        bits_per_s: Some(200e6),
        ..gigabit()
    };
    let Some(lab) = pair(conditions) else { return };
    let (client, server) = connection(&lab);
    // A receiver would discard wrongly cut frames, so no byte would arrive for a long time.
    send(&client, &server, 4 << 20);
    let counts = lab
        .link("wire")
        .expect("there")
        .counts_of(Direction::Forward);
    assert!(counts.lost > 5 && counts.overtaken > 5, "{counts}");
    assert_eq!(counts.failed, 0, "{counts}");
}

#[test]
fn a_round_trip_takes_both_delays() {
    let Some(lab) = pair(Conditions {
        delay: Duration::from_millis(5),
        ..gigabit()
    }) else {
        return;
    };
    let (client, server) = connection(&lab);
    let shortest = round_trip(&client, &server, 5);
    assert!(shortest >= Duration::from_millis(10), "{shortest:?}");
}

#[test]
fn a_link_does_not_carry_more_than_its_rate() {
    let Some(lab) = pair(Conditions {
        bits_per_s: Some(100e6),
        ..gigabit()
    }) else {
        return;
    };
    let (client, server) = connection(&lab);
    let bytes = 4_000_000;
    let took = send(&client, &server, bytes);
    // Of each 1538 bytes on the wire, 1448 are data.
    let least = bytes as f64 * 8.0 / 100e6 * 1538.0 / 1448.0;
    assert!(
        took.as_secs_f64() > least * 0.999,
        "{took:?} instead of {least} s"
    );
}

#[test]
fn conditions_change_while_the_link_runs() {
    let Some(lab) = pair(gigabit()) else { return };
    let (client, server) = connection(&lab);
    let link = lab.link("wire").expect("there");
    let slow = Conditions {
        delay: Duration::from_millis(10),
        ..gigabit()
    };
    link.set(Direction::Back, &slow).expect("sound");
    let one_way = round_trip(&client, &server, 3);
    assert!(one_way >= Duration::from_millis(10), "{one_way:?}");
    link.set(Direction::Both, &slow).expect("sound");
    let both = round_trip(&client, &server, 3);
    assert!(both >= Duration::from_millis(20), "{both:?}");
    assert!(
        link.set(
            Direction::Both,
            &Conditions {
                loss: 2.0,
                ..gigabit()
            }
        )
        .is_err()
    );
}

#[test]
fn flows_stay_in_their_lane_of_a_bundle() {
    let slow = Conditions {
        delay: Duration::from_millis(20),
        ..gigabit()
    };
    let Some(lab) = pair(Conditions {
        lanes: vec![gigabit(), slow],
        ..gigabit()
    }) else {
        return;
    };
    // With twenty connections, the probability that all use the same lane is one in half a million.
    let slow = (0..20).filter(|_| {
        let (client, server) = connection(&lab);
        round_trip(&client, &server, 1) >= Duration::from_millis(40)
    });
    assert!((1..20).contains(&slow.count()));
}

#[test]
fn flows_can_take_the_lanes_in_turn() {
    let slow = Conditions {
        delay: Duration::from_millis(20),
        ..gigabit()
    };
    let bundle = Conditions {
        lanes: vec![gigabit(), slow],
        spread: Spread::InTurn,
        ..gigabit()
    };
    let Some(lab) = pair(bundle) else { return };
    let held: Vec<_> = (0..4).map(|_| connection(&lab)).collect();
    let slow: Vec<bool> = held
        .iter()
        .map(|(client, server)| round_trip(client, server, 3) >= Duration::from_millis(40))
        .collect();
    assert_eq!(slow, [false, true, false, true]);
}

#[test]
fn a_host_reports_its_links_speed_or_what_the_plan_says() {
    let mut plan = Plan::pair(Conditions {
        bits_per_s: Some(160e6),
        ..gigabit()
    });
    plan.links[0].ends[1].reported_megabits = Some(10_000);
    let Some(lab) = build(&plan) else { return };
    let speed = |name: &str| {
        let output = host(&lab, name)
            .command("cat")
            .arg("/sys/class/net/wire/speed")
            .output();
        String::from_utf8(output.expect("runs").stdout).expect("a number")
    };
    assert_eq!(
        (speed("client").trim(), speed("server").trim()),
        ("160", "10000")
    );
    let inside = host(&lab, "client").run(|| std::fs::read_to_string("/sys/class/net/wire/speed"));
    assert_eq!(inside.expect("enters").expect("reads").trim(), "160");
}

#[test]
fn a_host_has_the_settings_of_its_plan() {
    let mut plan = Plan::pair(gigabit());
    plan.hosts[0].congestion = "reno".to_owned();
    plan.hosts[0]
        .sysctls
        .push(("net.ipv4.tcp_sack".to_owned(), "0".to_owned()));
    let Some(lab) = build(&plan) else { return };
    let read = |name: &str, path: &'static str| {
        host(&lab, name)
            .run(|| {
                std::fs::read_to_string(path)
                    .expect("reads")
                    .trim()
                    .to_owned()
            })
            .expect("enters")
    };
    assert_eq!(
        read("client", "/proc/sys/net/ipv4/tcp_congestion_control"),
        "reno"
    );
    assert_eq!(
        read("server", "/proc/sys/net/ipv4/tcp_congestion_control"),
        "cubic"
    );
    assert_eq!(read("client", "/proc/sys/net/ipv4/tcp_sack"), "0");
    assert!(
        host(&lab, "client")
            .settings()
            .contains(&("net.ipv4.tcp_sack".to_owned(), "0".to_owned()))
    );
}
