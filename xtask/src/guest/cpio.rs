//! The archive that Linux unpacks as its initial root file system: cpio's "newc" format
//! (the kernel's Documentation/driver-api/early-userspace/buffer-format.rst).

/// An archive under construction. Directories must be added before their entries.
#[derive(Debug, Default)]
pub(super) struct Archive {
    bytes: Vec<u8>,
    entries: u32,
}

const FOLDER: u32 = 0o040_755;
const PROGRAM: u32 = 0o100_755;
const LINK: u32 = 0o120_777;
const TRAILER: &str = "TRAILER!!!";

impl Archive {
    /// Adds a directory, by its path without a leading slash.
    pub(super) fn folder(&mut self, path: &str) {
        self.entry(path, FOLDER, &[]);
    }

    /// Adds a file that all users can read and execute.
    pub(super) fn file(&mut self, path: &str, content: &[u8]) {
        self.entry(path, PROGRAM, content);
    }

    /// Adds a symbolic link.
    pub(super) fn link(&mut self, path: &str, target: &str) {
        self.entry(path, LINK, target.as_bytes());
    }

    /// The whole archive.
    pub(super) fn finish(mut self) -> Vec<u8> {
        self.entry(TRAILER, 0, &[]);
        self.bytes
    }

    /// Adds an entry: a header of 13 numbers of eight hexadecimal digits, the name with a NUL, and the content. Name and content
    /// are each padded with zeros to a multiple of four.
    fn entry(&mut self, path: &str, mode: u32, content: &[u8]) {
        debug_assert!(!path.starts_with('/'), "{path}");
        self.entries += 1;
        let length = u32::try_from(content.len()).unwrap_or(u32::MAX);
        debug_assert!(length < u32::MAX, "{path} is too long for the format");
        let name_length = path.len() as u32 + 1;
        let (owner, group, links, time, device, checksum) = (0, 0, 1, 0, 0, 0);
        self.bytes.extend(b"070701");
        for number in [
            self.entries,
            mode,
            owner,
            group,
            links,
            time,
            length,
            device,
            device,
            device,
            device,
            name_length,
            checksum,
        ] {
            self.bytes.extend(format!("{number:08x}").bytes());
        }
        self.bytes.extend(path.bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend(content);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_header_and_every_content_begins_at_a_multiple_of_four() {
        let mut archive = Archive::default();
        archive.folder("bin");
        archive.file("bin/sh", b"hello");
        archive.link("init", "bin/sh");
        let bytes = archive.finish();
        assert_eq!(bytes.len() % 4, 0);
        let headers: Vec<usize> = (0..bytes.len()).filter(|&at| bytes[at..].starts_with(b"070701")).collect();
        assert_eq!(headers.len(), 4, "three entries and the trailer");
        assert!(headers.iter().all(|at| at % 4 == 0), "{headers:?}");
        // `bin/sh` has 7 bytes with its NUL: 110 + 7 is padded to 120.
        assert_eq!(&bytes[headers[1] + 120..headers[1] + 125], b"hello");
    }
}
