"""Random changes to legal requests of every RPC never end the server, and never occupy a thread after the call's end.

POSENC_MUTATED_CALLS is the number of calls; 200,000 take two to ten minutes. POSENC_MUTATION_SEED is the random seed.
"""

import concurrent.futures
import os
import random
import re
import signal

import grpc
import mutations
from client import Client, Refusal
from posenc.v1 import service_pb2

CALLS = int(os.environ.get("POSENC_MUTATED_CALLS", "4000"))
SEED = int(os.environ.get("POSENC_MUTATION_SEED", "20261123"))
BATCH = 500
THREADS = 4
# Long enough for nearly all calls; longer ones must stop by themselves.
CALL_SECONDS = 0.2
REFUSED = (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.RESOURCE_EXHAUSTED)


def call(client, method, request, text):
    """Makes one call and returns its status code. An error that the server sends must carry its details."""
    sent = text
    if method == "StreamApplyRotary":
        header, *chunks = mutations.rotary_stream()
        sent = iter([text, *chunks] if request.HasField("header") else [header, text])
    try:
        client.call(method, sent, CALL_SECONDS)
    except grpc.RpcError as error:
        if error.code() != grpc.StatusCode.DEADLINE_EXCEEDED:
            assert error.code() in REFUSED, (method, text.hex(), error)
            Refusal.of(error)
        return error.code()
    return grpc.StatusCode.OK


def test_tensors_without_elements(client, configs):
    for method, request in mutations.without_a_size(mutations.seeds(configs)):
        code = call(client, method, request, request.SerializeToString())
        assert code in (grpc.StatusCode.OK, *REFUSED), (method, request)


def test_mutated_calls(start_server, configs):
    print(f"{CALLS} calls, seed {SEED}")
    server = start_server("--max-output-bytes", "1MiB")
    chance = random.Random(SEED)
    requests = mutations.seeds(configs)
    mutator = mutations.Mutator(chance, requests)
    methods = sorted({method for method, _ in requests})
    counts = {}
    with Client(server.port) as client, concurrent.futures.ThreadPoolExecutor(THREADS) as threads:
        for begin in range(0, CALLS, BATCH):
            batch = []
            for _ in range(min(BATCH, CALLS - begin)):
                method = chance.choice(methods)
                request = chance.choice([request for other, request in requests if other == method])
                batch.append((method, request, mutator.mutate(request)))
            codes = list(threads.map(lambda one: call(client, *one), batch))
            for (method, _, _), code in zip(batch, codes):
                counts[method, code.name] = counts.get((method, code.name), 0) + 1
            late = [(method, text.hex()) for (method, _, text), code in zip(batch, codes)
                    if code == grpc.StatusCode.DEADLINE_EXCEEDED]
            try:
                client.when_idle()
            except AssertionError:
                raise AssertionError(f"one of these calls did not end: {late}") from None
    for (method, code), count in sorted(counts.items()):
        print(f"{method:20} {code:20} {count}")
    print(f"longest work of a call that failed: {longest(server.log())}")
    # Every RPC has answered a request, and all but GetServerInfo have refused one.
    for method in service_pb2.DESCRIPTOR.services_by_name["PositionalEncodingService"].methods:
        assert counts.get((method.name, "OK")), method.name
        assert method.name == "GetServerInfo" or counts.get((method.name, "INVALID_ARGUMENT")), method.name
    server.signal(signal.SIGTERM)
    assert server.wait() == 0


def longest(log):
    """Returns the log's line with the largest compute_ms."""
    lines = [line for line in log.splitlines() if "compute_ms=" in line]
    return max(lines, default="none", key=lambda line: float(re.search(r"compute_ms=([\d.e+-]+)", line)[1]))
