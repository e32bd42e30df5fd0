// SPDX-License-Identifier: Apache-2.0
//
// The grammars that requests of a rank follow, by their bytes: requests with the same grammar share
// what was found out about it.
//
// A token that the grammar does not allow is never sampled; nothing else about a request changes.
// What is allowed follows from the grammar and the tokens before, so that drafts, ranks that sample
// alike, and a rank that goes on with a request of another one all find the same.
//
// Thread safety: any thread, but for begin_step() and expect().
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "base/work_thread.h"
#include "grammar/constraint.h"
#include "grammar/token_masks.h"
#include "grammar/vocabulary.h"

namespace wideep::engine {

class Constraints {
 public:
  // vocabulary: of the model; outlives this.
  explicit Constraints(const grammar::Vocabulary& vocabulary) : vocabulary_(vocabulary) {}
  ~Constraints() { ends_ = true; }

  // Of a request that will be answered: what may follow is found out beside the first steps, so
  // that its answer need not wait for it. By one thread.
  void expect(const std::string& grammar);

  // grammar: Request::grammar. What is returned must not outlive this.
  std::shared_ptr<grammar::Constraint> find(const std::string& grammar);

  // Forgets grammars that no request follows if there are many, or they are large, those first that
  // have not been used for long. REQUIRES: no other call at the same time.
  void begin_step();

 private:
  static constexpr size_t kMaxKnown = 64;
  static constexpr size_t kMaxBytes = size_t{128} << 20;
  struct Known {
    std::shared_ptr<grammar::Constraint> constraint;
    uint64_t last_found = 0;
  };
  const grammar::Vocabulary& vocabulary_;
  grammar::PartMasks parts_;
  std::mutex mutex_;
  std::map<std::string, Known> known_;  // by the grammar's bytes
  uint64_t num_found_ = 0;
  std::atomic<bool> ends_ = false;
  base::WorkThread preparation_;  // last: it uses the members above
};

}  // namespace wideep::engine
