#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Keeps the number of ranks of a service over several machines at that of its machines.

    cluster/kubernetes/scale.py --statefulset wideep-elastic-node --url http://wideep-elastic:8000 \\
        --ranks-per-node 2 --key-file admin-key

The StatefulSet has the nodes from 1 on; node 0 serves. Every --interval seconds its spec.replicas,
which `kubectl scale` or an autoscaler sets, is compared with the ranks that the service wants:

- more machines: as soon as their pods run, POST /scale_elastic_ep asks for their ranks, too. The
  service loads them beside what it does.
- fewer: it asks for the fewer ranks at once. Pods that are being ended wait in their preStop for
  longer than --interval, so ranks leave between two iterations before their machine goes.
- a machine that is lost, or starts again, changes nothing here: the service goes on without it and
  takes it back by itself. A service that has begun again, with --start-ranks, is asked again.

In a pod it asks Kubernetes with the pod's service account, which has to `get` the StatefulSet;
elsewhere --kubernetes is the address of `kubectl proxy`. A line on stderr says what was done; what
fails is said once, and tried again. Only Python's standard library is used. With --once it looks
and acts once, and its exit code is 1 if the service does not have the number that it should have.
"""
import argparse
import http.client
import json
import os
import ssl
import sys
import time
import urllib.error
import urllib.request

ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
MAX_ANSWER_BYTES = 8 << 20  # the dashboard's data of a thousand ranks has less than one


class Failed(Exception):
    """One line: what, and what the other side has said."""

    def __init__(self, text):
        super().__init__("".join(each if each.isprintable() else " " for each in text)[:1000])


class NoRedirection(urllib.request.HTTPRedirectHandler):
    """A redirection would take the key to whatever it names."""

    def redirect_request(self, req, fp, code, msg, headers, newurl):
        return None


def ask(url, key="", body=None, timeout=10.0, context=None):
    """The JSON object of a GET, or of a POST if there is a body. Directly: no proxy sees the key."""
    opener = urllib.request.build_opener(NoRedirection, urllib.request.ProxyHandler({}),
                                         urllib.request.HTTPSHandler(context=context))
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data=data)
    if key:
        request.add_header("Authorization", "Bearer " + key)
    if data is not None:
        request.add_header("Content-Type", "application/json")
    try:
        with opener.open(request, timeout=timeout) as reply:
            text = reply.read(MAX_ANSWER_BYTES + 1)
        if len(text) > MAX_ANSWER_BYTES:
            raise Failed(f"{url}: expected at most {MAX_ANSWER_BYTES >> 20} MiB, found more")
        answer = json.loads(text)
    except urllib.error.HTTPError as error:
        raise Failed(f"{url}: {error.code}: {words_of(error)}") from error
    except (OSError, http.client.HTTPException, RecursionError) as error:
        raise Failed(f"{url}: {error or type(error).__name__}") from error
    except ValueError as error:
        raise Failed(f"{url}: expected JSON: {error}") from error
    if not isinstance(answer, dict):
        raise Failed(f"{url}: expected a JSON object, found another value")
    return answer


def words_of(error):
    """What the other side says of a refusal."""
    try:
        text = error.read(4096).decode(errors="replace").strip()
    except (OSError, http.client.HTTPException):
        return error.reason
    try:
        said = json.loads(text)
        text = str(said["error"]["message"] if "error" in said else said["message"])
    except (ValueError, KeyError, TypeError, RecursionError):
        pass
    return text or error.reason


def first_line(path):
    """A key, or a name: what a header may have. Messages do not repeat it."""
    try:
        with open(path, encoding="utf-8") as file:
            line = file.readline(1 << 16).strip()
    except OSError as error:
        raise Failed(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise Failed(f"{path}: expected text, found other bytes") from error
    if not line or not line.isascii() or not line.isprintable():
        raise Failed(f"{path}: the first line: expected printable ASCII, found " +
                     ("another character" if line else "nothing"))
    return line


class Machines:
    """The StatefulSet of the nodes from 1 on."""

    def __init__(self, options):
        self.context = None
        base = options.kubernetes
        self.in_pod = not base
        if self.in_pod:
            host, port = (os.environ.get(f"KUBERNETES_SERVICE_{each}") for each in ("HOST", "PORT"))
            if not host or not port:
                raise Failed("expected to run in a pod, or --kubernetes with the address of "
                             "'kubectl proxy'")
            base = f"https://{'[' + host + ']' if ':' in host else host}:{port}"
            try:
                self.context = ssl.create_default_context(cafile=ACCOUNT + "/ca.crt")
            except OSError as error:  # SSLError is one
                raise Failed(f"{ACCOUNT}/ca.crt: {error.strerror or error}") from error
        namespace = options.namespace or (first_line(ACCOUNT + "/namespace") if self.in_pod
                                          else "default")
        self.url = (f"{base.rstrip('/')}/apis/apps/v1/namespaces/{namespace}/statefulsets/"
                    f"{options.statefulset}")

    def count(self):
        """(wanted, there), of all, with node 0. Pods come in order, so those there are the first."""
        # The token of a pod is replaced now and then.
        key = first_line(ACCOUNT + "/token") if self.in_pod else ""
        it = ask(self.url, key, context=self.context)
        try:
            wanted = int(it["spec"].get("replicas", 1))
            there = int(it.get("status", {}).get("readyReplicas", 0))
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise Failed(f"{self.url}: expected a StatefulSet, found something else") from error
        return 1 + wanted, 1 + min(there, wanted)


def number_to_ask_for(machines_wanted, machines_there, ranks_per_node, ranks_wanted, max_ranks):
    """None: the service wants the right number already, or machines have not come yet."""
    wanted = min(machines_wanted * ranks_per_node, max_ranks)
    if wanted < ranks_wanted:
        return wanted
    there = min(machines_there * ranks_per_node, max_ranks)
    return there if there > ranks_wanted else None


class Scaler:
    def __init__(self, options):
        self.options = options
        self.machines = Machines(options)
        self.said = None

    def say(self, line, once=False):
        if once and line == self.said:
            return
        self.said = line
        print(line, file=sys.stderr, flush=True)

    def step(self):
        """Whether the service has the number of ranks that it should have."""
        key = first_line(self.options.key_file) if self.options.key_file else ""
        ranks = ask(self.options.url + "/dashboard/data", key)["ranks"]
        machines_wanted, machines_there = self.machines.count()
        max_ranks = len(ranks["states"])
        number = number_to_ask_for(machines_wanted, machines_there, self.options.ranks_per_node,
                                   ranks["wanted"], max_ranks)
        if machines_wanted * self.options.ranks_per_node > max_ranks:
            self.say(f"{machines_wanted} machines have room for more than the {max_ranks} ranks of "
                     "the service; raise its ranks and nnodes, and start it again", once=True)
        if number is None:
            return machines_there == machines_wanted
        began = time.monotonic()
        ask(self.options.url + "/scale_elastic_ep", key,
            {"new_data_parallel_size": number, "drain_timeout": self.options.timeout},
            timeout=self.options.timeout + 10)
        self.say(f"{ranks['wanted']} ranks have become {number} in "
                 f"{time.monotonic() - began:.1f} s ({machines_there} of {machines_wanted} machines)")
        return number == min(machines_wanted * self.options.ranks_per_node, max_ranks)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--statefulset", required=True, help="of the nodes from 1 on")
    parser.add_argument("--url", required=True, help="of the service, as http://wideep-elastic:8000")
    parser.add_argument("--ranks-per-node", type=int, required=True)
    parser.add_argument("--key-file", default="", help="its first line is the service's admin key")
    parser.add_argument("--interval", type=float, default=5.0, help="seconds between two looks")
    parser.add_argument("--timeout", type=int, default=600,
                        help="seconds that ranks may load before the number goes back to what it was")
    parser.add_argument("--kubernetes", default="", help="address of kubectl proxy; in a pod none")
    parser.add_argument("--namespace", default="", help="default: the pod's")
    parser.add_argument("--once", action="store_true", help="look and act once")
    options = parser.parse_args()
    options.url = options.url.rstrip("/")
    if options.ranks_per_node < 1:
        parser.error(f"--ranks-per-node: expected at least 1, found {options.ranks_per_node}")
    if not 0 < options.interval <= 3600:
        parser.error(f"--interval: expected more than 0 and at most 3600, found {options.interval}")
    try:
        scaler = Scaler(options)
    except Failed as error:
        print(error, file=sys.stderr)
        return 2
    while True:
        try:
            is_right = scaler.step()
        except Failed as error:
            is_right = False
            scaler.say(str(error), once=True)
        except (KeyError, TypeError) as error:
            is_right = False
            scaler.say(f"{options.url}: expected a wideep that this was written for: {error!r} is "
                       "missing", once=True)
        if options.once:
            return 0 if is_right else 1
        time.sleep(options.interval)


if __name__ == "__main__":
    sys.exit(main())
