//! Tests of reports in a browser: no part may overlap, be clipped or be unreadable.
//!
//! Chromium lays out each page, a script added to the page (`check.js`) checks the boxes, and its results are
//! read from the page. Screenshots and a printed version remain in the target directory. Look at them
//! whenever a chart has changed: a script does not detect ugliness.

mod command;
#[path = "../../../../measure/report/tests/report/diagnoses.rs"]
#[allow(dead_code, reason = "the tests of bench use all of it")]
mod diagnoses;
#[path = "../../../../measure/report/tests/report/records.rs"]
mod records;

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use ::report::{DiagnosisReport, Report};
use bench::record::Record;
use serde_json::Value;

use crate::program::{installed, run};

const CHROMIUM: &str = "chromium";

/// Views of a page: a name, arguments, width and height of the window.
const WAYS: [(&str, &[&str], u32, u32); 3] = [
    (
        "light",
        &["--blink-settings=preferredColorScheme=1"],
        1100,
        3000,
    ),
    // A tablet in portrait orientation.
    (
        "dark",
        &["--blink-settings=preferredColorScheme=0"],
        700,
        3000,
    ),
    // A width at which tables are scrolled.
    (
        "telephone",
        &["--blink-settings=preferredColorScheme=1"],
        400,
        3000,
    ),
];

#[test]
fn nothing_overlaps_or_leaves_its_frame_or_is_hard_to_read() {
    let browser = or_skip!(Browser::open("layout"));
    for (name, page) in pages() {
        for (way, arguments, width, height) in WAYS {
            let seen = browser.look(&format!("{name}-{way}"), &page, arguments, width, height);
            assert_eq!(seen["wrong"], Value::Array(Vec::new()), "{name}, {way}");
            let dark = seen["paper"][0].as_f64().expect("a colour") < 128.0;
            assert_eq!(
                dark,
                arguments[0].ends_with('0'),
                "{name}, {way}: the paper is {}",
                seen["paper"]
            );
        }
    }
}

#[test]
fn a_print_is_laid_out_for_paper() {
    let browser = or_skip!(Browser::open("print"));
    // The width of A4 without margins, in the browser's pixels. The rules for print apply to everything here.
    let (width, height) = (688, 970);
    for (name, page) in pages() {
        let on_paper = page.replace("@media print", "@media all");
        assert_ne!(on_paper, page, "the page has a style for print");
        let dark = ["--blink-settings=preferredColorScheme=0"];
        let seen = browser.look(&format!("{name}-print"), &on_paper, &dark, width, height);
        assert_eq!(seen["wrong"], Value::Array(Vec::new()), "{name}");
        assert_eq!(seen["cut"], 0, "{name}: paper does not scroll");
        assert_eq!(
            seen["paper"],
            serde_json::json!([255, 255, 255]),
            "{name}: ink is dear"
        );
    }
}

#[test]
fn pointing_at_a_mark_shows_its_value() {
    let browser = or_skip!(Browser::open("tip"));
    let page = Report::new(&records::sweep()).html();
    let seen = browser.look("tip", &page, &[], 1100, 3000);
    let tip = seen["tip"].as_str().expect("a tip");
    assert!(tip.contains("MB/s") && tip.contains("IOPS"), "{tip}");
}

#[test]
fn figures_are_there_without_javascript() {
    let browser = or_skip!(Browser::open("plain"));
    let page = Report::new(&records::depths()).html();
    let (before, script) = page.split_once("<script>").expect("the page's own");
    let (_, after) = script.split_once("</script>").expect("its end");
    let dump = |name: &str, page: &str| browser.dump(&browser.write(name, page), &[], 1100, 3000);
    let (with, without) = (
        dump("with", &page),
        dump("without", &format!("{before}{after}")),
    );
    let count = |dom: &str, what: &str| dom.matches(what).count();
    for part in ["<svg", "class=\"mark\"", "<text", "<td"] {
        assert_eq!(count(&without, part), count(&with, part), "{part}");
    }
    // Values are in the browser's tooltips, until the script replaces these; the page also has a title.
    assert_eq!(
        count(&without, "<title>"),
        count(&without, "class=\"mark\"") + 1
    );
    assert_eq!(count(&with, "<title>"), 1);
}

#[test]
fn the_check_finds_what_overlaps_and_what_leaves_its_frame() {
    let browser = or_skip!(Browser::open("broken"));
    let page = Report::new(&records::depths()).html();
    let broken = page.replace(
        ".chart text { font-size: 12.5px",
        ".chart text { font-size: 24px",
    );
    let seen = browser.look("overlapping", &broken, &[], 1100, 3000);
    assert!(seen["wrong"].to_string().contains(" touches "), "{seen}");
    let broken = page.replace("viewBox=\"0 0 780", "viewBox=\"0 0 600");
    let seen = browser.look("leaving", &broken, &[], 1100, 3000);
    assert!(
        seen["wrong"].to_string().contains("leaves the frame"),
        "{seen}"
    );
    let broken = page.replace("svg.chart { min-width: 0", "svg.chart { min-width: 36rem");
    let broken = broken.replace(
        "overflow-wrap: break-word",
        "word-break: break-all; width: 1rem; min-width: 0",
    );
    let seen = browser.look("cut", &broken, &[], 400, 3000);
    assert!(
        seen["wrong"].to_string().contains("is cut at the right"),
        "{seen}"
    );
    assert!(seen["wrong"].to_string().contains("is broken"), "{seen}");
    let broken = page.replace("--faint: #5c6570", "--faint: #c0c0c0");
    let seen = browser.look(
        "pale",
        &broken,
        &["--blink-settings=preferredColorScheme=1"],
        1100,
        3000,
    );
    assert!(
        seen["wrong"].to_string().contains("is hard to read"),
        "{seen}"
    );
    let full = Report::new(&records::wan())
        .html()
        .replace("fill-opacity=\"0.5\"", "fill-opacity=\"1\"");
    let seen = browser.look(
        "full",
        &full,
        &["--blink-settings=preferredColorScheme=1"],
        1100,
        3000,
    );
    assert!(
        seen["wrong"]
            .to_string()
            .contains("is hard to read on its square"),
        "{seen}"
    );
}

#[test]
fn screenshots_and_a_print_are_kept_to_be_looked_at() {
    let browser = or_skip!(Browser::open("pictures"));
    for (name, page) in pages()
        .into_iter()
        .filter(|(name, _)| ["atto", "held-back"].contains(name))
    {
        keep_pictures(&browser, name, &page);
    }
}

fn keep_pictures(browser: &Browser, name: &str, page: &str) {
    for (way, arguments, width, height) in WAYS {
        let file = browser.write(&format!("{name}-{way}"), &framed(page, width));
        let picture = browser.folder.join(format!("{name}-{way}.png"));
        browser.run(
            &file,
            arguments,
            &[argument("--screenshot=", &picture)],
            width,
            height,
        );
        assert!(
            fs::metadata(&picture).expect("a picture").len() > 10_000,
            "{}",
            picture.display()
        );
    }
    let file = browser.write(name, page);
    let print = browser.folder.join(format!("{name}.pdf"));
    browser.run(
        &file,
        &["--no-pdf-header-footer"],
        &[argument("--print-to-pdf=", &print)],
        1100,
        800,
    );
    assert!(fs::read(&print).expect("a print").starts_with(b"%PDF"));
}

/// A page of each shape.
fn pages() -> Vec<(&'static str, String)> {
    let page = |record: Record| Report::new(&record).html();
    let atto = records::atto();
    let beside = ["000", "001"].map(str::to_owned);
    let of_records = vec![
        ("atto", Report::new(&atto).beside(&beside).html()),
        ("depths", page(records::depths())),
        ("clients", page(records::clients())),
        ("open", page(records::open_loop())),
        ("pts", page(records::pts())),
        ("wan", page(records::wan())),
        ("partial", page(records::partial())),
        ("empty", page(records::empty())),
    ];
    let diagnosis = |(name, diagnosis)| {
        (
            name,
            DiagnosisReport::new(&diagnosis, "2026-11-21 18:00:00 UTC", "0.1.0").html(),
        )
    };
    of_records
        .into_iter()
        .chain(diagnoses::all().map(diagnosis))
        .collect()
}

/// Chromium's windows are at least 500 pixels wide: a narrower page is shown in a frame, with the check's
/// results next to it.
fn framed(page: &str, width: u32) -> String {
    if width >= 500 {
        return page.to_owned();
    }
    let page = page.replace('&', "&amp;").replace('"', "&quot;");
    let style = format!("border: 0; width: {width}px; height: 3000px");
    let seen = "document.body.append(this.contentDocument.querySelector('#seen') ?? '')";
    format!(
        "<!doctype html><body style=\"margin: 0\"><iframe style=\"{style}\" onload=\"{seen}\" srcdoc=\"{page}\"></iframe>"
    )
}

/// Chromium without a window, and a directory for its output.
struct Browser {
    folder: PathBuf,
    profile: tempfile::TempDir,
}

impl Browser {
    fn open(name: &str) -> Option<Browser> {
        if !installed(&[CHROMIUM]) {
            return None;
        }
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR"))
            .join("report")
            .join(name);
        fs::create_dir_all(&folder).expect("a folder");
        Some(Browser {
            folder,
            profile: tempfile::tempdir().expect("a folder"),
        })
    }

    fn write(&self, name: &str, page: &str) -> PathBuf {
        let file = self.folder.join(format!("{name}.html"));
        fs::write(&file, page).expect("a page");
        file
    }

    /// The result of `check.js` for a page.
    fn look(&self, name: &str, page: &str, arguments: &[&str], width: u32, height: u32) -> Value {
        let script = format!("<script>{}</script></body>", include_str!("check.js"));
        let file = self.write(name, &framed(&page.replace("</body>", &script), width));
        let dom = self.dump(&file, arguments, width, height);
        let (_, from) = dom
            .split_once("<pre id=\"seen\">")
            .unwrap_or_else(|| panic!("{name}: {dom:.2000}"));
        let (seen, _) = from.split_once("</pre>").expect("its end");
        let text = seen
            .replace("&lt;", "<")
            .replace("&gt;", ">")
            .replace("&amp;", "&");
        serde_json::from_str(&text).expect("JSON")
    }

    /// The page after all scripts have run.
    fn dump(&self, file: &Path, arguments: &[&str], width: u32, height: u32) -> String {
        self.run(file, arguments, &["--dump-dom".into()], width, height)
    }

    fn run(
        &self,
        file: &Path,
        arguments: &[&str],
        what: &[OsString],
        width: u32,
        height: u32,
    ) -> String {
        // Root cannot use the sandbox; the pages are trusted.
        let fixed = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--hide-scrollbars",
        ];
        let mut all: Vec<OsString> = fixed.iter().chain(arguments).map(OsString::from).collect();
        all.push(argument("--user-data-dir=", self.profile.path()));
        all.push(format!("--window-size={width},{height}").into());
        all.extend_from_slice(what);
        all.push(argument("file://", file));
        run(CHROMIUM, &all).expect_success()
    }
}

fn argument(name: &str, path: &Path) -> OsString {
    let mut argument = OsString::from(name);
    argument.push(path);
    argument
}
