//! Random numbers, reproducible by their seed.

pub(crate) struct Random(block::Random);

impl Random {
    /// Creates a generator with its own sequence for each seed, name and repeat.
    pub(crate) fn new(seed: u64, name: &str, repeat: u32) -> Random {
        // FNV-1a of the name, so that the sequence does not depend on other generators.
        let name = name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
        });
        Random(block::Random::new(
            seed ^ name ^ u64::from(repeat).wrapping_mul(0xd6e8_feb8_6659_fd93),
        ))
    }

    pub(crate) fn number(&mut self) -> u64 {
        self.0.next()
    }

    /// Draws a number from `low` to `high`, rounded to two digits so that it is easy to read.
    pub(crate) fn between(&mut self, low: f64, high: f64) -> f64 {
        let value = low + self.0.fraction() * (high - low);
        let places = if value >= 10.0 {
            0
        } else if value >= 1.0 {
            1
        } else {
            2
        };
        // Parsing the rounded text returns a number that is printed with the same digits.
        format!("{value:.places$}").parse().unwrap_or(value)
    }

    /// Returns one of the `choices`, of which there must be at least one.
    pub(crate) fn one_of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[(self.number() % choices.len() as u64) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_draws_the_same_again_and_each_repeat_something_else() {
        let draw = |seed, plant, repeat| Random::new(seed, plant, repeat).number();
        assert_eq!(draw(1, "loss", 0), draw(1, "loss", 0));
        let others = [draw(2, "loss", 0), draw(1, "flush", 0), draw(1, "loss", 1)];
        assert!(others.iter().all(|other| *other != draw(1, "loss", 0)));
    }

    #[test]
    fn what_is_drawn_lies_between_and_is_short_to_write() {
        let mut random = Random::new(1, "x", 0);
        for _ in 0..1000 {
            let value = random.between(2.0, 20.0);
            assert!((2.0..=20.0).contains(&value));
            assert!(format!("{value}").len() <= 3, "{value}");
        }
    }
}
