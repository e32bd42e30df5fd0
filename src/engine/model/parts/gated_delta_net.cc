// SPDX-License-Identifier: Apache-2.0
//
// Everything up to the recurrence is done for all tokens at once; the recurrence itself runs along
// each sequence, in parallel over sequences and value heads, the convolution over sequences and key
// heads. Each head's state is a matrix of its own, so no two tasks touch the same memory. All of it
// for the heads of this rank (state_mixer.h); columns of others are not touched.
//
// With drafts the sequence is cut at each (for_each_saved), and the state between is copied out, as
// the convolution's and as the heads' part of it.
#include "model/parts/gated_delta_net.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "base/try.h"
#include "model/model_forms.h"
#include "model/parts/norms.h"

namespace wideep::model {
namespace {

constexpr float kNormEpsilon = 1e-6f;  // of queries and keys; no key of config.json sets it
constexpr int64_t kTokensPerTask = 8;

}  // namespace

// ---- weights ----

Result<std::unique_ptr<Mixer>> GatedDeltaNet::load(const ModelConfig& config, int layer,
                                                   const weights::WeightLoader& loader) {
  std::unique_ptr<GatedDeltaNet> net(new GatedDeltaNet(config, layer));
  const DeltaNetConfig& options = config.delta_net;
  const std::string prefix = fmt::format("model.layers.{}.linear_attn.", layer);
  WIDEEP_TRY(net->load_projections(loader, prefix));
  WIDEEP_TRY(net->load_convolution(loader, prefix));
  const int64_t heads = options.num_value_heads;
  WIDEEP_TRY_ASSIGN(net->decay_, loader.floats(prefix + "A_log", {heads}));
  for (float& each : net->decay_) each = std::exp(each);
  WIDEEP_TRY_ASSIGN(net->dt_bias_, loader.floats(prefix + "dt_bias", {heads}));
  WIDEEP_TRY_ASSIGN(net->norm_, loader.floats(prefix + "norm.weight", {options.value_dim}));
  return std::unique_ptr<Mixer>(std::move(net));
}

Status GatedDeltaNet::load_projections(const weights::WeightLoader& loader,
                                       const std::string& prefix) {
  const int hidden = config_.hidden_size, heads = options_.num_value_heads;
  const int value_width = options_.value_width();
  const LayerForms forms = layer_forms(config_, layer_, loader);
  const auto load = [&](const char* name, int rows, const weights::MatrixForm& form) {
    return loader.matrix(prefix + name, rows, hidden, form);
  };
  if (options_.fused_projections) {
    WIDEEP_TRY_ASSIGN(
        qkvz_, load("in_proj_qkvz.weight", options_.convolved_width() + value_width, forms.input));
    WIDEEP_TRY_ASSIGN(ba_, load("in_proj_ba.weight", 2 * heads, forms.gates));
  } else {
    WIDEEP_TRY_ASSIGN(qkv_, load("in_proj_qkv.weight", options_.convolved_width(), forms.input));
    WIDEEP_TRY_ASSIGN(z_, load("in_proj_z.weight", value_width, forms.input));
    WIDEEP_TRY_ASSIGN(b_, load("in_proj_b.weight", heads, forms.gates));
    WIDEEP_TRY_ASSIGN(a_, load("in_proj_a.weight", heads, forms.gates));
  }
  WIDEEP_TRY_ASSIGN(o_,
                    loader.matrix(prefix + "out_proj.weight", hidden, value_width, forms.output));
  return {};
}

Status GatedDeltaNet::load_convolution(const weights::WeightLoader& loader,
                                       const std::string& prefix) {
  const int channels = options_.convolved_width();
  WIDEEP_TRY_ASSIGN(
      const std::vector<float> stored,
      loader.floats(prefix + "conv1d.weight", {channels, options_.convolution_width}));
  put_convolution(stored, {.begin = 0, .size = channels}, channels, &convolution_);
  return {};
}

// ---- forward ----

void GatedDeltaNet::advance(const MixerCall& call, const StateRows& rows) const {
  const Heads heads = heads_of(rows);
  const Step step{.call = call, .rows = rows, .heads = heads, .inputs = inputs(call, rows, heads)};
  convolve(step);
  prepare_heads(step);
  recur(step);
  gate(step);
}

GatedDeltaNet::Heads GatedDeltaNet::heads_of(const StateRows& rows) const {
  const int group = options_.num_value_heads / options_.num_key_heads;
  return {.first_key = rows.own.first,
          .num_keys = rows.own.count,
          .first_value = rows.own.first * group,
          .num_values = rows.own.count * group,
          .group = group,
          .unit_channels = 2 * options_.key_dim + group * options_.value_dim,
          .unit_floats = units_.unit_floats};
}

GatedDeltaNet::Inputs GatedDeltaNet::inputs(const MixerCall& call, const StateRows& rows,
                                            const Heads& own) const {
  const Compute& compute = call.compute;
  MixerScratch& scratch = call.scratch;
  const int hidden = config_.hidden_size;
  const auto tokens = static_cast<size_t>(rows.num_tokens);
  const auto heads = static_cast<size_t>(options_.num_value_heads);
  const auto value_width = static_cast<size_t>(options_.value_width());
  const auto mixed_width = static_cast<size_t>(options_.convolved_width());
  const Inputs inputs{.mixed = scratch.value.get<float>(tokens * mixed_width),
                      .z = scratch.latent_query.get<float>(tokens * value_width),
                      .beta = scratch.latent_out.get<float>(2 * tokens * heads),
                      .decay = scratch.latent_out.get<float>(0) + tokens * heads};
  if (options_.fused_projections) {
    project_fused(call, rows, own, inputs);
    return inputs;
  }
  const SourceRows source = float_rows(rows.h, hidden, rows.num_tokens, hidden);
  const int key_width = options_.key_width(), key_dim = options_.key_dim;
  const ColumnRange keys{own.first_key * key_dim, own.num_keys * key_dim};
  const ColumnRange values{own.first_value * options_.value_dim,
                           own.num_values * options_.value_dim};
  const std::array<Panels, 3> panels =
      panels_of_ranges<3>({{{keys.begin, keys.size},
                            {key_width + keys.begin, keys.size},
                            {2 * key_width + values.begin, values.size}}});
  const Product wide[] = {
      {&qkv_.packed, inputs.mixed, mixed_width, panels[0]},
      {&qkv_.packed, inputs.mixed, mixed_width, panels[1]},
      {&qkv_.packed, inputs.mixed, mixed_width, panels[2]},
      {&z_.packed, inputs.z, value_width, panels_of_columns(values.begin, values.size)}};
  compute.matmul(compute.cast(qkv_.packed.shape, source, scratch.cast), wide);
  const Panels few = panels_of_columns(own.first_value, own.num_values);
  const Product narrow[] = {{&b_.packed, inputs.beta, heads, few},
                            {&a_.packed, inputs.decay, heads, few}};
  compute.matmul(compute.cast(b_.packed.shape, source, scratch.cast), narrow);
  return inputs;
}

// The rows of a key head lie together in both matrices.
void GatedDeltaNet::project_fused(const MixerCall& call, const StateRows& rows, const Heads& own,
                                  const Inputs& inputs) const {
  const Compute& compute = call.compute;
  MixerScratch& scratch = call.scratch;
  const int hidden = config_.hidden_size;
  const int width = qkvz_.packed.n(), of_key = width / options_.num_key_heads;
  const auto tokens = static_cast<size_t>(rows.num_tokens);
  const auto wide = static_cast<size_t>(width), narrow = static_cast<size_t>(ba_.packed.n());
  const SourceRows source = float_rows(rows.h, hidden, rows.num_tokens, hidden);
  float* fused = scratch.query.get<float>(tokens * wide);
  float* gates = scratch.key.get<float>(tokens * narrow);
  const Product product{&qkvz_.packed, fused, wide,
                        panels_of_columns(own.first_key * of_key, own.num_keys * of_key)};
  compute.matmul(compute.cast(qkvz_.packed.shape, source, scratch.cast), std::span(&product, 1));
  const Product gate{&ba_.packed, gates, narrow,
                     panels_of_columns(2 * own.first_value, 2 * own.num_values)};
  compute.matmul(compute.cast(ba_.packed.shape, source, scratch.cast), std::span(&gate, 1));
  separate({.call = call, .rows = rows, .heads = own, .inputs = inputs}, fused, gates);
}

// Qwen3-Next's rows lie together by key head: query, key, values and gates of its value heads; and
// likewise b and a of these.
void GatedDeltaNet::separate(const Step& step, const float* fused, const float* gates) const {
  const Inputs& inputs = step.inputs;
  const auto heads = static_cast<size_t>(options_.num_value_heads);
  const auto key_dim = static_cast<size_t>(options_.key_dim);
  const auto key_width = static_cast<size_t>(options_.key_width());
  const auto value_width = static_cast<size_t>(options_.value_width());
  const auto mixed_width = static_cast<size_t>(options_.convolved_width());
  const auto first = static_cast<size_t>(step.heads.first_key);
  const auto last = first + static_cast<size_t>(step.heads.num_keys);
  const auto group = static_cast<size_t>(step.heads.group);
  const size_t values = group * static_cast<size_t>(options_.value_dim);  // of a key head
  step.call.compute.pool().parallel_for(
      step.rows.num_tokens, kTokensPerTask, [&](int64_t begin, int64_t end) {
        for (auto t = static_cast<size_t>(begin); t < static_cast<size_t>(end); ++t) {
          float* mixed = inputs.mixed + t * mixed_width;
          for (size_t head = first; head < last; ++head) {
            const float* from = fused + t * (mixed_width + value_width) +  //
                                head * 2 * (key_dim + values);
            const float* gate = gates + t * 2 * heads + head * 2 * group;
            std::copy_n(from, key_dim, mixed + head * key_dim);
            std::copy_n(from + key_dim, key_dim, mixed + key_width + head * key_dim);
            std::copy_n(from + 2 * key_dim, values, mixed + 2 * key_width + head * values);
            std::copy_n(from + 2 * key_dim + values, values,
                        inputs.z + t * value_width + head * values);
            std::copy_n(gate, group, inputs.beta + t * heads + head * group);
            std::copy_n(gate + group, group, inputs.decay + t * heads + head * group);
          }
        }
      });
}

// Over the tokens of each sequence; a task is a key head with its value heads, whose channels are
// three ranges of a row, and one of the state.
void GatedDeltaNet::convolve(const Step& step) const {
  const MixerCall& call = step.call;
  const Heads& heads = step.heads;
  const auto stride = static_cast<size_t>(options_.convolved_width());
  const auto kept_stride = static_cast<size_t>(heads.unit_channels);
  const size_t kept = static_cast<size_t>(options_.convolution_width - 1) * kept_stride;
  const int key_dim = options_.key_dim, key_width = options_.key_width();
  const int values = heads.group * options_.value_dim;
  const auto count = static_cast<int64_t>(step.rows.sequences.size()) * heads.num_keys;
  call.compute.pool().parallel_for(count, 1, [&](int64_t task, int64_t) {
    const TokenRun& run = step.rows.sequences[static_cast<size_t>(task / heads.num_keys)];
    const auto token = static_cast<size_t>(run.first_token);
    const int unit = static_cast<int>(task % heads.num_keys), head = heads.first_key + unit;
    const size_t at = static_cast<size_t>(unit) * static_cast<size_t>(heads.unit_floats);
    float* state = call.states.of_layer(step.rows.states[token], layer_) + at;
    const std::array<ColumnRange, 3> ranges = {{{head * key_dim, key_dim},
                                                {key_width + head * key_dim, key_dim},
                                                {2 * key_width + head * values, values}}};
    for_each_saved(step.rows, run, [&](int first, int num_tokens, std::byte* saved) {
      float* rows = step.inputs.mixed + (token + static_cast<size_t>(first)) * stride;
      float* inputs = state;
      for (const ColumnRange& range : ranges) {
        call.compute.kernels().convolve({.num_tokens = num_tokens,
                                         .num_channels = range.size,
                                         .width = options_.convolution_width,
                                         .x = rows + range.begin,
                                         .x_stride = stride,
                                         .weight = convolution_.data() + range.begin,
                                         .weight_stride = stride,
                                         .silu = true,
                                         .state = inputs,
                                         .state_stride = kept_stride,
                                         .out = rows + range.begin,
                                         .out_stride = stride});
        inputs += range.size;
      }
      if (saved != nullptr) std::copy_n(state, kept, call.states.of_layer(saved, layer_) + at);
    });
  });
}

void GatedDeltaNet::prepare_heads(const Step& step) const {
  const kernels::Kernels& kernels = step.call.compute.kernels();
  const auto width = static_cast<size_t>(options_.convolved_width());
  const auto key_dim = static_cast<size_t>(options_.key_dim);
  const auto heads = static_cast<size_t>(options_.num_value_heads);
  const auto first = static_cast<size_t>(step.heads.first_value);
  const auto last = first + static_cast<size_t>(step.heads.num_values);
  const float scale = 1.0f / std::sqrt(static_cast<float>(options_.key_dim));
  step.call.compute.pool().parallel_for(
      step.rows.num_tokens, kTokensPerTask, [&](int64_t begin, int64_t end) {
        for (auto t = static_cast<size_t>(begin); t < static_cast<size_t>(end); ++t) {
          float* query =
              step.inputs.mixed + t * width + static_cast<size_t>(step.heads.first_key) * key_dim;
          float* key = query + options_.key_width();
          for (int head = 0; head < step.heads.num_keys; ++head) {
            kernels.l2_normalize(query, kNormEpsilon, options_.key_dim, query);
            kernels.scale_row(scale, options_.key_dim, query);
            kernels.l2_normalize(key, kNormEpsilon, options_.key_dim, key);
            query += key_dim;
            key += key_dim;
          }
          float* beta = step.inputs.beta + t * heads;
          float* decay = step.inputs.decay + t * heads;
          for (size_t head = first; head < last; ++head) {
            beta[head] = sigmoid(beta[head]);
            decay[head] = std::exp(-decay_[head] * softplus(decay[head] + dt_bias_[head]));
          }
        }
      });
}

void GatedDeltaNet::recur(const Step& step) const {
  const MixerCall& call = step.call;
  const auto width = static_cast<size_t>(options_.convolved_width());
  const auto key_width = static_cast<size_t>(options_.key_width());
  const auto key_dim = static_cast<size_t>(options_.key_dim);
  const auto value_dim = static_cast<size_t>(options_.value_dim);
  const auto value_width = static_cast<size_t>(options_.value_width());
  const auto heads = static_cast<size_t>(options_.num_value_heads);
  const auto group = static_cast<size_t>(step.heads.group);
  const auto own = static_cast<size_t>(step.heads.num_values);
  // The convolution's inputs come first in a unit.
  const size_t matrices = static_cast<size_t>(options_.convolution_width - 1) *
                          static_cast<size_t>(step.heads.unit_channels);
  const std::span<const TokenRun> sequences = step.rows.sequences;
  const auto count = static_cast<int64_t>(sequences.size() * own);
  call.compute.pool().parallel_for(count, 1, [&](int64_t task, int64_t) {
    const TokenRun& run = sequences[static_cast<size_t>(task) / own];
    const auto token = static_cast<size_t>(run.first_token);
    const size_t index = static_cast<size_t>(task) % own;  // among own heads
    const size_t head = static_cast<size_t>(step.heads.first_value) + index;
    const size_t matrix = index / group * static_cast<size_t>(step.heads.unit_floats) + matrices +
                          index % group * key_dim * value_dim;
    float* state = call.states.of_layer(step.rows.states[token], layer_) + matrix;
    for_each_saved(step.rows, run, [&](int first, int num_tokens, std::byte* saved) {
      const size_t at = token + static_cast<size_t>(first);
      const float* mixed = step.inputs.mixed + at * width;
      call.compute.kernels().delta_rule({.num_tokens = num_tokens,
                                         .key_dim = options_.key_dim,
                                         .value_dim = options_.value_dim,
                                         .state = state,
                                         .q = mixed + head / group * key_dim,
                                         .q_stride = width,
                                         .k = mixed + key_width + head / group * key_dim,
                                         .k_stride = width,
                                         .v = mixed + 2 * key_width + head * value_dim,
                                         .v_stride = width,
                                         .decay = step.inputs.decay + at * heads + head,
                                         .decay_stride = heads,
                                         .beta = step.inputs.beta + at * heads + head,
                                         .beta_stride = heads,
                                         .out = step.rows.out + at * value_width + head * value_dim,
                                         .out_stride = value_width});
      if (saved == nullptr) return;
      std::copy_n(state, key_dim * value_dim, call.states.of_layer(saved, layer_) + matrix);
    });
  });
}

void GatedDeltaNet::gate(const Step& step) const {
  const kernels::Kernels& kernels = step.call.compute.kernels();
  const int value_dim = options_.value_dim, heads = options_.num_value_heads;
  step.call.compute.pool().parallel_for(
      step.rows.num_tokens, kTokensPerTask, [&](int64_t begin, int64_t end) {
        for (int64_t t = begin; t < end; ++t) {
          for (int i = 0; i < step.heads.num_values; ++i) {
            const int64_t at = (t * heads + step.heads.first_value + i) * value_dim;
            float* head = step.rows.out + at;
            kernels.rms_norm(head, norm_.data(), config_.rms_norm_eps, value_dim, head);
            kernels.silu_multiply(step.inputs.z + at, head, value_dim, head);
          }
        }
      });
}

}  // namespace wideep::model
