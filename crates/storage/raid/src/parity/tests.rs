use proptest::prelude::*;
use testkit::Random;

use super::*;

/// Returns all instruction sets of this machine for which there is code.
fn levels() -> Vec<Level> {
    let best = Level::new();
    #[cfg(target_arch = "x86_64")]
    let others = [
        best.as_sse2().map(Level::Sse2),
        best.as_sse4_2().map(Level::Sse4_2),
        best.as_avx2().map(Level::Avx2),
    ];
    #[cfg(not(target_arch = "x86_64"))]
    let others = [None];
    others.into_iter().flatten().chain([best]).collect()
}

/// Strips of equal length at arbitrary addresses.
#[derive(Clone, Debug)]
struct Stripe {
    bytes: Vec<u8>,
    offset: usize,
    length: usize,
    strips: usize,
}

impl Stripe {
    fn data(&self) -> Vec<&[u8]> {
        let strip = |index| &self.bytes[self.offset + index * (self.length + 1)..][..self.length];
        (0..self.strips).map(strip).collect()
    }
}

fn stripes(strips: std::ops::Range<usize>) -> impl Strategy<Value = Stripe> {
    (strips, 0..1500usize, 0..64usize, any::<u64>()).prop_map(|(strips, length, offset, seed)| {
        let mut bytes = vec![0; offset + strips * (length + 1)];
        Random::new(seed).fill(&mut bytes);
        Stripe {
            bytes,
            offset,
            length,
            strips,
        }
    })
}

/// Multiplies according to the definition of the field: polynomials over GF(2), modulo x^8 + x^4 + x^3 + x^2
/// + 1.
fn product(a: u8, b: u8) -> u8 {
    let wide = (0..8)
        .filter(|bit| b >> bit & 1 == 1)
        .fold(0u16, |sum, bit| sum ^ (u16::from(a) << bit));
    let rest = (8..16).rev().fold(wide, |rest, bit| {
        if rest >> bit & 1 == 1 {
            rest ^ (0x11d << (bit - 8))
        } else {
            rest
        }
    });
    rest as u8
}

#[test]
fn the_field_is_that_of_its_polynomial() {
    for a in 0..=255 {
        for b in 0..=255 {
            assert_eq!(multiply(a, b), product(a, b), "{a} {b}");
        }
        assert!(a == 0 || product(a, inverse(a)) == 1, "{a}");
    }
    let mut powers: Vec<u8> = (0..255).map(power).collect();
    assert_eq!(
        (powers[0], powers[1], powers[8], power(255)),
        (1, 2, 0x1d, 1)
    );
    powers.sort_unstable();
    powers.dedup();
    assert_eq!(powers.len(), 255, "each index has a different weight");
}

/// Checks that the weights are the same as in md: according to `raid6test` and Anvin's paper, the strip with
/// index 1 has weight 2 in Q.
#[test]
fn a_stripe_worked_out_by_hand() {
    let (mut p, mut q) = ([0], [0]);
    syndromes(&[&[0x80], &[0x80], &[0x01]], &mut p, &mut q);
    // 0x80 + 2·0x80 + 4·0x01 = 0x80 + 0x1d + 0x04.
    assert_eq!((p, q), ([0x01], [0x99]));
}

#[test]
fn without_data_parity_is_zero() {
    let (mut p, mut q) = (vec![7; 1000], vec![7; 1000]);
    syndromes(&[], &mut p, &mut q);
    assert_eq!((&p, &q), (&vec![0; 1000], &vec![0; 1000]));
    p.fill(7);
    parity(&[], &mut p);
    assert_eq!(p, vec![0; 1000]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_instruction_set_agrees_with_the_definition(stripe in stripes(0..9), by: u8) {
        let data = stripe.data();
        let column = |at: usize| data.iter().map(move |strip| strip[at]);
        let weighted = |at| column(at).enumerate().fold(0, |sum, (index, byte)| sum ^ product(byte, power(index)));
        let sum: Vec<u8> = (0..stripe.length).map(|at| column(at).fold(0, |sum, byte| sum ^ byte)).collect();
        let q_expected: Vec<u8> = (0..stripe.length).map(weighted).collect();
        for level in levels() {
            let (mut p, mut q) = (vec![1; stripe.length], vec![2; stripe.length]);
            Work::Syndromes { data: &data, p: &mut p, q: &mut q }.run(level);
            prop_assert!(p == sum && q == q_expected, "{level:?}");
            p.fill(3);
            Work::Parity { data: &data, p: &mut p }.run(level);
            prop_assert!(p == sum, "{level:?}");
            let Some(first) = data.first() else { continue };
            let expected: Vec<u8> = p.iter().zip(*first).map(|(p, byte)| p ^ product(*byte, by)).collect();
            Work::AddMultiple { to: &mut p, from: first, by }.run(level);
            prop_assert!(p == expected, "{level:?}");
            let expected: Vec<u8> = p.iter().map(|byte| product(*byte, by)).collect();
            Work::Multiply { strip: &mut p, by }.run(level);
            prop_assert!(p == expected, "{level:?}");
        }
    }

    #[test]
    fn whatever_two_strips_are_lost_come_back(stripe in stripes(2..9), lost: (usize, usize)) {
        let data = stripe.data();
        let a = lost.0 % data.len();
        let b = (a + 1 + lost.1 % (data.len() - 1)) % data.len();
        let (mut p, mut q) = (vec![0; stripe.length], vec![0; stripe.length]);
        syndromes(&data, &mut p, &mut q);
        let without = |lost: &[usize]| {
            let (mut p, mut q) = (p.clone(), q.clone());
            for (index, strip) in data.iter().enumerate().filter(|(index, _)| !lost.contains(index)) {
                xor_into(&mut p, strip);
                add_to_q(&mut q, strip, index);
            }
            (p, q)
        };
        let (mut first, mut second) = without(&[a, b]);
        recover_data_and_data(a, b, &mut first, &mut second);
        prop_assert!(first == data[a] && second == data[b]);
        let (by_p, mut by_q) = without(&[a]);
        recover_data_by_q(a, &mut by_q);
        prop_assert!(by_p == data[a] && by_q == data[a]);
    }
}
