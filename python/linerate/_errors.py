"""The exceptions of linerate.

The class says what kind of failure it was, the text says it in one sentence. ``sense_key`` is the SCSI sense key of the
class, where SCSI has one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._scsi import SenseKey

if TYPE_CHECKING:
    from ._scsi import ScsiResult, Sense


class Error(Exception):
    """What every exception of linerate is."""

    sense_key: SenseKey | None = None
    """The sense key that a SCSI target has for it."""

    lba: int | None
    """The block at fault, if the target named one."""

    def __init__(self, message: str, lba: int | None = None) -> None:
        super().__init__(message)
        self.lba = lba


class MeasurementWarning(UserWarning):
    """What a reader of a measurement should know of how it came about, such as that never written blocks were read."""


class RefusedError(Error, ValueError):
    """Refused before anything was done: a wrong URL, option or suite, or a write that is not allowed."""


class UnreachableError(Error, ConnectionError):
    """No address, no connection, or no answer in time."""


class LoginError(Error, ConnectionError):
    """The target refused the login."""


class AuthenticationError(LoginError):
    """A wrong secret, or none, on either side."""


class NotFoundError(LoginError):
    """The target, or its LUN, does not exist."""


class ClosedError(Error, ValueError):
    """The LUN was closed, or belongs to the parent of a forked process."""


class DeviceError(Error, OSError):
    """A request failed. Its subclasses say why."""


class OutOfRangeError(DeviceError, ValueError):
    """The blocks do not lie within the LUN."""

    sense_key = SenseKey.ILLEGAL_REQUEST


class UnsupportedError(DeviceError):
    """The LUN does not support this request."""

    sense_key = SenseKey.ILLEGAL_REQUEST


class ReadOnlyError(DeviceError):
    """The LUN is write-protected."""

    sense_key = SenseKey.DATA_PROTECT


class NoSpaceError(DeviceError):
    """The storage below a thin LUN is full."""

    sense_key = SenseKey.DATA_PROTECT


class MediumError(DeviceError):
    """A block could not be read or written: ``lba``."""

    sense_key = SenseKey.MEDIUM_ERROR


class NotReadyError(DeviceError):
    """The LUN is out of service, or the session is lost. A later try may succeed."""

    sense_key = SenseKey.NOT_READY


class ReservedError(DeviceError):
    """Another initiator has reserved the LUN (RESERVATION CONFLICT, which has no sense key)."""


class TimedOutError(DeviceError, TimeoutError):
    """The target did not answer in time."""


class CancelledError(DeviceError):
    """A reset or an abort ended the request."""

    sense_key = SenseKey.ABORTED_COMMAND


class WritesLostError(DeviceError):
    """A flush found that acknowledged writes may be lost. What was written since the last flush must be written again."""


class UnsettledError(DeviceError):
    """An earlier write of these blocks failed and may still be carried out: their content is unknown."""


class ScsiError(Error):
    """A command ended with another status than GOOD (`ScsiResult.check`)."""

    result: ScsiResult
    """The target's answer."""

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
