// SPDX-License-Identifier: Apache-2.0
//
// Where an engine's pages are kept beyond its cache. What is asked takes as long as it takes, on
// another thread; the front is told (run::PagesFound, run::PagesFetched), and says to all ranks of a
// request alike how it goes on:
//
//   kLook    which pages of a prompt are kept anywhere?        → PagesFound
//   kFetch   the engine lends pages, the store fills them       → PagesFetched, and before it, if a
//            peer computes them meanwhile                        → PagesArriving, many times
//   kAbandon what was asked is not wanted any more              → PagesFetched, if it was a fetch
//   kImport  the engine enters the filled pages into its cache, and takes back the others
//   kSubmit  the request finds them there
//
// Thread safety: the engine's thread calls.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "schedule/page_changes.h"
#include "schedule/request.h"
#include "schedule/role.h"
#include "wideep/status.h"

namespace wideep::engine {

struct PageLook {
  uint64_t ticket = 0;
  SharedTokens prompt;
  std::string salt;
  std::string peer;             // Request::peer
  int known = 0;                // its first pages that the engine's cache has, for all that follows
  std::vector<int32_t> states;  // numbers of first pages after which the cache has the state
};

// The bytes of a prompt's pages first … first + pages.size(), and the state after the last of them.
struct PageFetch {
  uint64_t ticket = 0;  // of a look
  int first = 0;
  std::vector<std::byte*> pages;  // null: it lies on another rank
  std::byte* state = nullptr;     // null: the rank keeps none
};

class PageStore {
 public:
  virtual ~PageStore() = default;

  virtual void look(PageLook look) = 0;
  // The bytes belong to the store until it has said PagesFetched, or end_fetches() has returned.
  virtual void fetch(PageFetch fetch) = 0;
  // There is no room for the pages: PagesFetched says so.
  virtual void refuse(uint64_t ticket) = 0;
  // A fetch ends soon, with what it has: nobody wants it any more, or its pages are in the way of
  // requests (KeptPrompts::make_way). No effect on what is not known.
  virtual void abandon(uint64_t ticket) = 0;
  // May be kept. seconds_per_token: what computing a prompt takes, as measured; 0: not yet.
  virtual void offer(std::vector<KeptBytes> kept, double seconds_per_token) = 0;
  // What is offered from now on is also for the page server of the front's node, unless its ranks
  // have the same. front: store::text_of its PagePeer (store/page_server.h), with the token of those
  // who offer; "": for nobody else. Said again, it is there again.
  virtual void offer_to(std::string front) = 0;
  // What this server prefers to do: whether its tokens, or its pages, are what somebody waits for.
  virtual void prefer(Role role) = 0;
  // Nothing that was asked or offered before is touched, or told, after this. Errors (failed): a
  // place has not answered in time; the cache's memory must stay.
  virtual Status end_fetches(std::chrono::milliseconds at_most) = 0;
};

}  // namespace wideep::engine
