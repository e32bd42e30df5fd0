// SPDX-License-Identifier: Apache-2.0
//
// The packed file of a run's weights (packed/packed_file.h): where it is, and writing it where it is
// not, or has not all: prediction layers, or slices of experts.
//
// Thread safety: plain values; functions for one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "model/pack_weights.h"
#include "packed/packed_file.h"
#include "run/run_inputs.h"
#include "wideep/status.h"

namespace wideep::run {

struct PackedPlace {
  std::string directory;     // of the packed file
  std::string record_class;  // what decides the bytes of its parts
};

// In the directory `cache`, named after the model and the class.
PackedPlace packed_place(const std::string& cache, const RunOptions& options,
                         const RunInputs& inputs);

struct PackedBytes {
  uint64_t dense = 0;  // all but the experts
  uint64_t experts = 0;
  uint64_t all() const { return dense + experts; }
};
// Of a packed file with all of this, nearly.
PackedBytes packed_bytes(const model::PackOrder& order);

// Opens the file. nullopt: it is not there, or has not all. Errors: as PackedFile::open.
Result<std::optional<packed::PackedFile>> open_packed(const PackedPlace& place,
                                                      const model::PackOrder& order);

// Writes it, or goes on with it. Errors: as model::pack_weights and PackedWriter::open.
Status write_packed(const PackedPlace& place, const model::PackOrder& order);

}  // namespace wideep::run
