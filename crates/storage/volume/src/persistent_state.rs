//! The persistent state of a volume, apart from its blocks: reservations, bytes of the front end, and a
//! record of lost acknowledged writes.

use std::num::NonZeroU64;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use block::{BlockDevice, DeviceError, Exclusive, Extent, Lock, Pending};
use derive_more::Display;

use crate::Volume;
use crate::reservations::{
    HostPath, HostPort, Ports, REGISTRATIONS_MAX, Registration, Registrations, Reservation,
    ReservationType, ServicePort,
};

/// A value that is different after each loss of acknowledged writes. It is a part of the cache generation
/// that initiators compare.
pub type LossMark = [u8; 16];

/// The storage for state that must survive a restart, such as reservations and mode pages.
pub trait PersistentState: Send + Sync {
    /// Replaces the saved bytes. Resolves when the new bytes are on stable storage.
    fn save<'a>(&'a self, bytes: Vec<u8>) -> Pending<'a, ()>;

    /// Returns the bytes saved last, if any.
    fn load(&self) -> Option<Vec<u8>>;

    /// Returns the mark of the last loss of acknowledged writes recorded before this start; zeros if there
    /// was none.
    fn loss_mark(&self) -> LossMark;

    /// Returns a new mark, which has not been used before.
    fn new_loss_mark(&self) -> LossMark;

    /// Records that acknowledged writes were lost although the device's cache survived. `mark` becomes the
    /// loss mark at the next start. Resolves when the record is on stable storage, or could not be written.
    fn record_loss(&self, mark: LossMark) -> Pending<'_, ()>;
}

/// The lock for changes of the saved state. It is held from reading the state in memory until the saved state
/// and the state in memory have changed, so that saves do not overtake one another.
pub struct SaveLock(#[expect(dead_code, reason = "held, not read")] Exclusive);

/// The error if the state, which must survive a restart, could not be saved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unsaved;

impl Volume {
    /// Waits for the lock for changes of the saved state.
    pub async fn lock_to_save(&self) -> SaveLock {
        SaveLock(self.save_locks.exclude(Extent::new(0, 1)).await)
    }

    /// Saves `next` in place of the current reservations, unless the saved bytes would be the same. `next`
    /// takes effect only with [`Volume::set_reservations`]. So every acknowledged change has been saved, and
    /// a change that could not be saved has no effect.
    ///
    /// # Errors
    /// The state could not be saved. Nothing has changed.
    pub async fn save_reservations(
        &self,
        next: &Registrations,
        lock: &SaveLock,
    ) -> Result<(), Unsaved> {
        let reservations = next.to_bytes();
        if reservations == self.reservations().to_bytes() {
            return Ok(());
        }
        let front_end = self.front_end_state();
        self.save(
            Saved {
                reservations,
                front_end,
            },
            lock,
        )
        .await
    }

    /// Replaces the front end's saved bytes.
    ///
    /// # Errors
    /// The state could not be saved. Nothing has changed.
    pub async fn save_front_end_state(
        &self,
        bytes: Vec<u8>,
        lock: &SaveLock,
    ) -> Result<(), Unsaved> {
        let reservations = self.reservations().to_bytes();
        self.save(
            Saved {
                reservations,
                front_end: bytes.clone(),
            },
            lock,
        )
        .await?;
        self.set_front_end_state(bytes);
        Ok(())
    }

    /// Returns the front end's saved bytes, which may be empty.
    pub fn front_end_state(&self) -> Vec<u8> {
        self.front_end_state.lock().clone()
    }

    /// Sets the front end's bytes. The next save saves them too.
    pub fn set_front_end_state(&self, bytes: Vec<u8>) {
        *self.front_end_state.lock() = bytes;
    }

    async fn save(&self, saved: Saved, _lock: &SaveLock) -> Result<(), Unsaved> {
        let state = self.persistent_state.as_ref().ok_or(Unsaved)?;
        state.save(saved.to_bytes()).await.map_err(|_| Unsaved)
    }

    /// Returns whether the volume has storage for persistent state.
    pub fn can_save(&self) -> bool {
        self.persistent_state.is_some()
    }
}

/// The two parts of the saved state, each in its own format: persistent reservations with APTPL, and the
/// state of the front end (mode pages in SCSI).
///
/// ```text
///  0    magic "LINERATE"
///  8    version u16, 1
///  10   reservations: length u32 · bytes
///  ...  front end:    length u32 · bytes
///  -4   CRC-32C of all bytes before it
/// ```
///
/// All numbers are big-endian. If anything deviates from this format, all bytes count as [`Damaged`], and
/// opening the volume fails: a part of the reservations could be mistaken for the complete state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Saved {
    /// The encoded [`Registrations`](crate::reservations::Registrations).
    pub(crate) reservations: Vec<u8>,
    pub(crate) front_end: Vec<u8>,
}

/// The error if the saved bytes of a volume are truncated or changed, or belong to a later version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display)]
#[display("the saved reservations and mode pages are damaged or of a later version")]
pub struct Damaged;

impl std::error::Error for Damaged {}

const MAGIC: &[u8; 8] = b"LINERATE";
const VERSION: u16 = 1;

impl Saved {
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend(VERSION.to_be_bytes());
        for part in [&self.reservations, &self.front_end] {
            debug_assert!(u32::try_from(part.len()).is_ok());
            bytes.extend((part.len() as u32).to_be_bytes());
            bytes.extend(part);
        }
        bytes.extend(crc32c(&bytes).to_be_bytes());
        bytes
    }

    /// Decodes the bytes from [`Saved::to_bytes`].
    pub(crate) fn from_bytes(bytes: &[u8]) -> Result<Saved, Damaged> {
        let (body, crc) = bytes.split_last_chunk::<4>().ok_or(Damaged)?;
        if crc32c(body) != u32::from_be_bytes(*crc) {
            return Err(Damaged);
        }
        let mut reader = Reader::new(body);
        if reader.array()? != *MAGIC || reader.u16()? != VERSION {
            return Err(Damaged);
        }
        let kept = Saved {
            reservations: reader.part()?,
            front_end: reader.part()?,
        };
        reader.end()?;
        Ok(kept)
    }
}

/// Decodes numbers and byte strings from the front of a slice.
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { rest: bytes }
    }

    pub(crate) fn bytes(&mut self, length: usize) -> Result<&'a [u8], Damaged> {
        let (bytes, rest) = self.rest.split_at_checked(length).ok_or(Damaged)?;
        debug_assert_eq!(bytes.len(), length);
        self.rest = rest;
        Ok(bytes)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], Damaged> {
        let (bytes, rest) = self.rest.split_first_chunk().ok_or(Damaged)?;
        self.rest = rest;
        Ok(*bytes)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, Damaged> {
        self.array().map(u8::from_be_bytes)
    }

    pub(crate) fn u16(&mut self) -> Result<u16, Damaged> {
        self.array().map(u16::from_be_bytes)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, Damaged> {
        self.array().map(u32::from_be_bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64, Damaged> {
        self.array().map(u64::from_be_bytes)
    }

    fn part(&mut self) -> Result<Vec<u8>, Damaged> {
        let length = self.u32()?;
        self.bytes(length as usize).map(<[u8]>::to_vec)
    }

    /// Checks that all bytes have been decoded.
    pub(crate) fn end(&self) -> Result<(), Damaged> {
        if self.rest.is_empty() {
            Ok(())
        } else {
            Err(Damaged)
        }
    }
}

/// Returns the CRC-32C, computed bit by bit: occasional checksums over a few kilobytes need no table.
fn crc32c(bytes: &[u8]) -> u32 {
    let step = |crc: u32, _: u32| {
        if crc & 1 != 0 {
            crc >> 1 ^ 0x82f6_3b78
        } else {
            crc >> 1
        }
    };
    !bytes
        .iter()
        .fold(!0, |crc, &byte| (0..8).fold(crc ^ u32::from(byte), step))
}

/// Identifies a period without a loss of acknowledged writes from a volatile cache. A host that finds a
/// different value than before must assume that its unflushed writes were lost. If the value is the same,
/// nothing was lost, even if the server was restarted.
pub type CacheGeneration = [u8; 16];

/// The encoding of registrations, for a file that survives a power loss (APTPL, SPC-4 5.12.5).
///
/// ```text
///  registrations: count u32, then each: host · key u64 · ports
///  reservation:   type u8 (0: none), then host · port
///  host:          name · qualifier [6]
///  ports:         one: 0 u8 · port      all except some: 1 u8 · count u16 · ports
///  port:          name · group u16 · relative port u16
///  name:          length u16 · UTF-8 bytes
/// ```
///
/// All numbers are big-endian. PRGENERATION is not included: it restarts at power on (SPC-4 6.15.2). The
/// checksum of [`Saved`] also covers these bytes. In addition, the decoder rejects bytes that the encoder
/// cannot produce.
impl Registrations {
    /// Encodes the state that survives a power loss: with APTPL, all of it; otherwise, nothing.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        if !self.persist_through_power_loss {
            return bytes;
        }
        debug_assert!(self.registered.len() <= REGISTRATIONS_MAX);
        bytes.extend((self.registered.len() as u32).to_be_bytes());
        for registration in &self.registered {
            put_host(&mut bytes, &registration.host);
            bytes.extend(registration.key.get().to_be_bytes());
            put_ports(&mut bytes, &registration.ports);
        }
        match &self.reservation {
            None => bytes.push(0),
            Some(reservation) => {
                bytes.push(reservation.kind.code());
                put_host(&mut bytes, &reservation.holder.host);
                put_port(&mut bytes, &reservation.holder.service);
            }
        }
        bytes
    }

    /// Decodes the bytes from [`Registrations::to_bytes`].
    pub(crate) fn from_bytes(bytes: &[u8]) -> Result<Registrations, Damaged> {
        if bytes.is_empty() {
            return Ok(Registrations::default());
        }
        let mut reader = Reader::new(bytes);
        let count = reader.u32()? as usize;
        if count > REGISTRATIONS_MAX {
            return Err(Damaged);
        }
        let mut state = Registrations {
            persist_through_power_loss: true,
            ..Registrations::default()
        };
        for _ in 0..count {
            state.registered.push(registration(&mut reader)?);
        }
        state.reservation = reservation(&mut reader)?;
        reader.end()?;
        state.is_consistent().then_some(state).ok_or(Damaged)
    }
}

fn registration(reader: &mut Reader<'_>) -> Result<Registration, Damaged> {
    Ok(Registration {
        host: host(reader)?,
        key: NonZeroU64::new(reader.u64()?).ok_or(Damaged)?,
        ports: ports(reader)?,
    })
}

fn reservation(reader: &mut Reader<'_>) -> Result<Option<Reservation>, Damaged> {
    let code = reader.u8()?;
    if code == 0 {
        return Ok(None);
    }
    let kind = ReservationType::from_code(code).ok_or(Damaged)?;
    let holder = HostPath {
        host: host(reader)?,
        service: port(reader)?,
    };
    Ok(Some(Reservation { kind, holder }))
}

fn put_host(bytes: &mut Vec<u8>, host: &HostPort) {
    put_name(bytes, &host.name);
    bytes.extend(host.qualifier);
}

fn host(reader: &mut Reader<'_>) -> Result<HostPort, Damaged> {
    Ok(HostPort {
        name: name(reader)?,
        qualifier: reader.array()?,
    })
}

fn put_ports(bytes: &mut Vec<u8>, ports: &Ports) {
    match ports {
        Ports::One(port) => {
            bytes.push(0);
            put_port(bytes, port);
        }
        Ports::AllBut(others) => {
            bytes.push(1);
            debug_assert!(others.len() <= usize::from(u16::MAX));
            bytes.extend((others.len() as u16).to_be_bytes());
            others.iter().for_each(|port| put_port(bytes, port));
        }
    }
}

fn ports(reader: &mut Reader<'_>) -> Result<Ports, Damaged> {
    match reader.u8()? {
        0 => Ok(Ports::One(port(reader)?)),
        1 => {
            let count = reader.u16()?;
            Ok(Ports::AllBut(
                (0..count).map(|_| port(reader)).collect::<Result<_, _>>()?,
            ))
        }
        _ => Err(Damaged),
    }
}

fn put_port(bytes: &mut Vec<u8>, port: &ServicePort) {
    put_name(bytes, &port.name);
    bytes.extend(port.group.to_be_bytes());
    bytes.extend(port.relative_port.to_be_bytes());
}

fn port(reader: &mut Reader<'_>) -> Result<ServicePort, Damaged> {
    Ok(ServicePort {
        name: name(reader)?,
        group: reader.u16()?,
        relative_port: reader.u16()?,
    })
}

/// Encodes a name. iSCSI names have at most 223 bytes (RFC 7143 4.2.7.1), so their length always fits.
fn put_name(bytes: &mut Vec<u8>, name: &str) {
    debug_assert!(name.len() <= usize::from(u16::MAX));
    bytes.extend((name.len() as u16).to_be_bytes());
    bytes.extend(name.as_bytes());
}

fn name(reader: &mut Reader<'_>) -> Result<String, Damaged> {
    let length = reader.u16()?;
    let bytes = reader.bytes(usize::from(length))?;
    String::from_utf8(bytes.to_vec()).map_err(|_| Damaged)
}

/// The count of lost acknowledged writes. Each front end reports losses to each of its initiators.
///
/// A device counts its losses ([`block::BlockDevice::losses`]). If a flush fails and the device does not
/// count this as a loss, the volume counts it here.
///
/// The front end's record of initiators to which a loss was reported is only in memory, and contains only
/// initiators that were logged in. An initiator of an earlier server process detects possible losses from the
/// cache generation, which contains the mark of the last loss. The generation changes as soon as a loss is
/// counted, because such an initiator may log in at any time. A loss is recorded for the next start before it
/// is reported, because the kernel reports a failed write-back only once, and not to a server that starts
/// later.
#[derive(Default)]
pub(crate) struct LostWrites {
    /// Number of failed flushes that the device did not count as losses.
    uncounted: AtomicU64,
    /// The number of losses that have been recorded for the next start.
    recorded: AtomicU64,
    /// The number of losses that the mark represents, and the mark.
    marked: Lock<(u64, LossMark)>,
    /// The time at which the first user arrived.
    first_arrival: OnceLock<Instant>,
}

/// Time in which users return, for example after a restart of the server.
pub(crate) const RETURN_TIME: Duration = Duration::from_secs(300);

impl LostWrites {
    /// Starts without losses. `mark` is the mark of earlier losses.
    pub(crate) fn since(mark: LossMark) -> LostWrites {
        LostWrites {
            marked: Lock::new((0, mark)),
            ..LostWrites::default()
        }
    }
}

impl Volume {
    /// Flushes acknowledged writes to stable storage.
    ///
    /// # Errors
    /// If the error [is a loss](DeviceError::is_loss), acknowledged writes may be lost, and
    /// [`Volume::lost_writes`] has increased during this call.
    pub async fn flush(&self) -> Result<(), DeviceError> {
        let counted = self.device.losses().count();
        // Ignore reports of earlier losses, which the front ends report to each of their hosts.
        let flushed = block::flush_now(&*self.device).await;
        if flushed.is_err_and(DeviceError::is_loss) && self.device.losses().count() == counted {
            self.lost_writes.uncounted.fetch_add(1, Ordering::AcqRel);
        }
        self.record_lost_writes().await;
        flushed
    }

    /// Flushes a change to stable storage. `before` is the number of losses ([`Volume::lost_writes`]) when
    /// the change started. An earlier loss does not cause an error here: the sender would relate the error
    /// only to this change. Earlier losses are reported in responses to flushes.
    ///
    /// # Errors
    /// Returns the errors of [`Volume::flush`], and [`DeviceError::WritesLost`] if a loss has been
    /// counted since the change started, which may include this change.
    pub async fn settle(&self, before: u64) -> Result<(), DeviceError> {
        self.flush().await?;
        if self.lost_writes() == before {
            Ok(())
        } else {
            Err(DeviceError::WritesLost)
        }
    }

    /// Call this when the volume is closed without a successful flush. Counts the writes acknowledged since
    /// the last flush as lost, because a later failure to write them back would not be detected. Records the
    /// loss for the next start.
    pub async fn abandon_unflushed(&self) {
        self.lost_writes.uncounted.fetch_add(1, Ordering::AcqRel);
        self.record_lost_writes().await;
    }

    /// Records losses for the next start, and lets the device delete its own record of them. Call this before a
    /// loss is reported. A loss that cannot be recorded is reported nevertheless. A volume without persistent
    /// state has only the device's record, which lasts until the report.
    pub async fn record_lost_writes(&self) {
        let is_recorded = |losses| losses <= self.lost_writes.recorded.load(Ordering::Acquire);
        if is_recorded(self.lost_writes()) {
            return;
        }
        // This lock ensures that marks are stored in order.
        let _order = self.save_locks.exclude(Extent::new(1, 1)).await;
        let of_device = self.device.losses().count();
        let losses = self.lost_writes();
        if is_recorded(losses) {
            return;
        }
        if let Some(state) = &self.persistent_state
            && state.record_loss(self.loss_mark()).await.is_err()
        {
            return;
        }
        self.lost_writes
            .recorded
            .fetch_max(losses, Ordering::AcqRel);
        self.device.losses_recorded(of_device);
    }

    /// Returns the mark of all losses so far.
    pub fn loss_mark(&self) -> LossMark {
        let mut marked = self.lost_writes.marked.lock();
        // Read the count under the lock, because another thread may count and mark a loss at any time.
        let losses = self.lost_writes();
        debug_assert!(losses >= marked.0, "losses only grow");
        if losses > marked.0 {
            let unsaved = || u128::from(losses).to_be_bytes();
            let mark = self
                .persistent_state
                .as_ref()
                .map_or_else(unsaved, |state| state.new_loss_mark());
            *marked = (losses, mark);
        }
        marked.1
    }

    /// Returns the generation of the cache behind this volume: the generation at its start, combined with the
    /// mark of later losses. Returns `None` if the generation at the start is unknown. All protocols derive
    /// their reports from this value, so that no host mistakes a restart for a loss.
    pub fn cache_generation(&self) -> Option<CacheGeneration> {
        let mut generation = self.cache_generation?;
        generation
            .iter_mut()
            .zip(self.loss_mark())
            .for_each(|(byte, mark)| *byte ^= mark);
        Some(generation)
    }

    /// Returns the number of times that acknowledged writes were or may have been lost.
    pub fn lost_writes(&self) -> u64 {
        self.device.losses().count() + self.lost_writes.uncounted.load(Ordering::Acquire)
    }

    /// Returns the loss count that a front end presumes to have reported to an unknown user, who arrives `now`.
    /// A user that arrives within five minutes of the first one may have used the volume of an earlier server
    /// process. No loss counts as reported to it. To a later user, all earlier losses do.
    pub fn presumed_reported(&self, now: Instant) -> u64 {
        let first = *self.lost_writes.first_arrival.get_or_init(|| now);
        match now.saturating_duration_since(first) < RETURN_TIME {
            true => 0,
            false => self.lost_writes(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::Arc;
    use std::task::{Context, Poll, Waker};

    use block::{BlockSize, Geometry, LossCounter, Losses, Null, SingleUser};

    use super::*;
    use crate::reservations::Register;
    use crate::reservations::tests::{key, path, through};

    fn ready<T>(future: impl Future<Output = T>) -> T {
        let Poll::Ready(ended) = pin!(future).poll(&mut Context::from_waker(Waker::noop())) else {
            panic!("it waits")
        };
        ended
    }

    /// A device that may lose its cache without an error, as a remote device does.
    struct Forgetful(Null, LossCounter);

    impl BlockDevice for Forgetful {
        block::forward!(self => self.0; geometry, profile, read, write, flush, unmap, write_zeroes, allocation, quiesced);

        fn losses(&self) -> Losses {
            self.1.get()
        }

        fn losses_recorded(&self, count: u64) {
            self.1.recorded(count);
        }
    }

    /// Records losses, or fails to.
    struct Paper(Result<(), DeviceError>);

    impl PersistentState for Paper {
        fn save<'a>(&'a self, _: Vec<u8>) -> Pending<'a, ()> {
            Box::pin(async { Ok(()) })
        }

        fn load(&self) -> Option<Vec<u8>> {
            None
        }

        fn loss_mark(&self) -> LossMark {
            LossMark::default()
        }

        fn new_loss_mark(&self) -> LossMark {
            [7; 16]
        }

        fn record_loss(&self, _: LossMark) -> Pending<'_, ()> {
            Box::pin(async { self.0 })
        }
    }

    /// The device's journal file records the loss for the next process, until the volume does.
    #[test]
    fn a_device_keeps_its_record_of_a_loss_until_the_volume_has_recorded_it() {
        let geometry = Geometry {
            block_size: BlockSize::B512,
            blocks: block::Blocks(8),
            physical_exponent: 0,
        };
        for (result, are_recorded) in [(Ok(()), true), (Err(DeviceError::NoSpace), false)] {
            let losses = LossCounter::default();
            let device = Arc::new(Forgetful(Null::new(geometry), losses.clone()));
            let options = crate::VolumeOptions {
                persistent_state: Some(Arc::new(Paper(result))),
                ..Default::default()
            };
            let volume = Volume::new(device, options).expect("nothing was saved");
            losses.count();
            assert_eq!(ready(volume.device().flush()), Ok(()), "of a layer");
            assert!(!losses.are_recorded());
            ready(volume.record_lost_writes());
            assert_eq!(losses.are_recorded(), are_recorded, "{result:?}");
        }
    }

    /// A remote device reports a loss to the next flush of any requester.
    #[test]
    fn a_flush_does_not_fail_for_an_earlier_loss_that_the_device_reports() {
        let block_size = BlockSize::B512;
        let blocks = block_size.exact(1 << 20).expect("whole blocks");
        let losses = LossCounter::default();
        let inner = Null::new(Geometry {
            block_size,
            blocks,
            physical_exponent: 0,
        });
        let device = Arc::new(SingleUser::new(Forgetful(inner, losses.clone())));
        let volume = Volume::new(device, Default::default()).expect("nothing was saved");
        for flush in ["before a change is durable", "of a host"] {
            losses.count();
            let before = volume.lost_writes();
            match flush {
                "of a host" => assert_eq!(ready(volume.flush()), Ok(()), "{flush}"),
                _ => assert_eq!(ready(volume.settle(before)), Ok(()), "{flush}"),
            }
            assert_eq!(volume.lost_writes(), before, "{flush}: it is one loss");
        }
        assert_eq!(volume.lost_writes(), 2);
    }

    #[test]
    fn a_user_that_arrives_soon_after_the_first_may_be_one_that_returns() {
        let losses = LossCounter::default();
        let geometry = Geometry {
            block_size: BlockSize::B512,
            blocks: block::Blocks(8),
            physical_exponent: 0,
        };
        let device = Arc::new(Forgetful(Null::new(geometry), losses.clone()));
        let volume = Volume::new(device, Default::default()).expect("nothing was saved");
        let first = Instant::now();
        assert_eq!(volume.presumed_reported(first), 0);
        losses.count();
        assert_eq!(volume.presumed_reported(first + RETURN_TIME / 2), 0);
        assert_eq!(volume.presumed_reported(first + RETURN_TIME), 1);
    }

    fn kept() -> Saved {
        Saved {
            reservations: vec![1, 2, 3],
            front_end: vec![4; 70],
        }
    }

    #[test]
    fn both_parts_come_back() {
        assert_eq!(Saved::from_bytes(&kept().to_bytes()), Ok(kept()));
    }

    /// The usual check value of this CRC (RFC 3720 B.4), over "123456789".
    #[test]
    fn the_crc_is_castagnolis() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
    }

    #[test]
    fn bytes_cut_anywhere_are_damaged() {
        let bytes = kept().to_bytes();
        for length in 0..bytes.len() {
            assert_eq!(
                Saved::from_bytes(&bytes[..length]),
                Err(Damaged),
                "{length}"
            );
        }
    }

    #[test]
    fn a_changed_bit_is_damage() {
        let bytes = kept().to_bytes();
        for bit in 0..bytes.len() * 8 {
            let mut bytes = bytes.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Saved::from_bytes(&bytes), Err(Damaged), "{bit}");
        }
    }

    #[test]
    fn a_version_to_come_is_refused() {
        let mut bytes = kept().to_bytes();
        bytes[9] = 2;
        let body = bytes.len() - 4;
        let crc = crc32c(&bytes[..body]).to_be_bytes();
        bytes[body..].copy_from_slice(&crc);
        assert_eq!(Saved::from_bytes(&bytes), Err(Damaged));
    }

    fn persistent() -> Registrations {
        let mut state = Registrations::default();
        let lasting = Register {
            persist_through_power_loss: true,
            ..Register::new(key(0xabcd))
        };
        state.register(&path(1), &lasting.clone()).unwrap();
        state
            .register(
                &path(2),
                &Register {
                    all_ports: true,
                    ..lasting.clone()
                },
            )
            .unwrap();
        state
            .register(&through(2, 2), &Register { key: 0, ..lasting })
            .unwrap();
        state
            .reserve(
                &path(1),
                0xabcd,
                ReservationType::WriteExclusiveRegistrantsOnly,
            )
            .unwrap();
        state
    }

    #[test]
    fn all_but_the_generation_comes_back() {
        let before = persistent();
        let after = Registrations::from_bytes(&before.to_bytes()).unwrap();
        assert_eq!(
            after,
            Registrations {
                generation: 0,
                ..before
            }
        );
    }

    /// Files of earlier versions must remain readable.
    #[test]
    fn the_bytes_are_those_of_the_first_version() {
        let mut state = Registrations::default();
        let lasting = Register {
            persist_through_power_loss: true,
            ..Register::new(key(0xabcd))
        };
        state.register(&path(1), &lasting).unwrap();
        state
            .reserve(
                &path(1),
                0xabcd,
                ReservationType::WriteExclusiveRegistrantsOnly,
            )
            .unwrap();
        let host = b"\0\x16iqn.2026-11.test:host1\x40\0\0\0\0\x01";
        let port = b"\0\x17iqn.2026-11.test:target\0\x01\0\x01";
        let registered = [
            &[0, 0, 0, 1],
            &host[..],
            &[0, 0, 0, 0, 0, 0, 0xab, 0xcd],
            &[0],
            port,
        ]
        .concat();
        let reserved = [&[5], &host[..], port].concat();
        assert_eq!(state.to_bytes(), [registered, reserved].concat());
    }

    #[test]
    fn without_aptpl_nothing_is_kept() {
        let state = Registrations {
            persist_through_power_loss: false,
            ..persistent()
        };
        assert_eq!(
            Registrations::from_bytes(&state.to_bytes()),
            Ok(Registrations::default())
        );
    }

    #[test]
    fn bytes_cut_anywhere_are_refused() {
        let bytes = persistent().to_bytes();
        for length in 1..bytes.len() {
            assert_eq!(
                Registrations::from_bytes(&bytes[..length]),
                Err(Damaged),
                "{length}"
            );
        }
        let longer = [&bytes[..], &[0]].concat();
        assert_eq!(Registrations::from_bytes(&longer), Err(Damaged));
    }

    #[test]
    fn a_reservation_without_holder_is_refused() {
        let mut state = persistent();
        state.registered.remove(0);
        assert_eq!(Registrations::from_bytes(&state.to_bytes()), Err(Damaged));
    }

    proptest::proptest! {
        #[test]
        fn changed_bytes_never_make_it_panic(at in 0usize..200, value: u8) {
            let mut bytes = persistent().to_bytes();
            let at = at % bytes.len();
            bytes[at] = value;
            let _ = Registrations::from_bytes(&bytes);
        }
    }
}
