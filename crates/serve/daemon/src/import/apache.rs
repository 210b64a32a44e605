//! The format of `targets.conf`: lines with a key and a value in nested blocks, as parsed by Perl's
//! Config::General with the options set by `tgt-admin`.
//!
//! ```text
//! include conf.d/*.conf
//! <target iqn.2026-01.com.example:disks>
//!     incominguser alice secret      # a comment
//!     <backing-store /dev/sdb>
//!         lun = 3
//!     </backing-store>
//! </target>
//! ```

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use backends::Failure;

use super::san::{Place, Reader};

/// A line with a key, or a block.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) key: String,
    /// The value after the key, without surrounding quotes.
    pub(super) value: String,
    pub(super) place: Place,
    /// The lines of a block; `None` for a line.
    pub(super) block: Option<Vec<Entry>>,
}

/// A block whose end has not been read yet.
struct Open {
    entry: Entry,
    inside: Vec<Entry>,
}

struct Parser<'a> {
    reader: &'a mut Reader,
    /// Files that have been read. As in tgt-admin, a file is skipped the second time, so that cyclic includes
    /// are not read forever.
    seen: HashSet<PathBuf>,
    root: Vec<Entry>,
    open: Vec<Open>,
}

/// Maximum nesting of blocks. Deeper nesting has no meaning in a `targets.conf`.
const BLOCKS_MAX: usize = 8;
const INCLUDES_MAX: usize = 16;

/// Reads all lines of `text`, the content of `path`, and of the files that it includes.
pub(super) fn entries(path: &Path, text: &str, reader: &mut Reader) -> Result<Vec<Entry>, Failure> {
    let mut parser = Parser {
        reader,
        seen: HashSet::from([whole(path)]),
        root: Vec::new(),
        open: Vec::new(),
    };
    parser.file(path, text, 0)?;
    match parser.open.pop() {
        None => Ok(parser.root),
        Some(open) => Err(refused(
            &open.entry.place,
            &format!("<{}> has no closing tag", open.entry.key),
        )),
    }
}

fn refused(place: &Place, sentence: &str) -> Failure {
    let sentence: String = sentence
        .chars()
        .map(|c| if c.is_control() { '?' } else { c })
        .collect();
    Failure::refused(format_args!("{}:{}: {sentence}", place.file, place.line))
}

impl Parser<'_> {
    fn file(&mut self, path: &Path, text: &str, depth: usize) -> Result<(), Failure> {
        let file: Rc<str> = path.display().to_string().into();
        // A line that ends with a backslash continues on the next line. The joined line has the number of its
        // first line.
        let mut unfinished: Option<(usize, String)> = None;
        let mut in_comment = false;
        for (index, line) in text.lines().enumerate() {
            let Some(line) = without_block_comment(line, &mut in_comment) else {
                continue;
            };
            let line = without_comment(&line);
            let (number, mut whole) = unfinished.take().unwrap_or((index + 1, String::new()));
            if let Some(begun) = line
                .strip_suffix('\\')
                .filter(|begun| !begun.ends_with('\\'))
            {
                whole += begun.trim_start();
                unfinished = Some((number, whole));
                continue;
            }
            whole += line.trim();
            let place = Place {
                file: Rc::clone(&file),
                line: number,
            };
            self.line(whole.trim(), place, path, depth)?;
        }
        match unfinished {
            Some((number, whole)) => {
                self.line(whole.trim(), Place { file, line: number }, path, depth)
            }
            None => Ok(()),
        }
    }

    fn line(&mut self, line: &str, place: Place, path: &Path, depth: usize) -> Result<(), Failure> {
        if line.is_empty() {
            return Ok(());
        }
        if let Some(heading) = line
            .strip_prefix('<')
            .and_then(|rest| rest.strip_suffix('>'))
        {
            return match heading.strip_prefix('/') {
                Some(name) => self.end(name.trim(), &place),
                None => self.begin(heading, place),
            };
        }
        let (key, value) = split(line);
        if key.eq_ignore_ascii_case("include") || key.eq_ignore_ascii_case("includeoptional") {
            let optional = !key.eq_ignore_ascii_case("include");
            return self.include(value, optional, &place, path, depth);
        }
        self.push(Entry {
            key: key.to_owned(),
            value: unescaped(value),
            place,
            block: None,
        });
        Ok(())
    }

    fn push(&mut self, entry: Entry) {
        match self.open.last_mut() {
            Some(open) => open.inside.push(entry),
            None => self.root.push(entry),
        }
    }

    fn begin(&mut self, heading: &str, place: Place) -> Result<(), Failure> {
        if self.open.len() >= BLOCKS_MAX {
            return Err(refused(&place, "blocks are nested too deeply"));
        }
        // `<backing-store /dev/sdb/>` is an empty block.
        let (heading, is_empty) = heading
            .strip_suffix('/')
            .map_or((heading, false), |rest| (rest, true));
        let (key, value) = heading
            .trim()
            .split_once(char::is_whitespace)
            .unwrap_or((heading.trim(), ""));
        let (key, value) = (unquoted(key).to_owned(), unescaped(value.trim()));
        let entry = Entry {
            key,
            value,
            place,
            block: None,
        };
        self.open.push(Open {
            entry,
            inside: Vec::new(),
        });
        if is_empty {
            self.finish()
        }
        Ok(())
    }

    fn end(&mut self, name: &str, place: &Place) -> Result<(), Failure> {
        match self.open.last() {
            Some(open) if open.entry.key == name => self.finish(),
            Some(open) => {
                let sentence = format!(
                    "</{name}> instead of </{}> for line {}",
                    open.entry.key, open.entry.place.line
                );
                return Err(refused(place, &sentence));
            }
            None => return Err(refused(place, &format!("</{name}> without <{name}>"))),
        }
        Ok(())
    }

    fn finish(&mut self) {
        if let Some(Open { entry, inside }) = self.open.pop() {
            self.push(Entry {
                block: Some(inside),
                ..entry
            });
        }
    }

    /// Reads an included file. A relative name is resolved against the directory of the including file,
    /// because tgt-admin's working directory is unknown.
    fn include(
        &mut self,
        value: &str,
        optional: bool,
        place: &Place,
        path: &Path,
        depth: usize,
    ) -> Result<(), Failure> {
        if depth >= INCLUDES_MAX {
            return Err(refused(place, "files include each other too deeply"));
        }
        let named = path
            .parent()
            .unwrap_or(Path::new(""))
            .join(unquoted(value.trim()));
        let files = matching(&named).map_err(|why| refused(place, &format!("include: {why}")))?;
        let Some(files) = files else {
            return match optional {
                true => Ok(()),
                false => Err(refused(
                    place,
                    &format!("include: {} does not exist", named.display()),
                )),
            };
        };
        for file in files {
            if !self.seen.insert(whole(&file)) {
                continue;
            }
            let text = self.reader.read(&file)?;
            self.file(&file, &text, depth + 1)?;
        }
        Ok(())
    }
}

/// Returns a path that identifies a file, whichever name it was opened by.
fn whole(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

/// Returns the files selected by an include, in order; `None` if it names a missing file. A pattern may match
/// none.
fn matching(named: &Path) -> Result<Option<Vec<PathBuf>>, String> {
    let is_pattern = |text: &str| text.contains(['*', '?', '[', '{']);
    let name = named
        .file_name()
        .and_then(|name| name.to_str())
        .unwrap_or_default();
    let folder = named.parent().unwrap_or(Path::new(""));
    if is_pattern(&folder.to_string_lossy()) || name.contains(['[', '{']) {
        return Err(format!(
            "only * and ? in the last part of {} are supported",
            named.display()
        ));
    }
    if is_pattern(name) {
        return Ok(Some(listed(folder, |file| {
            matches(name.as_bytes(), file.as_bytes())
        })));
    }
    if named.is_dir() {
        return Ok(Some(listed(named, |_| true)));
    }
    Ok(named.is_file().then(|| vec![named.to_owned()]))
}

fn listed(folder: &Path, wanted: impl Fn(&str) -> bool) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder)
        .into_iter()
        .flatten()
        .filter_map(Result::ok);
    let is_wanted = |path: &PathBuf| {
        path.is_file()
            && path
                .file_name()
                .is_some_and(|name| wanted(&name.to_string_lossy()))
    };
    let mut files: Vec<PathBuf> = entries
        .map(|entry| entry.path())
        .filter(is_wanted)
        .collect();
    files.sort();
    files
}

/// Whether a name matches a pattern with `*` and `?`. As in shells, neither matches a leading dot.
fn matches(pattern: &[u8], name: &[u8]) -> bool {
    if name.first() == Some(&b'.') && pattern.first() != Some(&b'.') {
        return false;
    }
    // Start with the shortest match of the last star, and extend it when the rest does not match.
    let (mut p, mut n) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while let Some(letter) = name.get(n) {
        match pattern.get(p) {
            Some(b'*') => {
                star = Some((p, n));
                p += 1;
            }
            Some(wanted) if *wanted == b'?' || wanted == letter => (p, n) = (p + 1, n + 1),
            _ => match star {
                Some((at, from)) => {
                    star = Some((at, from + 1));
                    (p, n) = (at + 1, from + 1);
                }
                None => return false,
            },
        }
    }
    pattern
        .get(p..)
        .is_some_and(|rest| rest.iter().all(|letter| *letter == b'*'))
}

/// Removes C comments from a line; `None` if all of it is inside one.
fn without_block_comment(line: &str, inside: &mut bool) -> Option<String> {
    if *inside {
        let (_, rest) = line.split_once("*/")?;
        *inside = false;
        return Some(rest.to_owned());
    }
    // A path with a pattern, such as `include /etc/tgt/*/x`, contains the start of a comment, but no end on
    // the same line.
    match line
        .split_once("/*")
        .map(|(before, rest)| (before, rest.rsplit_once("*/")))
    {
        Some((before, Some((_, after)))) => Some(format!("{}{after}", before.trim_end())),
        Some((before, None)) if before.trim().is_empty() => {
            *inside = true;
            None
        }
        _ => Some(line.to_owned()),
    }
}

/// Removes everything after a `#` that has no backslash before it.
fn without_comment(line: &str) -> &str {
    let begins = line
        .char_indices()
        .find(|(at, c)| *c == '#' && !line[..*at].ends_with('\\'));
    begins.map_or(line, |(at, _)| &line[..at]).trim_end()
}

/// Splits at the first `=` or white space.
fn split(line: &str) -> (&str, &str) {
    let Some(end) = line.find(|c: char| c == '=' || c.is_whitespace()) else {
        return (line, "");
    };
    let (key, rest) = line.split_at(end);
    let rest = rest.trim_start();
    (key, rest.strip_prefix('=').unwrap_or(rest).trim())
}

fn unquoted(text: &str) -> &str {
    let inside = |quote| {
        text.strip_prefix(quote)
            .and_then(|rest: &str| rest.strip_suffix(quote))
    };
    inside('"').or_else(|| inside('\'')).unwrap_or(text)
}

/// Returns the value as Config::General does: without surrounding quotes, and with `\#` as `#`.
fn unescaped(text: &str) -> String {
    let text = text
        .strip_prefix('"')
        .and_then(|rest| rest.strip_suffix('"'))
        .unwrap_or(text);
    text.replace("\\#", "#")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<Entry>, String> {
        entries(Path::new("/x/t.conf"), text, &mut Reader::default())
            .map_err(|error| error.to_string())
    }

    fn told(entries: &[Entry]) -> String {
        let one = |entry: &Entry| match &entry.block {
            None => format!("{}:{}={}", entry.place.line, entry.key, entry.value),
            Some(inside) => format!(
                "{}:{}={}({})",
                entry.place.line,
                entry.key,
                entry.value,
                told(inside)
            ),
        };
        entries.iter().map(one).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn lines_and_blocks_are_read_as_tgt_admin_reads_them() {
        let text = "# a comment\n\ndefault-driver = iscsi # another\n/* one\n more */\n<target iqn.a>\n  \
                    <backing-store \"/dev/a b\">\n lun 3\n </backing-store>\n incominguser alice a\\#b=c\n\
                    vendor_id = \"A B\" \n params a \\\n   b\n</target>\n<backing-store /x/>\n";
        let expected = "3:default-driver=iscsi 6:target=iqn.a(7:backing-store=/dev/a b(8:lun=3) \
                        10:incominguser=alice a#b=c 11:vendor_id=A B 12:params=a b) 15:backing-store=/x()";
        assert_eq!(told(&read(text).expect("good")), expected);
    }

    #[test]
    fn mistakes_have_their_line() {
        for (text, expected) in [
            (
                "a b\n<target x>\n",
                "/x/t.conf:2: <target> has no closing tag",
            ),
            ("</target>\n", "/x/t.conf:1: </target> without <target>"),
            (
                "<target x>\n</backing-store>\n",
                "/x/t.conf:2: </backing-store> instead of </target> for line 1",
            ),
            (
                "include no.conf\n",
                "/x/t.conf:1: include: /x/no.conf does not exist",
            ),
            (
                "include /a*/b\n",
                "/x/t.conf:1: include: only * and ? in the last part of /a*/b are supported",
            ),
            (
                &"<a b>\n".repeat(9),
                "/x/t.conf:9: blocks are nested too deeply",
            ),
        ] {
            assert_eq!(read(text).expect_err("a mistake"), expected, "{text}");
        }
        assert_eq!(
            told(&read("include /nothing/*.conf\nincludeoptional no.conf\n").expect("good")),
            ""
        );
    }

    #[test]
    fn files_are_included_once_each_and_a_cycle_ends() {
        let folder = tempfile::tempdir().expect("a folder");
        let write =
            |name: &str, text: &str| fs::write(folder.path().join(name), text).expect("written");
        fs::create_dir(folder.path().join("d")).expect("a folder");
        write("d/b.conf", "b 1\ninclude ../t.conf\ninclude b.conf\n");
        write("d/a.conf", "a 1\n");
        write("d/.hidden.conf", "hidden 1\n");
        write("d/c.txt", "c 1\n");
        let path = folder.path().join("t.conf");
        let text = "include d/*.conf\ninclude d\nlast 1\n";
        fs::write(&path, text).expect("written");
        let read = entries(&path, text, &mut Reader::default()).expect("good");
        let keys: Vec<&str> = read.iter().map(|entry| entry.key.as_str()).collect();
        // A pattern does not match hidden files, but including a directory includes them.
        assert_eq!(keys, ["a", "b", "hidden", "c", "last"]);
    }

    #[test]
    fn stars_match_as_in_shells() {
        for (pattern, name, expected) in [
            ("*.conf", "a.conf", true),
            ("*.conf", ".conf", false),
            ("a*b*c", "aXbYbZc", true),
            ("a?c", "abc", true),
            ("a?c", "ac", false),
            ("*", "", true),
            ("*a", "aaab", false),
        ] {
            assert_eq!(
                matches(pattern.as_bytes(), name.as_bytes()),
                expected,
                "{pattern} {name}"
            );
        }
    }
}
