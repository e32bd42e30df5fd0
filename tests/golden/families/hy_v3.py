# SPDX-License-Identifier: Apache-2.0
"""Tencent Hy3: norms per head, sigmoid routing with a bias, a shared expert."""

from transformers import HYV3Config

from families.family import Family
from families.glm import YARN, mtp_tensors


def rope(theta=11158840.0, **more):
    return {"rope_type": "default", "rope_theta": theta} | more


def mlps(layers, dense):
    return ["dense"] * dense + ["sparse"] * (layers - dense)


def complete(values):
    dense = values.pop("dense_layers")
    return values | {"mlp_layer_types": mlps(values["num_hidden_layers"], dense)}


FAMILIES = [
    Family(
        name="hy_v3",
        config=HYV3Config,
        base=dict(
            vocab_size=64,
            hidden_size=32,
            intermediate_size=24,
            moe_intermediate_size=8,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=8,
            num_experts=6,
            num_experts_per_tok=2,
            max_position_embeddings=256,
            rope_parameters=rope(),
        ),
        shapes={
            "plain": dict(_minimal=True),
            "published": dict(
                num_key_value_heads=1,
                num_experts_per_tok=3,
                attention_bias=True,
                _extra=mtp_tensors(2),
                _keys={
                    "first_k_dense_replace": 1,
                    "num_nextn_predict_layers": 1,
                    "qk_norm": True,
                    "route_norm": True,
                },
            ),
            "tied": dict(
                tie_word_embeddings=True,
                num_shared_experts=2,
                mlp_layer_types=mlps(2, 0),
                router_scaling_factor=1.0,
                rope_parameters=rope(1e3),
                _rope="new",
            ),
            "odd": dict(
                vocab_size=67,
                hidden_size=34,
                intermediate_size=30,
                moe_intermediate_size=9,
                num_attention_heads=3,
                num_key_value_heads=3,
                head_dim=20,
                num_experts=5,
                rms_norm_eps=1e-3,
                rope_parameters=rope(1e4) | YARN,
                enable_moe_fp32_combine=False,
            ),
        },
        options=dict(
            hidden_size=[32, 48, 64],
            moe_intermediate_size=[12, 16, 33],
            num_hidden_layers=[2, 3],
            num_attention_heads=[4, 8],
            num_key_value_heads=[1, 2, 4],
            head_dim=[8, 16, 24],
            num_experts=[4, 9, 16],
            num_experts_per_tok=[1, 2, 4],
            num_shared_experts=[1, 2],
            dense_layers=[0, 1],
            router_scaling_factor=[1.0, 2.826],
            attention_bias=[False, True],
            tie_word_embeddings=[False, True],
            rope_parameters=[rope(), rope(1e4), rope(1e4) | YARN],
            _fused=[False, False, True],
            _rope=["old", "new"],
        ),
        complete=complete,
    )
]
