//! Compares the parser of job files with fio itself: the description of the jobs that fio prints before it
//! starts random job files, and its parsing of sizes and times. Without fio, these tests are skipped with a
//! message.

use std::path::Path;
use std::process::Command;

use bench::fio_job::{self, Job, Jobs};
use bench::plan::Workload;
use block::Random;

/// Runs fio and returns its output, or `None` if fio is not installed.
fn fio(arguments: &[&str], text: &str) -> Option<String> {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!(
        "{}-{:p}.fio",
        std::process::id(),
        text
    ));
    std::fs::write(&path, text).expect("a file");
    let output = Command::new("fio")
        .args(arguments)
        .arg(&path)
        .current_dir(env!("CARGO_TARGET_TMPDIR"))
        .output();
    let _ = std::fs::remove_file(&path);
    match output {
        Ok(output) => Some(format!(
            "{}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        )),
        Err(error) => {
            eprintln!("not tested, since fio cannot be run: {error}");
            None
        }
    }
}

fn parsed(text: &str) -> Jobs {
    fio_job::parse(text, &[]).unwrap_or_else(|mistakes| panic!("{text}\n{mistakes:?}"))
}

/// The first line that fio prints about a job: name, phase, pattern, shortest and longest read and write, and
/// queue depth.
#[derive(Debug, PartialEq)]
struct Line {
    name: String,
    phase: usize,
    pattern: String,
    reads: (u64, u64),
    writes: (u64, u64),
    depth: u32,
}

impl Line {
    /// Returns whether the lines are equal, except for differences below one percent in the lengths.
    fn is_about(&self, other: &Line) -> bool {
        let near = |one: u64, other: u64| one.abs_diff(other) * 100 < one;
        let near =
            |one: (u64, u64), other: (u64, u64)| near(one.0, other.0) && near(one.1, other.1);
        near(self.reads, other.reads)
            && near(self.writes, other.writes)
            && (&self.name, self.phase, &self.pattern, self.depth)
                == (&other.name, other.phase, &other.pattern, other.depth)
    }
}

/// Parses a line such as `a: (g=0): rw=read, bs=(R) 4096B-16.0KiB, (W) 4096B-4096B, (T) …, ioengine=null,
/// iodepth=8`.
fn told(line: &str) -> Option<Line> {
    let (name, rest) = line.split_once(": (g=")?;
    let (phase, rest) = rest.split_once("): rw=")?;
    let (pattern, rest) = rest.split_once(", bs=(R) ")?;
    let (reads, rest) = rest.split_once(", (W) ")?;
    let (writes, rest) = rest.split_once(", (T) ")?;
    let (_, depth) = rest.split_once("iodepth=")?;
    let range = |text: &str| {
        text.split_once('-')
            .map(|(least, most)| (bytes(least), bytes(most)))
    };
    Some(Line {
        name: name.to_owned(),
        phase: phase.parse().ok()?,
        pattern: pattern.to_owned(),
        reads: range(reads)?,
        writes: range(writes)?,
        depth: depth.trim().parse().ok()?,
    })
}

/// Parses a length such as `16.0KiB`. fio prints the lengths used in this test exactly.
fn bytes(text: &str) -> u64 {
    let end = text
        .find(|letter: char| letter.is_alphabetic())
        .expect(text);
    let unit = match &text[end..] {
        "B" => 1.0,
        "KiB" => 1024.0,
        "MiB" => 1_048_576.0,
        "kB" => 1000.0,
        "MB" => 1_000_000.0,
        other => panic!("{other}"),
    };
    (text[..end].parse::<f64>().expect(text) * unit) as u64
}

/// Describes our job in the same way. The lengths of a direction that the job does not use are copied from
/// fio's line.
fn ours(job: &Job, phase: usize, fios: &Line) -> Line {
    let Workload {
        accesses, depth, ..
    } = &job.workload;
    let range = |reads: bool, otherwise: (u64, u64)| {
        let of = |share: u8| if reads { share > 0 } else { share < 100 };
        let lengths = accesses
            .iter()
            .filter(|access| of(access.read.get()))
            .map(|access| u64::from(access.block_bytes));
        lengths
            .clone()
            .min()
            .zip(lengths.max())
            .unwrap_or(otherwise)
    };
    let (reads, writes) = (job.workload.reads(), job.workload.writes());
    let random = if accesses[0].random.get() > 0 {
        "rand"
    } else {
        ""
    };
    let direction = match (reads, writes) {
        (true, false) => "read",
        (false, _) => "write",
        (true, true) => "rw",
    };
    Line {
        name: job.name.clone(),
        phase,
        pattern: format!("{random}{direction}"),
        reads: range(true, fios.reads),
        writes: range(false, fios.writes),
        depth: *depth,
    }
}

/// Generates job files with either ranges or splits of lengths. If a job has both, fio prints one of them and
/// uses the other.
struct Model(Random, bool);

impl Model {
    fn one<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.0.below(of.len() as u64) as usize]
    }

    /// Returns random options that both parsers must interpret in the same way.
    fn options(&mut self) -> String {
        const CHOICES: &[&[&str]] = &[
            &[
                "rw=read",
                "rw=randread",
                "readwrite=write",
                "rw=randwrite",
                "rw=rw",
                "rw=readwrite",
                "rw=randrw",
            ],
            &[
                "bs=4k",
                "bs=8K",
                "blocksize=64kb",
                "bs=4KiB",
                "bs=0x2000",
                "bs=4k,16k",
                "bs=,8k",
                "bs=8k,",
                "bs=1m",
                "bs=4k,,8k",
            ],
            &[
                "bsrange=4k-16k",
                "bsrange=8k-8k,4k-16k",
                "blocksize_range=1k-2k",
            ],
            &[
                "bssplit=4k/70:64k/30",
                "bssplit=4k/50:8k/50,16k/100",
                "bssplit=4k:8k",
                "bssplit=,4k/10:16k",
            ],
            &["iodepth=1", "iodepth=32", "iodepth=0x10", "iodepth =1k"],
            &["rwmixread=70", "rwmixwrite=20", "rwmixread=40"],
            &[
                "stonewall",
                "wait_for_previous",
                "stonewall=0",
                "stonewall=1",
            ],
            &["numjobs=3", "numjobs=1"],
            &["runtime=30", "timeout=2m"],
            &["; a comment", "", "  # another", "\tthread ; behind"],
            &["kb_base=1000", "kb_base=1024"],
        ];
        // Options for lengths are frequent; `kb_base` is rare.
        let weights = [5, 5, 2, 2, 5, 3, 3, 2, 2, 3, 1];
        let mut options = String::new();
        // Lengths in a range whose ends are not powers of two have no common multiples.
        let unused: &[&str] = if self.1 {
            &["bsrange"]
        } else {
            &["bssplit", "kb_base"]
        };
        for (choices, weight) in CHOICES.iter().zip(weights) {
            if self.0.below(10) < weight && !unused.iter().any(|name| choices[0].starts_with(name))
            {
                options.push_str(self.one(choices));
                options.push('\n');
            }
        }
        options
    }

    fn file(&mut self) -> String {
        self.1 = !self.1;
        // Each job ends after one request, since there is no device.
        let mut text = "[global]\nioengine=null\nfilesize=1g\nnumber_ios=1\nthread\n".to_owned();
        for number in 0..2 + self.0.below(4) {
            if self.0.below(4) == 0 {
                text.push_str(self.one(&["[global]\n", "[global of the rest]\n"]));
                text.push_str(&self.options());
            }
            text.push_str(&format!(
                "[job {number}]{}\n{}",
                self.one(&["", " ; named"]),
                self.options()
            ));
        }
        text
    }
}

#[test]
fn random_job_files_mean_what_they_mean_to_fio() {
    let seed = std::env::var("FIO_JOBS_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok())
        .unwrap_or(1);
    let mut model = Model(Random::new(seed), false);
    for _ in 0..12 {
        let text = model.file();
        let Some(said) = fio(&[], &text) else { return };
        let fios: Vec<Line> = said.lines().filter_map(told).collect();
        let phases = parsed(&text).phases;
        let jobs: Vec<(usize, &Job)> = phases
            .iter()
            .enumerate()
            .flat_map(|(phase, jobs)| jobs.iter().map(move |job| (phase, job)))
            .collect();
        assert_eq!(fios.len(), jobs.len(), "seed {seed}\n{text}\n{said}");
        for (line, (phase, job)) in fios.iter().zip(&jobs) {
            let ours = ours(job, *phase, line);
            // fio rounds the lengths that it prints in units of 1,000.
            let rounded = line.is_about(&ours) && text.contains("kb_base=1000");
            assert!(
                rounded || *line == ours,
                "seed {seed}\n{line:?}\n{ours:?}\n{text}\n{said}"
            );
        }
        let clients: u32 = jobs.iter().map(|(_, job)| u32::from(job.clients)).sum();
        let word = if clients == 1 { "thread" } else { "threads" };
        assert!(
            said.contains(&format!("Starting {clients} {word}\n")),
            "seed {seed}\n{text}\n{said}"
        );
    }
}

#[test]
fn sizes_and_times_are_what_they_are_to_fio() {
    let sizes = [
        "4096", "8k", "8K", "8kb", "8KB", "8ki", "8KiB", "1m", "3MiB", "2g", "1T", "1tib",
        "0x1000", "512b",
    ];
    let times = [
        "30",
        "2m",
        "1h",
        "1500ms",
        "2s",
        "1d",
        "3000000us",
        "90M",
        "4000msec",
    ];
    let mut text = String::new();
    for base in ["1024", "1000"] {
        let section = |size| format!("[job]\nkb_base={base}\nsize={size}\n");
        text.extend(sizes.map(section));
    }
    text.extend(times.map(|time| format!("[job]\nruntime={time}\nsize=4k\n")));
    let Some(said) = fio(&["--parse-only", "--debug=parse"], &text) else {
        return;
    };
    let fios = |option: &str| -> Vec<u64> {
        let begins = format!("__handle_option={option},");
        let lines: Vec<&str> = said.lines().collect();
        let values = lines.windows(2).filter(|two| two[0].contains(&begins));
        values
            .filter_map(|two| two[1].split_once("out=")?.1.trim().parse().ok())
            .collect()
    };
    let jobs: Vec<Job> = parsed(&text).phases.concat();
    let ours: Vec<u64> = jobs
        .iter()
        .map(|job| match job.size {
            Some(fio_job::Amount::Bytes(bytes)) => bytes,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(ours, fios("size"), "{said}");
    let ours: Vec<u64> = jobs
        .iter()
        .filter_map(|job| job.runtime)
        .map(|time| time.as_micros() as u64)
        .collect();
    assert_eq!(ours, fios("runtime"), "{said}");
}

#[test]
fn every_option_of_fio_is_known() {
    let (Some(all), Some(engines)) = (help("--cmdhelp=all"), help("--enghelp")) else {
        return;
    };
    let mut names: Vec<String> = all.lines().filter_map(name).collect();
    for engine in engines
        .lines()
        .skip(1)
        .map(str::trim)
        .filter(|engine| !engine.is_empty())
    {
        names.extend(
            help(&format!("--enghelp={engine}"))
                .unwrap_or_default()
                .lines()
                .filter_map(name),
        );
    }
    assert!(names.len() > 200, "{all}");
    for name in names {
        let text = format!("[job]\n{name}=\n");
        let mistakes = fio_job::parse(&text, &[]).err().unwrap_or_default();
        assert!(
            !mistakes
                .iter()
                .any(|mistake| mistake.why.contains("fio has no option")),
            "{name}"
        );
    }
}

fn help(argument: &str) -> Option<String> {
    let output = Command::new("fio").arg(argument).output();
    output
        .ok()
        .map(|output| String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Parses the name from a line such as `iodepth_low             : Low water mark for queuing depth`.
fn name(line: &str) -> Option<String> {
    let name = line.split_whitespace().next()?.trim_end_matches(':');
    line.contains(": ").then(|| name.to_owned())
}
