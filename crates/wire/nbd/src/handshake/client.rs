//! The client's side of the handshake.
//!
//! ```text
//!   greeting ─► client flags [─► STARTTLS ─► TLS]
//!                    ▼
//!            EXTENDED_HEADERS ── refused ───────────────► STRUCTURED_REPLY
//!                    │ accepted                                 │ accepted ┬ refused
//!                    └───────────────► SET_META_CONTEXT ◄───────┘          │
//!                                           └──────────► GO ◄──────────────┘
//!                                                        │ └─ unknown to the server ─► EXPORT_NAME
//!                                                        └─► a Session
//! ```

use derive_more::Display;
use foreign::Text;

use super::{
    ALLOCATION, Fields, GREETING_BYTES, INIT_MAGIC, Info, OPTION_MAGIC, OptionCode, REPLY_MAGIC, ReplyCode,
    STRING_BYTES_MAX,
};
use crate::export::{BlockSizes, ChannelName, Export, PAYLOAD_BYTES_MAX, VOLUME};
use crate::flags::{client, handshake, transmission};
use crate::request::{ReplyForm, Session};

const REPLY_HEADER_BYTES: usize = 20;
/// The longest data of a reply: a name and a description.
const REPLY_BYTES_MAX: usize = 2 * STRING_BYTES_MAX + 64;
/// More exports than any server has: with the next limit, this bounds what one can have kept.
const EXPORTS_MAX: usize = 10_000;
/// More bytes of names and descriptions than those of a list.
const LIST_BYTES_MAX: usize = 32 << 20;
/// More replies than any other option has: an information of each kind, or a metadata context for each query.
const REPLIES_MAX: usize = 64;
/// What follows EXPORT_NAME, but for the zeros.
const EXPORT_BYTES: usize = 10;
const ZEROES: usize = 124;

/// The client's side of a handshake for one export.
#[derive(Debug)]
pub struct ClientHandshake {
    name: String,
    /// The exports that the server has told of, names and descriptions, if it is asked for nothing else.
    list: Option<Vec<(String, String)>>,
    wants_tls: bool,
    awaits: Awaits,
    /// How many replies to the present option have come, and their bytes.
    replies: (usize, usize),
    no_zeroes: bool,
    form: ReplyForm,
    /// The number that the server has given `base:allocation`.
    allocation: Option<u32>,
    /// The connection's name, and whether the server has selected it.
    channel: Option<ChannelName>,
    /// The start of a server that has accepted the name.
    start: Option<u128>,
    /// The volume that it has told of.
    volume: Option<u128>,
    told: Told,
}

/// What the server is to send next.
#[derive(Clone, Copy, Debug)]
enum Awaits {
    Greeting,
    /// The header of a reply to this option.
    Reply(OptionCode),
    Data {
        option: OptionCode,
        code: u32,
        bytes: usize,
    },
    /// What follows EXPORT_NAME.
    Export,
}

/// What the server has told of the export.
#[derive(Debug, Default)]
struct Told {
    export: Option<(u64, u16)>,
    name: Option<String>,
    description: String,
    sizes: Option<BlockSizes>,
}

/// What follows what the server has sent.
#[derive(Debug, PartialEq, Eq)]
pub enum ClientStep {
    /// Send what was appended, then receive more.
    Continue,
    /// TLS follows, and then [`ClientHandshake::encrypted`]. What the server has sent behind its reply in clear text must not
    /// be taken.
    StartTls,
    /// Requests may be sent.
    Transmission(Session),
    /// Send what was appended, and close the connection: these are the exports, names and descriptions.
    Listed(Vec<(String, String)>),
}

/// Why there is no session.
#[derive(Clone, Debug, PartialEq, Eq, Display)]
pub enum Refused {
    /// The other end does not speak NBD.
    #[display("no NBD server: it begins with 0x{_0:016x}")]
    NotNbd(u64),
    /// It speaks a protocol of before 2011, in which an export cannot be chosen.
    #[display("the server speaks the old style of NBD only")]
    OldStyle,
    /// There is no such export.
    #[display("the server has no export `{_0}`")]
    NoExport(String),
    /// TLS is required.
    #[display("the server requires TLS; write nbds:// instead of nbd://")]
    TlsRequired,
    /// TLS is wanted, and the server refuses it, for this reason.
    #[display("the server has no TLS ({_0}), and nothing is sent to it in clear text")]
    NoTls(Text),
    /// The server refuses the export, for this reason.
    #[display("the server refuses the export: {_0}")]
    Server(Text),
    /// The server has broken a rule.
    #[display("the server breaks the protocol: {_0}")]
    Violation(&'static str),
}

/// Why an option was refused: the server's words, or else the name of its reply.
fn reason(code: ReplyCode, text: &[u8]) -> Text {
    match text.is_empty() {
        true => Text::from(format!("{code:?}")),
        false => Text::from_bytes(text),
    }
}

impl ClientHandshake {
    /// For the export of this name, at most [`STRING_BYTES_MAX`] bytes.
    pub fn new(name: &str) -> ClientHandshake {
        ClientHandshake {
            name: name.to_owned(),
            list: None,
            wants_tls: false,
            awaits: Awaits::Greeting,
            replies: (0, 0),
            no_zeroes: false,
            form: ReplyForm::Simple,
            allocation: None,
            channel: None,
            start: None,
            volume: None,
            told: Told::default(),
        }
    }

    /// Tells the server the connection's name, and which others have to end before this one begins.
    pub fn named(self, channel: ChannelName) -> ClientHandshake {
        ClientHandshake { channel: Some(channel), ..self }
    }

    /// For the list of all exports.
    pub fn lister() -> ClientHandshake {
        ClientHandshake { list: Some(Vec::new()), ..ClientHandshake::new("") }
    }

    /// The same over TLS, without which nothing is asked.
    pub fn over_tls(self) -> ClientHandshake {
        ClientHandshake { wants_tls: true, ..self }
    }

    /// Appends what is sent first once TLS has begun.
    pub fn encrypted(&mut self, out: &mut Vec<u8>) {
        self.told = Told::default(); // by whoever is on the path
        self.ask(self.first(), out);
    }

    /// The first option, but for STARTTLS.
    fn first(&self) -> OptionCode {
        if self.list.is_some() { OptionCode::List } else { OptionCode::ExtendedHeaders }
    }

    /// How many bytes [`ClientHandshake::take`] needs: at least one. Nothing beyond them may be read.
    pub fn wanted(&self) -> usize {
        match self.awaits {
            Awaits::Greeting => GREETING_BYTES,
            Awaits::Reply(_) => REPLY_HEADER_BYTES,
            Awaits::Data { bytes, .. } => bytes,
            Awaits::Export => EXPORT_BYTES + if self.no_zeroes { 0 } else { ZEROES },
        }
    }

    /// Takes as many bytes as were wanted, and appends what is to be sent.
    ///
    /// # Errors
    /// There will be no session.
    pub fn take(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Result<ClientStep, Refused> {
        debug_assert_eq!(bytes.len(), self.wanted(), "as many bytes as were wanted");
        match self.awaits {
            Awaits::Greeting => self.greeting(bytes, out),
            Awaits::Reply(option) => {
                let mut fields = Fields(bytes);
                let (magic, of) = (fields.eight(), fields.four());
                if magic != Some(REPLY_MAGIC) || of != Some(option as u32) {
                    return Err(Refused::Violation("a reply to another option"));
                }
                let code = fields.four().unwrap_or_default();
                match fields.four().unwrap_or_default() as usize {
                    0 => self.reply(option, code, &[], out),
                    bytes if bytes <= REPLY_BYTES_MAX => {
                        self.awaits = Awaits::Data { option, code, bytes };
                        Ok(ClientStep::Continue)
                    }
                    _ => Err(Refused::Violation("a reply that is too long")),
                }
            }
            Awaits::Data { option, code, .. } => self.reply(option, code, bytes, out),
            Awaits::Export => {
                let mut fields = Fields(bytes);
                self.told.export = fields.eight().zip(fields.two());
                self.session().map(ClientStep::Transmission)
            }
        }
    }

    fn greeting(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Result<ClientStep, Refused> {
        let mut fields = Fields(bytes);
        let (magic, style) = (fields.eight().unwrap_or_default(), fields.eight().unwrap_or_default());
        let flags = fields.two().unwrap_or_default();
        if magic != INIT_MAGIC {
            return Err(Refused::NotNbd(magic));
        }
        if style != OPTION_MAGIC {
            return Err(Refused::OldStyle);
        }
        self.no_zeroes = flags & handshake::NO_ZEROES != 0;
        let zeroes = if self.no_zeroes { client::NO_ZEROES } else { 0 };
        let is_fixed = flags & handshake::FIXED_NEWSTYLE != 0;
        let fixed = if is_fixed { client::FIXED_NEWSTYLE } else { 0 };
        out.extend((zeroes | fixed).to_be_bytes());
        // Without fixed newstyle only one option has an answer.
        let first = match (is_fixed, self.wants_tls) {
            (true, true) => OptionCode::StartTls,
            (true, false) => self.first(),
            (false, true) => return Err(Refused::NoTls("it does not know fixed newstyle".into())),
            (false, false) if self.list.is_some() => return Err(Refused::OldStyle),
            (false, false) => OptionCode::ExportName,
        };
        self.ask(first, out);
        Ok(ClientStep::Continue)
    }

    fn reply(
        &mut self,
        option: OptionCode,
        code: u32,
        data: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<ClientStep, Refused> {
        self.awaits = Awaits::Reply(option);
        self.count_reply(option, data.len())?;
        let code = match ReplyCode::try_from(code) {
            Ok(code) => code,
            // Errors that are unknown are errors; other replies that are unknown are no reason to end.
            Err(_) if code >> 31 == 1 => ReplyCode::ErrUnsup,
            Err(_) => return Ok(ClientStep::Continue),
        };
        let next = match (option, code) {
            (_, ReplyCode::Info) => {
                self.info(data)?;
                return Ok(ClientStep::Continue);
            }
            (OptionCode::List, ReplyCode::Server) => {
                self.listed(data)?;
                return Ok(ClientStep::Continue);
            }
            (OptionCode::List, ReplyCode::Ack) => {
                self.ask(OptionCode::Abort, out);
                return Ok(ClientStep::Listed(self.list.take().unwrap_or_default()));
            }
            (OptionCode::SetMetaContext, ReplyCode::MetaContext) => {
                let mut fields = Fields(data);
                let number = fields.four();
                match fields.0 == ALLOCATION.as_bytes() {
                    true => self.allocation = number,
                    false => {
                        self.start = self.start.or(ChannelName::start(fields.0));
                        self.volume = self.volume.or(ChannelName::volume(fields.0));
                    }
                }
                return Ok(ClientStep::Continue);
            }
            (OptionCode::ExtendedHeaders, ReplyCode::Ack) => {
                self.form = ReplyForm::Extended;
                OptionCode::SetMetaContext
            }
            (OptionCode::StructuredReply, ReplyCode::Ack) => {
                self.form = ReplyForm::Structured;
                OptionCode::SetMetaContext
            }
            (OptionCode::StartTls, ReplyCode::Ack) => return Ok(ClientStep::StartTls),
            (OptionCode::StartTls, code) => return Err(Refused::NoTls(reason(code, data))),
            (_, ReplyCode::ErrTlsReqd) => return Err(Refused::TlsRequired),
            (OptionCode::ExtendedHeaders, _) => OptionCode::StructuredReply,
            (OptionCode::StructuredReply | OptionCode::SetMetaContext, _) => OptionCode::Go,
            (OptionCode::Go, ReplyCode::Ack) => return self.session().map(ClientStep::Transmission),
            (OptionCode::Go, ReplyCode::ErrUnsup) => OptionCode::ExportName,
            (OptionCode::Go, ReplyCode::ErrUnknown) => return Err(Refused::NoExport(self.name.clone())),
            (_, code) => return Err(Refused::Server(reason(code, data))),
        };
        self.ask(next, out);
        Ok(ClientStep::Continue)
    }

    /// A limit of each reply is none of all: a server that never ends an option is not heard for as long as it likes.
    fn count_reply(&mut self, option: OptionCode, bytes: usize) -> Result<(), Refused> {
        let (replies, all_bytes) = (self.replies.0 + 1, self.replies.1 + bytes);
        self.replies = (replies, all_bytes);
        match option {
            OptionCode::List if all_bytes > LIST_BYTES_MAX || replies > EXPORTS_MAX + REPLIES_MAX => {
                Err(Refused::Violation("more exports than a list may have"))
            }
            OptionCode::List => Ok(()),
            _ if replies > REPLIES_MAX => Err(Refused::Violation("an option that it answers without end")),
            _ => Ok(()),
        }
    }

    /// Appends an option.
    fn ask(&mut self, option: OptionCode, out: &mut Vec<u8>) {
        debug_assert!(self.name.len() <= STRING_BYTES_MAX, "a name that is too long");
        out.extend(OPTION_MAGIC.to_be_bytes());
        out.extend((option as u32).to_be_bytes());
        let length_at = out.len();
        out.extend([0; 4]);
        let name = self.name.as_bytes();
        let named = |out: &mut Vec<u8>, name: &[u8]| {
            out.extend((name.len() as u32).to_be_bytes());
            out.extend(name);
        };
        match option {
            OptionCode::ExportName => out.extend(name),
            OptionCode::Go => {
                named(out, name);
                let infos = [Info::Name, Info::Description, Info::BlockSize];
                out.extend((infos.len() as u16).to_be_bytes());
                infos.iter().for_each(|info| out.extend((*info as u16).to_be_bytes()));
            }
            OptionCode::SetMetaContext => {
                named(out, name);
                out.extend((1 + 2 * u32::from(self.channel.is_some())).to_be_bytes());
                named(out, ALLOCATION.as_bytes());
                if let Some(channel) = &self.channel {
                    named(out, channel.to_string().as_bytes());
                    named(out, VOLUME.as_bytes());
                }
            }
            _ => {}
        }
        self.replies = (0, 0);
        let length = (out.len() - length_at - 4) as u32;
        out[length_at..length_at + 4].copy_from_slice(&length.to_be_bytes());
        self.awaits = if option == OptionCode::ExportName { Awaits::Export } else { Awaits::Reply(option) };
    }

    /// An export of the list: the length of its name, its name, its description.
    fn listed(&mut self, data: &[u8]) -> Result<(), Refused> {
        let mut fields = Fields(data);
        let name =
            fields.string().ok_or(Refused::Violation("an export whose name is cut off, or no UTF-8"))?;
        let description = String::from_utf8_lossy(fields.0).into_owned();
        match &mut self.list {
            Some(list) if list.len() < EXPORTS_MAX => list.push((name.to_owned(), description)),
            _ => return Err(Refused::Violation("more exports than a list may have")),
        }
        Ok(())
    }

    fn info(&mut self, data: &[u8]) -> Result<(), Refused> {
        let mut fields = Fields(data);
        let kind = fields.two().ok_or(Refused::Violation("an information without a type"))?;
        let text = |fields: Fields<'_>| String::from_utf8_lossy(fields.0).into_owned();
        match Info::try_from(kind) {
            Ok(Info::Export) => self.told.export = fields.eight().zip(fields.two()),
            Ok(Info::Name) => self.told.name = Some(text(fields)),
            Ok(Info::Description) => self.told.description = text(fields),
            Ok(Info::BlockSize) => {
                let sizes = (fields.four(), fields.four(), fields.four());
                let (Some(minimum), Some(preferred), Some(maximum)) = sizes else {
                    return Err(Refused::Violation("block sizes that are cut off"));
                };
                if !minimum.is_power_of_two() || minimum > 65_536 || maximum < minimum {
                    return Err(Refused::Violation("block sizes that nothing fits"));
                }
                self.told.sizes = Some(BlockSizes { minimum, preferred, maximum });
            }
            Err(_) => {}
        }
        Ok(())
    }

    fn session(&mut self) -> Result<Session, Refused> {
        let told = std::mem::take(&mut self.told);
        let (bytes, flags) = told.export.ok_or(Refused::Violation("an export without a size"))?;
        if flags & transmission::HAS_FLAGS == 0 {
            return Err(Refused::Violation("an export without flags"));
        }
        // What clients may assume that were not told (section "Block size constraints").
        let usual = BlockSizes { minimum: 512, preferred: 4096, maximum: PAYLOAD_BYTES_MAX };
        let export = Export {
            name: told.name.unwrap_or_else(|| self.name.clone()),
            description: told.description,
            bytes,
            flags,
            block_sizes: told.sizes.unwrap_or(usual),
        };
        let accepted = self.start.take().zip(self.channel.take());
        let volume = self.volume.take();
        let channel = accepted.map(|(start, channel)| ChannelName { start, volume, ..channel });
        Ok(Session { export, form: self.form, allocation: self.allocation, channel })
    }
}
