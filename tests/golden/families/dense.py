# SPDX-License-Identifier: Apache-2.0
"""Dense models: Llama, Mistral (a window of all layers), Qwen2 (biases of q, k, v) and Qwen3 (norms
of q and k), whose later layers may slide."""

from transformers import LlamaConfig, MistralConfig, Qwen2Config, Qwen3Config

from families.family import Family

BASE = dict(
    vocab_size=64,
    hidden_size=32,
    intermediate_size=24,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=256,
)
ODD = dict(
    vocab_size=67,
    hidden_size=36,
    intermediate_size=26,
    num_attention_heads=3,
    num_key_value_heads=3,
    head_dim=14,
    rms_norm_eps=1e-3,
)
OPTIONS = dict(
    hidden_size=[32, 48, 64],
    intermediate_size=[16, 20, 48, 100],
    num_hidden_layers=[2, 3, 4],
    num_attention_heads=[4, 8],
    num_key_value_heads=[1, 2, 4],
    tie_word_embeddings=[False, True],
    rms_norm_eps=[1e-6, 1e-5, 1e-3],
    _rope=["old", "new"],
)
SLIDING = dict(
    use_sliding_window=[False, True],
    sliding_window=[9, 40, 64],
    max_window_layers=[0, 1, 3],
)
# Of Llama 3.1: some wavelengths are scaled, some kept, some between.
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 5e3,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}


def family(name, config, shapes, options):
    return Family(
        name=name,
        config=config,
        base=BASE,
        shapes=shapes,
        options=OPTIONS | options,
        has_fused_layout=False,
    )


FAMILIES = [
    family(
        "llama",
        LlamaConfig,
        {
            "plain": dict(_minimal=True),
            "llama3": dict(rope_parameters=LLAMA3, num_key_value_heads=1, head_dim=16),
            "tied": dict(
                tie_word_embeddings=True, rope_parameters=LLAMA3 | {"factor": 32.0}, _rope="new"
            ),
            "bias": dict(attention_bias=True, mlp_bias=True, num_hidden_layers=3),
            "odd": ODD,
        },
        dict(
            head_dim=[None, 8, 16, 18],
            attention_bias=[False, True],
            mlp_bias=[False, True],
            rope_parameters=[LLAMA3, {"rope_type": "default", "rope_theta": 1e4}],
        ),
    ),
    family(
        "mistral",
        MistralConfig,
        {
            "plain": dict(_minimal=True, sliding_window=None),
            "window": dict(sliding_window=20, num_key_value_heads=1, _rope="new"),
            "tied": dict(tie_word_embeddings=True, head_dim=12, sliding_window=9),
            "odd": ODD | dict(sliding_window=33),
        },
        dict(head_dim=[None, 8, 16, 18], sliding_window=[None, 9, 40, 64]),
    ),
    family(
        "qwen2",
        Qwen2Config,
        {
            "plain": dict(_minimal=True),
            "window": dict(
                num_hidden_layers=3, use_sliding_window=True, sliding_window=18, max_window_layers=1
            ),
            "tied": dict(tie_word_embeddings=True, num_key_value_heads=4),
            "odd": {k: v for k, v in ODD.items() if k != "head_dim"} | dict(
                num_key_value_heads=1,
                _rope="new",
                rope_parameters={"rope_type": "linear", "rope_theta": 1e4, "factor": 4.0},
            ),
        },
        SLIDING,
    ),
    family(
        "qwen3",
        Qwen3Config,
        {
            "plain": dict(_minimal=True, head_dim=16),
            "window": dict(
                num_hidden_layers=3,
                head_dim=12,
                use_sliding_window=True,
                sliding_window=18,
                max_window_layers=2,
            ),
            "bias": dict(attention_bias=True, head_dim=8, tie_word_embeddings=True),
            "yarn": dict(
                head_dim=20,
                num_key_value_heads=1,
                rope_parameters={
                    "rope_type": "yarn",
                    "rope_theta": 1e4,
                    "factor": 4.0,
                    "original_max_position_embeddings": 32,
                },
            ),
            "odd": ODD,
        },
        SLIDING | dict(head_dim=[8, 16, 18], attention_bias=[False, True]),
    ),
]
