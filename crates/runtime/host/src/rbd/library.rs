//! librados and librbd. They are loaded when the first image is opened, so that the program runs without
//! them. The declarations are from `rados/librados.h` and `rbd/librbd.h` of Ceph 16; later versions are
//! compatible.

#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem;
use std::sync::OnceLock;

/// `rados_t`, `rados_ioctx_t`, `rbd_image_t`, `rbd_completion_t`: opaque pointers.
pub(super) type Handle = *mut c_void;

/// `rbd_callback_t`: called on completion, with the argument passed at creation.
pub(super) type Callback = unsafe extern "C" fn(completion: Handle, argument: *mut c_void);

/// The callback of `rbd_diff_iterate2`. Its arguments are an offset, a length, whether there is data, and the
/// caller's pointer. A negative result ends the iteration.
pub(super) type Each = unsafe extern "C" fn(u64, usize, c_int, *mut c_void) -> c_int;

/// `rbd_image_info_t`.
#[repr(C)]
pub(super) struct Info {
    pub(super) size: u64,
    pub(super) object_size: u64,
    objects: u64,
    order: c_int,
    block_name_prefix: [c_char; 24],
    parent_pool: i64,
    parent_name: [c_char; 96],
}

impl Info {
    pub(super) const fn empty() -> Info {
        Info {
            size: 0,
            object_size: 0,
            objects: 0,
            order: 0,
            block_name_prefix: [0; 24],
            parent_pool: 0,
            parent_name: [0; 96],
        }
    }
}

/// `rbd_image_watcher_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Watcher {
    pub(super) address: *mut c_char,
    pub(super) id: i64,
    pub(super) cookie: u64,
}

/// `rbd_config_option_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Setting {
    pub(super) name: *mut c_char,
    pub(super) value: *mut c_char,
    pub(super) source: c_int,
}

/// `RBD_LOCK_MODE_EXCLUSIVE`.
pub(super) const LOCK_MODE_EXCLUSIVE: c_int = 0;
/// `RBD_FEATURE_EXCLUSIVE_LOCK`.
pub(super) const FEATURE_EXCLUSIVE_LOCK: u64 = 1 << 2;
/// `RBD_WRITE_ZEROES_FLAG_THICK_PROVISION`.
pub(super) const THICK_PROVISION: c_int = 1;

macro_rules! libraries {
    ($($file:literal { $(fn $function:ident($($argument:ty),*) -> $result:ty;)+ })+) => {
        /// The functions of both libraries.
        pub(super) struct Library {
            $($(pub(super) $function: unsafe extern "C" fn($($argument),*) -> $result,)+)+
        }

        impl Library {
            fn load() -> Result<Library, String> {
                // The loader requires terminated names.
                $($(let $function = {
                    let address = symbol(
                        cstr(concat!($file, "\0")),
                        cstr(concat!(stringify!($function), "\0")),
                    )?;
                    // SAFETY: a function with this name has this type in the libraries' headers, and a pointer to a
                    // function is as long as one to data on every system with dlsym (POSIX).
                    unsafe {
                        mem::transmute::<*mut c_void, unsafe extern "C" fn($($argument),*) -> $result>(address)
                    }
                };)+)+
                Ok(Library { $($($function,)+)+ })
            }
        }
    };
}

libraries! {
    "librados.so.2" {
        fn rados_create2(*mut Handle, *const c_char, *const c_char, u64) -> c_int;
        fn rados_conf_read_file(Handle, *const c_char) -> c_int;
        fn rados_conf_set(Handle, *const c_char, *const c_char) -> c_int;
        fn rados_connect(Handle) -> c_int;
        fn rados_shutdown(Handle) -> ();
        fn rados_wait_for_latest_osdmap(Handle) -> c_int;
        fn rados_mon_command(Handle, *const *const c_char, usize, *const c_char, usize, *mut *mut c_char, *mut usize, *mut *mut c_char, *mut usize) -> c_int;
        fn rados_ioctx_create(Handle, *const c_char, *mut Handle) -> c_int;
        fn rados_ioctx_set_namespace(Handle, *const c_char) -> ();
        fn rados_ioctx_destroy(Handle) -> ();
    }
    "librbd.so.1" {
        fn rbd_version(*mut c_int, *mut c_int, *mut c_int) -> ();
        fn rbd_create(Handle, *const c_char, u64, *mut c_int) -> c_int;
        fn rbd_open(Handle, *const c_char, *mut Handle, *const c_char) -> c_int;
        fn rbd_open_read_only(Handle, *const c_char, *mut Handle, *const c_char) -> c_int;
        fn rbd_close(Handle) -> c_int;
        fn rbd_stat(Handle, *mut Info, usize) -> c_int;
        fn rbd_get_size(Handle, *mut u64) -> c_int;
        fn rbd_get_features(Handle, *mut u64) -> c_int;
        fn rbd_get_stripe_unit(Handle, *mut u64) -> c_int;
        fn rbd_get_overlap(Handle, *mut u64) -> c_int;
        fn rbd_resize(Handle, u64) -> c_int;
        fn rbd_lock_acquire(Handle, c_int) -> c_int;
        fn rbd_is_exclusive_lock_owner(Handle, *mut c_int) -> c_int;
        fn rbd_lock_get_owners(Handle, *mut c_int, *mut *mut c_char, *mut usize) -> c_int;
        fn rbd_lock_get_owners_cleanup(*mut *mut c_char, usize) -> ();
        fn rbd_watchers_list(Handle, *mut Watcher, *mut usize) -> c_int;
        fn rbd_watchers_list_cleanup(*mut Watcher, usize) -> ();
        fn rbd_config_image_list(Handle, *mut Setting, *mut c_int) -> c_int;
        fn rbd_config_image_list_cleanup(*mut Setting, c_int) -> ();
        fn rbd_diff_iterate2(Handle, *const c_char, u64, u64, u8, u8, Each, *mut c_void) -> c_int;
        fn rbd_aio_create_completion(*mut c_void, Callback, *mut Handle) -> c_int;
        fn rbd_aio_get_return_value(Handle) -> isize;
        fn rbd_aio_release(Handle) -> ();
        fn rbd_aio_read(Handle, u64, usize, *mut c_char, Handle) -> c_int;
        fn rbd_aio_write(Handle, u64, usize, *const c_char, Handle) -> c_int;
        fn rbd_aio_compare_and_write(Handle, u64, usize, *const c_char, *const c_char, Handle, *mut u64, c_int) -> c_int;
        fn rbd_aio_flush(Handle, Handle) -> c_int;
        fn rbd_aio_write_zeroes(Handle, u64, usize, Handle, c_int, c_int) -> c_int;
    }
}

impl Library {
    /// Whether `rbd_diff_iterate2` may omit data that a clone inherits from its parent. (librbd 1.17 belongs
    /// to Ceph 17.)
    pub(super) fn hides_parents(&self) -> bool {
        let (mut major, mut minor, mut extra) = (0, 0, 0);
        // SAFETY: space for the three numbers.
        unsafe { (self.rbd_version)(&mut major, &mut minor, &mut extra) };
        (major, minor) < (1, 17)
    }
}

/// Loads the libraries on first use. They stay loaded.
///
/// # Errors
/// The missing library, and how to install it.
pub(super) fn library() -> Result<&'static Library, String> {
    static LIBRARY: OnceLock<Result<Library, String>> = OnceLock::new();
    LIBRARY
        .get_or_init(Library::load)
        .as_ref()
        .map_err(Clone::clone)
}

fn cstr(text: &'static str) -> &'static CStr {
    CStr::from_bytes_with_nul(text.as_bytes()).unwrap_or(c"")
}

fn symbol(file: &CStr, name: &CStr) -> Result<*mut c_void, String> {
    // SAFETY: both are terminated strings. Opening a library again returns the open one; its initialisers may
    // run any code, like those of every linked library.
    let library = unsafe { libc::dlopen(file.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    if library.is_null() {
        return Err(format!(
            "the Ceph library cannot be loaded ({}); install it (`apt install librbd1`)",
            loader_error()
        ));
    }
    // SAFETY: the library was opened and is never closed.
    let found = unsafe { libc::dlsym(library, name.as_ptr()) };
    match found.is_null() {
        true => Err(format!(
            "the Ceph library is too old ({}); use version 16 or later",
            loader_error()
        )),
        false => Ok(found),
    }
}

fn loader_error() -> String {
    // SAFETY: the text of this thread's latest error is valid until its next call to the loader, and is
    // copied before that.
    let text = unsafe { libc::dlerror().as_ref().map(|text| CStr::from_ptr(text)) };
    text.map_or_else(
        || "no reason given".to_owned(),
        |text| text.to_string_lossy().into_owned(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_that_is_absent_is_named_with_the_package_that_has_it() {
        let said = symbol(c"librbd.so.0-absent", c"rbd_open").expect_err("no such library");
        assert!(
            said.contains("librbd.so.0-absent") && said.contains("apt install librbd1"),
            "{said}"
        );
    }

    #[test]
    fn a_function_that_is_absent_is_one_of_a_later_version() {
        let said = symbol(c"libc.so.6", c"rbd_open").expect_err("no such function");
        assert!(
            said.contains("rbd_open") && said.contains("version 16"),
            "{said}"
        );
    }
}
