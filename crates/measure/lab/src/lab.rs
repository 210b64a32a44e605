//! A running lab.

use std::fs::{self, File};
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{fmt, io, thread};

use host::rtnetlink::{InterfaceSettings, Rtnetlink};
use host::tap::{Tap, report_speed};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::conditions::Conditions;
use crate::error::LabError;
use crate::host::Host;
use crate::pipe::{BATCH_NS, Counts, LinkDirection};
use crate::plan::{LinkPlan, Plan, ReadyCheck, default_address};
use crate::wire::Wire;

/// A running lab: hosts and links. They are removed when this value is dropped, or when the process ends.
#[derive(Debug)]
pub struct Lab {
    // This field is before the hosts, so that a link is cut before its interfaces are removed.
    links: Vec<LinkHandle>,
    hosts: Vec<Host>,
}

/// A link of a lab.
#[derive(Debug)]
pub struct LinkHandle {
    name: String,
    /// The names of the connected hosts.
    ends: [String; 2],
    wire: Wire,
    /// For each end, the counters of packets that the kernel drops before the wire reads them.
    devices: [DeviceCounters; 2],
}

/// A direction of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the first end to the second; in [`Plan::pair`], from client to server.
    Forward,
    /// From the second end to the first.
    Back,
    /// Both directions.
    Both,
}

impl Direction {
    fn indices(self) -> std::ops::Range<usize> {
        match self {
            Direction::Forward => 0..1,
            Direction::Back => 1..2,
            Direction::Both => 0..2,
        }
    }
}

impl Lab {
    /// Builds the lab of a plan.
    ///
    /// # Errors
    /// [`LabError::Plan`] if the plan is inconsistent, [`LabError::Missing`] if the machine or the user does
    /// not meet a requirement, and [`LabError::System`] if a system call fails.
    pub fn build(plan: &Plan) -> Result<Lab, LabError> {
        if let Some(mistake) = plan.mistake() {
            return Err(LabError::Plan(mistake));
        }
        let processes = Arc::default();
        let hosts = plan
            .hosts
            .iter()
            .map(|host| Host::build(host, &processes))
            .collect::<Result<_, _>>()?;
        let mut lab = Lab {
            links: Vec::new(),
            hosts,
        };
        for (number, link) in plan.links.iter().enumerate() {
            let built = lab.join(number, link)?;
            lab.links.push(built);
        }
        Ok(lab)
    }

    /// Returns the host with this name.
    ///
    /// # Errors
    /// [`LabError::NoSuch`].
    pub fn host(&self, name: &str) -> Result<&Host, LabError> {
        let found = self.hosts.iter().find(|host| host.plan.name == name);
        found.ok_or_else(|| LabError::NoSuch(name.to_owned()))
    }

    /// Returns all hosts, in the plan's order.
    pub fn hosts(&self) -> &[Host] {
        &self.hosts
    }

    /// Returns the link with this name.
    ///
    /// # Errors
    /// [`LabError::NoSuch`].
    pub fn link(&self, name: &str) -> Result<&LinkHandle, LabError> {
        let found = self.links.iter().find(|link| link.name == name);
        found.ok_or_else(|| LabError::NoSuch(name.to_owned()))
    }

    /// Returns all links, in the plan's order.
    pub fn links(&self) -> &[LinkHandle] {
        &self.links
    }

    fn join(&mut self, number: usize, link: &LinkPlan) -> Result<LinkHandle, LabError> {
        let places = [0, 1].map(|end| self.place(&link.ends[end].host));
        let [first, second] = places;
        let (first, second) = (first?, second?);
        let addresses = [0, 1].map(|end| {
            link.ends[end]
                .address
                .unwrap_or_else(|| default_address(number, end))
        });
        let ethernets = [0, 1].map(|end| ethernet(number, end));
        let mut ends = Vec::with_capacity(2);
        for (end, place) in [first, second].into_iter().enumerate() {
            let other = 1 - end;
            let interface = Interface {
                name: &link.name,
                ethernet: ethernets[end],
                mtu: link.interface_mtu(end),
                segment_frames_max: segment_frames_max(
                    &link.conditions[end],
                    link.interface_mtu(end),
                ),
                megabits: link.ends[end]
                    .reported_megabits
                    .or_else(|| megabits(&link.conditions[end])),
                address: addresses[end],
                neighbour: (addresses[other].0, ethernets[other]),
            };
            ends.push(interface.make(&self.hosts[place])?);
            self.hosts[place]
                .addresses
                .push((link.name.clone(), addresses[end].0));
        }
        let hosts = [0, 1].map(|end| link.ends[end].host.clone());
        let new_direction = |direction: usize| {
            LinkDirection::new(
                &link.conditions[direction],
                link.interface_mtu(1 - direction),
            )
        };
        let [(first_tap, first_counters), (second_tap, second_counters)] = <[_; 2]>::try_from(ends)
            .unwrap_or_else(|_| unreachable!("one was pushed for each end"));
        let wire = Wire::start(
            &link.name,
            [first_tap, second_tap],
            [new_direction(0), new_direction(1)],
        )
        .map_err(LabError::system(format!("start link {}", link.name)))?;
        Ok(LinkHandle {
            name: link.name.clone(),
            ends: hosts,
            wire,
            devices: [first_counters, second_counters],
        })
    }

    fn place(&self, host: &str) -> Result<usize, LabError> {
        let found = self.hosts.iter().position(|built| built.plan.name == host);
        found.ok_or_else(|| LabError::NoSuch(host.to_owned()))
    }
}

/// Formats the counters of both directions, in two lines.
impl fmt::Display for LinkHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [first, second] = self.ends();
        writeln!(
            f,
            "link {}, {first} to {second}: {}",
            self.name,
            self.counts_of(Direction::Forward)
        )?;
        write!(
            f,
            "link {}, {second} to {first}: {}",
            self.name,
            self.counts_of(Direction::Back)
        )
    }
}

impl LinkHandle {
    /// The name of the link.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the names of the connected hosts, in the plan's order.
    pub fn ends(&self) -> [&str; 2] {
        [&self.ends[0], &self.ends[1]]
    }

    /// Changes the conditions for later frames. Frames are counted from 0 again, so that the same seed loses
    /// the frames with the same numbers. The interfaces keep their MTU and reported speed.
    pub fn set(&self, direction: Direction, conditions: &Conditions) -> Result<(), LabError> {
        if let Some(mistake) = conditions.mistake() {
            return Err(LabError::Plan(mistake));
        }
        direction
            .indices()
            .for_each(|index| self.wire.link(index).set(conditions));
        Ok(())
    }

    /// Returns the counters so far, for both directions together.
    pub fn counts(&self) -> Counts {
        self.counts_of(Direction::Both)
    }

    /// Returns the counters so far, for one direction.
    pub fn counts_of(&self, direction: Direction) -> Counts {
        let mut sum = Counts::default();
        for index in direction.indices() {
            sum += &self.wire.link(index).counts;
            sum.failed += self.devices[index].dropped(&self.name).unwrap_or(0);
        }
        sum
    }
}

/// An interface to create.
struct Interface<'a> {
    name: &'a str,
    ethernet: [u8; 6],
    mtu: u32,
    segment_frames_max: u32,
    megabits: Option<u32>,
    address: (IpAddr, u8),
    /// The IP address and the Ethernet address of the peer.
    neighbour: (IpAddr, [u8; 6]),
}

impl Interface<'_> {
    fn make(&self, at: &Host) -> Result<(Tap, DeviceCounters), LabError> {
        let name = self.name;
        at.run(|| {
            let tap = Tap::new(name).map_err(|error| without_taps(name, error))?;
            self.set_up(at)
                .map_err(LabError::system(format!("set up interface {name}")))?;
            let counters = File::open("/proc/thread-self/net/dev").map(DeviceCounters);
            Ok((
                tap,
                counters.map_err(LabError::system("read the counters of interfaces"))?,
            ))
        })?
    }

    fn set_up(&self, at: &Host) -> io::Result<()> {
        let rtnetlink: &Rtnetlink = &at.rtnetlink;
        let index = rtnetlink.index(self.name)?;
        if self.address.0.is_ipv4() {
            // With IPv6, the kernel would send unsolicited frames at random times, which would be counted.
            let quiet = std::fs::write(
                format!("/proc/sys/net/ipv6/conf/{}/disable_ipv6", self.name),
                "1",
            );
            quiet.or_else(|error| {
                if error.kind() == io::ErrorKind::NotFound {
                    Ok(())
                } else {
                    Err(error)
                }
            })?;
        }
        let settings = InterfaceSettings {
            ethernet: Some(self.ethernet),
            mtu: Some(self.mtu),
            queue: Some(QUEUE_PACKETS),
            segment_frames_max: Some(self.segment_frames_max),
        };
        rtnetlink.set_up(index, &settings)?;
        rtnetlink.add_address(index, self.address.0, self.address.1)?;
        rtnetlink.add_neighbour(index, self.neighbour.0, self.neighbour.1)?;
        self.megabits
            .map_or(Ok(()), |megabits| report_speed(self.name, megabits))
    }
}

/// The file `/proc/net/dev` of a host, opened in the host's namespace, so that any thread can read it.
#[derive(Debug)]
struct DeviceCounters(File);

impl DeviceCounters {
    /// Returns the number of packets that the kernel dropped on this interface because they were not read.
    fn dropped(&self, interface: &str) -> Option<u64> {
        let mut text = [0; 4096];
        let bytes = rustix::io::pread(&self.0, &mut text, 0).ok()?;
        let text = std::str::from_utf8(&text[..bytes]).ok()?;
        // The line contains eight receive counters, followed by bytes, packets, errors and drops of the send
        // direction.
        let line = text
            .lines()
            .find_map(|line| line.trim_start().strip_prefix(interface)?.strip_prefix(':'))?;
        line.split_whitespace().nth(11)?.parse().ok()
    }
}

/// The number of packets that can wait while the wire's thread does not run: full-size frames of 250 ms at 1
/// Gbit/s.
const QUEUE_PACKETS: u32 = 20_000;

/// Returns a locally administered Ethernet address (second bit of the first byte).
fn ethernet(link: usize, end: usize) -> [u8; 6] {
    [0x02, 0x6c, 0x61, 0x62, link as u8, end as u8 + 1]
}

/// Returns the maximum number of frames in a segment that the kernel passes in one piece: those that would
/// arrive together over the slowest path. Longer segments would have to be cut.
fn segment_frames_max(conditions: &Conditions, mtu: u32) -> u32 {
    let slowest = conditions
        .paths()
        .iter()
        .filter_map(Conditions::momentary_bits_per_s)
        .reduce(f64::min);
    let frame_bits = f64::from(crate::frame::wire_bytes(mtu)) * 8.0;
    let frames = slowest.map_or(f64::from(SEGMENT_FRAMES_MAX), |rate| {
        rate * (BATCH_NS as f64 / 1e9) / frame_bits
    });
    (frames as u32).clamp(1, SEGMENT_FRAMES_MAX)
}

/// The number of full-size frames in a segment of 64 KiB.
const SEGMENT_FRAMES_MAX: u32 = 44;

/// Returns the reported speed of a link's interface in Mbit/s: the rate of all its lanes combined.
fn megabits(conditions: &Conditions) -> Option<u32> {
    let rates: Option<Vec<f64>> = conditions
        .paths()
        .iter()
        .map(|path| path.bits_per_s)
        .collect();
    rates.map(|rates| (rates.iter().sum::<f64>() / 1e6).max(1.0) as u32)
}

fn without_taps(name: &str, error: io::Error) -> LabError {
    match error.kind() {
        io::ErrorKind::NotFound => LabError::Missing(
            "a lab requires /dev/net/tun; load the kernel module tun, or pass the device to the container"
                .to_owned(),
        ),
        io::ErrorKind::PermissionDenied => LabError::Missing(
            "a lab requires permission to open /dev/net/tun and to create interfaces \
             (CAP_NET_ADMIN)"
                .to_owned(),
        ),
        _ => LabError::System { doing: format!("make interface {name}"), error },
    }
}

/// Running programs. Dropping this ends them in reverse order, one after the other, so that a program can still
/// reach those that were started before it, such as a gateway its servers. A program that does not end in time
/// is killed.
pub struct Background(Vec<Program>);

/// The use of the standard output of a plan's programs. Their errors are always shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// It is printed on standard error.
    Shown,
    /// It is not printed.
    Discarded,
}

struct Program {
    child: Child,
    /// A descriptor of the process. Unlike a process number, it is not reused after the process has ended.
    descriptor: OwnedFd,
}

impl Background {
    /// Starts all programs, one after the other. Each starts when the previous one is ready.
    ///
    /// # Errors
    /// A program cannot be run, or ends before it is ready, or is not ready in time.
    pub fn start(lab: &Lab, output: Output) -> Result<Background, LabError> {
        let mut background = Background(Vec::new());
        for host in lab.hosts() {
            if let [program, arguments @ ..] = &host.plan().run[..] {
                let started = spawn(host, program, arguments, output)
                    .map_err(|error| cannot_run(host, program, &error))?;
                background.0.push(started);
                let started = background.0.last_mut();
                started.map_or(Ok(()), |started| {
                    wait_until_ready(host, program, &mut started.child)
                })?;
            }
        }
        Ok(background)
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        for program in self.0.iter_mut().rev() {
            // This fails only if the process has already ended.
            let _ = pidfd_send_signal(&program.descriptor, Signal::TERM);
            wait_until(&mut program.child, Instant::now() + ENDING_MAX);
        }
    }
}

fn spawn(host: &Host, program: &str, arguments: &[String], output: Output) -> io::Result<Program> {
    let mut child = host.start(program, |command| {
        // Standard output belongs to the command. The program gets a separate process group, since an
        // interrupt from the keyboard is meant for the command.
        command
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(match output {
                Output::Shown => Stdio::from(io::stderr()),
                Output::Discarded => Stdio::null(),
            })
            .process_group(0);
    })?;
    match pidfd_open(Pid::from_child(&child), PidfdFlags::empty()) {
        Ok(descriptor) => Ok(Program { child, descriptor }),
        Err(error) => {
            child.kill().and_then(|()| child.wait())?;
            Err(error.into())
        }
    }
}

/// Returns the error for a program that cannot be started.
fn cannot_run(host: &Host, program: &str, error: &io::Error) -> LabError {
    LabError::Missing(format!("cannot run {program} in {}: {error}", host.name()))
}

fn wait_until_ready(host: &Host, program: &str, child: &mut Child) -> Result<(), LabError> {
    let Some(ready) = &host.plan().ready else {
        return Ok(());
    };
    let (name, within) = (host.name(), host.plan().ready_within);
    let until = Instant::now() + within;
    loop {
        let why_not = match ready {
            ReadyCheck::Port(port) if listens(host, *port)? => return Ok(()),
            ReadyCheck::Port(port) => {
                format!("{program} in {name} is not listening on port {port}")
            }
            ReadyCheck::Command(words) => match succeeds(host, words, until)? {
                None => return Ok(()),
                Some(why_not) => format!("{program} in {name} is not ready: {why_not}"),
            },
        };
        if let Some(status) = child
            .try_wait()
            .map_err(LabError::system(format!("wait for {program}")))?
        {
            let sentence = format!("{program} in {name} exited before it was ready: {status}");
            return Err(LabError::NotReady(sentence));
        }
        if Instant::now() > until {
            return Err(LabError::NotReady(format!(
                "{why_not} after {} s",
                within.as_secs_f64()
            )));
        }
        thread::sleep(match ready {
            ReadyCheck::Port(_) => LOOK_EVERY,
            ReadyCheck::Command(_) => RUN_EVERY,
        });
    }
}

/// Runs a command once, without output and until the given time. If it fails, returns the reason.
fn succeeds(host: &Host, words: &[String], until: Instant) -> Result<Option<String>, LabError> {
    let [program, arguments @ ..] = words else {
        return Ok(None);
    };
    let quiet = |command: &mut Command| {
        command
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        command.process_group(0);
    };
    let mut child = host
        .start(program, quiet)
        .map_err(|error| cannot_run(host, program, &error))?;
    Ok(match wait_until(&mut child, until) {
        Some(status) if status.success() => None,
        Some(status) => Some(format!("{} fails ({status})", words.join(" "))),
        None => Some(format!("{} has not exited", words.join(" "))),
    })
}

/// Waits for the end of a child process until the given time, and then kills it.
fn wait_until(child: &mut Child, until: Instant) -> Option<ExitStatus> {
    let mut ended = child.try_wait().ok().flatten();
    while ended.is_none() && Instant::now() < until {
        thread::sleep(LOOK_EVERY);
        ended = child.try_wait().ok().flatten();
    }
    if ended.is_none() {
        let _ = child.kill();
        let _ = child.wait();
    }
    ended
}

/// Whether a process in the host listens on this port. The kernel's lists are used, because a connection
/// would have side effects.
fn listens(host: &Host, port: u16) -> Result<bool, LabError> {
    let lists =
        || ["tcp", "tcp6"].map(|list| fs::read_to_string(format!("/proc/thread-self/net/{list}")));
    let lists = host.run(lists)?;
    Ok(lists
        .into_iter()
        .flatten()
        .any(|list| list.lines().any(|line| is_listener(line, port))))
}

/// Whether a line of `/proc/net/tcp` is a listening socket on this port. A line contains the number, the
/// local address and port in hexadecimal, the peer's address and port, and the state.
fn is_listener(line: &str, port: u16) -> bool {
    let mut words = line.split_whitespace();
    let local = words.nth(1).and_then(|local| local.rsplit_once(':'));
    let same = local.is_some_and(|(_, digits)| u16::from_str_radix(digits, 16) == Ok(port));
    same && words.nth(1) == Some(LISTEN)
}

/// The state TCP_LISTEN (linux/tcp_states.h).
const LISTEN: &str = "0A";
/// The time after which a program that was asked to end is killed.
const ENDING_MAX: Duration = Duration::from_secs(5);
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// The interval between checks that run a command. Starting a process costs more than reading a file.
const RUN_EVERY: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::HostPlan;

    #[test]
    fn a_segment_lasts_a_quarter_of_a_millisecond_and_is_at_least_a_frame() {
        let frames = |bits_per_s: f64, mtu| {
            let conditions = Conditions {
                bits_per_s: Some(bits_per_s),
                ..Conditions::default()
            };
            segment_frames_max(&conditions, mtu)
        };
        assert_eq!(
            [10e6, 100e6, 160e6, 1e9, 10e9].map(|rate| frames(rate, 1500)),
            [1, 2, 3, 20, 44]
        );
        assert_eq!(frames(1e9, 9000), 3);
    }

    #[test]
    fn a_plan_that_contradicts_itself_is_refused_before_anything_is_made() {
        let plan = Plan {
            hosts: vec![HostPlan::new("a"), HostPlan::new("a")],
            links: Vec::new(),
        };
        assert!(matches!(Lab::build(&plan), Err(LabError::Plan(_))));
    }

    #[test]
    fn a_listener_is_known_by_its_port_and_state() {
        let line = |state: &str| {
            format!("   0: 0100007F:0CBC 00000000:0000 {state} 00000000:00000000 00:00000000")
        };
        assert!(is_listener(&line("0A"), 3260));
        assert!(!is_listener(&line("01"), 3260), "connected");
        assert!(!is_listener(&line("0A"), 3261));
        assert!(!is_listener("  sl  local_address rem_address   st", 3260));
    }
}
