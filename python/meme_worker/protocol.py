"""The 16-byte headers of requests and replies, and the socket they travel over."""

import socket
import struct

VERSION = 4
MAGIC = "meme-worker"

OPEN, ATTACH, RESET, STEP, SAVE, RESTORE, CLOSE = range(1, 8)
DONE, REFUSED, FAILED, FOREIGN, BEGINNING = range(5)

# Request, group, slot (in a reply: status), unused, environment, bytes that follow, serial number.
HEADER = struct.Struct("<BBBxIII")


class Refused(Exception):
    """The request cannot be done, and nothing has changed; its text is for the user."""


class Foreign(Exception):
    """What was saved is of another kind of play, and nothing has changed; its text is for the user."""


class Connection:
    """Requests in, replies out, one at a time."""

    def __init__(self, descriptor):
        self.socket = socket.socket(fileno=descriptor)
        self.header = bytearray(HEADER.size)
        self.request = None

    def next(self):
        """The next request as (request, group, slot, environment, content), or None when the parent is gone."""
        if not self._fill(self.header):
            return None
        request, group, slot, environment, length, serial = HEADER.unpack(self.header)
        self.request = (request, group, environment, serial)
        content = bytearray(length)
        if length and not self._fill(content):
            return None
        return request, group, slot, environment, content

    def reply(self, status=DONE, content=b""):
        """Answers the last request."""
        request, group, environment, serial = self.request
        self.socket.sendall(HEADER.pack(request, group, status, environment, len(content), serial) + content)

    def _fill(self, buffer):
        view = memoryview(buffer)
        while view:
            count = self.socket.recv_into(view)
            if count == 0:
                return False
            view = view[count:]
        return True
