// SPDX-License-Identifier: Apache-2.0
//
// A message: Head, text, numbers. As they lie in memory: all nodes run the same program.
#include "group/node_stream.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <type_traits>
#include <utility>

namespace wideep::transport {
namespace {

// Without holes, whose bytes would be those of this process's memory.
struct Head {
  uint32_t kind = 0;
  uint32_t epoch = 0;
  int32_t rank = 0;
  uint32_t text_bytes = 0;
  int64_t value = 0;
  uint32_t num_numbers = 0;
  uint32_t unused = 0;
};
static_assert(std::has_unique_object_representations_v<Head>);
constexpr uint32_t kMaxTextBytes = uint32_t{1} << 20;
constexpr uint32_t kMaxNumbers = uint32_t{1} << 16;
constexpr size_t kMaxUnsent = size_t{16} << 20;  // of a node that does not read

// A member: its rank, then its address in three words.
constexpr size_t kWordsOfMember = 4;

}  // namespace

void NodeMessage::set_members(const Members& members, const std::vector<PeerAddress>& addresses) {
  epoch = members.epoch;
  for (const int each : members.ranks) {
    const PeerAddress& address = addresses[static_cast<size_t>(each)];
    uint64_t host[2];
    std::memcpy(host, address.host.data(), sizeof(host));
    numbers.insert(numbers.end(), {static_cast<uint64_t>(each), host[0], host[1],
                                   address.port | (address.is_v6 ? uint64_t{1} << 16 : 0)});
  }
}

std::optional<Members> NodeMessage::members(size_t num_ranks) const {
  if (numbers.empty() || numbers.size() % kWordsOfMember != 0) return std::nullopt;
  Members members{.epoch = epoch, .ranks = {}};
  for (size_t at = 0; at < numbers.size(); at += kWordsOfMember) {
    const bool is_later = at == 0 || numbers[at] > numbers[at - kWordsOfMember];
    if (numbers[at] >= num_ranks || !is_later) return std::nullopt;
    members.ranks.push_back(static_cast<int>(numbers[at]));
  }
  return members;
}

std::vector<PeerAddress> NodeMessage::addresses(size_t num_ranks) const {
  std::vector<PeerAddress> addresses(num_ranks);
  for (size_t at = 0; at + kWordsOfMember <= numbers.size(); at += kWordsOfMember) {
    if (numbers[at] >= num_ranks) continue;
    PeerAddress& address = addresses[numbers[at]];
    std::memcpy(address.host.data(), &numbers[at + 1], 2 * sizeof(uint64_t));
    address.port = static_cast<uint16_t>(numbers[at + 3]);
    address.is_v6 = (numbers[at + 3] >> 16 & 1) != 0;
  }
  return addresses;
}

NodeStream::NodeStream(int socket) : socket_(socket), heard_at_(std::chrono::steady_clock::now()) {
  ::fcntl(socket_, F_SETFL, ::fcntl(socket_, F_GETFL) | O_NONBLOCK);
}

NodeStream::~NodeStream() {
  if (socket_ >= 0) ::close(socket_);
}

NodeStream& NodeStream::operator=(NodeStream&& other) noexcept {
  std::swap(socket_, other.socket_);
  std::swap(is_broken_, other.is_broken_);
  std::swap(is_garbled_, other.is_garbled_);
  std::swap(inbox_, other.inbox_);
  std::swap(unsent_, other.unsent_);
  std::swap(heard_at_, other.heard_at_);
  return *this;
}

void NodeStream::send(const NodeMessage& message) {
  if (is_broken_ || socket_ < 0) return;
  Head head{.kind = static_cast<uint32_t>(message.kind),
            .epoch = message.epoch,
            .rank = message.rank,
            .text_bytes = static_cast<uint32_t>(message.text.size()),
            .value = message.value,
            .num_numbers = static_cast<uint32_t>(message.numbers.size())};
  unsent_.append(reinterpret_cast<const char*>(&head), sizeof(head));
  unsent_ += message.text;
  unsent_.append(reinterpret_cast<const char*>(message.numbers.data()),
                 message.numbers.size() * sizeof(uint64_t));
  if (unsent_.size() > kMaxUnsent) is_broken_ = true;
  write();
}

void NodeStream::write() {
  while (!unsent_.empty() && !is_broken_) {
    const ssize_t sent =
        ::send(socket_, unsent_.data(), unsent_.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    if (sent < 0) {
      is_broken_ = true;
      return;
    }
    unsent_.erase(0, static_cast<size_t>(sent));
  }
}

std::optional<NodeMessage> NodeStream::next() {
  if (socket_ < 0) return std::nullopt;
  for (;;) {
    if (auto message = parse()) return message;
    if (is_garbled_) return std::nullopt;
    char buffer[16 * 1024];
    const ssize_t count = ::recv(socket_, buffer, sizeof(buffer), MSG_DONTWAIT);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return std::nullopt;
    if (count <= 0) {
      is_broken_ = true;
      return std::nullopt;
    }
    heard();
    inbox_.append(buffer, static_cast<size_t>(count));
  }
}

std::optional<NodeMessage> NodeStream::parse() {
  Head head;
  if (inbox_.size() < sizeof(head)) return std::nullopt;
  std::memcpy(&head, inbox_.data(), sizeof(head));
  if (head.text_bytes > kMaxTextBytes || head.num_numbers > kMaxNumbers ||
      head.kind > static_cast<uint32_t>(NodeMessage::Kind::kFinished) || head.unused != 0) {
    is_broken_ = is_garbled_ = true;
    inbox_.clear();
    return std::nullopt;
  }
  const size_t numbers_bytes = head.num_numbers * sizeof(uint64_t);
  const size_t whole = sizeof(head) + head.text_bytes + numbers_bytes;
  if (inbox_.size() < whole) return std::nullopt;
  NodeMessage message{.kind = static_cast<NodeMessage::Kind>(head.kind),
                      .epoch = head.epoch,
                      .rank = head.rank,
                      .value = head.value,
                      .text = inbox_.substr(sizeof(head), head.text_bytes),
                      .numbers = std::vector<uint64_t>(head.num_numbers)};
  if (numbers_bytes > 0) {
    std::memcpy(message.numbers.data(), inbox_.data() + sizeof(head) + head.text_bytes,
                numbers_bytes);
  }
  inbox_.erase(0, whole);
  return message;
}

}  // namespace wideep::transport
