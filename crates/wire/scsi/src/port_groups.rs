//! REPORT TARGET PORT GROUPS (SPC-4 6.37): the access states of a logical unit's ports (ALUA).

use std::fmt;

use derive_more::Display;

use crate::fields::{elements, u8_at, u16_at, u32_at};

/// A group of target ports that share an access state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortGroup {
    /// TARGET PORT GROUP.
    pub group: u16,
    /// PREF: the preferred group.
    pub preferred: bool,
    /// ASYMMETRIC ACCESS STATE.
    pub state: AccessState,
    /// The states that the group can have.
    pub supported: Vec<AccessState>,
    /// STATUS CODE: how the state last changed. 1: explicitly, by a command; 2: implicitly.
    pub status: u8,
    /// RELATIVE TARGET PORT IDENTIFIERS.
    pub ports: Vec<u16>,
}

/// The accessibility of a logical unit through a port (SPC-4 5.16.2.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display)]
pub enum AccessState {
    /// 0h: full performance.
    #[display("active/optimized")]
    ActiveOptimized,
    /// 1h: reduced performance.
    #[display("active/non-optimized")]
    ActiveNonOptimized,
    /// 2h: only commands that do not access the medium, until a failover.
    #[display("standby")]
    Standby,
    /// 3h: only a few commands are supported.
    #[display("unavailable")]
    Unavailable,
    /// 4h: depends on the block.
    #[display("logical block dependent")]
    LbaDependent,
    /// Eh: the port is not accessible.
    #[display("offline")]
    Offline,
    /// Fh: a transition to another state is in progress.
    #[display("transitioning")]
    Transitioning,
    /// Any other state.
    #[display("reserved state {_0:x}h")]
    Reserved(u8),
}

/// States by their codes and their bits among T_SUP, O_SUP, LBD_SUP, U_SUP, S_SUP, AN_SUP and AO_SUP.
const STATES: [(u8, u8, AccessState); 7] = [
    (0x0, 0x01, AccessState::ActiveOptimized),
    (0x1, 0x02, AccessState::ActiveNonOptimized),
    (0x2, 0x04, AccessState::Standby),
    (0x3, 0x08, AccessState::Unavailable),
    (0x4, 0x10, AccessState::LbaDependent),
    (0xe, 0x40, AccessState::Offline),
    (0xf, 0x80, AccessState::Transitioning),
];

impl AccessState {
    fn new(code: u8) -> AccessState {
        let known = STATES.into_iter().find(|(of, _, _)| *of == code & 0x0f);
        known.map_or(AccessState::Reserved(code & 0x0f), |(_, _, state)| state)
    }

    /// Its code, and its bit in the mask of supported states.
    fn code_and_bit(self) -> (u8, u8) {
        let known = STATES.into_iter().find(|(_, _, state)| *state == self);
        match (known, self) {
            (None, AccessState::Reserved(code)) => (code & 0x0f, 0),
            (known, _) => known.map_or((0, 0), |(code, bit, _)| (code, bit)),
        }
    }

    fn supported(flags: u8) -> Vec<AccessState> {
        STATES
            .into_iter()
            .filter(|(_, bit, _)| flags & bit != 0)
            .map(|(_, _, state)| state)
            .collect()
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
            ports: bytes
                .get(8..)
                .unwrap_or_default()
                .chunks_exact(4)
                .map(|port| u16_at(port, 2))
                .collect(),
        }
    }

    /// Parses the groups from parameter data in the format of SPC-3, which we request; `None` if it is too
    /// short for a header.
    pub fn parse_list(answer: &[u8]) -> Option<Vec<PortGroup>> {
        let list = answer.get(4..)?;
        let list = &list[..list.len().min(u32_at(answer, 0) as usize)];
        Some(
            elements(list, PortGroup::length)
                .map(PortGroup::parse)
                .collect(),
        )
    }

    /// Encodes the groups, with the extended header if requested. A group lists at most its first 255 ports.
    pub fn write_list(groups: &[PortGroup], extended: bool) -> Vec<u8> {
        let mut list = if extended {
            vec![0x10, 0, 0, 0]
        } else {
            vec![]
        };
        for group in groups {
            let (state, _) = group.state.code_and_bit();
            let supported = group
                .supported
                .iter()
                .fold(0, |bits, state| bits | state.code_and_bit().1);
            let [high, low] = group.group.to_be_bytes();
            let ports = &group.ports[..group.ports.len().min(255)];
            debug_assert!(state <= 0x0f, "a state of four bits");
            let preferred = u8::from(group.preferred) << 7;
            list.extend([
                preferred | state,
                supported,
                high,
                low,
                0,
                group.status,
                0,
                ports.len() as u8,
            ]);
            list.extend(ports.iter().flat_map(|port| u32::from(*port).to_be_bytes()));
        }
        [&(list.len() as u32).to_be_bytes()[..], &list].concat()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_group_is_told_with_its_ports() {
        let answer = [
            0, 0, 0, 16, 0x80, 0xcf, 0, 1, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 2,
        ];
        let groups = PortGroup::parse_list(&answer).unwrap();
        assert_eq!(
            groups[0].to_string(),
            "group 1: active/optimized, preferred, ports 1, 2"
        );
        assert_eq!(groups[0].supported.len(), 6);
    }

    #[test]
    fn a_group_that_is_cut_short_is_left_out() {
        let answer = [0, 0, 0, 16, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 1];
        assert_eq!(PortGroup::parse_list(&answer), Some(vec![]));
        assert_eq!(PortGroup::parse_list(&answer[..3]), None);
    }

    proptest! {
        #[test]
        fn groups_come_back_as_they_were(group: u16, preferred: bool, state in 0u8..16, supported: u8, ports: Vec<u16>) {
            let (state, supported) = (AccessState::new(state), AccessState::supported(supported));
            let group = PortGroup { group, preferred, state, supported, status: 1, ports };
            let groups = [group.clone(), PortGroup { ports: vec![], ..group }];
            prop_assert_eq!(PortGroup::parse_list(&PortGroup::write_list(&groups, false)), Some(groups.to_vec()));
        }

        #[test]
        fn any_answer_is_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..96)) {
            PortGroup::parse_list(&bytes);
        }
    }
}
