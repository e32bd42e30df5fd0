// SPDX-License-Identifier: Apache-2.0
//
// One poll over the keeper's notes and all ranks' messages. Messages are read first, and once more
// when a rank's death is noted: what a rank said before it died comes before its death. What the
// front says to its keeper is sent surely, under a lock, because threads of the front share the
// socket.
#include "group/kept_ranks.h"

#include <poll.h>
#include <sys/socket.h>

#include <string>
#include <utility>
#include <vector>

namespace wideep::transport {

std::optional<HeldConnections::Held> HeldConnections::next() {
  if (!before_.empty()) {
    Held held = before_.front();
    before_.pop_front();
    held.was_served = true;
    held.is_suspect = are_suspect_;
    return held;
  }
  Note note;
  std::array<int, 2> fds;
  if (keeper_.receive(&note, false, &fds) != NoteSocket::Got::kNote) return std::nullopt;
  return Held{.id = note.value, .socket = fds[0], .companion = fds[1]};
}

KeptRanks::KeptRanks(std::shared_ptr<SharedMemory> memory, NoteSocket keeper,
                     const std::map<int, Pipes>& pipes, HeldConnections connections,
                     const Past& past)
    : memory_(std::move(memory)),
      keeper_(std::move(keeper)),
      connections_(std::move(connections)),
      past_(past) {
  for (const auto& [rank, each] : pipes) add(rank, each);
}

void KeptRanks::add(int rank, const Pipes& pipes) {
  messages_[rank] = MessageReader(pipes.messages);
  events_.push_back(RankStarted{rank, pipes.commands});
}

std::optional<RankEvent> KeptRanks::next() {
  while (events_.empty() && !over_) {
    std::vector<pollfd> fds = {{keeper_.fd(), POLLIN, 0}};
    for (const auto& [rank, reader] : messages_) {
      if (reader.is_open()) fds.push_back({reader.fd(), POLLIN, 0});
    }
    ::poll(fds.data(), fds.size(), -1);
    // Messages first: those of a rank come before the note of its death.
    for (const auto& [rank, reader] : messages_) read(rank);
    take_notes();
  }
  if (events_.empty()) return std::nullopt;
  std::optional<RankEvent> event = std::move(events_.front());
  events_.pop_front();
  return event;
}

void KeptRanks::read(int rank) {
  messages_[rank].read(
      [&](std::string message) { events_.push_back(RankMessage{rank, std::move(message)}); });
}

void KeptRanks::take_notes() {
  Note note;
  std::array<int, 2> fds;
  for (;;) {
    const NoteSocket::Got got = keeper_.receive(&note, false, &fds);
    if (got == NoteSocket::Got::kNothing) return;
    if (got == NoteSocket::Got::kClosed) {
      over_ = true;
      if (ended_.ok()) ended_ = failed("the process that keeps the ranks has ended");
      return;
    }
    switch (note.kind) {
      case Note::Kind::kRankStarted:
        add(note.rank, {fds[0], fds[1]});
        break;
      case Note::Kind::kRankDied:
        read(note.rank);  // what it had sent before
        // If it was on another node that is silent now, nothing else wakes a blocked writer.
        ::shutdown(messages_[note.rank].fd(), SHUT_RDWR);
        messages_.erase(note.rank);
        events_.push_back(RankDied{.rank = note.rank,
                                   .how = std::string(note.text_view()),
                                   .was_expected = note.value == Note::kExpected,
                                   .is_own_fault = note.value == Note::kOwnFault});
        break;
      case Note::Kind::kStopSignal:
        events_.push_back(StopSignal{static_cast<int>(note.value)});
        break;
      case Note::Kind::kDrain:
        events_.push_back(DrainSignal{});
        break;
      case Note::Kind::kPing:
        events_.push_back(Ping{note.value});
        break;
      case Note::Kind::kFailed:
        ended_ = note.status();
        break;
      case Note::Kind::kEnd:
        for (const auto& [rank, reader] : messages_) read(rank);
        over_ = true;
        return;
      default:
        break;
    }
  }
}

void KeptRanks::end_within(std::chrono::milliseconds grace) {
  const std::lock_guard lock(sending_);
  keeper_.send_surely({.kind = Note::Kind::kEndWithin, .value = grace.count()});
}

void KeptRanks::stop() {
  const std::lock_guard lock(sending_);
  keeper_.send_surely({.kind = Note::Kind::kStop});
}

void KeptRanks::answer(const Ping& ping) {
  const std::lock_guard lock(sending_);
  keeper_.send_surely({.kind = Note::Kind::kAlive, .value = ping.number});
}

Status KeptRanks::drains(bool now) {
  const std::lock_guard lock(sending_);
  if (keeper_.send_surely({.kind = Note::Kind::kDrains, .value = now ? 1 : 0})) return {};
  return failed("the process that keeps the ranks has ended");
}

void KeptRanks::report(std::string_view text, bool serves) {
  Note note{.kind = Note::Kind::kReport, .value = serves ? 1 : 0};
  note.set_text(text);
  const std::lock_guard lock(sending_);
  keeper_.send_surely(note);
}

Status KeptRanks::want(int num_ranks) {
  const std::lock_guard lock(sending_);
  if (keeper_.send_surely({.kind = Note::Kind::kWant, .value = num_ranks})) return {};
  return failed("the process that keeps the ranks has ended");
}

}  // namespace wideep::transport
