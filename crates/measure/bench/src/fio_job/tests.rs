use proptest::prelude::*;

use super::*;
use crate::plan::{
    Align, Data, Distribution, Durable, Pace, Percent, Rule, Span, Step, Stop, Suite,
};

const MIB: u64 = 1 << 20;

fn jobs(text: &str) -> Jobs {
    parse(text, &[]).unwrap_or_else(|mistakes| panic!("{text}: {mistakes:?}"))
}

fn suite(text: &str) -> Suite {
    jobs(text)
        .suite("jobs", 64 * MIB)
        .unwrap_or_else(|why| panic!("{text}: {why}"))
}

/// Parses options into a single job.
fn job(options: &str) -> Job {
    jobs(&format!("[job]\n{options}")).phases.concat().remove(0)
}

fn mistakes(text: &str) -> Vec<String> {
    let mistakes = parse(text, &[]).expect_err(text);
    mistakes.iter().map(ToString::to_string).collect()
}

fn mix(options: &str) -> Vec<(u32, u8, u8)> {
    let accesses = job(options).workload.accesses;
    accesses
        .iter()
        .map(|access| (access.block_bytes, access.share.get(), access.read.get()))
        .collect()
}

#[test]
fn jobs_inherit_and_run_in_phases() {
    let text = "; nightly\n[global]\nbs=8k # of all\niodepth=16\nioengine=libaio\nruntime=30\ntime_based\n[a]\nrw=randread\n\
                [b]\nrw=write\nnumjobs=2\n[global2]\nruntime=1m\n[c]\nstonewall\nbs=1m\niodepth=1\n";
    let suite = suite(text);
    let [one, two] = suite.cells().collect::<Vec<_>>()[..] else {
        panic!("two phases")
    };
    assert_eq!((one.name.as_str(), two.name.as_str()), ("a + b", "c"));
    let roles: Vec<_> = one
        .roles
        .iter()
        .map(|role| (role.name.as_str(), role.client, role.workload.depth))
        .collect();
    assert_eq!(roles, [("a", 0, 16), ("b 1", 1, 16), ("b 2", 2, 16)]);
    let seeds: Vec<_> = one.roles.iter().map(|role| role.workload.seed).collect();
    assert_eq!(seeds, [1, 2, 3]);
    assert!(one.roles[1].workload.writes() && !one.roles[0].workload.writes());
    assert_eq!(
        (one.stop, two.stop),
        (Some(Stop::after(30.0)), Some(Stop::after(60.0)))
    );
    assert_eq!(
        (
            two.roles[0].workload.depth,
            two.roles[0].workload.accesses[0].block_bytes
        ),
        (1, 1 << 20)
    );
}

#[test]
fn lengths_and_directions_make_a_mix() {
    assert_eq!(mix("rw=randrw\nrwmixread=70\nbs=8k"), [(8192, 100, 70)]);
    assert_eq!(
        mix("rw=randrw\nrwmixread=70\nrwmixwrite=60\nbs=8k"),
        [(8192, 100, 40)]
    );
    assert_eq!(
        mix("rw=randrw\nrwmixread=70\nbs=4k,64k"),
        [(4096, 70, 100), (65_536, 30, 0)]
    );
    assert_eq!(
        mix("rw=randread\nbssplit=4k/70:64k"),
        [(4096, 70, 100), (65_536, 30, 100)]
    );
    assert_eq!(
        mix("rw=randwrite\nbsrange=4k-8k\nbs=1m"),
        [(4096, 50, 0), (8192, 50, 0)]
    );
    let both = mix("rw=randrw\nrwmixread=70\nbssplit=4k/50:8k/50,16k/100");
    assert_eq!(both, [(4096, 35, 100), (8192, 35, 100), (16_384, 30, 0)]);
    // A third of 50 % is not a whole percentage.
    let rounded = mix("rw=randrw\nbssplit=4k/33:8k/33:16k/34,16k/100");
    assert_eq!(
        rounded
            .iter()
            .map(|(_, share, _)| u32::from(*share))
            .sum::<u32>(),
        100
    );
    assert_eq!(
        job("rw=randread\nbssplit=4k/70:64k").workload.accesses[1].align,
        Align::Bytes(4096)
    );
    assert_eq!(
        job("rw=randread\npercentage_random=40").workload.accesses[0]
            .random
            .get(),
        40
    );
    assert_eq!(
        job("rw=read\npercentage_random=40").workload.accesses[0]
            .random
            .get(),
        0
    );
}

#[test]
fn one_direction_alone_leaves_the_other_as_it_was_and_units_are_of_their_section() {
    let text =
        "[global]\nrw=randrw\nbs=64k\n[a]\nbs=,8k\n[b]\nkb_base=1000\n[c]\nkb_base=1000\nbs=16k,\n";
    let lengths = |job: &Job| {
        job.workload
            .accesses
            .iter()
            .map(|access| access.block_bytes)
            .collect::<Vec<_>>()
    };
    let jobs = jobs(text).phases.concat();
    assert_eq!(
        jobs.iter().map(lengths).collect::<Vec<_>>(),
        [vec![65_536, 8192], vec![65_536], vec![16_000, 65_536]]
    );
}

#[test]
fn a_job_ends_by_its_work_or_its_time() {
    let stop = |options: &str| {
        let suite = suite(&format!("[job]\n{options}"));
        suite
            .cells()
            .next()
            .and_then(|cell| cell.stop)
            .map(|stop| (stop.rule, stop.max_s, stop.warm_up_s))
    };
    let bytes = |bytes| Rule::Bytes { bytes };
    assert_eq!(
        stop("size=10m\nruntime=30"),
        Some((bytes(10 * MIB), 30.0, 0.0))
    );
    assert_eq!(
        stop("size=25%\nloops=2"),
        Some((bytes(32 * MIB), 86_400.0, 0.0))
    );
    assert_eq!(
        stop("offset=75%\nio_size=1m"),
        Some((bytes(MIB), 86_400.0, 0.0))
    );
    assert_eq!(stop("runtime=30"), Some((bytes(64 * MIB), 30.0, 0.0)));
    assert_eq!(
        stop("size=1m\nruntime=1500ms\ntime_based=1\nramp_time=2"),
        Some((Rule::Time, 1.5, 2.0))
    );
    assert_eq!(
        stop("number_ios=100"),
        Some((Rule::Requests { requests: 100 }, 86_400.0, 0.0))
    );
}

#[test]
fn parts_of_the_storage_may_be_shares() {
    let spans = |options: &str| {
        let suite = suite(&format!("[job]\n{options}"));
        let cell = suite.cells().next().cloned().expect("a cell");
        cell.roles
            .iter()
            .map(|role| role.workload.span)
            .collect::<Vec<_>>()
    };
    let at = |start: u64, bytes: u64| Span {
        start_bytes: start * MIB,
        bytes: Some(bytes * MIB),
    };
    assert_eq!(spans("size=100%"), [Span::default()]);
    assert_eq!(spans("size=25%\noffset=50%"), [at(32, 16)]);
    assert_eq!(
        spans("size=8m\noffset_increment=16m\nnumjobs=3"),
        [at(0, 8), at(16, 8), at(32, 8)]
    );
}

#[test]
fn what_a_storage_is_too_small_for_is_said() {
    let why = |options: &str| {
        jobs(&format!("[job]\n{options}"))
            .suite("jobs", MIB)
            .expect_err(options)
    };
    assert!(
        why("size=2m").contains("is larger than the 1048576 bytes"),
        "{}",
        why("size=2m")
    );
    assert!(
        why("offset=1m").contains("beyond the end"),
        "{}",
        why("offset=1m")
    );
    let text = "[a]\nruntime=5\ntime_based\n[b]\nruntime=6\ntime_based\n";
    let why = jobs(text).suite("jobs", MIB).expect_err("two ends");
    assert!(
        why.contains("a ends after 5 s and b ends after 6 s") && why.contains("stonewall"),
        "{why}"
    );
}

#[test]
fn rates_pauses_data_and_places_are_ours() {
    let workload = |options: &str| job(options).workload;
    assert_eq!(
        workload("rate_iops=1k").pace,
        Pace::Constant { per_second: 1024.0 }
    );
    assert_eq!(
        workload("rate=1m\nrate_process=poisson").pace,
        Pace::Poisson { per_second: 256.0 }
    );
    let paused = workload("thinktime=2ms\nthinktime_blocks=8");
    assert_eq!(
        (
            paused.accesses[0].burst,
            paused.accesses[0].delay_ms,
            paused.drain_after
        ),
        (8, 2, Some(8))
    );
    assert_eq!(workload("rw=randrw\nverify=crc32c").data, Data::Stamped);
    assert_eq!(workload("rw=write\nzero_buffers").data, Data::Zeros);
    let places = |options: &str| {
        workload(&format!("rw=randread\nrandom_distribution={options}")).distribution
    };
    assert_eq!(places("zipf:1.2"), Distribution::Zipf { theta: 1.2 });
    assert_eq!(
        places("zoned:90/10:10/90"),
        "hot:90/10".parse().expect("a distribution")
    );
    // fio's default engine makes one request at a time.
    assert_eq!(
        [
            workload("iodepth=8"),
            workload("iodepth=8\nioengine=io_uring")
        ]
        .map(|workload| workload.depth),
        [1, 8]
    );
}

#[test]
fn what_has_no_meaning_is_named_with_its_lines() {
    let jobs = jobs(
        "[global]\nioengine=libaio\ndirect=1\ngroup_reporting\nfilename=/dev/sdx\n[a]\nrw=read\nbs=4KiB\n",
    );
    let [opposite, named] = &jobs.notes[..] else {
        panic!("{:?}", jobs.notes)
    };
    assert!(opposite.contains("KiB is 1,000 bytes"), "{opposite}");
    let expected = "These options of the job file are ignored: `direct` (line 3), `filename` (line 5), \
                    `group_reporting` (line 4), `ioengine` (line 2).";
    assert_eq!(named, expected);
    let text = "[a]\niodepth=4\nrw=randread\n";
    let notes = parse(text, &[]).expect("a job").notes.join("\n");
    for said in ["iodepth=4 is taken as 1", "norandommap", "page cache"] {
        assert!(notes.contains(said), "{said}: {notes}");
    }
}

#[test]
fn guarantees_and_the_content_of_writes_are_those_of_fio() {
    let durable = |options: &str| job(options).workload.durable;
    assert_eq!(durable("rw=write"), Durable::Cached);
    assert_eq!(durable("rw=write\nfsync=0\nsync=none"), Durable::Cached);
    assert_eq!(durable("rw=write\nfsync=1"), Durable::FlushAfter(1));
    assert_eq!(durable("rw=write\nfdatasync=32"), Durable::FlushAfter(32));
    assert_eq!(durable("rw=write\nsync=dsync"), Durable::Fua);
    let said = mistakes("[a]\nrw=write\nfsync=1\nsync=1\n").join("\n");
    assert!(said.contains("use one of both"), "{said}");
    let data = |options: &str| job(options).workload.data;
    let half = Percent::new(50).expect("a share");
    assert_eq!(
        data("buffer_compress_percentage=50"),
        Data::Compressible(half)
    );
    assert_eq!(data("buffer_compress_percentage=0"), Data::Random);
}

#[test]
fn all_mistakes_are_told_with_their_places() {
    let text = "bs=4k\n[a]\nbs=1h\n  zonemode=zbd\nblocksise=4k\ninclude other.fio\n[b\n[c]\nend_fsync=0\nend_fsync=1\nrw=trim\n";
    assert_eq!(
        mistakes(text),
        [
            "line 1, column 1: options must be in a section, such as [global] or [job]",
            "line 3, column 4: `bs`: `1h` has an unknown unit; use k, m, g, t or p",
            "line 4, column 3: `zonemode` is not supported here, and changes the measured result",
            "line 5, column 1: fio has no option `blocksise`; did you mean `blocksize`?",
            "line 6, column 1: `include` is not supported; insert the file's options here",
            "line 7, column 1: the name of a job must end with `]` at the end of the line",
            "line 10, column 1: `end_fsync` is not supported here, and changes the measured result",
            "line 11, column 4: `rw`: `trim` trims blocks, which is not supported here",
        ]
    );
    for (text, why) in [
        ("", "has no job section"),
        ("[global]\nbs=4k\n", "has no job section"),
        ("[a]\nsize\n", "expected a value"),
        ("[a]\nbs=\n", "expected a value"),
        ("[a]\nbs= 8k\n", "omit the blank"),
        ("[a]\nrw=randread:8\n", "changes the positions of requests"),
        ("[a]\ntime_based\n", "`runtime` is missing"),
        ("[a]\nrw=rw\nrate_iops=5\n", "has one rate here"),
        ("[a]\nverify=crc32c\n", "the job only reads"),
        ("[a]\nrw=write\nverify=crc32c\n", "use randrw"),
        ("[a]\nioengine=net\n", "does not measure storage"),
        ("[a]\nsize=${SIZE}\n", "environment variables"),
        ("[a]\nbsrange=4k-28k\n", "do not divide 100 % evenly"),
        ("[a]\nbssplit=4k/70:8k/20\n", "add up to 90 %"),
        ("[a]\nruntime=1h30m\n", "with one unit"),
        ("[a]\nthinktime=10\n", "whole milliseconds"),
        ("[]\nrw=read\n", "1 to 60 letters"),
    ] {
        let found = mistakes(text).join("\n");
        assert!(found.contains(why), "{text}: {found}");
    }
}

#[test]
fn an_option_may_be_left_out_by_name() {
    let text = "[a]\nend_fsync=1\nverify=md5\n";
    let jobs = parse(text, &["end_fsync".to_owned(), "verify".to_owned()]).expect("a job");
    let last = jobs.notes.last().expect("a note");
    assert!(
        last.contains("`end_fsync` (line 2), `verify` (line 3)"),
        "{last}"
    );
    assert!(parse(text, &["end_fsyncs".to_owned()]).is_err());
}

#[test]
fn a_file_asks_for_no_more_than_there_is() {
    let many = (0..1100)
        .map(|number| format!("[{number}]\n"))
        .collect::<String>();
    assert!(mistakes(&many)[0].contains("more than 1024 jobs"));
    assert!(mistakes(&" ".repeat(2 << 20))[0].contains("1 MiB"));
    assert_eq!(mistakes(&"[a]\nx=1\n".repeat(1000)).len(), MISTAKES_MAX);
    let clients = "[a]\nnumjobs=200\n[b]\nnumjobs=200\n";
    assert!(
        jobs(clients)
            .suite("jobs", MIB)
            .expect_err("too many")
            .contains("more than 256 concurrent clients")
    );
    let memory = "[a]\nioengine=libaio\niodepth=65536\nbs=64m\n";
    assert!(
        jobs(memory)
            .suite("jobs", 1 << 40)
            .expect_err("too much")
            .contains("4 GiB")
    );
}

const WORDS: &[&str] = &[
    "[global]",
    "[a]",
    "[b",
    "]",
    "=",
    ",",
    ":",
    "/",
    "-",
    "%",
    ";",
    "#",
    "\n",
    "\n",
    " ",
    "rw",
    "bs",
    "bssplit",
    "bsrange",
    "size",
    "offset",
    "numjobs",
    "iodepth",
    "runtime",
    "time_based",
    "stonewall",
    "randrw",
    "read",
    "4k",
    "64KiB",
    "0x10",
    "70",
    "100",
    "18446744073709551615",
    "99999999999999999999",
    "-1",
    "é",
    "\u{0}",
    "verify",
    "crc32c",
    "rate_iops",
    "thinktime",
    "1ms",
    "random_distribution",
    "zoned:90/10:10/90",
    "kb_base",
    "1000",
    "include",
    "loops",
    "number_ios",
    "offset_increment",
];

proptest! {
    #[test]
    fn hostile_files_are_jobs_or_have_mistakes_in_them(
        words in proptest::collection::vec(0..WORDS.len(), 0..60),
        device in prop_oneof![Just(0u64), Just(4096), Just(1 << 20), Just(u64::MAX)],
    ) {
        let text: String = words.into_iter().map(|word| WORDS[word]).collect();
        match parse(&text, &[]) {
            Ok(jobs) => {
                if let Ok(suite) = jobs.suite("hostile", device) {
                    let Some(Step::Measure { cells, .. }) = suite.steps.first() else { panic!("no step") };
                    prop_assert!(!cells.is_empty());
                    for access in cells.iter().flat_map(|cell| &cell.roles).map(|role| &role.workload.accesses) {
                        prop_assert_eq!(access.iter().map(|one| u32::from(one.share.get())).sum::<u32>(), 100);
                    }
                }
            }
            Err(mistakes) => {
                prop_assert!(!mistakes.is_empty());
                for mistake in mistakes {
                    let line = text.lines().nth(mistake.line - 1).unwrap_or("");
                    prop_assert!(mistake.column <= line.chars().count() + 1, "{}", mistake);
                }
            }
        }
    }
}
