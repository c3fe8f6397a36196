"""Tests what the server reports about itself: information, health, reflection, timing."""

import re

import grpc
import grpc_peers_pb2 as peers
import mutations
import numpy
import pytest
import samples
from client import SECONDS, SERVICE, Client, serialize
from google.protobuf import descriptor_pb2
from posenc.v1 import service_pb2

HEALTH = "/grpc.health.v1.Health/"
REFLECTION = "/grpc.reflection.{}.ServerReflection/ServerReflectionInfo"


def test_server_information(client):
    info = client.info()
    assert re.fullmatch(r"\d+\.\d+\.\d+", info.version)
    assert info.build and info.config_rules.startswith("transformers ") and info.numerics_version >= 1
    assert info.cpu_target in info.cpu_targets
    assert [device.name for device in info.devices] == ["cpu"] and info.devices[0].threads >= 1
    methods = {family.family: set(family.methods) for family in info.methods}
    others = {"given_frequencies", "given_table", "axial", "mrope", "xpos", "query_scale"}
    assert methods["rope"] - others == set(mutations.ROPE_TYPES) - {""}, "rich_requests.scalings() has each rope_type"
    for field in service_pb2.ServerLimits.DESCRIPTOR.fields:
        if not field.name.startswith("max_region"):  # 0: shared memory is off
            assert getattr(info.limits, field.name) > 0, field.name


def test_counters_count(client):
    before = client.info().counters
    client.call("Explain", samples.explain())
    client.refusal("Explain", service_pb2.ExplainRequest())
    after = client.when_idle()
    # GetServerInfo calls are requests too.
    assert after.requests_started - before.requests_started >= 3
    assert after.requests_failed - before.requests_failed == 1
    assert after.requests_refused == before.requests_refused


def test_plans_are_computed_once(client):
    before = client.info().counters.plan_cache
    theta = 12345.5  # no other test uses it
    answers = [client.call("ApplyRotary", samples.rotary(theta=theta, offset=offset)) for offset in (0, 1, 2, 2)]
    after = client.info().counters.plan_cache
    # A call that takes long on a slow machine begins again, and counts again.
    assert after.misses - before.misses in (1, 2) and after.hits - before.hits >= 2
    assert after.bytes > before.bytes
    assert answers[0] != answers[1] and answers[2] == answers[3]
    assert len({answer.info.plan_fingerprint for answer in answers}) == 1


def test_plans_need_not_be_kept(start_server):
    with Client(start_server("--plan-cache-bytes", "0").port) as client:
        for _ in range(2):
            client.call("ApplyRotary", samples.rotary())
        cache = client.info().counters.plan_cache
    assert (cache.hits, cache.bytes) == (0, 0) and cache.misses >= 2  # more if a call began again


def test_tables_are_computed_once(client, start_server):
    layer = samples.rotary(q=numpy.ones((1, 80, 2, 8)), theta=12346.5)
    before = client.info().counters.table_cache
    for _ in range(3):
        client.call("ApplyRotary", layer)
    after = client.info().counters.table_cache
    assert after.misses - before.misses in (1, 2) and after.hits - before.hits >= 2  # as above
    assert after.bytes > before.bytes
    with Client(start_server("--table-cache-bytes", "0").port) as other:
        assert other.call("ApplyRotary", layer).q.data == client.call("ApplyRotary", layer).q.data
        assert other.info().counters.table_cache == type(after)()


def test_limits_are_those_of_the_flags(start_server):
    limits = {"max_request_bytes": 65536, "max_output_bytes": 131072, "max_in_flight_bytes": 1048576,
              "max_in_flight_requests": 7, "max_tensor_rank": 5, "max_rotary_dim": 256, "max_heads": 32,
              "max_config_json_bytes": 4096, "max_sequences": 9, "max_bias_values": 10}
    flags = [part for name, value in limits.items() for part in ("--" + name.replace("_", "-"), str(value))]
    with Client(start_server(*flags).port) as client:
        answer = client.info().limits
        assert {name: getattr(answer, name) for name in limits} == limits


def test_the_times_of_a_call_are_in_its_trailer(client):
    _, call = client.method("ApplyRotary").with_call(samples.rotary(), timeout=SECONDS)
    trailers = dict(call.trailing_metadata())
    assert re.fullmatch(r"queue;dur=\d+\.\d+, compute;dur=\d+\.\d+", trailers["server-timing"])


@pytest.mark.parametrize("service", ("", SERVICE.full_name))
def test_health(client, service):
    request = peers.HealthCheckRequest(service=service)
    check = client.channel.unary_unary(HEALTH + "Check", serialize, peers.HealthCheckResponse.FromString)
    assert check(request, timeout=SECONDS).status == peers.HealthCheckResponse.SERVING
    watch = client.channel.unary_stream(HEALTH + "Watch", serialize, peers.HealthCheckResponse.FromString)
    updates = watch(request, timeout=SECONDS)
    assert next(updates).status == peers.HealthCheckResponse.SERVING
    updates.cancel()


def test_health_of_a_service_that_is_not_here(client):
    check = client.channel.unary_unary(HEALTH + "Check", serialize, peers.HealthCheckResponse.FromString)
    with pytest.raises(grpc.RpcError) as error:
        check(peers.HealthCheckRequest(service="nobody"), timeout=SECONDS)
    assert error.value.code() == grpc.StatusCode.NOT_FOUND


def reflect(client, *questions, version="v1"):
    ask = client.channel.stream_stream(REFLECTION.format(version), serialize, peers.ServerReflectionResponse.FromString)
    return list(ask(iter(questions), timeout=SECONDS))


def files_of(answer):
    files = [descriptor_pb2.FileDescriptorProto.FromString(text)
             for text in answer.file_descriptor_response.file_descriptor_proto]
    return {file.name: file for file in files}


@pytest.mark.parametrize("version", ("v1", "v1alpha"))
def test_reflection_describes_the_service(client, version):
    services, files = reflect(client, peers.ServerReflectionRequest(list_services="*"),
                              peers.ServerReflectionRequest(file_containing_symbol=SERVICE.full_name), version=version)
    names = [service.name for service in services.list_services_response.service]
    assert names == [SERVICE.full_name, "inference.GRPCInferenceService", "grpc.health.v1.Health",
                     "xds.service.orca.v3.OpenRcaService", "grpc.reflection.v1.ServerReflection"]
    ours = descriptor_pb2.FileDescriptorProto()
    service_pb2.DESCRIPTOR.CopyToProto(ours)
    described = files_of(files)
    assert described[ours.name].service == ours.service and described[ours.name].message_type == ours.message_type
    for file in described.values():
        assert set(file.dependency) <= set(described)


def test_reflection_finds_files_by_all_it_may_be_asked_for(client):
    by_name, by_method, by_value, health = reflect(
        client, peers.ServerReflectionRequest(file_by_filename="posenc/v1/error.proto"),
        peers.ServerReflectionRequest(file_containing_symbol=SERVICE.full_name + ".ApplyRotary"),
        peers.ServerReflectionRequest(file_containing_symbol="posenc.v1.DATA_TYPE_BF16"),
        peers.ServerReflectionRequest(file_containing_symbol="grpc.health.v1.Health"))
    assert set(files_of(by_name)) == {"posenc/v1/error.proto"} | set(files_of(by_name)["posenc/v1/error.proto"].dependency)
    assert service_pb2.DESCRIPTOR.name in files_of(by_method)
    assert files_of(by_value) and set(files_of(health)) == {"grpc/health/v1/health.proto"}


@pytest.mark.parametrize("symbol, file", [
    ("google.rpc.ErrorInfo", "google/rpc/error_details.proto"), ("google.rpc.BadRequest", "google/rpc/error_details.proto"),
    (SERVICE.full_name, "posenc/v1/service.proto")])
def test_reflection_sends_the_file_that_was_asked_for_first(client, symbol, file):
    [answer] = reflect(client, peers.ServerReflectionRequest(file_containing_symbol=symbol))
    assert next(iter(files_of(answer))) == file


def test_reflection_says_what_it_does_not_find_and_goes_on(client):
    empty, message, long, file, extension, numbers, services = reflect(
        client, peers.ServerReflectionRequest(), peers.ServerReflectionRequest(file_containing_symbol="posenc.v1.Nothing"),
        peers.ServerReflectionRequest(file_containing_symbol="a." * 128 + "a"),
        peers.ServerReflectionRequest(file_by_filename="../etc/passwd"),
        peers.ServerReflectionRequest(file_containing_extension={"containing_type": "posenc.v1.Tensor",
                                                                 "extension_number": 1000}),
        peers.ServerReflectionRequest(all_extension_numbers_of_type="posenc.v1.Nothing"),
        peers.ServerReflectionRequest(list_services=""))
    codes = [answer.error_response.error_code for answer in (empty, message, long, file, extension, numbers)]
    assert codes == [3, 5, 5, 5, 5, 5]  # INVALID_ARGUMENT, NOT_FOUND
    assert message.error_response.error_message == "there is no symbol posenc.v1.Nothing"
    assert long.error_response.error_message == "there is no name of 257 bytes: the longest may have 256"
    assert services.list_services_response.service


def test_what_is_no_message_ends_reflection_and_health(client):
    for path in (REFLECTION.format("v1"), HEALTH + "Check", HEALTH + "Watch"):
        ask = client.channel.stream_stream(path)
        with pytest.raises(grpc.RpcError) as error:
            list(ask(iter([b"\xff"]), timeout=SECONDS))
        assert error.value.code() == grpc.StatusCode.INVALID_ARGUMENT, path


def test_health_of_a_name_too_long_to_be_kept(client):
    watch = client.channel.unary_stream(HEALTH + "Watch", serialize, peers.HealthCheckResponse.FromString)
    with pytest.raises(grpc.RpcError) as error:
        next(watch(peers.HealthCheckRequest(service="x" * 257), timeout=SECONDS))
    assert error.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert error.value.details() == "service: a name has at most 256 bytes"


def test_a_watch_of_a_service_that_is_not_here_goes_on(client):
    watch = client.channel.unary_stream(HEALTH + "Watch", serialize, peers.HealthCheckResponse.FromString)
    updates = watch(peers.HealthCheckRequest(service="nobody"), timeout=SECONDS)
    assert next(updates).status == peers.HealthCheckResponse.SERVICE_UNKNOWN
    assert updates.is_active()
    updates.cancel()


def test_unknown_method(client):
    call = client.channel.unary_unary(f"/{SERVICE.full_name}/Guess")
    with pytest.raises(grpc.RpcError) as error:
        call(b"", timeout=SECONDS)
    assert error.value.code() == grpc.StatusCode.UNIMPLEMENTED
