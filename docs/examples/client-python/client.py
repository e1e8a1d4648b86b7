"""Sends one message and prints the answer while it is written, even when the gateway restarts meanwhile:
  LANEWAY_TOKEN=… python3 client.py 127.0.0.1:18790 "hello"
It needs nothing but Python. With the package websockets, frames and send are one line each."""
import base64, itertools, json, os, socket, struct, sys, time, uuid

address, text = sys.argv[1:]
key = str(uuid.uuid4())  # the same in every attempt, so the message runs once
shown = ""


def send(sock, data, kind=0x81):
    mask, size = os.urandom(4), len(data)
    head = bytes([kind, 0x80 | size]) if size < 126 else bytes([kind, 0xFE]) + struct.pack("!H", size)
    sock.sendall(head + mask + bytes(b ^ m for b, m in zip(data, itertools.cycle(mask))))


def frames(sock):
    nonce = base64.b64encode(os.urandom(16)).decode()
    sock.sendall(f"GET /ws HTTP/1.1\r\nHost: {address}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                 f"Sec-WebSocket-Key: {nonce}\r\nSec-WebSocket-Version: 13\r\n\r\n".encode())
    stream = sock.makefile("rb")
    while stream.readline().strip():
        pass
    while len(head := stream.read(2)) == 2:
        size = head[1] if head[1] < 126 else int.from_bytes(stream.read(2 if head[1] == 126 else 8), "big")
        data = stream.read(size)
        if head[0] == 0x89:
            send(sock, data, 0x8A)  # a ping, and its answer
        elif head[0] == 0x81:
            yield json.loads(data)
    raise ConnectionError("the connection was lost")


def show(state, whole):
    global shown
    print(whole[len(shown):] if whole.startswith(shown) else "\n" + whole, end="" if state == "delta" else "\n", flush=True)
    shown = whole
    if state != "delta":
        sys.exit(0 if state == "final" else 1)


def talk(sock):
    incoming = frames(sock)

    def call(method, params):
        send(sock, json.dumps({"type": "req", "id": method, "method": method, "params": params}).encode())
        answer = next(f for f in incoming if f.get("id") == method)
        if not answer["ok"] and answer["error"].get("retryable"):
            raise ConnectionError(answer["error"]["message"])  # such as: the gateway starts
        return answer["payload"] if answer["ok"] else sys.exit(answer["error"]["message"])

    next(incoming)  # the event connect.challenge
    call("connect", {"minProtocol": 4, "maxProtocol": 4, "auth": {"token": os.environ["LANEWAY_TOKEN"]}, "scopes": ["operator.read", "operator.write"],
                     "client": {"id": "example", "version": "1.0", "platform": "python", "mode": "cli"}})
    call("sessions.subscribe", {})  # events of a run that an earlier connection began
    status = call("chat.send", {"sessionKey": "example", "message": text, "idempotencyKey": key})["status"]
    if status not in ("started", "in_flight"):
        messages = call("chat.history", {"sessionKey": "example"})["messages"]  # it ended while we were away
        texts = [m["content"][0]["text"] for m in messages if m.get("runId") == key and m["role"] == "assistant"]
        show("final" if status == "ok" else status, texts[-1] if texts else "")
    for chat in (f["payload"] for f in incoming if f.get("event") == "chat" and f["payload"]["runId"] == key):
        show(chat["state"], chat["message"]["content"][0]["text"] if "message" in chat else chat.get("errorMessage", shown))


while True:
    try:
        host, port = address.rsplit(":", 1)
        talk(socket.create_connection((host, int(port))))
    except OSError:
        time.sleep(1)  # the gateway restarts, or the network is away
