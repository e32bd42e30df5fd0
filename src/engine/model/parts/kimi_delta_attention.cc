// SPDX-License-Identifier: Apache-2.0
//
// The products are done for all tokens at once. All that follows, from the convolution to the gate,
// belongs to one head: a task is a head of a sequence, whose rows stay in the core's caches, and no
// two tasks touch the same memory. A head's state is one unit: the convolution's last inputs, then
// its matrix. All of it for the heads of this rank (state_mixer.h).
//
// With drafts the sequence is cut at each (for_each_saved), and the head's state between is copied
// out.
#include "model/parts/kimi_delta_attention.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/try.h"
#include "model/parts/norms.h"

namespace wideep::model {

using weights::WeightLoader;

namespace {

constexpr float kNormEpsilon = 1e-6f;  // of queries and keys; no key of config.json sets it

}  // namespace

// ---- weights ----

Result<std::unique_ptr<Mixer>> KimiDeltaAttention::load(const ModelConfig& config, int layer,
                                                        const WeightLoader& loader) {
  std::unique_ptr<KimiDeltaAttention> part(new KimiDeltaAttention(config, layer));
  const KimiDeltaConfig& options = config.kimi_delta;
  const std::string prefix = fmt::format("model.layers.{}.self_attn.", layer);
  const LayerForms forms = layer_forms(config, layer, loader);
  const auto load = [&](const char* name, int rows, const weights::MatrixForm& form) {
    return loader.matrix(prefix + name, rows, config.hidden_size, form);
  };
  WIDEEP_TRY_ASSIGN(part->q_, load("q_proj.weight", options.width(), forms.input));
  WIDEEP_TRY_ASSIGN(part->k_, load("k_proj.weight", options.width(), forms.input));
  WIDEEP_TRY_ASSIGN(part->v_, load("v_proj.weight", options.width(), forms.input));
  WIDEEP_TRY_ASSIGN(part->f_,
                    part->load_projection(loader, forms, prefix + "f", options.decay_rank));
  WIDEEP_TRY_ASSIGN(part->g_,
                    part->load_projection(loader, forms, prefix + "g", options.gate_rank));
  WIDEEP_TRY_ASSIGN(part->b_, load("b_proj.weight", options.num_heads, forms.gates));
  WIDEEP_TRY(part->load_convolutions(loader, prefix));
  WIDEEP_TRY(part->load_decay(loader, prefix));
  WIDEEP_TRY_ASSIGN(part->norm_, loader.floats(prefix + "o_norm.weight", {options.head_dim}));
  WIDEEP_TRY_ASSIGN(part->o_, loader.matrix(prefix + "o_proj.weight", config.hidden_size,
                                            options.width(), forms.output));
  return std::unique_ptr<Mixer>(std::move(part));
}

Result<KimiDeltaAttention::Projection> KimiDeltaAttention::load_projection(
    const WeightLoader& loader, const LayerForms& forms, const std::string& name, int rank) const {
  const int hidden = config_.hidden_size, width = options_.width();
  Projection projection{.first = {}, .second = {}, .rank = rank};
  if (rank == 0) {
    WIDEEP_TRY_ASSIGN(projection.first,
                      loader.matrix(name + "_proj.weight", width, hidden, forms.input));
    return projection;
  }
  WIDEEP_TRY_ASSIGN(projection.first,
                    loader.matrix(name + "_a_proj.weight", rank, hidden, forms.input));
  WIDEEP_TRY_ASSIGN(projection.second,
                    loader.matrix(name + "_b_proj.weight", width, rank, forms.q_b));
  return projection;
}

// Those of queries, keys and values side by side.
Status KimiDeltaAttention::load_convolutions(const WeightLoader& loader,
                                             const std::string& prefix) {
  const int width = options_.width();
  int first = 0;
  for (const char* name : {"q_conv1d.weight", "k_conv1d.weight", "v_conv1d.weight"}) {
    WIDEEP_TRY_ASSIGN(const std::vector<float> stored,
                      loader.floats(prefix + name, {width, options_.convolution_width}));
    put_convolution(stored, {.begin = first, .size = width}, 3 * width, &convolution_);
    first += width;
  }
  return {};
}

Status KimiDeltaAttention::load_decay(const WeightLoader& loader, const std::string& prefix) {
  WIDEEP_TRY_ASSIGN(rate_, loader.floats(prefix + "A_log", {options_.num_heads}));
  for (float& each : rate_) each = std::exp(each);
  WIDEEP_TRY_ASSIGN(dt_bias_, loader.floats(prefix + "dt_bias", {options_.width()}));
  return {};
}

// ---- forward ----

void KimiDeltaAttention::advance(const MixerCall& call, const StateRows& rows) const {
  const Inputs inputs = project_inputs(call, rows);
  const auto heads = static_cast<size_t>(rows.own.count);
  call.compute.pool().parallel_for(
      static_cast<int64_t>(rows.sequences.size() * heads), 1, [&](int64_t task, int64_t) {
        const auto index = static_cast<size_t>(task);
        run_head(call, rows, inputs, rows.sequences[index / heads], index % heads);
      });
}

// The buffers are those of the latent attention of other layers, which are larger as a rule.
KimiDeltaAttention::Inputs KimiDeltaAttention::project_inputs(const MixerCall& call,
                                                              const StateRows& rows) const {
  const Compute& compute = call.compute;
  MixerScratch& scratch = call.scratch;
  const int num_tokens = rows.num_tokens, hidden = config_.hidden_size;
  const auto tokens = static_cast<size_t>(num_tokens);
  const auto width = static_cast<size_t>(options_.width());
  const auto heads = static_cast<size_t>(options_.num_heads);
  const auto f_rank = static_cast<size_t>(f_.rank), g_rank = static_cast<size_t>(g_.rank);
  float* rest = scratch.latent_out.get<float>(tokens * (2 * width + f_rank + g_rank + heads));
  const Inputs inputs{.mixed = scratch.latent_query.get<float>(tokens * 3 * width),
                      .decay = rest,
                      .gate = rest + tokens * width,
                      .beta = rest + tokens * 2 * width,
                      .out = rows.out};
  float* f_low = inputs.beta + tokens * heads;
  float* g_low = f_low + tokens * f_rank;

  const Panels own =
      panels_of_columns(rows.own.first * options_.head_dim, rows.own.count * options_.head_dim);
  // All ranks compute the few columns of low rank.
  const auto first = [&](const Projection& projection, float* low, float* out) {
    const kernels::PackedMatrix& matrix = projection.first.packed;
    const bool is_low = projection.rank > 0;
    return Product{&matrix, is_low ? low : out, static_cast<size_t>(matrix.n()),
                   is_low ? all_panels(matrix) : own};
  };
  const Product products[] = {{&q_.packed, inputs.mixed, 3 * width, own},
                              {&k_.packed, inputs.mixed + width, 3 * width, own},
                              {&v_.packed, inputs.mixed + 2 * width, 3 * width, own},
                              first(f_, f_low, inputs.decay),
                              first(g_, g_low, inputs.gate)};
  const SourceRows source = float_rows(rows.h, hidden, num_tokens, hidden);
  compute.matmul(compute.cast(q_.packed.shape, source, scratch.cast), products);
  const Product betas{&b_.packed, inputs.beta, heads,
                      panels_of_columns(rows.own.first, rows.own.count)};
  compute.matmul(compute.cast(b_.packed.shape, source, scratch.cast), std::span(&betas, 1));
  const auto second = [&](const Projection& projection, const float* low, float* out) {
    if (projection.rank == 0) return;
    const SourceRows low_rows = float_rows(low, projection.rank, num_tokens, projection.rank);
    const Product product{&projection.second.packed, out, width, own};
    compute.matmul(compute.cast(projection.second.packed.shape, low_rows, scratch.low_cast),
                   std::span(&product, 1));
  };
  second(f_, f_low, inputs.decay);
  second(g_, g_low, inputs.gate);
  return inputs;
}

void KimiDeltaAttention::run_head(const MixerCall& call, const StateRows& rows,
                                  const Inputs& inputs, const TokenRun& run, size_t unit) const {
  const auto size = static_cast<size_t>(options_.head_state_floats());
  const size_t at = unit * static_cast<size_t>(units_.unit_floats);
  const size_t head = static_cast<size_t>(rows.own.first) + unit;
  const auto token = static_cast<size_t>(run.first_token);
  float* state = call.states.of_layer(rows.states[token], layer_) + at;
  for_each_saved(rows, run, [&](int first, int num_tokens, std::byte* saved) {
    const HeadTokens tokens{token + static_cast<size_t>(first), num_tokens, head};
    convolve(call, inputs, tokens, state);
    prepare_head(call, inputs, tokens);
    recur(call, inputs, tokens, state + options_.convolution_floats());
    gate(call, inputs, tokens);
    if (saved == nullptr) return;
    std::copy_n(state, size, call.states.of_layer(saved, layer_) + at);
  });
}

// state: [convolution_width − 1, 3 · head_dim].
void KimiDeltaAttention::convolve(const MixerCall& call, const Inputs& inputs,
                                  const HeadTokens& tokens, float* state) const {
  const auto width = static_cast<size_t>(options_.width());
  const auto dim = static_cast<size_t>(options_.head_dim);
  for (size_t i = 0; i < 3; ++i) {
    const size_t channel = i * width + tokens.head * dim;
    float* rows = inputs.mixed + tokens.first * 3 * width + channel;
    call.compute.kernels().convolve({.num_tokens = tokens.count,
                                     .num_channels = options_.head_dim,
                                     .width = options_.convolution_width,
                                     .x = rows,
                                     .x_stride = 3 * width,
                                     .weight = convolution_.data() + channel,
                                     .weight_stride = 3 * width,
                                     .silu = true,
                                     .state = state + i * dim,
                                     .state_stride = 3 * dim,
                                     .out = rows,
                                     .out_stride = 3 * width});
  }
}

void KimiDeltaAttention::prepare_head(const MixerCall& call, const Inputs& inputs,
                                      const HeadTokens& tokens) const {
  const kernels::Kernels& kernels = call.compute.kernels();
  const auto width = static_cast<size_t>(options_.width());
  const int dim = options_.head_dim;
  const size_t channel = tokens.head * static_cast<size_t>(dim);
  const float scale = 1.0f / std::sqrt(static_cast<float>(dim));
  for (size_t t = tokens.first; t < tokens.first + static_cast<size_t>(tokens.count); ++t) {
    float* query = inputs.mixed + t * 3 * width + channel;
    float* key = query + width;
    kernels.l2_normalize(query, kNormEpsilon, dim, query);
    kernels.scale_row(scale, dim, query);
    kernels.l2_normalize(key, kNormEpsilon, dim, key);
    set_decays(tokens.head, inputs.decay + t * width + channel);
    float& beta = inputs.beta[t * static_cast<size_t>(options_.num_heads) + tokens.head];
    beta = sigmoid(beta);
  }
}

// decay: [head_dim] f, then the decays.
void KimiDeltaAttention::set_decays(size_t head, float* decay) const {
  const float* bias = dt_bias_.data() + head * static_cast<size_t>(options_.head_dim);
  const float rate = rate_[head], bound = options_.decay_bound;
  for (int i = 0; i < options_.head_dim; ++i) {
    const float x = decay[i] + bias[i];
    decay[i] = std::exp(bound < 0 ? bound * sigmoid(rate * x) : -rate * softplus(x));
  }
}

void KimiDeltaAttention::recur(const MixerCall& call, const Inputs& inputs,
                               const HeadTokens& tokens, float* state) const {
  const auto width = static_cast<size_t>(options_.width());
  const auto heads = static_cast<size_t>(options_.num_heads);
  const size_t channel = tokens.head * static_cast<size_t>(options_.head_dim);
  const float* mixed = inputs.mixed + tokens.first * 3 * width + channel;
  call.compute.kernels().delta_rule({.num_tokens = tokens.count,
                                     .key_dim = options_.head_dim,
                                     .value_dim = options_.head_dim,
                                     .state = state,
                                     .q = mixed,
                                     .q_stride = 3 * width,
                                     .k = mixed + width,
                                     .k_stride = 3 * width,
                                     .v = mixed + 2 * width,
                                     .v_stride = 3 * width,
                                     .decay = inputs.decay + tokens.first * width + channel,
                                     .decay_stride = width,
                                     .channel_decay = true,
                                     .beta = inputs.beta + tokens.first * heads + tokens.head,
                                     .beta_stride = heads,
                                     .out = inputs.out + tokens.first * width + channel,
                                     .out_stride = width});
}

void KimiDeltaAttention::gate(const MixerCall& call, const Inputs& inputs,
                              const HeadTokens& tokens) const {
  const kernels::Kernels& kernels = call.compute.kernels();
  const auto width = static_cast<size_t>(options_.width());
  const int dim = options_.head_dim;
  for (size_t t = tokens.first; t < tokens.first + static_cast<size_t>(tokens.count); ++t) {
    const size_t at = t * width + tokens.head * static_cast<size_t>(dim);
    float* head = inputs.out + at;
    kernels.rms_norm(head, norm_.data(), config_.rms_norm_eps, dim, head);
    kernels.sigmoid_multiply(inputs.gate + at, head, dim, head);
  }
}

}  // namespace wideep::model
