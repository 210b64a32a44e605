//! Carries out the cells of the matrix, each on a test bed with its setting.

use bench::Go;
use bench::plan::{Cell, Setting, Span, Stop, Way};
use bench::raw::Direction;

use super::ground::{self, TestBed};
use super::tcp::TcpFlow;
use backends::Failure;
use backends::peers;
use bench_runner::crew::{CellOutcome, Crew, LocalCrew, Progress, Purged};
use bench_runner::ways::Source;

/// The test bed, and the clients on it.
pub struct WanCrew {
    ground: TestBed,
    /// Who is logged in, and by which setting.
    crew: Option<(LocalCrew, SessionKey)>,
}

/// What a session has from its login on.
#[derive(Clone, Copy, PartialEq)]
struct SessionKey {
    way: Way,
    connections: u16,
}

impl SessionKey {
    fn from_setting(setting: &Setting) -> SessionKey {
        SessionKey { way: setting.way, connections: setting.connections }
    }
}

impl WanCrew {
    /// No clients and no test bed yet.
    pub fn new() -> Result<WanCrew, Failure> {
        Ok(WanCrew { ground: TestBed::new()?, crew: None })
    }

    /// Sees to it that the ground and the sessions are as the setting says.
    async fn prepare(&mut self, setting: &Setting) -> Result<(), Failure> {
        let fits = self.ground.fits(setting);
        let stays = |(_, key): &(LocalCrew, SessionKey)| fits && *key == SessionKey::from_setting(setting);
        if !self.crew.as_ref().is_some_and(stays) {
            // Connections that were made over another way would remember it.
            self.log_out().await;
        }
        if !fits {
            self.ground.make(setting)?;
        }
        if self.crew.is_none() {
            self.crew = self.logged_in(setting)?;
        }
        Ok(())
    }

    fn logged_in(&self, setting: &Setting) -> Result<Option<(LocalCrew, SessionKey)>, Failure> {
        let (Some(site), Some(url)) = (self.ground.client(), self.ground.url(setting)?) else {
            return Ok(None);
        };
        peers::record(&url.settings);
        let crew = LocalCrew::new(Source::Lun(Box::new(url)), ground::SPIN);
        Ok(Some((crew.beside_its_server().at(site), SessionKey::from_setting(setting))))
    }

    async fn log_out(&mut self) {
        if let Some((crew, _)) = self.crew.take() {
            crew.close().await;
        }
    }

    async fn tcp(
        &self,
        cell: &Cell,
        setting: &Setting,
        stop: Stop,
        to_target: bool,
        progress: &mut dyn FnMut(Progress<'_>) -> Go,
    ) -> Result<CellOutcome, Failure> {
        let (Some(site), Some(peer), Some(role)) =
            (self.ground.client(), self.ground.peer(), cell.roles.first())
        else {
            return Err(nothing_to_do(cell));
        };
        let direction = if to_target { Direction::Write } else { Direction::Read };
        let flow = TcpFlow { peer, stream: ground::stream(setting), direction, stop, role: role.clone() };
        flow.measure(&site, progress).await
    }
}

/// A suite of this kind has nothing but cells with settings, which a record from elsewhere may not have.
fn nothing_to_do(cell: &Cell) -> Failure {
    Failure::refused(format!("cell {} does not say over which way it is to be measured", cell.name))
}

impl Crew for WanCrew {
    async fn run(
        &mut self,
        cell: &Cell,
        stop: Stop,
        progress: &mut dyn FnMut(Progress<'_>) -> Go,
    ) -> Result<CellOutcome, Failure> {
        let setting = cell.setting.as_deref().ok_or_else(|| nothing_to_do(cell))?;
        self.prepare(setting).await?;
        match (setting.way, &mut self.crew) {
            (Way::Tcp { to_target }, _) => self.tcp(cell, setting, stop, to_target, progress).await,
            (_, Some((crew, _))) => crew.run(cell, stop, progress).await,
            (_, None) => Err(nothing_to_do(cell)),
        }
    }

    async fn purge(&mut self, _: Span, _: &mut dyn FnMut(Purged) -> Go) -> Result<(), Failure> {
        Ok(()) // memory has nothing to be purged of
    }

    async fn look_alive(&mut self) -> Result<(), Failure> {
        match &mut self.crew {
            Some((crew, _)) => crew.look_alive().await,
            None => Ok(()),
        }
    }

    fn remarks(&self) -> Vec<String> {
        let Ok(counts) = self.ground.counts() else { return Vec::new() };
        vec![format!("the lab's wire carried {counts}")]
    }

    async fn close(mut self) {
        self.log_out().await;
    }
}
