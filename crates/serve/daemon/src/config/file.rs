//! The configuration file: reading, replacement, and edits of its text that preserve comments, order and
//! layout.

use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, fchown};
use std::path::{Path, PathBuf};

use backends::secrets;
use host::private_file;
use toml_edit::{Array, ArrayOfTables, DocumentMut, InlineTable, Item, Table, TableLike, Value};
use volume::spec::Bytes;
use zeroize::Zeroizing;

use super::section::{ConfigError, Mistakes};
use super::values::VolumeName;
use super::{Addition, Config, FrontEndKind, FrontEnds, places};

/// The content of a configuration file when it was read.
pub(crate) struct ConfigFile {
    path: PathBuf,
    mode: u32,
    text: Zeroizing<String>,
    front_ends: FrontEnds,
}

impl ConfigFile {
    /// Reads the file at `path`, with sections for these front ends.
    pub(crate) fn read(path: &Path, front_ends: FrontEnds) -> Result<ConfigFile, ConfigError> {
        let unreadable = |error| ConfigError::unreadable(&path.display().to_string(), &error);
        let mut open = File::open(path).map_err(unreadable)?;
        let mode = open.metadata().map_err(unreadable)?.permissions().mode();
        let mut text = Zeroizing::new(String::new());
        open.read_to_string(&mut text).map_err(unreadable)?;
        Ok(ConfigFile {
            path: path.to_owned(),
            mode,
            text,
            front_ends,
        })
    }

    pub(crate) fn config(&self) -> Result<Config, ConfigError> {
        let (file, exposed) = (
            self.path.display().to_string(),
            secrets::exposed(&self.path, self.mode),
        );
        Config::read(Mistakes::new(&file, &self.text, exposed), self.front_ends)
    }

    /// The control socket and the state directory that the file specifies. Other keys are not checked here;
    /// the server checks them.
    pub(crate) fn places(&self) -> Result<[Option<PathBuf>; 2], ConfigError> {
        places(Mistakes::new(
            &self.path.display().to_string(),
            &self.text,
            None,
        ))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the same file with another text, not yet written.
    fn with(&self, text: String) -> ConfigFile {
        let (path, text) = (self.path.clone(), Zeroizing::new(text));
        ConfigFile {
            path,
            text,
            mode: self.mode,
            front_ends: self.front_ends,
        }
    }

    /// Replaces the file atomically, with the same owner and mode. Fails if another program has changed it
    /// since `before`. A symbolic link is preserved.
    ///
    /// # Errors
    /// An error of the file system, or the file has changed.
    pub(crate) fn replace(&self, before: &ConfigFile) -> io::Result<()> {
        debug_assert_eq!(self.path, before.path, "another text of the same file");
        let path = fs::canonicalize(&self.path)?;
        if *Zeroizing::new(fs::read(&path)?) != *before.text.as_bytes() {
            return Err(io::Error::other(
                "another program has changed the file since it was read",
            ));
        }
        let mut new = path.clone().into_os_string();
        new.push(format!(".{}", std::process::id()));
        // Remove the temporary file of a server that was killed while it wrote the file. In a container,
        // every server may have the same process ID, so the file name is the same.
        let _ = fs::remove_file(&new);
        let written = self.write(Path::new(&new), &path);
        if written.is_err() {
            // If the file does not exist, there is nothing to remove.
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
        path.parent()
            .map_or(Ok(()), |folder| File::open(folder)?.sync_all())
    }

    /// Adds a volume, exported by this front end.
    ///
    /// # Errors
    /// The name or the LUN is already in use; the error is a sentence.
    pub(crate) fn with_volume(
        &self,
        addition: &Addition<'_>,
        by: &FrontEndKind,
    ) -> Result<ConfigFile, String> {
        self.edited(|root| {
            let volumes = volumes(root)?;
            if volumes.contains_key(addition.volume.as_str()) {
                return Err(format!("volume {} already exists", addition.volume));
            }
            let mut keys = vec![("spec", addition.spec.into())];
            for (key, value) in addition.keys {
                if keys.iter().any(|(other, _)| other == key) {
                    return Err(format!(
                        "`{key}` of the volume {} is specified twice",
                        addition.volume
                    ));
                }
                // All other keys are strings. Unknown keys are rejected when the whole file is checked.
                let is_flag = ["read-only", "removable", "thick"].contains(&key.as_str());
                let flag = value.parse::<bool>().ok().filter(|_| is_flag);
                keys.push((key, flag.map_or_else(|| value.into(), Value::from)));
            }
            volumes.insert(addition.volume.as_str(), Item::Table(table(keys)));
            (by.add)(root, addition)
        })
    }

    /// Removes a volume and its exports.
    ///
    /// # Errors
    /// There is no such volume; the error is a sentence.
    pub(crate) fn without_volume(&self, name: &VolumeName) -> Result<ConfigFile, String> {
        self.edited(|root| {
            volumes(root)?
                .remove(name.as_str())
                .ok_or_else(|| no_such(name))?;
            self.front_ends
                .0
                .iter()
                .try_for_each(|kind| (kind.remove)(root, name))
        })
    }

    /// Changes the size of a volume.
    ///
    /// # Errors
    /// There is no such volume, or its specification has no size; the error is a sentence.
    pub(crate) fn with_size(&self, name: &VolumeName, size: Bytes) -> Result<ConfigFile, String> {
        self.with_spec(name, |spec| resized(name, spec, size))
    }

    /// Changes the specification of a volume.
    ///
    /// # Errors
    /// There is no such volume, or `spec_of` returns an error.
    pub(crate) fn with_spec(
        &self,
        name: &VolumeName,
        spec_of: impl FnOnce(&str) -> Result<String, String>,
    ) -> Result<ConfigFile, String> {
        self.edited(|root| {
            let volume = volumes(root)?
                .get_mut(name.as_str())
                .and_then(Item::as_table_like_mut);
            let spec = volume
                .and_then(|volume| volume.get_mut("spec"))
                .and_then(Item::as_value_mut);
            let spec = spec.ok_or_else(|| no_such(name))?;
            let other = spec_of(spec.as_str().unwrap_or_default())?;
            let layout = spec.decor().clone();
            *spec = Value::from(other);
            *spec.decor_mut() = layout;
            Ok(())
        })
    }

    fn edited(
        &self,
        edit: impl FnOnce(&mut Table) -> Result<(), String>,
    ) -> Result<ConfigFile, String> {
        let mut document: DocumentMut = self.text.parse().map_err(|_| not_editable())?;
        edit(document.as_table_mut())?;
        let (text, ends) = (document.to_string(), self.text.matches('\n').count());
        // toml_edit writes UNIX line endings.
        let is_of_windows = ends > 0 && self.text.matches("\r\n").count() == ends;
        Ok(self.with(if is_of_windows {
            text.replace('\n', "\r\n")
        } else {
            text
        }))
    }
}

/// Returns a specification with another `size=`; `None` if it has no size.
pub(crate) fn with_size(spec: &str, size: Bytes) -> Option<String> {
    let start = ["?size=", "&size="]
        .iter()
        .find_map(|key| Some(spec.find(key)? + key.len()))?;
    let rest = &spec[start..];
    let end = rest.find(['&', ']', ',']).unwrap_or(rest.len());
    debug_assert!(start + end <= spec.len());
    Some(format!("{}{size}{}", &spec[..start], &rest[end..]))
}

/// Returns the specification of a volume, with another size.
///
/// # Errors
/// The volume has no size, or cannot have this size. The error is a sentence without a column, because users
/// did not type this specification.
pub(crate) fn resized(name: &VolumeName, spec: &str, size: Bytes) -> Result<String, String> {
    let sized = with_size(spec, size).ok_or_else(|| no_size(name))?;
    backends::parse(&sized).map_err(|error| error.sentence().to_owned())?;
    Ok(sized)
}

/// Returns the reason why a volume's size cannot be set.
fn no_size(name: &VolumeName) -> String {
    format!(
        "volume {name} has no size=: `resize` changes only file volumes with size=; without size=, a file \
         volume has the length of its file (truncate -s), and other volumes have a fixed size"
    )
}

fn no_such(name: &VolumeName) -> String {
    format!("volume {name} does not exist")
}

/// The error for a file that cannot be edited. This is not expected, because the file has already been read.
pub fn not_editable() -> String {
    "the layout of the file does not allow an automatic change; edit the file".to_owned()
}

fn volumes(root: &mut Table) -> Result<&mut dyn TableLike, String> {
    let volumes = root.entry("volume").or_insert_with(|| {
        let mut table = Table::new();
        table.set_implicit(true);
        Item::Table(table)
    });
    volumes.as_table_like_mut().ok_or_else(not_editable)
}

/// Returns the string under `key`, if there is one.
pub fn text_of<'a>(table: &'a dyn TableLike, key: &str) -> Option<&'a str> {
    table.get(key)?.as_str()
}

/// A list of tables, in either of TOML's forms.
pub enum Tables<'a> {
    /// `[[key]]`, a heading for each table.
    Headed(&'a mut ArrayOfTables),
    /// `key = [{ … }, { … }]`.
    Inline(&'a mut Array),
}

impl Tables<'_> {
    /// Returns the tables under `key`, possibly none. The error is a sentence.
    pub fn under<'a>(parent: &'a mut dyn TableLike, key: &str) -> Result<Tables<'a>, String> {
        if !parent.contains_key(key) {
            parent.insert(key, Item::ArrayOfTables(ArrayOfTables::new()));
        }
        match parent.get_mut(key) {
            Some(Item::ArrayOfTables(tables)) => Ok(Tables::Headed(tables)),
            Some(Item::Value(Value::Array(array))) => Ok(Tables::Inline(array)),
            _ => Err(not_editable()),
        }
    }

    /// All tables.
    pub fn tables(&mut self) -> Vec<&mut dyn TableLike> {
        match self {
            Tables::Headed(tables) => tables
                .iter_mut()
                .map(|table| table as &mut dyn TableLike)
                .collect(),
            Tables::Inline(array) => {
                let inline = array.iter_mut().filter_map(Value::as_inline_table_mut);
                inline.map(|table| table as &mut dyn TableLike).collect()
            }
        }
    }

    /// Whether any table matches.
    pub fn any(&mut self, is_meant: impl Fn(&dyn TableLike) -> bool) -> bool {
        self.tables().into_iter().any(|table| is_meant(table))
    }

    /// Removes all tables for which `stays` returns false.
    pub fn retain(&mut self, mut stays: impl FnMut(&mut dyn TableLike) -> bool) {
        let verdicts: Vec<bool> = self.tables().into_iter().map(&mut stays).collect();
        debug_assert_eq!(verdicts.len(), self.tables().len(), "a verdict on each");
        let gone = verdicts
            .iter()
            .enumerate()
            .rev()
            .filter(|(_, stays)| !**stays);
        gone.for_each(|(index, _)| match self {
            Tables::Headed(tables) => drop(tables.remove(index)),
            Tables::Inline(array) => drop(array.remove(index)),
        });
    }

    /// Appends a table with these keys.
    pub fn push<'k>(&mut self, entries: impl IntoIterator<Item = (&'k str, Value)>) {
        match self {
            Tables::Headed(tables) => tables.push(table(entries)),
            Tables::Inline(array) => array.push(entries.into_iter().collect::<InlineTable>()),
        }
    }
}

/// Creates a table, preceded by an empty line.
fn table<'k>(entries: impl IntoIterator<Item = (&'k str, Value)>) -> Table {
    let mut table: Table = entries
        .into_iter()
        .map(|(key, value)| (key, Item::Value(value)))
        .collect();
    table.decor_mut().set_prefix("\n");
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::front_ends::exposed::Lun;
    use crate::front_ends::{aoe, hyperscsi, iscsi, nbd};

    impl ConfigFile {
        fn text(&self) -> &str {
            &self.text
        }
    }

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
        let (link, mode) = (
            folder.path().join("link.toml"),
            fs::Permissions::from_mode(0o640),
        );
        std::os::unix::fs::symlink(file.path(), &link).expect("a link");
        fs::set_permissions(file.path(), mode).expect("its mode");
        let linked = ConfigFile::read(&link, FrontEnds::default()).expect("readable");
        linked
            .with("b".to_owned())
            .replace(&linked)
            .expect("written");
        assert_eq!(fs::read_to_string(file.path()).expect("readable"), "b");
        assert_eq!(
            fs::metadata(file.path())
                .expect("there")
                .permissions()
                .mode()
                & 0o777,
            0o640
        );
        assert!(fs::symlink_metadata(&link).expect("there").is_symlink());
        assert_eq!(
            fs::read_dir(folder.path()).expect("a folder").count(),
            2,
            "nothing else is left"
        );
    }

    #[test]
    fn what_a_killed_server_of_the_same_number_has_left_is_not_in_the_way() {
        let (folder, file) = file("a");
        let left = folder
            .path()
            .join(format!("linerate.toml.{}", std::process::id()));
        fs::write(&left, "half of").expect("written");
        file.with("b".to_owned()).replace(&file).expect("written");
        assert_eq!(fs::read_to_string(file.path()).expect("readable"), "b");
        assert!(!left.exists());
    }

    #[test]
    fn what_somebody_else_has_written_stays() {
        let (folder, file) = file("a");
        fs::write(file.path(), "theirs").expect("written");
        let error = file
            .with("b".to_owned())
            .replace(&file)
            .expect_err("it is not what it was");
        assert!(
            error
                .to_string()
                .contains("another program has changed the file"),
            "{error}"
        );
        assert_eq!(fs::read_to_string(file.path()).expect("readable"), "theirs");
        assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 1);
    }

    /// The same configuration in several layouts that TOML allows.
    const LAYOUTS: [&str; 4] = [
        "# of headers\n[[portal]]\nlisten = \"127.0.0.1:1\"\n\n# a disk\n[volume.a]\nspec = \"ram:1MiB\" # small\n\
         [volume.f]\nspec = \"delay:1ms:[file:/f?direct&size=1MiB]\" # grows\n\n# the one\n[[target]]\n\
         name = \"iqn.2026-01.com.example:t\"\n[[target.lun]]\nlun = 0\nvolume = \"a\"\n\
         [[target.lun]] # the second\nlun = 2\nvolume = \"f\"\n# the end\n",
        "# of rows\nportal = [{ listen = \"127.0.0.1:1\" }] # here\n\
         volume = { a = { spec = \"ram:1MiB\" }, f = { spec = \"delay:1ms:[file:/f?direct&size=1MiB]\" } }\n\
         target = [\n  # the one\n  { name = \"iqn.2026-01.com.example:t\", lun = [{ lun = 0, volume = \"a\" }, { lun = 2, volume = \"f\" }] },\n]\n",
        "# of dots\nvolume.a.spec = \"ram:1MiB\"\nvolume.f.spec = 'delay:1ms:[file:/f?direct&size=1MiB]' # grows\n\n\
         [[portal]]\nlisten = \"127.0.0.1:1\"\n[[target]]\nname = \"iqn.2026-01.com.example:t\"\n# in a row\n\
         lun = [{ lun = 0, volume = \"a\" },\n  { lun = 0x2, volume = \"f\" }] # two\n",
        "[[target]]\r\nname = \"iqn.2026-01.com.example:t\" # first\r\n[[target.lun]]\r\nlun = 0\r\nvolume = \"a\"\r\n\
         [[target.lun]]\r\nlun = 2\r\nvolume = \"f\"\r\n[volume.\"a\"]\r\nspec = \"ram:1MiB\"\r\n\
         [volume.f]\r\n\"spec\" = \"delay:1ms:[file:/f?direct&size=1MiB]\" # grows\r\n[[portal]]\r\nlisten = \"127.0.0.1:1\"\r\n",
    ];
    const TARGET: &str = "iqn.2026-01.com.example:t";

    /// Returns the served volumes, and the LUNs of targets, in order.
    fn meaning(file: &ConfigFile) -> (Vec<String>, Vec<String>) {
        let config: Config = file
            .config()
            .unwrap_or_else(|error| panic!("{error}\n{}", file.text()));
        let volumes = config
            .volumes
            .iter()
            .map(|volume| format!("{} = {}", volume.name, volume.spec));
        let luns = config.iscsi().targets.iter().flat_map(|target| {
            let name = |lun: &Lun| {
                format!(
                    "{} {} {} {:?}",
                    target.name, lun.lun, lun.volume, lun.initiators
                )
            };
            target.luns.iter().map(name).collect::<Vec<_>>()
        });
        (volumes.collect(), luns.collect())
    }

    fn comments(text: &str) -> Vec<&str> {
        text.lines()
            .filter_map(|line| Some(line.split_once('#')?.1))
            .collect()
    }

    fn name(text: &str) -> VolumeName {
        text.parse().expect("a name")
    }

    fn addition<'a>(volume: &'a VolumeName, target: &'a str) -> Addition<'a> {
        Addition {
            volume,
            spec: "ram:4MiB",
            target: Some(target),
            lun: None,
            initiators: &[],
            keys: &[],
        }
    }

    #[test]
    fn a_volume_comes_and_goes_and_all_else_stays_however_it_is_written() {
        for text in LAYOUTS {
            let (_folder, file) = file(text);
            let (volumes, luns) = meaning(&file);
            assert_eq!((volumes.len(), luns.len()), (2, 2));
            let capitals = TARGET.to_uppercase(); // the same name in iSCSI
            for (written, target, lun) in [
                (TARGET, TARGET, 1),
                (&capitals, TARGET, 1),
                (
                    "iqn.2026-01.com.example:new",
                    "iqn.2026-01.com.example:new",
                    0,
                ),
            ] {
                let c = name("c");
                let with = file
                    .with_volume(&addition(&c, written), &iscsi::KIND)
                    .expect("room for it");
                let (more, more_luns) = meaning(&with);
                assert!(
                    volumes.iter().all(|volume| more.contains(volume)),
                    "{}",
                    with.text()
                );
                assert!(more.contains(&"c = ram:4MiB".to_owned()) && more.len() == 3);
                assert!(
                    luns.iter().all(|lun| more_luns.contains(lun)),
                    "{}",
                    with.text()
                );
                assert!(
                    more_luns.contains(&format!("{target} {lun} c None")),
                    "{more_luns:?}"
                );
                assert_eq!(comments(with.text()), comments(text), "{}", with.text());
                let without = with.without_volume(&c).expect("it is there");
                assert_eq!(
                    meaning(&without),
                    (volumes.clone(), luns.clone()),
                    "{}",
                    without.text()
                );
                assert_eq!(comments(without.text()), comments(text));
            }
        }
    }

    #[test]
    fn a_size_is_all_that_becomes_another() {
        for text in LAYOUTS {
            let (_folder, file) = file(text);
            let larger = file
                .with_size(&name("f"), Bytes(3 << 20))
                .expect("it has a size");
            assert_eq!(
                larger.text().replace('\'', "\""),
                text.replace("size=1MiB", "size=3MiB").replace('\'', "\"")
            );
            let none = file
                .with_size(&name("a"), Bytes(3 << 20))
                .map(|_| ())
                .expect_err("a RAM volume");
            assert!(none.contains("has no size="), "{none}");
        }
    }

    #[test]
    fn a_target_without_luns_goes_with_its_last_volume() {
        for text in LAYOUTS {
            let (_folder, file) = file(text);
            let one = file.without_volume(&name("a")).expect("it is there");
            assert_eq!(meaning(&one).1, [format!("{TARGET} 2 f None")]);
            let none = one.without_volume(&name("f")).expect("it is there");
            assert_eq!(meaning(&none), (vec![], vec![]), "{}", none.text());
        }
    }

    /// Regression: the host settings of a target, export, slot or LUN were removed with its volume, and the
    /// next volume at the same address was accessible to all hosts.
    #[test]
    fn who_may_use_it_stays_when_its_volume_is_exchanged() {
        const TEXT: &str = "[volume.a]\nspec = \"ram:1MiB\"\n[[portal]]\nlisten = \"127.0.0.1:1\"\n\
            [[target]]\nname = \"iqn.2026-01.com.example:t\"\nnetworks = [\"127.0.0.0/8\"]\n\
            [[target.lun]]\nlun = 0\nvolume = \"a\"\n\
            [[target]]\nname = \"iqn.2026-01.com.example:u\"\n\
            [[target.lun]]\nlun = 3\nvolume = \"a\"\ninitiators = [\"iqn.2026-01.com.example:i\"]\n\
            [nbd]\nlisten = [\"127.0.0.1:2\"]\n[[nbd.export]]\nvolume = \"a\"\nnetworks = [\"127.0.0.0/8\"]\n\
            [aoe]\nlisten = [\"eth0\"]\n\
            [[aoe.slot]]\naddress = \"7.1\"\nvolume = \"a\"\nstations = [\"02:00:00:00:00:01\"]\n\
            [hyperscsi]\nlisten = [\"eth0\"]\n[[hyperscsi.target]]\nname = \"a\"\ninitiators = [\"host1\"]\n\
            [[hyperscsi.target.lun]]\nlun = 0\nvolume = \"a\"\n";
        let (_folder, file) = file(TEXT);
        let (a, b) = (name("a"), name("b"));
        let without = file.without_volume(&a).expect("it is there");
        let none = without
            .config()
            .unwrap_or_else(|error| panic!("{error}\n{}", without.text()));
        assert_eq!(none.exported().count(), 0, "{}", without.text());
        let b_at = |target, lun| Addition {
            lun,
            ..addition(&b, target)
        };
        for (kind, kept, addition) in [
            (
                &iscsi::KIND,
                "LUN 3: b = ram:4MiB, for listed",
                b_at("iqn.2026-01.com.example:u", Some(3)),
            ),
            (
                &iscsi::KIND,
                "for any initiator in listed networks",
                b_at(TARGET, None),
            ),
            (
                &nbd::KIND,
                "NBD export a for listed networks",
                b_at("a", None),
            ),
            (&aoe::KIND, "AoE 7.1 for listed stations", b_at("7.1", None)),
            (
                &hyperscsi::KIND,
                "HyperSCSI target a for listed",
                b_at("a", None),
            ),
        ] {
            let with = without
                .with_volume(&addition, kind)
                .unwrap_or_else(|error| panic!("{kept}: {error}"));
            let config = with
                .config()
                .unwrap_or_else(|error| panic!("{error}\n{}", with.text()));
            let told: String = config
                .front_ends()
                .map(|front_end| front_end.summary(&config))
                .collect();
            assert!(told.contains(kept), "{kept}: {told}");
            assert_eq!(config.exported().count(), 1, "{kept}: {}", with.text());
        }
        let masked = Addition {
            initiators: &["*".to_owned()],
            ..b_at("iqn.2026-01.com.example:u", None)
        };
        let refused = without.with_volume(
            &Addition {
                lun: Some(3),
                ..masked
            },
            &iscsi::KIND,
        );
        assert!(refused.is_err_and(|error| error.contains("has initiators in the file")));
    }

    /// Regression: AoE addresses were compared as text, so a slot was not found again, and another slot, open
    /// to any station, was added.
    #[test]
    fn an_address_is_the_same_however_it_is_written() {
        const TEXT: &str = "[volume.a]\nspec = \"ram:1MiB\"\n[aoe]\nlisten = [\"eth0\"]\n\
            [[aoe.slot]]\naddress = \"07.1\"\nvolume = \"a\"\nstations = [\"02:00:00:00:00:01\"]\n";
        let (_folder, file) = file(TEXT);
        let b = name("b");
        let taken = file.with_volume(&addition(&b, "7.1"), &aoe::KIND);
        assert!(taken.is_err_and(|error| error.contains("slot 7.1 already exists")));
        let without = file.without_volume(&name("a")).expect("it is there");
        let with = without
            .with_volume(&addition(&b, "7.1"), &aoe::KIND)
            .expect("vacant");
        let config = with
            .config()
            .unwrap_or_else(|error| panic!("{error}\n{}", with.text()));
        let told: String = config
            .front_ends()
            .map(|front_end| front_end.summary(&config))
            .collect();
        assert!(told.contains("AoE 7.1 for listed stations"), "{told}");
        assert_eq!(
            with.text().matches("[[aoe.slot]]").count(),
            1,
            "{}",
            with.text()
        );
    }

    /// Regression: host settings of an entry without a volume were ignored if another entry had the same
    /// name.
    #[test]
    fn an_entry_without_a_volume_has_its_name_for_itself() {
        const VOLUME: &str =
            "[volume.a]\nspec = \"ram:1MiB\"\n[[portal]]\nlisten = \"127.0.0.1:1\"\n";
        let lun = |volume: &str| format!("lun = 0\nvolume = \"{volume}\"\n");
        let of_target = |heading: &str, name: &str| {
            format!(
                "[[{heading}]]\nname = \"{name}\"\n[[{heading}.lun]]\n{}[[{heading}.lun]]\n{}",
                lun(""),
                lun("a")
            )
        };
        let slot =
            |volume: &str| format!("[[aoe.slot]]\naddress = \"7.1\"\nvolume = \"{volume}\"\n");
        let export =
            |volume: &str| format!("[[nbd.export]]\nname = \"x\"\nvolume = \"{volume}\"\n");
        for (entries, told) in [
            (of_target("target", TARGET), "LUN 0 is defined twice"),
            (
                format!(
                    "[hyperscsi]\nlisten = [\"eth0\"]\n{}",
                    of_target("hyperscsi.target", "x")
                ),
                "LUN 0 is defined twice",
            ),
            (
                format!("[aoe]\nlisten = [\"eth0\"]\n{}{}", slot(""), slot("a")),
                "have the address 7.1",
            ),
            (
                format!("[aoe]\nlisten = [\"eth0\"]\n{}{}", slot(""), slot("")),
                "have the address 7.1",
            ),
            (
                format!(
                    "[nbd]\nlisten = [\"127.0.0.1:2\"]\n{}{}",
                    export(""),
                    export("a")
                ),
                "two exports are named `x`",
            ),
        ] {
            let (_folder, file) = file(&format!("{VOLUME}{entries}"));
            let error = file.config().map(|_| ()).expect_err(told).to_string();
            assert!(error.contains(told), "{error}");
        }
    }

    #[test]
    fn who_sees_it_is_written_and_what_is_taken_is_refused() {
        let (_folder, file) = file(LAYOUTS[0]);
        let c = name("c");
        let (initiators, a) = (["iqn.2026-01.com.example:i*".to_owned()], name("a"));
        let masked = Addition {
            initiators: &initiators,
            lun: Some(7),
            ..addition(&c, TARGET)
        };
        let masked = file
            .with_volume(&masked, &iscsi::KIND)
            .expect("room for it");
        assert!(
            masked
                .text()
                .contains("initiators = [\"iqn.2026-01.com.example:i*\"]"),
            "{}",
            masked.text()
        );
        let refused = |addition: &Addition<'_>| {
            file.with_volume(addition, &iscsi::KIND)
                .map(|_| ())
                .expect_err("taken")
        };
        assert_eq!(refused(&addition(&a, TARGET)), "volume a already exists");
        let taken = Addition {
            lun: Some(0),
            ..addition(&c, TARGET)
        };
        assert_eq!(
            refused(&taken),
            format!("LUN 0 of {TARGET} is in use; LUN 1 is free")
        );
        assert_eq!(
            file.without_volume(&c).map(|_| ()),
            Err("volume c does not exist".to_owned())
        );
    }
}
