//! The conditions of a link in one direction: rate, delay, loss, reordering, MTU and buffer. Also TCP's
//! congestion control in hosts.

use std::fs;
use std::time::Duration;

use crate::error::LabError;

/// The effects of a link on frames in one direction. The link consists of a queue that can overflow, a
/// transmitter with a rate, and a path with delay and loss.
#[derive(Clone, Debug, PartialEq)]
pub struct Conditions {
    /// The rate of the link in bits per second; `None` means unlimited. An Ethernet frame counts with all its
    /// overhead (38 bytes in addition to the IP packet, at least 84 bytes in total).
    pub bits_per_s: Option<f64>,
    /// The number of bytes that a transmitter that was idle sends at the peak rate, before it is limited to
    /// its rate: the size of a token bucket. 0 means that frames are always sent at the rate.
    pub burst_bytes: u64,
    /// The rate of a burst in bits per second; `None` means unlimited.
    pub peak_bits_per_s: Option<f64>,
    /// The one-way delay of a frame, from the time when its last bit has been sent.
    pub delay: Duration,
    /// The maximum additional delay, which is uniformly distributed. It does not reorder frames.
    pub jitter: Duration,
    /// The share of frames that are lost in transit after they were sent, from 0 to 1.
    pub loss: f64,
    /// The share of frames that the next eight frames overtake, from 0 to 1.
    pub reorder: f64,
    /// The length of the longest IP packet, in bytes. Longer packets are silently dropped.
    pub mtu: u32,
    /// The maximum number of bytes that wait for the transmitter, including overhead. Further frames are
    /// lost.
    pub buffer_bytes: u64,
    /// The seed. Together with a frame's number, it determines whether the frame is lost, overtaken or
    /// delayed.
    pub seed: u64,
    /// The lanes of a bundle of links: several paths instead of one. The addresses and ports of a flow select
    /// its lane, which is the same in both directions. Each lane has its own values of all the fields above,
    /// and no lanes itself. If empty, there is one path with the conditions in this value.
    pub lanes: Vec<Conditions>,
    /// How flows are assigned to the lanes.
    pub spread: Spread,
}

/// How flows are distributed over the lanes of a bundle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Spread {
    /// By a hash of addresses and ports, as in switches. Two flows may share one lane while another lane is
    /// empty.
    #[default]
    ByHash,
    /// Round-robin, in the order in which flows appear, so that several connections use several lanes.
    InTurn,
}

impl Default for Conditions {
    /// Creates a perfect link with an unlimited rate, for packets of 1500 bytes.
    fn default() -> Conditions {
        Conditions {
            bits_per_s: None,
            burst_bytes: 0,
            peak_bits_per_s: None,
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
    /// The default buffer. A window of 10 MiB, or 32 commands of 256 KiB, can wait in it without loss. If the
    /// sender's network card were the bottleneck, this data would wait in its socket.
    pub const BUFFER_BYTES: u64 = 16 << 20;

    /// Returns the paths: the lanes or, without lanes, these conditions themselves.
    pub(crate) fn paths(&self) -> &[Conditions] {
        if self.lanes.is_empty() {
            std::slice::from_ref(self)
        } else {
            &self.lanes
        }
    }

    /// Returns the rate at which the frames of one segment follow each other, in bits per second.
    pub(crate) fn momentary_bits_per_s(&self) -> Option<f64> {
        if self.burst_bytes > 0 {
            self.peak_bits_per_s
        } else {
            self.bits_per_s
        }
    }

    /// Returns the largest MTU of all paths.
    pub(crate) fn mtu_max(&self) -> u32 {
        self.paths()
            .iter()
            .map(|path| path.mtu)
            .max()
            .unwrap_or(self.mtu)
    }

    /// Returns the error in a value, if there is one.
    pub(crate) fn mistake(&self) -> Option<String> {
        let share = |name: &str, value: f64| {
            (!(0.0..=1.0).contains(&value))
                .then(|| format!("{name} is {value}, but must be 0 to 1"))
        };
        let rates = [self.bits_per_s, self.peak_bits_per_s];
        let mut rates = rates.into_iter().flatten();
        let wrong = rates.find(|rate| !(MIN_BITS_PER_S..=MAX_BITS_PER_S).contains(rate));
        let pointless = self.burst_bytes > 0 && self.bits_per_s.is_none();
        wrong
            .map(|rate| format!("the rate is {rate} bit/s, but must be 1 kbit/s to 1 Tbit/s"))
            .or_else(|| pointless.then(|| "a burst requires a rate".to_owned()))
            .or_else(|| share("loss", self.loss))
            .or_else(|| share("reorder", self.reorder))
            .or_else(|| (self.delay > DELAY_MAX).then(|| "the maximum delay is 10 s".to_owned()))
            .or_else(|| (self.jitter > DELAY_MAX).then(|| "the maximum jitter is 10 s".to_owned()))
            .or_else(|| self.lanes.iter().find_map(Conditions::mistake))
    }
}

const MIN_BITS_PER_S: f64 = 1e3;
const MAX_BITS_PER_S: f64 = 1e12;
/// The maximum delay, which limits the memory of frames in transit.
const DELAY_MAX: Duration = Duration::from_secs(10);

// The congestion control algorithms that hosts may use.
//
// A namespace may use only the algorithms in tcp_allowed_congestion_control, which may not contain `cubic` if
// the kernel has another default. The list belongs to the machine and not to a namespace. Adding a name to it
// is the only change that a lab makes outside itself. Until the machine restarts, unprivileged programs can
// then also select that algorithm for their sockets.

/// Allows hosts to use this algorithm.
///
/// # Errors
/// [`LabError::Missing`] if the kernel does not have the algorithm, and [`LabError::System`] if the algorithm
/// cannot be allowed.
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
    fs::write(ALLOWED, more).map_err(LabError::system(format!(
        "allow the congestion control {name} to hosts"
    )))
}

const ALLOWED: &str = "/proc/sys/net/ipv4/tcp_allowed_congestion_control";
const AVAILABLE: &str = "/proc/sys/net/ipv4/tcp_available_congestion_control";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_link_can_be_is_said() {
        let lossy = Conditions {
            loss: 1.5,
            ..Conditions::default()
        };
        assert_eq!(
            lossy.mistake().as_deref(),
            Some("loss is 1.5, but must be 0 to 1")
        );
        let still = Conditions {
            bits_per_s: Some(f64::NAN),
            ..Conditions::default()
        };
        assert!(
            still
                .mistake()
                .is_some_and(|what| what.starts_with("the rate is"))
        );
        let bundle = Conditions {
            lanes: vec![Conditions::default(), lossy],
            ..Conditions::default()
        };
        assert!(bundle.mistake().is_some());
        assert_eq!(Conditions::default().mistake(), None);
    }

    #[test]
    fn one_that_the_kernel_lacks_is_missing() {
        let refused = allow("carrier-pigeon").expect_err("not there").to_string();
        assert!(
            refused.starts_with(
                "the kernel does not have the congestion control carrier-pigeon, only "
            ),
            "{refused}"
        );
    }

    #[test]
    fn one_that_is_allowed_needs_nothing() {
        assert!(allow("reno").is_ok(), "Linux always allows reno");
    }
}
