// SPDX-License-Identifier: Apache-2.0
//
// Layouts are offsets: each use of a group takes the buffers that it needs, and the others have
// size 0. What a rank has written is described as rows or columns (transport::Written), which only
// matters between nodes; on one node the buffers are the same memory, and meet() is a flag for each
// rank and a wait for all.
#include "model/parts/tensor_group.h"

#include <algorithm>

#include "base/check.h"
#include "base/trace.h"
#include "model/parts/part_cost.h"

namespace wideep::model {
namespace {

// Buffers begin at page boundaries, so that no two share a page.
constexpr size_t kAlignment = 4096;

size_t aligned(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

// What output projections read: the widest of all layers.
int64_t heads_width(const ModelConfig& config) {
  uint64_t width = 0;
  for (int layer = 0; layer < config.num_all_layers(); ++layer) {
    for (const std::vector<OperandRow>& buffer : mixer_cost(config, layer).operands) {
      for (const OperandRow& row : buffer) {
        if (row.use == TensorUse::kOutput) width = std::max(width, row.width);
      }
    }
  }
  return static_cast<int64_t>(width);
}

}  // namespace

// Buffers are dimensioned for the larger of their uses: kInput also holds the rows of the LM head,
// kBetween the intermediate activations of dense layers and of the shared expert, kOutput the
// residual streams that predictions continue (Model::keep_streams()).
JointLayout::JointLayout(const ModelConfig& config, int64_t tokens, int64_t max_logit_rows)
    : max_tokens(tokens) {
  const int between = std::max(config.dense_intermediate_size, config.shared_intermediate_size);
  const int64_t rows = std::max(tokens, max_logit_rows);
  const int output = config.num_prediction_layers > 0 ? config.stream_width() : config.hidden_size;
  set_elements({rows * config.hidden_size, rows * heads_width(config), rows * output,
                rows * between, max_logit_rows * config.vocab_size});
}

void JointLayout::set_elements(
    const std::array<int64_t, static_cast<size_t>(JointBuffer::kCount)>& elements) {
  for (size_t i = 0; i < elements.size(); ++i) {
    begin[i + 1] = begin[i] + aligned(static_cast<size_t>(elements[i]) * sizeof(float));
  }
}

JointLayout JointLayout::of_experts(const ModelConfig& config, Dtype row_dtype, int64_t max_rows) {
  JointLayout layout;
  layout.max_tokens = max_rows;
  const size_t row = static_cast<size_t>(config.moe_intermediate_size) * dtype_bytes(row_dtype);
  const auto between = static_cast<size_t>(JointBuffer::kBetween);
  // All other buffers are empty: those before kBetween begin and end at 0, those after at its end.
  std::fill(layout.begin.begin() + between + 1, layout.begin.end(),
            aligned(static_cast<size_t>(max_rows) * row));
  return layout;
}

JointLayout JointLayout::of_context(const ModelConfig& config, int64_t max_tokens,
                                    int64_t max_logit_rows) {
  JointLayout layout;
  const int64_t rows = config.has_state() ? max_tokens : 0;
  layout.set_elements({rows * config.hidden_size, rows * heads_width(config), 0, 0,
                       max_logit_rows * config.vocab_size});
  return layout;
}

JointLayout JointLayout::of_heads(const ModelConfig& config, int num_ranks, int64_t max_rows) {
  JointLayout layout;
  const auto rows = static_cast<size_t>(num_ranks * max_rows);
  const size_t input = aligned(rows * static_cast<size_t>(config.hidden_size) * sizeof(float));
  // kInput is the first buffer, kLogits the last one; those between are empty.
  std::fill(layout.begin.begin() + 1, layout.begin.end(), input);
  layout.begin.back() += aligned(rows * static_cast<size_t>(num_ranks) * sizeof(Likeliest));
  return layout;
}

HeadRange part_of_heads(int rank, int size, int num_heads, int num_kv_heads) {
  const int count = num_heads / size, group = num_heads / num_kv_heads;
  const int first = rank * count;
  // With more ranks than key-value heads a rank has a part of one head's group: num_kv is 1.
  return {.first = first,
          .count = count,
          .first_kv = first / group,
          .num_kv = std::max(count / group, 1)};
}

Panels panels_of_columns(int first, int count) {
  return {first / kernels::kPanelWidth,
          (first + count + kernels::kPanelWidth - 1) / kernels::kPanelWidth};
}

ColumnRange columns_of_part(int n, int part, int parts) {
  const Panels panels = kernels::panels_of_part({.n = n}, part, parts);
  const int begin = panels.first * kernels::kPanelWidth;
  return {begin, std::min(panels.last * kernels::kPanelWidth, n) - begin};
}

transport::Written written_columns(const void* buffer, int elements, size_t element_bytes,
                                   int64_t num_rows, Panels panels) {
  const int first = panels.first * kernels::kPanelWidth;
  const int last = std::min(panels.last * kernels::kPanelWidth, elements);
  return {
      .first = static_cast<const std::byte*>(buffer) + static_cast<size_t>(first) * element_bytes,
      .width = static_cast<size_t>(std::max(last - first, 0)) * element_bytes,
      .stride = static_cast<size_t>(elements) * element_bytes,
      .rows = static_cast<size_t>(num_rows)};
}

TensorGroup::TensorGroup(transport::Endpoint& endpoint, size_t offset, const JointLayout& layout)
    : endpoint_(&endpoint),
      rank_(endpoint.rank()),
      size_(endpoint.num_ranks()),
      layout_(layout),
      base_(endpoint.segment(0) + offset) {
  WIDEEP_CHECK_GE(endpoint.memory().segment_bytes(), offset + layout.bytes());
}

Panels TensorGroup::panels(const kernels::PackedShape& w) const {
  return kernels::panels_of_part(w, rank_, size_);
}

std::byte* TensorGroup::shared(JointBuffer buffer, size_t bytes) const {
  const auto i = static_cast<size_t>(buffer);
  WIDEEP_CHECK_LE(layout_.begin[i] + bytes, layout_.begin[i + 1]);
  return base_ + layout_.begin[i];
}

Status TensorGroup::meet_after(int owner, std::span<const transport::Written> wrote,
                               const transport::Awaited& where) {
  if (is_alone()) return {};
  const base::TraceSpan span(base::Span::kMeet, where.layer);
  // forward_to_all() before the flag: on other nodes the data must arrive before the flag that
  // announces it. raise_all is a release, wait_all an acquire; together they order all writes of
  // the group.
  endpoint_->forward_to_all(owner, wrote);
  const uint32_t value = endpoint_->raised(transport::Channel::kJoin) + 1;
  endpoint_->raise_all(transport::Channel::kJoin, value);
  return endpoint_->wait_all(transport::Channel::kJoin, value, where);
}

}  // namespace wideep::model
