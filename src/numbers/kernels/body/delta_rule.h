// SPDX-License-Identifier: Apache-2.0
//
// delta_rule.h in F32x16, for every instruction set. Included inside a region, after kDeltaVectors:
// how many vectors of columns are computed together, with u and two sums of each in registers, and
// kDeltaVectorsOfOne: how many of a single token, which has no sums for a next one. Its columns stay
// where they are: a copy would cost more than it saves. The more of a row it takes at once, the
// longer are the runs of memory that it reads.
//
// Columns of the state are independent of each other. A few tokens' q and k, and kDeltaVectors of
// columns, key_dim rows high, are copied to buffers that fit the first-level cache together; the
// tokens go through these columns before the next ones. (Where they come from, rows lie a power of
// two apart as a rule, so they would share a few sets of the caches.) A pass over the columns
// applies a token and already takes the product of the new state with the next token's k, so that
// the state is read and written once a token. The first pass reads the state, the last one writes
// it.
//
// With a decay for each channel, the keys that meet the old state are multiplied by it before.
#pragma once

// With 128 rows, q, k and a block of columns are 24 KiB, with decays up to 40: fewer tokens would be
// slower than what the second-level cache adds to these.
inline constexpr int kDeltaTokens = 16 / kDeltaVectors;
inline constexpr int kDeltaRows = 256;  // of the buffers; with more, all stays where it is
static_assert(kDeltaTokens * kDeltaRows >= kMaxChannelDecays);

// Rows of some columns. Whole: all lanes exist; else only `lanes` do of the one vector.
template <int Vectors, bool Whole>
struct DeltaColumns {
  float* first;
  size_t stride;
  int lanes;

  F32x16 get(const float* row, int v) const {
    return Whole ? load(row + v * kPanelWidth) : load_n(row, lanes);
  }
  void put(float* row, int v, F32x16 values) const {
    Whole ? store(row + v * kPanelWidth, values) : store_n(row, values, lanes);
  }
};

// to = from, if that is elsewhere; remembered = Sᵀ k.
template <int Vectors, bool Whole>
inline void delta_product(const DeltaColumns<Vectors, Whole>& from,
                          const DeltaColumns<Vectors, Whole>& to, const float* k, int key_dim,
                          F32x16 (&remembered)[Vectors]) {
  F32x16 sums[Vectors];
  for (F32x16& sum : sums) sum = zero();
  const float* row = from.first;
  float* out = to.first;
  const bool copies = to.first != from.first;
  for (int i = 0; i < key_dim; ++i, row += from.stride, out += to.stride) {
    const F32x16 factor = set1(k[i]);
    for (int v = 0; v < Vectors; ++v) {
      const F32x16 state = from.get(row, v);
      if (copies) to.put(out, v, state);
      sums[v] = fma(factor, state, sums[v]);
    }
  }
  for (int v = 0; v < Vectors; ++v) remembered[v] = sums[v];
}

// One token's rows.
struct DeltaToken {
  const float* q;
  const float* k;
  const float* next_k;  // what the next token, if there is one, multiplies the state with
  const float* decay;
};

// Applies a token: to = S = decay · from + k uᵀ, out = Sᵀ q. HasNext: next_remembered = Sᵀ next_k.
template <bool Channels, bool HasNext, int Vectors, bool Whole>
inline void delta_step(const DeltaColumns<Vectors, Whole>& from,
                       const DeltaColumns<Vectors, Whole>& to, const DeltaToken& token, int key_dim,
                       const F32x16 (&u)[Vectors], F32x16 (&out)[Vectors],
                       F32x16 (&next_remembered)[Vectors]) {
  F32x16 sums[Vectors], next_sums[Vectors];
  for (int v = 0; v < Vectors; ++v) sums[v] = next_sums[v] = zero();
  F32x16 kept = set1(token.decay[0]);
  const float* row = from.first;
  float* to_row = to.first;
  for (int i = 0; i < key_dim; ++i, row += from.stride, to_row += to.stride) {
    F32x16 state[Vectors];
    const F32x16 from_k = set1(token.k[i]);
    if constexpr (Channels) kept = set1(token.decay[i]);
    for (int v = 0; v < Vectors; ++v) {
      state[v] = fma(from_k, u[v], mul(kept, from.get(row, v)));
      to.put(to_row, v, state[v]);
    }
    const F32x16 from_q = set1(token.q[i]);
    for (int v = 0; v < Vectors; ++v) sums[v] = fma(from_q, state[v], sums[v]);
    if constexpr (HasNext) {
      const F32x16 from_next = set1(token.next_k[i]);
      for (int v = 0; v < Vectors; ++v) next_sums[v] = fma(from_next, state[v], next_sums[v]);
    }
  }
  for (int v = 0; v < Vectors; ++v) {
    out[v] = sums[v];
    next_remembered[v] = next_sums[v];
  }
}

// The tokens of a call. k meets the old state, as it is or multiplied by decays.
struct DeltaTokens {
  DeltaRuleArgs args;
  const float* k;
  size_t k_stride;
};

// All tokens, or the one that there is, on some columns from `first` on.
template <bool Channels, bool One, int Vectors, bool Whole>
inline void delta_columns(const DeltaTokens& tokens, int first, int lanes) {
  const DeltaRuleArgs& args = tokens.args;
  alignas(64) float buffer[One ? 1 : kDeltaRows * Vectors * kPanelWidth];
  const DeltaColumns<Vectors, Whole> state{args.state + first, static_cast<size_t>(args.value_dim),
                                           lanes};
  const DeltaColumns<Vectors, Whole> near =
      !One && args.key_dim <= kDeltaRows
          ? DeltaColumns<Vectors, Whole>{buffer, size_t{Vectors} * kPanelWidth, lanes}
          : state;
  F32x16 remembered[Vectors], u[Vectors], out[Vectors];
  delta_product(state, near, tokens.k, args.key_dim, remembered);
  for (int t = 0; t < args.num_tokens; ++t) {
    const size_t at = static_cast<size_t>(t);
    const DeltaToken token{.q = args.q + at * args.q_stride,
                           .k = args.k + at * args.k_stride,
                           .next_k = tokens.k + (at + 1) * tokens.k_stride,
                           .decay = args.decay + at * args.decay_stride};
    const F32x16 beta = set1(args.beta[at * args.beta_stride]);
    const float* values = args.v + at * args.v_stride + first;
    for (int v = 0; v < Vectors; ++v) {
      const F32x16 kept = Channels ? remembered[v] : mul(set1(token.decay[0]), remembered[v]);
      u[v] = mul(beta, sub(state.get(values, v), kept));
    }
    if (t + 1 < args.num_tokens) {
      delta_step<Channels, true>(near, near, token, args.key_dim, u, out, remembered);
    } else {
      delta_step<Channels, false>(near, state, token, args.key_dim, u, out, remembered);
    }
    float* results = args.out + at * args.out_stride + first;
    for (int v = 0; v < Vectors; ++v) state.put(results, v, out[v]);
  }
}

// Up to kDeltaTokens tokens on the columns from `first` on: Vectors of them as long as there are as
// many, then half as many, and so on.
template <bool Channels, bool One, int Vectors>
inline void delta_tokens(const DeltaTokens& tokens, int first) {
  constexpr int kColumns = Vectors * kPanelWidth;
  const int value_dim = tokens.args.value_dim;
  for (; first + kColumns <= value_dim; first += kColumns) {
    delta_columns<Channels, One, Vectors, true>(tokens, first, kPanelWidth);
  }
  if constexpr (Vectors > 1) {
    delta_tokens<Channels, One, Vectors / 2>(tokens, first);
  } else if (first < value_dim) {
    delta_columns<Channels, One, 1, false>(tokens, first, value_dim - first);
  }
}

// Copies rows of key_dim elements to adjacent ones.
inline void gather_tokens(const float** rows, size_t* stride, const DeltaRuleArgs& args,
                          float* to) {
  const size_t dim = static_cast<size_t>(args.key_dim);
  for (int t = 0; t < args.num_tokens; ++t) {
    std::memcpy(to + static_cast<size_t>(t) * dim, *rows + static_cast<size_t>(t) * *stride,
                dim * sizeof(float));
  }
  *rows = to;
  *stride = dim;
}

// decay ∘ k, adjacent rows.
inline void decay_keys(const DeltaRuleArgs& args, float* to) {
  for (int t = 0; t < args.num_tokens; ++t) {
    const float* k = args.k + static_cast<size_t>(t) * args.k_stride;
    const float* decay = args.decay + static_cast<size_t>(t) * args.decay_stride;
    for (int i = 0; i < args.key_dim; ++i) *to++ = decay[i] * k[i];
  }
}

template <bool Channels>
inline void delta_part(DeltaRuleArgs part) {
  alignas(64) float q[kDeltaTokens * kDeltaRows], k[kDeltaTokens * kDeltaRows];
  alignas(64) float decay[Channels ? kDeltaTokens * kDeltaRows : 1];
  alignas(64) float decayed[Channels ? kDeltaTokens * kDeltaRows : 1];
  if (part.num_tokens > 1 && part.key_dim <= kDeltaRows) {
    gather_tokens(&part.q, &part.q_stride, part, q);
    gather_tokens(&part.k, &part.k_stride, part, k);
    if (Channels) gather_tokens(&part.decay, &part.decay_stride, part, decay);
  }
  DeltaTokens tokens{part, part.k, part.k_stride};
  if (Channels) {
    decay_keys(part, decayed);
    tokens.k = decayed;
    tokens.k_stride = static_cast<size_t>(part.key_dim);
  }
  if (part.num_tokens == 1) {
    delta_tokens<Channels, true, kDeltaVectorsOfOne>(tokens, 0);
  } else {
    delta_tokens<Channels, false, kDeltaVectors>(tokens, 0);
  }
}

void delta_rule(const DeltaRuleArgs& args) {
  // One token's keys, multiplied by decays, always have room.
  const int together = args.channel_decay && args.key_dim > kDeltaRows ? 1 : kDeltaTokens;
  for (int first = 0; first < args.num_tokens; first += together) {
    const size_t at = static_cast<size_t>(first);
    DeltaRuleArgs part = args;
    part.num_tokens = std::min(together, args.num_tokens - first);
    part.q += at * args.q_stride;
    part.k += at * args.k_stride;
    part.v += at * args.v_stride;
    part.decay += at * args.decay_stride;
    part.beta += at * args.beta_stride;
    part.out += at * args.out_stride;
    args.channel_decay ? delta_part<true>(part) : delta_part<false>(part);
  }
}
