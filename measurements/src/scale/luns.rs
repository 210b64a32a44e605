//! 4,096 LUNs: how soon a server with them is ready, whether initiators see them all, and their memory.

use std::fmt::Write as _;
use std::fs;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::{Found, linerate, owned, pid, serve};
use crate::measuring::goal::Judged;
use crate::measuring::server::Site;
use crate::measuring::usage;
use xtask::process;
use xtask::serving::linerate::Linerate;
use xtask::workspace;

const LUNS: usize = 4096;

/// How they are shown.
#[derive(Clone, Copy, Debug)]
enum Shape {
    OneTarget,
    ManyTargets,
}

impl Shape {
    fn name(self) -> &'static str {
        match self {
            Shape::OneTarget => "one target with all",
            Shape::ManyTargets => "a target for each",
        }
    }

    fn configuration(self) -> String {
        let mut text = String::new();
        for number in 0..LUNS {
            let _ = writeln!(text, "[volume.v{number}]\nspec = \"ram:16MiB\"");
        }
        let lun =
            |lun: usize, volume: usize| format!("[[target.lun]]\nlun = {lun}\nvolume = \"v{volume}\"\n");
        let target = |name: &str| format!("[[target]]\nname = \"iqn.2026-01.io.linerate:{name}\"\n");
        match self {
            Shape::OneTarget => {
                text += &target("all");
                text.extend((0..LUNS).map(|number| lun(number, number)));
            }
            Shape::ManyTargets => {
                text.extend((0..LUNS).map(|number| target(&format!("t{number}")) + &lun(0, number)));
            }
        }
        text
    }

    /// How many of them an initiator finds.
    fn seen(self, site: &Site, server: &Linerate) -> Result<usize> {
        let mut command = linerate(site);
        match self {
            Shape::OneTarget => command.args(["scsi", "luns", "--json", &server.url_of("all", 0)]),
            Shape::ManyTargets => command.args(["discover", "--json", &server.address()]),
        };
        let answer: Value = serde_json::from_str(&process::capture(command)?)?;
        // REPORT LUNS names the well-known logical units too, which have no number.
        let is_counted = |entry: &&Value| match self {
            Shape::OneTarget => entry["lun"].as_str().is_some_and(|lun| lun.parse::<u32>().is_ok()),
            Shape::ManyTargets => entry["name"].is_string(),
        };
        let list = match self {
            Shape::OneTarget => answer["luns"].as_array(),
            Shape::ManyTargets => answer["targets"].as_array(),
        };
        list.map(|list| list.iter().filter(is_counted).count())
            .with_context(|| format!("no list in {answer}"))
    }
}

pub(super) fn measure(site: &Site) -> Result<Found> {
    let empty = usage::own_memory(pid(&serve(site, &["--volume", "ram0=ram:16MiB"])?))?;
    let mut text = format!(
        "`cargo measure scale --part luns`: a configuration file with {LUNS} RAM volumes. The first start draws an identity \
         for each volume and puts it on the disk; later ones read it. Memory is the server's own, above that of a server \
         with one LUN, nothing written and nobody logged in.\n\n\
         | shown as | first start, s | later start, s | seen by an initiator | bytes for each LUN |\n|---|---:|---:|---:|---:|\n"
    );
    let (mut goals, mut figures) = (Vec::new(), Vec::new());
    for shape in [Shape::OneTarget, Shape::ManyTargets] {
        let path = workspace::target_directory().join(format!("xtask/scale-{}.toml", std::process::id()));
        fs::write(&path, shape.configuration()).with_context(|| path.display().to_string())?;
        let file = path.to_string_lossy().into_owned();
        let arguments = ["--config", file.as_str()];
        let first = serve(site, &arguments)?;
        let first_s = first.started_in.as_secs_f64();
        let later = first.restart(&site.binary, &owned(&arguments), &site.place(None))?;
        let later_s = later.started_in.as_secs_f64();
        let each = usage::own_memory(pid(&later))?.saturating_sub(empty) / LUNS as u64;
        let seen = shape.seen(site, &later)?;
        drop(later);
        let _ = fs::remove_file(&path); // a leftover under target/ harms nobody
        let name = shape.name();
        let _ = writeln!(text, "| {name} | {first_s:.2} | {later_s:.2} | {seen} | {each} |");
        goals.push(Judged::at_most(format!("seconds to the first start, {name}"), first_s, 2.0));
        goals.push(Judged::at_most(format!("seconds to a later start, {name}"), later_s, 2.0));
        goals.push(Judged::at_least(format!("LUNs seen, {name}"), seen as f64, LUNS as f64));
        figures.push(
            json!({"shape": name, "first_s": first_s, "later_s": later_s, "seen": seen, "bytes_each": each}),
        );
    }
    Ok(Found { heading: "4,096 LUNs", text, goals, figures: json!(figures) })
}
