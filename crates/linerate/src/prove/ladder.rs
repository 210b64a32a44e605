//! How fast, one block size after the other.

use std::sync::Arc;
use std::time::Duration;

use bench::plan::{Percent, Span, Workload};
use bench::record::Run;
use bench::{Go, Orders};
use block::BlockDevice;
use host::cputime;
use initiator::Url;

use super::attached::Attached;
use super::server;
use crate::failure::Failure;
use crate::figures::{bar, grouped, significant};
use crate::output::say;

/// From one logical block to what large copies use.
const BLOCKS: std::ops::RangeInclusive<u32> = 9..=20;
const DEPTH: u32 = 32;
/// More under way would only wait in buffers, and push each other out of the caches.
const UNDER_WAY_BYTES_MAX: u32 = 8 << 20;
const BAR: usize = 14;

/// Both directions of one block size.
struct Rung {
    block_bytes: u32,
    read: Cell,
    write: Cell,
}

/// One direction of one block size.
struct Cell {
    run: Run,
    /// CPU time of the initiator's thread and of all others, per request, in microseconds.
    initiator_us: f64,
    target_us: f64,
}

/// Measures all block sizes and prints them. Whether all requests ended well.
pub(super) async fn climb(url: &Url, time: Duration) -> Result<bool, Failure> {
    let attached = Attached::to(url).await?;
    say(&format!("\nHow fast: one session, one connection, {DEPTH} requests at once, at random places\n"));
    say("                     reads                                    writes\n");
    say("     block      MB/s        IOPS                         MB/s        IOPS\n");
    let mut rungs = Vec::new();
    for shift in BLOCKS {
        let block_bytes = 1 << shift;
        let read = measure(&attached.device, block_bytes, 100, time).await?;
        let write = measure(&attached.device, block_bytes, 0, time).await?;
        let rung = Rung { block_bytes, read, write };
        say(&rung.line());
        rungs.push(rung);
    }
    attached.detach().await;
    say(&costs(&rungs));
    let failures = rungs.iter().flat_map(|rung| [&rung.read, &rung.write]);
    let failures: Vec<_> = failures.filter_map(|cell| cell.run.first_failure.as_ref()).collect();
    failures.iter().for_each(|failure| say(&format!("  ✗ a request failed: {failure}\n")));
    Ok(failures.is_empty())
}

async fn measure(
    device: &Arc<dyn BlockDevice>,
    block_bytes: u32,
    read: u8,
    duration: Duration,
) -> Result<Cell, Failure> {
    let read = Percent::new(read).expect("0 and 100 are shares");
    let depth = DEPTH.min(UNDER_WAY_BYTES_MAX / block_bytes);
    let workload = Workload {
        span: Span { start_bytes: 0, bytes: Some(server::VOLUME_BYTES) },
        seed: u64::from(block_bytes),
        ..Workload::simple(block_bytes, depth, read, Percent::ALL)
    };
    let (all, own) = (cputime::process(), cputime::thread());
    let (device, orders) = (std::slice::from_ref(device), Orders::for_time(duration));
    let run = bench::run(device, &workload, &orders, &mut |_| Go::On).await.map_err(Failure::failed)?;
    let (all, own) = (cputime::process() - all, cputime::thread() - own);
    let per_request = |time: Duration| time.as_secs_f64() * 1e6 / run.ios().max(1) as f64;
    let (initiator_us, target_us) = (per_request(own), per_request(all.saturating_sub(own)));
    Ok(Cell { run, initiator_us, target_us })
}

impl Rung {
    fn line(&self) -> String {
        format!("  {:>8}  {}   {}\n", size(self.block_bytes), self.read.columns(), self.write.columns())
    }
}

impl Cell {
    fn columns(&self) -> String {
        let (mb_per_s, iops) = (self.run.bytes_per_s() / 1e6, self.run.iops());
        // On a logarithmic scale from 100 MB/s to 25 GB/s: every doubling is as long as the one before it.
        let share = (mb_per_s / 100.0).max(1.0).log2() / 8.0;
        format!(
            "{:>8}  {:>10}  {:<BAR$}",
            significant(mb_per_s),
            grouped(iops.round() as u64),
            bar(share, BAR)
        )
    }
}

/// What a request costs, where people ask: the smallest that databases make, and a large one.
fn costs(rungs: &[Rung]) -> String {
    let mut text = String::from("\nWhat it costs, in CPU time per request\n");
    for rung in rungs.iter().filter(|rung| [4 << 10, 256 << 10].contains(&rung.block_bytes)) {
        for (direction, cell) in [("read", &rung.read), ("write", &rung.write)] {
            let latency = cell.run.reads.service.merged(&cell.run.writes.service);
            let us = |share| significant(latency.quantile_ns(share) as f64 / 1e3);
            text += &format!(
                "  {:>8} {direction:<5}   initiator {:>6} µs   target {:>6} µs   latency p50 {:>6} µs, p99 {:>6} µs\n",
                size(rung.block_bytes),
                significant(cell.initiator_us),
                significant(cell.target_us),
                us(0.5),
                us(0.99),
            );
        }
    }
    text
}

fn size(bytes: u32) -> String {
    match bytes {
        0..1024 => format!("{bytes} B"),
        1024..1_048_576 => format!("{} KiB", bytes >> 10),
        _ => format!("{} MiB", bytes >> 20),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_people_say_them() {
        assert_eq!([512, 4096, 1 << 20].map(size), ["512 B", "4 KiB", "1 MiB"]);
    }
}
