//! What the figures depend on, beside the programs.

use std::fs;

use serde::Serialize;

use super::server::Site;
use xtask::process;
use xtask::serving::istgt::Istgt;
use xtask::serving::nbd::Nbd;
use xtask::serving::tgt::Tgt;

/// The setting of a measurement.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Setting {
    pub(crate) machine: String,
    pub(crate) kernel: String,
    /// What else the machine did when it began, in processes that want to run (the load average of a minute).
    pub(crate) load: f64,
    pub(crate) congestion: String,
    pub(crate) rounds: usize,
    pub(crate) seconds: f64,
    pub(crate) tgt: String,
    pub(crate) istgt: String,
    /// nbdkit and qemu-nbd.
    pub(crate) nbd: String,
    /// Empty if it is missing.
    pub(crate) fio: String,
}

impl Setting {
    /// Looks around, and warns if the machine is not ours alone.
    pub(crate) fn look(site: &Site, rounds: usize, seconds: f64) -> Setting {
        let (load, namespace) = (load(), &site.namespace);
        println!("network namespace {}: {}", namespace.name, namespace.congestion);
        if load > 0.5 {
            println!("note: something else is running here (load {load:.1}); these figures will be too low");
        }
        Setting {
            machine: machine(),
            kernel: kernel(),
            load,
            congestion: namespace.congestion.clone(),
            rounds,
            seconds,
            tgt: Tgt::version(),
            istgt: Istgt::version(),
            nbd: Nbd::versions(),
            fio: process::run(&site.fio, &["--version"]).unwrap_or_default().trim().to_owned(),
        }
    }

    /// A line for the page.
    pub(crate) fn line(&self) -> String {
        format!(
            "Machine: {}, Linux {}; load before the first round {:.2}.\n\n",
            self.machine, self.kernel, self.load
        )
    }
}

/// Its cores and what they are.
pub(crate) fn machine() -> String {
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    format!("{cores} cores, {}", processor())
}

/// The release of Linux.
pub(crate) fn kernel() -> String {
    fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_owned()
}

fn processor() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = text.lines().find_map(|line| line.strip_prefix("model name"));
    name.unwrap_or("unknown").trim_start_matches([' ', '\t', ':']).to_owned()
}

/// The load average of the last minute.
fn load() -> f64 {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().and_then(|minute| minute.parse().ok()).unwrap_or(0.0)
}
