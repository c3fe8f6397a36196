"""Changes each field that a configuration class reads, and compares what posenc and the original make of the file.

A case is a small config.json with one or two fields changed. It counts if the answer of the original or of posenc
differs from that for the unchanged file. It passes if both answers are equal: the same layers rotate, the same elements,
by the same angles, with the same scaling. Where the original raises an error, posenc must refuse the file or add a note.
"""

import collections
import dataclasses
import json
import pathlib
import zlib

import grpc
import numpy
from client import Refusal
from posenc.v1 import rotary_pb2, service_pb2, tensor_pb2

import check_model_types
import mutation_biases
import mutation_diffusers
import mutation_fields
import mutation_inkling
import mutation_originals
import original
import release
from mutation_exceptions import EXCEPTIONS
from table import Row

DOCUMENT = pathlib.Path(__file__).resolve().parents[2] / "docs" / "accuracy.md"
SEED = 5
PAIRS = 20  # cases of two changes for each model type
OWN_POSITIONS = ("csm_depth_decoder_model",)  # models that number their tokens in a way of their own
ATTENTIONS = {"longcat_flash": 2}  # attentions of a layer, which the configuration counts, of models with several
SHOWN = 20  # failures of a model type that are listed
WITHIN = 3e-5  # of float32 cosines and sines, times VECTOR
PER_POSITION = 1e-6  # torch's frequencies may be two places off, which the position multiplies


only = ()  # names of model types and diffusers' classes; empty: all


def rows(service):
    used = collections.Counter()

    def excepted(*case):
        """Returns whether an exception covers a failure."""
        for exception in EXCEPTIONS:
            if exception.covers(*case):
                used[exception] += 1
                return True
        return False

    for name, config_class in release.config_classes().items():
        if not only or name in only:
            report = ModelType(service, name, config_class, excepted).run()
            if report is not None:
                yield report
    yield from mutation_biases.rows(service, only, excepted)
    yield from mutation_inkling.rows(service, only, excepted)
    yield from mutation_diffusers.rows(service, only, excepted)
    if not only:
        unused = [exception.reason for exception in EXCEPTIONS if not used[exception]]
        row = Row(f"({len(EXCEPTIONS)} exceptions, {used.total()} cases)", "docs/accuracy.md")
        row.check(not unused, f"never met: {'; '.join(unused)}")
        listed = " ".join(DOCUMENT.read_text().split())
        missing = [exception.reason for exception in EXCEPTIONS if exception.reason not in listed]
        row.check(not missing, f"not in docs/accuracy.md: {'; '.join(missing)}")
        yield row


@dataclasses.dataclass
class Case:
    """A changed file and what was found: `failure` is "" if both agree, None if the case does not count."""
    text: str
    fields: tuple
    failure: str | None
    moved: bool
    waits: bool = False  # counts only if another value of the field moves an answer


class ModelType:
    """The cases of one model type."""

    def __init__(self, service, name, config_class, covered):
        self.service, self.name, self.config_class, self.covered = service, name, config_class, covered
        self.turned, self.excepted = {}, 0
        self.axes_order = name in check_model_types.COLUMNS_FIRST, name in check_model_types.WITHOUT_TIME

    def run(self):
        """Returns the Row of this type; None if posenc has no rotary embedding for it."""
        try:
            base = mutation_fields.small_file(self.name, self.config_class)
        except Exception as error:  # the class cannot make its defaults
            return None
        ours = self.ask(base)
        if isinstance(ours, Refusal) and ours.reason == "UNSUPPORTED" or not isinstance(ours, Refusal) and not any(
                entry.info.rotated for entry in ours):
            return None
        row = Row(self.name, "", within=WITHIN)
        try:
            self.reader = self.reader_of(base)
            theirs = self.reader.answer(base)
        except (original.CannotRun, mutation_originals.Raised, ImportError, ValueError) as error:
            row.original, row.why = "not run", f"{self.name}: {' '.join(str(error).split())[:120]}"
            return row
        row.original = "whole model" if isinstance(self.reader, mutation_originals.Models) else "rotary module"
        self.base = base, theirs, ours
        differ = self.difference(theirs, ours, base)
        row.check(not differ, f"unchanged file: {differ}")
        if isinstance(ours, Refusal):
            return row
        labels = mutation_originals.labels_of(mutation_originals.config_of(self.config_class, base))
        rotated = next(layer for layer in theirs.layers if layer is not None)
        singles = mutation_fields.changes(self.name, self.config_class, base, labels, rotated.turned.shape[-1] // 2)
        cases = [self.case(change) for change in singles]
        moving = {field for case in cases if case.moved for field in case.fields}
        movers = [change for change, case in zip(singles, cases) if case.moved]
        seed = zlib.crc32(self.name.encode()) + SEED
        cases += [self.case(*pair) for pair in mutation_fields.pairs_of(movers, PAIRS, seed)]
        cases.append(self.compared({"model_type": self.name}, "only model_type", ("model_type",), always=True))
        for case in cases:
            if case.failure is None or not (case.moved or case.waits and moving.intersection(case.fields)):
                continue
            row.check(not case.failure, f"{case.text}: {case.failure}")
        fields = {change.path[0] for change in singles}
        if len(row.errors) > SHOWN:
            row.errors[SHOWN:] = [f"and {len(row.errors) - SHOWN} more"]
        kinds = {field.split(".")[0] for field in moving}
        row.original += f", {len(fields)} fields, {len(kinds)} move, {len(cases)} files, {self.excepted} exceptions"
        return row

    def reader_of(self, base):
        if self.name in OWN_POSITIONS:
            return mutation_originals.Modules(self.config_class, base)
        try:
            return mutation_originals.Models(self.config_class, base)
        except original.CannotRun as error:
            try:
                return mutation_originals.Modules(self.config_class, base)
            except (original.CannotRun, mutation_originals.Raised) as other:
                raise original.CannotRun(f"{error}; {other}") from None

    def case(self, *changes):
        file = self.base[0]
        for change in changes:
            file = change.apply(file)
        return self.compared(file, " and ".join(map(str, changes)), tuple(change.field for change in changes))

    def compared(self, file, text, fields, always=False):
        _, base_theirs, base_ours = self.base
        ours = self.ask(file)
        ours_moved = isinstance(ours, Refusal) or settings_of(ours) != settings_of(base_ours)
        try:
            theirs = self.reader.answer(file)
        except mutation_originals.Raised as error:
            noted = isinstance(ours, Refusal) or notes_of(ours) - notes_of(base_ours)
            failure = "" if noted else f"the original raises {error}"
            return self.judged(Case(text, fields, failure if error.of_positions else None, False, waits=True), ours)
        moved = ours_moved or not same(theirs, base_theirs)
        failure = self.difference(theirs, ours, file) if moved or always else ""
        return self.judged(Case(text, fields, failure, moved or always), ours)

    def judged(self, case, ours):
        """Looks a failure up in the exceptions."""
        if not case.failure or not self.covered(self.name, case.fields, case.failure, ours):
            return case
        self.excepted += 1
        return dataclasses.replace(case, failure=None)

    def ask(self, file):
        """Returns the layers that Explain answers, or the Refusal."""
        request = service_pb2.ExplainRequest(
            model=rotary_pb2.ModelConfig(config_json=json.dumps(file).encode()),
            precision=rotary_pb2.Precision(preset=rotary_pb2.PRECISION_PRESET_F32))
        try:
            return list(self.service.client.call("Explain", request).layers)
        except grpc.RpcError as error:
            return Refusal.of(error)

    def difference(self, theirs, ours, file):
        """Returns how the answers differ, or ""."""
        if isinstance(ours, Refusal):
            rotates = any(layer is not None for layer in theirs.layers)
            return f"refused: {ours.reason} {ours.message}" if rotates else ""
        if theirs.labels is None and len(ours) > 1 and not any(entry.layer_index for entry in ours):
            return self.types_differ(theirs, ours, file)
        for index, rotation in enumerate(theirs.layers):
            label = theirs.labels[index] if theirs.labels else None
            where = f"layer {index}" if theirs.labels is None else f"layers {label}" if label else "layers"
            entries = entries_for(ours, index, theirs)
            if len(entries) != 1 and rotation is not None:
                entries = [entry for entry in entries if entry.info.rotated]
            if not entries:
                return f"{where}: no entry"
            for entry in entries:
                differ = self.layer_differs(rotation, entry, theirs, file) or self.queries_differ(
                    theirs.queries[index] if theirs.queries else mutation_originals.Queries(), rotation, entry, theirs, file)
                if differ:
                    return f"{where}: {differ}"
        if theirs.labels is None:
            count = max((index for entry in ours for index in entry.layer_index), default=-1) + 1
            has = len(theirs.layers) * ATTENTIONS.get(self.name, 1)
            if count and count != has:
                return f"{count} layers, the original has {has}"
        return ""

    def types_differ(self, theirs, ours, file):
        """Compares layers where the file does not say which layers have which type.

        Each layer that rotates must equal one of the types; types that do not rotate need not be listed.
        """
        for index, rotation in enumerate(theirs.layers):
            if rotation is None:
                continue
            differ = [self.layer_differs(rotation, entry, theirs, file) for entry in ours]
            if all(differ):
                return f"layer {index}: no type is equal: {differ[0]}"
        return ""

    def layer_differs(self, rotation, entry, theirs, file):
        if rotation is None or not entry.info.rotated:
            words = ("does not rotate", "rotates")
            same_kind = (rotation is not None) == entry.info.rotated
            return "" if same_kind else f"{words[entry.info.rotated]}, in the original it {words[rotation is not None]}"
        try:
            mine = self.rotated(rotation, entry, theirs, file)
        except grpc.RpcError as error:
            return f"does not rotate heads of {rotation.head or rotation.turned.shape[-1]}: {error.details()}"
        scale = max(1.0, float(numpy.abs(rotation.turned).max()))
        far = numpy.abs(numpy.array(theirs.positions)).max(axis=0)[:len(mine)]
        distance = numpy.abs(mine - rotation.turned).max(axis=1)
        limit = scale * (WITHIN + PER_POSITION * far)
        if not (distance <= limit).all():  # false for NaN
            token = int(numpy.argmax(numpy.nan_to_num(distance, nan=numpy.inf) / limit))
            return f"differs by {distance[token]:.2g} at position {far[token]}"
        softmax = self.softmax_differs(rotation, entry, theirs)
        return softmax

    def queries_differ(self, queries, rotation, entry, theirs, file):
        """Compares the factors of queries by position."""
        if queries.rotated is None and queries.others is None:
            return ""
        ours = mutation_originals.Queries(numpy.ones(len(theirs.positions[0])), numpy.ones(len(theirs.positions[0])))
        if entry.info.plan.rotary.HasField("query_scale"):
            ours = self.factors(rotation, entry, theirs, file)
        for what, mine, other in (("", ours.rotated, queries.rotated), ("unrotated ", ours.others, queries.others)):
            if mine is None or other is None or numpy.allclose(mine, other, rtol=1e-5):
                continue
            token = int(numpy.argmax(numpy.abs(mine - other)))
            return (f"{what}queries of token {token} are multiplied by {mine[token]:.6g} times the first one's factor, in the"
                    f" original by {other[token]:.6g} times")
        return ""

    def factors(self, rotation, entry, theirs, file):
        """Returns posenc's factors of queries: q divided by k, which is not multiplied."""
        width, head = (rotation.turned.shape[-1], rotation.head or rotation.turned.shape[-1]) if rotation else (0, 16)
        offset = rotation.offset if rotation else 0
        x = numpy.ones((1, len(theirs.positions[0]), 1, head), "f4")
        x[..., offset:offset + width] = mutation_originals.VECTOR[:width].numpy()
        answer = self.ask_rotation(file, entry, x, theirs.positions, not rotation or rotation.head)
        q, k = (numpy.frombuffer(tensor.data, "<f4").reshape(x.shape)[0, :, 0].astype("f8") for tensor in (answer.q, answer.k))
        turned, whole = k[:, offset:offset + width], k.copy()
        rotated = width and (q[:, offset:offset + width] * turned).sum(axis=1) / (turned * turned).sum(axis=1)
        others = numpy.delete(q / whole, slice(offset, offset + width), axis=1)
        return mutation_originals.Queries(rotated / rotated[0] if width else None,
                                          others[:, 0] / others[0, 0] if others.size else None)

    def softmax_differs(self, rotation, entry, theirs):
        """Compares how the factor of the scores differs from that of the unchanged file."""
        _, base_theirs, base_ours = self.base
        first = next(layer for layer in base_theirs.layers if layer is not None)
        said = next(each for each in base_ours if each.info.rotated).info.plan.softmax_scale_factor
        if not rotation.softmax or not first.softmax:
            return ""
        mine, original_ratio = entry.info.plan.softmax_scale_factor / said, rotation.softmax / first.softmax
        # Without such a factor, what changes the scores' scale is no part of the encoding.
        if abs(mine - original_ratio) <= 1e-5 * original_ratio or mine == said == 1:
            return ""
        return f"the scores' factor changes {mine:.6g} times, in the original {original_ratio:.6g} times"

    def rotated(self, rotation, entry, theirs, file):
        """Returns [tokens][width]: posenc's rotation of VECTOR, in a head of the model's own width if it is known."""
        width = rotation.turned.shape[-1]
        head = rotation.head or width
        info = entry.info
        key = (info.plan.SerializeToString(deterministic=True), info.input_pairing, info.output_pairing, width, head,
               rotation.offset, json.dumps(theirs.positions), head > width and json.dumps(file))
        if key not in self.turned:
            x = numpy.zeros((1, len(theirs.positions[0]), 1, head), "f4")
            x[..., rotation.offset:rotation.offset + width] = mutation_originals.VECTOR[:width].numpy()
            turned = self.apply(file, entry, x, theirs.positions, rotation.head)[0, :, 0]
            self.turned[key] = turned[:, rotation.offset:rotation.offset + width]
        return self.turned[key]

    def apply(self, file, entry, x, positions, whole):
        """Returns posenc's rotation of x, without the factor of queries."""
        return numpy.frombuffer(self.ask_rotation(file, entry, x, positions, whole).k.data, "<f4").reshape(x.shape)

    def ask_rotation(self, file, entry, x, positions, whole):
        """Returns the answer for queries and keys that are both x."""
        axes = 1 + max(entry.info.plan.frequencies[0].axis, default=0) if entry.info.plan.frequencies else 1
        columns_first, without_time = self.axes_order
        ids = positions[::-1] if columns_first else [positions[0], *positions] if without_time else positions
        ids = numpy.array(ids[:axes], "f8")
        request = service_pb2.ApplyRotaryRequest(
            rotary=rotary_pb2.RotarySource(model=rotary_pb2.ModelConfig(
                config_json=json.dumps(file).encode(), component=entry.component, layer_type=entry.layer_type or None)),
            positions=rotary_pb2.Positions(ids=as_tensor(ids if axes > 1 else ids[0])), layout=rotary_pb2.LAYOUT_BSHD,
            precision=rotary_pb2.Precision(preset=rotary_pb2.PRECISION_PRESET_F32),
            q=rotary_pb2.RotaryOperand(tensor=as_tensor(x), rotates_first=not whole))
        request.k.CopyFrom(request.q)
        if axes > 1:
            request.positions.axis_dimension = rotary_pb2.AXIS_DIMENSION_FIRST
        if entry.info.plan.rotary.query_scale.position_source == rotary_pb2.POSITION_SOURCE_CACHE_INDEX:
            request.positions.cache_index = 0
        if entry.info.sequences and entry.info.sequences[0].seq_len:
            request.positions.scaling_length_rule = rotary_pb2.SCALING_LENGTH_RULE_WHOLE_BATCH
        return self.service.client.call("ApplyRotary", request)


def as_tensor(values):
    dtype = {"f": tensor_pb2.DATA_TYPE_FP32, "d": tensor_pb2.DATA_TYPE_FP64}[values.dtype.char]
    return tensor_pb2.Tensor(dtype=dtype, shape=values.shape, data=values.tobytes())


def entries_for(ours, index, theirs):
    """Returns posenc's entries for the original's layer, or for its layer type."""
    if theirs.labels is None:
        listed = [entry for entry in ours if index in entry.layer_index]
        return listed or [entry for entry in ours if not entry.layer_index]
    named = [entry for entry in ours if entry.layer_type == theirs.labels[index]]
    return named or [entry for entry in ours if entry.info.rotated or len(ours) == 1]


def settings_of(ours):
    """Returns what an answer says, without notes."""
    return None if isinstance(ours, Refusal) else [
        (tuple(entry.layer_index), entry.info.rotated, entry.info.plan_fingerprint, entry.info.input_pairing,
         entry.info.output_pairing, entry.info.rotary_dim, entry.info.plan.softmax_scale_factor,
         entry.info.plan.rotary.query_scale.SerializeToString(deterministic=True)) for entry in ours]


def notes_of(ours):
    return set() if isinstance(ours, Refusal) else {
        (note.code, note.field) for entry in ours for note in entry.info.notes}


def same(a, b):
    """Returns whether two answers of the original are equal but for roundings."""
    if len(a.layers) != len(b.layers):
        return False
    for one, other in zip(a.layers, b.layers):
        if (one is None) != (other is None):
            return False
        if one is None:
            continue
        if one.turned.shape != other.turned.shape or (one.head, one.offset) != (other.head, other.offset):
            return False
        if not numpy.array_equal(one.turned, other.turned, equal_nan=True):
            return False
    return len(a.queries) == len(b.queries) and all(
        equal(one.rotated, other.rotated) and equal(one.others, other.others) for one, other in zip(a.queries, b.queries))


def equal(a, b):
    """Returns whether two arrays of factors are equal but for roundings, or both None."""
    return numpy.allclose(a, b, rtol=1e-5) if a is not None and b is not None else a is b
