// SPDX-License-Identifier: Apache-2.0
//
// Pages of the cache, and slots of states, that somebody else fills: with what was computed before
// and is kept elsewhere (engine/page_store.h).
//
//   lend()     the known pages of a prompt are held, those that follow are taken
//   import()   those that were filled are known from now on; all are given back
//
// What is lent counts as used, so running requests must not want it: the scheduler says what they
// may still claim. A lent page has a content only when it is imported. Meanwhile a request may have
// computed the same: then its page stays the known one.
//
// A long loan waits for what another server computes, which may wait for this one in turn. So at
// most half of all pages and slots is lent for long: a request that needs no more than the other
// half begins as soon as the running ones have ended, whatever other servers do. A larger prompt is
// lent for only where nothing else is, and nobody waits.
//
// Ranks that share sequences lend and import the same, in the same order.
//
// Not thread safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "schedule/request.h"
#include "schedule/sequence_pages.h"

namespace wideep::engine {

class LentPages {
 public:
  // num_ranks: that share sequences. pages: outlives this object.
  LentPages(SequencePages& pages, int num_ranks) : pages_(pages), num_ranks_(num_ranks) {}

  // The bytes of a prompt's pages first … first + pages.size(), and the state after the last one.
  struct Lent {
    int first = 0;                  // as many were known
    std::vector<std::byte*> pages;  // null: it lies on another rank
    std::byte* state = nullptr;     // null: the rank keeps none
  };

  // The pages of the prompt up to num_pages, of a sequence that has its tokens and first_rank, and
  // the state there. There may be none to fill but the state.
  // nullopt: there is no room, or all of it is known. REQUIRES: !has(ticket).
  struct Terms {
    std::vector<int> claimed;   // [ranks] available pages that must stay so
    int states_wanted = 0;      // slots likewise, if the model keeps states
    bool is_long = false;       // see above
    bool nobody_waits = false;  // for pages or slots
  };
  std::optional<Lent> lend(uint64_t ticket, Sequence prompt, int num_pages, const Terms& terms);
  bool has(uint64_t ticket) const { return lent_.contains(ticket); }
  // The first num_pages pages of the prompt are filled, and, if these are all that were lent, the
  // state. Ends the loan. No effect if there is none.
  void import(uint64_t ticket, int num_pages);
  // Ends all loans: nothing was filled.
  void take_back();

  // The first rank of one whose first page the sequence can share; nullopt: there is none.
  std::optional<int> first_rank(const Sequence& sequence) const;
  // Slots that running sequences cannot have.
  int num_states() const;
  // The ticket of the last long one; nullopt: there is none.
  std::optional<uint64_t> last_long() const;

 private:
  struct Loan {
    Sequence prompt;         // computed are the pages that were known
    std::vector<int> taken;  // [ranks] pages that were available before
    bool is_long = false;
  };
  int long_pages(int rank) const;
  int num_long() const;

  SequencePages& pages_;
  int num_ranks_;
  std::map<uint64_t, Loan> lent_;  // by ticket
};

}  // namespace wideep::engine
