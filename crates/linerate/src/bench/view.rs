//! The progress of a measurement: a line at the bottom of the terminal ([`ProgressLine`]), or the whole
//! screen ([`Watch`]). Both are drawn on standard error, because standard output is for the result.

use std::fmt::Display;
use std::fs::File;
use std::io::{self, IsTerminal, Stderr, stderr};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use bench::record::{CellRun, Record, Sample};
use bench_runner::view::{EndedRun, LiveState, Moment, Purged, Watched};
use indicatif::{ProgressBar, ProgressStyle};
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::Show;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Color, Style, Stylize};
use ratatui::symbols::Marker;
use ratatui::text::Line;
use ratatui::widgets::{
    Axis, Block, Chart, Dataset, GraphType, LineGauge, Paragraph, Row as TableRow, Table,
};
use ratatui::{Frame, Terminal};
use readable::figures::{grouped, significant};

use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::output::{columns, printable, remark};

pub(crate) use bench_runner::view::{RunStart, View};

/// A view that shows no progress, but prints notes.
pub(super) struct Notes;

impl View for Notes {
    fn note(&mut self, sentence: &str) {
        remark(sentence);
    }
}

/// A progress line on standard error.
pub(crate) struct ProgressLine {
    bar: ProgressBar,
    /// The current cell, such as `[3/24] read-4KiB`.
    what: String,
    now: LiveState,
}

/// Units of the bar per second of a run; the bar counts milliseconds. During a purge, it counts bytes.
const PER_SECOND: f64 = 1000.0;

impl ProgressLine {
    pub(crate) fn new() -> ProgressLine {
        let bar = ProgressBar::new(1);
        let style = ProgressStyle::with_template("{msg} {wide_bar} {prefix}")
            .expect("a template with known keys");
        bar.set_style(style);
        bar.enable_steady_tick(Duration::from_millis(500));
        ProgressLine {
            bar,
            what: String::new(),
            now: LiveState::default(),
        }
    }

    fn show(&self) {
        // Truncated so that it fits on one line with the remaining time.
        let room = columns(io::stderr()).saturating_sub(self.bar.prefix().chars().count() + 2);
        let mut line = format!("{}  {}", self.what, self.now.line());
        while line.chars().count() > room
            && let Some(at) = line.rfind("  ")
        {
            line.truncate(at);
        }
        self.bar.set_message(line);
    }
}

impl View for ProgressLine {
    fn begins(&mut self, doing: &RunStart<'_>) {
        self.what = format!("[{}/{}] {}", doing.number, doing.runs_max(), doing.name);
        self.now = LiveState::of(doing.roles.len());
        self.bar
            .set_length(((doing.stop.warm_up_s + doing.stop.max_s) * PER_SECOND) as u64);
        self.bar.set_position(0);
        self.bar.set_prefix(doing.time_left());
        self.bar.set_message(self.what.clone());
    }

    fn sample(&mut self, role: usize, sample: &Sample) {
        self.now.add(role, sample);
        if role == 0 {
            self.bar.set_position((sample.at_s * PER_SECOND) as u64);
            self.show();
        }
    }

    fn waiting(&mut self, waited: Duration) {
        self.now.wait(waited);
        self.show();
    }

    fn purged(&mut self, purged: Purged) {
        self.bar.set_length(purged.of_bytes);
        self.bar.set_position(purged.done_bytes);
    }

    fn note(&mut self, sentence: &str) {
        self.bar.suspend(|| remark(sentence));
    }
}

/// Clears the line, so that only the result remains visible.
impl Drop for ProgressLine {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// A view of the whole terminal, which is restored when this is dropped.
pub(in crate::bench) struct Watch {
    terminal: Terminal<CrosstermBackend<Stderr>>,
    state: Watched,
    drawn: Option<Instant>,
    // Reads keys until it is dropped, which must happen before the terminal is restored.
    _keys: Keys,
    _screen: Screen,
}

/// Interval between updates. It is short enough for a display, and long enough not to affect the measurement.
const DRAW_EVERY: Duration = Duration::from_millis(100);

impl Watch {
    /// Takes over the terminal. Keys can request the end of the measurement, like signals.
    pub(in crate::bench) fn new(record: &Record, interrupt: &Interrupt) -> Result<Watch, Failure> {
        let screen = Screen::take().map_err(untaken)?;
        let terminal = Terminal::new(CrosstermBackend::new(stderr())).map_err(untaken)?;
        let keys = Keys::read(interrupt.clone());
        Ok(Watch {
            terminal,
            state: Watched::new(record),
            drawn: None,
            _keys: keys,
            _screen: screen,
        })
    }

    /// Checks that the process has a terminal.
    pub(in crate::bench) fn is_possible() -> Result<(), Failure> {
        File::open("/dev/tty").map_err(untaken)?;
        if stderr().is_terminal() {
            Ok(())
        } else {
            Err(untaken("there is none"))
        }
    }

    fn draw(&mut self, now: bool) {
        let is_due = self.drawn.is_none_or(|drawn| drawn.elapsed() >= DRAW_EVERY);
        if now || is_due {
            self.drawn = Some(Instant::now());
            let state = &self.state;
            // Ignore an error: if the terminal is lost, the measurement must continue.
            let _ = self.terminal.draw(|frame| draw(frame, state));
        }
    }
}

fn untaken(error: impl Display) -> Failure {
    Failure::refused(format!(
        "--watch needs a terminal on standard error: {error}"
    ))
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

/// A guard for the terminal's mode: alternate screen, unbuffered keys, no cursor.
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

/// Restores the terminal. A failure cannot be reported.
fn give_back() {
    let _ = execute!(stderr(), LeaveAlternateScreen, Show);
    let _ = disable_raw_mode();
}

/// Draws the whole screen.
pub(super) fn draw(frame: &mut Frame<'_>, state: &Watched) {
    let rows = [
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Percentage(45),
        Constraint::Min(5),
        Constraint::Length(1),
    ];
    let [title, progress, curves, tables, keys] = Layout::vertical(rows).areas(frame.area());
    frame.render_widget(Paragraph::new(printable(&state.title)).bold(), title);
    frame.render_widget(
        Paragraph::new(state.time_left.as_str()).alignment(Alignment::Right),
        title,
    );
    draw_progress(frame, state, progress);
    let [rate, latency] = Layout::horizontal([Constraint::Fill(1); 2]).areas(curves);
    draw_rate(frame, state, rate);
    draw_latency(frame, state, latency);
    match state.roles.len() {
        0 | 1 => draw_ended(frame, state, tables),
        _ => {
            let columns = [Constraint::Fill(1), Constraint::Length(28)];
            let [ended, clients] = Layout::horizontal(columns).areas(tables);
            draw_ended(frame, state, ended);
            draw_clients(frame, state, clients);
        }
    }
    let note = state.note.as_deref().map(printable).unwrap_or_default();
    frame.render_widget(Paragraph::new(note).dark_gray(), keys);
    frame.render_widget(Paragraph::new(" q: stop").alignment(Alignment::Right), keys);
}

fn draw_progress(frame: &mut Frame<'_>, state: &Watched, area: Rect) {
    let label = format!("{}  {}", printable(&state.what), state.now.line());
    let gauge = LineGauge::default()
        .ratio(state.done_share.clamp(0.0, 1.0))
        .label(Line::from(label));
    frame.render_widget(gauge.filled_style(Style::new().fg(Color::Cyan)), area);
}

fn draw_rate(frame: &mut Frame<'_>, state: &Watched, area: Rect) {
    let curve = points(state, |moment| moment.rates.bytes_per_s / 1e6);
    draw_curves(frame, area, "MB/s".to_owned(), &[(Color::Cyan, curve)]);
}

fn draw_latency(frame: &mut Frame<'_>, state: &Watched, area: Rect) {
    let rates = state.now.all();
    let title = format!(
        "latency, µs: p50 {}, p99 {}",
        significant(rates.p50_us),
        significant(rates.p99_us)
    );
    let p50 = points(state, |moment| moment.rates.p50_us);
    let p99 = points(state, |moment| moment.rates.p99_us);
    draw_curves(
        frame,
        area,
        title,
        &[(Color::Yellow, p99), (Color::Green, p50)],
    );
}

fn points(state: &Watched, value: impl Fn(&Moment) -> f64) -> Vec<(f64, f64)> {
    state
        .history
        .iter()
        .map(|moment| (moment.at_s, value(moment)))
        .collect()
}

/// Curves over time, from zero to slightly above the maximum.
fn draw_curves(
    frame: &mut Frame<'_>,
    area: Rect,
    title: String,
    curves: &[(Color, Vec<(f64, f64)>)],
) {
    let all = || curves.iter().flat_map(|(_, points)| points);
    let highest = all().map(|(_, value)| *value).fold(0.0, f64::max);
    let top = if highest > 0.0 { highest * 1.1 } else { 1.0 };
    let first = all().map(|(at, _)| *at).fold(f64::INFINITY, f64::min);
    let last = all().map(|(at, _)| *at).fold(0.0, f64::max);
    let first = if first.is_finite() { first } else { 0.0 };
    let datasets = curves.iter().map(|(color, points)| {
        let dataset = Dataset::default()
            .marker(Marker::Braille)
            .graph_type(GraphType::Line);
        dataset.style(Style::new().fg(*color)).data(points)
    });
    let x = Axis::default().bounds([first, last.max(first + 1.0)]);
    let x = x.labels([
        format!("{first:.0} s"),
        format!("{:.0} s", last.max(first + 1.0)),
    ]);
    let y = Axis::default().bounds([0.0, top]).labels([
        "0".to_owned(),
        significant(top / 2.0),
        significant(top),
    ]);
    let chart = Chart::new(datasets.collect())
        .block(Block::bordered().title(title))
        .x_axis(x)
        .y_axis(y);
    frame.render_widget(chart, area);
}

/// Draws the newest runs that fit, in order. On a narrow screen, the name has priority over the median.
fn draw_ended(frame: &mut Frame<'_>, state: &Watched, area: Rect) {
    const NARROW: u16 = 64;
    let room = usize::from(area.height.saturating_sub(3));
    let hidden = state.ended.len().saturating_sub(room);
    let wide = area.width >= NARROW;
    let rows = state.ended[hidden..].iter().map(|done| row(done, wide));
    let numbers: &[u16] = if wide { &[10, 9, 9, 9] } else { &[9, 8, 9] };
    let widths = std::iter::once(Constraint::Fill(1))
        .chain(numbers.iter().map(|width| Constraint::Length(*width)));
    let header = match wide {
        true => header(["done", "IOPS", "MB/s", "p50 µs", "p99 µs"]),
        false => header(["done", "IOPS", "MB/s", "p99 µs"]),
    };
    frame.render_widget(
        Table::new(rows, widths)
            .header(header)
            .block(Block::bordered()),
        area,
    );
}

fn row(row: &EndedRun, wide: bool) -> TableRow<'static> {
    let name = match row.failed {
        0 => printable(&row.name),
        failed => format!("{} ({failed} FAILED)", printable(&row.name)),
    };
    let numbers = [
        Some(grouped(row.iops.round() as u64)),
        Some(significant(row.bytes_per_s / 1e6)),
        wide.then(|| significant(row.p50_us)),
        Some(significant(row.p99_us)),
    ];
    let cells = numbers
        .into_iter()
        .flatten()
        .map(|number| Line::from(number).right_aligned());
    TableRow::new(std::iter::once(Line::from(name)).chain(cells))
}

fn draw_clients(frame: &mut Frame<'_>, state: &Watched, area: Rect) {
    let rows = state.roles.iter().enumerate().map(|(number, name)| {
        let rates = state.now.client(number);
        let numbers = [
            grouped(rates.iops.round() as u64),
            significant(rates.bytes_per_s / 1e6),
        ];
        let cells = numbers.map(|number| Line::from(number).right_aligned());
        TableRow::new(std::iter::once(Line::from(printable(name))).chain(cells))
    });
    let widths = [
        Constraint::Fill(1),
        Constraint::Length(8),
        Constraint::Length(7),
    ];
    let table = Table::new(rows, widths)
        .header(header(["client", "IOPS", "MB/s"]))
        .block(Block::bordered());
    frame.render_widget(table, area);
}

/// The column headings. The first column is for text, and the others are for numbers.
fn header<const N: usize>(names: [&'static str; N]) -> TableRow<'static> {
    let cell = |(index, name): (usize, &'static str)| {
        let line = Line::from(name);
        if index == 0 {
            line
        } else {
            line.right_aligned()
        }
    };
    TableRow::new(names.into_iter().enumerate().map(cell)).dark_gray()
}

// Keys are read on a separate thread. The first request to end acts like a signal, and the second one ends
// the program.

/// Reads keys until it is dropped.
pub(super) struct Keys {
    done: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

const LOOK_EVERY: Duration = Duration::from_millis(100);
/// The exit code that a shell reports for a command ended by SIGINT.
const INTERRUPTED: i32 = 130;

impl Keys {
    pub(super) fn read(interrupt: Interrupt) -> Keys {
        let done = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&done);
        let thread = thread::spawn(move || {
            while !ended.load(Relaxed) {
                match event::poll(LOOK_EVERY)
                    .and_then(|is_there| is_there.then(event::read).transpose())
                {
                    Ok(Some(Event::Key(key))) if asks_for_an_end(key) => end(&interrupt),
                    Ok(_) => {}
                    // The terminal has been closed. From now on, only signals can stop the program.
                    Err(_) => return,
                }
            }
        });
        Keys {
            done,
            thread: Some(thread),
        }
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        self.done.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Whether a key requests the end. In raw mode, Ctrl-C is an ordinary key.
fn asks_for_an_end(key: KeyEvent) -> bool {
    let is_control_c =
        key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
    key.kind == KeyEventKind::Press
        && (is_control_c || matches!(key.code, KeyCode::Char('q') | KeyCode::Esc))
}

fn end(interrupt: &Interrupt) {
    if interrupt.is_asked() {
        give_back();
        std::process::exit(INTERRUPTED);
    }
    interrupt.ask();
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    use bench::plan::{Stop, Suite};
    use bench::record::{Facts, Sample, Subject};
    use bench::schedule::Left;
    use bench_runner::prepare;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use crate::bench::view::RunStart;

    fn state(roles: usize) -> Watched {
        let (title, about) = (String::new(), String::new());
        let suite = Suite {
            name: "quick".to_owned(),
            title,
            about,
            document: None,
            assumed: Vec::new(),
            steps: Vec::new(),
        };
        let subject = Subject {
            place: "ram:1GiB\u{1b}[2J".to_owned(),
            kind: "ram".to_owned(),
            bytes: 1 << 30,
            block_bytes: 512,
            product: None,
            identity: None,
        };
        let mut state = Watched::new(&prepare::new_record(
            subject,
            suite,
            Facts::default(),
            Vec::new(),
        ));
        let time = Duration::from_secs(12);
        let left = Left {
            runs_min: 4,
            runs_max: 4,
            time_min: time,
            time_max: time,
        };
        let names = (1..=roles)
            .map(|number| format!("client {number}"))
            .collect();
        state.begins(&RunStart {
            name: "read-4KiB",
            number: 1,
            roles: names,
            stop: Stop::after(10.0),
            left,
        });
        for step in 1..=50 {
            let at_s = f64::from(step) / 10.0;
            let sample = Sample {
                at_s,
                seconds: 0.1,
                reads: 1000,
                read_bytes: 4_096_000,
                p50_us: 90.0,
                p99_us: 400.0,
                ..Sample::default()
            };
            (0..roles).for_each(|role| state.sample(role, &sample));
        }
        state
    }

    fn drawn(state: &Watched, width: u16, height: u16) -> String {
        let mut terminal =
            Terminal::new(TestBackend::new(width, height)).expect("a terminal in memory");
        terminal.draw(|frame| draw(frame, state)).expect("drawn");
        terminal.backend().to_string()
    }

    #[test]
    fn the_smallest_terminal_shows_what_there_is_to_know() {
        let screen = drawn(&state(1), 80, 24);
        for word in [
            r"quick on ram:1GiB\u{1b}[2J",
            "12 s left",
            "[1/4] read-4KiB",
            "10,000 IOPS",
            "p99 400",
            "q: stop",
        ] {
            assert!(screen.contains(word), "{word}:\n{screen}");
        }
    }

    #[test]
    fn several_clients_are_shown_one_by_one() {
        let screen = drawn(&state(3), 80, 24);
        assert!(
            screen.contains("client 3") && screen.contains("30,000 IOPS"),
            "{screen}"
        );
    }

    #[test]
    fn a_terminal_that_is_far_too_small_is_no_reason_to_end() {
        (1..12).for_each(|size| drop(drawn(&state(2), size * 3, size)));
    }
}
