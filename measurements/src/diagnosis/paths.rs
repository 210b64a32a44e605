//! `cargo measure diagnose-paths`: draws paths in the lab with up to three impairments, diagnoses a load on each, and measures the
//! same load without each impairment. Writes docs/measured/diagnose-paths.md.
//!
//! No label says which answer is right. The first finding is right if the load gains most, within 20 %, when what it names is
//! removed. Without a finding, the answer is right if no removal gains 15 %.
//!
//! Even seeds are for training: rules may be changed with them in view. Odd seeds are held out, until an outcome has led to
//! a change ([`SEEN`]).

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use diagnose::{Cause, Diagnosis};
use model::{Direction, Load};
use serde::{Deserialize, Serialize};
use xtask::document;
use xtask::tally::Verdict;
use xtask::workspace;

use crate::diagnosis::rate;
use crate::diagnosis::world::{Burner, Scene, World};
use crate::diagnosis::{judge, page, plants};
use crate::machine;
use crate::random::Random;

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// First seed; even seeds are for training, odd seeds are held out
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// Number of paths
    #[arg(long, default_value_t = 20)]
    count: u64,
    /// Only seeds of this parity: `training` or `held-out`
    #[arg(long, value_enum)]
    only: Option<Part>,
    /// Rounds of each measured load, with and without an impairment
    #[arg(long, default_value_t = 3)]
    rounds: u32,
    /// Run short diagnoses with `linerate diagnose --quick`
    #[arg(long)]
    quick: bool,
    /// Instead of measuring, judge the stored evidence again
    #[arg(long)]
    judge: bool,
    /// Use this binary instead of building one
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
    /// Do not write the page
    #[arg(long)]
    dry: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    Training,
    HeldOut,
}

/// Odd seeds that have led to a change of a rule.
const SEEN: [u64; 3] = [15, 83, 95];

impl Part {
    fn of(seed: u64) -> Part {
        if seed.is_multiple_of(2) || SEEN.contains(&seed) {
            Part::Training
        } else {
            Part::HeldOut
        }
    }
}

pub(crate) fn run(options: &Options) -> Result<Verdict> {
    let folder = workspace::target_directory().join("xtask/paths");
    fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    let seeds = (options.from..options.from + options.count)
        .filter(|seed| options.only.is_none_or(|only| only == Part::of(*seed)));
    if options.judge {
        for mut outcome in stored(&folder)? {
            let evidence = fs::read_to_string(evidence_file(&folder, outcome.seed))?;
            outcome.answer = Answer::of(&judge(&evidence)?, outcome.deeper_gain());
            outcome.keep(&folder)?;
            println!("{}", outcome.line());
        }
    } else {
        let binary = options
            .binary
            .clone()
            .map_or_else(workspace::release_binary, Ok)?;
        for seed in seeds {
            let outcome = RandomPath::draw(seed).measured(options, &binary, &folder)?;
            outcome.keep(&folder)?;
            println!("{}", outcome.line());
        }
    }
    let outcomes = stored(&folder)?;
    let page = markdown(&outcomes);
    println!("{page}");
    if !options.dry {
        document::write("diagnose-paths", &page)?;
    }
    Ok(Verdict::Holds)
}

/// A random path, the load, and the path without each of its impairments.
struct RandomPath {
    seed: u64,
    details: String,
    load: Load,
    scene: Scene,
    without: Vec<(&'static Impairment, Scene)>,
}

/// The values that impairments change.
#[derive(Clone)]
struct Values {
    scene: Scene,
    /// Time of each request in the storage.
    delay_ms: f64,
    flush_ms: f64,
    /// Time of one request in a hundred.
    tail_ms: f64,
    limit: Option<String>,
}

impl Values {
    fn scene(&self) -> Scene {
        let inner = match &self.limit {
            Some(limit) => format!("limit:{limit}:[ram:1GiB]"),
            None => "ram:1GiB".to_owned(),
        };
        let us = |ms: f64| (ms * 1e3).round();
        let mut volume = format!(
            "delay:{}us:[{inner}]?flush={}us",
            us(self.delay_ms),
            us(self.flush_ms)
        );
        if self.tail_ms > 0.0 {
            let _ = write!(volume, "&tail={}us&tail-share=1%", us(self.tail_ms));
        }
        self.scene.clone().with_volume(volume)
    }
}

/// A change for the worse.
struct Impairment {
    name: &'static str,
    /// The causes that name it.
    causes: &'static [Cause],
    /// Applies it, with a random number from 0 to 1 that determines its severity.
    apply: fn(&mut Values, f64),
}

const IMPAIRMENTS: [Impairment; 17] = [
    impairment(
        "a tenth of the link's rate",
        &[Cause::LinkRate],
        |values, _| {
            values.conditions(|link| link.bits_per_s = link.bits_per_s.map(|rate| rate / 10.0));
        },
    ),
    impairment("a policer", &[Cause::LinkRate], |values, by| {
        values.conditions(|link| {
            link.peak_bits_per_s = link.bits_per_s;
            link.bits_per_s = link.bits_per_s.map(|rate| rate * between(by, 0.1, 0.4));
            (link.burst_bytes, link.buffer_bytes) = (64 << 10, 64 << 10);
        });
    }),
    impairment(
        "the client's receive buffer",
        &[Cause::TcpWindow],
        |values, by| {
            let bytes = between(by, 16e3, 100e3).round();
            values
                .scene
                .keys
                .push(("receive-buffer", bytes.to_string()));
        },
    ),
    impairment(
        "the target's receive buffer",
        &[Cause::TcpWindow],
        |values, by| {
            values.scene.server.receive_buffer = Some(between(by, 16e3, 100e3) as u64);
        },
    ),
    impairment("solicited writes", &[Cause::Solicitation], |values, _| {
        let session = ["initial-r2t = true", "immediate-data = false"];
        values.session(&session);
    }),
    impairment(
        "short bursts",
        &[Cause::SmallBursts, Cause::Solicitation],
        |values, _| values.session(&["max-burst = \"8KiB\"", "max-outstanding-r2t = 1"]),
    ),
    impairment("a command window", &[Cause::CommandWindow], |values, by| {
        values.scene.server.window = Some(between(by, 1.0, 8.0).round() as u32);
    }),
    impairment("loss", &[Cause::Loss], |values, by| {
        values.conditions(|link| link.loss = between(by, 0.003, 0.02));
    }),
    impairment("reordering", &[Cause::Loss], |values, by| {
        values.conditions(|link| link.reorder = between(by, 0.01, 0.1));
    }),
    impairment("jitter", &[Cause::Jitter], |values, by| {
        values.conditions(|link| link.jitter = Duration::from_secs_f64(between(by, 5e-3, 30e-3)));
    }),
    impairment("slow storage", &[Cause::Medium], |values, by| {
        values.delay_ms = between(by, 2.0, 20.0);
    }),
    impairment(
        "storage of few requests a second",
        &[Cause::Medium],
        |values, by| {
            values.limit = Some(format!("{:.0}iops", between(by, 100.0, 1500.0)));
        },
    ),
    impairment("storage of a low rate", &[Cause::Medium], |values, by| {
        values.limit = Some(format!("{:.1}MB/s", between(by, 1.0, 8.0)));
    }),
    impairment("slow requests at times", &[Cause::Stalls], |values, by| {
        values.tail_ms = between(by, 100.0, 500.0);
    }),
    impairment("slow flushes", &[Cause::Flush], |values, by| {
        values.flush_ms = between(by, 6.0, 40.0);
    }),
    impairment(
        "another program on the target's core",
        &[Cause::TargetCpu],
        |values, by| {
            values.burn(0, between(by, 0.5, 0.85));
        },
    ),
    impairment(
        "another program on the client's core",
        &[Cause::ClientCpu],
        |values, by| {
            values.burn(1, between(by, 0.5, 0.85));
        },
    ),
];

const fn impairment(
    name: &'static str,
    causes: &'static [Cause],
    apply: fn(&mut Values, f64),
) -> Impairment {
    Impairment {
        name,
        causes,
        apply,
    }
}

fn between(by: f64, low: f64, high: f64) -> f64 {
    low + by * (high - low)
}

impl Values {
    fn conditions(&mut self, change: impl FnOnce(&mut lab::Conditions)) {
        self.scene = self.scene.clone().with_conditions(change);
    }

    fn session(&mut self, lines: &[&str]) {
        let lines = lines.iter().map(|line| (*line).to_owned());
        self.scene.server.session.extend(lines);
    }

    fn burn(&mut self, core: usize, share: f64) {
        self.scene.burner = Some(Burner {
            core,
            share,
            period: Duration::from_millis(5),
        });
    }
}

impl RandomPath {
    fn draw(seed: u64) -> RandomPath {
        let random = &mut Random::new(seed, "paths", 0);
        let is_near = random.one_of(&[true, false]);
        let (megabits, round_trip) = match is_near {
            true => (random.one_of(&[100.0, 200.0]), random.between(0.2, 2.0)),
            false => (random.one_of(&[50.0, 100.0]), random.between(5.0, 40.0)),
        };
        let is_told = random.one_of(&[true, true, false]);
        let mut scene = match is_told {
            true => Scene::network(megabits, round_trip),
            false => Scene::unknown_network(megabits, round_trip),
        };
        (scene.server.core, scene.client_core) = (Some(0), Some(1));
        let direction = random.one_of(&[Direction::Read, Direction::Write]);
        let load = Load {
            direction,
            block_bytes: random.one_of(&[4, 16, 64, 256]) << 10,
            depth: random.one_of(&[1, 8, 32]),
            sessions: 1,
            random: random.one_of(&[true, false]),
            durable: direction == Direction::Write && random.one_of(&[true, false, false]),
        };
        scene = scene.asking([
            "--block",
            &load.block_bytes.to_string(),
            "--depth",
            &load.depth.to_string(),
            if direction == Direction::Read {
                "--read"
            } else {
                "--write"
            },
        ]);
        if !load.random {
            scene = scene.asking(["--sequential"]);
        }
        if load.durable {
            scene = scene.asking(["--durable"]);
        }
        if direction == Direction::Write {
            scene = scene.writable();
        }
        let healthy = Values {
            scene,
            delay_ms: 0.0,
            flush_ms: 0.0,
            tail_ms: 0.0,
            limit: None,
        };
        let mut drawn: Vec<(&'static Impairment, f64)> = Vec::new();
        for _ in 0..random.one_of(&[0, 1, 1, 2, 2, 3]) {
            let (at, by) = (
                random.number() as usize % IMPAIRMENTS.len(),
                random.number(),
            );
            let drawn_now = &IMPAIRMENTS[at];
            // Only on near paths does CPU time limit the rate. Without a nominal rate, a slower link counts as built so.
            // Two limits of one kind hide each other.
            let is_possible = match drawn_now.causes {
                [Cause::LinkRate] => is_told,
                [Cause::TargetCpu | Cause::ClientCpu] => is_near,
                _ => true,
            };
            let is_new = drawn
                .iter()
                .all(|(other, _)| other.causes != drawn_now.causes);
            if is_possible && is_new {
                drawn.push((drawn_now, by as f64 / u64::MAX as f64));
            }
        }
        let scene_of = |left_out: Option<usize>| {
            let mut values = healthy.clone();
            for (at, (impairment, by)) in drawn.iter().enumerate() {
                if Some(at) != left_out {
                    (impairment.apply)(&mut values, *by);
                }
            }
            values.scene()
        };
        let names: Vec<&str> = drawn
            .iter()
            .map(|(impairment, _)| impairment.name)
            .collect();
        let described = match names.is_empty() {
            true => "no impairment".to_owned(),
            false => names.join(", "),
        };
        RandomPath {
            seed,
            details: format!(
                "{megabits} Mbit/s{}, {round_trip} ms; {:?} {} KiB, depth {}{}{}; {described}",
                if is_told { "" } else { " (not told)" },
                load.direction,
                load.block_bytes >> 10,
                load.depth,
                if load.random { ", random" } else { "" },
                if load.durable { ", durable" } else { "" },
            ),
            load,
            scene: scene_of(None),
            without: drawn
                .iter()
                .enumerate()
                .map(|(at, (impairment, _))| (*impairment, scene_of(Some(at))))
                .collect(),
        }
    }

    fn measured(self, options: &Options, binary: &Path, folder: &Path) -> Result<Outcome> {
        let busy = machine::busy_share()?;
        let name = format!("path-{}", self.seed);
        let world = World::build(&self.scene, binary, &name)?;
        let quick = options.quick.then(|| "--quick".to_owned());
        let evidence = world.evidence(&Vec::from_iter(quick))?;
        fs::write(evidence_file(folder, self.seed), &evidence)?;
        let diagnosis = judge(&evidence)?;
        let seconds = |load: &Load| {
            let run = diagnosis.evidence.loads.first();
            let rates = run.map(|run| run.bytes_per_s.clone()).unwrap_or_default();
            let rate = crate::figures::middle(rates).unwrap_or(0.0);
            rate::seconds(load, rate).max(SECONDS_MIN)
        };
        let mut removed = Vec::new();
        for (at, (impairment, scene)) in self.without.iter().enumerate() {
            let cured = World::build(scene, binary, &format!("{name}-without-{at}"))?;
            let rates = rate::confirm(
                &world,
                &cured,
                &self.load,
                &self.load,
                options.rounds,
                seconds(&self.load),
            )?;
            removed.push(Removed {
                name: impairment.name.to_owned(),
                causes: impairment.causes.to_vec(),
                gain: rates.gain().unwrap_or(f64::INFINITY),
            });
        }
        // A deeper queue is a fix that is always possible.
        let trial = diagnosis
            .findings
            .first()
            .and_then(|first| first.trial.as_ref());
        let deeper = match trial.and_then(|trial| trial.depth) {
            None => None,
            Some(depth) => {
                let deep = Load { depth, ..self.load };
                let rates = rate::confirm(
                    &world,
                    &world,
                    &self.load,
                    &deep,
                    options.rounds,
                    seconds(&deep),
                )?;
                rates.gain()
            }
        };
        Ok(Outcome {
            seed: self.seed,
            details: self.details,
            busy: busy.max(machine::busy_share()?),
            removed,
            answer: Answer::of(&diagnosis, deeper),
        })
    }
}

/// Rounds of a path with stalls or losses vary.
const SECONDS_MIN: f64 = 1.5;

fn evidence_file(folder: &Path, seed: u64) -> PathBuf {
    folder.join(format!("{seed}.evidence.json"))
}

/// A removed impairment.
#[derive(Serialize, Deserialize)]
struct Removed {
    name: String,
    causes: Vec<Cause>,
    /// The rate without the impairment, divided by the rate with it.
    gain: f64,
}

/// The first finding, or the verdict without one.
#[derive(Serialize, Deserialize)]
enum Answer {
    Finding {
        cause: Cause,
        /// The predicted gain and its interval; none if nothing works without the fix.
        predicted: Option<[f64; 3]>,
        /// The measured gain of the deeper queue that the finding proposes.
        deeper: Option<f64>,
    },
    Fine,
    NotKnown,
}

impl Answer {
    fn of(diagnosis: &Diagnosis, deeper: Option<f64>) -> Answer {
        match (page::Answer::of(diagnosis), diagnosis.findings.first()) {
            (_, Some(first)) => Answer::Finding {
                cause: first.cause,
                predicted: first
                    .gain
                    .predicted
                    .map(|gain| [gain, first.gain.low, first.gain.high]),
                deeper,
            },
            (page::Answer::Fine, None) => Answer::Fine,
            (_, None) => Answer::NotKnown,
        }
    }
}

/// The result on one path.
#[derive(Serialize, Deserialize)]
struct Outcome {
    seed: u64,
    details: String,
    /// The share of the machine's CPU time that other programs used before or after the measurement.
    busy: f64,
    removed: Vec<Removed>,
    answer: Answer,
}

/// Above this share, other programs decide the rates.
const BUSY_MAX: f64 = 0.4;

impl Outcome {
    fn best(&self) -> f64 {
        self.removed
            .iter()
            .fold(1.0, |best, removed| removed.gain.max(best))
    }

    fn deeper_gain(&self) -> Option<f64> {
        match self.answer {
            Answer::Finding { deeper, .. } => deeper,
            Answer::Fine | Answer::NotKnown => None,
        }
    }

    /// Returns the measured gain of the first finding.
    fn truth(&self) -> Option<f64> {
        let Answer::Finding { cause, deeper, .. } = &self.answer else {
            return None;
        };
        let named = self
            .removed
            .iter()
            .filter(|removed| removed.causes.contains(cause));
        let of_cause = named.map(|removed| removed.gain).fold(1.0, f64::max);
        Some(deeper.unwrap_or(1.0).max(of_cause))
    }

    fn is_right(&self) -> bool {
        let best = self.best();
        match self.truth() {
            Some(truth) => truth >= (best / 1.2).max(1.1),
            None => best < 1.15,
        }
    }

    /// Whether the path is called healthy although something gains 25 %.
    fn is_all_clear(&self) -> bool {
        matches!(self.answer, Answer::Fine) && self.best() >= 1.25
    }

    /// Whether a finding names something although nothing gains 10 %.
    fn is_accusation(&self) -> bool {
        self.best() < 1.1 && self.truth().is_some_and(|truth| truth < 1.1)
    }

    /// Whether the predicted gain is within 20 % of the measured one, and whether its interval contains it.
    fn gain(&self) -> Option<(bool, bool)> {
        let (truth, Answer::Finding { predicted, .. }) = (self.truth()?, &self.answer) else {
            return None;
        };
        let [predicted, low, high] = (*predicted)?;
        (self.is_right() && truth.is_finite()).then(|| {
            let is_close = (predicted / truth - 1.0).abs() <= 0.2;
            (is_close, is_close || (low..=high).contains(&truth))
        })
    }

    fn line(&self) -> String {
        let busy = if self.busy > BUSY_MAX {
            " (machine busy)"
        } else {
            ""
        };
        let verdict = match self.is_right() {
            true => "right",
            false if self.is_all_clear() => "WRONG, all-clear",
            false if self.is_accusation() => "WRONG, accusation",
            false => "WRONG",
        };
        let removed: Vec<String> = self
            .removed
            .iter()
            .map(|removed| format!("without {} ×{:.2}", removed.name, removed.gain))
            .collect();
        let answer = match &self.answer {
            Answer::Finding {
                cause, predicted, ..
            } => {
                let predicted = predicted.map_or(f64::INFINITY, |[gain, ..]| gain);
                let truth = self.truth().unwrap_or(1.0);
                format!("{} ×{predicted:.2}, true ×{truth:.2}", plants::name(*cause))
            }
            Answer::Fine => "fine".to_owned(),
            Answer::NotKnown => "not known".to_owned(),
        };
        format!(
            "{verdict}{busy}: {} ({}): {answer}; {}",
            self.seed,
            self.details,
            removed.join(", ")
        )
    }

    fn keep(&self, folder: &Path) -> Result<()> {
        let file = folder.join(format!("{}.outcome.json", self.seed));
        fs::write(&file, serde_json::to_vec_pretty(self)?)
            .with_context(|| file.display().to_string())
    }
}

fn stored(folder: &Path) -> Result<Vec<Outcome>> {
    let mut outcomes: Vec<Outcome> = page::stored(folder)?;
    outcomes.sort_by_key(|outcome| outcome.seed);
    Ok(outcomes)
}

fn markdown(outcomes: &[Outcome]) -> String {
    let mut page = INTRODUCTION.to_owned();
    let busy = outcomes.iter().filter(|outcome| outcome.busy > BUSY_MAX);
    // Writing into a String does not fail.
    let _ = writeln!(
        page,
        "Machine: {}, Linux {}. Excluded, because other programs, such as concurrent measurements, used \
         more than {:.0} % of the CPU time: {}.\n",
        machine::machine(),
        machine::kernel(),
        BUSY_MAX * 100.0,
        busy.count()
    );
    page.push_str(HEADINGS);
    for (part, name) in [(Part::Training, "training"), (Part::HeldOut, "held out")] {
        let row: Vec<&Outcome> = outcomes
            .iter()
            .filter(|outcome| Part::of(outcome.seed) == part && outcome.busy <= BUSY_MAX)
            .collect();
        let count =
            |is: &dyn Fn(&Outcome) -> bool| row.iter().filter(|outcome| is(outcome)).count();
        let gains: Vec<(bool, bool)> = row.iter().filter_map(|outcome| outcome.gain()).collect();
        let _ = writeln!(
            page,
            "| {name} | {} | {} | {} | {} | {} of {} | {} of {} |",
            row.len(),
            count(&Outcome::is_right),
            count(&Outcome::is_all_clear),
            count(&Outcome::is_accusation),
            gains.iter().filter(|(is_close, _)| *is_close).count(),
            gains.len(),
            gains.iter().filter(|(_, is_inside)| *is_inside).count(),
            gains.len(),
        );
    }
    page.push_str("\n## Wrong answers\n\n");
    for outcome in outcomes {
        if !outcome.is_right() && outcome.busy <= BUSY_MAX {
            let _ = writeln!(page, "- {}", outcome.line());
        }
    }
    page
}

const INTRODUCTION: &str = "\
# Diagnoses of random paths

`cargo measure diagnose-paths` draws paths in the [lab](../lab.md) with up to three impairments and one load. `linerate diagnose` gets
the load, and no information on the impairments. The truth is a measurement: the rate of the same load without each impairment.
A finding is right if the load gains most, within 20 %, when what it names is removed. Without a finding, the answer is right if no
removal gains 15 %. The answers are those of the present rules to the stored evidence: rules that changed after the measurement
have seen some held-out answers.

";

const HEADINGS: &str = "\
| seeds | paths | right | all-clears where something gains 25 % | accusations where nothing gains 10 % | gain within 20 % | or in its interval |
|---|---:|---:|---:|---:|---:|---:|
";
