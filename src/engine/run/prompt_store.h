// SPDX-License-Identifier: Apache-2.0
//
// The thread of a rank that looks for pages in the places where prompts are kept, brings them into
// the rank's cache, and offers what the rank has computed to these places.
//
//   engine ──queue──▶ thread ──▶ store::Places (memory of the node, directory, Redis)
//                        ├─────▶ store::PeerFetches, of prompts that a peer computes
//                        ├─────▶ the page server of the front's node, if that is another one
//                        └──▶ PagesFound, PagesArriving, PagesFetched, StoreState to the front
//
// What is asked goes before what is offered to the places, and most of that before what goes to the
// front's node: a slow network keeps nobody waiting for longer than one part of a page takes that
// is on its way there (store::PeerPlace). All queues have a bound: beyond it a look finds what the
// cache has, and the oldest offers are forgotten, which costs only a page that is not kept.
//
// What has come from elsewhere is offered, too: to nearer places, and where other servers look. A
// server that generates takes its time for it, as copies of a long prompt in one go would keep the
// next tokens of answers waiting. On others somebody may wait for it.
//
// A look with a peer finds all pages: the peer computes what places do not have. Its fetch waits for
// them beside all other work, and tells the front that it does. A peer that computes nothing for the
// request (PagePeer without a name) is asked what it has behind what places have: it is one more
// place, of this request.
//
// Thread safety: as engine::PageStore, one thread.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <unordered_map>
#include <variant>
#include <vector>

#include "engine/page_store.h"
#include "group/messenger.h"
#include "run/event.h"
#include "run/page_geometry.h"
#include "store/places.h"

namespace wideep::run {

class PromptStore : public engine::PageStore {
 public:
  static constexpr size_t kMaxAsked = 1024;   // looks and fetches that wait; of a peer as many
  static constexpr size_t kMaxOffers = 8192;  // pages and states that wait; for the front as many
  static constexpr std::chrono::seconds kStatePause{1};
  static constexpr std::chrono::milliseconds kArrivingPause{500};

  static constexpr uint32_t kPagesInRow = 32;
  // Of ranks that have the same bytes of the same requests, each offers every count-th row of
  // kPagesInRow pages: what is read in a row is best written in one.
  struct Share {
    int index = 0;
    int count = 1;

    bool has(uint32_t page) const { return static_cast<int>(page / kPagesInRow) % count == index; }
  };
  struct Parts {
    int rank = 0;
    bool keeps_states = false;  // the model, on whichever rank
    PageGeometry geometry;
    store::Places places;
    std::vector<int> processors;  // that the thread may run on; empty: those of the caller
    Share of_pages = {}, of_states = {};
    // The front is on another node, whose ranks do not have the same.
    bool sends_pages = false, sends_states = false;
  };
  // messenger: outlives the store.
  PromptStore(Parts parts, const transport::Messenger& messenger);
  // What is still offered is forgotten; what does not answer is left behind.
  ~PromptStore() override;
  PromptStore(const PromptStore&) = delete;
  PromptStore& operator=(const PromptStore&) = delete;

  void look(engine::PageLook look) override;
  void fetch(engine::PageFetch fetch) override;
  void refuse(uint64_t ticket) override;
  void abandon(uint64_t ticket) override;
  void offer(std::vector<engine::KeptBytes> kept, double seconds_per_token) override;
  void offer_to(std::string front) override;
  void prefer(engine::Role role) override;
  Status end_fetches(std::chrono::milliseconds at_most) override;

  // Waits until all that was offered to the places is kept or refused, at most so long. Returns how
  // many were not reached.
  size_t flush(std::chrono::milliseconds at_most);

 private:
  class Worker;
  std::shared_ptr<Worker> worker_;  // the thread's, too: it may outlive this if a place hangs
  std::thread thread_;
};

}  // namespace wideep::run
