// SPDX-License-Identifier: Apache-2.0
#include "weights/expert_record.h"

#include "base/try.h"

namespace wideep::weights {

Status load_expert(const WeightLoader& loader, const ExpertShape& shape, const std::string& prefix,
                   std::byte* record) {
  WIDEEP_TRY(loader.pack({prefix + ".gate_proj.weight", prefix + ".up_proj.weight"},
                         shape.intermediate, shape.hidden, record));
  return loader.pack({prefix + ".down_proj.weight"}, shape.hidden, shape.intermediate,
                     record + shape.gate_up_bytes());
}

}  // namespace wideep::weights
