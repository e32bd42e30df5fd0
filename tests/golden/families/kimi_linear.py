# SPDX-License-Identifier: Apache-2.0
"""Kimi-Linear: Kimi Delta Attention between layers of latent attention without positions."""

import torch
from transformers import KimiLinearConfig

from families.family import Family
from families.glm import LATENT_OPTIONS, ROUTER_OPTIONS, complete_groups


def draw(name, shape, generator):
    if name.endswith("A_log"):
        return torch.log(0.1 + 3.0 * torch.rand(shape, generator=generator))
    if name.endswith("dt_bias"):
        return torch.randn(shape, generator=generator) - 1.0
    if name.endswith("conv1d.weight"):
        return torch.randn(shape, generator=generator) * 0.6
    return None


def complete(values):
    experts = complete_groups(values | {"n_routed_experts": values.pop("num_local_experts")})
    experts["num_local_experts"] = experts.pop("n_routed_experts")
    experts["num_key_value_heads"] = experts["num_attention_heads"]
    return experts


def complete_kimi(values):
    kinds = values.pop("_kinds", "LFLF")
    values["layer_types"] = [
        {"L": "linear_attention", "F": "full_attention"}[kind]
        for kind in kinds[: values["num_hidden_layers"]]
    ]
    values["mlp_layer_types"] = ["dense"] * values.pop("first_k_dense_replace")
    values["mlp_layer_types"] += ["sparse"] * (
        values["num_hidden_layers"] - len(values["mlp_layer_types"])
    )
    return complete(values)


def published_kimi(values):
    """As published where the layers are written as words: as numbers from 1 on."""
    types = values.pop("layer_types", None)
    if types is None or len(types) == 2:  # these keep transformers' own keys
        return values | ({"layer_types": types} if types else {})
    sizes = {"head_dim": 128, "num_heads": 32, "conv_kernel_dim": 4}
    sizes = {k: values.pop(f"linear_{k}", default) for k, default in sizes.items()}
    sizes["short_conv_kernel_size"] = sizes.pop("conv_kernel_dim")
    lists = {"full_attn_layers": "full_attention", "kda_layers": "linear_attention"}
    sizes |= {k: [i + 1 for i, t in enumerate(types) if t == word] for k, word in lists.items()}
    published = {
        "linear_attn_config": sizes,
        "head_dim": 9,  # of no layer
        "mla_use_nope": True,
        "moe_layer_freq": 1,
        "moe_router_activation_func": "sigmoid",
        "num_nextn_predict_layers": 0,
        "rope_scaling": None,
        "rope_theta": 10000.0,
        "use_grouped_topk": True,
    }
    dense = values.pop("mlp_layer_types", ["dense", "sparse"]).count("dense")
    values.pop("qk_head_dim", None)
    return values | published | {"first_k_dense_replace": dense}


def published_name(name):
    """transformers writes dense layers below block_sparse_moe, too."""
    for matrix in ("gate_proj", "up_proj", "down_proj"):
        name = name.replace(f"block_sparse_moe.{matrix}", f"mlp.{matrix}")
    return name


BASE = dict(
    vocab_size=64,
    hidden_size=32,
    intermediate_size=16,
    moe_intermediate_size=6,
    num_hidden_layers=3,
    num_attention_heads=4,
    num_key_value_heads=4,
    kv_lora_rank=12,
    qk_nope_head_dim=12,
    qk_rope_head_dim=8,
    v_head_dim=12,
    n_group=1,
    topk_group=1,
    num_local_experts=6,
    num_experts_per_tok=2,
    max_position_embeddings=256,
    bos_token_id=None,
    eos_token_id=None,
    pad_token_id=None,
)
KIMI = ["linear_attention", "linear_attention", "full_attention"]
ODD = dict(
    vocab_size=65,
    hidden_size=34,
    intermediate_size=22,
    moe_intermediate_size=9,
    num_hidden_layers=2,
    num_attention_heads=3,
    num_key_value_heads=3,
    kv_lora_rank=10,
    qk_nope_head_dim=10,
    v_head_dim=14,
    num_local_experts=5,
    num_experts_per_tok=3,
    rms_norm_eps=1e-3,
)
GROUPS = dict(num_local_experts=12, num_experts_per_tok=3, n_group=4, topk_group=2)
OPTIONS = dict(
    hidden_size=[32, 48, 64],
    num_hidden_layers=[2, 3, 4],
    num_attention_heads=[2, 4, 8],
    first_k_dense_replace=[0, 1],
    tie_word_embeddings=[False, True],
    attention_bias=[False, True],
    rms_norm_eps=[1e-6, 1e-5, 1e-3],
    **(LATENT_OPTIONS | {"q_lora_rank": [None, 12, 24]}),
    **{k: v for k, v in ROUTER_OPTIONS.items() if k != "n_routed_experts"},
    num_local_experts=[4, 8, 16],
)

FAMILIES = [
    Family(
        name="kimi_linear",
        config=KimiLinearConfig,
        base=BASE | dict(linear_head_dim=8, linear_num_heads=4),
        shapes={
            "plain": dict(layer_types=KIMI),
            "minimal": dict(
                _minimal=True, num_hidden_layers=2, layer_types=KIMI[1:], qk_rope_head_dim=0
            ),
            "groups": dict(
                layer_types=KIMI,
                linear_head_dim=12,
                linear_num_heads=2,
                linear_conv_kernel_dim=3,
                q_lora_rank=16,
                n_shared_experts=2,
                mlp_layer_types=["sparse"] * 3,
                tie_word_embeddings=True,
                attention_bias=True,
                **GROUPS,
            ),
            "odd": dict(
                layer_types=["full_attention", "linear_attention"],
                qk_rope_head_dim=6,
                linear_head_dim=17,
                linear_num_heads=3,
                linear_conv_kernel_dim=5,
                norm_topk_prob=False,
                **ODD,
            ),
        },
        options=OPTIONS
        | dict(
            _kinds=["LLFL", "LFLL", "FLLF"],
            linear_head_dim=[4, 8, 20],
            linear_num_heads=[1, 2, 4],
            linear_conv_kernel_dim=[2, 4, 5],
            qk_rope_head_dim=[0, 4, 8, 12],
        ),
        complete=complete_kimi,
        has_fused_layout=False,  # transformers writes its convolutions apart
        published_keys=published_kimi,
        published_names=published_name,
        draw=draw,
    ),
]
