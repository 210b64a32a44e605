"""iSCSI from Python: read, write and measure LUNs, without a kernel module and without root.

    import linerate

    with linerate.connect("iscsi://san1/iqn.2026-01.io.linerate:vm1/0") as lun:
        lun.write(0, b"\\x5a" * lun.block_size)
        lun.flush()
        assert lun.read(0, 1) == b"\\x5a" * lun.block_size

A `Lun` may be used from any number of threads; the interpreter's lock is released while a call waits. ``submit_read`` and
its like return `concurrent.futures.Future` objects, for many outstanding requests from one thread; `AsyncLun` is the same
for asyncio.
"""

from __future__ import annotations

import atexit
import json
import os
import warnings
import weakref
from asyncio import wrap_future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from . import _linerate
from ._errors import (
    AuthenticationError,
    CancelledError,
    ClosedError,
    DeviceError,
    Error,
    LoginError,
    MeasurementWarning,
    MediumError,
    NoSpaceError,
    NotFoundError,
    NotReadyError,
    OutOfRangeError,
    ReadOnlyError,
    RefusedError,
    ReservedError,
    ScsiError,
    TimedOutError,
    UnreachableError,
    UnsettledError,
    UnsupportedError,
    WritesLostError,
)
from ._linerate import __version__
from ._scsi import ScsiResult, Sense, SenseKey

if TYPE_CHECKING:
    from concurrent.futures import Future

    from typing_extensions import Buffer  # collections.abc.Buffer from Python 3.12 on

__all__ = [
    "AsyncLun",
    "AuthenticationError",
    "CancelledError",
    "ClosedError",
    "DeviceError",
    "Error",
    "LoginError",
    "Lun",
    "MeasurementWarning",
    "MediumError",
    "NoSpaceError",
    "NotFoundError",
    "NotReadyError",
    "OutOfRangeError",
    "ReadOnlyError",
    "RefusedError",
    "ReservedError",
    "ScsiError",
    "ScsiResult",
    "Sense",
    "SenseKey",
    "Target",
    "TimedOutError",
    "UnreachableError",
    "UnsettledError",
    "UnsupportedError",
    "WritesLostError",
    "__version__",
    "bench",
    "bench_suite",
    "connect",
    "diagnose",
    "discover",
]


class Lun:
    """A logical unit of a target, in a session of its own. `connect` makes one.

    Blocks are addressed by their number (``lba``), bytes by their ``offset``. Data are anything with the buffer protocol:
    bytes, bytearray, memoryview, arrays of numpy; they are copied before a call waits, so that they may be changed while a
    request is outstanding. Requests that are outstanding together may be carried out in any order.
    """

    def __init__(self, lun: _linerate.Lun) -> None:
        self._lun = lun
        _open.add(self)

    def __enter__(self) -> Lun:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        if self.closed:
            return "<linerate.Lun closed>"
        return f"<linerate.Lun {self.target} at {self.portal}: {self.blocks} blocks of {self.block_size} bytes>"

    @property
    def block_size(self) -> int:
        """Bytes of a block."""
        return self._lun.block_size

    @property
    def blocks(self) -> int:
        """Capacity in blocks. It may grow: `refresh`."""
        return self._lun.blocks

    @property
    def size(self) -> int:
        """Capacity in bytes."""
        return self.blocks * self.block_size

    @property
    def read_only(self) -> bool:
        """Write-protected."""
        return self._lun.read_only

    @property
    def thin(self) -> bool:
        """Blocks that were unmapped read as zeros."""
        return self._lun.thin

    @property
    def write_cache(self) -> bool:
        """Writes may be lost until a `flush`."""
        return self._lun.write_cache

    @property
    def identity(self) -> str:
        """The names by which the logical unit is known: those of VPD page 83h, or its serial number."""
        return self._lun.identity

    @property
    def vendor(self) -> str:
        """T10 vendor identification."""
        return self._lun.vendor

    @property
    def product(self) -> str:
        """Product identification."""
        return self._lun.product

    @property
    def revision(self) -> str:
        """Product revision level."""
        return self._lun.revision

    @property
    def target(self) -> str:
        """The target's iSCSI name."""
        return self._lun.target

    @property
    def portal(self) -> str:
        """Address and port of the login."""
        return self._lun.portal

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._lun.closed

    def negotiated(self) -> list[dict[str, Any]]:
        """Every key of the login: what was asked, what came of it, and what would be better."""
        keys: list[dict[str, Any]] = json.loads(self._lun._negotiated())
        return keys

    @property
    def parameters(self) -> dict[str, int | str]:
        """The keys of the login as negotiated, by their names in RFC 7143."""
        return {key["key"]: key["got"] for key in self.negotiated()}

    def statistics(self) -> dict[str, Any]:
        """What the session has done since its login: latencies, PDUs, bytes, system calls, incidents, TCP."""
        told: dict[str, Any] = json.loads(self._lun._statistics())
        return told

    def read(self, lba: int, blocks: int = 1) -> bytes:
        """Reads blocks."""
        return self._lun.read(lba, blocks)

    def readinto(self, lba: int, buffer: Buffer) -> int:
        """Reads as many blocks as fill a writable buffer, such as an array of numpy; gives its length in bytes."""
        return self._lun.readinto(lba, buffer)

    def read_bytes(self, offset: int, length: int) -> bytes:
        """Reads bytes, wherever blocks begin."""
        return self._lun.read_bytes(offset, length)

    def write(self, lba: int, data: Buffer, *, fua: bool = False) -> None:
        """Writes whole blocks. With ``fua`` they are on stable storage before it returns."""
        self._lun.write(lba, data, fua=fua)

    def write_bytes(self, offset: int, data: Buffer) -> None:
        """Writes bytes. Blocks that are written in part are read first; other writes of this `Lun` wait meanwhile."""
        self._lun.write_bytes(offset, data)

    def flush(self) -> None:
        """Brings everything that was written to stable storage, or raises `WritesLostError` if some of it may be lost."""
        self._lun.flush()

    def unmap(self, lba: int, blocks: int) -> None:
        """Deallocates blocks of a thin LUN, which read as zeros afterwards."""
        self._lun.unmap(lba, blocks)

    def discard(self, offset: int, length: int) -> None:
        """`unmap` by bytes: for the whole blocks within the range. The others stay as they are."""
        if offset < 0 or length < 0 or offset + length > self.size:
            raise OutOfRangeError("beyond the end of the device")
        first = -(-offset // self.block_size)
        end = (offset + length) // self.block_size
        if first < end:
            self.unmap(first, end - first)

    def write_zeroes(self, lba: int, blocks: int, *, unmap: bool = False) -> None:
        """Makes blocks read as zeros; with ``unmap`` by deallocating them where that is possible."""
        self._lun.write_zeroes(lba, blocks, unmap=unmap)

    def refresh(self) -> None:
        """Asks the target whether the LUN has grown."""
        self._lun.refresh()

    def scsi(self, cdb: bytes, *, data_in: int = 0, data_out: Buffer | None = None) -> ScsiResult:
        """Sends a SCSI command as it is, and gives the answer whatever its status: `ScsiResult.check` raises.

        ``data_in`` is how many bytes may come, ``data_out`` what is sent. Nothing is tried again, and nothing keeps a
        command from destroying data.
        """
        status, sense, data = self._lun._scsi(bytes(cdb), data_in, data_out)
        decoded = None
        if sense is not None:
            key, asc, ascq, information, deferred, text = sense
            decoded = Sense(SenseKey(key), asc, ascq, information, deferred, text)
        return ScsiResult(status, decoded, data)

    def submit_read(self, lba: int, blocks: int = 1) -> Future[bytes]:
        """`read` without waiting: a `concurrent.futures.Future`. Cancelling it aborts the command."""
        return self._lun.submit_read(lba, blocks)

    def submit_write(self, lba: int, data: Buffer, *, fua: bool = False) -> Future[None]:
        """`write` without waiting. A write that is cancelled may have been carried out, in part too."""
        return self._lun.submit_write(lba, data, fua=fua)

    def submit_flush(self) -> Future[None]:
        """`flush` without waiting, for writes whose futures are done."""
        return self._lun.submit_flush()

    def submit_unmap(self, lba: int, blocks: int) -> Future[None]:
        """`unmap` without waiting."""
        return self._lun.submit_unmap(lba, blocks)

    def close(self) -> None:
        """Logs out. Outstanding requests fail; what was written and not flushed is up to the target."""
        self._lun.close()


class AsyncLun:
    """A `Lun` for asyncio: ``read``, ``write``, ``flush`` and ``unmap`` are coroutines.

    lun = linerate.AsyncLun(await asyncio.to_thread(linerate.connect, url))
    blocks = await asyncio.gather(*(lun.read(lba) for lba in range(32)))
    """

    def __init__(self, lun: Lun) -> None:
        self.lun = lun

    async def read(self, lba: int, blocks: int = 1) -> bytes:
        """`Lun.read`."""
        return await wrap_future(self.lun.submit_read(lba, blocks))

    async def write(self, lba: int, data: Buffer, *, fua: bool = False) -> None:
        """`Lun.write`."""
        await wrap_future(self.lun.submit_write(lba, data, fua=fua))

    async def flush(self) -> None:
        """`Lun.flush`."""
        await wrap_future(self.lun.submit_flush())

    async def unmap(self, lba: int, blocks: int) -> None:
        """`Lun.unmap`."""
        await wrap_future(self.lun.submit_unmap(lba, blocks))


@dataclass(frozen=True, slots=True)
class Target:
    """A target that a portal has told of."""

    name: str
    """Its iSCSI name."""
    addresses: tuple[str, ...]
    """Its portals, ``host:port,tag``. Empty if it told none: then it is at the portal that was asked."""


def connect(url: str, *, password: str | None = None, target_password: str | None = None, **options: Any) -> Lun:
    """Logs in to a target and attaches a LUN: ``iscsi://[user@]host[:port]/target/lun[?key=value&...]``.

    ``options`` are the keys of a URL (docs/urls.md) with underscores, such as ``header_digest="crc32c"``,
    ``connections=4`` or ``reconnect_time=0``. ``password`` is the user's CHAP secret, ``target_password`` what the target
    proves itself with (mutual CHAP); without them, the environment's LINERATE_SECRET and LINERATE_TARGET_SECRET.
    """
    return Lun(_linerate.connect(url, _texts(options), *_secrets(url, password, target_password, options)))


def discover(host: str, *, password: str | None = None, target_password: str | None = None, **options: Any) -> list[Target]:
    """The targets of a portal, ``HOST[:PORT]`` or a URL without a target. Options as for `connect`."""
    secrets = _secrets(host, password, target_password, options)
    found = _linerate.discover(host, _texts(options), *secrets)
    return [Target(name, tuple(addresses)) for name, addresses in found]


def bench(
    place: str,
    *,
    seconds: float = 5,
    warm_up: float = 0,
    block: str | int = "4KiB",
    depth: int = 32,
    read: int = 100,
    random: int = 100,
    allow_write: bool | str = False,
    span: str | None = None,
    yes: bool = False,
    **workload: Any,
) -> dict[str, Any]:
    """Measures one workload, and gives what ``linerate bench --json`` prints.

    ``place`` is a URL, a volume such as ``ram:1GiB``, or a path. ``read`` and ``random`` are percentages. Further keywords
    are those of a cell of a suite (docs/suites.md), such as ``rate``, ``clients``, ``sessions``, ``distribution``.
    Anything but ``read=100`` needs ``allow_write=True`` (or a range, ``"1GiB..3GiB"``), and ``yes=True`` if something is
    on the storage. What a reader of the result should know beside is a `MeasurementWarning`.
    """
    cell = {"name": "python", "block": block, "depth": depth, "read": read, "random": random, **workload}
    for key, value in cell.items():
        if isinstance(value, (list, tuple)):
            raise RefusedError(f"bench measures one workload: {key} is a list; use bench_suite")
    if isinstance(block, int):
        cell["block"] = f"{block}B"
    stop: dict[str, Any] = {"time": f"{float(seconds)}s"}
    if warm_up:
        stop["warm-up"] = f"{float(warm_up)}s"
    step = {"stop": stop, "cell": [cell]}
    suite = {"name": "python", "title": "One workload", "about": "A workload by keywords of Python.", "step": [step]}
    text = "\n".join(f"{_key(key)} = {_toml(value)}" for key, value in suite.items())
    lines, notes = _linerate.bench(place, text, None, None, None, _allowed(allow_write), span, yes)
    _warn(notes)
    if not lines:
        raise RefusedError("this writes, which destroys the content of the storage: use allow_write=True")
    measured: dict[str, Any] = json.loads(lines[0])
    return measured


def bench_suite(
    place: str,
    suite: str = "quick",
    *,
    seconds: float | None = None,
    repeats: int | None = None,
    allow_write: bool | str = False,
    span: str | None = None,
    yes: bool = False,
) -> list[dict[str, Any]]:
    """Measures a suite by its name or file (``linerate bench --list``); gives a dict for each run.

    Without ``allow_write``, cells that write are left out. ``seconds`` and ``repeats`` shorten the suite.
    """
    lines, notes = _linerate.bench(place, None, suite, seconds, repeats, _allowed(allow_write), span, yes)
    _warn(notes)
    return [json.loads(line) for line in lines]


def diagnose(
    url: str,
    *,
    quick: bool = False,
    seconds: float | None = None,
    link_bits_per_s: float | None = None,
    allow_write: bool | str = False,
    yes: bool = False,
    seed: int = 1,
) -> dict[str, Any]:
    """Finds out why a path is slow, and gives what ``linerate diagnose --json`` prints (docs/diagnose.md).

    It takes some 40 seconds, or 12 with ``quick``.
    """
    allowed = _allowed(allow_write)
    diagnosis: dict[str, Any] = json.loads(_linerate.diagnose(url, quick, seconds, link_bits_per_s, allowed, yes, seed))
    return diagnosis


def _warn(notes: list[str]) -> None:
    for note in notes:
        warnings.warn(note, MeasurementWarning, stacklevel=3)


def _allowed(allow_write: bool | str) -> str | None:
    return {True: "..", False: None}[allow_write] if isinstance(allow_write, bool) else allow_write


def _texts(options: dict[str, Any]) -> dict[str, str]:
    """As in URLs: yes and no for booleans."""
    words = {True: "yes", False: "no"}
    return {key: words[value] if isinstance(value, bool) else str(value) for key, value in options.items()}


def _secrets(
    url: str, password: str | None, target_password: str | None, options: dict[str, Any]
) -> tuple[str | None, str | None]:
    """Those of the environment are for whoever names a user and no secret."""
    names_user = "user" in options or "@" in url
    if password is None and names_user and "%" not in url and "secret_file" not in options:
        password = os.environ.get("LINERATE_SECRET")
    if target_password is None and "target_user" in options and "target_secret_file" not in options:
        target_password = os.environ.get("LINERATE_TARGET_SECRET")
    return password, target_password


def _key(key: str) -> str:
    return key.replace("_", "-")


def _toml(value: Any) -> str:
    """JSON is TOML for numbers, booleans and strings."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{_key(key)} = {_toml(inner)}" for key, inner in value.items()) + " }"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(value)


_open: weakref.WeakSet[Lun] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    """A session that is not logged out is one that the target keeps for a while."""
    for lun in list(_open):
        lun.close()
