// SPDX-License-Identifier: Apache-2.0
//
// As in a gated delta net (gated_delta_net.cc): all but the recurrence is done for all tokens at
// once, the recurrence runs along each sequence, in parallel over sequences and heads, the
// convolution over sequences and channels. With drafts the sequence is cut at each
// (for_each_saved), and the state between is copied out.
#include "model/parts/mamba2.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/try.h"
#include "model/model_forms.h"
#include "model/parts/norms.h"

namespace wideep::model {
namespace {

constexpr int kConvolvedPerTask = 512;
constexpr int64_t kRowsPerTask = 8;

// Above 20 it equals x in float32.
float soft_step(float x) { return x > 20.0f ? x : std::log1p(std::exp(x)); }

}  // namespace

// ---- weights ----

Result<std::unique_ptr<Mixer>> Mamba2::load(const ModelConfig& config, int layer,
                                            const weights::WeightLoader& loader) {
  std::unique_ptr<Mamba2> part(new Mamba2(config, layer));
  const Mamba2Config& options = config.mamba2;
  const std::string prefix = fmt::format("model.layers.{}.mamba.", layer);
  const int hidden = config.hidden_size, heads = options.num_heads;
  const LayerForms forms = layer_forms(config, layer, loader);
  WIDEEP_TRY_ASSIGN(part->in_, loader.matrix(prefix + "in_proj.weight", options.projected_width(),
                                             hidden, forms.input));
  WIDEEP_TRY_ASSIGN(part->in_bias_, load_bias(options.projection_bias, loader,
                                              prefix + "in_proj.bias", options.projected_width()));
  WIDEEP_TRY(part->load_convolution(loader, prefix));
  WIDEEP_TRY_ASSIGN(part->step_bias_, loader.floats(prefix + "dt_bias", {heads}));
  WIDEEP_TRY_ASSIGN(part->decay_, loader.floats(prefix + "A_log", {heads}));
  for (float& each : part->decay_) each = std::exp(each);
  WIDEEP_TRY_ASSIGN(part->skip_, loader.floats(prefix + "D", {heads}));
  WIDEEP_TRY_ASSIGN(part->norm_, loader.floats(prefix + "norm.weight", {options.value_width()}));
  WIDEEP_TRY_ASSIGN(part->out_, loader.matrix(prefix + "out_proj.weight", hidden,
                                              options.value_width(), forms.output));
  WIDEEP_TRY_ASSIGN(part->out_bias_,
                    load_bias(options.projection_bias, loader, prefix + "out_proj.bias", hidden));
  return std::unique_ptr<Mixer>(std::move(part));
}

// The kernel takes the weights of all channels for one input after the other.
Status Mamba2::load_convolution(const weights::WeightLoader& loader, const std::string& prefix) {
  const auto channels = static_cast<size_t>(options_.convolved_width());
  const auto width = static_cast<size_t>(options_.convolution_width);
  WIDEEP_TRY_ASSIGN(const std::vector<float> stored,
                    loader.floats(prefix + "conv1d.weight",
                                  {options_.convolved_width(), options_.convolution_width}));
  convolution_.resize(stored.size());
  for (size_t channel = 0; channel < channels; ++channel) {
    for (size_t j = 0; j < width; ++j) {
      convolution_[j * channels + channel] = stored[channel * width + j];
    }
  }
  WIDEEP_TRY_ASSIGN(convolution_bias_,
                    load_bias(options_.convolution_bias, loader, prefix + "conv1d.bias",
                              options_.convolved_width()));
  return {};
}

// ---- forward ----

Result<const float*> Mamba2::forward(const MixerCall& call, const float* h) const {
  const auto num_tokens = static_cast<size_t>(call.batch.num_tokens());
  if (num_tokens == 0) return h;
  const Inputs rows = inputs(call, h);
  convolve(call, rows);
  prepare_heads(call, rows);
  float* out = call.group.joint<float>(JointBuffer::kHeads, num_tokens * options_.value_width());
  recur(call, rows, out);
  gate(call, rows, out);
  return project(call, out_.packed, bias_of(out_bias_));
}

Mamba2::Inputs Mamba2::inputs(const MixerCall& call, const float* h) const {
  const Compute& compute = call.compute;
  const int num_tokens = call.batch.num_tokens(), hidden = config_.hidden_size;
  const auto stride = static_cast<size_t>(options_.projected_width());
  float* rows = call.scratch.query.get<float>(static_cast<size_t>(num_tokens) * stride);
  const Product product{&in_.packed, rows, stride, all_panels(in_.packed), bias_of(in_bias_)};
  compute.matmul(
      compute.cast(in_.packed.shape, float_rows(h, hidden, num_tokens, hidden), call.scratch.cast),
      std::span(&product, 1));
  float* mixed = rows + options_.value_width();
  return {.z = rows,
          .mixed = mixed,
          .step = mixed + options_.convolved_width(),
          .stride = stride,
          .decay = call.scratch.latent_out.get<float>(static_cast<size_t>(num_tokens) *
                                                      static_cast<size_t>(options_.num_heads))};
}

// Over the tokens of each sequence; the tasks are ranges of channels.
void Mamba2::convolve(const MixerCall& call, const Inputs& inputs) const {
  const int width = options_.convolved_width();
  const int tasks = (width + kConvolvedPerTask - 1) / kConvolvedPerTask;
  const std::vector<TokenRun>& sequences = call.scratch.step.sequences;
  const auto count = static_cast<int64_t>(sequences.size()) * tasks;
  call.compute.pool().parallel_for(count, 1, [&](int64_t task, int64_t) {
    const TokenRun& run = sequences[static_cast<size_t>(task / tasks)];
    const auto token = static_cast<size_t>(run.first_token), stride = static_cast<size_t>(width);
    const int channel = static_cast<int>(task % tasks) * kConvolvedPerTask;
    const int channels = std::min(kConvolvedPerTask, width - channel);
    float* state = call.states.of_layer(call.batch.states[token], layer_) + channel;
    for_each_saved(call.batch, run, [&](int first, int num_tokens, std::byte* saved) {
      float* rows = inputs.mixed + (token + static_cast<size_t>(first)) * inputs.stride + channel;
      call.compute.kernels().convolve(
          {.num_tokens = num_tokens,
           .num_channels = channels,
           .width = options_.convolution_width,
           .x = rows,
           .x_stride = inputs.stride,
           .weight = convolution_.data() + channel,
           .weight_stride = stride,
           .bias = convolution_bias_.empty() ? nullptr : convolution_bias_.data() + channel,
           .silu = true,
           .state = state,
           .state_stride = stride,
           .out = rows,
           .out_stride = inputs.stride});
      if (saved == nullptr) return;
      float* copy = call.states.of_layer(saved, layer_) + channel;
      for (int i = 0; i + 1 < options_.convolution_width; ++i) {
        std::copy_n(state + i * stride, channels, copy + i * stride);
      }
    });
  });
}

void Mamba2::prepare_heads(const MixerCall& call, const Inputs& inputs) const {
  const auto heads = static_cast<size_t>(options_.num_heads);
  call.compute.pool().parallel_for(
      call.batch.num_tokens(), kRowsPerTask, [&](int64_t begin, int64_t end) {
        for (auto t = static_cast<size_t>(begin); t < static_cast<size_t>(end); ++t) {
          float* step = inputs.step + t * inputs.stride;
          float* decay = inputs.decay + t * heads;
          for (size_t head = 0; head < heads; ++head) {
            step[head] = std::clamp(soft_step(step[head] + step_bias_[head]), options_.min_step,
                                    options_.max_step);
            decay[head] = std::exp(-decay_[head] * step[head]);
          }
        }
      });
}

void Mamba2::recur(const MixerCall& call, const Inputs& inputs, float* out) const {
  const auto heads = static_cast<size_t>(options_.num_heads);
  const auto head_dim = static_cast<size_t>(options_.head_dim);
  const auto state_dim = static_cast<size_t>(options_.state_dim);
  const auto value_width = static_cast<size_t>(options_.value_width());
  const size_t group = heads / static_cast<size_t>(options_.num_groups);
  const size_t shared = state_dim * static_cast<size_t>(options_.num_groups);  // b of a token, or c
  // The convolution's inputs come first.
  const size_t matrices = static_cast<size_t>(options_.convolution_width - 1) *
                          static_cast<size_t>(options_.convolved_width());
  const std::vector<TokenRun>& sequences = call.scratch.step.sequences;
  const auto count = static_cast<int64_t>(sequences.size() * heads);
  call.compute.pool().parallel_for(count, 1, [&](int64_t task, int64_t) {
    const TokenRun& run = sequences[static_cast<size_t>(task) / heads];
    const auto token = static_cast<size_t>(run.first_token);
    const size_t head = static_cast<size_t>(task) % heads;
    const size_t matrix = matrices + head * state_dim * head_dim;
    float* state = call.states.of_layer(call.batch.states[token], layer_) + matrix;
    for_each_saved(call.batch, run, [&](int first, int num_tokens, std::byte* saved) {
      const size_t at = token + static_cast<size_t>(first);
      const float* mixed = inputs.mixed + at * inputs.stride;
      const float* b = mixed + value_width + head / group * state_dim;
      call.compute.kernels().state_space({.num_tokens = num_tokens,
                                          .state_dim = options_.state_dim,
                                          .head_dim = options_.head_dim,
                                          .state = state,
                                          .x = mixed + head * head_dim,
                                          .x_stride = inputs.stride,
                                          .b = b,
                                          .b_stride = inputs.stride,
                                          .c = b + shared,
                                          .c_stride = inputs.stride,
                                          .decay = inputs.decay + at * heads + head,
                                          .decay_stride = heads,
                                          .step = inputs.step + at * inputs.stride + head,
                                          .step_stride = inputs.stride,
                                          .skip = skip_[head],
                                          .out = out + at * value_width + head * head_dim,
                                          .out_stride = value_width});
      if (saved == nullptr) return;
      std::copy_n(state, state_dim * head_dim, call.states.of_layer(saved, layer_) + matrix);
    });
  });
}

void Mamba2::gate(const MixerCall& call, const Inputs& inputs, float* out) const {
  const kernels::Kernels& kernels = call.compute.kernels();
  const int value_width = options_.value_width(), group = value_width / options_.num_groups;
  call.compute.pool().parallel_for(
      call.batch.num_tokens(), kRowsPerTask, [&](int64_t begin, int64_t end) {
        for (int64_t t = begin; t < end; ++t) {
          float* row = out + t * value_width;
          kernels.silu_multiply(inputs.z + static_cast<size_t>(t) * inputs.stride, row, value_width,
                                row);
          for (int first = 0; first < value_width; first += group) {
            kernels.rms_norm(row + first, norm_.data() + first, config_.rms_norm_eps, group,
                             row + first);
          }
        }
      });
}

}  // namespace wideep::model
