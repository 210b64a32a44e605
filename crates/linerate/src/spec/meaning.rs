//! What a parsed specification means: sizes, paths and options with their values, and what does not go
//! together.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::str::FromStr;

use block::BlockSize;

use super::error::Problem;
use super::size::Bytes;
use super::syntax::{Choice, Kind, Node, Word, decode};
use super::{BlockShape, Layer, Spec, layers};
use crate::nearest::hint;

pub(super) type Meant<T> = Result<T, Problem>;

/// A whole volume.
pub(super) fn of(node: &Node) -> Meant<Spec> {
    let spec = volume(node)?;
    match inner_of(node) {
        Some(inner) => none_of_a_whole_volume(inner).map(|()| spec),
        None => Ok(spec),
    }
}

fn volume(node: &Node) -> Meant<Spec> {
    let known = known_options(node.kind);
    let options = Options::read(&node.options, known)?;
    let layer = match node.kind {
        Kind::Ram => ram(node, &options)?,
        Kind::File => file(node, &options)?,
        Kind::Null => null(node, &options)?,
        Kind::Delay => layers::delay(node, &options)?,
        Kind::Limit => layers::limit(node)?,
        Kind::Buffered => layers::buffered(node)?,
        Kind::Fault => layers::fault(node)?,
        Kind::Emulated512 => layers::emulated(node)?,
    };
    Ok(Spec {
        layer,
        readonly: options.flag("readonly")?,
        removable: options.flag("removable")?,
        thick: options.flag("thick")?,
    })
}

fn known_options(kind: Kind) -> &'static [&'static str] {
    match kind {
        Kind::Ram => &["block", "physical", "readonly", "removable", "small-pages", "thick"],
        Kind::Null => &["block", "physical", "readonly", "removable", "thick"],
        Kind::File => &["block", "physical", "readonly", "removable", "size", "direct", "thick"],
        Kind::Delay => {
            &["tail", "tail-share", "flush", "stall", "stall-every", "seed", "readonly", "removable", "thick"]
        }
        Kind::Limit | Kind::Buffered | Kind::Fault | Kind::Emulated512 => &["readonly", "removable", "thick"],
    }
}

fn ram(node: &Node, options: &Options<'_>) -> Meant<Layer> {
    let blocks = options.blocks()?;
    let size = capacity(&node.argument, blocks)?;
    Ok(Layer::Ram { size, blocks, small_pages: options.flag("small-pages")? })
}

fn null(node: &Node, options: &Options<'_>) -> Meant<Layer> {
    let blocks = options.blocks()?;
    let size = capacity(&node.argument, blocks)?;
    Ok(Layer::Null { size, blocks })
}

fn file(node: &Node, options: &Options<'_>) -> Meant<Layer> {
    let blocks = options.blocks()?;
    let size = options.value("size")?.map(|size| capacity(size, blocks)).transpose()?;
    Ok(Layer::File { path: path(&node.argument)?, size, blocks, direct: options.flag("direct")? })
}

fn path(word: &Word) -> Meant<PathBuf> {
    let wrong = |sentence: &str| Err(Problem::new(word.at.clone(), sentence));
    if word.text.is_empty() {
        return wrong("a path is missing here; write one such as file:/data/vm1.img");
    }
    if word.text.starts_with("//") {
        return wrong("a file has no host; write one slash: file:/data/vm1.img");
    }
    let bytes = decode(word)?;
    if bytes.contains(&0) {
        return wrong("a path cannot contain the character %00");
    }
    Ok(PathBuf::from(OsString::from_vec(bytes)))
}

fn capacity(word: &Word, blocks: BlockShape) -> Meant<Bytes> {
    let size: Bytes = parsed(word)?;
    let wrong = |sentence: String| Err(Problem::new(word.at.clone(), sentence));
    if size.0 == 0 {
        return wrong("a volume needs at least one block; write a size such as 1GiB".to_owned());
    }
    if size.0 > i64::MAX as u64 {
        return wrong("a volume has less than 8 EiB, as file offsets end there".to_owned());
    }
    let block = u64::from(blocks.logical.bytes());
    if size.0.is_multiple_of(block) {
        return Ok(size);
    }
    let below = Bytes(size.0 - size.0 % block);
    wrong(format!("{size} is not a whole number of {block}-byte blocks; {below} is"))
}

/// The one volume that a layer lies over.
pub(super) fn member(node: &Node) -> Meant<Box<Spec>> {
    let Some(members) = &node.members else {
        let end = node.argument.at.end;
        return Err(Problem::new(end..end, "a volume in brackets is missing here, such as [ram:1GiB]"));
    };
    match members.nodes.as_slice() {
        [only] => volume(only).map(Box::new),
        _ => Err(Problem::new(
            members.at.clone(),
            "this layer lies over one volume; write one in the brackets",
        )),
    }
}

fn inner_of(node: &Node) -> Option<&Node> {
    node.members.as_ref().and_then(|members| members.nodes.first())
}

fn none_of_a_whole_volume(node: &Node) -> Meant<()> {
    let whole = ["removable", "thick"];
    if let Some(choice) = node.options.iter().find(|choice| whole.contains(&choice.key.text.as_str())) {
        let sentence =
            format!("`{}` describes a whole volume; write it behind the last bracket", choice.key.text);
        return Err(Problem::new(choice.key.at.clone(), sentence));
    }
    inner_of(node).map_or(Ok(()), none_of_a_whole_volume)
}

pub(super) fn parsed<T: FromStr<Err: ToString>>(word: &Word) -> Meant<T> {
    word.text.parse().map_err(|error: T::Err| Problem::new(word.at.clone(), error.to_string()))
}

/// The options of one volume: each of them known, none of them twice.
pub(super) struct Options<'a> {
    choices: &'a [Choice],
}

impl<'a> Options<'a> {
    fn read(choices: &'a [Choice], known: &[&str]) -> Meant<Options<'a>> {
        for (index, choice) in choices.iter().enumerate() {
            let key = &choice.key;
            if !known.contains(&key.text.as_str()) {
                let sentence = format!("unknown option `{}`{}", key.text, hint(&key.text, known));
                return Err(Problem::new(key.at.clone(), sentence));
            }
            if choices.iter().take(index).any(|earlier| earlier.key.text == key.text) {
                let sentence = format!("`{}` is given twice; keep one of them", key.text);
                return Err(Problem::new(key.at.clone(), sentence));
            }
        }
        Ok(Options { choices })
    }

    fn find(&self, key: &str) -> Option<&'a Choice> {
        self.choices.iter().find(|choice| choice.key.text == key)
    }

    /// The value of an option that has no meaning without one.
    pub(super) fn value(&self, key: &str) -> Meant<Option<&'a Word>> {
        let Some(choice) = self.find(key) else { return Ok(None) };
        choice
            .value
            .as_ref()
            .filter(|value| !value.text.is_empty())
            .map(Some)
            .ok_or_else(|| Problem::new(choice.key.at.clone(), format!("`{key}` wants a value: {key}=…")))
    }

    /// An option that is on when it is there, unless it says otherwise.
    fn flag(&self, key: &str) -> Meant<bool> {
        let Some(choice) = self.find(key) else { return Ok(false) };
        match choice.value.as_ref().map(|value| value.text.as_str()) {
            None | Some("on") => Ok(true),
            Some("off") => Ok(false),
            Some(_) => {
                let at =
                    choice.value.as_ref().map_or_else(|| choice.key.at.clone(), |value| value.at.clone());
                Err(Problem::new(
                    at,
                    format!("`{key}` is on or off; write {key}=on, {key}=off or just {key}"),
                ))
            }
        }
    }

    fn blocks(&self) -> Meant<BlockShape> {
        let logical = match self.value("block")? {
            None => BlockShape::USUAL.logical,
            Some(word) => logical_block(word)?,
        };
        let physical = match self.value("physical")? {
            None => BlockShape::USUAL.physical.max(logical),
            Some(word) => physical_block(word, logical)?,
        };
        Ok(BlockShape { logical, physical })
    }
}

fn logical_block(word: &Word) -> Meant<BlockSize> {
    let size = parsed(word).ok().and_then(|bytes: Bytes| block_size(bytes));
    size.filter(|size| [BlockSize::B512, BlockSize::B4096].contains(size))
        .ok_or_else(|| Problem::new(word.at.clone(), "a logical block has 512 or 4096 bytes"))
}

fn physical_block(word: &Word, logical: BlockSize) -> Meant<BlockSize> {
    let size = parsed(word).ok().and_then(|bytes: Bytes| block_size(bytes));
    size.filter(|size| *size >= logical).ok_or_else(|| {
        let least = logical.bytes();
        let sentence =
            format!("a physical block has a power of two of bytes, {least} (a logical block) to 65536");
        Problem::new(word.at.clone(), sentence)
    })
}

fn block_size(bytes: Bytes) -> Option<BlockSize> {
    u32::try_from(bytes.0).ok().and_then(BlockSize::new)
}
