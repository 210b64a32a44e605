use block::BlockSize;
use proptest::prelude::*;
use testkit::{TestDisk, ready};

use super::*;

/// Bytes and their offset.
type Written = (usize, &'static [u8]);

/// A disk of `kib` KiB with these bytes at these offsets.
fn disk(kib: usize, written: &[(usize, &[u8])]) -> Vec<u8> {
    let mut bytes = vec![0; kib << 10];
    for (at, data) in written {
        bytes[*at..*at + data.len()].copy_from_slice(data);
    }
    bytes
}

fn said(bytes: &[u8]) -> Option<String> {
    recognised(&Ends::new(bytes, 512)).map(|contents| contents.to_string())
}

fn said_of(written: &[(usize, &[u8])]) -> Option<String> {
    said(&disk(4096, written))
}

const MIB: usize = 1 << 20;

#[test]
fn a_disk_of_zeros_holds_nothing_known() {
    assert_eq!(said(&disk(4096, &[])), None);
    assert_eq!(said(&[]), None);
}

#[test]
fn data_without_a_signature_are_data_all_the_same() {
    assert_eq!(
        said_of(&[(77, b"x")]).as_deref(),
        Some("data of an unknown kind")
    );
    assert_eq!(
        said_of(&[(4 * MIB - 1, b"x")]).as_deref(),
        Some("data of an unknown kind")
    );
}

#[test]
fn file_systems_are_named_with_their_labels() {
    let known: &[(&[Written], &str)] = &[
        (
            &[(1080, &[0x53, 0xef]), (1120, &[0x40]), (1144, b"root")],
            "an ext4 file system (label root)",
        ),
        (
            &[(1080, &[0x53, 0xef]), (1116, &[4]), (1144, b"old")],
            "an ext3 file system (label old)",
        ),
        (
            &[(1080, &[0x53, 0xef])],
            "an ext2 file system (UUID 00000000-0000-0000-0000-000000000000)",
        ),
        (
            &[(0, b"XFSB"), (108, b"data")],
            "an XFS file system (label data)",
        ),
        (
            &[(0x1_0040, b"_BHRfS_M"), (0x1_012b, b"pool")],
            "a Btrfs file system (label pool)",
        ),
        (
            &[(3, b"NTFS    "), (510, &[0x55, 0xaa])],
            "an NTFS file system",
        ),
        (
            &[(82, b"FAT32   "), (71, b"STICK      ")],
            "a FAT32 file system (label STICK)",
        ),
        (&[(MIB, &[0x0d, 0xd0, 0x01, 0xc0])], "a VMFS file system"),
        (
            &[(4086, b"SWAPSPACE2"), (1052, b"swp")],
            "swap space (label swp)",
        ),
        (
            &[(0x8001, b"CD001"), (0x8028, b"DEBIAN   ")],
            "an ISO 9660 file system (label DEBIAN)",
        ),
        (
            &[(0, b"LUKS\xba\xbe\0\x02"), (24, b"safe")],
            "a LUKS2 encrypted volume (label safe)",
        ),
        (&[(0, b"QFI\xfb")], "a QCOW2 image"),
    ];
    for (written, expected) in known {
        assert_eq!(said_of(written).as_deref(), Some(*expected));
    }
}

#[test]
fn members_of_sets_are_found_at_either_end() {
    let raid = [&0xa92b_4efc_u32.to_le_bytes()[..], &[1, 0, 0, 0]].concat();
    let named = "a member of a Linux RAID set (of san1:0)";
    for at in [0, 4096, 4 * MIB - 8192] {
        assert_eq!(
            said_of(&[(at, &raid), (at + 32, b"san1:0")]).as_deref(),
            Some(named)
        );
    }
    let old = (4 * MIB - (64 << 10), &0xa92b_4efc_u32.to_le_bytes()[..]);
    assert_eq!(
        said_of(&[old]).as_deref(),
        Some("a member of a Linux RAID set")
    );
    for slot in [64 << 10, 128 << 10] {
        let ours: &[(usize, &[u8])] = &[(slot, b"LNRTRAID"), (slot + 32, &[0xab; 16])];
        let said = said_of(ours).expect("a member");
        assert_eq!(
            said,
            "a member of a Linerate RAID set (UUID abababab-abab-abab-abab-abababababab)"
        );
        let named = [ours, &[(slot + 168, b"backup")]].concat();
        assert_eq!(
            said_of(&named).as_deref(),
            Some("a member of a Linerate RAID set (of backup)")
        );
    }
    let label: &[(usize, &[u8])] = &[(512, b"LABELONE"), (536, b"LVM2 001")];
    assert_eq!(said_of(label).as_deref(), Some("an LVM2 physical volume"));
    for label in [0, 256 << 10, 4 * MIB - (256 << 10)] {
        let uberblock = (
            label + (128 << 10) + 5 * 1024,
            &0x00ba_b10c_u64.to_le_bytes()[..],
        );
        assert_eq!(
            said_of(&[uberblock]).as_deref(),
            Some("a member of a ZFS pool")
        );
    }
}

/// A GPT header in the second block, and entries of 128 bytes from the third block on.
fn guid_table(block: usize, partitions: usize) -> Vec<u8> {
    let kind = [0xaf; 16];
    let mut bytes = disk(
        4096,
        &[
            (block, b"EFI PART"),
            (block + 72, &[2]),
            (block + 80, &[128]),
            (block + 84, &[128]),
        ],
    );
    for index in 0..partitions {
        bytes[2 * block + index * 128..][..16].copy_from_slice(&kind);
    }
    bytes
}

#[test]
fn the_partitions_of_a_guid_table_are_counted_whatever_the_block_length() {
    assert_eq!(
        said(&guid_table(512, 2)).as_deref(),
        Some("a GPT partition table with 2 partitions")
    );
    assert_eq!(
        said(&guid_table(4096, 1)).as_deref(),
        Some("a GPT partition table with 1 partition")
    );
}

#[test]
fn the_second_copy_of_a_guid_table_counts_without_the_first() {
    let said = said_of(&[(4 * MIB - 512, b"EFI PART")]);
    assert_eq!(
        said.as_deref(),
        Some("the second copy of a GPT partition table, without the first")
    );
}

#[test]
fn a_master_boot_record_is_told_from_other_boot_sectors() {
    let signed = (510, &[0x55, 0xaa][..]);
    let table = said_of(&[(446, &[0x80]), (450, &[0x83]), (466, &[0x82]), signed]);
    assert_eq!(
        table.as_deref(),
        Some("an MBR partition table with 2 partitions")
    );
    assert_eq!(
        said_of(&[(446, &[0x17]), (450, &[0x83]), signed]).as_deref(),
        Some("a boot sector")
    );
}

#[test]
fn a_disk_that_is_several_things_is_named_as_all_of_them() {
    let hybrid = said_of(&[
        (450, &[0x17]),
        (510, &[0x55, 0xaa]),
        (0x8001, b"CD001"),
        (4086, b"SWAPSPACE2"),
    ]);
    let expected =
        "an MBR partition table with 1 partition, an ISO 9660 file system and swap space";
    assert_eq!(hybrid.as_deref(), Some(expected));
}

#[test]
fn a_label_cannot_move_the_cursor() {
    let said = said_of(&[(0, b"XFSB"), (108, b"a\x1b[2Jb\0zz")]);
    assert_eq!(said.as_deref(), Some("an XFS file system (label a?[2Jb)"));
}

/// Creates a device of zeros. If `has_system`, its first block is that of a file system.
fn test_disk(has_system: bool, read_only: bool) -> TestDisk {
    let disk =
        TestDisk::new(BlockSize::B512, 2048).with_profile(|profile| profile.read_only = read_only);
    if has_system {
        disk.with_bytes(|bytes| bytes[..4].copy_from_slice(b"XFSB"));
    }
    disk
}

/// Requests consent to overwrite the disk. `answer` is the user's answer; `None` means that the user gave
/// consent beforehand.
fn consent(device: &TestDisk, part: Option<&str>, answer: Option<bool>) -> Result<(), Refused> {
    let asked = |_: &str| answer.unwrap_or(false);
    let consent = if answer.is_some() {
        Consent::Ask(&asked)
    } else {
        Consent::Given
    };
    let overwritten = Overwritten {
        device,
        name: &"san",
        part,
    };
    ready(overwritten.consent(consent))
}

#[test]
fn what_is_on_a_disk_is_lost_with_consent_only() {
    let disk = test_disk(true, false);
    assert_eq!(
        consent(&disk, None, Some(false)),
        Err(Refused::Kept("an XFS file system is on san".to_owned()))
    );
    let said = consent(&disk, Some("1MiB"), Some(false))
        .expect_err("a refusal")
        .to_string();
    assert_eq!(
        said,
        "an XFS file system is on san, of which 1MiB would be overwritten"
    );
    assert_eq!(consent(&disk, None, Some(true)), Ok(()));
    assert_eq!(consent(&disk, None, None), Ok(()));
    assert_eq!(
        consent(&test_disk(false, false), None, Some(false)),
        Ok(()),
        "nothing is lost"
    );
    let protected = consent(&test_disk(false, true), None, None);
    assert_eq!(protected, Err(Refused::WriteProtected("san".to_owned())));
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(
        places in prop::collection::vec((0usize..SIZE, 0usize..MAGICS.len()), 0..8),
        noise in prop::collection::vec((0usize..SIZE, any::<[u8; 16]>()), 0..16),
        end in 0usize..SIZE,
    ) {
        let mut bytes = vec![0u8; SIZE + 512];
        for (at, magic) in places {
            bytes[at..at + MAGICS[magic].len()].copy_from_slice(MAGICS[magic]);
        }
        for (at, data) in noise {
            bytes[at..at + 16].copy_from_slice(&data);
        }
        let _ = said(&bytes[..end]);
        let at_block = [b"EFI PART".as_slice(), &bytes[..end.min(84)]].concat();
        bytes[512..512 + at_block.len()].copy_from_slice(&at_block);
        let _ = said(&bytes);
    }
}

const SIZE: usize = 80 << 10;
const MAGICS: &[&[u8]] = &[
    b"EFI PART",
    b"LABELONE",
    &[0x53, 0xef],
    &[0x55, 0xaa],
    b"XFSB",
    b"SWAPSPACE2",
    b"LNRTRAID",
];

/// Hosts can write arbitrary bytes to a volume, including those from which this length is computed.
#[test]
fn a_length_is_that_of_the_only_file_system_and_of_nothing_else() {
    const EXT4: Written = (1080, &[0x53, 0xef]);
    let length =
        |written: &[(usize, &[u8])]| file_system_bytes_of(&Ends::new(&disk(4096, written), 512));
    let kib: (usize, &[u8]) = (1028, &[0, 4, 0, 0]);
    assert_eq!(length(&[EXT4, kib]), Some(1 << 20));
    assert_eq!(
        length(&[EXT4, kib, (1048, &[2])]),
        Some(4 << 20),
        "blocks of 4 KiB"
    );
    assert_eq!(
        length(&[(0, b"XFSB"), (6, &[0x10]), (14, &[1])]),
        Some(1 << 20)
    );
    for left_over in [
        &[(450, &[0x83][..]), (510, &[0x55, 0xaa])][..],
        &[(512, b"LABELONE"), (536, b"LVM2 001")],
        &[
            (512, b"EFI PART"),
            (512 + 72, &[2]),
            (512 + 80, &[128]),
            (512 + 84, &[128]),
        ],
        &[(4 * MIB - 512, b"EFI PART")],
    ] {
        assert_eq!(
            length(&[&[EXT4, kib], left_over].concat()),
            None,
            "{left_over:?}"
        );
    }
    for exponent in [7, 54, 63, 64, 255] {
        assert_eq!(
            length(&[EXT4, kib, (1048, &[exponent])]),
            None,
            "blocks of 2^{exponent} KiB"
        );
    }
    assert_eq!(length(&[EXT4]), None, "without blocks");
    assert_eq!(
        length(&[(0, b"XFSB"), (6, &[0x10])]),
        None,
        "without blocks"
    );
    assert_eq!(
        length(&[(0, b"XFSB"), (7, &[3]), (14, &[1])]),
        None,
        "blocks of 3 bytes"
    );
}
