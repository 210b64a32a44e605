//! Minimisation of a function of several positive numbers: a deterministic search without derivatives.
//!
//! What is searched here is the smallest of several limits (`predict`), whose surface has edges and plains: a
//! number that binds nowhere changes nothing. So each number is first looked for over its whole range, with
//! the others held, and then all together by the simplex of Nelder and Mead (1965), and that again until
//! nothing comes of it.

/// A number that is searched for, all in logarithms: the rest of this file adds where its callers multiply.
#[derive(Clone, Copy, Debug)]
pub(super) struct Range {
    /// Where to begin.
    pub(super) start: f64,
    /// The least that it can be; above 0.
    pub(super) least: f64,
    /// The most.
    pub(super) most: f64,
}

/// Rounds of both searches that find their way from anywhere.
pub(super) const FROM_ANYWHERE: usize = 6;
/// Rounds that are enough where the place is nearly known.
pub(super) const FROM_NEARBY: usize = 2;
/// Places on each axis that are tried, and how often the range around the best is narrowed.
const PLACES: usize = 24;
const NARROWINGS: usize = 3;
/// Steps of a simplex for each of its dimensions.
const STEPS: usize = 150;
/// A simplex whose corners differ by less than this has found its place.
const SAME: f64 = 1e-12;

/// Where `cost` is least, as far as is found in so many rounds.
pub(super) fn least(ranges: &[Range], rounds: usize, cost: impl Fn(&[f64]) -> f64) -> Vec<f64> {
    let bounds: Vec<(f64, f64)> = ranges.iter().map(|range| (range.least.ln(), range.most.ln())).collect();
    let cost = |place: &[f64]| {
        let values: Vec<f64> = place.iter().map(|x| x.exp()).collect();
        let cost = cost(&values);
        if cost.is_nan() { f64::INFINITY } else { cost }
    };
    let mut best: Vec<f64> =
        ranges.iter().zip(&bounds).map(|(range, (low, high))| range.start.ln().clamp(*low, *high)).collect();
    let mut found = cost(&best);
    for round in 0..rounds {
        let before = found;
        (best, found) = along_the_axes(best, found, &bounds, &cost);
        // Ever smaller: the first ones look around, the last ones settle.
        (best, found) = simplex(&best, found, 0.5 / f64::powi(3.0, round as i32), &bounds, &cost);
        if before.is_finite() && before - found <= SAME * before.abs() {
            break;
        }
    }
    best.iter().map(|x| x.exp()).collect()
}

fn along_the_axes(
    mut best: Vec<f64>,
    mut found: f64,
    bounds: &[(f64, f64)],
    cost: &impl Fn(&[f64]) -> f64,
) -> (Vec<f64>, f64) {
    for axis in 0..best.len() {
        let (mut low, mut high) = bounds[axis];
        for _ in 0..NARROWINGS {
            let width = (high - low) / PLACES as f64;
            for place in 0..=PLACES {
                let mut tried = best.clone();
                tried[axis] = low + width * place as f64;
                let value = cost(&tried);
                if value < found {
                    (best, found) = (tried, value);
                }
            }
            (low, high) =
                ((best[axis] - width).max(bounds[axis].0), (best[axis] + width).min(bounds[axis].1));
        }
    }
    (best, found)
}

fn simplex(
    start: &[f64],
    found: f64,
    size: f64,
    bounds: &[(f64, f64)],
    cost: &impl Fn(&[f64]) -> f64,
) -> (Vec<f64>, f64) {
    let dimensions = start.len();
    let held = |place: Vec<f64>| -> (Vec<f64>, f64) {
        let place: Vec<f64> = place.iter().zip(bounds).map(|(x, (low, high))| x.clamp(*low, *high)).collect();
        let value = cost(&place);
        (place, value)
    };
    let mut corners = vec![(start.to_vec(), found)];
    for axis in 0..dimensions {
        let mut corner = start.to_vec();
        // Away from the bound, if it begins there.
        let inward = if corner[axis] + size > bounds[axis].1 { -size } else { size };
        corner[axis] += inward;
        corners.push(held(corner));
    }
    for _ in 0..STEPS * dimensions {
        corners.sort_by(|one, other| one.1.total_cmp(&other.1));
        let (best, worst) = (corners[0].1, corners[dimensions].1);
        if worst - best <= SAME * best.abs() {
            break;
        }
        let middle: Vec<f64> = (0..dimensions)
            .map(|axis| {
                corners[..dimensions].iter().map(|(place, _)| place[axis]).sum::<f64>() / dimensions as f64
            })
            .collect();
        // From the worst corner through the middle of the others: 1 mirrors it, 2 goes further, -0.5 comes
        // back.
        let beyond = |by: f64, from: &[f64]| -> Vec<f64> {
            middle.iter().zip(from).map(|(middle, from)| middle + by * (middle - from)).collect()
        };
        let from = corners[dimensions].0.clone();
        let mirrored = held(beyond(1.0, &from));
        let better = if mirrored.1 < best {
            let further = held(beyond(2.0, &from));
            Some(if further.1 < mirrored.1 { further } else { mirrored })
        } else if mirrored.1 < corners[dimensions - 1].1 {
            Some(mirrored)
        } else {
            let nearer = held(beyond(if mirrored.1 < worst { 0.5 } else { -0.5 }, &from));
            (nearer.1 < worst.min(mirrored.1)).then_some(nearer)
        };
        match better {
            Some(corner) => corners[dimensions] = corner,
            None => {
                let nearest = corners[0].0.clone();
                for corner in &mut corners[1..] {
                    let halfway = corner.0.iter().zip(&nearest).map(|(x, best)| (x + best) / 2.0).collect();
                    *corner = held(halfway);
                }
            }
        }
    }
    corners.sort_by(|one, other| one.1.total_cmp(&other.1));
    corners.swap_remove(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const WIDE: Range = Range { start: 1.0, least: 1e-6, most: 1e6 };

    #[test]
    fn the_bottom_of_a_bent_valley_is_found() {
        // Rosenbrock's function of the logarithms; its bottom is at (e, e).
        let cost = |values: &[f64]| {
            let (x, y) = (values[0].ln(), values[1].ln());
            (1.0 - x).powi(2) + 100.0 * (y - x * x).powi(2)
        };
        let found = least(&[WIDE, WIDE], FROM_ANYWHERE, cost);
        assert!(found.iter().all(|value| (value / 1f64.exp() - 1.0).abs() < 1e-3), "{found:?}");
    }

    #[test]
    fn a_plain_leaves_the_start_and_nothing_leaves_the_range() {
        assert_eq!(least(&[WIDE], FROM_ANYWHERE, |_| 1.0), [1.0]);
        let narrow = Range { start: 5.0, least: 2.0, most: 8.0 };
        let found = least(&[narrow], FROM_ANYWHERE, |values| values[0]);
        assert!((found[0] - 2.0).abs() < 1e-9, "{found:?}");
        let found = least(&[narrow], FROM_ANYWHERE, |_| f64::NAN);
        assert!((found[0] - 5.0).abs() < 1e-9, "{found:?}");
        assert!(least(&[], FROM_ANYWHERE, |_| 0.0).is_empty());
    }
}
