//! Measuring storage that this very process serves, as `linerate selftest` does: nobody has to be asked, nothing on it is to
//! be kept, and a report of an earlier time may be replaced.

use std::io::{IsTerminal, stderr};
use std::path::Path;
use std::time::Duration;

use bench::plan::Suite;
use bench::record::{Limit, Record};
use initiator::Url;

use super::crew::LocalCrew;
use super::folder::Folder;
use super::keeper::Keeper;
use super::storage::Storage;
use super::view::{Line, Nobody, View};
use super::{begin, conduct, reports};
use crate::failure::{Failure, Kind};
use crate::interrupt::Interrupt;
use crate::location::Location;
use ::conduct::conductor::Outcome;
use environment::server::Server;

/// A LUN of our own, and how it is to be measured.
pub(crate) struct OwnStorage<'a> {
    pub(crate) url: Url,
    /// How long clients look for answers before they sleep.
    pub(crate) spin: Duration,
    /// Where the result goes.
    pub(crate) out: &'a Path,
    /// What is known to be impossible.
    pub(crate) limits: Vec<Limit>,
    /// The thread that serves it.
    pub(crate) server: Server,
}

impl OwnStorage<'_> {
    /// Runs the suite and writes everything that `linerate bench --out` writes. Fails if it cannot be run to its end;
    /// requests that failed are in the record.
    pub(crate) async fn measure(self, suite: Suite, interrupt: &Interrupt) -> Result<Record, Failure> {
        let place = Location::Lun(Box::new(self.url));
        let storage = Storage::open(&place, true, None).await?;
        let environment = storage.facts(&place).await;
        let mut record = begin::record(storage.subject.clone(), suite, environment, Vec::new());
        record.limits = self.limits;
        let source = storage.source.clone();
        storage.close().await;
        let mut keeper = Keeper::new(record, Some(Folder::replace(self.out)?))?;
        let crew = LocalCrew::new(source, self.spin).beside_its_server();
        let mut view: Box<dyn View> =
            if stderr().is_terminal() { Box::new(Line::new()) } else { Box::new(Nobody { quiet: true }) };
        let (outcome, _) = conduct(crew, &mut keeper, &mut *view, Some(self.server), interrupt).await;
        drop(view);
        if let Ok(Outcome::Complete) = outcome {
            keeper.complete();
        }
        let (record, folder, lost) = keeper.end();
        lost.map_or(Ok(()), Err)?;
        folder.iter().try_for_each(|folder| reports::write(folder, &record, Vec::new()))?;
        match outcome? {
            Outcome::Complete => Ok(record),
            Outcome::Interrupted => Err(Failure::new(Kind::Interrupted, "interrupted")),
        }
    }
}
