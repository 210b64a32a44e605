//! What front ends that listen on addresses have in common.

use std::net::{Ipv6Addr, SocketAddr};
use std::path::PathBuf;

use front_end_core::{ListenAddress, Portal};
use reactor::BadAddress;

use crate::config::Unfit;

/// Where to listen: `SCHEME://ADDR:PORT`; the scheme, and a port that is the protocol's own, may be left out.
pub fn listen_address(text: &str, own_scheme: &str, own_port: u16) -> Result<SocketAddr, Unfit> {
    let place = match text.split_once("://") {
        None => text,
        Some((scheme, place)) if scheme == own_scheme => place,
        Some((scheme, _)) => {
            return Err(Unfit(format!("`{scheme}://` is not served here; write {own_scheme}://…")));
        }
    };
    reactor::listen_address(place, Some(own_port)).map_err(|wrong| match wrong {
        BadAddress::Form(_)
            if place.split('%').next().is_some_and(|bare| bare.parse::<Ipv6Addr>().is_ok()) =>
        {
            Unfit(format!("an IPv6 address stands in brackets; write [{place}]:{own_port}"))
        }
        BadAddress::Form(_) => Unfit(format!(
            "`{place}` is not an address and a port; write one such as 0.0.0.0:{own_port} or [::]:{own_port}"
        )),
        wrong => Unfit(wrong.to_string()),
    })
}

/// The same, or a Unix socket: `SCHEME+unix://PATH`.
pub fn listen_address_or_path(text: &str, own_scheme: &str, own_port: u16) -> Result<ListenAddress, Unfit> {
    let local = text.strip_prefix(own_scheme).and_then(|rest| rest.strip_prefix("+unix://"));
    let Some(path) = local else { return Ok(listen_address(text, own_scheme, own_port)?.into()) };
    // What a URL must write otherwise: clients are told of it in theirs.
    let is_plain = |c: char| !c.is_control() && !" \"#%&?\\".contains(c);
    match path.starts_with('/') && !path.ends_with('/') && path.chars().all(is_plain) {
        true => Ok(ListenAddress::Unix(PathBuf::from(path))),
        false => Err(Unfit(format!(
            "`{path}` is not the absolute path of a socket, without spaces and any of \"#%&?\\; write one such as \
             {own_scheme}+unix:///run/linerate/{own_scheme}.sock"
        ))),
    }
}

/// An interface of this machine: `[SCHEME://]NAME`.
pub(super) fn interface<'a>(text: &'a str, own_scheme: &str) -> Result<&'a str, Unfit> {
    let name = match text.split_once("://") {
        None => text,
        Some((scheme, name)) if scheme == own_scheme => name,
        Some((scheme, _)) => {
            return Err(Unfit(format!("`{scheme}://` is not served here; write {own_scheme}://…")));
        }
    };
    // What the kernel takes (dev_valid_name).
    let is_name = (1..16).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'/' && byte != b':');
    match is_name {
        true => Ok(name),
        false => {
            let sentence =
                format!("`{name}` is not the name of an interface; write one such as {own_scheme}://eth0");
            Err(Unfit(sentence))
        }
    }
}

/// What is different between two lists of portals, for people, a line each; `describe` says which portal it is.
pub fn portal_changes(
    now: &[Portal],
    wanted: &[Portal],
    describe: impl Fn(&Portal) -> String,
) -> Vec<String> {
    let mut lines = Vec::new();
    for portal in wanted.iter().filter(|portal| !now.contains(portal)) {
        let is_there = now.iter().any(|before| before.listen == portal.listen);
        let sign = if is_there { '~' } else { '+' };
        lines.push(format!("{sign} portal {}", describe(portal)));
    }
    for portal in now {
        if wanted.iter().all(|after| after.listen != portal.listen) {
            lines.push(format!("- portal {}", describe(portal)));
        }
    }
    lines
}
