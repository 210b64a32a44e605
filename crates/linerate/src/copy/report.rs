//! What a copy came to, for people.

use copy::Report;
use indicatif::BinaryBytes;

use readable::figures::significant;

/// Two lines, and another one for a digest.
pub(super) fn text(report: &Report) -> String {
    let own = report.bytes - report.resumed_at_bytes;
    let moved = report.written_bytes + report.offloaded_bytes;
    let mut text = format!(
        "copied {} in {:.2} s: {} of data at {} MB/s{}\n{} of holes and zeros left out{}\n",
        BinaryBytes(own),
        report.seconds,
        BinaryBytes(moved),
        significant(report.mb_per_s),
        if report.offloaded_bytes > 0 { ", by the target itself" } else { "" },
        BinaryBytes(own.saturating_sub(moved)),
        if report.verified { "; the two are equal" } else { "" },
    );
    if let Some(digest) = &report.sha256 {
        text += &format!("sha256 {digest}\n");
    }
    text
}
