//! The configuration file: reading it, and replacing its text.

use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, fchown};
use std::path::{Path, PathBuf};

use zeroize::Zeroizing;

use super::{Config, ConfigError, Mistakes, document};
use crate::front_ends::FrontEnds;
use backends::secrets;
use host::private_file;

/// A configuration file as it was when it was read.
pub(crate) struct ConfigFile {
    path: PathBuf,
    mode: u32,
    text: Zeroizing<String>,
    front_ends: FrontEnds,
}

impl ConfigFile {
    /// Reads the file at `path`, which is for these front ends.
    pub(crate) fn read(path: &Path, front_ends: FrontEnds) -> Result<ConfigFile, ConfigError> {
        let unreadable = |error| ConfigError::unreadable(&path.display().to_string(), &error);
        let mut open = File::open(path).map_err(unreadable)?;
        let mode = open.metadata().map_err(unreadable)?.permissions().mode();
        let mut text = Zeroizing::new(String::new());
        open.read_to_string(&mut text).map_err(unreadable)?;
        Ok(ConfigFile { path: path.to_owned(), mode, text, front_ends })
    }

    /// What it says.
    pub(crate) fn config(&self) -> Result<Config, ConfigError> {
        let (file, exposed) = (self.path.display().to_string(), secrets::exposed(&self.path, self.mode));
        document::read(Mistakes::new(&file, &self.text, exposed), self.front_ends)
    }

    /// The control socket and the state directory that it names. What else is in it is the server's to judge.
    pub(crate) fn places(&self) -> Result<[Option<PathBuf>; 2], ConfigError> {
        document::places(Mistakes::new(&self.path.display().to_string(), &self.text, None))
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Those it is for.
    pub(crate) fn front_ends(&self) -> FrontEnds {
        self.front_ends
    }

    /// Its text.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// The same file with another text, not written yet.
    pub(crate) fn with(&self, text: String) -> ConfigFile {
        let (path, text) = (self.path.clone(), Zeroizing::new(text));
        ConfigFile { path, text, mode: self.mode, front_ends: self.front_ends }
    }

    /// Writes it in place of what it was `before`, all of it or nothing, with the same owner and mode. What
    /// somebody else has written meanwhile is not overwritten. A symbolic link stays one.
    ///
    /// # Errors
    /// What the file system says, or that the file is not as it was.
    pub(crate) fn replace(&self, before: &ConfigFile) -> io::Result<()> {
        let path = fs::canonicalize(&self.path)?;
        if *Zeroizing::new(fs::read(&path)?) != *before.text.as_bytes() {
            return Err(io::Error::other("somebody else has changed it meanwhile"));
        }
        let mut new = path.clone().into_os_string();
        new.push(format!(".{}", std::process::id()));
        // A server that was killed in here has left its own, and in a container each has the same number.
        let _ = fs::remove_file(&new);
        let written = self.write(Path::new(&new), &path);
        if written.is_err() {
            // If it is not there, nothing is left over.
            let _ = fs::remove_file(&new);
        }
        written
    }

    fn write(&self, new: &Path, path: &Path) -> io::Result<()> {
        let like = fs::metadata(path)?;
        let mut file = private_file::create_new(new)?;
        file.write_all(self.text.as_bytes())?;
        fchown(&file, Some(like.uid()), Some(like.gid()))?;
        file.set_permissions(like.permissions())?;
        file.sync_all()?;
        fs::rename(new, path)?;
        path.parent().map_or(Ok(()), |folder| File::open(folder)?.sync_all())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(text: &str) -> (tempfile::TempDir, ConfigFile) {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("linerate.toml");
        fs::write(&path, text).expect("written");
        let file = ConfigFile::read(&path, FrontEnds::default()).expect("readable");
        (folder, file)
    }

    #[test]
    fn another_text_has_the_mode_and_the_place_of_the_old_one() {
        let (folder, file) = file("a");
        let (link, mode) = (folder.path().join("link.toml"), fs::Permissions::from_mode(0o640));
        std::os::unix::fs::symlink(file.path(), &link).expect("a link");
        fs::set_permissions(file.path(), mode).expect("its mode");
        let linked = ConfigFile::read(&link, FrontEnds::default()).expect("readable");
        linked.with("b".to_owned()).replace(&linked).expect("written");
        assert_eq!(fs::read_to_string(file.path()).expect("readable"), "b");
        assert_eq!(fs::metadata(file.path()).expect("there").permissions().mode() & 0o777, 0o640);
        assert!(fs::symlink_metadata(&link).expect("there").is_symlink());
        assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 2, "nothing else is left");
    }

    #[test]
    fn what_a_killed_server_of_the_same_number_has_left_is_not_in_the_way() {
        let (folder, file) = file("a");
        let left = folder.path().join(format!("linerate.toml.{}", std::process::id()));
        fs::write(&left, "half of").expect("written");
        file.with("b".to_owned()).replace(&file).expect("written");
        assert_eq!(fs::read_to_string(file.path()).expect("readable"), "b");
        assert!(!left.exists());
    }

    #[test]
    fn what_somebody_else_has_written_stays() {
        let (folder, file) = file("a");
        fs::write(file.path(), "theirs").expect("written");
        let error = file.with("b".to_owned()).replace(&file).expect_err("it is not what it was");
        assert!(error.to_string().contains("somebody else"), "{error}");
        assert_eq!(fs::read_to_string(file.path()).expect("readable"), "theirs");
        assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 1);
    }
}
