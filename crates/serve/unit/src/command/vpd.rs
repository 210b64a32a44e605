//! Vital product data: INQUIRY with EVPD (SPC-4 7.8, SBC-3 6.6).

use block::Geometry;

use super::{Call, transfer, write_same};
use crate::copy::results as copy;
use crate::nexus::TargetPort;

/// The page with its header, if there is such a page.
pub(crate) fn page(call: &Call<'_>, code: u8) -> Option<Vec<u8>> {
    let body = match code {
        SUPPORTED_PAGES => supported_pages(call),
        SERIAL_NUMBER => call.unit.identity().serial().into_bytes(),
        DEVICE_IDENTIFICATION => device_identification(call),
        // There is no software interface with an identifier that the IEEE has given out.
        SOFTWARE_INTERFACES => Vec::new(),
        EXTENDED_INQUIRY => extended_inquiry(call),
        MODE_PAGE_POLICY => vec![ALL_PAGES, ALL_SUBPAGES, SHARED, 0],
        SCSI_PORTS => scsi_ports(call),
        THIRD_PARTY_COPY => copy::third_party_copy(),
        BLOCK_LIMITS => block_limits(call),
        BLOCK_CHARACTERISTICS => block_characteristics(call),
        PROVISIONING => provisioning(call),
        CACHE_GENERATION => cache_generation(call)?,
        _ => return None,
    };
    // A page is far below 64 KiB: the longest part is an iSCSI name, of at most 223 bytes.
    let mut page = vec![0x00, code];
    page.extend((body.len() as u16).to_be_bytes());
    page.extend(body);
    Some(page)
}

fn supported_pages(call: &Call<'_>) -> Vec<u8> {
    let mut pages = PAGES.to_vec();
    pages.extend(cache_generation(call).map(|_| CACHE_GENERATION));
    pages
}

/// Our own page. A new I_T nexus hears a POWER ON unit attention whether or not the power was ever off; this tells an
/// initiator that comes back whether its unflushed writes are lost: not while the page is the same. NFS has the same
/// in its write verifier (RFC 1813 3.3.7).
///
/// ```text
///   4..12   "LINERATE"
///  12       1, the version
///  13..16   reserved
///  16..32   the generation: equal or not is all that it says
/// ```
fn cache_generation(call: &Call<'_>) -> Option<Vec<u8>> {
    let identity = call.unit.identity();
    let generation = identity.cache_generation.filter(|_| call.view.volatile_cache)?;
    Some([&identity.vendor[..], &[1, 0, 0, 0], &generation].concat())
}

/// Device identification (SPC-4 7.8.6). The names of the logical unit come first: they are the same on every
/// path, and an initiator with a short allocation length sees those.
fn device_identification(call: &Call<'_>) -> Vec<u8> {
    let identity = call.unit.identity();
    let mut body = Vec::new();
    designator(&mut body, LOGICAL_UNIT | NAA, BINARY, &identity.naa());
    designator(&mut body, LOGICAL_UNIT | T10_VENDOR_ID, ASCII, &identity.t10_vendor_id());
    let port = call.unit.look(|state| {
        let mut nexuses = state.nexuses.iter();
        nexuses.find(|nexus| nexus.id == call.nexus.id).map(|nexus| nexus.name.service.clone())
    });
    if let Some(port) = port {
        designate_port(&mut body, &port);
    }
    body
}

fn designate_port(body: &mut Vec<u8>, port: &TargetPort) {
    let [high, low] = port.relative_port.to_be_bytes();
    designator(body, TARGET_PORT | RELATIVE_PORT, BINARY, &[0, 0, high, low]);
    let [high, low] = TARGET_PORT_GROUP_ID.to_be_bytes();
    designator(body, TARGET_PORT | PORT_GROUP, BINARY, &[0, 0, high, low]);
    designate_port_name(body, port);
    designator(body, TARGET_DEVICE | SCSI_NAME, UTF8, &name_string(&port.name));
}

/// RFC 7143 4.4.2: the SCSI port name is the iSCSI name, ",t,0x" and the portal group tag in hex.
fn designate_port_name(body: &mut Vec<u8>, port: &TargetPort) {
    let port_name = format!("{},t,0x{:04x}", port.name, port.group);
    designator(body, TARGET_PORT | SCSI_NAME, UTF8, &name_string(&port_name));
}

/// SCSI ports (SPC-4 7.8.14): those of the caller's own target through which the logical unit is in use. Another target is
/// another SCSI device, so its ports are not listed.
fn scsi_ports(call: &Call<'_>) -> Vec<u8> {
    let mut ports: Vec<TargetPort> = call.unit.look(|state| {
        let target = state.name(call.nexus.id).map(|name| name.service.name.as_str());
        let all = state.nexuses.iter().map(|nexus| &nexus.name.service);
        all.filter(|port| Some(port.name.as_str()) == target).cloned().collect()
    });
    ports.sort_unstable_by_key(|port| port.relative_port);
    ports.dedup_by_key(|port| port.relative_port);
    ports.truncate(PORTS_MAX);
    ports.iter().flat_map(scsi_port).collect()
}

fn scsi_port(port: &TargetPort) -> Vec<u8> {
    let mut names = Vec::new();
    designate_port_name(&mut names, port);
    let [high, low] = port.relative_port.to_be_bytes();
    // No initiator port: its TransportID has no length.
    let mut descriptor = vec![0, 0, high, low, 0, 0, 0, 0, 0, 0];
    descriptor.extend((names.len() as u16).to_be_bytes()); // one designator, of 259 bytes at most
    descriptor.extend(names);
    descriptor
}

/// A designation descriptor. Those of a target name the protocol they belong to (PIV, iSCSI).
fn designator(body: &mut Vec<u8>, association_and_type: u8, code_set: u8, designator: &[u8]) {
    let of_target = association_and_type & 0x30 != LOGICAL_UNIT;
    let (protocol, piv) = if of_target { (ISCSI << 4, 0x80) } else { (0, 0) };
    body.extend([protocol | code_set, piv | association_and_type, 0, designator.len().min(255) as u8]);
    body.extend(&designator[..designator.len().min(255)]);
}

/// A SCSI name string: at least one NUL at its end, padded to a multiple of four (SPC-4 7.8.6.11).
fn name_string(name: &str) -> Vec<u8> {
    let mut bytes = name.as_bytes().to_vec();
    bytes.resize((bytes.len() + 1).next_multiple_of(4), 0);
    bytes
}

/// Extended INQUIRY data (SPC-4 7.8.7).
fn extended_inquiry(call: &Call<'_>) -> Vec<u8> {
    let mut body = vec![0; 60];
    body[1] = SIMPSUP;
    body[2] = if call.view.volatile_cache { V_SUP } else { 0 };
    body
}

/// Block limits (SBC-4 6.6.4).
fn block_limits(call: &Call<'_>) -> Vec<u8> {
    let geometry = call.geometry();
    let profile = call.unit.device().profile();
    let mut body = vec![0; 60];
    let mut put = |at: usize, bytes: &[u8]| body[at - 4..at - 4 + bytes.len()].copy_from_slice(bytes);
    put(4, &[u8::from(write_same::refuses_zero_blocks(call)), COMPARE_AND_WRITE_BLOCKS_MAX]);
    put(6, &(1u16 << geometry.physical_exponent.min(15)).to_be_bytes());
    put(8, &(transfer::transfer_blocks_max(geometry) as u32).to_be_bytes());
    // OPTIMAL TRANSFER LENGTH stays 0: Linux takes it for the largest request it should send.
    if call.unit.thin() {
        put(20, &UNMAP_BLOCKS_MAX.to_be_bytes());
        put(24, &UNMAP_DESCRIPTORS_MAX.to_be_bytes());
        let granularity = u32::try_from(profile.granularity.0.max(1)).unwrap_or(u32::MAX);
        put(28, &granularity.to_be_bytes());
        put(32, &UGAVALID.to_be_bytes());
    }
    put(36, &WRITE_SAME_BLOCKS_MAX.to_be_bytes());
    put(44, &(atomic_blocks_max(geometry) as u32).to_be_bytes());
    // ATOMIC ALIGNMENT and GRANULARITY of 0: any; no atomic boundaries.
    body
}

/// Block device characteristics (SBC-4 6.6.2).
fn block_characteristics(call: &Call<'_>) -> Vec<u8> {
    let mut body = vec![0; 60];
    let rotation_rate: u16 = if call.unit.device().profile().solid_state { 1 } else { 0 };
    body[..2].copy_from_slice(&rotation_rate.to_be_bytes());
    let kind = call.unit.kind();
    body[3] = if kind.thin { WABEREQ } else { 0 } | if kind.forgetful { WACEREQ } else { 0 };
    body
}

/// Logical block provisioning (SBC-4 6.6.7).
fn provisioning(call: &Call<'_>) -> Vec<u8> {
    match call.unit.thin() {
        true => vec![threshold_exponent(call.geometry()), LBPU | LBPWS | LBPWS10 | LBPRZ, THIN, 0],
        false => vec![0, 0, 0, 0],
    }
}

/// THRESHOLD EXPONENT: the resource counts of the Logical Block Provisioning log page are numbers of threshold sets, of
/// 2^exponent blocks each. A set is a mebibyte, and no volume has 2^32 of them.
fn threshold_exponent(geometry: Geometry) -> u8 {
    THRESHOLD_SET_BYTES.ilog2() as u8 - geometry.block_size.shift() as u8
}

/// A threshold set, which is larger than any block.
pub(crate) const THRESHOLD_SET_BYTES: u64 = 1 << 20;

/// MAXIMUM ATOMIC TRANSFER LENGTH. Larger ones would keep other writers out for long.
pub(crate) fn atomic_blocks_max(geometry: Geometry) -> u64 {
    ATOMIC_BYTES_MAX >> geometry.block_size.shift()
}

/// The one target port group there is.
pub(crate) const TARGET_PORT_GROUP_ID: u16 = 1;
/// The largest that fits its field in block limits and in the CDB.
pub(crate) const COMPARE_AND_WRITE_BLOCKS_MAX: u8 = 255;
/// 512 MiB of 512-byte blocks: enough for a discard of a terabyte to take two thousand commands, little enough
/// for each to end soon.
pub(crate) const UNMAP_BLOCKS_MAX: u32 = 1 << 20;
/// What fits a parameter list of 64 KiB is more than this; what initiators send is far less.
pub(crate) const UNMAP_DESCRIPTORS_MAX: u32 = 256;
/// As UNMAP.
pub(crate) const WRITE_SAME_BLOCKS_MAX: u64 = 1 << 20;
/// 512 blocks of 4 KiB.
const ATOMIC_BYTES_MAX: u64 = 2 << 20;

const PAGES: [u8; 11] = [
    SUPPORTED_PAGES,
    SERIAL_NUMBER,
    DEVICE_IDENTIFICATION,
    SOFTWARE_INTERFACES,
    EXTENDED_INQUIRY,
    MODE_PAGE_POLICY,
    SCSI_PORTS,
    THIRD_PARTY_COPY,
    BLOCK_LIMITS,
    BLOCK_CHARACTERISTICS,
    PROVISIONING,
];
const SUPPORTED_PAGES: u8 = 0x00;
const SERIAL_NUMBER: u8 = 0x80;
const DEVICE_IDENTIFICATION: u8 = 0x83;
const SOFTWARE_INTERFACES: u8 = 0x84;
const EXTENDED_INQUIRY: u8 = 0x86;
const MODE_PAGE_POLICY: u8 = 0x87;
const SCSI_PORTS: u8 = 0x88;
const THIRD_PARTY_COPY: u8 = 0x8f;
const BLOCK_LIMITS: u8 = 0xb0;
const BLOCK_CHARACTERISTICS: u8 = 0xb1;
const PROVISIONING: u8 = 0xb2;
/// The first that the standard leaves to vendors.
const CACHE_GENERATION: u8 = 0xc0;

/// MODE PAGE POLICY (SPC-4 7.8.9): one set of mode pages for all nexuses.
const SHARED: u8 = 0x00;
const ALL_PAGES: u8 = 0x3f;
const ALL_SUBPAGES: u8 = 0xff;
/// So that the page stays far below 64 KiB.
const PORTS_MAX: usize = 128;

const LOGICAL_UNIT: u8 = 0x00;
const TARGET_PORT: u8 = 0x10;
const TARGET_DEVICE: u8 = 0x20;
const T10_VENDOR_ID: u8 = 0x1;
const NAA: u8 = 0x3;
const RELATIVE_PORT: u8 = 0x4;
const PORT_GROUP: u8 = 0x5;
const SCSI_NAME: u8 = 0x8;
const BINARY: u8 = 0x1;
const ASCII: u8 = 0x2;
const UTF8: u8 = 0x3;
/// PROTOCOL IDENTIFIER (SPC-4 7.6.1).
const ISCSI: u8 = 0x5;

/// The SIMPLE task attribute is all that is claimed: whoever claims ORDERED must keep the order.
const SIMPSUP: u8 = 0x01;
const V_SUP: u8 = 0x01;
const UGAVALID: u32 = 1 << 31;
/// 01b each: after a SANITIZE of that kind, reads succeed; where there is no such SANITIZE, 00b.
const WABEREQ: u8 = 0x40;
const WACEREQ: u8 = 0x10;
const LBPU: u8 = 0x80;
const LBPWS: u8 = 0x40;
const LBPWS10: u8 = 0x20;
/// Unmapped blocks read as zeros.
const LBPRZ: u8 = 0x04;
/// PROVISIONING TYPE: thin.
const THIN: u8 = 0x02;
