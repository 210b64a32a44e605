//! The command line of `linerate serve`, and how it joins with a configuration file: volumes add to those of
//! the file; everything else goes before what the file says.

use std::path::PathBuf;
use std::str::FromStr;

use crate::config::{self, Address, Config, ConfigFile, Portal, Target, Volume, VolumeName};
use crate::failure::Failure;
use crate::poll::{Gather, Poll};
use crate::spec::{Bytes, Spec};

/// Serves volumes over iSCSI until SIGTERM or SIGINT
///
/// Without arguments it serves a RAM volume of 1 GiB on 127.0.0.1:3260.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct ServeArguments {
    /// A TOML file that says what to serve; docs/serve.md has all keys
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// A volume such as vm1=file:/data/vm1.img?size=50GiB or test=ram:1GiB, as LUN 0 of the target
    /// iqn.2026-01.io.linerate:NAME, for anybody; may be repeated, and adds to those of the file
    #[arg(long = "volume", value_name = "NAME=SPEC")]
    volumes: Vec<NamedSpec>,
    /// An address to listen on, such as 0.0.0.0:3260 or [::]:3260; may be repeated, and replaces those of the
    /// file [default: 127.0.0.1:3260]
    #[arg(long, value_name = "[iscsi://]ADDR:PORT")]
    listen: Vec<Address>,
    /// Where the identities and reservations of volumes are kept [default: /var/lib/linerate for root,
    /// $XDG_STATE_HOME/linerate for others]
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
    /// The control socket, for `linerate sessions` [default: control.sock in the state directory]
    #[arg(long, value_name = "SOCKET")]
    control: Option<PathBuf>,
    /// Reactor threads [default: one for each CPU]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    reactors: Option<u16>,
    /// TCP congestion control of all listeners, such as cubic [default: the system's]
    #[arg(long, value_name = "NAME")]
    congestion: Option<String>,
    /// How long a reactor looks for events before it sleeps, in microseconds: 0 sleeps at once, `always` never sleeps
    /// and uses up its CPU [default: 50]
    #[arg(long, value_name = "N", value_parser = Poll::of_microseconds)]
    poll_us: Option<Poll>,
    /// After work, sleep so many microseconds before looking for more, so that commands which come meanwhile are answered
    /// together: less CPU time for each, and so much more latency [default: 0]
    #[arg(long, value_name = "N", value_parser = Gather::of_microseconds)]
    gather_us: Option<Gather>,
    /// How files are read and written: uring (io_uring), threads, or auto for the first of them that works
    /// [default: auto]
    #[arg(long, value_name = "ENGINE")]
    io_engine: Option<host::IoEngine>,
    /// Checks the configuration, says what it would serve, and ends
    #[arg(long)]
    pub(super) check: bool,
    /// Refuses files with secrets that others than their owner may use, instead of warning of them
    #[arg(long)]
    pub(super) strict: bool,
}

/// `NAME=SPEC`.
#[derive(Clone, Debug)]
pub(crate) struct NamedSpec {
    pub(crate) name: VolumeName,
    pub(crate) spec: Spec,
}

impl FromStr for NamedSpec {
    type Err = String;

    fn from_str(text: &str) -> Result<NamedSpec, String> {
        let (name, spec) =
            text.split_once('=').ok_or("write a name, `=` and a specification, such as vm1=ram:1GiB")?;
        let name = name.parse().map_err(|error| format!("{error}"))?;
        let spec = backends::parse(spec).map_err(|error| error.to_string())?;
        Ok(NamedSpec { name, spec })
    }
}

impl ServeArguments {
    /// What to serve, unless others than its owner may use a file with secrets and `--strict` was given.
    pub(super) fn safe_config(&self) -> Result<Config, Failure> {
        self.safe_config_with(self.file()?.as_ref())
    }

    /// The same, with this file in place of the one on the disk.
    pub(super) fn safe_config_with(&self, file: Option<&ConfigFile>) -> Result<Config, Failure> {
        let config = self.config(file)?;
        if self.strict && !config.exposed.is_empty() {
            let files: Vec<String> = config.exposed.iter().map(ToString::to_string).collect();
            return Err(Failure::refused(files.join("\n")));
        }
        Ok(config)
    }

    /// The configuration file, if there is one.
    pub(super) fn file(&self) -> Result<Option<ConfigFile>, Failure> {
        self.config.as_deref().map(ConfigFile::read).transpose().map_err(Failure::refused)
    }

    /// What to serve, all told.
    fn config(&self, file: Option<&ConfigFile>) -> Result<Config, Failure> {
        let mut config = match file {
            Some(file) => file.config().map_err(Failure::refused)?,
            None => Config::default(),
        };
        for volume in &self.volumes {
            add(&mut config, &volume.name, &volume.spec)?;
        }
        if config.targets.is_empty() {
            return Err(Failure::refused(
                "nothing to serve: the configuration has no [[target]]; add one, or --volume",
            ));
        }
        self.set_portals(&mut config)?;
        self.set_rest(&mut config);
        Ok(config)
    }

    /// With the volume that is served if nobody says what, if nobody does.
    pub(super) fn or_usual(&self) -> Result<ServeArguments, Failure> {
        let mut arguments = self.clone();
        if arguments.config.is_none() && arguments.volumes.is_empty() {
            arguments.volumes = vec![USUAL_VOLUME.parse().map_err(Failure::refused)?];
        }
        Ok(arguments)
    }

    /// Whether a volume is one of the command line's.
    pub(super) fn has_volume(&self, name: &VolumeName) -> bool {
        self.volumes.iter().any(|volume| volume.name == *name)
    }

    /// With a volume more.
    pub(super) fn with_volume(&self, name: &VolumeName, spec: &Spec) -> ServeArguments {
        let mut arguments = self.clone();
        arguments.volumes.push(NamedSpec { name: name.clone(), spec: spec.clone() });
        arguments
    }

    /// Without a volume.
    pub(super) fn without_volume(&self, name: &VolumeName) -> ServeArguments {
        let mut arguments = self.clone();
        arguments.volumes.retain(|volume| volume.name != *name);
        arguments
    }

    /// With another size of a volume.
    pub(super) fn with_size(&self, name: &VolumeName, size: Bytes) -> Result<ServeArguments, String> {
        let mut arguments = self.clone();
        for volume in arguments.volumes.iter_mut().filter(|volume| volume.name == *name) {
            let sized = config::with_size(&volume.spec.to_string(), size);
            let sized = sized.ok_or_else(|| config::no_size(name))?;
            volume.spec = backends::parse(&sized).map_err(|error| error.to_string())?;
        }
        Ok(arguments)
    }

    fn set_portals(&self, config: &mut Config) -> Result<(), Failure> {
        if !self.listen.is_empty() {
            config.portals = self.listen.iter().map(|address| Portal::at(*address)).collect();
        }
        if config.portals.is_empty() {
            config.portals = vec![Portal::at(USUAL_ADDRESS.parse().map_err(Failure::refused)?)];
        }
        if let Some(congestion) = &self.congestion {
            config.portals.iter_mut().for_each(|portal| portal.congestion = Some(congestion.clone()));
        }
        // The file is held to this by itself; --listen may have taken a group away.
        let lost = |target: &&Target| !config.portals.iter().any(|portal| target.is_reached_by(portal.group));
        match config.targets.iter().find(lost) {
            None => Ok(()),
            Some(target) => Err(Failure::refused(format!(
                "no listener has a portal group of {}; --listen makes group 1 only, so use [[portal]] in the file",
                target.name
            ))),
        }
    }

    fn set_rest(&self, config: &mut Config) {
        let Config { state, control, reactors, poll, gather, io_engine, .. } = config;
        *state = self.state.clone().or(state.take());
        *control = self.control.clone().or(control.take());
        *reactors = self.reactors.map(usize::from).or(*reactors);
        *poll = self.poll_us.map(|poll| poll.0).or(*poll);
        *gather = self.gather_us.map(|gather| gather.0).or(*gather);
        *io_engine = self.io_engine.or(*io_engine);
    }
}

/// What `linerate serve` serves if nobody says what.
const USUAL_VOLUME: &str = "ram0=ram:1GiB";
/// Nobody but this machine reaches what nobody thought about.
const USUAL_ADDRESS: &str = "127.0.0.1:3260";

fn add(config: &mut Config, name: &VolumeName, spec: &Spec) -> Result<(), Failure> {
    if config.volumes.iter().any(|volume| volume.name == *name) {
        return Err(Failure::refused(format!("there are two volumes named {name}; give each its own name")));
    }
    let target = Target::of_volume(name);
    if config.targets.iter().any(|other| other.name == target.name) {
        return Err(Failure::refused(format!(
            "the file has the target {} already; rename the volume",
            target.name
        )));
    }
    config.volumes.push(Volume::new(name.clone(), spec.clone()));
    config.targets.push(target);
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        serve: ServeArguments,
    }

    fn config(line: &[&str]) -> Result<Config, String> {
        let line = std::iter::once("serve").chain(line.iter().copied());
        let line = Line::try_parse_from(line).map_err(|error| error.to_string())?;
        let config = line.serve.or_usual().and_then(|serve| serve.safe_config());
        config.map_err(|failure| failure.to_string())
    }

    fn file(text: &str) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().expect("a temporary file");
        std::fs::write(file.path(), text).expect("written");
        file
    }

    #[test]
    fn without_arguments_a_ram_volume_is_served_to_this_machine() {
        let config = config(&[]).expect("nothing wrong");
        assert_eq!(config.volumes[0].spec.to_string(), "ram:1GiB");
        assert_eq!(config.targets[0].name.as_str(), "iqn.2026-01.io.linerate:ram0");
        assert_eq!(config.targets[0].luns[0].lun, 0);
        assert_eq!(config.portals[0].listen.0.to_string(), "127.0.0.1:3260");
    }

    #[test]
    fn volumes_of_the_command_line_add_to_those_of_the_file() {
        let file = file(
            "[volume.a]\nspec = \"ram:1GiB\"\n[[target]]\nname = \"iqn.2026-01.com.example:a\"\n\
             lun = [{ lun = 0, volume = \"a\" }]\n[[portal]]\nlisten = \"127.0.0.1:1\"\n",
        );
        let path = file.path().to_str().expect("a readable path");
        let both =
            config(&["--config", path, "--volume", "b=ram:1MiB", "--listen", "[::1]:2"]).expect("fine");
        assert_eq!(both.volumes.len(), 2);
        assert_eq!(both.portals.len(), 1, "--listen replaces");
        let twice = config(&["--config", path, "--volume", "a=ram:1MiB"]).expect_err("two of a name");
        assert!(twice.contains("two volumes named a"), "{twice}");
    }

    #[test]
    fn a_target_cannot_lose_its_portal_group() {
        let file = file(
            "[volume.a]\nspec = \"ram:1GiB\"\n[[target]]\nname = \"iqn.2026-01.com.example:a\"\ngroups = [2]\n\
             lun = [{ lun = 0, volume = \"a\" }]\n[[portal]]\nlisten = \"127.0.0.1:1\"\ngroup = 2\n",
        );
        let path = file.path().to_str().expect("a readable path");
        config(&["--config", path]).expect("fine as it is");
        let lost = config(&["--config", path, "--listen", "127.0.0.1:2"]).expect_err("nobody could reach it");
        assert!(lost.contains("use [[portal]]"), "{lost}");
    }

    #[test]
    fn mistakes_name_the_remedy() {
        for (line, says) in [
            (&["--volume", "ram:1GiB"][..], "a name, `=` and a specification"),
            (&["--volume", "vm1=ram:1G"], "write 1GiB"),
            (&["--volume", "VM1=ram:1GiB"], "write `vm1`"),
            (&["--listen", "::1"], "write [::1]:3260"),
            (&["--reactors", "0"], "1..=1024"),
            (&["--io-engine", "magic"], "auto, uring and threads"),
            (&["--config", "/nonexistent.toml"], "cannot read the configuration /nonexistent.toml"),
            (&["--volume", "a=ram:1MiB", "--volume", "a=ram:1MiB"], "two volumes named a"),
        ] {
            let error = config(line).expect_err("a mistake");
            assert!(error.contains(says), "{line:?}: {error}");
        }
        let empty = file("");
        let error =
            config(&["--config", empty.path().to_str().expect("a readable path")]).expect_err("empty");
        assert!(error.contains("nothing to serve"), "{error}");
    }
}
