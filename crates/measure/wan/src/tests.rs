//! Scenarios in a lab. They require the permission to create network namespaces; without it, they are skipped
//! with a message.

use std::collections::BTreeMap;

use bench::Go;
use bench::plan::{Cell, Setting, Stop, Suite};
use bench::record::{CellRun, Ended};
use bench::suite::wan::{WanPlan, suite};

use super::ground::TestBed;
use super::*;
use bench_runner::crew::Crew;

/// The link rate. It is low, so that even a machine that is busy with other tests can transfer the data.
const BITS_PER_S: f64 = 50e6;

fn cells() -> BTreeMap<String, Cell> {
    let plan = WanPlan {
        link_bits_per_s: BITS_PER_S,
        congestion: CONGESTION.to_owned(),
        quick: false,
    };
    let suite: Suite = on_the_volume(suite(&plan));
    suite
        .cells()
        .map(|cell| (cell.name.clone(), cell.clone()))
        .collect()
}

fn may_make_a_lab() -> bool {
    let made = lab::Lab::build(&lab::Plan::pair(lab::Conditions::default()));
    made.inspect_err(|why| eprintln!("skipped: {why}")).is_ok()
}

/// Measures these cells, one after the other, with one crew.
fn measured(names: &[&str]) -> Vec<CellRun> {
    let cells = cells();
    let stop = Stop {
        warm_up_s: 0.3,
        ..Stop::after(0.3)
    };
    let runs = backends::remote::run(async {
        let mut crew = WanCrew::new()?;
        let mut runs = Vec::new();
        for name in names {
            let cell = cells.get(*name).unwrap_or_else(|| panic!("no cell {name}"));
            let carried = crew.run(cell, stop, &mut |_| Go::On).await?;
            let clients = carried.parts.into_iter().map(|part| part.run).collect();
            let (cell, ended) = (cell.name.clone(), Ended::Time);
            runs.push(CellRun {
                cell,
                round: 0,
                begun_s: 0.0,
                ended,
                clients,
                server_cpu: None,
            });
        }
        crew.close().await;
        Ok(runs)
    });
    runs.unwrap_or_else(|failure| panic!("{failure}"))
}

#[test]
fn a_cell_without_a_setting_is_refused() {
    let cell = Cell {
        setting: None,
        ..cells().remove("read, 0 ms, 1 KiB × 1").expect("a cell")
    };
    let refused = backends::remote::run(async {
        WanCrew::new()?
            .run(&cell, Stop::after(0.1), &mut |_| Go::On)
            .await
    });
    let why = refused.err().expect("a refusal").to_string();
    assert!(why.contains("does not specify its network path"), "{why}");
}

#[test]
fn a_distance_that_no_lab_has_is_refused() {
    if !may_make_a_lab() {
        return;
    }
    let near = *cells()["read, 2 ms, 1 KiB × 1"]
        .setting
        .clone()
        .expect("all have one");
    for rtt_ms in [-1.0, 1e300, f64::NAN, 60_000.0] {
        let why = TestBed::new().expect("memory").make(&Setting {
            rtt_ms,
            ..near.clone()
        });
        assert!(
            why.is_err_and(|why| why.to_string().contains("delay is 10 s")),
            "{rtt_ms}"
        );
    }
}

#[test]
fn each_cell_is_measured_over_the_way_that_its_setting_names() {
    if !may_make_a_lab() {
        return;
    }
    let names = [
        "read, 2 ms, 1 KiB × 1",
        "read, 10 ms, 1 KiB × 1",
        "solicited write, 10 ms, 1 KiB × 1",
        "unsolicited write, 10 ms, 1 KiB × 1",
        "TCP to the target, 10 ms, window 64 KiB",
        "TCP from the target, 2 ms, window 10 MiB",
    ];
    let runs = measured(&names);
    let median_ms = |run: &CellRun| {
        let run = &run.clients[0].run;
        run.reads
            .service
            .merged(&run.writes.service)
            .quantile_ns(0.5) as f64
            / 1e6
    };
    assert!(
        runs.iter()
            .all(|run| run.total(|run| run.errors as f64) == 0.0),
        "{runs:?}"
    );
    assert!(
        (2.0..9.0).contains(&median_ms(&runs[0])),
        "{}",
        median_ms(&runs[0])
    );
    assert!(median_ms(&runs[1]) >= 10.0, "{}", median_ms(&runs[1]));
    // The write takes two round trips: one for the command and its R2T, and one for the data and the status.
    assert!(median_ms(&runs[2]) >= 20.0, "{}", median_ms(&runs[2]));
    assert!(
        (10.0..20.0).contains(&median_ms(&runs[3])),
        "{}",
        median_ms(&runs[3])
    );
    let payload = model::link::Link::ethernet(BITS_PER_S, 1500).payload_per_s();
    for tcp in &runs[4..] {
        let share = tcp.bytes_per_s() / payload;
        // A run that starts while the link's buffer contains a burst may count slightly more than was sent in
        // its time.
        assert!((0.1..1.05).contains(&share), "{}: {share}", tcp.cell);
    }
}

#[test]
fn only_what_a_setting_changes_is_made_anew() {
    if !may_make_a_lab() {
        return;
    }
    let cells = cells();
    let setting = |name: &str| -> Setting { *cells[name].setting.clone().expect("all have one") };
    let mut ground = TestBed::new().expect("memory");
    let near = setting("read, 2 ms, 1 KiB × 1");
    ground.make(&near).expect("a lab");
    let target = ground.url(&near).expect("a URL");
    assert!(ground.fits(&near) && ground.fits(&setting("solicited write, 2 ms, 8 KiB × 32")));
    let far = setting("read, 50 ms, 1 KiB × 1");
    assert!(!ground.fits(&far));
    ground.make(&far).expect("the same lab");
    assert!(ground.fits(&far) && !ground.fits(&near));
    let address = |url: &Option<iscsi_client::Url>| url.as_ref().map(|url| url.portal.clone());
    assert_eq!(
        address(&ground.url(&far).expect("a URL")),
        address(&target),
        "the same target"
    );
    let narrow = setting("read, command window, 8");
    ground.make(&narrow).expect("another target");
    assert_ne!(
        address(&ground.url(&narrow).expect("a URL")),
        address(&target)
    );
}
