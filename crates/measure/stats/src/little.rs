//! Little's law: the number outstanding is the arrival rate times the latency.

/// Requests under way on average: a rate per second times a mean latency in seconds.
pub fn little(per_second: f64, latency_s: f64) -> f64 {
    per_second * latency_s
}

/// Requests under way on average where `depth` of them come to their end after every `transactions` and start
/// anew, as Iometer's "test connection rate" has it (`IOGrunt.cpp`): while a connection drains, the 1st, 2nd,
/// … of the last `depth` requests is not followed by another, so that `depth - 1`, `depth - 2`, … are left.
/// Iometer's usual 64 and 500 give 59.97.
pub fn drained_mean(depth: u32, transactions: u32) -> f64 {
    let (depth, transactions) = (f64::from(depth), f64::from(transactions));
    if transactions <= depth {
        // Each batch is of so many requests, none followed by another: n, n - 1, … 1 are under way.
        return (transactions + 1.0) / 2.0;
    }
    depth - depth * (depth - 1.0) / (2.0 * transactions)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_that_drains_holds_less_than_its_depth() {
        assert!((drained_mean(64, 500) - 59.968).abs() < 1e-9);
        assert_eq!(drained_mean(1, 500), 1.0);
        assert_eq!(drained_mean(8, 8), 4.5);
        assert_eq!(drained_mean(8, 4), 2.5);
    }

    #[test]
    fn a_thousand_a_second_of_two_milliseconds_are_two_at_once() {
        assert_eq!(little(1000.0, 0.002), 2.0);
    }
}
