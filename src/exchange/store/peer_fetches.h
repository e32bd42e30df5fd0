// SPDX-License-Identifier: Apache-2.0
//
// Pages of prompts that another server still computes: they are taken as they come, so that little
// is left to send when the last one is computed. Or of those that it has computed before.
//
//   begin ──▶ poll, poll, … ──▶ Done: pages that came, and why no more do
//
// A fetch waits as long as the peer says that it computes the request (PAGES.STATE); how long that
// may be is the caller's to say (abandon). A peer that is gone, that does not know the request, or
// has ended it without these pages, is not waited for. Whatever the end, leading pages that came are
// whole, and the rest can be computed. A peer that computes nothing for the fetch (PagePeer without
// a request) is never waited for: what it has of the next pages comes, up to the first that it has
// not. find() says before how many these are.
//
// A peer that fails is not asked again for a while (outage.h): the fetches from it end. Those that
// have pages wait for kGoneGrace: its front may only be started again. One whose failure takes long,
// as that of a host which does not answer, has failed for all tokens: each would take as long.
//
// A fetch for which nothing comes is asked for less and less often, up to kLongestPause. Where the
// peer's memory is mapped that says whether there is something new, and is looked at instead. While
// its request is still computed nothing hurries: pages are taken some at a time, kCalmPause apart,
// as copying all of a chunk at once would keep the next tokens of answers here waiting. Who has
// kHurryPages or more behind it hurries, and so does what is whole at the peer.
//
// Thread safety: one thread. A poll takes about kPollTime: no longer than a few questions of one
// fetch, or one that fails of each peer (PeerPlace), take beyond it.
#pragma once

#include <chrono>
#include <compare>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "store/outage.h"
#include "store/page_peer.h"
#include "store/peer_place.h"

namespace wideep::store {

class PeerFetches {
 public:
  using Clock = std::chrono::steady_clock;
  // Of a fetch, until others have their turn.
  static constexpr size_t kPagesAtOnce = 32;
  static constexpr uint64_t kBytesAtOnce = uint64_t{16} << 20;
  static constexpr std::chrono::milliseconds kPollTime{50};
  static constexpr std::chrono::milliseconds kFirstPause{2}, kLongestPause{16};
  // Of those that are there an eighth at a time, at least one page.
  static constexpr size_t kHurryPages = 16, kCalmShare = 8;
  static constexpr std::chrono::milliseconds kCalmPause{64};
  // Between two looks at mapped memory, and for kBusyTime after something new; nothing new for
  // kLongestSilence is asked about, though. A look takes 70 µs from who computes tokens meanwhile.
  static constexpr std::chrono::milliseconds kGlancePause{10}, kBusyGlancePause{2}, kBusyTime{30};
  static constexpr std::chrono::milliseconds kLongestSilence{250};
  // After the peer has said kEnded, or kUnknown: what is written behind, or has not arrived.
  static constexpr std::chrono::milliseconds kEndedGrace{500};
  static constexpr std::chrono::milliseconds kUnknownGrace{2'000};
  // What fails meanwhile is tried again after kGonePause.
  static constexpr std::chrono::milliseconds kGoneGrace{2'000};
  static constexpr std::chrono::milliseconds kGonePause{250};
  // A peer that nobody has asked for so long is left. Of more peers, each with a connection, the one
  // that was asked longest ago.
  static constexpr std::chrono::seconds kIdleTime{60};
  static constexpr size_t kMaxPeers = 64;

  explicit PeerFetches(std::string record_class) : record_class_(std::move(record_class)) {}

  struct Order {
    uint64_t ticket = 0;
    PagePeer peer;
    std::vector<FetchOrder> pages;  // in order; memory stays until Done
    std::optional<FetchOrder> state = {};
  };
  void begin(Order order);

  // [heads] which of these the peer has now. It keeps them for a while (PeerOptions::lease). Takes
  // no longer than a question of a poll. Errors (failed, deadline exceeded): it does not answer, or
  // has not before and is left alone at present.
  Result<std::vector<bool>> find(const PagePeer& at, std::span<const Head> heads);

  // kNoMore: of a peer that computes nothing for it.
  enum class End : uint8_t { kWhole, kNoMore, kPeerGone, kPeerEnded, kNotKnown, kAbandoned };
  struct Done {
    uint64_t ticket = 0;
    size_t pages = 0;        // leading ones that came
    bool has_state = false;  // it came, too
    uint64_t bytes = 0;
    double seconds = 0.0;  // since it began
    // Of these, in which bytes came: of questions that were answered to the end.
    double transfer_seconds = 0.0;
    // Of these, since the peer has ended the request, as it says itself when the last page has come;
    // at most since it was last known to compute it. All, where it had ended before, or computes
    // nothing for the fetch. 0: it still computes. To a millisecond.
    double exposed_seconds = 0.0;
    End end = End::kWhole;
    std::string trouble = {};  // of kPeerGone: a line
  };
  // Takes what has come of the fetches that are due, a few pages of each, and returns those that
  // have ended.
  std::vector<Done> poll();
  // When one is due, or a peer is left (kIdleTime); max(): none is there.
  Clock::time_point next_poll() const;
  // Its memory is not touched after this; the next poll returns it. No effect on one that is not
  // known.
  void abandon(uint64_t ticket);
  // All of them, at once: their memory is not touched after this.
  void clear() {
    waiting_.clear();
    ended_.clear();
  }

  size_t size() const { return waiting_.size() + ended_.size(); }
  // Pages of this fetch that have come, while it waits.
  size_t num_pages(uint64_t ticket) const;

 private:
  struct Absence {
    Outage outage = {};
    // While it is out: since when, and when those that wait for it may ask it again.
    Clock::time_point gone_since, retry_at;
    std::string trouble = {};
    Clock::time_point used = Clock::now();
  };
  struct Peer {
    std::unique_ptr<PeerPlace> place;
    Clock::time_point used;
    Absence absence = {};
  };
  struct Waiting {
    Order order;
    Done so_far;
    Clock::time_point begun = Clock::now();
    Clock::time_point computed_until = begun;  // by the peer, as far as is known
    Clock::time_point due = {};
    std::chrono::milliseconds pause = {};       // the last one in a row
    bool is_computed = false;                   // by the peer, when it was asked last
    Clock::time_point take_at = {};             // pages, while it is
    bool leaves_pages = false;                  // for then, or may do so: they are no news
    std::optional<uint64_t> news = {};          // PeerPlace::news() before it was asked last
    Clock::time_point news_at = {};             // when that was another one last
    Clock::time_point asked = {}, ask_at = {};  // last; again where that stays the same
    // The first time in a row that the peer said that no more comes; nullopt: it says otherwise.
    std::optional<Clock::time_point> silent_since = {};
  };
  using PeerKey = std::pair<RedisHost, std::string>;

  Result<Peer*> peer_of(const PagePeer& peer);
  Absence* note_answer(const RedisHost& host, Peer& peer, const Status& answer,
                       Clock::time_point asked);
  static size_t pages_to_take(Waiting& fetch, size_t there);
  Status take(Waiting& fetch, PeerPlace& place, bool& has_come);
  std::optional<End> advance(Waiting& fetch);
  Result<std::optional<End>> ask(Waiting& fetch, PeerPlace& place);
  static std::chrono::milliseconds glance_pause(const Waiting& fetch);
  static bool has_news(const Waiting& fetch, PeerPlace& place);
  static Result<RequestState> ask_state(Waiting& fetch, PeerPlace& place,
                                        std::chrono::milliseconds limit);
  static Status ask_when_ended(Waiting& fetch, PeerPlace& place);
  static bool may_ask(const Absence& absence, const Waiting& fetch);
  static void note_failure(Absence& absence, const Status& failure);
  static std::optional<End> wait_for(const Absence& absence, Waiting& fetch);
  static Done end_of(Waiting fetch, End end);

  std::string record_class_;
  std::map<PeerKey, Peer> peers_;          // at most kMaxPeers
  std::map<RedisHost, Absence> absences_;  // of hosts that have not answered
  std::deque<Waiting> waiting_;            // those that were asked for longest ago first
  std::vector<Done> ended_;                // abandoned ones, until the next poll
};

}  // namespace wideep::store
