// SPDX-License-Identifier: Apache-2.0
//
// One round of dispatch, experts and combine, drawn at random: on devices (GPUs or emulated), and
// on wideep's CPU path, which is the oracle. Every bit of the results, and the rows that every slot
// receives in their order, have to be equal.
//
// Thread safety: plain values and functions.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "cuda/dispatch_combine.h"
#include "cuda/load_statistics.h"

namespace wideep::cuda {

struct ExchangeCase {
  ExchangeShape shape;
  int hidden = 1;
  RowFormat row_format = RowFormat::kBf16;
  RowFormat result_format = RowFormat::kBf16;
  RowFormat expert_format = RowFormat::kBf16;  // of plain results, if they are reduced
  bool has_shared_expert = false;
  bool prepares = true;
  bool expands = false;   // rows into a matrix for the experts
  bool is_small = false;  // index, dispatch and receive in one kernel
  bool counts = false;    // statistics: all calls are one iteration of a layer
  int misaligned_by = 0;  // of the dispatched rows, bytes
  int num_calls = 1;
  int dead_rank = -1;    // launches only its first kernels of the last call; -1: none
  int dead_kernels = 0;  // so many
  DispatchCombineOptions options;
  std::vector<int> slot_experts;  // [num_slots]
  uint64_t seed = 1;

  int num_active() const { return shape.ep_size - static_cast<int>(options.inactive_ranks.size()); }
  bool is_active(int rank) const;
};

std::string describe(const ExchangeCase& c);

// The tokens of one rank in one call.
struct RankTokens {
  int num_tokens = 0;
  std::vector<int32_t> slots;    // [num_tokens, top_k]
  std::vector<int32_t> experts;  // the same
  std::vector<float> weights;    // the same
  std::vector<std::byte> rows;   // [num_tokens] rows of row_bytes
  std::vector<float> shared;     // [num_tokens, hidden]
};
using CallTokens = std::vector<RankTokens>;  // [ep_size]

// What comes out of a call.
struct RankResults {
  std::vector<uint16_t> out;                          // [num_tokens, hidden] bits of bf16
  std::vector<std::vector<std::byte>> rows_of_slots;  // [slots_per_rank] received rows, one by one
  std::vector<int32_t> counts;  // [ep_size, num_experts] of prepare, then [num_experts] sums
  std::vector<int32_t> rows;    // [slots_per_rank] received for each slot; only of the CPU path
};
using CallResults = std::vector<RankResults>;  // [ep_size]

// How far random cases go.
struct CaseLimits {
  int max_ranks = 8;
  int max_device_threads = 768;  // of all ranks, their blocks and threads
  int max_hidden = 700;
  int max_tokens = 12;
  int max_warps = 3;   // of a block
  int max_blocks = 3;  // of a rank
  int max_slots = 80;  // of a rank
  int max_calls = 3;
  bool ranks_die = false;
};
ExchangeCase random_case(std::mt19937_64& random, const CaseLimits& limits);
std::vector<CallTokens> random_tokens(const ExchangeCase& c);

// Errors (failed): what the CPU path says.
Result<std::vector<CallResults>> run_on_cpu(const ExchangeCase& c,
                                            const std::vector<CallTokens>& calls);

// The ranks of a group that are in this process, all or one, which play a case on devices.
class ExchangeOnDevices {
 public:
  static Result<std::unique_ptr<ExchangeOnDevices>> create(Devices& devices, const ExchangeCase& c);

  static Result<std::unique_ptr<ExchangeOnDevices>> create_one(
      Devices& devices, const ExchangeCase& c, int rank, std::span<std::byte* const> segments);

  Status write(int rank, int call, const RankTokens& tokens);
  static constexpr int kFirstLayer = 3;  // of the first call; the others follow
  // Launches a rank's kernels of a call, of which a rank that dies does only the first ones.
  static constexpr int kAllKernels = 100;
  Status launch(int rank, int call, int num_kernels = kAllKernels);
  // After Devices::finish: the results of a call. The rows of slots are those of the last call.
  Result<RankResults> results(int rank, int call, int num_tokens, bool with_rows);
  // The first failure of a rank.
  Status failure(int rank) { return ranks_.at(rank).failure(); }
  // What was written beyond the tokens of a call; only the emulator can tell.
  Status check_rest(int rank, int call, int num_tokens) const;
  DispatchCombine& rank(int rank) { return ranks_.at(rank); }
  // If the case counts: ends the iteration and takes its statistics.
  Status take_loads(int rank);
  Result<RankLoads> loads(int rank) { return statistics_.at(rank).read(rank, taken_.at(rank)); }

 private:
  struct Buffers {
    int32_t* num_tokens;
    int32_t* slots;
    int32_t* experts;
    float* weights;
    std::byte* rows;
    float* shared;
    std::byte* out;
  };

  ExchangeOnDevices(Devices& devices, const ExchangeCase& c) : devices_(devices), case_(c) {}
  Status allocate_buffers(int rank);
  Status add_statistics(int rank);

  size_t out_stride() const { return (static_cast<size_t>(case_.hidden) * 2 + 15) / 16 * 16; }

  Devices& devices_;
  ExchangeCase case_;
  const Buffers& buffers(int rank, int call) const {
    return buffers_.at(rank)[static_cast<size_t>(call)];
  }
  std::map<int, DispatchCombine> ranks_;         // by rank, as all below
  std::map<int, std::vector<Buffers>> buffers_;  // [num_calls]
  std::map<int, int32_t*> slot_experts_;
  std::map<int, std::byte*> matrices_;  // [all rows that may come] rows, then results
  std::map<int, LoadStatistics> statistics_;
  std::map<int, LoadStatistics::Taken> taken_;
  size_t matrix_stride() const;
  size_t matrix_bytes() const;  // of the rows
};

// Compares what a rank has in the end with what the CPU path has.
Status compare_rank(ExchangeOnDevices& exchange, const ExchangeCase& c, int rank,
                    const std::vector<CallResults>& expected);

// Plays the case and compares. Errors: what kernels did wrong (failed), or the first difference. If
// a rank dies: the results of the calls before, and that all others have an error, one of them with
// its name.
Status play(Devices& devices, const ExchangeCase& c);

}  // namespace wideep::cuda
