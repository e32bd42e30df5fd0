# SPDX-License-Identifier: Apache-2.0
"""Muon for the matrices, AdamW for the rest. All state is allocated at once, so that processes can share it."""

import torch

MUON_MOMENTUM, MUON_DECAY = 0.95, 0.1
ADAM_BETAS, ADAM_EPS, ADAM_DECAY = (0.9, 0.95), 1e-8, 0.01


def orthogonal(g, steps=5):
    """The nearest orthogonal matrix of each of [n, rows, columns], roughly, by Newton-Schulz in bfloat16."""
    a, b, c = 3.4445, -4.7750, 2.0315
    x = g.bfloat16()
    tall = x.shape[1] > x.shape[2]
    x = x.transpose(1, 2).contiguous() if tall else x
    x = x / (x.float().norm(dim=(1, 2), keepdim=True).bfloat16() + 1e-7)
    for _ in range(steps):
        s = x @ x.transpose(1, 2)
        x = a * x + (b * s + c * (s @ s)) @ x
    return x.transpose(1, 2) if tall else x


def uses_muon(name, p):
    return p.dim() >= 2 and not name.endswith(("embed_tokens.weight", "mlp.gate.weight"))


def new_state(name, p):
    """Momentum for Muon; first and second moment for Adam."""
    return [torch.zeros_like(p, requires_grad=False) for _ in range(1 if uses_muon(name, p) else 2)]


@torch.no_grad()
def muon_update(p, grad, momentum, lr):
    momentum.lerp_(grad, 1 - MUON_MOMENTUM)
    direction = grad.lerp(momentum, MUON_MOMENTUM).view(-1, *p.shape[-2:])
    # 0.2 sqrt(larger side) gives the update the size of an Adam step, whatever the shape.
    size = 0.2 * max(p.shape[-2:]) ** 0.5
    p.mul_(1 - lr * MUON_DECAY)
    p.add_(orthogonal(direction).reshape(p.shape).to(p.dtype), alpha=-lr * size)


@torch.no_grad()
def adam_update(p, grad, mean, square, lr, step):
    b1, b2 = ADAM_BETAS
    mean.lerp_(grad, 1 - b1)
    square.mul_(b2).addcmul_(grad, grad, value=1 - b2)
    scale = (square / (1 - b2 ** step)).sqrt_().add_(ADAM_EPS)
    p.mul_(1 - lr * (ADAM_DECAY if p.dim() > 1 else 0.0))
    p.addcdiv_(mean, scale, value=-lr / (1 - b1 ** step))
