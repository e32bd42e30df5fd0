# SPDX-License-Identifier: Apache-2.0
"""ERNIE-4.5-MoE: rotation of adjacent pairs, softmax with a bias for the choice alone."""

from transformers import Ernie4_5_MoeConfig

from families.family import Family


def complete(values):
    last = values["num_hidden_layers"] - 1
    values["moe_layer_start_index"] = min(values["moe_layer_start_index"], last)
    if values["moe_layer_interval"] > 1:
        values["moe_layer_start_index"] = 0
    return values


FAMILIES = [
    Family(
        name="ernie4_5_moe",
        config=Ernie4_5_MoeConfig,
        base=dict(
            vocab_size=64,
            hidden_size=32,
            intermediate_size=16,
            moe_intermediate_size=6,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            moe_num_experts=6,
            moe_k=3,
            max_position_embeddings=256,
            pad_token_id=0,
        ),
        shapes={
            "plain": dict(_minimal=True),
            "interval": dict(
                num_hidden_layers=5,
                moe_layer_start_index=1,
                moe_layer_end_index=3,
                moe_layer_interval=2,
                moe_num_shared_experts=1,
                _rope="new",
            ),
            "untied": dict(
                tie_word_embeddings=False,
                moe_num_experts=8,
                moe_intermediate_size=6,
                moe_k=6,
                moe_layer_start_index=0,
                moe_num_shared_experts=0,
            ),
            "odd": dict(
                vocab_size=67,
                hidden_size=36,
                intermediate_size=30,
                moe_intermediate_size=9,
                num_attention_heads=3,
                num_key_value_heads=1,
                moe_num_experts=5,
                moe_k=2,
                moe_norm_min=0.6,
                rms_norm_eps=1e-3,
                _keys={"moe_use_aux_free": True},
                _extra={"model.mtp_block.0.input_layernorm.weight": (36,)},
            ),
        },
        later_shapes={
            # Shared experts of the width for which llama.cpp takes a fraction of the dense one's.
            "published": dict(intermediate_size=24),
        },
        options=dict(
            hidden_size=[32, 48, 64],
            moe_intermediate_size=[12, 16, 33],
            num_hidden_layers=[2, 3, 4],
            num_attention_heads=[4, 8],
            num_key_value_heads=[1, 2, 4],
            moe_num_experts=[4, 9, 16],
            moe_k=[1, 2, 4],
            moe_num_shared_experts=[0, 1, 2],
            moe_layer_start_index=[0, 1],
            moe_layer_interval=[1, 1, 2],
            tie_word_embeddings=[True, False],
            _fused=[False, False, True],
            _rope=["old", "new"],
        ),
        complete=complete,
    )
]
