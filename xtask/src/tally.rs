//! Counts of passed, failed and skipped checks, and the line that reports them.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use derive_more::{AddAssign, Display};

/// The result of a check. An `Err` instead of a verdict means that the check could not be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The check passes.
    Holds,
    /// The check fails.
    Fails,
}

impl Verdict {
    /// Returns `Holds` if a condition holds, and `Fails` otherwise.
    pub fn of(holds: bool) -> Verdict {
        if holds {
            Verdict::Holds
        } else {
            Verdict::Fails
        }
    }

    /// Holds if both hold.
    pub fn and(self, other: Verdict) -> Verdict {
        if self == Verdict::Holds { other } else { self }
    }
}

/// Counts of tests. It is displayed as the final line, which continuous integration reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, AddAssign, Display)]
#[display("{passed} passed, {failed} failed, {skipped} skipped")]
pub struct Tally {
    /// Tests that passed.
    pub passed: u64,
    /// Tests that failed.
    pub failed: u64,
    /// Tests that this machine cannot run.
    pub skipped: u64,
}

impl Tally {
    /// Returns the tally of one check with this verdict.
    pub fn of(verdict: Verdict) -> Tally {
        match verdict {
            Verdict::Holds => Tally {
                passed: 1,
                ..Tally::default()
            },
            Verdict::Fails => Tally {
                failed: 1,
                ..Tally::default()
            },
        }
    }

    /// Returns the tally of one check that could not be made here.
    pub fn skipped() -> Tally {
        Tally {
            skipped: 1,
            ..Tally::default()
        }
    }

    /// Runs checks that each keep a core busy, one check per core. Each check returns its output, which is
    /// shown when the check completes. The output of a failed check is also added to `failed`.
    pub fn of_busy<T: Sync>(
        checks: &[T],
        make: impl Fn(&T) -> (Verdict, String) + Sync,
        failed: &mut String,
    ) -> Tally {
        let next = AtomicUsize::new(0);
        let tally = Mutex::new((Tally::default(), failed));
        let cores = thread::available_parallelism().map_or(1, usize::from);
        thread::scope(|scope| {
            for _ in 0..cores.min(checks.len()) {
                scope.spawn(|| {
                    while let Some(check) = checks.get(next.fetch_add(1, Ordering::Relaxed)) {
                        let (verdict, told) = make(check);
                        let mut ended = tally.lock().unwrap_or_else(PoisonError::into_inner);
                        let (tally, failed) = &mut *ended;
                        print!("{told}");
                        *tally += Tally::of(verdict);
                        if verdict == Verdict::Fails {
                            failed.push_str(&told);
                        }
                    }
                });
            }
        });
        tally.into_inner().unwrap_or_else(PoisonError::into_inner).0
    }

    /// Holds if nothing failed.
    pub fn verdict(self) -> Verdict {
        Verdict::of(self.failed == 0)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_closing_line_has_its_plain_form() {
        let mut tally = Tally {
            passed: 2,
            failed: 0,
            skipped: 1,
        };
        tally += Tally::of(Verdict::Holds);
        assert_eq!(tally.to_string(), "3 passed, 0 failed, 1 skipped");
        assert_eq!(tally.verdict(), Verdict::Holds);
    }

    #[test]
    fn busy_checks_are_each_made_once() {
        let checks: Vec<u64> = (0..20).collect();
        let (made, mut failed) = (Mutex::new(Vec::new()), String::new());
        let make = |check: &u64| {
            made.lock().expect("no panic").push(*check);
            (Verdict::of(!check.is_multiple_of(5)), format!("{check}\n"))
        };
        let tally = Tally::of_busy(&checks, make, &mut failed);
        let mut made = made.into_inner().expect("no panic");
        made.sort_unstable();
        assert_eq!((made, tally.passed, tally.failed), (checks, 16, 4));
        let told: BTreeSet<&str> = failed.lines().collect();
        assert_eq!(
            told,
            BTreeSet::from(["0", "5", "10", "15"]),
            "failures are repeated"
        );
    }

    #[test]
    fn one_failure_is_enough() {
        let mut tally = Tally {
            passed: 1000,
            failed: 0,
            skipped: 0,
        };
        tally += Tally::of(Verdict::Fails);
        assert_eq!(tally.verdict(), Verdict::Fails);
    }
}
