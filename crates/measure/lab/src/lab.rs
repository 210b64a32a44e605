//! A lab that is running.

use std::fmt;
use std::fs::File;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use host::rtnetlink::{InterfaceSettings, Rtnetlink};
use host::tap::{Tap, report_speed};

use crate::conditions::Conditions;
use crate::counts::Counts;
use crate::error::LabError;
use crate::host::Host;
use crate::link_direction::{BATCH_NS, LinkDirection};
use crate::plan::{LinkPlan, Plan, default_address};
use crate::wire::Wire;

/// Hosts and links. Dropped, or when the process ends, everything is gone.
#[derive(Debug)]
pub struct Lab {
    // Before the hosts: a link is cut before its interfaces go.
    links: Vec<LinkHandle>,
    hosts: Vec<Host>,
}

/// A link of a lab.
#[derive(Debug)]
pub struct LinkHandle {
    name: String,
    /// The hosts that it joins.
    ends: [String; 2],
    wire: Wire,
    /// What the kernel drops in front of the wire, for either end.
    devices: [DeviceCounters; 2],
}

/// Which way along a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the first end to the second: in [`Plan::pair`] from client to server.
    Forward,
    /// From the second end to the first.
    Back,
    /// Both.
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
    /// Builds the plan.
    ///
    /// # Errors
    /// [`LabError::Plan`] if it contradicts itself, [`LabError::Missing`] if the machine or the user lacks
    /// what a lab needs, [`LabError::System`] for what the kernel refuses.
    pub fn build(plan: &Plan) -> Result<Lab, LabError> {
        if let Some(mistake) = plan.mistake() {
            return Err(LabError::Plan(mistake));
        }
        let processes = Arc::default();
        let hosts = plan.hosts.iter().map(|host| Host::build(host, &processes)).collect::<Result<_, _>>()?;
        let mut lab = Lab { links: Vec::new(), hosts };
        for (number, link) in plan.links.iter().enumerate() {
            let built = lab.join(number, link)?;
            lab.links.push(built);
        }
        Ok(lab)
    }

    /// The host with this name.
    ///
    /// # Errors
    /// [`LabError::NoSuch`].
    pub fn host(&self, name: &str) -> Result<&Host, LabError> {
        let found = self.hosts.iter().find(|host| host.plan.name == name);
        found.ok_or_else(|| LabError::NoSuch(name.to_owned()))
    }

    /// All hosts, in the plan's order.
    pub fn hosts(&self) -> &[Host] {
        &self.hosts
    }

    /// The link with this name.
    ///
    /// # Errors
    /// [`LabError::NoSuch`].
    pub fn link(&self, name: &str) -> Result<&LinkHandle, LabError> {
        let found = self.links.iter().find(|link| link.name == name);
        found.ok_or_else(|| LabError::NoSuch(name.to_owned()))
    }

    /// All links, in the plan's order.
    pub fn links(&self) -> &[LinkHandle] {
        &self.links
    }

    fn join(&mut self, number: usize, link: &LinkPlan) -> Result<LinkHandle, LabError> {
        let places = [0, 1].map(|end| self.place(&link.ends[end].host));
        let [first, second] = places;
        let (first, second) = (first?, second?);
        let addresses =
            [0, 1].map(|end| link.ends[end].address.unwrap_or_else(|| default_address(number, end)));
        let ethernets = [0, 1].map(|end| ethernet(number, end));
        let mut ends = Vec::with_capacity(2);
        for (end, place) in [first, second].into_iter().enumerate() {
            let other = 1 - end;
            let interface = Interface {
                name: &link.name,
                ethernet: ethernets[end],
                mtu: link.interface_mtu(end),
                segment_frames_max: segment_frames_max(&link.conditions[end], link.interface_mtu(end)),
                megabits: link.ends[end].reported_megabits.or_else(|| megabits(&link.conditions[end])),
                address: addresses[end],
                neighbour: (addresses[other].0, ethernets[other]),
            };
            ends.push(interface.make(&self.hosts[place])?);
            self.hosts[place].addresses.push((link.name.clone(), addresses[end].0));
        }
        let hosts = [0, 1].map(|end| link.ends[end].host.clone());
        let new_direction = |direction: usize| {
            LinkDirection::new(&link.conditions[direction], link.interface_mtu(1 - direction))
        };
        let [(first_tap, first_counters), (second_tap, second_counters)] =
            <[_; 2]>::try_from(ends).unwrap_or_else(|_| unreachable!("one was pushed for each end"));
        let wire = Wire::start(&link.name, [first_tap, second_tap], [new_direction(0), new_direction(1)])
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

/// What it did in either direction, in two lines.
impl fmt::Display for LinkHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [first, second] = self.ends();
        writeln!(f, "link {}, {first} to {second}: {}", self.name, self.counts_of(Direction::Forward))?;
        write!(f, "link {}, {second} to {first}: {}", self.name, self.counts_of(Direction::Back))
    }
}

impl LinkHandle {
    /// What it is called.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The names of the hosts that it joins, in the plan's order.
    pub fn ends(&self) -> [&str; 2] {
        [&self.ends[0], &self.ends[1]]
    }

    /// Changes what the link does to frames that come from now on; frames are counted from 0 again, so that
    /// the same seed loses the same ones. Interfaces stay as they are: their MTU, and the speed that they
    /// report.
    pub fn set(&self, direction: Direction, conditions: &Conditions) -> Result<(), LabError> {
        if let Some(mistake) = conditions.mistake() {
            return Err(LabError::Plan(mistake));
        }
        direction.indices().for_each(|index| self.wire.link(index).set(conditions));
        Ok(())
    }

    /// What it has done so far, in both directions.
    pub fn counts(&self) -> Counts {
        self.counts_of(Direction::Both)
    }

    /// What it has done so far in one direction.
    pub fn counts_of(&self, direction: Direction) -> Counts {
        let mut sum = Counts::default();
        for index in direction.indices() {
            sum += &self.wire.link(index).counts;
            sum.failed += self.devices[index].dropped(&self.name).unwrap_or(0);
        }
        sum
    }
}

/// An interface to be made.
struct Interface<'a> {
    name: &'a str,
    ethernet: [u8; 6],
    mtu: u32,
    segment_frames_max: u32,
    megabits: Option<u32>,
    address: (IpAddr, u8),
    /// Address and Ethernet address of the peer.
    neighbour: (IpAddr, [u8; 6]),
}

impl Interface<'_> {
    fn make(&self, at: &Host) -> Result<(Tap, DeviceCounters), LabError> {
        let name = self.name;
        at.run(|| {
            let tap = Tap::new(name).map_err(|error| without_taps(name, error))?;
            self.set_up(at).map_err(LabError::system(format!("set up interface {name}")))?;
            let counters = File::open("/proc/thread-self/net/dev").map(DeviceCounters);
            Ok((tap, counters.map_err(LabError::system("read the counters of interfaces"))?))
        })?
    }

    fn set_up(&self, at: &Host) -> io::Result<()> {
        let rtnetlink: &Rtnetlink = &at.rtnetlink;
        let index = rtnetlink.index(self.name)?;
        if self.address.0.is_ipv4() {
            // Else the kernel would send frames by itself at times of its own, and be among those that are
            // counted.
            let quiet = std::fs::write(format!("/proc/sys/net/ipv6/conf/{}/disable_ipv6", self.name), "1");
            quiet
                .or_else(|error| if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) })?;
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
        self.megabits.map_or(Ok(()), |megabits| report_speed(self.name, megabits))
    }
}

/// `/proc/net/dev` of a host, opened there, from where it can be read by any thread.
#[derive(Debug)]
struct DeviceCounters(File);

impl DeviceCounters {
    /// Packets that the kernel dropped instead of sending them on this interface, since they were not read.
    fn dropped(&self, interface: &str) -> Option<u64> {
        let mut text = [0; 4096];
        let bytes = rustix::io::pread(&self.0, &mut text, 0).ok()?;
        let text = std::str::from_utf8(&text[..bytes]).ok()?;
        // Eight counters of what was received, then bytes, packets, errors and drops of what was sent.
        let line =
            text.lines().find_map(|line| line.trim_start().strip_prefix(interface)?.strip_prefix(':'))?;
        line.split_whitespace().nth(11)?.parse().ok()
    }
}

/// How many packets wait for the wire's thread, should it be kept from running: 250 ms of full frames at 1
/// Gbit/s.
const QUEUE_PACKETS: u32 = 20_000;

/// Locally administered Ethernet addresses (second bit of the first byte).
fn ethernet(link: usize, end: usize) -> [u8; 6] {
    [0x02, 0x6c, 0x61, 0x62, link as u8, end as u8 + 1]
}

/// Of how many frames a segment may consist that the kernel hands over in one piece: as many as would arrive
/// together by the slowest path. Longer ones would have to be cut.
fn segment_frames_max(conditions: &Conditions, mtu: u32) -> u32 {
    let slowest = conditions.paths().iter().filter_map(|path| path.bits_per_s).reduce(f64::min);
    let frame_bits = f64::from(crate::frame::wire_bytes(mtu)) * 8.0;
    let frames =
        slowest.map_or(f64::from(SEGMENT_FRAMES_MAX), |rate| rate * (BATCH_NS as f64 / 1e9) / frame_bits);
    (frames as u32).clamp(1, SEGMENT_FRAMES_MAX)
}

/// What 64 KiB hold of full frames.
const SEGMENT_FRAMES_MAX: u32 = 44;

/// The reported speed of a link's interface: the rate of all its lanes.
fn megabits(conditions: &Conditions) -> Option<u32> {
    let rates: Option<Vec<f64>> = conditions.paths().iter().map(|path| path.bits_per_s).collect();
    rates.map(|rates| (rates.iter().sum::<f64>() / 1e6).max(1.0) as u32)
}

fn without_taps(name: &str, error: io::Error) -> LabError {
    match error.kind() {
        io::ErrorKind::NotFound => LabError::Missing(
            "a lab needs /dev/net/tun; load the kernel's module tun, or give the container that device"
                .to_owned(),
        ),
        io::ErrorKind::PermissionDenied => LabError::Missing(
            "a lab needs the right to open /dev/net/tun and to make interfaces (CAP_NET_ADMIN)".to_owned(),
        ),
        _ => LabError::System { doing: format!("make interface {name}"), error },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::HostPlan;

    #[test]
    fn a_segment_lasts_a_quarter_of_a_millisecond_and_is_at_least_a_frame() {
        let frames = |bits_per_s: f64, mtu| {
            let conditions = Conditions { bits_per_s: Some(bits_per_s), ..Conditions::default() };
            segment_frames_max(&conditions, mtu)
        };
        assert_eq!([10e6, 100e6, 160e6, 1e9, 10e9].map(|rate| frames(rate, 1500)), [1, 2, 3, 20, 44]);
        assert_eq!(frames(1e9, 9000), 3);
    }

    #[test]
    fn a_plan_that_contradicts_itself_is_refused_before_anything_is_made() {
        let plan = Plan { hosts: vec![HostPlan::new("a"), HostPlan::new("a")], links: Vec::new() };
        assert!(matches!(Lab::build(&plan), Err(LabError::Plan(_))));
    }
}
