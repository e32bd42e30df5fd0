// SPDX-License-Identifier: Apache-2.0
//
// In a tensor group all ranks have the input of all tokens, and all write into one buffer. Ranks
// that share sequences have different tokens, but a state needs all of them in order: so rows are
// exchanged for units. Each rank gives the input of its tokens to all others, advances its units
// over all tokens, and takes back what its tokens need. Nobody waits for another rank's tokens but
// in two meetings a layer, whatever the turns are.
#include "model/parts/state_mixer.h"

#include <algorithm>

#include "base/try.h"

namespace wideep::model {
namespace {

constexpr int64_t kRowsPerTask = 8;

// The columns of these units.
ColumnRange columns_of(UnitRange units, int unit_columns, int width) {
  const int begin = std::min(units.first * unit_columns, width);
  return {.begin = begin, .size = std::min(units.count * unit_columns, width - begin)};
}

}  // namespace

void StateMixer::put_convolution(const std::vector<float>& stored, ColumnRange channels, int all,
                                 std::vector<float>* to) {
  const size_t width = stored.size() / static_cast<size_t>(channels.size);
  to->resize(width * static_cast<size_t>(all));
  for (size_t channel = 0; channel < static_cast<size_t>(channels.size); ++channel) {
    for (size_t j = 0; j < width; ++j) {
      (*to)[j * static_cast<size_t>(all) + static_cast<size_t>(channels.begin) + channel] =
          stored[channel * width + j];
    }
  }
}

Result<const float*> StateMixer::forward(const MixerCall& call, const float* h) const {
  const Output to = output();
  const int num_tokens = call.batch.num_tokens(), width = to.matrix.k();
  if (call.batch.states.empty()) return h;  // the step has no tokens, on any rank
  // Of the ranks that share this rank's sequences, together: the tensor group's part.
  const UnitRange part =
      units_of_part(to.units, {.index = call.group.rank(), .count = call.group.size()});
  const ColumnRange columns = columns_of(part, to.unit_columns, width);
  float* out =
      call.group.joint<float>(JointBuffer::kHeads, static_cast<size_t>(num_tokens) * width);
  StateRows rows{.num_tokens = num_tokens,
                 .h = h,
                 .out = out,
                 .own = call.states.own(to.units),
                 .sequences = call.scratch.step.sequences,
                 .states = call.batch.states,
                 .saved = call.batch.saved_states};
  if (call.context.is_alone()) {
    if (rows.own.count > 0) advance(call, rows);
    return put_out(call, to, columns);
  }
  WIDEEP_TRY(gather_rows(call, to.hidden_size, &rows));
  rows.out =
      call.context.joint<float>(JointBuffer::kHeads, static_cast<size_t>(rows.num_tokens) * width);
  if (rows.own.count > 0) advance(call, rows);
  const ColumnRange own = columns_of(rows.own, to.unit_columns, width);
  WIDEEP_TRY(call.context.meet({.first = reinterpret_cast<const std::byte*>(rows.out + own.begin),
                                .width = static_cast<size_t>(own.size) * sizeof(float),
                                .stride = static_cast<size_t>(width) * sizeof(float),
                                .rows = static_cast<size_t>(rows.num_tokens)},
                               call.where.named("the heads of all ranks' states")));
  call.compute.pool().parallel_for(num_tokens, kRowsPerTask, [&](int64_t begin, int64_t end) {
    for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) {
      const auto row = static_cast<size_t>(call.batch.step_rows[i]);
      std::copy_n(rows.out + row * static_cast<size_t>(width) + columns.begin, columns.size,
                  out + i * static_cast<size_t>(width) + columns.begin);
    }
  });
  return put_out(call, to, columns);
}

Result<const float*> StateMixer::put_out(const MixerCall& call, const Output& to,
                                         ColumnRange own) const {
  WIDEEP_TRY_ASSIGN(const float* heads, meet_heads(call, to.matrix, own));
  return multiply(call, to.matrix, finish(call, heads), to.bias);
}

// The inputs of all tokens of the step. Tokens of a turn are neighbours: few pieces travel.
Status StateMixer::gather_rows(const MixerCall& call, int hidden_size, StateRows* rows) {
  const Batch& batch = call.batch;
  const int num_tokens = batch.num_tokens();
  rows->num_tokens = static_cast<int>(batch.states.size());
  const auto hidden = static_cast<size_t>(hidden_size);
  float* all = call.context.joint<float>(JointBuffer::kInput,
                                         static_cast<size_t>(rows->num_tokens) * hidden);
  std::vector<transport::Written> written;
  for (int first = 0; first < num_tokens;) {
    const auto place = [&](int token) { return batch.step_rows[static_cast<size_t>(token)]; };
    int end = first + 1;
    while (end < num_tokens && place(end) == place(end - 1) + 1) ++end;
    const ep::TokenRange range{.begin = place(first), .size = end - first};
    std::copy_n(rows->h + static_cast<size_t>(first) * hidden,
                static_cast<size_t>(range.size) * hidden,
                all + static_cast<size_t>(range.begin) * hidden);
    written.push_back(written_rows(all, hidden, range));
    first = end;
  }
  rows->h = all;
  return call.context.meet(written, call.where.named("the inputs of all ranks' tokens"));
}

}  // namespace wideep::model
