//! The standard's layouts, written out by hand: input and output of the state machines are compared with them
//! byte for byte.

mod handshake;
mod requests;
mod rules;

use nbd::flags::transmission;
use nbd::{BlockSizes, Export, Exports};

/// An export `disk` of 64 MiB with all capabilities, and the read-only `old`; each with a description.
struct Disks;

impl Exports for Disks {
    fn list<'a>(&'a self, from: usize) -> Box<dyn Iterator<Item = (&'a str, &'a str)> + 'a> {
        Box::new([("disk", "a disk"), ("old", "")].into_iter().skip(from))
    }

    fn find(&self, name: &str) -> Option<Export> {
        match name {
            "" | "disk" => Some(disk()),
            "old" => Some(Export {
                name: "old".to_owned(),
                description: String::new(),
                flags: transmission::READ_ONLY,
                ..disk()
            }),
            _ => None,
        }
    }
}

fn disk() -> Export {
    Export {
        name: "disk".to_owned(),
        description: "a disk".to_owned(),
        bytes: 64 << 20,
        flags: transmission::SEND_FLUSH
            | transmission::SEND_FUA
            | transmission::SEND_TRIM
            | transmission::SEND_WRITE_ZEROES
            | transmission::SEND_CACHE
            | transmission::SEND_FAST_ZERO
            | transmission::CAN_MULTI_CONN,
        block_sizes: BlockSizes {
            minimum: 1,
            preferred: 4096,
            maximum: 32 << 20,
        },
    }
}

/// Bytes as hexadecimal digits and texts in quotes; white space between them.
fn bytes(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (index, part) in text.split('\'').enumerate() {
        match index % 2 {
            1 => bytes.extend_from_slice(part.as_bytes()),
            _ => {
                let digits: String = part.split_whitespace().collect();
                let pair =
                    |at: usize| u8::from_str_radix(&digits[at..at + 2], 16).expect("two digits");
                bytes.extend((0..digits.len()).step_by(2).map(pair));
            }
        }
    }
    bytes
}
