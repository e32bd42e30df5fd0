# SPDX-License-Identifier: Apache-2.0
"""DeepSeek-V4: compressed attention, hyper-connections, hash routing."""

import copy
import json
import tempfile

import torch
from safetensors.torch import load_file, save_file
from transformers import DeepseekV4Config
from transformers.masking_utils import create_sliding_window_causal_mask

from families import gpt_oss
from families.family import Family, load_model, saved_tensors, stored

SPARSE, HEAVY = "compressed_sparse_attention", "heavily_compressed_attention"
LAYERS = {"w": "sliding_attention", "s": SPARSE, "h": HEAVY}
RATIOS = {"sliding_attention": 0, SPARSE: 4, HEAVY: 128}
PUBLISHED_RATES = {SPARSE: 4, HEAVY: 128}


def layers(pattern):
    return [LAYERS[kind] for kind in pattern]


def rates(sparse, heavy):
    return {SPARSE: sparse, HEAVY: heavy}


def ropes(share, main=1e4, compress=1.6e5, **more):
    return {
        "main": {"rope_type": "default", "rope_theta": main, "partial_rotary_factor": share},
        "compress": {"rope_type": "default", "rope_theta": compress}
        | {"partial_rotary_factor": share}
        | more,
    }


YARN = {
    "rope_type": "yarn",
    "factor": 4.0,
    "original_max_position_embeddings": 32,
    "attention_factor": 1.0,
}


def draw(name, shape, generator):
    """Experts of token ids, all different for a token."""
    if not name.endswith("tid2eid"):
        return None
    scores = torch.rand(shape[0], 64, generator=generator)[:, : draw.experts]
    return scores.argsort(-1)[:, : shape[1]]


def complete(values):
    count = values["num_hidden_layers"]
    if "_layers" in values:
        values["layer_types"] = layers((values.pop("_layers") * 3)[:count])
    hashed = values.pop("_hashed", 1)
    values["mlp_layer_types"] = ["hash_moe"] * hashed + ["moe"] * (count - hashed)
    share = values["partial_rotary_factor"]
    if "_yarn" in values:
        more = YARN if values.pop("_yarn") else {}
        values["rope_parameters"] = ropes(share, 1e3, 2e3, **more)
    return values


def published_keys(values):
    """The spelling of published files, where they can say it."""
    rope = values.get("rope_parameters", {}).get("compress", {})
    if values.get("compress_rates") != PUBLISHED_RATES or rope.get("rope_type") != "yarn":
        return values
    assert rope["attention_factor"] == 1.0
    values = dict(values)
    scaling = {k: v for k, v in rope.items() if k in ("factor", "original_max_position_embeddings")}
    values["rope_theta"] = values.pop("rope_parameters")["main"]["rope_theta"]
    values["compress_rope_theta"] = rope["rope_theta"]
    values["rope_scaling"] = {"type": "yarn"} | scaling
    values["compress_ratios"] = [RATIOS[kind] for kind in values.pop("layer_types")] + [0]
    values["num_hash_layers"] = values.pop("mlp_layer_types").count("hash_moe")
    del values["compress_rates"], values["partial_rotary_factor"]
    return values


PUBLISHED = {
    "model.embed_tokens.weight": "embed.weight",
    "model.hc_head.hc_fn": "hc_head_fn",
    "model.hc_head.hc_base": "hc_head_base",
    "model.hc_head.hc_scale": "hc_head_scale",
}


def published_name(name):
    """As published: transformers writes names of its own besides."""
    name = PUBLISHED.get(name, name).removeprefix("model.")
    return name.replace(".attn.norm.", ".attn.kv_norm.")


FP8 = ("wq_a", "wq_b", "attn.wkv", "wo_a", "wo_b", "shared_experts.w1", "shared_experts.w2")
FP8 += ("shared_experts.w3", ".e_proj", ".h_proj")
QUANTISED = {
    "expert_dtype": "fp4",
    "quantization_config": {
        "activation_scheme": "dynamic",
        "fmt": "e4m3",
        "quant_method": "fp8",
        "scale_fmt": "ue8m0",
        "weight_block_size": [128, 128],
    },
}


def quantised(module, matrix):
    """As published: experts in MXFP4, most other matrices in FP8, all with powers of two."""
    if ".experts." in module:
        blocks, scales = gpt_oss.encode(matrix[None].float())
        return blocks[0].flatten(1).view(torch.int8), scales[0].view(torch.float8_e8m0fnu)
    if not module.endswith(FP8):
        return None
    exponent = torch.ceil(torch.log2(matrix.float().abs().max() / 448))
    scale = torch.exp2(exponent).reshape(1, 1)  # matrices are smaller than a block
    codes = (matrix.float() / scale).to(torch.float8_e4m3fn)
    return codes, scale.to(torch.float8_e8m0fnu)


def decoded(codes, scales):
    if codes.dtype == torch.int8:
        blocks = codes.view(torch.uint8).unflatten(1, (-1, 16))
        return gpt_oss.decode(blocks[None], scales.view(torch.uint8)[None])[0]
    return codes.float() * scales.float()


def load(directory, dtype):
    """Through a checkpoint of the decoded matrices, if some are quantised."""
    values = json.loads((directory / "config.json").read_text())
    if "quantization_config" not in values:
        return load_model(directory, dtype)
    for key in QUANTISED:
        del values[key]
    tensors = load_file(directory / "model.safetensors")
    for name in [n for n in tensors if n.endswith(".scale")]:
        weight = name.removesuffix("scale") + "weight"
        tensors[weight] = decoded(tensors[weight], tensors.pop(name))
    with tempfile.TemporaryDirectory() as plain:
        with open(f"{plain}/config.json", "w", encoding="utf-8") as file:
            json.dump(values, file)
        save_file(tensors, f"{plain}/model.safetensors", metadata={"format": "pt"})
        return load_model(plain, dtype)


def write(family, model, files, directory):
    fused = files.get("_fused", False)
    tensors = {}
    for name, tensor in saved_tensors(model, fused).items():
        if tensor.is_floating_point() and not name.endswith("ffn.gate.bias"):
            tensor = stored(name, tensor, files.get("_dtype", torch.bfloat16))
        if not fused and files.get("_published", True):
            name = published_name(name)
        module = name.removesuffix(".weight")
        codes = quantised(module, tensor) if "quantization_config" in files.get("_keys", {}) else None
        if codes:
            tensors[name], tensors[f"{module}.scale"] = codes
        else:
            tensors[name] = tensor.contiguous()
    for name, shape in files.get("_extra", {}).items():
        tensors[name] = torch.full(shape, 0.5, dtype=torch.bfloat16)
    save_file(tensors, directory / "model.safetensors", metadata={"format": "pt"})


class Prediction(torch.nn.Module):
    """The layer that predicts further tokens, which transformers does not have, of its layer class.

    As DeepSeek's own program (inference/model.py, MTPBlock), vLLM and SGLang compute it: it goes on
    from all streams of the model's last layer, before they are collapsed, has a window and a router
    like other layers, and weights of its own that collapse its streams. Used as MtpModel is
    (families/prediction.py).
    """

    def __init__(self, model):
        super().__init__()
        config = copy.deepcopy(model.config)
        config.num_hidden_layers += 1
        config.layer_types = [*config.layer_types, "sliding_attention"]
        config.mlp_layer_types = [*config.mlp_layer_types, "moe"]
        self.config = config
        self.model = [model]  # which is no part of this module
        # Of this one only the last layer and the end are used.
        self.whole = [type(model)(config).eval()]
        text, size = self.whole[0].model, config.hidden_size
        layer = torch.nn.Module()
        layer.enorm, layer.hnorm = (
            type(text.norm)(size, eps=config.rms_norm_eps) for _ in range(2)
        )
        layer.e_proj, layer.h_proj = (torch.nn.Linear(size, size, bias=False) for _ in range(2))
        layer.mtp_block, layer.hc_head, layer.norm = text.layers[-1], text.hc_head, text.norm
        self.layers = torch.nn.ModuleList([layer])
        self.is_quantised = False

    @torch.no_grad()
    def quantise(self):
        """Rounds what published files have in fewer bits."""
        self.is_quantised = True
        ends = (*FAMILIES[0].rounded, ".e_proj.weight", ".h_proj.weight")
        for name, weight in self.layers.named_parameters():
            if name.endswith(ends):
                stacked = weight.dim() == 3
                for matrix in weight if stacked else [weight]:
                    matrix.copy_(decoded(*quantised(".experts." if stacked else FP8[0], matrix)))

    @torch.no_grad()
    def hidden_states(self, model, ids):
        """The streams after the last layer, [1, T, streams, hidden], and the logits."""
        streams = []
        hook = model.model.hc_head.register_forward_pre_hook(lambda _, x: streams.append(x[0]))
        logits = model(ids, use_cache=False).logits
        hook.remove()
        return streams[0], logits

    def forward_layer(self, number, streams, positions, mask, input_ids):
        assert number == 0 and mask is None
        layer, text = self.layers[0], self.whole[0].model
        embeddings = self.model[0].model.embed_tokens(input_ids)
        x = layer.e_proj(layer.enorm(embeddings))[:, :, None] + layer.h_proj(layer.hnorm(streams))
        mask = create_sliding_window_causal_mask(
            config=self.config,
            inputs_embeds=embeddings,
            attention_mask=None,
            cache=None,
            position_ids=positions,
        )
        angles = {
            kind: text.rotary_emb(embeddings, position_ids=positions, layer_type=kind)
            for kind in ("main", "compress")
        }
        return layer.mtp_block(
            x,
            input_ids=input_ids,
            position_embeddings=angles,
            position_ids=positions,
            attention_mask=mask,
        )

    def _project_to_logits(self, streams):
        layer = self.layers[0]
        return self.model[0].lm_head(layer.norm(layer.hc_head(streams)))

    def tensors(self):
        """As published: mtp.0 …"""
        own = f"layers.{self.config.num_hidden_layers - 1}."
        named = {}
        for name, tensor in saved_tensors(self.whole[0], False).items():
            name = published_name(name)
            if name.startswith(own) or name.startswith("hc_head_") or name == "norm.weight":
                named["mtp.0." + name.removeprefix(own)] = tensor
        for name in ("enorm", "hnorm", "e_proj", "h_proj"):
            named[f"mtp.0.{name}.weight"] = getattr(self.layers[0], name).weight.detach()
        files = {}
        for name, tensor in named.items():
            module = name.removesuffix(".weight")
            codes = quantised(module, tensor) if self.is_quantised else None
            if codes:
                assert torch.equal(decoded(*codes), tensor), name
                files[name], files[f"{module}.scale"] = codes
            elif name.endswith("ffn.gate.bias"):
                files[name] = tensor
            else:
                files[name] = stored(name, tensor, torch.bfloat16)
        return files


BASE = dict(
    vocab_size=64,
    hidden_size=32,
    moe_intermediate_size=8,
    num_hidden_layers=3,
    num_attention_heads=4,
    head_dim=16,
    q_lora_rank=12,
    o_groups=2,
    o_lora_rank=8,
    n_routed_experts=6,
    num_experts_per_tok=2,
    sliding_window=7,
    partial_rotary_factor=0.5,
    compress_rates=rates(4, 16),
    index_n_heads=4,
    index_head_dim=12,
    index_topk=5,
    swiglu_limit=1.0,
    max_position_embeddings=256,
    _rope="new",
)
SHAPES = {
    "plain": dict(_layers="wsh", _minimal=True, rope_parameters=ropes(0.5)),
    "published": dict(
        _layers="wsh",
        _hashed=2,
        compress_rates=PUBLISHED_RATES,
        rope_parameters=ropes(0.5, 1e3, 2e3, **YARN),
        _keys={"qk_rope_head_dim": 8, "topk_method": "noaux_tc"},
        _extra={"mtp.0.attn.wkv.weight": [16, 32]},
    ),
    "windows": dict(
        _layers="www",
        _hashed=0,
        num_experts_per_tok=3,
        tie_word_embeddings=True,
        hc_mult=2,
        rope_parameters=ropes(0.25),
        partial_rotary_factor=0.25,
        _published=False,
    ),
    "heavy": dict(
        _layers="hhw",
        compress_rates=rates(3, 5),
        sliding_window=3,
        hc_sinkhorn_iters=2,
        hc_eps=1e-3,
        rope_parameters=ropes(1.0, 1e3, 2e3, **YARN | {"attention_factor": 1.2}),
        partial_rotary_factor=1.0,
    ),
    "odd": dict(
        _layers="shs",
        vocab_size=65,
        hidden_size=36,
        moe_intermediate_size=9,
        num_attention_heads=3,
        head_dim=22,
        partial_rotary_factor=6 / 22,
        rope_parameters=ropes(6 / 22, 1e3, 2e3),
        q_lora_rank=10,
        o_groups=3,
        o_lora_rank=5,
        n_routed_experts=5,
        num_experts_per_tok=3,
        compress_rates=rates(3, 33),
        index_head_dim=14,
        index_n_heads=6,
        index_topk=9,
        hc_mult=3,
        routed_scaling_factor=2.0,
        rms_norm_eps=1e-3,
    ),
}
SHAPES = {name: complete(BASE | shape) for name, shape in SHAPES.items()}
FP4 = dict(
    _layers="hs",
    num_hidden_layers=2,
    moe_intermediate_size=32,
    compress_rates=PUBLISHED_RATES,
    rope_parameters=ropes(0.5, 1e3, 2e3, **YARN),
    _keys=QUANTISED,
)

FAMILIES = [
    Family(
        name="deepseek_v4",
        config=DeepseekV4Config,
        base=BASE,
        shapes=SHAPES,
        later_shapes={"fp4": complete(BASE | FP4)},
        options=dict(
            hidden_size=[32, 48, 64],
            moe_intermediate_size=[8, 16, 33],
            num_hidden_layers=[2, 3, 4],
            num_attention_heads=[4, 8],
            head_dim=[16, 24, 40],
            q_lora_rank=[12, 24],
            o_groups=[1, 2, 4],
            o_lora_rank=[5, 8, 16],
            num_experts_per_tok=[1, 2, 4],
            sliding_window=[3, 7, 30, 70],
            partial_rotary_factor=[0.25, 0.5],
            compress_rates=[rates(4, 16), rates(4, 128), rates(2, 7), rates(5, 33), rates(8, 64)],
            index_n_heads=[4, 6],
            index_head_dim=[20, 24, 32],
            index_topk=[3, 8, 16],
            hc_mult=[2, 4],
            hc_sinkhorn_iters=[1, 5, 20],
            swiglu_limit=[0.7, 10.0],
            rms_norm_eps=[1e-6, 1e-3],
            tie_word_embeddings=[False, True],
            _layers=["wsh", "shw", "hsw", "hs", "whs"],
            _hashed=[0, 1, 2],
            _yarn=[False, True],
            _fused=[False, False, True],
            _published=[False, True],
        ),
        complete=complete,
        published_keys=published_keys,
        draw=draw,
        write=write,
        load=load,
        rounded=(
            *("experts.gate_up_proj", "experts.down_proj", "attn.kv_proj.weight"),
            *("q_a_proj.weight", "q_b_proj.weight", "o_a_proj.weight", "o_b_proj.weight"),
            *(f"shared_experts.{part}_proj.weight" for part in ("gate", "up", "down")),
        ),
    )
]
draw.experts = 5
