//! A checked configuration and opened volumes, as the values that `iscsi_server` serves.

use std::sync::Arc;

use iscsi_server::{Access, Authentication, Export, NamePattern};

use super::{Account, Chap, IscsiConfig, Lun, Target};
use crate::front_ends::Serving;

pub(super) fn config(iscsi: &IscsiConfig, serving: Serving<'_>) -> iscsi_server::Config {
    iscsi_server::Config {
        targets: iscsi.targets.iter().map(|target| Arc::new(one(target, serving))).collect(),
        discovery_authentication: iscsi.discovery.as_ref().map(authentication),
        limits: iscsi.limits.of_iscsi(),
        random,
    }
}

fn one(target: &Target, serving: Serving<'_>) -> iscsi_server::Target {
    iscsi_server::Target {
        name: target.name.to_string(),
        alias: target.alias.clone(),
        exports: target.luns.iter().filter_map(|lun| export(lun, serving)).collect(),
        access: Access { initiators: target.initiators.clone(), networks: target.networks.clone() },
        authentication: target.chap.as_ref().map(authentication),
        offers: target.offers.clone(),
        portal_groups: target.groups.clone(),
        hidden: target.hidden,
        redirect: target.redirect.clone(),
    }
}

/// The export of a LUN; `None` if its volume is not open, which happens only during a change.
fn export(lun: &Lun, serving: Serving<'_>) -> Option<Export> {
    Some(Export {
        lun: lun.lun,
        volume: lun.volume.to_string(),
        unit: Arc::clone(serving.volumes.unit(&lun.volume)?),
        initiators: lun.initiators.clone(),
        deadline: serving.config.volume(&lun.volume)?.deadline,
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
fn names(account: &Account) -> Option<(String, Vec<NamePattern>)> {
    Some((account.credentials.name.clone(), account.initiators.clone()?))
}

/// Random bytes for CHAP challenges. If they repeated, an eavesdropper could log in with an old response.
fn random(bytes: &mut [u8]) {
    // It worked at the start, when identities may have been drawn; Linux does not fail afterwards.
    getrandom::fill(bytes).expect("the system's random source works");
}
