//! What back ends that are URLs have in common: the place and the options, as they were written.

use std::sync::Arc;

use volume::backend::{Backend, Kind, Options};
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

/// Reads a back end that is a URL.
pub(crate) type Read = fn(&Written<'_>) -> Result<Arc<dyn Backend>, Problem>;

/// A kind of back end that is a URL: no layer, with options of its own.
pub(crate) const fn kind(name: &'static str, usage: &'static str, about: &'static str, read: Read) -> Kind {
    Kind { name, usage, about, is_layer: false, options: Options::Own, read }
}

/// Whether a text begins with one of these schemes.
pub(crate) fn has_scheme(text: &str, schemes: &[&str]) -> bool {
    text.split_once("://").is_some_and(|(scheme, _)| schemes.contains(&scheme))
}

/// The URL that a back end was written as, if it is one of these schemes.
pub(crate) fn url_of(backend: &dyn Backend, schemes: &[&str]) -> Option<String> {
    let scheme = schemes.contains(&backend.kind().name).then(|| backend.kind().name)?;
    Some(UrlSpec { scheme, place: backend.argument(), options: backend.options() }.text())
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
