# SPDX-License-Identifier: Apache-2.0
"""Writes a checkpoint of train.py as a Hugging Face model folder (deepseek_v3, bfloat16)."""

import argparse
import json
import os
import shutil
from pathlib import Path

import torch
from safetensors.torch import save_file

from model import Config, Model
from train_tokenizer import BOS, EOS, PAD

CONTEXT = 32768


def hf_config(c):
    """config.json: our sizes under DeepSeek-V3's names; the rest is what our model has built in."""
    sizes = {name: getattr(c, name) for name in c.__dataclass_fields__}
    return {"architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3", **sizes,
            "num_key_value_heads": c.num_attention_heads, "moe_layer_freq": 1, "ep_size": 1, "num_nextn_predict_layers": 1,
            "scoring_func": "sigmoid", "topk_method": "noaux_tc", "norm_topk_prob": True, "hidden_act": "silu",
            "attention_bias": False, "attention_dropout": 0.0, "rope_scaling": None, "rope_interleave": True,
            "max_position_embeddings": CONTEXT, "initializer_range": 0.02, "tie_word_embeddings": True, "use_cache": True,
            "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 2, "torch_dtype": "bfloat16"}


def hf_tensors(state):
    """Checkpoint names and layout: experts one by one, all bfloat16 but the routers' bias."""
    tensors = {}
    for name, value in state.items():
        if name.endswith("experts.gate_up_proj"):
            for e, (gate, up) in enumerate(value):
                tensors[name.replace("gate_up_proj", f"{e}.gate_proj.weight")] = gate
                tensors[name.replace("gate_up_proj", f"{e}.up_proj.weight")] = up
        elif name.endswith("experts.down_proj"):
            for e, down in enumerate(value):
                tensors[name.replace("down_proj", f"{e}.down_proj.weight")] = down
        else:
            tensors[name] = value
    keep_float = lambda name: name.endswith("e_score_correction_bias")
    return {"model." + n: t.to(torch.float32 if keep_float(n) else torch.bfloat16).contiguous().clone() for n, t in tensors.items()}


def rounded(state):
    """The state as exported: every weight through bfloat16, in float32 again."""
    return {n: t if n.endswith("e_score_correction_bias") else t.bfloat16().float() for n, t in state.items()}


def tokenizer_config():
    special = {"__type": "AddedToken", "lstrip": False, "normalized": False, "rstrip": False, "single_word": False, "special": True}
    return {"tokenizer_class": "PreTrainedTokenizerFast", "add_bos_token": True, "add_eos_token": False,
            "bos_token": BOS, "eos_token": EOS, "pad_token": PAD, "unk_token": None, "clean_up_tokenization_spaces": False,
            "model_max_length": CONTEXT,
            "added_tokens_decoder": {str(i): {"content": text, **{k: v for k, v in special.items() if k != "__type"}}
                                     for i, text in enumerate((BOS, EOS, PAD, "<｜User｜>", "<｜Assistant｜>"))}}


def write_folder(state, training, tokenizer, out):
    """Writes to a sibling first, then renames file by file: readers never see half a file."""
    part = out.with_name(out.name + ".part")
    part.mkdir(parents=True, exist_ok=True)
    save_file(hf_tensors(state), part / "model.safetensors", metadata={"format": "pt", **training})
    generation = {"_from_model_config": True, "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 2, "do_sample": False}
    for name, value in {"config.json": hf_config(Config()), "generation_config.json": generation, "tokenizer_config.json": tokenizer_config()}.items():
        (part / name).write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n")
    shutil.copy(tokenizer, part / "tokenizer.json")
    out.mkdir(parents=True, exist_ok=True)
    for file in part.iterdir():
        file.chmod(0o644)
        os.replace(file, out / file.name)
    part.rmdir()


def compare(state, out):
    """Largest relative difference of the logits between transformers and model.py, both in float32."""
    from transformers import AutoModelForCausalLM, AutoTokenizer
    ours = Model(Config())
    ours.load_state_dict(rounded(state))
    theirs = AutoModelForCausalLM.from_pretrained(out, dtype=torch.float32).eval()
    text = "In the beginning, def main(): return 42. Der Befehl gibt eine Liste aus."
    ids = AutoTokenizer.from_pretrained(out)(text, return_tensors="pt").input_ids
    assert ids[0, 0] == 0, "the tokenizer must begin with BOS"
    with torch.no_grad():
        a, b = ours.logits(ours.hidden(ids)), theirs(ids).logits
    return ((a - b).abs().max() / b.abs().max()).item()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--checkpoint", default="final.pt")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    torch.set_num_threads(1)
    checkpoint = torch.load(args.work / args.checkpoint, weights_only=True)
    state, training = checkpoint["model"], {"steps": str(checkpoint["step"]), "tokens": str(checkpoint["tokens"])}
    write_folder(state, training, args.work / "tokenizer.json", args.out)
    difference = compare(state, args.out)
    print(f"largest relative difference to transformers: {difference:.1e}")
    assert difference < 1e-4


if __name__ == "__main__":
    main()
