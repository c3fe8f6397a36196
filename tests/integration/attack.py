"""attack [--seconds N] [NAME...]: attacks a server with small limits, and measures an honest caller beside each attack.
  scripts/attack                      every attack, ten seconds each
  scripts/attack --seconds 2 segments one attack, shorter
  scripts/attack --direct rapid_reset an attack on HTTP/2 without the front
Attacks on HTTP/2 itself go through HAProxy (deploy/haproxy.cfg). Most of them succeed against the server alone, because of
faults of its HTTP/2 library: docs/operating.md, "Facing strangers".
The honest caller begins 50 decode steps a second on a connection of its own, whether earlier ones are answered or not,
every other one with xPos, which the pool's threads compute. An attack passes if
- each of these steps is answered correctly, and the 99th percentile of their times, from the intended start and with
  retries, is below half a second, or below a second through the front,
- the anonymous resident memory stays within what docs/operating.md adds up, that of HAProxy within 384 MiB,
- SIGTERM during the attack ends the server with exit code 0 within --drain-timeout.
Prints a line for each attack, with the honest caller's 99th percentile and longest wait, and the growth of memory; the last line is "N passed, M failed"."""

import argparse
import asyncio
import contextlib
import multiprocessing
import os
import pathlib
import select
import signal
import sys
import tempfile
import threading
import time

from conftest import BUILD  # first: it makes the messages importable
import grpc
import http2_attacks
import samples
from call_attacks import ATTACKS, STEPS_PER_SECOND, client_chains
from certificates import Authority
from client import APART, SERVICE, UNLIMITED, Client
from front import PROGRAM, Certificates, Front, ServerBehind
from posenc.v1 import rotary_pb2, service_pb2
from server_process import SANITIZER_BYTES, STOP_SECONDS, ServerProcess

MEBIBYTE = 1 << 20
DRAIN_SECONDS = 10
SMALL = ("--max-request-bytes", "8MiB", "--max-output-bytes", "8MiB", "--max-in-flight-bytes", "32MiB",
         "--table-cache-bytes", "8MiB", "--retry-pushback", "20", "--receive-timeout", "5", "--send-timeout", "5",
         "--drain-timeout", str(DRAIN_SECONDS))
# As docs/operating.md adds it up: calls in flight, what is not charged of 1,024 calls, gRPC's quota,
# free answer buffers, plans and tables, two heaps of freed memory, and 96 MiB for the rest.
BOUND = (32 + 32 + 96 + 8 + 16 + 8 + 16 + 96) * MEBIBYTE + SANITIZER_BYTES
# 256 MiB of buffers that four sources may hold, and connections and calls.
FRONT_BOUND = 384 * MEBIBYTE


async def rotate_steps(address, seconds, authority):
    """Begins decode steps at a fixed rate, whether earlier ones are answered or not. Returns their times, from the
    intended starts, with retries."""
    options = UNLIMITED
    channel = (grpc.aio.secure_channel(address, grpc.ssl_channel_credentials(authority), options) if authority else
               grpc.aio.insecure_channel(address, options))
    method = channel.unary_unary(f"/{SERVICE.full_name}/ApplyRotary", response_deserializer=service_pb2.ApplyRotaryResponse.FromString)
    clock = asyncio.get_running_loop().time
    begin = clock()

    async def rotate(step):
        intended = begin + step / STEPS_PER_SECOND
        await asyncio.sleep(intended - clock())
        request = samples.rotary(offset=step)
        if step % 2:
            request.rotary.settings.xpos.CopyFrom(rotary_pb2.Xpos(scale_base=512, centre=0))
        while True:
            try:
                answer = await method(request.SerializeToString(), timeout=30)
                break
            except grpc.aio.AioRpcError as error:
                if error.code() != grpc.StatusCode.UNAVAILABLE:
                    raise
                await asyncio.sleep(0.02)
        assert len(answer.q.data) == len(request.q.tensor.data), "a wrong answer"
        return clock() - intended
    async with channel:
        return await asyncio.gather(*(rotate(step) for step in range(int(seconds * STEPS_PER_SECOND))))


def be_honest(address, seconds, results, authority):
    """Puts the times of decode steps, or what went wrong."""
    try:
        results.put(sorted(asyncio.run(rotate_steps(address, seconds, authority))))
    except (AssertionError, grpc.RpcError) as error:
        results.put(str(error))


def end(pid, results):
    """Sends SIGTERM, and puts how long the process went on. Seconds."""
    process, begin = os.pidfd_open(pid), time.monotonic()
    signal.pidfd_send_signal(process, signal.SIGTERM)
    select.select([process], [], [], STOP_SECONDS)
    results.put(time.monotonic() - begin)


class MemoryWatch(threading.Thread):
    """Keeps the largest growth of a process's anonymous resident memory."""

    def __init__(self, process, stop):
        super().__init__()
        self._process, self._stop_event = process, stop
        self._base, self.growth = process.anonymous_memory(), 0

    def run(self):
        while not self._stop_event.wait(0.005):
            self.growth = max(self.growth, self._process.anonymous_memory() - self._base)


def start(attack, program, directory, stack, fronted):
    """Returns a server, the front or None, the address for the honest caller, the port for attackers, and the authority of
    the certificate or None. To the server, the honest caller is another caller than the attackers."""
    if attack is client_chains:
        authority = Authority(directory)
        certificate, key = authority.issue("server.example")
        server = ServerProcess(program, directory, *SMALL, "--tls-cert", certificate, "--tls-key", key,
                               "--tls-client-ca", authority.certificate, "--tls-client-auth", "optional")
        return server, None, f"127.0.0.1:{server.port}", server.port, authority.certificate
    if not fronted:
        address = f"unix:{directory / 'socket'}"
        server = ServerProcess(program, directory, *SMALL, "--listen", address)
        return server, None, address, server.port, None
    server = ServerBehind(program, directory, directory / "socket", *SMALL)
    stack.callback(server.kill)
    certificates = Certificates(directory)
    front = stack.enter_context(Front(directory, certificates, [server.socket]))
    return server, front, f"127.0.0.1:{front.port}", front.port, certificates.authority


def run_attack(attack, program, seconds, direct=False):
    """Returns what is wrong (empty: nothing), the honest caller's 99th percentile and longest wait, and the growth of
    memory."""
    wrong, waits, watches = [], (0.0, 0.0), {}
    processes = multiprocessing.get_context("spawn")
    on_http2 = attack in http2_attacks.ATTACKS
    with tempfile.TemporaryDirectory() as directory, contextlib.ExitStack() as stack:
        server, front, address, port, authority = start(attack, program, pathlib.Path(directory), stack, on_http2 and not direct)
        pem = authority and authority.read_bytes()
        stop, watched = threading.Event(), threading.Event()
        threads = []
        try:
            with Client(address, APART, pem and grpc.ssl_channel_credentials(pem)) as client:
                client.call("ApplyRotary", samples.rotary())
            watches = [(name, MemoryWatch(process, watched), bound) for name, process, bound in
                       (("memory", server, BOUND), ("memory of HAProxy", front, FRONT_BOUND)) if process]
            results = processes.Queue()
            honest = processes.Process(target=be_honest, args=(address, seconds, results, pem), daemon=True)
            for _, watch, _ in watches:
                watch.start()
            threads = attack(http2_attacks.Target(port, authority) if on_http2 else port, stop)
            for thread in threads:
                thread.start()
            honest.start()
            times = results.get(timeout=seconds + 60)
            honest.join()
            if isinstance(times, str):
                wrong.append(f"the honest caller got {times}")
            else:
                waits = times[int(len(times) * 0.99)], times[-1]
                if waits[0] >= (1 if front else 0.5):
                    wrong.append(f"p99 is {waits[0]:.2f} s")
            watched.set()
            for name, watch, bound in watches:
                watch.join()
                if watch.growth > bound:
                    wrong.append(f"{name} grew by more than {bound >> 20} MiB")
            # Another process takes the time: the threads of the attack keep this one from running for seconds.
            processes.Process(target=end, args=(server.pid, results), daemon=True).start()
            drained, code = results.get(timeout=seconds + STOP_SECONDS), server.wait()
            if code != 0:
                wrong.append(f"SIGTERM: exit code {code} after {drained:.1f} s")
            elif drained > DRAIN_SECONDS:
                wrong.append(f"the drain took {drained:.1f} s")
        finally:
            stop.set()
            watched.set()
            for thread in threads:
                thread.join()
            server.kill()
    return wrong, waits, [watch.growth for _, watch, _ in watches]


def describe(memory):
    """The growth of the server, and of HAProxy if it is there. MiB."""
    return " ".join(f"+{growth >> 20}" for growth in memory)


def main():
    parser = argparse.ArgumentParser("attack", usage="see scripts/attack --help", allow_abbrev=False)
    parser.format_help = lambda: f"{__doc__}\n"
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--direct", action="store_true")
    parser.add_argument("names", nargs="*")
    arguments = parser.parse_args()
    known = {attack.__name__: attack for attack in (*ATTACKS, *(http2_attacks.ATTACKS if PROGRAM else ()))}
    if unknown := set(arguments.names) - set(known):
        parser.error(f"no attack {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    failed = 0
    names = arguments.names or list(known)
    for name in names:
        wrong, (p99, longest), memory = run_attack(known[name], [BUILD / "bin" / "posenc-server"], arguments.seconds, arguments.direct)
        failed += bool(wrong)
        print(f"{name:20} {known[name].__doc__:75} p99 {1000 * p99:6.1f} ms  "
              f"longest {1000 * longest:6.1f} ms  memory {describe(memory):9} MiB  {'; '.join(wrong) or 'passed'}", flush=True)
    print(f"{len(names) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
