"""A session of libiscsi: a command a line on standard input, an answer a line on standard output.

Arguments: the portal, the target, the initiator's name. Commands: `tur LUN`, `luns`, `blocks LUN`.
Ends with exit code 77 if the library is not there.
"""

import ctypes
import sys

try:
    lib = ctypes.CDLL("libiscsi.so.7")
except OSError:
    sys.exit(77)

NORMAL = 2
for name in ["iscsi_create_context", "iscsi_testunitready_sync", "iscsi_reportluns_sync",
             "iscsi_readcapacity16_sync", "scsi_datain_unmarshall"]:
    getattr(lib, name).restype = ctypes.c_void_p
lib.iscsi_get_error.restype = ctypes.c_char_p


class Capacity(ctypes.Structure):
    _fields_ = [("returned_lba", ctypes.c_uint64), ("block_length", ctypes.c_uint32)]


class Luns(ctypes.Structure):
    _fields_ = [("num", ctypes.c_uint32), ("luns", ctypes.c_uint16 * 256)]


def numbers(data):
    luns = ctypes.cast(data, ctypes.POINTER(Luns))[0]
    return " ".join(str(luns.luns[i]) for i in range(min(luns.num, 256)))


def blocks(data):
    return str(ctypes.cast(data, ctypes.POINTER(Capacity))[0].returned_lba + 1)


def main(portal, target, initiator):
    context = ctypes.c_void_p(lib.iscsi_create_context(initiator.encode()))
    lib.iscsi_set_targetname(context, target.encode())
    lib.iscsi_set_session_type(context, NORMAL)
    if lib.iscsi_full_connect_sync(context, portal.encode(), 0) != 0:
        sys.exit(lib.iscsi_get_error(context).decode())

    def answer(task, read=None):
        said = lib.iscsi_get_error(context).decode()
        if task is None:
            return said
        task = ctypes.c_void_p(task)
        if ctypes.cast(task, ctypes.POINTER(ctypes.c_int))[0] == 0:  # its status is GOOD
            said = read(ctypes.c_void_p(lib.scsi_datain_unmarshall(task))) if read else "good"
        lib.scsi_free_scsi_task(task)
        return said

    print("ready", flush=True)
    for line in sys.stdin:
        words = line.split()
        if words[0] == "tur":
            said = answer(lib.iscsi_testunitready_sync(context, int(words[1])))
        elif words[0] == "luns":
            said = answer(lib.iscsi_reportluns_sync(context, 0, 2048), numbers)
        else:
            said = answer(lib.iscsi_readcapacity16_sync(context, int(words[1])), blocks)
        print(said.replace("\n", " "), flush=True)


main(*sys.argv[1:])
