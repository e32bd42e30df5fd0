// SPDX-License-Identifier: Apache-2.0
//
// What an engine does for prompts whose pages may be kept beyond its cache: the commands kLook to
// kImport, which all ranks that compute a request apply alike (engine/page_store.h). What they
// change in the cache follows from these commands alone.
//
// Thread safety: none.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
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
  // Where nothing has been computed for kStandstill, because of pages that wait for a peer, ends
  // their fetch, with what it has: the peer may wait for this server's answer. To be called after
  // each schedule().
  void make_way(PageStore* store);
  static constexpr std::chrono::milliseconds kStandstill{1'000};
  // What prefill takes, of an iteration with this many tokens, of which some were of prompts.
  void measure(int prompt_tokens, int all_tokens, double seconds);
  // The front that has asked is gone, and no fetch runs any more (PageStore::end_fetches).
  void drop();

 private:
  struct Look {
    SharedTokens prompt;
    std::string salt;
    std::optional<int> awaits_peer;  // the request's index, if it has a peer
  };
  void fetch(const Command& command, PageStore& store);

  Scheduler& scheduler_;
  std::map<uint64_t, Look> looks_;  // by ticket, until kImport, or kAbandon without a fetch
  double seconds_per_token_ = 0.0;  // of a prompt; 0: not measured yet
  std::optional<std::chrono::steady_clock::time_point> still_since_;  // nullopt: it computes
};

}  // namespace wideep::engine
