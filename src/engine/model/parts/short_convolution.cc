// SPDX-License-Identifier: Apache-2.0
//
// A task is some channels of one sequence: it multiplies by b, convolves, and multiplies by c while
// its columns are in the core's caches, from one matrix of three parts that the projection has
// written. Tasks share nothing, since the convolution is depthwise.
#include "model/parts/short_convolution.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

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
  put_convolution(stored, {.begin = 0, .size = hidden}, hidden, &part->convolution_);
  return std::unique_ptr<Mixer>(std::move(part));
}

ShortConvolution::Output ShortConvolution::output() const {
  return {.units = units_.units,
          .unit_columns = units_.unit_floats,
          .hidden_size = config_.hidden_size,
          .matrix = out_.packed,
          .bias = bias_of(out_bias_)};
}

// The tasks are ranges of channels of a sequence's tokens.
void ShortConvolution::advance(const MixerCall& call, const StateRows& rows) const {
  const Compute& compute = call.compute;
  const int hidden = config_.hidden_size;
  const int first_own = rows.own.first * units_.unit_floats;
  const int num_own = std::min(rows.own.count * units_.unit_floats, hidden - first_own);
  const auto kept = static_cast<size_t>(rows.own.count * units_.unit_floats);  // a row of the state
  const auto width = static_cast<size_t>(hidden), stride = width * 3;
  float* gated = call.scratch.query.get<float>(static_cast<size_t>(rows.num_tokens) * stride);
  const std::array<Panels, 3> panels = panels_of_ranges<3>(
      {{{first_own, num_own}, {hidden + first_own, num_own}, {2 * hidden + first_own, num_own}}});
  std::array<Product, 3> products;
  for (size_t i = 0; i < products.size(); ++i) {
    products[i] = {&in_.packed, gated, stride, panels[i], bias_of(in_bias_)};
  }
  compute.matmul(compute.cast(in_.packed.shape, float_rows(rows.h, hidden, rows.num_tokens, hidden),
                              call.scratch.cast),
                 products);
  const int tasks = (num_own + kChannelsPerTask - 1) / kChannelsPerTask;
  const auto count = static_cast<int64_t>(rows.sequences.size()) * tasks;
  compute.pool().parallel_for(count, 1, [&](int64_t task, int64_t) {
    const TokenRun& run = rows.sequences[static_cast<size_t>(task / tasks)];
    const auto token = static_cast<size_t>(run.first_token);
    const int own = static_cast<int>(task % tasks) * kChannelsPerTask, channel = first_own + own;
    const int channels = std::min(kChannelsPerTask, num_own - own);
    float* first = gated + token * stride + channel;  // b, then c and x in the same row
    float* out = rows.out + token * width + channel;
    for (int t = 0; t < run.num_tokens; ++t) {
      float* b = first + static_cast<size_t>(t) * stride;
      for (int i = 0; i < channels; ++i) b[i] *= b[2 * hidden + i];
    }
    float* state = call.states.of_layer(rows.states[token], layer_) + own;
    for_each_saved(rows, run, [&](int begin, int tokens, std::byte* saved) {
      compute.kernels().convolve({.num_tokens = tokens,
                                  .num_channels = channels,
                                  .width = config_.convolution_width,
                                  .x = first + static_cast<size_t>(begin) * stride,
                                  .x_stride = stride,
                                  .weight = convolution_.data() + channel,
                                  .weight_stride = width,
                                  .bias = bias_.empty() ? nullptr : bias_.data() + channel,
                                  .state = state,
                                  .state_stride = kept,
                                  .out = out + static_cast<size_t>(begin) * width,
                                  .out_stride = width});
      if (saved == nullptr) return;
      float* copy = call.states.of_layer(saved, layer_) + own;
      for (int i = 0; i + 1 < config_.convolution_width; ++i) {
        std::copy_n(state + i * kept, channels, copy + i * kept);
      }
    });
    for (int t = 0; t < run.num_tokens; ++t) {
      const float* c = first + static_cast<size_t>(t) * stride + hidden;
      float* y = out + static_cast<size_t>(t) * width;
      for (int i = 0; i < channels; ++i) y[i] *= c[i];
    }
  });
}

}  // namespace wideep::model
