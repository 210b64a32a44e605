//! Arbitrary SCSI data for the decoders of both ends: nothing panics, and decoded data can be displayed.
#![no_main]

use libfuzzer_sys::fuzz_target;
use scsi::*;

fuzz_target!(|bytes: &[u8]| {
    let [code, rest @ ..] = bytes else { return };
    shown(&Vpd::parse(*code, rest).map(|page| page.to_string()));
    shown(&(
        Inquiry::parse(rest),
        Designator::parse(rest),
        CacheGeneration::parse(rest),
    ));
    shown(&(
        BlockLimits::parse(rest),
        Provisioning::parse(rest),
        BlockDeviceCharacteristics::parse(rest),
    ));
    shown(&(TransportId::parse(rest), TransportId::parse_strictly(rest)));
    for form in [ModeForm::Six, ModeForm::Ten] {
        let modes = Modes::parse(form, rest);
        shown(&modes.as_ref().map(Modes::caching));
        modes
            .iter()
            .flat_map(|modes| &modes.pages)
            .for_each(|page| shown(&page.to_string()));
    }
    shown(&(
        Capacity::parse_16(rest),
        Capacity::parse_10(rest),
        LunList::parse(rest),
        PortGroup::parse_list(rest),
    ));
    LbaStatusDescriptor::parse_list(rest).for_each(|one| shown(&one));
    UnmapDescriptor::parse_list(rest)
        .into_iter()
        .flatten()
        .for_each(|one| shown(&one));
    shown(&(
        SupportedCommand::parse_list(rest),
        CommandSupport::parse(rest),
    ));
    shown(&(
        RegisteredKeys::parse(rest),
        Reservation::parse(rest),
        ReservationCapabilities::parse(rest),
    ));
    shown(&(
        Registration::parse_list(rest),
        ReserveOutList::parse(rest),
        ReserveMoveList::parse(rest),
    ));
    shown(&OperatingParameters::parse_all(rest));
    let limits = OperatingParameters::parse(rest);
    shown(&CopyList::parse(rest, rest.len(), &limits));
    if let Some(sense) = Sense::parse(rest) {
        shown(&sense);
        assert!(!sense.to_string().is_empty());
    }
});

/// Displays decoded data, since formatting can also fail.
fn shown(decoded: &impl std::fmt::Debug) {
    let _ = format!("{decoded:?}");
}
