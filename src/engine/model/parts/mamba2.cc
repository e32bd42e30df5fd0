// SPDX-License-Identifier: Apache-2.0
//
// As in a gated delta net (gated_delta_net.cc): all but the recurrence is done for all tokens at
// once, the recurrence runs along each sequence, in parallel over sequences and heads, the
// convolution over sequences and channels; all of it for the heads of this rank (state_mixer.h).
// With drafts the sequence is cut at each (for_each_saved), and the state between is copied out.
#include "model/parts/mamba2.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "base/try.h"
#include "model/model_forms.h"

namespace wideep::model {
namespace {

constexpr int64_t kRowsPerTask = 8;

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

Status Mamba2::load_convolution(const weights::WeightLoader& loader, const std::string& prefix) {
  const int channels = options_.convolved_width();
  WIDEEP_TRY_ASSIGN(
      const std::vector<float> stored,
      loader.floats(prefix + "conv1d.weight", {channels, options_.convolution_width}));
  put_convolution(stored, {.begin = 0, .size = channels}, channels, &convolution_);
  WIDEEP_TRY_ASSIGN(convolution_bias_,
                    load_bias(options_.convolution_bias, loader, prefix + "conv1d.bias",
                              options_.convolved_width()));
  return {};
}

// ---- forward ----

void Mamba2::advance(const MixerCall& call, const StateRows& rows) const {
  const Step step{.call = call, .rows = rows, .inputs = inputs(call, rows)};
  convolve(step);
  prepare_heads(step);
  recur(step);
  gate(step);
}

Mamba2::Inputs Mamba2::inputs(const MixerCall& call, const StateRows& rows) const {
  const Compute& compute = call.compute;
  const int hidden = config_.hidden_size, values = options_.value_width();
  const int dim = options_.state_dim, shared = options_.num_groups * dim;
  const auto stride = static_cast<size_t>(options_.projected_width());
  float* first = call.scratch.query.get<float>(static_cast<size_t>(rows.num_tokens) * stride);
  const UnitRange own = rows.own;
  const int group = own.first / heads_of_group();
  const int groups = (own.first + own.count - 1) / heads_of_group() - group + 1;
  const ColumnRange heads{own.first * options_.head_dim, own.count * options_.head_dim};
  const ColumnRange of_groups{group * dim, groups * dim};
  const std::array<Panels, 5> panels =
      panels_of_ranges<5>({{heads,
                            {values + heads.begin, heads.size},
                            {2 * values + of_groups.begin, of_groups.size},
                            {2 * values + shared + of_groups.begin, of_groups.size},
                            {2 * values + 2 * shared + own.first, own.count}}});
  std::array<Product, 5> products;
  for (size_t i = 0; i < products.size(); ++i) {
    products[i] = {&in_.packed, first, stride, panels[i], bias_of(in_bias_)};
  }
  const SourceRows source = float_rows(rows.h, hidden, rows.num_tokens, hidden);
  compute.matmul(compute.cast(in_.packed.shape, source, call.scratch.cast), products);
  return {.z = first,
          .mixed = first + values,
          .step = first + values + options_.convolved_width(),
          .stride = stride,
          .decay = call.scratch.latent_out.get<float>(static_cast<size_t>(rows.num_tokens) *
                                                      static_cast<size_t>(options_.num_heads))};
}

// x of each own head; b and c of each of their groups, kept by all own heads of the group.
std::vector<Mamba2::Channels> Mamba2::channels_of(UnitRange own) const {
  const int dim = options_.state_dim, head_dim = options_.head_dim, values = options_.value_width();
  std::vector<Channels> all;
  for (int head = own.first; head < own.first + own.count;) {
    const int group = head / heads_of_group();
    const int end = std::min((group + 1) * heads_of_group(), own.first + own.count);
    for (const int part : {0, 1}) {
      all.push_back({.begin = values + (part * options_.num_groups + group) * dim,
                     .size = dim,
                     .kept = head_dim + part * dim,
                     .heads = {head, end - head}});
    }
    for (; head < end; ++head) {
      all.push_back({.begin = head * head_dim, .size = head_dim, .kept = 0, .heads = {head, 1}});
    }
  }
  return all;
}

// Heads that share channels have equal copies of their last inputs: the first one's is advanced.
void Mamba2::convolve(const Step& step, const TokenRun& run, const Channels& channels) const {
  const MixerCall& call = step.call;
  const auto token = static_cast<size_t>(run.first_token);
  const auto row = static_cast<size_t>(unit_channels());
  const auto unit = [&](std::byte* state, int head) {
    return call.states.of_layer(state, layer_) +
           static_cast<size_t>(head - step.rows.own.first) *
               static_cast<size_t>(units_.unit_floats) +
           channels.kept;
  };
  float* state = unit(step.rows.states[token], channels.heads.first);
  const auto copy_to = [&](std::byte* to) {
    for (int i = 0; i < channels.heads.count; ++i) {
      float* copy = unit(to, channels.heads.first + i);
      if (copy == state) continue;
      for (int input = 0; input + 1 < options_.convolution_width; ++input) {
        const size_t at = static_cast<size_t>(input) * row;
        std::copy_n(state + at, channels.size, copy + at);
      }
    }
  };
  for_each_saved(step.rows, run, [&](int first, int num_tokens, std::byte* saved) {
    float* rows = step.inputs.mixed + (token + static_cast<size_t>(first)) * step.inputs.stride +
                  channels.begin;
    call.compute.kernels().convolve(
        {.num_tokens = num_tokens,
         .num_channels = channels.size,
         .width = options_.convolution_width,
         .x = rows,
         .x_stride = step.inputs.stride,
         .weight = convolution_.data() + channels.begin,
         .weight_stride = static_cast<size_t>(options_.convolved_width()),
         .bias = convolution_bias_.empty() ? nullptr : convolution_bias_.data() + channels.begin,
         .silu = true,
         .state = state,
         .state_stride = row,
         .out = rows,
         .out_stride = step.inputs.stride});
    if (saved != nullptr) copy_to(saved);
  });
  copy_to(step.rows.states[token]);
}

void Mamba2::convolve(const Step& step) const {
  const std::vector<Channels> all = channels_of(step.rows.own);
  const auto count = static_cast<int64_t>(step.rows.sequences.size() * all.size());
  step.call.compute.pool().parallel_for(count, 1, [&](int64_t task, int64_t) {
    const auto index = static_cast<size_t>(task);
    convolve(step, step.rows.sequences[index / all.size()], all[index % all.size()]);
  });
}

void Mamba2::prepare_heads(const Step& step) const {
  const auto heads = static_cast<size_t>(options_.num_heads);
  const auto first = static_cast<size_t>(step.rows.own.first);
  const size_t last = first + static_cast<size_t>(step.rows.own.count);
  step.call.compute.pool().parallel_for(
      step.rows.num_tokens, kRowsPerTask, [&](int64_t begin, int64_t end) {
        for (auto t = static_cast<size_t>(begin); t < static_cast<size_t>(end); ++t) {
          float* length = step.inputs.step + t * step.inputs.stride;
          float* decay = step.inputs.decay + t * heads;
          for (size_t head = first; head < last; ++head) {
            length[head] = std::clamp(softplus(length[head] + step_bias_[head]), options_.min_step,
                                      options_.max_step);
            decay[head] = std::exp(-decay_[head] * length[head]);
          }
        }
      });
}

void Mamba2::recur(const Step& step) const {
  const MixerCall& call = step.call;
  const auto heads = static_cast<size_t>(options_.num_heads);
  const auto own = static_cast<size_t>(step.rows.own.count);
  const auto head_dim = static_cast<size_t>(options_.head_dim);
  const auto state_dim = static_cast<size_t>(options_.state_dim);
  const auto value_width = static_cast<size_t>(options_.value_width());
  const auto group = static_cast<size_t>(heads_of_group());
  const size_t shared = state_dim * static_cast<size_t>(options_.num_groups);  // b of a token, or c
  const size_t stride = step.inputs.stride;
  // The convolution's inputs come first in a unit.
  const size_t kept =
      static_cast<size_t>(options_.convolution_width - 1) * static_cast<size_t>(unit_channels());
  const std::span<const TokenRun> sequences = step.rows.sequences;
  const auto count = static_cast<int64_t>(sequences.size() * own);
  call.compute.pool().parallel_for(count, 1, [&](int64_t task, int64_t) {
    const TokenRun& run = sequences[static_cast<size_t>(task) / own];
    const auto token = static_cast<size_t>(run.first_token);
    const size_t index = static_cast<size_t>(task) % own;
    const size_t head = static_cast<size_t>(step.rows.own.first) + index;
    const size_t matrix = index * static_cast<size_t>(units_.unit_floats) + kept;
    float* state = call.states.of_layer(step.rows.states[token], layer_) + matrix;
    for_each_saved(step.rows, run, [&](int first, int num_tokens, std::byte* saved) {
      const size_t at = token + static_cast<size_t>(first);
      const float* mixed = step.inputs.mixed + at * stride;
      const float* b = mixed + value_width + head / group * state_dim;
      call.compute.kernels().state_space({.num_tokens = num_tokens,
                                          .state_dim = options_.state_dim,
                                          .head_dim = options_.head_dim,
                                          .state = state,
                                          .x = mixed + head * head_dim,
                                          .x_stride = stride,
                                          .b = b,
                                          .b_stride = stride,
                                          .c = b + shared,
                                          .c_stride = stride,
                                          .decay = step.inputs.decay + at * heads + head,
                                          .decay_stride = heads,
                                          .step = step.inputs.step + at * stride + head,
                                          .step_stride = stride,
                                          .skip = skip_[head],
                                          .out = step.rows.out + at * value_width + head * head_dim,
                                          .out_stride = value_width});
      if (saved == nullptr) return;
      std::copy_n(state, state_dim * head_dim, call.states.of_layer(saved, layer_) + matrix);
    });
  });
}

void Mamba2::gate(const Step& step) const {
  const kernels::Kernels& kernels = step.call.compute.kernels();
  const auto width = static_cast<size_t>(options_.value_width());
  const int columns = step.rows.own.count * options_.head_dim;
  const auto first = static_cast<size_t>(step.rows.own.first * options_.head_dim);
  step.call.compute.pool().parallel_for(
      step.rows.num_tokens, kRowsPerTask, [&](int64_t begin, int64_t end) {
        for (auto t = static_cast<size_t>(begin); t < static_cast<size_t>(end); ++t) {
          float* own = step.rows.out + t * width + first;
          kernels.silu_multiply(step.inputs.z + t * step.inputs.stride + first, own, columns, own);
        }
      });
}

const float* Mamba2::finish(const MixerCall& call, const float* heads) const {
  const kernels::Kernels& kernels = call.compute.kernels();
  const int width = options_.value_width(), group = width / options_.num_groups;
  float* normalized = call.scratch.value.get<float>(static_cast<size_t>(call.batch.num_tokens()) *
                                                    static_cast<size_t>(width));
  call.compute.pool().parallel_for(
      call.batch.num_tokens(), kRowsPerTask, [&](int64_t begin, int64_t end) {
        for (int64_t first = begin * width; first < end * width; first += group) {
          kernels.rms_norm(heads + first, norm_.data() + first % width, config_.rms_norm_eps, group,
                           normalized + first);
        }
      });
  return normalized;
}

}  // namespace wideep::model
