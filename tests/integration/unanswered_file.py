"""A file whose close() waits: a file system in user space (FUSE) that answers everything but that."""

import ctypes
import os
import select
import struct
import subprocess
import sys
from contextlib import contextmanager, suppress

ANSWERS = {  # by the number of the operation in linux/fuse.h
    26: struct.pack("<IIIIHHIIHHI7I", 7, 31, 65536, 0, 12, 9, 65536, 1, 0, 0, 0, *[0] * 7),  # INIT
    3: struct.pack("<QII6Q10I", 100, 0, 0, 1, 4096, 8, 0, 0, 0, 0, 0, 0, 0o100666, 1, 0, 0, 0, 4096, 0),  # GETATTR
    14: struct.pack("<QII", 1, 0, 0),  # OPEN
}
SILENT = (2, 25, 36)  # FORGET, FLUSH, INTERRUPT
NOT_IMPLEMENTED = -38


@contextmanager
def unanswered_file(path):
    """Opens a file at that path; yields its descriptor, or None if this process may not mount file systems. Every close()
    of it waits until the end. Start no program before: it would close the descriptor."""
    path.touch()
    with subprocess.Popen([sys.executable, __file__, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as served:
        file = os.open(path, os.O_RDWR | os.O_CLOEXEC) if served.stdout.readline() == "mounted\n" else None
        try:
            yield file
        finally:
            served.kill()  # the kernel then answers for it
            if file is not None:
                with suppress(OSError):
                    os.close(file)
                subprocess.run(["umount", "--lazy", path], check=True)


def main():
    device = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    libc = ctypes.CDLL(None, use_errno=True)
    options = f"fd={device},rootmode=100000,user_id=0,group_id=0"
    if libc.mount(b"unanswered", os.fsencode(sys.argv[1]), b"fuse", 0, options.encode()) != 0:
        sys.exit(os.strerror(ctypes.get_errno()))
    print("mounted", flush=True)
    while select.select([device, sys.stdin], [], [])[0] == [device]:  # else the process that wants the file has ended
        _, operation, number = struct.unpack_from("<IIQ", os.read(device, 1 << 20))
        if operation not in SILENT:
            answer = ANSWERS.get(operation, b"")
            error = 0 if answer else NOT_IMPLEMENTED
            os.write(device, struct.pack("<IiQ", 16 + len(answer), error, number) + answer)


if __name__ == "__main__":
    main()
