//! An arbitrary fio job file: it becomes a suite, or each error has a position in the file.
#![no_main]

use bench::fio_job;
use bench::plan::Step;
use libfuzzer_sys::fuzz_target;
use script::{Script, assert_in_text, edited};

const GOOD: &str = "[global]\nioengine=libaio\ndirect=1\nsize=64m\nruntime=10s\ntime_based\nkb_base=1024\n\
                    [fill]\nrw=write\nbs=128k\niodepth=32\nverify=crc32c\n\
                    [mix]\nstonewall\nrw=randrw\nrwmixread=70\nbssplit=4k/70:64k/30,8k/100\nnumjobs=2\n\
                    rate_iops=1000,500\nrandom_distribution=zoned:90/10:10/90\noffset=10%\n\
                    [other]\nrw=randread\nbsrange=4k-64k\nthinktime=1ms\nnumber_ios=1000\noffset_increment=1m\n";

#[rustfmt::skip]
const WORDS: &[&str] = &[
    "0", "1", "100", "101%", "-1", "0x10", "18446744073709551616", "4k", "64KiB", "4k,,8k", "1e400", "[a]",
    "[global]", "[", "]", "=", ":", "/", ",", ";", "\n", "\0", "é", "zipf:1.1", "pareto:0.2", "loops=2",
    "include other.fio", "stonewall", "numjobs=200", "iodepth=65536", "bs=64m", "unit_base=8",
];

/// Sizes of devices: empty, too small for most jobs, ordinary, and the maximum.
const DEVICES: [u64; 4] = [0, 4096, 1 << 30, u64::MAX];

fuzz_target!(|bytes: &[u8]| {
    let mut script = Script(bytes);
    let device = DEVICES[usize::from(script.byte() % 4)];
    let text = &edited(GOOD, &mut script, WORDS);
    let jobs = match fio_job::parse(text, &[]) {
        Ok(jobs) => jobs,
        Err(mistakes) => {
            assert!(!mistakes.is_empty());
            mistakes
                .iter()
                .for_each(|mistake| assert_in_text(text, mistake.line, mistake.column));
            return;
        }
    };
    assert!(!jobs.phases.is_empty() && jobs.phases.iter().all(|phase| !phase.is_empty()));
    let Ok(suite) = jobs.suite("fuzz", device) else {
        return;
    };
    let cells = suite.steps.iter().filter_map(|step| match step {
        Step::Measure { cells, .. } => Some(cells),
        _ => None,
    });
    let roles: Vec<_> = cells.flatten().flat_map(|cell| &cell.roles).collect();
    assert!(!roles.is_empty());
    for workload in roles.iter().map(|role| &role.workload) {
        assert!(workload.depth > 0);
        assert_eq!(
            workload
                .accesses
                .iter()
                .map(|access| u32::from(access.share.get()))
                .sum::<u32>(),
            100
        );
    }
});
