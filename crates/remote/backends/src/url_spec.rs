//! What back ends that are URLs have in common: the place and the options, as they were written.

use volume::spec::{Problem, Written};

use crate::secrets::masked_url;
use crate::{aoe, hyperscsi, iscsi, nbd};

/// A URL behind the name of its back end.
#[derive(Debug)]
pub(crate) struct UrlSpec {
    scheme: &'static str,
    /// What stands behind the scheme and its colon.
    pub(crate) place: String,
    pub(crate) options: Vec<String>,
}

impl UrlSpec {
    /// Refused if it lacks its slashes.
    pub(crate) fn new(scheme: &'static str, written: &Written<'_>) -> Result<UrlSpec, Problem> {
        let place = written.argument().text.clone();
        let spec = UrlSpec { scheme, place, options: written.own_options() };
        let lacking = |sentence| Problem::new(written.argument().at.clone(), sentence);
        require_slashes(&spec.text()).map_err(lacking)?;
        Ok(spec)
    }

    /// All of it.
    pub(crate) fn text(&self) -> String {
        let mark = if self.options.is_empty() { "" } else { "?" };
        format!("{}:{}{mark}{}", self.scheme, self.place, self.options.join("&"))
    }
}

/// Refuses a URL without its slashes, such as `iscsi:/HOST/IQN/0`.
///
/// # Errors
/// The sentence that says so, with the URL that was meant.
pub(crate) fn require_slashes(text: &str) -> Result<(), String> {
    let Some((scheme, rest)) = text.split_once(':') else { return Ok(()) };
    let is_scheme = scheme == iscsi::ISCSI.name
        || scheme == aoe::AOE.name
        || nbd::SCHEMES.contains(&scheme)
        || hyperscsi::SCHEMES.contains(&scheme);
    if !is_scheme || rest.starts_with("//") {
        return Ok(());
    }
    // One on a Unix socket has no host, and its path begins with another slash.
    let root = if scheme.ends_with("+unix") { "/" } else { "" };
    let meant = masked_url(&format!("{scheme}://{root}{}", rest.trim_start_matches('/')));
    Err(format!("a URL has two slashes after `{scheme}:`; did you mean {meant}?"))
}
