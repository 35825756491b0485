"""A client of the gateway in nothing but Python's standard library, written
from the protocol and not from the server: JSON-RPC 2.0 over a WebSocket
(RFC 6455) or by the line over a unix socket."""

import base64
import hashlib
import json
import os
import queue
import socket
import struct
import threading
from urllib.parse import urlsplit

GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


class Refused(Exception):
    """The server did not upgrade the connection."""


class RPCError(Exception):
    def __init__(self, error):
        super().__init__(error["message"])
        self.code = error["code"]
        self.message = error["message"]


class Gone(Exception):
    """The connection ended."""


class Unix:
    def __init__(self, path):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(path)
        self.file = self.sock.makefile("rb")

    def send(self, text):
        self.sock.sendall(text.encode() + b"\n")

    def recv(self):
        line = self.file.readline()
        if not line.endswith(b"\n"):
            raise Gone()
        return line.decode()

    def close(self):
        try:
            self.sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self.file.close()
        self.sock.close()


class WebSocket:
    def __init__(self, url, token=None, how="header", headers=()):
        at = urlsplit(url)
        self.sock = socket.create_connection((at.hostname, at.port))
        key = base64.b64encode(os.urandom(16)).decode()
        path = "/?token=" + token if token and how == "query" else "/"
        lines = [
            f"GET {path} HTTP/1.1", f"Host: {at.netloc}", "Upgrade: websocket", "Connection: Upgrade",
            f"Sec-WebSocket-Key: {key}", "Sec-WebSocket-Version: 13", *headers,
        ]
        if token and how == "header":
            lines.append("Authorization: Bearer " + token)
        self.sock.sendall("\r\n".join(lines + ["", ""]).encode())
        self.file = self.sock.makefile("rb")
        status = self.file.readline().decode()
        got = {}
        while (line := self.file.readline().decode().strip()) != "":
            name, _, value = line.partition(":")
            got[name.lower()] = value.strip()
        if " 101 " not in status:
            raise Refused(status.strip())
        want = base64.b64encode(hashlib.sha1((key + GUID).encode()).digest()).decode()
        assert got["sec-websocket-accept"] == want, got

    def frame(self, opcode, payload, fin=True):
        mask = os.urandom(4)
        head = bytes([(0x80 if fin else 0) | opcode])
        n = len(payload)
        if n < 126:
            head += bytes([0x80 | n])
        elif n < 1 << 16:
            head += b"\xfe" + struct.pack(">H", n)
        else:
            head += b"\xff" + struct.pack(">Q", n)
        long = (mask * (n // 4 + 1))[:n]
        masked = (int.from_bytes(payload, "big") ^ int.from_bytes(long, "big")).to_bytes(n, "big")
        self.sock.sendall(head + mask + masked)

    def send(self, text):
        self.frame(1, text.encode())

    def read(self, n):
        data = self.file.read(n)
        if len(data) < n:
            raise Gone()
        return data

    def recv(self):
        text = b""
        while True:
            first, second = self.read(2)
            assert not second & 0x80, "a server does not mask"
            n = second & 0x7F
            if n == 126:
                (n,) = struct.unpack(">H", self.read(2))
            elif n == 127:
                (n,) = struct.unpack(">Q", self.read(8))
            payload = self.read(n)
            opcode = first & 0x0F
            if opcode == 8:
                self.closed = payload
                raise Gone()
            if opcode == 9:
                self.frame(10, payload)
                continue
            if opcode == 10:
                continue
            assert opcode in (0, 1), "text frames only"
            text += payload
            if first & 0x80:
                return text.decode()

    close = Unix.close


class Client:
    """Requests, answers to tools.execute, and what was notified."""

    def __init__(self, wire):
        self.wire = wire
        self.tools = {}  # name -> function of the tools.execute params
        self.executed = []
        self.notes = queue.Queue()
        self.waiting = {}
        self.last = 0
        self.lock = threading.Lock()
        self.gone = threading.Event()
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        try:
            while True:
                self.got(json.loads(self.wire.recv()))
        except (Gone, OSError, ValueError) as err:
            self.why = err
        self.gone.set()
        with self.lock:
            for answer in self.waiting.values():
                answer.put(None)

    def got(self, message):
        if isinstance(message, list):
            for one in message:
                self.got(one)
        elif "method" not in message:
            with self.lock:
                answer = self.waiting.pop(json.dumps(message["id"]), None)
            if answer:
                answer.put(message)
            else:
                self.notes.put(message)
        elif message["method"] == "tools.execute":
            params = message["params"]
            self.executed.append(params)
            answer = self.tools[params["tool"]](params)
            if answer is not None:
                self.send({"jsonrpc": "2.0", "id": message["id"], **answer})
        else:
            self.notes.put(message)

    def send(self, message):
        with self.lock:
            self.wire.send(json.dumps(message))

    def start(self, method, params=None, id=None):
        with self.lock:
            self.last += 1
            id = self.last if id is None else id
            answer = self.waiting[json.dumps(id)] = queue.Queue()
        message = {"jsonrpc": "2.0", "id": id, "method": method}
        if params is not None:
            message["params"] = params
        self.send(message)
        return answer

    @staticmethod
    def finish(answer):
        message = answer.get(timeout=30)
        if message is None:
            raise Gone()
        if "error" in message:
            raise RPCError(message["error"])
        return message["result"]

    def call(self, method, params=None, id=None):
        return self.finish(self.start(method, params, id))

    def register(self, name, run, **more):
        self.tools[name] = run
        return self.call("tools.register", [{"name": name, "description": "", "parameters": {}, **more}])

    def propose(self, tool, parameters, **more):
        """The outcome of one call."""
        action = {"id": "a1", "type": "tool_call", "tool": tool, "parameters": parameters}
        action.update(more.pop("action", {}))
        extra = more.pop("proposal", {})
        params = {"proposal": {"id": "p1", "source": "agent-7", "actions": [action], **extra}, **more}
        return self.call("proposal.submit", params)["actions"][0]

    def close(self):
        self.wire.close()
        self.gone.wait(10)


def result(value):
    return {"result": value}
