//! Logging in to a target that was discovered, to see what is on it.

use std::sync::Arc;

use block::BlockDevice;
use iscsi_client::verbs::{LunAddress, LunSelection, device_type};
use iscsi_client::{Portal, RemoteTarget, Settings, Unit};

use crate::discovery::{Lun, Target};
use backends::{Failure, remote};

/// Looks at a target through the first of its portals that can be reached, and notes why the ones before could not.
pub(crate) async fn look(target: &mut Target, settings: &Settings) -> Result<(), Failure> {
    let looked = match log_in(target, settings).await {
        Ok(session) => {
            let luns = luns(&session).await;
            session.close().await;
            luns
        }
        Err(failure) => Err(failure),
    };
    match looked {
        Ok(luns) => target.luns = Some(luns),
        Err(failure) => {
            target.problem = Some(failure.to_string());
            return Err(failure);
        }
    }
    Ok(())
}

async fn log_in(target: &mut Target, settings: &Settings) -> Result<Arc<RemoteTarget>, Failure> {
    let mut last = Failure::failed("the target has no portal");
    for portal in &mut target.portals {
        match enter(&portal.address, &target.name, settings).await {
            Ok(session) => return Ok(session),
            Err(failure) if failure.is_unreachable() => {
                portal.problem = Some(failure.to_string());
                last = failure;
            }
            // Whoever answered speaks for all portals.
            Err(failure) => return Err(failure),
        }
    }
    Err(last)
}

async fn enter(address: &str, name: &str, settings: &Settings) -> Result<Arc<RemoteTarget>, Failure> {
    let portal = Portal::parse(&format!("iscsi://{address}"));
    let (portal, _) = portal.map_err(|_| Failure::failed(format!("{address:?} is no address")))?;
    remote::log_in(&portal, name, settings).await
}

async fn luns(session: &Arc<RemoteTarget>) -> Result<Vec<Lun>, Failure> {
    let mut luns = Vec::new();
    for lun in session.unit(0).report_luns(LunSelection::Ordinary).await? {
        luns.push(one(&Unit::new(Arc::clone(session), lun)).await);
    }
    Ok(luns)
}

/// A LUN that cannot be looked at says why, in the place of what it is.
async fn one(unit: &Unit) -> Lun {
    let mut lun = Lun { lun: LunAddress::parse(unit.lun().0).to_string(), ..Lun::default() };
    if let Err(failure) = describe(&mut lun, unit).await {
        lun.problem = Some(failure.to_string());
    }
    lun
}

async fn describe(lun: &mut Lun, unit: &Unit) -> Result<(), Failure> {
    let inquiry = unit.inquiry().await?;
    device_type(inquiry.device_type).clone_into(&mut lun.device_type);
    let is_disk = inquiry.is_disk();
    (lun.vendor, lun.product, lun.revision) = (inquiry.vendor, inquiry.product, inquiry.revision);
    if is_disk {
        let disk = remote::disk(unit).await?;
        let (geometry, profile) = (disk.geometry(), disk.profile());
        lun.bytes = Some(geometry.bytes());
        lun.block_bytes = Some(geometry.block_size.bytes());
        (lun.thin, lun.read_only) = (Some(profile.thin), Some(profile.read_only));
    }
    Ok(())
}
