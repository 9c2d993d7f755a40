"""The socket of a connection that is tried without a network."""

import asyncio


class NotingSocket(asyncio.Transport):
    """Notes each system call that would write."""

    def __init__(self):
        super().__init__()
        self.sent: list[bytes] = []
        self.is_closed = self.is_ended = self.is_paused = False

    def write(self, data):
        if self.is_ended:
            raise RuntimeError("write after write_eof, as asyncio and uvloop say")
        self.sent.append(bytes(data))

    def writelines(self, list_of_data):
        assert all(list_of_data), "asyncio of Python 3.12 writes an empty piece for ever"
        self.sent.append(b"".join(list_of_data))

    def write_eof(self):
        self.is_ended = True

    def close(self):
        self.is_closed = True

    def is_closing(self):
        return self.is_closed

    def pause_reading(self):
        self.is_paused = True

    def resume_reading(self):
        self.is_paused = False
