// SPDX-License-Identifier: Apache-2.0
#include "engine/constraints.h"

#include <algorithm>

namespace wideep::engine {

std::shared_ptr<grammar::Constraint> Constraints::find(const std::string& grammar) {
  const std::lock_guard lock(mutex_);
  Known& known = known_[grammar];
  known.last_found = ++num_found_;
  if (known.constraint == nullptr) {
    known.constraint = std::make_shared<grammar::Constraint>(grammar::Grammar::decode(grammar),
                                                             vocabulary_, parts_);
  }
  return known.constraint;
}

void Constraints::begin_step() {
  for (auto& [bytes, each] : known_) each.constraint->begin_step();
  if (known_.size() <= kMostUnused) return;
  auto oldest = known_.end();
  for (auto each = known_.begin(); each != known_.end(); ++each) {
    if (each->second.constraint.use_count() > 1) continue;  // a request follows it
    if (oldest == known_.end() || each->second.last_found < oldest->second.last_found) {
      oldest = each;
    }
  }
  if (oldest != known_.end()) known_.erase(oldest);
}

}  // namespace wideep::engine
