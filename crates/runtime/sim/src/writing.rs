//! Initiators that read and write with single commands. From the result of each command, or its absence, they
//! derive whether the command took effect.

use std::rc::Rc;
use std::time::Duration;

use scsi::{
    Cdb, CopyList, CopySegment, CopyTarget, ListIdUsage, ReserveOut, ReserveOutList,
    UnmapDescriptor, cdb, commands,
};

use crate::checker::WriteKind;
use crate::features::Feature;
use crate::network::Machine;
use crate::simple::{
    CHECK_CONDITION, Command, CommandResult, ENDED, Function, GOOD, Lost, Simple, Slowness, Terms,
};
use crate::simulation::{GROUPS, Simulation, TARGET, portal};
use crate::universe::{self, draw, note};
use crate::volume::BLOCK;
use crate::volume::Volume;

const CONFLICT: u8 = 0x18;

/// Starts an initiator that runs until the simulation ends.
pub(crate) fn begin(simulation: &Rc<Simulation>, number: u64) -> Machine {
    let machine = Machine::new(format!("writer {number}"));
    let simulation = Rc::clone(simulation);
    machine.run(move || live(simulation, number));
    machine
}

/// Returns the number that identifies the I_T nexus of an initiator and a portal group to the checker. It is
/// also the registration key of the nexus.
pub(crate) fn writer(number: u64, group: u16) -> u64 {
    number * 16 + u64::from(group)
}

fn terms(simulation: &Simulation, number: u64) -> Terms {
    // In a calm simulation, the longest delay is short: an initiator with long delays at every step would
    // spend most of its time waiting for itself.
    let longest = if simulation.is_calm {
        1_000_000_000
    } else {
        90_000_000_000
    };
    draw(|random| Terms {
        initiator: format!("iqn.2026-01.io.linerate:writer{number}"),
        target: TARGET.to_owned(),
        isid: [0x40, 0, 0, 0, 0, number as u8],
        initial_r2t: random.once_in(2),
        immediate_data: random.once_in(2),
        segment_bytes: *random.pick(&[8 << 10, 256 << 10]),
        slow: Slowness {
            reads_once_in: *random.pick(&[crate::disk::NEVER, 50, 1_000]),
            sends_once_in: *random.pick(&[crate::disk::NEVER, 50, 1_000]),
            longest: random.mostly_small(10_000_000, longest),
        },
        is_calm: simulation.is_calm,
    })
}

async fn live(simulation: Rc<Simulation>, number: u64) {
    let mut terms = terms(&simulation, number);
    if !simulation.has(Feature::SlowPeers) {
        terms.slow = Slowness {
            reads_once_in: crate::disk::NEVER,
            sends_once_in: crate::disk::NEVER,
            longest: 1_000_000,
        };
    }
    while !simulation.is_over.get() {
        let group = draw(|random| random.between(1, u64::from(GROUPS))) as u16;
        let writer = writer(number, group);
        // The old session is lost and has no waiters, so no more requests can be sent in it.
        let Some(session) = log_in(&simulation, &terms, group, writer).await else {
            continue;
        };
        let depth = if simulation.is_dense {
            DENSE_DEPTH
        } else if simulation.has(Feature::Depth) {
            draw(|random| random.between(1, 12))
        } else {
            1
        };
        let hands: Vec<_> = (0..depth)
            .map(|_| reactor::spawn(work(Rc::clone(&simulation), session.clone(), writer)))
            .collect();
        for hand in hands {
            hand.await;
        }
        session.leave();
    }
}

/// Queue depth of each initiator in a dense simulation.
const DENSE_DEPTH: u64 = 64;

/// Opens a session. If the session reinstates an earlier one of its nexus, the requests of the earlier
/// session are over.
async fn log_in(simulation: &Simulation, terms: &Terms, group: u16, writer: u64) -> Option<Simple> {
    let login = reactor::timeout(
        Duration::from_secs(20),
        Simple::log_in(portal(group), terms),
    );
    let session = match login.await {
        Ok(Ok(session)) => session,
        other => {
            let status = other.map(Result::err);
            note(&[20, writer], || {
                format!("nexus {writer} cannot log in: {status:?}")
            });
            let wait = draw(|random| random.mostly_small(1_000_000, 5_000_000_000));
            reactor::sleep(Duration::from_nanos(wait)).await;
            return None;
        }
    };
    note(&[21, writer], || format!("nexus {writer} logs in"));
    for volume in &simulation.volumes {
        volume.check(|checker| {
            let now = checker.now();
            checker.are_over(writer, now);
        });
        volume.registrations.borrow_mut().begins_anew(writer);
    }
    Some(session)
}

async fn work(simulation: Rc<Simulation>, session: Simple, writer: u64) {
    let leaves_after = draw(|random| random.mostly_small(10, 5_000));
    for _ in 0..leaves_after {
        if simulation.is_over.get() || session.is_lost() || session.is_asked_to_leave() {
            return;
        }
        simulation.pause().await;
        simulation.count_command();
        let volume = simulation.any_volume();
        let lot = draw(|random| random.below(100));
        let outcome = match lot {
            38..45 if !simulation.has(Feature::Zeros) => continue,
            45..47 if !simulation.has(Feature::Exchanges) => continue,
            47..50 if !simulation.has(Feature::Copies) => continue,
            90..96 if !simulation.has(Feature::Flushes) => continue,
            96 if !simulation.has(Feature::Resets) => continue,
            0..38 => {
                write(
                    &simulation,
                    &session,
                    &volume,
                    writer,
                    WriteCommand::Write,
                    volume.place(),
                )
                .await
            }
            38..42 => {
                write(
                    &simulation,
                    &session,
                    &volume,
                    writer,
                    WriteCommand::WriteSame,
                    volume.place(),
                )
                .await
            }
            42..45 => {
                write(
                    &simulation,
                    &session,
                    &volume,
                    writer,
                    WriteCommand::Unmap,
                    volume.place(),
                )
                .await
            }
            45..47 => {
                write(
                    &simulation,
                    &session,
                    &volume,
                    writer,
                    WriteCommand::Exchange,
                    volume.lock_block(),
                )
                .await
            }
            47..49 => {
                write(
                    &simulation,
                    &session,
                    &volume,
                    writer,
                    WriteCommand::Copy,
                    volume.place(),
                )
                .await
            }
            49 if !simulation.has(Feature::Resets) => continue,
            49 => copy_into_a_reset(&simulation, &session, &volume, writer).await,
            50..90 => read(&session, &volume, writer).await,
            90..96 => flush(&session, &volume, writer).await,
            96..97 => reset(&simulation, &session, &volume, writer).await,
            _ if simulation.is_dense => continue,
            _ => {
                let wait = draw(|random| random.mostly_small(1_000, 1_000_000_000));
                reactor::sleep(Duration::from_nanos(wait)).await;
                Ok(())
            }
        };
        if outcome.is_err() {
            return;
        }
    }
}

/// Commands that change blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WriteCommand {
    Write,
    WriteSame,
    Unmap,
    /// COMPARE AND WRITE, after a read.
    Exchange,
    /// EXTENDED COPY from another volume.
    Copy,
}

async fn write(
    simulation: &Simulation,
    session: &Simple,
    volume: &Volume,
    writer: u64,
    operation: WriteCommand,
    (lba, mut blocks): (u64, u64),
) -> Result<(), Lost> {
    let mut expected = None;
    let mut source = None;
    match operation {
        WriteCommand::Exchange => {
            blocks = 1;
            let Some(read) = read_at(session, volume, writer, lba, 1).await? else {
                return Ok(());
            };
            expected = Some(read);
        }
        WriteCommand::Copy => {
            let other = simulation.any_volume();
            if other.lun >= volume.lun || lba + blocks > other.blocks {
                return Ok(());
            }
            source = Some(other);
        }
        WriteCommand::Write | WriteCommand::WriteSame | WriteCommand::Unmap => {}
    }
    session.window().await;
    let kind = WriteKind {
        zeros: matches!(operation, WriteCommand::WriteSame | WriteCommand::Unmap),
        repeats: false,
        copied_from: source.as_ref().map(|source| u64::from(source.lun)),
    };
    let (begun, id) = volume.check(|checker| {
        (
            checker.begin_read(lba, blocks),
            checker.begin_write(writer, lba, blocks, kind),
        )
    });
    let mut data = vec![0; blocks as usize * BLOCK];
    volume.check(|checker| checker.fill(id, lba, &mut data));
    let (cdb, out) = match operation {
        WriteCommand::Write => (cdb::write_16(lba, blocks as u32, false), data),
        WriteCommand::WriteSame => {
            let unmap = draw(|random| random.once_in(2));
            (
                cdb::write_same_16(lba, blocks as u32, unmap),
                vec![0; BLOCK],
            )
        }
        WriteCommand::Unmap => unmap(lba, blocks),
        WriteCommand::Exchange => (
            cdb::compare_and_write(lba, 1),
            [expected.clone().unwrap_or_default(), data].concat(),
        ),
        WriteCommand::Copy => {
            extended_copy(source.as_deref().unwrap_or(volume), volume, lba, blocks)
        }
    };
    note(&[22, writer, lba, blocks], || {
        format!(
            "nexus {writer}: {operation:?} {id:?} LUN {} {lba}+{blocks}",
            volume.lun
        )
    });
    let lun = source.as_ref().map_or(volume.lun, |source| {
        draw(|random| *random.pick(&[source.lun, volume.lun]))
    });
    if lun != volume.lun {
        volume.copies.borrow_mut().push((id, session.next_cmd_sn()));
    }
    let answer = session
        .execute_for(
            Command {
                lun,
                cdb,
                out,
                in_bytes: 0,
            },
            patience(simulation),
        )
        .await;
    note(&[23, writer, lba], || {
        format!("nexus {writer}: {id:?} ends: {answer:?}")
    });
    volume.copies.borrow_mut().retain(|(copy, _)| *copy != id);
    if let (Some(expected), Ok(CommandResult { status: GOOD, .. })) = (&expected, &answer) {
        volume.check_read(writer, begun, lba, expected);
        volume.check_exchange(writer, begun, lba, expected);
    }
    volume.check(|checker| checker.read_nothing(begun));
    // If there is no response, it is unknown whether the write takes effect, until the nexus logs in again.
    let answer = answer?;
    volume.check(|checker| match answer.status {
        GOOD => checker.wrote(id),
        _ => checker.is_over(id),
    });
    if answer.status == CONFLICT {
        register(session, volume, writer).await?;
    }
    if operation != WriteCommand::Copy {
        expect_plain(&answer);
    }
    Ok(())
}

/// Draws the time after which a command is aborted; `None` if it is not to be aborted.
pub(crate) fn patience(simulation: &Simulation) -> Option<Duration> {
    let aborts = simulation.has(Feature::Aborts) && draw(|random| random.once_in(30));
    aborts.then(|| Duration::from_nanos(draw(|random| random.mostly_small(10_000, 100_000_000))))
}

fn unmap(lba: u64, blocks: u64) -> (Cdb, Vec<u8>) {
    let out = UnmapDescriptor::write_list(
        [UnmapDescriptor {
            lba,
            blocks: blocks as u32,
        }]
        .into_iter(),
    );
    (cdb::unmap(false, out.len() as u16), out)
}

/// Returns an EXTENDED COPY command and its parameters. Source and destination are identified by their NAA
/// designators.
fn extended_copy(source: &Volume, destination: &Volume, lba: u64, blocks: u64) -> (Cdb, Vec<u8>) {
    let target = |volume: &Volume| CopyTarget {
        null: false,
        designator_type: 3, // NAA
        designator: volume.naa(),
        block_bytes: BLOCK as u32,
    };
    let segment = CopySegment {
        destination: 1,
        blocks: blocks as u16,
        source_lba: lba,
        destination_lba: lba,
        ..CopySegment::default()
    };
    let list = CopyList {
        id: 0,
        usage: ListIdUsage::Hold,
        targets: vec![target(source), target(destination)],
        segments: vec![segment],
    };
    let out = list.write();
    (cdb::extended_copy(out.len() as u32), out)
}

async fn read(session: &Simple, volume: &Volume, writer: u64) -> Result<(), Lost> {
    let (lba, blocks) = volume.place();
    read_at(session, volume, writer, lba, blocks)
        .await
        .map(drop)
}

async fn read_at(
    session: &Simple,
    volume: &Volume,
    writer: u64,
    lba: u64,
    blocks: u64,
) -> Result<Option<Vec<u8>>, Lost> {
    let begun = volume.check(|checker| checker.begin_read(lba, blocks));
    note(&[28, writer, lba, blocks], || {
        format!(
            "nexus {writer} starts to read LUN {} {lba}+{blocks}",
            volume.lun
        )
    });
    let command = Command {
        lun: volume.lun,
        cdb: cdb::read_16(lba, blocks as u32),
        out: Vec::new(),
        in_bytes: blocks as u32 * BLOCK as u32,
    };
    let answer = session.execute(command).await;
    if !matches!(&answer, Ok(answer) if answer.status == GOOD) {
        volume.check(|checker| checker.read_nothing(begun));
    }
    let answer = answer?;
    note(&[24, writer, lba, blocks], || {
        format!(
            "nexus {writer} reads LUN {} {lba}+{blocks}: {:#x}",
            volume.lun, answer.status
        )
    });
    if answer.status == GOOD {
        volume.check_read(writer, begun, lba, &answer.data);
    }
    expect_plain(&answer);
    Ok((answer.status == GOOD).then_some(answer.data))
}

async fn flush(session: &Simple, volume: &Volume, writer: u64) -> Result<(), Lost> {
    let begun = volume.check(|checker| checker.now());
    note(&[28, writer], || {
        format!("nexus {writer} requests a flush of LUN {}", volume.lun)
    });
    let command = Command {
        lun: volume.lun,
        cdb: commands::SYNCHRONIZE_CACHE_16.cdb(),
        out: Vec::new(),
        in_bytes: 0,
    };
    let answer = session.execute(command).await?;
    note(&[25, writer], || {
        format!(
            "nexus {writer} flushes LUN {}: {:#x}",
            volume.lun, answer.status
        )
    });
    match answer.status {
        GOOD => volume.check_flush(writer, begun),
        _ => volume.check(|checker| checker.flush_failed(writer)),
    }
    Ok(())
}

/// Resets the logical unit. After that, earlier requests of this nexus no longer take effect; requests of
/// others may still be in transit. The nexus then sometimes accesses the blocks of its aborted requests
/// again: if one of those requests still took effect, it would overwrite newer data.
async fn reset(
    simulation: &Simulation,
    session: &Simple,
    volume: &Volume,
    writer: u64,
) -> Result<(), Lost> {
    let (begun, given_up) = volume.check(|checker| (checker.now(), checker.under_way(writer)));
    // If a copy to this LUN was sent to another LUN, the reset aborts it if it has started. If it has not
    // started, it will be executed later.
    let not_begun: Vec<_> = {
        let begins = |cmd_sn: u32| simulation.is_roomy() && session.has_begun(cmd_sn);
        let copies = volume.copies.borrow();
        copies
            .iter()
            .filter(|(_, cmd_sn)| !begins(*cmd_sn))
            .map(|(copy, _)| *copy)
            .collect()
    };
    note(&[26, writer], || {
        format!("nexus {writer} resets LUN {}", volume.lun)
    });
    let response = session
        .manage(Function::LunReset, volume.lun, u32::MAX)
        .await?;
    note(&[27, writer, u64::from(response)], || {
        format!("nexus {writer}: LUN {} is reset: {response}", volume.lun)
    });
    if response != 0 {
        return Ok(());
    }
    volume.check(|checker| checker.are_over_but(writer, begun, &not_begun));
    let returns = if draw(|random| random.once_in(2)) {
        4
    } else {
        0
    };
    // Start with the latest requests, because earlier ones are more likely to have completed before the
    // reset.
    for (lba, blocks) in given_up.into_iter().rev().take(returns) {
        read_at(session, volume, writer, lba, blocks).await?;
        if draw(|random| random.once_in(2)) {
            write(
                simulation,
                session,
                volume,
                writer,
                WriteCommand::Write,
                (lba, blocks),
            )
            .await?;
        }
        let wait = draw(|random| random.mostly_small(1_000, 100_000_000));
        reactor::sleep(Duration::from_nanos(wait)).await;
        read_at(session, volume, writer, lba, blocks).await?;
    }
    Ok(())
}

/// Sends a copy, and then immediately a reset of its destination.
async fn copy_into_a_reset(
    simulation: &Rc<Simulation>,
    session: &Simple,
    volume: &Rc<Volume>,
    writer: u64,
) -> Result<(), Lost> {
    let copy = {
        let (simulation, session, volume) =
            (Rc::clone(simulation), session.clone(), Rc::clone(volume));
        async move {
            write(
                &simulation,
                &session,
                &volume,
                writer,
                WriteCommand::Copy,
                volume.place(),
            )
            .await
        }
    };
    let copying = reactor::spawn(copy);
    let wait = draw(|random| random.of_any_size(1_000, 100_000_000));
    reactor::sleep(Duration::from_nanos(wait)).await;
    if draw(|random| random.once_in(2)) {
        // Once a later command has been answered, the copy has started.
        let ready = Command {
            lun: volume.lun,
            cdb: cdb::test_unit_ready(),
            out: Vec::new(),
            in_bytes: 0,
        };
        session.execute(ready).await?;
    }
    reset(simulation, session, volume, writer).await?;
    copying.await
}

/// Registers the key of this nexus, so that it may write to the reserved volume.
pub(crate) async fn register(session: &Simple, volume: &Volume, writer: u64) -> Result<(), Lost> {
    let list = ReserveOutList {
        service_action_key: writer,
        persist: true,
        ..ReserveOutList::default()
    };
    let action = ReserveOut::RegisterAndIgnoreExistingKey;
    let cdb = cdb::persistent_reserve_out(action, 0, ReserveOutList::BYTES as u32);
    let out = list.write().to_vec();
    session.window().await;
    volume.registrations.borrow_mut().asks(writer);
    // If the registration is not answered, it remains outstanding until the nexus logs in again.
    let answer = session
        .execute(Command {
            lun: volume.lun,
            cdb,
            out,
            in_bytes: 0,
        })
        .await?;
    note(&[29, writer], || {
        format!(
            "nexus {writer} registers at LUN {}: {:#x}",
            volume.lun, answer.status
        )
    });
    // A registration that a reset has aborted may still take effect, because its state is still saved.
    if answer.status != ENDED {
        volume
            .registrations
            .borrow_mut()
            .is_answered(writer, answer.status == GOOD);
    }
    Ok(())
}

/// Accepts only responses that a correct server may return in a simulation with faults.
fn expect_plain(answer: &CommandResult) {
    if answer.status == CHECK_CONDITION && answer.sense.is_some_and(|(key, ..)| key == 5) {
        universe::fault(format!("a legal command is rejected: {answer:?}"));
    }
}

/// Reads all blocks of all volumes, with retries.
pub(crate) async fn read_everything(simulation: Rc<Simulation>) {
    let slow = Slowness {
        reads_once_in: crate::disk::NEVER,
        sends_once_in: crate::disk::NEVER,
        longest: 1_000_000,
    };
    let terms = Terms {
        slow,
        ..terms(&simulation, 15)
    };
    'again: loop {
        let Some(session) = log_in(&simulation, &terms, 1, writer(15, 1)).await else {
            continue;
        };
        for volume in &simulation.volumes {
            let mut lba = 0;
            while lba < volume.blocks {
                let blocks = (volume.blocks - lba).min(64);
                let begun = volume.check(|checker| checker.begin_read(lba, blocks));
                let in_bytes = blocks as u32 * BLOCK as u32;
                let command = Command {
                    lun: volume.lun,
                    cdb: cdb::read_16(lba, blocks as u32),
                    out: Vec::new(),
                    in_bytes,
                };
                let answer = session.execute(command).await;
                if !matches!(&answer, Ok(answer) if answer.status == GOOD) {
                    volume.check(|checker| checker.read_nothing(begun));
                }
                let Ok(answer) = answer else { continue 'again };
                if answer.status == GOOD {
                    volume.check_read(writer(15, 1), begun, lba, &answer.data);
                    lba += blocks;
                } else {
                    reactor::sleep(Duration::from_millis(10)).await;
                }
            }
        }
        return session.leave();
    }
}
