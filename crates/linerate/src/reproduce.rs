//! `linerate reproduce`: carries out the tests of a source document in a lab, and compares the results with the
//! published ones (`docs/reproduce.md`).
//!
//! Reading order: [`run`], `one` (a document), [`Shown`] (the progress). The crate `reproduce` does the work.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use ::reproduce::plan::{self, Bed, Plan, Test};
use ::reproduce::{page, run as tests};
use bench::record::Record;
use bench_runner::conductor::Outcome;
use bench_runner::progress::Form;
use bench_runner::view::View;
use volume::spec::shell_word;

use crate::bench::ProgressLine;
use crate::failure::{Failure, FailureKind};
use crate::interrupt::Interrupt;
use crate::output::{remark, say};
use crate::terminal::{self, ProgressKind};

#[derive(Debug, clap::Args)]
pub(crate) struct ReproduceArguments {
    /// Document, 000 to 004, or `all`; or a plan, a TOML file
    #[arg(value_name = "DOCUMENT", required_unless_present = "resume")]
    document: Option<String>,
    /// Print the plan, to change it: beds (hosts, links, storage) and tests
    #[arg(long, conflicts_with_all = ["out", "quick", "resume"])]
    plan: bool,
    /// Directory for the results and the page [default: reproduced-DOCUMENT]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Measure each cell only once and briefly, to check the plan
    #[arg(long)]
    quick: bool,
    /// Resume an interrupted reproduction in this directory
    #[arg(long, value_name = "DIR", conflicts_with_all = ["document", "out", "quick"])]
    resume: Option<PathBuf>,
    /// Form of the progress display on standard error [default: bar on a terminal, otherwise plain]
    #[arg(long, value_name = "KIND", hide_possible_values = true)]
    progress: Option<ProgressKind>,
    /// Print only errors and the result
    #[arg(long, short)]
    quiet: bool,
}

/// Runs the command.
pub(crate) fn run(arguments: &ReproduceArguments) -> Result<ExitCode, Failure> {
    if let Some(out) = &arguments.resume {
        let text = page::plan_in(out)?;
        let plan = parsed(&out.join(page::PLAN).display().to_string(), &text)?;
        let shown = Shown::listen(arguments)?;
        return one(&plan, out, &shown).map(|()| ExitCode::SUCCESS);
    }
    // clap requires one of both.
    let document = arguments.document.as_deref().unwrap_or_default();
    let plans = texts(document)?;
    if arguments.plan {
        plans.iter().for_each(|(_, text)| say(text));
        return Ok(ExitCode::SUCCESS);
    }
    // Check all plans before the first one is carried out.
    let mut checked = Vec::new();
    for (name, text) in plans {
        let mut plan = parsed(&name, &text)?;
        let mut text = text;
        if arguments.quick && !plan.is_quick {
            text = plan::quick(&text);
            plan = parsed(&name, &text)?;
        }
        tests::can_be_built(&plan)?;
        checked.push((plan, text));
    }
    let shown = Shown::listen(arguments)?;
    let is_alone = checked.len() == 1;
    for (plan, text) in checked {
        let number = plan.document.number;
        let out = match &arguments.out {
            Some(out) if is_alone => out.clone(),
            Some(out) => out.join(number),
            None => PathBuf::from(format!("reproduced-{number}")),
        };
        page::create(&out, &text)?;
        one(&plan, &out, &shown)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the names and the texts of the requested plans.
fn texts(document: &str) -> Result<Vec<(String, String)>, Failure> {
    let of_program = |number: &str| {
        plan::of_document(number)
            .map(|text| (format!("{number}.toml"), text.to_owned()))
            .map_err(Failure::refused)
    };
    if document == "all" {
        return plan::documents().map(of_program).collect();
    }
    if Path::new(document)
        .extension()
        .is_some_and(|extension| extension == "toml")
    {
        return Ok(vec![(document.to_owned(), text(Path::new(document))?)]);
    }
    Ok(vec![of_program(document)?])
}

fn text(path: &Path) -> Result<String, Failure> {
    let mut text = String::new();
    // Read up to one byte more than the maximum length of a plan, so that an endless device is detected.
    File::open(path)
        .and_then(|file| file.take(PLAN_BYTES_MAX + 1).read_to_string(&mut text))
        .map_err(|error| {
            Failure::refused(format_args!(
                "cannot read the plan {}: {error}",
                path.display()
            ))
        })?;
    if text.len() as u64 > PLAN_BYTES_MAX {
        return Err(Failure::refused(format_args!(
            "the plan {} is longer than {} MiB",
            path.display(),
            PLAN_BYTES_MAX >> 20
        )));
    }
    Ok(text)
}

const PLAN_BYTES_MAX: u64 = 1 << 20;

fn parsed(name: &str, text: &str) -> Result<Plan, Failure> {
    Plan::parse(text)
        .map_err(|error| Failure::refused(format_args!("{name}:{}", error.shown_in(text))))
}

/// Carries out the tests of a plan, and writes the page.
fn one(plan: &Plan, out: &Path, shown: &Shown) -> Result<(), Failure> {
    let again = shell_word(&out.display().to_string());
    let outcome = tests::reproduce(plan, out, shown).map_err(|failure| {
        failure.and(format_args!(
            "to resume: linerate reproduce --resume {again}"
        ))
    })?;
    if outcome == Outcome::Interrupted {
        let sentence = format!("interrupted; to resume: linerate reproduce --resume {again}");
        return Err(Failure::new(FailureKind::Interrupted, sentence));
    }
    let agreement = page::write(plan, out)?;
    let page = out.join("report.html");
    say(&format!(
        "document {}\n{agreement}page: {}\n",
        plan.document.number,
        page.display()
    ));
    Ok(())
}

/// The progress on standard error, and the signals that end the command.
struct Shown {
    interrupt: Interrupt,
    kind: ProgressKind,
}

impl Shown {
    fn listen(arguments: &ReproduceArguments) -> Result<Shown, Failure> {
        Ok(Shown {
            interrupt: Interrupt::listen()?,
            kind: terminal::kind(arguments.progress, arguments.quiet),
        })
    }
}

impl tests::Watch for Shown {
    fn view(&self, bed: &Bed, test: &Test, _: &Record) -> Box<dyn View> {
        if matches!(self.kind, ProgressKind::Bar | ProgressKind::Plain) {
            remark(format_args!("bed {}, test {}", bed.name, test.name));
        }
        match self.kind {
            ProgressKind::Bar => Box::new(ProgressLine::new()),
            ProgressKind::Plain => Box::new(terminal::lines(Form::Plain)),
            ProgressKind::Json => Box::new(terminal::lines(Form::Json)),
            ProgressKind::None => Box::new(()),
        }
    }

    fn missing(&self, reason: &Failure) {
        remark(reason);
    }

    fn is_asked(&self) -> bool {
        self.interrupt.is_asked()
    }
}
