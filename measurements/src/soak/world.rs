//! Where it runs: two network namespaces with a link between them, a folder on the disk, a small tmpfs, and the server.

use std::fs::{self, File, OpenOptions};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use super::locked;
use crate::measuring::usage;
use xtask::process::{self, Background, Ended, run};
use xtask::serving::Placement;
use xtask::tally::Verdict;
use xtask::workspace;

const SERVER: &str = "10.77.0.1";
const CLIENT: &str = "10.77.0.2";
/// A volume in the tmpfs, which has room for all of it and a little more.
pub(super) const SMALL: &str = "small";
pub(super) const SMALL_BYTES: u64 = 64 << 20;
/// A set of 128 MiB is created in a second.
const CREATE_MAX: Duration = Duration::from_secs(60);

/// How a load reaches its volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Protocol {
    Iscsi,
    Nbd,
    Aoe,
    /// HyperSCSI in raw Ethernet frames.
    Frames,
    /// HyperSCSI over UDP.
    Datagrams,
}

/// Volumes with a fault layer.
const FAULTY: [&str; 3] = ["layers", "frames", "nbd"];

/// What a process uses.
#[derive(Clone, Copy, Debug)]
pub(super) struct Usage {
    pub(super) memory: u64,
    pub(super) descriptors: usize,
}

impl Usage {
    pub(super) fn of(pid: u32) -> Result<Usage> {
        let descriptors = fs::read_dir(format!("/proc/{pid}/fd"))?.count();
        Ok(Usage { memory: usage::own_memory(pid)?, descriptors })
    }
}

/// Removed when dropped, but for the folder, if something was found ([`World::end`]).
#[derive(Debug)]
pub(super) struct World {
    pub(super) binary: PathBuf,
    pub(super) folder: PathBuf,
    server: Mutex<Option<Background>>,
    namespaces: [String; 2],
}

impl World {
    pub(super) fn make(binary: &Path) -> Result<World> {
        ensure!(rustix::process::geteuid().is_root(), "namespaces, mounts and loop devices need root");
        let id = std::process::id();
        let folder = workspace::target_directory().join(format!("xtask/soak-{id}"));
        fs::create_dir_all(folder.join("small")).with_context(|| folder.display().to_string())?;
        // A copy: a build during the run replaces the program in the target directory.
        let own = folder.join("linerate");
        fs::copy(binary, &own).with_context(|| own.display().to_string())?;
        let world = World {
            binary: own,
            folder,
            server: Mutex::new(None),
            namespaces: ["server", "client"].map(|end| format!("soak-{id}-{end}")),
        };
        world.connect()?;
        let size = format!("size={}", SMALL_BYTES + (8 << 20));
        run("mount", &["-t", "tmpfs", "-o", &size, "tmpfs", &world.small().display().to_string()])?;
        world.create_set(&world.set())?;
        world.start()?;
        world.create_set(&world.mirror())?;
        Ok(world)
    }

    fn connect(&self) -> Result<()> {
        let [server, client] = &self.namespaces;
        for name in &self.namespaces {
            run("ip", &["netns", "add", name])?;
        }
        let link = ["link", "add", "link0", "netns", server, "type", "veth", "peer", "name", "link0"];
        run("ip", &[&link[..], &["netns", client]].concat())?;
        for (name, address) in [(server, SERVER), (client, CLIENT)] {
            run("ip", &["-n", name, "address", "add", &format!("{address}/24"), "dev", "link0"])?;
            run("ip", &["-n", name, "link", "set", "link0", "up"])?;
        }
        Ok(())
    }

    /// The tmpfs.
    pub(super) fn small(&self) -> PathBuf {
        self.folder.join("small")
    }

    /// Where clients run.
    pub(super) fn client(&self) -> Placement {
        Placement { namespace: Some(self.namespaces[1].clone()), core: None }
    }

    pub(super) fn url(&self, volume: &str, protocol: Protocol) -> String {
        match protocol {
            Protocol::Iscsi => format!("iscsi://{SERVER}/iqn.2026-01.io.linerate:{volume}/0"),
            Protocol::Nbd => format!("nbd://{SERVER}/{volume}"),
            // The first volume of the command line has the first slot.
            Protocol::Aoe => "aoe://link0/0.0".to_owned(),
            Protocol::Frames => format!("hyperscsi://link0/{volume}/0"),
            Protocol::Datagrams => format!("hyperscsi+udp://{SERVER}/{volume}/0"),
        }
    }

    /// The RAID set in the server.
    fn set(&self) -> String {
        let folder = self.folder.display();
        let members = ["a", "b", "c"].map(|name| format!("file:{folder}/member-{name}.img?size=64MiB"));
        format!("raid5:16KiB:[{}]", members.join(","))
    }

    /// The RAID set of the clients, whose members lose their caches with the server.
    pub(super) fn mirror(&self) -> String {
        let members = [self.url("half", Protocol::Iscsi), self.url("other", Protocol::Nbd)];
        format!("raid1:[{}]", members.join(","))
    }

    fn create_set(&self, set: &str) -> Result<()> {
        let mut command = self.client().command(&self.binary);
        command.args(["raid", "create", set, "--yes"]);
        let (ended, text) = process::within(CREATE_MAX, command)?;
        match ended {
            Ended::Exited(status) if status.success() => Ok(()),
            _ => bail!("raid create {set}: {text}"),
        }
    }

    /// Starts the server, which must not run.
    pub(super) fn start(&self) -> Result<()> {
        let folder = self.folder.display();
        let volumes = [
            format!("aoe=file:{folder}/aoe.img?size=128MiB"),
            format!("layers=buffered:8MiB:[fault:[file:{folder}/layers.img?size=128MiB]]"),
            format!("frames=buffered:8MiB:[fault:[file:{folder}/frames.img?size=128MiB]]"),
            format!("datagrams=file:{folder}/datagrams.img?size=128MiB"),
            format!("{SMALL}=file:{folder}/small/small.img?size={SMALL_BYTES}"),
            format!("qemu=file:{folder}/qemu.img?size=128MiB"),
            format!("attached=file:{folder}/attached.img?size=512MiB"),
            format!("nbd=buffered:8MiB:[fault:[file:{folder}/nbd.img?size=128MiB]]"),
            format!("set={}", self.set()),
            format!("half=buffered:8MiB:[file:{folder}/half.img?size=128MiB]"),
            format!("other=buffered:8MiB:[file:{folder}/other.img?size=128MiB]"),
        ];
        let log = OpenOptions::new().create(true).append(true).open(self.folder.join("server.log"))?;
        let place = Placement { namespace: Some(self.namespaces[0].clone()), core: None };
        let mut command = place.command(&self.binary);
        command.args(["serve", "--listen", &format!("{SERVER}:3260"), "--listen", "hyperscsi://link0"]);
        command.args(["--listen", &format!("hyperscsi+udp://{SERVER}:5674"), "--listen", "aoe://link0"]);
        command.args(["--listen", &format!("nbd://{SERVER}:10809")]);
        command.arg("--state").arg(self.folder.join("state")).arg("--control").arg(self.control());
        command.args(volumes.iter().flat_map(|volume| ["--volume", volume]));
        *locked(&self.server) = Some(Background::start_ready(command.stderr(log))?);
        Ok(())
    }

    fn control(&self) -> PathBuf {
        self.folder.join("control")
    }

    /// Ends the server at once.
    pub(super) fn kill(&self) {
        if let Some(mut server) = locked(&self.server).take() {
            server.kill();
        }
    }

    /// Asks the server to end.
    pub(super) fn stop(&self) {
        drop(locked(&self.server).take());
    }

    pub(super) fn pause(&self) {
        locked(&self.server).iter().for_each(Background::pause);
    }

    pub(super) fn resume(&self) {
        locked(&self.server).iter().for_each(Background::resume);
    }

    /// Takes the link down, or brings it up.
    pub(super) fn set_link(&self, is_up: bool) -> Result<()> {
        let state = if is_up { "up" } else { "down" };
        run("ip", &["-n", &self.namespaces[0], "link", "set", "link0", state]).map(drop)
    }

    /// Has the fault layers do this (`linerate server fault`).
    pub(super) fn set_fault(&self, mode: &str) -> Result<()> {
        let control = self.control().display().to_string();
        FAULTY.into_iter().try_for_each(|volume| {
            run(&self.binary, &["server", "fault", volume, mode, "--control", &control]).map(drop)
        })
    }

    /// Fills the tmpfs, until the file that is returned goes.
    pub(super) fn fill(&self) -> Result<Filler> {
        let path = self.small().join("filler");
        let mut file = File::create(&path)?;
        // The copy ends with an error: there is no space.
        let _ = std::io::copy(&mut std::io::repeat(0), &mut file);
        Ok(Filler(path))
    }

    /// What the server uses; `None` while there is none.
    pub(super) fn usage(&self) -> Result<Option<Usage>> {
        let Some(pid) = locked(&self.server).as_ref().map(Background::pid) else { return Ok(None) };
        Usage::of(pid).map(Some)
    }

    /// Keeps the folder if something was found in it.
    pub(super) fn end(self, verdict: Verdict) {
        self.stop();
        let _ = run("umount", &[&self.small().display().to_string()]);
        match verdict {
            Verdict::Holds => drop(fs::remove_dir_all(&self.folder)),
            Verdict::Fails => println!("what is left is in {}", self.folder.display()),
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.stop();
        let _ = run("umount", &["--lazy", &self.small().display().to_string()]); // it may be gone
        for name in &self.namespaces {
            let _ = run("ip", &["netns", "delete", name]); // an empty one left behind is harmless
        }
    }
}

/// A file that takes all space, removed when dropped.
#[derive(Debug)]
pub(super) struct Filler(PathBuf);

impl Drop for Filler {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0); // the load would fail for ever, and say so
    }
}
