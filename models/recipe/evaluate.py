# SPDX-License-Identifier: Apache-2.0
"""Measures an exported model on held-out text: bits per byte, expert shares per domain, and greedy continuations."""

import argparse
import json
import random
from itertools import combinations
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors import safe_open
from safetensors.torch import load_file
from tokenizers import Tokenizer

import data
from model import Config, Model
from sources import DOMAINS

LENGTH, SEQUENCES = 512, 24   # per domain
EP = 8                        # ranks of consecutive experts, for the imbalance
PROMPTS = {
    "prose": "And the king said to his servants,",
    "manual": "DESCRIPTION\nThis command prints the",
    "german": "Wählen Sie im Menü",
    "french": "Ouvre une boîte de dialogue",
    "python": "def read_file(self, path):\n",
    "c": "static int\nparse_header(const char *buf, size_t len)\n{\n",
    "math": "Question: Anna has 12 apples. At a shop Anna buys 7 more and then gives 5 to a friend. How many apples does Anna have now?\nAnswer:",
    "translate": "English: Select the file to open.\nGerman:",
}


def load(folder):
    """The exported model in float32, experts stacked again."""
    model, tensors = Model(Config()), load_file(folder / "model.safetensors")
    state = {}
    for name in model.state_dict():
        if name.endswith(("experts.gate_up_proj", "experts.down_proj")):
            parts = ("gate_proj", "up_proj") if name.endswith("gate_up_proj") else ("down_proj",)
            prefix = "model." + name.rsplit(".", 1)[0]
            rows = [torch.stack([tensors[f"{prefix}.{e}.{part}.weight"] for part in parts]).squeeze(0) for e in range(Config.n_routed_experts)]
            state[name] = torch.stack(rows)
        else:
            state[name] = tensors["model." + name]
    model.load_state_dict({n: t.float() for n, t in state.items()})
    return model.eval()


def sequences(texts, tokenizer):
    """[SEQUENCES, LENGTH + 2] token ids (documents one after the other) and the bytes of tokens 1 to LENGTH."""
    stream, sizes = [], []
    random.Random(0).shuffle(texts)
    for text in texts:
        encoding = tokenizer.encode(text)
        stream += [*encoding.ids, data.EOS_ID]
        ends = [len(text[:end].encode()) for _, end in encoding.offsets]
        sizes += [max(0, b - a) for a, b in zip([0, *ends], ends)] + [0]
        if len(stream) > SEQUENCES * LENGTH + 2:
            break
    count = min(SEQUENCES, (len(stream) - 2) // LENGTH)
    cut = lambda values: torch.tensor([values[i * LENGTH:i * LENGTH + LENGTH + 2] for i in range(count)])
    return cut(stream), cut(sizes)[:, 1:-1].sum().item()


@torch.no_grad()
def measure(model, ids, size):
    """Bits per byte, agreement of the prediction layer's greedy token with the text, loads per MoE layer."""
    nats, hits, loads = 0.0, 0, {layer: torch.zeros(Config.n_routed_experts) for layer in model.routers()}
    for row in ids.split(4):
        hidden = model.hidden(row[:, :-2])
        nats += F.cross_entropy(model.logits(hidden).flatten(0, 1), row[:, 1:-1].flatten(), reduction="sum").item()
        ahead = model.logits(model.mtp_hidden(hidden, row[:, 1:-1])).argmax(-1)
        hits += (ahead == model_choice(model, row)).sum().item()
        for layer, router in model.routers().items():
            loads[layer] += router.load()
    return nats / 0.6931471805599453 / size, hits / (ids.numel() - 2 * len(ids)), loads


def model_choice(model, row):
    """What the main model itself would say one token later: the draft is accepted when both agree."""
    loads = {layer: router.last_choice for layer, router in model.routers().items()}
    choice = model.logits(model.hidden(row[:, 1:-1])).argmax(-1)
    for layer, router in model.routers().items():
        router.last_choice = loads[layer]
    return choice


def total_variation(a, b):
    return 0.5 * (a / a.sum() - b / b.sum()).abs().sum().item()


def imbalance(load):
    """Load of the busiest of EP ranks over the mean, minus one."""
    ranks = load.view(EP, -1).sum(1)
    return (ranks.max() / ranks.mean() - 1).item()


def routing(loads):
    """Per layer: the smallest and mean distance between two domains, and each domain's imbalance."""
    result = {}
    for layer in loads[DOMAINS[0]]:
        distances = [total_variation(loads[a][layer], loads[b][layer]) for a, b in combinations(DOMAINS, 2)]
        result[layer] = {"tv_min": min(distances), "tv_mean": sum(distances) / len(distances),
                         **{d: imbalance(loads[d][layer]) for d in DOMAINS},
                         "mixed": imbalance(sum(loads[d][layer] / loads[d][layer].sum() for d in DOMAINS))}
    return result


@torch.no_grad()
def continuation(model, tokenizer, prompt, count=64):
    ids = tokenizer.encode(prompt).ids
    for _ in range(count):
        ids.append(model.logits(model.hidden(torch.tensor([ids]))[:, -1]).argmax().item())
        if ids[-1] == data.EOS_ID:
            break
    return tokenizer.decode(ids)


def report(bits, accepted, layers, samples):
    """The tables of the model card, in Markdown."""
    rows = ["| domain | bits per byte | draft accepted |", "|---|---|---|"]
    rows += [f"| {d} | {bits[d]:.3f} | {accepted[d]:.0%} |" for d in DOMAINS]
    rows += ["", "| layer | TV min | TV mean | " + " | ".join(DOMAINS) + " | mixed |", "|---" * (len(DOMAINS) + 4) + "|"]
    rows += [f"| {layer} | " + " | ".join(f"{value:.2f}" for value in row.values()) + " |" for layer, row in layers.items()]
    return "\n".join(rows + [f"\n**{d}**\n```\n{samples[d]}\n```" for d in DOMAINS])


def card(folder, text):
    """The model card: card.md with what the weights' file knows about itself, then the results."""
    weights = folder / "model.safetensors"
    with safe_open(weights, "pt") as file:
        known = file.metadata()
    millions = lambda name: f"{int(known.get(name, 0)) / 1e6:.1f} million"
    facts = {"tokens": millions("tokens"), "steps": known["steps"], "prediction_tokens": millions("prediction_tokens"),
             "megabytes": round(weights.stat().st_size / 1e6)}
    head = (Path(__file__).parent / "card.md").read_text()
    for name, value in facts.items():
        head = head.replace("{" + name + "}", str(value))
    (folder / "README.md").write_text(head + text + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path, required=True, help="folder of train.py, for the held-out text")
    parser.add_argument("--model", type=Path, required=True, help="folder of export.py")
    parser.add_argument("--json", type=Path, help="also write the numbers here")
    parser.add_argument("--card", action="store_true", help="also write the model card into the folder")
    args = parser.parse_args()
    torch.set_num_threads(1)
    tokenizer, model = Tokenizer.from_file(str(args.model / "tokenizer.json")), load(args.model)
    results = {d: measure(model, *sequences(data.load_texts(args.work, d, "heldout"), tokenizer)) for d in DOMAINS}
    bits, accepted = {d: r[0] for d, r in results.items()}, {d: r[1] for d, r in results.items()}
    layers = routing({d: r[2] for d, r in results.items()})
    samples = {d: continuation(model, tokenizer, prompt) for d, prompt in PROMPTS.items()}
    text = report(bits, accepted, layers, samples)
    print(text)
    if args.card:
        card(args.model, text)
    if args.json:
        args.json.write_text(json.dumps({"bits_per_byte": bits, "draft_accepted": accepted, "routing": layers, "samples": samples}, indent=2, ensure_ascii=False))


if __name__ == "__main__":
    main()
