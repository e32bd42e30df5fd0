# SPDX-License-Identifier: Apache-2.0
"""MiniMax-M2: norms over the full width of q and k, partial rotation, sigmoid with a bias."""

from transformers import MiniMaxM2Config

from families.family import Family


def published_keys(values):
    """Published files say rotary_dim; what transformers does not read is there too."""
    factor = values.pop("partial_rotary_factor", None)
    if factor is not None:
        values["rotary_dim"] = round(factor * values.get("head_dim", 128))
    return values | {
        "use_qk_norm": True,
        "qk_norm_type": "per_layer",
        "use_routing_bias": True,
        "scoring_func": "sigmoid",
        "shared_intermediate_size": 0,
    }


def rope(theta, factor):
    return {"rope_type": "default", "rope_theta": theta, "partial_rotary_factor": factor}


FAMILIES = [
    Family(
        name="minimax_m2",
        config=MiniMaxM2Config,
        base=dict(
            vocab_size=64,
            hidden_size=32,
            intermediate_size=8,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=12,
            num_local_experts=6,
            num_experts_per_tok=2,
            max_position_embeddings=256,
            bos_token_id=0,
            eos_token_id=1,
            rope_parameters=rope(5e6, 0.5),
        ),
        shapes={
            "plain": dict(_minimal=True),
            "full": dict(
                rope_parameters={"rope_type": "default", "rope_theta": 1e4},
                num_local_experts=8,
                num_experts_per_tok=4,
                intermediate_size=4,
            ),
            "tied": dict(
                tie_word_embeddings=True,
                num_key_value_heads=4,
                rope_parameters=rope(1000.0, 0.5),
                _rope="new",
            ),
            "odd": dict(
                vocab_size=65,
                hidden_size=34,
                intermediate_size=11,
                num_attention_heads=3,
                num_key_value_heads=1,
                head_dim=20,
                rope_parameters=rope(1e4, 0.6),
                num_local_experts=5,
                num_experts_per_tok=3,
                rms_norm_eps=1e-3,
            ),
        },
        options=dict(
            hidden_size=[32, 48, 64],
            intermediate_size=[12, 16, 33],
            num_hidden_layers=[2, 3],
            num_attention_heads=[4, 8],
            num_key_value_heads=[1, 2, 4],
            head_dim=[8, 16, 24],
            num_local_experts=[4, 9, 16],
            num_experts_per_tok=[1, 2, 4],
            tie_word_embeddings=[False, True],
            rope_parameters=[rope(5e6, 0.5), rope(1e4, 0.25), rope(1e4, 0.75), rope(1e4, 1.0)],
            rms_norm_eps=[1e-6, 1e-3],
            _fused=[False, False, True],
        ),
        published_keys=published_keys,
    )
]
