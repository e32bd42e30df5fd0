# SPDX-License-Identifier: Apache-2.0
"""Drives Chromium through its pipe of commands (the DevTools protocol), without other packages.

    with Browser("/tmp/profile") as browser:
        browser.open("http://127.0.0.1:8000/dashboard")
        browser.wait_for("document.title !== ''")
        browser.picture("page.png")
"""

import base64
import json
import os
import subprocess
import time


class Browser:
    def __init__(self, profile, width=1280, height=800):
        to_read, self.to_chromium = os.pipe()
        self.from_chromium, to_write = os.pipe()

        def give_pipes():  # Chromium expects them as 3 and 4
            # First out of the way, as either may be the other's place.
            read, write = os.dup(to_read), os.dup(to_write)
            os.dup2(read, 3)
            os.dup2(write, 4)

        self.process = subprocess.Popen(
            ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
             "--hide-scrollbars", f"--window-size={width},{height}", f"--user-data-dir={profile}",
             "--remote-debugging-pipe"],
            preexec_fn=give_pipes, close_fds=False, stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(to_read)
        os.close(to_write)
        self.size = (width, height)
        self.buffer = b""
        self.number = 0
        self.events = []  # what has come between replies: {"method", "params"}
        self.session = None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target,
                                 flatten=True)["sessionId"]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        os.close(self.to_chromium)
        os.close(self.from_chromium)

    def call(self, method, **parameters):
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.to_chromium, json.dumps(message).encode() + b"\0")
        while True:
            reply = self.next_message()
            if reply.get("id") != self.number:
                self.events.append(reply)
                continue
            if "error" in reply:
                raise RuntimeError(f"{method}: {reply['error']['message']}")
            return reply["result"]

    def next_message(self):
        while b"\0" not in self.buffer:
            read = os.read(self.from_chromium, 1 << 16)
            if not read:
                raise RuntimeError("chromium has ended")
            self.buffer += read
        message, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(message)

    def open(self, url):
        self.call("Page.navigate", url=url)

    def run(self, script):
        """The value of the script's last expression."""
        result = self.call("Runtime.evaluate", expression=script, returnByValue=True,
                           awaitPromise=True)
        if "exceptionDetails" in result:
            raise RuntimeError(f"{script}: {result['exceptionDetails']}")
        return result["result"].get("value")

    def press(self, key, code=None, modifiers=0, text=None):
        """As a person does. modifiers: 2 is Ctrl, 8 is Shift."""
        code = code or ord(key[0].upper())
        keys = {"key": key, "windowsVirtualKeyCode": code, "modifiers": modifiers}
        self.call("Input.dispatchKeyEvent", type="keyDown", **keys, **({"text": text} if text else {}))
        self.call("Input.dispatchKeyEvent", type="keyUp", **keys)

    def wait_for(self, condition, seconds=30):
        """Whether the condition has come true in that time."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if self.run(f"Boolean({condition})"):
                return True
            time.sleep(0.1)
        return False

    def page(self):
        return self.run("document.documentElement.outerHTML")

    def picture(self, path, selector=None):
        """Of the window, or of an element, however far down it is."""
        options = {}
        if selector:
            box = self.run(f"(() => {{ const b = document.querySelector({json.dumps(selector)})"
                           ".getBoundingClientRect(); return [b.x + scrollX, b.y + scrollY, "
                           "b.width, b.height]; })()")
            options = {"captureBeyondViewport": True,
                       "clip": dict(zip(("x", "y", "width", "height"), box), scale=1)}
        data = self.call("Page.captureScreenshot", format="png", **options)["data"]
        with open(path, "wb") as file:
            file.write(base64.b64decode(data))
