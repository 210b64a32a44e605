//! SendTargets discovery (RFC 7143 appendix C).

use std::time::Duration;

use crate::error::{CommandError, OpenError};
use crate::login::Random;
use crate::open::Connector;
use crate::settings::Settings;
use crate::url::{Portal, on_link};

/// A discovered target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Discovered {
    /// Its iSCSI name.
    pub name: String,
    /// Its portals: `host:port,tag`, an IPv6 address in brackets. Empty if the target reports none: then it
    /// is at the portal that was asked.
    pub addresses: Vec<String>,
}

/// Lists the targets of a portal.
pub async fn discover(
    portal: &Portal,
    settings: &Settings,
    random: Random,
) -> Result<Vec<Discovered>, OpenError> {
    // A discovery session has one connection (RFC 7143 section 4.3), and is not recovered.
    let settings = Settings { connections: 1, reconnect_time: Duration::ZERO, ..settings.clone() };
    let by = reactor::now() + settings.login_time; // with the login, which is what people are told
    let (session, _) = Connector::new(portal, &settings, random, None)?.session().await?;
    let answered = reactor::timeout_at(by, session.send_targets("All")).await;
    let answered = answered.unwrap_or(Err(CommandError::TimedOut));
    match answered {
        // The process may end after this: a logout that nobody waits for would not be sent.
        Ok(_) => session.close().await,
        Err(_) => session.inner().give_up(),
    }
    let text = answered.map_err(|error| OpenError::Command { name: "SendTargets", error })?;
    let mut targets = targets(&text).ok_or(OpenError::Nonsense("SendTargets"))?;
    // A target tells link-local addresses without a zone, which differs from machine to machine.
    if let Some(zone) = portal.zone() {
        for address in targets.iter_mut().flat_map(|target| &mut target.addresses) {
            *address = on_link(address, Some(&zone)).into_owned();
        }
    }
    Ok(targets)
}

/// A TargetName begins a target; the TargetAddresses until the next belong to it.
fn targets(text: &[u8]) -> Option<Vec<Discovered>> {
    let mut targets: Vec<Discovered> = Vec::new();
    for pair in iscsi::text::pairs(text) {
        let pair = pair.ok()?;
        match pair.key {
            "TargetName" => targets.push(Discovered { name: pair.value.to_owned(), addresses: Vec::new() }),
            "TargetAddress" => targets.last_mut()?.addresses.push(pair.value.to_owned()),
            _ => {}
        }
    }
    Some(targets)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_belong_to_the_name_before_them() {
        let text = b"TargetName=iqn.a:1\0TargetAddress=[::1]:3260,1\0TargetAddress=10.0.0.1:3260,2\0TargetName=iqn.a:2\0";
        let found = targets(text).unwrap();
        assert_eq!(found[0].addresses, ["[::1]:3260,1", "10.0.0.1:3260,2"]);
        assert_eq!((found[1].name.as_str(), found[1].addresses.len()), ("iqn.a:2", 0));
    }

    #[test]
    fn thousands_of_targets_are_found() {
        let text: String = (0..4096)
            .map(|number| format!("TargetName=iqn.a:{number}\0TargetAddress=10.0.0.1:3260,1\0"))
            .collect();
        let found = targets(text.as_bytes()).unwrap();
        assert_eq!(found.len(), 4096);
        assert!(found.iter().all(|target| target.addresses.len() == 1));
    }

    #[test]
    fn an_address_of_nobody_makes_no_sense() {
        assert_eq!(targets(b"TargetAddress=10.0.0.1:3260,1\0"), None);
        assert_eq!(targets(b""), Some(Vec::new()));
    }
}
