"""Planned restarts of a server fail no call of the package's default policy."""

import signal
import threading

import numpy
import pytest
from conftest import LLAMA, SERVER
from server_process import ServerProcess

import posenc


@pytest.mark.parametrize("count", (4, 64))
def test_restarts_fail_no_call(tmp_path, count):
    directories = (tmp_path / str(n) for n in range(4))

    def start(*flags):
        directory = next(directories)
        directory.mkdir()
        return ServerProcess(SERVER, directory, *flags)

    server = start()
    address = f"127.0.0.1:{server.port}"
    done, errors, answers = threading.Event(), [], [0] * count
    q = [numpy.ones((1, tokens, 4, 128), "f4") for tokens in (1, 64)]

    def call(n):
        with posenc.connect(address) as client:
            while not done.is_set():
                try:
                    client.rope(q[answers[n] % 2], model=LLAMA, positions=0, layout="BSHD")
                    answers[n] += 1
                except posenc.Error as error:
                    errors.append(error)

    callers = [threading.Thread(target=call, args=(n,)) for n in range(count)]
    for caller in callers:
        caller.start()
    for _ in range(3):
        server.signal(signal.SIGTERM)
        assert server.wait() == 0
        server = start("--listen", address)
    done.set()
    for caller in callers:
        caller.join()
    server.stop()
    assert errors == [] and all(answers)
