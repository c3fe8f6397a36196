"""Compares posenc, given only the config.json of diffusers' transformers, with what their own code computes."""

import json

import grpc
import numpy
import torch
from client import Refusal
from posenc.v1 import rotary_pb2, service_pb2
from table import Row
from tensors import FP32, FP64, array

import diffusers_images
import diffusers_others
import diffusers_videos
from diffusers_original import Learned, Sines, Table, build, classes, fields_of, grid

ORIGINALS = (*diffusers_images.ORIGINALS, *diffusers_videos.ORIGINALS, *diffusers_others.ORIGINALS)
WHAT = {Table: "its rotary table", Sines: "the sines it adds", Learned: "its learned table"}
# Class, requested method, fields that its file has, the field that the refusal names, and the reason.
NOT_SELECTED = (
    ("DreamLiteTransformer2DModel", "rotary", {}, "_class_name", "has no positions"),
    ("MochiTransformer3DModel", "rotary", {}, "_class_name", "has learned frequencies"),
    ("RFD4ProteinaTransformer", "rotary", {}, "_class_name", "has a bias of its own"),
    ("SanaTransformer2DModel", "grid", {}, "interpolation_scale", "has none without interpolation_scale"),
    ("Transformer2DModel", "grid", {"sample_size": 64}, "patch_size", "has none without patch_size"),
    ("TransformerTemporalModel", "sinusoidal", {}, "positional_embeddings", "has none without positional_embeddings"),
)


def rows(service):
    release = classes()
    yield every_class(release)
    for original in ORIGINALS:
        yield compare(service, original, release[original.name])
    yield not_selected(service, release)


def every_class(release):
    row, checked = Row("every class of the release", "has a check"), {each.name for each in ORIGINALS}
    for name in release:
        row.check(name in checked | {name for name, *_ in NOT_SELECTED}, f"no check for {name}")
    return row


@torch.no_grad()
def compare(service, original, cls):
    expected = original.expected
    row = Row(original.name, "", expected.within, expected.of, expected.why)
    for other in ({}, *original.others):
        fields = fields_of(cls) | original.needs | other
        for case in original.of(build(cls, fields)):
            row.original = WHAT[type(case)]
            try:
                COMPARE[type(case)](service, row, expected, config(original.name, fields), case)
            except grpc.RpcError as error:
                row.fail(error.details())
    return row


def config(name, fields):
    return {"config_json": json.dumps({"_class_name": name, **fields}).encode()}


def compare_table(service, row, expected, model, case):
    dtype = FP64 if case.cos.dtype == torch.float64 else FP32
    answer = table(service, model, case.positions, case.form, dtype, **case.length)
    for mine, theirs in ((answer.cos, case.cos), (answer.sin, case.sin)):
        row.compare(array(mine), theirs, unit=expected.place and expected.place * (1 + case.largest))
    said = rotary_pb2.Pairing.Name(answer.info.input_pairing)
    row.check(said == f"PAIRING_{case.pairing}", f"{said}, the original's tables are {case.pairing}")


def table(service, model, positions, form="HALF_WIDTH", dtype=FP32, **length):
    request = {"rotary": {"model": model}, "form": f"TABLE_FORM_{form}", "dtype": dtype, "positions": {
        "ids": numpy.float64(positions), "axis_dimension": rotary_pb2.AXIS_DIMENSION_LAST, **length}}
    return service.ask("GenerateTable", service_pb2.GenerateTableRequest(), request, "MODEL")


def compare_sines(service, row, expected, model, case):
    ours = sines(service, model, case.method, case.settings, len(case.rows))
    row.compare(ours, case.rows, unit=expected.place and expected.place * len(case.rows))


def sines(service, model, method, settings, count):
    where = {"positions": {"offset": 0}, "count": count} if method == "sinusoidal" else {}
    return service.embedding("MODEL", **{method: {"model": model, **settings}}, **where)


def compare_learned(service, row, _, model, case):
    """Checks that rows are looked up in a table of the class's own shape, and that other shapes are refused."""
    weights = torch.randn(case.shape)
    row.compare(looked_up(service, model, weights), weights[1:4])
    for other in (weights[1:], weights[:, 1:]):
        refusal = refusal_of(looked_up, service, model, other)
        row.check(refusal and refusal.reason == "MISMATCH", f"a table of another shape: {refusal or 'taken'}")


def looked_up(service, model, weights):
    return service.embedding("MODEL", learned={"model": model, "table": weights}, positions={"offset": 1}, count=3)


COMPARE = {Table: compare_table, Sines: compare_sines, Learned: compare_learned}


def not_selected(service, release):
    row = Row("named, not selected", "a refusal", why="; ".join(f"{name} {why}" for name, *_, why in NOT_SELECTED))
    for name, method, fields, field, _ in NOT_SELECTED:
        model = config(name, fields_of(release[name]) | fields)
        refusal = refusal_of(ask, service, model, method)
        named = refusal and refusal.code == grpc.StatusCode.INVALID_ARGUMENT and refusal.field.endswith(field)
        row.check(named, f"{name}: {refusal.message if refusal else 'selected'}")
    return row


def ask(service, model, method):
    if method == "rotary":
        return table(service, model, grid(2, 2, 2))
    return sines(service, model, method, {"height": 2, "width": 2} if method == "grid" else {}, 2)


def refusal_of(call, *arguments):
    try:
        call(*arguments)
    except grpc.RpcError as error:
        return Refusal.of(error)
    return None
