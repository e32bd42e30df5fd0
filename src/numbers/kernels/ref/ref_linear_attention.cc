// SPDX-License-Identifier: Apache-2.0
//
// Reference of delta_rule.h, state_space.h and convolution.h: one element at a time, in the order
// that they define.
#include <cmath>
#include <vector>

#include "kernels/tables.h"

namespace wideep::kernels::ref {
namespace {

// An input of channel c: t < 0 are those before the call.
float input(const ConvolutionArgs& args, int t, int c) {
  if (t >= 0) return args.x[t * args.x_stride + c];
  return args.state[(args.width - 1 + t) * args.state_stride + c];
}

}  // namespace

void delta_rule(const DeltaRuleArgs& args) {
  for (int t = 0; t < args.num_tokens; ++t) {
    const float* q = args.q + t * args.q_stride;
    const float* k = args.k + t * args.k_stride;
    const float* decay = args.decay + t * args.decay_stride;
    const float beta = args.beta[t * args.beta_stride];
    for (int j = 0; j < args.value_dim; ++j) {
      const auto state = [&](int i) -> float& {
        return args.state[static_cast<size_t>(i) * args.value_dim + j];
      };
      float remembered = 0.0f;
      for (int i = 0; i < args.key_dim; ++i) {
        const float key = args.channel_decay ? decay[i] * k[i] : k[i];
        remembered = std::fma(key, state(i), remembered);
      }
      if (!args.channel_decay) remembered = decay[0] * remembered;
      const float u = beta * (args.v[t * args.v_stride + j] - remembered);
      float out = 0.0f;
      for (int i = 0; i < args.key_dim; ++i) {
        state(i) = std::fma(k[i], u, decay[args.channel_decay ? i : 0] * state(i));
        out = std::fma(q[i], state(i), out);
      }
      args.out[t * args.out_stride + j] = out;
    }
  }
}

void state_space(const StateSpaceArgs& args) {
  for (int t = 0; t < args.num_tokens; ++t) {
    const float decay = args.decay[t * args.decay_stride], step = args.step[t * args.step_stride];
    for (int j = 0; j < args.head_dim; ++j) {
      const float x = args.x[t * args.x_stride + j];
      float out = 0.0f;
      for (int i = 0; i < args.state_dim; ++i) {
        float& state = args.state[static_cast<size_t>(i) * args.head_dim + j];
        state = std::fma(args.b[t * args.b_stride + i], step * x, decay * state);
        out = std::fma(args.c[t * args.c_stride + i], state, out);
      }
      args.out[t * args.out_stride + j] = std::fma(args.skip, x, out);
    }
  }
}

void convolve(const ConvolutionArgs& given) {
  ConvolutionArgs args = given;
  if (args.state_stride == 0) args.state_stride = static_cast<size_t>(args.num_channels);
  if (args.weight_stride == 0) args.weight_stride = static_cast<size_t>(args.num_channels);
  const int before = args.width - 1;
  for (int c = 0; c < args.num_channels; ++c) {
    std::vector<float> inputs;  // a copy, since out may be x
    for (int t = -before; t < args.num_tokens; ++t) inputs.push_back(input(args, t, c));
    for (int t = 0; t < args.num_tokens; ++t) {
      float sum = args.bias == nullptr ? 0.0f : args.bias[c];
      for (int j = 0; j < args.width; ++j) {
        sum = std::fma(args.weight[j * args.weight_stride + c], inputs[t + j], sum);
      }
      args.out[t * args.out_stride + c] = args.silu ? sum / (1.0f + std::exp(-sum)) : sum;
    }
    for (int i = 0; i < before; ++i) {
      args.state[i * args.state_stride + c] = inputs[args.num_tokens + i];
    }
  }
}

}  // namespace wideep::kernels::ref
