"""iSCSI from Python: read, write and measure LUNs, without a kernel module and without root.

    import linerate

    with linerate.connect("iscsi://san1/iqn.2026-01.io.linerate:vm1/0") as lun:
        lun.write(0, b"\\x5a" * lun.block_size)
        lun.flush()
        assert lun.read(0, 1) == b"\\x5a" * lun.block_size

You can use a `Lun` from any number of threads; calls release the interpreter's lock while they wait. ``submit_read`` and
similar methods return `concurrent.futures.Future` objects, for many outstanding requests from one thread. For asyncio, use
`AsyncLun`.
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
    """A logical unit of a target, with its own session. Created by `connect`.

    Blocks are addressed by their number (``lba``), bytes by their ``offset``. Data can be any object with the buffer
    protocol: bytes, bytearray, memoryview, numpy arrays. It is copied before a call waits, so you can change it while the
    request is outstanding. Outstanding requests can execute in any order.
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
        """Bytes per block."""
        return self._lun.block_size

    @property
    def blocks(self) -> int:
        """Capacity in blocks. `refresh` updates it after the LUN has grown."""
        return self._lun.blocks

    @property
    def size(self) -> int:
        """Capacity in bytes."""
        return self.blocks * self.block_size

    @property
    def read_only(self) -> bool:
        """True if the LUN is write-protected."""
        return self._lun.read_only

    @property
    def thin(self) -> bool:
        """True if unmapped blocks read as zeros."""
        return self._lun.thin

    @property
    def write_cache(self) -> bool:
        """True if writes can be lost until a `flush`."""
        return self._lun.write_cache

    @property
    def identity(self) -> str:
        """The logical unit's designators from VPD page 83h, or its serial number."""
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
        """True after `close`."""
        return self._lun.closed

    def negotiated(self) -> list[dict[str, Any]]:
        """Every key of the login: its requested, negotiated and recommended values."""
        keys: list[dict[str, Any]] = json.loads(self._lun._negotiated())
        return keys

    @property
    def parameters(self) -> dict[str, int | str]:
        """The keys of the login as negotiated, by their names in RFC 7143."""
        return {key["key"]: key["got"] for key in self.negotiated()}

    def statistics(self) -> dict[str, Any]:
        """Statistics of the session since its login: latencies, PDUs, bytes, system calls, incidents, TCP."""
        told: dict[str, Any] = json.loads(self._lun._statistics())
        return told

    def read(self, lba: int, blocks: int = 1) -> bytes:
        """Reads blocks."""
        return self._lun.read(lba, blocks)

    def readinto(self, lba: int, buffer: Buffer) -> int:
        """Fills a writable buffer, such as a numpy array, with whole blocks. Returns its length in bytes."""
        return self._lun.readinto(lba, buffer)

    def read_bytes(self, offset: int, length: int) -> bytes:
        """Reads bytes, regardless of block boundaries."""
        return self._lun.read_bytes(offset, length)

    def write(self, lba: int, data: Buffer, *, fua: bool = False) -> None:
        """Writes whole blocks. With ``fua``, they are on stable storage when the call returns."""
        self._lun.write(lba, data, fua=fua)

    def write_bytes(self, offset: int, data: Buffer) -> None:
        """Writes bytes. Partial blocks are read first; meanwhile, other writes of this `Lun` to these blocks wait."""
        self._lun.write_bytes(offset, data)

    def flush(self) -> None:
        """Flushes all writes to stable storage. Raises `WritesLostError` if acknowledged writes may be lost."""
        self._lun.flush()

    def unmap(self, lba: int, blocks: int) -> None:
        """Deallocates blocks of a thin LUN; they then read as zeros."""
        self._lun.unmap(lba, blocks)

    def discard(self, offset: int, length: int) -> None:
        """Deallocates the whole blocks within a range of bytes. Partial blocks at its ends are unchanged."""
        if offset < 0 or length < 0 or offset + length > self.size:
            raise OutOfRangeError("beyond the end of the device")
        first = -(-offset // self.block_size)
        end = (offset + length) // self.block_size
        if first < end:
            self.unmap(first, end - first)

    def write_zeroes(self, lba: int, blocks: int, *, unmap: bool = False) -> None:
        """Zeroes blocks; with ``unmap``, by deallocating them where possible."""
        self._lun.write_zeroes(lba, blocks, unmap=unmap)

    def refresh(self) -> None:
        """Queries the target for a new capacity."""
        self._lun.refresh()

    def scsi(self, cdb: bytes, *, data_in: int = 0, data_out: Buffer | None = None) -> ScsiResult:
        """Sends a SCSI command unchanged and returns its result for any status; `ScsiResult.check` raises.

        ``data_in`` is the maximum number of bytes to receive, ``data_out`` the data to send. Commands are not retried.
        Nothing stops a command that destroys data.
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
        """`write` without waiting. A cancelled write may have been executed, even partly."""
        return self._lun.submit_write(lba, data, fua=fua)

    def submit_flush(self) -> Future[None]:
        """`flush` without waiting. It covers writes whose futures are done."""
        return self._lun.submit_flush()

    def submit_unmap(self, lba: int, blocks: int) -> Future[None]:
        """`unmap` without waiting."""
        return self._lun.submit_unmap(lba, blocks)

    def close(self) -> None:
        """Logs out. Outstanding requests fail; whether unflushed writes survive depends on the target."""
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
    """A target found by discovery."""

    name: str
    """Its iSCSI name."""
    addresses: tuple[str, ...]
    """Its portals, ``host:port,tag``. Empty if none were reported: the target is then at the queried portal."""


def connect(url: str, *, password: str | None = None, target_password: str | None = None, **options: Any) -> Lun:
    """Logs in to a target and attaches a LUN: ``iscsi://[user@]host[:port]/target/lun[?key=value&...]``.

    ``options`` are the keys of a URL (docs/urls.md) with underscores, such as ``header_digest="crc32c"``,
    ``connections=4`` or ``reconnect_time=0``. ``password`` is the user's CHAP secret, ``target_password`` that of the
    target (mutual CHAP). Their defaults are the environment variables LINERATE_SECRET and LINERATE_TARGET_SECRET.
    """
    return Lun(_linerate.connect(url, _texts(options), *_secrets(url, password, target_password, options)))


def discover(host: str, *, password: str | None = None, target_password: str | None = None, **options: Any) -> list[Target]:
    """Lists the targets of a portal, ``HOST[:PORT]`` or a URL without a target. Options are as for `connect`."""
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
    """Measures one workload, and returns the output of ``linerate bench --json``.

    ``place`` is a URL, a volume such as ``ram:1GiB``, or a path. ``read`` and ``random`` are percentages. Further keywords
    are the keys of a suite's cell (docs/suites.md), such as ``rate``, ``clients``, ``sessions``, ``distribution``.
    If ``read`` is below 100, pass ``allow_write=True`` (or a range, ``"1GiB..3GiB"``), and ``yes=True`` if the storage has
    content. Notes on the result are raised as `MeasurementWarning`.
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
        raise RefusedError("the workload overwrites the storage; to permit this, use allow_write=True")
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
    """Runs a suite, by name (``linerate bench --list``) or file. Returns a dict for each run.

    Without ``allow_write``, cells that write are skipped. ``seconds`` and ``repeats`` shorten the suite.
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
    """Diagnoses a slow path, and returns the output of ``linerate diagnose --json`` (docs/diagnose.md).

    This takes about 40 seconds, or 12 with ``quick``.
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
    """Options as text, as in URLs: booleans become yes and no."""
    words = {True: "yes", False: "no"}
    return {key: words[value] if isinstance(value, bool) else str(value) for key, value in options.items()}


def _secrets(
    url: str, password: str | None, target_password: str | None, options: dict[str, Any]
) -> tuple[str | None, str | None]:
    """The secrets to use. Those of the environment apply only if a user and no secret is specified."""
    names_user = "user" in options or "@" in url
    if password is None and names_user and "%" not in url and "secret_file" not in options:
        password = os.environ.get("LINERATE_SECRET")
    if target_password is None and "target_user" in options and "target_secret_file" not in options:
        target_password = os.environ.get("LINERATE_TARGET_SECRET")
    return password, target_password


def _key(key: str) -> str:
    return key.replace("_", "-")


def _toml(value: Any) -> str:
    """A value in TOML. For numbers, booleans and strings, JSON is also TOML."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{_key(key)} = {_toml(inner)}" for key, inner in value.items()) + " }"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(value)


_open: weakref.WeakSet[Lun] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    """Logs out all sessions: otherwise the target would keep them for a while."""
    for lun in list(_open):
        lun.close()
