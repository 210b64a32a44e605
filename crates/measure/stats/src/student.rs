//! Student's t distribution. With many degrees of freedom it is the normal one.

use statrs::function::beta::checked_beta_reg;

/// The chance that a t of so many degrees of freedom is farther from 0 than this one, on either side.
pub fn two_sided(t: f64, freedom: f64) -> f64 {
    if freedom.is_nan() || freedom <= 0.0 || t.is_nan() {
        return 1.0;
    }
    // Beyond this it is the normal distribution to six digits.
    let freedom = freedom.min(1e6);
    checked_beta_reg(freedom / 2.0, 0.5, freedom / (freedom + t * t)).unwrap_or(1.0)
}

/// The value that t does not exceed with a chance of `share`: 2.776 for 0.975 and 4. Infinite without any
/// freedom. By bisection: statrs's own inverse is off by 10^-4 for a million degrees of freedom.
pub fn quantile(share: f64, freedom: f64) -> f64 {
    if share < 0.5 {
        return -quantile(1.0 - share, freedom);
    }
    if freedom.is_nan() || freedom <= 0.0 || share >= 1.0 {
        return f64::INFINITY;
    }
    let beyond = 2.0 * (1.0 - share);
    let (mut low, mut high) = (0.0, 1.0);
    while two_sided(high, freedom) > beyond && high < 1e300 {
        (low, high) = (high, 2.0 * high);
    }
    // Each step halves the interval; after 60 there is nothing left between two neighbours.
    for _ in 0..60 {
        let middle = (low + high) / 2.0;
        if two_sided(middle, freedom) > beyond { low = middle } else { high = middle }
    }
    high
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(one: f64, other: f64) {
        assert!((one - other).abs() <= 1e-9 * other.abs().max(1.0), "{one} is not {other}");
    }

    #[test]
    fn quantiles_where_they_have_a_closed_form() {
        // One degree of freedom is Cauchy's distribution, two have 2 (p - 1/2) sqrt(2 / (4 p (1 - p))).
        for share in [0.5, 0.6, 0.9, 0.975, 0.9995] {
            close(quantile(share, 1.0), (std::f64::consts::PI * (share - 0.5)).tan());
            close(quantile(share, 2.0), (2.0 * share - 1.0) * (2.0 / (4.0 * share * (1.0 - share))).sqrt());
        }
    }

    #[test]
    fn quantiles_of_the_printed_tables() {
        // The last is the normal distribution's 1.959964 with the first term of its expansion in 1/n.
        let known = [(4.0, 2.776_445_105), (9.0, 2.262_157_163), (29.0, 2.045_229_642), (1e6, 1.959_966_357)];
        for (freedom, value) in known {
            assert!(
                (quantile(0.975, freedom) - value).abs() < 1e-8,
                "{freedom}: {}",
                quantile(0.975, freedom)
            );
        }
    }

    #[test]
    fn quantile_and_chance_are_each_others_inverse() {
        for freedom in [0.7, 1.0, 3.5, 12.0, 250.0] {
            for share in [0.55, 0.8, 0.95, 0.999] {
                close(two_sided(quantile(share, freedom), freedom), 2.0 * (1.0 - share));
                close(quantile(1.0 - share, freedom), -quantile(share, freedom));
            }
        }
    }

    #[test]
    fn without_freedom_nothing_is_known() {
        assert_eq!(quantile(0.975, 0.0), f64::INFINITY);
        assert_eq!(two_sided(100.0, 0.0), 1.0);
    }
}
