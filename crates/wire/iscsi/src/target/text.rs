//! Text in full feature phase (RFC 7143 sections 6.3 and 11.10): SendTargets, and the one key that a
//! connection may still declare, MaxRecvDataSegmentLength.
//!
//! A text may need several PDUs in either direction. Each part from the initiator (C set) is answered by an
//! empty response; each part of ours is requested by an empty request with our tag.
//!
//! ```text
//!   initiator                                   target
//!   SendTargets=All        F  ttt=none  ───▶
//!                                       ◀───    TargetName=… (as much as fits)   C  ttt=1
//!   (empty)                F  ttt=1     ───▶
//!                                       ◀───    …the rest                        F  ttt=none
//! ```
//!
//! A list of targets can be long, and its reader slow. So the driver replies in parts, and is asked for the next one when the previous
//! one is sent: a connection keeps one part.

use super::Session;
use super::connection::Connection;
use super::event::{ConnectionId, Event, TextQuery};
use crate::keys::{Key, answer};
use crate::negotiate::{ReceivedKeys, SessionType};
use crate::pdu::{Lun, RejectReason, TargetNumbers, TextRequest, TextResponse, Ttt};
use crate::text::{self, Assembly, Pair, Pieces};

/// The text exchange of a connection; there is at most one.
#[derive(Debug)]
pub(super) struct TextExchange {
    incoming: Assembly,
    outgoing: Pieces,
    /// The tag of our last response, if the exchange continues.
    ttt: Option<Ttt>,
    tags: u32,
    /// The request that waits for the driver, with the response text before its reply and the targets requested.
    asked: Option<(TextRequest, Vec<u8>, TextQuery)>,
    /// The driver has more to say after `outgoing`: where that begins.
    rest: Option<(TextQuery, String)>,
    heard: ReceivedKeys,
}

impl TextExchange {
    pub(super) fn new(text_bytes_max: usize) -> TextExchange {
        TextExchange {
            incoming: Assembly::new(text_bytes_max),
            outgoing: Pieces::default(),
            ttt: None,
            tags: 0,
            asked: None,
            rest: None,
            heard: ReceivedKeys::default(),
        }
    }

    /// A request without our tag begins a new exchange, and ends an outstanding one (section 11.10.4).
    fn restart(&mut self) {
        self.incoming.clear();
        self.outgoing = Pieces::default();
        self.rest = None;
        self.ttt = None;
        self.heard = ReceivedKeys::default();
    }

    fn next_tag(&mut self) -> Option<Ttt> {
        self.tags = (self.tags + 1) & 0x7fff_ffff;
        self.ttt = Ttt::new(self.tags);
        self.ttt
    }
}

impl Session {
    /// The driver's reply to [`Event::SendTargets`]: TargetName and TargetAddress pairs, each ended by a NUL.
    /// Empty if there are no such targets. `next` is the target that the next part of the list begins with, if there is one: a name,
    /// since places change with the configuration.
    pub fn text_reply(&mut self, id: ConnectionId, mut text: Vec<u8>, next: Option<String>) {
        let Some(connection) = self.connection_mut(id) else { return };
        if let Some((request, mut said, which)) = connection.text.asked.take() {
            said.append(&mut text);
            connection.text.rest = next.map(|next| (which, next));
            connection.reply(&request, said);
        }
    }

    pub(super) fn handle_text(&mut self, id: ConnectionId, request: &TextRequest, data: &[u8]) {
        let Some(connection) = self.connection_mut(id) else { return };
        let exchange = &mut connection.text;
        // "An initiator MUST have at most one outstanding Text Request on a connection" (section 11.10).
        if exchange.asked.is_some() {
            return self.reject(id, RejectReason::ProtocolError);
        }
        match request.ttt {
            None => exchange.restart(),
            ttt if ttt == exchange.ttt => {}
            Some(_) => return self.reject(id, RejectReason::InvalidPduField),
        }
        let has_more = !exchange.outgoing.is_empty() || exchange.rest.is_some();
        if has_more && !data.is_empty() {
            return self.reject(id, RejectReason::ProtocolError);
        }
        if !exchange.outgoing.is_empty() {
            return connection.say_piece(request);
        }
        if let Some((which, from)) = exchange.rest.take() {
            let from = Some(from);
            exchange.asked = Some((*request, Vec::new(), which.clone()));
            let segment_max = connection.peer_segment_max as usize;
            return self.events.push_back(Event::SendTargets { connection: id, which, from, segment_max });
        }
        match exchange.incoming.add(data, request.continues) {
            Ok(None) => connection.ask_for_more(request),
            Ok(Some(text)) => self.answer_text(id, request, &text),
            Err(_) => self.reject(id, RejectReason::ProtocolError),
        }
    }

    fn answer_text(&mut self, id: ConnectionId, request: &TextRequest, text: &[u8]) {
        let Ok(pairs) = text::parse(text) else { return self.reject(id, RejectReason::InvalidPduField) };
        let is_discovery = self.config.parameters.session_type == SessionType::Discovery;
        let mut query = None;
        let mut reply = Vec::new();
        let Some(connection) = self.connection_mut(id) else { return };
        if connection.text.heard.take(&pairs).is_err() {
            // Section 6.4: a Reject PDU with a reason of "Protocol Error", and the negotiation is reset.
            connection.text.restart();
            return self.reject(id, RejectReason::ProtocolError);
        }
        for pair in pairs {
            match Key::find(pair.key) {
                Some(Key::SendTargets) => query = send_targets(pair.value, is_discovery),
                Some(Key::MaxRecvDataSegmentLength) => connection.take_segment_max(pair, &mut reply),
                // Declared, not negotiated: no response.
                Some(Key::InitiatorAlias) => {}
                // All other keys are restricted to the login ("IO" and "LO" in section 13), InitiatorName
                // included.
                Some(_) => text::append(&mut reply, pair.key, answer::REJECT),
                None => text::append(&mut reply, pair.key, answer::NOT_UNDERSTOOD),
            }
            if query.is_none() && Key::find(pair.key) == Some(Key::SendTargets) {
                text::append(&mut reply, pair.key, answer::REJECT);
            }
        }
        match query {
            Some(which) => {
                let segment_max = (connection.peer_segment_max as usize).saturating_sub(reply.len());
                connection.text.asked = Some((*request, reply, which.clone()));
                self.events.push_back(Event::SendTargets { connection: id, which, from: None, segment_max });
            }
            None => connection.reply(request, reply),
        }
    }
}

impl Connection {
    /// Section 13.12: a declaration, of 512 to 2^24-1 bytes. It applies to what is sent from now on.
    fn take_segment_max(&mut self, pair: Pair<'_>, reply: &mut Vec<u8>) {
        match text::number(pair.value) {
            Some(bytes @ 512..=0xff_ffff) => self.peer_segment_max = bytes,
            Some(_) | None => text::append(reply, pair.key, answer::REJECT),
        }
    }

    fn reply(&mut self, request: &TextRequest, text: Vec<u8>) {
        self.text.outgoing = Pieces::new(text);
        self.say_piece(request);
    }

    fn say_piece(&mut self, request: &TextRequest) {
        let (data, is_cut) = self.text.outgoing.next(self.peer_segment_max as usize);
        let continues = is_cut || self.text.rest.is_some();
        let is_final = request.is_final && !continues;
        self.say_text(request, data, is_final, continues);
    }

    fn ask_for_more(&mut self, request: &TextRequest) {
        self.say_text(request, Vec::new(), false, false);
    }

    fn say_text(&mut self, request: &TextRequest, data: Vec<u8>, is_final: bool, continues: bool) {
        let ttt = if is_final { None } else { self.text.next_tag() };
        self.text.ttt = ttt;
        let pdu = TextResponse {
            is_final,
            continues,
            lun: Lun(0),
            itt: request.itt,
            ttt,
            numbers: TargetNumbers::default(),
            data_segment_length: data.len() as u32,
        };
        self.queue_status(pdu.emit(), data);
    }
}

/// Appendix C. "All … MUST NOT be supported" outside discovery, where the rest would mean nothing inside.
fn send_targets(value: &str, is_discovery: bool) -> Option<TextQuery> {
    match value {
        "All" if is_discovery => Some(TextQuery::All),
        "All" => None,
        "" if is_discovery => None,
        "" => Some(TextQuery::Own),
        name => Some(TextQuery::One(name.to_owned())),
    }
}
