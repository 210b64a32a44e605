//! Fairness of a distribution over clients.

/// Jain's index of fairness (Jain, Chiu, Hawe 1984): 1 if all have the same, 1/n if one has everything.
/// `None` if all shares are zero.
pub fn jain(shares: &[f64]) -> Option<f64> {
    let sum: f64 = shares.iter().sum();
    let squares: f64 = shares.iter().map(|share| share * share).sum();
    (squares > 0.0).then(|| sum * sum / (shares.len() as f64 * squares))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_shares_are_fair_and_one_taker_is_not() {
        assert_eq!(jain(&[5.0, 5.0, 5.0]), Some(1.0));
        assert_eq!(jain(&[9.0, 0.0, 0.0]), Some(1.0 / 3.0));
        assert_eq!(jain(&[0.0, 0.0]), None);
    }

    #[test]
    fn the_index_does_not_depend_on_the_unit() {
        let (rates, kilo) = ([3.0, 1.0, 2.0], [3000.0, 1000.0, 2000.0]);
        assert!((jain(&rates).unwrap() - jain(&kilo).unwrap()).abs() < 1e-12);
        // (3 + 1 + 2)^2 / (3 * (9 + 1 + 4))
        assert!((jain(&rates).unwrap() - 36.0 / 42.0).abs() < 1e-12);
    }
}
