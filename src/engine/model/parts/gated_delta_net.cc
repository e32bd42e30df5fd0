// SPDX-License-Identifier: Apache-2.0
//
// Everything up to the recurrence is done for all tokens at once; the recurrence itself runs along
// each sequence, in parallel over sequences and value heads, the convolution over sequences and
// channels. Each head's state is a matrix of its own, so no two tasks touch the same memory.
//
// With drafts the sequence is cut at each (for_each_saved), and the state between is copied out, as
// the convolution's and as the heads' part of it.
#include "model/parts/gated_delta_net.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/try.h"
#include "model/model_forms.h"
#include "model/parts/norms.h"

namespace wideep::model {
namespace {

constexpr float kNormEpsilon = 1e-6f;  // of queries and keys; no key of config.json sets it
constexpr int kChannelsPerTask = 512;
constexpr int64_t kTokensPerTask = 8;

float sigmoid(float x) { return 1.0f / (1.0f + std::exp(-x)); }
// Above 20 it equals x in float32.
float softplus(float x) { return x > 20.0f ? x : std::log1p(std::exp(x)); }

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

// The kernel takes the weights of all channels for one input after the other.
Status GatedDeltaNet::load_convolution(const weights::WeightLoader& loader,
                                       const std::string& prefix) {
  const auto channels = static_cast<size_t>(options_.convolved_width());
  const auto width = static_cast<size_t>(options_.convolution_width);
  WIDEEP_TRY_ASSIGN(const std::vector<float> stored,
                    loader.floats(prefix + "conv1d.weight",
                                  {options_.convolved_width(), options_.convolution_width}));
  convolution_.resize(stored.size());
  for (size_t channel = 0; channel < channels; ++channel) {
    for (size_t j = 0; j < width; ++j)
      convolution_[j * channels + channel] = stored[channel * width + j];
  }
  return {};
}

// ---- forward ----

Result<const float*> GatedDeltaNet::forward(const MixerCall& call, const float* h) const {
  const auto num_tokens = static_cast<size_t>(call.batch.num_tokens());
  if (num_tokens == 0) return h;
  const Inputs tokens = inputs(call, h);
  convolve(call, tokens);
  prepare_heads(call, tokens);
  float* out = call.group.joint<float>(JointBuffer::kHeads, num_tokens * options_.value_width());
  recur(call, tokens, out);
  gate(call, tokens, out);
  return project(call, o_.packed);
}

GatedDeltaNet::Inputs GatedDeltaNet::inputs(const MixerCall& call, const float* h) const {
  const Compute& compute = call.compute;
  MixerScratch& scratch = call.scratch;
  const int num_tokens = call.batch.num_tokens(), hidden = config_.hidden_size;
  const auto tokens = static_cast<size_t>(num_tokens);
  const auto heads = static_cast<size_t>(options_.num_value_heads);
  const auto value_width = static_cast<size_t>(options_.value_width());
  const auto mixed_width = static_cast<size_t>(options_.convolved_width());
  const SourceRows rows = float_rows(h, hidden, num_tokens, hidden);
  if (options_.fused_projections) {
    float* fused = scratch.query.get<float>(tokens * (mixed_width + value_width));
    float* gates = scratch.key.get<float>(tokens * 2 * heads);
    compute.matmul(compute.cast(qkvz_.packed.shape, rows, scratch.cast), qkvz_.packed, fused,
                   mixed_width + value_width);
    compute.matmul(compute.cast(ba_.packed.shape, rows, scratch.cast), ba_.packed, gates,
                   2 * heads);
    return separate(call, fused, gates);
  }
  const Inputs inputs{.mixed = scratch.value.get<float>(tokens * mixed_width),
                      .z = scratch.latent_query.get<float>(tokens * value_width),
                      .beta = scratch.latent_out.get<float>(2 * tokens * heads),
                      .decay = scratch.latent_out.get<float>(0) + tokens * heads};
  const Product wide[] = {{&qkv_.packed, inputs.mixed, mixed_width, all_panels(qkv_.packed)},
                          {&z_.packed, inputs.z, value_width, all_panels(z_.packed)}};
  compute.matmul(compute.cast(qkv_.packed.shape, rows, scratch.cast), wide);
  const Product narrow[] = {{&b_.packed, inputs.beta, heads, all_panels(b_.packed)},
                            {&a_.packed, inputs.decay, heads, all_panels(a_.packed)}};
  compute.matmul(compute.cast(b_.packed.shape, rows, scratch.cast), narrow);
  return inputs;
}

// Qwen3-Next's rows lie together by key head: query, key, values and gates of its value heads; and
// likewise b and a of these.
GatedDeltaNet::Inputs GatedDeltaNet::separate(const MixerCall& call, const float* fused,
                                              const float* gates) const {
  MixerScratch& scratch = call.scratch;
  const auto tokens = static_cast<size_t>(call.batch.num_tokens());
  const auto key_heads = static_cast<size_t>(options_.num_key_heads);
  const auto heads = static_cast<size_t>(options_.num_value_heads);
  const auto key_dim = static_cast<size_t>(options_.key_dim);
  const auto key_width = static_cast<size_t>(options_.key_width());
  const auto value_width = static_cast<size_t>(options_.value_width());
  const size_t mixed_width = 2 * key_width + value_width;
  const size_t values = value_width / key_heads, group = heads / key_heads;  // of a key head
  const Inputs inputs{.mixed = scratch.value.get<float>(tokens * mixed_width),
                      .z = scratch.latent_query.get<float>(tokens * value_width),
                      .beta = scratch.latent_out.get<float>(2 * tokens * heads),
                      .decay = scratch.latent_out.get<float>(0) + tokens * heads};
  call.compute.pool().parallel_for(
      static_cast<int64_t>(tokens), kTokensPerTask, [&](int64_t begin, int64_t end) {
        for (auto t = static_cast<size_t>(begin); t < static_cast<size_t>(end); ++t) {
          const float* from = fused + t * (mixed_width + value_width);
          const float* gate = gates + t * 2 * heads;
          float* mixed = inputs.mixed + t * mixed_width;
          for (size_t head = 0; head < key_heads; ++head) {
            std::copy_n(from, key_dim, mixed + head * key_dim);
            std::copy_n(from + key_dim, key_dim, mixed + key_width + head * key_dim);
            std::copy_n(from + 2 * key_dim, values, mixed + 2 * key_width + head * values);
            std::copy_n(from + 2 * key_dim + values, values,
                        inputs.z + t * value_width + head * values);
            std::copy_n(gate, group, inputs.beta + t * heads + head * group);
            std::copy_n(gate + group, group, inputs.decay + t * heads + head * group);
            from += 2 * (key_dim + values);
            gate += 2 * group;
          }
        }
      });
  return inputs;
}

// Over the tokens of each sequence; the tasks are ranges of channels.
void GatedDeltaNet::convolve(const MixerCall& call, const Inputs& inputs) const {
  const int width = options_.convolved_width();
  const int tasks = (width + kChannelsPerTask - 1) / kChannelsPerTask;
  const std::vector<TokenRun>& sequences = call.scratch.step.sequences;
  const auto count = static_cast<int64_t>(sequences.size()) * tasks;
  call.compute.pool().parallel_for(count, 1, [&](int64_t task, int64_t) {
    const TokenRun& run = sequences[static_cast<size_t>(task / tasks)];
    const auto token = static_cast<size_t>(run.first_token), stride = static_cast<size_t>(width);
    const int channel = static_cast<int>(task % tasks) * kChannelsPerTask;
    const int channels = std::min(kChannelsPerTask, width - channel);
    float* state = call.states.of_layer(call.batch.states[token], layer_) + channel;
    for_each_saved(call.batch, run, [&](int first, int num_tokens, std::byte* saved) {
      float* rows = inputs.mixed + (token + static_cast<size_t>(first)) * stride + channel;
      call.compute.kernels().convolve({.num_tokens = num_tokens,
                                       .num_channels = channels,
                                       .width = options_.convolution_width,
                                       .x = rows,
                                       .x_stride = stride,
                                       .weight = convolution_.data() + channel,
                                       .weight_stride = stride,
                                       .silu = true,
                                       .state = state,
                                       .state_stride = stride,
                                       .out = rows,
                                       .out_stride = stride});
      if (saved == nullptr) return;
      float* copy = call.states.of_layer(saved, layer_) + channel;
      for (int i = 0; i + 1 < options_.convolution_width; ++i) {
        std::copy_n(state + i * stride, channels, copy + i * stride);
      }
    });
  });
}

void GatedDeltaNet::prepare_heads(const MixerCall& call, const Inputs& inputs) const {
  const kernels::Kernels& kernels = call.compute.kernels();
  const auto width = static_cast<size_t>(options_.convolved_width());
  const auto key_dim = static_cast<size_t>(options_.key_dim);
  const auto heads = static_cast<size_t>(options_.num_value_heads);
  const float scale = 1.0f / std::sqrt(static_cast<float>(options_.key_dim));
  call.compute.pool().parallel_for(
      call.batch.num_tokens(), kTokensPerTask, [&](int64_t begin, int64_t end) {
        for (auto t = static_cast<size_t>(begin); t < static_cast<size_t>(end); ++t) {
          float* query = inputs.mixed + t * width;
          float* key = query + options_.key_width();
          for (int head = 0; head < options_.num_key_heads; ++head) {
            kernels.l2_normalize(query, kNormEpsilon, options_.key_dim, query);
            kernels.scale_row(scale, options_.key_dim, query);
            kernels.l2_normalize(key, kNormEpsilon, options_.key_dim, key);
            query += key_dim;
            key += key_dim;
          }
          float* beta = inputs.beta + t * heads;
          float* decay = inputs.decay + t * heads;
          for (size_t head = 0; head < heads; ++head) {
            beta[head] = sigmoid(beta[head]);
            decay[head] = std::exp(-decay_[head] * softplus(decay[head] + dt_bias_[head]));
          }
        }
      });
}

void GatedDeltaNet::recur(const MixerCall& call, const Inputs& inputs, float* out) const {
  const auto width = static_cast<size_t>(options_.convolved_width());
  const auto key_width = static_cast<size_t>(options_.key_width());
  const auto key_dim = static_cast<size_t>(options_.key_dim);
  const auto value_dim = static_cast<size_t>(options_.value_dim);
  const auto value_width = static_cast<size_t>(options_.value_width());
  const auto heads = static_cast<size_t>(options_.num_value_heads);
  const size_t group = heads / static_cast<size_t>(options_.num_key_heads);
  // The convolution's inputs come first.
  const size_t matrices = static_cast<size_t>(options_.convolution_width - 1) * width;
  const std::vector<TokenRun>& sequences = call.scratch.step.sequences;
  const auto count = static_cast<int64_t>(sequences.size() * heads);
  call.compute.pool().parallel_for(count, 1, [&](int64_t task, int64_t) {
    const TokenRun& run = sequences[static_cast<size_t>(task) / heads];
    const auto token = static_cast<size_t>(run.first_token);
    const size_t head = static_cast<size_t>(task) % heads;
    const size_t matrix = matrices + head * key_dim * value_dim;
    float* state = call.states.of_layer(call.batch.states[token], layer_) + matrix;
    for_each_saved(call.batch, run, [&](int first, int num_tokens, std::byte* saved) {
      const size_t at = token + static_cast<size_t>(first);
      const float* mixed = inputs.mixed + at * width;
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
                                         .decay = inputs.decay + at * heads + head,
                                         .decay_stride = heads,
                                         .beta = inputs.beta + at * heads + head,
                                         .beta_stride = heads,
                                         .out = out + at * value_width + head * value_dim,
                                         .out_stride = value_width});
      if (saved == nullptr) return;
      std::copy_n(state, key_dim * value_dim, call.states.of_layer(saved, layer_) + matrix);
    });
  });
}

void GatedDeltaNet::gate(const MixerCall& call, const Inputs& inputs, float* out) const {
  const kernels::Kernels& kernels = call.compute.kernels();
  const int value_dim = options_.value_dim, heads = options_.num_value_heads;
  call.compute.pool().parallel_for(
      call.batch.num_tokens(), kTokensPerTask, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin * heads; i < end * heads; ++i) {
          float* head = out + i * value_dim;
          kernels.rms_norm(head, norm_.data(), config_.rms_norm_eps, value_dim, head);
          kernels.silu_multiply(inputs.z + i * value_dim, head, value_dim, head);
        }
      });
}

}  // namespace wideep::model
