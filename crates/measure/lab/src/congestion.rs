//! Congestion controls that hosts may use.
//!
//! A namespace may choose only among those that everybody may use (tcp_allowed_congestion_control), and a
//! kernel whose own default is another may not count `cubic` among them. The list is the machine's, not a
//! namespace's: adding a name to it is the one thing that a lab changes outside itself. It allows a program
//! without privileges to choose that algorithm for its own sockets, and lasts until the machine restarts.

use std::fs;

use crate::error::LabError;

/// Makes sure that a host may have this one.
///
/// # Errors
/// [`LabError::Missing`] if the kernel does not have it, [`LabError::System`] if it may not be allowed.
pub(crate) fn allow(name: &str) -> Result<(), LabError> {
    let read = |path| fs::read_to_string(path).map_err(LabError::system(format!("read {path}")));
    let has = |list: &str| list.split_whitespace().any(|other| other == name);
    let allowed = read(ALLOWED)?;
    if has(&allowed) {
        return Ok(());
    }
    let available = read(AVAILABLE)?;
    if !has(&available) {
        let available = available.trim();
        return Err(LabError::Missing(format!(
            "the kernel has no congestion control named {name}; it has {available} (modprobe tcp_{name} may \
             add it)"
        )));
    }
    let more = format!("{} {name}", allowed.trim());
    fs::write(ALLOWED, more)
        .map_err(LabError::system(format!("allow the congestion control {name} to hosts")))
}

const ALLOWED: &str = "/proc/sys/net/ipv4/tcp_allowed_congestion_control";
const AVAILABLE: &str = "/proc/sys/net/ipv4/tcp_available_congestion_control";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_the_kernel_lacks_is_missing() {
        let refused = allow("carrier-pigeon").expect_err("not there").to_string();
        assert!(
            refused.starts_with("the kernel has no congestion control named carrier-pigeon; it has "),
            "{refused}"
        );
    }

    #[test]
    fn one_that_is_allowed_needs_nothing() {
        assert!(allow("reno").is_ok(), "Linux always allows reno");
    }
}
