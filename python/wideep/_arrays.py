# SPDX-License-Identifier: Apache-2.0
"""Arrays as the compiled modules take them, and torch tensors on either side of them."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from numpy.typing import ArrayLike


def matrix(name: str, values: ArrayLike, dtype: type) -> np.ndarray:
    array = to_numpy(values)
    if array.ndim != 2:
        raise ValueError(f"{name}: expected an array [layers, n], found {array.ndim} dimension(s)")
    if np.issubdtype(dtype, np.integer):
        return as_integers(name, array, dtype)
    return np.ascontiguousarray(array, dtype=dtype)


def as_integers(name: str, values: ArrayLike, dtype: type) -> np.ndarray:
    """Refuses values that the conversion to dtype would change."""
    array = to_numpy(values)
    if array.size and not np.issubdtype(array.dtype, np.integer):
        raise ValueError(f"{name}: expected integers, found {array.dtype}")
    limits = np.iinfo(dtype)
    if array.size and (array.min() < limits.min or array.max() > limits.max):
        found = f"{array.min()} to {array.max()}"
        raise ValueError(f"{name}: expected {limits.min} to {limits.max}, found {found}")
    return np.ascontiguousarray(array, dtype=dtype)


def token_counts(name: str, values: ArrayLike) -> np.ndarray:
    """[L, E] int64; engines also count in floating point."""
    array = to_numpy(values)
    if np.issubdtype(array.dtype, np.floating):
        whole = np.rint(array)
        if not np.array_equal(whole, array) or (array.size and np.abs(whole).max() > 2.0**53):
            raise ValueError(f"{name}: expected whole numbers of tokens up to 2^53")
        array = whole.astype(np.int64)
    return matrix(name, array, np.int64)


def is_tensor(value: Any) -> bool:
    torch = sys.modules.get("torch")  # a caller with a tensor has imported it
    return torch is not None and isinstance(value, torch.Tensor)


def to_numpy(value: Any) -> np.ndarray:
    if not is_tensor(value):
        return np.asarray(value)
    tensor = value.detach().cpu()
    if not tensor.dtype.is_floating_point:
        return tensor.numpy()
    return tensor.double().numpy()  # numpy has no bfloat16


def like(value: Any, array: np.ndarray) -> Any:
    """The array, as a tensor on value's device if that is a tensor."""
    if is_tensor(value):
        return sys.modules["torch"].from_numpy(array).to(value.device)
    return array
