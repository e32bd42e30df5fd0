// SPDX-License-Identifier: Apache-2.0
//
// The CPU's experts are written once more, with the reference kernels, so that no code of the
// kernels is held against itself. Cases are biased to where indices and waits go wrong: no tokens
// at all, all that fit, hot slots, a token's slots on one rank, rows off their alignment. Results
// are marked as not written before, so that a missing one is seen, and by the emulator one too
// many. A rank dies by launching only its first kernels: the calls before must have their results,
// and some survivor must name it.
#include "cuda/exchange_case_testing.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "base/try.h"
#include "ep/dispatch_combine.h"
#include "kernels/kernels.h"
#include "transport/rank_threads.h"

namespace wideep::cuda {
namespace {

int draw(std::mt19937_64& random, int min, int max) {
  return min + static_cast<int>(random() % static_cast<uint64_t>(max - min + 1));
}

const kernels::Kernels& reference() {
  static const kernels::Kernels* const ref = *kernels::select_kernels("ref");
  return *ref;
}

// ---- the experts of the CPU path: the arithmetic of echo_experts.h, written once more ----

RowFormat expert_format(const ExchangeCase& c) {
  return c.shape.is_reduced ? c.expert_format : c.result_format;
}

void echo(const ExchangeCase& c, int expert, const std::byte* row, std::byte* result) {
  if (!c.shape.is_reduced && kernels::is_coded(c.result_format)) {
    std::memcpy(result, row, kernels::row_bytes(c.result_format, c.hidden));
    size_t begin = kernels::row_scales_offset(c.result_format, c.hidden);
    size_t end = kernels::row_scales_end(c.result_format, c.hidden);
    if (c.result_format == RowFormat::kNvfp4) begin = std::exchange(end, end + sizeof(float));
    for (size_t at = begin; at < end; at += sizeof(float)) {
      float scale = 0.0f;
      std::memcpy(&scale, row + at, sizeof(scale));
      scale *= static_cast<float>(1 << expert % 4);
      std::memcpy(result + at, &scale, sizeof(scale));
    }
    return;
  }
  std::vector<float> values(static_cast<size_t>(c.hidden));
  reference().decode_row(c.row_format, row, c.hidden, Dtype::kF32, values.data());
  for (float& value : values) value += static_cast<float>(expert % 16);
  reference().encode_row(Dtype::kF32, values.data(), expert_format(c), c.hidden, result);
}

// The state of one rank on the CPU path.
struct CpuRank {
  const ExchangeCase& c;
  ep::DispatchCombine& exchange;
  int rank;
};

// Combine::kReduced: what goes back for each received token, as model/parts/expert_rows.cc makes
// it. plain: the experts' results by entry.
void sum_messages(const CpuRank& me, const std::vector<std::byte>& plain) {
  const size_t bytes = kernels::row_bytes(me.c.expert_format, me.c.hidden);
  for (const ep::ReceivedToken& token : me.exchange.received_tokens()) {
    std::vector<const std::byte*> rows;
    for (size_t n = 0; n < token.weights.size(); ++n) {
      rows.push_back(plain.data() + (static_cast<size_t>(token.first_entry) + n) * bytes);
    }
    kernels::ReduceArgs args{.n = me.c.hidden,
                             .top_k = static_cast<int>(rows.size()),
                             .format = me.c.expert_format,
                             .rows = rows.data(),
                             .weights = token.weights.data()};
    if (me.c.result_format == RowFormat::kBf16) {
      args.sum = reinterpret_cast<Bf16*>(token.result);
      reference().reduce_experts(args);
      continue;
    }
    std::vector<float> sum(static_cast<size_t>(me.c.hidden));
    args.x = sum.data();
    reference().reduce_experts(args);
    reference().encode_row(Dtype::kF32, sum.data(), me.c.result_format, me.c.hidden, token.result);
  }
}

RankResults take_rows(const CpuRank& me) {
  RankResults results;
  const size_t plain_bytes = kernels::row_bytes(me.c.expert_format, me.c.hidden);
  std::vector<std::byte> plain(
      me.c.shape.is_reduced ? static_cast<size_t>(me.exchange.num_entries()) * plain_bytes : 0);
  for (int slot = 0; slot < me.c.shape.slots_per_rank; ++slot) {
    const int expert = me.c.slot_experts[me.rank * me.c.shape.slots_per_rank + slot];
    results.rows.push_back(static_cast<int32_t>(me.exchange.rows_of_slot(slot).size()));
    std::vector<std::byte>& rows = results.rows_of_slots.emplace_back();
    for (const ep::ExpertRow& row : me.exchange.rows_of_slot(slot)) {
      rows.insert(rows.end(), row.row, row.row + me.c.shape.row_bytes);
      const size_t of_entry = static_cast<size_t>(row.entry) * plain_bytes;
      echo(me.c, expert, row.row, me.c.shape.is_reduced ? plain.data() + of_entry : row.result);
    }
  }
  if (me.c.shape.is_reduced) sum_messages(me, plain);
  for (int source = 0; source < me.c.shape.ep_size; ++source) {
    const auto counts = me.exchange.received_counts(source);
    results.counts.insert(results.counts.end(), counts.begin(), counts.end());
  }
  const auto experts = static_cast<size_t>(me.c.shape.num_experts);
  std::vector<int32_t> totals(experts);
  for (size_t i = 0; i < results.counts.size(); ++i) totals[i % experts] += results.counts[i];
  results.counts.insert(results.counts.end(), totals.begin(), totals.end());
  return results;
}

void sum_up(const CpuRank& me, const RankTokens& tokens, RankResults* results) {
  const auto hidden = static_cast<size_t>(me.c.hidden);
  results->out.resize(static_cast<size_t>(tokens.num_tokens) * hidden);
  std::vector<Bf16> sum(hidden);
  const std::vector<float> ones(static_cast<size_t>(me.c.shape.top_k), 1.0f);
  for (int t = 0; t < tokens.num_tokens; ++t) {
    const auto at = static_cast<size_t>(t);
    reference().reduce_experts(
        {.n = me.c.hidden,
         .top_k = static_cast<int>(me.exchange.results(t).size()),
         .format = me.c.result_format,
         .rows = me.exchange.results(t).data(),
         .weights = me.c.shape.is_reduced
                        ? ones.data()
                        : tokens.weights.data() + at * static_cast<size_t>(me.c.shape.top_k),
         .shared = me.c.has_shared_expert ? tokens.shared.data() + at * hidden : nullptr,
         .sum = sum.data()});
    for (size_t i = 0; i < hidden; ++i) results->out[at * hidden + i] = sum[i].bits;
  }
}

Status run_cpu_call(const CpuRank& me, const RankTokens& tokens, int call, RankResults* results) {
  const transport::Awaited where{.layer = 0, .iteration = call};
  std::vector<int32_t> counts(static_cast<size_t>(me.c.shape.num_experts));
  for (const int32_t expert : tokens.experts) ++counts[static_cast<size_t>(expert)];
  WIDEEP_TRY(me.exchange.begin(counts, {}));
  const std::span<const float> weights =
      me.c.shape.is_reduced ? std::span<const float>(tokens.weights) : std::span<const float>();
  WIDEEP_TRY(me.exchange.dispatch(tokens.rows.data(), me.c.shape.row_bytes, tokens.num_tokens,
                                  tokens.slots, where, weights));
  *results = take_rows(me);
  WIDEEP_TRY(me.exchange.combine(where));
  sum_up(me, tokens, results);
  return {};
}

// ---- random tokens ----

// How a rank's tokens choose their slots.
enum class Choice { kAny, kHot, kOneRank };

std::vector<int32_t> random_slots(const ExchangeCase& c, Choice choice, std::mt19937_64& random) {
  std::vector<int32_t> all;
  for (int32_t slot = 0; slot < c.shape.num_slots(); ++slot) {
    if (c.is_active(slot / c.shape.slots_per_rank)) all.push_back(slot);
  }
  if (choice != Choice::kHot) std::shuffle(all.begin(), all.end(), random);
  if (choice == Choice::kOneRank) {  // the slots of one rank come first
    const int32_t rank = all[0] / c.shape.slots_per_rank;
    std::partition(all.begin(), all.end(),
                   [&](int32_t slot) { return slot / c.shape.slots_per_rank == rank; });
  }
  all.resize(static_cast<size_t>(c.shape.top_k));
  return all;
}

RankTokens random_rank_tokens(const ExchangeCase& c, int num_tokens, Choice choice,
                              std::mt19937_64& random) {
  RankTokens tokens{.num_tokens = num_tokens};
  std::normal_distribution<float> normal(0.0f, 2.0f);
  const size_t row_bytes = c.shape.row_bytes;
  std::vector<float> x(static_cast<size_t>(c.hidden));
  for (int t = 0; t < num_tokens; ++t) {
    for (const int32_t slot : random_slots(c, choice, random)) {
      tokens.slots.push_back(slot);
      tokens.experts.push_back(c.slot_experts[static_cast<size_t>(slot)]);
      tokens.weights.push_back(normal(random));
    }
    for (float& value : x) value = normal(random);
    std::vector<std::byte> row(row_bytes);
    reference().encode_row(Dtype::kF32, x.data(), c.row_format, c.hidden, row.data());
    tokens.rows.insert(tokens.rows.end(), row.begin(), row.end());
    for (int i = 0; i < c.hidden; ++i) tokens.shared.push_back(normal(random));
  }
  return tokens;
}

Status differ(const ExchangeCase& c, int call, int rank, const std::string& what) {
  return failed(fmt::format("call {}, rank {}: {}; {}", call, rank, what, describe(c)));
}

Status compare(const ExchangeCase& c, int call, int rank, const RankResults& found,
               const RankResults& expected, bool with_rows) {
  for (size_t i = 0; i < expected.out.size(); ++i) {
    if (found.out[i] == expected.out[i]) continue;
    const auto hidden = static_cast<size_t>(c.hidden);
    return differ(c, call, rank,
                  fmt::format("token {}, value {}: bits {:04x}, expected {:04x}", i / hidden,
                              i % hidden, found.out[i], expected.out[i]));
  }
  if (!with_rows) return {};
  for (size_t slot = 0; slot < expected.rows_of_slots.size(); ++slot) {
    if (found.rows_of_slots[slot] == expected.rows_of_slots[slot]) continue;
    return differ(c, call, rank, fmt::format("the rows of slot {}", slot));
  }
  if (c.prepares && found.counts != expected.counts) return differ(c, call, rank, "counts");
  return {};
}

}  // namespace

bool ExchangeCase::is_active(int rank) const {
  return std::find(options.inactive_ranks.begin(), options.inactive_ranks.end(), rank) ==
         options.inactive_ranks.end();
}

std::string describe(const ExchangeCase& c) {
  return fmt::format(
      "case {}: {} ranks ({} active), {} experts, {} slots per rank, top-{}, {} tokens, hidden {}, "
      "{} to {}, shared expert {}, off by {} bytes, {} calls, {} blocks of {} threads, index {}, "
      "receive {} blocks{}{}{}{}{}",
      c.seed, c.shape.ep_size, c.num_active(), c.shape.num_experts, c.shape.slots_per_rank,
      c.shape.top_k, c.shape.max_tokens, c.hidden, kernels::row_format_name(c.row_format),
      kernels::row_format_name(c.result_format), c.has_shared_expert, c.misaligned_by, c.num_calls,
      c.options.num_blocks, c.options.num_threads, c.options.num_index_threads,
      c.options.num_receive_blocks, c.expands ? ", expanded" : "", c.is_small ? ", one kernel" : "",
      c.counts ? ", counted" : "", c.shape.is_reduced ? ", reduced" : "",
      c.dead_rank < 0
          ? ""
          : fmt::format(", rank {} dies after {} kernels", c.dead_rank, c.dead_kernels));
}

ExchangeCase random_case(std::mt19937_64& random, const CaseLimits& limits) {
  ExchangeCase c;
  c.seed = random();
  ExchangeShape& shape = c.shape;
  shape.ep_size = draw(random, 1, random() % 2 == 0 ? limits.max_ranks : 4);
  shape.ep_size = std::min(shape.ep_size, limits.max_ranks);
  shape.slots_per_rank =
      draw(random, 1, random() % 4 == 0 ? limits.max_slots : std::min(6, limits.max_slots));
  if (shape.ep_size > 2 && random() % 4 == 0) {
    c.options.inactive_ranks.push_back(draw(random, 0, shape.ep_size - 1));
  }
  const int active_slots = c.num_active() * shape.slots_per_rank;
  shape.top_k = draw(random, 1, std::min(active_slots, random() % 8 == 0 ? 32 : 8));
  shape.num_experts = draw(random, 1, shape.num_slots());
  shape.max_tokens = draw(random, 1, limits.max_tokens);
  for (int slot = 0; slot < shape.num_slots(); ++slot) {
    c.slot_experts.push_back(draw(random, 0, shape.num_experts - 1));
  }

  c.hidden =
      draw(random, 1, random() % 3 == 0 ? limits.max_hidden : std::min(80, limits.max_hidden));
  c.row_format = static_cast<RowFormat>(random() % 4);
  c.result_format = static_cast<RowFormat>(random() % 4);
  if (kernels::is_coded(c.result_format)) c.row_format = c.result_format;  // see echo_experts.h
  shape.row_bytes = static_cast<uint32_t>(kernels::row_bytes(c.row_format, c.hidden));
  shape.result_bytes = static_cast<uint32_t>(kernels::row_bytes(c.result_format, c.hidden));
  c.has_shared_expert = random() % 2 == 0;
  c.prepares = random() % 2 == 0;
  c.expands = random() % 3 == 0;
  c.misaligned_by = random() % 4 == 0 ? draw(random, 1, 15) : 0;
  c.num_calls = draw(random, 1, limits.max_calls);
  c.counts = c.seed % 3 == 0;
  shape.is_reduced = c.seed / 3 % 3 == 0;
  c.expert_format = c.seed / 9 % 2 == 0 ? RowFormat::kBf16 : RowFormat::kF32;
  if (limits.ranks_die && c.num_active() > 1 && c.seed / 18 % 16 == 0) {
    c.dead_kernels = static_cast<int>(c.seed / 288 % 4);
    const auto candidate = static_cast<int>(c.seed / 1152 % static_cast<uint64_t>(shape.ep_size));
    if (c.is_active(candidate)) c.dead_rank = candidate;
  }

  // Blocks and threads such that all ranks together keep to the limit.
  const int of_rank = limits.max_device_threads / shape.ep_size;
  c.options.num_threads =
      kWarpSize * draw(random, 1, std::max(1, std::min(limits.max_warps, of_rank / 64)));
  const int max_blocks = std::max(1, std::min(limits.max_blocks, of_rank / c.options.num_threads));
  c.options.num_blocks = draw(random, 1, max_blocks);
  c.options.num_receive_blocks = draw(random, 1, max_blocks);
  c.options.num_index_threads = kWarpSize * draw(random, 1, c.options.num_threads / kWarpSize);
  c.options.deadline = std::chrono::milliseconds(500);
  c.is_small = random() % 3 == 0;
  c.options.small_round_tokens = c.is_small ? shape.max_tokens : 0;
  return c;
}

std::vector<CallTokens> random_tokens(const ExchangeCase& c) {
  std::mt19937_64 random(c.seed);
  std::vector<CallTokens> calls(static_cast<size_t>(c.num_calls));
  for (CallTokens& call : calls) {
    const auto choice = static_cast<Choice>(random() % 3);
    const uint64_t fill = random() % 4;  // 0: no tokens at all, 1: all that fit
    for (int rank = 0; rank < c.shape.ep_size; ++rank) {
      int n = draw(random, 0, c.shape.max_tokens);
      if (fill == 0 && random() % 4 != 0) n = 0;
      if (fill == 1) n = c.shape.max_tokens;
      if (!c.is_active(rank)) n = 0;
      call.push_back(random_rank_tokens(c, n, choice, random));
    }
  }
  return calls;
}

Result<std::vector<CallResults>> run_on_cpu(const ExchangeCase& c,
                                            const std::vector<CallTokens>& calls) {
  const ep::BufferLayout layout(
      {.ep_size = c.shape.ep_size,
       .num_experts = c.shape.num_experts,
       .slots_per_rank = c.shape.slots_per_rank,
       .top_k = c.shape.top_k,
       .row_bytes = c.shape.row_bytes,
       .result_bytes = c.shape.result_bytes,
       .max_tokens = c.shape.max_tokens,
       .combine = c.shape.is_reduced ? ep::Combine::kReduced : ep::Combine::kExact});
  std::vector<CallResults> results(calls.size(), CallResults(static_cast<size_t>(c.shape.ep_size)));
  WIDEEP_TRY_ASSIGN(const std::vector<Status> statuses,
                    transport::run_rank_threads(
                        {.num_ranks = c.shape.ep_size, .segment_bytes = layout.segment_bytes()},
                        [&](transport::Endpoint& endpoint) -> Status {
                          ep::DispatchCombine exchange(endpoint, layout);
                          WIDEEP_TRY(exchange.open());
                          const CpuRank me{c, exchange, endpoint.rank()};
                          const auto rank = static_cast<size_t>(endpoint.rank());
                          for (size_t call = 0; call < calls.size(); ++call) {
                            WIDEEP_TRY(run_cpu_call(me, calls[call][rank], static_cast<int>(call),
                                                    &results[call][rank]));
                          }
                          exchange.close();
                          return {};
                        }));
  for (const Status& status : statuses) WIDEEP_TRY(status);
  return results;
}

// ---- on devices ----

Result<std::unique_ptr<ExchangeOnDevices>> ExchangeOnDevices::create(Devices& devices,
                                                                     const ExchangeCase& c) {
  std::unique_ptr<ExchangeOnDevices> made(new ExchangeOnDevices(devices, c));
  WIDEEP_TRY_ASSIGN(std::vector<DispatchCombine> ranks,
                    DispatchCombine::create_all(devices, c.shape, c.options));
  for (DispatchCombine& rank : ranks) {
    const int index = rank.rank();
    WIDEEP_TRY(made->allocate_buffers(index));
    made->ranks_.emplace(index, std::move(rank));
    WIDEEP_TRY(made->add_statistics(index));
  }
  return made;
}

Result<std::unique_ptr<ExchangeOnDevices>> ExchangeOnDevices::create_one(
    Devices& devices, const ExchangeCase& c, int rank, std::span<std::byte* const> segments) {
  std::unique_ptr<ExchangeOnDevices> made(new ExchangeOnDevices(devices, c));
  WIDEEP_TRY_ASSIGN(DispatchCombine created,
                    DispatchCombine::create(devices, c.shape, rank, segments, c.options));
  made->ranks_.emplace(rank, std::move(created));
  WIDEEP_TRY(made->allocate_buffers(rank));
  WIDEEP_TRY(made->add_statistics(rank));
  return made;
}

Status ExchangeOnDevices::add_statistics(int rank) {
  if (!case_.counts) return {};
  WIDEEP_TRY_ASSIGN(
      LoadStatistics made,
      LoadStatistics::create(devices_, ranks_.at(rank).exchange(), 1, case_.options.num_threads));
  WIDEEP_TRY_ASSIGN(taken_[rank], made.allocate_taken());
  statistics_.emplace(rank, std::move(made));
  return {};
}

Status ExchangeOnDevices::take_loads(int rank) {
  if (!case_.counts) return {};
  WIDEEP_TRY(statistics_.at(rank).end_iteration());
  return statistics_.at(rank).take(rank, taken_.at(rank));
}

Status ExchangeOnDevices::allocate_buffers(int rank) {
  const auto bytes_for = [&](size_t bytes) { return devices_.allocate(rank, bytes, false); };
  const auto tokens = static_cast<size_t>(case_.shape.max_tokens);
  const size_t entries = tokens * static_cast<size_t>(case_.shape.top_k);
  std::vector<Buffers>& calls = buffers_[rank];
  for (int call = 0; call < case_.num_calls; ++call) {
    Buffers& to = calls.emplace_back();
    const auto allocate = [&]<typename T>(T** place, size_t bytes) -> Status {
      WIDEEP_TRY_ASSIGN(std::byte* const memory, bytes_for(std::max<size_t>(bytes, 4)));
      *place = reinterpret_cast<T*>(memory);
      return {};
    };
    WIDEEP_TRY(allocate(&to.num_tokens, sizeof(int32_t)));
    WIDEEP_TRY(allocate(&to.slots, entries * sizeof(int32_t)));
    WIDEEP_TRY(allocate(&to.experts, entries * sizeof(int32_t)));
    WIDEEP_TRY(allocate(&to.weights, entries * sizeof(float)));
    WIDEEP_TRY(allocate(&to.rows, tokens * case_.shape.row_bytes + 16));
    WIDEEP_TRY(allocate(&to.shared, tokens * static_cast<size_t>(case_.hidden) * sizeof(float)));
    WIDEEP_TRY(allocate(&to.out, tokens * out_stride()));
    devices_.forget(to.out, tokens * out_stride());
  }
  if (case_.expands || case_.shape.is_reduced) {
    WIDEEP_TRY_ASSIGN(matrices_[rank], bytes_for(2 * matrix_bytes()));
  }
  const auto slots = static_cast<size_t>(case_.shape.slots_per_rank);
  WIDEEP_TRY_ASSIGN(std::byte* const experts, bytes_for(slots * sizeof(int32_t)));
  slot_experts_[rank] = reinterpret_cast<int32_t*>(experts);
  return devices_.write(rank, experts,
                        case_.slot_experts.data() + static_cast<size_t>(rank) * slots,
                        slots * sizeof(int32_t));
}

size_t ExchangeOnDevices::matrix_stride() const {
  const size_t plain = kernels::row_bytes(expert_format(case_), case_.hidden);
  return (std::max<size_t>(case_.shape.row_bytes, plain) + 15) / 16 * 16;
}

size_t ExchangeOnDevices::matrix_bytes() const {
  const auto entries = static_cast<size_t>(std::min(case_.shape.top_k, case_.shape.slots_per_rank));
  return static_cast<size_t>(case_.shape.ep_size) * static_cast<size_t>(case_.shape.max_tokens) *
         entries * matrix_stride();
}

Status ExchangeOnDevices::write(int rank, int call, const RankTokens& tokens) {
  const Buffers& to = buffers(rank, call);
  const auto write = [&](void* place, const auto& values) {
    return devices_.write(rank, place, values.data(), values.size() * sizeof(values[0]));
  };
  WIDEEP_TRY(devices_.write(rank, to.num_tokens, &tokens.num_tokens, sizeof(int32_t)));
  WIDEEP_TRY(write(to.slots, tokens.slots));
  WIDEEP_TRY(write(to.experts, tokens.experts));
  WIDEEP_TRY(write(to.weights, tokens.weights));
  WIDEEP_TRY(write(to.rows + case_.misaligned_by, tokens.rows));
  return write(to.shared, tokens.shared);
}

Status ExchangeOnDevices::launch(int rank, int call, int num_kernels) {
  const Buffers& b = buffers(rank, call);
  DispatchCombine& me = ranks_.at(rank);
  const Tokens on_device{b.num_tokens, b.slots, b.weights};
  const int layer = kFirstLayer + call;
  if (case_.prepares && num_kernels > 0) WIDEEP_TRY(me.prepare(b.num_tokens, b.experts, layer));
  if (case_.counts && num_kernels > 0) {
    WIDEEP_TRY(statistics_.at(rank).count(b.num_tokens, b.experts, b.slots, 0));
  }
  if (case_.is_small && num_kernels > 2) {
    WIDEEP_TRY(me.dispatch_and_receive(on_device, b.rows + case_.misaligned_by,
                                       case_.shape.row_bytes, layer));
  } else if (num_kernels > 1) {
    WIDEEP_TRY(me.dispatch(on_device, b.rows + case_.misaligned_by, case_.shape.row_bytes, layer));
  }
  if (num_kernels > 2) {
    if (!case_.is_small) WIDEEP_TRY(me.receive(layer));
    const bool is_reduced = case_.shape.is_reduced;
    std::byte* const matrix = case_.expands ? matrices_.at(rank) : nullptr;
    std::byte* const results =
        case_.expands || is_reduced ? matrices_.at(rank) + matrix_bytes() : nullptr;
    if (case_.expands) WIDEEP_TRY(me.expand(matrix, matrix_stride()));
    WIDEEP_TRY(devices_.launch(rank,
                               EchoExperts{me.exchange(), me.received_rows(), me.slot_starts(),
                                           slot_experts_.at(rank), matrix, results, matrix_stride(),
                                           case_.row_format, expert_format(case_), case_.hidden},
                               {case_.options.num_blocks, case_.options.num_threads}));
    if (is_reduced) {
      WIDEEP_TRY(me.reduce({results, matrix_stride(), case_.expert_format, case_.hidden},
                           case_.result_format));
    } else if (case_.expands) {
      WIDEEP_TRY(me.finalize(results, matrix_stride()));
    }
  }
  if (num_kernels > 3) {
    WIDEEP_TRY(me.combine(on_device,
                          {.result_format = case_.result_format,
                           .hidden = case_.hidden,
                           .shared_expert = case_.has_shared_expert ? b.shared : nullptr,
                           .out = b.out,
                           .out_stride = out_stride()},
                          layer));
  }
  return {};
}

Result<RankResults> ExchangeOnDevices::results(int rank, int call, int num_tokens, bool with_rows) {
  RankResults results;
  const Buffers& b = buffers(rank, call);
  const auto hidden = static_cast<size_t>(case_.hidden);
  results.out.resize(static_cast<size_t>(num_tokens) * hidden);
  std::vector<std::byte> out(static_cast<size_t>(num_tokens) * out_stride());
  WIDEEP_TRY(devices_.read(rank, out.data(), b.out, out.size()));
  for (size_t t = 0; t < static_cast<size_t>(num_tokens); ++t) {
    if (!devices_.is_written(b.out + t * out_stride(), hidden * sizeof(uint16_t))) {
      return failed(fmt::format("rank {}: no result of token {}", rank, t));
    }
    std::memcpy(results.out.data() + t * hidden, out.data() + t * out_stride(),
                hidden * sizeof(uint16_t));
  }
  if (!with_rows) return results;

  const DispatchCombine& me = ranks_.at(rank);
  const auto slots = static_cast<size_t>(case_.shape.slots_per_rank);
  std::vector<int32_t> starts(slots + 1);
  WIDEEP_TRY(devices_.read(rank, starts.data(), me.slot_starts(), starts.size() * 4));
  std::vector<ReceivedRow> received(static_cast<size_t>(starts.back()));
  WIDEEP_TRY(devices_.read(rank, received.data(), me.received_rows(),
                           received.size() * sizeof(ReceivedRow)));
  for (size_t slot = 0; slot < slots; ++slot) {
    std::vector<std::byte>& rows = results.rows_of_slots.emplace_back();
    for (int32_t i = starts[slot]; i < starts[slot + 1]; ++i) {
      const size_t at = rows.size();
      rows.resize(at + case_.shape.row_bytes);
      WIDEEP_TRY(devices_.read(rank, rows.data() + at, received[static_cast<size_t>(i)].places.row,
                               case_.shape.row_bytes));
    }
  }
  if (!case_.prepares) return results;
  const auto experts = static_cast<size_t>(case_.shape.num_experts);
  const auto ranks = static_cast<size_t>(case_.shape.ep_size);
  results.counts.resize((ranks + 1) * experts);
  WIDEEP_TRY(devices_.read(rank, results.counts.data() + ranks * experts, me.totals(),
                           experts * sizeof(int32_t)));
  for (int source = 0; source < case_.shape.ep_size; ++source) {
    if (!case_.is_active(source)) continue;
    WIDEEP_TRY(devices_.read(rank, results.counts.data() + static_cast<size_t>(source) * experts,
                             me.counts_of_ranks() + static_cast<size_t>(source) * experts,
                             experts * sizeof(int32_t)));
  }
  return results;
}

Status ExchangeOnDevices::check_rest(int rank, int call, int num_tokens) const {
  const Buffers& b = buffers(rank, call);
  const std::byte* end = b.out + static_cast<size_t>(num_tokens) * out_stride();
  if (num_tokens == case_.shape.max_tokens || !devices_.is_written(end, 4)) return {};
  return failed(fmt::format("rank {}: a result beyond its {} tokens", rank, num_tokens));
}

Status compare_rank(ExchangeOnDevices& exchange, const ExchangeCase& c, int rank,
                    const std::vector<CallResults>& expected) {
  WIDEEP_TRY(exchange.failure(rank).at(describe(c)));
  for (int call = 0; call < c.num_calls; ++call) {
    const RankResults& wanted = expected[static_cast<size_t>(call)][static_cast<size_t>(rank)];
    const int n = static_cast<int>(wanted.out.size()) / c.hidden;
    const bool is_last = call + 1 == c.num_calls;
    WIDEEP_TRY_ASSIGN(const RankResults found, exchange.results(rank, call, n, is_last));
    WIDEEP_TRY(compare(c, call, rank, found, wanted, is_last));
    WIDEEP_TRY(exchange.check_rest(rank, call, n));
  }
  return {};
}

namespace {

// The sums of all ranks' statistics against the counts of the CPU path: tokens of each expert, and
// rows that each slot has received, in all calls.
Status compare_loads(ExchangeOnDevices& exchange, const ExchangeCase& c,
                     const std::vector<int>& ranks, const std::vector<CallResults>& expected) {
  const auto experts = static_cast<size_t>(c.shape.num_experts);
  std::vector<uint64_t> found(experts + static_cast<size_t>(c.shape.num_slots()));
  for (const int rank : ranks) {
    WIDEEP_TRY_ASSIGN(const RankLoads loads, exchange.loads(rank));
    if (loads.num_iterations != 1) return failed("no statistics; " + describe(c));
    for (size_t i = 0; i < found.size(); ++i) found[i] += loads.tokens[i];
  }
  std::vector<uint64_t> wanted(found.size());
  for (const CallResults& call : expected) {
    const std::vector<int32_t>& counts = call[0].counts;  // last: sums over all ranks
    for (size_t i = 0; i < experts; ++i) wanted[i] += counts[counts.size() - experts + i];
    size_t slot = experts;
    for (const RankResults& rank : call) {
      for (const int32_t rows : rank.rows) wanted[slot++] += rows;
    }
  }
  return found == wanted ? Status{} : failed("other statistics; " + describe(c));
}

// After a call in which a rank has died.
Status compare_survivors(ExchangeOnDevices& exchange, const ExchangeCase& c,
                         const std::vector<int>& ranks, const std::vector<CallResults>& expected) {
  bool is_named = false;
  for (const int rank : ranks) {
    if (rank == c.dead_rank) continue;
    const Status failure = exchange.failure(rank);
    const std::string where =
        fmt::format("rank {}, layer {}", rank, ExchangeOnDevices::kFirstLayer + c.num_calls - 1);
    if (failure.ok() || failure.message().find(where) == std::string::npos) {
      return failed(fmt::format("rank {} after a death: '{}', expected an error of {}; {}", rank,
                                failure.message(), where, describe(c)));
    }
    const std::string cause = fmt::format("from rank {} within the deadline", c.dead_rank);
    is_named = is_named || failure.message().find(cause) != std::string::npos;
    for (int call = 0; call + 1 < c.num_calls; ++call) {
      const RankResults& wanted = expected[static_cast<size_t>(call)][static_cast<size_t>(rank)];
      const int n = static_cast<int>(wanted.out.size()) / c.hidden;
      WIDEEP_TRY_ASSIGN(const RankResults found, exchange.results(rank, call, n, false));
      WIDEEP_TRY(compare(c, call, rank, found, wanted, false));
    }
  }
  return is_named ? Status{} : failed("a dead rank that nobody names; " + describe(c));
}

}  // namespace

Status play(Devices& devices, const ExchangeCase& c) {
  const std::vector<CallTokens> calls = random_tokens(c);
  WIDEEP_TRY_ASSIGN(const std::vector<CallResults> expected, run_on_cpu(c, calls));
  WIDEEP_TRY_ASSIGN(const auto exchange, ExchangeOnDevices::create(devices, c));
  std::vector<int> ranks;
  for (int rank = 0; rank < c.shape.ep_size; ++rank) {
    if (c.is_active(rank)) ranks.push_back(rank);
  }
  // All is written first: a stream that waits for other ranks would hold up the host.
  for (int call = 0; call < c.num_calls; ++call) {
    for (const int rank : ranks) {
      WIDEEP_TRY(
          exchange->write(rank, call, calls[static_cast<size_t>(call)][static_cast<size_t>(rank)]));
    }
  }
  for (int call = 0; call < c.num_calls; ++call) {
    for (const int rank : ranks) {
      const bool dies = rank == c.dead_rank && call + 1 == c.num_calls;
      WIDEEP_TRY(
          exchange->launch(rank, call, dies ? c.dead_kernels : ExchangeOnDevices::kAllKernels));
    }
  }
  for (const int rank : ranks) WIDEEP_TRY(exchange->take_loads(rank));
  const Status finished = devices.finish();
  if (!finished.ok()) return failed(finished.message() + "; " + describe(c));
  if (c.dead_rank >= 0) return compare_survivors(*exchange, c, ranks, expected);
  for (const int rank : ranks) WIDEEP_TRY(compare_rank(*exchange, c, rank, expected));
  return c.counts ? compare_loads(*exchange, c, ranks, expected) : Status{};
}

}  // namespace wideep::cuda
