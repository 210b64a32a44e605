//! Secrets in a configuration: written there, or in a file of their own.

use std::path::Path;

use backends::secrets;

use crate::config::{Placed, Section};

/// The secret of a section, by `secret` or `secret-file`, and where that is written.
pub(super) fn read<'a>(section: &Section<'a>, example: &str) -> Option<(Placed<&'a str>, Vec<u8>)> {
    let refuse = |place: &Placed<&str>, sentence: String| {
        section.mistakes.add(place.at.clone(), sentence);
        None
    };
    match (section.text("secret"), section.text("secret-file")) {
        (Some(_), Some(file)) => {
            refuse(&file, "there are two secrets; keep `secret` or `secret-file`".to_owned())
        }
        (None, Some(file)) => match secrets::read(Path::new(file.value)) {
            Ok(bytes) => Some((file, bytes.to_vec())),
            Err(error) => refuse(&file, format!("cannot read the secret in {}: {error}", file.value)),
        },
        (secret, None) => {
            let inline = section.required("secret", secret, &format!("\"{example}\""))?;
            section.mistakes.found_secret(&inline.at);
            let bytes = inline.value.as_bytes().to_vec();
            Some((inline, bytes))
        }
    }
}
