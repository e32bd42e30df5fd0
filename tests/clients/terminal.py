# SPDX-License-Identifier: Apache-2.0
"""A program on a pseudo terminal, as a person uses it: types keys, waits for what is shown."""

import os
import pty
import re
import select
import signal
import time

PATIENCE = 60  # seconds, for anything
SEQUENCE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[=>]")


def descendants(pid):
    """Ids of all processes below this one."""
    found = []
    try:
        tasks = os.listdir(f"/proc/{pid}/task")
        for task in tasks:
            with open(f"/proc/{pid}/task/{task}/children") as file:
                for child in file.read().split():
                    found += [int(child), *descendants(int(child))]
    except OSError:
        pass  # it has ended
    return found


def wait_until(condition, what):
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, f"after {PATIENCE} s: {what}"
        time.sleep(0.05)


def is_alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


class Terminal:
    def __init__(self, arguments, environment):
        self.raw = ""
        self.at = 0  # in the shown text: what expect() has passed
        self.status = None
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.execvpe(arguments[0], arguments, {**os.environ, "TERM": "xterm", **environment})

    @property
    def shown(self):
        """What has been written, without what moves the cursor or sets colours."""
        return SEQUENCE.sub("", self.raw)

    def read(self, seconds):
        if not select.select([self.fd], [], [], seconds)[0]:
            return True
        try:
            more = os.read(self.fd, 65536)
        except OSError:  # the program has ended
            return False
        self.raw += more.decode(errors="replace")
        return bool(more)

    def expect(self, text):
        """Waits until this is shown after what was expected before; returns what lies between."""
        end = time.monotonic() + PATIENCE
        while self.shown.find(text, self.at) < 0:
            goes_on = self.read(0.1)
            assert goes_on or text in self.shown[self.at :], f"ended before {text!r}: {self.tail()}"
            assert time.monotonic() < end, f"not shown: {text!r}: {self.tail()}"
        begin, self.at = self.at, self.shown.index(text, self.at) + len(text)
        return self.shown[begin : self.at - len(text)]

    def tail(self):
        return repr(self.shown[self.at :][-2000:])

    def type(self, keys):
        os.write(self.fd, keys.encode())

    def say(self, line, answer=None):
        """Types a line; waits for `answer` and the next prompt, and returns what was shown."""
        self.type(line + "\r")
        before = self.expect(answer) + answer if answer else ""
        return before + self.expect(">>> ")

    def wait(self):
        """Waits for the end, and returns the exit code; of a signal: minus its number."""
        end = time.monotonic() + PATIENCE
        while self.status is None:
            self.read(0.05)
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.status = os.waitstatus_to_exitcode(status)
            assert time.monotonic() < end, f"does not end: {self.tail()}"
        while self.read(0.05) and select.select([self.fd], [], [], 0)[0]:
            pass
        os.close(self.fd)
        return self.status

    def kill(self, number=signal.SIGKILL):
        os.kill(self.pid, number)
