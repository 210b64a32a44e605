"""The exceptions of linerate.

The class identifies the kind of failure; the text describes it in one sentence. ``sense_key`` is the SCSI sense key of
the class, if there is one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._scsi import SenseKey

if TYPE_CHECKING:
    from ._scsi import ScsiResult, Sense


class Error(Exception):
    """Base class of all exceptions of linerate."""

    sense_key: SenseKey | None = None
    """The sense key that a SCSI target would report for it."""

    lba: int | None
    """The affected block, if the target reported one."""

    def __init__(self, message: str, lba: int | None = None) -> None:
        super().__init__(message)
        self.lba = lba


class MeasurementWarning(UserWarning):
    """A note on how to interpret a measurement, for example that it read unwritten blocks."""


class RefusedError(Error, ValueError):
    """Rejected before any action: a wrong URL, option or suite, or a write that is not allowed."""


class UnreachableError(Error, ConnectionError):
    """No address, no connection, or no response in time."""


class LoginError(Error, ConnectionError):
    """The target rejected the login."""


class AuthenticationError(LoginError):
    """A wrong or missing secret, on either side."""


class NotFoundError(LoginError):
    """The target or its LUN does not exist."""


class ClosedError(Error, ValueError):
    """The LUN was closed, or belongs to the parent of a forked process."""


class DeviceError(Error, OSError):
    """A request failed; the subclass identifies the cause."""


class OutOfRangeError(DeviceError, ValueError):
    """The blocks are beyond the end of the LUN."""

    sense_key = SenseKey.ILLEGAL_REQUEST


class UnsupportedError(DeviceError):
    """The LUN does not support this request."""

    sense_key = SenseKey.ILLEGAL_REQUEST


class ReadOnlyError(DeviceError):
    """The LUN is write-protected."""

    sense_key = SenseKey.DATA_PROTECT


class NoSpaceError(DeviceError):
    """The underlying storage of a thin LUN is full."""

    sense_key = SenseKey.DATA_PROTECT


class MediumError(DeviceError):
    """The block ``lba`` could not be read or written."""

    sense_key = SenseKey.MEDIUM_ERROR


class NotReadyError(DeviceError):
    """The LUN is out of service, or the session is lost. A retry later may succeed."""

    sense_key = SenseKey.NOT_READY


class ReservedError(DeviceError):
    """Another initiator has reserved the LUN (RESERVATION CONFLICT, which has no sense key)."""


class TimedOutError(DeviceError, TimeoutError):
    """The target did not respond in time."""


class CancelledError(DeviceError):
    """A reset or an abort ended the request."""

    sense_key = SenseKey.ABORTED_COMMAND


class WritesLostError(DeviceError):
    """A flush found that acknowledged writes may be lost. Write everything since the last flush again."""


class UnsettledError(DeviceError):
    """An earlier write to these blocks failed and may still execute: their content is unknown."""


class ScsiError(Error):
    """A command completed with a status other than GOOD (`ScsiResult.check`)."""

    result: ScsiResult
    """The target's response."""

    def __init__(self, result: ScsiResult) -> None:
        sense = result.sense
        super().__init__(
            str(sense) if sense else result.status_name,
            sense.information if sense else None,
        )
        self.result = result
        self.sense_key = sense.key if sense else None

    @property
    def status(self) -> int:
        """The SCSI status."""
        return self.result.status

    @property
    def sense(self) -> Sense | None:
        """The sense data."""
        return self.result.sense
