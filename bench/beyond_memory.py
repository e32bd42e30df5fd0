#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints the table of docs/beyond_memory.md: what `wideep advise` predicts of models on boxes.

    bench/beyond_memory.py --wideep build/wideep R1=r1.json K2=k2.json V4-Flash=v4.json,r1.json

A model that wideep does not compute (V4-Flash) is predicted as one of another family (R1's) with
its sizes. A box has 16 cores, and memory that all of them read with 80 GB/s, as two channels of
DDR5; its disk reads records with 3 or 7 GB/s. Two boxes are joined by 10 Gbit/s. --print-box writes
the description of one to stdout instead.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile

BOX = """name: box
device: 16 cores, {gb} GB of memory
divisible: true
nodes: {nodes}
devices_per_node: 16
processors: 1
memory: {{bytes: {bytes_of_core:.6g}, bandwidth: 20e9, node_bandwidth: 80e9}}
disk: {{bandwidth: {disk}e9}}
peak: {{int4: 3e11}}
node_link: {{latency: 1e-6, bandwidth: 20e9, ranks: 65536}}
network: {{latency: 50e-6, bandwidth: 1.25e9}}
kernels:
  experts: {{overhead: 10e-6, memory: 0.7, compute: 0.3, row_traffic: 2, tile: 1}}
  dense: {{overhead: 10e-6, memory: 0.7, compute: 0.3, row_traffic: 2, tile: 1}}
  attention: {{overhead: 5e-6, memory: 0.7, compute: 0.3}}
  iteration: 1e-3
  dispatch: {{overhead: 10e-6, latency: 1, link: 0.5, serial: 0}}
  combine: {{overhead: 10e-6, latency: 1, link: 0.5, serial: 0}}
  bulk_dispatch: {{overhead: 10e-6, latency: 1, link: 0.5, serial: 0}}
  bulk_combine: {{overhead: 10e-6, latency: 1, link: 0.5, serial: 0}}
"""


# What a stand-in has of the model that it stands for.
SIZES = ["hidden_size", "num_hidden_layers", "num_attention_heads", "n_routed_experts",
         "num_experts_per_tok", "moe_intermediate_size", "n_shared_experts", "vocab_size"]


def stand_in(config, family, directory):
    """The path of a configuration of the family with the sizes of the other one."""
    with open(config, encoding="utf-8") as file:
        sizes = json.load(file)
    with open(family, encoding="utf-8") as file:
        made = json.load(file)
    made.update({name: sizes[name] for name in SIZES})
    made.update(num_key_value_heads=made["num_attention_heads"], first_k_dense_replace=0, n_group=1,
                topk_group=1)
    path = f"{directory}/{os.path.basename(config)}"
    with open(path, "w", encoding="utf-8") as file:
        json.dump(made, file)
    return path


def box(gb, disk, nodes):
    return BOX.format(gb=gb, disk=disk, nodes=nodes, bytes_of_core=gb * 1e9 / 16)


def predict(wideep, config, description):
    """The best row of advise, or what it says instead."""
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        file.write(description)
        file.flush()
        done = subprocess.run(
            [wideep, "advise", "--model", config, "--hardware", file.name, "--dtype", "int4",
             "--isl", "1024", "--osl", "1024", "--concurrency", "1", "--json"],
            capture_output=True, text=True, check=False)
    if done.returncode != 0:
        return done.stderr.strip().splitlines()[-1]
    found = json.loads(done.stdout)
    return found["beyond_memory"][0] if "beyond_memory" in found else "fits"


def cell(found):
    if isinstance(found, str):
        return found
    return (f"**{found['tokens_per_second']:.2g}** ({found['tokens_per_second_uniform']:.2g} to "
            f"{found['tokens_per_second_upper']:.2g}), {100 * found['experts_in_memory']:.0f} %, "
            f"{found['hit_rate']:.2f}")


def print_table(wideep, configs):
    print("| boxes | disk |" + "".join(f" {name} |" for name in configs))
    print("|---|---|" + "---|" * len(configs))
    for nodes in (1, 2):
        for gb in (64, 128, 256):
            for disk in (3, 7):
                cells = [cell(predict(wideep, config, box(gb, disk, nodes))) for config in configs.values()]
                boxes = "" if nodes == 1 else f"{nodes} × "
                print(f"| {boxes}{gb} GB | {disk} GB/s | " + " | ".join(cells) + " |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--wideep", default="build/wideep")
    parser.add_argument("--print-box", metavar="GB,DISK,NODES")
    parser.add_argument("models", nargs="*", metavar="NAME=CONFIG[,FAMILY]")
    options = parser.parse_args()
    if options.print_box:
        gb, disk, nodes = options.print_box.split(",")
        sys.stdout.write(box(int(gb), disk, int(nodes)))
        return
    with tempfile.TemporaryDirectory() as directory:
        configs = {}
        for model in options.models:
            name, paths = model.split("=", 1)
            config, _, family = paths.partition(",")
            configs[name] = stand_in(config, family, directory) if family else config
        print_table(options.wideep, configs)


if __name__ == "__main__":
    main()
