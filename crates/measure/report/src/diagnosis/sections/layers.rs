//! Where the time of one request goes, layer by layer.

use crate::chart::{Axis, Bar, Bars, Group, Scale};
use crate::diagnosis::waterfall::{Step, Waterfall, waterfalls};
use crate::document::{Block, Section, Table};
use diagnose::Evidence;
use readable::figures::{latency, latency_tick};

pub(super) fn section(evidence: &Evidence) -> Option<Section> {
    let waterfalls = waterfalls(evidence);
    if waterfalls.is_empty() {
        return None;
    }
    let says = "Medians of requests that were alone, each layer beginning where the one before it ends. What a layer takes \
                is the difference of two commands, of which one goes a layer deeper; behind ± is half of its 95 % interval.";
    let blocks =
        vec![Block::Bars(bars(&waterfalls), says.to_owned()), Block::Table(table(&waterfalls).folded(true))];
    Some(Section { id: "layers", title: "Where the time of one request goes", blocks })
}

fn bars(waterfalls: &[Waterfall]) -> Bars {
    let whole = waterfalls.iter().map(Waterfall::whole_us);
    Bars {
        title: "Latency by layer".to_owned(),
        axis: Axis {
            title: "time since the request began",
            scale: Scale::from_zero(whole),
            tick: latency_tick,
        },
        groups: waterfalls.iter().map(group).collect(),
    }
}

fn group(waterfall: &Waterfall) -> Group {
    let part = |step: &Step| Bar::new(step.layer.clone(), step.takes_us(), takes(step), step.rank);
    let parts = waterfall.steps.iter().map(part).collect();
    let mut group = Group::waterfall(waterfall.request.clone(), parts);
    group.bars.push(Bar::new(
        "altogether".to_owned(),
        waterfall.whole_us(),
        latency(waterfall.whole_us()),
        6,
    ));
    group
}

fn table(waterfalls: &[Waterfall]) -> Table {
    let mut table = Table::of("The same in numbers", &["request", "layer", "#takes", "#ends at"]);
    for waterfall in waterfalls {
        for step in &waterfall.steps {
            let [takes, ends] = [takes(step), latency(step.to_us)];
            table.row([waterfall.request.clone(), step.layer.clone(), takes, ends]);
        }
    }
    table
}

/// `12.3 µs ± 0.8 µs`, or that it is less than chance.
fn takes(step: &Step) -> String {
    let takes = latency(step.takes_us());
    match step {
        step if step.reckoned => format!("{takes}, reckoned"),
        step if step.is_noise() => format!("less than {}", latency(step.give_us)),
        step if step.give_us > 0.0 => format!("{takes} ± {}", latency(step.give_us)),
        _ => takes,
    }
}
