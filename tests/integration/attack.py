"""attack [--seconds N] [--proxy | --direct] [NAME...]: attacks a server with small limits, and measures an honest caller
beside each attack.
  scripts/attack                      every attack, ten seconds each
  scripts/attack --seconds 2 segments one attack, shorter
  scripts/attack --proxy              every attack through HAProxy (deploy/haproxy.cfg)
  scripts/attack --direct rapid_reset an attack on the server itself
Without --proxy or --direct, floods and what is not gRPC go through the proxy, and calls that gRPC passes on go to the
server itself: docs/secure.md, "Facing strangers".
The honest caller has another source address. It begins 50 decode steps a second, whether earlier ones are answered or not,
every other one with xPos, which the pool's threads compute. An attack passes if
- each of these steps is answered correctly, and the 99th percentile of their times, from the intended start and with
  retries, is below half a second, or below a second through the proxy,
- the anonymous resident memory stays within what docs/run.md adds up, that of HAProxy within 384 MiB,
- SIGTERM during the attack ends the server with exit code 0 within --drain-timeout, and SIGUSR1 after it HAProxy.
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
import samples
from call_attacks import ATTACKS, STEPS_PER_SECOND, THROUGH_PROXY, client_chains
from client import APART, SERVICE, UNLIMITED, Client
from front import PROGRAM, Certificates, Front, ServerBehind
from http_attacks import HTTP_ATTACKS
from posenc.v1 import rotary_pb2, service_pb2
from rest_client import http_port
from server_process import SANITIZER_BYTES, STOP_SECONDS, ServerProcess

MEBIBYTE = 1 << 20
DRAIN_SECONDS = 10
SMALL = ("--max-request-bytes", "8MiB", "--max-output-bytes", "8MiB", "--max-in-flight-bytes", "32MiB",
         "--table-cache-bytes", "8MiB", "--retry-pushback", "20", "--receive-timeout", "5", "--send-timeout", "5",
         "--drain-timeout", str(DRAIN_SECONDS))
# As docs/run.md adds it up: calls in flight, what is not charged of 1,024 calls, gRPC's quota or as much of bodies
# over HTTP, free answer buffers, plans and tables, two heaps of freed memory, and 96 MiB for the rest.
BOUND = (32 + 32 + 96 + 8 + 16 + 8 + 16 + 96) * MEBIBYTE + SANITIZER_BYTES
# 256 MiB of buffers that four sources may hold, and connections and calls.
FRONT_BOUND = 384 * MEBIBYTE


async def rotate_steps(address, seconds, certificates):
    """Begins decode steps at a fixed rate, whether earlier ones are answered or not. Returns their times, from the
    intended starts, with retries."""
    options = UNLIMITED
    channel = (grpc.aio.secure_channel(address, certificates.credentials(certificates), options) if certificates else
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


def be_honest(address, seconds, results, certificates):
    """Puts the times of decode steps, or what went wrong."""
    try:
        results.put(sorted(asyncio.run(rotate_steps(address, seconds, certificates))))
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


def start(attack, program, directory, stack, proxied):
    """Returns a server, the proxy or None, the address for the honest caller, the port for attackers, and certificates or
    None."""
    certificates = Certificates(directory) if attack is client_chains else None
    if proxied:
        server = ServerBehind(program, directory, directory / "socket", *SMALL)
        stack.callback(server.kill)
        front = stack.enter_context(Front(directory, certificates, [server], certificates and certificates.authority))
        port = front.http_port if attack in HTTP_ATTACKS else front.port
        return server, front, front.other_address, port, certificates
    if certificates:
        server = ServerProcess(program, directory, *SMALL, "--tls-cert", certificates.front, "--tls-key", certificates.front,
                               "--tls-client-ca", certificates.authority, "--tls-client-auth", "optional")
        return server, None, f"127.0.0.1:{server.port}", server.port, certificates
    address = f"unix:{directory / 'socket'}"
    server = ServerProcess(program, directory, *SMALL, "--listen", address, "--http-listen", "127.0.0.1:0")
    return server, None, address, http_port(server) if attack in HTTP_ATTACKS else server.port, None


def is_proxied(attack, choice):
    """True if the attack goes through the proxy. `choice`: None if the attack decides."""
    return attack in THROUGH_PROXY if choice is None else choice


def run_attack(attack, program, seconds, proxied=None):
    """Returns what is wrong (empty: nothing), the honest caller's 99th percentile and longest wait, and the growth of
    memory. `proxied`: as is_proxied()."""
    wrong, waits, watches = [], (0.0, 0.0), {}
    processes = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as directory, contextlib.ExitStack() as stack:
        server, front, address, port, certificates = start(attack, program, pathlib.Path(directory), stack,
                                                           is_proxied(attack, proxied))
        stop, watched = threading.Event(), threading.Event()
        threads = []
        try:
            with Client(address, APART, certificates and certificates.credentials(certificates)) as client:
                client.call("ApplyRotary", samples.rotary())
            watches = [(name, MemoryWatch(process, watched), bound) for name, process, bound in
                       (("memory", server, BOUND), ("memory of HAProxy", front, FRONT_BOUND)) if process]
            results = processes.Queue()
            honest = processes.Process(target=be_honest, args=(address, seconds, results, certificates), daemon=True)
            for _, watch, _ in watches:
                watch.start()
            threads = attack(port, stop)
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
            server.kill()
            for thread in threads:
                thread.join()
        if front and (code := front.drain()) != 0:
            wrong.append(f"SIGUSR1: exit code {code} of HAProxy")
    return wrong, waits, [watch.growth for _, watch, _ in watches]


def describe(memory):
    """The growth of the server, and of HAProxy if it is there. MiB."""
    return " ".join(f"+{growth >> 20}" for growth in memory)


def main():
    parser = argparse.ArgumentParser("attack", usage="see scripts/attack --help", allow_abbrev=False)
    parser.format_help = lambda: f"{__doc__}\n"
    parser.add_argument("--seconds", type=float, default=10)
    way = parser.add_mutually_exclusive_group()
    way.add_argument("--direct", dest="proxied", action="store_false", default=None)
    way.add_argument("--proxy", dest="proxied", action="store_true")
    parser.add_argument("names", nargs="*")
    arguments = parser.parse_args()
    known = {attack.__name__: attack for attack in ATTACKS if PROGRAM or not is_proxied(attack, arguments.proxied)}
    if unknown := set(arguments.names) - set(known):
        parser.error(f"no attack {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    failed = 0
    names = arguments.names or list(known)
    for name in names:
        wrong, (p99, longest), memory = run_attack(known[name], [BUILD / "bin" / "posenc-server"], arguments.seconds, arguments.proxied)
        failed += bool(wrong)
        print(f"{name:20} {known[name].__doc__:75} p99 {1000 * p99:6.1f} ms  "
              f"longest {1000 * longest:6.1f} ms  memory {describe(memory):9} MiB  {'; '.join(wrong) or 'passed'}", flush=True)
    print(f"{len(names) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
