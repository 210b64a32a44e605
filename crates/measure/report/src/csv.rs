//! Tables for spreadsheets and scripts, in the format of RFC 4180. Each column's name contains its unit.

use super::Report;
use super::diagnosis::term;
use super::views::{Direction, asked_rate, block_bytes, latencies};
use crate::summary::CellSummary;
use crate::wan::{Met, Row};
use bench::plan::Way;

/// Returns a line for each cell.
pub(super) fn cells(report: &Report<'_>) -> String {
    const COLUMNS: &str = "cell,series,direction,block_bytes,depth,asked_per_s,clients,runs,iops,iops_low,iops_high,\
        bytes_per_s,bytes_per_s_low,bytes_per_s_high,read_bytes_per_s,written_bytes_per_s,under_way,\
        latency_mean_us,latency_p50_us,latency_p90_us,latency_p99_us,latency_p999_us,latency_p9999_us,latency_max_us,\
        service_p50_us,service_p99_us,client_cpu_us_per_io,client_iops_per_cpu_percent,server_cpu_us_per_io,\
        client_cpu_percent,server_cpu_percent,\
        fairness,errors,mismatches,flags\n";
    const OF_THE_WAY: &str = "way,rtt_ms,link_bits_per_s,mtu,loss,tcp_window_bytes,connections,sessions,command_window,\
        congestion,most_bytes_per_s,model_bytes_per_s,model_limit,published_bytes_per_s,met";
    let Some(wan) = &report.wan else {
        let lines = report.summaries.iter().map(|summary| line(cell(summary)));
        return COLUMNS.to_owned() + &lines.collect::<String>();
    };
    let lines = report.summaries.iter().filter_map(|summary| {
        let row = wan.rows.iter().find(|row| row.cell == summary.cell.name)?;
        Some(line(cell(summary).into_iter().chain(way(row))))
    });
    format!("{},{OF_THE_WAY}\n", COLUMNS.trim_end()) + &lines.collect::<String>()
}

/// Returns the path of a cell, with the model's and the document's values.
fn way(row: &Row) -> [String; 15] {
    let setting = &row.setting;
    let maybe = |value: Option<f64>| value.map(number).unwrap_or_default();
    let whole = |value: Option<u32>| value.map(|value| value.to_string()).unwrap_or_default();
    let way = match setting.way {
        Way::Tcp { to_target: true } => "tcp to target",
        Way::Tcp { to_target: false } => "tcp from target",
        Way::Reads => "reads",
        Way::MostSolicited => "most solicited writes",
        Way::MostUnsolicited => "most unsolicited writes",
    };
    let met = match row.met {
        Some(Met::Beaten) => "beaten",
        Some(Met::Yes) => "met",
        Some(Met::CannotBe(_)) => "cannot be",
        Some(Met::No) => "missed",
        None => "",
    };
    [
        way.to_owned(),
        number(setting.rtt_ms),
        number(setting.link_bits_per_s),
        setting.mtu.to_string(),
        number(setting.loss),
        whole(setting.tcp_window_bytes),
        setting.connections.to_string(),
        setting.sessions.to_string(),
        whole(setting.command_window),
        text(&setting.congestion),
        number(row.most),
        maybe(row.model),
        row.binding.map(term).unwrap_or_default().to_owned(),
        maybe(
            row.published
                .as_ref()
                .map(|published| published.bytes_per_s),
        ),
        met.to_owned(),
    ]
}

fn cell(summary: &CellSummary) -> Vec<String> {
    let times = latencies(summary);
    let maybe = |value: Option<f64>| value.map(number).unwrap_or_default();
    let flags: Vec<String> = summary.flags.iter().map(ToString::to_string).collect();
    vec![
        text(&summary.cell.name),
        text(&summary.cell.series),
        Direction::of(&summary.cell).name().to_owned(),
        number(block_bytes(&summary.cell)),
        summary.depth.to_string(),
        maybe(asked_rate(&summary.cell)),
        super::views::clients(&summary.cell).to_string(),
        summary.runs.to_string(),
        number(summary.iops.median),
        maybe(summary.iops.interval.map(|interval| interval.low)),
        maybe(summary.iops.interval.map(|interval| interval.high)),
        number(summary.bytes_per_s.median),
        maybe(summary.bytes_per_s.interval.map(|interval| interval.low)),
        maybe(summary.bytes_per_s.interval.map(|interval| interval.high)),
        number(summary.read_bytes_per_s),
        number(summary.written_bytes_per_s),
        number(summary.under_way),
        number(times.mean_us),
        number(times.p50_us),
        number(times.p90_us),
        number(times.p99_us),
        number(times.p999_us),
        number(times.p9999_us),
        number(times.max_us),
        number(summary.service.p50_us),
        number(summary.service.p99_us),
        maybe(summary.client_cpu.map(|cost| cost.us_per_io)),
        maybe(summary.iops_per_percent(summary.cpu_load.client)),
        maybe(summary.server_cpu.map(|cost| cost.us_per_io)),
        maybe(summary.cpu_load.client),
        maybe(summary.cpu_load.server),
        maybe(summary.fairness),
        summary.errors.to_string(),
        summary.mismatches.to_string(),
        text(&flags.join(" ")),
    ]
}

/// Returns a line for each sample of each client of each run.
pub(super) fn samples(report: &Report<'_>) -> String {
    let mut lines = "cell,round,role,client,at_s,seconds,reads,writes,read_bytes,written_bytes,\
        p50_us,p99_us,max_us,under_way\n"
        .to_owned();
    for run in &report.record.runs {
        for client in &run.clients {
            let whose = [
                text(&run.cell),
                run.round.to_string(),
                text(&client.role),
                text(&client.client),
            ];
            for sample in &client.run.samples {
                let counts = [
                    sample.reads,
                    sample.writes,
                    sample.read_bytes,
                    sample.written_bytes,
                ];
                let times = [
                    sample.p50_us,
                    sample.p99_us,
                    sample.max_us,
                    sample.under_way,
                ]
                .map(number);
                let when = [sample.at_s, sample.seconds].map(number);
                let numbers = counts.iter().map(u64::to_string).chain(times);
                lines += &line(whose.iter().cloned().chain(when).chain(numbers));
            }
        }
    }
    lines
}

/// Formats a number. An infinite number or NaN, which an invalid record may contain, becomes empty.
fn number(value: f64) -> String {
    if value.is_finite() {
        value.to_string()
    } else {
        String::new()
    }
}

pub(super) fn line(cells: impl IntoIterator<Item = String>) -> String {
    let mut line = cells.into_iter().collect::<Vec<_>>().join(",");
    line.push('\n');
    line
}

/// Formats a text as a cell, quoted if necessary. A text that a spreadsheet would treat as a formula is
/// prefixed with an apostrophe, because names come from files and agents that are not trusted.
pub(super) fn text(text: &str) -> String {
    let formula = text.starts_with(['=', '+', '-', '@', '\t', '\r']);
    let text = if formula {
        format!("'{text}")
    } else {
        text.to_owned()
    };
    if text.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_stay_in_their_cell_and_are_no_formulas() {
        assert_eq!(text("read 4 KiB"), "read 4 KiB");
        assert_eq!(text("a,\"b\""), "\"a,\"\"b\"\"\"");
        assert_eq!(text("=cmd|' /C calc'!A0"), "'=cmd|' /C calc'!A0");
    }
}
