// SPDX-License-Identifier: Apache-2.0
//
// Which bytes of a wanted part other parts have, so that enough of them are put together.
//
// Thread safety: a plain value.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "store/record.h"

namespace wideep::store {

class Coverage {
 public:
  explicit Coverage(const Part& wanted) : wanted_(wanted) {}

  // Returns the number of bytes that no part before had.
  uint64_t add(const Part& part);
  bool is_whole() const { return covered_ == wanted_.bytes(); }

 private:
  Part wanted_;
  std::vector<std::pair<uint64_t, uint64_t>> ranges_;  // of the wanted payload: apart, in order
  uint64_t covered_ = 0;
};

}  // namespace wideep::store
