//! One direction of a connection: takes PDUs, transfers their bytes, and delivers headers and segments.

use std::collections::VecDeque;

use iscsi::framing::Framing;
use iscsi::pdu::{BHS_BYTES, Bhs};

/// PDUs in transit, as bytes. They can be inspected and changed until they arrive.
#[derive(Default)]
pub(crate) struct Pipe {
    pub(crate) pdus: VecDeque<Vec<u8>>,
    /// Bytes that have arrived and are not consumed.
    arrived: Vec<u8>,
    header: Option<Bhs>,
}

/// A complete arrival.
pub(crate) enum Arrival {
    Header {
        bhs: Bhs,
        ahs: Vec<u8>,
        intact: bool,
    },
    Segment {
        data: Vec<u8>,
        intact: bool,
    },
}

pub(crate) fn encode(framing: Framing, header: &Bhs, ahs: &[u8], data: &[u8]) -> Vec<u8> {
    assert_eq!(
        header.data_segment_length() as usize,
        data.len(),
        "header and data agree"
    );
    assert_eq!(
        header.total_ahs_length(),
        ahs.len(),
        "header and additional headers agree"
    );
    let mut bytes = header.0.to_vec();
    bytes.extend_from_slice(ahs);
    framing.end_header(&mut bytes, 0);
    bytes.extend_from_slice(data);
    framing.end_data(&mut bytes, data);
    bytes
}

impl Pipe {
    /// Delivers up to `most` bytes; returns whether there were any.
    pub(crate) fn carry(&mut self, most: usize) -> bool {
        let Some(front) = self.pdus.front_mut() else {
            return false;
        };
        let count = front.len().min(most);
        self.arrived.extend(front.drain(..count));
        if front.is_empty() {
            self.pdus.pop_front();
        }
        true
    }

    /// The next complete arrival.
    pub(crate) fn next(&mut self, framing: Framing) -> Option<Arrival> {
        match self.header {
            None => self.next_header(framing),
            Some(bhs) => self.next_segment(framing, &bhs),
        }
    }

    fn next_header(&mut self, framing: Framing) -> Option<Arrival> {
        let bhs = Bhs(*self.arrived.first_chunk::<BHS_BYTES>()?);
        let length = framing.header_bytes(&bhs);
        if self.arrived.len() < length {
            return None;
        }
        let whole: Vec<u8> = self.arrived.drain(..length).collect();
        let ahs = whole[BHS_BYTES..BHS_BYTES + bhs.total_ahs_length()].to_vec();
        if bhs.data_segment_length() > 0 {
            self.header = Some(bhs);
        }
        Some(Arrival::Header {
            bhs,
            ahs,
            intact: framing.header_intact(&whole),
        })
    }

    fn next_segment(&mut self, framing: Framing, bhs: &Bhs) -> Option<Arrival> {
        let length = framing.segment_bytes(bhs);
        if self.arrived.len() < length {
            return None;
        }
        let whole: Vec<u8> = self.arrived.drain(..length).collect();
        let (data, trailer) = whole.split_at(bhs.data_segment_length() as usize);
        self.header = None;
        Some(Arrival::Segment {
            data: data.to_vec(),
            intact: framing.data_intact(data, trailer),
        })
    }
}
