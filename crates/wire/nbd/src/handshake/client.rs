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
    ALLOCATION, Fields, GREETING_BYTES, INIT_MAGIC, Info, OPTION_MAGIC, OptionCode, REPLY_MAGIC,
    ReplyCode, STRING_BYTES_MAX,
};
use crate::export::{BlockSizes, ChannelName, Export, PAYLOAD_BYTES_MAX, VOLUME};
use crate::flags::{client, handshake, transmission};
use crate::request::{ReplyForm, Session};

const REPLY_HEADER_BYTES: usize = 20;
/// Maximum data of a reply: a name and a description.
const REPLY_BYTES_MAX: usize = 2 * STRING_BYTES_MAX + 64;
/// Maximum number of exports in a list; no server has that many. Together with [`LIST_BYTES_MAX`], this
/// limits the memory that a server can make the client use.
const EXPORTS_MAX: usize = 10_000;
/// Maximum bytes of names and descriptions in a list.
const LIST_BYTES_MAX: usize = 32 << 20;
/// Maximum number of replies to any option except LIST: more than one information item of each kind, or one
/// metadata context for each query.
const REPLIES_MAX: usize = 64;
/// Length of the server's answer to EXPORT_NAME, without the zeros.
const EXPORT_BYTES: usize = 10;
const ZEROES: usize = 124;

/// The client's side of a handshake for one export.
#[derive(Debug)]
pub struct ClientHandshake {
    name: String,
    /// The reported exports, names and descriptions, if only a list was requested.
    list: Option<Vec<(String, String)>>,
    wants_tls: bool,
    awaits: Awaits,
    /// Number of replies to the current option, and their total size in bytes.
    replies: (usize, usize),
    no_zeroes: bool,
    form: ReplyForm,
    /// The server's number for `base:allocation`.
    allocation: Option<u32>,
    /// The connection's name, if the client sends one.
    channel: Option<ChannelName>,
    /// START of the server, if it has accepted the name.
    start: Option<u128>,
    /// The UUID of the volume, if the server reported it.
    volume: Option<u128>,
    told: Told,
}

/// The part that the server must send next.
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
    /// The bytes that follow EXPORT_NAME.
    Export,
}

/// Information on the export reported by the server.
#[derive(Debug, Default)]
struct Told {
    export: Option<(u64, u16)>,
    name: Option<String>,
    description: String,
    sizes: Option<BlockSizes>,
}

/// The next step after the server's bytes have been processed.
#[derive(Debug, PartialEq, Eq)]
pub enum ClientStep {
    /// Send the appended bytes, then receive more.
    Continue,
    /// Start TLS, then call [`ClientHandshake::encrypted`]. Clear text that the server has sent after its
    /// reply must be discarded.
    StartTls,
    /// Requests may be sent.
    Transmission(Session),
    /// Send the appended bytes, and close the connection. Contains the names and descriptions of all exports.
    Listed(Vec<(String, String)>),
}

/// Why there is no session.
#[derive(Clone, Debug, PartialEq, Eq, Display)]
pub enum Refused {
    /// The peer does not speak NBD.
    #[display("the peer is not an NBD server: its greeting starts with 0x{_0:016x}")]
    NotNbd(u64),
    /// The server uses the protocol from before 2011, in which a client cannot select an export.
    #[display("the server supports only the old NBD handshake")]
    OldStyle,
    /// There is no such export.
    #[display("the server has no export `{_0}`")]
    NoExport(String),
    /// TLS is required.
    #[display("the server requires TLS; use nbds:// instead of nbd://")]
    TlsRequired,
    /// TLS is requested, but the server refuses it, for this reason.
    #[display("the server does not support TLS ({_0}), and nothing is sent in clear text")]
    NoTls(Text),
    /// The server refuses the export, for this reason.
    #[display("the server rejects the export: {_0}")]
    Server(Text),
    /// The server has violated the protocol.
    #[display("the server violates the NBD protocol: {_0}")]
    Violation(&'static str),
}

/// Why an option was refused: the server's text, or otherwise the name of its reply.
fn reason(code: ReplyCode, text: &[u8]) -> Text {
    match text.is_empty() {
        true => Text::from(format!("{code:?}")),
        false => Text::from_bytes(text),
    }
}

impl ClientHandshake {
    /// A handshake for the export with this name, up to [`STRING_BYTES_MAX`] bytes.
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

    /// Sends the connection's name to the server, and the connections that must end before this one starts.
    pub fn named(self, channel: ChannelName) -> ClientHandshake {
        ClientHandshake {
            channel: Some(channel),
            ..self
        }
    }

    /// A handshake that only lists all exports.
    pub fn lister() -> ClientHandshake {
        ClientHandshake {
            list: Some(Vec::new()),
            ..ClientHandshake::new("")
        }
    }

    /// Requires TLS: the client requests nothing from the server before TLS has started.
    pub fn over_tls(self) -> ClientHandshake {
        ClientHandshake {
            wants_tls: true,
            ..self
        }
    }

    /// Appends the first bytes to send once TLS has started.
    pub fn encrypted(&mut self, out: &mut Vec<u8>) {
        self.told = Told::default(); // may come from an attacker on the path
        self.ask(self.first(), out);
    }

    /// The first option after STARTTLS.
    fn first(&self) -> OptionCode {
        if self.list.is_some() {
            OptionCode::List
        } else {
            OptionCode::ExtendedHeaders
        }
    }

    /// Number of bytes that [`ClientHandshake::take`] needs: at least one. Do not read beyond them.
    pub fn wanted(&self) -> usize {
        match self.awaits {
            Awaits::Greeting => GREETING_BYTES,
            Awaits::Reply(_) => REPLY_HEADER_BYTES,
            Awaits::Data { bytes, .. } => bytes,
            Awaits::Export => EXPORT_BYTES + if self.no_zeroes { 0 } else { ZEROES },
        }
    }

    /// Processes the wanted number of bytes, and appends bytes to send.
    ///
    /// # Errors
    /// There will be no session.
    pub fn take(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Result<ClientStep, Refused> {
        debug_assert_eq!(bytes.len(), self.wanted(), "the requested number of bytes");
        match self.awaits {
            Awaits::Greeting => self.greeting(bytes, out),
            Awaits::Reply(option) => {
                let mut fields = Fields(bytes);
                let (magic, of) = (fields.eight(), fields.four());
                if magic != Some(REPLY_MAGIC) || of != Some(option as u32) {
                    return Err(Refused::Violation("a reply belongs to another option"));
                }
                let code = fields.four().unwrap_or_default();
                match fields.four().unwrap_or_default() as usize {
                    0 => self.reply(option, code, &[], out),
                    bytes if bytes <= REPLY_BYTES_MAX => {
                        self.awaits = Awaits::Data {
                            option,
                            code,
                            bytes,
                        };
                        Ok(ClientStep::Continue)
                    }
                    _ => Err(Refused::Violation("a reply is too long")),
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
        let (magic, style) = (
            fields.eight().unwrap_or_default(),
            fields.eight().unwrap_or_default(),
        );
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
        // Without fixed newstyle, the server answers only one option.
        let first = match (is_fixed, self.wants_tls) {
            (true, true) => OptionCode::StartTls,
            (true, false) => self.first(),
            (false, true) => {
                return Err(Refused::NoTls("it does not support fixed newstyle".into()));
            }
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
            // Treat unknown errors as errors, and ignore other unknown replies.
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
            (OptionCode::Go, ReplyCode::Ack) => {
                return self.session().map(ClientStep::Transmission);
            }
            (OptionCode::Go, ReplyCode::ErrUnsup) => OptionCode::ExportName,
            (OptionCode::Go, ReplyCode::ErrUnknown) => {
                return Err(Refused::NoExport(self.name.clone()));
            }
            (_, code) => return Err(Refused::Server(reason(code, data))),
        };
        self.ask(next, out);
        Ok(ClientStep::Continue)
    }

    /// Counts a reply, so that a server cannot answer an option endlessly: the limit on the length of a reply
    /// does not limit the number of replies.
    fn count_reply(&mut self, option: OptionCode, bytes: usize) -> Result<(), Refused> {
        let (replies, all_bytes) = (self.replies.0 + 1, self.replies.1 + bytes);
        self.replies = (replies, all_bytes);
        match option {
            OptionCode::List
                if all_bytes > LIST_BYTES_MAX || replies > EXPORTS_MAX + REPLIES_MAX =>
            {
                Err(Refused::Violation("the export list is too long"))
            }
            OptionCode::List => Ok(()),
            _ if replies > REPLIES_MAX => {
                Err(Refused::Violation("it sends too many replies to an option"))
            }
            _ => Ok(()),
        }
    }

    /// Appends an option.
    fn ask(&mut self, option: OptionCode, out: &mut Vec<u8>) {
        debug_assert!(
            self.name.len() <= STRING_BYTES_MAX,
            "an export name is too long"
        );
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
                infos
                    .iter()
                    .for_each(|info| out.extend((*info as u16).to_be_bytes()));
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
        self.awaits = if option == OptionCode::ExportName {
            Awaits::Export
        } else {
            Awaits::Reply(option)
        };
    }

    /// Adds an export to the list. The data is the length of its name, its name, and its description.
    fn listed(&mut self, data: &[u8]) -> Result<(), Refused> {
        let mut fields = Fields(data);
        let name = fields.string().ok_or(Refused::Violation(
            "an export name is truncated or not valid UTF-8",
        ))?;
        let description = String::from_utf8_lossy(fields.0).into_owned();
        match &mut self.list {
            Some(list) if list.len() < EXPORTS_MAX => list.push((name.to_owned(), description)),
            _ => return Err(Refused::Violation("the export list is too long")),
        }
        Ok(())
    }

    fn info(&mut self, data: &[u8]) -> Result<(), Refused> {
        let mut fields = Fields(data);
        let kind = fields
            .two()
            .ok_or(Refused::Violation("an information reply has no type"))?;
        let text = |fields: Fields<'_>| String::from_utf8_lossy(fields.0).into_owned();
        match Info::try_from(kind) {
            Ok(Info::Export) => self.told.export = fields.eight().zip(fields.two()),
            Ok(Info::Name) => self.told.name = Some(text(fields)),
            Ok(Info::Description) => self.told.description = text(fields),
            Ok(Info::BlockSize) => {
                let sizes = (fields.four(), fields.four(), fields.four());
                let (Some(minimum), Some(preferred), Some(maximum)) = sizes else {
                    return Err(Refused::Violation("the block sizes are truncated"));
                };
                if !minimum.is_power_of_two() || minimum > 65_536 || maximum < minimum {
                    return Err(Refused::Violation("the block sizes are inconsistent"));
                }
                self.told.sizes = Some(BlockSizes {
                    minimum,
                    preferred,
                    maximum,
                });
            }
            Err(_) => {}
        }
        Ok(())
    }

    fn session(&mut self) -> Result<Session, Refused> {
        let told = std::mem::take(&mut self.told);
        let (bytes, flags) = told
            .export
            .ok_or(Refused::Violation("an export has no size"))?;
        if flags & transmission::HAS_FLAGS == 0 {
            return Err(Refused::Violation("an export has no flags"));
        }
        // Defaults, if the server does not report block sizes (section "Block size constraints").
        let usual = BlockSizes {
            minimum: 512,
            preferred: 4096,
            maximum: PAYLOAD_BYTES_MAX,
        };
        let export = Export {
            name: told.name.unwrap_or_else(|| self.name.clone()),
            description: told.description,
            bytes,
            flags,
            block_sizes: told.sizes.unwrap_or(usual),
        };
        let accepted = self.start.take().zip(self.channel.take());
        let volume = self.volume.take();
        let channel = accepted.map(|(start, channel)| ChannelName {
            start,
            volume,
            ..channel
        });
        Ok(Session {
            export,
            form: self.form,
            allocation: self.allocation,
            channel,
        })
    }
}
