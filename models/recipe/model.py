# SPDX-License-Identifier: Apache-2.0
"""A compact DeepSeek-V3: multi-head latent attention, sigmoid router with group-limited top-k, one multi-token-prediction layer.

Module names are those of the Hugging Face checkpoint; only the routed experts are stacked here (export.py splits them).
Matrix products run in the dtype of the incoming activations, the router always in float32.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn


@dataclass(frozen=True)
class Config:
    vocab_size: int = 8192
    hidden_size: int = 256
    num_hidden_layers: int = 7
    first_k_dense_replace: int = 1
    intermediate_size: int = 512
    moe_intermediate_size: int = 64
    n_routed_experts: int = 32
    n_shared_experts: int = 1
    num_experts_per_tok: int = 4
    n_group: int = 4
    topk_group: int = 2
    routed_scaling_factor: float = 2.0
    num_attention_heads: int = 8
    q_lora_rank: int = 128
    kv_lora_rank: int = 64
    qk_nope_head_dim: int = 32
    qk_rope_head_dim: int = 16
    v_head_dim: int = 32
    rms_norm_eps: float = 1e-6
    rope_theta: float = 10000.0


class Linear(nn.Linear):
    """Without bias; the float32 weight is cast to the activations' dtype."""

    def __init__(self, inputs, outputs):
        super().__init__(inputs, outputs, bias=False)

    def forward(self, x):
        return F.linear(x, self.weight.to(x.dtype))


class RMSNorm(nn.Module):
    def __init__(self, size, eps):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(size)), eps

    def forward(self, x):
        return F.rms_norm(x, (x.shape[-1],), self.weight.to(x.dtype), self.eps)


def rope_table(length, dim, theta):
    """cos and sin, [length, dim/2] each."""
    angles = torch.outer(torch.arange(length).float(), theta ** (-torch.arange(0, dim, 2).float() / dim))
    return angles.cos(), angles.sin()


def rotate(x, rope):
    """Rotates neighbouring pairs (x0, x1), (x2, x3), ... of [batch, heads, length, dim]; the order afterwards is free,
    as queries and keys share it."""
    cos, sin = (t.to(x.dtype) for t in rope)
    even, odd = x[..., 0::2], x[..., 1::2]
    return torch.cat((even * cos - odd * sin, odd * cos + even * sin), dim=-1)


class CausalAttention(torch.autograd.Function):
    """Written out in batched products, [batch * heads, length, dim]. For short sequences on a CPU this takes half the time
    of the fused kernel, which has no bfloat16 products there."""

    @staticmethod
    def forward(ctx, query, key, value):
        length, ctx.scale = query.shape[1], query.shape[2] ** -0.5
        mask = torch.full((length, length), float("-inf"), dtype=query.dtype).triu_(1)
        p = torch.baddbmm(mask.expand(len(query), -1, -1), query, key.transpose(1, 2), alpha=ctx.scale).softmax(-1)
        ctx.save_for_backward(query, key, value, p)
        return p @ value

    @staticmethod
    def backward(ctx, dout):
        query, key, value, p = ctx.saved_tensors
        ds = torch._softmax_backward_data(dout @ value.transpose(1, 2), p, -1, p.dtype)
        return ds @ key * ctx.scale, ds.transpose(1, 2) @ query * ctx.scale, p.transpose(1, 2) @ dout


def attend(query, key, value):
    """Causal attention over [batch, heads, length, dim]; values may be narrower than keys."""
    if query.shape[2] <= 1024:
        return CausalAttention.apply(*(t.flatten(0, 1) for t in (query, key, value))).view(*query.shape[:3], -1)
    padded = F.pad(value, (0, key.shape[-1] - value.shape[-1]))   # the fused kernel wants equal sizes
    return F.scaled_dot_product_attention(query, key, padded, is_causal=True)[..., :value.shape[-1]]


class Attention(nn.Module):
    """Multi-head latent attention, with keys and values expanded (as in training)."""

    def __init__(self, c: Config):
        super().__init__()
        self.c, heads = c, c.num_attention_heads
        self.q_a_proj = Linear(c.hidden_size, c.q_lora_rank)
        self.q_a_layernorm = RMSNorm(c.q_lora_rank, c.rms_norm_eps)
        self.q_b_proj = Linear(c.q_lora_rank, heads * (c.qk_nope_head_dim + c.qk_rope_head_dim))
        self.kv_a_proj_with_mqa = Linear(c.hidden_size, c.kv_lora_rank + c.qk_rope_head_dim)
        self.kv_a_layernorm = RMSNorm(c.kv_lora_rank, c.rms_norm_eps)
        self.kv_b_proj = Linear(c.kv_lora_rank, heads * (c.qk_nope_head_dim + c.v_head_dim))
        self.o_proj = Linear(heads * c.v_head_dim, c.hidden_size)

    def forward(self, x, rope):
        c, (batch, length, _) = self.c, x.shape
        split_heads = lambda t: t.view(batch, length, c.num_attention_heads, -1).transpose(1, 2)
        q_nope, q_rope = split_heads(self.q_b_proj(self.q_a_layernorm(self.q_a_proj(x)))).split(
            [c.qk_nope_head_dim, c.qk_rope_head_dim], dim=-1)
        latent, k_rope = self.kv_a_proj_with_mqa(x).split([c.kv_lora_rank, c.qk_rope_head_dim], dim=-1)
        k_nope, value = split_heads(self.kv_b_proj(self.kv_a_layernorm(latent))).split([c.qk_nope_head_dim, c.v_head_dim], dim=-1)
        k_rope = rotate(k_rope.unsqueeze(1), rope).expand(-1, c.num_attention_heads, -1, -1)
        query, key = torch.cat((q_nope, rotate(q_rope, rope)), -1), torch.cat((k_nope, k_rope), -1)
        return self.o_proj(attend(query, key, value).transpose(1, 2).reshape(batch, length, -1))


class MLP(nn.Module):
    def __init__(self, hidden, inner):
        super().__init__()
        self.gate_proj, self.up_proj, self.down_proj = Linear(hidden, inner), Linear(hidden, inner), Linear(inner, hidden)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class GroupedLinear(torch.autograd.Function):
    """y[rows of e] = x[rows of e] @ weight[e].T for rows grouped by expert; `ends` are the row counts summed up."""

    @staticmethod
    def forward(ctx, x, weight, ends):
        w = weight.to(x.dtype)
        ctx.save_for_backward(x, w)
        ctx.ends = ends
        y = x.new_empty(x.shape[0], w.shape[1])
        for e, (a, b) in enumerate(zip([0, *ends], ends)):
            torch.mm(x[a:b], w[e].t(), out=y[a:b])
        return y

    @staticmethod
    def backward(ctx, dy):
        x, w = ctx.saved_tensors
        dx, dw = torch.empty_like(x), torch.zeros(w.shape, dtype=w.dtype)
        for e, (a, b) in enumerate(zip([0, *ctx.ends], ctx.ends)):
            torch.mm(dy[a:b], w[e], out=dx[a:b])
            torch.mm(dy[a:b].t(), x[a:b], out=dw[e])
        return dx, dw.float(), None


def spread(x, slots, num_slots):
    """Copies row t of x to every row slots[t, :] of the result; the other rows are zero."""
    rows = x.unsqueeze(1).expand(-1, slots.shape[1], -1).reshape(-1, x.shape[1])
    return x.new_zeros(num_slots, x.shape[1]).index_copy_(0, slots.view(-1), rows)


def collect(y, slots):
    """Adds the rows slots[t, :] of y up."""
    return y.index_select(0, slots.view(-1)).view(*slots.shape, -1).sum(1)


class Dispatch(torch.autograd.Function):
    """`spread` and `collect` are each other's transpose, so each is the other's gradient."""

    @staticmethod
    def forward(ctx, x, slots, num_slots):
        ctx.slots = slots
        return spread(x, slots, num_slots)

    @staticmethod
    def backward(ctx, dy):
        return collect(dy, ctx.slots), None, None


class Combine(torch.autograd.Function):
    @staticmethod
    def forward(ctx, y, slots):
        ctx.slots, ctx.num_slots = slots, y.shape[0]
        return collect(y, slots)

    @staticmethod
    def backward(ctx, dout):
        return spread(dout, ctx.slots, ctx.num_slots), None


class Router(nn.Module):
    """Sigmoid scores; a bias, moved by the balancing rule and not by gradients, takes part in the choice only."""

    def __init__(self, c: Config):
        super().__init__()
        self.c = c
        self.weight = nn.Parameter(torch.empty(c.n_routed_experts, c.hidden_size))
        self.register_buffer("e_score_correction_bias", torch.zeros(c.n_routed_experts))
        self.last_choice = None   # [tokens, k] of the latest forward, for balancing and statistics
        self.last_scores = None   # [tokens, experts] likewise, for the separation of domains

    def choose(self, scores):
        c, n = self.c, scores.shape[0]
        biased = (scores + self.e_score_correction_bias).view(n, c.n_group, -1)
        groups = biased.topk(2, dim=-1)[0].sum(-1).topk(c.topk_group, dim=-1)[1]
        dropped = torch.ones(n, c.n_group, dtype=torch.bool).scatter_(1, groups, False)
        return biased.masked_fill(dropped.unsqueeze(-1), float("-inf")).view(n, -1).topk(c.num_experts_per_tok, dim=-1)[1]

    def forward(self, x):
        scores = F.linear(x.float(), self.weight).sigmoid()
        with torch.no_grad():
            self.last_choice = self.choose(scores)
        self.last_scores = scores
        weights = scores.gather(1, self.last_choice)
        return self.last_choice, weights / (weights.sum(-1, keepdim=True) + 1e-20) * self.c.routed_scaling_factor

    def load(self):
        """Tokens per expert in the latest forward."""
        return self.last_choice.reshape(-1).bincount(minlength=self.c.n_routed_experts).float()

    @torch.no_grad()
    def balance(self, load, speed):
        """Auxiliary-loss-free balancing: overloaded experts become less attractive. A common shift changes no choice;
        it keeps every bias >= 0, which implementations that mask dropped groups with zero rely on."""
        self.e_score_correction_bias += speed * torch.sign(load.mean() - load)
        self.e_score_correction_bias -= self.e_score_correction_bias.min().clone()


class Experts(nn.Module):
    ROWS = 128

    def __init__(self, c: Config):
        super().__init__()
        self.gate_up_proj = nn.Parameter(torch.empty(c.n_routed_experts, 2, c.moe_intermediate_size, c.hidden_size))
        self.down_proj = nn.Parameter(torch.empty(c.n_routed_experts, c.hidden_size, c.moe_intermediate_size))

    def slots(self, choice):
        """A row for every (token, expert) pair, grouped by expert. Groups are padded to multiples of ROWS: the matrix
        library compiles a kernel per shape, so few shapes matter more than a few empty rows."""
        flat = choice.reshape(-1)
        count = flat.bincount(minlength=self.down_proj.shape[0])
        ends = ((count + self.ROWS - 1) // self.ROWS * self.ROWS).cumsum(0)
        first = ends.roll(1)
        first[0] = 0
        order = flat.argsort(stable=True)
        expert = flat[order]
        place = torch.arange(flat.numel()) - (count.cumsum(0) - count)[expert] + first[expert]
        return torch.empty_like(flat).scatter_(0, order, place).view_as(choice), ends.tolist()

    def forward(self, x, choice, weights):
        slots, ends = self.slots(choice)
        gate, up = GroupedLinear.apply(Dispatch.apply(x, slots, ends[-1]), self.gate_up_proj.flatten(1, 2), ends).chunk(2, dim=-1)
        # The weight goes in before the down projection, where rows are shortest.
        slot_weights = weights.new_zeros(ends[-1]).scatter(0, slots.view(-1), weights.reshape(-1))
        inner = F.silu(gate) * up * slot_weights.unsqueeze(-1).to(x.dtype)
        return Combine.apply(GroupedLinear.apply(inner, self.down_proj, ends), slots)


class MoE(nn.Module):
    def __init__(self, c: Config):
        super().__init__()
        self.gate, self.experts = Router(c), Experts(c)
        self.shared_experts = MLP(c.hidden_size, c.moe_intermediate_size * c.n_shared_experts)

    def forward(self, x):
        flat = x.reshape(-1, x.shape[-1])
        return self.experts(flat, *self.gate(flat)).view_as(x) + self.shared_experts(x)


class Layer(nn.Module):
    def __init__(self, c: Config, dense):
        super().__init__()
        self.input_layernorm = RMSNorm(c.hidden_size, c.rms_norm_eps)
        self.self_attn = Attention(c)
        self.post_attention_layernorm = RMSNorm(c.hidden_size, c.rms_norm_eps)
        self.mlp = MLP(c.hidden_size, c.intermediate_size) if dense else MoE(c)

    def forward(self, x, rope):
        x = x + self.self_attn(self.input_layernorm(x), rope)
        return x + self.mlp(self.post_attention_layernorm(x))


class MTPLayer(Layer):
    """Predicts the token after next from the main model's output and the next token's embedding."""

    def __init__(self, c: Config):
        super().__init__(c, dense=False)
        self.enorm, self.hnorm = RMSNorm(c.hidden_size, c.rms_norm_eps), RMSNorm(c.hidden_size, c.rms_norm_eps)
        self.eh_proj = Linear(2 * c.hidden_size, c.hidden_size)
        self.shared_head = nn.ModuleDict({"norm": RMSNorm(c.hidden_size, c.rms_norm_eps)})

    def forward(self, hidden, next_embedding, rope):
        x = self.eh_proj(torch.cat((self.enorm(next_embedding), self.hnorm(hidden)), -1))
        return self.shared_head["norm"](super().forward(x, rope))


class Model(nn.Module):
    def __init__(self, c: Config, dtype=torch.float32):
        super().__init__()
        self.c, self.dtype = c, dtype
        self.embed_tokens = nn.Embedding(c.vocab_size, c.hidden_size)
        layers = [Layer(c, dense=i < c.first_k_dense_replace) for i in range(c.num_hidden_layers)]
        self.layers = nn.ModuleList([*layers, MTPLayer(c)])
        self.norm = RMSNorm(c.hidden_size, c.rms_norm_eps)

    def rope(self, length):
        return rope_table(length, self.c.qk_rope_head_dim, self.c.rope_theta)

    def hidden(self, ids):
        """Output of the main model after the final norm, [batch, length, hidden]."""
        x, rope = self.embed_tokens(ids).to(self.dtype), self.rope(ids.shape[1])
        for layer in self.layers[:-1]:
            x = layer(x, rope)
        return self.norm(x)

    def mtp_hidden(self, hidden, next_ids):
        """Output of the prediction layer for `hidden` of positions whose next tokens are `next_ids`."""
        return self.layers[-1](hidden, self.embed_tokens(next_ids).to(hidden.dtype), self.rope(hidden.shape[1]))

    def logits(self, hidden):
        return F.linear(hidden, self.embed_tokens.weight.to(hidden.dtype))

    def routers(self):
        return {i: layer.mlp.gate for i, layer in enumerate(self.layers) if isinstance(layer.mlp, MoE)}


def initialise(model, seed=0):
    """Normal with 1/sqrt(fan-in); what writes to the residual stream starts smaller, the router near-even."""
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in model.named_parameters():
        if parameter.dim() < 2:
            continue
        scale = parameter.shape[-1] ** -0.5
        scale *= 0.3 if name.endswith(("o_proj.weight", "down_proj.weight", "down_proj")) else 1.0
        scale = 0.05 if name == "embed_tokens.weight" else 0.02 if name.endswith("gate.weight") else scale
        with torch.no_grad():
            parameter.normal_(0.0, scale, generator=generator)


class TiedCrossEntropy(torch.autograd.Function):
    """Mean cross-entropy of hidden @ embedding.T against targets. Logits exist one chunk at a time, in buffers that are
    made once, and the gradients are computed on the way."""

    CHUNK = 512
    buffers = {}

    @classmethod
    def buffer(cls, rows, columns, dtype):
        key = (rows, columns, dtype)
        if key not in cls.buffers:
            cls.buffers[key] = torch.empty(rows, columns, dtype=dtype)
        return cls.buffers[key]

    @classmethod
    def chunk(cls, h, w, t):
        """Sum of the losses of a chunk, and softmax minus one-hot in h's dtype (valid until the next call)."""
        low, p = cls.buffer(len(t), len(w), h.dtype), cls.buffer(len(t), len(w), torch.float32)
        p.copy_(torch.mm(h, w.t(), out=low))
        top, label = p.amax(-1, keepdim=True), p.gather(1, t)
        p.sub_(top).exp_()
        total = p.sum(-1, keepdim=True)
        p.div_(total).scatter_add_(1, t, -torch.ones_like(label))
        return (total.log() + top - label).sum().item(), low.copy_(p)

    @classmethod
    def forward(cls, ctx, hidden, embedding, targets):
        w = embedding.detach().to(hidden.dtype)
        dh, dw, loss = torch.empty_like(hidden), torch.zeros_like(embedding), 0.0
        for a in range(0, len(hidden), cls.CHUNK):
            rows = slice(a, a + cls.CHUNK)
            part, d = cls.chunk(hidden[rows], w, targets[rows, None])
            loss += part
            torch.mm(d, w, out=dh[rows])
            dw += d.t() @ hidden[rows]
        ctx.save_for_backward(dh, dw)
        return torch.tensor(loss / len(hidden))

    @staticmethod
    def backward(ctx, grad):
        dh, dw = ctx.saved_tensors
        return dh * (grad / len(dh)), dw * (grad / len(dh)), None
