//! What a count depends on beside the source: who compiled, who counted, and whose memcpy and malloc it was.

use anyhow::Result;

use xtask::process;

/// The toolchain of this machine in one line.
pub(super) fn here() -> Result<String> {
    let parts = [("rustc", "--version"), ("valgrind", "--version"), ("getconf", "GNU_LIBC_VERSION")];
    let versions: Vec<String> = parts.into_iter().map(version).collect::<Result<_>>()?;
    Ok(format!("{}, {}", std::env::consts::ARCH, versions.join(", ")))
}

fn version((program, argument): (&str, &str)) -> Result<String> {
    Ok(process::run(program, &[argument])?.trim().to_owned())
}
