# SPDX-License-Identifier: Apache-2.0
"""examples/moe_layer.py against wideep's engine: build/tests/moe_layer computes the same
layer from the same weights. Needs torch, and WIDEEP_MOE_LAYER, the path of that program.

Where every product and sum is exact the bits are equal, whatever the order of sums; elsewhere
torch's products sum up in an order of their own."""

import importlib.util
import json
import os
import pathlib
import subprocess
import tempfile
import threading
import unittest

try:
    import torch
except ImportError:
    raise unittest.SkipTest("no torch")

from wideep.communicator import TensorGroup

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = os.environ.get("WIDEEP_MOE_LAYER")


def load_example():
    spec = importlib.util.spec_from_file_location("moe_layer", ROOT / "examples" / "moe_layer.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


example = load_example()
EXPERTS, TOP_K, HIDDEN, INNER = example.EXPERTS, example.TOP_K, example.HIDDEN, example.INNER


def example_output(x, router, gate, up, down, num_ranks):
    """The layer over ranks, each with an equal part of the tokens: [tokens, hidden] bfloat16."""
    group = TensorGroup(num_ranks, EXPERTS // num_ranks, TOP_K, len(x), HIDDEN, device="cpu")
    outputs = [None] * num_ranks

    def run(rank):
        mine = [part.chunk(num_ranks)[rank] for part in (gate, up, down)]
        layer = example.MoeLayer(group.join(rank), router, *mine)
        outputs[rank] = layer.forward(x.chunk(num_ranks)[rank].contiguous())

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(num_ranks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return torch.cat(outputs)


def write_safetensors(path, tensors):
    header, data = {}, b""
    names = {torch.bfloat16: "BF16", torch.float32: "F32"}
    for name, tensor in tensors.items():
        bits = tensor.contiguous().view(torch.uint8).numpy().tobytes()
        offsets = [len(data), len(data) + len(bits)]
        header[name] = dict(dtype=names[tensor.dtype], shape=list(tensor.shape), data_offsets=offsets)
        data += bits
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


def engine_output(x, router, gate, up, down):
    """The engine's, on one rank: [tokens, hidden] float32, not rounded yet."""
    layer = "model.layers.0.mlp."
    tensors = {"input": x, layer + "gate.weight": router}
    for expert in range(EXPERTS):
        for name, part in (("gate_proj", gate), ("up_proj", up), ("down_proj", down)):
            tensors[f"{layer}experts.{expert}.{name}.weight"] = part[expert]
    with tempfile.TemporaryDirectory() as folder:
        write_safetensors(pathlib.Path(folder) / "model.safetensors", tensors)
        subprocess.run([PROGRAM, folder, str(TOP_K)], check=True)
        data = bytearray((pathlib.Path(folder) / "output").read_bytes())
    return torch.frombuffer(data, dtype=torch.float32).reshape(x.shape)


def exact_layer(num_tokens):
    """Routing by ones among the first values, whole numbers elsewhere; the experts' activations are
    multiples of 128, where silu(x) is x, 0, or -0: no product or sum is rounded in bfloat16."""
    random = torch.Generator().manual_seed(3)
    x = torch.randint(-1, 2, (num_tokens, HIDDEN), generator=random).float()
    x[:, :EXPERTS] = 0
    for token in x:
        token[torch.randperm(EXPERTS, generator=random)[:TOP_K]] = 1
    router = torch.zeros(EXPERTS, HIDDEN)
    router[:, :EXPERTS] = 128 * torch.eye(EXPERTS)

    def sparse(rows, columns, count, scale):
        matrix = torch.zeros(EXPERTS, rows, columns)
        for row in matrix.view(-1, columns):
            places = torch.randperm(columns, generator=random)[:count]
            row[places] = scale * (2.0 * torch.randint(0, 2, (count,), generator=random) - 1)
        return matrix.bfloat16()

    gate = sparse(INNER, HIDDEN, 2, 128)
    return x.bfloat16(), router, gate, sparse(INNER, HIDDEN, 3, 1), sparse(HIDDEN, INNER, 4, 1)


def random_layer(num_tokens):
    random = torch.Generator().manual_seed(4)

    def normal(*shape):
        return torch.randn(shape, generator=random) / shape[-1] ** 0.5

    experts = [normal(EXPERTS, INNER, HIDDEN), normal(EXPERTS, INNER, HIDDEN)]
    experts.append(normal(EXPERTS, HIDDEN, INNER))
    x = torch.randn((num_tokens, HIDDEN), generator=random).bfloat16()
    return x, 2 * normal(EXPERTS, HIDDEN), *[part.bfloat16() for part in experts]


@unittest.skipUnless(PROGRAM, "WIDEEP_MOE_LAYER is not set")
class MoeLayerTest(unittest.TestCase):
    def test_bits_are_the_engines_where_sums_are_exact(self):
        layer = exact_layer(48)
        expected = engine_output(*layer)
        self.assertGreater(expected.unique().numel(), 20)  # it is no constant
        for num_ranks in (1, 2, 4, 16):
            output = example_output(*layer, num_ranks)
            self.assertTrue(torch.equal(output, expected.bfloat16()), f"{num_ranks} ranks")

    def test_elsewhere_they_differ_by_rounding(self):
        layer = random_layer(64)
        expected = engine_output(*layer)
        for num_ranks in (1, 2, 4):
            output = example_output(*layer, num_ranks).float()
            # Rows pass four roundings to bfloat16, of 2^-9 each.
            error = ((output - expected).norm() / expected.norm()).item()
            self.assertLess(error, 4 * 2**-9)
            self.assertGreater(error, 0)


if __name__ == "__main__":
    unittest.main()
