# SPDX-License-Identifier: Apache-2.0
"""A MoE layer of torch whose experts are spread over ranks: threads on this CPU, or processes on GPUs
with `torchrun --nproc-per-node 8 examples/moe_layer.py`."""

import os
import threading

import torch
import torch.nn.functional as F
from wideep.communicator import TensorGroup

EXPERTS, TOP_K, HIDDEN, INNER, TOKENS = 16, 4, 256, 128, 24


class MoeLayer:
    def __init__(self, communicator, router, gate, up, down):
        """router: [experts, hidden] float32; of this rank's experts: gate, up [n, inner, hidden] and
        down [n, hidden, inner] bfloat16. Expert e is in slot e."""
        self.communicator, self.router = communicator, router
        self.gate, self.up, self.down = gate, up, down

    def expert(self, slot, x):
        return (F.silu(x @ self.gate[slot].T) * (x @ self.up[slot].T)) @ self.down[slot].T

    def forward(self, x):  # [tokens, hidden] bfloat16 -> the same
        scores = torch.softmax(x.float() @ self.router.T, dim=-1)
        weights, experts = scores.topk(TOP_K, dim=-1)
        weights = weights / weights.sum(dim=-1, keepdim=True)
        received = self.communicator.dispatch(x, experts.int(), weights)
        for slot, (begin, end) in enumerate(received.ranges()):
            received.rows[begin:end] = self.expert(slot, received.rows[begin:end])
        return self.communicator.combine(received.rows)


def run_rank(group, rank, num_ranks, outputs):
    same = torch.Generator().manual_seed(0)  # on all ranks, which keep their parts
    shapes = (EXPERTS, INNER, HIDDEN), (EXPERTS, INNER, HIDDEN), (EXPERTS, HIDDEN, INNER)
    router = torch.randn(EXPERTS, HIDDEN, generator=same) / 8
    experts = [(torch.randn(shape, generator=same) / 16).bfloat16() for shape in shapes]
    x = torch.randn(num_ranks, TOKENS, HIDDEN, generator=same).bfloat16()[rank]
    mine = [part.chunk(num_ranks)[rank].to(group.device) for part in experts]
    layer = MoeLayer(group.join(rank), router.to(group.device), *mine)
    outputs[rank] = layer.forward(x.to(group.device))
    layer.communicator.status()
    checksum = outputs[rank].double().sum().item()
    print(f"rank {rank}: {TOKENS} tokens, checksum {checksum:.6f}\n", end="")  # lines of threads stay whole


if __name__ == "__main__":
    if "RANK" in os.environ:  # torchrun
        rank, num_ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        device = f"cuda:{rank % max(1, torch.cuda.device_count())}"
        group = TensorGroup(num_ranks, EXPERTS // num_ranks, TOP_K, TOKENS, HIDDEN, device=device,
                            name="moe layer " + os.environ["MASTER_PORT"])
        run_rank(group, rank, num_ranks, {})
    else:
        group, outputs = TensorGroup(2, EXPERTS // 2, TOP_K, TOKENS, HIDDEN, device="cpu"), {}
        for rank in range(2):
            threading.Thread(target=run_rank, args=(group, rank, 2, outputs)).start()
