// SPDX-License-Identifier: Apache-2.0
//
// What an engine does for prompts whose pages may be kept beyond its cache: the commands kLook to
// kImport, which all ranks that compute a request apply alike (engine/page_store.h). What they
// change in the cache follows from these commands alone.
//
// Thread safety: none.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "engine/command.h"
#include "engine/page_store.h"
#include "engine/reporter.h"
#include "schedule/scheduler.h"

namespace wideep::engine {

class KeptPrompts {
 public:
  // Outlives changes of the members: of EngineState.
  explicit KeptPrompts(Scheduler& scheduler) : scheduler_(scheduler) {}

  // store: null where the rank has none: then looks find nothing.
  void apply(const Command& command, PageStore* store);
  // What the last steps have made known: to the store and, if it tells pages, to the reporter. To be
  // called after each schedule().
  Status pass_on_news(PageStore* store, Reporter* teller);
  // What prefill takes, of an iteration with this many tokens, of which some were of prompts.
  void measure(int prompt_tokens, int all_tokens, double seconds);
  // The front that has asked is gone, and no fetch runs any more (PageStore::end_fetches).
  void drop();

 private:
  struct Look {
    SharedTokens prompt;
    std::string salt;
  };
  void fetch(const Command& command, PageStore& store);

  Scheduler& scheduler_;
  std::map<uint64_t, Look> looks_;  // by ticket, until kImport, or kAbandon without a fetch
  double seconds_per_token_ = 0.0;  // of a prompt; 0: not measured yet
};

}  // namespace wideep::engine
