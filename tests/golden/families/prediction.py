# SPDX-License-Identifier: Apache-2.0
"""Models with a layer for multi-token prediction, and what transformers' MtpModel drafts with it.

The layer is saved under the names of the published files. Two families are also checked against
transformers' own generation with it (generate(use_mtp=True)), which knows no others yet.
"""

import torch
from safetensors.torch import load_file, save_file
from transformers import DeepseekV3Config
from transformers.modeling_layers import MtpModel

from families import all_families, deepseek_v4, nemotron_h, record
from families.family import Family, build, draw_weight, load, load_model, stored
from families.kinds import default, ropes

CHAIN = 3  # drafts after each token
PROMPTS = (3, 20, 61)
GENERATED = 10
MARGIN = 2e-3  # between the first and the second logit, as a share of the largest

# For each family: the changes of its base.
SHAPES = {
    "deepseek_v3": dict(n_group=2, topk_group=1, n_shared_experts=2),
    "deepseek_v32": dict(index_topk=9),
    "glm4_moe": dict(use_qk_norm=True, attention_bias=True),
    "glm4_moe_lite": dict(),
    "glm_moe_dsa": dict(index_topk=9),
    "qwen3_next": dict(),
    "qwen3_5_moe": dict(),
    # A layer for each draft.
    "deepseek_v3_layers": dict(n_group=1, topk_group=1, _layers=3),
    "glm4_moe_layers": dict(use_qk_norm=True, _layers=2),
    "hy_v3": dict(num_shared_experts=2),
    "bailing_hybrid": dict(head_dim=12),
    "mellum": dict(rope_parameters=ropes(default(1e5), default(1e3)), sliding_window=9),
    "exaone_moe": dict(sliding_window=9),
    "deepseek_v4": deepseek_v4.complete(
        deepseek_v4.BASE | dict(_layers="sh", num_hidden_layers=2, _yarn=True)
    ),
    "nemotron_h": dict(layers_block_type=nemotron_h.layers("ME*"), moe_latent_size=16),
    "deepseek_v4_fp4": deepseek_v4.complete(deepseek_v4.BASE | deepseek_v4.FP4),
}
# Keys that describe the layer to transformers, where its config class has none.
MTP_KEYS = dict(mtp_layer_types=["full_attention"], mtp_mlp_layer_types=["sparse"])
WITH_WINDOW = dict(mtp_layer_types=["sliding_attention"], mtp_mlp_layer_types=["sparse"])
OTHER_KEYS = {
    "mellum": WITH_WINDOW,
    # transformers leaves the layer out; its MtpModel builds it of the model's own parts.
    "exaone_moe": WITH_WINDOW | dict(mtp_mlp_layer_types=["dense"]),
}
# Layers that transformers does not have.
OWN_LAYERS = {"deepseek_v4": deepseek_v4.Prediction, "nemotron_h": nemotron_h.Prediction}
GENERATES = ("deepseek_v3", "glm4_moe", "deepseek_v3_layers", "glm4_moe_layers")
DEEPSEEK_V3 = Family(
    name="deepseek_v3",
    config=DeepseekV3Config,
    base=dict(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=40,
        moe_intermediate_size=8,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=4,
        n_routed_experts=6,
        num_experts_per_tok=2,
        first_k_dense_replace=1,
        q_lora_rank=24,
        kv_lora_rank=16,
        qk_nope_head_dim=16,
        qk_rope_head_dim=8,
        v_head_dim=16,
        max_position_embeddings=256,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
        num_mtp_layers=0,
    ),
    shapes={},
    options={},
)


def mtp_model(model, layers, keys):
    """The layers that transformers builds for the model."""
    model.config.num_mtp_layers = layers
    for key, value in keys.items():
        if getattr(model.config, key, None) is None:
            setattr(model.config, key, value)
    mtp = MtpModel(model, layers).eval()
    for layer in mtp.layers:  # GLM-5's return what their indexers chose, too
        layer.mtp_block.register_forward_hook(
            lambda module, inputs, out: out[0] if isinstance(out, tuple) else out
        )
    return mtp


def fill(mtp, adds_one, seed):
    """Random weights, rounded as in files."""
    generator = torch.Generator().manual_seed(seed)
    tensors = dict(mtp.layers.named_parameters())
    tensors |= {n: b for n, b in mtp.layers.named_buffers() if n.endswith("correction_bias")}
    with torch.no_grad():
        for name, tensor in sorted(tensors.items()):
            drawn = draw_weight(name, tensor.shape, generator)
            if "norm" in name and adds_one and name.endswith("weight"):
                drawn = drawn - 1.0
            tensor.copy_(drawn if name.endswith("correction_bias") else drawn.to(torch.bfloat16))


def deepseek_names(first_layer):
    def name_of(name):
        number, name = name.split(".", 1)
        name = name.removeprefix("mtp_block.").replace("post_norm.", "shared_head.norm.")
        return f"model.layers.{first_layer + int(number)}.{name}"

    return name_of


def hy_names(first_layer):
    """As DeepSeek's, with this family's names inside."""
    renamed = {
        "mlp.gate.": "mlp.router.gate.",
        "mlp.e_score_correction_bias": "mlp.expert_bias",
        "mlp.shared_experts.": "mlp.shared_mlp.",
        "shared_head.norm.": "final_layernorm.",
    }

    def name_of(name):
        name = deepseek_names(first_layer)(name)
        for ours, published in renamed.items():
            name = name.replace(ours, published)
        return name

    return name_of


def bailing_names(first_layer):
    """As DeepSeek's, with this family's names inside."""
    renamed = {
        "self_attn.o_proj.": "attention.dense.",
        "self_attn.": "attention.",
        "mlp.gate.e_score_correction_bias": "mlp.gate.expert_bias",
        "shared_head.norm.": "final_layernorm.",
    }

    def name_of(name):
        name = deepseek_names(first_layer)(name)
        for ours, published in renamed.items():
            name = name.replace(ours, published)
        return name

    return name_of


def qwen_names(name):
    name = name.removeprefix("0.")
    outer = {
        "enorm": "pre_fc_norm_embedding",
        "hnorm": "pre_fc_norm_hidden",
        "eh_proj": "fc",
        "post_norm": "norm",
    }
    for ours, published in outer.items():
        if name.startswith(ours + "."):
            return f"mtp.{name.replace(ours, published)}"
    return "mtp.layers.0." + name.removeprefix("mtp_block.")


def split_experts(tensors):
    """Stacked experts as one matrix per expert."""
    split = {}
    for name, tensor in tensors.items():
        if name.endswith("experts.gate_up_proj"):
            for e, both in enumerate(tensor):
                for part, half in zip(("gate_proj", "up_proj"), both.chunk(2)):
                    split[name.replace("gate_up_proj", f"{e}.{part}.weight")] = half
        elif name.endswith("experts.down_proj"):
            for e, one in enumerate(tensor):
                split[name.replace("down_proj", f"{e}.down_proj.weight")] = one
        else:
            split[name] = tensor
    return split


@torch.no_grad()
def hidden_states(model, ids):
    """After the final norm, [1, T, hidden], and the logits."""
    out = model(ids, use_cache=False, output_hidden_states=True)
    return out.hidden_states[-1], out.logits


@torch.no_grad()
def outputs(mtp, hidden, ids, length):
    """The layer's outputs for rows 0 to `length` - 1, each with the next token of ids."""
    positions = torch.arange(1, length + 1)[None]
    return mtp.forward_layer(
        0, hidden[:, :length], positions, None, input_ids=ids[:, 1 : length + 1]
    )


def close_choice(calls):
    """Whether the last row's experts, or the positions that it attends to, are a close choice."""
    return any(record.distance(scores.flatten(0, -2)[-1:], k)[0] < MARGIN for scores, k in calls)


@torch.no_grad()
def drafts_after(mtp, hidden, ids, position):
    """The chain of drafts after row `position`, whose next token is known; -1 from the first one on
    that hangs on a close choice."""
    rows, text, drafts = hidden[:, : position + 1], ids[:, : position + 2], []
    for _ in range(CHAIN):
        calls = []
        with record.watched(calls):
            out = outputs(mtp, rows, text, rows.shape[1])
        logits = mtp._project_to_logits(out[:, -1:])[0, 0]
        first, second = logits.topk(2)[0]
        if close_choice(calls) or first - second < MARGIN * first.abs():
            break
        drafts.append(int(logits.argmax()))
        rows = torch.cat([rows, out[:, -1:]], 1)
        text = torch.cat([text, torch.tensor([[drafts[-1]]])], 1)
    return drafts + [-1] * (CHAIN - len(drafts))


@torch.no_grad()
def drafts_of_layers(mtp, hidden, ids, position):
    """The same with a layer for each draft, by transformers' own loop."""
    calls = []
    with record.watched(calls):
        drafts, logits, _ = mtp(
            ids[:, 1 : position + 2],
            hidden[:, : position + 1],
            None,
            torch.arange(1, position + 2)[None],
            None,
        )
    first, second = logits[0].topk(2)[0].unbind(-1)
    close = (first - second < MARGIN * first.abs()).any() or close_choice(calls)
    drafts = drafts[0].tolist()
    return [-1] * CHAIN if close else drafts + [-1] * (CHAIN - len(drafts))


@torch.no_grad()
def greedy(model, prompt, count):
    ids = prompt[None]
    for _ in range(count):
        ids = torch.cat([ids, model(ids, use_cache=False).logits[:, -1:].argmax(-1)], 1)
    return ids


def draw_text(model, length, generator):
    """A prompt and the greedy text after it, up to a close choice."""
    while True:
        prompt = record.draw_prompt([model], length, False, generator)
        ids = greedy(model, prompt, GENERATED)
        ids = ids[:, : int(record.first_close([model], ids, False)[0])]
        if ids.shape[1] >= length + GENERATED // 2:
            return prompt, ids


def check_generation(directory, prompt, ids, drafts):
    """transformers' own generation drafts the same after every token that it verifies."""
    made = []
    plain = MtpModel.forward

    def noted(self, input_ids, *arguments, **named):
        out = plain(self, input_ids, *arguments, **named)
        made.append((named.get("full_input_ids"), out[0]))
        return out

    model = load_model(directory, torch.float32)
    # transformers finds the layers by the numbers that they have in the published models.
    first = model.config.num_hidden_layers
    model._keys_to_ignore_on_load_unexpected = [
        rf"model\.layers\.{first + i}.*" for i in range(model.config.num_mtp_layers)
    ]
    MtpModel.forward = noted
    try:
        text = model.generate(
            prompt[None], use_mtp=True, max_new_tokens=GENERATED, do_sample=False, eos_token_id=None
        )
    finally:
        MtpModel.forward = plain
    same = min(text.shape[1], ids.shape[1])
    assert torch.equal(text[:, :same], ids[:, :same]), "generation with drafts says something else"
    assert len(made) > 0
    # Each call drafts after the tokens that generation has so far.
    checked = 0
    for so_far, drafted in made:
        if so_far is None or so_far.shape[1] > ids.shape[1] - 1:
            continue
        for expected, found in zip(drafts[so_far.shape[1] - 2], drafted[0].tolist()):
            assert expected in (-1, found), "generation drafts something else"
        checked += 1
    return checked


def make(name, seed, out):
    family_name = name.removesuffix("_layers").removesuffix("_fp4")
    family = DEEPSEEK_V3 if family_name == DEEPSEEK_V3.name else all_families()[family_name]
    directory = out / name
    directory.mkdir(parents=True, exist_ok=True)
    qwen = name.startswith("qwen")
    values = SHAPES[name] | {"_rope": "new"}
    layers = values.pop("_layers", 1)
    if name == "qwen3_5_moe":
        values |= {"_keys": {"mtp_num_hidden_layers": 1, "mtp_use_dedicated_embeddings": False}}
    elif not qwen:
        values["_keys"] = values.get("_keys", {}) | {"num_nextn_predict_layers": layers}
    if name == "exaone_moe":
        values["_keys"]["mtp_layer_types"] = WITH_WINDOW["mtp_layer_types"]
    build(family, values, seed, directory)
    model = load(family, directory, torch.float32)
    own = OWN_LAYERS.get(family_name)
    mtp = own(model) if own else mtp_model(model, layers, OTHER_KEYS.get(name, MTP_KEYS))
    fill(mtp, qwen, seed)
    if name.endswith("_fp4"):
        mtp.quantise()
    names_of_layer = {"hy_v3": hy_names, "bailing_hybrid": bailing_names}.get(name, deepseek_names)
    names = names_of_layer(model.config.num_hidden_layers)
    if qwen or name in ("mellum", "exaone_moe"):
        names = qwen_names
    layer = dict(mtp.layers.state_dict())
    if name != "qwen3_5_moe":  # whose files have stacked experts
        layer = split_experts(layer)
    layer = {names(n): t for n, t in layer.items()}
    layer = {n: stored(n, t, torch.bfloat16) for n, t in layer.items() if t.numel()}
    tensors = load_file(directory / "model.safetensors")
    tensors |= mtp.tensors() if own else layer
    save_file(tensors, directory / "model.safetensors", metadata={"format": "pt"})

    generator = torch.Generator().manual_seed(seed)
    recorded, checked = {}, 0
    for p, length in enumerate(PROMPTS):
        prompt, ids = draw_text(model, length, generator)
        hidden, logits = (mtp.hidden_states if own else hidden_states)(model, ids)
        after = drafts_after if layers == 1 else drafts_of_layers
        drafts = [after(mtp, hidden, ids, i) for i in range(ids.shape[1] - 1)]
        if name in GENERATES:
            checked += check_generation(directory, prompt, ids, drafts)
        recorded |= {
            f"p{p}.ids": ids[0].to(torch.int32),
            f"p{p}.prompt_length": torch.tensor([length], dtype=torch.int32),
            f"p{p}.drafts": torch.tensor(drafts, dtype=torch.int32),
        }
    save_file(recorded, directory / "golden.safetensors")
    known = torch.cat([recorded[f"p{p}.drafts"].flatten() for p in range(len(PROMPTS))])
    print(f"{name:16} {len(known)} drafts, {int((known < 0).sum())} close, {checked} also generated")
