# SPDX-License-Identifier: Apache-2.0
"""Hunyuan-A13B: rotation before the norms of q and k, a stretched rope base, a shared MLP."""

from transformers import HunYuanMoEV1Config

from families.family import Family


def alpha(value, theta=1e4):
    """As published: keys of YaRN are there too, without effect."""
    unused = {"factor": 1.0, "beta_fast": 32, "beta_slow": 1, "mscale": 1.0, "mscale_all_dim": 1.0}
    return {"rope_type": "dynamic", "rope_theta": theta, "alpha": value} | unused


FAMILIES = [
    Family(
        name="hunyuan_v1_moe",
        config=HunYuanMoEV1Config,
        base=dict(
            vocab_size=64,
            hidden_size=32,
            intermediate_size=8,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=8,
            num_experts=6,
            moe_topk=2,
            max_position_embeddings=32,
            rope_parameters=alpha(1000.0),
        ),
        shapes={
            "plain": dict(
                tie_word_embeddings=True, _keys={"use_qk_norm": True, "num_shared_expert": 1}
            ),
            "minimal": dict(
                _minimal=True, rope_parameters={"rope_type": "default", "rope_theta": 1e4}
            ),
            "lists": dict(
                moe_topk=[3, 3],
                num_experts=8,
                intermediate_size=6,
                attention_bias=True,
                rope_parameters=alpha(50.0),
                _keys={"num_shared_expert": [1, 1], "moe_intermediate_size": [6, 6]},
                _rope="new",
            ),
            "odd": dict(
                vocab_size=65,
                hidden_size=34,
                intermediate_size=11,
                num_attention_heads=3,
                num_key_value_heads=1,
                head_dim=20,
                num_experts=5,
                moe_topk=3,
                rms_norm_eps=1e-3,
                rope_parameters=alpha(7.0, 500.0),
            ),
        },
        options=dict(
            hidden_size=[32, 48, 64],
            intermediate_size=[12, 16, 33],
            num_hidden_layers=[2, 3],
            num_attention_heads=[4, 8],
            num_key_value_heads=[1, 2, 4],
            head_dim=[8, 16],
            num_experts=[4, 9, 16],
            moe_topk=[1, 2, 4],
            attention_bias=[False, True],
            tie_word_embeddings=[False, True],
            rope_parameters=[
                alpha(1000.0),
                alpha(3.0),
                {"rope_type": "default", "rope_theta": 1e4},
            ],
            _fused=[False, False, True],
            _rope=["old", "new"],
        ),
    )
]
