# SPDX-License-Identifier: Apache-2.0
"""Trains the prediction layer of an exported model further, and nothing else: what the model itself says stays the same
bit for bit.

A draft is accepted if it is the token that the main model then chooses. So the layer learns the main model's distribution
of the next token, not the text's.
"""

import argparse
import json
import os
import sys
import time
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import load_file
from tokenizers import Tokenizer

import data
import evaluate
import export
import optim
from model import Config, Model
from train import ENVIRONMENT


def parse():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path, required=True, help="folder of train.py, for the text")
    parser.add_argument("--model", type=Path, required=True, help="folder of export.py")
    parser.add_argument("--out", type=Path, required=True, help="folder for the model with the trained layer")
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--length", type=int, default=512, help="tokens of a sequence")
    parser.add_argument("--sequences", type=int, default=1, help="of each domain in a step")
    parser.add_argument("--muon-lr", type=float, default=2e-3)
    parser.add_argument("--adam-lr", type=float, default=5e-4)
    parser.add_argument("--balance", type=float, default=1e-3, help="step of the router's bias")
    return parser.parse_args()


class Distillation(torch.autograd.Function):
    """Mean cross-entropy of hidden @ table.T against softmax(target @ table.T). The table is constant. Logits exist one
    chunk at a time, and the gradient is computed on the way."""

    CHUNK = 512

    @staticmethod
    def forward(ctx, hidden, target, table):
        grad, loss = torch.empty_like(hidden), 0.0
        for a in range(0, len(hidden), Distillation.CHUNK):
            rows = slice(a, a + Distillation.CHUNK)
            wanted = torch.mm(target[rows], table.t()).float().softmax(-1)
            said = torch.mm(hidden[rows], table.t()).float().log_softmax(-1)
            loss -= (wanted * said).sum().item()
            grad[rows] = torch.mm((said.exp_() - wanted).to(hidden.dtype), table)
        ctx.save_for_backward(grad / len(hidden))
        return torch.tensor(loss / len(hidden))

    @staticmethod
    def backward(ctx, above):
        return ctx.saved_tensors[0] * above, None, None


class Trainer:
    def __init__(self, args):
        self.args, self.layer = args, len(Model(Config()).layers) - 1
        self.model = Model(Config(), torch.bfloat16)
        self.model.load_state_dict(evaluate.load(args.model).state_dict())
        self.model.requires_grad_(False)
        self.own = dict(self.model.layers[-1].named_parameters())
        for p in self.own.values():
            p.requires_grad_(True)
        self.state = {n: optim.new_state(n, p) for n, p in self.own.items()}
        self.streams, self.step = data.Streams(args.work), 0
        self.streams.position = [len(tokens) // 2 for tokens in self.streams.tokens]

    def loss(self):
        batch = self.streams.batch(self.args.sequences, self.args.length)
        with torch.no_grad():
            hidden = self.model.hidden(batch[:, :-2])
            table = self.model.embed_tokens.weight.to(hidden.dtype)
        ahead = self.model.mtp_hidden(hidden[:, :-1], batch[:, 1:-2])
        return Distillation.apply(ahead.flatten(0, 1), hidden[:, 1:].flatten(0, 1), table)

    def update(self, rate):
        self.step += 1
        for name, p in self.own.items():
            state = self.state[name]
            if len(state) == 1:
                optim.muon_update(p, p.grad, *state, self.args.muon_lr * rate)
            else:
                optim.adam_update(p, p.grad, *state, self.args.adam_lr * rate, self.step)
            p.grad = None
        router = self.model.layers[-1].mlp.gate
        router.balance(router.load(), self.args.balance * rate)

    def run(self):
        begin, sums, count = time.time(), 0.0, 0
        while (progress := (time.time() - begin) / (60 * self.args.minutes)) < 1.0:
            loss = self.loss()
            loss.backward()
            self.update(min(1.0, (self.step + 1) / 20) * max(0.02, 1.0 - progress))
            sums, count = sums + loss.item(), count + 1
            if self.step % 20 == 0:
                line = {"step": self.step, "tokens": self.tokens(), "loss": round(sums / count, 4), "minutes": round((time.time() - begin) / 60, 1)}
                print(json.dumps(line), flush=True)
                sums, count = 0.0, 0

    def tokens(self):
        return self.step * self.args.sequences * len(data.DOMAINS) * self.args.length


def check_the_rest(before, after, layer):
    """Every other tensor is what it was."""
    assert set(before) == set(after)
    for name, tensor in before.items():
        if not name.startswith(f"model.layers.{layer}."):
            assert torch.equal(tensor, after[name]), f"{name} has changed"


def accepted(folder, args):
    """Share of the drafts that are accepted, by domain."""
    tokenizer, model = Tokenizer.from_file(str(folder / "tokenizer.json")), evaluate.load(folder)
    texts = {d: data.load_texts(args.work, d, "heldout") for d in data.DOMAINS}
    return {d: round(evaluate.measure(model, *evaluate.sequences(texts[d], tokenizer))[1], 3) for d in data.DOMAINS}


def main():
    args = parse()
    if any(os.environ.get(name) != value for name, value in ENVIRONMENT.items()):
        os.execve(sys.executable, [sys.executable, *sys.argv], os.environ | ENVIRONMENT)
    torch.set_num_threads(1)
    data.tokenize(args.work)
    print("accepted before", json.dumps(accepted(args.model, args)), flush=True)
    trainer = Trainer(args)
    trainer.run()
    with safe_open(args.model / "model.safetensors", "pt") as file:
        known = {k: v for k, v in file.metadata().items() if k != "format"}
    known["prediction_tokens"] = str(int(known.get("prediction_tokens", 0)) + trainer.tokens())
    before = load_file(args.model / "model.safetensors")
    after = export.hf_tensors(trainer.model.state_dict())
    check_the_rest(before, after, trainer.layer)
    export.write_folder(trainer.model.state_dict(), known, args.model / "tokenizer.json", args.out)
    print("accepted after", json.dumps(accepted(args.out, args)), flush=True)


if __name__ == "__main__":
    main()
