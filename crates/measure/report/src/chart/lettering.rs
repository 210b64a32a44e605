//! How wide text is, and where labels go so that none touches another.
//!
//! A drawing cannot ask which font it will be shown in. The widths here are those of DejaVu Sans, the widest of the fonts
//! that the page's style names, so that what fits here fits everywhere.

/// The height of a line of labels, in units of the drawing, at [`SIZE`].
pub(super) const LINE: f64 = 16.0;

/// The size of all text in a drawing, in its units.
pub(super) const SIZE: f64 = 12.5;

/// How wide a text is, at least.
pub(super) fn width(text: &str) -> f64 {
    text.chars().map(|letter| em(letter) * SIZE).sum()
}

/// As much of a text as fits, with an ellipsis if it is not all of it.
pub(super) fn fitted(text: &str, room: f64) -> String {
    if width(text) <= room {
        return text.to_owned();
    }
    let mut taken = width("…");
    let fits = |letter: &char| {
        taken += em(*letter) * SIZE;
        taken <= room
    };
    text.chars().take_while(fits).chain(['…']).collect()
}

/// Places for labels of one line each: as near as may be to where they are wanted, at least [`LINE`] apart, between `top` and
/// `bottom`. In the order of the wishes. What has no room runs over the bottom, so there must be enough.
pub(super) fn spread(wanted: &[f64], top: f64, bottom: f64) -> Vec<f64> {
    let mut order: Vec<usize> = (0..wanted.len()).collect();
    order.sort_by(|one, other| wanted[*one].total_cmp(&wanted[*other]));
    let mut places = wanted.to_vec();
    let mut free = top;
    for index in &order {
        places[*index] = wanted[*index].max(free);
        free = places[*index] + LINE;
    }
    let mut free = bottom.max(top + (wanted.len().saturating_sub(1)) as f64 * LINE);
    for index in order.iter().rev() {
        places[*index] = places[*index].min(free);
        free = places[*index] - LINE;
    }
    places
}

/// Every how many of these texts, centred at these places, can be written without touching.
pub(super) fn stride(labels: &[(f64, String)]) -> usize {
    const GAP: f64 = 8.0;
    let apart = |stride: usize| {
        let shown: Vec<_> = labels.iter().step_by(stride).collect();
        shown.windows(2).all(|pair| {
            let needed = (width(&pair[0].1) + width(&pair[1].1)) / 2.0 + GAP;
            (pair[1].0 - pair[0].0).abs() >= needed
        })
    };
    (1..labels.len().max(2)).find(|stride| apart(*stride)).unwrap_or(labels.len().max(1))
}

/// The advance of a letter in parts of the font's size: DejaVu Sans, rounded up.
fn em(letter: char) -> f64 {
    match letter {
        'i' | 'j' | 'l' | 'I' | '\'' | '|' => 0.29,
        ' ' | '.' | ',' | ':' | ';' | '/' | '\\' | '·' => 0.34,
        'f' | 't' | 'r' | '(' | ')' | '[' | ']' | '-' | '!' => 0.42,
        'm' | 'W' | '%' | '@' | '…' | '—' => 1.0,
        'M' | 'w' | 'Q' | 'O' | 'G' | 'D' | 'N' | 'H' | '+' | '±' | '=' | '<' | '>' => 0.87,
        'a'..='z' | '0'..='9' | 'µ' => 0.64,
        letter if letter.is_ascii() => 0.74,
        letter if u32::from(letter) < 0x1100 => 0.9,
        _ => 1.1, // ideographs and pictures
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_that_would_touch_are_moved_apart_and_stay_inside() {
        let places = spread(&[100.0, 101.0, 99.0, 5.0], 0.0, 104.0);
        let mut sorted = places.clone();
        sorted.sort_by(f64::total_cmp);
        assert!(sorted.windows(2).all(|pair| pair[1] - pair[0] >= LINE), "{places:?}");
        assert!(sorted[0] >= 0.0 && sorted[3] <= 104.0, "{places:?}");
        assert_eq!(places[3], 5.0);
    }

    #[test]
    fn a_label_that_is_too_long_is_cut_where_it_ends() {
        let text = "x".repeat(100);
        let cut = fitted(&text, 80.0);
        assert!(cut.ends_with('…') && width(&cut) <= 81.0, "{cut}");
        assert_eq!(fitted("read", 80.0), "read");
    }

    #[test]
    fn ticks_that_stand_too_close_are_left_out_evenly() {
        let label = |at: u32| (f64::from(at) * 20.0, "512 KiB".to_owned());
        assert_eq!(stride(&(0..10).map(label).collect::<Vec<_>>()), 3);
        assert_eq!(stride(&[]), 1);
    }
}
