// SPDX-License-Identifier: Apache-2.0
//
// poll() reads what there is and takes it apart; wait() and wait_for() sleep between polls. Sleeps
// are short: a stop of the group, a failure and the bridge have no descriptor that would end them.
//
// Commands are counted from the last kMembers mark of the log (mark_), the rank's own from its
// epoch (epoch_). While the two differ, the rank is behind or ahead of the log, and seen() says 0
// instead of a number that others would take for a place in their epoch.
#include "engine/request_feed.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/try.h"

namespace wideep::engine {
namespace {

using std::chrono::milliseconds;

// How often a wait checks whether the group has failed or must stop.
constexpr milliseconds kCheckInterval{100};
// How often it polls the bridge, which has no descriptor that poll(2) could wait for.
constexpr milliseconds kBridgeInterval{2};
// Commands that follow each other within kBurstGap form a burst. kMaxBurst bounds the wait for it,
// so that a steady stream of commands does not delay the first one.
constexpr std::chrono::microseconds kBurstGap{300};
constexpr milliseconds kMaxBurst{3};

bool must_end(const transport::Endpoint& endpoint) {
  const transport::ControlPage& control = endpoint.memory().control();
  return control.stop_requested.load() != 0 || control.change_requested.load() != 0 ||
         !endpoint.memory().failure().ok();
}

}  // namespace

RequestFeed::RequestFeed(int fd, std::optional<int> owner, transport::Bridge* bridge)
    : fd_(fd), owner_(owner), bridge_(bridge) {
  if (fd_ >= 0) ::fcntl(fd_, F_SETFL, ::fcntl(fd_, F_GETFL) | O_NONBLOCK);
}

Status RequestFeed::poll() {
  if (fd_ >= 0) WIDEEP_TRY(read_pipe());
  if (bridge_ == nullptr) return {};
  // The bridge has no thread of its own: this rank must drive it while it waits.
  while (bridge_->progress()) {
  }
  while (const auto message = bridge_->next_command()) {
    add(*message);
  }
  return {};
}

Status RequestFeed::read_pipe() {
  char buffer[16 * 1024];
  for (;;) {
    const ssize_t bytes = ::read(fd_, buffer, sizeof(buffer));
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes < 0 && errno == EAGAIN) break;
    if (bytes <= 0) {
      has_lost_writer_ = true;
      return failed("the process that sends requests has ended");
    }
    inbox_.append(buffer, static_cast<size_t>(bytes));
  }
  parse_inbox();
  return {};
}

// Moves the complete messages of the inbox to commands_. A message is a uint32_t length and that
// many bytes; the last one may still be incomplete.
void RequestFeed::parse_inbox() {
  size_t at = 0;
  for (uint32_t length = 0; inbox_.size() - at >= sizeof(length); at += sizeof(length) + length) {
    std::memcpy(&length, inbox_.data() + at, sizeof(length));
    if (inbox_.size() - at - sizeof(length) < length) break;
    const std::string_view message = std::string_view(inbox_).substr(at + sizeof(length), length);
    add(message);
    if (bridge_ != nullptr) bridge_->command(message);
  }
  inbox_.erase(0, at);
}

void RequestFeed::add(std::string_view message) {
  ++received_;
  Command command = decoder_.decode(message);
  if (command.kind == Command::Kind::kMembers) {
    mark_ = command.epoch;
    seen_ = 0;
    return;
  }
  command.epoch = mark_;
  ++seen_;
  if (!drops_earlier_ || mark_ >= epoch_) commands_.push_back(std::move(command));
}

void RequestFeed::restart(int fd) { *this = RequestFeed(fd, owner_, bridge_); }

void RequestFeed::begin_epoch(uint32_t epoch, bool drops_earlier) {
  if (epoch > 1 && received_ == 0) mark_ = 0;
  epoch_ = epoch;
  taken_ = 0;
  drops_earlier_ = drops_earlier;
  if (!drops_earlier) return;
  std::erase_if(commands_, [&](const Command& each) { return each.epoch < epoch; });
}

// Sleeps until the pipe is readable, `end`, or the next check is due.
void RequestFeed::sleep_until(Clock::time_point end) const {
  const auto left = std::chrono::ceil<milliseconds>(end - Clock::now());
  const milliseconds max = bridge_ == nullptr ? kCheckInterval : kBridgeInterval;
  pollfd ready{fd_, POLLIN, 0};  // poll(2) ignores fd −1: then this is only a pause
  ::poll(&ready, 1, static_cast<int>(std::clamp(left, milliseconds(0), max).count()));
}

Status RequestFeed::wait(const transport::Endpoint& endpoint, milliseconds at_most) {
  const uint64_t before = received_;
  const Clock::time_point end = Clock::now() + at_most;
  WIDEEP_TRY(poll());
  if (received_ != before || at_most.count() == 0) return {};
  while (received_ == before && Clock::now() < end && !must_end(endpoint)) {
    sleep_until(end);
    WIDEEP_TRY(poll());
  }
  return received_ == before ? Status() : receive_burst();
}

// Receives until no command has arrived for kBurstGap. It sleeps instead of waiting on the pipe:
// ranks that wake up for every command would take processor time from the writer of the next one.
Status RequestFeed::receive_burst() {
  const Clock::time_point end = Clock::now() + kMaxBurst;
  for (uint64_t before = 0; received_ != before && Clock::now() < end;) {
    before = received_;
    std::this_thread::sleep_for(kBurstGap);
    WIDEEP_TRY(poll());
  }
  return {};
}

Status RequestFeed::wait_for(uint64_t count, const transport::Endpoint& endpoint) {
  const Clock::time_point end = Clock::now() + endpoint.timeout();
  WIDEEP_TRY(poll());
  while (seen() < count) {
    WIDEEP_TRY(endpoint.memory().failure());
    if (Clock::now() >= end) {
      return deadline_exceeded(fmt::format("rank {} waited {} ms for command {}, received {}",
                                           endpoint.world_rank(), endpoint.timeout().count(), count,
                                           seen()));
    }
    sleep_until(end);
    WIDEEP_TRY(poll());
  }
  return {};
}

bool RequestFeed::has_next(uint64_t agreed, bool alone) const {
  if (commands_.empty()) return false;
  const uint32_t sent_in = commands_.front().epoch;
  if (sent_in != epoch_) return sent_in < epoch_;
  if (taken() < agreed) return true;
  return alone && is_of_a_request(commands_.front().kind);
}

Command RequestFeed::take() {
  WIDEEP_CHECK_GT(commands_.size(), 0u);
  Command command = std::move(commands_.front());
  commands_.pop_front();
  if (command.epoch == epoch_) ++taken_;
  return command;
}

}  // namespace wideep::engine
