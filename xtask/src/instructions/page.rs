//! Counts as text: for the terminal and for docs/measured/instructions.md.

use super::CHANGE_PERCENT;
use super::baseline::Baseline;
use super::cell::{Cell, Counts};

/// Above [`line`]s.
pub(super) fn heading() -> String {
    format!(
        "{:40} {:>9} {:>9} {:>9}   {:>9} {:>9} {:>9}",
        "instructions for one command", "target", "baseline", "change", "initiator", "baseline", "change"
    )
}

/// A cell beside its baseline.
pub(super) fn line(cell: &Cell, before: Option<Counts>, now: Counts) -> String {
    let Some(before) = before else {
        return format!("{:40} {:>9} {:>19}   {:>9}", cell.name(), now.target, "new", now.initiator);
    };
    let [target, initiator] = now.percent_above(before);
    let line = format!(
        "{:40} {:>9} {:>9} {target:>+7.1} %   {:>9} {:>9} {initiator:>+7.1} %",
        cell.name(),
        now.target,
        before.target,
        now.initiator,
        before.initiator
    );
    line + verdict(target.max(initiator), target.min(initiator))
}

fn verdict(highest: f64, lowest: f64) -> &'static str {
    match () {
        () if highest > CHANGE_PERCENT => "  MORE THAN BEFORE",
        () if lowest < -CHANGE_PERCENT => "  less: --update keeps it",
        () => "",
    }
}

/// The section of docs/measured/instructions.md.
pub(super) fn section(baseline: &Baseline) -> String {
    let rows = baseline
        .cells
        .iter()
        .map(|(name, Counts { target, initiator })| format!("| {name} | {target} | {initiator} |\n"));
    format!("{TEXT}\nMade with {}.\n\n{TABLE}{}", baseline.toolchain, rows.collect::<String>())
}

const TEXT: &str = "\
`cargo xtask instructions --update` counts this and writes this section; `cargo xtask instructions`, which is a part of \
`cargo xtask test`, counts it again and fails if a count rose by more than 5 % of `xtask/instructions.toml`.

Instructions that each end executes for one command in user space, by callgrind: our target and our initiator, whole, \
over memory in the place of a network (`crates/measure/wan/examples/instructions`). The kernel, in which a server spends \
four fifths of its time, is not in it, nor is the clock. A run with 3,200 commands less a run with 1,600, divided by \
1,600; the same in every run on one machine, but for one in a thousand with a file; other machines were not tried. `ram` is \
a RAM volume, `cached` a file in memory, which the reactor reads and writes at once, and `null` a device whose data go through \
a buffer, as a file's do, and that keeps nothing.
";

const TABLE: &str = "| cell | target | initiator |\n|---|---:|---:|\n";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::instructions::CELLS;

    #[test]
    fn a_regression_is_marked_in_its_line() {
        let before = Counts { target: 1000, initiator: 1000 };
        let shown = |target| line(&CELLS[0], Some(before), Counts { target, ..before });
        assert!(shown(1060).ends_with("MORE THAN BEFORE"), "{}", shown(1060));
        assert!(shown(940).contains("-6.0 %") && shown(940).ends_with("--update keeps it"));
        assert!(shown(1010).ends_with("+0.0 %"));
    }
}
