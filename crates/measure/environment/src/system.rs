//! Facts about this machine, from the kernel's files and links in `/proc` and `/sys`. Any of these may be
//! missing.

use std::fs;
use std::path::{Path, PathBuf};

use bench::record::{Fact, Group};

use crate::fact;

/// The kernel's files or, in tests, the files of a directory.
pub struct System {
    root: PathBuf,
}

impl System {
    /// Returns this machine's files.
    pub fn this() -> System {
        System {
            root: PathBuf::from("/"),
        }
    }

    /// Returns the files below this directory, instead of this machine's.
    pub fn below(root: PathBuf) -> System {
        System { root }
    }

    /// Returns the text of a file without leading and trailing blanks. Returns `None` if the file is missing,
    /// empty or unreadable.
    pub fn text(&self, path: impl AsRef<Path>) -> Option<String> {
        let text = fs::read_to_string(self.root.join(path)).ok()?;
        let text = text.trim();
        (!text.is_empty()).then(|| text.to_owned())
    }

    /// Returns the number that a file contains.
    pub fn number(&self, path: impl AsRef<Path>) -> Option<i64> {
        self.text(path)?.parse().ok()
    }

    /// Whether the path exists.
    pub fn has(&self, path: impl AsRef<Path>) -> bool {
        self.root.join(path).exists()
    }

    /// Returns the last component of a link's target, such as the name of a driver.
    pub fn link(&self, path: impl AsRef<Path>) -> Option<String> {
        let target = fs::read_link(self.root.join(path)).ok()?;
        Some(target.file_name()?.to_string_lossy().into_owned())
    }

    /// Returns the first value of `key` in a file with lines `key: value`.
    pub fn value(&self, path: impl AsRef<Path>, key: &str) -> Option<String> {
        let text = self.text(path)?;
        let mut pairs = text.lines().filter_map(|line| line.split_once(':'));
        pairs
            .find(|(name, _)| name.trim() == key)
            .map(|(_, value)| value.trim().to_owned())
    }
}

/// A simulated machine with given files, for tests.
#[cfg(test)]
pub(super) struct TestSystem {
    pub(super) system: System,
    _folder: tempfile::TempDir,
}

#[cfg(test)]
impl TestSystem {
    /// Creates a machine with these files. Content that starts with `->` is the target of a link.
    pub(super) fn with(files: &[(&str, &str)]) -> TestSystem {
        let folder = tempfile::tempdir().expect("a folder");
        for (path, content) in files {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().expect("in the folder")).expect("a folder");
            match content.strip_prefix("->") {
                Some(target) => std::os::unix::fs::symlink(target, path).expect("a link"),
                None => fs::write(path, content).expect("a file"),
            }
        }
        TestSystem {
            system: System::below(folder.path().to_owned()),
            _folder: folder,
        }
    }
}

/// Returns facts about kernel, CPUs, memory, clock and current load.
pub(super) fn machine_facts(system: &System) -> Vec<Fact> {
    let facts = [
        kernel(system),
        cpus(system),
        governor(system),
        memory(system),
        clock_source(system),
        virtualisation(system),
        load(system),
    ];
    facts.into_iter().flatten().collect()
}

fn known(name: &str, value: impl Into<String>, better: Option<&str>) -> Fact {
    fact(Group::Client, name, value, better.map(str::to_owned))
}

fn kernel(system: &System) -> Option<Fact> {
    let release = system.text("proc/sys/kernel/osrelease")?;
    Some(known(
        "kernel",
        format!("Linux {release}, {}", std::env::consts::ARCH),
        None,
    ))
}

fn cpus(system: &System) -> Option<Fact> {
    let all = system.text("proc/cpuinfo")?;
    let count = all
        .lines()
        .filter(|line| line.starts_with("processor"))
        .count();
    let model = system.value("proc/cpuinfo", "model name");
    let model = model.map_or_else(String::new, |model| format!(", {model}"));
    let usable = std::thread::available_parallelism().map_or(count, usize::from);
    let usable = if usable < count {
        format!(", {usable} of them usable")
    } else {
        String::new()
    };
    Some(known("CPUs", format!("{count}{model}{usable}"), None))
}

/// Returns the governor of the first CPU. The CPUs of a machine have different governors only if configured.
fn governor(system: &System) -> Option<Fact> {
    let governor = system.text("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")?;
    let steady = governor == "performance";
    let better = "performance: with other governors, the clock rate, and so the latency, depends on the load";
    Some(known("CPU governor", governor, (!steady).then_some(better)))
}

fn memory(system: &System) -> Option<Fact> {
    let kib = system.value("proc/meminfo", "MemTotal")?;
    let kib: u64 = kib.strip_suffix(" kB")?.trim().parse().ok()?;
    Some(known(
        "memory",
        format!("{:.1} GiB", kib as f64 / f64::from(1 << 20)),
        None,
    ))
}

fn clock_source(system: &System) -> Option<Fact> {
    let source = system.text("sys/devices/system/clocksource/clocksource0/current_clocksource")?;
    let slow = ["hpet", "acpi_pm", "jiffies", "refined-jiffies", "pit"].contains(&source.as_str());
    let better =
        "tsc, or the hypervisor's clock source: each reading of this one takes a microsecond";
    Some(known("clock source", source, slow.then_some(better)))
}

fn virtualisation(system: &System) -> Option<Fact> {
    let container = ["run/.containerenv", ".dockerenv"]
        .iter()
        .any(|mark| system.has(mark));
    let flags = system.value("proc/cpuinfo", "flags").unwrap_or_default();
    let machine = flags
        .split(' ')
        .any(|flag| flag == "hypervisor")
        .then(|| hypervisor(system));
    let container = container.then(|| "container".to_owned());
    let kinds: Vec<String> = container.into_iter().chain(machine).collect();
    (!kinds.is_empty()).then(|| known("virtualisation", kinds.join(" in a "), None))
}

/// Returns the hypervisor, according to the firmware names, which hypervisors do not hide.
fn hypervisor(system: &System) -> String {
    let name = system.text("sys/hypervisor/type").or_else(|| {
        let vendor = system.text("sys/class/dmi/id/sys_vendor")?;
        let product = system.text("sys/class/dmi/id/product_name");
        Some(product.map_or(vendor.clone(), |product| format!("{vendor} {product}")))
    });
    name.map_or_else(
        || "virtual machine".to_owned(),
        |name| format!("virtual machine ({name})"),
    )
}

fn load(system: &System) -> Option<Fact> {
    let text = system.text("proc/loadavg")?;
    let load: f64 = text.split(' ').next()?.parse().ok()?;
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let busy = load > BUSY_SHARE * cpus as f64;
    let better = "an idle machine: other programs use CPU time, which affects the measurement";
    Some(known(
        "load at the start",
        format!("{load:.2}"),
        busy.then_some(better),
    ))
}

/// The share of the CPUs from which the load average counts as other load. On an idle machine, the load
/// average is a few hundredths, or a few tenths with a shell and monitoring.
const BUSY_SHARE: f64 = 0.5;

#[cfg(test)]
mod tests {
    use super::TestSystem;
    use super::*;

    fn facts_of(files: &[(&str, &str)]) -> Vec<(String, String, bool)> {
        let facts = machine_facts(&TestSystem::with(files).system);
        facts
            .into_iter()
            .map(|fact| (fact.name, fact.value, fact.better.is_some()))
            .collect()
    }

    fn told(name: &str, value: &str, marked: bool) -> (String, String, bool) {
        (name.to_owned(), value.to_owned(), marked)
    }

    #[test]
    fn what_is_not_there_is_left_out() {
        assert_eq!(facts_of(&[]), []);
        assert_eq!(
            facts_of(&[("proc/meminfo", "MemTotal: lots"), ("proc/loadavg", "low")]),
            []
        );
    }

    #[test]
    fn what_makes_latencies_unsteady_is_marked() {
        let clock = "sys/devices/system/clocksource/clocksource0/current_clocksource";
        let governor = "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor";
        assert_eq!(
            facts_of(&[(clock, "tsc\n")]),
            [told("clock source", "tsc", false)]
        );
        assert_eq!(
            facts_of(&[(clock, "hpet\n")]),
            [told("clock source", "hpet", true)]
        );
        assert_eq!(
            facts_of(&[(governor, "powersave\n")]),
            [told("CPU governor", "powersave", true)]
        );
        assert_eq!(
            facts_of(&[("proc/loadavg", "999.00 1 1 1/1 1")]),
            [told("load at the start", "999.00", true)]
        );
    }

    #[test]
    fn a_virtual_machine_is_seen_by_its_cpu_and_named_by_its_firmware() {
        let cpu = (
            "proc/cpuinfo",
            "processor : 0\nmodel name : X\nflags\t\t: fpu hypervisor sse\n",
        );
        let dmi = ("sys/class/dmi/id/sys_vendor", "QEMU\n");
        assert_eq!(
            facts_of(&[cpu, dmi])[1],
            told("virtualisation", "virtual machine (QEMU)", false)
        );
        assert_eq!(
            facts_of(&[cpu, (".dockerenv", "")])[1],
            told("virtualisation", "container in a virtual machine", false)
        );
    }
}
