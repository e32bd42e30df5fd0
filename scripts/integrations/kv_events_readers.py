# SPDX-License-Identifier: Apache-2.0
"""Reads a server's KV events with the published structures of vLLM and SGLang, and checks them.

    python kv_events_readers.py --url http://127.0.0.1:8000 --events ipc://events \
        --replay ipc://replay --topic kv@pod@model --server PID PEER=FILE...

PEER is vllm or sglang with a version, FILE its kv_events.py. Their publishers run, too, so that
messages and replays can be compared part by part; none of their engines does.
"""

import argparse
import atexit
import concurrent.futures
import contextlib
import importlib.util
import io
import json
import os
import pathlib
import signal
import sys
import time
import types
import typing
import urllib.request

import msgspec
import zmq

import published

END = (-1).to_bytes(8, "big", signed=True)
PAGE = 64
WAIT_MS = 20_000


def silence(*_):
    pass


def load(peer, path):
    """The peer's module. Of what it imports, only the type of a hash is used here."""
    if peer.startswith("vllm"):
        for name in ("vllm", "vllm.config", "vllm.utils", "vllm.v1", "vllm.v1.core"):
            published.module(name)
        published.module("vllm.config.kv_events", KVEventsConfig=types.SimpleNamespace)
        published.module("vllm.v1.core.kv_cache_utils", ExternalBlockHash=typing.Union[bytes, int])
        log = types.SimpleNamespace(**dict.fromkeys(("info", "warning", "exception"), silence))
        published.module("vllm.logger", init_logger=lambda name: log)
        names = ("get_ip", "get_tcp_uri", "is_valid_ipv6_address", "split_zmq_path")
        published.module("vllm.utils.network_utils", **dict.fromkeys(names))
    else:
        for name in ("sglang", "sglang.srt", "sglang.srt.utils"):
            published.module(name)
        published.module("sglang.srt.runtime_context", get_parallel=None)
        published.module("sglang.srt.utils.network", NetworkAddress=None)
    spec = importlib.util.spec_from_file_location(f"kv_events_{peer}", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


class Peer:
    def __init__(self, name, path):
        self.name = name
        self.module = load(name, path)
        self.decoder = msgspec.msgpack.Decoder(self.module.KVEventBatch, strict=True)

    def read(self, payload):
        """The batch as plain values, after a check that the peer writes the same ones: a field that
        it leaves out is nil, and it knows every field that is there."""
        batch = self.decoder.decode(payload)
        ours = msgspec.msgpack.decode(payload)
        theirs = msgspec.msgpack.decode(msgspec.msgpack.encode(batch))
        assert ours[0] == theirs[0] and ours[2] == theirs[2] and len(ours) == 3, (self.name, ours)
        events = []
        for event, our, their in zip(batch.events, ours[1], theirs[1], strict=True):
            fields = ("type",) + type(event).__struct_fields__
            if isinstance(our, list):
                assert all(each is None for each in our[len(fields) :]), (self.name, our)
                our, their = (dict(zip(fields, each)) for each in (our, their))
            assert set(our) <= set(fields), (self.name, our)
            for key in set(our) | set(their):
                assert our.get(key) == their.get(key), (self.name, key, our, their)
            values = msgspec.structs.asdict(event)
            keys = ("block_hashes", "parent_block_hash", "token_ids", "block_size")
            kept = {key: values[key] for key in keys if key in values}
            assert all(value is None for key, value in values.items() if key not in kept), values
            events.append({"type": type(event).__name__, **kept})
        return {"rank": ours[2], "events": events}

    def messages(self, topic):
        """What the peer's publisher sends of two batches: live, and replayed from the second on."""
        events, replay = (f"inproc://{self.name}/{each}" for each in ("events", "replay"))
        publisher = self.module.ZmqEventPublisher(
            0, endpoint=events, replay_endpoint=replay, topic=topic
        )
        reader = Reader(events, replay, topic)
        time.sleep(0.2)
        for _ in range(2):
            publisher.publish(
                self.module.KVEventBatch(ts=1.5, events=[self.module.AllBlocksCleared()])
            )
        live = [reader.receive(), reader.receive()]
        replayed = reader.replayed(1)
        with contextlib.redirect_stdout(io.StringIO()):
            publisher.shutdown()
        atexit.unregister(publisher.shutdown)  # SGLang's would end once more
        return live, replayed


class Reader:
    """Subscribes, and asks for replays as Dynamo's indexer and llm-d's router do: [b"", first]."""

    def __init__(self, events, replay, topic):
        context = zmq.Context.instance()
        self.events = context.socket(zmq.SUB)
        self.events.setsockopt(zmq.RCVHWM, 0)
        self.events.subscribe(topic)
        self.events.connect(events)
        self.replay = context.socket(zmq.DEALER)
        self.replay.setsockopt(zmq.RCVHWM, 0)
        self.replay.connect(replay)

    def receive(self, wait_ms=WAIT_MS):
        return self.events.recv_multipart() if self.events.poll(wait_ms) else None

    def replayed(self, first):
        self.replay.send_multipart([b"", first.to_bytes(8, "big")])
        messages = []
        while not messages or messages[-1][-2:] != [END, b""]:
            assert self.replay.poll(WAIT_MS), "the replay has no end"
            messages.append(self.replay.recv_multipart())
        return messages


class Server:
    def __init__(self, url, process):
        self.url = url
        self.process = process

    def ask(self, path, body=None):
        request = urllib.request.Request(
            self.url + path,
            None if body is None else json.dumps(body).encode(),
            {"Authorization": "Bearer secret", "Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=60) as reply:
            return json.load(reply)

    def complete(self, prompt):
        """Answers the prompt; returns its tokens and the hashes of its full pages."""
        body = {"model": "reference", "prompt": prompt, "max_tokens": 2}
        asked = self.ask("/prompt_tokens", body)
        self.ask("/v1/completions", body)
        return asked["prompts"][0], asked["page_hashes"][0]

    def kill_rank(self, rank):
        parents, named = {}, []
        for entry in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                before, rest = (entry / "stat").read_text().split(" (", 1)
                name, after = rest.rsplit(")", 1)  # a name may have parentheses
                process = int(before)
                parents[process] = int(after.split()[1])
            except (OSError, ValueError):
                continue
            if name == f"wideep-rank-{rank}":
                named.append(process)
        for process in named:  # of this server, not of another one
            ancestor = process
            while ancestor in parents and ancestor != self.process:
                ancestor = parents[ancestor]
            if ancestor == self.process:
                return os.kill(process, signal.SIGKILL)
        raise AssertionError(f"no process wideep-rank-{rank}")


class Known:
    """What a reader knows after the batches that it was told."""

    def __init__(self):
        self.ranks = {}
        self.counts = {"BlockStored": 0, "BlockRemoved": 0, "AllBlocksCleared": 0}

    def take(self, batch):
        blocks = self.ranks.setdefault(batch["rank"], {})
        for event in batch["events"]:
            self.counts[event["type"]] += 1
            if event["type"] == "AllBlocksCleared":
                blocks.clear()
            elif event["type"] == "BlockRemoved":
                for block in event["block_hashes"]:
                    del blocks[block]  # nobody removes what was not stored
            else:
                self.store(event, blocks)

    @staticmethod
    def store(event, blocks):
        assert event["block_size"] == PAGE, event
        assert len(event["token_ids"]) == PAGE * len(event["block_hashes"]), event
        parent = event["parent_block_hash"]
        for i, block in enumerate(event["block_hashes"]):
            assert parent is None or parent in blocks, (parent, event)
            assert block not in blocks and 0 <= block < 1 << 64, event
            blocks[block] = (parent, event["token_ids"][i * PAGE : (i + 1) * PAGE])
            parent = block

    def chain(self, block):
        """The tokens from the beginning to the end of the block, where a rank has it."""
        for blocks in self.ranks.values():
            tokens, each = [], block
            while each in blocks:
                parent, own = blocks[each]
                tokens = own + tokens
                if parent is None:
                    return tokens
                each = parent
        return None


class Check:
    def __init__(self, arguments, peers):
        self.peers = peers
        self.topic = arguments.topic.encode()
        self.server = Server(arguments.url, arguments.server)
        self.reader = Reader(arguments.events, arguments.replay, arguments.topic)
        self.known = Known()
        self.payloads = {}  # of batches, by sequence
        self.removing = set()  # ranks that have removed a page
        self.last = None

    def take(self, sequence, payload):
        """A batch after the last one, which all peers read alike."""
        assert self.last is None or sequence == self.last + 1, (self.last, sequence)
        batches = [each.read(payload) for each in self.peers]
        assert all(each == batches[0] for each in batches), batches
        self.known.take(batches[0])
        if any(each["type"] == "BlockRemoved" for each in batches[0]["events"]):
            self.removing.add(batches[0]["rank"])
        self.payloads[sequence] = payload
        self.last = sequence

    def take_live(self, message):
        topic, sequence, payload = message
        assert topic == self.topic and len(sequence) == 8, message
        sequence = int.from_bytes(sequence, "big")
        if self.last is None or sequence > self.last + 1:
            self.take_replay(0 if self.last is None else self.last + 1)
        if sequence > self.last:
            self.take(sequence, payload)
        assert self.payloads[sequence] == payload

    def take_replay(self, first):
        for message in self.reader.replayed(first)[:-1]:
            sequence = int.from_bytes(message[-2], "big")
            if self.last is None or sequence > self.last:
                self.take(sequence, message[-1])
            assert self.payloads[sequence] == message[-1], "a replay differs"

    def follow(self, done):
        """Takes batches until done() is true."""
        end = time.monotonic() + WAIT_MS / 1000
        while not done():
            assert time.monotonic() < end, f"it is not told: {self.known.counts}"
            message = self.reader.receive(100)
            if message is not None:
                self.take_live(message)

    def follow_prompts(self, *prompts):
        """Answers them at the same time; each of their pages must be told."""
        with concurrent.futures.ThreadPoolExecutor(len(prompts)) as pool:
            answered = list(pool.map(self.server.complete, prompts))
        for tokens, pages in answered:
            assert len(pages) > 2, len(tokens)
            self.follow(lambda: self.known.chain(pages[-1]) is not None)
            for i, page in enumerate(pages):
                assert self.known.chain(page) == tokens[: (i + 1) * PAGE], page

    def compare_transport(self):
        """The messages of the peers' publishers have the parts that wideep's have."""
        own = self.reader.replayed(self.last)
        for peer in self.peers:
            live, replayed = peer.messages(self.topic.decode())
            assert [len(each) for each in live] == [3, 3] and live[1][0] == self.topic, live
            assert live[1][1] == (1).to_bytes(8, "big"), live
            assert replayed[0][-2:] == live[1][1:], replayed
            assert [len(each) for each in own] == [len(each) for each in replayed], (own, replayed)
            assert own[0][:-2] == replayed[0][:-2] and own[1] == replayed[1], (own, replayed)
            peer.read(live[0][2])

    def run(self):
        story = "Each of the pages of a prompt is told with its tokens, after the one before it. "
        while self.last is None:  # until the subscription has arrived
            self.server.complete(f"{time.monotonic()} " + story * 8)
            message = self.reader.receive(200)
            if message is not None:
                self.take_live(message)
        assert self.known.counts["AllBlocksCleared"] == 2, "each rank begins with that, once"
        self.follow_prompts(story * 20)
        self.follow_prompts(story * 20 + "A prompt that goes on stores what is new. " * 20)
        for i in range(60):  # more than the caches of both ranks hold
            self.follow_prompts(f"{i}. " + story * 20, f"Also {i}. " + story * 20)
            if len(self.removing) == 2:
                break
        assert len(self.removing) == 2, f"of two ranks these removed pages: {self.removing}"
        self.check_snapshot()
        self.take_replay(0)
        self.take_replay(self.last - 3)
        self.compare_transport()
        cleared = self.known.counts["AllBlocksCleared"]
        self.server.kill_rank(1)
        self.follow(lambda: self.known.counts["AllBlocksCleared"] > cleared)

    def check_snapshot(self):
        snapshot = self.server.ask("/v1/kv_events/snapshot")
        self.follow(lambda: self.last >= snapshot["sequence"])
        if self.last > snapshot["sequence"]:
            return self.check_snapshot()
        for rank in snapshot["ranks"]:
            told = self.known.ranks[rank["data_parallel_rank"]]
            has = {each["hash"]: (each["parent"], each["token_ids"]) for each in rank["blocks"]}
            assert told == has, "events and snapshot differ"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--url", required=True)
    parser.add_argument("--events", required=True)
    parser.add_argument("--replay", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--server", type=int, required=True)
    parser.add_argument("peers", nargs="+")
    arguments = parser.parse_args()
    peers = [Peer(*each.split("=", 1)) for each in arguments.peers]
    check = Check(arguments, peers)
    check.run()
    counts = ", ".join(f"{count} {kind}" for kind, count in check.known.counts.items())
    names = " and ".join(each.name for each in peers)
    print(f"{names} read {len(check.payloads)} batches: {counts}")


if __name__ == "__main__":
    main()
