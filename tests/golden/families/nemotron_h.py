# SPDX-License-Identifier: Apache-2.0
"""Nemotron-H and Nemotron 3: layers of one part, MLPs without a gate, latent experts."""

import copy

import torch
from transformers import NemotronHConfig
from transformers.masking_utils import create_causal_mask

from families.family import Family, saved_tensors, stored
from families.glm import complete_groups

WORDS = {"M": "linear_attention", "*": "full_attention", "E": "moe", "-": "mlp"}


def draw(name, shape, generator):
    if name.endswith("A_log"):
        return torch.log(0.1 + 3.0 * torch.rand(shape, generator=generator))
    if name.endswith("dt_bias"):
        return torch.randn(shape, generator=generator) - 1.0
    if name.endswith("conv1d.weight"):
        return torch.randn(shape, generator=generator) * 0.6
    if "embeddings" in name:
        return 0.4 * torch.randn(shape, generator=generator)
    if name.endswith("up_proj") or "latent_proj" in name:
        return torch.randn(shape, generator=generator) * (1.2 / shape[-1] ** 0.5)
    return None


def complete(values):
    values = complete_groups(values)
    values["layers_block_type"] = layers(values.pop("_pattern"))
    return values


def layers(pattern):
    return [WORDS[letter] for letter in pattern]


def by_pattern(pattern):
    """As published: a pattern in place of words."""
    keys = {"layers_block_type": None, "hybrid_override_pattern": pattern}
    return {"layers_block_type": layers(pattern), "_keys": keys | {"num_hidden_layers": len(pattern)}}


class Prediction(torch.nn.Module):
    """The layer that predicts further tokens, which transformers does not have, of its layer class.

    As vLLM and SGLang compute it: attention and experts, one after the other, between a projection
    of both inputs and a norm. llama.cpp takes the mean away in that norm. Used as MtpModel is
    (families/prediction.py).
    """

    def __init__(self, model):
        super().__init__()
        config = copy.deepcopy(model.config)
        config.layers_block_type = [*config.layers_block_type, "full_attention", "moe"]
        self.config = config
        self.model = [model]  # which is no part of this module
        # Of this one only the last layers and the end are used.
        self.whole = [type(model)(config).eval()]
        text, size = self.whole[0].model, config.hidden_size
        layer = torch.nn.Module()
        layer.enorm, layer.hnorm = (
            type(text.norm_f)(size, eps=config.layer_norm_epsilon) for _ in range(2)
        )
        layer.eh_proj = torch.nn.Linear(2 * size, size, bias=False)
        layer.attention, layer.experts = text.layers[-2], text.layers[-1]
        layer.norm = text.norm_f
        self.layers = torch.nn.ModuleList([layer])

    @torch.no_grad()
    def hidden_states(self, model, ids):
        """After the final norm, [1, T, hidden], and the logits."""
        hidden = []
        hook = model.model.norm_f.register_forward_hook(lambda _, x, out: hidden.append(out))
        logits = model(ids, use_cache=False).logits
        hook.remove()
        return hidden[0], logits

    def forward_layer(self, number, hidden, positions, mask, input_ids):
        assert number == 0 and mask is None
        layer = self.layers[0]
        embeddings = self.model[0].model.embeddings(input_ids)
        x = layer.eh_proj(torch.cat([layer.enorm(embeddings), layer.hnorm(hidden)], -1))
        mask = create_causal_mask(
            config=self.config,
            inputs_embeds=embeddings,
            attention_mask=None,
            cache=None,
            position_ids=positions,
        )
        x = layer.attention(x, attention_mask=mask, position_ids=positions)
        return layer.norm(layer.experts(x))

    def _project_to_logits(self, hidden):
        return self.model[0].lm_head(hidden)

    def tensors(self):
        """As published: mtp.layers.0 is the attention, mtp.layers.1 the experts."""
        first = len(self.config.layers_block_type) - 2
        named = {}
        for name, tensor in saved_tensors(self.whole[0], False).items():
            for number in (0, 1):
                own = f"backbone.layers.{first + number}."
                if name.startswith(own):
                    named[f"mtp.layers.{number}.{name.removeprefix(own)}"] = tensor
        layer = self.layers[0]
        for name in ("enorm", "hnorm", "eh_proj"):
            named[f"mtp.layers.0.{name}.weight"] = getattr(layer, name).weight.detach()
        named["mtp.layers.1.final_layernorm.weight"] = layer.norm.weight.detach()
        return {name: stored(name, tensor, torch.bfloat16) for name, tensor in named.items()}


BASE = dict(
    vocab_size=64,
    hidden_size=32,
    intermediate_size=24,
    moe_intermediate_size=16,
    moe_shared_expert_intermediate_size=20,
    layers_block_type=layers("ME*E"),
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=8,
    n_routed_experts=8,
    num_experts_per_tok=2,
    routed_scaling_factor=2.5,
    max_position_embeddings=256,
    mamba_num_heads=8,
    mamba_head_dim=8,
    ssm_state_size=12,
    n_groups=2,
    chunk_size=8,
)

FAMILIES = [
    Family(
        name="nemotron_h",
        config=NemotronHConfig,
        base=BASE,
        shapes={
            "plain": by_pattern("MEM*E")
            | dict(num_nextn_predict_layers=1, _extra={"mtp.layers.0.norm.weight": (32,)}),
            "minimal": dict(_minimal=True, layers_block_type=layers("ME*-")),
            "latent": dict(
                layers_block_type=layers("EME*"),
                moe_latent_size=16,
                n_routed_experts=12,
                num_experts_per_tok=3,
                n_group=4,
                topk_group=2,
            ),
            "dense": by_pattern("M-M*-"),
            "twice": dict(
                layers_block_type=layers("EE**MM--"), n_routed_experts=4, routed_scaling_factor=1.0
            ),
            "odd": dict(
                layers_block_type=layers("-*MME"),
                vocab_size=65,
                hidden_size=36,
                intermediate_size=22,
                moe_intermediate_size=11,
                moe_shared_expert_intermediate_size=13,
                moe_latent_size=20,
                num_attention_heads=3,
                num_key_value_heads=1,
                head_dim=10,
                n_routed_experts=5,
                num_experts_per_tok=3,
                norm_topk_prob=False,
                routed_scaling_factor=1.5,
                mamba_num_heads=3,
                mamba_head_dim=11,
                ssm_state_size=19,
                n_groups=1,
                conv_kernel=3,
                use_bias=True,
                use_conv_bias=False,
                time_step_min=0.3,
                layer_norm_epsilon=1e-3,
                tie_word_embeddings=False,
            ),
        },
        options=dict(
            _pattern=["ME*E", "M*E", "-M*E", "EM-*", "M-*ME", "MEME", "*-ME"],
            hidden_size=[32, 48, 64],
            intermediate_size=[24, 40],
            moe_intermediate_size=[12, 16, 33],
            moe_shared_expert_intermediate_size=[16, 33],
            moe_latent_size=[None, 16, 24],
            num_attention_heads=[4, 8],
            num_key_value_heads=[1, 2, 4],
            head_dim=[8, 12],
            n_routed_experts=[4, 8, 16],
            num_experts_per_tok=[1, 2, 4],
            n_group=[1, 1, 2, 4],
            topk_group=[1, 2],
            norm_topk_prob=[True, True, False],
            routed_scaling_factor=[1.0, 2.5],
            mamba_num_heads=[4, 8],
            mamba_head_dim=[8, 16],
            ssm_state_size=[8, 16, 33],
            n_groups=[1, 2, 4],
            conv_kernel=[3, 4],
            use_bias=[False, False, True],
            use_conv_bias=[True, False],
            time_step_min=[0.001, 0.25],
            layer_norm_epsilon=[1e-5, 1e-3],
            _fused=[False, False, True],
        ),
        complete=complete,
        draw=draw,
    ),
]
