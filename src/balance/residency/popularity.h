// SPDX-License-Identifier: Apache-2.0
//
// Which share of the tokens chose each expert, kept beside the packed weights of a model, so that
// the next run knows from its first token on which experts to read. Each rank writes a file of its
// own about its experts; who reads them needs not have as many ranks.
//
//   {"wideep_popularity": 1, "layers": {"3": {"0": 0.125, "7": 0.03125}, ...}}
//
// Thread safety: plain values; functions for one process that writes a file.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "wideep/status.h"

namespace wideep::residency {

struct Popularity {
  // By layer and expert, as numbers of the model: in [0, 1].
  std::map<int, std::map<int, double>> shares;

  bool empty() const { return shares.empty(); }
  // [layers, num_experts]; 0 where nothing is known.
  std::vector<double> of(std::span<const int> layers, int num_experts) const;
};

// "<directory>/rank<rank>.load".
std::string popularity_path(const std::string& directory, int rank);
// Replaces the file as a whole. Errors (failed): it cannot be written.
Status write_popularity(const std::string& path, const Popularity& popularity);

// All such files of the directory; where several know of an expert, the one that was written last:
// an earlier run may have had more ranks. Empty: there is none. wrong: gets a line for each file
// that is no such file, which is passed over.
Popularity read_popularity(const std::string& directory, std::vector<std::string>* wrong);

}  // namespace wideep::residency
