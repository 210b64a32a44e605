//! The two special functions behind Student's distribution and the binomial one. Both are computed from formulas that
//! can be looked up and checked (DLMF, <https://dlmf.nist.gov>): to 12 digits for small arguments, and to 9 for a million, where
//! the differences of large logarithms cost the others.

/// ln Γ(x) for x > 0: Stirling's series (DLMF 5.11.1) after the argument was moved to 15 or more by Γ(x + 1) = x Γ(x),
/// where the first term that is left out is below 10^-13.
pub(super) fn ln_gamma(mut x: f64) -> f64 {
    let mut moved = 0.0;
    while x < 15.0 {
        moved += x.ln();
        x += 1.0;
    }
    let square = x * x;
    // B_2k / (2k (2k - 1)) for k = 1 to 4, B_2k being Bernoulli's numbers.
    let tail = (1.0 / 12.0 - (1.0 / 360.0 - (1.0 / 1260.0 - 1.0 / 1680.0 / square) / square) / square) / x;
    (x - 0.5) * x.ln() - x + (2.0 * std::f64::consts::PI).ln() / 2.0 + tail - moved
}

/// The regularized incomplete beta function I_x(a, b), for a and b above 0: the continued fraction of DLMF 8.17.22, which
/// converges fast below the mean of the distribution; above it, I_x(a, b) = 1 - I_(1-x)(b, a).
pub(super) fn incomplete_beta(a: f64, b: f64, x: f64) -> f64 {
    if x <= 0.0 {
        return 0.0;
    }
    if x >= 1.0 {
        return 1.0;
    }
    if x > (a + 1.0) / (a + b + 2.0) {
        return 1.0 - incomplete_beta(b, a, 1.0 - x);
    }
    let front = a * x.ln() + b * (1.0 - x).ln() - a.ln() - (ln_gamma(a) + ln_gamma(b) - ln_gamma(a + b));
    front.exp() / fraction(a, b, x)
}

/// 1 + d_1 / (1 + d_2 / (1 + …)) by Lentz's method.
fn fraction(a: f64, b: f64, x: f64) -> f64 {
    // Convergence takes some sqrt(max(a, b)) steps: this is enough for a million degrees of freedom.
    const STEPS_MAX: u32 = 5000;
    let not_zero = |value: f64| if value.abs() < f64::MIN_POSITIVE { f64::MIN_POSITIVE } else { value };
    let (mut value, mut c, mut d) = (1.0, 1.0, 0.0);
    for step in 1..=STEPS_MAX {
        let term = term(a, b, x, step);
        d = 1.0 / not_zero(1.0 + term * d);
        c = not_zero(1.0 + term / c);
        value *= c * d;
        if (c * d - 1.0).abs() < 1e-15 {
            break;
        }
    }
    value
}

/// DLMF 8.17.23.
fn term(a: f64, b: f64, x: f64, step: u32) -> f64 {
    let m = f64::from(step / 2);
    if step.is_multiple_of(2) {
        m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m))
    } else {
        -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(one: f64, other: f64) {
        assert!((one - other).abs() <= 1e-12 * other.abs().max(1.0), "{one} is not {other}");
    }

    #[test]
    fn gamma_of_whole_and_half_numbers() {
        close(ln_gamma(1.0), 0.0);
        close(ln_gamma(0.5), std::f64::consts::PI.sqrt().ln());
        close(ln_gamma(11.0), 3_628_800.0f64.ln());
        close(ln_gamma(21.0), (1..=20).map(|n| f64::from(n).ln()).sum());
    }

    #[test]
    fn beta_where_it_has_a_closed_form() {
        for x in [0.0, 0.01, 0.3, 0.5, 0.77, 0.999, 1.0] {
            close(incomplete_beta(1.0, 1.0, x), x);
            close(incomplete_beta(3.0, 1.0, x), x.powi(3));
            close(incomplete_beta(1.0, 4.0, x), 1.0 - (1.0 - x).powi(4));
            close(incomplete_beta(0.5, 0.5, x), 2.0 / std::f64::consts::PI * x.sqrt().asin());
        }
    }

    #[test]
    fn beta_is_the_tail_of_a_binomial_sum() {
        // P(at least 3 of 5 with 0.3 each) = I_0.3(3, 3)
        let sum = 10.0 * 0.3f64.powi(3) * 0.49 + 5.0 * 0.3f64.powi(4) * 0.7 + 0.3f64.powi(5);
        close(incomplete_beta(3.0, 3.0, 0.3), sum);
    }

    #[test]
    fn beta_of_large_arguments_converges() {
        assert!((incomplete_beta(500_000.0, 500_000.0, 0.5) - 0.5).abs() < 1e-8);
    }
}
