// SPDX-License-Identifier: Apache-2.0
//
// The ranks of a keeper (transport/keeper.h), for the process that uses them: the front.
//
// Thread safety: as RunningRanks; want() from any thread.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <mutex>

#include "transport/message_pipe.h"
#include "transport/notes.h"
#include "transport/running_ranks.h"

namespace wideep::transport {

class KeptRanks : public RunningRanks {
 public:
  // Descriptors of a rank's pipes, owned by whoever holds them.
  struct Pipes {
    int commands = -1;  // the end to write
    int messages = -1;  // the end to read
  };

  // pipes: of the ranks that are started already.
  KeptRanks(std::shared_ptr<SharedMemory> memory, NoteSocket keeper,
            const std::map<int, Pipes>& pipes);

  // Beside messages and stop signals: RankStarted, RankDied.
  std::optional<RankEvent> next() override;
  Status result() override { return ended_; }
  SharedMemory& memory() override { return *memory_; }
  void end_within(std::chrono::milliseconds grace) override;

  Status want(int num_ranks) override;

 private:
  void add(int rank, const Pipes& pipes);
  void take_notes();
  void read(int rank);

  std::shared_ptr<SharedMemory> memory_;
  NoteSocket keeper_;
  std::mutex sending_;                     // to the keeper
  std::map<int, MessageReader> messages_;  // by rank
  std::deque<RankEvent> events_;           // not yet returned by next()
  bool over_ = false;                      // no rank runs any more
  Status ended_;
};

}  // namespace wideep::transport
