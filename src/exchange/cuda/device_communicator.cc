// SPDX-License-Identifier: Apache-2.0
//
// Joining goes through steps that all ranks agree on before the next one, so that the error of one
// is that of all and nobody waits for a rank that has given up:
//
//   meet     the same terms, or the difference by name
//   devices  every rank's device; access between them; memory for all ranks that share one
//   share    segments made, cleared, passed to every peer, mapped
//   prepare  the exchange and the tables of layers
//
// Calls check what a host can see without asking the device (order of steps, pointers, strides)
// and launch. Nothing of a call waits, or graphs could not capture it.
#include "cuda/device_communicator.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <span>
#include <utility>
#include <vector>

#include "base/try.h"
#include "cuda/meeting.h"

namespace wideep::cuda {
namespace {

using ep::DeviceCall;
using ep::DeviceCommunicator;
using ep::DeviceCommunicatorOptions;
using ep::DeviceOutput;
using ep::DeviceReceivedRow;
using ep::DeviceRowFormat;

constexpr int kReceiveBlocks = 4;
constexpr int kMaxLayers = 1024;
constexpr int64_t kMaxCounted = 12'000;  // experts and slots; a block counts them in shared memory

// Callers read the kernels' rows in place.
static_assert(sizeof(DeviceReceivedRow) == sizeof(ReceivedRow));
static_assert(offsetof(DeviceReceivedRow, row) == offsetof(ReceivedRow::Places, row));
static_assert(offsetof(DeviceReceivedRow, result) == offsetof(ReceivedRow::Places, result));
static_assert(offsetof(DeviceReceivedRow, weight) == offsetof(ReceivedRow, origin));
static_assert(offsetof(DeviceReceivedRow, source) ==
              offsetof(ReceivedRow, origin) + offsetof(ReceivedRow::Origin, source));
static_assert(offsetof(DeviceReceivedRow, message) ==
              offsetof(ReceivedRow, origin) + offsetof(ReceivedRow::Origin, message));
static_assert(offsetof(DeviceReceivedRow, slot) ==
              offsetof(ReceivedRow, origin) + offsetof(ReceivedRow::Origin, slot));

bool is_format(DeviceRowFormat format) {
  return format >= DeviceRowFormat::kBf16 && format <= DeviceRowFormat::kNvfp4;
}

RowFormat row_format(DeviceRowFormat format) {
  switch (format) {
    case DeviceRowFormat::kF32:
      return RowFormat::kF32;
    case DeviceRowFormat::kFp8:
      return RowFormat::kFp8;
    case DeviceRowFormat::kNvfp4:
      return RowFormat::kNvfp4;
    case DeviceRowFormat::kBf16:
      break;
  }
  return RowFormat::kBf16;
}

ExchangeShape shape_of(const DeviceCommunicatorOptions& options) {
  const auto bytes_of = [&](DeviceRowFormat format) {
    return static_cast<uint32_t>(ep::device_row_bytes(format, options.hidden));
  };
  return {.ep_size = options.num_ranks,
          .num_experts = std::max(1, options.num_experts),
          .slots_per_rank = options.slots_per_rank,
          .top_k = options.top_k,
          .max_tokens = options.max_tokens,
          .row_bytes = bytes_of(options.row_format),
          .result_bytes = bytes_of(options.result_format)};
}

size_t max_rows(const BufferLayout& layout) {
  const ExchangeShape& shape = layout.shape();
  return static_cast<size_t>(shape.ep_size) * static_cast<size_t>(shape.max_tokens) *
         static_cast<size_t>(layout.entries());
}

// What a rank allocates: its segment, what DispatchCombine::create needs beside it, and tables and
// sums of the layers.
size_t bytes_of(const BufferLayout& layout, int num_layers) {
  const ExchangeShape& shape = layout.shape();
  const auto ranks = static_cast<size_t>(shape.ep_size);
  const auto tokens = static_cast<size_t>(shape.max_tokens);
  return layout.segment_bytes() + max_rows(layout) * sizeof(ReceivedRow) +
         tokens * (ranks + static_cast<size_t>(shape.top_k)) * sizeof(int32_t) +
         SlotTables::num_bytes(shape, num_layers) + LoadStatistics::num_bytes(shape, num_layers);
}

// "1,3", in ascending order.
std::string numbers(std::vector<int> ranks) {
  std::ranges::sort(ranks);
  return fmt::format("{}", fmt::join(ranks, ","));
}

Terms terms_of(const DeviceCommunicatorOptions& options) {
  const auto number = [](auto value) { return fmt::format("{}", static_cast<int64_t>(value)); };
  const auto format = [](DeviceRowFormat of) {
    return std::string(kernels::row_format_name(row_format(of)));
  };
  return {{"slots_per_rank", number(options.slots_per_rank)},
          {"top_k", number(options.top_k)},
          {"max_tokens", number(options.max_tokens)},
          {"hidden", number(options.hidden)},
          {"row_format", format(options.row_format)},
          {"result_format", format(options.result_format)},
          {"inactive_ranks", numbers(options.inactive_ranks)},
          {"num_layers", number(options.num_layers)},
          {"num_experts", number(options.num_experts)}};
}

Status check_memory(const RankPlace& place, int rank, int num_sharing, size_t needed) {
  WIDEEP_TRY_ASSIGN(const size_t free, place.free_bytes());
  const size_t all = needed * static_cast<size_t>(num_sharing);
  if (all <= free) return {};
  const std::string sharing =
      num_sharing == 1 ? "" : fmt::format(", as each of {} ranks on it", num_sharing);
  return failed(fmt::format(
      "rank {} needs {:.3f} GB of device memory{}, {} has {:.3f} GB free: give less max_tokens",
      rank, static_cast<double>(needed) * 1e-9, sharing, place.name(),
      static_cast<double>(free) * 1e-9));
}

// What ranks tell each other of their devices, a line each.
struct Peer {
  std::string id, name;
};
Result<std::vector<Peer>> exchange_devices(Meeting& meeting, const RankPlace& place) {
  WIDEEP_TRY_ASSIGN(const std::vector<std::string> told,
                    meeting.exchange(place.id() + "\n" + place.name()));
  std::vector<Peer> peers;
  for (const std::string& text : told) {
    const size_t end = text.find('\n');
    peers.push_back({text.substr(0, end), end == std::string::npos ? "" : text.substr(end + 1)});
  }
  return peers;
}

// Every pair shares and opens in turn, so that no socket has more than one descriptor under way.
Result<std::vector<std::byte*>> share_segments(Meeting& meeting, RankPlace& place,
                                               const BufferLayout& layout) {
  const size_t num_bytes = layout.segment_bytes();
  std::vector<std::byte*> segments(static_cast<size_t>(meeting.num_ranks()));
  Result<std::byte*> mine = place.make_segment(num_bytes);
  if (mine.ok()) {
    const Status cleared = place.devices().clear(meeting.rank(), *mine, layout.zeroed_bytes());
    if (!cleared.ok()) mine = cleared;
  }
  WIDEEP_TRY(meeting.agree(mine.status()));
  segments[static_cast<size_t>(meeting.rank())] = *mine;
  Status all;
  for (int peer = 0; peer < meeting.num_ranks() && all.ok(); ++peer) {
    if (meeting.socket(peer) >= 0) all = place.share(meeting.socket(peer));
  }
  for (int peer = 0; peer < meeting.num_ranks() && all.ok(); ++peer) {
    if (meeting.socket(peer) < 0) continue;
    const Result<std::byte*> theirs = place.open(meeting.socket(peer), num_bytes);
    if (!theirs.ok()) {
      all = theirs.status().at(fmt::format("the memory of rank {}", peer));
      break;
    }
    segments[static_cast<size_t>(peer)] = *theirs;
  }
  if (!all.ok()) return all;  // the sockets may have half a message: the others see them close
  return segments;
}

DispatchCombineOptions launch_options(const DeviceCommunicatorOptions& options,
                                      const RankPlace& place, int num_sharing) {
  DispatchCombineOptions launches{.deadline = options.timeout,
                                  .inactive_ranks = options.inactive_ranks};
  // A block on each multiprocessor, for all ranks of the GPU together: kernels that wait for each
  // other are then always resident together.
  launches.num_blocks = options.num_blocks > 0
                            ? options.num_blocks
                            : std::max(1, place.num_multiprocessors() / num_sharing);
  launches.num_receive_blocks = std::min(kReceiveBlocks, launches.num_blocks);
  launches.num_threads = std::min(kMaxThreads, place.max_threads());
  // With many slots a block's counters fit into its shared memory only if it has fewer threads.
  launches.num_index_threads = std::min(kMaxIndexThreads, place.max_threads());
  const ExchangeShape shape = shape_of(options);
  while (launches.num_index_threads > kWarpSize &&
         IndexMessages::shared_bytes(shape, launches.num_index_threads) > kMaxSharedBytes) {
    launches.num_index_threads /= 2;
  }
  return launches;
}

// Of the ranks that do not take part.
Status check_inactive(const DeviceCommunicatorOptions& options, std::span<const int> inactive) {
  for (const int rank : inactive) {
    if (rank >= 0 && rank < options.num_ranks && rank != options.rank) continue;
    return invalid_input(
        fmt::format("inactive_ranks: expected ranks of 0 to {} other than this one, {}, found {}",
                    options.num_ranks - 1, options.rank, rank));
  }
  return {};
}

// Of choose and take_loads.
Status check_layers(const DeviceCommunicatorOptions& options) {
  const int64_t slots = int64_t{options.num_ranks} * options.slots_per_rank;
  if (options.num_layers == 0 && options.num_experts == 0) return {};
  const int64_t max_experts = std::min(slots, kMaxCounted - slots);
  if (options.num_layers < 1 || options.num_layers > kMaxLayers || options.num_experts < 1 ||
      options.num_experts > max_experts) {
    return invalid_input(
        fmt::format("num_layers, num_experts: expected 1 to {} layers of 1 to {} experts on {} "
                    "slots, or 0 and 0, found {} and {}",
                    kMaxLayers, max_experts, slots, options.num_layers, options.num_experts));
  }
  return {};
}

// Tables and sums of the layers.
Status add_layers(DeviceCommunicator::State& state) {
  Devices& devices = state.place->devices();
  const Exchange& x = state.exchange->exchange();
  const int num_layers = state.options.num_layers;
  WIDEEP_TRY_ASSIGN(state.tables,
                    SlotTables::create(devices, x.layout.shape(), x.rank, num_layers));
  const int max_threads = std::min(kMaxThreads, state.place->max_threads());
  WIDEEP_TRY_ASSIGN(state.loads, LoadStatistics::create(devices, x, num_layers, max_threads));
  WIDEEP_TRY_ASSIGN(state.taken, state.loads->allocate_taken());
  return {};
}

}  // namespace

Status check_options(const DeviceCommunicatorOptions& options) {
  if (!is_format(options.row_format) || !is_format(options.result_format)) {
    return invalid_input(fmt::format(
        "row_format, result_format: expected 0 (bf16), 1 (f32), 2 (fp8) or 3 (nvfp4), found {}, {}",
        static_cast<int>(options.row_format), static_cast<int>(options.result_format)));
  }
  if (options.hidden < 1) {
    return invalid_input(fmt::format("hidden: expected at least 1, found {}", options.hidden));
  }
  if (options.num_blocks < 0 || options.num_blocks > 65535) {
    return invalid_input(
        fmt::format("num_blocks: expected 0 to 65535, found {}", options.num_blocks));
  }
  if (options.timeout.count() < 1 || options.join_timeout.count() < 1) {
    return invalid_input(
        fmt::format("timeout, join_timeout (ms): expected at least 1, found {}, {}",
                    options.timeout.count(), options.join_timeout.count()));
  }
  WIDEEP_TRY(check_layers(options));
  WIDEEP_TRY(check_shape(shape_of(options)));
  if (options.rank < 0 || options.rank >= options.num_ranks) {
    return invalid_input(
        fmt::format("rank: expected 0 to {}, found {}", options.num_ranks - 1, options.rank));
  }
  return check_inactive(options, options.inactive_ranks);
}

Result<DeviceCommunicator> join_at(std::unique_ptr<RankPlace> place,
                                   const DeviceCommunicatorOptions& options) {
  WIDEEP_TRY_ASSIGN(Meeting meeting, Meeting::hold({.group = options.group,
                                                    .rank = options.rank,
                                                    .num_ranks = options.num_ranks,
                                                    .terms = terms_of(options),
                                                    .timeout = options.join_timeout,
                                                    .absent = options.inactive_ranks}));
  const BufferLayout layout(shape_of(options));
  const size_t needed = bytes_of(layout, options.num_layers);
  WIDEEP_TRY_ASSIGN(const std::vector<Peer> peers, exchange_devices(meeting, *place));
  const auto num_sharing = static_cast<int>(std::ranges::count(peers, place->id(), &Peer::id));
  const auto check_devices = [&]() -> Status {
    for (const Peer& peer : peers) {
      if (peer.id.empty() || peer.id == place->id()) continue;  // absent, or the same device
      WIDEEP_TRY(place->check_access(peer.id, peer.name));
    }
    return check_memory(*place, options.rank, num_sharing, needed);
  };
  WIDEEP_TRY(meeting.agree(check_devices()));
  WIDEEP_TRY_ASSIGN(const std::vector<std::byte*> segments,
                    share_segments(meeting, *place, layout));
  auto state = std::make_unique<DeviceCommunicator::State>();
  state->options = options;
  state->device_bytes = needed;
  const auto prepare = [&]() -> Status {
    WIDEEP_TRY_ASSIGN(
        DispatchCombine exchange,
        DispatchCombine::create(place->devices(), layout.shape(), options.rank, segments,
                                launch_options(options, *place, num_sharing)));
    state->exchange = std::make_unique<DispatchCombine>(std::move(exchange));
    state->place = std::move(place);
    return options.num_layers > 0 ? add_layers(*state) : Status();
  };
  // Nobody sends before all segments are zero and all can receive.
  WIDEEP_TRY(meeting.agree(prepare()));
  return DeviceCommunicator(std::move(state));
}

namespace {

Status closed(const char* step) {
  return invalid_input(fmt::format("{}: the communicator is closed, or has never joined", step));
}

Status check_pointer(const DeviceCommunicator::State& state, const char* step, const char* name,
                     const void* pointer, size_t alignment) {
  if (pointer != nullptr && reinterpret_cast<uintptr_t>(pointer) % alignment == 0) return {};
  return invalid_input(fmt::format(
      "rank {}: {}: {}: expected a pointer to device memory{}, found {}", state.options.rank, step,
      name, alignment == 1 ? "" : fmt::format(", {}-byte aligned", alignment),
      pointer == nullptr ? "null" : fmt::format("{}", pointer)));
}

// Checks what the host can see, and makes the call's stream that of the launches.
Status begin(DeviceCommunicator::State* state, const DeviceCall& call, const char* step,
             bool is_dispatched) {
  if (state == nullptr) return closed(step);
  if (state->has_dispatched != is_dispatched) {
    return invalid_input(fmt::format(
        "rank {}: {}: {}", state->options.rank, step,
        is_dispatched ? "expected after a dispatch" : "the previous dispatch has no combine yet"));
  }
  WIDEEP_TRY(check_pointer(*state, step, "num_tokens", call.num_tokens, 4));
  WIDEEP_TRY(check_pointer(*state, step, "slots", call.slots, 4));
  WIDEEP_TRY(check_pointer(*state, step, "weights", call.weights, 4));
  return state->place->use_stream(call.stream);
}

// The largest number of calls that a rank has finished, of those that go on.
Result<uint32_t> max_calls_done(Meeting& meeting, const Result<uint32_t>& mine) {
  WIDEEP_TRY(meeting.agree(mine.status()));
  WIDEEP_TRY_ASSIGN(const std::vector<std::string> told,
                    meeting.exchange(fmt::format("{}", *mine)));
  uint32_t max = *mine;
  for (const std::string& text : told) {
    if (text.empty()) continue;
    const auto theirs = static_cast<uint32_t>(std::strtoul(text.c_str(), nullptr, 10));
    if (static_cast<int32_t>(theirs - max) > 0) max = theirs;  // numbers of calls wrap around
  }
  return max;
}

Status restart(DeviceCommunicator::State& state, std::span<const int> inactive) {
  WIDEEP_TRY(check_inactive(state.options, inactive));
  for (const int rank : state.options.inactive_ranks) {
    if (std::ranges::find(inactive, rank) != inactive.end()) continue;
    return invalid_input(fmt::format(
        "inactive_ranks: expected rank {}, which was left out before and cannot come back", rank));
  }
  WIDEEP_TRY(state.place->finish());
  const std::vector<int> absent(inactive.begin(), inactive.end());
  WIDEEP_TRY_ASSIGN(Meeting meeting, Meeting::hold({.group = state.options.group,
                                                    .rank = state.options.rank,
                                                    .num_ranks = state.options.num_ranks,
                                                    .terms = {{"inactive_ranks", numbers(absent)}},
                                                    .timeout = state.options.join_timeout,
                                                    .absent = absent,
                                                    .occasion = state.num_restarts + 1}));
  WIDEEP_TRY_ASSIGN(const uint32_t calls_done,
                    max_calls_done(meeting, state.exchange->num_calls_done()));
  // Nobody begins the next call before all have forgotten the last one.
  WIDEEP_TRY(meeting.agree(state.exchange->restart(inactive, calls_done + 1)));
  if (state.tables) state.tables->leave_out(absent);
  state.options.inactive_ranks = absent;
  state.has_dispatched = false;
  ++state.num_restarts;
  return {};
}

// "rank 2: choose", for messages.
std::string step_of(const DeviceCommunicator::State& state, const char* step) {
  return fmt::format("rank {}: {}", state.options.rank, step);
}

Status check_has_layers(const DeviceCommunicator::State* state, const char* step) {
  if (state == nullptr) return closed(step);
  if (state->tables) return {};
  return invalid_input(fmt::format(
      "rank {}: {}: the group was joined without layers: expected num_layers and num_experts",
      state->options.rank, step));
}

Status check_placement(const DeviceCommunicator::State& state, int layer,
                       const balance::Placement& placement, std::span<const double> shares) {
  WIDEEP_TRY(state.tables->check(layer, placement, shares));
  const int slot = first_used_slot(placement, state.options.inactive_ranks);
  if (slot < 0) return {};
  return invalid_input(fmt::format(
      "slot {} of the placement: expected no expert on inactive rank {}, found {}: "
      "mask_ranks, or a Repairer (balancer.h), makes one without that rank",
      slot, placement.rank_of_slot(slot), placement.slot_to_expert[static_cast<size_t>(slot)]));
}

Tokens tokens_of(const DeviceCall& call) { return {call.num_tokens, call.slots, call.weights}; }

Status check_stride(const DeviceCommunicator::State& state, const char* step, size_t stride,
                    size_t row_bytes, size_t multiple) {
  if (stride >= row_bytes && stride % multiple == 0) return {};
  const std::string what = multiple == 1 ? "" : fmt::format(", a multiple of {}", multiple);
  return invalid_input(
      fmt::format("rank {}: {}: a stride of at least {} bytes{} expected, found {}",
                  state.options.rank, step, row_bytes, what, stride));
}

}  // namespace
}  // namespace wideep::cuda

namespace wideep::ep {

size_t device_row_bytes(DeviceRowFormat format, int hidden) {
  if (!cuda::is_format(format) || hidden < 1) return 0;
  return kernels::row_bytes(cuda::row_format(format), hidden);
}

DeviceCommunicator::DeviceCommunicator() = default;
DeviceCommunicator::DeviceCommunicator(std::unique_ptr<State> state) : state_(std::move(state)) {}
DeviceCommunicator::~DeviceCommunicator() { close(); }
DeviceCommunicator::DeviceCommunicator(DeviceCommunicator&&) noexcept = default;
DeviceCommunicator& DeviceCommunicator::operator=(DeviceCommunicator&& other) noexcept {
  if (this == &other) return *this;
  close();
  state_ = std::move(other.state_);
  return *this;
}

int DeviceCommunicator::rank() const { return state_ == nullptr ? -1 : state_->options.rank; }
int DeviceCommunicator::device() const { return state_ == nullptr ? -1 : state_->place->number(); }
size_t DeviceCommunicator::device_bytes() const {
  return state_ == nullptr ? 0 : state_->device_bytes;
}

Status DeviceCommunicator::set_placement(int layer, const balance::Placement& placement,
                                         std::span<const double> shares, void* stream) {
  WIDEEP_TRY(cuda::check_has_layers(state_.get(), "set_placement"));
  WIDEEP_TRY(cuda::check_placement(*state_, layer, placement, shares)
                 .at(cuda::step_of(*state_, "set_placement")));
  WIDEEP_TRY(state_->place->use_stream(stream));
  return state_->tables->set(layer, placement, shares);
}

Status DeviceCommunicator::choose(const DeviceCall& call, const int32_t* experts, int32_t* slots) {
  WIDEEP_TRY(cuda::check_has_layers(state_.get(), "choose"));
  WIDEEP_TRY(cuda::check_pointer(*state_, "choose", "num_tokens", call.num_tokens, 4));
  WIDEEP_TRY(cuda::check_pointer(*state_, "choose", "experts", experts, 4));
  WIDEEP_TRY(cuda::check_pointer(*state_, "choose", "slots", slots, 4));
  const std::string step = cuda::step_of(*state_, "choose");
  if (slots == experts) {
    return invalid_input(step + ": expected other memory for slots than for experts");
  }
  const Result<cuda::ReplicaTable> table = state_->tables->table(call.layer);
  WIDEEP_TRY(table.status().at(step));
  WIDEEP_TRY(state_->place->use_stream(call.stream));
  WIDEEP_TRY(state_->exchange->choose_slots(*table, call.num_tokens, experts, slots));
  return state_->loads->count(call.num_tokens, experts, slots, call.layer);
}

Status DeviceCommunicator::end_iteration(void* stream) {
  WIDEEP_TRY(cuda::check_has_layers(state_.get(), "end_iteration"));
  WIDEEP_TRY(state_->place->use_stream(stream));
  return state_->loads->end_iteration();
}

Result<DeviceLoads> DeviceCommunicator::take_loads(void* stream) {
  WIDEEP_TRY(cuda::check_has_layers(state_.get(), "take_loads"));
  WIDEEP_TRY(state_->place->use_stream(stream));
  const int rank = state_->options.rank;
  WIDEEP_TRY(state_->loads->take(rank, state_->taken));
  WIDEEP_TRY_ASSIGN(const cuda::RankLoads taken, state_->loads->read(rank, state_->taken));
  DeviceLoads loads{.first_iteration = taken.first_iteration,
                    .num_iterations = taken.num_iterations,
                    .experts = {},
                    .slots = {}};
  const cuda::ExchangeShape& shape = state_->exchange->exchange().layout.shape();
  const std::span<const uint64_t> tokens = taken.tokens;
  const auto num_experts = static_cast<size_t>(shape.num_experts);
  const size_t columns = num_experts + static_cast<size_t>(shape.num_slots());
  for (size_t row = 0; row < tokens.size(); row += columns) {
    const auto of_experts = tokens.subspan(row, num_experts);
    const auto of_slots = tokens.subspan(row + num_experts, columns - num_experts);
    loads.experts.insert(loads.experts.end(), of_experts.begin(), of_experts.end());
    loads.slots.insert(loads.slots.end(), of_slots.begin(), of_slots.end());
  }
  return loads;
}

Status DeviceCommunicator::dispatch(const DeviceCall& call, const void* rows, size_t row_stride) {
  WIDEEP_TRY(cuda::begin(state_.get(), call, "dispatch", false));
  cuda::DispatchCombine& exchange = *state_->exchange;
  const size_t row_bytes = exchange.exchange().layout.shape().row_bytes;
  WIDEEP_TRY(cuda::check_pointer(*state_, "dispatch", "rows", rows, 1));
  WIDEEP_TRY(cuda::check_stride(*state_, "dispatch", row_stride, row_bytes, 1));
  WIDEEP_TRY(exchange.dispatch_and_receive(
      cuda::tokens_of(call), static_cast<const std::byte*>(rows), row_stride, call.layer));
  state_->has_dispatched = true;
  return {};
}

DeviceReceived DeviceCommunicator::received() const {
  if (state_ == nullptr) return {};
  const cuda::DispatchCombine& exchange = *state_->exchange;
  return {reinterpret_cast<const DeviceReceivedRow*>(exchange.received_rows()),
          exchange.slot_starts(), static_cast<int64_t>(cuda::max_rows(exchange.exchange().layout))};
}

Status DeviceCommunicator::expand(const DeviceCall& call, void* matrix, size_t stride) {
  WIDEEP_TRY(cuda::begin(state_.get(), call, "expand", true));
  WIDEEP_TRY(cuda::check_pointer(*state_, "expand", "matrix", matrix, 16));
  WIDEEP_TRY(cuda::check_stride(*state_, "expand", stride,
                                state_->exchange->exchange().layout.shape().row_bytes, 16));
  return state_->exchange->expand(static_cast<std::byte*>(matrix), stride);
}

Status DeviceCommunicator::finalize(const DeviceCall& call, const void* results, size_t stride) {
  WIDEEP_TRY(cuda::begin(state_.get(), call, "finalize", true));
  WIDEEP_TRY(cuda::check_pointer(*state_, "finalize", "results", results, 16));
  WIDEEP_TRY(cuda::check_stride(*state_, "finalize", stride,
                                state_->exchange->exchange().layout.shape().result_bytes, 16));
  // The kernel only reads it: one struct serves both directions.
  return state_->exchange->finalize(static_cast<std::byte*>(const_cast<void*>(results)), stride);
}

Status DeviceCommunicator::combine(const DeviceCall& call, const DeviceOutput& output) {
  WIDEEP_TRY(cuda::begin(state_.get(), call, "combine", true));
  WIDEEP_TRY(cuda::check_pointer(*state_, "combine", "out", output.out, 16));
  WIDEEP_TRY(cuda::check_stride(*state_, "combine", output.out_stride,
                                static_cast<size_t>(state_->options.hidden) * sizeof(Bf16), 16));
  WIDEEP_TRY(
      state_->exchange->combine(cuda::tokens_of(call),
                                {.result_format = cuda::row_format(state_->options.result_format),
                                 .hidden = state_->options.hidden,
                                 .shared_expert = output.shared_expert,
                                 .out = static_cast<std::byte*>(output.out),
                                 .out_stride = output.out_stride},
                                call.layer));
  state_->has_dispatched = false;
  return {};
}

Status DeviceCommunicator::status(void* stream) {
  if (state_ == nullptr) return cuda::closed("status");
  WIDEEP_TRY(state_->place->use_stream(stream));
  return state_->exchange->failure();
}

Status DeviceCommunicator::restart(std::span<const int> inactive_ranks) {
  if (state_ == nullptr) return cuda::closed("restart");
  return cuda::restart(*state_, inactive_ranks);
}

void DeviceCommunicator::close() {
  if (state_ == nullptr) return;
  state_->place->finish().ok();  // memory that kernels use must not go away
  state_.reset();
}

}  // namespace wideep::ep
