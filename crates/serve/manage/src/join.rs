//! Converts a checked configuration and opened volumes into the configurations of the server and its front
//! ends.

use std::sync::Arc;

use reactor::StreamOptions;
use server::Portal;
use target::{Access, Authentication, Export, ISCSI, NamePattern};

use crate::config::{self, Config};
use crate::front_ends::iscsi::{self, Chap};
use crate::volumes::Volumes;

/// What to serve.
pub(crate) struct Served {
    /// By all front ends.
    pub(crate) server: server::Config,
    /// By iSCSI.
    pub(crate) iscsi: target::Config,
}

/// What to serve.
pub(crate) fn server(config: &Config, volumes: &Volumes) -> Served {
    Served {
        server: server::Config {
            volumes: volumes.by_name(),
            portals: config.portals.iter().map(portal).collect(),
            limits: config.limits.of_server(),
        },
        iscsi: target::Config {
            targets: config.targets.iter().map(|target| Arc::new(one(target, config, volumes))).collect(),
            discovery_authentication: config.discovery.as_ref().map(authentication),
            limits: config.limits.of_iscsi(),
            random,
        },
    }
}

fn portal(portal: &iscsi::Portal) -> Portal {
    Portal {
        front_end: ISCSI,
        listen: portal.listen.0,
        tag: portal.group,
        advertise: portal.advertise.clone(),
        stream: StreamOptions {
            congestion: portal.congestion.clone(),
            send_buffer_bytes: portal.send_buffer,
            receive_buffer_bytes: portal.receive_buffer,
            ..StreamOptions::default()
        },
    }
}

fn one(target: &iscsi::Target, config: &Config, volumes: &Volumes) -> target::Target {
    target::Target {
        name: target.name.to_string(),
        alias: target.alias.clone(),
        exports: target.luns.iter().filter_map(|lun| export(lun, config, volumes)).collect(),
        access: Access { initiators: target.initiators.clone(), networks: target.networks.clone() },
        authentication: target.chap.as_ref().map(authentication),
        offers: target.offers.clone(),
        portal_groups: target.groups.clone(),
        redirect: target.redirect.clone(),
    }
}

/// The export of a LUN; `None` if its volume is not open, which happens only during a change.
fn export(lun: &iscsi::Lun, config: &Config, volumes: &Volumes) -> Option<Export> {
    let opened = volumes.get(&lun.volume)?;
    let volume = config.volumes.iter().find(|volume| volume.name == lun.volume)?;
    Some(Export {
        lun: lun.lun,
        volume: lun.volume.to_string(),
        unit: Arc::clone(&opened.unit),
        initiators: lun.initiators.clone(),
        deadline: volume.deadline,
    })
}

fn authentication(chap: &Chap) -> Authentication {
    Authentication {
        accounts: chap.accounts.iter().map(|account| account.credentials.clone()).collect(),
        initiators: chap.accounts.iter().filter_map(names).collect(),
        mutual: chap.mutual.clone(),
        algorithms: chap.algorithms.clone(),
    }
}

/// A user and the initiator names that it is bound to, if it is.
fn names(account: &iscsi::Account) -> Option<(String, Vec<NamePattern>)> {
    Some((account.credentials.name.clone(), account.initiators.clone()?))
}

/// Random bytes for CHAP challenges. If they repeated, an eavesdropper could log in with an old response.
fn random(bytes: &mut [u8]) {
    // It worked at the start, when identities may have been drawn; Linux does not fail afterwards.
    getrandom::fill(bytes).expect("the system's random source works");
}

impl config::Limits {
    /// Those of all front ends. What the file leaves out stays as `server` has it.
    pub fn of_server(&self) -> server::Limits {
        let usual = server::Limits::default();
        server::Limits {
            connections_per_address: self.connections_per_address.unwrap_or(usual.connections_per_address),
            logins: self.logins.unwrap_or(usual.logins),
            fence_time: self.fence_time.unwrap_or(usual.fence_time),
            staging_bytes: self.staging_bytes.unwrap_or(usual.staging_bytes),
        }
    }

    /// Those of iSCSI. What the file leaves out stays as `target` has it.
    pub fn of_iscsi(&self) -> target::Limits {
        let usual = target::Limits::default();
        target::Limits {
            sessions: self.sessions.unwrap_or(usual.sessions),
            discovery_sessions: self.discovery_sessions.unwrap_or(usual.discovery_sessions),
            discovery_time: self.discovery_time.unwrap_or(usual.discovery_time),
            connections_per_session: self.connections_per_session.unwrap_or(usual.connections_per_session),
            login_time: self.login_time.unwrap_or(usual.login_time),
            window: self.window.unwrap_or(usual.window),
            nop_interval: self.nop_interval.unwrap_or(usual.nop_interval),
            send_stall: self.send_stall.unwrap_or(usual.send_stall),
            session_staging_bytes: self.session_staging_bytes.unwrap_or(usual.session_staging_bytes),
        }
    }
}
