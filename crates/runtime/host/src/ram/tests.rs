use super::*;

use testkit::ready;

fn volume(bytes: u64, block_size: BlockSize) -> RamDevice {
    RamDevice::new(RamOptions {
        block_size,
        ..RamOptions::new(bytes)
    })
    .expect("memory")
}

fn read(device: &RamDevice, lba: u64, blocks: u64) -> Buffer {
    let length = (blocks << device.geometry().block_size.shift()) as usize;
    ready(device.read(Extent::new(lba, blocks), Buffer::recycled(length))).expect("readable")
}

fn fill(device: &RamDevice, lba: u64, blocks: u64, byte: u8) {
    let mut data = Buffer::zeroed((blocks << device.geometry().block_size.shift()) as usize);
    data.fill(byte);
    ready(device.write(Extent::new(lba, blocks), data.share(), Durability::Cached))
        .expect("writable");
}

#[test]
fn a_size_that_is_not_whole_blocks_is_refused() {
    for bytes in [0, 511, 513] {
        let refused = RamDevice::new(RamOptions::new(bytes)).err();
        assert!(
            matches!(refused, Some(OpenError::NotWholeBlocks { .. })),
            "{bytes}"
        );
    }
}

#[test]
fn more_than_the_address_space_is_refused() {
    let refused = RamDevice::new(RamOptions::new(u64::MAX - 511)).err();
    assert!(matches!(refused, Some(OpenError::NoMemory { .. })));
}

#[test]
fn beyond_the_end_is_out_of_range_for_every_request() {
    let device = volume(8 * 512, BlockSize::B512);
    let beyond = Extent::new(7, 2);
    assert_eq!(
        ready(device.read(beyond, Buffer::zeroed(1024))).err(),
        Some(DeviceError::OutOfRange)
    );
    let data = Buffer::zeroed(1024).share();
    assert_eq!(
        ready(device.write(beyond, data, Durability::Stable)),
        Err(DeviceError::OutOfRange)
    );
    assert_eq!(ready(device.unmap(beyond)), Err(DeviceError::OutOfRange));
    assert_eq!(
        ready(device.write_zeroes(beyond, true)),
        Err(DeviceError::OutOfRange)
    );
    assert_eq!(
        ready(device.allocation(beyond, 1)),
        Err(DeviceError::OutOfRange)
    );
    assert!(device.memory(beyond).is_none() && device.memory_to_write(beyond).is_none());
}

#[test]
fn a_read_only_volume_changes_for_nobody() {
    let options = RamOptions {
        read_only: true,
        ..RamOptions::new(4096)
    };
    let device = RamDevice::new(options).expect("memory");
    let extent = Extent::new(0, 1);
    let data = Buffer::zeroed(512).share();
    assert_eq!(
        ready(device.write(extent, data, Durability::Cached)),
        Err(DeviceError::ReadOnly)
    );
    assert_eq!(ready(device.unmap(extent)), Err(DeviceError::ReadOnly));
    assert_eq!(
        ready(device.write_zeroes(extent, false)),
        Err(DeviceError::ReadOnly)
    );
    assert!(device.memory_to_write(extent).is_none());
    assert!(device.memory(extent).is_some());
}

#[test]
fn what_was_written_is_read_and_the_rest_is_zero() {
    for block_size in [
        BlockSize::B512,
        BlockSize::B4096,
        BlockSize::new(65_536).expect("legal"),
    ] {
        let device = volume(16 << block_size.shift(), block_size);
        fill(&device, 3, 2, 0xa5);
        assert!(read(&device, 3, 2).iter().all(|&byte| byte == 0xa5));
        assert!(read(&device, 0, 3).iter().all(|&byte| byte == 0));
        assert!(read(&device, 5, 11).iter().all(|&byte| byte == 0));
    }
}

#[test]
fn memory_is_taken_as_it_is_written_and_given_back() {
    let device = volume(1 << 40, BlockSize::B512);
    assert_eq!(device.bytes_written(), 0);
    fill(&device, 1 << 30, 16, 1);
    assert_eq!(device.bytes_written(), 8192);
    ready(device.unmap(Extent::new(0, 1 << 31))).expect("unmapped");
    assert_eq!(device.bytes_written(), 0);
    assert!(read(&device, 1 << 30, 16).iter().all(|&byte| byte == 0));
}

#[test]
fn the_kernel_gets_the_pages_back() {
    let device = volume(256 << 20, BlockSize::B4096);
    let resident = || {
        let statm = std::fs::read_to_string("/proc/self/smaps_rollup").expect("proc");
        let line = statm
            .lines()
            .find(|line| line.starts_with("Rss:"))
            .expect("its resident size");
        line.split_whitespace()
            .nth(1)
            .and_then(|kib| kib.parse::<u64>().ok())
            .expect("a number")
            / 1024
    };
    fill(&device, 0, 65_536, 7);
    let full = resident();
    ready(device.unmap(Extent::new(0, 65_536))).expect("unmapped");
    assert!(
        resident() + 200 < full,
        "{} MiB of {full} MiB stay",
        resident()
    );
}

/// Each of these writes used to clear 2 MiB, which blocked its core.
#[test]
fn scattered_writes_take_a_page_each() {
    let device = volume(64 << 20, BlockSize::B512);
    for zone in 0..32 {
        fill(&device, zone * 4096, 16, 7);
    }
    assert_eq!(device.memory.mapping.resident_pages(), 2 * 32);
}

#[test]
fn zeros_where_nothing_was_written_take_no_memory() {
    let device = volume(64 << 20, BlockSize::B512);
    fill(&device, 100, 1, 7);
    ready(device.write_zeroes(Extent::new(0, 1 << 17), false)).expect("zeroed");
    settle(&device);
    assert_eq!(device.bytes_written(), 64 << 20);
    assert_eq!(device.memory.mapping.resident_pages(), 1);
    assert!(read(&device, 100, 1).iter().all(|&byte| byte == 0));
}

/// Waits until the thread that makes huge pages is idle. The thread takes a zone off the queue before it
/// makes the page, and holds a reference to the memory meanwhile. So this also waits until that reference is
/// dropped.
fn settle(device: &RamDevice) {
    let limit = std::time::Instant::now() + std::time::Duration::from_secs(60);
    let huge_pages = device.memory.huge_pages.as_ref().expect("they are allowed");
    while !huge_pages.is_idle() || std::sync::Arc::strong_count(&device.memory) > 1 {
        assert!(
            std::time::Instant::now() < limit,
            "the thread does not come to its end"
        );
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

#[test]
fn zeros_that_were_data_when_a_huge_page_was_wanted_get_none() {
    let device = volume(4 << 20, BlockSize::B512);
    fill(&device, 0, 8192, 9);
    ready(device.unmap(Extent::new(0, 8192))).expect("unmapped");
    ready(device.write_zeroes(Extent::new(0, 8192), false)).expect("zeroed");
    settle(&device);
    assert_eq!(
        (
            device.bytes_written(),
            device.memory.mapping.resident_pages()
        ),
        (4 << 20, 0)
    );
}

#[test]
fn what_is_mostly_written_keeps_its_data_in_a_huge_page() {
    const ZONE: u64 = 4096;
    let device = volume(8 << 20, BlockSize::B512);
    // Writes the whole of a zone, slightly too little of the next, just enough of the third, and nothing of
    // the fourth.
    for (zone, blocks) in [(0, ZONE), (1, ZONE / 4 * 3 - 8), (2, ZONE / 4 * 3)] {
        fill(&device, zone * ZONE, blocks, 9);
    }
    settle(&device);
    let small = (512 + 384 - 1 + 384) as usize;
    let probe = super::mapping::Mapping::new(super::mapping::HUGE_PAGE).expect("memory");
    let more = match probe.collapse(0) {
        Ok(()) => 128,
        Err(error) => {
            eprintln!("skipped: no huge pages here ({error})");
            0
        }
    };
    assert_eq!(device.memory.mapping.resident_pages(), small + more);
    for (zone, blocks) in [(0, ZONE), (1, ZONE / 4 * 3 - 8), (2, ZONE / 4 * 3)] {
        assert!(
            read(&device, zone * ZONE, blocks)
                .iter()
                .all(|&byte| byte == 9)
        );
        assert!(
            read(&device, zone * ZONE + blocks, ZONE - blocks)
                .iter()
                .all(|&byte| byte == 0)
        );
    }
    ready(device.unmap(Extent::new(0, 4 * ZONE))).expect("unmapped");
    assert_eq!(
        (
            device.bytes_written(),
            device.memory.mapping.resident_pages()
        ),
        (0, 0)
    );
}

#[test]
fn what_is_given_back_before_it_gets_a_huge_page_gets_none() {
    let device = volume(4 << 20, BlockSize::B512);
    fill(&device, 0, 8192, 9);
    ready(device.unmap(Extent::new(0, 8192))).expect("unmapped");
    settle(&device);
    assert_eq!(device.memory.mapping.resident_pages(), 0);
}

#[test]
fn an_unaligned_unmap_zeroes_its_edges_and_no_more() {
    let device = volume(64 * 512, BlockSize::B512);
    fill(&device, 0, 64, 9);
    ready(device.unmap(Extent::new(5, 30))).expect("unmapped");
    assert!(read(&device, 0, 5).iter().all(|&byte| byte == 9));
    assert!(read(&device, 5, 30).iter().all(|&byte| byte == 0));
    assert!(read(&device, 35, 29).iter().all(|&byte| byte == 9));
    assert_eq!(device.bytes_written(), 5 * 4096, "granules 1 to 3 are gone");
}

#[test]
fn an_unmap_inside_one_granule_keeps_its_space() {
    let device = volume(64 * 512, BlockSize::B512);
    fill(&device, 0, 8, 9);
    ready(device.unmap(Extent::new(1, 2))).expect("unmapped");
    assert!(read(&device, 1, 2).iter().all(|&byte| byte == 0));
    assert!(read(&device, 3, 5).iter().all(|&byte| byte == 9));
    assert_eq!(device.bytes_written(), 4096);
}

#[test]
fn the_short_last_granule_goes_back_too() {
    let device = volume(9 * 512, BlockSize::B512);
    fill(&device, 8, 1, 9);
    ready(device.unmap(Extent::new(8, 1))).expect("unmapped");
    assert_eq!(device.bytes_written(), 0);
}

#[test]
fn zeroes_keep_their_space_unless_they_may_be_unmapped() {
    let device = volume(64 * 512, BlockSize::B512);
    ready(device.write_zeroes(Extent::new(0, 64), false)).expect("zeroed");
    assert_eq!(device.bytes_written(), 32_768);
    ready(device.write_zeroes(Extent::new(0, 64), true)).expect("zeroed");
    assert_eq!(device.bytes_written(), 0);
}

#[test]
fn allocation_tells_runs_in_order_without_gaps() {
    let device = volume(1 << 30, BlockSize::B512);
    fill(&device, 16, 8, 1);
    let runs = ready(device.allocation(Extent::new(1, 100), 8)).expect("runs");
    let expected = [
        Run {
            extent: Extent::new(1, 15),
            allocation: Allocation::Deallocated,
        },
        Run {
            extent: Extent::new(16, 8),
            allocation: Allocation::Mapped,
        },
        Run {
            extent: Extent::new(24, 77),
            allocation: Allocation::Deallocated,
        },
    ];
    assert_eq!(runs, expected);
    assert_eq!(
        ready(device.allocation(Extent::new(1, 100), 1)).expect("runs"),
        expected[..1]
    );
}

/// The map of a 4 TiB volume is 128 MiB long. Virtual time passes only when the executor enters the world, so
/// the deadline is reached only if the scan yields.
#[test]
fn a_scan_of_a_large_volume_leaves_other_tasks_their_turns() {
    let device = volume(4 << 40, BlockSize::B512);
    reactor::block_on(reactor::Alone::virtual_time(), async {
        let whole = Extent::new(0, device.geometry().blocks.0);
        let scan = reactor::timeout(
            std::time::Duration::from_micros(100),
            device.allocation(whole, 8),
        );
        assert!(scan.await.is_err(), "the scan kept the core until its end");
        let runs = device
            .allocation(Extent::new(5, 64 << 21), 8)
            .await
            .expect("runs");
        assert_eq!(
            runs,
            [Run {
                extent: Extent::new(5, 64 << 21),
                allocation: Allocation::Deallocated
            }]
        );
    });
}

#[test]
fn what_has_landed_is_the_volumes_and_takes_space() {
    let device = volume(64 * 512, BlockSize::B512);
    let mut blocks = device.memory_to_write(Extent::new(8, 16)).expect("memory");
    assert_eq!(device.bytes_written(), 0, "nothing has landed");
    blocks.put(0, &[3; 4096 + 100]);
    assert_eq!(
        device.bytes_written(),
        4096,
        "a part of a block does not land"
    );
    assert!(read(&device, 8, 8).iter().all(|&byte| byte == 3));
    assert!(read(&device, 16, 8).iter().all(|&byte| byte == 0));
}

#[test]
fn an_unmap_between_the_pieces_of_a_write_takes_away_what_had_landed_and_no_more() {
    let device = volume(64 * 512, BlockSize::B512);
    let mut blocks = device.memory_to_write(Extent::new(0, 16)).expect("memory");
    blocks.put(0, &[3; 4096]);
    ready(device.unmap(Extent::new(0, 16))).expect("unmapped");
    blocks.put(4096, &[3; 4096]);
    let runs = ready(device.allocation(Extent::new(0, 16), 8)).expect("runs");
    let expected = [
        Run {
            extent: Extent::new(0, 8),
            allocation: Allocation::Deallocated,
        },
        Run {
            extent: Extent::new(8, 8),
            allocation: Allocation::Mapped,
        },
    ];
    assert_eq!(runs, expected);
    // A range that is too small to be freed is zeroed in place.
    ready(device.unmap(Extent::new(9, 1))).expect("unmapped");
    assert!(read(&device, 9, 1).iter().all(|&byte| byte == 0));
}

/// Uses large blocks, so that concurrent changes of one block overlap in time.
#[test]
fn a_block_is_never_a_mixture_of_what_several_cores_made_of_it() {
    const BLOCK: usize = 65_536;
    let device = volume(BLOCK as u64, BlockSize::new(BLOCK as u32).expect("legal"));
    let block = Extent::new(0, 1);
    for round in 0..300 {
        let together = std::sync::Barrier::new(3);
        std::thread::scope(|scope| {
            for byte in [round as u8 | 1, !(round as u8) | 1] {
                let (device, together) = (&device, &together);
                scope.spawn(move || {
                    together.wait();
                    fill(device, 0, 1, byte);
                });
            }
            together.wait();
            ready(device.unmap(block)).expect("unmapped");
        });
        let left = read(&device, 0, 1);
        assert!(left.iter().all(|byte| *byte == left[0]), "round {round}");
        let allocated = ready(device.allocation(block, 1)).expect("a run")[0].allocation;
        assert!(
            left[0] == 0 || allocated == Allocation::Mapped,
            "round {round}: there are data"
        );
    }
}

#[test]
fn a_region_outlives_the_unmapping_of_its_blocks_and_the_device() {
    let device = volume(64 * 512, BlockSize::B512);
    fill(&device, 0, 64, 5);
    let region = device.memory(Extent::new(0, 64)).expect("memory");
    ready(device.unmap(Extent::new(0, 32))).expect("unmapped");
    drop(device);
    let mut seen = [1; 32_768];
    region.load(0, &mut seen);
    assert!(
        seen[..16_384].iter().all(|&byte| byte == 0)
            && seen[16_384..].iter().all(|&byte| byte == 5)
    );
}
