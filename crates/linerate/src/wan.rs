//! `linerate bench --suite wan`: document 002's matrix, measured in a lab of its own, which is the crate [`wan`]'s business.

use std::process::ExitCode;

use ::wan::WanCrew;
use model::LinkRate;

pub(crate) use bench::suite::wan::NAME;

use crate::bench::folder::Folder;
use crate::bench::keeper::Keeper;
use crate::bench::{BenchArguments, LabOptions, Work};
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::remote;

/// Runs the suite, or goes on with it.
pub(crate) fn run(arguments: &BenchArguments) -> Result<ExitCode, Failure> {
    arguments.refuse_beside_a_lab()?;
    ::wan::can_be_made()?;
    let (record, folder) = match arguments.resumed() {
        Some(folder) => (::wan::resumed(&folder)?, Some(folder)),
        None => {
            let folder = arguments.out().map(Folder::create).transpose()?;
            let LabOptions { link, quick } = arguments.lab;
            let link = link.unwrap_or(LinkRate::GIGABIT);
            (::wan::begun(link, quick, |suite| arguments.shortened(suite)), folder)
        }
    };
    let interrupt = Interrupt::listen()?;
    remote::run(async {
        let crew = WanCrew::new()?;
        let work = Work { keeper: Keeper::new(record, folder)?, server: None, congestion: None };
        work.carry_out(crew, arguments, &interrupt).await
    })
}
