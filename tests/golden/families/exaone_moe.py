# SPDX-License-Identifier: Apache-2.0
"""K-EXAONE: windows, no rotation in layers without one, DeepSeek-V3's router."""

from transformers import ExaoneMoeConfig

from families.family import Family
from families.glm import ROUTER_OPTIONS, YARN, complete_groups


def rope(theta=1e4, **more):
    return {"rope_type": "default", "rope_theta": theta} | more


def kinds(letters):
    return [{"L": "sliding_attention", "G": "full_attention"}[letter] for letter in letters]


def complete(values):
    """As the others', under this family's keys."""
    values = complete_groups(values | {"n_routed_experts": values["num_experts"]})
    values["num_experts"] = values.pop("n_routed_experts")
    return values


def options():
    renamed = dict(n_routed_experts="num_experts", n_shared_experts="num_shared_experts")
    return {renamed.get(key, key): choices for key, choices in ROUTER_OPTIONS.items()}


MTP = {"mtp.fc.weight": (32, 64), "mtp.norm.weight": (32,)}

FAMILIES = [
    Family(
        name="exaone_moe",
        config=ExaoneMoeConfig,
        base=dict(
            vocab_size=64,
            hidden_size=32,
            intermediate_size=24,
            moe_intermediate_size=8,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            num_experts=6,
            num_experts_per_tok=2,
            max_position_embeddings=256,
            bos_token_id=1,
            eos_token_id=53,
            sliding_window=9,
            rope_parameters=rope(),
        ),
        shapes={
            "plain": dict(_minimal=True, sliding_window_pattern=2),
            "published": dict(
                num_hidden_layers=4,
                sliding_window_pattern="LLLG",
                layer_types=kinds("LLLG"),
                head_dim=12,
                num_experts_per_tok=3,
                rope_parameters=rope(1e6),
                _rope="new",
                _extra=MTP,
                _keys={"num_nextn_predict_layers": 1, "scoring_func": "sigmoid"},
            ),
            "tied": dict(
                tie_word_embeddings=True,
                num_key_value_heads=1,
                num_shared_experts=2,
                first_k_dense_replace=0,
                layer_types=kinds("GL"),
                mlp_layer_types=["sparse", "dense"],
                n_group=2,
                norm_topk_prob=False,
                routed_scaling_factor=1.0,
            ),
            "odd": dict(
                vocab_size=67,
                hidden_size=34,
                intermediate_size=30,
                moe_intermediate_size=9,
                num_hidden_layers=3,
                num_attention_heads=3,
                num_key_value_heads=3,
                head_dim=20,
                num_experts=5,
                sliding_window=5,
                sliding_window_pattern=3,
                rms_norm_eps=1e-3,
                rope_parameters=rope(1e3) | YARN,
            ),
        },
        options=dict(
            hidden_size=[32, 48, 64],
            num_hidden_layers=[2, 3, 5],
            num_attention_heads=[4, 8],
            num_key_value_heads=[1, 2, 4],
            head_dim=[8, 16, 24],
            first_k_dense_replace=[0, 1],
            sliding_window=[4, 9, 30],
            sliding_window_pattern=[1, 2, 3, 4],
            tie_word_embeddings=[False, True],
            rope_parameters=[rope(), rope(1e6), rope() | YARN],
            _fused=[False, False, True],
            _rope=["old", "new"],
            **options(),
        ),
        complete=complete,
    )
]
