//! Random configurations keep their meaning when they are written in another target's format and imported.
//! Damage to a file never makes the import panic or produce an invalid configuration.

use std::cell::Cell;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use daemon::Config;
use daemon::import::{Imported, read};
use proptest::prelude::*;
use proptest::test_runner::{Config as Runs, TestRunner};

/// The settings that both formats and Linerate can express.
#[derive(Clone, Debug)]
struct San {
    targets: Vec<Target>,
}

#[derive(Clone, Debug)]
struct Target {
    /// The disks of this target; no other target has them.
    disks: Vec<Disk>,
    /// The initiators that may log in, by number; empty for any.
    initiators: Vec<u8>,
    has_chap: bool,
    max_burst: Option<u32>,
}

#[derive(Clone, Debug)]
struct Disk {
    readonly: bool,
    thin: bool,
    large_blocks: bool,
    /// The basis of the disk's names, if a user has chosen names for it.
    identity: Option<[u8; 16]>,
}

fn san() -> impl Strategy<Value = San> {
    let disk = any::<(bool, bool, bool, Option<[u8; 16]>)>();
    let disk = disk.prop_map(|(readonly, thin, large_blocks, identity)| Disk {
        readonly,
        thin,
        large_blocks,
        identity,
    });
    let disks = prop::collection::vec(disk, 1..4);
    let initiators = prop::collection::btree_set(0_u8..4, 0..4);
    let target = (
        disks,
        initiators,
        any::<bool>(),
        prop::option::of(512_u32..0xff_ffff),
    );
    let target = target.prop_map(|(disks, initiators, has_chap, max_burst)| Target {
        disks,
        // In LIO, users belong to initiators.
        has_chap: has_chap && !initiators.is_empty(),
        initiators: initiators.into_iter().collect(),
        max_burst,
    });
    prop::collection::vec(target, 1..4).prop_map(|targets| San { targets })
}

fn initiator(number: u8) -> String {
    format!("iqn.2026-01.com.example:host{number}")
}

fn target_name(number: usize) -> String {
    format!("iqn.2026-01.com.example:target{number}")
}

fn path(target: usize, disk: usize) -> String {
    format!("/data/t{target} d{disk}.img")
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns the keys by which initiators identify a disk, as tgtd (1.0.85) or LIO generate them.
fn names(disk: &Disk, (target, lun): (usize, usize), is_lio: bool) -> [Option<String>; 6] {
    let digits = disk.identity.map(|bytes| hexadecimal(&bytes));
    let all = match (digits, is_lio) {
        (None, true) => return [const { None }; 6],
        (Some(digits), true) => [
            digits.clone(),
            format!("0x6001405{}", &digits[..25]),
            format!("LIO-ORG FILEIO:{digits}"),
            "LIO-ORG".to_owned(),
            "FILEIO".to_owned(),
            "4.0".to_owned(),
        ],
        (Some(digits), false) => [
            format!("{:>36}", &digits[..16]),
            format!("0x6c0e0000{}", &digits[..24]),
            format!("ACME    {}", &digits[..24]),
            "ACME".to_owned(),
            "a disk".to_owned(),
            "7".to_owned(),
        ],
        (None, false) => {
            let tid = target + 1;
            [
                format!("{:>36}", format!("beaf{tid}{lun}")),
                format!("0x60000000000000000e000000{tid:04x}{lun:04x}"),
                format!("IET     {tid:04x}{lun:04x}"),
                "IET".to_owned(),
                "VIRTUAL-DISK".to_owned(),
                "0001".to_owned(),
            ]
        }
    };
    all.map(Some)
}

fn user(initiator: u8) -> (String, String) {
    (
        format!("user{initiator}"),
        format!("secret of \"user{initiator}\""),
    )
}

/// Renders the configuration as `targets.conf`. Writing to a `String` does not fail.
fn as_tgt(san: &San) -> String {
    let mut text = String::from("# written by a test\ndefault-driver iscsi\n");
    for (number, target) in san.targets.iter().enumerate() {
        let _ = writeln!(text, "<target {}>", target_name(number));
        for (index, disk) in target.disks.iter().enumerate() {
            let _ = writeln!(
                text,
                "  <backing-store \"{}\">\n    lun {index}",
                path(number, index)
            );
            let _ = writeln!(text, "    readonly {}", u8::from(disk.readonly));
            let _ = writeln!(
                text,
                "    block-size {}",
                if disk.large_blocks { 4096 } else { 512 }
            );
            if disk.thin {
                text += "    params thin_provisioning=1\n";
            }
            if let Some(bytes) = &disk.identity {
                let digits = hexadecimal(bytes);
                let _ = writeln!(
                    text,
                    "    scsi_sn {}\n    scsi_id \"ACME    {}\"",
                    &digits[..16],
                    &digits[..24]
                );
                text += "    vendor_id ACME\n    product_id \"a disk\"\n    product_rev 7\n";
            }
            text += "  </backing-store>\n";
        }
        for name in &target.initiators {
            let _ = writeln!(text, "  initiator-name {}", initiator(*name));
            if target.has_chap {
                // tgt splits a line at spaces, so a secret must not contain any.
                let (user, secret) = user(*name);
                let _ = writeln!(text, "  incominguser {user} {}", secret.replace(' ', "-"));
            }
        }
        if let Some(burst) = target.max_burst {
            let _ = writeln!(text, "  MaxBurstLength {burst}");
        }
        text += "</target>\n";
    }
    text
}

/// Renders the configuration as `saveconfig.json`.
fn as_lio(san: &San) -> String {
    let (mut storage, mut targets) = (Vec::new(), Vec::new());
    for (number, target) in san.targets.iter().enumerate() {
        let (mut luns, mut mapped) = (Vec::new(), Vec::new());
        for (index, disk) in target.disks.iter().enumerate() {
            let name = format!("t{number}-d{index}");
            let mut object = serde_json::json!({
                "plugin": "fileio", "name": name, "dev": path(number, index), "size": 1 << 30, "write_back": true,
                "readonly": target.initiators.is_empty() && disk.readonly,
                "attributes": {"block_size": if disk.large_blocks { 4096 } else { 512 }, "emulate_tpu": u8::from(disk.thin)},
            });
            if let Some(bytes) = &disk.identity {
                object["wwn"] = hexadecimal(bytes).into();
            }
            storage.push(object);
            luns.push(
                serde_json::json!({"index": index, "storage_object": format!("/backstores/fileio/{name}")}),
            );
            mapped
                .push(serde_json::json!({"index": index, "tpg_lun": index, "write_protect": disk.readonly}));
        }
        let acl = |name: &u8| {
            let (user, secret) = user(*name);
            let mut acl = serde_json::json!({"node_wwn": initiator(*name), "mapped_luns": mapped});
            if target.has_chap {
                acl["chap_userid"] = user.into();
                acl["chap_password"] = secret.into();
            }
            acl
        };
        let acls: Vec<_> = target.initiators.iter().map(acl).collect();
        let burst = target.max_burst.unwrap_or(262_144).to_string();
        targets.push(serde_json::json!({
            "fabric": "iscsi", "wwn": target_name(number), "tpgs": [{
                "tag": 1, "enable": true, "luns": luns, "node_acls": acls, "parameters": {"MaxBurstLength": burst},
                "attributes": {
                    "authentication": u8::from(target.has_chap), "demo_mode_write_protect": 0,
                    "generate_node_acls": u8::from(target.initiators.is_empty()),
                },
                "portals": [{"ip_address": "0.0.0.0", "port": 3260}],
            }],
        }));
    }
    serde_json::json!({"storage_objects": storage, "targets": targets}).to_string()
}

fn import(folder: &Path, text: &[u8]) -> Result<Imported, String> {
    let path = folder.join("foreign");
    fs::write(&path, text).expect("written");
    read(&path).map_err(|error| error.to_string())
}

/// Compares the imported configuration with the model.
fn compare(san: &San, imported: &Imported, is_lio: bool) {
    let text = &*imported.text;
    let config = Config::parse("x", text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    let iscsi = config.iscsi();
    assert_eq!(iscsi.targets.len(), san.targets.len(), "{text}");
    assert_eq!(iscsi.portals.len(), 1, "{text}");
    for (number, target) in san.targets.iter().enumerate() {
        let name = target_name(number);
        let ours = iscsi
            .targets
            .iter()
            .find(|ours| ours.name.as_str() == name)
            .expect("the target");
        for number in 0..5_u8 {
            let name = initiator(number);
            let expected = target.initiators.is_empty() || target.initiators.contains(&number);
            let admits = ours
                .initiators
                .as_ref()
                .is_none_or(|names| names.iter().any(|one| one.matches(&name)));
            assert_eq!(admits, expected, "{name}\n{text}");
        }
        assert_eq!(ours.luns.len(), target.disks.len(), "{text}");
        for (index, disk) in target.disks.iter().enumerate() {
            let lun = ours
                .luns
                .iter()
                .find(|lun| usize::from(lun.lun) == index)
                .expect("the LUN");
            assert!(lun.initiators.is_none(), "{text}");
            let volume = config.volume(&lun.volume).expect("its volume");
            let (spec, given) = (&volume.spec, &volume.names);
            let given = [
                given.serial.as_ref().map(ToString::to_string),
                given.naa.as_ref().map(ToString::to_string),
                given.t10_id.as_ref().map(ToString::to_string),
                given.vendor.as_ref().map(ToString::to_string),
                given.product.as_ref().map(ToString::to_string),
                given.revision.as_ref().map(ToString::to_string),
            ];
            assert_eq!(given, names(disk, (number, index), is_lio), "{text}");
            assert_eq!(spec.path(), Some(Path::new(&path(number, index))), "{text}");
            assert_eq!(
                (spec.readonly, spec.thick),
                (disk.readonly, !disk.thin),
                "{text}"
            );
            assert_eq!(
                spec.to_string().contains("block=4096"),
                disk.large_blocks,
                "{spec}"
            );
            assert_eq!(spec.to_string().contains("size=1GiB"), is_lio, "{spec}");
        }
        let accounts = ours.chap.iter().flat_map(|chap| &chap.accounts);
        let users: Vec<&str> = accounts
            .map(|account| account.credentials.name.as_str())
            .collect();
        let expected: Vec<String> = target
            .initiators
            .iter()
            .filter(|_| target.has_chap)
            .map(|one| user(*one).0)
            .collect();
        assert_eq!(users, expected, "{text}");
        for name in target.initiators.iter().filter(|_| target.has_chap) {
            let secret = user(*name).1.replace('"', "\\\"");
            let secret = if is_lio {
                secret
            } else {
                secret.replace(' ', "-")
            };
            assert!(
                text.contains(&format!("secret = \"{secret}\"")),
                "{secret}\n{text}"
            );
        }
        if let Some(burst) = target.max_burst {
            assert_eq!(ours.offers.max_burst_length, burst, "{text}");
        }
    }
    assert_eq!(
        imported.has_secrets,
        san.targets.iter().any(|target| target.has_chap)
    );
}

#[test]
fn what_a_foreign_configuration_says_is_what_ours_says() {
    let folder = tempfile::tempdir().expect("a folder");
    let runs = Runs {
        cases: 100,
        ..Runs::default()
    };
    let outcome = TestRunner::new(runs).run(&san(), |san| {
        for (text, is_lio) in [(as_tgt(&san), false), (as_lio(&san), true)] {
            let imported = import(folder.path(), text.as_bytes())
                .unwrap_or_else(|error| panic!("{error}\n{text}"));
            compare(&san, &imported, is_lio);
            // The storage objects of LIO are carried over completely, with their identities.
            assert_eq!(imported.notes, [], "{text}");
        }
        Ok(())
    });
    outcome.unwrap_or_else(|error| panic!("{error}"));
}

/// The damage replaces, removes or duplicates bytes.
#[test]
fn no_damage_to_a_file_makes_it_panic() {
    let folder = tempfile::tempdir().expect("a folder");
    let good = Cell::new(0);
    let damage = prop::collection::vec((any::<prop::sample::Index>(), 0_u8..4, any::<u8>()), 1..6);
    let runs = Runs {
        cases: 800,
        ..Runs::default()
    };
    let outcome =
        TestRunner::new(runs).run(&(san(), damage, any::<bool>()), |(san, damage, is_lio)| {
            let mut bytes = if is_lio { as_lio(&san) } else { as_tgt(&san) }.into_bytes();
            for (at, kind, byte) in &damage {
                let at = at.index(bytes.len().max(1));
                match kind {
                    0 => bytes[at] = *byte,
                    1 => drop(bytes.remove(at)),
                    2 => bytes.insert(at, *byte),
                    _ => {
                        let end = (at + usize::from(*byte)).min(bytes.len());
                        bytes.splice(at..at, bytes[at..end].to_vec());
                    }
                }
            }
            // The import itself checks its result, and returns an error if the result is invalid.
            match import(folder.path(), &bytes) {
                Ok(_) => good.set(good.get() + 1),
                Err(error) => {
                    assert!(
                        !error.contains("a bug in this program"),
                        "{error}\n{}",
                        String::from_utf8_lossy(&bytes)
                    );
                }
            }
            Ok(())
        });
    outcome.unwrap_or_else(|error| panic!("{error}"));
    assert!(good.get() > 50, "only {} were not refused", good.get());
}
