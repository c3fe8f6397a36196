"""Clients that speak HTTP/2 directly and so, unlike gRPC's, can leave answers unread and messages unfinished."""

import socket
import time

import h2.config
import h2.connection
import h2.events
import h2.exceptions
import h2.settings
from client import SECONDS, SERVICE

MEBIBYTE = 1 << 20


def framed(message):
    data = message.SerializeToString()
    return b"\0" + len(data).to_bytes(4, "big") + data


class ShutWindow:
    """An HTTP/2 client whose streams have no window by default: it receives headers, pings and ends, but no data.
    `port`: or the path of a Unix socket. `address`: its own. `receive_buffer`: bytes that its host takes before it reads them.
    `tls`: the context of a connection that is encrypted."""

    def __init__(self, port, window=0, address="127.0.0.1", receive_buffer=None, tls=None):
        is_unix = not isinstance(port, int)
        self.socket = socket.socket(socket.AF_UNIX if is_unix else socket.AF_INET)
        self.socket.settimeout(SECONDS)
        if receive_buffer is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        if not is_unix:
            self.socket.bind((address, 0))
        self.socket.connect(str(port) if is_unix else ("127.0.0.1", port))
        if tls is not None:
            self.socket = tls.wrap_socket(self.socket, server_hostname="localhost")
        self.http = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True))
        self.http.initiate_connection()
        self.http.update_settings({h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: window})
        if window > 0:
            self.http.increment_flow_control_window(window - 65535)
        self.flush()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def flush(self):
        self.socket.sendall(self.http.data_to_send())

    def begin(self, method, *headers):
        """Sends a call's headers. `method` is the name of a method of the service, or a whole path."""
        stream = self.http.get_next_available_stream_id()
        path = method if method.startswith("/") else f"/{SERVICE.full_name}/{method}"
        self.http.send_headers(stream, [
            (":method", "POST"), (":scheme", "http"), (":path", path),
            (":authority", "test"), ("content-type", "application/grpc"), ("te", "trailers"), *headers])
        return stream

    def call(self, method, *messages, end=True):
        stream = self.begin(method)
        for message in messages:
            self.http.send_data(stream, framed(message))
        if end:
            self.http.end_stream(stream)
        self.flush()
        return stream

    def wait_for(self, kind, stream):
        """Returns the next event of that kind on the stream."""
        while True:
            data = self.socket.recv(65536)
            assert data, "the connection ended"
            for event in self.http.receive_data(data):
                if isinstance(event, kind) and event.stream_id == stream:
                    return event
                assert not isinstance(event, h2.events.StreamReset) or event.stream_id != stream, f"the call was reset: {event}"
            self.flush()


class Uploader(ShutWindow):
    """A call whose bytes are sent in pieces, as far as flow control allows. It can receive the answer. `frame`: bytes of a
    DATA frame; None: as many as there are."""

    def __init__(self, port, method, *messages, window=MEBIBYTE, frame=None, address="127.0.0.1"):
        super().__init__(port, window, address)
        self.stream = self.begin(method)
        self.flush()
        self.socket.setblocking(False)
        self.bytes = b"".join(framed(message) for message in messages)
        self.sent = 0
        self.end = None  # gRPC's status, or "reset", or "closed"
        self._frame = frame
        self._out = b""

    def pump(self, limit):
        """Sends, up to byte `limit` of the messages, and receives without waiting. Returns whether any bytes moved."""
        moved = self._receive()
        while self.end is None:
            if not self._out:
                room = min(self.http.local_flow_control_window(self.stream), self.http.max_outbound_frame_size)
                piece = self.bytes[self.sent:min(limit, self.sent + max(room, 0))]
                self._out = self.http.data_to_send()
                if piece:
                    self.sent += len(piece)
                    self.http.send_data(self.stream, piece, end_stream=self.sent == len(self.bytes))
                    data = self.http.data_to_send()
                    self._out += data if self._frame is None else self._cut(piece, ends=data[4] & 1)
            try:
                count = self.socket.send(self._out) if self._out else 0
            except (BlockingIOError, ConnectionError):
                break
            if count == 0:
                break
            self._out = self._out[count:]
            moved = True
        return moved

    def _cut(self, piece, ends):
        """Returns DATA frames of the bytes. h2 has counted them already: to flow control, their number is the same."""
        frames = []
        for at in range(0, len(piece), self._frame):
            part = piece[at:at + self._frame]
            flags = ends if at + len(part) == len(piece) else 0
            frames.append(len(part).to_bytes(3, "big") + bytes((0, flags)) + self.stream.to_bytes(4, "big") + part)
        return b"".join(frames)

    def _receive(self):
        moved = False
        while self.end is None:
            try:
                data = self.socket.recv(65536)
            except BlockingIOError:
                break
            except ConnectionError:
                data = b""
            moved = True
            try:
                events = self.http.receive_data(data)
            except h2.exceptions.ProtocolError:  # frames after the server's GOAWAY, which h2 does not expect
                data = b""
            if not data:
                self.end = "closed"
                break
            for event in events:
                self._take(event)
        return moved

    def _take(self, event):
        if isinstance(event, h2.events.StreamReset):
            self.end = "reset"
        elif isinstance(event, (h2.events.ResponseReceived, h2.events.TrailersReceived)):
            status = dict(event.headers).get(b"grpc-status")
            self.end = self.end if status is None else int(status)
        elif isinstance(event, h2.events.DataReceived):
            self.http.acknowledge_received_data(event.flow_controlled_length, event.stream_id)


def pump_all(uploaders, held_back=0):
    """Sends all but the last `held_back` bytes of each, as far as the server accepts, until nothing moves for 0.5 s."""
    still = 0
    while still < 100:  # and pauses, so that the server has the processor
        if any([uploader.pump(len(uploader.bytes) - held_back) for uploader in uploaders]):
            still = 0
        else:
            still += 1
            time.sleep(0.005)
