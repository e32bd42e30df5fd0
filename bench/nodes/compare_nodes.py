#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Do more nodes help? Tokens per second and the time between tokens over 1 to 8 nodes, beside
llama.cpp's RPC back end on the same nodes.

    bench/nodes/compare_nodes.py --wideep build/wideep --relay build/tests/delay_relay
    bench/nodes/compare_nodes.py --nodes 1,2,4 --networks 10:50 --no-llama
    bench/nodes/compare_nodes.py --stages --networks 10:1000

Nodes are network namespaces on this machine, joined by a bridge. Each cable has a rate (tc tbf) and
a delay (tests/nodes/delay_relay.cc); --networks RATE:DELAY,... gives Gbit/s and microseconds from
node to node. A node has one rank of one thread in wideep (`wideep serve --nnodes`), and one thread
in llama.cpp, whose layers are split over the nodes: node 0 computes its share itself and reaches the
others by RPC. Both engines have random weights of the same shape and about the same bits. With
--memory, a node has no more than so many bytes (a control group), so that a model can be too large
for one node.

All nodes share this machine's cores, and so do the programs that stand for cables. So wideep also
runs as many ranks on one node, without a network: the difference to that is the network's, the rest
the cores'. Beside each of wideep's measurements stands the time between tokens that the advisor
predicts from this machine's constants, which it measures first (a minute or two), and the network's
rate, round trip and messages: how long one of 256 bytes takes of a core, all of its way together.
llama.cpp is built from the source in llama-cpp-python on PyPI (minutes, once). Needs root.
"""

import argparse
import contextlib
import http.client
import json
import os
import pathlib
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import venv

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
CACHE = pathlib.Path.home() / ".cache" / "wideep-bench"
PACKAGES = ["llama-cpp-python==0.3.36", "gguf", "numpy"]
RPC_PORT, ECHO_PORT = 50052, 50053
ECHOES = 5000
PROMPT, WARM_UP = 16, 4  # tokens


def run(*command, check=True):
    result = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if check and result.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}: {result.stderr.strip()}")
    return result.stdout


def busy_seconds():
    """Of all cores since the machine has started, but for programs of low priority."""
    times = list(map(int, pathlib.Path("/proc/stat").read_text().split("\n")[0].split()[1:]))
    user, _, system, _, _, interrupts, soft_interrupts = times[:7]
    return (user + system + interrupts + soft_interrupts) / os.sysconf("SC_CLK_TCK")


@contextlib.contextmanager
def awake_cores():
    """Programs of the lowest priority keep all cores from sleeping, out of which a virtual machine's wake
    slowly: cores that serve a model do not sleep."""
    loops = [subprocess.Popen(["nice", "-n", "19", sys.executable, "-c",
                               "import os\nos.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))\nwhile True: pass"])
             for _ in range(os.cpu_count())]
    try:
        time.sleep(0.2)
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def address(node):
    return f"10.218.0.{node + 1}"


# ---- nodes ----


class Nodes:
    """`count` network namespaces, each with a control group if it has a limit."""

    def __init__(self, count, rate_gbps, delay_us, memory, relay):
        self.count, self.name, self.relays, self.started = count, f"wn{os.getpid() % 100000}", [], []
        self.memory = memory
        self.resources = contextlib.ExitStack()
        try:
            self.build(rate_gbps, delay_us, relay)
        except BaseException:
            self.close()
            raise

    def build(self, rate_gbps, delay_us, relay):
        run("ip", "link", "add", self.name, "type", "bridge")
        self.resources.callback(run, "ip", "link", "del", self.name, check=False)
        run("ip", "link", "set", self.name, "up")
        for node in range(self.count):
            self.add_node(node, rate_gbps, delay_us, relay)
        for process in self.relays:
            if process.stdout.readline().strip() != "ready":
                sys.exit("delay_relay: no packet sockets here")

    def add_node(self, node, rate_gbps, delay_us, relay):
        space, cable = f"{self.name}-{node}", f"{self.name}.{node}"
        run("ip", "netns", "add", space)
        self.resources.callback(run, "ip", "netns", "del", space, check=False)
        # bridge - a b - relay - c eth0
        run("ip", "link", "add", cable + "a", "type", "veth", "peer", "name", cable + "b")
        self.resources.callback(run, "ip", "link", "del", cable + "a", check=False)
        run("ip", "link", "add", cable + "c", "type", "veth", "peer", "name", "eth0", "netns", space)
        run("ip", "link", "set", cable + "a", "master", self.name, "up")
        for end in "bc":
            run("sysctl", "--quiet", "--write", f"net.ipv6.conf.{self.name}/{node}{end}.disable_ipv6=1", check=False)
            run("ip", "link", "set", cable + end, "up")
        self.relays.append(subprocess.Popen([relay, cable + "b", cable + "c", str(delay_us // 2)],
                                            stdout=subprocess.PIPE, text=True))
        inside = ["ip", "netns", "exec", space]
        run(*inside, "ip", "link", "set", "lo", "up")
        run(*inside, "ip", "addr", "add", address(node) + "/24", "dev", "eth0")
        run(*inside, "ip", "link", "set", "eth0", "up")
        run(*inside, "tc", "qdisc", "add", "dev", "eth0", "root", "tbf", "rate", f"{rate_gbps}gbit",
            "burst", "1m", "latency", "50ms")
        if self.memory:
            group = pathlib.Path("/sys/fs/cgroup/memory") / space
            group.mkdir()
            self.resources.callback(self.remove_group, group)
            (group / "memory.limit_in_bytes").write_text(str(self.memory))

    @staticmethod
    def remove_group(group):
        for _ in range(50):
            with contextlib.suppress(OSError):
                group.rmdir()
                return
            time.sleep(0.1)

    def start(self, node, command, **options):
        """A process on a node."""
        command = ["ip", "netns", "exec", f"{self.name}-{node}", *map(str, command)]
        if self.memory:
            group = f"/sys/fs/cgroup/memory/{self.name}-{node}/cgroup.procs"
            command = ["sh", "-c", f'echo $$ >{group} && exec "$@"', "sh", *command]
        process = subprocess.Popen(command, start_new_session=True, text=True, **options)
        self.started.append(process)
        return process

    def stop_all(self):
        for process in self.started:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        self.started.clear()

    def round_trip_us(self):
        """A closed port refuses after one round trip; the first attempt asks for the address."""
        script = ("import socket,time\nt=[]\nfor i in range(21):\n s=socket.socket();b=time.perf_counter()\n"
                  f" s.connect_ex(('{address(1)}',9));t.append(time.perf_counter()-b)\nprint(sorted(t[1:])[10]*1e6)")
        return float(run("ip", "netns", "exec", f"{self.name}-0", sys.executable, "-c", script))

    def message_us(self):
        """Of a core, for a message all the way: what all cores are busy with while two programs send each other
        messages, more than while they do not."""
        common = ("import socket,sys\ns=socket.socket()\n"
                  "def take(c):\n n=256\n while n: n-=len(c.recv(n))\n")
        server = self.start(1, [sys.executable, "-c", common + (
            f"s.bind(('{address(1)}',{ECHO_PORT}));s.listen();print('ready',flush=True);c=s.accept()[0]\n"
            "c.setsockopt(socket.IPPROTO_TCP,socket.TCP_NODELAY,1)\n"
            "while True: take(c);c.send(b'x'*256)")], stdout=subprocess.PIPE)
        server.stdout.readline()
        client = self.start(0, [sys.executable, "-c", common + (
            f"s.connect(('{address(1)}',{ECHO_PORT}));s.setsockopt(socket.IPPROTO_TCP,socket.TCP_NODELAY,1)\n"
            "for line in sys.stdin:\n for i in range(int(line)): s.send(b'x'*256);take(s)\n print(flush=True)")],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE)

        def exchange(count):
            begin, before = time.perf_counter(), busy_seconds()
            client.stdin.write(f"{count}\n")
            client.stdin.flush()
            if not client.stdout.readline():
                sys.exit("no message came back over the network")
            return busy_seconds() - before, time.perf_counter() - begin

        exchange(100)
        before = busy_seconds()
        time.sleep(2)
        others = (busy_seconds() - before) / 2  # of a second
        busy, seconds = exchange(ECHOES)
        self.stop_all()
        return (busy - others * seconds) / (2 * ECHOES) * 1e6

    def close(self):
        self.stop_all()
        for process in self.relays:
            process.kill()
            process.wait()
        self.resources.close()


# ---- wideep ----


def stream(connection, body):
    """The times at which the tokens of a streamed completion come. Those that are no whole character yet wait
    for the next one: several of one event count as evenly spaced since the event before."""
    connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
    response = connection.getresponse()
    if response.status != 200:
        sys.exit(f"wideep: {response.read().decode()}")
    times = []
    for line in response:
        if line.startswith(b"data: {"):
            count = len(json.loads(line[len(b"data: "):])["choices"][0]["logprobs"]["tokens"])
            now = time.perf_counter()
            before = times[-1] if times else now
            times += [before + (now - before) * (at + 1) / count for at in range(count)]
    return times


def ask(port, streams, tokens, warm_up):
    """Tokens per second and the times between tokens of so many streams at once."""
    results = [None] * streams

    def one(index):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
        prompt = [(index * 131 + at * 17) % 1000 for at in range(PROMPT)]
        results[index] = stream(connection, {
            "model": "nodes", "prompt": prompt, "max_tokens": tokens + warm_up, "temperature": 0, "stream": True,
            "ignore_eos": True, "logprobs": 0})

    threads = [threading.Thread(target=one, args=(index,)) for index in range(streams)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if any(times is None or len(times) <= warm_up + 1 for times in results):
        raise RuntimeError("a stream failed")
    gaps = [(b - a) * 1e3 for times in results for a, b in zip(times[warm_up:], times[warm_up + 1:])]
    begin = min(times[warm_up] for times in results)
    end = max(times[-1] for times in results)
    count = sum(len(times) - warm_up - 1 for times in results)
    return {"tokens_per_second": count / (end - begin), "gap_ms": statistics.median(gaps),
            "gap_p99_ms": sorted(gaps)[len(gaps) * 99 // 100]}


def client_main(arguments):
    port, tokens, *streams = map(int, arguments)
    print(json.dumps({count: ask(port, count, tokens, WARM_UP) for count in streams}))


def wideep_command(options, work, ranks):
    config = work / "config.yaml"
    if options.stages:
        text = f"tensor_parallel_size: 1\npipeline_parallel_size: {ranks}\n"
    else:
        text = (f"tensor_parallel_size: {ranks}\nmoe_expert_parallel_size: {ranks}\n"
                "enable_attention_dp: true\n")
    experts = json.loads(options.config.read_text())["num_experts"]
    if not options.stages and experts % ranks != 0:  # as few slots more as divide evenly
        balancer = work / "balancer.yaml"
        balancer.write_text(f"num_slots: {-(-experts // ranks) * ranks}\n")
        text += f"moe_config:\n  load_balancer: {balancer}\n"
    config.write_text(text)
    return [options.wideep, "serve", "--model", work / "model", "--served-model-name", "nodes",
            "--random-weights", "--dtype", options.dtype, "--config", config, "--threads-per-rank", 1,
            "--max-batch-size", 64, "--port", 8080]


def await_line(path, text, seconds, processes):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        content = path.read_text(errors="replace") if path.exists() else ""
        if text in content:
            return
        if any(process.poll() is not None for process in processes):
            errors = [line for line in content.splitlines() if line.startswith("error")]
            raise RuntimeError(errors[-1] if errors else "ended: " + content.strip()[-200:])
        time.sleep(0.1)
    raise RuntimeError(f"not ready after {seconds} s")


def measure_wideep(options, nodes, count, work, over_network):
    """over_network: a rank on each of so many nodes; otherwise all on node 0."""
    try:
        processes, log = [], work / "node0.log"
        log.unlink(missing_ok=True)
        command = wideep_command(options, work, count)
        for node in range(count if over_network else 1):
            where = ["--nnodes", count, "--node-rank", node, "--master-addr", address(0)] if count > 1 and over_network else []
            errors = open(work / f"node{node}.log", "w")
            processes.append(nodes.start(node, command + where, stdout=errors, stderr=errors))
        await_line(log, "serving nodes on", options.deadline, processes)
        client = nodes.start(0, [sys.executable, __file__, "--client", 8080, options.tokens, *options.streams],
                             stdout=subprocess.PIPE)
        out, _ = client.communicate(timeout=options.deadline)
        return {int(count): value for count, value in json.loads(out).items()}
    except (RuntimeError, subprocess.TimeoutExpired, json.JSONDecodeError) as error:
        return str(error)
    finally:
        nodes.stop_all()


def make_model(options, work):
    """A directory with the shape of --config and a tokenizer; the weights are random."""
    model = work / "model"
    model.mkdir()
    shutil.copy(options.config, model / "config.json")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(ROOT / "models" / "reference" / name, model / name)


# ---- prediction ----


def measure_hardware(options, work):
    hardware = work / "this.yaml"
    run(options.wideep, "doctor", "--write-hardware", hardware)
    return hardware


def predict(options, hardware, count, network=()):
    """Milliseconds between tokens, by streams."""
    positions = PROMPT + WARM_UP + options.tokens // 2
    divided = "stages" if options.stages else "experts"
    return {streams: float(run(options.predict, options.config, hardware, options.dtype, positions, divided, count,
                               streams, *network)) * 1e3
            for streams in options.streams}


# ---- llama.cpp ----


def prepare_llama(options):
    """The Python of a venv whose llama.cpp has RPC, and the GGUF file."""
    directory = options.cache / "rpc"
    python = directory / "bin" / "python"
    check = "import llama_cpp, gguf, os, sys; sys.exit(not os.path.exists(os.path.dirname(llama_cpp.__file__) + '/lib/libggml-rpc.so'))"
    if not python.exists() or subprocess.run([python, "-c", check], capture_output=True).returncode != 0:
        print(f"building llama.cpp in {directory} (takes minutes, only once)", file=sys.stderr)
        venv.create(directory, with_pip=True, clear=True)
        environment = dict(os.environ, CMAKE_ARGS="-DGGML_NATIVE=ON -DLLAVA_BUILD=OFF -DGGML_RPC=ON")
        subprocess.run([python, "-m", "pip", "install", "--quiet", "--no-cache-dir", "--no-binary",
                        "llama-cpp-python",
                        *PACKAGES], check=True, env=environment)
    gguf = options.cache / f"{pathlib.Path(options.config).stem}-{options.gguf_type}.gguf"
    if not gguf.exists():
        part = gguf.with_suffix(".part")
        subprocess.run([python, HERE.parent / "random_gguf.py", "--config", options.config, "--format",
                        options.gguf_type, "--output", part], check=True)
        part.rename(gguf)
    return python, gguf


def measure_llama(options, nodes, count, python, gguf):
    try:
        command = [python, HERE / "llama_rpc.py"]
        for node in range(1, count):
            nodes.start(node, command + ["serve", f"{address(node)}:{RPC_PORT}"],
                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(1.5)
        endpoints = [f"{address(node)}:{RPC_PORT}" for node in range(1, count)]
        client = nodes.start(0, command + ["measure", gguf, options.tokens, ",".join(map(str, options.streams)), *endpoints],
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        out, errors = client.communicate(timeout=options.deadline)
        if client.returncode != 0:
            lines = errors.strip().splitlines()
            return lines[-1] if lines else f"ended with {client.returncode}"
        return {int(count): value for count, value in json.loads(out).items()}
    except subprocess.TimeoutExpired:
        return f"no result after {options.deadline} s"
    finally:
        nodes.stop_all()


# ---- the table ----


def cell(result, streams, predicted=None):
    if isinstance(result, str):
        return result
    at = result[streams]
    also = f"; {predicted[streams]:.1f} predicted" if predicted else ""
    return f"{at['tokens_per_second']:.1f} ({at['gap_ms']:.1f} / {at['gap_p99_ms']:.1f} ms{also})"


def print_row(options, row):
    for streams in options.streams:
        print(f"| {row['gbps']} Gbit/s, {row['delay_us']} µs ({row['round_trip_us']:.0f}, {row['message_us']:.0f}) "
              f"| {row['nodes']} | {streams} | "
              f"{cell(row['wideep'], streams, row['predicted'])} | "
              f"{cell(row['one_node'], streams, row['predicted_one_node'])} | {cell(row['llama'], streams)} |",
              flush=True)


def measure_network(options, gbps, delay_us, work, llama, hardware, one_node):
    """one_node: what does not depend on the network, by the number of ranks; filled here."""
    nodes = Nodes(max(options.nodes), gbps, delay_us, options.memory, options.relay)
    rows = []
    try:
        with awake_cores():
            round_trip = nodes.round_trip_us() if nodes.count > 1 else 0.0
            message = nodes.message_us() if nodes.count > 1 else 0.0
        for count in options.nodes:
            if count > 1 and count not in one_node:
                one_node[count] = measure_wideep(options, nodes, count, work, False)
            network = (gbps, round_trip / 2, message) if count > 1 else ()
            row = {"gbps": gbps, "delay_us": delay_us, "round_trip_us": round_trip,
                   "message_us": message, "nodes": count,
                   "wideep": measure_wideep(options, nodes, count, work, True),
                   "predicted": predict(options, hardware, count, network),
                   "one_node": one_node.get(count, ""),
                   "predicted_one_node": predict(options, hardware, count),
                   "llama": measure_llama(options, nodes, count, *llama) if llama else ""}
            print_row(options, row)
            rows.append(row)
    finally:
        nodes.close()
    return rows


def numbers(text):
    return [int(part) for part in text.split(",")]


def networks(text):
    return [tuple(int(number) for number in part.split(":")) for part in text.split(",")]


def main():
    if sys.argv[1:2] == ["--client"]:
        return client_main(sys.argv[2:])
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--wideep", default="build/wideep", type=pathlib.Path)
    parser.add_argument("--relay", default="build/tests/delay_relay", type=pathlib.Path)
    parser.add_argument("--predict", default="build/bench/simulate/predict_nodes", type=pathlib.Path)
    parser.add_argument("--config", default=HERE.parent / "configs" / "qwen3-moe-1.3b.json", type=pathlib.Path)
    parser.add_argument("--dtype", default="int8", help="wideep's precision")
    parser.add_argument("--gguf-type", default="q8_0", help="llama.cpp's")
    parser.add_argument("--nodes", type=numbers, default=[1, 2, 3, 4, 8])
    parser.add_argument("--networks", type=networks, help="Gbit/s:microseconds,...",
                        default=[(rate, delay) for delay in (50, 1000) for rate in (1, 10, 25)])
    parser.add_argument("--stages", action="store_true", help="wideep divides layers over the nodes, not experts")
    parser.add_argument("--streams", type=numbers, default=[1, 8])
    parser.add_argument("--tokens", type=int, default=48, help="measured tokens of a stream")
    parser.add_argument("--memory", type=int, default=0, help="bytes of a node; 0: no limit")
    parser.add_argument("--deadline", type=int, default=120, help="seconds for loading, and for measuring")
    parser.add_argument("--no-llama", action="store_true")
    parser.add_argument("--cache", type=pathlib.Path, default=CACHE)
    parser.add_argument("--json", type=pathlib.Path, help="file for all figures")
    options = parser.parse_args()
    for program in (options.wideep, options.relay, options.predict):
        if not program.exists():
            sys.exit(f"{program}: not found; build it first")
    options.wideep, options.relay, options.predict = (
        program.resolve() for program in (options.wideep, options.relay, options.predict))
    if os.geteuid() != 0:
        sys.exit("network namespaces need root")
    llama = None if options.no_llama else prepare_llama(options)
    print("tokens/s of all streams (between two tokens: half of them / 99 of 100 within; predicted)\n")
    print("| network (µs of a round trip; of a core for a message) | nodes | streams | wideep | wideep, as many ranks on one node | llama.cpp RPC |")
    print("|---|---|---|---|---|---|")
    rows = []
    with tempfile.TemporaryDirectory() as directory:
        work = pathlib.Path(directory)
        make_model(options, work)
        hardware, one_node = measure_hardware(options, work), {}
        for gbps, delay_us in options.networks:
            rows += measure_network(options, gbps, delay_us, work, llama, hardware, one_node)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
