// SPDX-License-Identifier: Apache-2.0
//
// Records expert statistics in the directory form of statistics_reader.h.
//
// Before the first iteration one process calls prepare_statistics_directory. Then every rank has
// its own StatisticsWriter, adds each MoE layer's counts of the recorded iterations, and writes
// once at the end. Each writer can write meta_info.json, the same for all; beside TRT's keys it has
// the number of ranks, and whether counts are of experts or of slots. Who has the writers of all
// ranks writes it last: where it is, all files are.
// Counts of slots lie in the folder kSlotsFolder of those of experts.
//
// Thread safety: one thread per writer.
//
//   StatisticsWriter writer("expert_statistic", rank,
//                           {.num_experts = 256, .top_k = 8, .ep_size = 32});
//   writer.add(iteration, layer, tokens_per_expert);
//   WIDEEP_TRY(writer.write());
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "formats/new_directories.h"
#include "recordings/statistics.h"
#include "wideep/status.h"

namespace wideep::recordings {

inline constexpr std::string_view kSlotsFolder = "slots";

// Creates the directory (and its parents) and checks that it holds no statistics, nor its folder of
// slots: a reader would also count files of an earlier run with more ranks. What stays empty is
// removed with the result.
// Errors (invalid input): it holds statistics, or cannot be created or written.
Result<formats::NewDirectories> prepare_statistics_directory(const std::string& directory);

struct StatisticsShape {
  int num_experts = 0;  // E; of counts of slots their number, as in ExpertStatistics
  int top_k = 0;        // num_experts_per_token
  int ep_size = 0;      // R, the ranks that record; 0: left out of meta_info.json, as TRT does
  // Pipeline stages that have MoE layers. Each has R files, in order: rank r of the i-th is file
  // i · R + r and holds the layers of its stage.
  int num_stages = 1;
  std::optional<SlotLayout> slots = {};  // nullopt: counts are of experts
  // "140-145,150": the engine's numbers of the iterations, where they are written under others.
  std::string recorded_iterations = {};
};

class StatisticsWriter {
 public:
  StatisticsWriter(std::string directory, int rank, StatisticsShape shape);

  // Adds this rank's tokens per expert, [E]. Several calls for one iteration and layer are summed.
  void add(int iteration, int layer, std::span<const int64_t> tokens_per_expert);

  // Writes the files of this rank, each completely or not at all, and the directory if it is not
  // there. Errors (failed): disk full or not writable; (invalid input): nothing was added.
  Status write() const;
  // The two parts of it: this rank's counts, and what is the same for all ranks.
  Status write_counts() const;
  Status write_meta_info() const;

 private:
  std::string directory_;
  int rank_;
  StatisticsShape shape_;
  std::map<std::pair<int, int>, std::vector<int64_t>> counts_;  // by iteration, layer; each [E]
};

}  // namespace wideep::recordings
