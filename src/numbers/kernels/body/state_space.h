// SPDX-License-Identifier: Apache-2.0
//
// state_space.h in F32x16, for every instruction set. Included inside a region, after
// kStateVectors and kStateRows: a block of the state, so many rows of so many vectors of columns,
// is in registers while some tokens go through it.
//
// These tokens' rows are copied to buffers that fit the first-level cache together with their
// results. (Where they come from, rows lie a power of two apart as a rule, so they would share a
// few sets of the caches.)
#pragma once

inline constexpr int kStateTokens = 16;
inline constexpr int kStateDims = 256;  // of the buffers; with more, b and c stay where they are

// Some tokens, for some columns. Whole: all lanes exist; else only `lanes` do of the one vector.
template <int Vectors, bool Whole>
struct StateTokens {
  int count;
  int lanes;
  float* state;  // of the columns
  size_t state_stride;
  const float* b;
  size_t b_stride;
  const float* c;
  size_t c_stride;
  float decay[kStateTokens];
  alignas(64) float x[kStateTokens][Vectors * kPanelWidth];
  alignas(64) float input[kStateTokens][Vectors * kPanelWidth];  // step · x
  alignas(64) float out[kStateTokens][Vectors * kPanelWidth];

  F32x16 get(const float* row, int v) const {
    return Whole ? load(row + v * kPanelWidth) : load_n(row, lanes);
  }
  void put(float* row, int v, F32x16 values) const {
    Whole ? store(row + v * kPanelWidth, values) : store_n(row, values, lanes);
  }
};

// All tokens on `Rows` rows of the state from `row` on.
template <int Rows, int Vectors, bool Whole>
inline void state_block(StateTokens<Vectors, Whole>& tokens, int row) {
  float* const first = tokens.state + static_cast<size_t>(row) * tokens.state_stride;
  F32x16 state[Rows][Vectors];
  for (int r = 0; r < Rows; ++r) {
    for (int v = 0; v < Vectors; ++v) {
      state[r][v] = tokens.get(first + static_cast<size_t>(r) * tokens.state_stride, v);
    }
  }
  const float* b = tokens.b + row;
  const float* c = tokens.c + row;
  for (int t = 0; t < tokens.count; ++t, b += tokens.b_stride, c += tokens.c_stride) {
    const F32x16 decay = set1(tokens.decay[t]);
    F32x16 sums[Vectors];
    for (int v = 0; v < Vectors; ++v) sums[v] = load(tokens.out[t] + v * kPanelWidth);
    for (int r = 0; r < Rows; ++r) {
      const F32x16 from_b = set1(b[r]), from_c = set1(c[r]);
      for (int v = 0; v < Vectors; ++v) {
        const F32x16 input = load(tokens.input[t] + v * kPanelWidth);
        state[r][v] = fma(from_b, input, mul(decay, state[r][v]));
        sums[v] = fma(from_c, state[r][v], sums[v]);
      }
    }
    for (int v = 0; v < Vectors; ++v) store(tokens.out[t] + v * kPanelWidth, sums[v]);
  }
  for (int r = 0; r < Rows; ++r) {
    for (int v = 0; v < Vectors; ++v) {
      tokens.put(first + static_cast<size_t>(r) * tokens.state_stride, v, state[r][v]);
    }
  }
}

template <int Vectors, bool Whole>
inline void state_columns(const StateSpaceArgs& args, int first, int lanes) {
  StateTokens<Vectors, Whole> tokens{.count = args.num_tokens,
                                     .lanes = lanes,
                                     .state = args.state + first,
                                     .state_stride = static_cast<size_t>(args.head_dim),
                                     .b = args.b,
                                     .b_stride = args.b_stride,
                                     .c = args.c,
                                     .c_stride = args.c_stride};
  for (int t = 0; t < args.num_tokens; ++t) {
    const size_t at = static_cast<size_t>(t);
    tokens.decay[t] = args.decay[at * args.decay_stride];
    const F32x16 step = set1(args.step[at * args.step_stride]);
    for (int v = 0; v < Vectors; ++v) {
      const F32x16 x = tokens.get(args.x + at * args.x_stride + first, v);
      store(tokens.x[t] + v * kPanelWidth, x);
      store(tokens.input[t] + v * kPanelWidth, mul(step, x));
      store(tokens.out[t] + v * kPanelWidth, zero());
    }
  }
  int row = 0;
  for (; row + kStateRows <= args.state_dim; row += kStateRows) {
    state_block<kStateRows>(tokens, row);
  }
  for (; row < args.state_dim; ++row) state_block<1>(tokens, row);
  const F32x16 skip = set1(args.skip);
  for (int t = 0; t < args.num_tokens; ++t) {
    float* out = args.out + static_cast<size_t>(t) * args.out_stride + first;
    for (int v = 0; v < Vectors; ++v) {
      tokens.put(
          out, v,
          fma(skip, load(tokens.x[t] + v * kPanelWidth), load(tokens.out[t] + v * kPanelWidth)));
    }
  }
}

// Copies rows of args.state_dim elements to adjacent ones.
inline void gather_rows(const StateSpaceArgs& args, const float* from, size_t stride, float* to) {
  const auto dim = static_cast<size_t>(args.state_dim);
  for (int t = 0; t < args.num_tokens; ++t) {
    std::memcpy(to + static_cast<size_t>(t) * dim, from + static_cast<size_t>(t) * stride,
                dim * sizeof(float));
  }
}

void state_space(const StateSpaceArgs& args) {
  constexpr int kColumns = kStateVectors * kPanelWidth;
  alignas(64) float b[kStateTokens * kStateDims], c[kStateTokens * kStateDims];
  for (int token = 0; token < args.num_tokens; token += kStateTokens) {
    const auto at = static_cast<size_t>(token);
    StateSpaceArgs part = args;
    part.num_tokens = std::min(kStateTokens, args.num_tokens - token);
    part.x += at * args.x_stride;
    part.b += at * args.b_stride;
    part.c += at * args.c_stride;
    part.decay += at * args.decay_stride;
    part.step += at * args.step_stride;
    part.out += at * args.out_stride;
    if (args.state_dim <= kStateDims && part.num_tokens > 1) {
      gather_rows(part, part.b, part.b_stride, b);
      gather_rows(part, part.c, part.c_stride, c);
      part.b = b;
      part.c = c;
      part.b_stride = part.c_stride = static_cast<size_t>(args.state_dim);
    }
    int first = 0;
    for (; first + kColumns <= args.head_dim; first += kColumns) {
      state_columns<kStateVectors, true>(part, first, kPanelWidth);
    }
    for (; first + kPanelWidth <= args.head_dim; first += kPanelWidth) {
      state_columns<1, true>(part, first, kPanelWidth);
    }
    if (first < args.head_dim) state_columns<1, false>(part, first, args.head_dim - first);
  }
}
