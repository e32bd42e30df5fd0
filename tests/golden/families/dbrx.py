# SPDX-License-Identifier: Apache-2.0
"""DBRX: layer norms, clipped queries, keys and values in one matrix, all experts in one."""

import json
import os
import tempfile

import torch
from transformers import DbrxConfig

from families.family import Family, load_model

YARN = dict(
    rope_type="yarn",
    factor=4.0,
    original_max_position_embeddings=32,
    beta_fast=32.0,
    beta_slow=1.0,
)


def rope(theta=1e4):
    return {"rope_type": "default", "rope_theta": theta}


def attention(kv_heads=2, theta=1e4, clip=8.0):
    return {"kv_n_heads": kv_heads, "rope_theta": theta, "clip_qkv": clip}


def experts(num_experts=6, top_k=2, width=8, **more):
    return {"moe_num_experts": num_experts, "moe_top_k": top_k, "ffn_hidden_size": width} | more


def draw(name, shape, generator):
    """The parts of matrices whose own names draw_weight does not know."""
    if "norm_attn_norm.attn" in name or "experts" in name:
        return torch.randn(shape, generator=generator) * (1.2 / shape[-1] ** 0.5)
    if name.endswith("wte.weight"):
        return 0.4 * torch.randn(shape, generator=generator)
    if name.endswith("router.layer.weight"):
        return torch.randn(shape, generator=generator) * (2.0 / shape[-1] ** 0.5)
    return None


def published_keys(values):
    """Rotary parameters stand in attn_config, without scaling."""
    if values.pop("rope_scaling", None) is None:
        values.pop("rope_theta", None)
    return values


def load(directory, dtype):
    """transformers 5.24 does not look for the rotary base in attn_config, as the published code and
    others do."""
    values = json.loads((directory / "config.json").read_text())
    if "rope_parameters" not in values:
        values.setdefault("rope_theta", values["attn_config"]["rope_theta"])
    with tempfile.TemporaryDirectory() as copy:
        with open(f"{copy}/config.json", "w", encoding="utf-8") as file:
            json.dump(values, file)
        os.symlink(os.path.abspath(directory / "model.safetensors"), f"{copy}/model.safetensors")
        return load_model(copy, dtype)


def complete(values):
    """Choices of single keys, in the objects of the config."""
    values = dict(values)
    theta = values["rope_parameters"]["rope_theta"]
    values["attn_config"] = attention(values.pop("_kv"), theta, values.pop("_clip"))
    values["ffn_config"] = experts(
        values.pop("_experts"),
        values.pop("_top_k"),
        moe_normalize_expert_weights=values.pop("_norm"),
    )
    return values


FAMILIES = [
    Family(
        name="dbrx",
        config=DbrxConfig,
        base=dict(
            vocab_size=64,
            d_model=32,
            n_layers=2,
            n_heads=4,
            max_seq_len=256,
            bos_token_id=1,
            eos_token_id=53,
            rope_parameters=rope(),
            attn_config=attention(),
            ffn_config=experts(),
        ),
        shapes={
            "plain": dict(_minimal=True),
            "published": dict(
                n_layers=3,
                attn_config=attention(theta=5e5, clip=1.5),
                ffn_config=experts(16, 4, moe_jitter_eps=0.01, moe_loss_weight=0.05),
                rope_parameters=rope(5e5),
            ),
            "default": dict(
                attn_config=attention(1),
                ffn_config=experts(4, 3, moe_normalize_expert_weights=None),
                _rope="new",
            ),
            "norm": dict(
                attn_config=attention(4, clip=0.5),
                ffn_config=experts(5, 3, moe_normalize_expert_weights=2.0),
            ),
            "odd": dict(
                vocab_size=67,
                d_model=42,
                n_layers=3,
                n_heads=3,
                attn_config=attention(3, 1e3),
                ffn_config=experts(5, 1, 9),
                rope_parameters=rope(1e3) | YARN,
            ),
        },
        options=dict(
            d_model=[32, 48, 64],
            n_layers=[2, 3, 5],
            n_heads=[4, 8],
            _kv=[1, 2, 4],
            _clip=[0.5, 2.0, 8.0],
            _experts=[4, 6, 16],
            _top_k=[1, 2, 4],
            _norm=[1.0, 1.0, None, 2.0, 3.0],
            rope_parameters=[rope(), rope(5e5), rope() | YARN],
            _rope=["old", "new"],
        ),
        complete=complete,
        has_fused_layout=False,
        published_keys=published_keys,
        draw=draw,
        load=load,
    )
]
