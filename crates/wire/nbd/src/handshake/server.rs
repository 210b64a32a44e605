//! The server's side of the handshake (section "Fixed newstyle negotiation").
//!
//! ```text
//!   greeting ─► client flags ─► option ─► its data ─► replies ─► option …
//!                                 │ ▲                   │
//!                       too long: ▼ │ dropped           ├─ GO, EXPORT_NAME: a Session
//!                               TOO_BIG                 ├─ STARTTLS: TLS, and earlier negotiation results are discarded
//!                                                       └─ ABORT: the end
//! ```

use derive_more::Display;
use foreign::Text;

use super::{
    ALLOCATION, CHANNEL_CONTEXT, Fields, GREETING_BYTES, INIT_MAGIC, Info, OPTION_MAGIC,
    OptionCode, REPLY_MAGIC, ReplyCode, VOLUME_CONTEXT,
};
use crate::export::{ChannelName, Export, Exports, VOLUME};
use crate::flags::{client, handshake, transmission};
use crate::reply::ALLOCATION_CONTEXT;
use crate::request::{ReplyForm, Session};

const CLIENT_FLAGS_BYTES: usize = 4;
const OPTION_HEADER_BYTES: usize = 16;
/// Maximum length of an option's data: enough for a name and some metadata contexts. Longer data is
/// discarded.
const OPTION_BYTES_MAX: usize = 64 << 10;
/// Length of the pieces in which longer data is discarded.
const DROPPED_BYTES: usize = 16 << 10;
/// Approximate size of the parts in which replies to LIST are written. If a client does not receive them, the
/// server stores one part, however many exports there are.
const LISTED_BYTES: usize = 16 << 10;
/// Maximum number of options of one connection. `qemu-nbd --list` sends two for each export.
const OPTIONS_MAX: u32 = 10_000;

/// A server's TLS mode: NOTLS, SELECTIVETLS and FORCEDTLS (section "Server-side requirements").
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TlsMode {
    /// No TLS.
    #[default]
    Off,
    /// Clients may start it; there may be exports that require it ([`Exports::needs_tls`]).
    Allowed,
    /// Before TLS has started, only STARTTLS and ABORT are accepted.
    Required,
}

/// The server's side of a handshake.
#[derive(Debug)]
pub struct Handshake {
    tls: TlsMode,
    is_encrypted: bool,
    awaits: Awaits,
    /// Number of options received.
    options: u32,
    no_zeroes: bool,
    form: ReplyForm,
    /// The name of the export for which the client has chosen `base:allocation`.
    allocation_of: Option<String>,
    /// The export and the name for which the client has chosen the connection's context.
    channel_of: Option<(String, ChannelName)>,
}

/// The part that the client must send next.
#[derive(Clone, Copy, Debug)]
enum Awaits {
    Flags,
    Option,
    Data {
        option: u32,
        bytes: usize,
    },
    TooMuch {
        option: u32,
        left: usize,
    },
    /// No bytes: the replies to LIST continue with the export with this number.
    ToBeTold {
        from: usize,
    },
}

/// The next step after a client's bytes have been processed.
#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    /// Send the replies, then receive more.
    Continue,
    /// Send the replies, then start TLS; further options follow over TLS. Clear text that the client has sent
    /// after STARTTLS must be discarded.
    StartTls,
    /// Send the replies; requests follow.
    Transmission(Session),
    /// Send the replies, and close the connection: the client ends the handshake.
    End,
}

/// A violation to which there is no reply, or a request that can be refused only by closing the connection.
#[derive(Clone, Debug, PartialEq, Eq, Display)]
pub enum Violation {
    /// The client claims a capability that the server has not offered.
    #[display("unknown client flags 0x{_0:x}")]
    ClientFlags(u32),
    /// The magic number is wrong.
    #[display("an option starts with 0x{_0:016x}")]
    Magic(u64),
    /// The client sent too many options.
    #[display("the client sent more than {OPTIONS_MAX} options")]
    TooManyOptions,
    /// EXPORT_NAME, which has no error reply, for an export that requires encryption.
    #[display("the requested export requires TLS")]
    WithoutTls,
    /// EXPORT_NAME for an export that does not exist, or after extended headers.
    #[display("there is no export `{_0}`")]
    NoExport(Text),
}

/// An error reply to an option.
type Refusal = (ReplyCode, &'static str);

impl Default for Handshake {
    fn default() -> Handshake {
        Handshake::new(TlsMode::Off)
    }
}

impl Handshake {
    /// The handshake of a server with this TLS mode.
    pub fn new(tls: TlsMode) -> Handshake {
        Handshake {
            tls,
            is_encrypted: false,
            awaits: Awaits::Flags,
            options: 0,
            no_zeroes: false,
            form: ReplyForm::Simple,
            allocation_of: None,
            channel_of: None,
        }
    }

    /// The first bytes of the server.
    pub fn greeting() -> [u8; GREETING_BYTES] {
        let mut greeting = [0; GREETING_BYTES];
        greeting[..8].copy_from_slice(&INIT_MAGIC.to_be_bytes());
        greeting[8..16].copy_from_slice(&OPTION_MAGIC.to_be_bytes());
        greeting[16..]
            .copy_from_slice(&(handshake::FIXED_NEWSTYLE | handshake::NO_ZEROES).to_be_bytes());
        greeting
    }

    /// Number of bytes that [`Handshake::take`] needs: up to 64 KiB, and 0 while replies to the last option
    /// are missing. Do not read more bytes: they may belong to another protocol layer.
    pub fn wanted(&self) -> usize {
        match self.awaits {
            Awaits::Flags => CLIENT_FLAGS_BYTES,
            Awaits::Option => OPTION_HEADER_BYTES,
            Awaits::Data { bytes, .. } => bytes,
            Awaits::TooMuch { left, .. } => left.min(DROPPED_BYTES),
            Awaits::ToBeTold { .. } => 0,
        }
    }

    /// Processes the wanted number of bytes, and appends the replies to `out`, up to about 24 KiB.
    ///
    /// # Errors
    /// The connection must be closed without a reply.
    pub fn take(
        &mut self,
        bytes: &[u8],
        exports: &dyn Exports,
        out: &mut Vec<u8>,
    ) -> Result<Step, Violation> {
        debug_assert_eq!(bytes.len(), self.wanted(), "the requested number of bytes");
        match self.awaits {
            Awaits::Flags => self.client_flags(bytes).map(|()| Step::Continue),
            Awaits::Option => {
                let mut fields = Fields(bytes);
                let magic = fields.eight().unwrap_or_default();
                if magic != OPTION_MAGIC {
                    return Err(Violation::Magic(magic));
                }
                self.options += 1;
                if self.options > OPTIONS_MAX {
                    return Err(Violation::TooManyOptions);
                }
                let option = fields.four().unwrap_or_default();
                let bytes = fields.four().unwrap_or_default() as usize;
                self.awaits = match bytes {
                    0 => return self.option(option, &[], exports, out),
                    1..=OPTION_BYTES_MAX => Awaits::Data { option, bytes },
                    _ => Awaits::TooMuch {
                        option,
                        left: bytes,
                    },
                };
                Ok(Step::Continue)
            }
            Awaits::Data { option, .. } => self.option(option, bytes, exports, out),
            Awaits::TooMuch { option, left } if left > bytes.len() => {
                self.awaits = Awaits::TooMuch {
                    option,
                    left: left - bytes.len(),
                };
                Ok(Step::Continue)
            }
            Awaits::TooMuch { option, .. } => self.too_much(option, exports, out),
            Awaits::ToBeTold { from } => {
                self.list(from, exports, out);
                Ok(Step::Continue)
            }
        }
    }

    fn client_flags(&mut self, bytes: &[u8]) -> Result<(), Violation> {
        let flags = Fields(bytes).four().unwrap_or_default();
        // A client without fixed newstyle can use only EXPORT_NAME, but is supported.
        if flags & !(client::FIXED_NEWSTYLE | client::NO_ZEROES) != 0 {
            return Err(Violation::ClientFlags(flags));
        }
        self.no_zeroes = flags & client::NO_ZEROES != 0;
        // "The server MUST operate in NOTLS mode unless" both support fixed newstyle; if TLS is required,
        // such a client cannot use any export.
        if self.tls == TlsMode::Allowed && flags & client::FIXED_NEWSTYLE == 0 {
            self.tls = TlsMode::Off;
        }
        self.awaits = Awaits::Option;
        Ok(())
    }

    fn option(
        &mut self,
        option: u32,
        data: &[u8],
        exports: &dyn Exports,
        out: &mut Vec<u8>,
    ) -> Result<Step, Violation> {
        self.awaits = Awaits::Option;
        let code = OptionCode::try_from(option);
        if self.lacks_tls() && !matches!(code, Ok(OptionCode::StartTls | OptionCode::Abort)) {
            if code == Ok(OptionCode::ExportName) {
                return Err(Violation::WithoutTls);
            }
            refuse(option, TLS_REQUIRED, out);
            return Ok(Step::Continue);
        }
        let Ok(code) = code else {
            refuse(option, (ReplyCode::ErrUnsup, "unknown option"), out);
            return Ok(Step::Continue);
        };
        let answered = match code {
            OptionCode::ExportName => return self.export_name(data, exports, out),
            OptionCode::Abort => {
                reply(option, ReplyCode::Ack, out, |_| ());
                return Ok(Step::End);
            }
            OptionCode::List => match without_data(data) {
                Ok(()) => {
                    self.list(0, exports, out);
                    return Ok(Step::Continue);
                }
                Err(refusal) => Err(refusal),
            },
            OptionCode::StartTls => match self.start_tls(data) {
                Ok(()) => {
                    reply(option, ReplyCode::Ack, out, |_| ());
                    return Ok(Step::StartTls);
                }
                Err(refusal) => Err(refusal),
            },
            OptionCode::Info => self.info(option, data, exports, out).map(drop),
            OptionCode::Go => match self.info(option, data, exports, out) {
                Ok(export) => {
                    reply(option, ReplyCode::Ack, out, |_| ());
                    return Ok(Step::Transmission(self.session(export)));
                }
                Err(refusal) => Err(refusal),
            },
            OptionCode::StructuredReply => without_data(data).and_then(|()| match self.form {
                ReplyForm::Extended => {
                    Err((ReplyCode::ErrExtHeaderReqd, "extended headers are in use"))
                }
                ReplyForm::Simple | ReplyForm::Structured => {
                    self.form = ReplyForm::Structured;
                    Ok(())
                }
            }),
            OptionCode::ExtendedHeaders => {
                without_data(data).map(|()| self.form = ReplyForm::Extended)
            }
            OptionCode::ListMetaContext => list_contexts(data, exports, out),
            OptionCode::SetMetaContext => self.set_contexts(data, exports, out),
        };
        match answered {
            Ok(()) => reply(option, ReplyCode::Ack, out, |_| ()),
            Err(refusal) => refuse(option, refusal, out),
        }
        Ok(Step::Continue)
    }

    /// Appends the replies for the exports from number `from` on, up to the size of a part. After the last
    /// export, appends the final reply.
    fn list(&mut self, from: usize, exports: &dyn Exports, out: &mut Vec<u8>) {
        self.awaits = Awaits::Option;
        let end = out.len() + LISTED_BYTES;
        for (number, (name, description)) in (from..).zip(exports.list(from)) {
            if out.len() >= end {
                self.awaits = Awaits::ToBeTold { from: number };
                return;
            }
            reply(OptionCode::List as u32, ReplyCode::Server, out, |out| {
                out.extend((name.len() as u32).to_be_bytes());
                out.extend(name.as_bytes());
                out.extend(description.as_bytes());
            });
        }
        reply(OptionCode::List as u32, ReplyCode::Ack, out, |_| ());
    }

    fn lacks_tls(&self) -> bool {
        self.tls == TlsMode::Required && !self.is_encrypted
    }

    /// Discards all state negotiated in clear text, which may have been injected (CVE-2021-3716).
    fn start_tls(&mut self, data: &[u8]) -> Result<(), Refusal> {
        without_data(data)?;
        if self.is_encrypted {
            return Err((ReplyCode::ErrInvalid, "TLS is in use"));
        }
        if self.tls == TlsMode::Off {
            return Err((ReplyCode::ErrPolicy, "this server does not support TLS"));
        }
        self.is_encrypted = true;
        self.form = ReplyForm::Simple;
        self.allocation_of = None;
        self.channel_of = None;
        Ok(())
    }

    /// Answers an option whose data was too long and has been discarded.
    fn too_much(
        &mut self,
        option: u32,
        exports: &dyn Exports,
        out: &mut Vec<u8>,
    ) -> Result<Step, Violation> {
        self.awaits = Awaits::Option;
        match OptionCode::try_from(option) {
            Ok(OptionCode::ExportName) if self.lacks_tls() => return Err(Violation::WithoutTls),
            Ok(OptionCode::ExportName) => {
                return Err(Violation::NoExport("a name of more than 64 KiB".into()));
            }
            Ok(OptionCode::Abort) => return self.option(option, &[], exports, out),
            Ok(OptionCode::SetMetaContext) => {
                // SET_META_CONTEXT discards the earlier selection even if it fails.
                self.allocation_of = None;
                self.channel_of = None;
            }
            _ => {}
        }
        let refusal = if self.lacks_tls() {
            TLS_REQUIRED
        } else {
            (ReplyCode::ErrTooBig, "more than 64 KiB")
        };
        refuse(option, refusal, out);
        Ok(Step::Continue)
    }

    /// Answers EXPORT_NAME, the only option without a reply header: appends the size and the flags of the
    /// export and, unless the client omits them, 124 meaningless bytes.
    fn export_name(
        &self,
        data: &[u8],
        exports: &dyn Exports,
        out: &mut Vec<u8>,
    ) -> Result<Step, Violation> {
        let name = std::str::from_utf8(data).ok();
        if name.is_some_and(|name| exports.needs_tls(name)) {
            return Err(Violation::WithoutTls);
        }
        let found = name.and_then(|name| exports.find(name));
        let Some(export) = found.filter(|_| self.form != ReplyForm::Extended) else {
            return Err(Violation::NoExport(Text::from_bytes(data)));
        };
        debug_assert!(!self.lacks_tls(), "an export is revealed in clear text");
        let session = self.session(export);
        out.extend(session.export.bytes.to_be_bytes());
        out.extend(session.export.flags.to_be_bytes());
        if !self.no_zeroes {
            out.extend([0; 124]);
        }
        Ok(Step::Transmission(session))
    }

    /// Answers INFO and GO, except for the last reply.
    fn info(
        &self,
        option: u32,
        data: &[u8],
        exports: &dyn Exports,
        out: &mut Vec<u8>,
    ) -> Result<Export, Refusal> {
        let mut fields = Fields(data);
        let name = fields.string().ok_or(MALFORMED)?;
        let count = fields.two().ok_or(MALFORMED)?;
        if fields.0.len() != 2 * usize::from(count) {
            return Err(MALFORMED);
        }
        let wanted: Vec<u16> = std::iter::from_fn(|| fields.two()).collect();
        let export = find(name, exports)?;
        let flags = self.flags(&export);
        let mut info = |kind: Info, write: &dyn Fn(&mut Vec<u8>)| {
            reply(option, ReplyCode::Info, out, |out| {
                out.extend((kind as u16).to_be_bytes());
                write(out);
            });
        };
        info(Info::Export, &|out| {
            out.extend(export.bytes.to_be_bytes());
            out.extend(flags.to_be_bytes());
        });
        if wanted.contains(&(Info::Name as u16)) || name != export.name {
            info(Info::Name, &|out| out.extend(export.name.as_bytes()));
        }
        if wanted.contains(&(Info::Description as u16)) && !export.description.is_empty() {
            info(Info::Description, &|out| {
                out.extend(export.description.as_bytes())
            });
        }
        // Also sent to clients that did not request it, which does no harm.
        let sizes = export.block_sizes;
        info(Info::BlockSize, &|out| {
            [sizes.minimum, sizes.preferred, sizes.maximum]
                .iter()
                .for_each(|size| out.extend(size.to_be_bytes()));
        });
        Ok(export)
    }

    fn set_contexts(
        &mut self,
        data: &[u8],
        exports: &dyn Exports,
        out: &mut Vec<u8>,
    ) -> Result<(), Refusal> {
        self.allocation_of = None; // even if this option fails
        self.channel_of = None;
        if self.form == ReplyForm::Simple {
            return Err((
                ReplyCode::ErrInvalid,
                "structured replies must be negotiated first",
            ));
        }
        let (export, queries) = queries(data, exports)?;
        if queries.contains(&ALLOCATION) {
            self.allocation_of = Some(export.name.clone());
            context(
                OptionCode::SetMetaContext,
                ALLOCATION_CONTEXT,
                ALLOCATION,
                out,
            );
        }
        if let Some(mut name) = queries.iter().find_map(|query| ChannelName::parse(query)) {
            name.start = exports.start(&export.name);
            name.volume = exports
                .volume(&export.name)
                .filter(|_| queries.contains(&VOLUME));
            context(
                OptionCode::SetMetaContext,
                CHANNEL_CONTEXT,
                &ChannelName::accepted(name.start),
                out,
            );
            if let Some(volume) = name.volume {
                context(
                    OptionCode::SetMetaContext,
                    VOLUME_CONTEXT,
                    &ChannelName::identified(volume),
                    out,
                );
            }
            self.channel_of = Some((export.name, name));
        }
        Ok(())
    }

    /// The flags of an export in this session.
    fn flags(&self, export: &Export) -> u16 {
        let df = if self.form == ReplyForm::Simple {
            0
        } else {
            transmission::SEND_DF
        };
        export.flags | transmission::HAS_FLAGS | df
    }

    fn session(&self, mut export: Export) -> Session {
        export.flags = self.flags(&export);
        let is_chosen = self.allocation_of.as_ref() == Some(&export.name);
        let channel = self
            .channel_of
            .clone()
            .filter(|(of, _)| *of == export.name)
            .map(|(_, name)| name);
        Session {
            export,
            form: self.form,
            allocation: is_chosen.then_some(ALLOCATION_CONTEXT),
            channel,
        }
    }
}

const TLS_REQUIRED: Refusal = (ReplyCode::ErrTlsReqd, "TLS must be started first");
const MALFORMED: Refusal = (ReplyCode::ErrInvalid, "the lengths are inconsistent");

fn without_data(data: &[u8]) -> Result<(), Refusal> {
    if data.is_empty() {
        Ok(())
    } else {
        Err((ReplyCode::ErrInvalid, "this option must not have data"))
    }
}

fn find(name: &str, exports: &dyn Exports) -> Result<Export, Refusal> {
    exports
        .find(name)
        .ok_or_else(|| match exports.needs_tls(name) {
            true => TLS_REQUIRED,
            false => (ReplyCode::ErrUnknown, "there is no such export"),
        })
}

fn list_contexts(data: &[u8], exports: &dyn Exports, out: &mut Vec<u8>) -> Result<(), Refusal> {
    let (_, queries) = queries(data, exports)?;
    if queries.is_empty()
        || queries
            .iter()
            .any(|query| [ALLOCATION, "base:"].contains(query))
    {
        context(OptionCode::ListMetaContext, 0, ALLOCATION, out);
    }
    Ok(())
}

/// Parses the export and the queries of an option about metadata contexts.
fn queries<'a>(data: &'a [u8], exports: &dyn Exports) -> Result<(Export, Vec<&'a str>), Refusal> {
    let mut fields = Fields(data);
    let name = fields.string().ok_or(MALFORMED)?;
    let count = fields.four().ok_or(MALFORMED)?;
    // Each query has a length field, so the length of the data limits their number.
    let queries: Option<Vec<&str>> = (0..count).map(|_| fields.string()).collect();
    let queries = queries.filter(|_| fields.0.is_empty()).ok_or(MALFORMED)?;
    Ok((find(name, exports)?, queries))
}

fn context(option: OptionCode, number: u32, name: &str, out: &mut Vec<u8>) {
    reply(option as u32, ReplyCode::MetaContext, out, |out| {
        out.extend(number.to_be_bytes());
        out.extend(name.as_bytes());
    });
}

fn refuse(option: u32, (code, text): Refusal, out: &mut Vec<u8>) {
    reply(option, code, out, |out| out.extend(text.as_bytes()));
}

/// Appends a reply with the data that `write` appends.
fn reply(option: u32, code: ReplyCode, out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    out.extend(REPLY_MAGIC.to_be_bytes());
    out.extend(option.to_be_bytes());
    out.extend((code as u32).to_be_bytes());
    let length_at = out.len();
    out.extend([0; 4]);
    write(out);
    let length = (out.len() - length_at - 4) as u32;
    out[length_at..length_at + 4].copy_from_slice(&length.to_be_bytes());
}
