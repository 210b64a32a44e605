//! Opens a set: assembles it from the members in its specification.

use std::collections::BTreeMap;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use block::{
    Allocation, BlockDevice, BlockSize, Blocks, Buffer, DeviceError, Durability, Extent, Lock,
    Pending, Run, Slice, forward,
};
use derive_more::Display;
use raid::choose::{Candidate, FoundSet, Journal, LeftOut, Refusal, Trust, only_set};
use raid::disks::{self, Disk, OpenSet, Records};
use raid::superblock::{self, NoSuperblock, Uuid};
use raid::{
    Assembly, AssemblyError, Layout, MemberDevice, MemberStates, MetadataStore, Missed, Origin,
    ProtectionAreas, RaidDevice,
};
use volume::backend::Opening;
use volume::spec::{Spec, Time};

use crate::failure::{Failure, FailureKind};
use crate::peers::random;
use crate::raid::running::{self, Names, Running};
use crate::raid::{LOST, Raid, STRIP, WRONG, check_losses_are_seen, has_set};

/// Maximum memory of a set for the buffers of outstanding stripes.
const MEMORY_BYTES: u64 = 64 << 20;

/// The time for which a starting server waits for members, unless `assemble-wait` is set. Disks and other
/// hosts that start at the same time are available sooner.
const ASSEMBLE_WAIT: Time = Time(Duration::from_secs(30));
/// Interval at which the server checks whether awaited members have become available.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The disks that could be opened, and the members that could not, with the reasons.
#[derive(Default)]
pub(crate) struct Members {
    pub(crate) disks: Vec<Disk>,
    pub(crate) absent: Vec<Absent>,
}

/// A member that could not be opened.
#[derive(Display)]
#[display("{spec}: {failure}")]
pub(crate) struct Absent {
    spec: Spec,
    failure: Failure,
}

/// Devices of a stopped set, by the names of their volumes. The next assembly uses those that respond again.
#[derive(Default)]
pub(crate) struct Kept(pub(crate) Vec<Disk>);

impl Kept {
    /// Returns the device of a volume, if it responds. If it does not, a file or disk is closed, because its
    /// path may now refer to another file or disk.
    async fn device(&mut self, spec: &Spec) -> Option<Result<Arc<dyn BlockDevice>, Absent>> {
        let name = spec.to_string();
        let at = self.0.iter().position(|kept| kept.name == name)?;
        let device = Arc::clone(&self.0[at].device);
        match superblock::read(device.as_ref()).await {
            Err(NoSuperblock::Unreadable(error)) if has_set(spec) => Some(Err(Absent {
                spec: spec.clone(),
                failure: Failure::device("cannot read the superblock", error),
            })),
            Err(NoSuperblock::Unreadable(_)) => {
                // A session is kept open, because the session may recover, together with its acknowledged
                // writes.
                if !spec.is_remote() {
                    self.0.remove(at);
                }
                None
            }
            _ => Some(Ok(device)),
        }
    }
}

impl Members {
    /// Opens the members. A member that cannot be opened counts as missing, and the set may start without it.
    /// A member that is present, but read-only or in use elsewhere, is an error: starting without it would
    /// exclude it permanently, and its other user may be running the set.
    pub(crate) async fn open(specs: &[Spec], opening: &Opening) -> Result<Members, Failure> {
        let mut members = Members::default();
        members.add(specs, opening, &mut Kept::default()).await?;
        Ok(members)
    }

    async fn add(
        &mut self,
        specs: &[Spec],
        opening: &Opening,
        kept: &mut Kept,
    ) -> Result<(), Failure> {
        for spec in specs {
            let absent = |failure| Absent {
                spec: spec.clone(),
                failure,
            };
            match kept.device(spec).await {
                Some(Ok(device)) => {
                    self.disks.push(Disk {
                        name: spec.to_string(),
                        device,
                    });
                    continue;
                }
                Some(Err(absent)) => {
                    self.absent.push(absent);
                    continue;
                }
                None => {}
            }
            // Do not create a missing file: an empty file is not a member of the set.
            if let Some(path) = spec.file().filter(|path| !path.exists()) {
                let why = format_args!("{} does not exist", path.display());
                self.absent.push(absent(Failure::refused(why)));
                continue;
            }
            match spec.open(opening).await {
                Ok(device) if device.profile().read_only && !opening.read_only => {
                    return Err(Failure::refused(format_args!(
                        "{spec} is a member of the set, but is not writable"
                    )));
                }
                Ok(device) => self.disks.push(Disk {
                    name: spec.to_string(),
                    device,
                }),
                Err(error) => match Failure::from(error) {
                    failure if failure.is_in_use() && !opening.read_only => {
                        return Err(failure.and(WITHOUT_IT));
                    }
                    failure => self.absent.push(absent(failure)),
                },
            }
        }
        Ok(())
    }

    /// Returns whether there are members that may become available later.
    fn are_awaited(&self, candidates: &[Candidate]) -> bool {
        let is_unreadable = |candidate: &Candidate| {
            matches!(candidate.superblock, Err(NoSuperblock::Unreadable(_)))
        };
        !self.absent.is_empty() || candidates.iter().any(is_unreadable)
    }

    /// Appends the reasons why members could not be opened to a sentence.
    pub(crate) fn and_absent(&self, sentence: String) -> String {
        self.absent
            .iter()
            .fold(sentence, |all, absent| format!("{all}; {absent}"))
    }

    /// Returns the failure of a set that cannot start because members are absent. It has the kind of the
    /// members' failures, so that a caller that retries while a server is unreachable also retries for a set.
    fn too_few(&self, sentence: String) -> Failure {
        let kinds = self.absent.iter().map(|absent| absent.failure.kind());
        let kind = kinds
            .min_by_key(|kind| *kind != FailureKind::Unreachable)
            .unwrap_or(FailureKind::Refused);
        Failure::new(kind, self.and_absent(sentence))
    }
}

/// The remedy if a member is in use elsewhere.
const WITHOUT_IT: &str = "it is a member of the set, which cannot start while the member is in use \
                          elsewhere; stop that use, or, to exclude the member permanently, remove it from \
                          the brackets";

/// Rejects a member that is reachable but reserved or taken over by another host.
fn check_ownership(disks: &[Disk], candidates: &[Candidate]) -> Result<(), Failure> {
    debug_assert_eq!(disks.len(), candidates.len(), "each disk is a candidate");
    for (disk, candidate) in disks.iter().zip(candidates) {
        if let Err(NoSuperblock::Unreadable(
            error @ (DeviceError::Reserved | DeviceError::Fenced),
        )) = candidate.superblock
        {
            return Err(Failure::device(&disk.name, error).and(WITHOUT_IT));
        }
    }
    Ok(())
}

/// Receives the parts of a set whose journal is lost, before the set starts with a new journal.
pub(crate) type LostJournal =
    dyn Fn(&OpenSet) -> Pin<Box<dyn Future<Output = Result<(), Failure>> + '_>>;

/// A set, and the state needed for its upkeep.
pub(crate) struct Assembled {
    pub(crate) set: Arc<RaidDevice>,
    /// `None` for a set of volatile members.
    pub(crate) records: Option<Arc<Records>>,
    pub(crate) spares: Vec<Spare>,
    pub(crate) names: Names,
}

/// A disk that can replace a member.
#[derive(Clone)]
pub(crate) struct Spare {
    pub(crate) uuid: Uuid,
    pub(crate) name: String,
    pub(crate) disk: Arc<dyn BlockDevice>,
}

/// The options for assembling a set.
#[derive(Default)]
pub(crate) struct Manner<'a> {
    /// Checks a set whose journal is lost before it starts with a new one.
    pub(crate) lost_journal: Option<&'a LostJournal>,
    /// The stopped set to restart; `None` if the set is being opened.
    pub(crate) again: Option<Again<'a>>,
}

/// A stopped set.
pub(crate) struct Again<'a> {
    pub(crate) running: &'a Running,
    pub(crate) kept: &'a mut Kept,
    /// Whether the restart is automatic. An automatic restart requires all of the set's former members.
    pub(crate) is_by_itself: bool,
}

impl Raid {
    /// Assembles the set, from persistent members or by creating it on volatile ones.
    pub(crate) async fn assembled(&self, opening: &Opening) -> Result<Assembled, Failure> {
        self.assembled_so(opening, Manner::default()).await
    }

    /// Like [`Raid::assembled`], with options.
    pub(crate) async fn assembled_so(
        &self,
        opening: &Opening,
        mut manner: Manner<'_>,
    ) -> Result<Assembled, Failure> {
        let lost_journal = manner.lost_journal;
        let mut names = Names {
            written: self.members.iter().map(ToString::to_string).collect(),
            ..Names::default()
        };
        if !self.members.iter().any(|member| member.keeps_data()) {
            names.members = names.written.iter().cloned().map(Some).collect();
            let set = self.made_anew(opening).await?;
            return Ok(Assembled {
                set,
                records: None,
                spares: Vec::new(),
                names,
            });
        }
        let (parts, found, disks) = self.found(opening, &mut manner).await?;
        if !opening.read_only {
            let stopped = manner.again.as_ref().map(|again| again.running);
            running::unused(&parts.records.set().uuid.to_string(), stopped).await?;
        }
        let name = |disk: &usize| disks[*disk].name.clone();
        let was = |member: usize| {
            let of = |(disk, why): &(usize, LeftOut)| {
                matches!(why, LeftOut::Stale { member: was, .. } if *was == member)
                    .then(|| name(disk))
            };
            found.left_out.iter().find_map(of)
        };
        let members = found.members.iter().enumerate();
        names.members = members
            .map(|(member, disk)| disk.as_ref().map(name).or_else(|| was(member)))
            .collect();
        names.journal = found.journal.as_ref().map(name);
        names.spares = found.spares.iter().map(|(_, disk)| name(disk)).collect();
        debug_assert_eq!(
            names.spares.len(),
            parts.spares.len(),
            "each spare has a name"
        );
        debug_assert_eq!(
            names.members.len(),
            parts.layout.members(),
            "each member has a place for its name"
        );
        let is_new = parts.is_new();
        let fits = parts.records.set().clean && !parts.states.lacking().contains(&true);
        let origin = match (is_new, fits) {
            (true, true) => Origin::NewOfZeros,
            (true, false) => Origin::New,
            (false, _) if lost_journal.is_some() => Origin::WithoutJournal,
            (false, _) => Origin::Existing,
        };
        if let Some(lost_journal) = lost_journal {
            lost_journal(&parts).await?;
        }
        let metadata: Arc<dyn MetadataStore> = match opening.read_only {
            true => Arc::new(Forgetful),
            false => Arc::clone(&parts.records) as _,
        };
        let mut assembly = assembly(
            parts.layout,
            parts.data(),
            parts.states.clone(),
            metadata,
            parts.protection(),
            origin,
            opening,
        );
        assembly.accepts_wrong_data = self.data_may_be_wrong;
        assembly.missed = parts.missed();
        let set = RaidDevice::assemble(assembly)
            .await
            .map_err(|error| Failure::refused(not_assembled(&error)))?;
        let spares = parts.spares.into_iter().zip(&names.spares);
        let spares = spares
            .map(|((uuid, disk), name)| Spare {
                uuid,
                name: name.clone(),
                disk,
            })
            .collect();
        Ok(Assembled {
            set: Arc::new(set),
            records: Some(parts.records),
            spares,
            names,
        })
    }

    /// Finds and opens the parts of the set. Nothing is written.
    pub(crate) async fn parts(&self, opening: &Opening) -> Result<OpenSet, Failure> {
        self.found(opening, &mut Manner::default())
            .await
            .map(|(parts, ..)| parts)
    }

    async fn found(
        &self,
        opening: &Opening,
        manner: &mut Manner<'_>,
    ) -> Result<(OpenSet, FoundSet, Vec<Disk>), Failure> {
        let journal = if manner.lost_journal.is_some() {
            Journal::Lost
        } else {
            Journal::Needed
        };
        let trust = if self.missing_are_lost {
            Trust::MembersFound
        } else {
            Trust::CertainOnly
        };
        let (mut nothing, mut by_itself) = (Kept::default(), false);
        let kept = match &mut manner.again {
            Some(again) => {
                by_itself = again.is_by_itself;
                &mut *again.kept
            }
            None => &mut nothing,
        };
        let mut members = Members::default();
        members.add(&self.members, opening, kept).await?;
        let until = opening
            .start
            .map(|start| start + self.assemble_wait.unwrap_or(ASSEMBLE_WAIT).0);
        let mut is_told = false;
        let (candidates, found) = loop {
            let candidates = disks::look_at(&members.disks).await;
            let found = only_set(&candidates, trust, journal);
            let left = until.and_then(|until| until.checked_duration_since(opening.sleeper.now()));
            let is_whole = !members.are_awaited(&candidates) || !wants_more(&found);
            let Some(left) =
                left.filter(|left| !left.is_zero() && !is_whole && !self.missing_are_lost)
            else {
                break (candidates, found);
            };
            if !is_told {
                let (seconds, set) = (left.as_secs_f64().ceil(), self.to_string());
                tracing::warn!(
                    set,
                    "{}",
                    members.and_absent(format!(
                        "waiting up to {seconds} s for members of a RAID set"
                    ))
                );
                is_told = true;
            }
            opening.sleeper.sleep(left.min(LOOK_EVERY)).await;
            let absent: Vec<Spec> = members.absent.drain(..).map(|absent| absent.spec).collect();
            members.add(&absent, opening, kept).await?;
        };
        if !opening.read_only {
            check_ownership(&members.disks, &candidates)?;
            for Disk { name, device } in &members.disks {
                check_losses_are_seen(self.level, name, device.as_ref())?;
            }
        }
        let awaits_members = wants_more(&found);
        let found = found.map_err(|refusal| match awaits_members {
            true => members.too_few(said(&refusal)),
            false => Failure::refused(members.and_absent(said(&refusal))),
        })?;
        self.check(&found)?;
        if by_itself && found.is_missing_a_member() {
            return Err(members.too_few("a former member of the set is missing".to_owned()));
        }
        let set = found.record.uuid;
        members
            .absent
            .iter()
            .for_each(|absent| tracing::warn!(%set, "a member is missing: {absent}"));
        if opening.read_only {
            let overlay =
                |disk: &mut Disk| disk.device = Arc::new(Overlay::new(Arc::clone(&disk.device)));
            members.disks.iter_mut().for_each(overlay);
        }
        let parts = disks::open(&found, &members.disks).map_err(Failure::failed)?;
        Ok((parts, found, members.disks))
    }

    /// Checks that the specification matches the set that was found.
    fn check(&self, found: &FoundSet) -> Result<(), Failure> {
        let record = &found.record;
        if record.level != self.level {
            return Err(Failure::refused(format_args!(
                "the members belong to a {} set ({}), but the specification has {}",
                record.level, record.uuid, self.level
            )));
        }
        match self.strip.filter(|strip| strip.0 != record.strip_bytes) {
            Some(strip) => Err(Failure::refused(format_args!(
                "the set {} has strips of {} bytes, but the specification has {strip}",
                record.uuid, record.strip_bytes
            ))),
            None => Ok(()),
        }
    }

    /// Creates a set of volatile members: there is nothing to record, and a crash leaves nothing to repair.
    async fn made_anew(&self, opening: &Opening) -> Result<Arc<RaidDevice>, Failure> {
        let mut members: Vec<Option<Arc<dyn BlockDevice>>> = Vec::new();
        for spec in &self.members {
            members.push(Some(spec.open(opening).await.map_err(Failure::from)?));
        }
        let geometries: Vec<_> = members
            .iter()
            .flatten()
            .map(|member| member.geometry())
            .collect();
        let blocks = geometries
            .iter()
            .map(|geometry| geometry.blocks.0)
            .min()
            .unwrap_or(0);
        let block_size = geometries
            .first()
            .map_or(BlockSize::B512, |geometry| geometry.block_size);
        let strip = self.strip.unwrap_or(STRIP).0;
        let layout = Layout::new(self.level, members.len(), strip, block_size, Blocks(blocks))
            .map_err(Failure::refused)?;
        let states = MemberStates::in_sync(members.len());
        let members = members
            .into_iter()
            .map(|member| member.map(MemberDevice::from))
            .collect();
        let (metadata, nothing) = (Arc::new(Forgetful), ProtectionAreas::Nothing);
        let assembly = assembly(
            layout,
            members,
            states,
            metadata,
            nothing,
            Origin::NewOfZeros,
            opening,
        );
        Ok(Arc::new(
            RaidDevice::assemble(assembly)
                .await
                .map_err(Failure::refused)?,
        ))
    }
}

/// Returns whether the set is incomplete, so that an additional member would improve it.
fn wants_more(found: &Result<FoundSet, Refusal>) -> bool {
    match found {
        Ok(found) => found.is_missing_a_member(),
        Err(
            Refusal::NoDisks
            | Refusal::TooManyLacking { .. }
            | Refusal::NoJournal { .. }
            | Refusal::DirtyAndDegraded { .. }
            | Refusal::NewerMayExist { .. },
        ) => true,
        Err(_) => false,
    }
}

/// Returns the sentence for an assembly that failed, with the remedy.
pub(crate) fn not_assembled(error: &AssemblyError) -> String {
    match error {
        AssemblyError::NoJournal => format!(
            "{error}; to start the set without its journal, use `linerate raid assemble --discard-journal` \
             with its volumes"
        ),
        AssemblyError::DataMayBeWrong { .. } => {
            format!(
                "{error}; attach the member, or, if it is lost, add `?{WRONG}` after the last bracket"
            )
        }
        error => error.to_string(),
    }
}

/// Returns the sentence for a refusal, with the option that overrides it.
pub(crate) fn said(refusal: &Refusal) -> String {
    match refusal {
        Refusal::NoDisks => "no member of the set can be opened".to_owned(),
        Refusal::NoJournal { .. } => format!(
            "{refusal}, or, if it is lost, start the set with a journal on the members: `linerate raid assemble \
             --discard-journal` with the members"
        ),
        Refusal::NewerMayExist { .. } => format!("{refusal} (`?{LOST}` after the last bracket)"),
        refusal => refusal.to_string(),
    }
}

fn assembly(
    layout: Layout,
    members: Vec<Option<MemberDevice>>,
    states: MemberStates,
    metadata: Arc<dyn MetadataStore>,
    protection: ProtectionAreas,
    origin: Origin,
    opening: &Opening,
) -> Assembly {
    let mut nonce = [0; 8];
    random(&mut nonce);
    Assembly {
        layout,
        members,
        states,
        metadata,
        protection,
        origin,
        nonce: u64::from_le_bytes(nonce),
        memory_bytes: MEMORY_BYTES,
        missed: Missed::Nothing,
        accepts_wrong_data: false,
        sleeper: Arc::clone(&opening.sleeper),
        spawner: Arc::clone(&opening.spawner),
    }
}

/// The record store of a set that is volatile or read-only: it stores nothing.
struct Forgetful;

impl MetadataStore for Forgetful {
    fn record(&self, _states: &MemberStates) -> block::Pending<'_, ()> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn missed_is_noted(&self, _: bool) -> block::Pending<'_, bool> {
        Box::pin(std::future::ready(Ok(false)))
    }
}

// Read-only members. The writes that assembling the set causes, mainly by the journal replay, are kept in
// memory.

/// Maximum memory for these writes. It exceeds the size of any valid journal, and limits the memory that a
/// damaged journal can take.
const BYTES_MAX: usize = 512 << 20;

fn blocks_of(extent: Extent) -> Range<u64> {
    extent.lba.0..extent.lba.0.saturating_add(extent.blocks.0)
}

/// Keeps written blocks in memory, on top of a device that is not modified.
pub(crate) struct Overlay {
    below: Arc<dyn BlockDevice>,
    written: Lock<BTreeMap<u64, Box<[u8]>>>,
}

impl Overlay {
    pub(crate) fn new(below: Arc<dyn BlockDevice>) -> Overlay {
        Overlay {
            below,
            written: Lock::default(),
        }
    }

    fn keep(&self, extent: Extent, data: &[u8]) -> Result<(), DeviceError> {
        let block_bytes = self.below.geometry().block_size.bytes() as usize;
        debug_assert_eq!(
            data.len() as u64,
            self.below.geometry().length(extent),
            "whole blocks are kept"
        );
        let mut written = self.written.lock();
        for (lba, block) in (extent.lba.0..).zip(data.chunks(block_bytes)) {
            if (written.len() + 1) * block_bytes > BYTES_MAX {
                return Err(DeviceError::NoSpace);
            }
            written.insert(lba, block.into());
        }
        Ok(())
    }
}

impl BlockDevice for Overlay {
    forward!(self => self.below; geometry, profile, losses, refresh, take_os_error, quiesced);

    fn read(&self, extent: Extent, buffer: Buffer) -> Pending<'_, Buffer> {
        Box::pin(async move {
            let mut buffer = self.below.read(extent, buffer).await?;
            let block_bytes = self.below.geometry().block_size.bytes() as usize;
            let written = self.written.lock();
            for (lba, block) in written.range(blocks_of(extent)) {
                let at = (lba - extent.lba.0) as usize * block_bytes;
                buffer[at..at + block_bytes].copy_from_slice(block);
            }
            Ok(buffer)
        })
    }

    fn write(&self, extent: Extent, data: Slice, _durability: Durability) -> Pending<'_, ()> {
        Box::pin(async move { self.keep(extent, &data) })
    }

    fn flush(&self) -> Pending<'_, ()> {
        Box::pin(async { Ok(()) })
    }

    fn unmap(&self, extent: Extent) -> Pending<'_, ()> {
        self.write_zeroes(extent, true)
    }

    fn write_zeroes(&self, extent: Extent, _may_unmap: bool) -> Pending<'_, ()> {
        Box::pin(async move {
            let zeros = vec![0; self.below.geometry().block_size.bytes() as usize];
            blocks_of(extent).try_for_each(|lba| self.keep(Extent::new(lba, 1), &zeros))
        })
    }

    fn allocation(&self, extent: Extent, _runs_max: usize) -> Pending<'_, Vec<Run>> {
        Box::pin(async move {
            Ok(vec![Run {
                extent,
                allocation: Allocation::Mapped,
            }])
        })
    }
}
