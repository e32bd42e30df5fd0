// SPDX-License-Identifier: Apache-2.0
//
// Tables of latencies that others have measured on GPUs: comma-separated values with a header, as
// AIConfigurator publishes them (Apache-2.0). Constants of shipped hardware are fitted to them, and
// predictions are held against them.
//
// Thread safety: one thread per object.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "cost/expert_cost.h"
#include "wideep/status.h"

namespace wideep::measure {

class LatencyTable {
 public:
  // Errors (invalid input): the file cannot be read, or a line has another number of columns.
  static Result<LatencyTable> read(const std::string& path);

  int num_rows() const { return static_cast<int>(rows_.size()); }
  // REQUIRES: the table has the column (and number(): its value is a number).
  const std::string& text(int row, std::string_view column) const;
  double number(int row, std::string_view column) const;
  std::string place(int row) const;  // "table.csv:12"

 private:
  std::string path_;
  std::map<std::string, size_t, std::less<>> columns_;
  std::vector<std::vector<std::string>> rows_;
  std::vector<int> lines_;  // of the rows, from 1
};

// The experts of one layer on the rank with the most work, as the published benchmark of a
// mixture's layer makes them: each expert's number of tokens is drawn from a power law, and the
// experts lie on ranks in their order; or, "…_eplb", the busiest experts have replicas and all are
// packed evenly.
struct PowerLaw {
  double exponent = 1.01;
  bool packed = false;
};
// "power_law_1.01", "power_law_1.2_eplb"; "uniform" is the exponent 0.
PowerLaw parse_power_law(std::string_view distribution);

struct LayerRouting {
  int num_tokens = 0;  // of all ranks
  int top_k = 1;
  int num_experts = 0;
  int num_slots = 0;
  int num_ranks = 1;
};
// The mean over several draws, which are the same each time.
cost::ExpertWork busiest_rank(const LayerRouting& routing, const PowerLaw& law, int tile);

}  // namespace wideep::measure
