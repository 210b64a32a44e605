//! The commands to type on an initiator to use the LUNs of a target: on Linux, Windows and ESXi, for QEMU and
//! for libiscsi's tools. Secrets are never shown: SECRET stands for the secret of the first CHAP account,
//! TARGET_SECRET for the target's secret. HOST stands for the variable part of an initiator name pattern.

use std::fmt::Write;
use std::net::{IpAddr, SocketAddr};

use super::target::Target;
use crate::front_ends::sections::labelled;

/// A target and its addresses.
pub(super) struct Way<'a> {
    target: &'a Target,
    /// Addresses that initiators can reach, without wildcards: at least one.
    portals: Vec<SocketAddr>,
    /// A name that matches the target's first pattern. `None` if the target has no patterns, or every name
    /// matches the first.
    initiator: Option<String>,
    /// The CHAP name of the first account that the target accepts; `None` if it has none.
    user: Option<&'a str>,
    /// The target's own CHAP name, for mutual authentication.
    mutual: Option<&'a str>,
}

impl<'a> Way<'a> {
    /// Collects the facts about a target behind these portals; `None` if there are no portals.
    pub(super) fn to(target: &'a Target, portals: Vec<SocketAddr>) -> Option<Way<'a>> {
        let chap = target.chap.as_ref();
        let user = chap
            .and_then(|chap| chap.accounts.first())
            .map(|account| account.credentials.name.as_str());
        let mutual = chap
            .and_then(|chap| chap.mutual.as_ref())
            .map(|credentials| credentials.name.as_str());
        let initiator = target
            .initiators
            .as_ref()
            .and_then(|names| names.first()?.example("HOST"));
        (!portals.is_empty()).then_some(Way {
            target,
            portals,
            initiator,
            user,
            mutual,
        })
    }

    /// The text: the name of the target, and the command lines for each system.
    pub(super) fn text(&self) -> String {
        debug_assert!(!self.portals.is_empty(), "a way leads through a portal");
        // In PowerShell, a backtick continues a line.
        let systems = [
            ("Linux", self.linux(), '\\'),
            ("Windows", self.windows(), '`'),
            ("ESXi", self.esxi(), '\\'),
            ("QEMU", self.qemu(), '\\'),
            ("libiscsi", self.libiscsi(), '\\'),
        ];
        let mut text = format!("{}\n", self.target.name);
        if let Some(name) = &self.initiator {
            // Writing to a `String` does not fail.
            let _ = writeln!(
                text,
                "  The target admits listed initiators only. Set the initiator's name, such as {name}"
            );
        }
        let is_link_local = |portal: &&SocketAddr| matches!(portal.ip(), IpAddr::V6(ip) if ip.is_unicast_link_local());
        if let Some(portal) = self.portals.iter().find(is_link_local) {
            let _ = writeln!(
                text,
                "  {} is a link-local address. Add the initiator's interface, as in {}%eth0",
                portal.ip(),
                portal.ip()
            );
        }
        systems
            .iter()
            .for_each(|(system, lines, mark)| text += &labelled(system, lines, *mark));
        text
    }

    /// The commands for Linux. Discovery finds all portals, and settings without `-p` apply to all of them.
    fn linux(&self) -> Vec<String> {
        let node = format!("iscsiadm -m node -T {}", self.target.name);
        let mut settings = Vec::new();
        if let Some(user) = self.user {
            settings.extend([
                ("authmethod", "CHAP"),
                ("username", user),
                ("password", "SECRET"),
            ]);
        }
        if let Some(name) = self.mutual {
            settings.extend([("username_in", name), ("password_in", "TARGET_SECRET")]);
        }
        let mut lines = vec![format!(
            "iscsiadm -m discovery -t sendtargets -p {}",
            self.portals[0]
        )];
        let update =
            |(key, value)| format!("{node} -o update -n node.session.auth.{key} -v {value}");
        lines.extend(settings.into_iter().map(update));
        lines.push(format!("{node} --login"));
        lines
    }

    fn windows(&self) -> Vec<String> {
        let portal = |portal: &SocketAddr| {
            let (address, port) = (portal.ip(), portal.port());
            format!(
                "New-IscsiTargetPortal -TargetPortalAddress {address} -TargetPortalPortNumber {port}"
            )
        };
        let mut lines: Vec<String> = self.portals.iter().map(portal).collect();
        let mut connect = format!("Connect-IscsiTarget -NodeAddress {}", self.target.name);
        if let Some(user) = self.user {
            let kind = if self.mutual.is_some() {
                "MUTUALCHAP"
            } else {
                "ONEWAYCHAP"
            };
            connect +=
                &format!(" -AuthenticationType {kind} -ChapUsername {user} -ChapSecret SECRET");
        }
        if self.mutual.is_some() {
            lines.push("Set-IscsiChapSecret -ChapSecret TARGET_SECRET".to_owned());
        }
        lines.push(connect);
        lines
    }

    fn esxi(&self) -> Vec<String> {
        let adapter = "esxcli iscsi adapter";
        let chap = |direction, name, secret| {
            format!(
                "{adapter} auth chap set -A vmhba64 --direction={direction} --level=required --authname={name} \
                 --secret={secret}"
            )
        };
        let mut lines = vec![format!(
            "{adapter} list    # name of the adapter, here vmhba64"
        )];
        lines.extend(self.user.map(|user| chap("uni", user, "SECRET")));
        lines.extend(
            self.mutual
                .map(|name| chap("mutual", name, "TARGET_SECRET")),
        );
        let add = |portal: &SocketAddr| {
            format!("{adapter} discovery sendtarget add -A vmhba64 -a {portal}")
        };
        lines.extend(self.portals.iter().map(add));
        lines.push("esxcli storage core adapter rescan -A vmhba64".to_owned());
        lines
    }

    /// The commands for QEMU. Its driver authenticates itself, but cannot require the target to authenticate
    /// itself.
    fn qemu(&self) -> Vec<String> {
        let mut lines = Vec::new();
        let mut chap = String::new();
        if let Some(user) = self.user {
            lines.push("-object secret,id=chap,file=FILE_WITH_SECRET".to_owned());
            chap = format!(",user={user},password-secret=chap");
        }
        let named = self
            .initiator
            .as_ref()
            .map(|name| format!(",initiator-name={name}"))
            .unwrap_or_default();
        for lun in &self.target.luns {
            lines.push(format!(
                "-blockdev driver=iscsi,node-name=disk{0},transport=tcp,portal={1},target={2},lun={0}{named}{chap}",
                lun.lun, self.portals[0], self.target.name
            ));
        }
        lines
    }

    fn libiscsi(&self) -> Vec<String> {
        let account = self
            .user
            .map(|user| format!("{user}%SECRET@"))
            .unwrap_or_default();
        let back = self
            .mutual
            .map(|name| format!("?target_user={name}&target_password=TARGET_SECRET"));
        let (portal, back) = (self.portals[0], back.unwrap_or_default());
        let named = self
            .initiator
            .as_ref()
            .map(|name| format!("-i '{name}' "))
            .unwrap_or_default();
        let mut lines = vec![format!("iscsi-ls {named}-s iscsi://{account}{portal}")];
        lines.extend(self.target.luns.iter().map(|lun| {
            format!(
                "iscsi-inq {named}'iscsi://{account}{portal}/{}/{}{back}'",
                self.target.name, lun.lun
            )
        }));
        lines
    }
}

#[cfg(test)]
mod tests {
    use crate::config::{Config, Configured as _};
    use crate::front_ends::sections::joined;

    fn told(target: &str) -> String {
        joined(&shown(target))
    }

    fn shown(target: &str) -> String {
        let text = format!(
            "[[portal]]\nlisten = \"[2001:db8::1]:3260\"\n[[portal]]\nlisten = \"192.0.2.1:3261\"\ngroup = 2\n\
             [volume.vm1]\nspec = \"ram:1MiB\"\n[[target]]\nname = \"iqn.2026-01.io.linerate:vm1\"\n{target}"
        );
        let config = Config::parse("x.toml", &text).expect("nothing wrong");
        let portals: Vec<_> = config.portals().map(|(_, portal)| portal).collect();
        config.iscsi().usage(&portals)
    }

    const LUN: &str = "[[target.lun]]\nlun = 7\nvolume = \"vm1\"\n";

    #[test]
    fn a_lun_without_secrets_is_used_by_these_lines() {
        let expected = "\
iqn.2026-01.io.linerate:vm1
  Linux     iscsiadm -m discovery -t sendtargets -p [2001:db8::1]:3260
            iscsiadm -m node -T iqn.2026-01.io.linerate:vm1 --login
  Windows   New-IscsiTargetPortal -TargetPortalAddress 2001:db8::1 `
              -TargetPortalPortNumber 3260
            Connect-IscsiTarget -NodeAddress iqn.2026-01.io.linerate:vm1
  ESXi      esxcli iscsi adapter list    # name of the adapter, here vmhba64
            esxcli iscsi adapter discovery sendtarget add -A vmhba64 -a \\
              [2001:db8::1]:3260
            esxcli storage core adapter rescan -A vmhba64
  QEMU      -blockdev driver=iscsi,node-name=disk7,transport=tcp,\\
portal=[2001:db8::1]:3260,target=iqn.2026-01.io.linerate:vm1,lun=7
  libiscsi  iscsi-ls -s iscsi://[2001:db8::1]:3260
            iscsi-inq 'iscsi://[2001:db8::1]:3260/iqn.2026-01.io.linerate:vm1/7'
";
        assert_eq!(shown(&format!("groups = [1]\n{LUN}")), expected);
        let line =
            "transport=tcp,portal=[2001:db8::1]:3260,target=iqn.2026-01.io.linerate:vm1,lun=7\n";
        assert!(
            told(&format!("groups = [1]\n{LUN}")).contains(line),
            "as the shell sees it"
        );
    }

    /// QEMU and libiscsi write LUN 256 as 0100h, which the target accepts.
    #[test]
    fn a_lun_from_256_on_has_its_own_number_in_every_line() {
        let text = told(&format!(
            "groups = [1]\n{}",
            LUN.replace("lun = 7", "lun = 256")
        ));
        for line in ["node-name=disk256,", ":vm1,lun=256\n", ":vm1/256'\n"] {
            assert!(text.contains(line), "{line}\n{text}");
        }
    }

    #[test]
    fn a_target_with_a_list_of_initiators_names_one_of_them() {
        let text = told(&format!(
            "initiators = [\"iqn.1993-08.org.debian:*\"]\n{LUN}"
        ));
        for line in [
            "vm1\n  The target admits listed initiators only. Set the initiator's name, such as iqn.1993-08.org.debian:HOST\n",
            "lun=7,initiator-name=iqn.1993-08.org.debian:HOST\n",
            "iscsi-inq -i 'iqn.1993-08.org.debian:HOST' 'iscsi://",
        ] {
            assert!(text.contains(line), "{line}\n{text}");
        }
        let text = told(&format!("initiators = [\"*\"]\n{LUN}"));
        assert!(
            !text.contains("initiator-name") && !text.contains("listed initiators"),
            "{text}"
        );
    }

    #[test]
    fn every_portal_that_leads_to_it_is_told() {
        let text = told(LUN);
        for line in [
            "-TargetPortalAddress 192.0.2.1 -TargetPortalPortNumber 3261",
            "-A vmhba64 -a 192.0.2.1:3261",
        ] {
            assert!(text.contains(line), "{text}");
        }
        assert_eq!(
            told(&format!("groups = [2]\n{LUN}"))
                .matches("2001:db8")
                .count(),
            0
        );
    }

    #[test]
    fn where_secrets_are_wanted_every_line_has_their_places() {
        let chap = "[target.chap.mutual]\nuser = \"disks\"\nsecret = \"another-long-secret\"\n\
                    [[target.chap.account]]\nuser = \"alice\"\nsecret = \"twelve-bytes-and-more\"\n";
        let text = told(&format!("{LUN}{chap}"));
        for line in [
            "-o update -n node.session.auth.username -v alice\n",
            "-o update -n node.session.auth.username_in -v disks\n",
            "-AuthenticationType MUTUALCHAP -ChapUsername alice -ChapSecret SECRET\n",
            "--direction=mutual --level=required --authname=disks --secret=TARGET_SECRET\n",
            "user=alice,password-secret=chap\n",
            "alice%SECRET@[2001:db8::1]:3260/iqn.2026-01.io.linerate:vm1/7?target_user=disks&target_password=TARGET_SECRET'\n",
        ] {
            assert!(text.contains(line), "{line}\n{text}");
        }
        assert!(
            !text.contains("twelve") && !text.contains("another"),
            "{text}"
        );
    }
}
