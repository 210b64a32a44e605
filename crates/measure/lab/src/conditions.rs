//! Conditions of a link in one direction: rate, delay, loss, reordering, MTU, buffer; and TCP's congestion control in hosts.

use std::fs;
use std::time::Duration;

use crate::error::LabError;

/// The effects of a link on the frames in one direction: a queue that overflows, a transmitter with a rate,
/// and a path with delay and loss.
#[derive(Clone, Debug, PartialEq)]
pub struct Conditions {
    /// Bits a second of the link, unlimited if `None`. An Ethernet frame counts with all its overhead (38
    /// bytes in addition to the IP packet, 84 bytes or more in total).
    pub bits_per_s: Option<f64>,
    /// The one-way delay of a frame after its last bit was sent.
    pub delay: Duration,
    /// The maximum additional delay, uniformly distributed. It does not reorder frames.
    pub jitter: Duration,
    /// The share of frames lost in transit, after they were sent: 0 to 1.
    pub loss: f64,
    /// The share of frames that the next eight overtake: 0 to 1.
    pub reorder: f64,
    /// The longest IP packet, in bytes. Longer ones are dropped silently.
    pub mtu: u32,
    /// The maximum of bytes waiting for the transmitter, on the wire's scale. Further frames are lost.
    pub buffer_bytes: u64,
    /// Together with the frames' numbers, it determines the frames that are lost, overtaken or delayed.
    pub seed: u64,
    /// Several paths instead of one, as a bundle of links. The addresses and ports of a flow select its path,
    /// the same in both directions. Each path has separate values of all the above, and no lanes. Empty: one
    /// path with the conditions here.
    pub lanes: Vec<Conditions>,
    /// The assignment of flows to the lanes.
    pub spread: Spread,
}

/// Ways to distribute flows over the lanes of a bundle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Spread {
    /// By a hash of addresses and ports, like switches: two flows may share one lane, and leave another
    /// empty.
    #[default]
    ByHash,
    /// Round-robin in the order of appearance, so that several connections use several lanes.
    InTurn,
}

impl Default for Conditions {
    /// A perfect link of unlimited rate for packets of 1500 bytes.
    fn default() -> Conditions {
        Conditions {
            bits_per_s: None,
            delay: Duration::ZERO,
            jitter: Duration::ZERO,
            loss: 0.0,
            reorder: 0.0,
            mtu: 1500,
            buffer_bytes: Conditions::BUFFER_BYTES,
            seed: 0,
            lanes: Vec::new(),
            spread: Spread::ByHash,
        }
    }
}

impl Conditions {
    /// The default buffer, 16 MiB: a window of 10 MiB, or 32 commands of 256 KiB, wait here without loss. If
    /// the sender's network card were the bottleneck, they would wait in its socket.
    pub const BUFFER_BYTES: u64 = 16 << 20;

    /// The paths: the lanes, or this single one.
    pub(crate) fn paths(&self) -> &[Conditions] {
        if self.lanes.is_empty() { std::slice::from_ref(self) } else { &self.lanes }
    }

    /// The MTU of the path with the largest one.
    pub(crate) fn mtu_max(&self) -> u32 {
        self.paths().iter().map(|path| path.mtu).max().unwrap_or(self.mtu)
    }

    /// The error in a value, if any.
    pub(crate) fn mistake(&self) -> Option<String> {
        let share = |name: &str, value: f64| {
            (!(0.0..=1.0).contains(&value)).then(|| format!("{name} is {value}, but must be 0 to 1"))
        };
        let rate = self.bits_per_s.filter(|rate| !(MIN_BITS_PER_S..=MAX_BITS_PER_S).contains(rate));
        rate.map(|rate| format!("the rate is {rate} bit/s, but must be 1 kbit/s to 1 Tbit/s"))
            .or_else(|| share("loss", self.loss))
            .or_else(|| share("reorder", self.reorder))
            .or_else(|| (self.delay > DELAY_MAX).then(|| "the maximum delay is 10 s".to_owned()))
            .or_else(|| (self.jitter > DELAY_MAX).then(|| "the maximum jitter is 10 s".to_owned()))
            .or_else(|| self.lanes.iter().find_map(Conditions::mistake))
    }
}

const MIN_BITS_PER_S: f64 = 1e3;
const MAX_BITS_PER_S: f64 = 1e12;
/// Limits the memory of frames in transit.
const DELAY_MAX: Duration = Duration::from_secs(10);

// Congestion controls that hosts may use.
//
// A namespace is limited to the algorithms in tcp_allowed_congestion_control, which may not contain `cubic`
// if the kernel has another default. The list belongs to the machine, not to a namespace: adding a name to it
// is the only change that a lab makes outside itself. It allows unprivileged programs to select that
// algorithm for their sockets, until the machine restarts.

/// Allows hosts to use this algorithm.
///
/// # Errors
/// [`LabError::Missing`] if the kernel does not have it, [`LabError::System`] if it cannot be allowed.
pub(crate) fn allow(name: &str) -> Result<(), LabError> {
    let read = |path| fs::read_to_string(path).map_err(LabError::system(format!("read {path}")));
    let has = |list: &str| list.split_whitespace().any(|other| other == name);
    let allowed = read(ALLOWED)?;
    if has(&allowed) {
        return Ok(());
    }
    let available = read(AVAILABLE)?;
    if !has(&available) {
        let available = available.trim();
        return Err(LabError::Missing(format!(
            "the kernel does not have the congestion control {name}, only {available}; try modprobe \
             tcp_{name}"
        )));
    }
    let more = format!("{} {name}", allowed.trim());
    fs::write(ALLOWED, more)
        .map_err(LabError::system(format!("allow the congestion control {name} to hosts")))
}

const ALLOWED: &str = "/proc/sys/net/ipv4/tcp_allowed_congestion_control";
const AVAILABLE: &str = "/proc/sys/net/ipv4/tcp_available_congestion_control";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_link_can_be_is_said() {
        let lossy = Conditions { loss: 1.5, ..Conditions::default() };
        assert_eq!(lossy.mistake().as_deref(), Some("loss is 1.5, but must be 0 to 1"));
        let still = Conditions { bits_per_s: Some(f64::NAN), ..Conditions::default() };
        assert!(still.mistake().is_some_and(|what| what.starts_with("the rate is")));
        let bundle = Conditions { lanes: vec![Conditions::default(), lossy], ..Conditions::default() };
        assert!(bundle.mistake().is_some());
        assert_eq!(Conditions::default().mistake(), None);
    }

    #[test]
    fn one_that_the_kernel_lacks_is_missing() {
        let refused = allow("carrier-pigeon").expect_err("not there").to_string();
        assert!(
            refused.starts_with("the kernel does not have the congestion control carrier-pigeon, only "),
            "{refused}"
        );
    }

    #[test]
    fn one_that_is_allowed_needs_nothing() {
        assert!(allow("reno").is_ok(), "Linux always allows reno");
    }
}
