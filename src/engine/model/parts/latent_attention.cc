// SPDX-License-Identifier: Apache-2.0
//
//   c, k_rope = kv_a(h)                   cached: rms_norm(c), rotated k_rope; once for all heads
//   q         = q_b(rms_norm(q_a(h)))     per head: q_nope, q_rope
//   absorbed  score = (to_latent q_nope) · c + q_rope · k_rope,   out = from_latent (Σ p · c)
//   expanded  score = q_nope · (to_keys c) + q_rope · k_rope,     out = Σ p · (from_latent c)
//   result    = o(out of all heads), each multiplied by σ(gate(h)) where the model has gates
//
// Layers without rotation leave q_rope and k_rope as they are.
//
// Both forms compute the same function. latent_form.h says when each is cheaper.
#include "model/parts/latent_attention.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/try.h"
#include "model/parts/norms.h"

namespace wideep::model {

using weights::WeightLoader;

namespace {

// Most rows of a task in the expanded form. Many rows per task spread the cost of expanding a page;
// but the state of the rows should stay in the caches.
constexpr int kMaxExpandedRows = 1024;
constexpr int kKind = 0;  // all layers of latent attention are of one kind
constexpr int64_t kTokensPerTask = 16;

}  // namespace

LatentAttention::LatentAttention(const ModelConfig& config, int layer)
    : config_(config),
      rotates_(config.layers[static_cast<size_t>(layer)].rotates),
      rope_(config.rope, rotates_ ? config.qk_rope_head_dim : 0) {
  const double query_dim = config.qk_nope_head_dim + config.qk_rope_head_dim;
  const auto scale =
      static_cast<float>(config.rope.softmax_scale_multiplier / std::sqrt(query_dim));
  // In the absorbed form all heads attend to the same cached rows, as with one key-value head.
  absorbed_ = {.layer = layer,
               .num_heads = config.num_heads,
               .num_kv_heads = 1,
               .key_dim = config.kv_lora_rank + config.qk_rope_head_dim,
               .value_dim = config.kv_lora_rank,
               .scale = scale,
               .value_in_key = true};
  expanded_ = {.layer = layer,
               .num_heads = config.num_heads,
               .num_kv_heads = config.num_heads,
               .key_dim = config.qk_nope_head_dim + config.qk_rope_head_dim,
               .value_dim = config.v_head_dim,
               .scale = scale};
}

// ---- weights ----

Result<std::unique_ptr<Mixer>> LatentAttention::load(const ModelConfig& config, int layer,
                                                     const WeightLoader& loader) {
  std::unique_ptr<LatentAttention> attention(new LatentAttention(config, layer));
  const std::string prefix = fmt::format("model.layers.{}.self_attn.", layer);
  const LayerForms forms = layer_forms(config, layer, loader);
  WIDEEP_TRY(attention->load_query(loader, forms, prefix));
  WIDEEP_TRY(attention->load_latent(loader, forms, prefix));
  WIDEEP_TRY_ASSIGN(attention->o_,
                    loader.matrix(prefix + "o_proj.weight", config.hidden_size,
                                  config.num_heads * config.v_head_dim, forms.output));
  if (config.latent_gate) {
    WIDEEP_TRY_ASSIGN(attention->gate_, loader.matrix(prefix + "g_proj.weight", config.num_heads,
                                                      config.hidden_size, forms.gates));
  }
  WIDEEP_TRY_ASSIGN(attention->o_bias_, load_bias(config.latent_bias, loader,
                                                  prefix + "o_proj.bias", config.hidden_size));
  if (config.indexer.num_heads > 0 && !config.layers[static_cast<size_t>(layer)].shares_index) {
    WIDEEP_TRY_ASSIGN(attention->indexer_,
                      SparseIndexer::load(config, layer, loader, forms, prefix + "indexer."));
  }
  return std::unique_ptr<Mixer>(std::move(attention));
}

Status LatentAttention::load_query(const WeightLoader& loader, const LayerForms& forms,
                                   const std::string& prefix) {
  const int width = config_.num_heads * (config_.qk_nope_head_dim + config_.qk_rope_head_dim);
  if (config_.q_lora_rank == 0) {
    WIDEEP_TRY_ASSIGN(
        q_b_, loader.matrix(prefix + "q_proj.weight", width, config_.hidden_size, forms.input));
    return {};
  }
  WIDEEP_TRY_ASSIGN(q_a_, loader.matrix(prefix + "q_a_proj.weight", config_.q_lora_rank,
                                        config_.hidden_size, forms.input));
  WIDEEP_TRY_ASSIGN(q_a_bias_, load_bias(config_.latent_bias, loader, prefix + "q_a_proj.bias",
                                         config_.q_lora_rank));
  WIDEEP_TRY_ASSIGN(q_a_norm_,
                    loader.floats(prefix + "q_a_layernorm.weight", {config_.q_lora_rank}));
  WIDEEP_TRY_ASSIGN(
      q_b_, loader.matrix(prefix + "q_b_proj.weight", width, config_.q_lora_rank, forms.q_b));
  return {};
}

Status LatentAttention::load_latent(const WeightLoader& loader, const LayerForms& forms,
                                    const std::string& prefix) {
  const int rank = config_.kv_lora_rank, nope = config_.qk_nope_head_dim, v = config_.v_head_dim;
  WIDEEP_TRY_ASSIGN(
      kv_a_, loader.matrix(prefix + "kv_a_proj_with_mqa.weight", rank + config_.qk_rope_head_dim,
                           config_.hidden_size, forms.input));
  WIDEEP_TRY_ASSIGN(kv_a_bias_,
                    load_bias(config_.latent_bias, loader, prefix + "kv_a_proj_with_mqa.bias",
                              rank + config_.qk_rope_head_dim));
  WIDEEP_TRY_ASSIGN(kv_a_norm_, loader.floats(prefix + "kv_a_layernorm.weight", {rank}));
  WIDEEP_TRY_ASSIGN(
      const std::vector<float> kv_b,
      loader.floats(prefix + "kv_b_proj.weight", {int64_t{config_.num_heads} * (nope + v), rank}));
  // Never quantised: kv_b is small compared to the rest, and the blocks of a quantised matrix would
  // not match the parts into which it is split here.
  const kernels::WeightFormat format = loader.row_dtype() == Dtype::kF32
                                           ? kernels::WeightFormat::kF32
                                           : kernels::WeightFormat::kBf16;
  std::vector<float> transposed(static_cast<size_t>(rank) * nope);
  for (int head = 0; head < config_.num_heads; ++head) {
    const float* keys =
        kv_b.data() + static_cast<size_t>(head) * (nope + v) * rank;  // [nope, rank]
    for (int i = 0; i < nope; ++i) {
      for (int j = 0; j < rank; ++j) transposed[j * nope + i] = keys[i * rank + j];
    }
    to_keys_.push_back(WeightLoader::pack_rows(format, keys, nope, rank));
    to_latent_.push_back(WeightLoader::pack_rows(format, transposed.data(), rank, nope));
    from_latent_.push_back(
        WeightLoader::pack_rows(format, keys + static_cast<size_t>(nope) * rank, v, rank));
  }
  return {};
}

// ---- forward ----

LatentForm LatentAttention::form_of(const TokenRun& run) const {
  if (is_sparse(run)) return LatentForm::kAbsorbed;
  return choose_latent_form({.position = run.first_position,
                             .prompt_length = run.prompt_length,
                             .kv_lora_rank = config_.kv_lora_rank,
                             .qk_nope_head_dim = config_.qk_nope_head_dim,
                             .qk_rope_head_dim = config_.qk_rope_head_dim,
                             .v_head_dim = config_.v_head_dim});
}

void LatentAttention::prepare(const MixerCall& call) const {
  AttentionStep& step = call.scratch.step;
  if (rotates_) step.rotate(call.compute, call.batch, kKind, rope_);
  const HeadRange own = heads_of(call.group);
  for (size_t i = 0; i < step.runs.size(); ++i) {
    const TokenRun& run = step.runs[i];
    const int index = static_cast<int>(i);
    if (form_of(run) == LatentForm::kAbsorbed) {
      step.add_tasks(call.compute, kKind, index, call.group.heads(config_.num_heads, 1));
      continue;
    }
    // From the end, because later tokens attend to more positions: the longest tasks come first.
    for (int end = run.num_tokens; end > 0; end -= kMaxExpandedRows) {
      const int first = std::max(0, end - kMaxExpandedRows);
      for (int head = own.first; head < own.first + own.count; ++head) {
        step.add(kKind, {.run = index,
                         .first_head = head,
                         .num_heads = 1,
                         .first_token = first,
                         .num_tokens = end - first});
      }
    }
  }
}

Result<const float*> LatentAttention::forward(const MixerCall& call, const float* h) const {
  const Compute& compute = call.compute;
  MixerScratch& scratch = call.scratch;
  const int num_tokens = call.batch.num_tokens();
  const bool pools = indexer_ && indexer_->pools();
  // A rank without tokens only takes part in the barriers: its scratch memory may be null.
  if (num_tokens == 0) {
    for (int i = 0; i < (pools ? 2 : 1); ++i) WIDEEP_TRY(meet_in_cache(call, absorbed_.layer));
    return h;
  }
  const int hidden = config_.hidden_size, width = config_.num_heads * config_.v_head_dim;
  const Rows rows =
      compute.cast(kv_a_.packed.shape, float_rows(h, hidden, num_tokens, hidden), scratch.cast);
  float* q = queries(call, rows);
  write_cache(call, rows, q);
  if (indexer_) indexer_->write_cache(call, h, scratch.query_low.get<float>(0));
  WIDEEP_TRY(meet_in_cache(call, absorbed_.layer));
  if (pools) {  // of rows that other ranks may have written, and for their tokens
    indexer_->make_keys(call);
    WIDEEP_TRY(meet_in_cache(call, absorbed_.layer));
  }
  if (indexer_) indexer_->select(call);

  const AttentionStep& step = scratch.step;
  const std::vector<TokenRun> absorbed = absorbed_ranges(step);
  const size_t latent_rows = absorbed.empty() ? 0 : static_cast<size_t>(num_tokens);
  float* latent_q = scratch.latent_query.get<float>(latent_rows * config_.num_heads *
                                                    static_cast<size_t>(absorbed_.key_dim));
  float* latent = scratch.latent_out.get<float>(latent_rows * config_.num_heads *
                                                static_cast<size_t>(absorbed_.value_dim));
  float* heads =
      call.group.joint<float>(JointBuffer::kHeads, static_cast<size_t>(num_tokens) * width);
  for (const TokenRun& tokens : absorbed) enter_latent(call, tokens, q, latent_q);
  compute.pool().parallel_for(
      static_cast<int64_t>(step.tasks(kKind).size()), 1, [&](int64_t begin, int64_t) {
        const AttentionTask& task = step.tasks(kKind)[begin];
        const TokenRun& run = step.runs[task.run];
        if (form_of(run) == LatentForm::kAbsorbed) {
          absorbed_.run(compute, call.kv, run, task,
                        {.q = latent_q,
                         .out = latent,
                         .selected = is_sparse(run) ? &scratch.selected : nullptr});
        } else {
          attend_expanded(call, run, task, {.q = q, .out = heads});
        }
      });
  for (const TokenRun& tokens : absorbed) leave_latent(call, tokens, latent, heads);
  if (config_.latent_gate) gate(call, h, heads);
  return project(call, o_.packed, bias_of(o_bias_));
}

// Ranges of neighbouring tokens, of any sequences, that take the absorbed form. Joining them makes
// the products in enter_latent and leave_latent larger.
std::vector<TokenRun> LatentAttention::absorbed_ranges(const AttentionStep& step) const {
  std::vector<TokenRun> ranges;
  for (const TokenRun& run : step.runs) {
    if (form_of(run) != LatentForm::kAbsorbed) continue;
    const bool joins =
        !ranges.empty() && ranges.back().first_token + ranges.back().num_tokens == run.first_token;
    if (joins) {
      ranges.back().num_tokens += run.num_tokens;
    } else {
      ranges.push_back({.first_token = run.first_token, .num_tokens = run.num_tokens});
    }
  }
  return ranges;
}

// The queries of this rank's heads before rotation, [num_tokens, num_heads × (nope + rope)].
float* LatentAttention::queries(const MixerCall& call, const Rows& h) const {
  const Compute& compute = call.compute;
  MixerScratch& scratch = call.scratch;
  const size_t width = q_b_.packed.n();
  float* q = scratch.query.get<float>(h.num_rows * width);
  const HeadRange own = heads_of(call.group);
  const int dim = expanded_.key_dim;
  const Product own_queries{&q_b_.packed, q, width,
                            panels_of_columns(own.first * dim, own.count * dim)};
  if (config_.q_lora_rank == 0) {
    compute.matmul(h, std::span(&own_queries, 1));
    return q;
  }
  const int rank = config_.q_lora_rank;
  float* low = scratch.query_low.get<float>(static_cast<size_t>(h.num_rows) * rank);
  const Product low_queries{&q_a_.packed, low, static_cast<size_t>(rank), all_panels(q_a_.packed),
                            bias_of(q_a_bias_)};
  compute.matmul(h, std::span(&low_queries, 1));
  compute.rms_norm(low, h.num_rows, q_a_norm_, config_.latent_norm_eps, low);
  const SourceRows low_rows = float_rows(low, rank, h.num_rows, rank);
  compute.matmul(compute.cast(q_b_.packed.shape, low_rows, scratch.low_cast),
                 std::span(&own_queries, 1));
  return q;
}

// Keeps attention sharp far from the trained context. q: one head's query.
void LatentAttention::scale_by_position(const Compute& compute, int position, float* q) const {
  const float blocks = std::floor(static_cast<float>(position) / config_.latent_temperature_floor);
  const float scale = std::log(1.0f + blocks) * config_.latent_temperature + 1.0f;
  compute.kernels().scale_row(scale, expanded_.key_dim, q);
}

// Writes the cached row of each token: its normalised latent, then its rotated key. Also rotates
// and scales the queries, because the token's angles are in the caches.
void LatentAttention::write_cache(const MixerCall& call, const Rows& h, float* q) const {
  const Compute& compute = call.compute;
  const KvLayout& kv = call.kv;
  MixerScratch& scratch = call.scratch;
  const HeadRange own = heads_of(call.group);
  const int rank = config_.kv_lora_rank, nope = config_.qk_nope_head_dim;
  const int width = rank + config_.qk_rope_head_dim, q_dim = expanded_.key_dim;
  float* rows = scratch.kv_row.get<float>(static_cast<size_t>(h.num_rows) * width);
  const Product keys{&kv_a_.packed, rows, static_cast<size_t>(width), all_panels(kv_a_.packed),
                     bias_of(kv_a_bias_)};
  compute.matmul(h, std::span(&keys, 1));
  const kernels::Kernels& kernels = compute.kernels();
  for_each_token(compute, scratch.step, [&](int token, std::byte* page, int slot) {
    const float* cos_sin = rotates_ ? scratch.step.angles_of(kKind, token, rope_.dim()) : nullptr;
    float* row = rows + static_cast<size_t>(token) * width;
    kernels.rms_norm(row, kv_a_norm_.data(), config_.latent_norm_eps, rank, row);
    if (rotates_) rope_.rotate(kernels, cos_sin, row + rank);
    kernels.store_row(kv.dtype, row, width, kv.row(page, absorbed_.layer, slot));
    float* queries = q + static_cast<size_t>(token) * config_.num_heads * q_dim;
    for (int head = own.first; head < own.first + own.count; ++head) {
      float* query = queries + static_cast<size_t>(head) * q_dim;
      if (rotates_) rope_.rotate(kernels, cos_sin, query + nope);
      if (config_.latent_temperature > 0) {
        scale_by_position(compute, call.batch.positions[static_cast<size_t>(token)], query);
      }
    }
  });
}

// Multiplies the output of this rank's heads, [num_tokens, num_heads × v], by σ(gate · h).
void LatentAttention::gate(const MixerCall& call, const float* h, float* heads) const {
  const Compute& compute = call.compute;
  const int num_tokens = call.batch.num_tokens(), hidden = config_.hidden_size;
  const auto all = static_cast<size_t>(config_.num_heads);
  const auto dim = static_cast<size_t>(config_.v_head_dim);
  float* gates = call.scratch.kv_row.get<float>(static_cast<size_t>(num_tokens) * all);
  const SourceRows rows = float_rows(h, hidden, num_tokens, hidden);
  compute.matmul(compute.cast(gate_.packed.shape, rows, call.scratch.cast), gate_.packed, gates,
                 all);
  const HeadRange own = heads_of(call.group);
  compute.pool().parallel_for(num_tokens, kTokensPerTask, [&](int64_t begin, int64_t end) {
    for (auto t = static_cast<size_t>(begin); t < static_cast<size_t>(end); ++t) {
      for (int i = own.first; i < own.first + own.count; ++i) {
        const auto head = static_cast<size_t>(i);
        const float share = 1.0f / (1.0f + std::exp(-gates[t * all + head]));
        compute.kernels().scale_row(share, config_.v_head_dim, heads + (t * all + head) * dim);
      }
    }
  });
}

// ---- the absorbed form ----

// latent_q: [num_tokens, num_heads × (kv_lora_rank + rope)], each head's query projected into the
// latent space, followed by its rotary part. For a latent c, q · (W c) = (Wᵀ q) · c: the matrix W
// that makes keys of latents is applied once to the query instead of to every latent.
void LatentAttention::enter_latent(const MixerCall& call, const TokenRun& tokens, const float* q,
                                   float* latent_q) const {
  const Compute& compute = call.compute;
  const HeadRange own = heads_of(call.group);
  const int nope = config_.qk_nope_head_dim, rope = config_.qk_rope_head_dim;
  const int rank = config_.kv_lora_rank;
  const size_t width = q_b_.packed.n();
  const size_t out_width = static_cast<size_t>(config_.num_heads) * absorbed_.key_dim;
  compute.pool().parallel_for(own.count, 1, [&](int64_t index, int64_t) {
    thread_local Scratch cast;
    const int64_t head = own.first + index;
    const float* q_head = q + tokens.first_token * width + head * (nope + rope);
    float* out_head = latent_q + tokens.first_token * out_width + head * absorbed_.key_dim;
    const Rows rows = cast_rows(compute.kernels(), to_latent_[head].packed.shape,
                                float_rows(q_head, width, tokens.num_tokens, nope), cast);
    compute.kernels().matmul(matmul_args(rows, to_latent_[head].packed, out_head, out_width));
    for (int token = 0; token < tokens.num_tokens; ++token) {
      std::memcpy(out_head + token * out_width + rank, q_head + token * width + nope,
                  rope * sizeof(float));
    }
  });
}

// Projects each head's output out of the latent space: heads, [num_tokens, num_heads × v], from
// latent, [num_tokens, num_heads × kv_lora_rank].
void LatentAttention::leave_latent(const MixerCall& call, const TokenRun& tokens,
                                   const float* latent, float* heads) const {
  const Compute& compute = call.compute;
  const HeadRange own = heads_of(call.group);
  const int rank = config_.kv_lora_rank, v = config_.v_head_dim;
  const size_t width = static_cast<size_t>(config_.num_heads) * rank;
  const size_t out_width = static_cast<size_t>(config_.num_heads) * v;
  compute.pool().parallel_for(own.count, 1, [&](int64_t index, int64_t) {
    thread_local Scratch cast;
    const int64_t head = own.first + index;
    const float* from = latent + tokens.first_token * width + head * rank;
    const Rows rows = cast_rows(compute.kernels(), from_latent_[head].packed.shape,
                                float_rows(from, width, tokens.num_tokens, rank), cast);
    compute.kernels().matmul(matmul_args(rows, from_latent_[head].packed,
                                         heads + tokens.first_token * out_width + head * v,
                                         out_width));
  });
}

// ---- the expanded form ----

// The latents of a page as operands of the weights to_keys_ and from_latent_.
Rows LatentAttention::latents(const MixerCall& call, const std::byte* page, int count,
                              ExpandedPage& expanded) const {
  const kernels::Kernels& kernels = call.compute.kernels();
  const KvLayout& kv = call.kv;
  const kernels::PackedShape& shape = to_keys_[0].packed.shape;
  const Dtype wanted = kernels::row_dtype(shape.format);
  SourceRows source{{page, kv.row_stride * dtype_bytes(kv.dtype), nullptr},
                    count,
                    config_.kv_lora_rank,
                    kv.dtype};
  if (kv.dtype == Dtype::kF8E4M3) {
    Bf16* wide = expanded.wide.get<Bf16>(kernels::kPageTokens * kv.row_stride);
    kernels.widen_fp8(page, count * kv.row_stride, wide);
    source.rows = {wide, kv.row_stride * sizeof(Bf16), nullptr};
    source.dtype = Dtype::kBf16;
  }
  // The cache may have a narrower dtype than the weights.
  if (wanted == Dtype::kF32 && source.dtype == Dtype::kBf16) {
    float* floats = expanded.rows.get<float>(kernels::kPageTokens * kv.row_stride);
    const auto* halves = static_cast<const Bf16*>(source.rows.first);
    std::transform(halves, halves + count * kv.row_stride, floats,
                   [](Bf16 x) { return static_cast<float>(x); });
    source = float_rows(floats, kv.row_stride, count, config_.kv_lora_rank);
  }
  return cast_rows(kernels, shape, source, expanded.rows);
}

// Expands one head's keys and values of a page, as panels for the attention kernel.
void LatentAttention::expand_page(const MixerCall& call, const std::byte* page, int count, int head,
                                  ExpandedPage& expanded) const {
  const kernels::Kernels& kernels = call.compute.kernels();
  const KvLayout& kv = call.kv;
  const int nope = config_.qk_nope_head_dim, v = config_.v_head_dim;
  const Dtype dtype = kernels::product_dtype(kv.dtype);
  const size_t element = dtype_bytes(dtype);
  auto* keys = expanded.keys.get<std::byte>(kernels::key_panel_bytes(dtype, expanded_.key_dim));
  auto* values = expanded.values.get<std::byte>(kernels::value_panel_bytes(dtype, v));
  const Rows latent = latents(call, page, count, expanded);
  // Element pairs must not straddle rows: an odd width is rounded up.
  const size_t stride = static_cast<size_t>(std::max(nope, v) + 1) / 2 * 2;
  float* floats = expanded.floats.get<float>(kernels::kPageTokens * stride);
  auto* rounded = expanded.rounded.get<std::byte>(kernels::kPageTokens * stride * element);
  const auto expand = [&](const weights::Matrix& w) {
    const int width = w.packed.n();
    kernels.matmul(matmul_args(latent, w.packed, floats, stride));
    for (int p = 0; p < count; ++p) {
      kernels.store_row(dtype, floats + p * stride, width, rounded + p * stride * element);
    }
    return kernels::PageRows{dtype, rounded, stride, count, width};
  };
  kernels.pack_keys(expand(to_keys_[head]), keys);
  kernels.pack_values(expand(from_latent_[head]), values);

  // The rotary part of the key, equal for all heads, follows the expanded part.
  if (config_.qk_rope_head_dim == 0) return;
  kernels::PageRows rotary{dtype, page, kv.row_stride, count, config_.qk_rope_head_dim};
  if (kv.dtype == Dtype::kF8E4M3) rotary.rows = expanded.wide.get<std::byte>(0);
  rotary.rows += config_.kv_lora_rank * element;
  kernels.pack_keys(rotary, keys + kernels::key_panel_bytes(dtype, nope));
}

// Runs the task page by page, because only one page is expanded at a time. The kernel keeps the
// state of its online softmax in args.scratch from args.start to args.finish.
void LatentAttention::attend_expanded(const MixerCall& call, const TokenRun& run,
                                      const AttentionTask& task, const AttentionRows& rows) const {
  thread_local ExpandedPage expanded;
  thread_local Scratch scratch;
  kernels::AttentionArgs args = expanded_.args(run, task, rows);
  args.cache_dtype = kernels::product_dtype(call.kv.dtype);
  args.num_pages = 1;
  args.scratch = scratch.get<std::byte>(attention_scratch_bytes(args));
  const int end = args.first_position + args.num_tokens;
  for (int base = 0; base < end; base += kernels::kPageTokens) {
    const int count = std::min(kernels::kPageTokens, end - base);
    std::byte* page = (*run.pages)[base / kernels::kPageTokens];
    expand_page(call, call.kv.keys(page, expanded_.layer, 0), count, task.first_head, expanded);
    const kernels::KvPage panels{expanded.keys.get<std::byte>(0),
                                 expanded.values.get<std::byte>(0)};
    args.pages = &panels;
    args.first_page = base / kernels::kPageTokens;
    args.start = base == 0;
    args.finish = base + count == end;
    call.compute.kernels().attention(args);
  }
}

}  // namespace wideep::model
