//! What to paste on an initiator to use a LUN: on Linux, on Windows, for QEMU and for libiscsi's tools.
//! Secrets are never shown; the word SECRET stands for them.

use std::fmt::Write;
use std::net::SocketAddr;

use target::ISCSI;
use volume::spec::Bytes;

use super::{IscsiConfig, Lun};
use crate::control::Volume;

/// A LUN and the way to it.
#[derive(Clone, Debug)]
struct Way<'a> {
    /// An address that initiators can reach, not a wildcard.
    portal: SocketAddr,
    target: &'a str,
    lun: u16,
    /// The CHAP name of an account that the target believes, if it wants one.
    user: Option<&'a str>,
}

/// The lines for every LUN that one of these portals leads to.
pub(super) fn of(config: &IscsiConfig, portals: &[server::Portal], volumes: &[Volume]) -> String {
    // Writing into a String does not fail.
    let mut text = String::new();
    for target in &config.targets {
        let leads_to =
            |portal: &&server::Portal| portal.front_end == ISCSI && target.is_reached_by(portal.tag);
        let Some(portal) = portals.iter().find(leads_to) else { continue };
        let account = target.chap.as_ref().and_then(|chap| chap.accounts.first());
        for lun in &target.luns {
            let _ = writeln!(text, "\n{}, LUN {}: {}", target.name, lun.lun, volume(volumes, lun));
            text += &lines(&Way {
                portal: portal.listen,
                target: target.name.as_str(),
                lun: lun.lun,
                user: account.map(|account| account.credentials.name.as_str()),
            });
        }
    }
    text
}

fn volume(volumes: &[Volume], lun: &Lun) -> String {
    let Some(volume) = volumes.iter().find(|volume| volume.name == lun.volume.as_str()) else {
        return lun.volume.to_string();
    };
    let (bytes, block) = (Bytes(volume.bytes), Bytes(volume.block_bytes.into()));
    format!("{}, {}, {bytes} in blocks of {block}", volume.name, volume.spec)
}

/// The lines for one LUN.
fn lines(way: &Way<'_>) -> String {
    let blocks =
        [("Linux", linux(way)), ("Windows", windows(way)), ("QEMU", qemu(way)), ("libiscsi", libiscsi(way))];
    let mut text = String::new();
    for (system, lines) in blocks {
        for (index, line) in lines.iter().enumerate() {
            let label = if index == 0 { system } else { "" };
            let _ = writeln!(text, "  {label:<9} {line}");
        }
    }
    text
}

fn linux(way: &Way<'_>) -> Vec<String> {
    let node = format!("iscsiadm -m node -T {} -p {}", way.target, way.portal);
    let mut lines = vec![format!("iscsiadm -m discovery -t sendtargets -p {}", way.portal)];
    if let Some(user) = way.user {
        let settings = [("authmethod", "CHAP"), ("username", user), ("password", "SECRET")];
        lines.extend(
            settings.map(|(key, value)| format!("{node} -o update -n node.session.auth.{key} -v {value}")),
        );
    }
    lines.push(format!("{node} --login"));
    lines
}

fn windows(way: &Way<'_>) -> Vec<String> {
    let (address, port) = (way.portal.ip(), way.portal.port());
    let chap = way
        .user
        .map(|user| format!(" -AuthenticationType ONEWAYCHAP -ChapUsername {user} -ChapSecret SECRET"));
    vec![
        format!("New-IscsiTargetPortal -TargetPortalAddress {address} -TargetPortalPortNumber {port}"),
        format!("Connect-IscsiTarget -NodeAddress {}{}", way.target, chap.unwrap_or_default()),
    ]
}

fn qemu(way: &Way<'_>) -> Vec<String> {
    let chap = way.user.map(|user| format!(",user={user},password-secret=ID_OF_A_SECRET_OBJECT"));
    vec![
        format!("-drive file={},format=raw,if=virtio", url(way)),
        format!(
            "-blockdev driver=iscsi,node-name=disk0,transport=tcp,portal={},target={},lun={}{}",
            way.portal,
            way.target,
            way.lun,
            chap.unwrap_or_default()
        ),
    ]
}

fn libiscsi(way: &Way<'_>) -> Vec<String> {
    vec![format!("iscsi-ls -s iscsi://{}{}", account(way), way.portal), format!("iscsi-inq {}", url(way))]
}

fn url(way: &Way<'_>) -> String {
    format!("iscsi://{}{}/{}/{}", account(way), way.portal, way.target, way.lun)
}

fn account(way: &Way<'_>) -> String {
    way.user.map(|user| format!("{user}%SECRET@")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn way(user: Option<&'static str>) -> Way<'static> {
        let portal = "[2001:db8::1]:3260".parse().expect("an address");
        Way { portal, target: "iqn.2026-01.io.linerate:vm1", lun: 7, user }
    }

    #[test]
    fn a_lun_without_secrets_is_used_by_these_lines() {
        let expected = "  \
  Linux     iscsiadm -m discovery -t sendtargets -p [2001:db8::1]:3260
            iscsiadm -m node -T iqn.2026-01.io.linerate:vm1 -p [2001:db8::1]:3260 --login
  Windows   New-IscsiTargetPortal -TargetPortalAddress 2001:db8::1 -TargetPortalPortNumber 3260
            Connect-IscsiTarget -NodeAddress iqn.2026-01.io.linerate:vm1
  QEMU      -drive file=iscsi://[2001:db8::1]:3260/iqn.2026-01.io.linerate:vm1/7,format=raw,if=virtio
            -blockdev driver=iscsi,node-name=disk0,transport=tcp,portal=[2001:db8::1]:3260,target=iqn.2026-01.io.linerate:vm1,lun=7
  libiscsi  iscsi-ls -s iscsi://[2001:db8::1]:3260
            iscsi-inq iscsi://[2001:db8::1]:3260/iqn.2026-01.io.linerate:vm1/7
";
        assert_eq!(lines(&way(None)), expected);
    }

    #[test]
    fn where_a_secret_is_wanted_every_line_has_its_place() {
        let text = lines(&way(Some("alice")));
        assert!(text.contains("-o update -n node.session.auth.username -v alice"));
        assert!(text.contains("-AuthenticationType ONEWAYCHAP -ChapUsername alice -ChapSecret SECRET"));
        assert!(text.contains("iscsi-inq iscsi://alice%SECRET@[2001:db8::1]:3260/"));
        assert!(text.contains("user=alice,password-secret="));
    }
}
