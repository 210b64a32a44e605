//! The figures as tables, a section of the page and JSON.

use std::fmt::Write;

use anyhow::Result;
use serde_json::json;

use super::cells::{Ceiling, Contest, DEEP_READ};
use super::held::{CPU_SHARE_MAX, Held};
use super::{LEAN, MAIN, Results};
use crate::measuring::client::{Client, Measured, WARM_UP_SECONDS};
use crate::measuring::figures::{median, middle, spread};
use crate::serving::Peer;

/// The section of docs/measured/instructions.md.
pub(super) const HEADING: &str = "The server beside its peers";

const GIB: f64 = (1_u64 << 30) as f64;
/// CPU time for each request of the deep random read: ours is at most so many times the raw server's.
const CPU_OF_RAW_MAX: f64 = 1.5;

impl Results {
    fn rounds(&self, cell: &'static str, peer: Peer, client: Client) -> &[Measured] {
        self.measured.get(&(cell, peer, client)).map_or(&[], Vec::as_slice)
    }

    fn median(&self, cell: &'static str, peer: Peer, client: Client) -> Option<Measured> {
        median(self.rounds(cell, peer, client))
    }

    /// The median of the rounds' ratios: both sides of each were measured within seconds of each other.
    fn ratio(
        &self,
        cell: &'static str,
        [ours, theirs]: [Peer; 2],
        client: Client,
        of: impl Fn(&Measured, &Measured) -> Option<f64>,
    ) -> Option<f64> {
        let rounds = self.rounds(cell, ours, client).iter().zip(self.rounds(cell, theirs, client));
        middle(rounds.filter_map(|(ours, theirs)| of(ours, theirs)).collect())
    }

    /// Who measured: the client that was asked for, or the one that measures all.
    fn main(&self) -> Client {
        let is_main = self.measured.keys().any(|(_, _, client)| *client == MAIN);
        if is_main { MAIN } else { self.measured.keys().next().map_or(MAIN, |(_, _, client)| *client) }
    }

    /// How many times tgt's rate.
    fn times_tgt(&self, cell: &'static str, peer: Peer) -> Option<f64> {
        self.ratio(cell, [peer, Peer::Tgt], self.main(), |ours, tgt| Some(ours.iops / tgt.iops))
    }

    /// How near the raw server, where neither sleeps.
    fn of_raw(&self, contest: &Contest, client: Client) -> Option<f64> {
        let both = [Peer::LineratePolling, Peer::RawSpinning];
        self.ratio(contest.cell.name, both, client, |ours, raw| contest.raw.ratio(ours, raw))
    }

    /// Our CPU time for a request of the deep random read, as a multiple of the raw server's.
    fn cpu_of_raw(&self, both: [Peer; 2], client: Client) -> Option<f64> {
        let of = |ours: &Measured, raw: &Measured| Some(ours.server_cpu_us_per_io / raw.server_cpu_us_per_io);
        self.ratio(DEEP_READ, both, client, of)
    }
}

/// A floor or a limit, what was found, and whether that is enough; nothing where it was not measured.
type Judged = (String, Option<(f64, bool)>);

/// Whether every floor is reached that was measured.
pub(super) fn all_reached(cells: &[&Contest], results: &Results) -> bool {
    let floors =
        cells.iter().flat_map(|contest| [against_tgt(contest, results), against_raw(contest, results)]);
    floors.chain(cpu_time(results)).all(|(_, found)| found.is_none_or(|(_, reached)| reached))
}

fn against_tgt(contest: &Contest, results: &Results) -> Judged {
    let floor = contest.cell.goal.unwrap_or(0.0);
    let found = results.times_tgt(contest.cell.name, Peer::Linerate);
    (format!("≥ {floor:.1}"), found.map(|ratio| (ratio, ratio >= floor)))
}

fn against_raw(contest: &Contest, results: &Results) -> Judged {
    let found = results.of_raw(contest, results.main());
    (contest.raw.in_words(), found.map(|ratio| (ratio, contest.raw.is_reached(ratio))))
}

/// What the deep random read costs, beside the raw server that waits in the same way, and beside tgt for the same work.
fn cpu_time(results: &Results) -> [Judged; 5] {
    let of_raw = |both: [Peer; 2]| {
        let found = results.cpu_of_raw(both, results.main());
        let words = format!("{} beside {} ≤ {CPU_OF_RAW_MAX:.1}", both[0].name(), both[1].name());
        (words, found.map(|ratio| (ratio, ratio <= CPU_OF_RAW_MAX)))
    };
    let of_tgt = |arrivals: &str, of: fn(&Held) -> &Measured| {
        let share = middle(results.held.iter().map(|held| held.cpu_share(of)).collect());
        let words = format!("at tgt's highest rate, {arrivals}, ≤ {CPU_SHARE_MAX:.2} of tgt's");
        (words, share.map(|s| (s, s <= CPU_SHARE_MAX)))
    };
    [
        of_raw([Peer::Linerate, Peer::RawSleeping]),
        of_raw([Peer::LineratePolling, Peer::RawSpinning]),
        of_tgt("one request after the other", |held| &held.ours),
        of_tgt("all of a millisecond at once", |held| &held.in_bursts),
        of_tgt("one request after the other, `--gather-us 100`", |held| &held.gathering),
    ]
}

/// All tables, for the terminal and for the page.
pub(super) fn tables(cells: &[&Contest], results: &Results) -> String {
    [
        rates(cells, results),
        ceilings(cells, results),
        costs(results),
        "Every figure:\n\n".to_owned(),
        details(cells, results),
    ]
    .join("\n")
}

/// Rates as multiples of tgt's.
fn rates(cells: &[&Contest], results: &Results) -> String {
    let mut text = String::from(
        "| cell | tgt IOPS | tgt, aio | istgt | raw, sleeping | raw, spinning | linerate, polling | **linerate** | floor |\n\
         |---|---:|---:|---:|---:|---:|---:|---:|---|\n",
    );
    for contest in cells {
        let name = contest.cell.name;
        let tgt = results.median(name, Peer::Tgt, results.main()).map(|tgt| tgt.iops);
        let times = |peer| number(results.times_tgt(name, peer), 2);
        let _ = writeln!(
            text,
            "| {name} | {} | {} | {} | {} | {} | {} | **{}** | {} |",
            number(tgt, 0),
            times(Peer::TgtAio),
            times(Peer::Istgt),
            times(Peer::RawSleeping),
            times(Peer::RawSpinning),
            times(Peer::LineratePolling),
            times(Peer::Linerate),
            verdict(&against_tgt(contest, results)),
        );
    }
    text
}

/// Our server that never sleeps beside the raw one that never sleeps.
fn ceilings(cells: &[&Contest], results: &Results) -> String {
    let main = results.main();
    let mut text = format!(
        "| cell | figure | by {}: raw | linerate | ratio | floor | by {LEAN}: raw | linerate | ratio |\n\
         |---|---|---:|---:|---:|---|---:|---:|---:|\n",
        main.name(),
        LEAN = LEAN.name(),
    );
    for contest in cells {
        let figure = |peer, client| {
            let measured = results.median(contest.cell.name, peer, client)?;
            match contest.raw {
                Ceiling::Rate(_) => Some(measured.iops),
                Ceiling::Latency(_) => measured.latency_us.map(|latency| latency.p50),
            }
        };
        let (what, places) = match contest.raw {
            Ceiling::Rate(_) => ("IOPS", 0),
            Ceiling::Latency(_) => ("p50, µs", 1),
        };
        let three = |client| {
            let both =
                [Peer::RawSpinning, Peer::LineratePolling].map(|peer| number(figure(peer, client), places));
            format!("{} | {} | **{}**", both[0], both[1], number(results.of_raw(contest, client), 2))
        };
        let floor = verdict(&against_raw(contest, results));
        let _ = writeln!(
            text,
            "| {} | {what} | {} | {floor} | {} |",
            contest.cell.name,
            three(main),
            three(LEAN)
        );
    }
    text
}

fn costs(results: &Results) -> String {
    let mut text = format!("| CPU time of the server, {DEEP_READ} | found | |\n|---|---:|---|\n");
    for judged in cpu_time(results) {
        let found = number(judged.1.map(|(found, _)| found), 2);
        let reached = judged.1.map_or("", |(_, reached)| if reached { "reached" } else { "**missed**" });
        let _ = writeln!(text, "| {} | {found} | {reached} |", judged.0);
    }
    text
}

fn details(cells: &[&Contest], results: &Results) -> String {
    let mut text = String::from(
        "| cell | server | client | IOPS | MB/s | p50 µs | p99 | p99.9 | server CPU µs/IO | s/GiB | client CPU µs/IO | s/GiB | server ran | client ran | looks in vain/IO | spread, IOPS |\n\
         |---|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---|\n",
    );
    for contest in cells {
        for ((_, peer, client), rounds) in
            results.measured.iter().filter(|((name, _, _), _)| *name == contest.cell.name)
        {
            let Some(measured) = median(rounds) else { continue };
            let _ = writeln!(text, "{}", row(contest, *peer, *client, &measured, &spread(rounds)));
        }
    }
    text
}

fn row(contest: &Contest, peer: Peer, client: Client, measured: &Measured, spread: &str) -> String {
    let per_gib = |cpu_us: f64| cpu_us * GIB / contest.cell.block_bytes as f64 / 1e6;
    let latency = |of: fn(crate::measuring::client::Latency) -> f64| number(measured.latency_us.map(of), 1);
    format!(
        "| {} | {} | {} | {:.0} | {:.0} | {} | {} | {} | {:.2} | {:.3} | {:.2} | {:.3} | {:.0} % | {:.0} % | {} | {spread} |",
        contest.cell.name,
        peer.name(),
        client.name(),
        measured.iops,
        measured.mb_per_s,
        latency(|latency| latency.p50),
        latency(|latency| latency.p99),
        latency(|latency| latency.p999),
        measured.server_cpu_us_per_io,
        per_gib(measured.server_cpu_us_per_io),
        measured.client_cpu_us_per_io,
        per_gib(measured.client_cpu_us_per_io),
        100.0 * measured.server_busy(),
        100.0 * measured.client_busy(),
        number(measured.idle_looks_per_io, 2),
    )
}

fn verdict((floor, found): &Judged) -> String {
    match found {
        None => floor.clone(),
        Some((_, true)) => format!("{floor}: reached"),
        Some((_, false)) => format!("{floor}: **missed**"),
    }
}

fn number(figure: Option<f64>, places: usize) -> String {
    figure.map_or_else(String::new, |figure| format!("{figure:.places$}"))
}

/// The section of the page.
pub(super) fn section(cells: &[&Contest], results: &Results) -> String {
    let setting = &results.setting;
    let mut page = format!(
        "`cargo xtask peers` measures this and writes this section. Peers: {}; {}. Ours: `linerate serve --volume \
         ram0=ram:1GiB` as it is shipped, and the same never sleeping (\"polling\"). The raw server is `linerate raw \
         serve`: the bytes of iSCSI without SCSI, sessions and storage, out of 1 GiB of memory taken round and round, once \
         asleep whenever there is nothing to do and once spinning.\n\n\
         Server pinned to core 0, client to core 1, in a network namespace of their own ({}). In each of {} rounds \
         every server is started afresh, all of its volume written, and paused (SIGSTOP); then each cell is measured with \
         one server after the other, {} s each after {WARM_UP_SECONDS} s that do not count, and with another one first in every \
         round. Figures are medians of the rounds, ratios medians of the rounds' ratios. MB are 10^6 bytes. CPU time is the \
         user and system time of a whole process for each request, the client's start and login included.\n\n\
         tgt is measured twice: with the store it takes if nobody says which (`rdwr`, one file on /dev/shm; its number of threads \
         makes no difference), which is what the floors are for, and with `aio`, its fastest that keeps data. The floors \
         beside tgt are for our server as it is shipped, those beside the raw server for both never sleeping. One \
         client, `{}`, measures all; `{}`, which keeps no clock for most requests and looks at nothing it reads, measures \
         the fast ones again: where the two differ, the first was the bottleneck. It counts its looks for answers that \
         found none: with none, it is the bottleneck itself. A client or server that ran for less than all of the time \
         slept for the rest; ours look for work for up to 50 µs before they sleep, which counts as running.\n\n",
        setting.tgt,
        setting.istgt,
        setting.congestion,
        setting.rounds,
        setting.seconds,
        MAIN.name(),
        LEAN.name(),
    );
    page.push_str(&setting.line());
    page.push_str("Rates as multiples of tgt's:\n\n");
    page.push_str(&tables(cells, results));
    page
}

/// Every round's figures.
pub(super) fn json(results: &Results) -> Result<String> {
    let runs: Vec<_> = results
        .measured
        .iter()
        .map(|((cell, server, client), rounds)| {
            json!({"cell": cell, "server": server, "client": client, "rounds": rounds})
        })
        .collect();
    let json = json!({"setting": results.setting, "runs": runs, "at_the_rate_of_tgt": results.held});
    Ok(serde_json::to_string_pretty(&json)?)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::measuring::machine::Setting;
    use crate::peers::cells::CONTESTS;

    fn results(measured: &[(Peer, &[f64])]) -> Results {
        let rounds = |rates: &[f64]| rates.iter().map(|iops| Measured::of_rate(*iops, 1e6 / iops)).collect();
        let measured: BTreeMap<_, _> =
            measured.iter().map(|(peer, rates)| ((DEEP_READ, *peer, MAIN), rounds(rates))).collect();
        Results { setting: Setting::default(), measured, held: Vec::new() }
    }

    fn deep() -> &'static Contest {
        CONTESTS.iter().find(|contest| contest.cell.name == DEEP_READ).expect("it is in the table")
    }

    #[test]
    fn what_slows_a_round_down_for_all_changes_no_ratio() {
        let results =
            results(&[(Peer::Tgt, &[100.0, 50.0, 100.0]), (Peer::Linerate, &[700.0, 350.0, 700.0])]);
        assert_eq!(results.times_tgt(DEEP_READ, Peer::Linerate), Some(7.0));
        assert!(all_reached(&[deep()], &results));
    }

    #[test]
    fn one_floor_that_is_missed_is_enough() {
        let raw = (Peer::RawSpinning, &[1000.0][..]);
        let missed = results(&[
            (Peer::Tgt, &[100.0]),
            (Peer::Linerate, &[700.0]),
            raw,
            (Peer::LineratePolling, &[800.0]),
        ]);
        assert!(!all_reached(&[deep()], &missed), "0.8 of the raw server's rate");
        let slow = results(&[(Peer::Tgt, &[100.0]), (Peer::Linerate, &[600.0])]);
        assert!(!all_reached(&[deep()], &slow), "6 times tgt's rate");
    }
}
