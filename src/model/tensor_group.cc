// SPDX-License-Identifier: Apache-2.0
#include "model/tensor_group.h"

#include <algorithm>

#include "base/check.h"
#include "base/trace.h"

namespace wideep::model {
namespace {

// Segments are dealt out in whole pages.
constexpr size_t kAlignment = 4096;

size_t aligned(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

}  // namespace

JointLayout::JointLayout(const ModelConfig& config, int64_t tokens, int64_t max_logit_rows)
    : max_tokens(tokens) {
  const int value_dim = config.is_mla() ? config.v_head_dim : config.head_dim;
  const int shared = config.num_shared_experts * config.moe_intermediate_size;
  const int between = std::max(config.dense_intermediate_size, shared);
  const int64_t rows = std::max(tokens, max_logit_rows);
  const std::array<int64_t, static_cast<size_t>(JointBuffer::kCount)> elements = {
      rows * config.hidden_size,          rows * config.num_heads * value_dim,
      rows * config.hidden_size,          rows * between,
      max_logit_rows * config.vocab_size,
  };
  for (size_t i = 0; i < elements.size(); ++i) {
    begin[i + 1] = begin[i] + aligned(static_cast<size_t>(elements[i]) * sizeof(float));
  }
}

HeadRange part_of_heads(int rank, int size, int num_heads, int num_kv_heads) {
  const int count = num_heads / size, group = num_heads / num_kv_heads;
  const int first = rank * count;
  return {.first = first,
          .count = count,
          .first_kv = first / group,
          .num_kv = std::max(count / group, 1)};
}

Panels panels_of_columns(int first, int count) {
  return {first / kernels::kPanelWidth,
          (first + count + kernels::kPanelWidth - 1) / kernels::kPanelWidth};
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
  const int64_t panels = w.num_panels();
  return {static_cast<int>(panels * rank_ / size_), static_cast<int>(panels * (rank_ + 1) / size_)};
}

std::byte* TensorGroup::shared(JointBuffer buffer, size_t bytes) const {
  const auto i = static_cast<size_t>(buffer);
  WIDEEP_CHECK_LE(layout_.begin[i] + bytes, layout_.begin[i + 1]);
  return base_ + layout_.begin[i];
}

Status TensorGroup::meet(const transport::Awaited& where) {
  if (is_alone()) return {};
  const base::TraceSpan span(base::Span::kMeet, where.layer);
  const uint32_t value = endpoint_->raised(transport::Channel::kJoin) + 1;
  endpoint_->raise_all(transport::Channel::kJoin, value);
  return endpoint_->wait_all(transport::Channel::kJoin, value, where);
}

}  // namespace wideep::model
