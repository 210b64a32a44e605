//! What a cell of a suite asks of a wire, and the limits that it stands under.

use super::{Direction, Question};
use crate::plan::{Cell, Percent};
use crate::record::Limit;

impl Question {
    /// What a cell asks, if that is one thing.
    pub fn of_cell(cell: &Cell) -> Option<Question> {
        let [role] = &cell.roles[..] else { return None };
        let [access] = &role.workload.accesses[..] else { return None };
        let direction = match access.read {
            Percent::ALL => Direction::Read,
            Percent::NONE => Direction::Write,
            _ => return None,
        };
        Some(Question { direction, block_bytes: access.block_bytes, depth: role.workload.depth })
    }

    /// A limit of what TCP carries, with the first of its points: a length and bytes a second.
    pub fn limit(self, point: (u32, f64)) -> Limit {
        Limit {
            name: "TCP on this machine".to_owned(),
            direction: self.direction_name().to_owned(),
            depth: Some(self.depth),
            points: vec![point],
        }
    }

    /// Whether a limit is one of the same direction and depth.
    pub fn is_under(self, limit: &Limit) -> bool {
        (limit.direction.as_str(), limit.depth) == (self.direction_name(), Some(self.depth))
    }

    /// The ceiling of a question, in bytes a second.
    pub fn ceiling(self, limits: &[Limit]) -> Option<f64> {
        let curve = limits.iter().find(|limit| self.is_under(limit))?;
        let point = curve.points.iter().find(|(block_bytes, _)| *block_bytes == self.block_bytes)?;
        Some(point.1).filter(|rate| *rate > 0.0)
    }

    fn direction_name(self) -> &'static str {
        match self.direction {
            Direction::Read => "read",
            Direction::Write => "write",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Role, Workload};

    #[test]
    fn a_mixture_has_no_ceiling() {
        let half = Percent::new(50).expect("a share");
        let role = Role::new("mixed", 0, Workload::simple(4096, 1, half, Percent::ALL));
        let cell = Cell::new("mixed", "mixed", vec![role]);
        assert_eq!(Question::of_cell(&cell), None);
    }

    #[test]
    fn the_ceiling_is_that_of_the_same_direction_depth_and_length() {
        let limit = |direction: &str, depth, rate| Limit {
            name: String::new(),
            direction: direction.to_owned(),
            depth: Some(depth),
            points: vec![(4096, 1.0), (65_536, rate)],
        };
        let limits = [limit("write", 8, 1e9), limit("read", 1, 2e9), limit("read", 8, 3e9)];
        let asked = Question { direction: Direction::Read, block_bytes: 65_536, depth: 8 };
        assert_eq!(asked.ceiling(&limits), Some(3e9));
        assert_eq!(Question { depth: 2, ..asked }.ceiling(&limits), None);
    }
}
