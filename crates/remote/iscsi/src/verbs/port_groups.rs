//! REPORT TARGET PORT GROUPS (SPC-4 6.37): by which ports a logical unit is reached best (ALUA).

use std::fmt;

use scsi::cdb;

use super::VerbError;
use super::fields::{elements, u8_at, u16_at, u32_at};
use crate::unit::Unit;

/// A group of target ports that share an access state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortGroup {
    /// TARGET PORT GROUP.
    pub group: u16,
    /// PREF: the one to prefer.
    pub preferred: bool,
    /// ASYMMETRIC ACCESS STATE.
    pub state: AccessState,
    /// The states that the group can have.
    pub supported: Vec<AccessState>,
    /// STATUS CODE: why the state last changed: 1 by command, 2 of its own accord.
    pub status: u8,
    /// RELATIVE TARGET PORT IDENTIFIERS.
    pub ports: Vec<u16>,
}

/// How well a logical unit is reached by a port (SPC-4 5.16.2.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessState {
    /// 0h: with full performance.
    ActiveOptimized,
    /// 1h: with less.
    ActiveNonOptimized,
    /// 2h: only commands that ask, until it takes over.
    Standby,
    /// 3h: hardly any command.
    Unavailable,
    /// 4h: some blocks here, some there.
    LbaDependent,
    /// Eh: the port is not accessible.
    Offline,
    /// Fh: on its way to another state.
    Transitioning,
    /// Any other.
    Reserved(u8),
}

impl AccessState {
    fn new(code: u8) -> AccessState {
        match code & 0x0f {
            0x0 => AccessState::ActiveOptimized,
            0x1 => AccessState::ActiveNonOptimized,
            0x2 => AccessState::Standby,
            0x3 => AccessState::Unavailable,
            0x4 => AccessState::LbaDependent,
            0xe => AccessState::Offline,
            0xf => AccessState::Transitioning,
            other => AccessState::Reserved(other),
        }
    }

    /// From T_SUP, O_SUP, LBD_SUP, U_SUP, S_SUP, AN_SUP and AO_SUP.
    fn supported(flags: u8) -> Vec<AccessState> {
        let by_bit = [
            (0x01, AccessState::ActiveOptimized),
            (0x02, AccessState::ActiveNonOptimized),
            (0x04, AccessState::Standby),
            (0x08, AccessState::Unavailable),
            (0x10, AccessState::LbaDependent),
            (0x40, AccessState::Offline),
            (0x80, AccessState::Transitioning),
        ];
        by_bit.into_iter().filter(|(bit, _)| flags & bit != 0).map(|(_, state)| state).collect()
    }
}

impl fmt::Display for AccessState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AccessState::ActiveOptimized => write!(f, "active/optimized"),
            AccessState::ActiveNonOptimized => write!(f, "active/non-optimized"),
            AccessState::Standby => write!(f, "standby"),
            AccessState::Unavailable => write!(f, "unavailable"),
            AccessState::LbaDependent => write!(f, "logical block dependent"),
            AccessState::Offline => write!(f, "offline"),
            AccessState::Transitioning => write!(f, "transitioning"),
            AccessState::Reserved(code) => write!(f, "reserved state {code:x}h"),
        }
    }
}

impl fmt::Display for PortGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "group {}: {}", self.group, self.state)?;
        f.write_str(if self.preferred { ", preferred" } else { "" })?;
        let ports: Vec<String> = self.ports.iter().map(u16::to_string).collect();
        write!(f, ", ports {}", ports.join(", "))
    }
}

impl PortGroup {
    fn length(bytes: &[u8]) -> Option<usize> {
        Some(8 + 4 * usize::from(*bytes.get(7)?))
    }

    fn parse(bytes: &[u8]) -> PortGroup {
        PortGroup {
            group: u16_at(bytes, 2),
            preferred: u8_at(bytes, 0) & 0x80 != 0,
            state: AccessState::new(u8_at(bytes, 0)),
            supported: AccessState::supported(u8_at(bytes, 1)),
            status: u8_at(bytes, 5),
            ports: bytes.get(8..).unwrap_or_default().chunks_exact(4).map(|port| u16_at(port, 2)).collect(),
        }
    }

    /// The groups of an answer in the format of SPC-3, which is asked for; `None` if it is too short to say any.
    fn list(answer: &[u8]) -> Option<Vec<PortGroup>> {
        let list = answer.get(4..)?;
        let list = &list[..list.len().min(u32_at(answer, 0) as usize)];
        Some(elements(list, PortGroup::length).map(PortGroup::parse).collect())
    }
}

const NAME: &str = "REPORT TARGET PORT GROUPS";
const BYTES_FIRST: u32 = 1024;
const BYTES_MOST: u32 = 1 << 20;

impl Unit {
    /// Asks for the groups of ports. A target whose INQUIRY says TPGS 0 need not know the command.
    pub async fn target_port_groups(&self) -> Result<Vec<PortGroup>, VerbError> {
        let whole = |answer: &[u8]| 4 + u64::from(u32_at(answer, 0));
        let cdb = cdb::report_target_port_groups;
        let answer = self.ask_all(NAME, cdb, BYTES_FIRST, BYTES_MOST, whole).await?;
        PortGroup::list(&answer).ok_or(VerbError::Nonsense(NAME))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_group_is_told_with_its_ports() {
        let answer = [0, 0, 0, 16, 0x80, 0xcf, 0, 1, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 2];
        let groups = PortGroup::list(&answer).unwrap();
        assert_eq!(groups[0].to_string(), "group 1: active/optimized, preferred, ports 1, 2");
        assert_eq!(groups[0].supported.len(), 6);
    }

    #[test]
    fn a_group_that_is_cut_short_is_left_out() {
        let answer = [0, 0, 0, 16, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 1];
        assert_eq!(PortGroup::list(&answer), Some(vec![]));
        assert_eq!(PortGroup::list(&answer[..3]), None);
    }

    proptest! {
        #[test]
        fn any_answer_is_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..96)) {
            PortGroup::list(&bytes);
        }
    }
}
