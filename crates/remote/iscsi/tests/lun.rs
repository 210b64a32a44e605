//! Tests of a LUN of a scripted target, which replaces the LUN, delays writes, and loses its session.

use std::future::{poll_fn, ready};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::Poll;
use std::time::Duration;

use block::{BlockDevice, Buffer, DeviceError, Durability, Extent, Pending};
use iscsi_client::{
    Answer, Carrier, CommandEnd, CommandError, CommandRecord, CommandSpec, Management, Nexus,
    RemoteLun, RemoteTarget, Residual, Status, TaskManagementResult, Timeouts, Transfer,
};
use reactor::{Alone, block_on};

/// The target's behaviour.
#[derive(Default)]
struct Script {
    /// The last byte of the LUN's name.
    name: u8,
    /// The ADDITIONAL SENSE CODE and QUALIFIER of the next unit attention.
    attention: Option<(u8, u8)>,
    /// Whether the LUN was removed.
    is_gone: bool,
    /// Whether writes time out. If `holds` is set, they receive no response at all.
    times_out: bool,
    holds: bool,
    /// The number of writes sent.
    writes: u64,
}

#[derive(Default)]
struct Scripted {
    script: Mutex<Script>,
    session: AtomicU64,
    is_lost: AtomicBool,
    /// Whether cancelled commands may still be executed. With `is_unsettled`, it cannot be determined whether
    /// they have ended.
    is_busy: AtomicBool,
    is_unsettled: AtomicBool,
}

impl Scripted {
    fn script(&self) -> MutexGuard<'_, Script> {
        self.script.lock().expect("no panic")
    }

    fn answer(
        &self,
        CommandSpec {
            cdb,
            transfer,
            epoch,
            ..
        }: CommandSpec,
    ) -> Option<CommandEnd> {
        let mut script = self.script();
        let bytes = cdb.as_ref();
        if epoch.is_some_and(|epoch| epoch != self.session.load(SeqCst)) {
            return Some(CommandEnd::unsent(transfer, CommandError::Reinstated));
        }
        let is_write = matches!(bytes[0], 0x2a | 0x8a | 0x93);
        script.writes += u64::from(is_write);
        if bytes[0] != 0x12 && script.is_gone {
            return Some(refused(transfer, 0x5, (0x25, 0)));
        }
        if bytes[0] != 0x12
            && let Some(attention) = script.attention.take()
        {
            script.writes -= u64::from(is_write);
            return Some(refused(transfer, 0x6, attention));
        }
        match bytes[0] {
            0x12 => {
                let page = (bytes[1] & 1 == 1).then_some(bytes[2]);
                let there = if script.is_gone { 0x7f } else { 0 };
                let inquiry = match page {
                    None => [&[there, 0, 6, 2, 31, 0, 0, 0][..], &[b' '; 28]].concat(),
                    Some(0x00) => vec![there, 0, 0, 2, 0, 0x83],
                    Some(0x83) => {
                        let name = [0x60, 1, 2, 3, 4, 5, 6, 7, 0, 0, 0, 0, 0, 0, 0, script.name];
                        [&[there, 0x83, 0, 20, 1, 3, 0, 16][..], &name].concat()
                    }
                    Some(_) => return Some(refused(transfer, 0x5, (0x24, 0))),
                };
                Some(given(transfer, &inquiry))
            }
            0x9e => {
                let mut capacity = [0; 32];
                (capacity[7], capacity[10]) = (63, 2); // 64 blocks of 512 bytes
                Some(given(transfer, &capacity))
            }
            _ if is_write && script.holds => None,
            _ if is_write && script.times_out => {
                Some(CommandEnd::unfinished(CommandError::TimedOut))
            }
            0x1a | 0x5a => Some(refused(transfer, 0x5, (0x20, 0))),
            _ => Some(given(transfer, &[])),
        }
    }
}

fn status(status: u8, sense: &[u8], in_bytes: usize) -> Status {
    Status {
        status,
        sense: sense.into(),
        in_bytes,
        residual: Residual::None,
    }
}

fn refused(transfer: Transfer, key: u8, (code, qualifier): (u8, u8)) -> CommandEnd {
    let sense = [0x72, key, code, qualifier, 0, 0, 0, 0];
    CommandEnd {
        outcome: Ok(status(2, &sense, 0)),
        transfer,
        was_sent: true,
    }
}

fn given(mut transfer: Transfer, data: &[u8]) -> CommandEnd {
    let mut in_bytes = 0;
    if let Transfer::In { buffer, range } = &mut transfer {
        in_bytes = data.len().min(range.len());
        buffer[range.start..][..in_bytes].copy_from_slice(&data[..in_bytes]);
    }
    CommandEnd {
        outcome: Ok(status(0, &[], in_bytes)),
        transfer,
        was_sent: true,
    }
}

/// The target's end of a session.
struct Session(Arc<Scripted>);

impl Carrier for Session {
    fn carry(&self, command: CommandSpec) -> Answer<'_, CommandEnd> {
        match self.0.answer(command) {
            Some(ended) => Box::pin(ready(ended)),
            None => Box::pin(std::future::pending()),
        }
    }

    fn manage(&self, _: Management) -> Answer<'_, Result<TaskManagementResult, CommandError>> {
        Box::pin(ready(Err(CommandError::Rejected)))
    }

    fn usable(&self) -> Answer<'_, Result<(), CommandError>> {
        Box::pin(ready(Ok(())))
    }

    fn quiesced(&self) -> Answer<'_, Result<(), CommandError>> {
        Box::pin(async {
            while self.0.is_busy.load(SeqCst) {
                reactor::sleep(Duration::from_millis(1)).await;
            }
            if self.0.is_unsettled.load(SeqCst) {
                Err(CommandError::ConnectionLost)
            } else {
                Ok(())
            }
        })
    }

    fn close(&self) -> Answer<'_, ()> {
        Box::pin(ready(()))
    }

    fn reinstatements(&self) -> u64 {
        self.0.session.load(SeqCst)
    }

    fn is_lost(&self) -> bool {
        self.0.is_lost.load(SeqCst)
    }

    fn replayed(&self) {}

    fn data_bytes_max(&self) -> usize {
        1 << 20
    }

    fn nexus(&self) -> Nexus {
        unreachable!("nobody asks")
    }
}

fn with_lun(scene: impl AsyncFnOnce(RemoteLun, Arc<Scripted>)) {
    block_on(Alone::virtual_time(), async {
        let target = Arc::new(Scripted::default());
        let session = Session(Arc::clone(&target));
        let timeouts = Timeouts::default();
        let remote = RemoteTarget::carried(session, &CommandRecord::default(), timeouts);
        let lun = remote.lun(0).await.expect("a disk");
        scene(lun, target).await
    });
}

fn write(lun: &RemoteLun) -> Pending<'_, ()> {
    lun.write(
        Extent::new(8, 1),
        Buffer::zeroed(512).share(),
        Durability::Cached,
    )
}

async fn is_pending(pending: &mut Pending<'_, ()>) -> bool {
    poll_fn(|cx| Poll::Ready(pending.as_mut().poll(cx).is_pending())).await
}

#[test]
fn a_lun_that_is_exchanged_within_its_session_is_not_written_on() {
    for attention in [(0x29, 0), (0x3f, 0x03), (0x3f, 0x0e)] {
        with_lun(async |lun, target| {
            assert_eq!(write(&lun).await, Ok(()));
            target.script().name = 1;
            target.script().attention = Some(attention);
            for _ in 0..2 {
                assert_eq!(
                    write(&lun).await,
                    Err(DeviceError::NotReady),
                    "{attention:x?}"
                );
            }
            assert_eq!(target.script().writes, 1);
        });
    }
}

#[test]
fn a_lun_that_has_gone_is_looked_at_when_there_is_one_again() {
    for name in [0, 1] {
        with_lun(async |lun, target| {
            target.script().is_gone = true;
            assert_eq!(write(&lun).await, Err(DeviceError::NotReady));
            let sent = target.script().writes;
            assert_eq!(write(&lun).await, Err(DeviceError::NotReady));
            target.script().name = name;
            target.script().is_gone = false;
            let expected = if name == 0 {
                Ok(())
            } else {
                Err(DeviceError::NotReady)
            };
            assert_eq!(write(&lun).await, expected);
            assert_eq!(target.script().writes - sent, u64::from(name == 0));
        });
    }
}

#[test]
fn a_reset_of_the_same_lun_is_passed_over() {
    with_lun(async |lun, target| {
        target.script().attention = Some((0x29, 0));
        assert_eq!(write(&lun).await, Ok(()));
        assert_eq!(target.script().writes, 1);
    });
}

/// Targets may execute commands in any order, and complete an abort at any time.
#[test]
fn a_write_waits_until_one_of_its_blocks_that_timed_out_has_ended() {
    with_lun(async |lun, target| {
        target.script().times_out = true;
        target.is_busy.store(true, SeqCst);
        assert_eq!(write(&lun).await, Err(DeviceError::TimedOut));
        target.script().times_out = false;
        let mut newer = write(&lun);
        assert!(is_pending(&mut newer).await);
        let elsewhere = lun.write(
            Extent::new(9, 1),
            Buffer::zeroed(512).share(),
            Durability::Cached,
        );
        assert_eq!(elsewhere.await, Ok(()));
        assert_eq!(target.script().writes, 2);
        target.is_busy.store(false, SeqCst);
        assert_eq!(newer.await, Ok(()));
        assert_eq!(write(&lun).await, Ok(()));
        assert_eq!(target.script().writes, 4);
    });
}

#[test]
fn blocks_of_a_write_that_was_dropped_are_barred_while_it_may_be_carried_out() {
    with_lun(async |lun, target| {
        target.script().holds = true;
        let mut dropped = write(&lun);
        assert!(is_pending(&mut dropped).await);
        drop(dropped);
        target.script().holds = false;
        target.is_lost.store(true, SeqCst);
        target.is_unsettled.store(true, SeqCst);
        assert_eq!(write(&lun).await, Err(DeviceError::Unsettled));
        assert_eq!(target.script().writes, 1);
    });
}
