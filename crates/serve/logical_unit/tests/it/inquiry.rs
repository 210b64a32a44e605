//! INQUIRY: standard data.

use crate::support::*;

#[test]
fn standard_data() {
    let data = Bench::new().command(&inquiry(None, 255)).good().data;
    assert_eq!(data.len(), usize::from(data[4]) + 5);
    assert_eq!(data[..8], [0, 0, 6, 0x12, 91, 0x18, 0x10, 0x02]);
    assert_eq!(&data[8..36], b"LINERATEVOLUME          0001");
    assert_eq!(
        data[58..66],
        [0x00, 0xa0, 0x09, 0x60, 0x04, 0x60, 0x04, 0xc0]
    );
}

#[test]
fn a_removable_medium_says_so() {
    assert_eq!(
        Bench::of_unit(|unit| unit.removable = true)
            .command(&inquiry(None, 5))
            .good()
            .data[1],
        0x80
    );
}

#[test]
fn truncation_at_any_length() {
    let mut bench = Bench::new();
    for page in [None, Some(0x00), Some(0x83), Some(0xb0)] {
        let whole = bench.command(&inquiry(page, u16::MAX)).good().data;
        for length in [0, 1, 4, 5, 36, 95, 96, 97, 255, 256, 511, 512] {
            let answer = bench.command(&inquiry(page, length)).good();
            let cut = whole.len().min(usize::from(length));
            assert_eq!(answer.data, whole[..cut]);
            assert_eq!(answer.expected_bytes, cut as u64);
        }
    }
}

#[test]
fn a_page_code_without_evpd_or_an_unknown_page_is_refused() {
    Bench::new()
        .command(&[0x12, 0, 0x83, 0, 96, 0])
        .invalid_field(2);
    Bench::new()
        .command(&inquiry(Some(0x01), 255))
        .invalid_field(2);
}
