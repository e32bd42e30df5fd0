#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes tests/golden/models/, family_models/ and prediction_models/: tiny random models with
transformers' outputs.

Usage: python3 make_models.py [--out DIR] [--only NAME] [--random COUNT [--seed SEED]]

Needs torch, transformers and safetensors (versions in README.md). Runs on the CPU, one thread, with
fixed seeds. README.md says what each file and tensor means.
"""

import argparse
import json
import math
import pathlib
import random
import shutil
import tempfile
import warnings

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, DeepseekV3Config, Qwen3MoeConfig
from transformers.utils import logging as transformers_logging

from families import all_families, prediction, record

PROMPT_LENGTHS = (5, 17, 40)

# A choice of experts that hangs on less than this would test rounding, not routing. The float32
# margin also leaves room for the rounding of a bfloat16 engine that adds in another order.
MARGIN = {"deepseek_v3": 0.012, "qwen3_moe": 0.05}
BF16_MARGIN = {"deepseek_v3": 0.006, "qwen3_moe": 0.02}
ORDER_MARGIN = 1e-3  # between neighbours inside the top k, whose order top_k records


def deepseek(**changes):
    values = dict(
        vocab_size=96,
        hidden_size=32,
        intermediate_size=64,
        moe_intermediate_size=24,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=4,
        n_shared_experts=1,
        n_routed_experts=8,
        num_experts_per_tok=2,
        n_group=1,
        topk_group=1,
        first_k_dense_replace=1,
        norm_topk_prob=True,
        routed_scaling_factor=1.0,
        q_lora_rank=None,
        kv_lora_rank=16,
        qk_nope_head_dim=16,
        qk_rope_head_dim=8,
        v_head_dim=16,
        max_position_embeddings=128,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
        rope_interleave=True,
        num_mtp_layers=0,
        bos_token_id=0,
        eos_token_id=1,
    )
    return DeepseekV3Config(**{**values, **changes})


def qwen3(**changes):
    values = dict(
        vocab_size=96,
        hidden_size=32,
        intermediate_size=64,
        moe_intermediate_size=24,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        num_experts=8,
        num_experts_per_tok=2,
        norm_topk_prob=True,
        max_position_embeddings=128,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
        bos_token_id=0,
        eos_token_id=1,
    )
    return Qwen3MoeConfig(**{**values, **changes})


def model_configs():
    yarn_trained_24 = {
        "rope_type": "yarn",
        "rope_theta": 1000.0,
        "factor": 4.0,
        "original_max_position_embeddings": 24,
    }
    return {
        # Unfactored query, no expert groups, no shared expert, MoE from layer 0 on.
        "deepseek_plain": deepseek(n_shared_experts=0, first_k_dense_replace=0),
        # As DeepSeek-V3 in small: factored query, best 2 of 4 groups, top 4 of 16, one shared expert.
        "deepseek_groups": deepseek(
            num_hidden_layers=3,
            q_lora_rank=24,
            n_routed_experts=16,
            num_experts_per_tok=4,
            n_group=4,
            topk_group=2,
            moe_intermediate_size=16,
        ),
        # YaRN with prompts beyond the trained length, tied embeddings, two shared experts.
        "deepseek_yarn": deepseek(
            q_lora_rank=24,
            qk_rope_head_dim=16,
            n_shared_experts=2,
            tie_word_embeddings=True,
            max_position_embeddings=96,
            rope_parameters={
                **yarn_trained_24,
                "beta_fast": 32.0,
                "beta_slow": 1.0,
                "mscale": 1.0,
                "mscale_all_dim": 1.0,
            },
        ),
        # Weights not normalised but scaled, half-split rotary, sizes off the vector widths, an
        # epsilon that the inner (latent) norms do not use, and mscale != mscale_all_dim.
        "deepseek_odd": deepseek(
            vocab_size=97,
            hidden_size=44,
            intermediate_size=52,
            moe_intermediate_size=20,
            num_attention_heads=3,
            num_key_value_heads=3,
            q_lora_rank=18,
            kv_lora_rank=20,
            qk_nope_head_dim=20,
            qk_rope_head_dim=12,
            v_head_dim=14,
            n_routed_experts=10,
            num_experts_per_tok=3,
            n_group=2,
            topk_group=1,
            norm_topk_prob=False,
            routed_scaling_factor=2.5,
            rope_interleave=False,
            rms_norm_eps=1e-3,
            max_position_embeddings=96,
            rope_parameters={**yarn_trained_24, "mscale": 0.8, "mscale_all_dim": 0.5},
        ),
        # Grouped queries, renormalised weights: as the published Qwen3-MoE models.
        "qwen3_gqa": qwen3(num_hidden_layers=3),
        # One KV head, weights not renormalised, tied embeddings, a dense layer, linear scaling.
        "qwen3_mqa": qwen3(
            num_hidden_layers=4,
            num_key_value_heads=1,
            norm_topk_prob=False,
            tie_word_embeddings=True,
            decoder_sparse_step=2,
            rope_parameters={"rope_type": "linear", "rope_theta": 10000.0, "factor": 2.0},
        ),
        # As many KV heads as heads, heads wider than hidden/heads, YaRN with its default attention
        # factor and an unrounded correction range, top 3 of 12, layer 0 dense by list.
        "qwen3_yarn": qwen3(
            vocab_size=97,
            hidden_size=36,
            num_attention_heads=3,
            num_key_value_heads=3,
            head_dim=20,
            moe_intermediate_size=20,
            num_experts=12,
            num_experts_per_tok=3,
            mlp_only_layers=[0],
            rms_norm_eps=1e-5,
            max_position_embeddings=96,
            rope_parameters={**yarn_trained_24, "truncate": False},
        ),
    }


def draw_weight(name, shape, generator):
    """Weights with which every part of the network shows in logits of order 1."""
    normal = torch.randn(shape, generator=generator)
    if name.endswith("e_score_correction_bias"):
        # Positive, so that every selection score is (README.md, "Masked groups").
        return 0.02 + 0.4 * torch.rand(shape, generator=generator)
    if "norm" in name:
        return 1.0 + 0.2 * normal
    if "embed_tokens" in name:
        return 0.4 * normal
    if name.endswith("mlp.gate.weight"):
        return normal * (2.0 / math.sqrt(shape[-1]))
    gain = 2.0 if "down_proj" in name or "q_" in name else 1.2
    return normal * (gain / math.sqrt(max(1, shape[-1])))


def fill_weights(model, seed):
    """Draws every weight and rounds it to bfloat16, except for the float32 selection bias."""
    generator = torch.Generator().manual_seed(seed)
    tensors = dict(model.named_parameters())
    tensors |= {n: b for n, b in model.named_buffers() if n.endswith("e_score_correction_bias")}
    for name, tensor in sorted(tensors.items()):
        with torch.no_grad():
            drawn = draw_weight(name, tensor.shape, generator)
            tensor.copy_(drawn if name.endswith("bias") else drawn.to(torch.bfloat16))


def write_checkpoint(model, directory):
    """model.safetensors in the tensor names and dtypes of published checkpoints."""
    with tempfile.TemporaryDirectory() as saved:
        model.save_pretrained(saved)  # splits the stacked experts into one matrix per expert
        tensors = load_file(f"{saved}/model.safetensors")
    assert not any("gate_up_proj" in name for name in tensors), "experts are still stacked"
    tensors = {
        name: tensor if name.endswith("e_score_correction_bias") else tensor.to(torch.bfloat16)
        for name, tensor in tensors.items()
        if tensor.numel() > 0  # no shared expert: transformers keeps empty matrices, files do not
    }
    save_file(tensors, directory / "model.safetensors", metadata={"format": "pt"})


def write_config(config, directory):
    """config.json as transformers writes it, with the classic rope keys beside rope_parameters."""
    config.dtype = torch.bfloat16
    values = json.loads(config.to_json_string(use_diff=False))
    values = {k: v for k, v in values.items() if k in kept_keys(config)}
    rope = dict(values["rope_parameters"])
    values["rope_theta"] = rope.pop("rope_theta")
    values["rope_scaling"] = None if rope["rope_type"] == "default" else rope
    if "num_local_experts" in values:  # how transformers 5 calls Qwen3's num_experts
        values["num_experts"] = values["num_local_experts"]
    text = json.dumps(values, indent=2, sort_keys=True) + "\n"
    (directory / "config.json").write_text(text)


def kept_keys(config):
    """The keys that describe the model, without transformers' own bookkeeping."""
    extra = {"architectures", "dtype", "head_dim", "model_type", "transformers_version"}
    declared = {config.attribute_map.get(k, k) for k in type(config).__annotations__}
    return extra | declared | set(config.attribute_map)


def load(directory, dtype):
    model = AutoModelForCausalLM.from_pretrained(
        directory, dtype=dtype, attn_implementation="eager", experts_implementation="eager"
    )
    return model.eval()


@torch.no_grad()
def run(model, ids):
    """Logits [batch, T, vocab] and, per MoE layer, (router output, its module)."""
    routed = []
    hooks = [
        module.register_forward_hook(lambda module, _, output: routed.append((output, module)))
        for name, module in model.named_modules()
        if name.endswith("mlp.gate")
    ]
    logits = model(ids, use_cache=False).logits
    for hook in hooks:
        hook.remove()
    return logits, routed


def selection_scores(output, gate):
    """The numbers compared when experts are chosen, [tokens, experts], and the group margin."""
    router_logits = output[0].float()
    if not hasattr(gate, "e_score_correction_bias"):
        return router_logits, torch.full(router_logits.shape[:1], math.inf)
    scores = router_logits.sigmoid() + gate.e_score_correction_bias
    assert gate.e_score_correction_bias.dtype == torch.float32 and scores.min() > 0
    if gate.num_group == gate.topk_group:
        return scores, torch.full(scores.shape[:1], math.inf)
    groups = scores.unflatten(1, (gate.num_group, -1))
    ranked, order = groups.topk(2, dim=-1)[0].sum(-1).sort(descending=True)
    dropped = torch.zeros_like(ranked, dtype=torch.bool)
    dropped.scatter_(1, order[:, gate.topk_group :], True)
    masked = groups.masked_fill(dropped[..., None], -math.inf).flatten(1)
    return masked, ranked[:, gate.topk_group - 1] - ranked[:, gate.topk_group]


def choices(routed):
    """Expert ids [layers, tokens, k] by descending score, and margins [tokens]: the smallest
    distance to another set of experts, and to another order of the same set."""
    ids, set_margins, order_margins = [], [], []
    for output, gate in routed:
        scores, margin = selection_scores(output, gate)
        ranked, order = scores.sort(descending=True, stable=True)
        k = gate.top_k
        chosen = output[2].sort(dim=-1)[0]
        agree = (order[:, :k].sort(dim=-1)[0] == chosen).all(dim=-1)
        if k < scores.shape[1]:
            margin = torch.minimum(margin, ranked[:, k - 1] - ranked[:, k])
        ids.append(order[:, :k])
        set_margins.append(torch.where(agree, margin, -math.inf))
        order_margins.append((ranked[:, : k - 1] - ranked[:, 1:k]).amin(-1))
    return torch.stack(ids), torch.stack(set_margins).amin(0), torch.stack(order_margins).amin(0)


def same_sets(a, b):
    """Per token: the same experts in every layer."""
    return (a.sort(dim=-1)[0] == b.sort(dim=-1)[0]).all(dim=-1).all(dim=0)


def accepted(models, ids, model_type):
    """Which of the prompts ids [batch, T] have a last token that is routed with a margin."""
    batch, length = ids.shape
    last = torch.arange(batch) * length + length - 1
    f32, bf16 = (choices(run(model, ids)[1]) for model in models)
    good = (f32[1] >= MARGIN[model_type]) & (f32[2] >= ORDER_MARGIN)
    good &= (bf16[1] >= BF16_MARGIN[model_type]) & same_sets(f32[0], bf16[0])
    return good[last]


def draw_prompt(models, length, generator):
    """A prompt all of whose tokens are routed with a margin, drawn token by token."""
    config = models[0].config
    prompt = torch.empty(0, dtype=torch.long)
    while len(prompt) < length:
        tokens = torch.arange(config.vocab_size)
        candidates = torch.cat([prompt.expand(len(tokens), -1), tokens[:, None]], dim=1)
        good = tokens[accepted(models, candidates, config.model_type)]
        if len(good) == 0:  # a dead end: every continuation has a close call
            prompt = prompt[: len(prompt) // 2]
            continue
        pick = torch.randint(len(good), (1,), generator=generator)
        prompt = torch.cat([prompt, good[pick]])
    return prompt


def golden(models, prompt):
    """The recorded tensors of one prompt, without their prefix, and its smallest margin."""
    model_type = models[0].config.model_type
    (logits_f32, routed_f32), (logits_bf16, routed_bf16) = (run(m, prompt[None]) for m in models)
    ids, margins, order_margins = choices(routed_f32)
    bf16_ids, _, _ = choices(routed_bf16)
    assert same_sets(ids, bf16_ids).all() and margins.min() >= MARGIN[model_type] / 2
    assert margins.min() >= 1e-3 and order_margins.min() >= ORDER_MARGIN / 2
    tensors = {
        "ids": prompt.to(torch.int32),
        "logits_f32": logits_f32[0].contiguous(),
        "logits_bf16": logits_bf16[0].float().contiguous(),
        "top_k": ids.transpose(0, 1).to(torch.int32).contiguous(),
    }
    return tensors, margins.min().item()


def check_config_forms(directory, ids, expected):
    """Both spellings of the rope parameters mean the same to transformers."""
    values = json.loads((directory / "config.json").read_text())
    for dropped in (("rope_parameters",), ("rope_theta", "rope_scaling")):
        with tempfile.TemporaryDirectory() as other:
            shutil.copy(directory / "model.safetensors", other)
            kept = {k: v for k, v in values.items() if k not in dropped}
            (pathlib.Path(other) / "config.json").write_text(json.dumps(kept))
            logits, _ = run(load(other, torch.float32), ids)
            assert torch.equal(logits[0], expected), f"other logits without {dropped}"


def make_model(name, config, seed, out):
    directory = out / name
    directory.mkdir(parents=True, exist_ok=True)
    made = AutoModelForCausalLM.from_config(
        config, attn_implementation="eager", experts_implementation="eager"
    ).eval()
    fill_weights(made, seed)
    write_checkpoint(made, directory)
    write_config(made.config, directory)

    models = (load(directory, torch.float32), load(directory, torch.bfloat16))
    generator = torch.Generator().manual_seed(seed)
    recorded, margins = {}, []
    for p, length in enumerate(PROMPT_LENGTHS):
        prompt = draw_prompt(models, length, generator)
        tensors, margin = golden(models, prompt)
        margins.append(margin)
        recorded |= {f"p{p}.{key}": value for key, value in tensors.items()}
        assert torch.equal(run(made.float(), prompt[None])[0][0], tensors["logits_f32"])
    check_config_forms(directory, prompt[None], tensors["logits_f32"])
    save_file(recorded, directory / "golden.safetensors")
    report(name, recorded, margins, directory)


def report(name, recorded, margins, directory):
    size = sum(f.stat().st_size for f in directory.iterdir())
    logits = recorded["p2.logits_f32"]
    error = (recorded["p2.logits_bf16"] - logits).abs().max()
    print(
        f"{name:16} {size / 1024:5.0f} KiB  logits std {logits.std():.2f} max {logits.abs().max():.2f}"
        f"  bf16 off by {error:.3f}  margin {min(margins):.4f}"
    )


def make_families(names, out):
    """The committed models of the families; the first shape of most a second time, stacked."""
    for number, family in enumerate(all_families().values()):
        all_lengths = (*record.LENGTHS[:-1], family.longest)
        shapes = {name: (shape, all_lengths) for name, shape in family.shapes.items()}
        if family.has_fused_layout:
            first = next(iter(family.shapes.values()))
            shapes["fused"] = (first | {"_fused": True}, record.FUSED_LENGTHS)
        shapes |= {name: (shape, all_lengths) for name, shape in family.later_shapes.items()}
        for index, (name, (shape, lengths)) in enumerate(shapes.items()):
            full_name = f"{family.name}_{name}"
            if names is None or names in (family.name, full_name):
                seed = 100 * (number + 1) + index
                record.make(family, full_name, shape, seed, out, lengths)


def make_random(names, count, seed, out):
    """`count` models of each family with options drawn at random."""
    for number, family in enumerate(all_families().values()):
        if names not in (None, family.name):
            continue
        for index in range(count):
            model_seed = seed * 100_000 + number * 1000 + index
            rng = random.Random(model_seed)
            values = {key: rng.choice(choices) for key, choices in family.options.items()}
            values = family.complete(family.base | values)
            lengths = (3, 20, max(family.longest, rng.choice((40, 70, 100, 140))))
            record.make(family, f"{family.name}_{model_seed}", values, model_seed, out, lengths)


def main():
    here = pathlib.Path(__file__).parent
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=pathlib.Path, help="folder to write to")
    parser.add_argument("--only", help="make this model or the models of this family only")
    parser.add_argument("--random", type=int, metavar="COUNT", help="COUNT random ones per family")
    parser.add_argument("--seed", type=int, default=1, help="of the random models")
    arguments = parser.parse_args()

    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    warnings.filterwarnings("ignore", "Initializing zero-element tensors")
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    if arguments.random is not None:
        if arguments.out is None:
            parser.error("--random needs --out")
        make_random(arguments.only, arguments.random, arguments.seed, arguments.out)
        return
    for seed, (name, config) in enumerate(model_configs().items(), start=1):
        if arguments.only in (None, name):
            make_model(name, config, seed, arguments.out or here / "models")
    make_families(arguments.only, arguments.out or here / "family_models")
    for seed, name in enumerate(prediction.SHAPES, start=5000):
        if arguments.only in (None, name):
            prediction.make(name, seed, arguments.out or here / "prediction_models")


if __name__ == "__main__":
    main()
