# SPDX-License-Identifier: Apache-2.0
"""AFMoE (Trinity): gated attention that rotates in windows only, norms around all parts."""

from transformers import AfmoeConfig

from families.family import Family
from families.kinds import BASE, MIXED, ODD, OPTIONS, complete, default, layers, yarn

FAMILIES = [
    Family(
        name="afmoe",
        config=AfmoeConfig,
        base=BASE | dict(num_shared_experts=1, rope_parameters=default(1e4)),
        shapes={
            "plain": dict(num_hidden_layers=4, _minimal=True),
            "published": dict(
                num_hidden_layers=4,
                layer_types=layers("sssf"),
                num_shared_experts=2,
                mup_enabled=True,
                route_scale=2.448,
                _keys={
                    "route_norm": True,
                    "score_func": "sigmoid",
                    "n_group": 1,
                    "topk_group": 1,
                    "num_expert_groups": 1,
                    "num_limited_groups": 1,
                    "load_balance_coeff": 5e-5,
                    "use_grouped_mm": True,
                },
            ),
            "no_dense": dict(
                num_dense_layers=0,
                global_attn_every_n_layers=2,
                attention_bias=True,
                tie_word_embeddings=True,
                num_key_value_heads=4,
                _rope="new",
            ),
            "odd": ODD
            | dict(
                num_dense_layers=2,
                layer_types=layers("fsf"),
                num_experts=5,
                rope_parameters=yarn(),
            ),
        },
        options=OPTIONS
        | dict(
            num_experts=[4, 9, 16],
            num_shared_experts=[1, 2],
            num_dense_layers=[0, 1, 2],
            route_scale=[1.0, 2.448],
            mup_enabled=[False, True],
            attention_bias=[False, True],
            rope_parameters=[default(1e4), default(1e6), yarn()],
            _layers=MIXED,
            _rope=["old", "new"],
        ),
        complete=complete,
    )
]
