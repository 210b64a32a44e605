//! INQUIRY: vital product data.

use std::sync::Arc;

use block::{Blocks, OptimalTransfer};

use crate::support::*;

fn page(bench: &mut Bench, code: u8) -> Vec<u8> {
    let data = bench.command(&inquiry(Some(code), u16::MAX)).good().data;
    assert_eq!(data[..2], [0, code]);
    assert_eq!(
        usize::from(u16::from_be_bytes([data[2], data[3]])),
        data.len() - 4
    );
    data
}

fn u32_at(data: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(data[at..at + 4].try_into().expect("four bytes"))
}

#[test]
fn every_page_that_is_listed_is_there_and_they_are_in_order() {
    let mut bench = Bench::new();
    let listed = page(&mut bench, 0)[4..].to_vec();
    assert_eq!(
        listed,
        [
            0x00, 0x80, 0x83, 0x84, 0x86, 0x87, 0x88, 0x8f, 0xb0, 0xb1, 0xb2
        ]
    );
    for code in listed {
        page(&mut bench, code);
    }
}

#[test]
fn a_unit_with_a_volatile_cache_tells_its_generation() {
    let mut bench = Bench::keeping(&Arc::<Paper>::default());
    assert_eq!(page(&mut bench, 0)[4..].last(), Some(&0xc0));
    let body = page(&mut bench, 0xc0)[4..].to_vec();
    assert_eq!(body, [&b"LINERATE\x01\0\0\0"[..], &[7; 16]].concat());
}

#[test]
fn the_serial_number_is_the_uuid() {
    assert_eq!(
        &page(&mut Bench::new(), 0x80)[4..],
        b"30313233343536373839616263646566"
    );
}

/// Returns the association and type, the code set and the designator of each descriptor.
fn designators(page: &[u8]) -> Vec<(u8, u8, Vec<u8>)> {
    let mut rest = &page[4..];
    let mut all = vec![];
    while let [code_set, kind, _, length, tail @ ..] = rest {
        let (designator, tail) = tail.split_at(usize::from(*length));
        all.push((kind & 0x3f, code_set & 0x0f, designator.to_vec()));
        rest = tail;
    }
    all
}

#[test]
fn the_unit_has_the_same_names_on_every_path() {
    let mut bench = Bench::new();
    let mut other = bench.second();
    let of_unit = |page: &[u8]| {
        designators(page)
            .into_iter()
            .filter(|d| d.0 < 0x10)
            .collect::<Vec<_>>()
    };
    let one = of_unit(&page(&mut bench, 0x83));
    let two = of_unit(&bench.by(&mut other, &inquiry(Some(0x83), 255)).good().data);
    assert_eq!(one, two);
    assert_eq!(
        (one[0].0, one[0].2.len(), one[0].2[0] >> 4),
        (3, 8, 3),
        "NAA, locally assigned"
    );
    assert_eq!(
        (one[1].0, &one[1].2[..8], one[1].2.len()),
        (1, &b"LINERATE"[..], 20),
        "T10 vendor ID"
    );
}

/// The designators of a LIO disk, by which initiators recognise it.
#[test]
fn names_that_are_given_replace_those_of_the_uuid() {
    let given = logical_unit::GivenNames {
        serial: Some("6f2d4c1e-8a3b".parse().expect("a serial number")),
        naa: Some(
            "0x6001405a1b2c3d4e5f60718293a4b5c6"
                .parse()
                .expect("an identifier"),
        ),
        t10_id: Some("LIO-ORG disk1:6f2d4c1e-8a3b".parse().expect("a designator")),
        vendor: Some("LIO-ORG".parse().expect("a vendor")),
        product: Some("disk1".parse().expect("a product")),
        revision: Some("4.0".parse().expect("a revision")),
    };
    let mut bench = Bench::of_unit(|unit| unit.identity.given = given);
    let standard = bench.command(&inquiry(None, 96)).good().data;
    assert_eq!(&standard[8..36], b"LIO-ORG disk1           4.0 ");
    assert_eq!(&page(&mut bench, 0x80)[4..], b"6f2d4c1e-8a3b");
    let names = designators(&page(&mut bench, 0x83));
    let naa = [
        0x60, 0x01, 0x40, 0x5a, 0x1b, 0x2c, 0x3d, 0x4e, 0x5f, 0x60, 0x71, 0x82, 0x93, 0xa4, 0xb5,
        0xc6,
    ];
    assert_eq!(names[0], (3, 1, naa.to_vec()));
    assert_eq!(names[1], (1, 2, b"LIO-ORG disk1:6f2d4c1e-8a3b".to_vec()));
    assert!(
        bench.unit.identity().has_designator(&naa),
        "EXTENDED COPY finds it by that name"
    );
    assert!(
        !bench
            .unit
            .identity()
            .has_designator(&logical_unit::Identity::new(*b"0123456789abcdef").naa())
    );
}

#[test]
fn the_ports_are_named_as_rfc_7143_says() {
    let all = designators(&page(&mut Bench::new(), 0x83));
    assert!(
        all.contains(&(0x14, 1, vec![0, 0, 0, 1])),
        "relative target port"
    );
    assert!(
        all.contains(&(0x15, 1, vec![0, 0, 0, 1])),
        "target port group"
    );
    let port = all
        .iter()
        .find(|d| d.0 == 0x18)
        .expect("SCSI name string of the port");
    assert!(port.2.starts_with(b"iqn.2026-11.test:target,t,0x0001\0") && port.2.len() % 4 == 0);
    assert!(
        all.iter()
            .any(|d| d.0 == 0x28 && d.2.starts_with(b"iqn.2026-11.test:target\0"))
    );
}

#[test]
fn block_limits() {
    let data = page(&mut Bench::new(), 0xb0);
    assert_eq!(data.len(), 64);
    assert_eq!(
        (data[4], data[5]),
        (1, 255),
        "WSNZ, MAXIMUM COMPARE AND WRITE LENGTH"
    );
    assert_eq!(u32_at(&data, 8), 65_536, "MAXIMUM TRANSFER LENGTH");
    assert_eq!(u32_at(&data, 12), 0, "OPTIMAL TRANSFER LENGTH");
    assert_eq!(
        (u32_at(&data, 20), u32_at(&data, 24)),
        (1 << 20, 256),
        "UNMAP"
    );
    assert_eq!(
        (u32_at(&data, 28), u32_at(&data, 32)),
        (1, 1 << 31),
        "UNMAP granularity and alignment"
    );
    assert_eq!(u32_at(&data, 40), 1 << 20, "MAXIMUM WRITE SAME LENGTH");
    assert_eq!(u32_at(&data, 44), 4096, "MAXIMUM ATOMIC TRANSFER LENGTH");
}

#[test]
fn a_volume_that_is_not_thin_claims_no_unmap() {
    let mut bench = Bench::of_unit(|unit| unit.thin = Some(false));
    let limits = page(&mut bench, 0xb0);
    assert_eq!((u32_at(&limits, 20), u32_at(&limits, 24)), (0, 0));
    assert_eq!(page(&mut bench, 0xb2)[4..], [0, 0, 0, 0]);
    assert_eq!(
        page(&mut Bench::new(), 0xb2)[4..],
        [11, 0xe4, 2, 0],
        "threshold sets of 2^11 blocks"
    );
}

#[test]
fn granularity_is_that_of_the_physical_block() {
    let disk = DiskOptions {
        physical_exponent: 3,
        ..DiskOptions::default()
    };
    assert_eq!(page(&mut Bench::of_disk(disk), 0xb0)[6..8], [0, 8]);
}

#[test]
fn hosts_learn_the_strip_and_the_stripe_of_a_set() {
    let set = |strip, stripe| {
        let optimal_transfer = Some(OptimalTransfer {
            granularity: Blocks(strip),
            length: Blocks(stripe),
        });
        let disk = DiskOptions {
            optimal_transfer,
            ..DiskOptions::default()
        };
        let limits = page(&mut Bench::of_disk(disk), 0xb0);
        (
            u16::from_be_bytes([limits[6], limits[7]]),
            u32_at(&limits, 12),
        )
    };
    assert_eq!(set(128, 384), (128, 384));
    // This optimal length is longer than the limit of a command, so a host that used it would receive errors.
    assert_eq!(set(2048, 2048 * 40), (2048, 0));
}

#[test]
fn block_device_characteristics() {
    assert_eq!(page(&mut Bench::new(), 0xb1)[4..6], [0, 1], "solid state");
}

#[test]
fn all_nexuses_share_the_mode_pages() {
    assert_eq!(page(&mut Bench::new(), 0x87)[4..], [0x3f, 0xff, 0, 0]);
}

#[test]
fn the_ports_of_this_target_are_listed() {
    let mut bench = Bench::new();
    let _other = bench.second();
    let session = logical_unit::SessionTraits::new(
        logical_unit::InitiatorPort {
            name: "iqn.2026-11.test:initiator1".into(),
            qualifier: [0; 6],
        },
        logical_unit::TargetPort {
            name: "iqn.2026-11.test:elsewhere".into(),
            group: 1,
            relative_port: 3,
        },
        start,
    );
    let mut stranger = bench.unit.attach(Arc::new(session), start());
    let ports = |page: &[u8]| -> Vec<(u16, Vec<u8>)> {
        let mut rest = &page[4..];
        let mut ports = vec![];
        while let [0, 0, high, low, 0, 0, 0, 0, 0, 0, long, short, tail @ ..] = rest {
            let (names, tail) = tail.split_at(usize::from(u16::from_be_bytes([*long, *short])));
            assert_eq!(
                names[..2],
                [0x53, 0x98],
                "a SCSI name string of an iSCSI target port"
            );
            ports.push((u16::from_be_bytes([*high, *low]), names[4..].to_vec()));
            rest = tail;
        }
        assert!(rest.is_empty());
        ports
    };
    let mine = ports(&page(&mut bench, 0x88));
    assert_eq!(mine.iter().map(|port| port.0).collect::<Vec<_>>(), [1, 2]);
    assert!(mine[1].1.starts_with(b"iqn.2026-11.test:target,t,0x0002\0"));
    let others = ports(
        &bench
            .by(&mut stranger, &inquiry(Some(0x88), u16::MAX))
            .good()
            .data,
    );
    assert_eq!(others.iter().map(|port| port.0).collect::<Vec<_>>(), [3]);
}

/// The page must be consistent with RECEIVE COPY RESULTS, and with the commands that REPORT SUPPORTED
/// OPERATION CODES lists.
#[test]
fn third_party_copies_are_described() {
    let mut bench = Bench::new();
    let page = page(&mut bench, 0x8f);
    let mut rest = &page[4..];
    let mut descriptors = vec![];
    while let [a, b, c, d, tail @ ..] = rest {
        let (parameters, tail) = tail.split_at(usize::from(u16::from_be_bytes([*c, *d])));
        assert_eq!(parameters.len() % 4, 0);
        descriptors.push((u16::from_be_bytes([*a, *b]), parameters));
        rest = tail;
    }
    let kinds: Vec<u16> = descriptors.iter().map(|descriptor| descriptor.0).collect();
    assert_eq!(kinds, [0x0001, 0x0004, 0x0008, 0x000c, 0x8001]);
    assert_eq!(descriptors[0].1, [7, 0x83, 1, 0, 0x84, 2, 0, 3]);
    let told = bench.command(&sixteen(0x84, 3, 0, 255)).good().data;
    assert_eq!(descriptors[1].1[4..12], told[8..16]);
    assert_eq!(descriptors[2].1[..3], told[43..46]);
    assert_eq!(
        (descriptors[4].1[7], descriptors[4].1[12]),
        (told[36], told[37])
    );
}
