# SPDX-License-Identifier: Apache-2.0
"""An OpenAI server whose answers are written beforehand, for tests of the chat page: it gives the
page as the real server does (text and headers), and streams what the last message asks for.

    ScriptedServer(page, headers): .url, .bodies (of the requests for answers), .answers: message → what is streamed
"""

import http.server
import json
import threading
import time


class ScriptedServer:
    def __init__(self, page, headers):
        self.page, self.headers = page, headers
        self.bodies = []
        self.answers = {}  # the last message → list of deltas, seconds to wait, or whole chunks
        self.refused = []  # fields that it does not know
        scripted = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def reply(self, status, body, kind="application/json", headers=()):
                data = body if isinstance(body, bytes) else json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(data)))
                for name, value in headers:
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(data)

            def do_GET(self):
                if self.path == "/":
                    self.reply(200, scripted.page, "text/html; charset=utf-8", scripted.headers)
                elif self.path == "/v1/models":
                    self.reply(200, {"data": [{"id": "scripted", "max_model_len": 4096}]})
                elif self.path.startswith("/dashboard/data"):
                    self.reply(200, {"has_experts": True, "returns_experts": False})
                else:
                    self.reply(404, {"error": {"message": f"no endpoint {self.path}"}})

            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                for field in scripted.refused:
                    if field in body:
                        return self.reply(400, {"error": {"message": f"unknown field {field}", "param": field}})
                scripted.bodies.append(body)
                script = scripted.answers.get(body["messages"][-1]["content"])
                if script is None:
                    return self.reply(503, {"error": {"message": "the queue is full"}})
                self.send_response(200)
                self.send_header("Content-Type", "text/event-stream")
                self.send_header("Connection", "close")
                self.end_headers()
                try:
                    self.stream(script)
                except (BrokenPipeError, ConnectionResetError):
                    scripted.answers["stopped by the page"] = []
                self.close_connection = True

            def stream(self, script):
                count = 0
                for each in script:
                    if isinstance(each, (int, float)):
                        time.sleep(each)
                    elif "raw" in each:
                        self.send(each["raw"])
                    else:
                        count += 1
                        self.send({"choices": [{"index": 0, "delta": each, "finish_reason": None}]})
                if not script or script[-1] == {"raw": "cut"}:
                    return
                usage = {"prompt_tokens": 240, "completion_tokens": count,
                         "prompt_tokens_details": {"cached_tokens": 180}}
                self.send({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
                self.send({"choices": [], "usage": usage})
                self.wfile.write(b"data: [DONE]\n\n")

            def send(self, chunk):
                self.wfile.write(f"data: {json.dumps(chunk)}\n\n".encode())
                self.wfile.flush()

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def say(self, message, text, size=7):
        """Answers the message with the text, in pieces of so many characters."""
        self.answers[message] = [{"content": text[i:i + size]} for i in range(0, len(text), size)]
