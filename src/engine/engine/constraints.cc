// SPDX-License-Identifier: Apache-2.0
#include "engine/constraints.h"

#include <algorithm>

namespace wideep::engine {

void Constraints::expect(const std::string& grammar) {
  {
    const std::lock_guard lock(mutex_);
    if (known_.contains(grammar)) return;
  }
  find(grammar);
  preparation_.add([this, grammar] {
    grammar::prepare_masks(grammar::Grammar::decode(grammar), vocabulary_, parts_,
                           [this] { return !ends_; });
  });
}

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
  size_t bytes = 0;
  for (auto& [grammar, each] : known_) {
    each.constraint->begin_step();
    bytes += each.constraint->bytes();
  }
  while (known_.size() > kMaxKnown || bytes > kMaxBytes) {
    auto oldest = known_.end();
    for (auto each = known_.begin(); each != known_.end(); ++each) {
      if (each->second.constraint.use_count() > 1) continue;  // a request follows it
      const bool is_older =
          oldest == known_.end() || each->second.last_found < oldest->second.last_found;
      if (is_older) oldest = each;
    }
    if (oldest == known_.end()) return;
    bytes -= oldest->second.constraint->bytes();
    known_.erase(oldest);
  }
}

}  // namespace wideep::engine
