# SPDX-License-Identifier: Apache-2.0
"""What families share whose layers slide or see all positions, each kind with its own rotation."""

FULL, SLIDING = "full_attention", "sliding_attention"
LAYERS = {"f": FULL, "s": SLIDING}


def layers(pattern):
    return [LAYERS[kind] for kind in pattern]


def default(theta, **more):
    return {"rope_type": "default", "rope_theta": theta} | more


def yarn(**more):
    return {
        "rope_type": "yarn",
        "rope_theta": 1500.0,
        "factor": 4.0,
        "original_max_position_embeddings": 32,
    } | more


def ropes(full, sliding):
    return {FULL: full, SLIDING: sliding}


def complete(values):
    """Lists for the number of layers, from short words."""
    count = values["num_hidden_layers"]
    if "_layers" in values:
        values["layer_types"] = layers((values.pop("_layers") * 2)[:count])
    if "_dense" in values:
        dense = values.pop("_dense")
        values["mlp_layer_types"] = ["dense" if i in dense else "sparse" for i in range(count)]
    if "_heads" in values:
        heads = values.pop("_heads")
        values["num_attention_heads_per_layer"] = [heads[i % len(heads)] for i in range(count)]
    return values

BASE = dict(
    vocab_size=64,
    hidden_size=32,
    intermediate_size=16,
    moe_intermediate_size=8,
    num_hidden_layers=3,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=8,
    num_experts=6,
    num_experts_per_tok=2,
    sliding_window=16,
    max_position_embeddings=256,
)
OPTIONS = dict(
    hidden_size=[32, 48, 64],
    moe_intermediate_size=[8, 16, 33],
    num_hidden_layers=[3, 4],
    num_attention_heads=[4, 8],
    num_key_value_heads=[1, 2, 4],
    head_dim=[8, 16],
    num_experts_per_tok=[1, 2, 4],
    sliding_window=[5, 16, 64],
    rms_norm_eps=[1e-6, 1e-3],
    tie_word_embeddings=[False, True],
    _fused=[False, False, True],
)
ODD = dict(
    vocab_size=65,
    hidden_size=36,
    intermediate_size=22,
    moe_intermediate_size=9,
    num_attention_heads=3,
    num_key_value_heads=1,
    head_dim=20,
    num_experts_per_tok=3,
    sliding_window=7,
    rms_norm_eps=1e-3,
)
MIXED = ["fss", "sfs", "ssf", "sfsf"]
