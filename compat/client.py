"""client.py URL TOKEN: Python's standard library alone connects, chats, is cut off in the middle of an answer, and catches up."""

import base64
import hashlib
import json
import os
import socket
import struct
import sys
import urllib.parse
import uuid

FAILED = []


def check(name, good, why=""):
    print(f"ok {name}" if good else f"FAIL {name}: {why}", flush=True)
    if not good:
        FAILED.append(name)


class Client:
    """One connection: RFC 6455 by hand, masked text frames, every message sent in two fragments."""

    def __init__(self, url):
        at = urllib.parse.urlsplit(url)
        self.sock = socket.create_connection((at.hostname, at.port), timeout=20)
        key = base64.b64encode(os.urandom(16)).decode()
        self.sock.sendall((
            f"GET /ws HTTP/1.1\r\nHost: {at.hostname}:{at.port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n").encode())
        self.stream = self.sock.makefile("rb")
        status = self.stream.readline().decode()
        headers = {}
        while (line := self.stream.readline().decode().strip()):
            name, _, value = line.partition(":")
            headers[name.lower()] = value.strip()
        accept = base64.b64encode(hashlib.sha1((key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11").encode()).digest()).decode()
        check("the upgrade is answered", status.split()[1] == "101" and headers.get("sec-websocket-accept") == accept, status)
        self.events, self.count = [], 0

    def frame(self, first, payload):
        mask = os.urandom(4)
        size = len(payload)
        if size < 126:
            head = struct.pack("!BB", first, 0x80 | size)
        elif size < 1 << 16:
            head = struct.pack("!BBH", first, 0x80 | 126, size)
        else:
            head = struct.pack("!BBQ", first, 0x80 | 127, size)
        self.sock.sendall(head + mask + bytes(b ^ mask[i % 4] for i, b in enumerate(payload)))

    def send(self, value):
        data = json.dumps(value).encode()
        half = len(data) // 2
        self.frame(0x01, data[:half])
        self.frame(0x80, data[half:])

    def read(self):
        while True:
            first, second = self.stream.read(2)
            size = second & 0x7F
            if size == 126:
                (size,) = struct.unpack("!H", self.stream.read(2))
            elif size == 127:
                (size,) = struct.unpack("!Q", self.stream.read(8))
            payload = self.stream.read(size)
            kind = first & 0x0F
            if kind == 0x9:
                self.frame(0x8A, payload)
            elif kind == 0x8:
                raise EOFError(struct.unpack("!H", payload[:2])[0] if payload else 1005)
            elif kind == 0x1:
                check_bits(first, second)
                return json.loads(payload.decode())

    def until(self, want):
        for i, event in enumerate(self.events):
            if want(event):
                return self.events[i]
        while True:
            frame = self.read()
            if frame["type"] == "event":
                self.events.append(frame)
            if want(frame):
                return frame

    def call(self, method, params):
        self.count += 1
        ident = f"py-{self.count}"
        self.send({"type": "req", "id": ident, "method": method, "params": params})
        return self.until(lambda f: f["type"] == "res" and f["id"] == ident)

    def login(self, token):
        return self.call("connect", {
            "minProtocol": 3, "maxProtocol": 4, "auth": {"token": token}, "scopes": ["operator.read", "operator.write"],
            "client": {"id": "python", "version": "3", "platform": sys.platform, "mode": "backend"}})

    def chat(self, run, state):
        return self.until(lambda f: f.get("event") == "chat" and f["payload"]["runId"] == run and f["payload"]["state"] == state)


def check_bits(first, second):
    if first & 0x70 or second & 0x80:
        check("no reserved bit, no mask", False, f"{first:#x} {second:#x}")


def text(message):
    return "".join(part["text"] for part in message["content"])


def main(url, token):
    key = f"agent:main:py-{uuid.uuid4()}"

    def send(client, message):
        return client.call("chat.send", {"sessionKey": key, "message": message, "idempotencyKey": str(uuid.uuid4())})

    client = Client(url)
    hello = client.login(token)
    check("connect", hello["ok"] and hello["payload"]["protocol"] == 4, hello)
    check("scopes as asked", hello["payload"]["auth"]["scopes"] == ["operator.read", "operator.write"], hello["payload"]["auth"])
    run = send(client, "grüße aus python 🐍")["payload"]["runId"]
    final = client.chat(run, "final")
    check("the answer is the echo", text(final["payload"]["message"]) == "grüße aus python 🐍", final)
    cursor = client.call("chat.history", {"sessionKey": key})["payload"]["deltaCursor"]
    cut = send(client, "an answer that is cut off in its middle")["payload"]["runId"]
    client.chat(cut, "delta")
    client.sock.close()
    client.stream.close()

    client = Client(url)
    client.login(token)
    client.call("sessions.subscribe", {})
    got = []
    while not any(m["role"] == "assistant" for m in got):
        page = client.call("chat.history", {"sessionKey": key, "cursor": cursor})["payload"]
        check("a page after the cursor", page["kind"] == "delta", page)
        got, cursor = got + page["messages"], page["deltaCursor"]
        if "inFlightRun" in page:
            check("the run under way is named", page["inFlightRun"]["runId"] == cut, page["inFlightRun"])
            client.chat(cut, "final")
    said = [f"{m['role']} {text(m)}" for m in got]
    check("every message once", said == [f"{role} an answer that is cut off in its middle" for role in ("user", "assistant")], said)
    client.frame(0x88, struct.pack("!H", 1000))
    try:
        client.until(lambda f: False)
    except EOFError as end:
        check("the close is answered", end.args[0] == 1000, end)
    sys.exit(1 if FAILED else 0)


main(*sys.argv[1:])
