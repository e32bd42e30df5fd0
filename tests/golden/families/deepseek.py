# SPDX-License-Identifier: Apache-2.0
"""DeepSeek-V2 (softmax router), and DeepSeek-V3.2 and GLM-5 (V3 with an indexer)."""

from transformers import DeepseekV2Config, DeepseekV32Config, GlmMoeDsaConfig

from families.family import Family
from families.glm import LATENT_OPTIONS, ROUTER_OPTIONS, complete_groups, mtp_tensors

BASE = dict(
    vocab_size=64,
    hidden_size=32,
    intermediate_size=16,
    moe_intermediate_size=6,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=4,
    q_lora_rank=16,
    kv_lora_rank=12,
    qk_nope_head_dim=12,
    qk_rope_head_dim=8,
    v_head_dim=12,
    n_shared_experts=1,
    n_routed_experts=6,
    num_experts_per_tok=2,
    first_k_dense_replace=1,
    max_position_embeddings=256,
)
YARN = {
    "rope_type": "yarn",
    "rope_theta": 1000.0,
    "factor": 4.0,
    "original_max_position_embeddings": 24,
    "mscale": 0.707,
    "mscale_all_dim": 0.707,
}
OPTIONS = dict(
    hidden_size=[32, 48, 64],
    num_hidden_layers=[2, 3],
    num_attention_heads=[4, 8],
    first_k_dense_replace=[0, 1],
    tie_word_embeddings=[False, True],
    rope_parameters=[{"rope_type": "default", "rope_theta": 1e4}, YARN, YARN | {"mscale": 1.0}],
    attention_bias=[False, True],
    _fused=[False, False, True],
    _rope=["old", "new"],
    **LATENT_OPTIONS,
    **ROUTER_OPTIONS,
)
INDEXER_OPTIONS = dict(index_topk=[4, 16, 40, 64], index_n_heads=[4, 6], index_head_dim=[16, 20])


def complete(values):
    return complete_groups(values | {"num_key_value_heads": values["num_attention_heads"]})


def complete_v2(values):
    grouped = values["n_group"] > 1
    values["topk_method"] = "group_limited_greedy" if grouped else "greedy"
    return complete(values)


def complete_shared_indexer(values):
    kinds = values.pop("_indexer", "FSFS")
    values["indexer_types"] = [
        {"F": "full", "S": "shared"}[kind] for kind in kinds[: values["num_hidden_layers"]]
    ]
    return complete(values)


INDEXER = dict(index_topk=16, index_n_heads=4, index_head_dim=12, n_group=1, topk_group=1)

FAMILIES = [
    Family(
        name="deepseek_v2",
        config=DeepseekV2Config,
        base=BASE | {"q_lora_rank": None},
        shapes={
            "lite": dict(_minimal=True, first_k_dense_replace=1),
            "groups": dict(
                q_lora_rank=16,
                n_routed_experts=12,
                num_experts_per_tok=3,
                n_group=4,
                topk_group=2,
                topk_method="group_limited_greedy",
                routed_scaling_factor=4.0,
                rope_parameters=YARN,
                _keys={"norm_topk_prob": False, "scoring_func": "softmax", "moe_layer_freq": 1},
            ),
            "tied": dict(
                first_k_dense_replace=0,
                tie_word_embeddings=True,
                n_shared_experts=2,
                norm_topk_prob=True,
                rope_parameters=YARN | {"mscale": 1.0},
                _rope="new",
            ),
            "odd": dict(
                vocab_size=65,
                hidden_size=36,
                moe_intermediate_size=9,
                num_attention_heads=3,
                num_key_value_heads=3,
                q_lora_rank=14,
                kv_lora_rank=10,
                qk_nope_head_dim=10,
                qk_rope_head_dim=6,
                v_head_dim=14,
                n_routed_experts=5,
                num_experts_per_tok=3,
                rms_norm_eps=1e-3,
                attention_bias=True,
            ),
        },
        options=OPTIONS | {"q_lora_rank": [None, 12, 24]},
        complete=complete_v2,
    ),
    Family(
        name="deepseek_v32",
        config=DeepseekV32Config,
        base=BASE | INDEXER,
        shapes={
            "plain": dict(_minimal=True),
            "groups": dict(
                n_group=4,
                topk_group=2,
                n_routed_experts=12,
                moe_intermediate_size=6,
                rope_parameters=YARN | {"mscale": 1.0, "mscale_all_dim": 1.0},
                _extra=mtp_tensors(2),
                _keys={"num_nextn_predict_layers": 1, "moe_layer_freq": 1},
            ),
            "tied": dict(
                first_k_dense_replace=0,
                tie_word_embeddings=True,
                index_topk=5,
                index_head_dim=8,
                routed_scaling_factor=1.0,
                norm_topk_prob=False,
                attention_bias=True,
                _rope="new",
            ),
            "odd": dict(
                vocab_size=65,
                hidden_size=36,
                moe_intermediate_size=9,
                num_attention_heads=3,
                num_key_value_heads=3,
                kv_lora_rank=10,
                qk_nope_head_dim=10,
                qk_rope_head_dim=6,
                v_head_dim=14,
                n_routed_experts=5,
                num_experts_per_tok=3,
                index_topk=33,
                index_n_heads=6,
                index_head_dim=14,
                rms_norm_eps=1e-3,
            ),
        },
        options=OPTIONS | INDEXER_OPTIONS,
        complete=complete,
    ),
    Family(
        name="glm_moe_dsa",
        config=GlmMoeDsaConfig,
        base=BASE | INDEXER,
        shapes={
            "plain": dict(_minimal=True),
            "shared": dict(
                num_hidden_layers=3,
                moe_intermediate_size=6,
                n_routed_experts=4,
                indexer_types=["full", "shared", "full"],
                rope_parameters={"rope_type": "default", "rope_theta": 1e6},
                _rope="new",
                _keys={"indexer_rope_interleave": True, "num_nextn_predict_layers": 1},
                _extra=mtp_tensors(3),
            ),
            "tied": dict(
                first_k_dense_replace=0,
                tie_word_embeddings=True,
                index_topk=5,
                index_head_dim=8,
                routed_scaling_factor=1.0,
                n_shared_experts=2,
                attention_bias=True,
            ),
            "odd": dict(
                vocab_size=65,
                hidden_size=36,
                moe_intermediate_size=9,
                num_attention_heads=3,
                num_key_value_heads=3,
                kv_lora_rank=10,
                qk_nope_head_dim=10,
                qk_rope_head_dim=6,
                v_head_dim=14,
                n_routed_experts=6,
                num_experts_per_tok=3,
                n_group=2,
                indexer_types=["full", "shared"],
                index_topk=33,
                index_n_heads=6,
                index_head_dim=14,
                rms_norm_eps=1e-3,
            ),
        },
        options=OPTIONS | INDEXER_OPTIONS | {"_indexer": ["FFFF", "FSFS", "FFSS"]},
        complete=complete_shared_indexer,
    ),
]
