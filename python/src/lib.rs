//! `linerate._linerate`: the parts of the Python module that need Rust. The package `linerate` contains the
//! other parts: the exceptions, the result types, and everything that does not need Rust. docs/python.md
//! documents the module.
//!
//! Every session has its own thread (`blocking`). While a call waits, it releases the interpreter's lock, and
//! checks for signals every [`waiting::SIGNALS_EVERY`].

mod errors;
mod futures;
mod lun;
mod measure;
mod waiting;

use std::net::Ipv6Addr;

use backends::Failure;
use iscsi_client::{Portal, Settings, Url};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use errors::raised;
use waiting::wait;

#[pymodule]
fn _linerate(module: &Bound<'_, PyModule>) -> PyResult<()> {
    backends::secrets::mask_words(std::env::args_os().skip(1));
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<lun::Lun>()?;
    module.add_function(wrap_pyfunction!(connect, module)?)?;
    module.add_function(wrap_pyfunction!(discover, module)?)?;
    module.add_function(wrap_pyfunction!(measure::bench_place, module)?)?;
    module.add_function(wrap_pyfunction!(measure::diagnose_path, module)?)?;
    Ok(())
}

/// Logs in and attaches the LUN. `options` are URL keys with text values. `password` and `target_password`
/// are separate arguments, because a URL never contains secrets.
#[pyfunction]
fn connect(
    py: Python<'_>,
    url: &str,
    options: &Bound<'_, PyDict>,
    password: Option<&str>,
    target_password: Option<&str>,
) -> PyResult<lun::Lun> {
    let mut url = Url::parse(url).map_err(|error| raised(py, &Failure::refused(error)))?;
    set(py, &mut url.settings, options, password, target_password)?;
    let opened = wait(py, blocking::Lun::open(&url))?.map_err(|error| errors::open(py, error))?;
    lun::Lun::new(py, opened, &url.settings)
}

/// Returns the targets of a portal, each with its name and addresses.
#[pyfunction]
fn discover(
    py: Python<'_>,
    host: &str,
    options: &Bound<'_, PyDict>,
    password: Option<&str>,
    target_password: Option<&str>,
) -> PyResult<Vec<(String, Vec<String>)>> {
    let url = match host.parse::<Ipv6Addr>() {
        Ok(bare) => format!("iscsi://[{bare}]"),
        Err(_) if host.contains("://") => host.to_owned(),
        Err(_) => format!("iscsi://{host}"),
    };
    let (portal, mut settings) =
        Portal::parse(&url).map_err(|error| raised(py, &Failure::refused(error)))?;
    set(py, &mut settings, options, password, target_password)?;
    let found = wait(py, blocking::discover(&portal, &settings))?;
    let found = found.map_err(|error| errors::open(py, error))?;
    Ok(found
        .into_iter()
        .map(|target| (target.name, target.addresses))
        .collect())
}

fn set(
    py: Python<'_>,
    settings: &mut Settings,
    options: &Bound<'_, PyDict>,
    password: Option<&str>,
    target_password: Option<&str>,
) -> PyResult<()> {
    for (name, value) in options {
        let (name, value): (String, String) = (name.extract()?, value.extract()?);
        settings
            .set(&name, &value)
            .map_err(|error| raised(py, &Failure::refused(error)))?;
    }
    for (secret, account, whose) in [
        (
            password,
            &mut settings.account,
            "a password requires a user: name one in the URL, or with user=",
        ),
        (
            target_password,
            &mut settings.target_account,
            "target_password requires target_user",
        ),
    ] {
        let Some(secret) = secret else { continue };
        let account = account
            .as_mut()
            .ok_or_else(|| raised(py, &Failure::refused(whose)))?;
        account.secret = iscsi::chap::Secret::new(secret.as_bytes());
    }
    Ok(())
}
