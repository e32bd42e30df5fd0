# SPDX-License-Identifier: Apache-2.0
"""A server of OpenAI's chats that does one thing wrong, which the path names: http://host:port/WRONG.

Prints its port, and serves until its standard input ends. Every connection is answered and closed.
"""

import json
import socket
import sys
import threading
import time

STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
CHUNKED = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
)


def event(**delta):
    return b"data: " + json.dumps({"choices": [{"delta": delta}]}).encode() + b"\n\n"


def chunk(data):
    return b"%x\r\n%s\r\n" % (len(data), data)


def refusal(status, body, header=""):
    body = json.dumps(body).encode()
    head = f"HTTP/1.1 {status} No\r\n{header}Content-Length: {len(body)}\r\n\r\n"
    return [head.encode() + body]


END = b'data: {"choices": [{"delta": {}, "finish_reason": "stop"}]}\n\ndata: [DONE]\n\n'
USAGE = (
    b'data: {"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 4, '
    b'"prompt_tokens_details": {"cached_tokens": 8}}}\n\n'
)
EVIL = "\x1b[2J\x1b]0;owned\x07\x9b31m\r\x08text\u202e"


def endless(data):
    while True:
        yield data


# By name: the parts of the reply.
WRONG = {
    "dies": lambda: [CHUNKED, chunk(event(content="half an ans"))],
    "ends-early": lambda: [STREAM, event(content="half an ans")],
    "no-key": lambda: refusal(401, {"error": {"message": "wrong key"}}),
    "busy": lambda: refusal(429, {"error": {"message": "too many"}}, "Retry-After: 7\r\n"),
    "evil-refusal": lambda: refusal(400, {"error": {"message": EVIL}}),
    "endless-line": lambda: (yield_from(STREAM + b"data: ", b"x" * (1 << 20))),
    "endless-chunk": lambda: (yield_from(CHUNKED + b"7fffffff\r\n", b"x" * (1 << 20))),
    "endless-header": lambda: (yield_from(b"HTTP/1.1 200 OK\r\nX: ", b"x" * (1 << 20))),
    "no-json": lambda: [STREAM, b"data: {\x1b[2J\n\n"],
    "error-event": lambda: [
        STREAM,
        event(content="half"),
        b'data: {"error": {"message": "out of memory"}}\n\n',
    ],
    "stays-open": lambda: stay_open(STREAM + event(content="whole") + END),
    "no-http": lambda: [b"SSH-2.0-x\r\n"],
    "evil": lambda: [STREAM, event(content=EVIL), END],
    "thinks": lambda: [
        STREAM,
        event(reasoning_content="let me see"),
        event(reasoning_content=EVIL),
        event(content="\n\nForty-two"),
        event(content="."),
        END[: END.index(b"data: [DONE]")] + USAGE + b"data: [DONE]\n\n",
    ],
}


def yield_from(head, rest):
    yield head
    yield from endless(rest)


def stay_open(reply):
    yield reply
    time.sleep(3600)


def answer(client):
    with client:
        request = b""
        while b"\r\n\r\n" not in request:
            part = client.recv(65536)
            if not part:
                return
            request += part
        wrong, _, what = request.split()[1].decode().lstrip("/").partition("/")
        try:
            if what == "models":
                body = json.dumps({"data": [{"id": wrong + EVIL}]}).encode()
                head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n\r\n"
                client.sendall(head.encode() + body)
                return
            for part in WRONG[wrong]():
                client.sendall(part)
            client.shutdown(socket.SHUT_WR)
            while client.recv(65536):  # else the close would reset what was sent
                pass
        except OSError:
            pass  # it has gone, as it should


def main():
    listener = socket.create_server(("127.0.0.1", 0))
    print(listener.getsockname()[1], flush=True)

    def serve():
        while True:
            client, _ = listener.accept()
            threading.Thread(target=answer, args=(client,), daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    sys.stdin.read()


if __name__ == "__main__":
    main()
