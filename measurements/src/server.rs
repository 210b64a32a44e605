//! The measured storage: servers of all kinds, and storage without a server.

use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use xtask::namespace::Namespace;
use xtask::process::{self, Background};
use xtask::serving::attached::{Attached, Mounted};
use xtask::serving::image::{self, Image};
use xtask::serving::istgt::Istgt;
use xtask::serving::linerate::Linerate;
use xtask::serving::nbd::Nbd;
use xtask::serving::tgt::Tgt;
use xtask::serving::{Placement, Serving};

use crate::machine;
use crate::scene::World;

/// A server or a kind of storage of a table.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Server {
    pub(crate) name: String,
    pub(crate) program: Make,
    /// Options of `linerate serve`.
    #[serde(default)]
    pub(crate) options: Vec<String>,
    /// The volume for `linerate serve`, or the file to measure. `{disk}` is a fully written file on this
    /// machine's disk, `{cached}` the same file in the page cache, and `{memory}` a file in /dev/shm. All
    /// servers of a measurement share these files.
    pub(crate) volume: Option<String>,
    /// URLs of the scene's storage. Several are measured concurrently, each by its own client.
    #[serde(default)]
    pub(crate) urls: Vec<String>,
    /// The daemons of the scene whose CPU time counts as the server's.
    #[serde(default)]
    busy: Vec<String>,
    /// The row in document 004 to compare with, by the end of the system's name.
    pub(crate) published: Option<String>,
    /// The backing store of tgt (`tgtadm --bstype`).
    pub(crate) store: Option<String>,
    /// Whether server and clients are pinned to one core each; otherwise they share all cores.
    #[serde(default = "yes")]
    pub(crate) pinned: bool,
}

/// The kind of a server or of storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Make {
    Tgt,
    Istgt,
    Linerate,
    /// Linerate's server over NBD.
    LinerateNbd,
    Nbdkit,
    QemuNbd,
    /// The null device, which measures the client alone.
    Null,
    /// A local file or device with direct I/O, without a server.
    File,
    /// An attached LUN of `linerate serve` as a block device.
    Attached,
    /// A file in an ext4 file system on such a device.
    Ext4,
    /// Storage of the table's scene.
    Place,
}

/// The environment of a measurement: programs, namespace and files.
#[derive(Debug)]
pub(crate) struct Site {
    pub(crate) binary: PathBuf,
    pub(crate) fio: PathBuf,
    pub(crate) namespace: Namespace,
    /// The scene of the current table, if any.
    pub(crate) world: Option<World>,
    files: Files,
}

/// Files created on first use.
#[derive(Debug, Default)]
struct Files {
    disk: Option<Image>,
    memory: Option<Image>,
}

/// A running server or storage, stopped when dropped.
pub(crate) struct Started {
    target: Target,
    // Dropped in this order, so that storage is dropped before the server that it uses.
    _storage: Option<Storage>,
    serving: Option<Box<dyn Serving>>,
}

enum Storage {
    Attached(#[expect(dead_code, reason = "is there to be dropped")] Attached),
    Ext4(#[expect(dead_code, reason = "is there to be dropped")] Mounted),
}

/// How a client accesses the storage.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    /// The storage's specifications for `linerate bench`.
    pub(crate) places: Vec<String>,
    /// The storage's name for fio.
    pub(crate) file: String,
    pub(crate) engine: &'static str,
    /// The server's processes.
    pub(crate) servers: Vec<u32>,
    /// The placement of the client.
    pub(crate) placement: Placement,
}

/// The size of each volume: far larger than any processor's cache.
pub(crate) const VOLUME_BYTES: u64 = 1 << 30;

/// The cores of the server and of the client.
pub(crate) const SERVER_CORE: usize = 0;
pub(crate) const CLIENT_CORE: usize = 1;

fn yes() -> bool {
    true
}

impl Site {
    pub(crate) fn new(binary: PathBuf, fio: PathBuf) -> Result<Site> {
        process::require(&["ip", "nsenter", "taskset"])?;
        Ok(Site {
            binary,
            fio,
            namespace: Namespace::create()?,
            world: None,
            files: Files::default(),
        })
    }

    /// Returns the placement in the namespace or on the scene's client host, on one core or on all.
    pub(crate) fn place(&self, core: Option<usize>) -> Result<Placement> {
        match &self.world {
            Some(world) => world.client(core),
            None => Ok(Placement {
                namespace: Some(self.namespace.name.clone()),
                core,
            }),
        }
    }

    /// Replaces the scene's names, and `{disk}`, `{cached}` and `{memory}` by the paths of files.
    fn resolve(&mut self, text: &str) -> Result<String> {
        let mut resolved = self
            .world
            .as_ref()
            .map_or(text.to_owned(), |world| world.resolve(text));
        for (mark, on_disk, is_cached) in [
            ("{disk}", true, false),
            ("{cached}", true, true),
            ("{memory}", false, false),
        ] {
            if !resolved.contains(mark) {
                continue;
            }
            let (file, new): (_, fn(&str) -> Image) = match on_disk {
                true => (&mut self.files.disk, Image::on_disk),
                false => (&mut self.files.memory, Image::in_memory),
            };
            let image = match file {
                Some(image) => image,
                None => file.insert(new("measured").written(VOLUME_BYTES)?),
            };
            if is_cached {
                image::cache(image.path())?; // direct writes have evicted it
            }
            resolved = resolved.replace(mark, &image.path().display().to_string());
        }
        Ok(resolved)
    }
}

impl Server {
    /// Returns a server of this kind with default settings.
    pub(crate) fn of(name: &str, program: Make) -> Server {
        let name = name.to_owned();
        let (options, urls, busy) = Default::default();
        Server {
            name,
            program,
            options,
            volume: None,
            urls,
            busy,
            published: None,
            store: None,
            pinned: true,
        }
    }

    /// Returns the fio engine for this storage.
    pub(crate) fn engine(&self) -> &'static str {
        match self.program {
            Make::Null => "null",
            Make::File | Make::Attached | Make::Ext4 => "io_uring",
            Make::Place => "rbd", // the only such storage that fio measures
            Make::Tgt | Make::Istgt | Make::Linerate => "libiscsi",
            Make::LinerateNbd | Make::Nbdkit | Make::QemuNbd => "nbd",
        }
    }

    /// Starts the server, and fills its volume.
    pub(crate) fn start(&self, site: &mut Site) -> Result<Started> {
        self.started(site)
            .with_context(|| format!("starting {}", self.name))
    }

    fn started(&self, site: &mut Site) -> Result<Started> {
        let volume = self.volume.as_deref().unwrap_or(match self.program {
            Make::File => "{disk}",
            _ => "ram:1GiB",
        });
        let volume = site.resolve(volume)?;
        let place = site.place(self.pinned.then_some(SERVER_CORE))?;
        let client = site.place(self.pinned.then_some(CLIENT_CORE))?;
        let linerate = || {
            let options = ["--volume".to_owned(), format!("vol0={volume}")];
            Linerate::start_with(
                &site.binary,
                &[&options, &self.options[..]].concat(),
                1,
                &place,
            )
        };
        let attach = |server: &Linerate| {
            Attached::to(
                &format!("{}?congestion=cubic", Serving::url(server)),
                &site.binary,
                &place,
            )
        };
        match self.program {
            Make::Null => Ok(Started::without(
                "null:1TiB".to_owned(),
                "nothing",
                "null",
                client,
            )),
            Make::File => Ok(Started::file(&volume, client)),
            Make::Place => {
                let places = self
                    .urls
                    .iter()
                    .map(|url| site.resolve(url))
                    .collect::<Result<Vec<_>>>()?;
                let servers = site
                    .world
                    .as_ref()
                    .map_or(Vec::new(), |world| world.pids(&self.busy));
                let target = Target {
                    places,
                    file: String::new(),
                    engine: self.engine(),
                    servers,
                    placement: client,
                };
                Ok(Started {
                    target,
                    _storage: None,
                    serving: None,
                })
            }
            Make::Attached => {
                let server = linerate()?;
                let attached = attach(&server)?;
                let started = Started::file(attached.device(), client);
                let started = started.over(Storage::Attached(attached), server);
                started.fill_file()?;
                Ok(started)
            }
            Make::Ext4 => {
                let server = linerate()?;
                let mounted = Mounted::on(attach(&server)?)?;
                let file = mounted.folder().join("measured.img");
                image::write(&file, VOLUME_BYTES / 2)?; // the file system needs part of the space
                let started = Started::file(&file.display().to_string(), client);
                Ok(started.over(Storage::Ext4(mounted), server))
            }
            Make::Tgt => {
                let store = self.store.as_deref().unwrap_or("rdwr"); // its default
                let tgt = Tgt::start_over(store, VOLUME_BYTES, &place)?;
                Started::serving(tgt, client).filled()
            }
            Make::Istgt => Ok(Started::serving(
                Istgt::start(VOLUME_BYTES, &place)?,
                client,
            )),
            Make::LinerateNbd => Started::nbd(
                Nbd::linerate(&site.binary, VOLUME_BYTES, &self.options, &place)?,
                client,
            ),
            Make::Nbdkit => Started::nbd(Nbd::nbdkit(VOLUME_BYTES, &self.options, &place)?, client),
            Make::QemuNbd => Started::nbd(Nbd::qemu(VOLUME_BYTES, &self.options, &place)?, client),
            Make::Linerate => {
                let started = Started::serving(linerate()?, client);
                if volume.starts_with("ram:") {
                    started.filled()
                } else {
                    Ok(started)
                }
            }
        }
    }
}

/// A server that uses no CPU time for this period is idle.
const QUIET: Duration = Duration::from_millis(300);
/// Time limit for a server to become idle: a server that polls continuously never is.
const SETTLES_WITHIN: Duration = Duration::from_secs(30);

impl Started {
    fn serving(server: impl Serving + 'static, client: Placement) -> Started {
        let url = server.url();
        // fio separates file names by colons.
        let mut started =
            Started::without(url.clone(), &url.replace(':', "\\:"), "libiscsi", client);
        started.target.servers = vec![server.process().pid()];
        started.serving = Some(Box::new(server));
        started
    }

    /// Returns an NBD server, after its export has been filled.
    fn nbd(server: Nbd, client: Placement) -> Result<Started> {
        let url = server.url();
        let mut started = Started::serving(server, client);
        (started.target.file, started.target.engine) = (url, "nbd");
        started.filled()
    }

    fn file(path: &str, client: Placement) -> Started {
        Started::without(format!("file:{path}?direct=on"), path, "io_uring", client)
    }

    fn without(place: String, file: &str, engine: &'static str, placement: Placement) -> Started {
        let (places, file) = (vec![place], file.to_owned());
        let target = Target {
            places,
            file,
            engine,
            servers: Vec::new(),
            placement,
        };
        Started {
            target,
            _storage: None,
            serving: None,
        }
    }

    fn over(self, storage: Storage, server: impl Serving + 'static) -> Started {
        Started {
            _storage: Some(storage),
            serving: Some(Box::new(server)),
            ..self
        }
    }

    /// Writes the whole volume, so that no server reads holes. Uses QEMU's initiator, which is not one of the measured clients.
    fn filled(self) -> Result<Started> {
        const PIECE_MIB: u64 = 256; // qemu-io keeps it in memory
        let mut command = self.target.placement.command("qemu-io");
        command.args(["--format", "raw"]);
        for at in (0..VOLUME_BYTES >> 20).step_by(PIECE_MIB as usize) {
            command.args(["-c", &format!("write -q -P 90 {at}M {PIECE_MIB}M")]);
        }
        command.args(&self.target.places);
        process::capture(command).context("filling the volume")?;
        self.settled()
    }

    /// Waits until the server is idle. After writes, Linerate's server moves data to huge pages for some
    /// time, which would distort the measurement.
    fn settled(self) -> Result<Started> {
        let (begin, mut before) = (Instant::now(), self.target.server_cpu_s()?);
        while begin.elapsed() < SETTLES_WITHIN {
            thread::sleep(QUIET);
            let now = self.target.server_cpu_s()?;
            if now == before {
                break;
            }
            before = now;
        }
        Ok(self)
    }

    /// Fills a block device through the kernel.
    fn fill_file(&self) -> Result<()> {
        let to = format!("of={}", self.target.file);
        let dd = ["if=/dev/zero", &to, "bs=1M", "oflag=direct", "count=1024"];
        ensure!(VOLUME_BYTES == 1024 << 20);
        process::run("dd", &dd)
            .context("filling the device")
            .map(drop)
    }

    pub(crate) fn target(&self) -> &Target {
        &self.target
    }

    /// Pauses the server until [`Started::resume`].
    pub(crate) fn pause(&self) {
        self.process().map(Background::pause);
    }

    pub(crate) fn resume(&self) {
        self.process().map(Background::resume);
    }

    fn process(&self) -> Option<&Background> {
        self.serving.as_ref().map(|server| server.process())
    }
}

impl Target {
    /// Returns the CPU time of all of the server's processes.
    pub(crate) fn server_cpu_s(&self) -> Result<f64> {
        self.servers.iter().map(|pid| machine::cpu_s(*pid)).sum()
    }
}
