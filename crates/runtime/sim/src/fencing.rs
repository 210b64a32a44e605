//! An initiator that preempts the registrations of others (PREEMPT AND ABORT), as a cluster's fencing agent
//! does.

use std::rc::Rc;
use std::time::Duration;

use scsi::{Cdb, RegisteredKeys, ReservationType, ReserveIn, ReserveOut, ReserveOutList, cdb};

use crate::features::Addition;
use crate::nbd;
use crate::network::Machine;
use crate::simple::{Command, GOOD, Lost, Simple, Slowness, Terms};
use crate::simulation::{Simulation, TARGET, portal};
use crate::universe::{self, draw, note};
use crate::volume::Volume;
use crate::writing::{self, register};

const NUMBER: u64 = 14;

/// Starts an initiator that fences until the simulation ends.
pub(crate) fn begin(simulation: &Rc<Simulation>) -> Machine {
    Machine::of("fencer", simulation, live)
}

async fn live(simulation: Rc<Simulation>) {
    let never = crate::disk::NEVER;
    let terms = Terms {
        initiator: "iqn.2026-01.io.linerate:fencer".to_owned(),
        target: TARGET.to_owned(),
        isid: [0x40, 0, 0, 0, 0, NUMBER as u8],
        initial_r2t: true,
        immediate_data: true,
        segment_bytes: 8 << 10,
        slow: Slowness {
            reads_once_in: never,
            sends_once_in: never,
            longest: 1_000_000,
        },
        is_calm: simulation.is_calm,
    };
    while !simulation.is_over.get() {
        let login = reactor::timeout(Duration::from_secs(20), Simple::log_in(portal(1), &terms));
        let Ok(Ok(session)) = login.await else {
            reactor::sleep(Duration::from_millis(100)).await;
            continue;
        };
        for volume in &simulation.volumes {
            let mut registrations = volume.registrations.borrow_mut();
            registrations.begins_anew(writing::writer(NUMBER, 1));
            registrations.preemptor_begins_anew();
        }
        let _ = fence_all(&simulation, &session).await;
        session.leave();
    }
}

async fn fence_all(simulation: &Simulation, session: &Simple) -> Result<(), Lost> {
    let own = writing::writer(NUMBER, 1);
    let fenced: Vec<_> = simulation
        .volumes
        .iter()
        .filter(|volume| volume.is_fenced)
        .collect();
    // Read the keys before the next request saves them again, to learn the results of unfinished requests of
    // the last session, and the state after a restart.
    for volume in &fenced {
        keys(session, volume).await?;
    }
    while !simulation.is_over.get() && !session.is_asked_to_leave() {
        let wait = draw(|random| random.mostly_small(1_000_000, 4_000_000_000));
        reactor::sleep(Duration::from_nanos(wait)).await;
        let volume = Rc::clone(draw(|random| random.pick(&fenced)));
        simulation.count_command();
        if simulation.with(Addition::Nbd) && draw(|random| random.once_in(3)) {
            release(session, &volume, own).await?;
            continue;
        }
        if draw(|random| random.once_in(2)) {
            keys(session, &volume).await?;
            continue;
        }
        register(session, &volume, own).await?;
        let keys = keys(session, &volume).await?;
        let victims: Vec<u64> = keys.into_iter().filter(|key| *key != own).collect();
        if victims.is_empty() {
            reserve(session, &volume, own).await?;
            continue;
        }
        let victim = *draw(|random| random.pick(&victims));
        let preempted = preempt(session, &volume, own, victim);
        if draw(|random| random.once_in(3)) {
            // If the fencer does not wait for the response, it starts a new session, which terminates the
            // outstanding requests of the old session.
            let wait = draw(|random| random.of_any_size(1_000, 200_000_000));
            reactor::timeout(Duration::from_nanos(wait), preempted)
                .await
                .unwrap_or(Err(Lost))?;
        } else {
            preempted.await?;
        }
    }
    Ok(())
}

async fn keys(session: &Simple, volume: &Volume) -> Result<Vec<u64>, Lost> {
    let cdb = cdb::persistent_reserve_in(ReserveIn::Keys, 256);
    let begun = volume.registrations.borrow().now();
    let answer = session
        .execute(Command {
            lun: volume.lun,
            cdb,
            out: Vec::new(),
            in_bytes: 256,
        })
        .await?;
    if answer.status != GOOD {
        return Ok(Vec::new());
    }
    let keys = RegisteredKeys::parse(&answer.data).unwrap_or_default().keys;
    note(&[32], || {
        format!("LUN {} has the registered keys {keys:?}", volume.lun)
    });
    if let Err(wrong) = volume.registrations.borrow_mut().are_told(begun, &keys) {
        universe::fault(format!("LUN {}: {wrong}", volume.lun));
    }
    Ok(keys)
}

fn out(action: ReserveOut, own: u64, other: u64) -> (Cdb, Vec<u8>) {
    let kind = ReservationType::WriteExclusiveRegistrantsOnly.code();
    let list = ReserveOutList {
        key: own,
        service_action_key: other,
        ..ReserveOutList::default()
    };
    (
        cdb::persistent_reserve_out(action, kind, ReserveOutList::BYTES as u32),
        list.write().to_vec(),
    )
}

async fn reserve(session: &Simple, volume: &Volume, own: u64) -> Result<(), Lost> {
    let (cdb, out) = out(ReserveOut::Reserve, own, 0);
    let answer = session
        .execute(Command {
            lun: volume.lun,
            cdb,
            out,
            in_bytes: 0,
        })
        .await?;
    if answer.status == GOOD {
        volume.gate.set(volume.gate.get().shut());
    }
    Ok(())
}

/// Releases the reservation, so that unregistered initiators are admitted.
async fn release(session: &Simple, volume: &Volume, own: u64) -> Result<(), Lost> {
    let (cdb, out) = out(ReserveOut::Release, own, 0);
    session.window().await;
    volume.gate.set(volume.gate.get().opened());
    volume.check(|checker| checker.resume());
    let answer = session
        .execute(Command {
            lun: volume.lun,
            cdb,
            out,
            in_bytes: 0,
        })
        .await?;
    note(&[33], || {
        format!("LUN {} is released: {:#x}", volume.lun, answer.status)
    });
    Ok(())
}

/// Preempts a victim's registration and aborts its commands. After GOOD, none of the victim's earlier
/// requests takes effect: requests that had arrived were aborted, and requests still in transit conflict with
/// the reservation, until it is released or the victim registers again.
async fn preempt(session: &Simple, volume: &Volume, own: u64, victim: u64) -> Result<(), Lost> {
    // Without a reservation, the victim could continue to write.
    reserve(session, volume, own).await?;
    let begun = volume.check(|checker| checker.now());
    let known = || volume.registrations.borrow().known(victim);
    let before = known();
    let (cdb, out) = out(ReserveOut::PreemptAndAbort, own, victim);
    volume.registrations.borrow_mut().is_preempted(victim);
    note(&[30, victim], || {
        format!("preempting nexus {victim} at LUN {}", volume.lun)
    });
    let answer = session
        .execute(Command {
            lun: volume.lun,
            cdb,
            out,
            in_bytes: 0,
        })
        .await?;
    note(&[31, victim], || {
        format!("preempted nexus {victim} at LUN {}: {answer:?}", volume.lun)
    });
    let is_alone = before.under_way == 0 && known().sent == before.sent;
    let done = answer.status == GOOD;
    volume
        .registrations
        .borrow_mut()
        .preemption_ended(victim, done);
    if done && volume.gate.get().is_shut {
        // The reservation excludes the victim and the NBD clients, including their outstanding requests.
        volume.check(|checker| {
            let now = checker.now();
            checker.suspend(now, |_, writer| nbd::is_client(writer));
            checker.suspend(begun, |_, writer| is_alone && writer == victim);
        });
    }
    Ok(())
}
