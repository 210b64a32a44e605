//! Parity of RAID 5 and RAID 6, byte-compatible with md and ISA-L.
//!
//! P is the sum of a stripe's data strips, and Q their sum with weights, in the field GF(2^8) of the polynomial
//! 0x11d, whose generator is 2 (H. P. Anvin, "The mathematics of RAID-6", 2011). A sum in this field is an
//! exclusive or:
//!
//! ```text
//!   P = D0 + D1 + D2 + …        Q = D0 + 2·D1 + 4·D2 + … = D0 + 2·(D1 + 2·(D2 + …))
//! ```
//!
//! Vectors are from `fearless_simd`, which chooses the instruction set at run time and contains all `unsafe`
//! code. With AVX-512, a multiplication is one instruction (GFNI); otherwise it takes a shift and an
//! exclusive or for each bit of the factor. [`scalar`] computes the same byte by byte. It processes the bytes
//! that do not fill a whole step, and is the reference for the tests.

#[cfg(target_arch = "x86_64")]
mod gfni;
mod scalar;
#[cfg(test)]
mod tests;

use fearless_simd::prelude::*;
use fearless_simd::{Level, dispatch};
use scalar::{inverse, multiply, power};

/// Adds `source` to `target`, which then contains the parity of both.
///
/// # Panics
/// The two have different lengths.
pub fn xor_into(target: &mut [u8], source: &[u8]) {
    assert_eq!(target.len(), source.len(), "strips have one length");
    Work::AddMultiple {
        to: target,
        from: source,
        by: 1,
    }
    .run(Level::new());
}

/// Computes P of data strips. Reads each strip once, and writes P once. Without strips, P is zero.
///
/// # Panics
/// The strips have different lengths.
pub fn parity(data: &[&[u8]], p: &mut [u8]) {
    assert!(
        data.iter().all(|strip| strip.len() == p.len()),
        "strips have one length"
    );
    Work::Parity { data, p }.run(Level::new());
}

/// Computes P and Q of data strips, in the order of their indices. Without strips, both are zero.
///
/// # Panics
/// The strips have different lengths, or there are more than 255 of them, because the field has no more
/// weights.
pub fn syndromes(data: &[&[u8]], p: &mut [u8], q: &mut [u8]) {
    assert!(
        data.len() <= usize::from(u8::MAX),
        "at most 255 data strips"
    );
    assert!(
        data.iter().all(|strip| strip.len() == p.len()),
        "strips have one length"
    );
    assert_eq!(p.len(), q.len(), "strips have one length");
    Work::Syndromes { data, p, q }.run(Level::new());
}

/// Adds a data strip, or the difference between a new and an old one, to `q` with the weight of its `index`.
///
/// # Panics
/// The two have different lengths.
pub fn add_to_q(q: &mut [u8], data: &[u8], index: usize) {
    assert_eq!(q.len(), data.len(), "strips have one length");
    Work::AddMultiple {
        to: q,
        from: data,
        by: power(index),
    }
    .run(Level::new());
}

/// Reconstructs two lost data strips. `p_delta` and `q_delta` must contain P and Q, each plus the (weighted)
/// sum of the remaining strips. On return, `p_delta` contains the strip with index `a_index`, and `q_delta`
/// that with `b_index`.
///
/// # Panics
/// The two have different lengths, or the indices are equal.
pub fn recover_data_and_data(
    a_index: usize,
    b_index: usize,
    p_delta: &mut [u8],
    q_delta: &mut [u8],
) {
    assert_eq!(p_delta.len(), q_delta.len(), "strips have one length");
    let (a, b) = (power(a_index), power(b_index));
    assert_ne!(a, b, "two strips, with two weights");
    // P' = A + B and Q' = a·A + b·B, so A = (b·P' + Q') / (a + b).
    let by_q = inverse(a ^ b);
    Work::Separate {
        p: p_delta,
        q: q_delta,
        by_p: multiply(b, by_q),
        by_q,
    }
    .run(Level::new());
}

/// Reconstructs a data strip that was lost together with P. `q_delta` must contain Q plus the weighted sum of
/// the remaining strips. On return, it contains the strip with this `index`.
pub fn recover_data_by_q(index: usize, q_delta: &mut [u8]) {
    Work::Multiply {
        strip: q_delta,
        by: inverse(power(index)),
    }
    .run(Level::new());
}

/// A computation. All strips have the same length.
enum Work<'a> {
    /// `to += by · from`.
    AddMultiple {
        to: &'a mut [u8],
        from: &'a [u8],
        by: u8,
    },
    /// `strip *= by`.
    Multiply { strip: &'a mut [u8], by: u8 },
    /// The sum of strips.
    Parity {
        data: &'a [&'a [u8]],
        p: &'a mut [u8],
    },
    /// P and Q of strips.
    Syndromes {
        data: &'a [&'a [u8]],
        p: &'a mut [u8],
        q: &'a mut [u8],
    },
    /// `p = by_p · p + by_q · q`, and `q = p + p'`, where `p'` is the old `p`.
    Separate {
        p: &'a mut [u8],
        q: &'a mut [u8],
        by_p: u8,
        by_q: u8,
    },
}

impl Work<'_> {
    fn run(self, level: Level) {
        #[cfg(target_arch = "x86_64")]
        if let Level::Avx512(simd) = level {
            return simd.vectorize(
                #[inline(always)]
                || self.run_with::<_, gfni::Affine>(simd),
            );
        }
        dispatch!(level, simd => self.run_with::<_, Steps>(simd));
    }

    #[inline(always)]
    fn run_with<S: Simd, F: Field<S>>(self, simd: S) {
        match self {
            Work::AddMultiple { to, from, by: 1 } => add::<S>(simd, to, from),
            Work::AddMultiple { to, from, by } => add_multiple::<S, F>(simd, to, from, by),
            Work::Multiply { strip, by } => multiply_strip::<S, F>(simd, strip, by),
            Work::Parity { data, p } => parity_of::<S>(simd, data, p),
            Work::Syndromes { data, p, q } => syndromes_of::<S, F>(simd, data, p, q),
            Work::Separate { p, q, by_p, by_q } => separate::<S, F>(simd, p, q, by_p, by_q),
        }
    }
}

/// Multiplication by a constant.
trait Field<S: Simd>: Copy {
    fn by(factor: u8) -> Self;
    /// Multiplies each byte of a vector by the constant.
    fn multiply(self, simd: S, bytes: S::u8s) -> S::u8s;
    /// Multiplies each byte of a vector by 2.
    fn double(simd: S, bytes: S::u8s) -> S::u8s;
}

/// Multiplication with one step for each bit of the factor, highest bit first.
#[derive(Clone, Copy)]
struct Steps {
    factor: u8,
}

impl<S: Simd> Field<S> for Steps {
    #[inline(always)]
    fn by(factor: u8) -> Steps {
        Steps { factor }
    }

    #[inline(always)]
    fn multiply(self, simd: S, bytes: S::u8s) -> S::u8s {
        let mut product = S::u8s::simd_from(simd, 0u8);
        for bit in (0..8).rev() {
            product = <Steps as Field<S>>::double(simd, product);
            if self.factor >> bit & 1 == 1 {
                product ^= bytes;
            }
        }
        product
    }

    #[inline(always)]
    fn double(simd: S, bytes: S::u8s) -> S::u8s {
        let signed: S::i8s = bytes.bitcast();
        let overflows = signed.simd_lt(S::i8s::simd_from(simd, 0i8));
        let reduction = overflows.select(
            S::u8s::simd_from(simd, scalar::REDUCTION),
            S::u8s::simd_from(simd, 0u8),
        );
        (bytes + bytes) ^ reduction
    }
}

/// Number of vectors in a step: enough to hide the latency of an instruction, and few enough that two sums
/// fit in the sixteen registers of AVX2.
const VECTORS: usize = 4;

/// Number of vectors in a step that computes a single sum. With twice as many vectors, the address of a strip
/// is looked up half as often.
const VECTORS_OF_P: usize = 2 * VECTORS;

/// Returns the number of bytes in this number of vectors.
const fn bytes_in<S: Simd>(vectors: usize) -> usize {
    vectors * <S::u8s as SimdBase<S>>::LEN
}

/// Returns the number of bytes in a step.
const fn step<S: Simd>() -> usize {
    bytes_in::<S>(VECTORS)
}

#[inline(always)]
fn load<S: Simd, const N: usize>(simd: S, bytes: &[u8]) -> [S::u8s; N] {
    let mut vectors = [S::u8s::simd_from(simd, 0u8); N];
    for (vector, bytes) in vectors.iter_mut().zip(bytes.chunks_exact(S::u8s::LEN)) {
        *vector = S::u8s::from_slice(simd, bytes);
    }
    vectors
}

#[inline(always)]
fn store<S: Simd, const N: usize>(vectors: [S::u8s; N], bytes: &mut [u8]) {
    for (vector, bytes) in vectors.iter().zip(bytes.chunks_exact_mut(S::u8s::LEN)) {
        vector.store_slice(bytes);
    }
}

#[inline(always)]
fn add<S: Simd>(simd: S, to: &mut [u8], from: &[u8]) {
    let (mut targets, mut sources) = (
        to.chunks_exact_mut(step::<S>()),
        from.chunks_exact(step::<S>()),
    );
    for (target, source) in targets.by_ref().zip(sources.by_ref()) {
        let (mut sum, added) = (
            load::<S, VECTORS>(simd, target),
            load::<S, VECTORS>(simd, source),
        );
        for (sum, added) in sum.iter_mut().zip(added) {
            *sum ^= added;
        }
        store::<S, VECTORS>(sum, target);
    }
    scalar::add_multiple(targets.into_remainder(), sources.remainder(), 1);
}

#[inline(always)]
fn add_multiple<S: Simd, F: Field<S>>(simd: S, to: &mut [u8], from: &[u8], by: u8) {
    let factor = F::by(by);
    let (mut targets, mut sources) = (
        to.chunks_exact_mut(step::<S>()),
        from.chunks_exact(step::<S>()),
    );
    for (target, source) in targets.by_ref().zip(sources.by_ref()) {
        let (mut sum, added) = (
            load::<S, VECTORS>(simd, target),
            load::<S, VECTORS>(simd, source),
        );
        for (sum, added) in sum.iter_mut().zip(added) {
            *sum ^= factor.multiply(simd, added);
        }
        store::<S, VECTORS>(sum, target);
    }
    scalar::add_multiple(targets.into_remainder(), sources.remainder(), by);
}

#[inline(always)]
fn multiply_strip<S: Simd, F: Field<S>>(simd: S, strip: &mut [u8], by: u8) {
    let factor = F::by(by);
    let mut pieces = strip.chunks_exact_mut(step::<S>());
    for piece in pieces.by_ref() {
        let mut product = load::<S, VECTORS>(simd, piece);
        for product in &mut product {
            *product = factor.multiply(simd, *product);
        }
        store::<S, VECTORS>(product, piece);
    }
    scalar::multiply_strip(pieces.into_remainder(), by);
}

#[inline(always)]
fn parity_of<S: Simd>(simd: S, data: &[&[u8]], p: &mut [u8]) {
    let step = bytes_in::<S>(VECTORS_OF_P);
    let mut at = 0;
    let mut pieces = p.chunks_exact_mut(step);
    for piece in pieces.by_ref() {
        let mut sum = [S::u8s::simd_from(simd, 0u8); VECTORS_OF_P];
        for strip in data {
            let added = load::<S, VECTORS_OF_P>(simd, &strip[at..at + step]);
            for (sum, added) in sum.iter_mut().zip(added) {
                *sum ^= added;
            }
        }
        store::<S, VECTORS_OF_P>(sum, piece);
        at += step;
    }
    scalar::parity(data, at, pieces.into_remainder());
}

#[inline(always)]
fn syndromes_of<S: Simd, F: Field<S>>(simd: S, data: &[&[u8]], p: &mut [u8], q: &mut [u8]) {
    let mut at = 0;
    let mut pieces = p
        .chunks_exact_mut(step::<S>())
        .zip(q.chunks_exact_mut(step::<S>()));
    for (p, q) in pieces.by_ref() {
        let mut sum = [S::u8s::simd_from(simd, 0u8); VECTORS];
        let mut weighted = sum;
        for strip in data.iter().rev() {
            let added = load::<S, VECTORS>(simd, &strip[at..at + step::<S>()]);
            for ((sum, weighted), added) in sum.iter_mut().zip(&mut weighted).zip(added) {
                *sum ^= added;
                *weighted = F::double(simd, *weighted) ^ added;
            }
        }
        store::<S, VECTORS>(sum, p);
        store::<S, VECTORS>(weighted, q);
        at += step::<S>();
    }
    scalar::syndromes(data, at, &mut p[at..], &mut q[at..]);
}

#[inline(always)]
fn separate<S: Simd, F: Field<S>>(simd: S, p: &mut [u8], q: &mut [u8], by_p: u8, by_q: u8) {
    let (times_p, times_q) = (F::by(by_p), F::by(by_q));
    let (mut ps, mut qs) = (
        p.chunks_exact_mut(step::<S>()),
        q.chunks_exact_mut(step::<S>()),
    );
    for (p, q) in ps.by_ref().zip(qs.by_ref()) {
        let (sum, mut weighted) = (load::<S, VECTORS>(simd, p), load::<S, VECTORS>(simd, q));
        let mut first = sum;
        for ((first, sum), weighted) in first.iter_mut().zip(sum).zip(&mut weighted) {
            *first = times_p.multiply(simd, sum) ^ times_q.multiply(simd, *weighted);
            *weighted = sum ^ *first;
        }
        store::<S, VECTORS>(first, p);
        store::<S, VECTORS>(weighted, q);
    }
    scalar::separate(ps.into_remainder(), qs.into_remainder(), by_p, by_q);
}
