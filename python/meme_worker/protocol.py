"""The socket to the parent, and the 16-byte headers of requests and replies."""

import socket
import struct

VERSION = 6
MAGIC = "meme-worker"

OPEN, ATTACH, RESET, STEP, SAVE, RESTORE, CLOSE, RENDER = range(1, 9)
DONE, REFUSED, FAILED, FOREIGN, BEGINNING = range(5)
# How a step ended its episode; 0 where it did not.
TERMINATED, TRUNCATED = 1, 2

# Request, group, slot (status in a reply), unused, environment, bytes that follow, serial number.
HEADER = struct.Struct("<BBBxIII")


class Refused(Exception):
    """The request is not possible and has changed nothing; the text is for the user."""


class Foreign(Exception):
    """The save was played with other options; nothing has changed, and the text is for the user."""


class Connection:
    """Receives requests and sends replies, one at a time."""

    def __init__(self, descriptor):
        self.socket = socket.socket(fileno=descriptor)
        self.header = bytearray(HEADER.size)
        self.request = None

    def next(self):
        """Returns the next (request, group, slot, environment, content), or None if the parent has hung up."""
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
