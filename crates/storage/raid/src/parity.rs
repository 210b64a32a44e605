//! Parity over GF(2^8), polynomial 0x11d, generator 2: the code of RAID 5 and RAID 6.

/// The polynomial x^8 + x^4 + x^3 + x^2 + 1 without its highest term.
const POLYNOMIAL: u8 = 0x1d;

/// `target` ^= `source`. The slices have one length.
pub fn xor_into(target: &mut [u8], source: &[u8]) {
    target.iter_mut().zip(source).for_each(|(target, source)| *target ^= source);
}

/// P (the sum of all data) and Q (the sum of g^index * data) of a stripe. The slices have one length.
pub fn syndromes(data: &[&[u8]], p: &mut [u8], q: &mut [u8]) {
    p.fill(0);
    q.fill(0);
    // Horner's rule, from the last strip to the first.
    for strip in data.iter().rev() {
        xor_into(p, strip);
        q.iter_mut().zip(*strip).for_each(|(q, byte)| *q = double(*q) ^ byte);
    }
}

/// `q` ^= g^index * `data`: what a change of strip `index` by `data` changes in Q.
pub fn add_to_q(q: &mut [u8], data: &[u8], index: usize) {
    let factor = power(index);
    q.iter_mut().zip(data).for_each(|(q, byte)| *q ^= multiply(factor, *byte));
}

/// Recovers strips `a_index` and `b_index`, which differ. Before: `p_delta` and `q_delta` are P and Q minus the
/// contributions of all other strips. After: `p_delta` is strip a, `q_delta` strip b.
pub fn recover_data_and_data(a_index: usize, b_index: usize, p_delta: &mut [u8], q_delta: &mut [u8]) {
    let (a, b) = (power(a_index), power(b_index));
    let divisor = inverse(a ^ b);
    for (p, q) in p_delta.iter_mut().zip(q_delta) {
        let strip_a = multiply(divisor, multiply(b, *p) ^ *q);
        *q = *p ^ strip_a;
        *p = strip_a;
    }
}

/// Recovers strip `index` from Q minus the contributions of all other strips.
pub fn recover_data_by_q(index: usize, q_delta: &mut [u8]) {
    let divisor = inverse(power(index));
    q_delta.iter_mut().for_each(|q| *q = multiply(divisor, *q));
}

fn double(a: u8) -> u8 {
    (a << 1) ^ if a & 0x80 == 0 { 0 } else { POLYNOMIAL }
}

fn multiply(mut a: u8, mut b: u8) -> u8 {
    let mut product = 0;
    while b != 0 {
        if b & 1 != 0 {
            product ^= a;
        }
        a = double(a);
        b >>= 1;
    }
    product
}

/// g^exponent; the powers repeat after 255.
fn power(exponent: usize) -> u8 {
    (0..exponent % 255).fold(1, |power, _| double(power))
}

/// a^254, which is 1/a.
fn inverse(a: u8) -> u8 {
    (0..254).fold(1, |product, _| multiply(product, a))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_two_strips_are_recovered() {
        let data: Vec<Vec<u8>> = (0..5u8)
            .map(|strip| (0..64u8).map(|at| at.wrapping_mul(7) ^ strip.wrapping_mul(31)).collect())
            .collect();
        let slices: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
        let (mut p, mut q) = (vec![0; 64], vec![0; 64]);
        syndromes(&slices, &mut p, &mut q);
        for a in 0..5 {
            let mut q_delta = q.clone();
            (0..5).filter(|at| *at != a).for_each(|at| add_to_q(&mut q_delta, &data[at], at));
            recover_data_by_q(a, &mut q_delta);
            assert_eq!(q_delta, data[a]);
            for b in (0..5).filter(|b| *b != a) {
                let (mut p_delta, mut q_delta) = (p.clone(), q.clone());
                for at in (0..5).filter(|at| *at != a && *at != b) {
                    xor_into(&mut p_delta, &data[at]);
                    add_to_q(&mut q_delta, &data[at], at);
                }
                recover_data_and_data(a, b, &mut p_delta, &mut q_delta);
                assert_eq!((&p_delta, &q_delta), (&data[a], &data[b]));
            }
        }
    }
}
