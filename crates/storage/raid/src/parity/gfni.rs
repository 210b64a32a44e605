//! Multiplies 64 bytes with one instruction, GF2P8AFFINEQB, which multiplies each byte by a matrix of bits.

use std::arch::x86_64::{_mm512_gf2p8affine_epi64_epi8, _mm512_set1_epi64};

use fearless_simd::prelude::*;
use fearless_simd::u8x64;
use fearless_simd::x86::Avx512;

use super::{Field, scalar};

fearless_simd::kernel!(
    /// Multiplies each byte by the matrix.
    #[inline(always)]
    fn affine(simd: Avx512, bytes: u8x64<Avx512>, matrix: u64) -> u8x64<Avx512> {
        let matrix = _mm512_set1_epi64(matrix.cast_signed());
        _mm512_gf2p8affine_epi64_epi8::<0>(bytes.into(), matrix).simd_into(simd)
    }
);

#[derive(Clone, Copy)]
pub(super) struct Affine {
    matrix: u64,
}

impl Field<Avx512> for Affine {
    #[inline(always)]
    fn by(factor: u8) -> Affine {
        Affine {
            matrix: matrix(factor),
        }
    }

    #[inline(always)]
    fn multiply(self, simd: Avx512, bytes: u8x64<Avx512>) -> u8x64<Avx512> {
        affine(simd, bytes, self.matrix)
    }

    #[inline(always)]
    fn double(simd: Avx512, bytes: u8x64<Avx512>) -> u8x64<Avx512> {
        const DOUBLE: u64 = matrix(2);
        affine(simd, bytes, DOUBLE)
    }
}

/// Returns the matrix for multiplication by `factor`. The row for bit i of the result is byte 7 - i.
/// Bit j of a row is set if bit j of the operand contributes to that bit.
const fn matrix(factor: u8) -> u64 {
    let (mut matrix, mut operand_bit) = (0, 0);
    while operand_bit < 8 {
        let product = scalar::multiply(factor, 1 << operand_bit);
        let mut bit = 0;
        while bit < 8 {
            matrix |= ((product >> bit & 1) as u64) << (8 * (7 - bit) + operand_bit);
            bit += 1;
        }
        operand_bit += 1;
    }
    matrix
}
