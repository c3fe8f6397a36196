"""A server that restarts on its address whenever somebody connects to another port, and closes that connection once it
serves again."""

import pathlib
import signal
import socket
import threading

from server_process import ServerProcess


class RestartingServer:
    def __init__(self, program, directory):
        self._program, self._directory, self._starts = program, pathlib.Path(directory), 0
        self._server = self._start()
        self.address = f"127.0.0.1:{self._server.port}"
        self._trigger = socket.create_server(("127.0.0.1", 0))
        self.trigger = f"127.0.0.1:{self._trigger.getsockname()[1]}"
        self._thread = threading.Thread(target=self._restart_when_asked, daemon=True)
        self._thread.start()

    def _start(self, *flags):
        self._starts += 1
        directory = self._directory / str(self._starts)
        directory.mkdir()
        return ServerProcess(self._program, directory, *flags)

    def _restart_when_asked(self):
        while True:
            try:
                asking, _ = self._trigger.accept()
            except OSError:
                return
            with asking:
                self._server.signal(signal.SIGTERM)
                if self._server.wait() == 0:  # otherwise the callers see that it is gone
                    self._server = self._start("--listen", self.address)

    def stop(self):
        self._trigger.shutdown(socket.SHUT_RDWR)
        self._trigger.close()
        self._thread.join()
        self._server.stop()
