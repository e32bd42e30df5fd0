// SPDX-License-Identifier: Apache-2.0
//
// The public communicator for devices on emulated ones, against the CPU path; and what join refuses
// before the first kernel.
#include "cuda/device_communicator.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <functional>
#include <map>
#include <mutex>
#include <numeric>
#include <random>
#include <thread>

#include "base/sanitized.h"
#include "base/try.h"
#include "cuda/choose_slots_testing.h"
#include "cuda/emulated/emulated_devices.h"
#include "cuda/exchange_case_testing.h"

namespace wideep::cuda {
namespace {

using ep::DeviceCall;
using ep::DeviceCommunicator;
using ep::DeviceCommunicatorOptions;
using ep::DeviceLoads;
using ep::DeviceRowFormat;
using ::testing::AllOf;
using ::testing::HasSubstr;

// Emulated devices that ranks may join from threads of their own. Keeps the Exchange of each rank's
// last dispatch, for the stand-ins of experts.
class SharedDevices final : public Devices {
 public:
  explicit SharedDevices(const MachineOptions& options) : devices_(options) {}

  Result<std::byte*> allocate(int rank, size_t num_bytes, bool symmetric) override {
    const std::lock_guard lock(mutex_);
    return devices_.allocate(rank, num_bytes, symmetric);
  }
  Status write(int rank, void* to, const void* from, size_t num_bytes) override {
    const std::lock_guard lock(mutex_);
    return devices_.write(rank, to, from, num_bytes);
  }
  Status read(int rank, void* to, const void* from, size_t num_bytes) override {
    const std::lock_guard lock(mutex_);
    // Nobody else lets the kernels run that a take of loads waits for.
    if (is_taking_) WIDEEP_TRY(devices_.finish());
    is_taking_ = false;
    return devices_.read(rank, to, from, num_bytes);
  }
  Status clear(int rank, void* at, size_t num_bytes) override {
    const std::lock_guard lock(mutex_);
    return devices_.clear(rank, at, num_bytes);
  }
  Status launch(int rank, const Kernel& kernel, const LaunchShape& shape) override {
    const std::lock_guard lock(mutex_);
    if (const auto* dispatch = std::get_if<Dispatch>(&kernel)) exchanges_[rank] = dispatch->x;
    if (const auto* round = std::get_if<SmallRound>(&kernel)) exchanges_[rank] = round->index.x;
    if (std::holds_alternative<TakeLoads>(kernel)) is_taking_ = true;
    ++num_launches_;
    return devices_.launch(rank, kernel, shape);
  }
  Status finish() override { return devices_.finish(); }
  void forget(const void* at, size_t num_bytes) override { devices_.forget(at, num_bytes); }
  bool is_written(const void* at, size_t num_bytes) const override {
    return devices_.is_written(at, num_bytes);
  }
  const Exchange& exchange(int rank) const { return exchanges_.at(rank); }
  int num_launches() const { return num_launches_; }

 private:
  std::mutex mutex_;
  EmulatedDevices devices_;
  std::map<int, Exchange> exchanges_;
  int num_launches_ = 0;
  bool is_taking_ = false;
};

// A rank's place on them. Ranks are in one process, so a segment's address is all that a peer
// needs.
struct EmulatedPlace final : public RankPlace {
  EmulatedPlace(SharedDevices& shared, int own_rank) : all(shared), rank(own_rank) {}

  Devices& devices() override { return all; }
  Status use_stream(void* given) override {
    stream = given;
    return {};
  }
  Status finish() override { return {}; }
  int number() const override { return -1; }
  std::string name() const override { return fmt::format("emulated device {}", rank); }
  std::string id() const override { return fmt::format("{}", shares_device ? 0 : rank); }
  int num_multiprocessors() const override { return 2; }
  int max_threads() const override { return threads; }
  Result<size_t> free_bytes() const override { return free; }
  Status check_access(const std::string& id, const std::string& name) const override {
    if (id != no_access_to) return {};
    return failed(fmt::format("no peer access from {} to {}", this->name(), name));
  }
  Result<std::byte*> make_segment(size_t num_bytes) override {
    const Result<std::byte*> made = all.allocate(rank, num_bytes, true);
    if (made.ok()) segment = *made;
    return made;
  }
  Status share(int socket) const override {
    return send(socket, &segment, sizeof(segment), 0) == sizeof(segment) ? Status()
                                                                         : failed("send");
  }
  Result<std::byte*> open(int socket, size_t) override {
    std::byte* theirs = nullptr;
    if (recv(socket, &theirs, sizeof(theirs), MSG_WAITALL) != sizeof(theirs)) return failed("recv");
    return theirs;
  }

  SharedDevices& all;
  int rank;
  size_t free = size_t{1} << 40;
  std::string no_access_to = "none";
  bool shares_device = false;
  int threads = 64;
  std::byte* segment = nullptr;
  void* stream = nullptr;  // of the last step
};

DeviceCommunicatorOptions options_for_test(int rank, int num_ranks) {
  return {.group = fmt::format("{}.{}", getpid(),
                               ::testing::UnitTest::GetInstance()->current_test_info()->name()),
          .rank = rank,
          .num_ranks = num_ranks,
          .slots_per_rank = 2,
          .top_k = 2,
          .max_tokens = 3,
          .hidden = 24,
          .join_timeout = std::chrono::seconds(20)};
}

using Joined = std::vector<Result<DeviceCommunicator>>;
using Change = std::function<void(DeviceCommunicatorOptions&, EmulatedPlace&)>;

Joined unjoined(int num_ranks) {
  Joined joined;
  for (int rank = 0; rank < num_ranks; ++rank) joined.emplace_back(failed("not run"));
  return joined;
}

bool is_in(const std::vector<int>& ranks, int rank) {
  return std::ranges::find(ranks, rank) != ranks.end();
}

// All ranks that are active join, each on a thread of its own.
Joined join_all(
    SharedDevices& devices, const DeviceCommunicatorOptions& options,
    const Change& change = [](auto&, auto&) {}) {
  Joined joined = unjoined(options.num_ranks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < options.num_ranks; ++rank) {
    if (is_in(options.inactive_ranks, rank)) continue;
    threads.emplace_back([&, rank] {
      DeviceCommunicatorOptions own = options;
      own.rank = rank;
      auto place = std::make_unique<EmulatedPlace>(devices, rank);
      change(own, *place);
      joined[static_cast<size_t>(rank)] = join_at(std::move(place), own);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return joined;
}

DeviceRowFormat public_format(RowFormat format) {
  constexpr DeviceRowFormat kFormats[] = {DeviceRowFormat::kF32, DeviceRowFormat::kBf16,
                                          DeviceRowFormat::kFp8, DeviceRowFormat::kNvfp4};
  return kFormats[static_cast<size_t>(format)];
}

// A rank as an engine has it: its communicator, and buffers on its device.
struct EngineRank {
  SharedDevices& devices;
  const ExchangeCase& c;
  int rank;
  DeviceCommunicator& communicator;
  DeviceCall call;
  std::byte *rows = nullptr, *matrix = nullptr, *out = nullptr;
  float* shared = nullptr;
  int32_t* slot_experts = nullptr;

  size_t stride() const {
    return (std::max(c.shape.row_bytes, c.shape.result_bytes) + 15) / 16 * 16;
  }
  size_t out_stride() const { return (static_cast<size_t>(c.hidden) * 2 + 15) / 16 * 16; }
  size_t matrix_bytes() const {
    return static_cast<size_t>(communicator.received().max_rows) * stride();
  }

  template <typename T>
  T* place(const std::vector<T>& values, size_t room) {
    std::byte* at = *devices.allocate(
        rank, std::max<size_t>(16, std::max(room, values.size()) * sizeof(T)), false);
    EXPECT_TRUE(devices.write(rank, at, values.data(), values.size() * sizeof(T)).ok());
    return reinterpret_cast<T*>(at);
  }

  void write(const RankTokens& tokens) {
    const auto n = static_cast<size_t>(c.shape.max_tokens);
    const size_t entries = n * static_cast<size_t>(c.shape.top_k);
    call.num_tokens = place(std::vector<int32_t>{tokens.num_tokens}, 0);
    call.slots = place(tokens.slots, entries);
    call.weights = place(tokens.weights, entries);
    rows = place(tokens.rows, n * c.shape.row_bytes + 16);
    shared = place(tokens.shared, n * static_cast<size_t>(c.hidden));
    out = place(std::vector<std::byte>(), n * out_stride());
    matrix = place(std::vector<std::byte>(), 2 * matrix_bytes());
    const auto first = c.slot_experts.begin() + rank * c.shape.slots_per_rank;
    slot_experts = place(std::vector<int32_t>(first, first + c.shape.slots_per_rank), 0);
  }

  Status run() {
    const ep::DeviceReceived received = communicator.received();
    std::byte* const results = c.expands ? matrix + matrix_bytes() : nullptr;
    WIDEEP_TRY(communicator.dispatch(call, rows, c.shape.row_bytes));
    if (c.expands) WIDEEP_TRY(communicator.expand(call, matrix, stride()));
    WIDEEP_TRY(devices.launch(
        rank,
        EchoExperts{devices.exchange(rank), reinterpret_cast<const ReceivedRow*>(received.rows),
                    received.slot_starts, slot_experts, c.expands ? matrix : nullptr, results,
                    stride(), c.row_format, c.result_format, c.hidden},
        {1, 64}));
    if (c.expands) WIDEEP_TRY(communicator.finalize(call, results, stride()));
    return communicator.combine(call, {.out = out,
                                       .out_stride = out_stride(),
                                       .shared_expert = c.has_shared_expert ? shared : nullptr});
  }

  std::vector<uint16_t> outputs(int num_tokens) {
    const auto hidden = static_cast<size_t>(c.hidden);
    std::vector<uint16_t> values(static_cast<size_t>(num_tokens) * hidden);
    for (size_t t = 0; t < static_cast<size_t>(num_tokens); ++t) {
      EXPECT_TRUE(
          devices.read(rank, values.data() + t * hidden, out + t * out_stride(), hidden * 2).ok());
    }
    return values;
  }
};

void play_case(const ExchangeCase& c, int threads = 64) {
  const std::vector<CallTokens> calls = random_tokens(c);
  const auto expected = run_on_cpu(c, calls);
  ASSERT_TRUE(expected.ok()) << expected.status().message();
  SharedDevices devices({.num_devices = c.shape.ep_size,
                         .max_blocks = 4,
                         .max_threads = threads,
                         .memory_bytes = size_t{96} << 20,
                         .seed = c.seed});
  DeviceCommunicatorOptions options = options_for_test(0, c.shape.ep_size);
  options.slots_per_rank = c.shape.slots_per_rank;
  options.top_k = c.shape.top_k;
  options.max_tokens = c.shape.max_tokens;
  options.hidden = c.hidden;
  options.row_format = public_format(c.row_format);
  options.result_format = public_format(c.result_format);
  options.inactive_ranks = c.options.inactive_ranks;
  Joined joined =
      join_all(devices, options, [&](auto&, EmulatedPlace& place) { place.threads = threads; });
  std::vector<EngineRank> ranks;
  for (int rank = 0; rank < c.shape.ep_size; ++rank) {
    if (!c.is_active(rank)) continue;
    auto& mine = joined[static_cast<size_t>(rank)];
    ASSERT_TRUE(mine.ok()) << mine.status().message();
    EXPECT_EQ(mine->rank(), rank);
    EXPECT_GT(mine->device_bytes(), 0u);
    ranks.push_back({devices, c, rank, *mine, {}});
  }
  for (int call = 0; call < c.num_calls; ++call) {
    const CallTokens& tokens = calls[static_cast<size_t>(call)];
    for (EngineRank& rank : ranks) rank.write(tokens[static_cast<size_t>(rank.rank)]);
    for (EngineRank& rank : ranks) ASSERT_EQ(rank.run().message(), "");
    ASSERT_EQ(devices.finish().message(), "") << describe(c);
    for (EngineRank& rank : ranks) {
      const auto at = static_cast<size_t>(rank.rank);
      ASSERT_EQ(rank.communicator.status().message(), "") << describe(c);
      ASSERT_EQ(rank.outputs(tokens[at].num_tokens), (*expected)[static_cast<size_t>(call)][at].out)
          << "call " << call << ", rank " << rank.rank << ": " << describe(c);
    }
  }
}

TEST(DeviceCommunicatorTest, HasTheBitsOfTheCpuPath) {
  std::mt19937_64 random(31);
  for (int round = 0; round < (base::kSanitized ? 4 : 20); ++round) {
    ExchangeCase c = random_case(random, {.max_ranks = 6, .max_hidden = 300, .max_tokens = 6});
    c.misaligned_by = 0;
    c.prepares = false;
    c.shape.is_reduced = false;
    play_case(c);
    if (HasFatalFailure()) return;
  }
}

// With 1,024 threads a block of the index would need more shared memory than there is.
TEST(DeviceCommunicatorTest, ManySlotsOfARankLeaveFewerThreads) {
  ExchangeCase c;
  c.shape = {.ep_size = 1, .num_experts = 4, .slots_per_rank = 512, .top_k = 3, .max_tokens = 4};
  c.hidden = 16;
  c.shape.row_bytes = c.shape.result_bytes = 32;
  c.prepares = false;
  c.slot_experts.assign(512, 3);
  play_case(c, 1024);
}

// ---- after a death ----

// Three ranks with two slots each, of which one may die.
struct GroupOfThree {
  explicit GroupOfThree(std::chrono::milliseconds join_timeout = std::chrono::seconds(20)) {
    c.shape = {.ep_size = 3, .num_experts = 6, .slots_per_rank = 2, .top_k = 2, .max_tokens = 3};
    c.hidden = 24;
    c.shape.row_bytes = c.shape.result_bytes = 48;
    c.prepares = false;
    c.slot_experts = {0, 1, 2, 3, 4, 5};
    c.num_calls = 2;
    joined = join_all(devices, options_for_test(0, 3),
                      [&](auto& options, auto&) { options.join_timeout = join_timeout; });
    for (int rank = 0; rank < 3; ++rank) {
      auto& mine = joined[static_cast<size_t>(rank)];
      EXPECT_EQ(mine.status().message(), "");
      if (mine.ok()) ranks.push_back({devices, c, rank, *mine, {}});
    }
  }

  void run(const CallTokens& tokens, const std::vector<int>& by) {
    for (const int rank : by) ranks[static_cast<size_t>(rank)].write(tokens[rank]);
    for (const int rank : by) EXPECT_EQ(ranks[static_cast<size_t>(rank)].run().message(), "");
    EXPECT_EQ(devices.finish().message(), "");
  }

  // What each of these ranks says, each with its own list of inactive ranks.
  std::vector<std::string> restart(const std::map<int, std::vector<int>>& inactive_ranks) {
    std::vector<std::string> messages(3);
    std::vector<std::thread> threads;
    for (const auto& [rank, inactive] : inactive_ranks) {
      threads.emplace_back([&, at = static_cast<size_t>(rank), list = inactive] {
        messages[at] = joined[at]->restart(list).message();
      });
    }
    for (std::thread& thread : threads) thread.join();
    return messages;
  }

  ExchangeCase c;
  SharedDevices devices{{.num_devices = 3, .max_blocks = 4, .max_threads = 64}};
  Joined joined;
  std::vector<EngineRank> ranks;
};

TEST(DeviceCommunicatorTest, OthersGoOnWithoutARankThatDied) {
  GroupOfThree group;
  ASSERT_EQ(group.ranks.size(), 3u);
  ExchangeCase without = group.c;
  without.options.inactive_ranks = {1};
  const std::vector<CallTokens> first = random_tokens(group.c), later = random_tokens(without);
  const auto expected = run_on_cpu(without, later);
  ASSERT_TRUE(expected.ok());
  group.run(first[0], {0, 2});  // rank 1 does not come
  for (const int rank : {0, 2}) {
    EXPECT_THAT(group.joined[static_cast<size_t>(rank)]->status().message(), HasSubstr("rank"));
  }
  for (const std::string& message : group.restart({{0, {1}}, {2, {1}}})) EXPECT_EQ(message, "");
  for (const CallTokens& tokens : later) {
    group.run(tokens, {0, 2});
    for (const int rank : {0, 2}) {
      const auto at = static_cast<size_t>(rank);
      EXPECT_EQ(group.joined[at]->status().message(), "");
      const auto call = static_cast<size_t>(&tokens - later.data());
      EXPECT_EQ(group.ranks[at].outputs(tokens[at].num_tokens), (*expected)[call][at].out);
    }
  }
  EXPECT_THAT(group.restart({{0, {}}})[0],
              HasSubstr("expected rank 1, which was left out before and cannot come back"));
}

TEST(DeviceCommunicatorTest, ARestartBetweenTwoCallsLosesNoBits) {
  GroupOfThree group;
  ASSERT_EQ(group.ranks.size(), 3u);
  const std::vector<CallTokens> calls = random_tokens(group.c);
  const auto expected = run_on_cpu(group.c, calls);
  ASSERT_TRUE(expected.ok());
  for (size_t call = 0; call < calls.size(); ++call) {
    group.run(calls[call], {0, 1, 2});
    for (size_t rank = 0; rank < 3; ++rank) {
      EXPECT_EQ(group.joined[rank]->status().message(), "");
      EXPECT_EQ(group.ranks[rank].outputs(calls[call][rank].num_tokens),
                (*expected)[call][rank].out);
    }
    for (const std::string& message : group.restart({{0, {}}, {1, {}}, {2, {}}})) {
      EXPECT_EQ(message, "");
    }
  }
}

TEST(DeviceCommunicatorTest, ARestartRefusesListsThatDoNotFit) {
  GroupOfThree group(std::chrono::seconds(2));
  ASSERT_EQ(group.ranks.size(), 3u);
  EXPECT_THAT(group.restart({{0, {3}}})[0],
              HasSubstr("expected ranks of 0 to 2 other than this one, 0, found 3"));
  EXPECT_THAT(group.restart({{2, {2}}})[2], HasSubstr("other than this one, 2, found 2"));
  const auto differ = group.restart({{0, {}}, {1, {2}}});
  EXPECT_THAT(differ[1], HasSubstr("inactive_ranks=2, but rank 0 has inactive_ranks=: expected"));
  EXPECT_EQ(DeviceCommunicator().restart({}).message(),
            "restart: the communicator is closed, or has never joined");
}

// ---- choice of slots, and counts ----

// A rank that chooses slots and counts tokens, on its device and on the CPU.
struct ChoosingRank {
  SharedDevices& devices;
  DeviceCommunicator& communicator;
  const ChoiceCase& c;
  ep::SlotChooser chooser;
  DeviceLoads counted = {}, taken = {};
  std::vector<int32_t> expected = {};
  int32_t* slots = nullptr;  // on the device

  int rank() const { return communicator.rank(); }

  int32_t* place(const std::vector<int32_t>& values) const {
    std::byte* at = *devices.allocate(rank(), values.size() * sizeof(int32_t) + 4, false);
    EXPECT_TRUE(devices.write(rank(), at, values.data(), values.size() * sizeof(int32_t)).ok());
    return reinterpret_cast<int32_t*>(at);
  }

  void set_placement(int layer, const balance::Placement& placement,
                     const std::vector<double>& shares) {
    chooser.set_placement(layer, placement, shares);
    EXPECT_EQ(communicator.set_placement(layer, placement, shares).message(), "");
  }

  void take() {
    const Result<DeviceLoads> loads = communicator.take_loads(nullptr);
    ASSERT_EQ(loads.status().message(), "");
    if (loads->num_iterations == 0) return;
    EXPECT_EQ(loads->first_iteration, taken.num_iterations);
    taken.num_iterations += loads->num_iterations;
    add(loads->experts, taken.experts);
    add(loads->slots, taken.slots);
  }

  static void add(const std::vector<uint64_t>& some, std::vector<uint64_t>& to) {
    to.resize(some.size());
    std::ranges::transform(some, to, to.begin(), std::plus());
  }

  void choose(int layer, const std::vector<int32_t>& experts) {
    const auto at = static_cast<size_t>(layer);
    const auto num_slots = static_cast<size_t>(c.shape.num_slots());
    std::vector<int32_t> counts(static_cast<size_t>(c.shape.num_experts));
    for (const int32_t expert : experts) ++counts[static_cast<size_t>(expert)];
    counted.experts.resize(kLayers * counts.size());
    counted.slots.resize(kLayers * num_slots);
    expected.resize(experts.size());
    chooser.split_by_given_shares(layer, counts);
    chooser.choose(layer, experts, expected);
    for (size_t i = 0; i < experts.size(); ++i) {
      ++counted.experts[at * counts.size() + static_cast<size_t>(experts[i])];
      ++counted.slots[at * num_slots + static_cast<size_t>(expected[i])];
    }
    const auto n = static_cast<int32_t>(experts.size() / static_cast<size_t>(c.shape.top_k));
    slots = place(std::vector<int32_t>(experts.size()));
    devices.forget(slots, experts.size() * sizeof(int32_t));
    EXPECT_EQ(communicator.choose({.num_tokens = place({n}), .layer = layer}, place(experts), slots)
                  .message(),
              "");
  }

  std::vector<int32_t> chosen() const {
    std::vector<int32_t> found(expected.size());
    EXPECT_TRUE(devices.read(rank(), found.data(), slots, found.size() * sizeof(int32_t)).ok());
    return found;
  }

  static constexpr int kLayers = 3;
};

std::vector<int32_t> draw_experts(const ChoiceCase& c, std::mt19937_64& random) {
  std::vector<int32_t> all(static_cast<size_t>(c.shape.num_experts)), chosen;
  std::iota(all.begin(), all.end(), 0);
  const uint64_t num_tokens = random() % static_cast<uint64_t>(c.shape.max_tokens + 1);
  for (uint64_t t = 0; t < num_tokens; ++t) {
    if (t % 3 != 0) std::shuffle(all.begin(), all.end(), random);
    chosen.insert(chosen.end(), all.begin(), all.begin() + c.shape.top_k);
  }
  return chosen;
}

void play_choosing(uint64_t seed) {
  constexpr int kIterations = 8;
  std::mt19937_64 random(seed);
  const ChoiceCase c = random_choice(seed);
  SharedDevices devices({.num_devices = c.shape.ep_size, .max_blocks = 2, .max_threads = 64});
  DeviceCommunicatorOptions options = options_for_test(0, c.shape.ep_size);
  options.slots_per_rank = c.shape.slots_per_rank;
  options.top_k = c.shape.top_k;
  options.max_tokens = c.shape.max_tokens;
  options.num_layers = ChoosingRank::kLayers;
  options.num_experts = c.shape.num_experts;
  Joined joined = join_all(devices, options);
  std::vector<ChoosingRank> ranks;
  for (int rank = 0; rank < c.shape.ep_size; ++rank) {
    auto& mine = joined[static_cast<size_t>(rank)];
    ASSERT_EQ(mine.status().message(), "");
    const ep::DispatchShape shape{.ep_size = c.shape.ep_size,
                                  .num_experts = c.shape.num_experts,
                                  .slots_per_rank = c.shape.slots_per_rank,
                                  .top_k = c.shape.top_k,
                                  .max_tokens = c.shape.max_tokens};
    ranks.push_back({devices, *mine, c, ep::SlotChooser(shape, rank)});
  }
  balance::Placement reversed = c.placement;
  std::ranges::reverse(reversed.slot_to_expert);
  for (ChoosingRank& rank : ranks) {
    rank.set_placement(0, c.placement, c.shares);
    rank.set_placement(1, reversed, {});
    rank.set_placement(2, c.placement, {});
  }
  for (int iteration = 0; iteration < kIterations; ++iteration) {
    // Placements change between two calls.
    if (iteration == 4) {
      for (ChoosingRank& rank : ranks) rank.set_placement(2, reversed, {});
    }
    for (const int layer : {2, 0, 1, 0}) {
      for (ChoosingRank& rank : ranks) rank.choose(layer, draw_experts(c, random));
      ASSERT_EQ(devices.finish().message(), "");
      for (const ChoosingRank& rank : ranks) {
        ASSERT_EQ(rank.chosen(), rank.expected)
            << "seed " << seed << ", iteration " << iteration << ", layer " << layer;
      }
    }
    for (ChoosingRank& rank : ranks) {
      EXPECT_EQ(rank.communicator.end_iteration().message(), "");
      // The balancer of rank 0 comes after each iteration, that of rank 1 after every second one, …
      if (iteration % (rank.rank() + 1) == 0) rank.take();
    }
    EXPECT_EQ(ranks[0].taken.num_iterations, iteration + 1);
  }
  // What late ones have not got yet, in two parts at most.
  for (ChoosingRank& rank : ranks) {
    rank.take();
    EXPECT_EQ(rank.communicator.end_iteration().message(), "");
    rank.take();
    EXPECT_EQ(rank.taken.num_iterations, kIterations + 1);
    EXPECT_EQ(rank.taken.experts, rank.counted.experts);
    EXPECT_EQ(rank.taken.slots, rank.counted.slots);
    EXPECT_EQ(rank.communicator.take_loads(nullptr)->num_iterations, 0);
  }
}

TEST(DeviceCommunicatorTest, ChoosesSlotsAndCountsTokensAsTheCpuDoes) {
  for (uint64_t seed = 1; seed <= (base::kSanitized ? 4 : 20); ++seed) {
    play_choosing(seed);
    if (HasFatalFailure()) return;
  }
}

TEST(DeviceCommunicatorTest, PlacementsAreChecked) {
  SharedDevices devices({.num_devices = 3, .max_blocks = 2, .max_threads = 64});
  DeviceCommunicatorOptions options = options_for_test(0, 3);
  options.num_layers = 2;
  options.num_experts = 4;
  options.inactive_ranks = {2};
  Joined joined = join_all(devices, options);
  ASSERT_EQ(joined[0].status().message(), "");
  DeviceCommunicator& communicator = *joined[0];
  const balance::Placement all{
      .num_experts = 4, .ep_size = 3, .slot_to_expert = {0, 1, 2, 3, 0, 1}};
  balance::Placement active = all;
  active.slot_to_expert[4] = active.slot_to_expert[5] = balance::kUnusedSlot;
  const auto message = [](const Status& status) { return status.message(); };
  EXPECT_EQ(message(communicator.set_placement(2, active)),
            "rank 0: set_placement: layer: expected 0 to 1, found 2");
  EXPECT_THAT(message(communicator.set_placement(0, all)),
              HasSubstr("slot 4 of the placement: expected no expert on inactive rank 2, found 0"));
  EXPECT_THAT(
      message(communicator.set_placement(0, {.num_experts = 3, .slot_to_expert = {0, 1, 2}})),
      HasSubstr("placement of layer 0: expected 4 experts on 6 slots of 3 ranks, found 3 on 3 "
                "of 1"));
  EXPECT_NE(message(communicator.set_placement(0, active, std::vector{1.0, 1.0})), "");
  int32_t numbers[8] = {}, slots[8] = {};
  const DeviceCall call{.num_tokens = numbers};
  EXPECT_EQ(message(communicator.choose(call, numbers, slots)),
            "rank 0: choose: layer 0 has no placement, or one with a rank that was left out: "
            "expected set_placement before choose");
  EXPECT_EQ(message(communicator.set_placement(0, active)), "");
  EXPECT_THAT(message(communicator.choose(call, nullptr, numbers)),
              HasSubstr("choose: experts: expected a pointer to device memory"));
  EXPECT_THAT(message(communicator.choose(call, numbers, numbers)),
              HasSubstr("expected other memory for slots than for experts"));
  EXPECT_EQ(devices.num_launches(), 0);
}

TEST(DeviceCommunicatorTest, EveryStepRunsOnTheStreamThatItIsGiven) {
  SharedDevices devices({.num_devices = 1, .max_blocks = 2, .max_threads = 64});
  DeviceCommunicatorOptions options = options_for_test(0, 1);
  options.num_layers = 1;
  options.num_experts = 2;
  const EmulatedPlace* place = nullptr;
  Joined joined = join_all(devices, options, [&](auto&, EmulatedPlace& its) { place = &its; });
  ASSERT_EQ(joined[0].status().message(), "");
  ChoiceCase c;
  c.shape = {.num_experts = 2, .slots_per_rank = 2, .top_k = 2, .max_tokens = 3};
  const ChoosingRank rank{devices, *joined[0], c, ep::SlotChooser({}, 0)};
  char streams[4];
  EXPECT_TRUE(joined[0]->set_placement(0, {2, 1, {0, 1}}, {}, streams).ok());
  EXPECT_EQ(place->stream, streams);
  EXPECT_TRUE(joined[0]
                  ->choose({.num_tokens = rank.place({1}), .stream = streams + 1},
                           rank.place({1, 0}), rank.place({0, 0}))
                  .ok());
  EXPECT_EQ(place->stream, streams + 1);
  EXPECT_TRUE(joined[0]->end_iteration(streams + 2).ok());
  EXPECT_EQ(place->stream, streams + 2);
  const Result<DeviceLoads> loads = joined[0]->take_loads(streams + 3);
  EXPECT_EQ(place->stream, streams + 3);
  EXPECT_THAT(loads->experts, ::testing::ElementsAre(1, 1));
}

TEST(DeviceCommunicatorTest, APlacementWithALostRankIsForgotten) {
  SharedDevices devices({.num_devices = 2, .max_blocks = 2, .max_threads = 64});
  DeviceCommunicatorOptions options = options_for_test(0, 2);
  options.num_layers = 2;
  options.num_experts = 2;
  Joined joined = join_all(devices, options);
  ASSERT_EQ(joined[0].status().message(), "");
  constexpr int kNone = balance::kUnusedSlot;
  EXPECT_TRUE(joined[0]->set_placement(0, {2, 2, {0, 1, kNone, kNone}}).ok());
  EXPECT_TRUE(joined[0]->set_placement(1, {2, 2, {0, 1, 0, kNone}}).ok());
  ASSERT_EQ(joined[0]->restart(std::vector{1}).message(), "");
  int32_t numbers[8] = {}, slots[8] = {};
  EXPECT_EQ(joined[0]->choose({.num_tokens = numbers}, numbers, slots).message(), "");
  EXPECT_THAT(joined[0]->choose({.num_tokens = numbers, .layer = 1}, numbers, slots).message(),
              HasSubstr("layer 1 has no placement, or one with a rank that was left out"));
}

TEST(DeviceCommunicatorTest, WithoutLayersThereIsNothingToChooseBy) {
  SharedDevices devices({.num_devices = 1, .max_blocks = 2, .max_threads = 64});
  Joined joined = join_all(devices, options_for_test(0, 1));
  ASSERT_EQ(joined[0].status().message(), "");
  EXPECT_EQ(joined[0]->end_iteration().message(),
            "rank 0: end_iteration: the group was joined without layers: expected num_layers and "
            "num_experts");
  EXPECT_EQ(DeviceCommunicator().take_loads(nullptr).status().message(),
            "take_loads: the communicator is closed, or has never joined");
}

// ---- before the first kernel ----

// Their messages, by rank; none of them has launched anything.
std::vector<std::string> refusals(const Change& change, int num_ranks = 3) {
  SharedDevices devices({.num_devices = num_ranks, .max_blocks = 2, .max_threads = 64});
  std::vector<std::string> messages;
  for (const auto& each : join_all(devices, options_for_test(0, num_ranks), change)) {
    messages.push_back(each.status().message());
  }
  EXPECT_EQ(devices.num_launches(), 0);
  return messages;
}

TEST(DeviceCommunicatorTest, TooLittleMemoryOfOneRankIsTheErrorOfAll) {
  const auto messages = refusals([](auto& options, EmulatedPlace& place) {
    if (options.rank == 1) place.free = 1000;
  });
  EXPECT_THAT(messages[1],
              AllOf(HasSubstr("rank 1 needs 0.0"), HasSubstr(" GB of device memory, emulated"),
                    HasSubstr("has 0.000 GB free: give less max_tokens")));
  EXPECT_THAT(messages[0], HasSubstr("rank 1 cannot join: rank 1 needs"));
  EXPECT_THAT(messages[2], HasSubstr("rank 1 cannot join: rank 1 needs"));
}

TEST(DeviceCommunicatorTest, RanksOfOneDeviceShareItsMemory) {
  const auto messages = refusals([](auto&, EmulatedPlace& place) {
    place.shares_device = true;
    place.free = 10'000;  // one of them would fit
  });
  EXPECT_THAT(messages[0], HasSubstr("as each of 3 ranks on it"));
}

TEST(DeviceCommunicatorTest, NoPeerAccessNamesBothDevices) {
  const auto messages = refusals([](auto& options, EmulatedPlace& place) {
    if (options.rank == 2) place.no_access_to = "0";
  });
  EXPECT_EQ(messages[2], "no peer access from emulated device 2 to emulated device 0");
  EXPECT_THAT(messages[0], HasSubstr("rank 2 cannot join: no peer access"));
}

TEST(DeviceCommunicatorTest, OtherOptionsNameWhatDiffersOnAllRanks) {
  const auto messages = refusals([](auto& options, EmulatedPlace&) {
    if (options.rank == 1) options.max_tokens = 4;
  });
  EXPECT_THAT(messages[0], HasSubstr("rank 0: max_tokens=3, but rank 1 has max_tokens=4: expected "
                                     "the same options on all ranks"));
  EXPECT_THAT(messages[1], HasSubstr("max_tokens=4, but rank 0 has max_tokens=3"));
  EXPECT_THAT(messages[2], HasSubstr("but rank 1 has max_tokens=4"));
}

TEST(DeviceCommunicatorTest, AnotherNumberOfRanksIsTold) {
  const auto messages = refusals(
      [](auto& options, EmulatedPlace&) {
        if (options.rank == 1) options.num_ranks = 5;
        options.join_timeout = std::chrono::milliseconds(300);
      },
      2);
  EXPECT_THAT(messages[0], HasSubstr("num_ranks=2, but rank 1 has num_ranks=5"));
  EXPECT_THAT(messages[1], HasSubstr("num_ranks=5, but rank 0 has num_ranks=2"));
}

TEST(DeviceCommunicatorTest, ARankThatDoesNotComeIsNamed) {
  SharedDevices devices({.num_devices = 1});
  DeviceCommunicatorOptions options = options_for_test(0, 2);
  options.join_timeout = std::chrono::milliseconds(50);
  const auto joined = join_at(std::make_unique<EmulatedPlace>(devices, 0), options);
  EXPECT_EQ(joined.status().code(), StatusCode::kDeadlineExceeded);
  EXPECT_THAT(joined.status().message(), HasSubstr("rank 1 did not join within 50 ms"));
}

TEST(DeviceCommunicatorTest, ARankJoinsOnce) {
  SharedDevices devices({.num_devices = 2});
  DeviceCommunicatorOptions options = options_for_test(0, 3);
  options.join_timeout = std::chrono::milliseconds(500);
  Joined joined = unjoined(2);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < 2; ++i) {
    threads.emplace_back(
        [&, i] { joined[i] = join_at(std::make_unique<EmulatedPlace>(devices, 0), options); });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(std::ranges::count_if(joined,
                                  [](const auto& each) {
                                    return each.status().message().find("is joining already") !=
                                           std::string::npos;
                                  }),
            1);
}

TEST(DeviceCommunicatorTest, OptionsOutOfRangeAreNamed) {
  const auto refused = [](const std::function<void(DeviceCommunicatorOptions&)>& change) {
    DeviceCommunicatorOptions options = options_for_test(0, 2);
    change(options);
    return DeviceCommunicator::join(options).status().message();
  };
  EXPECT_THAT(refused([](auto& o) { o.hidden = 0; }), HasSubstr("hidden: expected at least 1"));
  EXPECT_THAT(refused([](auto& o) { o.top_k = 5; }), HasSubstr("top_k 5, expected 1 to 4"));
  EXPECT_THAT(refused([](auto& o) { o.rank = 2; }), HasSubstr("rank: expected 0 to 1, found 2"));
  EXPECT_THAT(
      refused([](auto& o) { o.inactive_ranks = {1, 0}; }),
      HasSubstr("inactive_ranks: expected ranks of 0 to 1 other than this one, 0, found 0"));
  EXPECT_THAT(refused([](auto& o) { o.num_ranks = 200; }), HasSubstr("ep_size 200, expected 1 to"));
  EXPECT_THAT(refused([](auto& o) { o.max_tokens = 0; }), HasSubstr("tokens 0, expected 1 to"));
  EXPECT_THAT(refused([](auto& o) { o.num_layers = 2; }),
              HasSubstr("of 1 to 4 experts on 4 slots, or 0 and 0, found 2 and 0"));
  EXPECT_THAT(refused([](auto& o) { o.num_layers = 1, o.num_experts = 5; }),
              HasSubstr("found 1 and 5"));
  EXPECT_THAT(refused([](auto& o) { o.num_blocks = -1; }), HasSubstr("num_blocks: expected 0"));
  EXPECT_THAT(refused([](auto& o) { o.timeout = std::chrono::milliseconds(0); }),
              HasSubstr("timeout, join_timeout (ms): expected at least 1, found 0"));
  EXPECT_THAT(refused([](auto& o) { o.row_format = static_cast<DeviceRowFormat>(9); }),
              HasSubstr("row_format, result_format: expected 0 (bf16)"));
}

TEST(DeviceCommunicatorTest, NamesOfGroupsAreChecked) {
  SharedDevices devices({.num_devices = 1});
  DeviceCommunicatorOptions options = options_for_test(0, 1);
  options.group = "";
  EXPECT_THAT(join_at(std::make_unique<EmulatedPlace>(devices, 0), options).status().message(),
              HasSubstr("group: expected a name of 1 to 64 characters, found 0"));
}

TEST(DeviceCommunicatorTest, CallsCheckWhatTheHostSees) {
  SharedDevices devices({.num_devices = 1, .max_blocks = 2, .max_threads = 64});
  Joined joined = join_all(devices, options_for_test(0, 1));
  ASSERT_TRUE(joined[0].ok()) << joined[0].status().message();
  DeviceCommunicator& communicator = *joined[0];
  alignas(16) std::byte rows[256];
  int32_t numbers[8] = {};
  float weights[8] = {};
  const DeviceCall call{.num_tokens = numbers, .slots = numbers, .weights = weights};
  const auto message = [](const Status& status) { return status.message(); };
  EXPECT_EQ(message(communicator.combine(call, {.out = rows, .out_stride = 48})),
            "rank 0: combine: expected after a dispatch");
  EXPECT_EQ(message(communicator.dispatch({}, rows, 48)),
            "rank 0: dispatch: num_tokens: expected a pointer to device memory, 4-byte aligned, "
            "found null");
  EXPECT_EQ(message(communicator.dispatch(call, nullptr, 48)),
            "rank 0: dispatch: rows: expected a pointer to device memory, found null");
  EXPECT_EQ(message(communicator.dispatch(call, rows, 47)),
            "rank 0: dispatch: a stride of at least 48 bytes expected, found 47");
  EXPECT_EQ(devices.num_launches(), 0);
  ASSERT_EQ(message(communicator.dispatch(call, rows, 48)), "");
  EXPECT_EQ(message(communicator.dispatch(call, rows, 48)),
            "rank 0: dispatch: the previous dispatch has no combine yet");
  EXPECT_THAT(message(communicator.expand(call, rows + 8, 48)),
              HasSubstr("expand: matrix: expected a pointer to device memory, 16-byte aligned"));
  EXPECT_THAT(message(communicator.finalize(call, rows, 56)),
              HasSubstr("a stride of at least 48 bytes, a multiple of 16 expected, found 56"));
  communicator.close();
  EXPECT_EQ(communicator.rank(), -1);
  EXPECT_EQ(message(communicator.dispatch(call, rows, 48)),
            "dispatch: the communicator is closed, or has never joined");
}

// Here there is no GPU, or no toolkit, or both; where there is one, it can be used.
TEST(DeviceCommunicatorTest, SaysWhatIsMissing) {
  const Status status = DeviceCommunicator::available();
  const Status joined = DeviceCommunicator::join(options_for_test(0, 1)).status();
  EXPECT_EQ(joined.ok(), status.ok());
  if (status.ok()) return;
  EXPECT_EQ(status.code(), StatusCode::kFailed);
  EXPECT_EQ(joined.message(), status.message());
  EXPECT_THAT(status.message(), ::testing::StartsWith("CUDA: "));
  EXPECT_THAT(status.message(),
              ::testing::ContainsRegex("no driver|no kernels for GPUs|but no GPU|has no kernels"));
}

}  // namespace
}  // namespace wideep::cuda
