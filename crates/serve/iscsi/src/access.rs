//! Access control of targets: initiator name patterns and networks.

use std::net::IpAddr;

use front_end_core::Network;
use scsi_session::NamePattern;

/// Access control of a target: both lists must admit the initiator.
#[derive(Clone, Debug, Default)]
pub struct Access {
    /// Names the initiator may have; `None` is any.
    pub initiators: Option<Vec<NamePattern>>,
    /// Networks it may come from; `None` is any.
    pub networks: Option<Vec<Network>>,
}

impl Access {
    /// Whether `initiator`, coming from `address`, may log in, and may know that the target exists.
    pub fn admits(&self, initiator: &str, address: IpAddr) -> bool {
        self.admits_name(initiator) && self.admits_address(address)
    }

    /// Whether it lets any initiator in, wherever that comes from.
    pub fn is_open(&self) -> bool {
        self.initiators.is_none() && self.networks.is_none()
    }

    pub(crate) fn admits_name(&self, initiator: &str) -> bool {
        self.initiators.as_ref().is_none_or(|names| names.iter().any(|name| name.matches(initiator)))
    }

    pub(crate) fn admits_address(&self, address: IpAddr) -> bool {
        self.networks.as_ref().is_none_or(|networks| networks.iter().any(|net| net.contains(address)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn net(text: &str) -> Network {
        text.parse().expect("a network")
    }

    #[test]
    fn both_lists_must_let_an_initiator_in() {
        let access = Access {
            initiators: Some(vec![NamePattern::new("iqn.a:*")]),
            networks: Some(vec![net("10.0.0.0/8")]),
        };
        let (inside, outside) = ([10, 0, 0, 1].into(), [11, 0, 0, 1].into());
        assert!(access.admits("iqn.a:1", inside));
        assert!(!access.admits("iqn.a:1", outside));
        assert!(!access.admits("iqn.b:1", inside));
        assert!(Access::default().admits("iqn.b:1", outside));
    }

    #[test]
    fn a_list_of_nobody_lets_nobody_in() {
        let access = Access { initiators: Some(Vec::new()), networks: None };
        assert!(!access.admits("iqn.a:1", [10, 0, 0, 1].into()));
        let access = Access { initiators: None, networks: Some(Vec::new()) };
        assert!(!access.admits("iqn.a:1", [10, 0, 0, 1].into()));
    }
}
