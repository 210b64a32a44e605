//! How it looks, on any terminal from 80 x 24 on; a smaller one shows what fits.

use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Color, Style, Stylize};
use ratatui::symbols::Marker;
use ratatui::text::Line;
use ratatui::widgets::{
    Axis, Block, Chart, Dataset, GraphType, LineGauge, Paragraph, Row as TableRow, Table,
};

use bench_runner::watched::{EndedRun, Moment, Watched};

use crate::output::printable;
use readable::figures::{grouped, significant};

/// Draws all of it.
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
    frame.render_widget(Paragraph::new(state.time_left.as_str()).alignment(Alignment::Right), title);
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
    frame.render_widget(Paragraph::new(" q ends it").alignment(Alignment::Right), keys);
}

fn draw_progress(frame: &mut Frame<'_>, state: &Watched, area: Rect) {
    let label = format!("{}  {}", printable(&state.what), state.now.line());
    let gauge = LineGauge::default().ratio(state.done_share.clamp(0.0, 1.0)).label(Line::from(label));
    frame.render_widget(gauge.filled_style(Style::new().fg(Color::Cyan)), area);
}

fn draw_rate(frame: &mut Frame<'_>, state: &Watched, area: Rect) {
    let curve = points(state, |moment| moment.rates.bytes_per_s / 1e6);
    draw_curves(frame, area, "MB/s".to_owned(), &[(Color::Cyan, curve)]);
}

fn draw_latency(frame: &mut Frame<'_>, state: &Watched, area: Rect) {
    let rates = state.now.all();
    let title = format!("latency, µs: p50 {}, p99 {}", significant(rates.p50_us), significant(rates.p99_us));
    let p50 = points(state, |moment| moment.rates.p50_us);
    let p99 = points(state, |moment| moment.rates.p99_us);
    draw_curves(frame, area, title, &[(Color::Yellow, p99), (Color::Green, p50)]);
}

fn points(state: &Watched, value: impl Fn(&Moment) -> f64) -> Vec<(f64, f64)> {
    state.history.iter().map(|moment| (moment.at_s, value(moment))).collect()
}

/// Curves over time, from zero to a little above the highest.
fn draw_curves(frame: &mut Frame<'_>, area: Rect, title: String, curves: &[(Color, Vec<(f64, f64)>)]) {
    let all = || curves.iter().flat_map(|(_, points)| points);
    let highest = all().map(|(_, value)| *value).fold(0.0, f64::max);
    let top = if highest > 0.0 { highest * 1.1 } else { 1.0 };
    let first = all().map(|(at, _)| *at).fold(f64::INFINITY, f64::min);
    let last = all().map(|(at, _)| *at).fold(0.0, f64::max);
    let first = if first.is_finite() { first } else { 0.0 };
    let datasets = curves.iter().map(|(color, points)| {
        let dataset = Dataset::default().marker(Marker::Braille).graph_type(GraphType::Line);
        dataset.style(Style::new().fg(*color)).data(points)
    });
    let x = Axis::default().bounds([first, last.max(first + 1.0)]);
    let x = x.labels([format!("{first:.0} s"), format!("{:.0} s", last.max(first + 1.0))]);
    let y =
        Axis::default().bounds([0.0, top]).labels(["0".to_owned(), significant(top / 2.0), significant(top)]);
    let chart = Chart::new(datasets.collect()).block(Block::bordered().title(title)).x_axis(x).y_axis(y);
    frame.render_widget(chart, area);
}

/// The newest that fit, in their order. Where it is narrow a name is worth more than the median.
fn draw_ended(frame: &mut Frame<'_>, state: &Watched, area: Rect) {
    const NARROW: u16 = 64;
    let room = usize::from(area.height.saturating_sub(3));
    let hidden = state.ended.len().saturating_sub(room);
    let wide = area.width >= NARROW;
    let rows = state.ended[hidden..].iter().map(|done| row(done, wide));
    let numbers: &[u16] = if wide { &[10, 9, 9, 9] } else { &[9, 8, 9] };
    let widths =
        std::iter::once(Constraint::Fill(1)).chain(numbers.iter().map(|width| Constraint::Length(*width)));
    let header = match wide {
        true => header(["done", "IOPS", "MB/s", "p50 µs", "p99 µs"]),
        false => header(["done", "IOPS", "MB/s", "p99 µs"]),
    };
    frame.render_widget(Table::new(rows, widths).header(header).block(Block::bordered()), area);
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
    let cells = numbers.into_iter().flatten().map(|number| Line::from(number).right_aligned());
    TableRow::new(std::iter::once(Line::from(name)).chain(cells))
}

fn draw_clients(frame: &mut Frame<'_>, state: &Watched, area: Rect) {
    let rows = state.roles.iter().enumerate().map(|(number, name)| {
        let rates = state.now.client(number);
        let numbers = [grouped(rates.iops.round() as u64), significant(rates.bytes_per_s / 1e6)];
        let cells = numbers.map(|number| Line::from(number).right_aligned());
        TableRow::new(std::iter::once(Line::from(printable(name))).chain(cells))
    });
    let widths = [Constraint::Fill(1), Constraint::Length(8), Constraint::Length(7)];
    let table = Table::new(rows, widths).header(header(["client", "IOPS", "MB/s"])).block(Block::bordered());
    frame.render_widget(table, area);
}

/// Names of columns: the first is of text, the others are of numbers.
fn header<const N: usize>(names: [&'static str; N]) -> TableRow<'static> {
    let cell = |(index, name): (usize, &'static str)| {
        let line = Line::from(name);
        if index == 0 { line } else { line.right_aligned() }
    };
    TableRow::new(names.into_iter().enumerate().map(cell)).dark_gray()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bench::plan::{Stop, Suite};
    use bench::record::{Facts, Sample, Subject};
    use bench::schedule::Left;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::*;
    use crate::bench::view::{RunStart, View as _};
    use bench_runner::begin;

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
        let mut state = Watched::new(&begin::record(subject, suite, Facts::default(), Vec::new()));
        let time = Duration::from_secs(12);
        let left = Left { runs_min: 4, runs_max: 4, time_min: time, time_max: time };
        let names = (1..=roles).map(|number| format!("client {number}")).collect();
        state.begins(&RunStart { name: "read-4KiB", number: 1, roles: names, stop: Stop::after(10.0), left });
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
        let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a terminal in memory");
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
            "q ends it",
        ] {
            assert!(screen.contains(word), "{word}:\n{screen}");
        }
    }

    #[test]
    fn several_clients_are_shown_one_by_one() {
        let screen = drawn(&state(3), 80, 24);
        assert!(screen.contains("client 3") && screen.contains("30,000 IOPS"), "{screen}");
    }

    #[test]
    fn a_terminal_that_is_far_too_small_is_no_reason_to_end() {
        (1..12).for_each(|size| drop(drawn(&state(2), size * 3, size)));
    }
}
