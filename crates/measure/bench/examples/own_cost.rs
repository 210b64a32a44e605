//! Measures the overhead of the benchmark loop: requests per second of one thread on a null device, with
//! samples and histograms enabled.
//!
//! Run it with `cargo run --release -p linerate-bench --example own_cost`, on an otherwise idle machine. It
//! also prints the rate per second of the thread's CPU time, which does not depend on other load.

use std::sync::Arc;
use std::time::Duration;

use bench::plan::{Data, Distribution, Pace, Percent, Workload};
use bench::{Go, Orders};
use block::{BlockDevice, BlockSize, Blocks, Geometry, Null};
use reactor::{Alone, block_on};

fn main() {
    let reads = Workload::simple(4096, 32, Percent::ALL, Percent::ALL);
    let half = Percent::new(50).expect("a share");
    let mixed = Workload::simple(4096, 32, half, Percent::ALL);
    show(
        "reads of 512 B",
        &Workload::simple(512, 32, Percent::ALL, Percent::ALL),
    );
    show("reads", &reads);
    show(
        "reads, one after the other",
        &Workload::simple(4096, 1, Percent::ALL, Percent::NONE),
    );
    show(
        "reads, zipf 0.99",
        &Workload {
            distribution: Distribution::Zipf { theta: 0.99 },
            ..reads.clone()
        },
    );
    show(
        "reads, pareto 0.2",
        &Workload {
            distribution: Distribution::Pareto { h: 0.2 },
            ..reads.clone()
        },
    );
    let pace = Pace::Poisson { per_second: 5e6 };
    show("reads, open loop, overloaded", &Workload { pace, ..reads });
    show("writes of half, random data", &mixed);
    show(
        "writes of half, zeros",
        &Workload {
            data: Data::Zeros,
            ..mixed.clone()
        },
    );
    let written = Workload::simple(4096, 32, Percent::NONE, Percent::ALL);
    show(
        "writes, stamped",
        &Workload {
            data: Data::Stamped,
            span: span(),
            ..written
        },
    );
}

/// Returns the longest span that verification supports.
fn span() -> bench::plan::Span {
    bench::plan::Span {
        start_bytes: 0,
        bytes: Some(1 << 30),
    }
}

fn show(name: &str, workload: &Workload) {
    let geometry = Geometry {
        block_size: BlockSize::B512,
        blocks: Blocks(1 << 31),
        physical_exponent: 3,
    };
    let devices: [Arc<dyn BlockDevice>; 1] = [Arc::new(Null::new(geometry))];
    let orders = Orders::for_time(Duration::from_secs(2));
    let before = cpu_s();
    let run = block_on(
        Alone::real_time(),
        bench::run(&devices, workload, &orders, &mut |_| Go::On),
    );
    let run = run.expect("the workload fits");
    let spent = cpu_s() - before;
    println!(
        "{name:<30} {:>6.2} M IOPS, {:>6.2} M in a second of CPU time, {:>5.0} ns each; p50 {} ns, p99.9 {} ns",
        run.iops() / 1e6,
        run.ios() as f64 / spent / 1e6,
        spent * 1e9 / run.ios() as f64,
        run.reads
            .service
            .merged(&run.writes.service)
            .quantile_ns(0.5),
        run.reads
            .service
            .merged(&run.writes.service)
            .quantile_ns(0.999),
    );
}

/// Returns the CPU time of this thread (proc(5), schedstat: nanoseconds on a CPU).
fn cpu_s() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let ns = text.split(' ').next().and_then(|ns| ns.parse::<f64>().ok());
    ns.unwrap_or(f64::NAN) / 1e9
}
