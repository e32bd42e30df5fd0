// SPDX-License-Identifier: Apache-2.0
//
// A task is some channels of one sequence: it multiplies by b, convolves, and multiplies by c while
// its columns are in the core's caches, from one matrix of three parts that the projection has
// written. Tasks share nothing, since the convolution is depthwise.
#include "model/parts/short_convolution.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/try.h"
#include "model/model_forms.h"
#include "model/parts/norms.h"

namespace wideep::model {
namespace {

constexpr int kChannelsPerTask = 256;

}  // namespace

Result<std::unique_ptr<Mixer>> ShortConvolution::load(const ModelConfig& config, int layer,
                                                      const weights::WeightLoader& loader) {
  std::unique_ptr<ShortConvolution> part(new ShortConvolution(config, layer));
  const std::string prefix = fmt::format("model.layers.{}.conv.", layer);
  const int hidden = config.hidden_size, width = config.convolution_width;
  const bool biased = config.convolution_bias;
  const LayerForms forms = layer_forms(config, layer, loader);
  WIDEEP_TRY_ASSIGN(part->in_,
                    loader.matrix(prefix + "in_proj.weight", 3 * hidden, hidden, forms.input));
  WIDEEP_TRY_ASSIGN(part->out_,
                    loader.matrix(prefix + "out_proj.weight", hidden, hidden, forms.output));
  WIDEEP_TRY_ASSIGN(part->in_bias_,
                    load_bias(biased, loader, prefix + "in_proj.bias", int64_t{3} * hidden));
  WIDEEP_TRY_ASSIGN(part->bias_, load_bias(biased, loader, prefix + "conv.bias", hidden));
  WIDEEP_TRY_ASSIGN(part->out_bias_, load_bias(biased, loader, prefix + "out_proj.bias", hidden));
  WIDEEP_TRY_ASSIGN(const std::vector<float> stored,
                    loader.floats(prefix + "conv.weight", {hidden, width}));
  part->convolution_.resize(stored.size());
  for (int channel = 0; channel < hidden; ++channel) {
    for (int j = 0; j < width; ++j) {
      part->convolution_[static_cast<size_t>(j) * hidden + channel] =
          stored[static_cast<size_t>(channel) * width + j];
    }
  }
  return std::unique_ptr<Mixer>(std::move(part));
}

// The tasks are ranges of channels of a sequence's tokens.
Result<const float*> ShortConvolution::forward(const MixerCall& call, const float* h) const {
  const Compute& compute = call.compute;
  const int num_tokens = call.batch.num_tokens(), hidden = config_.hidden_size;
  if (num_tokens == 0) return h;
  const auto stride = static_cast<size_t>(hidden) * 3;
  float* gated = call.scratch.query.get<float>(static_cast<size_t>(num_tokens) * stride);
  float* heads =
      call.group.joint<float>(JointBuffer::kHeads, static_cast<size_t>(num_tokens) * hidden);
  const Product product{&in_.packed, gated, stride, all_panels(in_.packed), bias_of(in_bias_)};
  compute.matmul(
      compute.cast(in_.packed.shape, float_rows(h, hidden, num_tokens, hidden), call.scratch.cast),
      std::span(&product, 1));
  const int tasks = (hidden + kChannelsPerTask - 1) / kChannelsPerTask;
  const std::vector<TokenRun>& sequences = call.scratch.step.sequences;
  const auto count = static_cast<int64_t>(sequences.size()) * tasks;
  compute.pool().parallel_for(count, 1, [&](int64_t task, int64_t) {
    const TokenRun& run = sequences[static_cast<size_t>(task / tasks)];
    const auto token = static_cast<size_t>(run.first_token);
    const int channel = static_cast<int>(task % tasks) * kChannelsPerTask;
    const int channels = std::min(kChannelsPerTask, hidden - channel);
    float* first = gated + token * stride + channel;  // b, then c and x in the same row
    float* out = heads + token * static_cast<size_t>(hidden) + channel;
    for (int t = 0; t < run.num_tokens; ++t) {
      float* b = first + static_cast<size_t>(t) * stride;
      for (int i = 0; i < channels; ++i) b[i] *= b[2 * hidden + i];
    }
    const auto width = static_cast<size_t>(hidden);
    float* state = call.states.of_layer(call.batch.states[token], layer_) + channel;
    for_each_saved(call.batch, run, [&](int begin, int tokens, std::byte* saved) {
      compute.kernels().convolve({.num_tokens = tokens,
                                  .num_channels = channels,
                                  .width = config_.convolution_width,
                                  .x = first + static_cast<size_t>(begin) * stride,
                                  .x_stride = stride,
                                  .weight = convolution_.data() + channel,
                                  .weight_stride = width,
                                  .bias = bias_.empty() ? nullptr : bias_.data() + channel,
                                  .state = state,
                                  .state_stride = width,
                                  .out = out + static_cast<size_t>(begin) * width,
                                  .out_stride = width});
      if (saved == nullptr) return;
      float* copy = call.states.of_layer(saved, layer_) + channel;
      for (int i = 0; i + 1 < config_.convolution_width; ++i) {
        std::copy_n(state + i * width, channels, copy + i * width);
      }
    });
    for (int t = 0; t < run.num_tokens; ++t) {
      const float* c = first + static_cast<size_t>(t) * stride + hidden;
      float* y = out + static_cast<size_t>(t) * hidden;
      for (int i = 0; i < channels; ++i) y[i] *= c[i];
    }
  });
  return project(call, out_.packed, bias_of(out_bias_));
}

}  // namespace wideep::model
