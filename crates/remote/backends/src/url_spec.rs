//! What back ends that are URLs have in common: the place and the options, as they were written.

use volume::spec::Written;

/// A URL behind the name of its back end.
#[derive(Debug)]
pub(crate) struct UrlSpec {
    scheme: &'static str,
    /// What stands behind the scheme and its colon.
    pub(crate) place: String,
    pub(crate) options: Vec<String>,
}

impl UrlSpec {
    pub(crate) fn new(scheme: &'static str, written: &Written<'_>) -> UrlSpec {
        UrlSpec { scheme, place: written.argument().text.clone(), options: written.own_options() }
    }

    /// All of it.
    pub(crate) fn text(&self) -> String {
        let mark = if self.options.is_empty() { "" } else { "?" };
        format!("{}:{}{mark}{}", self.scheme, self.place, self.options.join("&"))
    }
}
