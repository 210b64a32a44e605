//! Measuring storage that this very process serves, as `linerate selftest` does: nobody has to be asked, nothing on it is to
//! be kept, and a report of an earlier time may be replaced.

use std::path::Path;
use std::time::Duration;

use backends::location::Location;
use backends::{Failure, FailureKind};
use bench::plan::Suite;
use bench::record::{Limit, Record};
use environment::server::Server;
use iscsi_client::Url;

use super::conductor::{Outcome, conduct};
use super::crew::LocalCrew;
use super::folder::Folder;
use super::keeper::Keeper;
use super::storage::Storage;
use super::view::View;
use super::{begin, reports};

/// A LUN of our own, and how it is to be measured.
pub struct OwnStorage<'a> {
    /// The LUN.
    pub url: Url,
    /// How long clients look for answers before they sleep.
    pub spin: Duration,
    /// Where the result goes.
    pub out: &'a Path,
    /// What is known to be impossible.
    pub limits: Vec<Limit>,
    /// The thread that serves it.
    pub server: Server,
}

impl OwnStorage<'_> {
    /// Runs the suite until an end is `asked` for, and writes everything that `linerate bench --out` writes.
    ///
    /// # Errors
    /// It could not be run to its end. Requests that failed are in the record.
    pub async fn measure(
        self,
        suite: Suite,
        view: &mut dyn View,
        asked: &dyn Fn() -> bool,
    ) -> Result<Record, Failure> {
        let place = Location::Lun(Box::new(self.url));
        let storage = Storage::open(&place, true, None).await?;
        let environment = storage.facts(&place).await;
        let mut record = begin::record(storage.subject.clone(), suite, environment, Vec::new());
        record.limits = self.limits;
        let source = storage.source.clone();
        storage.close().await;
        let mut keeper = Keeper::new(record, Some(Folder::replace(self.out)?))?;
        let crew = LocalCrew::new(source, self.spin).beside_its_server();
        let (outcome, _) = conduct(crew, &mut keeper, view, Some(self.server.into()), asked).await;
        let (record, folder, lost) = keeper.end();
        lost.map_or(Ok(()), Err)?;
        folder.iter().try_for_each(|folder| reports::write(folder, &record, Vec::new()))?;
        match outcome? {
            Outcome::Complete => Ok(record),
            Outcome::Interrupted => Err(Failure::new(FailureKind::Interrupted, "interrupted")),
        }
    }
}
