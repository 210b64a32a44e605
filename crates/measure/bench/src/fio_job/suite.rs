//! The phases of a job file as a suite: each is a cell, and its jobs are the cell's clients.

use std::collections::HashSet;

use super::{Job, Jobs};
use crate::plan::{Access, Align, Cell, Order, Role, Rule, Span, Step, Stop, Suite};

/// Clients that a cell may have.
const CLIENTS_MAX: usize = 256;

/// In all cells: this bounds the memory that a file can ask for.
const ROLES_MAX: usize = 16_384;

/// As a suite may have at most, for the requests of all roles of a cell.
const MEMORY_MAX: u64 = 4 << 30;

/// A job that only ends with its work gets as much time.
const DAY_S: f64 = 86_400.0;

impl Jobs {
    /// Whether any of them writes.
    pub fn writes(&self) -> bool {
        self.phases.iter().flatten().any(|job| job.workload.writes())
    }

    /// The suite that asks the same of a storage with this capacity, under a name of the caller's.
    ///
    /// # Errors
    /// What cannot be run at the same time here, or not on this storage, in a sentence.
    pub fn suite(&self, name: &str, device_bytes: u64) -> Result<Suite, String> {
        let mut names = HashSet::new();
        let mut cells = Vec::new();
        let mut roles = 0;
        for phase in &self.phases {
            let cell = cell(phase, device_bytes, &mut names)?;
            roles += cell.roles.len();
            if roles > ROLES_MAX {
                return Err(format!("the jobs have more than {ROLES_MAX} clients together"));
            }
            cells.push(cell);
        }
        Ok(Suite {
            name: name.to_owned(),
            title: "fio's jobs".to_owned(),
            about: "Read from a job file of fio.".to_owned(),
            document: None,
            assumed: Vec::new(),
            // Each cell has a stop of its own.
            steps: vec![Step::Measure { stop: Stop::after(DAY_S), order: Order::Once, cells }],
        })
    }
}

fn cell(phase: &[Job], device_bytes: u64, names: &mut HashSet<String>) -> Result<Cell, String> {
    let all = phase.iter().map(|job| job.name.as_str()).collect::<Vec<_>>().join(" + ");
    let short: String = match all.char_indices().nth(80) {
        Some((end, _)) => format!("{}…", &all[..end]),
        None => all,
    };
    let name = unique(short, names);
    let mut roles: Vec<Role> = Vec::new();
    let mut role_names = HashSet::new();
    let mut stop: Option<(&Job, Stop)> = None;
    for job in phase {
        let own = job.stop(device_bytes)?;
        match stop {
            Some((first, known)) if known != own => {
                return Err(format!(
                    "jobs that run at the same time end at the same time here, but {} {} and {} {}: give both `time_based` and \
                     one `runtime`, or the second one `stonewall`",
                    first.name,
                    ends(known),
                    job.name,
                    ends(own)
                ));
            }
            _ => stop = Some((job, own)),
        }
        for clone in 0..job.clients {
            let number = roles.len();
            let mut workload = job.workload.clone();
            workload.span = job.span(u64::from(clone), device_bytes)?;
            workload.seed = workload.seed.wrapping_add(number as u64);
            let named =
                if job.clients == 1 { job.name.clone() } else { format!("{} {}", job.name, clone + 1) };
            roles.push(Role::new(unique(named, &mut role_names), number as u16, workload));
        }
        if roles.len() > CLIENTS_MAX {
            return Err(format!("{name}: more than {CLIENTS_MAX} clients at the same time"));
        }
    }
    let memory =
        roles.iter().map(|role| u64::from(role.workload.depth) * u64::from(role.workload.block_bytes_max()));
    if memory.fold(0, u64::saturating_add) > MEMORY_MAX {
        return Err(format!(
            "{name}: the requests that are outstanding at once have more than 4 GiB of data"
        ));
    }
    Ok(Cell { stop: stop.map(|(_, stop)| stop), ..Cell::new(name.clone(), name, roles) })
}

/// The name, with a number behind it if another has it.
fn unique(name: String, names: &mut HashSet<String>) -> String {
    let numbered = (2u32..).map(|number| format!("{name} ({number})"));
    let free = std::iter::once(name.clone()).chain(numbered).find(|name| !names.contains(name));
    let free = free.unwrap_or(name);
    names.insert(free.clone());
    free
}

fn ends(stop: Stop) -> String {
    let time = if stop.max_s < DAY_S { format!(" or after {} s", stop.max_s) } else { String::new() };
    let ramp =
        if stop.warm_up_s > 0.0 { format!(" behind a ramp of {} s", stop.warm_up_s) } else { String::new() };
    match stop.rule {
        Rule::Bytes { bytes } => format!("ends after {bytes} bytes{time}{ramp}"),
        Rule::Requests { requests } => format!("ends after {requests} requests{time}{ramp}"),
        Rule::Time | Rule::Confidence { .. } => format!("ends after {} s{ramp}", stop.max_s),
    }
}

impl Job {
    /// The part of the storage that its client number `clone` uses.
    fn span(&self, clone: u64, device_bytes: u64) -> Result<Span, String> {
        // Shares begin and end where requests do.
        let step = self.workload.accesses.iter().map(step).max().unwrap_or(1);
        let whole = |bytes: u64| bytes - bytes % step;
        let start = match self.offset {
            super::Amount::Bytes(bytes) => bytes,
            share => whole(share.of(device_bytes)),
        };
        let increment = match self.offset_increment {
            super::Amount::Bytes(bytes) => bytes,
            share => whole(share.of(device_bytes)),
        };
        let start_bytes = start.saturating_add(increment.saturating_mul(clone));
        let left = device_bytes.checked_sub(start_bytes).filter(|left| *left > 0).ok_or_else(|| {
            format!(
                "{}: offset {start_bytes} is beyond the end of the storage, which has {device_bytes} bytes",
                self.name
            )
        })?;
        let bytes = match self.size {
            None => None,
            Some(super::Amount::Bytes(bytes)) => Some(bytes),
            Some(share) => Some(whole(share.of(device_bytes))),
        };
        match bytes {
            Some(bytes) if bytes > left => Err(format!(
                "{}: a size of {bytes} is more than the {left} bytes from {start_bytes} to the end",
                self.name
            )),
            Some(0) => Err(format!("{}: its part of the storage is empty", self.name)),
            bytes => Ok(Span { start_bytes, bytes: bytes.filter(|bytes| *bytes < left || start_bytes > 0) }),
        }
    }

    /// When each of its clients ends.
    fn stop(&self, device_bytes: u64) -> Result<Stop, String> {
        let max_s = self.runtime.map_or(DAY_S, |time| time.as_secs_f64());
        let warm_up_s = self.ramp.as_secs_f64();
        let timed = Stop { warm_up_s, min_s: max_s, max_s, rule: Rule::Time };
        if self.time_based {
            return Ok(timed);
        }
        let rule = match self.requests {
            Some(requests) => Rule::Requests { requests: requests * self.loops },
            None => {
                let span = self.span(0, device_bytes)?;
                let part = span.bytes.unwrap_or(device_bytes - span.start_bytes);
                let bytes = self.io_size.map_or(part, |amount| amount.of(device_bytes));
                Rule::Bytes { bytes: bytes.saturating_mul(self.loops) }
            }
        };
        Ok(Stop { min_s: 0.0, rule, ..timed })
    }
}

/// Where requests of a line may start, at multiples of so many bytes.
fn step(access: &Access) -> u64 {
    match access.align {
        Align::Bytes(bytes) => u64::from(bytes),
        Align::Natural | Align::Block => u64::from(access.block_bytes),
    }
}
