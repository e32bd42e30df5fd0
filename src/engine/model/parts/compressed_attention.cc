// SPDX-License-Identifier: Apache-2.0
//
// A task attends in two calls of the kernel, which keeps the state of its softmax between them:
// to the pages of the window, then to the entries that were selected for each token.
//
// Entries need what all their positions give, which other ranks may have written (context
// parallelism). So ranks meet twice in a layer that has them: when keys and inputs are in the cache,
// and when entries are.
#include "model/parts/compressed_attention.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/try.h"

namespace wideep::model {

using kernels::kPageTokens;
using weights::WeightLoader;

namespace {

constexpr int64_t kTokensPerTask = 16;

}  // namespace

CompressedAttention::CompressedAttention(const ModelConfig& config, int layer)
    : config_(config),
      layer_(layer),
      kind_index_(config.layers[static_cast<size_t>(layer)].attention_kind),
      kind_(config.attention_kind(kind_index_)),
      rope_(kind_.rope, kind_.options.rotary_dim) {
  window_ = {.layer = layer,
             .num_heads = kind_.num_heads,
             .num_kv_heads = 1,
             .key_dim = kind_.head_dim,
             .value_dim = kind_.head_dim,
             .scale = kind_.options.scale,
             .value_in_key = true,
             .window = config.compressed.window};
}

// ---- weights ----

Result<std::unique_ptr<Mixer>> CompressedAttention::load(const ModelConfig& config, int layer,
                                                         const WeightLoader& loader) {
  std::unique_ptr<CompressedAttention> part(new CompressedAttention(config, layer));
  const std::string prefix = fmt::format("model.layers.{}.self_attn.", layer);
  const LayerForms forms = layer_forms(config, layer, loader);
  const CompressedConfig& options = config.compressed;
  const int hidden = config.hidden_size, dim = part->kind_.head_dim;
  const int width = part->kind_.num_heads * dim, rank = options.query_rank;
  const int low = options.output_groups * options.output_rank;
  WIDEEP_TRY_ASSIGN(part->q_a_,
                    loader.matrix(prefix + "q_a_proj.weight", rank, hidden, forms.input));
  WIDEEP_TRY_ASSIGN(part->q_a_norm_, loader.floats(prefix + "q_a_norm.weight", {rank}));
  WIDEEP_TRY_ASSIGN(part->q_b_, loader.matrix(prefix + "q_b_proj.weight", width, rank, forms.q_b));
  WIDEEP_TRY_ASSIGN(part->kv_, loader.matrix(prefix + "kv_proj.weight", dim, hidden, forms.input));
  WIDEEP_TRY_ASSIGN(part->kv_norm_, loader.floats(prefix + "kv_norm.weight", {dim}));
  WIDEEP_TRY_ASSIGN(part->o_a_, loader.matrix(prefix + "o_a_proj.weight", low,
                                              width / options.output_groups, forms.output));
  WIDEEP_TRY_ASSIGN(part->o_b_,
                    loader.matrix(prefix + "o_b_proj.weight", hidden, low, forms.output));
  WIDEEP_TRY_ASSIGN(part->sinks_, loader.floats(prefix + "sinks", {part->kind_.num_heads}));
  part->window_.sinks = part->sinks_.data();
  if (part->kind_.group_size > 0) WIDEEP_TRY(part->load_compressors(loader, forms, prefix));
  return std::unique_ptr<Mixer>(std::move(part));
}

// The offsets of elements do not depend on the cache's dtype; those of bytes are found in forward().
Status CompressedAttention::load_compressors(const WeightLoader& loader, const LayerForms& forms,
                                             const std::string& prefix) {
  const CompressedPage page(config_, kind_, Dtype::kF32);
  const std::string name = prefix + "compressor.", index_name = name + "indexer.";
  WIDEEP_TRY_ASSIGN(
      compressor_, Compressor::load(config_, loader, forms.index_key, name,
                                    {.widths = page.entry, .first_input = 0, .group = page.group}));
  if (!kind_.chooses_entries) return {};
  WIDEEP_TRY_ASSIGN(index_compressor_,
                    Compressor::load(config_, loader, forms.index_key, index_name,
                                     {.widths = page.index,
                                      .first_input = page.index_begin(),
                                      .group = page.group,
                                      .of_index = true}));
  WIDEEP_TRY_ASSIGN(indexer_, EntryIndexer::load(config_, layer_, loader, forms, index_name));
  return {};
}

// ---- forward ----

void CompressedAttention::prepare(const MixerCall& call) const {
  AttentionStep& step = call.scratch.step;
  step.rotate(call.compute, call.batch, kind_index_, rope_);
  for (size_t i = 0; i < step.runs.size(); ++i) {
    step.add_tasks(call.compute, kind_index_, static_cast<int>(i), heads_of(call.group));
  }
}

Result<const float*> CompressedAttention::forward(const MixerCall& call, const float* h) const {
  const Compute& compute = call.compute;
  MixerScratch& scratch = call.scratch;
  const int num_tokens = call.batch.num_tokens(), hidden = config_.hidden_size;
  const bool has_entries = compressor_.has_value();
  // A rank without tokens only takes part in the barriers: its scratch memory may be null.
  if (num_tokens == 0) {
    for (int i = 0; i < (has_entries ? 2 : 1); ++i) WIDEEP_TRY(meet_in_cache(call, layer_));
    return h;
  }
  const CompressedPage page(config_, kind_, call.kv.dtype);
  const Rows rows =
      compute.cast(kv_.packed.shape, float_rows(h, hidden, num_tokens, hidden), scratch.cast);
  float* q = queries(call, rows);
  write_cache(call, h, rows, q);
  WIDEEP_TRY(meet_in_cache(call, layer_));
  if (has_entries) {
    make_entries(call, page);
    if (indexer_) indexer_->make_queries(call, h, scratch.query_low.get<float>(0), rope_);
    WIDEEP_TRY(meet_in_cache(call, layer_));
    select_all_entries(call, page, indexer_ ? config_.indexer.top_k : 0);
    if (indexer_) indexer_->choose(call, page);
  }
  const auto width = static_cast<size_t>(kind_.num_heads) * static_cast<size_t>(kind_.head_dim);
  float* out = scratch.latent_out.get<float>(static_cast<size_t>(num_tokens) * width);
  const std::vector<AttentionTask>& tasks = scratch.step.tasks(kind_index_);
  compute.pool().parallel_for(static_cast<int64_t>(tasks.size()), 1, [&](int64_t task, int64_t) {
    attend(call, page, tasks[static_cast<size_t>(task)],
           {.q = q, .out = out, .selected = has_entries ? &scratch.selected : nullptr});
  });
  unrotate(call, out);
  const ColumnRange own = project_groups(call, out);
  return project(call, o_b_.packed, own, nullptr);
}

// The queries of this rank's heads before norm and rotation, [num_tokens, heads · dim].
float* CompressedAttention::queries(const MixerCall& call, const Rows& h) const {
  const Compute& compute = call.compute;
  MixerScratch& scratch = call.scratch;
  const int rank = config_.compressed.query_rank, dim = kind_.head_dim;
  const auto width = static_cast<size_t>(q_b_.packed.n());
  const HeadRange own = heads_of(call.group);
  float* low =
      scratch.query_low.get<float>(static_cast<size_t>(h.num_rows) * static_cast<size_t>(rank));
  const Product low_queries{&q_a_.packed, low, static_cast<size_t>(rank), all_panels(q_a_.packed)};
  compute.matmul(h, std::span(&low_queries, 1));
  compute.rms_norm(low, h.num_rows, q_a_norm_, config_.rms_norm_eps, low);
  float* q = scratch.query.get<float>(static_cast<size_t>(h.num_rows) * width);
  const Product own_queries{&q_b_.packed, q, width,
                            panels_of_columns(own.first * dim, own.count * dim)};
  compute.matmul(
      compute.cast(q_b_.packed.shape, float_rows(low, static_cast<size_t>(rank), h.num_rows, rank),
                   scratch.low_cast),
      std::span(&own_queries, 1));
  return q;
}

// Writes what the batch's positions keep, and normalises and rotates the queries, because the
// token's angles are in the caches.
void CompressedAttention::write_cache(const MixerCall& call, const float* h, const Rows& rows,
                                      float* q) const {
  const Compute& compute = call.compute;
  MixerScratch& scratch = call.scratch;
  const KvLayout& kv = call.kv;
  const CompressedPage page(config_, kind_, kv.dtype);
  const HeadRange own = heads_of(call.group);
  const int num_tokens = call.batch.num_tokens(), hidden = config_.hidden_size;
  const auto dim = static_cast<size_t>(kind_.head_dim);
  const auto inputs = static_cast<size_t>(page.group > 0 ? page.input_width() : 0);
  const auto tokens = static_cast<size_t>(num_tokens);
  float* keys = scratch.kv_row.get<float>(tokens * dim);
  float* input = scratch.key.get<float>(tokens * inputs);
  const Product key_product{&kv_.packed, keys, dim, all_panels(kv_.packed)};
  compute.matmul(rows, std::span(&key_product, 1));
  if (compressor_) {
    std::vector<Product> products;
    compressor_->add_products(input, inputs, &products);
    if (index_compressor_) index_compressor_->add_products(input, inputs, &products);
    compute.matmul(compute.cast(compressor_->shape(), float_rows(h, hidden, num_tokens, hidden),
                                scratch.low_cast),
                   products);
  }
  const kernels::Kernels& kernels = compute.kernels();
  const Dtype dtype = kv.index_dtype();
  const size_t plain = dim - static_cast<size_t>(rope_.dim());
  for_each_token(compute, scratch.step, [&](int token, std::byte* of_page, int slot) {
    const auto at = static_cast<size_t>(token);
    const float* cos_sin = scratch.step.angles_of(kind_index_, token, rope_.dim());
    float* key = keys + at * dim;
    kernels.rms_norm(key, kv_norm_.data(), config_.rms_norm_eps, kind_.head_dim, key);
    rope_.rotate(kernels, cos_sin, key + plain);
    std::byte* layer = kv.keys(of_page, layer_, 0);
    kernels.store_row(kv.dtype, key, kind_.head_dim,
                      layer + static_cast<size_t>(slot) * page.row_stride * dtype_bytes(kv.dtype));
    if (inputs > 0) {
      kernels.store_row(
          dtype, input + at * inputs, static_cast<int>(inputs),
          layer + page.inputs + static_cast<size_t>(slot) * page.input_stride * dtype_bytes(dtype));
    }
    for (int head = own.first; head < own.first + own.count; ++head) {
      float* query =
          q + (at * static_cast<size_t>(kind_.num_heads) + static_cast<size_t>(head)) * dim;
      kernels.rms_norm(query, nullptr, config_.rms_norm_eps, kind_.head_dim, query);
      rope_.rotate(kernels, cos_sin, query + plain);
    }
  });
}

// Those of groups whose last position is in the batch.
void CompressedAttention::make_entries(const MixerCall& call, const CompressedPage& page) const {
  std::vector<std::pair<const TokenRun*, int>> entries;
  for (const TokenRun& run : call.scratch.step.runs) {
    const int end = page.visible(run.first_position + run.num_tokens - 1);
    const int first = run.first_position / page.group;  // complete before the run's first position
    for (int entry = first; entry < end; ++entry) entries.emplace_back(&run, entry);
  }
  const auto make = [&](const Compressor& compressor, size_t i) {
    compressor.make_entry(call, {.page = page, .layer = layer_, .rope = rope_},
                          *entries[i].first->pages, entries[i].second);
  };
  call.compute.pool().parallel_for(static_cast<int64_t>(entries.size()), 1,
                                   [&](int64_t i, int64_t) {
                                     make(*compressor_, static_cast<size_t>(i));
                                     if (index_compressor_)
                                       make(*index_compressor_, static_cast<size_t>(i));
                                   });
}

void CompressedAttention::attend(const MixerCall& call, const CompressedPage& page,
                                 const AttentionTask& task, const AttentionRows& rows) const {
  // Per thread: tasks run in parallel, and steady state shall not allocate.
  thread_local std::vector<kernels::KvPage> pages;
  thread_local Scratch memory;
  const KvLayout& kv = call.kv;
  const TokenRun& run = call.scratch.step.runs[static_cast<size_t>(task.run)];
  kernels::AttentionArgs args = window_.args(run, task, rows);
  args.cache_dtype = kv.dtype;
  args.form = kernels::CacheForm::kRows;
  args.row_stride = page.row_stride;
  args.scratch = memory.get<std::byte>(attention_scratch_bytes(args));
  args.first_page = kernels::first_visible(args.window, 0, args.first_position) / kPageTokens;
  const int end = (args.first_position + args.num_tokens + kPageTokens - 1) / kPageTokens;
  args.num_pages = end - args.first_page;
  args.finish = rows.selected == nullptr;
  const auto find_pages = [&](size_t offset) {
    pages.clear();
    for (int i = args.first_page; i < end; ++i) {
      pages.push_back({kv.keys((*run.pages)[static_cast<size_t>(i)], layer_, 0) + offset, nullptr});
    }
    args.pages = pages.data();
  };
  find_pages(0);
  call.compute.kernels().attention(args);
  if (rows.selected == nullptr) return;
  const auto token = static_cast<size_t>(run.first_token + task.first_token);
  args.start = false;
  args.finish = true;
  args.selected = rows.selected->first.data() + token;
  args.num_selected = rows.selected->count.data() + token;
  args.first_page = 0;
  args.num_pages = end;
  find_pages(page.entries);
  call.compute.kernels().attention(args);
}

// Turns the last dimensions of this rank's heads back.
void CompressedAttention::unrotate(const MixerCall& call, float* out) const {
  const HeadRange own = heads_of(call.group);
  const auto dim = static_cast<size_t>(kind_.head_dim);
  const auto rotated = static_cast<size_t>(rope_.dim());
  call.compute.pool().parallel_for_ranges(
      call.batch.num_tokens(), kTokensPerTask, [&](int64_t begin, int64_t end) {
        thread_local std::vector<float> back;
        for (auto token = static_cast<size_t>(begin); token < static_cast<size_t>(end); ++token) {
          const float* cos_sin =
              call.scratch.step.angles_of(kind_index_, static_cast<int>(token), rope_.dim());
          back.assign(cos_sin, cos_sin + rotated);
          for (size_t i = rotated / 2; i < rotated; ++i) back[i] = -back[i];
          for (int head = own.first; head < own.first + own.count; ++head) {
            const size_t at =
                token * static_cast<size_t>(kind_.num_heads) + static_cast<size_t>(head);
            rope_.rotate(call.compute.kernels(), back.data(), out + (at + 1) * dim - rotated);
          }
        }
      });
}

// Writes the outputs of this rank's groups to their columns of kHeads, [num_tokens, groups · rank],
// which are returned. Panels may have columns of two groups, so a group's product goes through
// memory of its own.
ColumnRange CompressedAttention::project_groups(const MixerCall& call, const float* out) const {
  const Compute& compute = call.compute;
  const CompressedConfig& options = config_.compressed;
  const int num_tokens = call.batch.num_tokens(), rank = options.output_rank;
  const auto all = static_cast<size_t>(o_a_.packed.n());
  const size_t width = static_cast<size_t>(kind_.num_heads) * static_cast<size_t>(kind_.head_dim);
  const HeadRange heads = heads_of(call.group);
  const int group_heads = kind_.num_heads / options.output_groups;
  const int first = heads.first / group_heads, count = heads.count / group_heads;
  float* low = call.group.joint<float>(JointBuffer::kHeads, static_cast<size_t>(num_tokens) * all);
  float* product = call.scratch.gate.get<float>(static_cast<size_t>(num_tokens) * all);
  for (int group = first; group < first + count; ++group) {
    const float* input = out + static_cast<size_t>(group) * static_cast<size_t>(o_a_.packed.k());
    const Rows rows =
        compute.cast(o_a_.packed.shape, float_rows(input, width, num_tokens, o_a_.packed.k()),
                     call.scratch.cast);
    const Product of_group{&o_a_.packed, product, all, panels_of_columns(group * rank, rank)};
    compute.matmul(rows, std::span(&of_group, 1));
    compute.pool().parallel_for_ranges(num_tokens, kTokensPerTask, [&](int64_t begin, int64_t end) {
      for (auto token = static_cast<size_t>(begin); token < static_cast<size_t>(end); ++token) {
        const size_t at = token * all + static_cast<size_t>(group * rank);
        std::copy_n(product + at, rank, low + at);
      }
    });
  }
  return {.begin = first * rank, .size = count * rank};
}

}  // namespace wideep::model
