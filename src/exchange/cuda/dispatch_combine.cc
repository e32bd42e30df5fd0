// SPDX-License-Identifier: Apache-2.0
//
// Each step fills in a kernel's arguments and its launch: how many blocks, threads and bytes of
// shared memory. What can be too large for a device is refused when the exchange is created, not
// in a call. Rounds of few tokens take one kernel instead of three, since then launches cost more
// than the work. Formats of results are template arguments of the kernels, so that their loops
// have no branch on the format.
#include "cuda/dispatch_combine.h"

#include <fmt/format.h>

#include "base/try.h"

namespace wideep::cuda {
namespace {

Status check_blocks(const ExchangeShape& shape, const DispatchCombineOptions& options) {
  const auto is_block = [](int threads, int max) {
    return threads >= kWarpSize && threads <= max && threads % kWarpSize == 0;
  };
  if (!is_block(options.num_threads, kMaxThreads) ||
      !is_block(options.num_index_threads, kMaxIndexThreads)) {
    return invalid_input(
        fmt::format("exchange on GPUs: blocks of {} threads, and of {} for the index: expected "
                    "multiples of 32, at most {} and {}",
                    options.num_threads, options.num_index_threads, kMaxThreads, kMaxIndexThreads));
  }
  if (options.num_blocks < 1 || options.num_receive_blocks < 1) {
    return invalid_input("exchange on GPUs: expected at least one block");
  }
  const size_t shared = IndexMessages::shared_bytes(shape, options.num_index_threads);
  if (shared <= kMaxSharedBytes) return {};
  return invalid_input(
      fmt::format("exchange on GPUs: {} slots per rank of {} ranks need {} bytes of shared memory "
                  "in a block, expected at most {}; index blocks with fewer threads need less",
                  shape.slots_per_rank, shape.ep_size, shared, kMaxSharedBytes));
}

// Whether rounds are small enough for one kernel, and its blocks for the memory that they may use.
bool has_small_rounds(const ExchangeShape& shape, const DispatchCombineOptions& options) {
  return shape.max_tokens <= options.small_round_tokens &&
         SmallRound::shared_bytes(shape, options.num_threads) <= kMaxSharedBytes;
}

// Of a rank that has finished calls_done calls and not failed.
RankState first_state(int ep_size, std::span<const int> inactive_ranks, uint32_t calls_done) {
  RankState state{};
  state.calls_done = calls_done;
  for (int r = 0; r < ep_size; ++r) state.active_ranks[r / 32] |= 1u << r % 32;
  for (const int r : inactive_ranks) state.active_ranks[r / 32] &= ~(1u << r % 32);
  return state;
}

// launch<format>().
template <typename Launch>
Status launch_for(RowFormat format, const Launch& launch) {
  switch (format) {
    case RowFormat::kF32:
      return launch.template operator()<RowFormat::kF32>();
    case RowFormat::kBf16:
      return launch.template operator()<RowFormat::kBf16>();
    case RowFormat::kFp8:
      return launch.template operator()<RowFormat::kFp8>();
    case RowFormat::kNvfp4:
      return launch.template operator()<RowFormat::kNvfp4>();
  }
  return invalid_input("results: unknown format");
}

}  // namespace

Result<std::vector<DispatchCombine>> DispatchCombine::create_all(
    Devices& devices, const ExchangeShape& shape, const DispatchCombineOptions& options) {
  WIDEEP_TRY(check_shape(shape));
  const BufferLayout layout(shape);
  std::vector<std::byte*> segments;
  for (int rank = 0; rank < shape.ep_size; ++rank) {
    Result<std::byte*> segment = devices.allocate(rank, layout.segment_bytes(), true);
    if (!segment.ok()) return segment.status();
    segments.push_back(*segment);
    WIDEEP_TRY(devices.clear(rank, *segment, layout.zeroed_bytes()));
  }
  std::vector<DispatchCombine> ranks;
  for (int rank = 0; rank < shape.ep_size; ++rank) {
    Result<DispatchCombine> created = create(devices, shape, rank, segments, options);
    if (!created.ok()) return created.status();
    ranks.push_back(std::move(*created));
  }
  return ranks;
}

Result<DispatchCombine> DispatchCombine::create(Devices& devices, const ExchangeShape& shape,
                                                int rank, std::span<std::byte* const> segments,
                                                const DispatchCombineOptions& options) {
  WIDEEP_TRY(check_shape(shape));
  WIDEEP_TRY(check_blocks(shape, options));
  DispatchCombine made(devices, options);
  made.segments_.assign(segments.begin(), segments.end());
  Exchange& x = made.x_;
  x.layout = BufferLayout(shape);
  x.rank = rank;
  x.deadline_ns = static_cast<uint64_t>(options.deadline.count());

  const auto ranks = static_cast<size_t>(shape.ep_size);
  const auto tokens = static_cast<size_t>(shape.max_tokens);
  const auto top_k = static_cast<size_t>(shape.top_k);
  const auto slots = static_cast<size_t>(shape.slots_per_rank);
  std::byte** table = nullptr;
  WIDEEP_TRY(allocate_array(devices, rank, ranks, &table));
  WIDEEP_TRY(devices.write(rank, table, segments.data(), ranks * sizeof(std::byte*)));
  x.segments = table;
  WIDEEP_TRY(allocate_array(devices, rank, 1, &x.state));
  const RankState state = first_state(shape.ep_size, options.inactive_ranks, 0);
  WIDEEP_TRY(devices.write(rank, x.state, &state, sizeof(state)));
  WIDEEP_TRY(allocate_array(devices, rank, ranks * tokens, &x.message_of));
  WIDEEP_TRY(allocate_array(devices, rank, tokens * top_k, &x.ordinals));
  const auto entries = static_cast<size_t>(x.layout.entries());
  WIDEEP_TRY(allocate_array(devices, rank, ranks * tokens * entries, &made.received_));
  if (shape.is_reduced) {
    WIDEEP_TRY(allocate_array(devices, rank, ranks * tokens * entries, &made.rows_of_messages_));
  }
  WIDEEP_TRY(allocate_array(devices, rank, slots + 1, &made.slot_starts_));
  WIDEEP_TRY(allocate_array(devices, rank, static_cast<size_t>(shape.num_experts), &made.totals_));
  return made;
}

Status DispatchCombine::prepare(const int32_t* num_tokens, const int32_t* experts, int layer) {
  const size_t counts = static_cast<size_t>(x_.layout.shape().num_experts) * sizeof(uint32_t);
  return devices_->launch(x_.rank, Prepare{x_, num_tokens, experts, totals_, layer},
                          {1, options_.num_index_threads, kControlBytes + counts});
}

Result<ReplicaTable> DispatchCombine::upload(const ep::SlotChooser::ReplicaTable& table) {
  const auto upload = [&]<typename T>(const std::vector<T>& values, T** to) -> Status {
    WIDEEP_TRY(allocate_array(*devices_, x_.rank, values.size(), to));
    return devices_->write(x_.rank, *to, values.data(), values.size() * sizeof(T));
  };
  int32_t *first = nullptr, *slots = nullptr;
  int64_t* parts = nullptr;
  ReplicaTable made;
  WIDEEP_TRY(upload(table.first, &first));
  WIDEEP_TRY(upload(table.slots, &slots));
  WIDEEP_TRY(upload(table.parts, &parts));
  WIDEEP_TRY(upload(table.credit, &made.credit));
  WIDEEP_TRY(allocate_array(*devices_, x_.rank, table.slots.size(), &made.quotas));
  made.first = first;
  made.slots = slots;
  made.parts = parts;
  return made;
}

Status DispatchCombine::choose_slots(const ReplicaTable& replicas, const int32_t* num_tokens,
                                     const int32_t* experts, int32_t* slots) {
  return devices_->launch(
      x_.rank, ChooseSlots{x_, replicas, num_tokens, experts, slots},
      {1, options_.num_index_threads, ChooseSlots::shared_bytes(x_.layout.shape())});
}

Status DispatchCombine::choose_slots_by_counts(const CountedReplicas& replicas,
                                               const int32_t* num_tokens, const int32_t* experts,
                                               int32_t* slots) {
  return devices_->launch(x_.rank,
                          ChooseByCounts{x_, replicas, totals_, num_tokens, experts, slots},
                          {1, options_.num_index_threads,
                           ChooseByCounts::shared_bytes(x_.layout.shape(), replicas.graph)});
}

Status DispatchCombine::dispatch(const Tokens& tokens, const std::byte* rows, size_t row_stride,
                                 int layer) {
  const ExchangeShape& shape = x_.layout.shape();
  const int threads = options_.num_index_threads;
  WIDEEP_TRY(devices_->launch(x_.rank, IndexMessages{x_, tokens, layer},
                              {std::min(shape.ep_size, options_.num_blocks), threads,
                               IndexMessages::shared_bytes(shape, threads)}));
  return devices_->launch(x_.rank, Dispatch{x_, tokens, rows, row_stride, layer},
                          {options_.num_blocks, options_.num_threads});
}

Status DispatchCombine::receive(int layer) {
  return devices_->launch(x_.rank, Receive{x_, received_, slot_starts_, layer, rows_of_messages_},
                          {options_.num_receive_blocks, options_.num_threads,
                           Receive::shared_bytes(x_.layout.shape())});
}

Status DispatchCombine::dispatch_and_receive(const Tokens& tokens, const std::byte* rows,
                                             size_t row_stride, int layer) {
  const ExchangeShape& shape = x_.layout.shape();
  if (!has_small_rounds(shape, options_)) {
    WIDEEP_TRY(dispatch(tokens, rows, row_stride, layer));
    return receive(layer);
  }
  const SmallRound round{{x_, tokens, layer},
                         {x_, tokens, rows, row_stride, layer},
                         {x_, received_, slot_starts_, layer, rows_of_messages_}};
  const int threads = options_.num_threads;
  return devices_->launch(x_.rank, round,
                          {std::min(shape.ep_size, options_.num_blocks), threads,
                           SmallRound::shared_bytes(shape, threads)});
}

Status DispatchCombine::check_matrix(const std::byte* matrix, size_t stride,
                                     size_t num_bytes) const {
  if (stride % 16 == 0 && stride >= num_bytes && reinterpret_cast<uintptr_t>(matrix) % 16 == 0) {
    return {};
  }
  return invalid_input(fmt::format(
      "a matrix of rows of {} bytes: stride {}, expected a multiple of 16 with room for "
      "them, and an address that is one, too",
      num_bytes, stride));
}

Status DispatchCombine::expand(std::byte* matrix, size_t stride) {
  WIDEEP_TRY(check_matrix(matrix, stride, x_.layout.shape().row_bytes));
  return devices_->launch(x_.rank, Expand{{x_, received_, slot_starts_, matrix, stride}},
                          {options_.num_blocks, options_.num_threads});
}

Status DispatchCombine::finalize(std::byte* matrix, size_t stride) {
  if (x_.layout.shape().is_reduced) {
    return invalid_input("finalize: results of this exchange are reduced; expected reduce instead");
  }
  WIDEEP_TRY(check_matrix(matrix, stride, x_.layout.shape().result_bytes));
  return devices_->launch(x_.rank, Finalize{{x_, received_, slot_starts_, matrix, stride}},
                          {options_.num_blocks, options_.num_threads});
}

Status DispatchCombine::reduce(const ResultMatrix& matrix, RowFormat result_format) {
  const ExchangeShape& shape = x_.layout.shape();
  const size_t result_bytes = kernels::row_bytes(result_format, matrix.hidden);
  if (!shape.is_reduced || kernels::is_coded(matrix.format) || result_bytes != shape.result_bytes) {
    return invalid_input(fmt::format(
        "reduce of {} {} values to results of {} bytes: expected an exchange whose results are "
        "reduced, plain values, and {} bytes",
        matrix.hidden, kernels::row_format_name(matrix.format), result_bytes, shape.result_bytes));
  }
  WIDEEP_TRY(
      check_matrix(matrix.rows, matrix.stride, kernels::row_bytes(matrix.format, matrix.hidden)));
  const ReduceArgs args{
      x_,           rows_of_messages_, matrix.rows, matrix.stride, matrix.format == RowFormat::kF32,
      matrix.hidden};
  return launch_for(result_format, [&]<RowFormat kFormat>() {
    return devices_->launch(x_.rank, ReduceResults<kFormat>{args},
                            {options_.num_blocks, options_.num_threads});
  });
}

Status DispatchCombine::combine(const Tokens& tokens, const CombineOutput& output, int layer) {
  const size_t result_bytes = kernels::row_bytes(output.result_format, output.hidden);
  if (result_bytes != x_.layout.shape().result_bytes || output.out_stride % 16 != 0 ||
      output.out_stride < static_cast<size_t>(output.hidden) * sizeof(Bf16)) {
    return invalid_input(fmt::format(
        "combine of {} values: results of {} bytes, expected {}; stride {}, expected a multiple of "
        "16 with room for them",
        output.hidden, result_bytes, x_.layout.shape().result_bytes, output.out_stride));
  }
  const CombineArgs args{
      x_, tokens, output.shared_expert, output.out, output.out_stride, output.hidden, layer};
  const LaunchShape shape{options_.num_blocks, options_.num_threads};
  return launch_for(output.result_format, [&]<RowFormat kFormat>() {
    if (x_.layout.shape().is_reduced) {
      return devices_->launch(x_.rank, CombineReduced<kFormat>{{args}}, shape);
    }
    return devices_->launch(x_.rank, Combine<kFormat>{{args}}, shape);
  });
}

Status DispatchCombine::restart(std::span<const int> inactive_ranks, uint32_t calls_done) {
  const RankState state = first_state(x_.layout.shape().ep_size, inactive_ranks, calls_done);
  WIDEEP_TRY(devices_->write(x_.rank, x_.state, &state, sizeof(state)));
  // Flags stay: they are below the number of the next call.
  for (int source = 0; source < x_.layout.shape().ep_size; ++source) {
    WIDEEP_TRY(devices_->clear(x_.rank, x_.layout.failure(segment(), source), sizeof(uint32_t)));
  }
  return {};
}

Result<uint32_t> DispatchCombine::num_calls_done() {
  uint32_t calls_done = 0;
  WIDEEP_TRY(devices_->read(x_.rank, &calls_done, &x_.state->calls_done, sizeof(calls_done)));
  return calls_done;
}

Status DispatchCombine::failure() {
  RankState state{};
  WIDEEP_TRY(devices_->read(x_.rank, &state, x_.state, sizeof(state)));
  return state.is_failed == 0 ? Status{} : failure_status(x_.rank, state.failure);
}

}  // namespace wideep::cuda
