"""Reads and writes, against our server and tgt."""

from __future__ import annotations

import random
import threading
from concurrent.futures import ThreadPoolExecutor, wait

import linerate
import numpy
import pytest

from conftest import SIZE


def test_a_lun_tells_what_it_is(target):
    with linerate.connect(target.url()) as lun:
        assert lun.size == SIZE
        assert lun.blocks * lun.block_size == SIZE
        assert not lun.read_only
        assert lun.portal == target.portal
        assert lun.target in target.url()
        assert lun.vendor and lun.product
        assert lun.identity
        assert lun.parameters["HeaderDigest"] == "None"
        assert "blocks of" in repr(lun)
    assert lun.closed and "closed" in repr(lun)


def test_random_requests_agree_with_a_bytearray(target):
    seed = random.randrange(1 << 32)
    print("seed", seed)
    chance = random.Random(seed)
    span = 1 << 20
    model = bytearray(span)
    with linerate.connect(target.url()) as lun:
        lun.write(0, model)
        size = lun.block_size
        for _ in range(300):
            first = chance.randrange(span // size)
            blocks = chance.randrange(1, min(64, span // size - first) + 1)
            begin, end = first * size, (first + blocks) * size
            match chance.choice(["read", "readinto", "read_bytes", "write", "write_bytes", "zero", "unmap", "flush"]):
                case "read":
                    assert lun.read(first, blocks) == model[begin:end]
                case "readinto":
                    array = numpy.empty(end - begin, dtype=numpy.uint8)
                    assert lun.readinto(first, array) == end - begin
                    assert array.tobytes() == model[begin:end]
                case "read_bytes":
                    begin, end = sorted(chance.randrange(span + 1) for _ in range(2))
                    assert lun.read_bytes(begin, end - begin) == model[begin:end]
                case "write":
                    model[begin:end] = chance.randbytes(end - begin)
                    lun.write(first, memoryview(model)[begin:end], fua=chance.random() < 0.2)
                case "write_bytes":
                    begin = chance.randrange(span)
                    end = min(span, begin + chance.randrange(1, 5000))
                    model[begin:end] = chance.randbytes(end - begin)
                    lun.write_bytes(begin, model[begin:end])
                case "zero":
                    model[begin:end] = bytes(end - begin)
                    lun.write_zeroes(first, blocks, unmap=chance.random() < 0.5)
                case "unmap" if lun.thin:
                    # tgt deallocates in 4 KiB granules, and zeroes partial ones only if the LUN reports `thin`.
                    model[begin:end] = bytes(end - begin)
                    lun.unmap(first, blocks)
                case "flush":
                    lun.flush()
        assert lun.read_bytes(0, span) == model


def test_data_may_have_any_shape_and_type(server):
    with linerate.connect(server.url()) as lun:
        matrix = numpy.arange(1024, dtype=numpy.float64).reshape(32, 32)
        lun.write(8, matrix)
        back = numpy.empty_like(matrix)
        assert lun.readinto(8, back) == matrix.nbytes
        assert (back == matrix).all()
        assert (numpy.frombuffer(lun.read(8, 16), dtype=numpy.float64).reshape(32, 32) == matrix).all()
        with pytest.raises(TypeError):
            lun.write(0, "text")
        with pytest.raises((BufferError, TypeError, ValueError)):
            lun.write(0, matrix[:, ::2])  # not contiguous
        with pytest.raises(BufferError):
            lun.readinto(0, bytes(512))


def test_data_that_change_after_the_call_are_not_what_is_written(server):
    with linerate.connect(server.url()) as lun:
        data = bytearray(b"\x11" * (1 << 20))
        written = lun.submit_write(0, data)
        data[:] = b"\x22" * len(data)
        written.result()
        assert lun.read(0, 2048) == b"\x11" * (1 << 20)


def test_several_threads_share_a_lun(target):
    with linerate.connect(target.url()) as lun:
        begin = threading.Barrier(8)

        def work(number: int) -> None:
            begin.wait()
            data = bytes([number]) * lun.block_size * 4
            for turn in range(30):
                lba = (number * 30 + turn) * 4
                lun.write(lba, data)
                assert lun.read(lba, 4) == data

        with ThreadPoolExecutor(8) as threads:
            for outcome in [threads.submit(work, number) for number in range(8)]:
                outcome.result()


def test_threads_that_write_parts_of_one_block_lose_nothing(server):
    with linerate.connect(server.url()) as lun:

        def fill(number: int) -> None:
            for byte in range(number, 512, 8):
                lun.write_bytes(byte, bytes([byte % 251]))

        with ThreadPoolExecutor(8) as threads:
            for outcome in [threads.submit(fill, number) for number in range(8)]:
                outcome.result()
        assert lun.read(0) == bytes(byte % 251 for byte in range(512))


def test_many_requests_are_outstanding_at_once(target):
    with linerate.connect(target.url()) as lun:
        size = lun.block_size
        writes = [lun.submit_write(lba, lba.to_bytes(4, "big") * (size // 4)) for lba in range(256)]
        assert not wait(writes).not_done
        for write in writes:
            assert write.result() is None
        lun.submit_flush().result()
        reads = [lun.submit_read(lba) for lba in range(256)]
        for lba, read in enumerate(reads):
            assert read.result() == lba.to_bytes(4, "big") * (size // 4)
        assert lun.statistics()["read"]["commands"] >= 256


def test_asyncio_awaits_requests(server):
    import asyncio

    async def story() -> None:
        lun = await asyncio.to_thread(linerate.connect, server.url())
        disk = linerate.AsyncLun(lun)
        await asyncio.gather(*(disk.write(lba, bytes([lba]) * 512) for lba in range(64)))
        await disk.flush()
        blocks = await asyncio.gather(*(disk.read(lba) for lba in range(64)))
        assert blocks == [bytes([lba]) * 512 for lba in range(64)]
        await disk.unmap(0, 8)
        with pytest.raises(linerate.OutOfRangeError):
            await disk.read(lun.blocks)
        await asyncio.to_thread(lun.close)

    asyncio.run(story())


def test_a_file_is_copied_and_verified(target, tmp_path):
    """The example in docs/python.md."""
    source = tmp_path / "image"
    source.write_bytes(random.Random(7).randbytes(5_000_001))

    step = 1 << 20
    with linerate.connect(target.url()) as lun, source.open("rb") as file:
        offset = 0
        while data := file.read(step):
            lun.write_bytes(offset, data)
            offset += len(data)
        lun.flush()

        file.seek(0)
        offset = 0
        while data := file.read(step):
            assert lun.read_bytes(offset, len(data)) == data
            offset += len(data)
    assert offset == 5_000_001


def test_discard_leaves_the_edges(server):
    with linerate.connect(server.url()) as lun:
        lun.write(0, b"\xff" * 4096 * 4)
        lun.discard(100, 4096 * 3)
        read = lun.read_bytes(0, 4096 * 4)
        assert read[:512] == b"\xff" * 512 and read[512 : 4096 * 3] == bytes(4096 * 3 - 512)
        assert read[4096 * 3 + 100 :] == b"\xff" * (4096 - 100)
        with pytest.raises(linerate.OutOfRangeError):
            lun.discard(lun.size - 1, 2)
