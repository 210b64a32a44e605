//! Measures the accuracy of the lab's links: rate, round trip, loss, additional delay, and CPU cost. Prints
//! the tables of `docs/measured/lab.md`, and takes about a minute and a half.
//!
//! Run it with `cargo run --release -p linerate-lab --example fidelity`, optionally followed by `rates`,
//! `round-trips` or `losses`.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use lab::{Conditions, Counts, Direction, Lab, LabError, Plan};

fn main() -> Result<(), LabError> {
    match std::env::args().nth(1).as_deref() {
        Some("rates") => rates(),
        Some("round-trips") => round_trips(),
        Some("losses") => losses(),
        _ => rates().and_then(|()| round_trips()).and_then(|()| losses()),
    }
}

/// The ratio of TCP's payload to the length on the wire, for full-size frames with timestamps.
const PAYLOAD_SHARE: f64 = 1448.0 / 1538.0;

fn rates() -> Result<(), LabError> {
    println!(
        "| link | ways | TCP carried | of what it can | left late, p50 | p99 | max | lost by the lab | \
         overflowed | wire's CPU |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|");
    for (megabits, round_trip_ms, both) in [
        (10.0, 0, false),
        (100.0, 0, false),
        (160.0, 0, false),
        (160.0, 50, false),
        (1000.0, 0, false),
        (1000.0, 50, false),
        (1000.0, 0, true),
        (1000.0, 50, true),
    ] {
        let conditions = Conditions {
            bits_per_s: Some(megabits * 1e6),
            delay: Duration::from_millis(round_trip_ms) / 2,
            // The buffer is larger than two windows of 32 MiB, so that TCP does not overflow it.
            buffer_bytes: 80 << 20,
            ..Conditions::default()
        };
        let lab = Lab::build(&Plan::pair(conditions))?;
        let run = flood(&lab, both)?;
        let counts = &run.counts;
        let ways = if both { 2.0 } else { 1.0 };
        let share = run.bits_per_s / (megabits * 1e6 * PAYLOAD_SHARE * ways);
        println!(
            "| {megabits} Mbit/s, {round_trip_ms} ms | {ways} | {:.1} Mbit/s | {:.2} % | {:.0} µs | {:.0} µs | {:.0} µs | {} | {} | {:.0} % |",
            run.bits_per_s / 1e6,
            share * 100.0,
            counts.own_delay_us(0.5),
            counts.own_delay_us(0.99),
            counts.own_delay_us(1.0),
            counts.failed,
            counts.overflowed,
            run.wire_cpu * 100.0,
        );
    }
    Ok(())
}

struct Run {
    bits_per_s: f64,
    counts: Counts,
    /// The CPU time of the wire's thread, as a share of one core.
    wire_cpu: f64,
}

/// Sends for some time, and measures in the middle of this time.
fn flood(lab: &Lab, both: bool) -> Result<Run, LabError> {
    let stop = AtomicBool::new(false);
    let received = AtomicU64::new(0);
    let (client, server) = connection(lab)?;
    let send = |mut to: TcpStream| {
        let chunk = vec![0xa5; 256 << 10];
        while !stop.load(Relaxed) {
            to.write_all(&chunk).expect("connected until it stops");
        }
        let _ = to.shutdown(std::net::Shutdown::Both);
    };
    let receive = |mut from: TcpStream| {
        let mut buffer = vec![0; 256 << 10];
        while let Ok(bytes) = from.read(&mut buffer)
            && bytes > 0
        {
            received.fetch_add(bytes as u64, Relaxed);
        }
    };
    let clone = |stream: &TcpStream| stream.try_clone().expect("another handle of it");
    let link = lab.link("wire")?;
    let run = thread::scope(|scope| {
        let (client_again, server_again) = (clone(&client), clone(&server));
        scope.spawn(|| send(client));
        scope.spawn(|| receive(server));
        if both {
            scope.spawn(|| send(server_again));
            scope.spawn(|| receive(client_again));
        }
        thread::sleep(Duration::from_secs(3));
        let (begun, bytes_before, cpu_before) =
            (Instant::now(), received.load(Relaxed), wire_cpu());
        thread::sleep(Duration::from_secs(5));
        let seconds = begun.elapsed().as_secs_f64();
        let bytes = received.load(Relaxed) - bytes_before;
        let cpu = wire_cpu() - cpu_before;
        stop.store(true, Relaxed);
        Run {
            bits_per_s: bytes as f64 * 8.0 / seconds,
            counts: link.counts(),
            wire_cpu: cpu / seconds,
        }
    });
    Ok(run)
}

fn round_trips() -> Result<(), LabError> {
    println!(
        "\n| round trip wanted | p50 | p99 | smallest | left late, p50 | p99 |\n|---|---|---|---|---|---|"
    );
    for wanted_ms in [0, 2, 10, 50] {
        let delay = Duration::from_millis(wanted_ms) / 2;
        let lab = Lab::build(&Plan::pair(Conditions {
            bits_per_s: Some(1e9),
            delay,
            ..Conditions::default()
        }))?;
        let (mut client, mut server) = connection(&lab)?;
        thread::scope(|scope| {
            scope.spawn(move || {
                at_once();
                let mut byte = [0];
                while server.read_exact(&mut byte).is_ok() && server.write_all(&byte).is_ok() {}
            });
            at_once();
            let mut byte = [0];
            let mut times: Vec<Duration> = (0..200)
                .map(|_| {
                    let begun = Instant::now();
                    client.write_all(&[1]).expect("connected");
                    client.read_exact(&mut byte).expect("connected");
                    begun.elapsed()
                })
                .collect();
            times.sort();
            let us = |at: usize| times[at].as_secs_f64() * 1e6;
            let counts = lab.link("wire").expect("the plan has it").counts();
            let late = [0.5, 0.99].map(|share| counts.own_delay_us(share));
            println!(
                "| {wanted_ms} ms | {:.0} µs | {:.0} µs | {:.0} µs | {:.0} µs | {:.0} µs |",
                us(100),
                us(198),
                us(0),
                late[0],
                late[1],
            );
            let _ = client.shutdown(std::net::Shutdown::Both);
        });
    }
    Ok(())
}

/// Requests real-time priority, so that the measurement does not include delays of the program on a busy
/// machine.
fn at_once() {
    if let Err(error) = host::threads::run_at_once() {
        eprintln!("the times below include those that the programs wait for a CPU: {error}");
    }
}

fn losses() -> Result<(), LabError> {
    println!("\n| loss wanted | frames | lost |\n|---|---|---|");
    for loss in [0.001, 0.01, 0.1] {
        let conditions = Conditions {
            bits_per_s: Some(1e9),
            loss,
            seed: 42,
            ..Conditions::default()
        };
        let lab = Lab::build(&Plan::pair(conditions))?;
        flood(&lab, false)?;
        let counts = lab.link("wire")?.counts_of(Direction::Forward);
        let share = counts.lost as f64 / (counts.lost + counts.frames) as f64;
        println!(
            "| {:.1} % | {} | {:.3} % |",
            loss * 100.0,
            counts.frames,
            share * 100.0
        );
    }
    Ok(())
}

fn connection(lab: &Lab) -> Result<(TcpStream, TcpStream), LabError> {
    let server = lab.host("server")?;
    let listener = server.run(|| TcpListener::bind((server.address(), 0)).expect("binds"))?;
    let address = listener.local_addr().expect("bound");
    let client = lab
        .host("client")?
        .run(|| TcpStream::connect(address).expect("connects"))?;
    let (accepted, _) = listener.accept().expect("accepts");
    client.set_nodelay(true).expect("a TCP socket");
    accepted.set_nodelay(true).expect("a TCP socket");
    Ok((client, accepted))
}

/// Returns the CPU time of the wire's thread, in seconds.
fn wire_cpu() -> f64 {
    let tasks = fs::read_dir("/proc/self/task")
        .expect("Linux")
        .filter_map(Result::ok);
    let wire = tasks.map(|task| task.path()).find(|task| {
        fs::read_to_string(task.join("comm")).is_ok_and(|name| name.trim() == "wire wire")
    });
    let schedstat = fs::read_to_string(wire.expect("it runs").join("schedstat")).expect("it runs");
    schedstat
        .split(' ')
        .next()
        .and_then(|ns| ns.parse::<f64>().ok())
        .map_or(0.0, |ns| ns / 1e9)
}
