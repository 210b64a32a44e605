//! A policy that keeps newly installed packages from starting daemons.
//!
//! Debian's packages start their daemons on installation, unless `/usr/sbin/policy-rc.d` forbids it with exit code 101 (Debian
//! policy manual, section 9.3.3, and invoke-rc.d(8)). Tests start the daemons that they need.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

const PATH: &str = "/usr/sbin/policy-rc.d";

/// Its second line identifies the file, in case a run is killed before it restores the previous one.
const SCRIPT: &str = "#!/bin/sh\n# Temporary file of `cargo xtask packages`: keeps new packages from starting daemons.\nexit 101\n";

/// In force until dropped, which restores the previous policy.
#[derive(Debug)]
pub(crate) struct StartNothing {
    path: PathBuf,
    /// The path of the previous file, if there was one.
    before: PathBuf,
}

impl StartNothing {
    /// Sets the policy of this machine.
    pub(crate) fn in_force() -> Result<StartNothing> {
        StartNothing::at(Path::new(PATH))
            .with_context(|| format!("writing {PATH}, which keeps daemons from starting"))
    }

    fn at(path: &Path) -> io::Result<StartNothing> {
        let before = path.with_extension("d-before-linerate");
        // If the file is ours, an earlier run was killed, and had already moved the previous file.
        if path.exists() && fs::read(path)? != SCRIPT.as_bytes() {
            fs::rename(path, &before)?;
        }
        let policy = StartNothing { path: path.to_owned(), before };
        fs::write(path, SCRIPT)?;
        fs::set_permissions(path, fs::Permissions::from_mode(0o755))?;
        Ok(policy)
    }
}

impl Drop for StartNothing {
    fn drop(&mut self) {
        let restored = match fs::rename(&self.before, &self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => fs::remove_file(&self.path),
            renamed => renamed,
        };
        if let Err(error) = restored {
            println!("cannot restore {}: {error}", self.path.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// A directory for a policy, removed when dropped.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Folder {
            let path = std::env::temp_dir().join(format!("linerate-policy-{}-{name}", std::process::id()));
            fs::create_dir_all(&path).expect("a folder");
            Folder(path)
        }

        fn policy(&self) -> PathBuf {
            self.0.join("policy-rc.d")
        }

        fn names(&self) -> usize {
            fs::read_dir(&self.0).expect("the folder").count()
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0); // a leftover in /tmp is harmless
        }
    }

    #[test]
    fn nothing_is_started_while_it_is_in_force_and_no_file_is_left() {
        let folder = Folder::new("none");
        let policy = StartNothing::at(&folder.policy()).expect("set");
        let status = Command::new(folder.policy()).args(["tgt", "start"]).status().expect("it runs");
        assert_eq!(status.code(), Some(101));
        drop(policy);
        assert_eq!(folder.names(), 0);
    }

    #[test]
    fn a_policy_of_before_is_restored_with_its_mode() {
        let folder = Folder::new("before");
        fs::write(folder.policy(), "#!/bin/sh\nexit 104\n").expect("room");
        fs::set_permissions(folder.policy(), fs::Permissions::from_mode(0o750)).expect("ours");
        drop(StartNothing::at(&folder.policy()).expect("set"));
        assert_eq!(fs::read_to_string(folder.policy()).expect("there"), "#!/bin/sh\nexit 104\n");
        assert_eq!(fs::metadata(folder.policy()).expect("there").permissions().mode() & 0o777, 0o750);
        assert_eq!(folder.names(), 1);
    }

    #[test]
    fn a_run_that_was_killed_does_not_cost_the_policy_of_before() {
        let folder = Folder::new("killed");
        fs::write(folder.policy(), "#!/bin/sh\nexit 104\n").expect("room");
        std::mem::forget(StartNothing::at(&folder.policy()).expect("set"));
        drop(StartNothing::at(&folder.policy()).expect("set again"));
        assert_eq!(fs::read_to_string(folder.policy()).expect("there"), "#!/bin/sh\nexit 104\n");
        assert_eq!(folder.names(), 1);
    }
}
