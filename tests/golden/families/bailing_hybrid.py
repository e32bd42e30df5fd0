# SPDX-License-Identifier: Apache-2.0
"""Ling-3.0: Kimi Delta Attention with bounded decays, and gated latent attention."""

from transformers import BailingHybridConfig

from families.family import Family
from families.glm import mtp_tensors
from families.kimi_linear import BASE, GROUPS, ODD, OPTIONS, complete, draw

NAMES = {
    "linear_head_dim": "head_dim",
    "linear_conv_kernel_dim": "short_conv_kernel_size",
    "model_max_length": "max_position_embeddings",
    "moe_renormalize": "norm_topk_prob",
    "num_expert_group": "n_group",
    "num_experts_per_token": "num_experts_per_tok",
}


def published_keys(values):
    """As published where the layers are not written as words; else transformers' own keys."""
    if "rope_parameters" in values and "rope_theta" in values:
        values["rope_theta"] = values["rope_parameters"]["rope_theta"]
    if "layer_types" in values and "layer_group_size" not in values:
        return values
    for key in ("layer_types", "mlp_layer_types", "linear_num_heads", "qk_head_dim"):
        values.pop(key, None)
    return {NAMES.get(k, k): v for k, v in values.items() if k not in NAMES.values()} | {
        "gated_attention_proj_granularity_type": "head_wise",
        "no_kda_lora": True,
        "score_function": "sigmoid",
    }


YARN = {
    "rope_type": "yarn",
    "rope_theta": 1000.0,
    "factor": 4.0,
    "original_max_position_embeddings": 24,
    "mscale": 1.0,
    "mscale_all_dim": 1.0,
}
DEFAULT = {"rope_type": "default", "rope_theta": 6e6}

FAMILIES = [
    Family(
        name="bailing_hybrid",
        config=BailingHybridConfig,
        base=BASE
        | dict(
            num_hidden_layers=2,
            head_dim=8,
            layer_group_size=2,
            first_k_dense_replace=1,
            num_mtp_layers=0,
            rope_parameters=DEFAULT,
        ),
        shapes={
            "plain": dict(num_mtp_layers=1, num_local_experts=5, _extra=mtp_tensors(2)),
            "minimal": dict(_minimal=True, _rope="new"),
            "groups": dict(
                num_hidden_layers=3,
                layer_group_size=3,
                head_dim=12,
                short_conv_kernel_size=3,
                q_lora_rank=16,
                n_shared_experts=2,
                first_k_dense_replace=0,
                kda_lower_bound=-2.5,
                tie_word_embeddings=True,
                attention_bias=True,
                rope_parameters=YARN,
                _keys={"moe_shared_expert_intermediate_size": 12},
                **GROUPS,
            ),
            "odd": ODD
            | dict(
                head_dim=17,
                qk_rope_head_dim=6,
                short_conv_kernel_size=5,
                kda_safe_gate=False,
                norm_topk_prob=False,
                rope_parameters=DEFAULT | {"rope_theta": 1e3},
            ),
        },
        options=OPTIONS
        | dict(
            head_dim=[4, 8, 20],
            layer_group_size=[1, 2, 3],
            short_conv_kernel_size=[2, 4, 5],
            kda_safe_gate=[True, True, False],
            kda_lower_bound=[-5.0, -1.0],
            rope_parameters=[DEFAULT, YARN],
            _rope=["old", "new"],
        ),
        complete=lambda values: complete(
            values
            | {
                "num_hidden_layers": values["layer_group_size"]
                * max(2, values["num_hidden_layers"] // values["layer_group_size"])
            }
        ),
        has_fused_layout=False,  # transformers writes its convolutions apart
        published_keys=published_keys,
        draw=draw,
    ),
]
