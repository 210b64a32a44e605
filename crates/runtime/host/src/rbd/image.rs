//! An open image: its handles, its blocking calls, its lock, and the steps to close it.

#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::io;
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError, RwLock, RwLockReadGuard, Weak};
use std::thread;
use std::time::{Duration, Instant};

use block::Permit;

use super::fence::{Fence, shut_out};
use super::library::{
    FEATURE_EXCLUSIVE_LOCK, Handle, Info, LOCK_MODE_EXCLUSIVE, Library, Setting, Watcher, library,
};
use super::request::{Request, Running, submit};
use super::{RbdError, RbdOptions};
use crate::files::orphans::Orphans;

/// An image, open until it is closed or dropped.
pub(super) struct Image {
    library: &'static Library,
    handles: RwLock<Option<Handles>>,
    pub(super) fence: Arc<Fence>,
    /// Number of consecutive checks at which this client did not have the lock.
    lost_looks: AtomicU32,
    /// Whether the image was opened with the exclusive lock.
    is_locked: bool,
    pub(super) object_bytes: u64,
    /// Number of image bytes that are contiguous in one object.
    pub(super) stripe_bytes: u64,
}

/// The open handles; null if not open yet. Drop closes the handles, and waits for outstanding requests.
struct Handles {
    library: &'static Library,
    cluster: Handle,
    pool: Handle,
    image: Handle,
}

// SAFETY: clusters, pools and images may be used concurrently from any number of threads (rados/librados.h,
// rbd/librbd.h); only the owner of this value closes them.
unsafe impl Send for Handles {}
// SAFETY: as above.
unsafe impl Sync for Handles {}

static OPEN: Mutex<Vec<Weak<Image>>> = Mutex::new(Vec::new());
static UNCLOSED: (Mutex<usize>, Condvar) = (Mutex::new(0), Condvar::new());

const KEPT_OUT_SECONDS: u64 = 365 * 24 * 60 * 60;

/// The lock counts as lost after this many consecutive checks without it. Checks are a second apart.
const LOST_LOOKS: u32 = 5;

/// Interval at which to check whether the holder of a lock still exists.
const LOOK: Duration = Duration::from_millis(500);

impl Image {
    /// Connects to the cluster, creates the image if requested, opens it and takes its lock. Blocks as long
    /// as the cluster does not respond.
    pub(super) fn open(options: &RbdOptions) -> Result<Arc<Image>, RbdError> {
        let library = library().map_err(|why| RbdError::NoLibrary { why })?;
        let mut handles = Handles::connected(library, options)?;
        handles.open_pool(options)?;
        handles.open_image(options)?;
        let name = options.path();
        let is_locked = !options.is_read_only();
        // Check the settings before breaking another client's lock.
        handles.check_settings(&name)?;
        if is_locked {
            handles.lock(options)?;
        }
        let opening = |error| failed(options, "opening", error);
        let object_bytes = handles.info().map_err(opening)?.object_size;
        let mut stripe_bytes = 0;
        // SAFETY: an open image, and space for the number.
        ended(unsafe { (library.rbd_get_stripe_unit)(handles.image, &mut stripe_bytes) })
            .map_err(opening)?;
        let image = Arc::new(Image {
            library,
            handles: RwLock::new(Some(handles)),
            fence: Fence::new(name, is_locked),
            lost_looks: AtomicU32::new(0),
            is_locked,
            object_bytes,
            stripe_bytes: stripe_bytes.max(1),
        });
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|image| image.strong_count() > 0);
        open.push(Arc::downgrade(&image));
        Ok(image)
    }

    /// Submits a request to the library. The request starts at byte `at` of the image.
    pub(super) fn submit(
        &self,
        request: Request,
        at: u64,
        permit: Permit,
        orphans: &Arc<Orphans>,
    ) -> io::Result<Running> {
        let handles = self.handles();
        let image = handles
            .as_ref()
            .filter(|_| !self.fence.is_set())
            .map(|handles| handles.image);
        let image = image.ok_or_else(shut_out)?;
        // SAFETY: the image is open; only `rbd_close` closes it, and that call waits for its requests.
        let running = unsafe {
            submit(
                self.library,
                &self.fence,
                image,
                request,
                at,
                permit,
                orphans,
            )
        };
        running.map_err(|error| self.fence.error(error))
    }

    /// Returns the size in bytes. This may wait for the cluster.
    pub(super) fn size(&self) -> io::Result<u64> {
        let mut size = 0;
        // SAFETY: the image is open for as long as the call lasts.
        self.call(|image| unsafe { (self.library.rbd_get_size)(image, &mut size) })?;
        Ok(size)
    }

    pub(super) fn resize(&self, bytes: u64) -> io::Result<()> {
        // SAFETY: as above.
        self.call(|image| unsafe { (self.library.rbd_resize)(image, bytes) })
    }

    /// Returns up to `parts_max` parts that contain data, as offset and length, of the `length` bytes at
    /// offset `at`. The parts are whole objects, so the first can start before `at`.
    ///
    /// Returns the whole range as one part if the library's result is unusable. This applies to images
    /// striped over objects, because the library reports their parts in another order. It also applies to
    /// clones before Ceph 17, because the library omits the parent's data (Ceph's tracker, 54970).
    pub(super) fn data(
        &self,
        at: u64,
        length: u64,
        parts_max: usize,
    ) -> io::Result<Vec<(u64, u64)>> {
        if self.stripe_bytes != self.object_bytes
            || (self.library.hides_parents() && self.has_parent()?)
        {
            return Ok(vec![(at, length)]);
        }
        // Start at the beginning of an object: otherwise, versions before 16.2.8 report a wrong offset
        // (Ceph's tracker, 53784).
        let begun = at % self.object_bytes;
        let (at, length) = (at - begun, length + begun);
        let mut found = Found {
            parts: Vec::new(),
            parts_max,
        };
        let argument = ptr::from_mut(&mut found).cast::<c_void>();
        let listed = self.call(|image| {
            // SAFETY: the image is open, no snapshot is named, and the callback gets the type that it expects
            // in `argument`, on this thread or while this thread waits.
            unsafe {
                (self.library.rbd_diff_iterate2)(
                    image,
                    ptr::null(),
                    at,
                    length,
                    1,
                    1,
                    note,
                    argument,
                )
            }
        });
        match listed {
            Err(_) if found.parts.len() >= parts_max => Ok(found.parts),
            listed => listed.map(|()| found.parts),
        }
    }

    /// Whether the image is a clone that still depends on its parent's data.
    fn has_parent(&self) -> io::Result<bool> {
        let mut overlap = 0;
        // SAFETY: the image is open for as long as the call lasts.
        self.call(|image| unsafe { (self.library.rbd_get_overlap)(image, &mut overlap) })?;
        Ok(overlap > 0)
    }

    /// Asks the object server of the image's header whether this client still has the lock. If the client was
    /// blocklisted or has lost its lock, this sets the fence, even if the client has no outstanding requests.
    pub(super) fn check_lock(&self) -> io::Result<()> {
        if !self.is_locked {
            return Ok(());
        }
        let mut is_owner = 0;
        // SAFETY: the image is open for as long as the call lasts.
        self.call(|image| unsafe {
            (self.library.rbd_is_exclusive_lock_owner)(image, &mut is_owner)
        })?;
        if is_owner != 0 {
            self.lost_looks.store(0, Ordering::Relaxed);
            return Ok(());
        }
        // One failed check is not enough: after an outage of the object server, the library renews its watch,
        // and with it the lock's cookie.
        if self.lost_looks.fetch_add(1, Ordering::Relaxed) + 1 >= LOST_LOOKS {
            self.fence.set(libc::EROFS);
            return Err(shut_out());
        }
        Ok(())
    }

    fn call(&self, call: impl FnOnce(Handle) -> c_int) -> io::Result<()> {
        let handles = self.handles();
        let image = handles
            .as_ref()
            .filter(|_| !self.fence.is_set())
            .map(|handles| handles.image);
        match call(image.ok_or_else(shut_out)?) {
            0.. => Ok(()),
            error => Err(self.fence.error(error)),
        }
    }

    fn handles(&self) -> RwLockReadGuard<'_, Option<Handles>> {
        self.handles.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self) -> Option<Handles> {
        self.handles
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
    }
}

/// Closes the image, which releases the lock and waits for outstanding requests. This runs on another thread,
/// because the thread that drops the image may belong to the library.
impl Drop for Image {
    fn drop(&mut self) {
        if let Some(handles) = self.take() {
            drop(
                thread::Builder::new()
                    .name("rbd-close".to_owned())
                    .spawn(move || drop(handles)),
            );
        }
    }
}

/// Closes all images before the process exits, because an unreleased lock blocks other clients until the
/// cluster considers its holder dead. Returns after `limit` at the latest.
pub fn close_all(limit: Duration) {
    for image in OPEN
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .drain(..)
    {
        if let Some(image) = image.upgrade() {
            drop(
                thread::Builder::new()
                    .name("rbd-close".to_owned())
                    .spawn(move || drop(image.take())),
            );
        }
    }
    let (count, changed) = &UNCLOSED;
    let count = count.lock().unwrap_or_else(PoisonError::into_inner);
    drop(changed.wait_timeout_while(count, limit, |count| *count > 0));
}

struct Found {
    parts: Vec<(u64, u64)>,
    parts_max: usize,
}

unsafe extern "C" fn note(at: u64, length: usize, has_data: c_int, argument: *mut c_void) -> c_int {
    // SAFETY: `argument` is the `Found` of the call that this is the callback of, which no one else uses meanwhile.
    let found = unsafe { &mut *argument.cast::<Found>() };
    if found.parts.len() >= found.parts_max {
        return -libc::ECANCELED;
    }
    if has_data != 0 {
        found.parts.push((at, length as u64));
    }
    0
}

impl Handles {
    fn connected(library: &'static Library, options: &RbdOptions) -> Result<Handles, RbdError> {
        *UNCLOSED.0.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        let null = ptr::null_mut;
        let mut handles = Handles {
            library,
            cluster: null(),
            pool: null(),
            image: null(),
        };
        let cluster = c_string(&options.cluster)?;
        let user = c_string(&format!("client.{}", options.user))?;
        // SAFETY: terminated strings, and space for the handle.
        let created = unsafe {
            (library.rados_create2)(&mut handles.cluster, cluster.as_ptr(), user.as_ptr(), 0)
        };
        ended(created).map_err(|error| failed(options, "connecting", error))?;
        let conf = options.conf.as_deref().map(c_string).transpose()?;
        let conf = conf.as_ref().map_or(ptr::null(), |conf| conf.as_ptr());
        let file = options
            .conf
            .clone()
            .unwrap_or_else(|| format!("/etc/ceph/{}.conf", options.cluster));
        // SAFETY: an unconnected cluster, and a terminated string, or none for the default paths.
        let read = unsafe { (library.rados_conf_read_file)(handles.cluster, conf) };
        match ended(read) {
            Err(source) if options.conf.is_some() => {
                return Err(RbdError::Configuration { file, source });
            }
            _ => {} // without a file, the environment and the defaults may suffice
        }
        for (name, value) in settings(options) {
            let (name, value) = (c_string(name)?, c_string(&value)?);
            // SAFETY: as above. A setting unknown to this version poses no danger there.
            let _ =
                unsafe { (library.rados_conf_set)(handles.cluster, name.as_ptr(), value.as_ptr()) };
        }
        // SAFETY: as above.
        match ended(unsafe { (library.rados_connect)(handles.cluster) }) {
            Ok(()) => Ok(handles),
            Err(error) if matches!(error.raw_os_error(), Some(libc::EACCES | libc::EPERM)) => {
                Err(failed(options, "connecting", error))
            }
            Err(source) => Err(RbdError::Unreachable { file, source }),
        }
    }

    fn open_pool(&mut self, options: &RbdOptions) -> Result<(), RbdError> {
        let pool = c_string(&options.pool)?;
        // SAFETY: a connected cluster, a terminated string, and space for the handle.
        let opened = unsafe {
            (self.library.rados_ioctx_create)(self.cluster, pool.as_ptr(), &mut self.pool)
        };
        ended(opened).map_err(|error| match error.raw_os_error() {
            Some(libc::ENOENT) => RbdError::NoPool {
                pool: options.pool.clone(),
            },
            _ => failed(options, "opening the pool", error),
        })?;
        if let Some(namespace) = &options.namespace {
            let namespace = c_string(namespace)?;
            // SAFETY: an open pool and a terminated string.
            unsafe { (self.library.rados_ioctx_set_namespace)(self.pool, namespace.as_ptr()) };
        }
        Ok(())
    }

    fn open_image(&mut self, options: &RbdOptions) -> Result<(), RbdError> {
        let is_missing = |error: &io::Error| error.raw_os_error() == Some(libc::ENOENT);
        let mut opened = self.try_open_image(options)?;
        if let (Err(error), Some(bytes), false) = (&opened, options.bytes, options.is_read_only())
            && is_missing(error)
        {
            let (image, mut order) = (c_string(&options.image)?, 0);
            // SAFETY: an open pool, a terminated string, and order 0 for the cluster's default.
            let created =
                unsafe { (self.library.rbd_create)(self.pool, image.as_ptr(), bytes, &mut order) };
            match ended(created) {
                Err(error) if error.raw_os_error() != Some(libc::EEXIST) => {
                    return Err(failed(options, "creating", error));
                }
                _ => opened = self.try_open_image(options)?,
            }
        }
        opened.map_err(|error| match &options.snapshot {
            None if is_missing(&error) => RbdError::NoImage {
                image: options.path(),
            },
            Some(_) if is_missing(&error) => RbdError::NoSnapshot {
                snapshot: options.path(),
            },
            _ => failed(options, "opening", error),
        })
    }

    fn try_open_image(&mut self, options: &RbdOptions) -> Result<io::Result<()>, RbdError> {
        let image = c_string(&options.image)?;
        let snapshot = options.snapshot.as_deref().map(c_string).transpose()?;
        let snapshot = snapshot
            .as_ref()
            .map_or(ptr::null(), |snapshot| snapshot.as_ptr());
        let library = self.library;
        let open = if options.is_read_only() {
            library.rbd_open_read_only
        } else {
            library.rbd_open
        };
        let mut handle = ptr::null_mut();
        // SAFETY: an open pool, terminated strings or none, and space for the handle.
        let opened = ended(unsafe { open(self.pool, image.as_ptr(), &mut handle, snapshot) });
        if opened.is_ok() {
            self.image = handle;
        }
        Ok(opened)
    }

    /// Takes the exclusive lock, in the mode in which the library does not release it when another client
    /// requests it. A live holder keeps the lock. If the holder is dead, the library blocklists it before it
    /// breaks the lock.
    fn lock(&self, options: &RbdOptions) -> Result<(), RbdError> {
        let (image, failed) = (options.path(), |error| failed(options, "locking", error));
        let mut features = 0;
        // SAFETY: an open image, and space for the number.
        ended(unsafe { (self.library.rbd_get_features)(self.image, &mut features) })
            .map_err(failed)?;
        if features & FEATURE_EXCLUSIVE_LOCK == 0 {
            return Err(RbdError::NoExclusiveLock { image });
        }
        let begun = Instant::now();
        let gone = loop {
            let Some(holder) = self.holder().map_err(failed)? else {
                break None;
            };
            if !self.watchers().map_err(failed)?.contains(&holder) {
                break Some(holder);
            }
            if begun.elapsed() >= options.lock_wait {
                return Err(RbdError::Locked { image, holder });
            }
            thread::sleep(LOOK);
        };
        gone.iter().for_each(|gone| self.keep_out(gone, &image));
        // SAFETY: an open image.
        let taken =
            ended(unsafe { (self.library.rbd_lock_acquire)(self.image, LOCK_MODE_EXCLUSIVE) });
        taken.map_err(|error| match (error.raw_os_error(), self.holder()) {
            (Some(libc::EROFS | libc::EBUSY), Ok(Some(holder))) => RbdError::Locked {
                image: image.clone(),
                holder,
            },
            _ => failed(error),
        })?;
        // Wait for the newest map, which blocklists the former holder. Maps spread lazily, but each request
        // of this client then carries this map, so object servers that receive such a request reject the
        // former holder. SAFETY: a connected cluster.
        ended(unsafe { (self.library.rados_wait_for_latest_osdmap)(self.cluster) }).map_err(failed)
    }

    /// Blocklists a client for a year. The library would blocklist it for an hour only, after which a process
    /// that was merely suspended could write again. The library's later entry does not shorten this one. (The
    /// library's setting `rbd_blocklist_expire_seconds` cannot be used: the monitors of Ceph 16 reject it.)
    fn keep_out(&self, client: &str, image: &str) {
        let command = format!(
            r#"{{"prefix": "osd blocklist", "blocklistop": "add", "addr": "{client}", "expire": {KEPT_OUT_SECONDS}.0}}"#
        );
        let Ok(command) = CString::new(command) else {
            return;
        };
        let (commands, null) = ([command.as_ptr()], ptr::null_mut);
        // SAFETY: a connected cluster, one terminated string, no input, and no space for outputs, which are
        // optional.
        let added = ended(unsafe {
            (self.library.rados_mon_command)(
                self.cluster,
                commands.as_ptr(),
                commands.len(),
                ptr::null(),
                0,
                null(),
                ptr::null_mut(),
                null(),
                ptr::null_mut(),
            )
        });
        match added {
            Ok(()) => tracing::warn!(
                image,
                client,
                "the lock belongs to a client that no longer exists; blocklisting it for a year"
            ),
            Err(error) => tracing::warn!(
                image,
                client,
                %error,
                "the lock belongs to a client that no longer exists; if the client was only suspended, it \
                 can write again in an hour"
            ),
        }
    }

    /// The address of the client that has the exclusive lock.
    fn holder(&self) -> io::Result<Option<String>> {
        let (mut mode, mut owners, mut count) = (0, [ptr::null_mut(); 4], 4);
        // SAFETY: an open image, and space for `count` pointers.
        let listed = unsafe {
            (self.library.rbd_lock_get_owners)(
                self.image,
                &mut mode,
                owners.as_mut_ptr(),
                &mut count,
            )
        };
        match ended(listed) {
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => return Ok(None),
            listed => listed?,
        }
        let found = owners.iter().take(count).map(|owner| text(*owner)).next();
        // SAFETY: the values filled in by the call above.
        unsafe { (self.library.rbd_lock_get_owners_cleanup)(owners.as_mut_ptr(), count) };
        Ok(found)
    }

    /// The addresses of the clients that have the image open for writing.
    fn watchers(&self) -> io::Result<Vec<String>> {
        const WATCHERS_MAX: usize = 64;
        let mut watchers = [Watcher {
            address: ptr::null_mut(),
            id: 0,
            cookie: 0,
        }; WATCHERS_MAX];
        let mut count = WATCHERS_MAX;
        // SAFETY: an open image, and space for `count` watchers.
        ended(unsafe {
            (self.library.rbd_watchers_list)(self.image, watchers.as_mut_ptr(), &mut count)
        })?;
        let found = watchers
            .iter()
            .take(count)
            .map(|watcher| text(watcher.address))
            .collect();
        // SAFETY: the values filled in by the call above.
        unsafe { (self.library.rbd_watchers_list_cleanup)(watchers.as_mut_ptr(), count) };
        Ok(found)
    }

    /// Rejects an image with a dangerous setting in its own configuration, which overrides the settings of
    /// this client. Such a setting makes the library cache writes in memory, break a client's lock without
    /// blocklisting the client, or block a thread that submits requests.
    fn check_settings(&self, image: &str) -> Result<(), RbdError> {
        const SETTINGS_MAX: usize = 512;
        let none = Setting {
            name: ptr::null_mut(),
            value: ptr::null_mut(),
            source: 0,
        };
        let (mut settings, mut count) = ([none; SETTINGS_MAX], SETTINGS_MAX as c_int);
        // SAFETY: an open image, and space for `count` settings.
        let listed = unsafe {
            (self.library.rbd_config_image_list)(self.image, settings.as_mut_ptr(), &mut count)
        };
        match ended(listed) {
            // A cluster that does not support this query has no image settings.
            Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => return Ok(()),
            Err(source) => {
                return Err(RbdError::Io {
                    doing: format!("reading the settings of {image}"),
                    source,
                });
            }
            Ok(()) => {}
        }
        // Values are stored as the user typed them, and Ceph also accepts numbers as Boolean values.
        let is_off =
            |value: &str| value.eq_ignore_ascii_case("false") || value.trim().parse() == Ok(0_i64);
        let found = settings
            .iter()
            .take(count as usize)
            .map(|setting| (text(setting.name), text(setting.value)));
        let cached = found.into_iter().find(|(name, value)| match name.as_str() {
            "rbd_cache" => !is_off(value),
            "rbd_blocklist_on_break_lock" | "rbd_non_blocking_aio" => is_off(value),
            "rbd_persistent_cache_mode" => value != "disabled",
            _ => false,
        });
        // SAFETY: the values filled in by the call above.
        unsafe { (self.library.rbd_config_image_list_cleanup)(settings.as_mut_ptr(), count) };
        match cached {
            None => Ok(()),
            Some((name, value)) => Err(RbdError::Setting {
                image: image.to_owned(),
                setting: format!("{name} = {value}"),
                name,
            }),
        }
    }

    fn info(&self) -> io::Result<Info> {
        let mut info = Info::empty();
        // SAFETY: an open image, and space of the given length.
        ended(unsafe { (self.library.rbd_stat)(self.image, &mut info, size_of::<Info>()) })?;
        Ok(info)
    }
}

impl Drop for Handles {
    fn drop(&mut self) {
        let library = self.library;
        // SAFETY: each is open unless null, and not used after this; the order respects their dependencies.
        unsafe {
            if !self.image.is_null() {
                (library.rbd_close)(self.image);
            }
            if !self.pool.is_null() {
                (library.rados_ioctx_destroy)(self.pool);
            }
            if !self.cluster.is_null() {
                (library.rados_shutdown)(self.cluster);
            }
        }
        *UNCLOSED.0.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        UNCLOSED.1.notify_all();
    }
}

/// Settings for every image. They override the configuration file.
fn settings(options: &RbdOptions) -> [(&'static str, String); 7] {
    [
        (
            "client_mount_timeout",
            options.timeout.as_secs().max(1).to_string(),
        ),
        // Without a cache, an acknowledged write is on the object servers.
        ("rbd_cache", "false".to_owned()),
        ("rbd_persistent_cache_mode", "disabled".to_owned()),
        // No timeout: a write that the library has abandoned could still be executed, after newer writes of
        // the same blocks.
        ("rados_osd_op_timeout", "0".to_owned()),
        // Zero-copy writes are safe: the data of a request does not change while the request is outstanding.
        ("rbd_disable_zero_copy_writes", "false".to_owned()),
        // A client whose lock is broken must no longer write.
        ("rbd_blocklist_on_break_lock", "true".to_owned()),
        // Start requests on the library's threads, because starting one may block, and a reactor must not
        // block.
        ("rbd_non_blocking_aio", "true".to_owned()),
    ]
}

fn failed(options: &RbdOptions, doing: &str, source: io::Error) -> RbdError {
    let doing = format!("{doing} {}", options.path());
    match source.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => RbdError::NotAllowed {
            doing,
            user: options.user.clone(),
        },
        _ => RbdError::Io { doing, source },
    }
}

/// Converts the result of a call.
fn ended(result: c_int) -> io::Result<()> {
    if result < 0 {
        Err(io::Error::from_raw_os_error(-result))
    } else {
        Ok(())
    }
}

fn c_string(text: &str) -> Result<CString, RbdError> {
    CString::new(text).map_err(|_| RbdError::NotAName)
}

/// Copies a string that a library returned.
fn text(string: *const c_char) -> String {
    if string.is_null() {
        return String::new();
    }
    // SAFETY: the libraries' strings are terminated, and the callers have not freed them yet.
    unsafe { CStr::from_ptr(string) }
        .to_string_lossy()
        .into_owned()
}
