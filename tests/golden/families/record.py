# SPDX-License-Identifier: Apache-2.0
"""Runs a model of a family, records what it chooses, and draws prompts without close choices.

What is compared when a router or an indexer chooses is read where torch.topk is called: so it needs
no knowledge of the family.
"""

import contextlib
import math

import torch
from safetensors.torch import save_file

from families.family import build, load

# Smallest distance, as a share of the scores' size, between what is chosen and what is not (and, of
# routers, between neighbours among the chosen): some thousand times float32's rounding.
MARGIN = 2e-3
LENGTHS = (3, 20, 66)
BF16_LENGTH = 20  # longer prompts nearly always have a token that bfloat16 sends to other experts
FUSED_LENGTHS = (2, 4, 9)  # the same arithmetic from another layout
CANDIDATES = 16
ATTEMPTS = 200
# Ends of the names of routers' classes.
ROUTERS = (
    "TopKRouter",
    "TopkRouter",
    "TokenChoiceRouter",
    "Llama4Router",
    "V1Gate",
    "Gemma4TextRouter",
)


def distance(scores, k):
    """Per row of scores [rows, n]: how far the first k are from the rest, by their size."""
    ranked = scores.sort(dim=-1, descending=True)[0]
    if k >= ranked.shape[1]:
        return torch.full(ranked.shape[:1], math.inf)
    masked = torch.finfo(torch.float32).min / 2
    inside, outside = ranked[:, k - 1], ranked[:, k]
    seen = ranked.masked_fill(ranked < masked, 0.0)
    size = torch.where((seen >= 0).all(-1), inside.abs(), seen.abs().amax(-1))
    gap = (inside - outside) / size.clamp_min(1e-12)
    return torch.where(outside < masked, math.inf, gap)


class Recorder:
    """The choices of one forward pass over ids [batch, T]."""

    def __init__(self, shape):
        self.shape = shape
        self.calls = []
        self.experts = []  # per MoE layer [batch, T, k], by descending score
        self.margin = torch.full(shape, math.inf)

    def sparse_mixer(self, module, _, output):
        """Without topk: one expert after the other, with the logits near to each."""
        scores, k = output[0].detach().float(), output[2].shape[1]
        left = scores
        for chosen in output[2].T:
            largest = scores.gather(1, chosen[:, None])
            apart = (largest - scores) / scores.abs().maximum(largest)
            to_edge = (apart - 2 * module.router_jitter_noise).abs()
            self.close(to_edge.masked_fill(left.isinf(), math.inf).amin(-1))
            left = left.scatter(1, chosen[:, None], -math.inf)
        self.calls.append((scores, k))
        self.router(module, _, output)

    def router_without_choice(self, module, _, output):
        self.router(module, _, ())

    def router(self, module, _, output):
        scores, k = next(call for call in reversed(self.calls) if call[0].dim() == 2)
        order = scores.sort(dim=-1, descending=True, stable=True)[1][:, :k]
        if len(output) == 3:
            same = (output[2].sort(dim=-1)[0] == order.sort(dim=-1)[0]).all(-1)
            tied = distance(scores, k) == 0  # bfloat16 logits are often equal
            assert (same | tied).all(), "experts are not those with the largest scores"
            order = torch.where(same[:, None], order, output[2])
        self.experts.append(order.unflatten(0, self.shape))
        for called, count in self.calls:
            if called.dim() == 2:
                self.close(distance(called, count))
        for inner in range(1, k):
            self.close(distance(scores, inner))
        self.calls.clear()

    def table(self, module, _, output):
        self.experts.append(output[2].unflatten(0, self.shape))

    def indexer(self, module, inputs, output):
        scores, k = self.calls[-1]
        if scores.dim() == 3:
            self.close(distance(scores.flatten(0, 1), k))
        else:  # for each head, with infinite scores of what is always chosen
            largest = scores.masked_fill(scores.isinf(), 0.0).abs().amax(-1, keepdim=True)
            certain = scores.isposinf().sum(-1) >= k
            scores = torch.where(scores.isposinf(), largest, scores)
            margins = distance(scores.flatten(0, 2), k).unflatten(0, scores.shape[:3])
            margins = margins.masked_fill(certain, math.inf)
            self.close(margins.amin(1).flatten())
        self.calls.clear()

    def close(self, margin):
        self.margin = torch.minimum(self.margin, margin.unflatten(0, self.shape))


@contextlib.contextmanager
def watched(calls):
    """Notes the scores and k of every call of topk."""
    plain, method = torch.topk, torch.Tensor.topk

    def noted(scores, k, *arguments, **named):
        calls.append((scores.detach().float(), k))
        return method(scores, k, *arguments, **named)

    torch.topk, torch.Tensor.topk = noted, noted
    try:
        yield
    finally:
        torch.topk, torch.Tensor.topk = plain, method


@torch.no_grad()
def run(model, ids):
    """Logits [batch, T, vocab] and the Recorder."""
    recorder = Recorder(ids.shape)
    hooks = []
    for module in model.modules():
        name = type(module).__name__
        if name == "PhimoeTopKRouter":
            hooks.append(module.register_forward_hook(recorder.sparse_mixer))
        elif name == "DbrxFFN":
            hooks.append(module.register_forward_hook(recorder.router_without_choice))
        elif name.endswith(ROUTERS):
            hooks.append(module.register_forward_hook(recorder.router))
        elif name.endswith("HashRouter"):
            hooks.append(module.register_forward_hook(recorder.table))
        elif name.endswith("Indexer"):
            hooks.append(module.register_forward_hook(recorder.indexer))
    with watched(recorder.calls):
        logits = model(ids, use_cache=False).logits
    for hook in hooks:
        hook.remove()
    return logits, recorder


def same_sets(a, b):
    """[batch, T]: the same experts in every layer; a model without experts has none that differ."""
    if not a:
        return torch.ones(1, 1, dtype=torch.bool)
    same = [(x.sort(-1)[0] == y.sort(-1)[0]).all(-1) for x, y in zip(a, b)]
    return torch.stack(same).all(0)


def first_close(models, ids, both):
    """Per prompt of ids [batch, T]: the first position that hangs on a close choice, else T."""
    recorder = run(models[0], ids)[1]
    good = recorder.margin >= MARGIN
    if both:
        good &= same_sets(recorder.experts, run(models[1], ids)[1].experts)
    return torch.where(good.all(1), ids.shape[1], (~good).int().argmax(1))


def draw_prompt(models, length, both, generator):
    """Random token ids [length] without close choices, of which bfloat16 too makes the same if
    `both`: the first close position and all after it are drawn again until there is none."""
    vocab = models[0].config.vocab_size
    prompt, begin = torch.empty(length, dtype=torch.long), 0
    for _ in range(ATTEMPTS):
        drawn = prompt.repeat(CANDIDATES, 1)
        drawn[:, begin:] = torch.randint(vocab, (CANDIDATES, length - begin), generator=generator)
        close = first_close(models, drawn, both)
        best = int(close.argmax())
        if close[best] == length:
            return drawn[best]
        if close[best] > begin:
            prompt, begin = drawn[best], int(close[best])
        else:
            begin //= 2
    raise RuntimeError("no prompt without close choices: other weights are needed")


def golden(models, prompt):
    """The recorded tensors of one prompt, without their prefix."""
    logits, routed = run(models[0], prompt[None])
    assert routed.margin.min() >= MARGIN / 2 and logits.isfinite().all()
    chosen = [layer[0] for layer in routed.experts]
    no_experts = torch.empty(len(prompt), 0, 1)
    tensors = {
        "ids": prompt.to(torch.int32),
        "logits_f32": logits[0].float().contiguous(),
        "top_k": (torch.stack(chosen, 1) if chosen else no_experts).to(torch.int32),
    }
    if len(prompt) <= BF16_LENGTH:
        logits, bf16_routed = run(models[1], prompt[None])
        assert same_sets(routed.experts, bf16_routed.experts).all() and logits.isfinite().all()
        tensors["logits_bf16"] = logits[0].float().contiguous()
    return tensors


def check_weights(family, made, loaded):
    """Nothing is lost on the way through the files; transformers only warns of what is missing."""
    tensors = loaded.state_dict()
    assert tensors.keys() == made.state_dict().keys()
    for name, tensor in made.state_dict().items():
        if not name.endswith(family.rounded):
            assert torch.equal(tensor, tensors[name]), f"{name} differs after loading"


def make(family, name, values, seed, out, lengths=LENGTHS):
    """Writes a model with its answers, other weights if some are no good. Returns its numbers."""
    directory = out / name
    directory.mkdir(parents=True, exist_ok=True)
    for attempt in range(5):
        made = build(family, dict(values), seed + 1000 * attempt, directory)
        models = [load(family, directory, dtype) for dtype in (torch.float32, torch.bfloat16)]
        check_weights(family, made, models[0])
        generator = torch.Generator().manual_seed(seed)
        try:
            recorded = {}
            for p, length in enumerate(lengths):
                prompt = draw_prompt(models, length, length <= BF16_LENGTH, generator)
                tensors = golden(models, prompt)
                recorded |= {f"p{p}.{key}": value for key, value in tensors.items()}
            break
        except RuntimeError as error:
            if attempt == 4:
                raise RuntimeError(f"{name}: {error}") from error
    save_file(recorded, directory / "golden.safetensors")
    logits = recorded[f"p{len(lengths) - 1}.logits_f32"]
    error = (recorded["p1.logits_bf16"] - recorded["p1.logits_f32"]).abs().max()
    size = sum(f.stat().st_size for f in directory.iterdir()) / 1024
    print(
        f"{name:28} {size:4.0f} KiB  logits std {logits.std():.2f} max {logits.abs().max():.2f}  "
        f"bf16 off by {error:.3f}",
        flush=True,
    )
