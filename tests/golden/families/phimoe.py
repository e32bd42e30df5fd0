# SPDX-License-Identifier: Apache-2.0
"""Phi-3.5-MoE: layer norms with biases, SparseMixer, frequencies for long texts."""

import json
import math
import os
import tempfile

from transformers import PhimoeConfig

from families.family import Family, load_model


def rope(theta=1e4):
    return {"rope_type": "default", "rope_theta": theta}


# As llama.cpp's converter computes it, of 256 and 32 positions.
SCALE = math.sqrt(1.0 + math.log(256 / 32) / math.log(32))


def longrope(pairs, theta=1e4, scale=SCALE):
    factors = [1.0 + 0.25 * i for i in range(pairs)]
    return {
        "rope_type": "longrope",
        "rope_theta": theta,
        "short_factor": factors,
        "long_factor": factors,
        "short_mscale": scale,
        "long_mscale": scale,
        "original_max_position_embeddings": 32,
    }


def load(directory, dtype):
    """With the factors of long texts as those of short ones, which transformers 5.24 takes for
    texts of any length; the authors' code and others take them by the length."""
    values = json.loads((directory / "config.json").read_text())
    for key in ("rope_scaling", "rope_parameters"):
        rope = values.get(key)
        if rope and rope.get("rope_type", rope.get("type")) == "longrope":
            rope["short_factor"], rope["short_mscale"] = rope["long_factor"], rope["long_mscale"]
    with tempfile.TemporaryDirectory() as copy:
        with open(f"{copy}/config.json", "w", encoding="utf-8") as file:
            json.dump(values, file)
        os.symlink(os.path.abspath(directory / "model.safetensors"), f"{copy}/model.safetensors")
        return load_model(copy, dtype)


def complete(values):
    """Factors for the pairs of a head, and a key that write_config takes for bookkeeping."""
    values = dict(values)
    if values.pop("_long", False):
        pairs = values["hidden_size"] // values["num_attention_heads"] // 2
        values["rope_parameters"] = longrope(pairs)
    values["_keys"] = {"router_jitter_noise": values["router_jitter_noise"]}
    return values


FAMILIES = [
    Family(
        name="phimoe",
        config=PhimoeConfig,
        base=dict(
            vocab_size=64,
            hidden_size=32,
            intermediate_size=12,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            num_local_experts=6,
            num_experts_per_tok=2,
            max_position_embeddings=256,
            bos_token_id=1,
            eos_token_id=53,
            rope_parameters=rope(),
        ),
        shapes={
            "plain": dict(_minimal=True, attention_bias=True),
            "published": dict(
                attention_bias=True,
                lm_head_bias=True,
                num_local_experts=16,
                rope_parameters=longrope(4),
                sliding_window=256,
                _keys={"router_jitter_noise": 0.01, "original_max_position_embeddings": 32},
            ),
            "window": dict(
                tie_word_embeddings=True,
                num_key_value_heads=1,
                sliding_window=9,
                router_jitter_noise=0.2,
                _keys={"router_jitter_noise": 0.2},
                _rope="new",
            ),
            "long": dict(
                attention_bias=True,
                rope_parameters=longrope(4, scale=0.75),
                router_jitter_noise=0.5,
                _keys={
                    "router_jitter_noise": 0.5,
                    "rope_scaling": longrope(4, scale=0.75)
                    | {"short_factor": 4 * [3.0], "short_mscale": 2.0, "type": "longrope"},
                },
            ),
            "odd": dict(
                vocab_size=67,
                hidden_size=36,
                intermediate_size=9,
                num_hidden_layers=3,
                num_attention_heads=3,
                num_key_value_heads=3,
                num_local_experts=5,
                lm_head_bias=True,
                rms_norm_eps=1e-3,
                rope_parameters=rope(1e3),
            ),
        },
        options=dict(
            hidden_size=[32, 48, 64],
            num_hidden_layers=[2, 3, 5],
            num_attention_heads=[4, 8],
            num_key_value_heads=[1, 2, 4],
            num_local_experts=[4, 6, 16],
            attention_bias=[False, True],
            lm_head_bias=[False, True],
            tie_word_embeddings=[False, True],
            sliding_window=[None, None, 9, 30],
            router_jitter_noise=[0.01, 0.1, 0.5],
            rms_norm_eps=[1e-5, 1e-3],
            rope_parameters=[rope(), rope(1e6)],
            _long=[False, True],
            _fused=[False, False, True],
            _rope=["old", "new"],
        ),
        complete=complete,
        load=load,
    )
]
