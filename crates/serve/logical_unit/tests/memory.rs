//! Checks with a counting allocator that commands use no more memory than they declare. All commands that
//! REPORT SUPPORTED OPERATION CODES lists are checked.
//!
//! Regression: four initiators with 250 VERIFY(16) each took 1 GiB from a server with a budget of 32 MiB,
//! because working buffers were not counted.

#[allow(dead_code, unused_imports, unreachable_pub)]
#[path = "it/support/mod.rs"]
mod support;

use std::sync::Arc;

use block::{BlockSize, Blocks, Buffer, Geometry, Null};
use logical_unit::{CommandIn, Data, Landing, LogicalUnit, Plan, SiblingUnits, Step};
use support::*;

#[global_allocator]
static ALLOCATOR: dhat::Alloc = dhat::Alloc;

/// The maximum transfer length (VPD page B0h).
const LONGEST: u32 = 65_536;
/// Fixed-size parts of a command: futures, short lists, sense data.
const FIXED_BYTES: usize = 12 << 10;
const ROOM: u32 = 1 << 25;

/// A command of maximum size, and its data.
struct Case {
    cdb: Vec<u8>,
    data: Vec<u8>,
}

fn case(cdb: &[u8], data: Vec<u8>) -> Case {
    Case {
        cdb: cdb.to_vec(),
        data,
    }
}

fn zeros(blocks: u32) -> Vec<u8> {
    vec![0; blocks as usize * 512]
}

/// Returns the commands of an operation code, or of one of its service actions, at maximum size.
fn largest(opcode: u8, action: u8) -> Vec<Case> {
    let none = || Vec::new();
    let length = |bytes: u16| {
        let mut cdb = ten(opcode, action, 0, 0);
        cdb[7..9].copy_from_slice(&bytes.to_be_bytes());
        cdb
    };
    match opcode {
        0x00 | 0x16 | 0x17 | 0x1b | 0x1e => vec![case(&[opcode, 0, 0, 0, 0, 0], none())],
        0x56 | 0x57 => vec![case(&ten(opcode, 0, 0, 0), none())],
        0x03 | 0x1a => vec![case(&[opcode, 0, 0x3f, 0, 255, 0], none())],
        0x1c => vec![case(&[opcode, 1, 0, 0xff, 0xff, 0], none())],
        0x1d => {
            vec![
                case(&[opcode, 0x04, 0, 0, 0, 0], none()),
                case(&[opcode, 0x10, 0, 0, 4, 0], vec![0; 4]),
            ]
        }
        0x4d => {
            let mut cdb = length(u16::MAX);
            cdb[2] = 0x40 | 0x19;
            vec![case(&cdb, none())]
        }
        0x12 => vec![
            case(&inquiry(None, u16::MAX), none()),
            case(&inquiry(Some(0x83), u16::MAX), none()),
        ],
        0x08 => vec![case(&six(opcode, 0, 0), none())], // 256 blocks
        0x0a => vec![case(&six(opcode, 0, 0), zeros(256))],
        0x15 => vec![case(&[opcode, 0x10, 0, 0, 255, 0], vec![0; 255])],
        0x55 => {
            let mut cdb = length(u16::MAX);
            cdb[1] = 0x10;
            vec![case(&cdb, vec![0; u16::MAX.into()])]
        }
        0x5a => {
            let mut cdb = length(u16::MAX);
            cdb[2] = 0x3f;
            vec![case(&cdb, none())]
        }
        0x25 | 0x37 => vec![case(&length(u16::MAX), none())],
        0x28 => vec![case(&sized(opcode, 0, 0, 65_535), none())],
        0xa8 | 0x88 => {
            vec![
                case(&sized(opcode, 0, 0, LONGEST), none()),
                case(&sized(opcode, 0x08, 0, LONGEST), none()),
            ]
        }
        0x2a | 0xaa | 0x8a | 0x8b => {
            let blocks = if opcode == 0x2a { 65_535 } else { LONGEST };
            vec![case(&sized(opcode, 0, 0, blocks), zeros(blocks))]
        }
        0x2e | 0xae | 0x8e => {
            let blocks = if opcode == 0x2e { 65_535 } else { LONGEST };
            vec![
                case(&sized(opcode, 0, 0, blocks), zeros(blocks)),
                case(&sized(opcode, 0x02, 0, blocks), zeros(blocks)),
            ]
        }
        0x2f | 0xaf | 0x8f => {
            let blocks = if opcode == 0x2f { 65_535 } else { LONGEST };
            vec![
                case(&sized(opcode, 0, 0, blocks), none()),
                case(&sized(opcode, 0x02, 0, blocks), zeros(blocks)),
                case(&sized(opcode, 0x06, 0, blocks), zeros(1)),
            ]
        }
        0x34 | 0x90 | 0x35 | 0x91 => vec![case(&sized(opcode, 0, 0, 65_535), none())],
        0x41 | 0x93 => vec![
            case(&sized(opcode, 0, 0, 65_535), vec![1; 512]),
            case(&sized(opcode, 0, 0, 65_535), zeros(1)),
            case(&sized(opcode, 0x08, 0, 65_535), zeros(1)),
        ],
        0x42 => {
            let extents: Vec<(u64, u32)> = (0..256).map(|at| (at * 8, 4)).collect();
            let (cdb, list) = unmap(&extents);
            vec![case(&cdb, list)]
        }
        0x89 => vec![case(&compare_and_write(0, 255), zeros(510))],
        0x9c => vec![case(&write_atomic(0, 4096), zeros(4096))],
        0x9e if action == 0x12 => vec![case(&get_lba_status(0, u32::MAX), none())],
        0x04 | 0x48 => vec![], // FORMAT UNIT, SANITIZE: one at a time per logical unit
        0x5e => vec![case(&length(u16::MAX), none())],
        0x5f => {
            let mut cdb = length(24);
            cdb[2] = 1;
            vec![case(&cdb, vec![0; 24])]
        }
        0x83 => {
            let list = copy_list();
            vec![case(&sixteen(opcode, action, 0, list.len() as u32), list)]
        }
        0x84 => vec![case(&sixteen(opcode, action, 0, u32::MAX), none())],
        0x9e => vec![case(&sixteen(opcode, action, 0, u32::MAX), none())],
        0xa0 | 0xa3 | 0xb7 => {
            let mut cdb = [opcode, action, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0];
            if opcode == 0xa3 && action == 0x0c {
                cdb[2] = 0x80; // with timeouts
            }
            vec![case(&cdb, none())]
        }
        _ => panic!("what does {opcode:02x}h/{action:02x}h take of memory?"),
    }
}

/// Creates a list with the maximum number of segments, each within the unit.
fn copy_list() -> Vec<u8> {
    let naa = unit().identity().naa();
    let mut target = [0; 32];
    (target[0], target[4], target[5], target[7]) = (0xe4, 1, 3, naa.len() as u8);
    target[8..8 + naa.len()].copy_from_slice(&naa);
    target[30] = 2; // blocks of 512
    let mut segment = [0; 28];
    (segment[0], segment[3], segment[10], segment[11]) = (2, 24, 0x10, 0);
    let mut list = vec![1, 0, 0, 32, 0, 0, 0, 0];
    list.extend((64 * 28_u32).to_be_bytes());
    list.extend([0; 4]);
    list.extend(target);
    list.extend(segment.repeat(64));
    list
}

/// The maximum number of LUNs of a target.
struct Many;

impl SiblingUnits for Many {
    fn luns(&self) -> Vec<u64> {
        (0..4096).collect()
    }

    fn by_designator(&self, _designator: &[u8]) -> Option<Arc<LogicalUnit>> {
        None
    }

    fn luns_reported(&self) {}
}

fn unit() -> Arc<LogicalUnit> {
    let geometry = Geometry {
        block_size: BlockSize::B512,
        blocks: Blocks(1 << 24),
        physical_exponent: 0,
    };
    unit_over(
        Arc::new(Null::new(geometry)),
        Default::default(),
        unit_options(),
    )
    .expect("nothing was kept")
}

/// Returns all commands of the unit: the operation code, and the service action or 0.
fn commands() -> Vec<(u8, u8)> {
    let report = case(
        &[0xa3, 0x0c, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0],
        Vec::new(),
    );
    let Ended { reply, .. } = run(&unit(), &report, || 0);
    let logical_unit::DataIn::Bytes(data) = reply.data else {
        panic!("no parameter data")
    };
    data[4..]
        .chunks(8)
        .map(|descriptor| (descriptor[0], descriptor[3]))
        .collect()
}

struct Ended {
    reply: logical_unit::Reply,
    /// The memory that the command declares, including its data from and for the initiator.
    told: usize,
    /// The memory that the command uses.
    taken: usize,
}

/// Runs a command. `peak` returns the maximum memory in use at its end. If `begin` returns the reply, nothing
/// more is allocated afterwards.
fn run(unit: &Arc<LogicalUnit>, case: &Case, peak: impl Fn() -> usize) -> Ended {
    let mut nexus = attach(unit, 1);
    let luns: Arc<dyn SiblingUnits> = Arc::new(Many);
    let mut begin = |cdb: &[u8], out: usize| {
        let room = if out == 0 { ROOM } else { 0 };
        let command = CommandIn {
            cdb,
            data_out_bytes: out as u32,
            data_in_bytes: room,
            luns: &luns,
            stage: false,
        };
        unit.begin(&mut nexus, &command)
    };
    begin(&[0; 6], 0); // the unit attention
    let plan = begin(&case.cdb, case.data.len());
    let (told, job, data) = match plan {
        Plan::Reply(reply) => {
            let taken = dhat::HeapStats::get().curr_bytes;
            return Ended {
                told: reply.data.len(),
                reply,
                taken,
            };
        }
        Plan::Run(job) => (job.working_bytes(), job, Data::None),
        Plan::Receive(receive) => {
            assert!(matches!(receive.place, Landing::Buffer));
            let buffer = Buffer::from(&case.data[..receive.bytes as usize]);
            let told = Buffer::memory_bytes(buffer.len()) + receive.job.working_bytes();
            (told, receive.job, Data::Buffer(buffer))
        }
    };
    let reply = match unit.finish(job, data) {
        Step::Now(reply) => reply,
        Step::Later(running) => finish(running.reply),
        Step::Lasting { .. } => unreachable!("left out"),
    };
    Ended {
        told,
        reply,
        taken: peak(),
    }
}

#[test]
fn no_command_takes_more_memory_than_it_says() {
    let profiler = dhat::Profiler::builder().testing().build();
    let commands = commands();
    drop(profiler);
    assert!(commands.len() > 50, "{commands:x?}");
    let mut faults = Vec::new();
    for (opcode, action) in commands {
        for case in largest(opcode, action) {
            // On a separate thread, because a thread keeps buffers for its next request.
            let ended = std::thread::spawn(move || {
                let unit = unit();
                let profiler = dhat::Profiler::builder().testing().build();
                let ended = run(&unit, &case, || dhat::HeapStats::get().max_bytes);
                drop(profiler);
                (ended.told, ended.taken, ended.reply.status)
            });
            let (told, taken, status) = ended.join().expect("a command that ends");
            let line =
                format!("{opcode:02x}/{action:02x}: {status:?}, {told} bytes told, {taken} taken");
            println!("{line}");
            if taken > told + FIXED_BYTES {
                faults.push(line);
            }
        }
    }
    assert!(faults.is_empty(), "{faults:#?}");
}

#[test]
fn the_document_about_security_has_the_fixed_size() {
    let security = include_str!("../../../../docs/security.md");
    assert!(security.contains(&format!(
        "up to {} KiB of it in the SCSI layer",
        FIXED_BYTES >> 10
    )));
}
