// SPDX-License-Identifier: Apache-2.0
//
// delta_rule.h in F32x16, for every instruction set. Included inside a region, after kDeltaVectors:
// how many vectors of columns are computed together, with u and two sums of each in registers.
//
// Columns of the state are independent of each other. A few tokens' q and k, and kDeltaVectors of
// columns, key_dim rows high, are copied to buffers that fit the first-level cache together; the
// tokens go through these columns before the next ones. (Where they come from, rows lie a power of
// two apart as a rule, so they would share a few sets of the caches.) A pass over the columns
// applies a token and already takes the product of the new state with the next token's k, so that
// the state is read and written once a token. The first pass reads the state, the last one writes
// it.
#pragma once

// With 128 rows, q, k and a block of columns are 24 KiB.
inline constexpr int kDeltaTokens = 16 / kDeltaVectors;
inline constexpr int kDeltaRows = 256;  // of the buffers; with more, all stays where it is
// A single token's columns stay where they are: a copy would cost more than it saves. Without sums
// for a next token, two vectors need no more registers than there are.
inline constexpr int kDeltaVectorsOfOne = 2;

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

// One token's scalars and rows.
struct DeltaToken {
  const float* q;
  const float* k;
  const float* next_k;  // of the next token, if there is one
  float decay;
};

// Applies a token: to = S = decay · from + k uᵀ, out = Sᵀ q. HasNext: next_remembered = Sᵀ next_k.
template <bool HasNext, int Vectors, bool Whole>
inline void delta_step(const DeltaColumns<Vectors, Whole>& from,
                       const DeltaColumns<Vectors, Whole>& to, const DeltaToken& token, int key_dim,
                       const F32x16 (&u)[Vectors], F32x16 (&out)[Vectors],
                       F32x16 (&next_remembered)[Vectors]) {
  F32x16 sums[Vectors], next_sums[Vectors];
  for (int v = 0; v < Vectors; ++v) sums[v] = next_sums[v] = zero();
  const F32x16 kept = set1(token.decay);
  const float* row = from.first;
  float* to_row = to.first;
  for (int i = 0; i < key_dim; ++i, row += from.stride, to_row += to.stride) {
    F32x16 state[Vectors];
    const F32x16 from_k = set1(token.k[i]);
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

// All tokens on some columns from `first` on.
template <int Vectors, bool Whole>
inline void delta_columns(const DeltaRuleArgs& args, int first, int lanes) {
  alignas(64) float buffer[kDeltaRows * Vectors * kPanelWidth];
  const DeltaColumns<Vectors, Whole> state{args.state + first, static_cast<size_t>(args.value_dim),
                                           lanes};
  const DeltaColumns<Vectors, Whole> near =
      args.num_tokens > 1 && args.key_dim <= kDeltaRows
          ? DeltaColumns<Vectors, Whole>{buffer, size_t{Vectors} * kPanelWidth, lanes}
          : state;
  F32x16 remembered[Vectors], u[Vectors], out[Vectors];
  delta_product(state, near, args.k, args.key_dim, remembered);
  for (int t = 0; t < args.num_tokens; ++t) {
    const size_t at = static_cast<size_t>(t);
    const float* k = args.k + at * args.k_stride;
    const DeltaToken token{.q = args.q + at * args.q_stride,
                           .k = k,
                           .next_k = k + args.k_stride,
                           .decay = args.decay[at * args.decay_stride]};
    const F32x16 beta = set1(args.beta[at * args.beta_stride]);
    const float* values = args.v + at * args.v_stride + first;
    for (int v = 0; v < Vectors; ++v) {
      u[v] = mul(beta, sub(state.get(values, v), mul(set1(token.decay), remembered[v])));
    }
    if (t + 1 < args.num_tokens) {
      delta_step<true>(near, near, token, args.key_dim, u, out, remembered);
    } else {
      delta_step<false>(near, state, token, args.key_dim, u, out, remembered);
    }
    float* results = args.out + at * args.out_stride + first;
    for (int v = 0; v < Vectors; ++v) state.put(results, v, out[v]);
  }
}

// Up to kDeltaTokens tokens.
template <int Vectors>
inline void delta_tokens(const DeltaRuleArgs& args) {
  constexpr int kColumns = Vectors * kPanelWidth;
  int first = 0;
  for (; first + kColumns <= args.value_dim; first += kColumns) {
    delta_columns<Vectors, true>(args, first, kPanelWidth);
  }
  for (; first + kPanelWidth <= args.value_dim; first += kPanelWidth) {
    delta_columns<1, true>(args, first, kPanelWidth);
  }
  if (first < args.value_dim) delta_columns<1, false>(args, first, args.value_dim - first);
}

// Copies rows of key_dim elements to adjacent ones.
inline void gather_tokens(const float* from, size_t stride, const DeltaRuleArgs& args, float* to) {
  const size_t dim = static_cast<size_t>(args.key_dim);
  for (int t = 0; t < args.num_tokens; ++t) {
    std::memcpy(to + static_cast<size_t>(t) * dim, from + static_cast<size_t>(t) * stride,
                dim * sizeof(float));
  }
}

void delta_rule(const DeltaRuleArgs& args) {
  alignas(64) float q[kDeltaTokens * kDeltaRows], k[kDeltaTokens * kDeltaRows];
  for (int first = 0; first < args.num_tokens; first += kDeltaTokens) {
    const size_t at = static_cast<size_t>(first);
    DeltaRuleArgs part = args;
    part.num_tokens = std::min(kDeltaTokens, args.num_tokens - first);
    part.q += at * args.q_stride;
    part.k += at * args.k_stride;
    part.v += at * args.v_stride;
    part.decay += at * args.decay_stride;
    part.beta += at * args.beta_stride;
    part.out += at * args.out_stride;
    if (part.num_tokens == 1) {
      delta_tokens<kDeltaVectorsOfOne>(part);
      return;
    }
    if (args.key_dim <= kDeltaRows) {
      gather_tokens(part.q, part.q_stride, part, q);
      gather_tokens(part.k, part.k_stride, part, k);
      part.q = q;
      part.k = k;
      part.q_stride = part.k_stride = static_cast<size_t>(args.key_dim);
    }
    delta_tokens<kDeltaVectors>(part);
  }
}
