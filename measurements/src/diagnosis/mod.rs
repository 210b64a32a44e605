//! `cargo measure diagnose-matrix`: plants causes of slowness, runs `linerate diagnose`, and compares its findings with the
//! planted causes and with the gains from removing them. Writes docs/measured/diagnose-matrix.md.
//!
//! A repeat has two environments ([`world::World`]): one with the cause and one without. Outcomes and evidence are stored below
//! the target directory, so that a part of the matrix can be run again. The page is generated from all stored outcomes.

pub(crate) mod disturb;
mod page;
pub(crate) mod paths;
mod plants;
mod rate;
mod world;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use diagnose::{Cause, Diagnosis};

use crate::figures::middle;
use crate::machine;
use crate::random::Random;
use page::{Answer, Gain, Outcome};
use plants::{Cure, Plant, Planted};
use rate::Rates;
use world::Scene;
use world::World;
use xtask::document;
use xtask::tally::Verdict;
use xtask::workspace;

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Number of repeats of each cause
    #[arg(long, default_value_t = 10)]
    repeats: u32,
    /// Number of healthy paths
    #[arg(long, default_value_t = 20)]
    healthy: u32,
    /// Only these causes, by their names in JSON (`nbd-medium` over NBD); `healthy` and `nbd-healthy` are paths without a cause
    #[arg(long, value_name = "CAUSE")]
    only: Vec<String>,
    /// Only this repeat of each
    #[arg(long)]
    repeat: Option<u32>,
    /// Run short diagnoses with `linerate diagnose --quick`
    #[arg(long)]
    quick: bool,
    /// Number of rounds to confirm a gain
    #[arg(long, default_value_t = 2)]
    rounds: u32,
    /// Seed of all random choices
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Instead of diagnosing, measure the effect of each cause on a few loads, to check that it is the bottleneck
    #[arg(long)]
    loads: bool,
    /// Skip cases that have a stored outcome, correct or wrong
    #[arg(long)]
    missing: bool,
    /// Instead of measuring, judge the stored evidence again
    #[arg(long)]
    judge: bool,
    /// Use this binary instead of building one
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
    /// Additional note on the run for the page
    #[arg(long, value_name = "SENTENCE")]
    note: Vec<String>,
    /// Do not write the page
    #[arg(long)]
    dry: bool,
}

/// A case: a plant with its repeat, or a healthy path.
#[derive(Clone, Copy)]
enum Case {
    Plant(&'static Plant, u32),
    /// Whether the path uses NBD, and its number.
    Healthy(bool, u32),
}

impl Case {
    fn name(self) -> String {
        match self {
            Case::Plant(plant, repeat) => format!("{}-{repeat:02}", plant.name()),
            Case::Healthy(nbd, number) => format!("{}-{number:02}", plants::named(None, nbd)),
        }
    }
}

pub(crate) fn run(options: &Options) -> Result<Verdict> {
    let healthy = || {
        [false, true]
            .into_iter()
            .map(|nbd| plants::named(None, nbd))
    };
    let known = || plants::ALL.iter().map(Plant::name).chain(healthy());
    for name in &options.only {
        ensure!(
            known().any(|known| known == *name),
            "unknown cause {name}; the causes are {}",
            known().collect::<Vec<_>>().join(", ")
        );
    }
    let folder = workspace::target_directory().join("xtask/diagnosis");
    fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    if options.judge {
        judge_again(&folder)?;
        return end(options, &folder);
    }
    let binary = options
        .binary
        .clone()
        .map_or_else(workspace::release_binary, Ok)?;
    for case in cases(options) {
        let name = case.name();
        if options.loads {
            loads(case, options, &binary)?;
            continue;
        }
        if options.missing && folder.join(page::file(&name)).exists() {
            continue;
        }
        let begun = Instant::now();
        let outcome = carry_out(case, options, &binary, &folder);
        outcome.keep(&folder)?;
        println!(
            "{} ({:.0} s)",
            line(&name, &outcome),
            begun.elapsed().as_secs_f64()
        );
    }
    match options.loads {
        true => Ok(Verdict::Holds),
        false => end(options, &folder),
    }
}

/// Prints the summary, and writes the page.
fn end(options: &Options, folder: &Path) -> Result<Verdict> {
    let outcomes = page::all(folder)?;
    println!("{}", page::summary(&outcomes));
    if !options.dry {
        document::write(
            "diagnose-matrix",
            &page::markdown(&outcomes, &setting(options)),
        )?;
    }
    Ok(verdict(&outcomes))
}

/// Returns all cases, ordered by repeat. A disturbance of the machine that lasts a minute then affects many
/// plants a little.
fn cases(options: &Options) -> Vec<Case> {
    let wanted =
        |name: &str| options.only.is_empty() || options.only.iter().any(|only| only == name);
    let mut cases = Vec::new();
    for repeat in 0..options.repeats.max(options.healthy) {
        if options.repeat.is_some_and(|only| only != repeat) {
            continue;
        }
        let plants = plants::ALL
            .iter()
            .filter(|plant| repeat < options.repeats && wanted(&plant.name()));
        cases.extend(plants.map(|plant| Case::Plant(plant, repeat)));
        let healthy = [false, true]
            .into_iter()
            .filter(|nbd| wanted(&plants::named(None, *nbd)));
        if repeat < options.healthy {
            cases.extend(healthy.map(|nbd| Case::Healthy(nbd, repeat)));
        }
    }
    cases
}

fn carry_out(case: Case, options: &Options, binary: &Path, folder: &Path) -> Outcome {
    let name = case.name();
    let (planted, nbd, repeat, details, result) = match case {
        Case::Plant(plant, repeat) => {
            let planted = (plant.plant)(&mut Random::new(options.seed, &plant.name(), repeat));
            let result = with_cause(&planted, plant.cause, &name, options, binary, folder);
            (
                Some(plant.cause),
                plant.nbd,
                repeat,
                planted.details,
                result,
            )
        }
        Case::Healthy(nbd, number) => {
            let random = &mut Random::new(options.seed, &plants::named(None, nbd), number);
            let (details, scene) = if nbd {
                plants::nbd_healthy(random, number)
            } else {
                plants::healthy(random, number)
            };
            (
                None,
                nbd,
                number,
                details,
                without_cause(&scene, &name, options, binary, folder),
            )
        }
    };
    let (answer, predicted, confirmed) =
        result.unwrap_or_else(|error| (Answer::Failed(format!("{error:#}")), None, None));
    Outcome {
        planted,
        nbd,
        repeat,
        details,
        answer,
        predicted,
        confirmed,
    }
}

/// The answer, and the predicted and confirmed gains.
type Said = Result<(Answer, Option<Gain>, Option<Gain>)>;

fn with_cause(
    planted: &Planted,
    cause: Cause,
    name: &str,
    options: &Options,
    binary: &Path,
    folder: &Path,
) -> Said {
    let world = World::build(&planted.scene, binary, &format!("{name}-planted"))?;
    let diagnosis = diagnose(&world, options, folder, name)?;
    let answer = Answer::of(&diagnosis);
    let predicted = Gain::predicted(&diagnosis);
    if answer.first() != Some(cause) {
        return Ok((answer, predicted, None));
    }
    let confirmed = mended(&world, &diagnosis, &planted.cure, options, binary, name)?;
    Ok((answer, predicted, confirmed))
}

fn without_cause(
    scene: &Scene,
    name: &str,
    options: &Options,
    binary: &Path,
    folder: &Path,
) -> Said {
    let world = World::build(scene, binary, name)?;
    let diagnosis = diagnose(&world, options, folder, name)?;
    Ok((Answer::of(&diagnosis), Gain::predicted(&diagnosis), None))
}

/// Measures and judges a path. The evidence is stored, so that it can be judged again.
fn diagnose(world: &World, options: &Options, folder: &Path, name: &str) -> Result<Diagnosis> {
    let text = world.evidence(&more(options))?;
    fs::write(folder.join(format!("{name}.evidence.json")), &text)?;
    judge(&text)
}

fn judge(text: &str) -> Result<Diagnosis> {
    Ok(diagnose::diagnose(
        serde_json::from_str(text).context("reading the evidence")?,
    ))
}

fn more(options: &Options) -> Vec<String> {
    if options.quick {
        vec!["--quick".to_owned()]
    } else {
        Vec::new()
    }
}

/// Measures the load of the first finding, with the cause and without it.
fn mended(
    world: &World,
    diagnosis: &Diagnosis,
    cure: &Cure,
    options: &Options,
    binary: &Path,
    name: &str,
) -> Result<Option<Gain>> {
    let finding = diagnosis.findings.first().context("no finding")?;
    let run = diagnosis
        .evidence
        .loads
        .get(finding.load)
        .context("the finding's load is missing")?;
    let load = run.load;
    let seconds = rate::seconds(&load, middle(run.bytes_per_s.clone()).unwrap_or(0.0));
    // Random losses are uneven: TCP's rate varies by half from second to second.
    let rounds = if finding.cause == Cause::Loss {
        LOSS_ROUNDS * options.rounds
    } else {
        options.rounds
    };
    let rates = match cure {
        Cure::Trial => rate::confirm(
            world,
            world,
            &load,
            &rate::changed(&load, finding),
            rounds,
            seconds,
        )?,
        Cure::Path(path) => {
            let cured = World::build(path, binary, &format!("{name}-cured"))?;
            // The connections of `linerate bench` can use other lanes than those of the diagnosis.
            if finding.cause == Cause::SlowPath {
                let other = judge(&cured.evidence(&more(options))?)?;
                Rates {
                    planted: rate::of_diagnosis(diagnosis, &load),
                    cured: rate::of_diagnosis(&other, &load),
                }
            } else {
                rate::confirm(world, &cured, &load, &load, rounds, seconds)?
            }
        }
    };
    Ok(Some(Gain {
        load,
        ratio: rates.gain(),
    }))
}

const LOSS_ROUNDS: u32 = 4;

/// Judges the stored evidence again, by the current rules.
fn judge_again(folder: &Path) -> Result<()> {
    for outcome in page::all(folder)? {
        let name = outcome.name();
        let Ok(text) = fs::read_to_string(folder.join(format!("{name}.evidence.json"))) else {
            continue;
        };
        let judged = outcome.judged(&judge(&text).with_context(|| name.clone())?);
        judged.keep(folder)?;
        println!("{}", line(&name, &judged));
    }
    Ok(())
}

/// Measures the effect of a plant on loads, without a diagnosis.
fn loads(case: Case, options: &Options, binary: &Path) -> Result<()> {
    let Case::Plant(plant, repeat) = case else {
        return Ok(());
    };
    let name = plant.name();
    let Planted {
        details,
        scene,
        cure,
    } = (plant.plant)(&mut Random::new(options.seed, &name, repeat));
    println!("{name}-{repeat:02} ({details})");
    let Cure::Path(path) = cure else {
        return Ok(());
    };
    let planted = World::build(&scene, binary, &format!("{name}-planted"))?;
    let cured = World::build(&path, binary, &format!("{name}-cured"))?;
    for load in rate::LOADS {
        match rate::confirm(
            &planted,
            &cured,
            load,
            load,
            options.rounds,
            rate::SECONDS_MIN,
        ) {
            Ok(rates) => println!("  {}", rates.line(load)),
            Err(error) => println!("  {error:#}"),
        }
    }
    Ok(())
}

/// Passes if 95 % of the findings are correct and there is no false alarm.
fn verdict(outcomes: &[Outcome]) -> Verdict {
    let planted: Vec<&Outcome> = outcomes
        .iter()
        .filter(|outcome| outcome.planted.is_some())
        .collect();
    let right = planted.iter().filter(|outcome| outcome.is_right()).count();
    let quiet = outcomes
        .iter()
        .filter(|outcome| outcome.planted.is_none())
        .all(Outcome::is_right);
    Verdict::of(right * 100 >= planted.len() * 95 && quiet)
}

fn line(name: &str, outcome: &Outcome) -> String {
    let mark = if outcome.is_right() { "right" } else { "WRONG" };
    let far = if outcome.is_close() == Some(false) {
        ", except for its gain"
    } else {
        ""
    };
    let gain = |gain: Option<Gain>| match gain.map(|gain| gain.ratio) {
        None => "-".to_owned(),
        Some(None) => "infinite".to_owned(),
        Some(Some(ratio)) => format!("{ratio:.2}"),
    };
    let (predicted, confirmed) = (gain(outcome.predicted), gain(outcome.confirmed));
    let (answer, details) = (page::answered(&outcome.answer), &outcome.details);
    format!(
        "{mark}{far}: {name} ({details}): {answer}; gain {predicted} predicted, {confirmed} measured"
    )
}

fn setting(options: &Options) -> Vec<String> {
    let mode = if options.quick {
        "`linerate diagnose --quick`"
    } else {
        "`linerate diagnose`"
    };
    let rounds = if options.rounds == 1 {
        "one round".to_owned()
    } else {
        format!("{} rounds", options.rounds)
    };
    let mut lines = vec![
        format!(
            "Machine: {}, Linux {}",
            machine::machine(),
            machine::kernel()
        ),
        format!(
            "{mode}, seed {}, {rounds} for each gain ({LOSS_ROUNDS} times as many with packet loss)",
            options.seed
        ),
    ];
    lines.extend(options.note.iter().cloned());
    lines
}
