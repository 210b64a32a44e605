//! `linerate copy` to and from each target: identical bytes, and the holes that the target reports.

use super::san::BYTES;
use super::{Disk, Needs, San, for_each};
use crate::copy::{MIB, Scene, same};
use crate::proxy::Proxy;

/// Data at both ends and in the middle of an image as long as the disks.
const PARTS: [(u64, u64); 3] = [(0, MIB), (30 * MIB + 512, 2 * MIB), (BYTES - MIB, MIB)];

/// The maximum number of bytes that are transferred if holes are skipped.
const LITTLE: u64 = 8 * MIB;

/// Copies an image to a full disk, and back; returns the bytes sent to the disk and received from it.
fn there_and_back(san: &San, disk: Disk) -> (u64, u64) {
    let (proxy, scene) = (Proxy::to(san.port()), Scene::new());
    let url = san.url_by(&proxy, disk, "");
    let full = scene.image("full", BYTES, [(0, BYTES)]);
    let (image, back) = (scene.image("image", BYTES, PARTS), scene.text("back"));
    scene.copied(&full, &url, &["--yes"]);
    let before = proxy.bytes();
    scene.copied(&image, &url, &["--yes"]);
    let there = proxy.bytes();
    scene.copied(&url, &back, &[]);
    let wire = (there - before, proxy.bytes() - there);
    assert!(same(&image, &back), "{:?} {disk:?}", san.make());
    wire
}

#[test]
fn an_image_copied_over_a_full_disk_comes_back_the_same_and_its_holes_are_made_without_data() {
    for_each(Needs::Nothing, |san| {
        for disk in [Disk::Plain, Disk::FourKi] {
            let (there, _) = there_and_back(san, disk);
            assert!(there < LITTLE, "{:?} {disk:?}: {there} bytes", san.make());
        }
    });
}

#[test]
fn holes_are_not_read() {
    for_each(Needs::LbaStatus, |san| {
        let (_, back) = there_and_back(san, Disk::Second);
        assert!(back < LITTLE, "{:?}: {back} bytes", san.make());
    });
}
