// SPDX-License-Identifier: Apache-2.0
//
// Reading expert statistics, in three forms:
//
// A directory as TRT records it:
//   meta_info.json          {"num_experts": 256, "num_experts_per_token": 8}; wideep's own keys:
//                           "ep_size"; "num_stages" with pipeline stages; "counts": "expert"
//                           (default) or "slot"; "recorded_iterations" (not read) where a server
//                           could not record some of them
//   rank{r}.safetensors     "{iteration}_{layer}" → int64 [num_experts], one file per rank; with
//                           pipeline stages one per stage and rank, stage by stage
//   rank{r}_raw.safetensors and other files are not read
//
// Counts of slots (TRT's form of them: num_experts is the number of slots) have besides
//   "num_slots"             as num_experts
//   "slot_ranks"            the ranks among which the slots are divided, evenly and in order
//   "borrowed_slots"        the last slots of each rank, for experts whose weights lie elsewhere
//   "num_logical_experts"   the model's experts
// Only who asks for them gets them: to a planner they would be experts that do not exist.
//
// A JSON file {"logical_count": [[tokens of expert 0, 1, ...] per layer of the model]}, or a list
// of these for each step, which are added up: one iteration, one rank. A layer whose counts are all
// zero has no experts and is left out. Integral floats (1024.0) are integers.
//
// A table of counts, one line for each layer of each iteration: see recordings/statistics_csv.h.
//
// Errors (invalid input) name file, tensor or layer, expected and found: rank files that are
// missing or hold different keys, iterations that are not contiguous, an iteration without one of
// the layers, another dtype or shape, negative counts, a sum above 2^53, or no token at all.
//
// What is returned passes check_statistics().
//
// Thread safety: pure functions of the files.
#pragma once

#include <string>
#include <string_view>

#include "recordings/statistics.h"
#include "wideep/status.h"

namespace wideep::recordings {

// Reads the form by `path`: a directory is the first form, a file that ends in .csv the third, any
// other file the second. num_experts: see recordings/statistics_csv.h; 0: as the file says.
// Errors (invalid input) besides: counts of slots, with the folder that has those of experts.
Result<ExpertStatistics> read_statistics(const std::string& path, int num_experts = 0);

// Also counts of slots.
Result<ExpertStatistics> read_statistics_directory(const std::string& directory);
// ok, or the error that read_statistics returns for counts of slots.
Status check_counts_of_experts(const std::string& path, const ExpertStatistics& statistics);
Result<ExpertStatistics> read_logical_count(const std::string& path);
Result<ExpertStatistics> parse_logical_count(std::string_view text, const std::string& name);

}  // namespace wideep::recordings
