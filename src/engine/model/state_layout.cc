// SPDX-License-Identifier: Apache-2.0
#include "model/state_layout.h"

#include "base/check.h"
#include "ep/chunks.h"
#include "model/parts/part_cost.h"

namespace wideep::model {

StateLayout::StateLayout(const ModelConfig& config, parallel::LayerRange layers, StatePart part)
    : first_(layers.first), part_(part), begin_{0} {
  for (int layer = layers.first; layer < layers.last; ++layer) {
    const StateUnits units = mixer_cost(config, layer).units;
    WIDEEP_CHECK_EQ(units.unit_floats, in_cache_lines(units.unit_floats));
    const int64_t floats = int64_t{units.rows} * own(units.units).count * units.unit_floats;
    begin_.push_back(begin_.back() + static_cast<size_t>(floats) * sizeof(float));
  }
}

UnitRange units_of_part(int units, StatePart part) {
  const ep::TokenRange range = ep::chunk_of(units, part.index, part.count);
  return {.first = range.begin, .count = range.size};
}

}  // namespace wideep::model
