# SPDX-License-Identifier: Apache-2.0
"""Trains the reference model from nothing: data, tokenizer, tokens, weights. Run it again to resume.

The learning rate warms up, stays, and falls to zero between --decay-at and --stop-at (clock times of today). The
checkpoint from before the fall, stable.pt, is kept: training can go on from it later with new times.

Processes with one thread each share weights, optimizer state and gradients in memory. Each computes the gradient of its
part of the batch and updates the parameters it owns; two barriers a step are all their communication. On a busy machine
that is several times faster than threads that meet after every matrix product.
"""

import argparse
import datetime
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import torch
import torch.multiprocessing as mp

import data
import optim
from model import Config, Model, TiedCrossEntropy, initialise
from separation import Separation

MTP_WEIGHT = 0.3
WARMUP = 100
SAVE_SECONDS = 240
LONG_LENGTH, LONG_TOKENS = 2048, 16384
# Keep freed memory and compiled kernels: a third of a step.
ENVIRONMENT = {"MALLOC_MMAP_THRESHOLD_": "33000000", "MALLOC_TRIM_THRESHOLD_": "8000000000",
               "ONEDNN_PRIMITIVE_CACHE_CAPACITY": "8192", "OMP_NUM_THREADS": "1",
               "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}


def parse():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path, required=True, help="downloads, text, tokens, checkpoints")
    parser.add_argument("--gsm8k", help="gsm8k_train.jsonl (MIT), optional")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--length", type=int, default=512, help="tokens of a sequence")
    parser.add_argument("--fall-length", type=int, default=512, help="the same while the learning rate falls")
    parser.add_argument("--tokens-per-step", type=int, default=8192)
    parser.add_argument("--muon-lr", type=float, default=5e-3)
    parser.add_argument("--adam-lr", type=float, default=3e-3)
    parser.add_argument("--balance", type=float, default=4e-3, help="step of the routers' bias")
    parser.add_argument("--separate", type=float, default=0.05, help="weight of the loss that keeps domains apart; 0: none")
    parser.add_argument("--decay-at", help="HH:MM, start of the fall of the learning rate")
    parser.add_argument("--stop-at", help="HH:MM, end of training")
    parser.add_argument("--long-every", type=int, default=0, help=f"one step in so many has sequences of {LONG_LENGTH}; 0: none")
    parser.add_argument("--long-share", type=float, default=0.15, help=f"last part of the fall, with sequences of {LONG_LENGTH}")
    parser.add_argument("--max-steps", type=int, default=10**9)
    parser.add_argument("--resume", default="last.pt", help="checkpoint in --work to start from; stable.pt to train on after a fall")
    return parser.parse_args()


def prepare(args):
    """Everything before the first step; parts that exist are kept."""
    here = Path(__file__).parent
    if not (args.work / "text").exists():
        extra = ["--gsm8k", args.gsm8k] if args.gsm8k else []
        subprocess.run([sys.executable, here / "fetch_data.py", "--work", args.work, *extra], check=True)
    if not (args.work / "tokenizer.json").exists():
        subprocess.run([sys.executable, here / "train_tokenizer.py", "--work", args.work], check=True)
    subprocess.run([sys.executable, here / "data.py", args.work], check=True)


def today_at(text):
    if not text:
        return None
    hour, minute = map(int, text.split(":"))
    return datetime.datetime.now().replace(hour=hour, minute=minute, second=0).timestamp()


class Schedule:
    """Progress through the fall of the learning rate: below 0 before it, 1 at its end."""

    def __init__(self, args):
        self.start, self.end, self.args = today_at(args.decay_at), today_at(args.stop_at), args

    def progress(self):
        if self.end is None or self.start is None:
            return -1.0
        return (time.time() - self.start) / (self.end - self.start)

    def rate(self, step):
        return min(1.0, (step + 1) / WARMUP) * min(1.0, max(0.02, 1.0 - self.progress()))

    def balance(self, step):
        """Balancing is strongest while the routers are still arbitrary, and ends with the learning rate."""
        return (3.0 if step < 5 * WARMUP else 1.0) * min(1.0, max(0.0, 1.0 - self.progress()))

    def length(self, step):
        every = self.args.long_every
        if self.progress() > 1.0 - self.args.long_share or (every and step % every == 0):
            return LONG_LENGTH
        return self.args.fall_length if self.progress() > 0.0 else self.args.length


class Shared:
    """What all processes see: made before they start, changed in place."""

    def __init__(self, args):
        self.model = Model(Config(), torch.bfloat16)
        initialise(self.model)
        self.model.share_memory()
        self.parameters = dict(self.model.named_parameters())
        self.optimizer = {n: [t.share_memory_() for t in optim.new_state(n, p)] for n, p in self.parameters.items()}
        self.grads = [{n: torch.zeros_like(p, requires_grad=False).share_memory_() for n, p in self.parameters.items()}
                      for _ in range(args.processes)]
        routers = self.model.routers()
        self.loads = torch.zeros(args.processes, len(routers), Config.n_routed_experts).share_memory_()
        self.separation = Separation(args.processes, len(routers) - 1, len(data.DOMAINS), Config.n_routed_experts)
        self.losses = torch.zeros(args.processes, 2).share_memory_()
        self.control = torch.zeros(3, dtype=torch.float64).share_memory_()   # rate, sequence length, go on
        self.barrier = mp.get_context("fork").Barrier(args.processes)
        self.position, self.step, self.tokens, self.falling = [0] * len(data.DOMAINS), 0, 0, False

    def load(self, path):
        state = torch.load(path, weights_only=True)
        self.model.load_state_dict(state["model"])
        for name, tensors in state["optimizer"].items():
            for mine, saved in zip(self.optimizer[name], tensors):
                mine.copy_(saved)
        self.position, self.step, self.tokens, self.falling = (state[k] for k in ("position", "step", "tokens", "falling"))
        print(f"resumed {path.name} at step {self.step}, {self.tokens / 1e6:.1f}M tokens", flush=True)

    def owners(self, processes):
        """{parameter name: process that updates it}, evenly by size."""
        sizes, owner = [0] * processes, {}
        for name, p in sorted(self.parameters.items(), key=lambda item: -item[1].numel()):
            owner[name] = sizes.index(min(sizes))
            sizes[owner[name]] += p.numel()
        return owner


def losses(model, batch, part):
    """Main loss on all, multi-token loss on a quarter: the first half of the even (part 0) or odd sequences."""
    ids, length = batch[:, :-2], batch.shape[1] - 2
    hidden, table = model.hidden(ids), model.embed_tokens.weight
    main = TiedCrossEntropy.apply(hidden.flatten(0, 1), table, batch[:, 1:-1].flatten())
    half, batch = length // 2, batch[part::2]
    ahead = model.mtp_hidden(hidden[part::2, :half], batch[:, 1:half + 1])
    return main, TiedCrossEntropy.apply(ahead.flatten(0, 1), table, batch[:, 2:half + 2].flatten())


class Worker:
    def __init__(self, rank, args, shared):
        self.rank, self.args, self.shared, self.model = rank, args, shared, shared.model
        self.streams = data.Streams(args.work)
        self.streams.position = list(shared.position)
        self.step, self.tokens = shared.step, shared.tokens
        self.owned = [n for n, owner in shared.owners(args.processes).items() if owner == rank]
        for name, p in shared.parameters.items():
            p.grad = shared.grads[rank][name]

    def backward(self, length):
        """Gradient of this process's part of the batch, left in shared memory."""
        per_step = LONG_TOKENS if length == LONG_LENGTH else self.args.tokens_per_step
        batch = self.streams.batch(max(1, per_step // (length * len(data.DOMAINS))), length)
        self.tokens += len(batch) * length
        for grad in self.shared.grads[self.rank].values():
            grad.zero_()
        main, ahead = losses(self.model, batch.chunk(self.args.processes)[self.rank], (self.rank + self.step) % 2)
        domains = [i % len(data.DOMAINS) for i in torch.arange(len(batch)).chunk(self.args.processes)[self.rank].tolist()]
        routers = list(self.model.routers().values())[:-1]   # the prediction layer sees part of the sequences
        apart = self.shared.separation.loss(routers, domains)
        (main + MTP_WEIGHT * ahead + self.args.separate * apart).backward()
        self.shared.separation.record(self.rank, routers, domains)
        self.shared.losses[self.rank] = torch.tensor([main.item(), ahead.item()])
        for i, router in enumerate(self.model.routers().values()):
            self.shared.loads[self.rank, i] = router.load()

    def update(self, rate):
        self.step += 1
        for name in self.owned:
            p, state = self.shared.parameters[name], self.shared.optimizer[name]
            grad = torch.stack([g[name] for g in self.shared.grads]).mean(0)
            if len(state) == 1:
                optim.muon_update(p, grad, *state, self.args.muon_lr * rate)
            else:
                scale = 1.0 if name == "embed_tokens.weight" else 0.3
                optim.adam_update(p, grad, *state, self.args.adam_lr * scale * rate, self.step)

    def run(self):
        while True:
            self.prepare_step()
            self.shared.barrier.wait()   # weights are final until the next barrier
            rate, length, go_on = self.shared.control.tolist()
            self.between_updates(go_on)
            if not go_on:
                return
            self.backward(int(length))
            self.shared.barrier.wait()   # gradients are final
            self.update(rate)
            self.after_update(rate)

    def prepare_step(self):
        pass

    def between_updates(self, go_on):
        pass

    def after_update(self, rate):
        pass


class Leader(Worker):
    """The first process: also decides, balances, reports and saves."""

    def __init__(self, rank, args, shared):
        super().__init__(rank, args, shared)
        self.schedule, self.falling = Schedule(args), shared.falling
        self.parent = os.getppid()   # when the launching process is gone, save and stop
        self.saved = self.reported = time.time()
        self.reported_tokens, self.sums, self.count = self.tokens, torch.zeros(2), 0

    def prepare_step(self):
        go_on = self.schedule.progress() < 1.0 and self.step < self.args.max_steps and os.getppid() == self.parent
        control = [self.schedule.rate(self.step), self.schedule.length(self.step), go_on]
        self.shared.control.copy_(torch.tensor(control, dtype=torch.float64))

    def between_updates(self, go_on):
        if self.schedule.progress() > 0.0 and not self.falling:
            self.save("stable.pt")   # the state from before the learning rate falls
            self.falling = True
        if not go_on:
            self.save("final.pt" if self.falling else "last.pt")
        elif time.time() - self.saved > SAVE_SECONDS:
            self.save("last.pt")
            self.saved = time.time()

    def after_update(self, rate):
        for load, router in zip(self.shared.loads.sum(0), self.model.routers().values()):
            router.balance(load, self.args.balance * self.schedule.balance(self.step))
        self.shared.separation.update()
        self.sums, self.count = self.sums + self.shared.losses.mean(0), self.count + 1
        if self.step % 20 == 0:
            self.report(rate)

    def report(self, rate):
        now, loads, (main, ahead) = time.time(), self.shared.loads.sum(0), (self.sums / self.count).tolist()
        line = {"step": self.step, "tokens": self.tokens, "loss": round(main, 4), "mtp": round(ahead, 4), "rate": round(rate, 3),
                "tok_s": round((self.tokens - self.reported_tokens) / (now - self.reported)),
                "apart": [round(d, 2) for d in self.shared.separation.smallest()],
                "worst_load": round((loads.amax(1) / loads.mean(1)).max().item(), 2), "time": time.strftime("%H:%M:%S")}
        print(json.dumps(line), flush=True)
        with (self.args.work / "log.jsonl").open("a") as log:
            log.write(json.dumps(line) + "\n")
        self.reported, self.reported_tokens, self.sums, self.count = now, self.tokens, torch.zeros(2), 0

    def save(self, name):
        state = {"model": self.model.state_dict(), "optimizer": self.shared.optimizer, "position": self.streams.position,
                 "step": self.step, "tokens": self.tokens, "falling": self.falling}
        part = self.args.work / (name + ".part")
        torch.save(state, part)
        os.replace(part, self.args.work / name)


def work(rank, args, shared):
    (Leader if rank == 0 else Worker)(rank, args, shared).run()


def main():
    args = parse()
    if any(os.environ.get(name) != value for name, value in ENVIRONMENT.items()):
        os.execve(sys.executable, [sys.executable, *sys.argv], os.environ | ENVIRONMENT)
    args.work.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    prepare(args)
    shared = Shared(args)
    if (args.work / args.resume).exists():
        shared.load(args.work / args.resume)
    mp.start_processes(work, (args, shared), nprocs=args.processes, start_method="fork")


if __name__ == "__main__":
    main()
