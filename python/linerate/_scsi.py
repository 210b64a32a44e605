"""Results of SCSI commands."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum


class SenseKey(IntEnum):
    """SPC-4, table 48."""

    NO_SENSE = 0x0
    RECOVERED_ERROR = 0x1
    NOT_READY = 0x2
    MEDIUM_ERROR = 0x3
    HARDWARE_ERROR = 0x4
    ILLEGAL_REQUEST = 0x5
    UNIT_ATTENTION = 0x6
    DATA_PROTECT = 0x7
    BLANK_CHECK = 0x8
    VENDOR_SPECIFIC = 0x9
    COPY_ABORTED = 0xA
    ABORTED_COMMAND = 0xB
    RESERVED = 0xC
    VOLUME_OVERFLOW = 0xD
    MISCOMPARE = 0xE
    COMPLETED = 0xF


@dataclass(frozen=True, slots=True)
class Sense:
    """The sense data of a command (SPC-4 4.5)."""

    key: SenseKey
    asc: int
    """ADDITIONAL SENSE CODE."""
    ascq: int
    """ADDITIONAL SENSE CODE QUALIFIER."""
    information: int | None
    """INFORMATION, if it is valid: for medium errors, the affected block."""
    deferred: bool
    """True if it concerns an earlier command, whose status was already sent."""
    text: str
    """The sense data decoded as text."""

    def __str__(self) -> str:
        return self.text


_STATUS_NAMES = {
    0x00: "GOOD",
    0x02: "CHECK CONDITION",
    0x04: "CONDITION MET",
    0x08: "BUSY",
    0x18: "RESERVATION CONFLICT",
    0x28: "TASK SET FULL",
    0x30: "ACA ACTIVE",
    0x40: "TASK ABORTED",
}


@dataclass(frozen=True, slots=True)
class ScsiResult:
    """The target's response to a command."""

    status: int
    """The SCSI status (SAM-5, table 45): 0 is GOOD, 2 CHECK CONDITION."""
    sense: Sense | None
    data: bytes
    """The received data, as long as the target sent."""

    @property
    def status_name(self) -> str:
        """The name of the status in SAM-5."""
        return _STATUS_NAMES.get(self.status, f"status {self.status:#04x}")

    @property
    def ok(self) -> bool:
        """True if the status is GOOD."""
        return self.status == 0

    def check(self) -> ScsiResult:
        """Raises `ScsiError` unless the status is GOOD; otherwise returns itself."""
        from ._errors import ScsiError

        if not self.ok:
            raise ScsiError(self)
        return self
