// SPDX-License-Identifier: Apache-2.0
//
// convolution.h in F32x16, for every instruction set. Included inside a region.
//
// Blocks of channels go through all tokens: a block's weights and last inputs stay in the
// first-level cache, and a row's part is several lines, which hardware prefetchers follow.
#pragma once

inline constexpr int kConvolutionChannels = 256;

// `count` channels from `first` on. Buffers are zero after `count`.
template <int Width>
inline void convolve_channels(const ConvolutionArgs& args, int first, int count) {
  constexpr int kLast = Width - 1;
  alignas(64) float weights[Width][kConvolutionChannels] = {};
  alignas(64) float bias[kConvolutionChannels] = {};
  alignas(64) float memory[Width][kConvolutionChannels] = {};
  float* inputs[Width];  // oldest first, rotated per token
  const size_t bytes = static_cast<size_t>(count) * sizeof(float);
  for (int j = 0; j < Width; ++j) {
    inputs[j] = memory[j];
    std::memcpy(weights[j], args.weight + static_cast<size_t>(j) * args.weight_stride + first,
                bytes);
  }
  if (args.bias != nullptr) std::memcpy(bias, args.bias + first, bytes);
  const auto state = [&](int j) {
    return args.state + static_cast<size_t>(j) * args.state_stride + first;
  };
  // The first token shifts them by one.
  for (int j = 0; j < kLast; ++j) std::memcpy(inputs[j + 1], state(j), bytes);
  for (int t = 0; t < args.num_tokens; ++t) {
    std::rotate(inputs, inputs + 1, inputs + Width);
    const float* x = args.x + static_cast<size_t>(t) * args.x_stride + first;
    const size_t next = t + 1 < args.num_tokens ? args.x_stride : 0;
    float* out = args.out + static_cast<size_t>(t) * args.out_stride + first;
    for_each_vector(count, [&](int i, int lanes) {
      const F32x16 newest = load_n(x + i, lanes);
      store(inputs[kLast] + i, newest);
      // The next row is far away in memory, where no hardware prefetcher looks.
      _mm_prefetch(reinterpret_cast<const char*>(x + next + i), _MM_HINT_T0);
      F32x16 sum = load(bias + i);
      for (int j = 0; j < kLast; ++j) sum = fma(load(weights[j] + i), load(inputs[j] + i), sum);
      sum = fma(load(weights[kLast] + i), newest, sum);
      store_n(out + i, args.silu ? silu(sum) : sum, lanes);
    });
  }
  for (int j = 0; j < kLast; ++j) std::memcpy(state(j), inputs[j + 1], bytes);
}

template <int Width>
inline void convolve_of_width(const ConvolutionArgs& args) {
  if constexpr (Width > kMinConvolutionWidth) {
    if (args.width < Width) return convolve_of_width<Width - 1>(args);
  }
  for (int first = 0; first < args.num_channels; first += kConvolutionChannels) {
    const int count = std::min(kConvolutionChannels, args.num_channels - first);
    convolve_channels<Width>(args, first, count);
  }
}

void convolve(const ConvolutionArgs& given) {
  ConvolutionArgs args = given;
  if (args.state_stride == 0) args.state_stride = static_cast<size_t>(args.num_channels);
  if (args.weight_stride == 0) args.weight_stride = static_cast<size_t>(args.num_channels);
  convolve_of_width<kMaxConvolutionWidth>(args);
}
