"""Random changes to legal requests: fields of their messages, elements of their tensors, and their bytes."""

import json
import math
import struct

import samples
from every_field import SIZES, is_list
from google.protobuf.descriptor import FieldDescriptor
from posenc.v1 import rotary_pb2, service_pb2, tensor_pb2
from rich_requests import dynamic, rich_requests, scalings
from tensors import BF16, BOOL, FP16, FP32, FP64, INT32, INT64, tensor

NUMBERS = [0.0, 5e-324, 1e-310, 1e-30, 0.5, 1.0, 2.0, 3.0, 256.0, 1e4, 1e12, 2.0**53, 1e30, 1e100, 1.7e308, math.inf,
           math.nan]
INTEGERS = [0, 1, 2, 3, 4, 7, 8, 16, 64, 127, 128, 1000, 4096, 65535, 65536, 2**20, 2**31 - 1, 2**31, 2**40, 2**53, 2**63 - 1]
ROPE_TYPES = sorted({"", "default", *(settings.rope_parameters.rope_type for settings in [dynamic(), *scalings()])})
ELEMENT = {FP32: "<f", FP64: "<d", FP16: "<e", BF16: "<H", INT32: "<i", INT64: "<q", BOOL: "<B"}
INTEGER_RANGE = {
    FieldDescriptor.TYPE_INT32: (-2**31, 2**31 - 1), FieldDescriptor.TYPE_UINT32: (0, 2**32 - 1),
    FieldDescriptor.TYPE_INT64: (-2**63, 2**63 - 1), FieldDescriptor.TYPE_UINT64: (0, 2**64 - 1)}


def xpos_settings():
    settings = samples.rope_settings()
    settings.xpos.CopyFrom(rotary_pb2.Xpos(scale_base=256, centre=2))
    return settings


def rotary_stream():
    """The messages of a StreamApplyRotary: a header, and two chunks, the tokens of q."""
    header = samples.rotary()
    header.rotary.settings.CopyFrom(xpos_settings())
    rows = header.q.tensor.data
    header.q.tensor.ClearField("data")
    half = len(rows) // 2
    chunks = [service_pb2.RotaryChunk(operand=rotary_pb2.OPERAND_QUERY,
                                      rows=tensor_pb2.TensorChunk(data=rows[begin:begin + half], byte_offset=begin))
              for begin in (0, half)]
    return [service_pb2.StreamApplyRotaryRequest(header=header),
            *(service_pb2.StreamApplyRotaryRequest(chunk=chunk) for chunk in chunks)]


def seeds(config_directory):
    """Returns (method, request): rich requests, xPos in every RPC with a rotary embedding, and real config.json files.

    A request of StreamApplyRotary is one message of rotary_stream().
    """
    table = samples.table(dtype=FP64)
    table.operand = rotary_pb2.OPERAND_KEY
    rotary = samples.rotary()
    analysis = samples.analysis()
    rows = [[[[1.0, 2, 3, 4, 5, 6, 7, 8]], [[2.0, 3, 5, 7, 11, 13, 17, 19]]]]
    diagnosis = samples.diagnosis(rows, rows)
    for source in (table.rotary, rotary.rotary, analysis.rotary, diagnosis.expected):
        source.settings.CopyFrom(xpos_settings())
    found = rich_requests() + [
        ("GenerateTable", table), ("ApplyRotary", rotary), ("Analyze", analysis), ("Diagnose", diagnosis),
        ("Explain", service_pb2.ExplainRequest(rotary=xpos_settings())),
        ("Compare", samples.comparison(xpos_settings())),
        ("StreamTable", service_pb2.StreamTableRequest(table=table, rows_per_tile=1)),
        *(("StreamApplyRotary", message) for message in rotary_stream()),
        ("StreamBias", service_pb2.StreamBiasRequest(bias=samples.bias())),
        ("GenerateBias", samples.bias()), ("GenerateEmbedding", samples.embedding())]
    for path in sorted(config_directory.glob("*.json")):
        text = path.read_bytes()
        found.append(("Explain", service_pb2.ExplainRequest(model=rotary_pb2.ModelConfig(config_json=text))))
        found.append(("GenerateTable", samples.model_table(text)))
        found.append(("Compare", samples.comparison(rotary_pb2.ModelConfig(config_json=text))))
    return found


def messages_within(message):
    """Yields a message and all messages within it, at any depth."""
    yield message
    for field, value in message.ListFields():
        if field.message_type is None or field.message_type.GetOptions().map_entry:
            continue
        for part in value if is_list(field) else [value]:
            yield from messages_within(part)


def without_a_size(requests):
    """Yields each request once for each size of its tensors, with 0 in place of that size in all of them."""
    for method, request in requests:
        sizes = {size for message in messages_within(request) if isinstance(message, tensor_pb2.Tensor)
                 for size in message.shape}
        for gone in sorted(sizes - {0}):
            changed = type(request)()
            changed.CopyFrom(request)
            for message in messages_within(changed):
                if isinstance(message, tensor_pb2.Tensor) and gone in message.shape:
                    message.shape[:] = [0 if size == gone else size for size in message.shape]
                    message.ClearField("data")
            yield method, changed


class Mutator:
    def __init__(self, chance, requests):
        self._chance = chance
        # Messages of each type; they can replace a field of that type.
        self._parts = {}
        for _, request in requests:
            for message in messages_within(request):
                self._parts.setdefault(message.DESCRIPTOR.full_name, []).append(message)

    def mutate(self, request):
        """Returns the bytes of the request with one to four changes, sometimes with damaged bytes."""
        changed = type(request)()
        changed.CopyFrom(request)
        for _ in range(self._chance.choice((1, 1, 1, 2, 2, 3, 4))):
            self._change_message(self._chance.choice(list(messages_within(changed))))
        text = changed.SerializeToString()
        return self._damage(text) if self._chance.random() < 0.15 else text

    def _damage(self, text):
        damaged = bytearray(text)
        for _ in range(self._chance.randint(1, 4)):
            place = self._chance.randrange(len(damaged) + 1)
            damaged[place:place + self._chance.randint(0, 2)] = self._chance.randbytes(self._chance.randint(0, 2))
        return bytes(damaged)

    def _change_message(self, message):
        if message.DESCRIPTOR.name == "Tensor":
            return self._change_tensor(message)
        fields = message.DESCRIPTOR.fields
        if not fields:
            return None
        field = self._chance.choice(fields)
        if self._chance.random() < 0.1:
            return message.ClearField(field.name)
        if is_list(field):
            return self._change_list(getattr(message, field.name), field)
        if field.message_type is not None:
            return getattr(message, field.name).CopyFrom(self._part(field))
        if field.name == "config_json" and message.config_json:
            message.config_json = self._change_json(message.config_json)
        else:
            setattr(message, field.name, self._scalar(field))
        return None

    def _change_list(self, values, field):
        make = self._part if field.message_type is not None else self._scalar
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            return
        what = self._chance.random()
        if values and what < 0.05 and self._chance.random() < 0.1:
            values.extend(list(values) * self._chance.choice((100, 10_000)))
        elif values and what < 0.3:
            del values[self._chance.randrange(len(values))]
        elif values and what < 0.7 and field.message_type is None:
            values[self._chance.randrange(len(values))] = make(field)
        else:
            values.append(make(field))

    def _part(self, field):
        known = self._parts.get(field.message_type.full_name)
        if not known:
            return field.message_type._concrete_class()
        return self._chance.choice(known)

    def _change_tensor(self, message):
        what = self._chance.random()
        if what < 0.6 and message.data and message.dtype in ELEMENT:
            form = ELEMENT[message.dtype]
            size = struct.calcsize(form)
            data = bytearray(message.data)
            place = self._chance.randrange(max(len(data) // size, 1)) * size
            data[place:place + size] = self._element(form)
            message.data = bytes(data)
        elif what < 0.75:
            self._change_shape(message)
        elif what < 0.9:
            kinds = [tensor([self._number() for _ in range(self._chance.randint(0, 4))], FP64),
                     tensor([self._integer(-2**63, 2**63 - 1) for _ in range(self._chance.randint(0, 4))], INT64)]
            message.CopyFrom(self._chance.choice(kinds))
        else:
            message.dtype = self._chance.choice(list(ELEMENT))

    def _change_shape(self, message):
        """Changes one size, or all; a tensor that is empty then has no bytes, so that its sizes are what is wrong."""
        if message.shape and self._chance.random() < 0.5:
            message.shape[self._chance.randrange(len(message.shape))] = self._integer(-2**63, 2**63 - 1)
        else:
            message.shape[:] = [self._chance.choice((0, self._chance.choice(SIZES), self._integer(0, 2**63 - 1)))
                                for _ in range(self._chance.randint(0, 5))]
        if 0 in message.shape:
            message.ClearField("data")

    def _element(self, form):
        if form in ("<f", "<d", "<e"):
            try:
                return struct.pack(form, self._number())
            except OverflowError:
                return struct.pack(form, math.inf)
        bits = 8 * struct.calcsize(form)
        signed = form in ("<i", "<q")
        return struct.pack(form, self._integer(-2**(bits - 1) if signed else 0, 2**(bits - signed) - 1))

    def _number(self):
        what = self._chance.random()
        if what < 0.6:
            number = self._chance.choice(NUMBERS)
        elif what < 0.8:
            number = 10.0**self._chance.uniform(-320, 308)
        else:
            number = self._chance.uniform(0, 1000)
        return self._chance.choice((1, -1)) * number

    def _integer(self, least, most):
        number = self._chance.choice(INTEGERS) if self._chance.random() < 0.7 else self._chance.randrange(200)
        if self._chance.random() < 0.3:
            number = -number
        return min(max(number, least), most)

    def _scalar(self, field):
        if field.enum_type is not None:
            return self._chance.choice(field.enum_type.values).number
        if field.type in INTEGER_RANGE:
            return self._integer(*INTEGER_RANGE[field.type])
        if field.type == field.TYPE_DOUBLE:
            return self._number()
        if field.type == field.TYPE_BOOL:
            return self._chance.random() < 0.5
        if field.type == field.TYPE_STRING:
            return self._chance.choice(ROPE_TYPES) if field.name == "rope_type" else self._chance.choice(["", "cpu", "é"])
        return self._chance.randbytes(self._chance.randint(0, 16))

    def _change_json(self, text):
        try:
            settings = json.loads(text)
        except ValueError:
            return text
        if not isinstance(settings, dict):
            return text
        blocks = [settings, *(value for value in settings.values() if isinstance(value, dict))]
        block = self._chance.choice(blocks)
        if not block:
            return text
        name = self._chance.choice(list(block))
        values = [self._number(), self._integer(-2**63, 2**63 - 1), True, None, "", [], {}, [self._number()],
                  self._chance.choice(ROPE_TYPES)]
        block[name] = self._chance.choice(values)
        return json.dumps(settings).encode()
