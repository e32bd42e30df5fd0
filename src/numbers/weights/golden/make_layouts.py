#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes src/numbers/weights/golden/published.safetensors: one random matrix, stored by the packages that
write quantised checkpoints.

Usage: python3 make_layouts.py [--out FILE]

For each module, the package's own code makes the tensors; "<module>.expected" is the matrix that
they stand for, computed in float32, and "<module>.form" the format that keeps its values.

Needs torch, safetensors, compressed-tensors 0.20, auto-gptq 0.7.1, autoawq 0.2.9 and
nvidia-modelopt 0.47. Of auto-gptq and autoawq only the files that pack weights are loaded, because
the packages need a GPU.
"""

import argparse
import importlib.util
import pathlib
import sys
import types

import torch
from compressed_tensors.compressors import BaseCompressor
from compressed_tensors.compressors.nvfp4.helpers import unpack_fp4_from_uint8
from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
from compressed_tensors.quantization.lifecycle.forward import dequantize
from compressed_tensors.quantization.utils import calculate_qparams, generate_gparam
from modelopt.torch.quantization.qtensor import FP8QTensor, NVFP4QTensor
from safetensors.torch import save_file

N, K = 32, 160
FORMATS = ("bf16", "fp8", "int8", "int4", "mxfp4", "nvfp4")


def source_of(name):
    """The file of a module, without running its package."""
    package, rest = name.split(".", 1)
    for entry in sys.path:
        path = pathlib.Path(entry) / package / (rest.replace(".", "/") + ".py")
        if path.exists():
            return path
    raise ImportError(name)


def load_file(name):
    """Imports one module of a package whose __init__ needs a GPU."""
    parts = name.split(".")
    for i in range(1, len(parts)):
        parent = ".".join(parts[:i])
        if parent not in sys.modules:
            module = types.ModuleType(parent)
            module.__path__ = [str(source_of(name).parents[len(parts) - 1 - i])]
            sys.modules[parent] = module
    spec = importlib.util.spec_from_file_location(name, source_of(name))
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def grouped(matrix, rows, columns):
    """The matrix as [n / rows, rows, k / columns, columns], padded with zeros."""
    n, k = matrix.shape
    padded = torch.nn.functional.pad(matrix, (0, -k % columns, 0, -n % rows))
    return padded.reshape(-(-n // rows), rows, -(-k // columns), columns)


def spread(scales, rows, columns):
    """One scale for each element."""
    return scales.repeat_interleave(rows, 0)[:N].repeat_interleave(columns, 1)[:, :K]


class Golden:
    def __init__(self):
        self.tensors = {}

    def add(self, module, form, tensors, expected):
        for name, tensor in tensors.items():
            self.tensors[f"{module}.{name}"] = tensor.contiguous()
        self.tensors[f"{module}.expected"] = expected.float().contiguous()
        self.tensors[f"{module}.form"] = torch.tensor([FORMATS.index(form)], dtype=torch.uint8)


def compressed(golden, module, form, matrix, compressor, rows, columns, **settings):
    """compressed-tensors: scales for blocks of rows × columns."""
    weights = QuantizationArgs(**settings)
    scheme = QuantizationScheme(targets=["Linear"], weights=weights)
    blocks = grouped(matrix, rows, columns)
    low, high = blocks.amin((1, 3)), blocks.amax((1, 3))
    state = {"weight": matrix}
    extra = {}
    if compressor == "nvfp4-pack-quantized":
        extra["global_scale"] = generate_gparam(matrix.min(), matrix.max())
        state["weight_global_scale"] = extra["global_scale"]
    scales, zeros = calculate_qparams(low, high, weights, **extra)
    if settings["strategy"] == "tensor":
        scales, zeros = scales.reshape(1), zeros.reshape(1)
    state |= {"weight_scale": scales, "weight_zero_point": zeros}
    written = BaseCompressor.get_value_from_registry(compressor).compress(state, scheme)
    # The package decodes its own tensors; nvfp4 it would decode in bfloat16.
    if compressor == "nvfp4-pack-quantized":
        codes = unpack_fp4_from_uint8(written["weight_packed"], N, K, dtype=torch.float32)
        expected = dequantize(codes, written["weight_scale"].float(), args=weights,
                              dtype=torch.float32, **extra)
    else:
        reader = BaseCompressor.get_value_from_registry(compressor)
        expected = reader.decompress(written, scheme)["weight"]
    golden.add(module, form, written, expected)


def gptq(golden, module, form, matrix, bits, group, symmetric):
    linear_file = load_file("auto_gptq.nn_modules.qlinear.qlinear_cuda_old")
    linear = torch.nn.Linear(K, N, bias=False, dtype=torch.float32)
    blocks = matrix.reshape(N, K // group, group)
    low, high = blocks.amin(-1).clamp(max=0), blocks.amax(-1).clamp(min=0)
    most = 2**bits - 1
    if symmetric:
        scales = torch.maximum(-low, high) * 2 / most
        zeros = torch.full_like(scales, (most + 1) // 2)
    else:
        scales = (high - low) / most
        zeros = torch.round(-low / scales).clamp(1, most)
    scales = scales.half().float()
    codes = (matrix / spread(scales, 1, group) + spread(zeros, 1, group)).round().clamp(0, most)
    expected = (codes - spread(zeros, 1, group)) * spread(scales, 1, group)
    linear.weight.data = expected.clone()
    layer = linear_file.QuantLinear(bits, group, K, N, False, weight_dtype=torch.float32)
    layer.pack(linear, scales.clone(), zeros.clone(), None)
    g_idx = torch.arange(K, dtype=torch.int32) // group
    tensors = {"qweight": layer.qweight, "qzeros": layer.qzeros, "g_idx": g_idx}
    golden.add(module, form, tensors | {"scales": scales.t().half()}, expected)


def awq(golden, module, form, matrix, group):
    load_file("awq.utils.module")
    packing = load_file("awq.utils.packing_utils")
    linear_file = load_file("awq.modules.linear.gemm")
    linear_file.get_best_device = lambda: "cpu"
    blocks = matrix.reshape(N, K // group, group)
    low, high = blocks.amin(-1), blocks.amax(-1)
    scales = ((high - low) / 15).half().float()
    zeros = torch.round(-low / scales).clamp(0, 15)
    codes = (matrix / spread(scales, 1, group) + spread(zeros, 1, group)).round().clamp(0, 15)
    linear = torch.nn.Linear(K, N, bias=False, dtype=torch.float32)
    linear.weight.data = (codes - spread(zeros, 1, group)) * spread(scales, 1, group)
    layer = linear_file.WQLinear_GEMM.from_linear(
        linear, 4, group, scales=scales.t().contiguous(), zeros=zeros.t().contiguous()
    )
    tensors = {name: getattr(layer, name) for name in ("qweight", "qzeros", "scales")}
    expected = packing.dequantize_gemm(
        layer.qweight, layer.qzeros, layer.scales.float(), 4, group
    ).t()
    golden.add(module, form, tensors, expected)


def modelopt_nvfp4(golden, module, matrix):
    tensor, scales, scale = NVFP4QTensor.quantize(matrix.clone(), 16)
    expected = tensor.dequantize(torch.float32, scale=scales, double_scale=scale,
                                 block_sizes={-1: 16})
    tensors = {"weight": tensor._quantized_data, "weight_scale": scales, "weight_scale_2": scale}
    golden.add(module, "nvfp4", tensors, expected)


def modelopt_fp8(golden, module, matrix, axis=None, block_sizes=None, form="fp8", inverse=False):
    tensor, scales = FP8QTensor.quantize(matrix, axis=axis, block_sizes=block_sizes)
    expected = tensor.dequantize(torch.float32, scale=scales, block_sizes=block_sizes)
    scales = scales.reshape(()) if scales.numel() == 1 else scales
    names = {"weight": tensor._quantized_data,
             "weight_scale_inv" if inverse else "weight_scale": scales}
    golden.add(module, form, names, expected)


def powers_of_two(golden, module, matrix, rows, columns, form):
    """DeepSeek-V3.1's scale_fmt ue8m0: the block scale of fp8 rounded up to a power of two."""
    largest = grouped(matrix, rows, columns).abs().amax((1, 3))
    scales = torch.exp2(torch.ceil(torch.log2(largest / 448)))
    codes = (matrix / spread(scales, rows, columns)).to(torch.float8_e4m3fn)
    expected = codes.float() * spread(scales, rows, columns)
    written = scales.to(torch.float8_e8m0fnu)
    golden.add(module, form, {"weight": codes, "weight_scale_inv": written}, expected)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    here = pathlib.Path(__file__).parent
    parser.add_argument("--out", type=pathlib.Path, default=here / "published.safetensors")
    out = parser.parse_args().out
    torch.manual_seed(5)
    torch.set_num_threads(1)
    matrix = torch.randn(N, K) * torch.rand(N, 1).add(0.5)
    golden = Golden()

    integer = {"type": "int", "num_bits": 4}
    both = {"symmetric": True}, {"symmetric": False}
    for bits, exact in ((4, ("int4", "int8")), (8, ("int8", "bf16"))):
        for settings, form in zip(both, exact):
            name = f"ct_int{bits}" + ("" if settings["symmetric"] else "_zeros")
            changes = integer | {"num_bits": bits} | settings
            compressed(golden, f"{name}_group32", form, matrix,
                       "pack-quantized", 1, 32, strategy="group", group_size=32, **changes)
            compressed(golden, f"{name}_channel", form, matrix, "pack-quantized", 1, K,
                       strategy="channel", **changes)
    compressed(golden, "ct_int_quantized", "int8", matrix, "int-quantized", 1, K,
               type="int", num_bits=8, strategy="channel", symmetric=True)
    floats = {"type": "float", "num_bits": 8, "symmetric": True}
    compressed(golden, "ct_fp8_tensor", "fp8", matrix, "float-quantized", N, K,
               strategy="tensor", **floats)
    compressed(golden, "ct_fp8_channel", "fp8", matrix, "float-quantized", 1, K,
               strategy="channel", **floats)
    compressed(golden, "ct_fp8_block", "fp8", matrix, "float-quantized", 16, 128,
               strategy="block", block_structure=[16, 128], **floats)
    compressed(golden, "ct_nvfp4", "nvfp4", matrix, "nvfp4-pack-quantized", 1, 16,
               strategy="tensor_group", group_size=16, type="float", num_bits=4, symmetric=True,
               scale_dtype=torch.float8_e4m3fn, zp_dtype=torch.float8_e4m3fn)

    gptq(golden, "gptq4", "int4", matrix, 4, 32, symmetric=True)
    gptq(golden, "gptq4_zeros", "int8", matrix, 4, 32, symmetric=False)
    gptq(golden, "gptq4_channel", "int4", matrix, 4, K, symmetric=True)
    gptq(golden, "gptq8", "int8", matrix, 8, 32, symmetric=True)
    gptq(golden, "gptq8_zeros", "bf16", matrix, 8, 32, symmetric=False)
    awq(golden, "awq", "int8", matrix, 32)

    modelopt_nvfp4(golden, "modelopt_nvfp4", matrix)
    modelopt_fp8(golden, "modelopt_fp8", matrix)
    modelopt_fp8(golden, "modelopt_fp8_rows", matrix, axis=0)
    modelopt_fp8(golden, "fp8_narrow", matrix, block_sizes={0: 16, 1: 32}, form="bf16",
                 inverse=True)
    powers_of_two(golden, "ue8m0", matrix, 16, 128, "fp8")
    save_file(golden.tensors, out)


if __name__ == "__main__":
    main()
