// SPDX-License-Identifier: Apache-2.0
//
// What the log of a run consists of (engine/request_feed.h): commands, and their bytes.
//
//   CommandEncoder ──MessagePipe, in order──▶ CommandDecoder of every rank
//
// A submit does not repeat the prompt, or the grammar, of the submit or look before it in the same
// epoch. A
// rank that joins has read nothing from before its epoch, and one that stays has: both begin every
// epoch knowing nothing (kMembers), so that all read the same.
//
// Thread safety: none; one encoder for a log, one decoder for each reader of it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "schedule/request.h"
#include "schedule/role.h"

namespace wideep::engine {

struct Command {
  enum class Kind : uint8_t {
    kSubmit,
    kCancel,
    kHold,            // requests submitted after this wait …
    kRelease,         // … until this: they begin in the same iteration on all ranks
    kReportWhenIdle,  // later events are buffered until no rank has work
    kRecordExperts,   // iteration records have expert counts from the next iteration on
    kEndRecord,
    kFinish,   // no more requests: the run ends when all are answered
    kStop,     // stop after the current iteration; wakes ranks that sleep, reaches other nodes
    kMembers,  // an epoch begins: later commands are for its members
    // Of a prompt whose pages may be kept somewhere (engine/page_store.h), before its kSubmit:
    kLook,
    kFetch,
    kAbandon,
    kImport,
    kRole,   // what the server prefers from the next iteration on
    kOffers  // where ranks of other nodes offer what they compute (PageStore::offer_to)
  };
  Kind kind = Kind::kSubmit;
  int owner = 0;  // kSubmit: the rank that computes it, if ranks have requests of their own
  // kSubmit; kCancel: only request.index; kRecordExperts, kEndRecord: as index the number of the
  // call, which repeats keep; kOffers: only request.peer.
  Request request;
  uint32_t epoch = 1;  // kMembers: that begins; of others: in which it was sent
  // kLook, kFetch, kAbandon, kImport.
  uint64_t ticket = 0;      // of the look; of one run, never the same twice
  int32_t num_pages = 0;    // kFetch, kImport: so many first pages of the prompt; kImport: 0: none
  Role role = Role::kBoth;  // kRole; its number is request.index, as of kRecordExperts
};

// Only the ranks that compute the request need it: a rank that computes alone needs no agreement.
inline bool is_of_a_request(Command::Kind kind) {
  using Kind = Command::Kind;
  return kind == Kind::kSubmit || kind == Kind::kCancel || kind == Kind::kLook ||
         kind == Kind::kFetch || kind == Kind::kAbandon || kind == Kind::kImport;
}

// What the last submit of the epoch had, as both ends know it.
struct LastSubmit {
  SharedTokens prompt;
  SharedGrammar grammar;
  SharedRules rules;
};

class CommandEncoder {
 public:
  // The bytes of the next message of the log.
  std::string encode(const Command& command);

 private:
  LastSubmit last_;
};

class CommandDecoder {
 public:
  // REQUIRES: all messages of an encoder from the beginning of an epoch on, in order.
  Command decode(std::string_view message);

 private:
  LastSubmit last_;
};

}  // namespace wideep::engine
