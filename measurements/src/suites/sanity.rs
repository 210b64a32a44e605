//! Whether a record agrees with itself: nothing failed, nothing is missing, and what is counted in several ways is the
//! same in all of them.

use super::record::{Cell, CellRun, ClientRun, Flow, Record, Role, Run};

/// By how much rate times mean latency may differ from the measured number of requests under way beside what the ends
/// of a run make of it: latencies are told to one part in a thousand.
const LITTLE_PERCENT: f64 = 1.0;

/// Everything that is odd, in sentences.
pub(super) fn doubts(record: &Record) -> Vec<String> {
    let mut doubts = Vec::new();
    if record.ended.is_none() {
        doubts.push("the record has no end".to_owned());
    }
    for cell in record.cells() {
        let runs: Vec<_> = record.runs.iter().filter(|run| run.cell == cell.name).collect();
        if runs.is_empty() {
            doubts.push(format!("{}: never ran", cell.name));
        }
        doubts.extend(
            runs.iter().flat_map(|run| of_run(cell, run)).map(|doubt| format!("{}: {doubt}", cell.name)),
        );
    }
    doubts
}

fn of_run(cell: &Cell, run: &CellRun) -> Vec<String> {
    let mut doubts = Vec::new();
    if matches!(run.ended.as_str(), "failures" | "interrupted") {
        doubts.push(format!("ended by {}", run.ended));
    }
    if run.clients.len() != cell.roles.len() {
        doubts.push(format!("{} clients for {} roles", run.clients.len(), cell.roles.len()));
    }
    for client in &run.clients {
        match cell.roles.iter().find(|role| role.name == client.role) {
            Some(role) => doubts.extend(of_client(role, client)),
            None => doubts.push(format!("a client has the role {}, which is none", client.role)),
        }
    }
    doubts
}

fn of_client(role: &Role, client: &ClientRun) -> Vec<String> {
    let ClientRun { run, cpu, .. } = client;
    let mut doubts = Vec::new();
    let mut doubt = |odd: bool, what: String| doubts.extend(odd.then_some(what));
    doubt(run.errors > 0, format!("{} errors", run.errors));
    doubt(run.mismatches > 0, format!("{} blocks were wrong", run.mismatches));
    doubt(run.ios() == 0 || run.seconds <= 0.0, "nothing was done".to_owned());
    let kinds = || role.workload.accesses.iter();
    doubt(kinds().all(|access| access.read == 100) && run.writes.ios > 0, "a reader wrote".to_owned());
    doubt(kinds().all(|access| access.read == 0) && run.reads.ios > 0, "a writer read".to_owned());
    let sizes: Vec<u64> = kinds().map(|access| u64::from(access.block_bytes)).collect();
    for (name, flow) in [("reads", &run.reads), ("writes", &run.writes)] {
        doubt(counted(flow) != flow.ios, format!("{} {name}, {} latencies", flow.ios, counted(flow)));
        let (least, most) = (sizes.iter().min().unwrap_or(&0), sizes.iter().max().unwrap_or(&0));
        let possible = flow.ios * least..=flow.ios * most;
        doubt(!possible.contains(&flow.bytes), format!("{} {name} of {} bytes", flow.ios, flow.bytes));
    }
    let asked = f64::from(role.workload.depth) * f64::from(role.sessions);
    doubt(run.under_way_mean > asked * 1.001, format!("{} under way of {asked}", run.under_way_mean));
    doubt(
        cpu.seconds > run.seconds * 1.2 * f64::from(cpu.cpus),
        format!("{} s of CPU time in {} s", cpu.seconds, run.seconds),
    );
    doubts.extend(samples(run));
    doubts.extend(little(asked, run));
    doubts
}

fn counted(flow: &Flow) -> u64 {
    flow.service.iter().map(|(_, times)| times).sum()
}

/// Samples are all of the run, one behind the other, but for a last piece of less than half their length, which is left
/// out as noise.
fn samples(run: &Run) -> Vec<String> {
    let mut doubts = Vec::new();
    let longest_s = run.samples.iter().map(|sample| sample.seconds).fold(0.0, f64::max);
    let left_s = run.seconds - run.samples.iter().map(|sample| sample.seconds).sum::<f64>();
    if !(-1e-6..longest_s * 0.501).contains(&left_s) {
        doubts.push(format!("samples leave out {left_s} s of {} s", run.seconds));
    }
    let sum = |of: fn(&super::record::Sample) -> u64| run.samples.iter().map(of).sum::<u64>();
    let told = (run.ios(), run.reads.bytes + run.writes.bytes);
    let seen =
        (sum(|sample| sample.reads + sample.writes), sum(|sample| sample.read_bytes + sample.written_bytes));
    let is_whole = left_s < 1e-6;
    if (is_whole && seen != told) || seen.0 > told.0 || seen.1 > told.1 {
        doubts.push(format!("samples have {seen:?} requests and bytes, the run has {told:?}"));
    }
    if !run.samples.is_sorted_by(|one, next| one.at_s < next.at_s) {
        doubts.push("samples are not in their order".to_owned());
    }
    doubts
}

/// Little's law over the time that was counted. A request that ends in it counts whole, also what it took before, and one
/// that does not end in it counts nothing: at each end as many as there may be under way, each for about the longest latency.
/// What was not counted may have taken longer than all that was, hence twice that.
fn little(asked: f64, run: &Run) -> Option<String> {
    let expected = run.ios() as f64 / run.seconds * run.latency_mean_s();
    let ends = 2.0 * asked * run.latency_max_s() / run.seconds;
    let odd = (expected - run.under_way_mean).abs() > ends + run.under_way_mean * LITTLE_PERCENT / 100.0;
    odd.then(|| format!("rate times latency is {expected:.2}, under way were {:.2}", run.under_way_mean))
}
