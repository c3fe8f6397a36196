"""Blocks of shared memory: when one may serve another call, and who waits for the server."""

import asyncio
import concurrent.futures
import contextlib
import gc
import os
import signal
import socket
import threading

import grpc
import numpy as np
import pytest
from conftest import LLAMA, SERVER, ServerProcess

import posenc
import posenc.aio
from posenc._descriptors import api

CALL = {"model": LLAMA, "positions": 3, "layout": "BSHD"}
Q = np.random.default_rng(7).standard_normal((1, 1024, 4, 128)).astype(np.float32)
WATCHDOG = 60  # seconds


class Recording(grpc.GenericRpcHandler):
    """A server whose side socket hands out tokens, and that lets calls wait, refuses them or answers them, as told.

    `to_do` has an entry for each call: an Event, for which the call waits; a status code; or None, for an answer.
    """

    def __init__(self, path):
        self.tokens = []  # for each call, the one of its block
        self.unregistered = []
        self._registered = 0
        self.to_do = []
        self.received = threading.Semaphore(0)  # calls
        self.asked = threading.Event()  # the side socket has received a request
        self.side_socket_answers = threading.Event()
        self.side_socket_answers.set()
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listener.bind(path)
        self._listener.listen()
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self):
        while True:
            connection, _ = self._listener.accept()
            threading.Thread(target=self._serve_one, args=[connection], daemon=True).start()

    def _serve_one(self, connection):
        with contextlib.suppress(ConnectionError):
            while packet := connection.recv(4096):
                if packet[0] >> 3 == 3:  # unregister { token }
                    self.unregistered.append(packet[-16:])
                    answer = b"\x18\x01"
                else:
                    self._registered += 1
                    answer = b"\x0a\x10" + bytes([self._registered]) * 16
                self.asked.set()
                self.side_socket_answers.wait(WATCHDOG)
                connection.send(answer)

    def service(self, details):
        return grpc.unary_unary_rpc_method_handler(self._answer)

    def _answer(self, request, context):
        self.tokens.append(next(bytes([n]) * 16 for n in range(1, 256) if bytes([n]) * 16 in request))
        self.received.release()
        what = self.to_do.pop(0) if self.to_do else None
        if isinstance(what, threading.Event):
            what.wait(WATCHDOG)
        elif what is not None:
            context.set_trailing_metadata(what[1])
            context.abort(what[0], "refused")
        return b""


@pytest.fixture
def recording(tmp_path):
    """Returns such a server, and its address with the side socket as options of connect()."""
    path = str(tmp_path / "side.sock")
    handler = Recording(path)
    server = grpc.server(concurrent.futures.ThreadPoolExecutor(4))
    server.add_generic_rpc_handlers([handler])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield handler, {"address": f"127.0.0.1:{port}", "shared_memory": path}
    server.stop(0)


def test_a_call_past_its_deadline_keeps_its_block(recording):
    """The server may still be at work in it."""
    handler, address = recording
    handler.to_do = [ending := threading.Event()]
    with posenc.connect(**address) as client:
        with pytest.raises(posenc.DeadlineExceeded):
            client.rope(Q, **CALL, timeout=0.5)
        gc.collect()
        client.rope(Q, **CALL)
        client.rope(Q, **CALL)
    ending.set()
    given_up, first, second = handler.tokens
    assert first != given_up and second == first
    assert handler.unregistered == [given_up], "the server gets the memory back"


def test_a_cancelled_task_keeps_its_block(recording):
    handler, address = recording
    handler.to_do = [ending := threading.Event()]

    async def work():
        async with posenc.aio.connect(**address) as client:
            task = asyncio.create_task(client.rope(Q, **CALL))
            await asyncio.to_thread(handler.received.acquire)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            del task
            gc.collect()
            await client.rope(Q, **CALL)
            await client.rope(Q, **CALL)
    asyncio.run(work())
    ending.set()
    given_up, first, second = handler.tokens
    assert first != given_up and second == first
    assert handler.unregistered == [given_up]


def error_of_posenc(code, reason):
    """The trailers of an error that posenc-server has made."""
    def field(number, data):
        return bytes([number << 3 | 2, len(data)]) + data
    info = field(1, reason.encode()) + field(2, b"posenc")
    detail = field(1, b"type.googleapis.com/google.rpc.ErrorInfo") + field(2, info)
    return (("grpc-status-details-bin", bytes([8, code]) + field(3, detail)),)


@pytest.mark.parametrize("trailers, is_confirmed", [((), False), (error_of_posenc(14, "OVERLOADED"), True)])
def test_another_attempt_uses_the_block_again_only_if_the_server_has_ended_the_first(recording, trailers, is_confirmed):
    """An attempt that nobody has answered, because the connection was lost, may still run."""
    handler, address = recording
    handler.to_do = [(grpc.StatusCode.UNAVAILABLE, trailers)]
    with posenc.connect(**address) as client:
        client.rope(Q, **CALL)
    first, second = handler.tokens
    assert (first == second) == is_confirmed


def test_dropping_answers_waits_for_nobody(recording, capfd):
    """Also not for a server that stands still, in a destructor."""
    handler, address = recording
    with posenc.connect(**address) as client:
        answers = [client.rope(Q, **CALL).q for _ in range(100)]
        handler.side_socket_answers.clear()
        answers.clear()
        assert "ignored" not in capfd.readouterr().err, "a wait would end with an error"
        handler.side_socket_answers.set()
        kept = [client.rope(Q, **CALL).q for _ in range(9)]
    assert len(set(handler.tokens)) == 100 + len(kept) - 8, "eight blocks serve other calls"
    assert len(handler.unregistered) == 92


def test_registering_ends_with_the_time_limit_of_the_call(recording):
    handler, address = recording
    handler.side_socket_answers.clear()
    with posenc.connect(**address) as client:
        with pytest.raises(posenc.DeadlineExceeded, match="side.sock"):
            client.rope(Q, **CALL, timeout=0.5)
        handler.side_socket_answers.set()
        client.rope(Q, **CALL)


def test_an_interrupted_registration_is_no_other_calls(recording):
    """Its answer would be taken for that of the next request."""
    handler, address = recording
    handler.side_socket_answers.clear()

    def interrupt():
        handler.asked.wait(WATCHDOG)
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
    with posenc.connect(**address) as client:
        threading.Thread(target=interrupt).start()
        with pytest.raises(KeyboardInterrupt):
            client.rope(Q, **CALL)
        handler.side_socket_answers.set()
        kept = [client.rope(Q, **CALL).q for _ in range(2)]
    assert len(kept) == 2 and handler.tokens == [bytes([n]) * 16 for n in (2, 3)]


def test_an_interrupt_that_comes_as_a_registration_fails_leaves_no_answer(recording, monkeypatch):
    """A signal may come between two system calls, and is then seen only when the second one has timed out."""
    handler, address = recording

    class Late(TimeoutError):
        def __str__(self):
            raise KeyboardInterrupt

    with posenc.connect(**address) as client:
        shared = client._shared
        with monkeypatch.context() as patch:
            exchange = shared._exchange

            def exchange_late(packet, file, end):
                handler.side_socket_answers.clear()
                with pytest.raises(TimeoutError):
                    exchange(packet, file, 0.0)
                raise Late
            patch.setattr(shared, "_exchange", exchange_late)
            with pytest.raises(KeyboardInterrupt):
                client.rope(Q, **CALL)
        handler.side_socket_answers.set()
        kept = [client.rope(Q, **CALL).q for _ in range(2)]
    assert len(kept) == 2 and handler.tokens == [bytes([n]) * 16 for n in (2, 3)]


def test_blocks_of_other_sizes_make_room(recording):
    handler, address = recording
    with posenc.connect(**address) as client:
        small = [client.rope(Q, **CALL).q for _ in range(8)]
        small.clear()
        for _ in range(3):
            client.rope(np.concatenate([Q] * 2), **CALL)
    assert len(set(handler.tokens)) == 9, "the new block is kept, not the eight that nobody needs"


def test_a_lost_side_socket_is_connected_to_again(recording):
    handler, address = recording
    with posenc.connect(**address) as client:
        kept = client.rope(Q, **CALL).q
        client._shared._socket.shutdown(socket.SHUT_RDWR)
        client.rope(Q, **CALL)
    assert kept.shape == Q.shape and handler.tokens[0] != handler.tokens[1]


@pytest.fixture
def sharing(tmp_path):
    side = str(tmp_path / "side.sock")
    with ServerProcess(SERVER, tmp_path, "--shared-memory-socket", side, "--max-regions", "12") as process:
        yield process, {"address": f"127.0.0.1:{process.port}", "shared_memory": side}


@contextlib.contextmanager
def standing_still(server):
    server.signal(signal.SIGSTOP)
    os.waitid(os.P_PID, server.pid, os.WSTOPPED | os.WNOWAIT)
    try:
        yield
    finally:
        server.signal(signal.SIGCONT)


def test_cancelled_calls_spoil_no_later_answer(sharing, local):
    """The server stands still in the middle of them, and goes on when the next call has written its operand."""
    server, address = sharing
    q, other = np.random.default_rng(7).standard_normal((2, 1, 8192, 8, 128)).astype(np.float32)
    expected = local.rope(other, **CALL).q

    async def work():
        wrong = 0
        async with posenc.aio.connect(**address) as client:
            loop = asyncio.get_running_loop()
            await client.rope(q, **CALL)
            begin = loop.time()
            await client.rope(q, **CALL)
            span = loop.time() - begin
            for n in range(40):
                task = asyncio.create_task(client.rope(q, **CALL))
                await asyncio.sleep(span * (n % 20) / 20)
                with standing_still(server):
                    task.cancel()
                    await asyncio.gather(task, return_exceptions=True)
                    del task
                    gc.collect()
                    next_one = asyncio.create_task(client.rope(other, **CALL))
                    await asyncio.sleep(0.05)
                wrong += not np.array_equal((await next_one).q, expected)
            return wrong, (await client.info()).counters.regions
    wrong, regions = asyncio.run(work())
    assert wrong == 0
    assert regions <= 4, "memory of calls that were given up goes back to the server"


def in_child(work):
    """Returns what work() returns in a forked child, as bytes."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            signal.alarm(WATCHDOG)
            os.write(writing, work())
        finally:
            os._exit(0)
    os.close(writing)
    with open(reading, "rb") as answer:
        said = answer.read()
    os.waitpid(child, 0)
    return said


def test_a_forked_child_has_blocks_of_its_own(recording):
    """The parent's answers and blocks stay the parent's, whatever the child drops or registers."""
    handler, address = recording
    with posenc.connect(**address) as client:
        kept = [client.rope(Q, **CALL).q for _ in range(20)]

        def drop_and_register():
            kept.clear()
            rpc, request = api().rpcs["ApplyRotary"], {"q": {"tensor": Q}}
            client._shared.place(rpc, request, client._shared.large(rpc, request), WATCHDOG)
            return b"done"
        assert in_child(drop_and_register) == b"done"
        client.rope(Q, **CALL)
        assert handler.unregistered == []
        assert len(set(handler.tokens)) == 21


def test_the_parent_does_not_write_into_a_childs_answers(recording):
    handler, address = recording
    (has_begun, begins), (goes_on, go_on) = os.pipe(), os.pipe()
    with posenc.connect(**address) as client:
        answer = client.rope(Q, **CALL).q
        before = answer.tobytes()

        def look():
            os.write(begins, b"x")
            os.read(goes_on, 1)
            return answer.tobytes()
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            seen = pool.submit(in_child, look)
            os.read(has_begun, 1)
            del answer
            client.rope(2 * Q, **CALL)
            os.write(go_on, b"x")
            assert seen.result() == before
