//! The session: between whom, by which connections, on what terms.

use std::net::SocketAddr;

use initiator::{Nexus, RemoteTarget, Url};
use serde::Serialize;

use super::negotiation::{self, Negotiated};
use crate::table::pairs;

/// The names of the JSON are promised.
#[derive(Debug, Serialize)]
pub(super) struct Session {
    target: String,
    /// What the target calls itself, for people.
    target_alias: Option<String>,
    address: SocketAddr,
    /// Who was asked, if the target sent us from there to `address`.
    redirected_from: Option<String>,
    target_portal_group: Option<u16>,
    initiator: String,
    isid: String,
    tsih: u16,
    negotiated: Vec<Negotiated>,
}

impl Session {
    pub(super) fn look(target: &RemoteTarget, url: &Url) -> Session {
        let (nexus, parameters) = (target.nexus(), target.parameters());
        let redirected = url.portal.resolve().is_ok_and(|asked| !asked.contains(&nexus.address));
        let Nexus { initiator, isid, target, target_portal_group_tag, tsih, address } = nexus;
        Session {
            target,
            target_alias: parameters.target_alias.clone(),
            address,
            redirected_from: redirected.then(|| url.portal.to_string()),
            target_portal_group: target_portal_group_tag,
            initiator,
            isid: isid.0.iter().map(|byte| format!("{byte:02x}")).collect(),
            tsih: tsih.0,
            negotiated: negotiation::negotiated(&url.settings.offers(), &parameters),
        }
    }

    pub(super) fn text(&self) -> String {
        let group = self.target_portal_group.map_or_else(String::new, |tag| format!(", portal group {tag}"));
        let from = self.redirected_from.as_ref().map(|asked| format!(", redirected from {asked}"));
        let rows = [
            Some(("alias", self.target_alias.clone().unwrap_or_default()))
                .filter(|(_, alias)| !alias.is_empty()),
            Some(("portal", format!("{}{group}{}", self.address, from.unwrap_or_default()))),
            Some(("initiator", self.initiator.clone())),
            Some(("session", format!("ISID {}, TSIH {}", self.isid, self.tsih))),
        ];
        format!(
            "{}\n{}\n{}",
            self.target,
            pairs("  ", rows.into_iter().flatten()),
            negotiation::table(&self.negotiated),
        )
    }
}
