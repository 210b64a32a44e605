//! Any target's disk as a file, with a file system on it.

use std::fs;

use super::san::Disk;
use super::{Needs, with_each};
use crate::attach::Attached;
use crate::attach_disk::{Loop, Mounted, loops_possible};
use crate::program::{run, write_patterned_file};

#[test]
fn a_file_system_on_any_target_keeps_its_files() {
    if !loops_possible(&["mkfs.ext4", "fsck.ext4", "fstrim"]) {
        return;
    }
    with_each(Needs::Nothing, async |san| {
        for (disk, options) in [
            (Disk::Plain, &[][..]),
            (Disk::FourKi, &["--sector-size", "4096"]),
        ] {
            let attached = Attached::to(&san.url(disk, "?congestion=cubic"));
            let device = Loop::over(&attached.path(), options);
            run("mkfs.ext4", &["-q", device.name()]).expect_success();
            let mounted = Mounted::new(&device);
            let file = mounted.path().join("file");
            write_patterned_file(&file, 4_000_000);
            fs::File::open(&file)
                .and_then(|file| file.sync_all())
                .expect("flushed");
            drop(mounted); // and with it the pages of the file
            drop(device);
            attached.detach().expect_success();

            let attached = Attached::to(&san.url(disk, "?congestion=cubic"));
            let device = Loop::over(&attached.path(), options);
            run("fsck.ext4", &["-fn", device.name()]).expect_success();
            let mounted = Mounted::new(&device);
            let expected = tempfile::NamedTempFile::new().expect("a temporary file");
            write_patterned_file(expected.path(), 4_000_000);
            let read = fs::read(mounted.path().join("file")).expect("the file");
            assert!(
                read == fs::read(expected.path()).expect("the pattern"),
                "on {disk:?}"
            );
        }
    });
}

#[test]
fn a_write_protected_disk_of_any_target_is_attached_read_only() {
    const EROFS: i32 = 30;
    needs!(crate::attach::possible());
    with_each(Needs::Nothing, async |san| {
        let attached = Attached::to(&san.url(Disk::Protected, ""));
        let written = fs::OpenOptions::new().write(true).open(attached.path());
        assert_eq!(written.expect_err("refused").raw_os_error(), Some(EROFS));
        assert!(
            fs::read(attached.path())
                .expect("readable")
                .iter()
                .all(|&byte| byte == 0)
        );
    });
}
