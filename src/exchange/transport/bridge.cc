// SPDX-License-Identifier: Apache-2.0
//
// A message is a Header and a body. The receiver switches on its kind:
//
//   kRaise, kWrite, kCopy      the proxy applies them to its node's memory
//   kParcel, kNotice, kReport  passed to the handler that is set for them
//   kCommand                   queued for next_command
//   kFailure                   fails the group on the receiver's node
//   kDone                      the sender sends nothing more
//
// Headers are sent as they lie in memory: all nodes run the same program on the same architecture.
//
// What comes from the network is checked before it is used: ranks, counts, offsets and blocks, each
// against this node's memory. A message that does not fit fails the group (refuse_message).
#include "transport/bridge.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <thread>
#include <type_traits>

#include "base/check.h"
#include "transport/flag.h"

namespace wideep::transport {
namespace {

enum class Kind : uint32_t {
  kRaise,
  kWrite,
  kCopy,
  kParcel,
  kFailure,
  kReport,
  kCommand,
  kNotice,
  kDone
};

using Clock = std::chrono::steady_clock;
// Between polls of a rank that only waits for the end, which nothing is urgent for.
constexpr std::chrono::microseconds kPollPause{50};
// Longer messages set out at once, while the rank goes on to what its next flag says.
constexpr size_t kMaxHeldBytes = size_t{16} << 10;
constexpr auto kNumGroups = static_cast<uint32_t>(Group::kCount);
constexpr auto kNumChannels = static_cast<uint32_t>(Channel::kCount);

}  // namespace

// The first bytes of every message.
struct Bridge::Header {
  Kind kind = Kind::kDone;
  Group group = Group::kWorld;        // kRaise
  Channel channel = Channel::kAgree;  // kRaise
  uint32_t value = 0;      // kRaise: of the flag; kCopy: the owner's rank; kFailure: StatusCode
  uint64_t offset = 0;     // kWrite: into each peer's segment
  uint64_t num_peers = 0;  // kRaise, kWrite: number of peers; kCopy: number of blocks
};

namespace {

// The word of a flag for one reader.
struct PeerWord {
  int32_t peer;
  uint32_t word;
};

// Takes `count` values from the front of the bytes. nullopt: there are fewer.
template <typename T>
std::optional<std::vector<T>> take_values(std::span<const std::byte>* bytes, uint64_t count) {
  if (count > bytes->size() / sizeof(T)) return std::nullopt;
  std::vector<T> values(count);
  const size_t size = values.size() * sizeof(T);
  if (size > 0) std::memcpy(values.data(), bytes->data(), size);
  *bytes = bytes->subspan(size);
  return values;
}

// Another node's error. A code that there is not counts as kFailed.
Status failure_of(uint32_t code, std::string_view text) {
  const bool is_known = code > 0 && code <= static_cast<uint32_t>(StatusCode::kInterrupted);
  return {is_known ? static_cast<StatusCode>(code) : StatusCode::kFailed, std::string(text)};
}

// Whether the block ends within a segment of so many bytes.
bool fits(const Bridge::Block& block, size_t segment_bytes) {
  if (block.width == 0 || block.rows == 0) return true;
  size_t last_row = 0, end = 0;
  return !__builtin_mul_overflow(block.rows - 1, block.stride, &last_row) &&
         !__builtin_add_overflow(last_row, block.offset, &end) &&
         !__builtin_add_overflow(end, block.width, &end) && end <= segment_bytes;
}

template <typename T>
void append(Bytes& bytes, const T& value) {
  const size_t begin = bytes.size();
  bytes.resize(begin + sizeof(value));
  std::memcpy(bytes.data() + begin, &value, sizeof(value));
}

void append_text(Bytes& bytes, std::string_view text) {
  const auto* first = reinterpret_cast<const std::byte*>(text.data());
  bytes.insert(bytes.end(), first, first + text.size());
}

}  // namespace

Parcel::Parcel(size_t expected_bytes) {
  bytes_.reserve(kHeaderBytes + expected_bytes);
  bytes_.resize(kHeaderBytes);
}

Bridge::Bridge(std::shared_ptr<SharedMemory> memory, Link& link, NodeMap nodes, int rank)
    : memory_(std::move(memory)),
      link_(link),
      nodes_(std::move(nodes)),
      rank_(rank),
      is_done_(static_cast<size_t>(nodes_.num_ranks()), false) {
  static_assert(sizeof(Header) == Parcel::kHeaderBytes);
  // No byte of this process's memory that is no part of the message leaves with it.
  static_assert(std::has_unique_object_representations_v<Header>);
  WIDEEP_CHECK_EQ(memory_->num_ranks(), nodes_.num_ranks());
}

std::vector<int> Bridge::peers_on(int node, std::span<const int> peers) const {
  std::vector<int> found;
  std::copy_if(peers.begin(), peers.end(), std::back_inserter(found),
               [&](int peer) { return nodes_.node_of(peer) == node; });
  return found;
}

void Bridge::send_to_proxy(int node, Bytes message, Traffic traffic) {
  sent_[static_cast<size_t>(traffic)] += message.size();
  link_.send(nodes_.proxy(rank_, node), std::move(message));
}

// For what no one reads before a flag that is raised later. Each packet costs both nodes a system
// call and more: over TCP, few rows and their flag are one, and few results and theirs.
void Bridge::send_before_flag(int node, Bytes message, Traffic traffic) {
  if (message.size() > kMaxHeldBytes) return send_to_proxy(node, std::move(message), traffic);
  sent_[static_cast<size_t>(traffic)] += message.size();
  link_.send_with_next(nodes_.proxy(rank_, node), std::move(message));
}

// Message: header, agreed words (kAgree only), then each peer's rank and the word for it. Flag and
// words are in one message, so the proxy can write the words first and then raise the flag.
void Bridge::raise(const FlagRaise& flag, std::span<const int> peers) {
  for (int there = 0; there < nodes_.num_nodes(); ++there) {
    if (there == node()) continue;
    const std::vector<int> ranks = peers_on(there, peers);
    if (ranks.empty()) continue;
    Bytes message;
    append(message, Header{.kind = Kind::kRaise,
                           .group = flag.kind,
                           .channel = flag.channel,
                           .value = flag.value,
                           .num_peers = ranks.size()});
    if (flag.channel == Channel::kAgree) {
      append(message, memory_->agreed_words(flag.kind, rank_, flag.value));
    }
    for (const int peer : ranks) {
      append(message, peer);
      append(message, memory_->word(flag.kind, flag.channel, rank_, peer, flag.value));
    }
    send_to_proxy(there, std::move(message), Traffic::kOther);
  }
}

bool Bridge::is_here(int rank) const {
  return rank >= 0 && rank < nodes_.num_ranks() && is_on_this_node(rank);
}

bool Bridge::is_elsewhere(int rank) const {
  return rank >= 0 && rank < nodes_.num_ranks() && !is_on_this_node(rank) &&
         nodes_.node_of(rank) != NodeMap::kAbsent;
}

// Words before the flag: readers on this node take the flag as proof that the words are there.
bool Bridge::handle_raise(int from, const Header& header, std::span<const std::byte> body) {
  if (!is_elsewhere(from) || static_cast<uint32_t>(header.group) >= kNumGroups ||
      static_cast<uint32_t>(header.channel) >= kNumChannels) {
    return false;
  }
  std::optional<std::vector<AgreedWords>> agreed;
  if (header.channel == Channel::kAgree && !(agreed = take_values<AgreedWords>(&body, 1))) {
    return false;
  }
  const auto words = take_values<PeerWord>(&body, header.num_peers);
  if (!words || !body.empty() ||
      !std::ranges::all_of(*words, [&](const PeerWord& each) { return is_here(each.peer); })) {
    return false;
  }
  if (agreed) memory_->agreed_words(header.group, from, header.value) = agreed->front();
  for (const PeerWord& each : *words) {
    memory_->word(header.group, header.channel, from, each.peer, header.value) = each.word;
  }
  raise_flag(memory_->flag(header.group, header.channel, from), header.value);
  return true;
}

// Message: header, the peers' ranks, the bytes. The bytes cross to a node once for all peers there.
void Bridge::write(size_t offset, std::span<const std::byte> bytes, std::span<const int> peers) {
  for (int there = 0; there < nodes_.num_nodes(); ++there) {
    if (there == node()) continue;
    const std::vector<int> ranks = peers_on(there, peers);
    if (ranks.empty()) continue;
    Bytes message;
    message.reserve(sizeof(Header) + ranks.size() * sizeof(int) + bytes.size());
    append(message, Header{.kind = Kind::kWrite, .offset = offset, .num_peers = ranks.size()});
    for (const int peer : ranks) append(message, peer);
    message.insert(message.end(), bytes.begin(), bytes.end());
    send_before_flag(there, std::move(message), Traffic::kOther);
  }
}

bool Bridge::handle_write(int from, const Header& header, std::span<const std::byte> body) {
  const auto peers = take_values<int32_t>(&body, header.num_peers);
  const size_t room = memory_->segment_bytes();
  if (!is_elsewhere(from) || !peers || header.offset > room || body.size() > room - header.offset ||
      !std::ranges::all_of(*peers, [&](int32_t peer) { return is_here(peer); })) {
    return false;
  }
  for (const int32_t peer : *peers) {
    std::copy(body.begin(), body.end(), memory_->segment(peer) + header.offset);
  }
  return true;
}

// Message: header, the blocks, their bytes. It is the same for all nodes, so it is built once.
void Bridge::copy(int owner, std::span<const Block> blocks, std::span<const int> peers) {
  Bytes message;
  for (int there = 0; there < nodes_.num_nodes(); ++there) {
    if (there == node() || peers_on(there, peers).empty()) continue;
    if (message.empty()) message = copy_message(owner, blocks);
    send_before_flag(there, message, Traffic::kOther);
  }
}

Bytes Bridge::copy_message(int owner, std::span<const Block> blocks) const {
  Bytes message;
  size_t bytes = sizeof(Header) + blocks.size_bytes();
  for (const Block& block : blocks) bytes += block.width * block.rows;
  message.reserve(bytes);
  append(message, Header{.kind = Kind::kCopy,
                         .value = static_cast<uint32_t>(owner),
                         .num_peers = blocks.size()});
  for (const Block& block : blocks) append(message, block);
  for (const Block& block : blocks) {
    const std::byte* row = memory_->segment(owner) + block.offset;
    for (size_t i = 0; i < block.rows; ++i, row += block.stride) {
      message.insert(message.end(), row, row + block.width);
    }
  }
  return message;
}

bool Bridge::handle_copy(int from, const Header& header, std::span<const std::byte> body) {
  const auto blocks = take_values<Block>(&body, header.num_peers);
  // The owner of the segment may be any rank: those of a tensor group write into each other's.
  const bool has_owner = header.value < static_cast<uint32_t>(nodes_.num_ranks());
  if (!is_elsewhere(from) || !blocks || !has_owner) return false;
  size_t size = 0;
  for (const Block& block : *blocks) {
    size_t bytes = 0;
    if (!fits(block, memory_->segment_bytes()) ||
        __builtin_mul_overflow(block.width, block.rows, &bytes) ||
        __builtin_add_overflow(size, bytes, &size)) {
      return false;
    }
  }
  if (size != body.size()) return false;
  const std::byte* bytes = body.data();
  for (const Block& block : *blocks) {
    if (block.width == 0) continue;
    std::byte* row = memory_->segment(static_cast<int>(header.value)) + block.offset;
    for (size_t i = 0; i < block.rows; ++i, row += block.stride, bytes += block.width) {
      std::copy_n(bytes, block.width, row);
    }
  }
  return true;
}

void Bridge::send(int node, Parcel parcel, Traffic traffic) {
  Bytes message = parcel.take();
  const Header header{.kind = Kind::kParcel};
  std::memcpy(message.data(), &header, sizeof(header));
  send_before_flag(node, std::move(message), traffic);
}

// Sent to every rank of the other nodes, not only to proxies: a proxy may be inside a long
// computation, or may be the rank that has failed.
void Bridge::send_failure(const Status& status) {
  for (int rank = 0; rank < nodes_.num_ranks(); ++rank) {
    if (is_on_this_node(rank) || nodes_.node_of(rank) == NodeMap::kAbsent) continue;
    Bytes message;
    append(message, Header{.kind = Kind::kFailure, .value = static_cast<uint32_t>(status.code())});
    append_text(message, status.message());
    link_.send(rank, std::move(message));
  }
}

void Bridge::command(std::string_view text) {
  for (int rank = 0; rank < nodes_.num_ranks(); ++rank) {
    if (rank == rank_) continue;
    Bytes message;
    append(message, Header{.kind = Kind::kCommand});
    append_text(message, text);
    link_.send(rank, std::move(message));
  }
}

std::optional<std::string> Bridge::next_command() {
  if (commands_.empty()) return std::nullopt;
  std::string command = std::move(commands_.front());
  commands_.pop_front();
  return command;
}

void Bridge::report(std::string message) {
  const std::lock_guard lock(mutex_);
  reports_.push_back(std::move(message));
}

void Bridge::notify(int node, Bytes message) {
  const std::lock_guard lock(mutex_);
  notices_.push_back({node, std::move(message)});
}

void Bridge::send_report(const std::string& text) {
  if (rank_ == 0) {
    if (on_report_) on_report_(rank_, text);
    return;
  }
  Bytes message;
  append(message, Header{.kind = Kind::kReport});
  append_text(message, text);
  link_.send(0, std::move(message));
}

// Sends what other threads have queued: a link may be used by one thread only. The queues are
// swapped out first, so that those threads do not wait while messages are built and handlers run.
void Bridge::send_queued() {
  std::vector<std::string> reports;
  std::vector<Notice> notices;
  {
    const std::lock_guard lock(mutex_);
    reports.swap(reports_);
    notices.swap(notices_);
  }
  for (const std::string& each : reports) send_report(each);
  for (const Notice& each : notices) {
    Bytes message;
    append(message, Header{.kind = Kind::kNotice});
    message.insert(message.end(), each.message.begin(), each.message.end());
    send_to_proxy(each.node, std::move(message), Traffic::kOther);
  }
}

bool Bridge::progress() {
  send_queued();
  const std::optional<Link::Received> received = link_.receive();
  if (received) handle(received->from, received->message);
  if (const Status broken = link_.failure(); !broken.ok()) memory_->fail(broken);
  return received.has_value();
}

// After a message that does not fit nothing is taken any more: a flag that follows would say that
// what it accompanies is there.
void Bridge::handle(int from, const Bytes& message) {
  if (has_refused_) return;
  Header header;
  if (message.size() < sizeof(header)) return refuse_message(from, "its header is cut");
  std::memcpy(&header, message.data(), sizeof(header));
  const auto body = std::span(message).subspan(sizeof(header));
  const std::string_view text(reinterpret_cast<const char*>(body.data()), body.size());
  if (from < 0 || from >= nodes_.num_ranks()) return refuse_message(from, "there is no such rank");
  switch (header.kind) {
    case Kind::kRaise:
      if (!handle_raise(from, header, body)) refuse_message(from, "a flag of no rank here");
      return;
    case Kind::kWrite:
      if (!handle_write(from, header, body)) refuse_message(from, "bytes beyond the memory");
      return;
    case Kind::kCopy:
      if (!handle_copy(from, header, body)) refuse_message(from, "blocks beyond the memory");
      return;
    case Kind::kParcel:
      if (!is_elsewhere(from)) return refuse_message(from, "a parcel of a rank of this node");
      if (on_parcel_ && !on_parcel_(from, body)) refuse_message(from, "a parcel beyond the memory");
      return;
    case Kind::kFailure:
      return memory_->fail(failure_of(header.value, text));
    case Kind::kReport:
      if (on_report_) on_report_(from, text);
      return;
    case Kind::kCommand:
      if (from != 0) return refuse_message(from, "a command that is not of rank 0");
      commands_.emplace_back(text);
      return;
    case Kind::kNotice:
      if (on_notice_ && !on_notice_(body)) refuse_message(from, "a notice of no layer here");
      return;
    case Kind::kDone:
      is_done_[static_cast<size_t>(from)] = true;
      return;
  }
  refuse_message(from, "it is of no known kind");
}

// All nodes run the same program: such a message comes of broken memory, or of a stranger.
void Bridge::refuse_message(int from, const char* what) {
  has_refused_ = true;
  memory_->fail(
      failed(fmt::format("rank {}: a message from rank {} is wrong: {}; see whether the "
                         "nodes run the same version of wideep",
                         rank_, from, what)));
}

// A rank awaits the end of the ranks whose proxy it is. Rank 0 awaits all ranks, since any rank may
// report to it; a rank's reports arrive before its kDone.
bool Bridge::peers_are_done() const {
  for (int rank = 0; rank < nodes_.num_ranks(); ++rank) {
    const bool is_awaited =
        rank_ == 0 || (!is_on_this_node(rank) && nodes_.proxy(rank, node()) == rank_);
    if (rank != rank_ && is_awaited && !is_done_[static_cast<size_t>(rank)]) return false;
  }
  return true;
}

Status Bridge::finish(std::chrono::milliseconds timeout) {
  send_queued();
  const auto send_done = [&](int rank) {
    Bytes message;
    append(message, Header{.kind = Kind::kDone});
    link_.send(rank, std::move(message));
  };
  if (rank_ != 0) send_done(0);
  for (int there = 0; there < nodes_.num_nodes(); ++there) {
    const int proxy = nodes_.proxy(rank_, there);
    if (there != node() && proxy != 0) send_done(proxy);  // rank 0 has got its own already
  }
  const Clock::time_point end = Clock::now() + timeout;
  while (!peers_are_done() || !link_.has_sent_all()) {
    if (progress()) continue;
    if (Status failure = memory_->failure(); !failure.ok()) return failure;
    if (Clock::now() > end) {
      return deadline_exceeded(
          fmt::format("rank {} (node {}) waited {} ms for the end of the ranks of other nodes",
                      rank_, node(), timeout.count()));
    }
    std::this_thread::sleep_for(kPollPause);
  }
  return {};
}

void Bridge::flush(std::chrono::milliseconds at_most) {
  const Clock::time_point end = Clock::now() + at_most;
  send_queued();
  while (!link_.has_sent_all() && Clock::now() < end) {
    if (!progress()) std::this_thread::sleep_for(kPollPause);
  }
}

}  // namespace wideep::transport
