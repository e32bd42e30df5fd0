# SPDX-License-Identifier: Apache-2.0
"""The online balancer for other engines: windows of load in, few moves of experts out.

    repairer = wideep.Repairer(placement, num_experts=256, ep_size=32, top_k=8)
    for load in windows:                        # [L, E] tokens of each expert, of all ranks
        for update in repairer.step(load):
            copy_weights(update.layer, update.moves)     # (slot, expert) of each copy

It remembers kinds of load that come back, acts as soon as an imbalance is more than noise, and moves
an expert only if that saves more than it costs (docs/online.md).
"""

from __future__ import annotations

from typing import NamedTuple, Optional, Sequence

import numpy as np
from numpy.typing import ArrayLike

from . import _online_repairer
from ._arrays import as_integers, matrix, token_counts

_INT_MAX = 2**31 - 1


class Update(NamedTuple):
    layer: int
    moves: np.ndarray  # [n, 2] int64: slot, and the expert that it gets
    shares: np.ndarray  # [S] of the expected load; equal ones for split "equal"
    imbalance_before: float  # expected of the placement so far, and of the new one
    imbalance_after: float
    bytes: int  # moves * bytes_per_expert
    urgent: bool  # noise does not explain the imbalance


class Repairer:
    """Keeps the placement of all layers in balance. One thread at a time; equal calls give equal
    updates, so every rank can have one of its own."""

    def __init__(
        self,
        placement: ArrayLike,
        num_experts: int,
        ep_size: int,
        top_k: int,
        split: str = "equal",
        share_update: str = "iteration",
        tolerance: Optional[float] = None,
        max_moves: Optional[int] = None,
        rows_per_move: float = 32.0,
        horizon_tokens: Optional[int] = None,
        false_alarm_rate: float = 1e-3,
        sample_tokens: int = 2048,
        num_samples: int = 32,
        turn_ms: Optional[float] = None,
        bytes_per_expert: int = 0,
        rank_slots: Optional[Sequence[int]] = None,
    ) -> None:
        """placement: [L, S] in service. top_k: experts per token.

        split: how the engine divides an expert's tokens among its replicas: "equal" (vLLM,
            TensorRT-LLM, SGLang's default) or "weighted".
        share_update: with a weighted split, where its shares come from: "iteration" (computed from
            each iteration's own tokens, as by SGLang's dispatch "lp") or "window" (the updates').
        tolerance: the imbalance that needs no moves; None: 0.01 equal, 0.003 weighted.
        max_moves: of a layer in one step; None: no limit.
        rows_per_move, horizon_tokens: a move must save so many rows (a token in an expert) on the
            critical path within so many tokens. None: 16384, or 4096 per rank above 8 ranks.
        false_alarm_rate: of a balanced layer looking unbalanced in one step.
        sample_tokens, num_samples: how counts are gathered, and how many samples are remembered.
        turn_ms: planning time of one step of a weighted split, four times as much when the text has
            changed; the rest follows in the next steps. None: as docs/online.md says.
        rank_slots: [R] usable slots of each rank, 0 for a dead one; None: all.
        """
        if split not in ("equal", "weighted"):
            raise ValueError(f'split: expected "equal" or "weighted", found {split!r}')
        if share_update not in ("iteration", "window"):
            raise ValueError(f'share_update: expected "iteration" or "window", found {share_update!r}')
        placements = matrix("placement", placement, np.int32)
        self._shape = placements.shape
        self._num_experts = num_experts
        self._repairer = _online_repairer.create(
            num_experts,
            ep_size,
            list(rank_slots or []),
            top_k,
            split == "weighted",
            share_update == "window",
            tolerance or 0.0,
            _INT_MAX if max_moves is None else max_moves,
            rows_per_move,
            horizon_tokens or 0,
            false_alarm_rate,
            sample_tokens,
            num_samples,
            turn_ms or 0.0,
            bytes_per_expert,
            placements,
        )

    def step(self, load: ArrayLike, busy: Optional[ArrayLike] = None) -> list[Update]:
        """Ends an iteration, or a window of iterations, in which experts got load [L, E] tokens.

        busy: [L] true for layers whose last update is still under way: they get none.
        The updates count as in service from now on."""
        counts = token_counts("load", load)
        expected = (self._shape[0], self._num_experts)
        if counts.shape != expected:
            raise ValueError(f"load: expected {expected}, found {counts.shape}")
        layers = np.asarray([] if busy is None else busy).astype(np.uint8)
        return [
            Update(layer, np.array(moves, dtype=np.int64).reshape(-1, 2), np.array(shares), *rest)
            for layer, moves, shares, *rest in _online_repairer.step(
                self._repairer, counts, np.ascontiguousarray(layers)
            )
        ]

    @property
    def placement(self) -> np.ndarray:
        """[L, S] int32, with all updates so far."""
        result = np.empty(self._shape, dtype=np.int32)
        _online_repairer.write_placements(self._repairer, result)
        return result

    def set_placement(self, layer: int, placement: ArrayLike) -> None:
        """Where the engine did not follow an update: what it serves instead, [S]."""
        row = as_integers("placement", placement, np.int32)
        if row.shape != self._shape[1:]:
            raise ValueError(f"placement: expected {self._shape[1:]}, found {row.shape}")
        _online_repairer.set_placement(self._repairer, layer, row)
