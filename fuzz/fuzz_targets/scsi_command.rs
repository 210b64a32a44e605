//! Arbitrary CDBs and data from several nexuses, for two logical units that copy to each other. At the same
//! time, commands are abandoned, devices fail, and there are resets, fences and restarts. Nothing panics, no
//! request exceeds the device, no more data is transferred than offered or requested, and every command
//! completes or is aborted.
#![no_main]

#[allow(dead_code, unused_imports, unreachable_pub)]
#[path = "../../crates/serve/logical_unit/tests/it/support/mod.rs"]
mod support;

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;

use block::{
    BlockDevice, BlockSize, Buffer, DeviceError, Durability, Extent, Geometry, Lba, Pending,
    Profile, Region, Run, Slice, WholeBlocks,
};
use libfuzzer_sys::fuzz_target;
use logical_unit::{
    Background, CommandIn, Data, DataIn, Identity, Job, Landing, LogicalUnit, LogicalUnitOptions,
    Nexus, Plan, Reply, SiblingUnits, Status, Step, Watch,
};
use script::Script;
use scsi::TransportId;
use support::{Disk, DiskOptions, Paper, attach, kept_on, poll, sized, unit_over, unmap};
use volume::{Fence, VolumeOptions};

fuzz_target!(|bytes: &[u8]| {
    let mut script = Script(bytes);
    let mut bench = Bench::new(&mut script);
    for _ in 0..ACTS_MAX {
        if script.is_over() {
            break;
        }
        bench.act(&mut script);
    }
    bench.end();
});

struct Bench {
    units: Vec<Unit>,
    luns: Arc<dyn SiblingUnits>,
    /// Each nexus with the LUN of its unit.
    nexuses: Vec<(usize, Nexus)>,
    waiting: Vec<Waiting>,
    running: Vec<Running>,
    background: Vec<Background>,
}

struct Unit {
    device: Arc<Guarded>,
    paper: Arc<Paper>,
    is_read_only: bool,
    options: LogicalUnitOptions,
    unit: Arc<LogicalUnit>,
    fence: Option<Fence>,
}

/// A command that is waiting for its data.
struct Waiting {
    unit: Arc<LogicalUnit>,
    job: Job,
    /// The destination of the data, if it is the medium.
    region: Option<WholeBlocks>,
    data: Vec<u8>,
    room: u32,
}

/// A command that is executing on the device.
struct Running {
    reply: Pin<Box<dyn Future<Output = Reply>>>,
    /// `None` if it waits for the logical unit's own work.
    watch: Option<Rc<Watch>>,
    room: u32,
}

struct Both(Vec<Arc<LogicalUnit>>);

impl SiblingUnits for Both {
    fn luns(&self) -> Vec<u64> {
        (0..self.0.len() as u64).map(|lun| lun << 48).collect()
    }

    fn by_designator(&self, designator: &[u8]) -> Option<Arc<LogicalUnit>> {
        self.0
            .iter()
            .find(|unit| unit.identity().naa() == designator)
            .cloned()
    }

    fn luns_reported(&self) {}
}

impl Bench {
    fn new(script: &mut Script<'_>) -> Bench {
        let units: Vec<Unit> = (0..2).map(|lun| Unit::new(lun, script.byte())).collect();
        let luns = Arc::new(Both(
            units.iter().map(|unit| Arc::clone(&unit.unit)).collect(),
        ));
        let nexuses = (0..2 * NEXUSES)
            .map(|at| (at % 2, attach(&units[at % 2].unit, 1 + (at / 2) as u8)))
            .collect();
        Bench {
            units,
            luns,
            nexuses,
            waiting: vec![],
            running: vec![],
            background: vec![],
        }
    }

    fn act(&mut self, script: &mut Script<'_>) {
        match script.byte() {
            0..150 => self.command(script),
            150..180 => self.arrive(script),
            180..205 => self.poll(),
            205..210 => self.give_up(script),
            210..214 => drop(take(&mut self.waiting, script)),
            214..218 => self.withdraw(script),
            218..226 => self.some_unit(script).device.disk.fail(error(script)),
            226..230 => self.some_unit(script).unit.reset(),
            230..234 => self.some_unit(script).toggle_fence(),
            234..237 => self.some_unit(script).unit.capacity_changed(),
            237..243 => self.attach_anew(script),
            243..246 => self.change_luns(script),
            246..248 => self.some_unit(script).paper.fill(),
            248.. => self.restart(),
        }
    }

    // --- commands

    fn command(&mut self, script: &mut Script<'_>) {
        let at = usize::from(script.byte()) % self.nexuses.len();
        let (cdb, data) = self.cdb_and_data(at, script);
        let room = [0, 1, 255, 512, 4096, 1 << 20][usize::from(script.byte()) % 6];
        let offered = if script.byte() < 240 {
            data.len()
        } else {
            data.len() / 2
        };
        // Bidirectional transfers are rejected, except for commands that transfer no data.
        let room = if offered > 0 && script.byte() < 240 {
            0
        } else {
            room
        };
        self.begin(at, &cdb, &data[..offered], room, script.byte() >= 200);
    }

    fn begin(
        &mut self,
        at: usize,
        cdb: &[u8],
        data: &[u8],
        room: u32,
        stage: bool,
    ) -> Option<Reply> {
        let (_, nexus) = &mut self.nexuses[at];
        let unit = Arc::clone(nexus.unit());
        let command = CommandIn {
            cdb,
            data_out_bytes: data.len() as u32,
            data_in_bytes: room,
            luns: &self.luns,
            stage,
        };
        let (job, region, bytes) = match unit.begin(nexus, &command) {
            Plan::Reply(reply) => return Some(checked(reply, room)),
            Plan::Run(job) => (job, None, 0),
            Plan::Receive(receive) => match receive.place {
                Landing::Memory(region) => (receive.job, Some(region), receive.bytes),
                Landing::Buffer => (receive.job, None, receive.bytes),
            },
        };
        assert!(bytes as usize <= data.len(), "more data than offered");
        assert!(
            region
                .as_ref()
                .is_none_or(|region| region.len() == bytes as usize)
        );
        let data = data[..bytes as usize].to_vec();
        self.waiting.push(Waiting {
            unit,
            job,
            region,
            data,
            room,
        });
        if self.waiting.len() > UNDER_WAY_MAX {
            let waiting = self.waiting.remove(0);
            self.finish(waiting);
        }
        None
    }

    /// Handles the arrival of a command's data.
    fn arrive(&mut self, script: &mut Script<'_>) {
        if let Some(waiting) = take(&mut self.waiting, script) {
            self.finish(waiting);
        }
    }

    fn finish(&mut self, waiting: Waiting) {
        let Waiting {
            unit,
            job,
            region,
            data,
            room,
        } = waiting;
        let data = match region {
            Some(mut region) => {
                region.put(0, &data);
                Data::Placed
            }
            None if data.is_empty() => Data::None,
            None => Data::Buffer(Buffer::from(&data[..])),
        };
        match unit.finish(job, data) {
            Step::Now(reply) => drop(checked(reply, room)),
            Step::Later(logical_unit::Running { reply, watch, .. }) => {
                self.running.push(Running {
                    reply,
                    watch: Some(watch),
                    room,
                });
            }
            Step::Lasting { reply, work } => {
                self.running.push(Running {
                    reply,
                    watch: None,
                    room,
                });
                self.background.push(work);
            }
        }
    }

    /// Aborts a command by dropping its reply. A committed command still completes. Any other command has no
    /// effect after the devices are quiesced.
    fn give_up(&mut self, script: &mut Script<'_>) {
        let Some(Running { reply, watch, .. }) = take(&mut self.running, script) else {
            return;
        };
        if watch.is_some_and(|watch| watch.is_committed()) {
            self.background
                .push(Box::pin(async move { drop(reply.await) }));
        }
        for Unit { unit, .. } in &self.units {
            let unit = Arc::clone(unit);
            self.background
                .push(Box::pin(async move { unit.volume().quiesced().await }));
        }
    }

    /// Redirects a write whose data arrives slowly from the medium to a buffer.
    fn withdraw(&mut self, script: &mut Script<'_>) {
        let Some(mut waiting) = take(&mut self.waiting, script) else {
            return;
        };
        if let Some(region) = waiting.region.take() {
            let buffer = waiting
                .job
                .withdraw(&region)
                .expect("its data is destined for the medium");
            assert_eq!(buffer.len(), region.len());
        }
        self.waiting.push(waiting);
    }

    fn poll(&mut self) {
        self.running
            .retain_mut(|running| match poll(&mut running.reply) {
                Some(reply) => {
                    checked(reply, running.room);
                    false
                }
                None => true,
            });
        self.background.retain_mut(|work| poll(work).is_none());
    }

    // --- other events

    fn some_unit(&mut self, script: &mut Script<'_>) -> &mut Unit {
        &mut self.units[usize::from(script.byte() & 1)]
    }

    /// Closes a session, and starts another one of the same initiator port.
    fn attach_anew(&mut self, script: &mut Script<'_>) {
        let at = usize::from(script.byte()) % self.nexuses.len();
        let (lun, _) = self.nexuses.remove(at);
        let number = 1 + script.byte() % NEXUSES as u8;
        self.nexuses
            .push((lun, attach(&self.units[lun].unit, number)));
    }

    /// Notifies one of the nexuses that the set of LUNs has changed.
    fn change_luns(&mut self, script: &mut Script<'_>) {
        let (_, nexus) = &self.nexuses[usize::from(script.byte()) % self.nexuses.len()];
        nexus.unit().luns_changed(nexus.id());
    }

    /// Simulates a power failure and restart: saved state must be valid.
    fn restart(&mut self) {
        self.waiting.clear();
        self.running.clear();
        self.background.clear();
        let ports: Vec<usize> = self.nexuses.drain(..).map(|(lun, _)| lun).collect();
        self.units.iter_mut().for_each(Unit::restart);
        self.luns = Arc::new(Both(
            self.units
                .iter()
                .map(|unit| Arc::clone(&unit.unit))
                .collect(),
        ));
        let attached = |(number, lun): (u8, usize)| (lun, attach(&self.units[lun].unit, number));
        self.nexuses = (0..)
            .map(|at| 1 + at / 2)
            .zip(ports)
            .map(attached)
            .collect();
    }

    /// Completes all outstanding work, and checks that no block is left locked.
    fn end(mut self) {
        self.units.iter_mut().for_each(|unit| unit.fence = None);
        while let Some(waiting) = self.waiting.pop() {
            self.finish(waiting);
        }
        self.come_to_rest();
        for at in 0..self.nexuses.len() {
            let zeros = vec![0; 2 * self.block_bytes(at)];
            let mut compare_and_write = sized(0x89, 0, 0, 0);
            compare_and_write[13] = 1;
            while let Some(reply) = self.begin(at, &compare_and_write, &zeros, 0, false) {
                if reply
                    .sense
                    .is_none_or(|sense| sense.key() != UNIT_ATTENTION)
                {
                    break;
                }
            }
            while let Some(waiting) = self.waiting.pop() {
                self.finish(waiting);
            }
            self.come_to_rest();
        }
    }

    fn come_to_rest(&mut self) {
        for _ in 0..POLLS_MAX {
            self.poll();
            if self.running.is_empty() && self.background.is_empty() {
                return;
            }
        }
        panic!("commands that never end");
    }

    // --- generated commands

    fn block_bytes(&self, at: usize) -> usize {
        self.nexuses[at]
            .1
            .unit()
            .volume()
            .device()
            .geometry()
            .block_size
            .bytes() as usize
    }

    fn cdb_and_data(&mut self, at: usize, script: &mut Script<'_>) -> (Vec<u8>, Vec<u8>) {
        let data = |script: &mut Script<'_>| {
            let count = usize::from(script.byte()) * 4;
            script.bytes(count).to_vec()
        };
        match script.byte() {
            0..20 => (script.bytes(16).to_vec(), data(script)),
            20..120 => self.medium_command(at, script),
            120..150 => (parameter_cdb(script), data(script)),
            150..190 => persistent_reserve_out(script),
            190..200 => mode_select(self.mode_pages(at), script),
            200..215 => {
                let extents: Vec<_> = (0..script.byte() % 4)
                    .map(|_| (lba(script), blocks(script)))
                    .collect();
                let (cdb, list) = unmap(&extents);
                (cdb.to_vec(), list)
            }
            215..240 => self.extended_copy(script),
            240.. => sanitize(script),
        }
    }

    /// Returns a command with an LBA and a number of blocks, and about the matching amount of data.
    fn medium_command(&self, at: usize, script: &mut Script<'_>) -> (Vec<u8>, Vec<u8>) {
        const OPCODES: [u8; 32] = [
            0x28, 0x28, 0x2a, 0x2a, 0x2e, 0x2f, 0x34, 0x35, 0x41, 0x88, 0x8a, 0x89, 0x89, 0x8b,
            0x8b, 0x8e, 0x8f, 0x90, 0x91, 0x93, 0x93, 0x9c, 0x9c, 0xa8, 0xaa, 0xae, 0xaf, 0x08,
            0x0a, 0x9e, 0x88, 0x8a,
        ];
        let opcode = OPCODES[usize::from(script.byte()) % OPCODES.len()];
        let (lba, blocks, flags) = (lba(script), blocks(script), script.byte());
        // Usually no flags: most of them request protection information, which is rejected.
        let flags = if flags < 128 { flags & 0x0e } else { flags };
        let mut cdb = sized(opcode, flags, lba, blocks);
        match opcode {
            0x08 | 0x0a => cdb = vec![opcode, 0, 0, lba as u8, blocks as u8, 0],
            0x89 => (cdb[12], cdb[13]) = (0, blocks as u8),
            0x9c => cdb[10..14].copy_from_slice(&[0, 0, 0, blocks as u8]),
            0x9e => cdb[1] = 0x12,
            _ => {}
        }
        let bytes = blocks.min(70) as usize * self.block_bytes(at);
        let bytes = match (opcode, script.byte()) {
            (0x41 | 0x93, 0..200) => self.block_bytes(at),
            (0x89, 0..200) => 2 * bytes,
            (_, 0..200) => bytes,
            (_, odd) => bytes / 256 * usize::from(odd),
        };
        (cdb, vec![script.byte() & 3; bytes])
    }

    /// Returns the current mode pages, if the logical unit returns them.
    fn mode_pages(&mut self, at: usize) -> Vec<u8> {
        let sense = [0x5a, 0x08, 0x3f, 0, 0, 0, 0, 2, 0, 0];
        match self
            .begin(at, &sense, &[], 512, false)
            .map(|reply| reply.data)
        {
            Some(DataIn::Bytes(pages)) => pages,
            _ => vec![0; 8],
        }
    }

    fn extended_copy(&self, script: &mut Script<'_>) -> (Vec<u8>, Vec<u8>) {
        let mut targets = Vec::new();
        for _ in 0..1 + script.byte() % 3 {
            let unit = &self.units[usize::from(script.byte() & 1)];
            let mut target = [0; 32];
            (target[0], target[7]) = (0xe4, 8);
            target[4..7].copy_from_slice(&[0x01, 0x03, 0]);
            target[8..16].copy_from_slice(&unit.unit.identity().naa());
            let block_bytes = unit.device.geometry().block_size.bytes();
            target[28..32].copy_from_slice(&block_bytes.to_be_bytes());
            spoil(&mut target, script);
            targets.extend(target);
        }
        let mut segments = Vec::new();
        for _ in 0..script.byte() % 4 {
            let mut segment = vec![
                0x02,
                script.byte() & 2,
                0,
                24,
                0,
                script.byte() % 3,
                0,
                script.byte() % 3,
            ];
            segment.extend([0, 0]);
            segment.extend((blocks(script) as u16).to_be_bytes());
            segment.extend(lba(script).to_be_bytes());
            segment.extend(lba(script).to_be_bytes());
            spoil(&mut segment, script);
            segments.extend(segment);
        }
        let mut list = vec![script.byte() & 3, script.byte() & 0x18];
        list.extend((targets.len() as u16).to_be_bytes());
        list.extend([0; 4]);
        list.extend((segments.len() as u32).to_be_bytes());
        list.extend([0; 4]);
        list.extend(targets);
        list.extend(segments);
        spoil(&mut list, script);
        (sized(0x83, 0, 0, list.len() as u32), list)
    }
}

impl Unit {
    fn new(lun: u8, choices: u8) -> Unit {
        let block_size = if choices & 1 == 1 {
            BlockSize::B4096
        } else {
            BlockSize::B512
        };
        let disk = Disk::new(DiskOptions {
            block_size,
            blocks: BLOCKS,
            thin: choices & 2 == 0,
            in_memory: choices & 4 == 4,
            volatile_cache: choices & 8 == 0,
            durable: choices & 16 == 0,
            read_only: choices & 0xe0 == 0xe0,
            ..DiskOptions::default()
        });
        let options = LogicalUnitOptions {
            identity: Identity::new([lun; 16]),
            removable: choices & 0x60 == 0x20,
            thin: None,
        };
        let device = Arc::new(Guarded {
            disk,
            read_only: choices & 0xc0 == 0xc0,
        });
        let paper = Arc::new(Paper::default());
        let is_read_only = choices & 0xe0 == 0xc0;
        let unit = Unit::power_on(&device, is_read_only, options.clone(), &paper);
        Unit {
            device,
            paper,
            is_read_only,
            options,
            unit,
            fence: None,
        }
    }

    fn power_on(
        device: &Arc<Guarded>,
        read_only: bool,
        options: LogicalUnitOptions,
        paper: &Arc<Paper>,
    ) -> Arc<LogicalUnit> {
        let volume = VolumeOptions {
            read_only,
            ..kept_on(paper)
        };
        unit_over(Arc::clone(device) as _, volume, options).expect("valid saved state")
    }

    fn restart(&mut self) {
        self.fence = None;
        self.unit = Unit::power_on(
            &self.device,
            self.is_read_only,
            self.options.clone(),
            &self.paper,
        );
    }

    fn toggle_fence(&mut self) {
        self.fence = match self.fence.take() {
            Some(_) => None,
            None => Some(self.unit.volume().fence()),
        };
    }
}

/// A disk that checks that requests stay on the device, and that write-protected media are not changed.
struct Guarded {
    disk: Disk,
    read_only: bool,
}

impl Guarded {
    fn within(&self, extent: Extent) {
        assert!(
            self.disk.geometry().contains(extent),
            "{extent} is not on the device"
        );
    }

    fn writable(&self, extent: Extent) {
        self.within(extent);
        assert!(!self.read_only, "a change of a write-protected medium");
    }
}

impl BlockDevice for Guarded {
    fn geometry(&self) -> Geometry {
        self.disk.geometry()
    }

    fn profile(&self) -> Profile {
        self.disk.profile()
    }

    fn memory(&self, extent: Extent) -> Option<Region> {
        self.within(extent);
        self.disk.memory(extent)
    }

    fn memory_to_write(&self, extent: Extent) -> Option<WholeBlocks> {
        self.writable(extent);
        self.disk.memory_to_write(extent)
    }

    fn read(&self, extent: Extent, buffer: Buffer) -> Pending<'_, Buffer> {
        self.within(extent);
        self.disk.read(extent, buffer)
    }

    fn write(&self, extent: Extent, data: Slice, durability: Durability) -> Pending<'_, ()> {
        self.writable(extent);
        self.disk.write(extent, data, durability)
    }

    fn flush(&self) -> Pending<'_, ()> {
        self.disk.flush()
    }

    fn unmap(&self, extent: Extent) -> Pending<'_, ()> {
        self.writable(extent);
        self.disk.unmap(extent)
    }

    fn write_zeroes(&self, extent: Extent, may_unmap: bool) -> Pending<'_, ()> {
        self.writable(extent);
        self.disk.write_zeroes(extent, may_unmap)
    }

    fn allocation(&self, extent: Extent, runs_max: usize) -> Pending<'_, Vec<Run>> {
        self.within(extent);
        self.disk.allocation(extent, runs_max)
    }

    fn losses(&self) -> block::Losses {
        block::Losses::NONE
    }

    fn quiesced(&self) -> Pending<'_, ()> {
        Box::pin(std::future::ready(Ok(())))
    }
}

/// Checks that a transport can carry the reply, and returns it.
fn checked(reply: Reply, room: u32) -> Reply {
    assert!(
        reply.data.len() <= room as usize,
        "more data than the buffer can take"
    );
    assert!(
        reply.data.len() as u64 <= reply.expected_bytes,
        "more data than the command requests"
    );
    assert_eq!(
        reply.sense.is_some(),
        reply.status == Status::CheckCondition
    );
    assert!(reply.sense.is_none_or(|sense| sense.bytes().len() <= 252));
    reply
}

/// Removes one of the elements.
fn take<T>(from: &mut Vec<T>, script: &mut Script<'_>) -> Option<T> {
    let at = usize::from(script.byte());
    (!from.is_empty()).then(|| from.swap_remove(at % from.len()))
}

/// Occasionally changes one byte.
fn spoil(bytes: &mut [u8], script: &mut Script<'_>) {
    if script.byte() >= 0xe0 {
        let at = usize::from(script.byte()) % bytes.len();
        bytes[at] = script.byte();
    }
}

/// Returns an LBA that is usually within the device, or just after its end.
fn lba(script: &mut Script<'_>) -> u64 {
    match script.byte() {
        lba @ 0..240 => u64::from(lba) % (BLOCKS + 2),
        far => u64::MAX - u64::from(far - 240),
    }
}

fn blocks(script: &mut Script<'_>) -> u32 {
    match script.byte() {
        few @ 0..200 => u32::from(few) % 20,
        many @ 200..250 => u32::from(many) - 180,
        far => u32::MAX >> (far & 7),
    }
}

/// Returns a command that requests parameter data, or sets a state by its CDB alone.
fn parameter_cdb(script: &mut Script<'_>) -> Vec<u8> {
    const OPCODES: [(u8, u8); 35] = [
        (0x00, 0),
        (0x03, 0),
        (0x04, 0),
        (0x04, 0x10),
        (0x12, 0),
        (0x12, 1),
        (0x15, 0x11),
        (0x16, 0),
        (0x17, 0),
        (0x1a, 0),
        (0x1b, 0),
        (0x1c, 1),
        (0x1d, 0),
        (0x1d, 0x04),
        (0x1d, 0xa0),
        (0x1e, 0),
        (0x25, 0),
        (0x37, 0),
        (0x4d, 0),
        (0x55, 0x11),
        (0x56, 0),
        (0x57, 0),
        (0x5a, 0),
        (0x5e, 0),
        (0x5e, 1),
        (0x5e, 3),
        (0x84, 0),
        (0x84, 3),
        (0x9e, 0x10),
        (0x9e, 0x12),
        (0xa0, 0),
        (0xa3, 0x0a),
        (0xa3, 0x0c),
        (0xa3, 0x0d),
        (0xb7, 0),
    ];
    let (opcode, action) = OPCODES[usize::from(script.byte()) % OPCODES.len()];
    let mut cdb = vec![0; 16];
    (cdb[0], cdb[1]) = (opcode, action);
    // These bytes include the allocation length, which is large enough in about half of the cases.
    (cdb[2], cdb[4], cdb[8], cdb[13]) =
        (script.byte(), script.byte(), script.byte(), script.byte());
    spoil(&mut cdb, script);
    spoil(&mut cdb, script);
    cdb
}

fn persistent_reserve_out(script: &mut Script<'_>) -> (Vec<u8>, Vec<u8>) {
    let (action, kind, flags) = (script.byte() % 8, script.byte() % 9, script.byte());
    let mut list = vec![0; 24];
    (list[7], list[15]) = (script.byte() % 4, script.byte() % 4);
    let name = transport_id(script);
    match action {
        7 => {
            (list[17], list[19]) = (flags & 3, script.byte() % 4);
            list[20..24].copy_from_slice(&(name.len() as u32).to_be_bytes());
            list.extend(name);
        }
        _ => {
            list[20] = if flags < 200 {
                flags & 0x05
            } else {
                flags & 0x0d
            };
            if list[20] & 0x08 != 0 {
                list.extend((name.len() as u32).to_be_bytes());
                list.extend(name);
            }
        }
    }
    spoil(&mut list, script);
    let mut cdb = vec![0x5f, action, kind, 0, 0];
    cdb.extend((list.len() as u32).to_be_bytes());
    cdb.push(0);
    (cdb, list)
}

/// Returns the TransportID of one of our initiators (SPC-4 7.6.4.6), with its ISID or without.
fn transport_id(script: &mut Script<'_>) -> Vec<u8> {
    let (number, has_isid) = (1 + script.byte() % 4, script.flag());
    let name = format!("iqn.2026-11.test:initiator{number}");
    let mut id = TransportId::Iscsi {
        name,
        isid: has_isid.then_some([0x80, 0, 0, 0, 0, number]),
    }
    .write();
    spoil(&mut id, script);
    id
}

/// Returns the current pages with some bytes changed, in places that may be changeable.
fn mode_select(mut pages: Vec<u8>, script: &mut Script<'_>) -> (Vec<u8>, Vec<u8>) {
    pages[..2].fill(0);
    pages[3] = 0;
    for _ in 0..script.byte() % 4 {
        let at = usize::from(script.byte()) % pages.len();
        pages[at] ^= 1 << (script.byte() & 7);
    }
    let mut cdb = vec![0x55, 0x10 | script.byte() & 1, 0, 0, 0, 0, 0];
    cdb.extend((pages.len() as u16).to_be_bytes());
    cdb.push(0);
    (cdb, pages)
}

fn sanitize(script: &mut Script<'_>) -> (Vec<u8>, Vec<u8>) {
    let action = [0x01, 0x02, 0x03, 0x1f][usize::from(script.byte() & 3)];
    let pattern = vec![script.byte(); usize::from(script.byte() & 15)];
    let mut list = vec![script.byte() & 0x83, 0];
    list.extend((pattern.len() as u16).to_be_bytes());
    list.extend(pattern);
    let list = if action == 0x01 { list } else { vec![] };
    let mut cdb = vec![0x48, action | script.byte() & 0xa0, 0, 0, 0, 0, 0];
    cdb.extend((list.len() as u16).to_be_bytes());
    cdb.push(0);
    (cdb, list)
}

fn error(script: &mut Script<'_>) -> DeviceError {
    match script.byte() % 6 {
        0 => DeviceError::NoSpace,
        1 => DeviceError::Unreadable(Lba(lba(script))),
        2 => DeviceError::Unwritable(Lba(lba(script))),
        3 => DeviceError::NotReady,
        4 => DeviceError::TimedOut,
        _ => DeviceError::ReadOnly,
    }
}

const BLOCKS: u64 = 64;
const NEXUSES: usize = 3;
const ACTS_MAX: usize = 200;
/// Maximum number of commands that wait for their data.
const UNDER_WAY_MAX: usize = 8;
/// Maximum number of polls per command. Long commands yield between their pieces, and no command has a
/// thousand pieces.
const POLLS_MAX: usize = 10_000;
const UNIT_ATTENTION: u8 = 6;
