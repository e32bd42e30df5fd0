#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Starts the commands of cluster/kubernetes as Kubernetes would, as processes of this machine: with
their arguments, variables, options files and probes, and the reference model.

    tests/kubernetes/run_manifests.py <wideep> <model directory> <work directory>

One node; a LeaderWorkerSet of four; and the nodes that come and go, with scale.py beside a made-up
Kubernetes, while a client asks without pause: no request may fail, and every answer must be the
same. At last process 1 of a namespace gets its SIGTERM before it serves.
"""
import http.server
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request

import yaml

from manifests import FOLDER, expand, options_of, serving_pods

WIDEEP, MODEL, WORK = (os.path.realpath(each) for each in sys.argv[1:4])
KEYS = {"api-key": "a key of clients", "admin-key": "a key of admins",
        "cluster-key": "a secret of the nodes"}
# In elastic.yaml, where the cluster would know it.
NODE_0 = "wideep-elastic-0.wideep-elastic-nodes"
running = []


def fail(what, *logs):
    print(f"failed: {what}")
    for each in logs:
        with open(each.log, encoding="utf-8", errors="replace") as file:
            print(f"-- {each.name}\n" + "".join(file.readlines()[-12:]), end="")
    sys.exit(1)


def free_port():
    with socket.socket() as it:
        it.bind(("127.0.0.1", 0))
        return it.getsockname()[1]


def wait_for(what, condition, *logs, seconds=40):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        result = condition()
        if result:
            return result
        time.sleep(0.05)
    return fail(f"{what}: not within {seconds} s", *logs)


class Pod:
    """A process with the arguments of a pod's container; its volumes are in a folder."""

    def __init__(self, file, pod, name, variables, more):
        self.name, self.log = name, os.path.join(WORK, name + ".log")
        folder = os.path.join(WORK, name)
        os.makedirs(os.path.join(folder, "options"), exist_ok=True)
        options = options_of(file, pod)
        options["model"] = options["model"].replace("/models/MODEL", MODEL)
        options["served-model-name"] = options["served-model-name"].replace("MODEL", "m")
        for option, value in list(options.items()):
            if option.endswith("-key-file"):
                options[option] = value.replace("/etc/wideep", WORK)
        with open(os.path.join(folder, "options", "options.yaml"), "w", encoding="utf-8") as out:
            yaml.safe_dump(options, out)
        container = pod["containers"][0]
        args = [expand(each, variables).replace("/etc/wideep", folder).replace(NODE_0, "127.0.0.1")
                for each in container["args"]]
        with open(self.log, "a", encoding="utf-8") as log:
            self.process = subprocess.Popen([WIDEEP, *args, *more], stderr=log, cwd=folder,
                                            env={"PATH": os.environ["PATH"]})
        running.append(self.process)

    def end(self, how=signal.SIGTERM):
        self.process.send_signal(how)
        began = time.monotonic()
        try:
            code = self.process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            fail(f"{self.name} does not end within 20 s of signal {how}", self)
        return code, time.monotonic() - began


def ask(port, path, body=None, key="api-key", method=None):
    """(status, JSON or text); status 0: no answer."""
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", method=method,
                                     data=None if body is None else json.dumps(body).encode())
    if key:
        request.add_header("Authorization", "Bearer " + KEYS[key])
    request.add_header("Content-Type", "application/json")
    try:
        with urllib.request.urlopen(request, timeout=30) as reply:
            status, text = reply.status, reply.read().decode()
    except urllib.error.HTTPError as error:
        status, text = error.code, error.read().decode()
    except OSError as error:
        return 0, str(error)
    try:
        return status, json.loads(text)
    except ValueError:
        return status, text


def completion(port, tokens=8, key="api-key"):
    return ask(port, "/v1/completions",
               {"model": "m", "prompt": "Once upon a time", "max_tokens": tokens}, key)


def probe(pod, name, port):
    """Whether the kubelet would find the probe good."""
    path = pod["containers"][0][name]["httpGet"]["path"]
    return 200 <= ask(port, path, key=None)[0] < 400


def check_service(pod, port, *logs):
    """As soon as it is ready: probes, keys and an answer."""
    wait_for("the startup probe", lambda: probe(pod, "startupProbe", port), *logs)
    if not probe(pod, "readinessProbe", port) or not probe(pod, "livenessProbe", port):
        fail("a probe of a server that serves", *logs)
    status, reply = completion(port)
    if status != 200 or not reply["choices"][0]["text"]:
        fail(f"no answer: {status} {reply}", *logs)
    if completion(port, key=None)[0] != 401:
        fail("it answers without a key", *logs)
    return reply["choices"][0]["text"]


def one_node():
    port = free_port()
    (file, _, _, pod), = serving_pods("one_node.yaml")
    server = Pod(file, pod, "one", {}, ["--host", "127.0.0.1", "--port", str(port)])
    if probe(pod, "startupProbe", port):
        fail("the startup probe is good before anything is loaded", server)
    text = check_service(pod, port, server)
    # Draining takes the pod out of its Service, and does not kill it.
    if ask(port, "/drain", method="POST", key="admin-key")[0] != 200:
        fail("POST /drain", server)
    if probe(pod, "readinessProbe", port) or not probe(pod, "livenessProbe", port):
        fail("the probes of a server that drains", server)
    ask(port, "/drain", method="DELETE", key="admin-key")
    code, seconds = server.end()
    if code != 0:
        fail(f"after SIGTERM: exit code {code}", server)
    print(f"one node: answers, drains, ends {seconds:.1f} s after SIGTERM")
    return text


def leader_worker_set(expected):
    port, master = free_port(), free_port()
    pods = {where: (file, pod, document)
            for file, document, where, pod in serving_pods("wide_ep.yaml")}
    size = pods["leaderTemplate"][2]["spec"]["leaderWorkerTemplate"]["size"]
    group = []

    def start(index):
        file, pod, _ = pods["leaderTemplate" if index == 0 else "workerTemplate"]
        variables = {"LWS_GROUP_SIZE": str(size), "LWS_WORKER_INDEX": str(index),
                     "LWS_LEADER_ADDRESS": "localhost", "POD_IP": "127.0.0.1"}
        more = ["--master-port", str(master)]
        if index == 0:
            more += ["--host", "127.0.0.1", "--port", str(port)]
        return Pod(file, pod, f"ep-{index}", variables, more)

    group = [start(index) for index in range(size)]
    pod = pods["leaderTemplate"][1]
    if check_service(pod, port, *group) != expected:
        fail("the group answers something else than one node", *group)
    ranks = ask(port, "/dashboard/data")[1]["ranks"]
    if ranks["states"] != ["active"] * 8:
        fail(f"ranks: {ranks}", *group)
    # A pod is lost, and comes back: restartPolicy None.
    group[2].end(signal.SIGKILL)
    wait_for("a degraded service", lambda: ask(port, "/health")[1].get("status") == "degraded", *group)
    if completion(port)[0] != 200:
        fail("no answer without a node", *group)
    group[2] = start(2)
    wait_for("the node's return", lambda: ask(port, "/health")[1].get("status") == "ok", *group)
    # Everything ends as when the set is deleted: nodes get their signal after node 0.
    codes = [each.end()[0] for each in group]
    if codes != [0] * size:
        fail(f"exit codes {codes}", *group)
    print(f"a group of {size}: 8 ranks, a node lost and back, ends with 0")


class Kubernetes(http.server.BaseHTTPRequestHandler):
    """What scale.py asks for: one StatefulSet."""
    replicas = ready = 0
    asked = []

    def do_GET(self):
        self.asked.append(self.path)
        text = json.dumps({"kind": "StatefulSet", "spec": {"replicas": self.replicas},
                           "status": {"readyReplicas": self.ready} if self.ready else {}}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_):
        pass


class Client(threading.Thread):
    """Asks without pause, and counts what is not the expected answer."""

    def __init__(self, port):
        super().__init__(daemon=True)
        self.port, self.wrong, self.answers, self.ends = port, [], 0, threading.Event()
        self.expected = None

    def run(self):
        while not self.ends.is_set():
            status, reply = completion(self.port, tokens=24)
            text = reply["choices"][0]["text"] if status == 200 else f"{status} {reply}"
            self.expected = self.expected or text
            self.answers += 1
            if text != self.expected:
                self.wrong.append(text)


def elastic():
    port, master = free_port(), free_port()
    pods = {document["metadata"]["name"]: (file, pod, document)
            for file, document, _, pod in serving_pods("elastic.yaml")}
    set_name = "wideep-elastic-node"
    first = pods[set_name][2]["spec"]["ordinals"]["start"]

    def start_zero():
        file, pod, _ = pods["wideep-elastic"]
        return Pod(file, pod, "elastic-0", {"POD_IP": "127.0.0.1"},
                   ["--master-port", str(master), "--host", "127.0.0.1", "--port", str(port)])

    def start(ordinal):
        file, pod, _ = pods[set_name]
        return Pod(file, pod, f"elastic-{ordinal}", {"POD_INDEX": str(ordinal)},
                   ["--master-port", str(master)])

    def wanted():
        return ask(port, "/dashboard/data")[1]["ranks"]["wanted"]

    def computes(count):
        states = ask(port, "/dashboard/data")[1]["ranks"]["states"]
        return states.count("active") == count and states[:count] == ["active"] * count

    Kubernetes.asked.clear()  # of what other checks asked
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Kubernetes)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    zero = start_zero()
    check_service(pods["wideep-elastic"][1], port, zero)  # without any other node
    # The Deployment's own arguments, but for where everything is.
    with open(os.path.join(FOLDER, "elastic.yaml"), encoding="utf-8") as file:
        deployment = next(each for each in yaml.safe_load_all(file) if each["kind"] == "Deployment")
    command = deployment["spec"]["template"]["spec"]["containers"][0]["command"]
    command = [each.replace("/scale/", FOLDER + "/").replace("/etc/wideep", WORK) for each in command]
    log = os.path.join(WORK, "scale.log")
    with open(log, "w", encoding="utf-8") as out:
        scaler = subprocess.Popen(
            [*command, "--url", f"http://127.0.0.1:{port}", "--interval", "0.2", "--kubernetes",
             f"http://127.0.0.1:{server.server_address[1]}"], stderr=out)
    running.append(scaler)
    client = Client(port)
    client.start()
    nodes = {}

    # kubectl scale: one after the other becomes ready.
    Kubernetes.replicas = 3
    for ordinal in range(first, first + 3):
        nodes[ordinal] = start(ordinal)
        Kubernetes.ready = ordinal - first + 1
        wait_for(f"the ranks of node {ordinal}", lambda n=ordinal: computes(2 * (n + 1)), zero,
                 nodes[ordinal])
    # A node is lost: nobody asks for fewer ranks.
    nodes.pop(2).end(signal.SIGKILL)
    Kubernetes.ready = 2
    wait_for("a degraded service", lambda: ask(port, "/health")[1].get("status") == "degraded", zero)
    time.sleep(0.6)
    if wanted() != 8:
        fail(f"the loss of a node has changed the number of ranks: {wanted()}", zero)
    nodes[2] = start(2)
    Kubernetes.ready = 3
    wait_for("the node's return", lambda: computes(8), zero, nodes[2])
    # Fewer: ranks leave first, pods end after their preStop; the last one is lost before that.
    Kubernetes.replicas = 1
    wait_for("4 ranks", lambda: computes(4) and wanted() == 4, zero)
    for ordinal in (3, 2):
        code, _ = nodes.pop(ordinal).end()
        if code != 0:
            fail(f"node {ordinal} ends with {code}", zero)
    if ask(port, "/health")[1] != {"status": "ok"}:
        fail(f"after scaling down: {ask(port, '/health')}", zero)
    nodes.pop(1).end(signal.SIGKILL)
    wait_for("a degraded service", lambda: ask(port, "/health")[1].get("status") == "degraded", zero)
    Kubernetes.replicas = Kubernetes.ready = 0
    wait_for("the ranks that are left", lambda: wanted() == 2, zero)
    if ask(port, "/health")[1] != {"status": "ok"}:
        fail("ranks that are not wanted any more make it degraded", zero)
    client.ends.set()
    client.join()
    if client.wrong or client.answers < 3:
        fail(f"{len(client.wrong)} of {client.answers} answers differ: {client.wrong[:1]}", zero)

    # Node 0 begins again, as small as at first, and is asked for its nodes again.
    Kubernetes.replicas = Kubernetes.ready = 1
    nodes[1] = start(1)
    wait_for("4 ranks", lambda: computes(4), zero, nodes[1])
    zero.end(signal.SIGKILL)
    zero = start_zero()
    check_service(pods["wideep-elastic"][1], port, zero)
    wait_for("4 ranks after node 0 began again", lambda: computes(4), zero, nodes[1])
    scaler.terminate()
    scaler.wait()
    if not Kubernetes.asked[0].endswith(f"/namespaces/default/statefulsets/{set_name}"):
        fail(f"Kubernetes was asked for {Kubernetes.asked[0]}")
    if zero.end()[0] != 0 or nodes[1].process.wait(timeout=20) != 0:
        fail("exit codes at the end", zero, nodes[1])
    with open(log, encoding="utf-8") as file:
        lines = file.read().splitlines()
    print(f"1 to 4 nodes and back: {client.answers} answers, 0 differ; {len(lines)} lines of scale.py")


class Wrong(http.server.BaseHTTPRequestHandler):
    """Answers scale.py as `reply` says: (status, headers, body)."""
    reply = None
    keys = []

    def do_GET(self):
        self.keys.append(self.headers["Authorization"])
        status, headers, body = self.reply
        self.send_response(status)
        for each in headers.items():
            self.send_header(*each)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class Elsewhere(Wrong):
    reply = (200, {}, b"{}")
    keys = []


def wrong_sides():
    """What scale.py does of sides that answer wrongly: one line, and its key goes nowhere else."""
    urls = []
    for handler in (Wrong, Elsewhere, Kubernetes):
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        urls.append(f"http://127.0.0.1:{server.server_address[1]}")
    Kubernetes.replicas = Kubernetes.ready = 1
    right = b'{"ranks": {"wanted": 4, "states": ["active", "active", "active", "active"]}}'

    def scale(*more):
        # A proxy that is not there would be asked, and would see the key.
        done = subprocess.run(
            [sys.executable, os.path.join(FOLDER, "scale.py"), "--once", "--statefulset", "s", "--url",
             urls[0], "--kubernetes", urls[2], "--ranks-per-node", "2", "--key-file",
             os.path.join(WORK, "keys", "admin-key"), *more],
            capture_output=True, text=True, check=False, timeout=60,
            env={**os.environ, "http_proxy": "http://127.0.0.1:9", "no_proxy": ""})
        return done.returncode, done.stderr

    Wrong.reply = (200, {}, right)
    if scale() != (0, "") or Wrong.keys != ["Bearer " + KEYS["admin-key"]]:
        fail(f"scale.py beside what is right: {scale()}, keys {Wrong.keys}")
    cases = {
        "302": (302, {"Location": urls[1] + "/dashboard/data"}, b""),
        "IncompleteRead": (200, {"Transfer-Encoding": "chunked"}, b"no length\r\n"),
        "expected at most 8 MiB": (200, {}, b" " * ((8 << 20) + 1)),
        "expected a JSON object": (200, {}, b"[]"),
        "expected JSON:": (200, {"Content-Length": "100"}, right[:20]),
        "503: no [2J": (503, {}, b'{"message": "no\\u001b[2J"}'),
    }
    for expected, Wrong.reply in cases.items():
        code, said = scale()
        if code != 1 or expected not in said or said.count("\n") != 1 or "\x1b" in said:
            fail(f"scale.py, expected '{expected}': {code}: {said}")
    if Elsewhere.keys:
        fail("scale.py follows a redirection, with its key")
    Wrong.reply = (200, {}, right)
    code, said = scale("--kubernetes", urls[1])
    if code != 1 or "expected a StatefulSet" not in said:
        fail(f"scale.py beside no Kubernetes: {code}: {said}")
    bad = os.path.join(WORK, "bad-key")
    with open(bad, "w", encoding="utf-8") as file:
        file.write("secret\x01key\n")
    code, said = scale("--key-file", bad)
    if code != 1 or "expected printable ASCII" not in said or "secret" in said:
        fail(f"scale.py with a bad key: {code}: {said}")
    print(f"scale.py: {len(cases) + 2} wrong sides, a line for each")


def process_one():
    """What a container's engine does while a server waits for nodes."""
    base = ["unshare", "--pid", "--fork", "--kill-child"]
    if os.geteuid() != 0:
        base[1:1] = ["--user", "--map-root-user"]
    if subprocess.run([*base, "true"], check=False, capture_output=True).returncode != 0:
        print("process 1: this machine permits no namespaces")
        return
    for number in (signal.SIGTERM, signal.SIGINT):
        outer = subprocess.Popen(
            [*base, WIDEEP, "serve", "--model", MODEL, "--ranks", "2", "--nnodes", "2", "--node-rank",
             "0", "--master-addr", "127.0.0.1", "--master-port", str(free_port()), "--port", "0"],
            stderr=subprocess.PIPE, text=True)
        running.append(outer)
        line = outer.stderr.readline()
        if "waiting" not in line:
            fail(f"process 1: {line}")
        children = f"/proc/{outer.pid}/task/{outer.pid}/children"
        with open(children, encoding="utf-8") as file:
            os.kill(int(file.read().split()[0]), number)
        try:
            code = outer.wait(timeout=5)
        except subprocess.TimeoutExpired:
            fail(f"process 1 does not end by signal {number} while it waits for nodes")
        if code != 128 + number:
            fail(f"process 1 ends by signal {number} with {code}")
    print("process 1: SIGTERM and SIGINT end it before it serves")


def main():
    os.makedirs(os.path.join(WORK, "keys"), exist_ok=True)
    for name, key in KEYS.items():
        path = os.path.join(WORK, "keys", name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(key + "\n")
        os.chmod(path, 0o600)
    try:
        wrong_sides()
        leader_worker_set(one_node())
        elastic()
        process_one()
    finally:
        for each in running:
            if each.poll() is None:
                each.kill()


if __name__ == "__main__":
    main()
