// SPDX-License-Identifier: Apache-2.0
//
// A group without experts: callers name slots, so there are no counts, and areas have room for
// max_tokens of every rank. A call with a wrong argument fails the whole group, for the other
// ranks are already waiting for this one. Options are checked in double before anything is
// multiplied in integers. A flag behind each segment keeps two threads or processes from being the
// same rank.
#include "wideep/communicator.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <utility>
#include <vector>

#include "base/try.h"
#include "ep/check_shapes.h"
#include "ep/dispatch_combine.h"
#include "ep/result_sum.h"

namespace wideep::ep {
namespace {

constexpr size_t kCacheLine = 64;
constexpr int64_t kMaxCount = int64_t{1} << 24;  // of any option; keeps products within 64 bits
constexpr double kMaxBytes = 0x1p47;             // user address space of an x86-64 process

Status check_count(const char* name, int64_t found, int64_t max) {
  if (found >= 1 && found <= max) return {};
  return invalid_input(fmt::format("{}: expected 1 to {}, found {}", name, max, found));
}

DispatchShape shape_of(const CommunicatorOptions& options) {
  return {.ep_size = options.num_ranks,
          .slots_per_rank = options.slots_per_rank,
          .top_k = options.top_k,
          .row_bytes = options.row_bytes,
          .result_bytes = options.result_bytes,
          .max_tokens = options.max_tokens};
}

// In double, which cannot overflow before the result is checked.
double memory_of_group(const CommunicatorOptions& options) {
  const double entries = std::min(options.top_k, options.slots_per_rank);
  const double ranks = options.num_ranks, tokens = options.max_tokens;
  return ranks * ranks * tokens *
         (static_cast<double>(options.row_bytes) +
          entries * static_cast<double>(options.result_bytes));
}

Status check_options(const CommunicatorOptions& options) {
  WIDEEP_TRY(check_count("num_ranks", options.num_ranks, 4096));
  WIDEEP_TRY(check_count("slots_per_rank", options.slots_per_rank, kMaxCount / options.num_ranks));
  WIDEEP_TRY(check_count("top_k", options.top_k,
                         std::min(1024, options.num_ranks * options.slots_per_rank)));
  WIDEEP_TRY(check_count("max_tokens", options.max_tokens, kMaxCount / options.num_ranks));
  WIDEEP_TRY(check_count("row_bytes", static_cast<int64_t>(options.row_bytes), 1 << 30));
  WIDEEP_TRY(check_count("result_bytes", static_cast<int64_t>(options.result_bytes), 1 << 30));
  WIDEEP_TRY(check_count("timeout (ms)", options.timeout.count(), int64_t{1} << 40));
  if (memory_of_group(options) < kMaxBytes) return {};
  return invalid_input(fmt::format(
      "{} ranks with max_tokens {} and rows of {} and {} bytes: expected less than {:.0f} GB of "
      "buffers, found {:.0f}",
      options.num_ranks, options.max_tokens, options.row_bytes, options.result_bytes,
      kMaxBytes * 1e-9, memory_of_group(options) * 1e-9));
}

// Fails the group, so that the other ranks do not wait for this one. They get this error.
Status fail_group(transport::Endpoint& endpoint, std::string why) {
  const Status status = invalid_input(fmt::format("rank {}: {}", endpoint.rank(), std::move(why)));
  endpoint.fail_group(status);
  return status;
}

Status closed(const char* step) {
  return invalid_input(fmt::format("{}: the communicator is closed, or was never joined", step));
}

}  // namespace

// ---- one rank's communicator ----

struct Communicator::State {
  State(std::shared_ptr<transport::SharedMemory> shared, int rank,
        const CommunicatorOptions& options)
      : endpoint(std::move(shared), rank, options.timeout),
        exchange(endpoint, BufferLayout(shape_of(options))),
        slots_per_rank(options.slots_per_rank),
        top_k(static_cast<size_t>(options.top_k)),
        max_tokens(options.max_tokens),
        result_bytes(options.result_bytes),
        slot_start(static_cast<size_t>(options.slots_per_rank) + 1) {}

  Status check(const void* rows, int tokens);
  Status check_distinct(std::span<const int32_t> slots);
  void list_received();

  transport::Endpoint endpoint;
  DispatchCombine exchange;
  int slots_per_rank;
  size_t top_k;
  int max_tokens;
  size_t result_bytes;
  int64_t round = 0;
  int num_tokens = 0;         // of the last dispatch
  bool has_received = false;  // between dispatch and combine
  std::vector<ReceivedRow> received;
  std::vector<size_t> slot_start;  // [slots_per_rank + 1] into received
};

Status Communicator::State::check(const void* rows, int tokens) {
  // After a failure every call returns the first error, even one that would not have to wait.
  WIDEEP_TRY(endpoint.memory().failure());
  if (tokens < 0 || tokens > max_tokens) {
    return fail_group(endpoint, fmt::format("dispatch: expected 0 to max_tokens = {}, found {}",
                                            max_tokens, tokens));
  }
  if (tokens == 0 || rows != nullptr) return {};
  return fail_group(endpoint,
                    fmt::format("dispatch: expected rows of {} tokens, found null", tokens));
}

// A repeated slot could give a token more results on a rank than the rank has slots, and the
// results area has room for no more. DispatchSender refuses only such tokens; here every repetition
// is refused, whose reason a caller understands without knowing the layout.
Status Communicator::State::check_distinct(std::span<const int32_t> slots) {
  for (size_t first = 0; first + top_k <= slots.size(); first += top_k) {
    for (size_t k = first + 1; k < first + top_k; ++k) {
      const auto before = slots.subspan(first, k - first);
      if (std::find(before.begin(), before.end(), slots[k]) == before.end()) continue;
      return fail_group(
          endpoint, fmt::format("dispatch: token {} has slot {} twice", first / top_k, slots[k]));
    }
  }
  return {};
}

void Communicator::State::list_received() {
  received.clear();
  for (int slot = 0; slot < slots_per_rank; ++slot) {
    for (const ExpertRow& row : exchange.rows_of_slot(slot)) {
      received.push_back({row.row, row.result});
    }
    slot_start[static_cast<size_t>(slot) + 1] = received.size();
  }
}

Communicator::Communicator() = default;
Communicator::Communicator(std::unique_ptr<State> state) : state_(std::move(state)) {}
Communicator::~Communicator() = default;
Communicator::Communicator(Communicator&&) noexcept = default;
Communicator& Communicator::operator=(Communicator&&) noexcept = default;

int Communicator::rank() const { return state_ == nullptr ? -1 : state_->endpoint.rank(); }

Status Communicator::dispatch(const void* rows, size_t row_stride, int num_tokens,
                              std::span<const int32_t> slots) {
  if (state_ == nullptr) return closed("dispatch");
  State& state = *state_;
  WIDEEP_TRY(state.check(rows, num_tokens));
  WIDEEP_TRY(state.check_distinct(slots));
  state.num_tokens = 0;  // if dispatch fails, results() is empty
  // The communicator knows slots, not experts, so there are no counts. Areas have room for
  // max_tokens of each rank, so the ranks need not know each other's numbers of tokens.
  WIDEEP_TRY(state.exchange.begin({}, {}));
  WIDEEP_TRY(state.exchange.dispatch(static_cast<const std::byte*>(rows), row_stride, num_tokens,
                                     slots, {.iteration = state.round}));
  state.list_received();
  state.has_received = true;
  state.num_tokens = num_tokens;
  return {};
}

std::span<const ReceivedRow> Communicator::rows_of_slot(int slot) const {
  if (state_ == nullptr || !state_->has_received) return {};
  if (slot < 0 || slot >= state_->slots_per_rank) return {};
  const size_t begin = state_->slot_start[static_cast<size_t>(slot)];
  return std::span(state_->received)
      .subspan(begin, state_->slot_start[static_cast<size_t>(slot) + 1] - begin);
}

Status Communicator::combine() {
  if (state_ == nullptr) return closed("combine");
  WIDEEP_TRY(state_->endpoint.memory().failure());
  WIDEEP_TRY(state_->exchange.combine({.iteration = state_->round}));
  state_->has_received = false;
  ++state_->round;
  return {};
}

std::span<const std::byte* const> Communicator::results(int token) const {
  if (state_ == nullptr || state_->has_received) return {};
  if (token < 0 || token >= state_->num_tokens) return {};
  return state_->exchange.results(token);
}

std::byte* Communicator::own_result(int token) const {
  return results(token).empty() ? nullptr : state_->exchange.own_result(token);
}

Status Communicator::sum_results(int token, ResultType type, const float* weights,
                                 const float* shared, uint16_t* out) const {
  const auto rows = results(token);
  if (rows.empty()) {
    return invalid_input(fmt::format(
        "sum_results: expected a token of the last dispatch, after its combine, found {}", token));
  }
  const size_t value_bytes = type == ResultType::kF32 ? sizeof(float) : sizeof(uint16_t);
  if (state_->result_bytes % value_bytes != 0) {
    return invalid_input(fmt::format("sum_results: results of {} bytes: expected a multiple of {}",
                                     state_->result_bytes, value_bytes));
  }
  sum_rows({.rows = rows,
            .type = type,
            .weights = weights,
            .shared = shared,
            .hidden = state_->result_bytes / value_bytes,
            .out = out});
  return {};
}

void Communicator::fail(const std::string& message) {
  if (state_ != nullptr) state_->endpoint.memory().fail(failed(message));
}

void Communicator::close() { state_.reset(); }

// ---- the group ----

struct CommunicatorGroup::State {
  CommunicatorOptions options;
  std::shared_ptr<transport::SharedMemory> memory;
  size_t joined_offset = 0;  // in each segment, after the buffers: a flag that its rank has joined

  std::atomic<uint32_t>& joined(int rank) const {
    return *reinterpret_cast<std::atomic<uint32_t>*>(memory->segment(rank) + joined_offset);
  }
};

CommunicatorGroup::CommunicatorGroup(std::shared_ptr<State> state) : state_(std::move(state)) {}
CommunicatorGroup::~CommunicatorGroup() = default;
CommunicatorGroup::CommunicatorGroup(CommunicatorGroup&&) noexcept = default;
CommunicatorGroup& CommunicatorGroup::operator=(CommunicatorGroup&&) noexcept = default;

Result<CommunicatorGroup> CommunicatorGroup::create(const CommunicatorOptions& options) {
  WIDEEP_TRY(check_options(options));
  auto state = std::make_shared<State>();
  state->options = options;
  const size_t bytes = BufferLayout(shape_of(options)).segment_bytes();
  state->joined_offset = (bytes + kCacheLine - 1) / kCacheLine * kCacheLine;
  WIDEEP_TRY_ASSIGN(state->memory, transport::SharedMemory::create(
                                       options.num_ranks, state->joined_offset + kCacheLine));
  return CommunicatorGroup(std::move(state));
}

Result<Communicator> CommunicatorGroup::join(int rank) {
  if (state_ == nullptr) return invalid_input("join: the group was never created");
  const int num_ranks = state_->options.num_ranks;
  if (rank < 0 || rank >= num_ranks) {
    return invalid_input(
        fmt::format("join: expected a rank from 0 to {}, found {}", num_ranks - 1, rank));
  }
  // Atomic and in shared memory: two threads or processes must not be the same rank.
  if (state_->joined(rank).exchange(1) != 0) {
    return invalid_input(fmt::format("join: rank {} has joined already", rank));
  }
  auto state = std::make_unique<Communicator::State>(state_->memory, rank, state_->options);
  // Shapes are equal, since all ranks have the same group; the check serves as the barrier that
  // join promises.
  WIDEEP_TRY(check_shapes_match(shape_of(state_->options), state->endpoint));
  WIDEEP_TRY(state->exchange.open());
  return Communicator(std::move(state));
}

void CommunicatorGroup::fail(const std::string& message) {
  if (state_ != nullptr) state_->memory->fail(failed(message));
}

}  // namespace wideep::ep
