"""Requests that the NBD standard forbids, or allows at its edges, and what a server must say: run by /usr/bin/python3.

Arguments: the URL of a server, the size of its exports in bytes, the size of their blocks. Export names: `disk`, and
`protected` for the same read-only.
"""
import errno
import sys

import nbd

BASE, SIZE = sys.argv[1], int(sys.argv[2])
MIB = 1 << 20
failures = []


def connect(name="disk", structured=True, contexts=True):
    h = nbd.NBD()
    h.set_request_structured_replies(structured)
    if contexts and structured:
        h.add_meta_context("base:allocation")
    h.set_strict_mode(0)
    h.connect_uri(f"{BASE}/{name}")
    return h


def check(what, condition, detail=""):
    print("ok  " if condition else "FAIL", what, detail)
    if not condition:
        failures.append(what)


def refused(what, wanted, act):
    try:
        act()
    except nbd.Error as e:
        return check(what, e.errnum == wanted, f"{e.errnum} {e.string}")
    check(what, False, "succeeded")


def is_alive(h):
    return h.aio_is_ready() and len(h.pread(512, 0)) == 512


for structured in (False, True):
    form = "structured" if structured else "simple"
    h = connect(structured=structured)
    check(f"{form}: negotiated", h.get_structured_replies_negotiated() == structured)
    check(f"{form}: size", h.get_size() == SIZE)
    check(f"{form}: DF only with structured replies", h.can_df() == structured)
    for name in ("flush", "fua", "trim", "zero", "fast_zero", "multi_conn", "cache"):
        check(f"{form}: can {name}", getattr(h, f"can_{name}")())
    check(f"{form}: is not read-only", not h.is_read_only())
    # The end.
    refused(f"{form}: read past the end", errno.EINVAL, lambda: h.pread(512, SIZE))
    refused(f"{form}: read across the end", errno.EINVAL, lambda: h.pread(1024, SIZE - 512))
    refused(f"{form}: read at 2^64-1", errno.EINVAL, lambda: h.pread(512, (1 << 63) - 1))
    refused(f"{form}: write past the end", errno.ENOSPC, lambda: h.pwrite(b"x" * 512, SIZE))
    refused(f"{form}: write across the end", errno.ENOSPC, lambda: h.pwrite(b"x" * 1024, SIZE - 512))
    refused(f"{form}: zeroes past the end", errno.ENOSPC, lambda: h.zero(1024, SIZE - 512))
    refused(f"{form}: trim past the end", errno.EINVAL, lambda: h.trim(1024, SIZE - 512))
    refused(f"{form}: cache past the end", errno.EINVAL, lambda: h.cache(1024, SIZE - 512))
    check(f"{form}: the last byte is read", len(h.pread(1, SIZE - 1)) == 1)
    h.pwrite(b"\xee", SIZE - 1)
    check(f"{form}: the last byte is written", h.pread(1, SIZE - 1) == b"\xee")
    refused(f"{form}: a refused write of 32 MiB leaves the connection", errno.ENOSPC,
            lambda: h.pwrite(bytes(32 * MIB), SIZE - 512))
    check(f"{form}: alive", is_alive(h))
    # Flags that belong to other commands, or to none.
    for flag in (2, 8, 16, 32, 64, 0x8000):
        refused(f"{form}: read with flag {flag:#x}", errno.EINVAL, lambda: h.pread(512, 0, flags=flag))
    for flag in (2, 4, 8, 16, 32, 64, 0x8000):
        refused(f"{form}: write with flag {flag:#x}", errno.EINVAL, lambda: h.pwrite(bytes(512), 0, flags=flag))
    for flag in (2, 4, 8, 16, 32, 0x8000):
        refused(f"{form}: trim with flag {flag:#x}", errno.EINVAL, lambda: h.trim(512, 0, flags=flag))
        refused(f"{form}: flush with flag {flag:#x}", errno.EINVAL, lambda: h.flush(flags=flag))
        refused(f"{form}: cache with flag {flag:#x}", errno.EINVAL, lambda: h.cache(512, 0, flags=flag))
    for flag in (4, 8, 32, 0x8000):
        refused(f"{form}: zero with flag {flag:#x}", errno.EINVAL, lambda: h.zero(512, 0, flags=flag))
    if not structured:
        refused("simple: read with DF", errno.EINVAL, lambda: h.pread(512, 0, flags=nbd.CMD_FLAG_DF))
    # FUA on every command.
    fua = nbd.CMD_FLAG_FUA
    h.pwrite(b"f" * 513, 77, flags=fua)
    check(f"{form}: read with FUA", h.pread(513, 77, flags=fua) == bytearray(b"f" * 513))
    h.trim(4096, 0, flags=fua)
    h.zero(4097, 1, flags=fua)
    h.zero(4096, 0, flags=fua | nbd.CMD_FLAG_NO_HOLE)
    h.cache(4096, 0, flags=fua)
    h.flush(flags=fua)
    # Nothing.
    for offset in (0, 1, 4096, SIZE):
        for what, act in (("read", lambda: h.pread(0, offset)), ("write", lambda: h.pwrite(b"", offset)),
                          ("trim", lambda: h.trim(0, offset)), ("zero", lambda: h.zero(0, offset)),
                          ("cache", lambda: h.cache(0, offset))):
            try:
                act()
            except nbd.Error as e:
                print(f"     {form}: {what} of nothing at {offset}: {e}")
            check(f"{form}: alive after {what} of nothing at {offset}", is_alive(h))
    # The longest payload, and lengths that are none.
    pattern = bytes(range(251)) * (32 * MIB // 251 + 1)
    for length, offset in ((32 * MIB, 0), (32 * MIB, 12345), (32 * MIB - 1, 1)):
        data = pattern[offset:offset + length] if offset else pattern[:length]
        data = data.ljust(length, b"z")
        h.pwrite(data, offset)
        check(f"{form}: {length} bytes at {offset}", h.pread(length, offset) == data)
    refused(f"{form}: read of more", errno.EINVAL, lambda: h.pread(32 * MIB + 1, 0))
    check(f"{form}: alive", is_alive(h))
    h.trim(SIZE, 0)
    h.cache(SIZE, 0)
    h.zero(SIZE - 2, 1)
    check(f"{form}: zeroes longer than a payload", not any(h.pread(MIB, SIZE // 2)))
    h.pwrite(b"q" * 8192, 4096)
    h.zero(8000, 4100, flags=nbd.CMD_FLAG_NO_HOLE)
    check(f"{form}: zeroes between bytes",
          h.pread(8192, 4096) == bytearray(b"q" * 4 + bytes(8000) + b"q" * 188))
    h.zero(100, 4096 + 8100, flags=fua)
    h.pwrite(b"fast" * 2048, 0)
    h.zero(8192, 0, flags=nbd.CMD_FLAG_FAST_ZERO)
    check(f"{form}: FAST_ZERO", not any(h.pread(8192, 0)))
    h.pwrite(b"slow" * 2048, 0)
    refused(f"{form}: FAST_ZERO without holes", errno.ENOTSUP,
            lambda: h.zero(8192, 0, flags=nbd.CMD_FLAG_FAST_ZERO | nbd.CMD_FLAG_NO_HOLE))
    check(f"{form}: ENOTSUP changes nothing", h.pread(8192, 0) == bytearray(b"slow" * 2048))
    # Extents.
    if structured:
        h.zero(SIZE, 0)
        h.pwrite(b"x" * 65536, 131072)
        told = []
        h.block_status(SIZE, 0, lambda context, offset, entries, error: told.append((context, offset, entries)) and 0)
        (context, offset, entries) = told[0]
        lengths = entries[0::2]
        check("block status", context == "base:allocation" and offset == 0 and sum(lengths) <= SIZE and all(lengths),
              str(entries[:12]))
        for offset, length in ((131073, 10), (131071, 2), (100000, 100000), (SIZE - 1, 1)):
            told = []
            h.block_status(length, offset, lambda c, o, e, x: told.append(e) and 0, flags=nbd.CMD_FLAG_REQ_ONE)
            check(f"REQ_ONE at {offset}", len(told[0]) == 2 and 0 < told[0][0] <= length, str(told))
        refused("block status past the end", errno.EINVAL, lambda: h.block_status(2, SIZE - 1, lambda *a: 0))
        data = h.pread(65536, 131072 - 32768, flags=nbd.CMD_FLAG_DF)
        check("a read with DF", data == bytearray(bytes(32768) + b"x" * 32768))
        chunks = []
        h.pread_structured(200000, 1, lambda data, offset, status, error: chunks.append((offset, len(data))) and 0,
                           flags=nbd.CMD_FLAG_DF)
        check("DF is one chunk", chunks == [(1, 200000)], str(chunks))
        without = connect(contexts=False)
        refused("block status without a context", errno.EINVAL,
                lambda: without.block_status(4096, 0, lambda *a: 0))
        check("alive", is_alive(without))
        without.shutdown()
    else:
        refused("simple: block status", errno.EINVAL, lambda: h.block_status(4096, 0, lambda *a: 0))
        check("simple: alive", is_alive(h))
    # Many at once: each answer has its request's cookie.
    h.zero(SIZE, 0)
    buffers, cookies = [], []
    for i in range(64):
        h.pwrite(bytes([i + 1]) * 4096, i * 8192)
    for i in range(64):
        buffer = nbd.Buffer(4096)
        buffers.append(buffer)
        cookies.append(h.aio_pread(buffer, i * 8192))
    while h.aio_in_flight():
        h.poll(-1)
    check(f"{form}: cookies", all(h.aio_command_completed(c) for c in cookies)
          and all(bytes(b.to_bytearray()) == bytes([i + 1]) * 4096 for i, b in enumerate(buffers)))
    # A disconnect with requests outstanding: all of them are carried out first.
    done = []
    for i in range(64):
        h.aio_pwrite(nbd.Buffer.from_bytearray(bytearray([0x80 | i]) * 65536), i * 65536,
                     completion=lambda error, i=i: done.append((i, error.value)) or 1)
    try:
        h.shutdown()
    except nbd.Error as e:
        check(f"{form}: disconnect", False, str(e))
    h = connect(structured=structured)
    errors = [error for (_, error) in done if error]
    check(f"{form}: outstanding requests are carried out before a disconnect",
          len(done) == 64 and not errors
          and all(h.pread(65536, i * 65536) == bytearray([0x80 | i]) * 65536 for i in range(64)),
          f"{len(done)} {errors[:3]}")
    h.shutdown()

    ro = connect("protected", structured)
    check(f"{form}: is read-only", ro.is_read_only() and not ro.can_trim() and not ro.can_zero())
    refused(f"{form}: write to read-only", errno.EPERM, lambda: ro.pwrite(bytes(512), 0))
    refused(f"{form}: zero read-only", errno.EPERM, lambda: ro.zero(512, 0))
    refused(f"{form}: trim read-only", errno.EPERM, lambda: ro.trim(512, 0))
    refused(f"{form}: a long write to read-only", errno.EPERM, lambda: ro.pwrite(bytes(32 * MIB), 0))
    check(f"{form}: alive", is_alive(ro))
    ro.flush()
    ro.shutdown()

# Options, one by one.
h = nbd.NBD()
h.set_opt_mode(True)
h.add_meta_context("base:allocation")
h.connect_uri(f"{BASE}/disk")
names = []
h.opt_list(lambda name, description: names.append(name) and 0)
check("LIST", "disk" in names and "protected" in names, str(names))
contexts = []
h.opt_list_meta_context(lambda name: contexts.append(name) and 0)
check("LIST_META_CONTEXT", contexts == ["base:allocation"], str(contexts))
h.set_export_name("nothing")
refused("INFO of an unknown export", errno.ENOENT, h.opt_info)
refused("GO to an unknown export", errno.ENOENT, h.opt_go)
h.set_export_name("disk")
h.opt_info()
check("INFO", h.get_size() == SIZE)
sizes = [h.get_block_size(i) for i in (nbd.SIZE_MINIMUM, nbd.SIZE_PREFERRED, nbd.SIZE_MAXIMUM)]
check("block sizes", sizes[0] == 1 and sizes[1] >= 4096 and sizes[2] == 32 * MIB, str(sizes))
h.opt_go()
check("GO", len(h.pread(512, 0)) == 512 and h.can_meta_context("base:allocation"))
h.shutdown()

print(f"{len(failures)} failures")
sys.exit(bool(failures))
