//! Byte-by-byte parity, and the arithmetic of the field.

/// x^8 reduced in the field: the polynomial is x^8 + x^4 + x^3 + x^2 + 1.
pub(super) const REDUCTION: u8 = 0x1d;

/// Returns the product of two bytes.
pub(super) const fn multiply(a: u8, b: u8) -> u8 {
    let (mut product, mut bit) = (0, 8);
    while bit > 0 {
        bit -= 1;
        product = (product << 1) ^ if product >= 0x80 { REDUCTION } else { 0 };
        if b >> bit & 1 == 1 {
            product ^= a;
        }
    }
    product
}

/// Returns the weight of the strip with this index: 2 to the power of the index.
pub(super) fn power(index: usize) -> u8 {
    // 2 generates all 255 nonzero elements, so its powers repeat after 255.
    (0..index % 255).fold(1, |power, _| multiply(power, 2))
}

/// Returns 1 / `a`, which is `a` to the power of 254.
pub(super) fn inverse(a: u8) -> u8 {
    (0..254).fold(1, |power, _| multiply(power, a))
}

pub(super) fn add_multiple(to: &mut [u8], from: &[u8], by: u8) {
    to.iter_mut()
        .zip(from)
        .for_each(|(to, from)| *to ^= multiply(*from, by));
}

pub(super) fn multiply_strip(strip: &mut [u8], by: u8) {
    strip
        .iter_mut()
        .for_each(|byte| *byte = multiply(*byte, by));
}

/// Computes P of the bytes of `data` from `start` on.
pub(super) fn parity(data: &[&[u8]], start: usize, p: &mut [u8]) {
    for (at, p) in p.iter_mut().enumerate() {
        *p = data.iter().fold(0, |sum, strip| sum ^ strip[start + at]);
    }
}

/// Computes P and Q of the bytes of `data` from `start` on.
pub(super) fn syndromes(data: &[&[u8]], start: usize, p: &mut [u8], q: &mut [u8]) {
    parity(data, start, p);
    for (at, q) in q.iter_mut().enumerate() {
        *q = data
            .iter()
            .rev()
            .fold(0, |sum, strip| multiply(sum, 2) ^ strip[start + at]);
    }
}

pub(super) fn separate(p: &mut [u8], q: &mut [u8], by_p: u8, by_q: u8) {
    for (p, q) in p.iter_mut().zip(q) {
        let first = multiply(*p, by_p) ^ multiply(*q, by_q);
        *q = *p ^ first;
        *p = first;
    }
}
