// SPDX-License-Identifier: Apache-2.0
//
// No call waits but for the next batch. A reader whose queue is full misses messages, which ZeroMQ
// drops for it alone; it sees the gap, and asks for a replay.
#include "kv_events/zmq_publisher.h"

#include <chrono>
#include <utility>

#include "base/log.h"

namespace wideep::kv_events {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kPause{100};    // between looks for requests of replays, and at the end
constexpr milliseconds kRetry{1'000};  // of an endpoint that cannot be had
constexpr int64_t kMaxReceivedBytes = 1024;  // a subscription's topic; a peer's name; a number
constexpr size_t kPagesAtOnce = 4096;        // of batches between two looks
constexpr int kReplaysAtOnce = 4;

}  // namespace

ZmqPublisher::ZmqPublisher(const ZmqLibrary& library, EventLog& log, EventsConfig config)
    : library_(library),
      log_(log),
      config_(std::move(config)),
      events_{.endpoint = config_.endpoint, .connects = config_.connects()},
      replays_{.endpoint = config_.replay_endpoint},
      published_(log.origin()),
      thread_([this] { run(); }) {}

ZmqPublisher::~ZmqPublisher() {
  ends_ = true;
  thread_.join();
}

void ZmqPublisher::run() {
  auto next_try = steady_clock::now();
  while (!ends_) {
    if (steady_clock::now() >= next_try) {
      open(&events_, ZmqLibrary::kPub);
      if (!replays_.endpoint.empty()) open(&replays_, ZmqLibrary::kRouter);
      next_try = steady_clock::now() + kRetry;
    }
    if (replays_.socket != nullptr) answer_replays();
    if (events_.socket == nullptr) {
      std::this_thread::sleep_for(kPause);
      continue;
    }
    log_.wait(published_, kPause);
    publish_next();
  }
}

void ZmqPublisher::open(Place* place, int type) {
  if (place->socket != nullptr) return;
  auto socket = std::make_unique<ZmqSocket>(library_, type, kMaxReceivedBytes);
  // A whole replay, with its end, has room for one peer, also if ZeroMQ still counts half of what it
  // may hold as unread after an earlier one.
  const int most =
      type == ZmqLibrary::kPub ? config_.hwm : 2 * (static_cast<int>(config_.buffer_steps) + 1);
  if (place->endpoint.find("::") != std::string::npos) socket->set(ZmqLibrary::kIpv6, 1);
  const bool is_open =
      socket->set(ZmqLibrary::kSendHighWaterMark, most) &&
      (place->connects ? socket->connect(place->endpoint) : socket->bind(place->endpoint));
  if (is_open) {
    if (place->has_complained) log::info("KV events: {} is there now", place->endpoint);
    place->socket = std::move(socket);
  } else if (!std::exchange(place->has_complained, true)) {
    log::warn("KV events: {} cannot be used: {}; it is tried again every second, serving goes on",
              place->endpoint, socket->text());
  }
}

void ZmqPublisher::publish_next() {
  const uint64_t behind = log_.last() - published_;
  if (behind <= config_.max_queue_size) {
    if (const auto next = log_.after(published_, kPagesAtOnce)) return publish(*next);
  }
  if (!std::exchange(has_said_behind_, true)) {
    log::warn(
        "KV events: {} batches came faster than they could be published; readers are told "
        "all pages anew, now and whenever that happens again",
        behind);
  }
  publish(log_.restate());
}

void ZmqPublisher::publish(const std::vector<SharedBatch>& batches) {
  for (const SharedBatch& each : batches) {
    if (ends_) return;
    if (events_.socket->send(config_.topic, true) &&
        events_.socket->send(sequence_bytes(each->sequence), true)) {
      events_.socket->send(payload_of(*each, config_.form), false);
    }
    published_ = each->sequence;
  }
}

// [peer, "", number], as a socket of type REQ or one of type DEALER with an empty part sends it.
void ZmqPublisher::answer_replays() {
  for (int i = 0; i < kReplaysAtOnce && !ends_; ++i) {
    std::vector<std::string> parts(1);
    if (!replays_.socket->receive(&parts[0])) return;
    bool is_short = true;
    while (replays_.socket->has_more()) {
      std::string part;
      if (!replays_.socket->receive(&part)) return;
      is_short = parts.size() < 3;
      if (is_short) parts.push_back(std::move(part));
    }
    if (is_short && parts.size() == 3 && parts[2].size() == 8) replay(parts[0], parts[2]);
  }
}

// Replies have a topic, as vLLM's do since 0.26; those to readers of arrays have none, as before.
void ZmqPublisher::replay(const std::string& peer, const std::string& first) {
  uint64_t sequence = 0;
  for (const char each : first) sequence = sequence << 8 | static_cast<unsigned char>(each);
  const bool has_topic = config_.form == EventForm::kMap;
  const auto send = [&](const std::string& topic, const std::string& number,
                        const std::string& payload) {
    ZmqSocket& socket = *replays_.socket;
    return socket.send(peer, true) && socket.send("", true) &&
           (!has_topic || socket.send(topic, true)) && socket.send(number, true) &&
           socket.send(payload, false);
  };
  for (const SharedBatch& each : log_.since(sequence)) {
    if (ends_) return;
    const std::string number = sequence_bytes(each->sequence);
    if (!send(config_.topic, number, payload_of(*each, config_.form))) return;
  }
  send("", std::string(8, '\xff'), "");
}

}  // namespace wideep::kv_events
