"""opening.py PLUGIN: what a plugin is before it has a device: what it exports, and what it answers where there is none.
Ends with one line, "N passed, N failed"."""

import ctypes
import os
import subprocess
import sys

import plugin

os.environ["CUDA_VISIBLE_DEVICES"] = ""  # where there is one, it is hidden


def exports_two_names(library):
    lines = subprocess.run(["nm", "--dynamic", "--defined-only", library], stdout=subprocess.PIPE, text=True, check=True)
    assert [line.split()[-1] for line in lines.stdout.splitlines()] == ["posenc_plugin_abi", "posenc_plugin_open"], lines


def has_the_abi(library):
    assert ctypes.c_uint32.in_dll(ctypes.CDLL(library), "posenc_plugin_abi").value == plugin.ABI


def says_why_there_is_no_device(library):
    opening = ctypes.CDLL(library).posenc_plugin_open
    opening.restype = ctypes.c_void_p
    for _ in range(2):  # each time
        error = plugin.Error()
        assert opening(ctypes.byref(error)) is None and error.status == plugin.UNSUPPORTED
        message = error.message.decode()
        assert message.startswith("no CUDA device can be used: ") and "runtime 1" in message, message
    print(message)


if __name__ == "__main__":
    sys.exit(plugin.run((exports_two_names, has_the_abi, says_why_there_is_no_device), sys.argv[1]))
