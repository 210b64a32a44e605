//! The whole screen: rates and latencies over time, what is done, and each client. It is drawn on standard error, since
//! standard output is for the result.

mod keys;
mod screen;

use std::fmt::Display;
use std::fs::File;
use std::io::{IsTerminal, Stderr, stderr};
use std::time::{Duration, Instant};

use bench::record::{CellRun, Record, Sample};
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::Show;
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};

use self::keys::Keys;
use super::{RunStart, View};
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use bench_runner::crew::Purged;
use bench_runner::watched::Watched;

/// A view of the whole terminal, which is as it was when this is dropped.
pub(in crate::bench) struct Watch {
    terminal: Terminal<CrosstermBackend<Stderr>>,
    state: Watched,
    drawn: Option<Instant>,
    // Reads until it is dropped, before the terminal is given back.
    _keys: Keys,
    _screen: Screen,
}

/// Often enough for the eye, and too seldom to be measured.
const DRAW_EVERY: Duration = Duration::from_millis(100);

impl Watch {
    /// Takes the terminal. Keys ask for an end as signals do.
    pub(in crate::bench) fn new(record: &Record, interrupt: &Interrupt) -> Result<Watch, Failure> {
        let screen = Screen::take().map_err(untaken)?;
        let terminal = Terminal::new(CrosstermBackend::new(stderr())).map_err(untaken)?;
        let keys = Keys::read(interrupt.clone());
        Ok(Watch { terminal, state: Watched::new(record), drawn: None, _keys: keys, _screen: screen })
    }

    /// Whether there is a terminal to take.
    pub(in crate::bench) fn is_possible() -> Result<(), Failure> {
        File::open("/dev/tty").map_err(untaken)?;
        if stderr().is_terminal() { Ok(()) } else { Err(untaken("there is none")) }
    }

    fn draw(&mut self, now: bool) {
        let is_due = self.drawn.is_none_or(|drawn| drawn.elapsed() >= DRAW_EVERY);
        if now || is_due {
            self.drawn = Some(Instant::now());
            let state = &self.state;
            // A terminal that has gone is no reason to lose what is measured.
            let _ = self.terminal.draw(|frame| screen::draw(frame, state));
        }
    }
}

fn untaken(error: impl Display) -> Failure {
    Failure::refused(format!("--watch needs a terminal on standard error: {error}"))
}

impl View for Watch {
    fn begins(&mut self, doing: &RunStart<'_>) {
        self.state.begins(doing);
        self.draw(true);
    }

    fn sample(&mut self, role: usize, sample: &Sample) {
        self.state.sample(role, sample);
        self.draw(false);
    }

    fn waiting(&mut self, waited: Duration) {
        self.state.now.wait(waited);
        self.draw(true);
    }

    fn purged(&mut self, purged: Purged) {
        self.state.purged(purged);
        self.draw(false);
    }

    fn ended(&mut self, run: &CellRun) {
        self.state.ended(run);
        self.draw(true);
    }

    fn note(&mut self, sentence: &str) {
        self.state.note(sentence);
        self.draw(true);
    }
}

/// The terminal in our hands: another screen, keys as they come, no cursor.
struct Screen;

impl Screen {
    fn take() -> std::io::Result<Screen> {
        enable_raw_mode()?;
        let screen = Screen;
        execute!(stderr(), EnterAlternateScreen)?;
        Ok(screen)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        give_back();
    }
}

/// Leaves the terminal as it was found. There is nobody to tell if that fails.
fn give_back() {
    let _ = execute!(stderr(), LeaveAlternateScreen, Show);
    let _ = disable_raw_mode();
}
