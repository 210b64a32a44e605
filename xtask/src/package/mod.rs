//! `cargo xtask package`: a Debian package of the program, its units, manual, completions, configuration and documents.
//!
//! It needs only Debian's own tools. The files are collected under `target/debian` in the layout of a root file system, from
//! which `dpkg-deb` builds the package. [`check`] installs it into a separate root directory, and removes it.

mod check;

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::book;
use xtask::process;
use xtask::tally::{Tally, Verdict};
use xtask::workspace;

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Install, remove and purge the package in a separate root directory, and check it with lintian
    #[arg(long)]
    check: bool,
    /// Package the debug build that tests use, which builds faster but runs slower
    #[arg(long)]
    debug: bool,
}

/// Builds the package, and prints its path.
pub(crate) fn run(options: &Options) -> Result<Verdict> {
    let package = make(options.debug)?;
    println!("{}", package.display());
    if !options.check {
        return Ok(Verdict::Holds);
    }
    let tally = check::run(&package)?;
    println!("{tally}");
    Ok(tally.verdict())
}

/// Checks a package of the tests' binary. Skipped, with the reason, if Debian's tools are missing.
pub(crate) fn measure() -> Result<Tally> {
    if let Err(error) = process::require(TOOLS) {
        println!("skipped: {error:#}");
        return Ok(Tally::skipped());
    }
    check::run(&make(true)?)
}

const TOOLS: &[&str] = &["dpkg", "dpkg-deb", "dpkg-shlibdeps", "strip", "gzip"];

/// The package's version. `CARGO_PKG_VERSION` is the version of the workspace.
const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "-1");

/// Files of the source tree, with their paths in the package and their modes.
const FILES: &[(&str, &str, u32)] = &[
    (
        "contrib/linerate.service",
        "usr/lib/systemd/system/linerate.service",
        0o644,
    ),
    (
        "contrib/linerate-attach@.service",
        "usr/lib/systemd/system/linerate-attach@.service",
        0o644,
    ),
    (
        "contrib/linerate.sysusers",
        "usr/lib/sysusers.d/linerate.conf",
        0o644,
    ),
    // The configuration can contain secrets. postinst changes its owner to the server's user.
    (
        "contrib/debian/linerate.toml",
        "etc/linerate/linerate.toml",
        0o600,
    ),
    ("contrib/debian/postinst", "DEBIAN/postinst", 0o755),
    ("contrib/debian/prerm", "DEBIAN/prerm", 0o755),
    ("contrib/debian/postrm", "DEBIAN/postrm", 0o755),
    (
        "contrib/prometheus/linerate.rules.yml",
        "usr/share/doc/linerate/examples/prometheus/linerate.rules.yml",
        0o644,
    ),
    (
        "contrib/grafana/linerate.json",
        "usr/share/doc/linerate/examples/grafana/linerate.json",
        0o644,
    ),
];

/// Shells, and their paths for completions.
const COMPLETIONS: &[(&str, &str)] = &[
    ("bash", "usr/share/bash-completion/completions/linerate"),
    ("zsh", "usr/share/zsh/vendor-completions/_linerate"),
    ("fish", "usr/share/fish/vendor_completions.d/linerate.fish"),
];

fn make(debug: bool) -> Result<PathBuf> {
    process::require(TOOLS)?;
    let binary = if debug {
        workspace::test_binary()
    } else {
        workspace::release_binary()
    }?;
    let folder = workspace::target_directory().join("debian");
    let root = folder.join("root");
    if folder.exists() {
        fs::remove_dir_all(&folder).context("removing the previous package")?;
    }
    for (from, to, mode) in FILES {
        put(
            &root.join(to),
            &fs::read(workspace::root().join(from)).with_context(|| (*from).to_owned())?,
            *mode,
        )?;
    }
    stripped(&binary, &root.join("usr/bin/linerate"))?;
    texts(&root, &binary)?;
    put(
        &root.join("DEBIAN/conffiles"),
        b"/etc/linerate/linerate.toml\n",
        0o644,
    )?;
    fs::create_dir_all(root.join("etc/linerate/attach"))?;
    put(
        &root.join("DEBIAN/control"),
        control(&folder, &root)?.as_bytes(),
        0o644,
    )?;
    let package = folder.join(format!("linerate_{VERSION}_{}.deb", architecture()?));
    let mut build = Command::new("dpkg-deb");
    build
        .args([
            "--root-owner-group",
            if debug { "-Zgzip" } else { "-Zxz" },
            if debug { "-z1" } else { "-z6" },
            "--build",
        ])
        .arg(&root)
        .arg(&package);
    // Makes packages reproducible.
    build
        .env("SOURCE_DATE_EPOCH", commit_time("%ct")?)
        .stdout(std::process::Stdio::null());
    process::succeed(build)?;
    Ok(package)
}

/// Writes the manual, completions, documents, licence and changelog.
fn texts(root: &Path, binary: &Path) -> Result<()> {
    let manual = root.join("usr/share/man");
    // This also creates the directories of other sections.
    process::run(binary, &["man", &manual.join("man1").display().to_string()])?;
    for section in fs::read_dir(&manual)? {
        for page in fs::read_dir(section?.path())? {
            compressed(&page?.path())?;
        }
    }
    for (shell, to) in COMPLETIONS {
        put(
            &root.join(to),
            process::run(binary, &["completions", shell])?.as_bytes(),
            0o644,
        )?;
    }
    let documents = root.join(DOCUMENTS);
    let (published, repository) = (documents_of(Path::new("docs"))?, book::repository()?);
    for path in &published {
        let mut bytes = fs::read(workspace::root().join(path))?;
        if path.extension().is_some_and(|end| end == "md") {
            let text = String::from_utf8(bytes)?;
            let is_published = |path: &Path| published.contains(path);
            bytes = book::with_outside_links(&text, path, &repository, is_published).into_bytes();
        }
        put(&documents.join(path), &bytes, 0o644)?;
    }
    put(&documents.join("copyright"), copyright()?.as_bytes(), 0o644)?;
    let upstream = documents.join("changelog");
    put(
        &upstream,
        &fs::read(workspace::root().join("CHANGELOG.md"))?,
        0o644,
    )?;
    compressed(&upstream)?;
    let debian = documents.join("changelog.Debian");
    let entry = format!(
        "linerate ({VERSION}) unstable; urgency=medium\n\n  * The changes are in changelog.gz.\n\n -- {MAINTAINER}  {}\n",
        commit_time("%aD")?
    );
    put(&debian, entry.as_bytes(), 0o644)?;
    compressed(&debian)
}

const DOCUMENTS: &str = "usr/share/doc/linerate";

/// Returns README.md, SECURITY.md and all files below a directory of documents, as paths in the source tree.
fn documents_of(folder: &Path) -> Result<BTreeSet<PathBuf>> {
    let mut found = BTreeSet::from(["README.md", "SECURITY.md"].map(PathBuf::from));
    for entry in fs::read_dir(workspace::root().join(folder))? {
        let entry = entry?;
        let path = folder.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            found.extend(documents_of(&path)?);
        } else {
            found.insert(path);
        }
    }
    Ok(found)
}

const MAINTAINER: &str = "The Linerate contributors <linerate@users.noreply.github.com>";

/// Returns both licences, in Debian's format.
fn copyright() -> Result<String> {
    let text = fs::read_to_string(workspace::root().join("LICENSE-MIT"))?;
    let body = text
        .split_once("\n\n")
        .and_then(|(_, rest)| rest.split_once("\n\n"))
        .map_or("", |(_, rest)| rest);
    let indented: String = body
        .lines()
        .map(|line| {
            if line.is_empty() {
                " .\n".to_owned()
            } else {
                format!(" {line}\n")
            }
        })
        .collect();
    Ok(format!(
        "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\n\
         Upstream-Name: linerate\nSource: https://github.com/linerate/linerate\n\n\
         Files: *\nCopyright: 2026 The Linerate contributors\nLicense: Expat or Apache-2.0\n\n\
         License: Expat\n{indented}\n\
         License: Apache-2.0\n On Debian systems, the text of the Apache License 2.0 is in\n /usr/share/common-licenses/Apache-2.0.\n"
    ))
}

/// Returns the control file for dpkg. dpkg-shlibdeps finds the libraries that the program needs, and their
/// versions.
fn control(folder: &Path, root: &Path) -> Result<String> {
    // dpkg-shlibdeps reads the source package's control file in its working directory.
    put(
        &folder.join("debian/control"),
        b"Source: linerate\n\nPackage: linerate\nArchitecture: any\n",
        0o644,
    )?;
    let mut libraries = Command::new("dpkg-shlibdeps");
    libraries
        .current_dir(folder)
        .args(["-O", "root/usr/bin/linerate"])
        .stderr(std::process::Stdio::null());
    let said = process::capture(libraries).context("finding the libraries that linerate needs")?;
    let depends = said
        .trim()
        .strip_prefix("shlibs:Depends=")
        .context("the output of dpkg-shlibdeps")?;
    let bytes = installed_bytes(root)?;
    Ok(format!(
        "Package: linerate\nVersion: {VERSION}\nArchitecture: {}\nMaintainer: {MAINTAINER}\nInstalled-Size: {}\n\
         Depends: {depends}\nSuggests: fuse3\nSection: net\nPriority: optional\n\
         Homepage: https://github.com/linerate/linerate\n\
         Description: IP SAN in one program: iSCSI target, initiator and benchmarks\n \
         Serves block storage over iSCSI, attaches LUNs of any target as files,\n \
         copies them, measures storage and finds out why it is slow. It needs no\n \
         kernel module.\n",
        architecture()?,
        bytes.div_ceil(1024)
    ))
}

fn architecture() -> Result<String> {
    Ok(process::run("dpkg", &["--print-architecture"])?
        .trim()
        .to_owned())
}

/// Returns the time of the last commit, in one of git's formats.
fn commit_time(format: &str) -> Result<String> {
    let mut git = Command::new("git");
    git.current_dir(workspace::root())
        .args(["log", "-1", &format!("--format={format}")]);
    Ok(process::capture(git)?.trim().to_owned())
}

fn stripped(binary: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to.parent().context("a folder")?)?;
    let mut strip = Command::new("strip");
    strip
        .args([
            "--strip-unneeded",
            "--remove-section=.comment",
            "--remove-section=.note",
            "-o",
        ])
        .arg(to)
        .arg(binary);
    process::succeed(strip)?;
    Ok(fs::set_permissions(to, fs::Permissions::from_mode(0o755))?)
}

/// Writes a file with this mode, whatever the umask, and creates its parent directories.
fn put(path: &Path, bytes: &[u8], mode: u32) -> Result<()> {
    fs::create_dir_all(path.parent().context("a folder")?)?;
    fs::write(path, bytes).with_context(|| path.display().to_string())?;
    Ok(fs::set_permissions(path, fs::Permissions::from_mode(mode))?)
}

/// Compresses a file, without the name and time in its header, as lintian requires.
fn compressed(path: &Path) -> Result<()> {
    fs::set_permissions(path, fs::Permissions::from_mode(0o644))?;
    process::run("gzip", &["-9", "-n", &path.display().to_string()]).map(drop)
}

fn installed_bytes(folder: &Path) -> Result<u64> {
    let mut sum = 0;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        sum += if metadata.is_dir() {
            installed_bytes(&entry.path())?
        } else {
            metadata.len()
        };
    }
    Ok(sum)
}
