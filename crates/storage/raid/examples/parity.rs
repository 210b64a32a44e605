//! Parity throughput on one core, compared with ISA-L and with this machine's memory bandwidth:
//!
//! ```console
//! apt-get install libisal-dev
//! cargo run --release -p linerate-raid --example parity
//! ```
//!
//! A C program (`isal.c`) calls ISA-L. This example compiles it and controls it line by line, so that both
//! implementations alternate within one run. Times are CPU times, so other processes do not affect them. A
//! figure is the median of five rounds; a ratio is the median of the ratios in each round.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use block::Buffer;
use rustix::time::{ClockId, clock_gettime};

/// Approximate number of bytes processed per round.
const ROUND_BYTES: usize = 1 << 30;

const ROUNDS: usize = 5;

#[derive(Clone, Copy)]
struct Cell {
    what: &'static str,
    strips: usize,
    bytes: usize,
}

impl Cell {
    fn rounds(self) -> usize {
        (ROUND_BYTES / (self.strips * self.bytes)).max(1)
    }

    /// Returns the number of data bytes per round.
    fn data_bytes(self) -> f64 {
        (self.rounds() * self.strips * self.bytes) as f64
    }

    /// Measures the CPU time of this crate's implementation in nanoseconds.
    fn ours(self) -> f64 {
        let strip = |index: usize| {
            let mut buffer = Buffer::zeroed(self.bytes);
            buffer.fill(index as u8 * 37 + 1);
            buffer
        };
        let buffers: Vec<Buffer> = (0..self.strips).map(strip).collect();
        let data: Vec<&[u8]> = buffers.iter().map(|buffer| &buffer[..]).collect();
        let (mut p, mut q) = (strip(0), strip(1));
        let start = cpu_time();
        for _ in 0..self.rounds() {
            match self.what {
                "xor" => raid::parity::parity(&data, &mut p),
                "pq" => raid::parity::syndromes(&data, &mut p, &mut q),
                "read" => drop(std::hint::black_box(sum(data[0]))),
                _ => p.copy_from_slice(std::hint::black_box(data[0])),
            }
        }
        std::hint::black_box((&p, &q));
        cpu_time() - start
    }
}

/// Returns the CPU time of this thread in nanoseconds. It excludes other threads on this core.
fn cpu_time() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

/// Reads all bytes with as little computation as possible.
fn sum(bytes: &[u8]) -> [u64; 8] {
    let mut sums = [0u64; 8];
    for line in bytes.chunks_exact(64) {
        for (sum, word) in sums.iter_mut().zip(line.chunks_exact(8)) {
            *sum ^= word
                .first_chunk()
                .map_or(0, |word| u64::from_le_bytes(*word));
        }
    }
    sums
}

/// The C program and its pipes.
struct IsaL {
    child: Child,
    ask: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl IsaL {
    fn start() -> Option<IsaL> {
        let directory = tempfile::tempdir().ok()?;
        let (source, program) = (
            directory.path().join("isal.c"),
            directory.path().join("isal"),
        );
        std::fs::write(&source, include_str!("isal.c")).ok()?;
        let compiled = Command::new("cc")
            .arg("-O2")
            .arg(&source)
            .arg("-o")
            .arg(&program)
            .arg("-lisal")
            .status();
        compiled.ok().filter(std::process::ExitStatus::success)?;
        let mut child = Command::new(&program)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .ok()?;
        let (ask, answers) = (child.stdin.take()?, BufReader::new(child.stdout.take()?));
        Some(IsaL {
            child,
            ask,
            answers,
        })
    }

    /// Measures the CPU time of the C program in nanoseconds.
    fn theirs(&mut self, cell: Cell) -> f64 {
        writeln!(
            self.ask,
            "{} {} {} {}",
            cell.what,
            cell.strips,
            cell.bytes,
            cell.rounds()
        )
        .expect("it listens");
        let mut line = String::new();
        self.answers.read_line(&mut line).expect("it answers");
        let nanoseconds: f64 = line.trim().parse().expect("a number");
        assert!(
            nanoseconds > 0.0,
            "ISA-L refuses {} strips of {}",
            cell.strips,
            cell.bytes
        );
        nanoseconds
    }
}

impl Drop for IsaL {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() {
    let mut isal = IsaL::start();
    if isal.is_none() {
        println!("ISA-L is not compared: it wants cc and libisal-dev");
    }
    println!("GB/s of data read       ours   ISA-L  ours/ISA-L");
    for (what, strips, bytes) in [
        ("xor", 4, 4 << 10),
        ("xor", 4, 64 << 10),
        ("xor", 8, 64 << 10),
        ("xor", 4, 16 << 20),
        ("pq", 4, 4 << 10),
        ("pq", 4, 64 << 10),
        ("pq", 8, 64 << 10),
        ("pq", 4, 16 << 20),
        ("read", 1, 64 << 20),
        ("copy", 1, 64 << 20),
    ] {
        let cell = Cell {
            what,
            strips,
            bytes,
        };
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for round in 0..ROUNDS {
            // Alternate which implementation runs first.
            let our_turn = round % 2 == 0;
            if our_turn {
                ours.push(cell.ours());
            }
            theirs.extend(
                isal.as_mut()
                    .filter(|_| what != "read")
                    .map(|isal| isal.theirs(cell)),
            );
            if !our_turn {
                ours.push(cell.ours());
            }
        }
        let rate = |nanoseconds: &f64| cell.data_bytes() / nanoseconds;
        let ratios = ours
            .iter()
            .zip(&theirs)
            .map(|(ours, theirs)| theirs / ours)
            .collect::<Vec<_>>();
        let name = format!("{what} {strips} x {} KiB", bytes >> 10);
        print!(
            "{name:<20} {:>7.1}",
            median(ours.iter().map(rate).collect())
        );
        match theirs.is_empty() {
            true => println!(),
            false => {
                println!(
                    " {:>7.1} {:>7.2}",
                    median(theirs.iter().map(rate).collect()),
                    median(ratios)
                );
            }
        }
    }
}
