# SPDX-License-Identifier: Apache-2.0
"""Dispatch and combine of torch tensors on a GPU, through the Python package and the C interface,
against the same on its CPU: every bit has to be equal. bench/cuda/run_python.sh runs it.

    python3 bench/cuda/torch_on_device.py [libwideep.so]

Ranks are processes that share the GPU; they take turns on it, so figures of more than one rank say
nothing about speed."""

import ctypes
import os
import pathlib
import subprocess
import sys
import threading
import time

import torch
from wideep.communicator import TensorGroup

HIDDEN, TOP_K, SLOTS_PER_RANK, MAX_TOKENS, CALLS = 512, 4, 8, 32, 4
DTYPES = {"bfloat16": torch.bfloat16, "float32": torch.float32}


def make_group(num_ranks, device, dtype="bfloat16", name="", **options):
    shape = dict(slots_per_rank=SLOTS_PER_RANK, top_k=TOP_K, max_tokens=MAX_TOKENS, hidden=HIDDEN)
    name = f"{os.environ.get('WIDEEP_TEST', os.getpid())} {name}"
    return TensorGroup(num_ranks, **{**shape, **options}, dtype=dtype, device=device, name=name)


def tokens_of(rank, call, num_ranks, dtype, hidden=HIDDEN, tokens=None):
    random = torch.Generator().manual_seed(1000 * call + rank)
    n = (rank * 7 + call * 11) % (MAX_TOKENS + 1) if tokens is None else tokens
    rows = torch.randn((n, hidden), generator=random).to(DTYPES[dtype])
    scores = torch.rand((n, num_ranks * SLOTS_PER_RANK), generator=random)
    slots = scores.topk(TOP_K, dim=-1).indices.int()
    return rows, slots, torch.randn((n, TOP_K), generator=random), torch.randn((n, hidden), generator=random)


def run_calls(group, rank, num_ranks, dtype):
    """The outputs of CALLS calls, on the CPU. An expert multiplies by its number / 8: one rounding,
    the same everywhere."""
    communicator = group.join(rank)
    outputs = []
    for call in range(CALLS):
        tokens = [part.to(communicator.device) for part in tokens_of(rank, call, num_ranks, dtype)]
        received = communicator.dispatch(*tokens[:3])
        for slot, (begin, end) in enumerate(received.ranges()):
            received.rows[begin:end] *= (rank * SLOTS_PER_RANK + slot + 1) / 8
        output = communicator.combine(received.rows, shared=tokens[3] if call % 2 else None)
        outputs.append(output.cpu())
    communicator.status()
    return outputs


def on_cpu(num_ranks, dtype):
    group = make_group(num_ranks, "cpu", dtype)
    outputs = [None] * num_ranks

    def run(rank):
        outputs[rank] = run_calls(group, rank, num_ranks, dtype)

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(num_ranks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return outputs


def compare(num_ranks, rank, dtype):
    found = run_calls(make_group(num_ranks, "cuda", dtype, f"compare {dtype}"), rank, num_ranks, dtype)
    expected = on_cpu(num_ranks, dtype)[rank]
    values = 0
    for call, (one, other) in enumerate(zip(found, expected)):
        assert torch.equal(one.view(torch.int16), other.view(torch.int16)), f"rank {rank}, call {call}"
        values += one.numel()
    print(f"  rank {rank} of {num_ranks}, {dtype}: {values} values have the CPU's bits")


def choice():
    """Slots that are chosen on the GPU, call by call and by a graph that is replayed under another
    placement, and their counts, beside those of the CPU."""
    experts, layers, spread = 6, 2, [0, 1, 2, 3, 4, 5, 0, 1]
    gpu, cpu = (make_group(1, device, name="choice", num_layers=layers, num_experts=experts).join(0)
                for device in ("cuda", "cpu"))
    for communicator in (gpu, cpu):
        communicator.set_placement(0, spread, [0.9, 0.5, 1, 1, 1, 1, 0.1, 0.5])
        communicator.set_placement(1, spread[::-1])

    def draw(seed):
        random = torch.Generator().manual_seed(seed)
        return torch.rand((MAX_TOKENS - 3, experts), generator=random).topk(TOP_K).indices.int()

    given = draw(0).cuda()
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        slots = gpu.choose(given, 0)
    side.synchronize()
    assert torch.equal(slots.cpu(), cpu.choose(draw(0), 0))
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        gpu.choose(given, 0, out=slots)
    for call in range(1, 30):
        if call == 15:
            for communicator in (gpu, cpu):
                communicator.set_placement(0, spread[::-1])
        given.copy_(draw(call))
        captured.replay()
        assert torch.equal(slots.cpu(), cpu.choose(draw(call), 0)), call
        other = draw(100 + call)
        assert torch.equal(gpu.choose(other.cuda(), 1).cpu(), cpu.choose(other, 1)), call
        gpu.end_iteration()
        cpu.end_iteration()
        if call % 3 == 0:
            torch.cuda.synchronize()
            with torch.cuda.stream(side):
                found = gpu.take_loads()
            expected = cpu.take_loads()
            if call > 3:  # after a take the GPU hands over one iteration, then what came late
                found_sum, expected_sum = found_sum + found.experts, expected_sum + expected.experts
            else:
                found_sum, expected_sum = found.experts, expected.experts
    for _ in range(2):
        gpu.end_iteration()
        torch.cuda.synchronize()
        found_sum = found_sum + gpu.take_loads().experts
    assert (found_sum == expected_sum + cpu.take_loads().experts).all()
    gpu.status()
    print(f"  {30 + 29} calls have the CPU's slots, also replayed; {found_sum.sum()} tokens counted")


def graph():
    """A captured call is replayed with other tokens in the same tensors."""
    communicator = make_group(1, "cuda", name="graph").join(0)
    tokens = [part.cuda() for part in tokens_of(0, 0, 1, "bfloat16", tokens=20)]

    def call():
        received = communicator.dispatch(*tokens[:3])
        received.rows.mul_(3)
        return communicator.combine(received.rows, shared=tokens[3])

    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        call()
    side.synchronize()
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        output = call()
    for replay in range(20):
        for part, fresh in zip(tokens, tokens_of(0, 50 + replay, 1, "bfloat16", tokens=20)):
            part.copy_(fresh)
        captured.replay()
        replayed = output.clone()
        assert torch.equal(replayed.view(torch.int16), call().view(torch.int16)), replay
    communicator.status()
    print("  20 replays with other tokens have the bits of plain calls")


def refused(kind, text, call):
    try:
        call()
    except kind as error:
        assert text in str(error) and "\n" not in str(error), str(error)
        print(f"  {kind.__name__}: {error}")
        return
    raise AssertionError(f"no error that says '{text}'")


def errors():
    communicator = make_group(1, "cuda", name="errors", timeout=2).join(0)
    rows, slots, weights, _ = [part.cuda() for part in tokens_of(0, 0, 1, "bfloat16", tokens=5)]
    refused(ValueError, "on cuda:0, found bfloat16 [5, 512] on cpu",
            lambda: communicator.dispatch(rows.cpu(), slots, weights))
    refused(ValueError, "of bfloat16 on cuda:0, found float16",
            lambda: communicator.dispatch(rows.half(), slots, weights))
    refused(RuntimeError, "GB of device memory",
            lambda: make_group(1, "cuda", name="large", max_tokens=1 << 20, hidden=1 << 16).join(0))
    refused(TimeoutError, "rank 1 did not join within 300 ms",
            lambda: make_group(2, "cuda", name="alone", join_timeout=0.3).join(0))
    wrong = slots.clone()
    wrong[2, 1] = 99
    received = communicator.dispatch(rows, wrong, weights)
    communicator.combine(received.rows)
    refused(ValueError, "token 2: a slot that does not exist", communicator.status)


def dead_rank(rank):
    """Rank 1 joins and goes away: rank 0's kernels end with an error that names it."""
    communicator = make_group(2, "cuda", name="dead", timeout=2).join(rank)
    if rank == 1:
        os._exit(0)
    tokens = [part.cuda() for part in tokens_of(0, 0, 2, "bfloat16", tokens=5)]
    communicator.combine(communicator.dispatch(*tokens[:3]).rows)
    refused(TimeoutError, "no dispatched rows from rank 1", communicator.status)


def times():
    """One rank, rows of 7,168 values: what a call costs, launched from Python and replayed."""
    for tokens in (1, 64, 1024):
        options = dict(hidden=7168, max_tokens=tokens, slots_per_rank=64, top_k=8)
        communicator = make_group(1, "cuda", name=f"times {tokens}", **options).join(0)
        rows = torch.randn((tokens, 7168), device="cuda").bfloat16()
        slots = torch.rand((tokens, 64), device="cuda").topk(8, dim=-1).indices.int()
        weights = torch.rand((tokens, 8), device="cuda")

        def call():
            communicator.combine(communicator.dispatch(rows, slots, weights).rows)

        def measure(run, count=50):
            for _ in range(5):
                run()
            torch.cuda.synchronize()
            start = time.perf_counter()
            for _ in range(count):
                run()
            launched = time.perf_counter() - start
            torch.cuda.synchronize()
            return (time.perf_counter() - start) / count * 1e6, launched / count * 1e6

        plain, host = measure(call)
        captured = torch.cuda.CUDAGraph()
        with torch.cuda.graph(captured):
            call()
        replayed, _ = measure(captured.replay)
        communicator.status()
        print(f"  {tokens} tokens: {plain:.1f} us a call, {host:.1f} us of them in Python; replayed "
              f"{replayed:.1f} us; {communicator._rank.device_bytes / 1e9:.3f} GB")


class Options(ctypes.Structure):
    _fields_ = [("group", ctypes.c_char_p),
                *[(name, ctypes.c_int32) for name in (
                    "rank", "num_ranks", "slots_per_rank", "top_k", "max_tokens", "hidden",
                    "row_format", "result_format", "device", "num_blocks")],
                ("join_timeout_ms", ctypes.c_int64), ("timeout_ms", ctypes.c_int64),
                ("reserved", ctypes.c_int64 * 4)]


class Call(ctypes.Structure):
    _fields_ = [("num_tokens", ctypes.c_void_p), ("slots", ctypes.c_void_p),
                ("weights", ctypes.c_void_p), ("stream", ctypes.c_void_p), ("layer", ctypes.c_int32),
                ("reserved", ctypes.c_int32 * 5)]


def c_interface(path):
    """The same call through libwideep.so, as a program in C makes it."""
    library = ctypes.CDLL(path)  # it needs fmt, which the package's modules have loaded
    library.wideep_last_error.restype = ctypes.c_char_p

    def checked(status):
        assert status == 0, library.wideep_last_error().decode()

    options = Options(group=b"c interface %d" % os.getpid(), num_ranks=1, slots_per_rank=SLOTS_PER_RANK,
                      top_k=TOP_K, max_tokens=MAX_TOKENS, hidden=HIDDEN)
    communicator = ctypes.c_void_p()
    checked(library.wideep_device_available())
    checked(library.wideep_device_join(ctypes.byref(options), ctypes.byref(communicator)))
    tokens = tokens_of(0, 1, 1, "bfloat16")
    rows, slots, weights, shared = [part.cuda() for part in tokens]
    count = torch.tensor([len(rows)], dtype=torch.int32, device="cuda")
    matrix = torch.empty((MAX_TOKENS * TOP_K, HIDDEN), dtype=torch.bfloat16, device="cuda")
    out = torch.empty((len(rows), HIDDEN), dtype=torch.bfloat16, device="cuda")
    stride, at = ctypes.c_int64(2 * HIDDEN), ctypes.c_void_p
    call = Call(num_tokens=count.data_ptr(), slots=slots.data_ptr(), weights=weights.data_ptr(),
                stream=torch.cuda.current_stream().cuda_stream)
    checked(library.wideep_device_dispatch(communicator, ctypes.byref(call), at(rows.data_ptr()), stride))
    checked(library.wideep_device_expand(communicator, ctypes.byref(call), at(matrix.data_ptr()), stride))
    matrix *= 3
    checked(library.wideep_device_finalize(communicator, ctypes.byref(call), at(matrix.data_ptr()), stride))
    checked(library.wideep_device_combine(communicator, ctypes.byref(call), at(out.data_ptr()), stride,
                                          at(shared.data_ptr())))
    checked(library.wideep_device_status(communicator, at(call.stream)))
    library.wideep_device_destroy(communicator)
    cpu = make_group(1, "cpu").join(0)
    received = cpu.dispatch(*tokens[:3])
    expected = cpu.combine(received.rows * 3, shared=tokens[3])
    assert torch.equal(out.cpu().view(torch.int16), expected.view(torch.int16))
    print(f"  {out.numel()} values have the CPU's bits")


def processes(part, num_ranks, *arguments):
    """Runs part(..., rank) in a process of each rank."""
    environment = {**os.environ, "WIDEEP_TEST": f"{os.getpid()} {part}"}
    started = [
        subprocess.Popen([sys.executable, __file__, "--rank", part, str(rank), *map(str, arguments)],
                         env=environment)
        for rank in range(num_ranks)
    ]
    codes = [process.wait(timeout=90) for process in started]
    assert not any(codes), f"ranks ended with {codes}"


def example():
    """examples/moe_layer.py with two processes; its sums are those of the CPU but for rounding."""
    path = pathlib.Path(__file__).resolve().parents[2] / "examples" / "moe_layer.py"
    port = str(20000 + os.getpid() % 20000)
    ranks = [
        subprocess.Popen([sys.executable, str(path)], stdout=subprocess.PIPE, text=True,
                         env={**os.environ, "RANK": str(rank), "WORLD_SIZE": "2", "MASTER_PORT": port})
        for rank in range(2)
    ]
    found = sorted(rank.communicate(timeout=90)[0].strip() for rank in ranks)
    expected = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, check=True)
    for mine, cpus in zip(found, sorted(expected.stdout.strip().splitlines())):
        print(f"  {mine}; on CPU: {cpus}")
        assert abs(float(mine.split()[-1]) - float(cpus.split()[-1])) < 2.0
    assert len(found) == 2


def main():
    if not torch.cuda.is_available():
        return "no GPU"
    failures = []
    libraries = sys.argv[1:]
    parts = [
        ("one rank", lambda: [compare(1, 0, dtype) for dtype in DTYPES]),
        ("two processes", lambda: [processes("compare", 2, dtype) for dtype in DTYPES]),
        ("choice of slots", choice),
        ("a CUDA graph", graph),
        ("errors", errors),
        ("a rank that dies", lambda: processes("dead", 2)),
        ("the example", example),
        ("the C interface", lambda: [c_interface(path) for path in libraries]),
        ("times", times),
    ]
    for title, part in parts:
        print(f"== {title}", flush=True)
        try:
            part()
        except Exception as error:  # the other parts are worth running
            failures.append(title)
            print(f"  FAILED: {type(error).__name__}: {error}", flush=True)
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}: "
          f"{len(parts) - len(failures)} of {len(parts)} parts passed {failures or ''}")
    return 1 if failures else 0


if __name__ == "__main__":
    if sys.argv[1:2] != ["--rank"]:
        sys.exit(main())
    part, rank = sys.argv[2], int(sys.argv[3])
    dead_rank(rank) if part == "dead" else compare(2, rank, sys.argv[4])
