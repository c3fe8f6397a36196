"""A client of the Open Inference Protocol over HTTP that shares no code with posenc: http.client, JSON and struct."""

import contextlib
import http.client
import json
import re
import socket
import types

import numpy
from client import SECONDS

DTYPES = {"FP32": "<f4", "FP64": "<f8", "FP16": "<f2", "BF16": "<u2", "INT32": "<i4", "INT64": "<i8", "BOOL": "?"}
BINARY = {"binary_data_output": True}


def http_port(server):
    return int(re.search(r"\bhttp_port=(\d+)", server.log_with("serving"))[1])


class Rest:
    """Requests over one connection. `path` of infer() is that of a model: "llama", "llama/versions/1"."""

    def __init__(self, port, tls=None):
        """`port`: that of a TCP address, or the path of a Unix socket. `tls`: an ssl.SSLContext."""
        if not isinstance(port, int):
            self.connection = http.client.HTTPConnection("localhost", timeout=SECONDS)
            self.connection.sock = socket.socket(socket.AF_UNIX)
            self.connection.sock.settimeout(SECONDS)
            self.connection.sock.connect(str(port))
        elif tls is None:
            self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=SECONDS)
        else:
            self.connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=SECONDS, context=tls)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.connection.close()

    def send(self, verb, path, body=None, **headers):
        """Returns status, headers, and the body as bytes."""
        fields = {name.replace("_", "-"): value for name, value in headers.items()}
        self.connection.request(verb, path, body, fields)
        response = self.connection.getresponse()
        return types.SimpleNamespace(status=response.status, headers=response.headers, body=response.read())

    def json(self, verb, path, body=None, status=200, **headers):
        """The answer's JSON; None if its body is empty."""
        answer = self.send(verb, path, None if body is None else json.dumps(body), **headers)
        assert answer.status == status, (answer.status, answer.body[:500])
        if not answer.body:
            return None
        assert answer.headers["content-type"] == "application/json"
        return json.loads(answer.body)

    def infer(self, path, request, binary=(), status=200, **headers):
        """Sends a request with binary inputs behind it. Returns the answer's JSON, and outputs as arrays by name."""
        text = json.dumps(request).encode()
        if binary:
            headers["Inference_Header_Content_Length"] = str(len(text))
        answer = self.send("POST", f"/v2/models/{path}/infer", text + b"".join(binary), **headers)
        assert answer.status == status, (answer.status, answer.body[:500])
        length = int(answer.headers.get("inference-header-content-length", len(answer.body)))
        said, rest = json.loads(answer.body[:length]), answer.body[length:]
        if status != 200:
            return said
        arrays = {}
        for output in said["outputs"]:
            dtype = DTYPES[output["datatype"]]
            size = output.get("parameters", {}).get("binary_data_size")
            if size is not None:
                arrays[output["name"]] = numpy.frombuffer(rest[:size], dtype).reshape(output["shape"])
                rest = rest[size:]
            elif "data" in output:
                arrays[output["name"]] = numpy.array(output["data"], dtype).reshape(output["shape"])
        assert rest == b""
        return said, arrays


def given(name, values, datatype="FP32"):
    """An input with its elements as JSON."""
    values = numpy.asarray(values)
    return {"name": name, "shape": list(values.shape), "datatype": datatype, "data": values.ravel().tolist()}


def binary(name, values, datatype="FP32"):
    """An input whose elements are behind the JSON, and these."""
    data = numpy.asarray(values).astype(DTYPES[datatype]).tobytes()
    shape = list(numpy.asarray(values).shape)
    return {"name": name, "shape": shape, "datatype": datatype, "parameters": {"binary_data_size": len(data)}}, data


def raw(port, *pieces, wait=None, shut=False):
    """Sends pieces of bytes over a connection of its own. Returns all that came until the server has closed it."""
    with contextlib.closing(socket.create_connection(("127.0.0.1", port), timeout=SECONDS)) as connection:
        for piece in pieces:
            connection.sendall(piece)
            if wait is not None:
                wait()
        if shut:
            connection.shutdown(socket.SHUT_WR)
        received = b""
        with contextlib.suppress(ConnectionResetError):
            while more := connection.recv(1 << 16):
                received += more
        return received
