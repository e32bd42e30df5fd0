// SPDX-License-Identifier: Apache-2.0
//
// header | input | output (a ring) | records
//
// The header has two states; `present` says which one counts. A change writes the other one and
// then switches.
#include "http/connection_journal.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/sockios.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <optional>

#include "base/try.h"

namespace wideep::server {
namespace {

// Address space, not memory: only pages that are written exist.
constexpr size_t kHeaderBytes = 4096;
constexpr size_t kInputBytes = size_t{40} << 20;   // twice the largest request, and more
constexpr size_t kOutputBytes = size_t{16} << 20;  // a client with more unread bytes is cut
constexpr size_t kRecordBytes = size_t{64} << 20;
constexpr size_t kAllBytes = kHeaderBytes + kInputBytes + kOutputBytes + kRecordBytes;
constexpr size_t kMaxKept = size_t{64} << 10;  // pages beyond are freed after a request
constexpr size_t kPageBytes = 4096;
static_assert(kOutputBytes % kPageBytes == 0);

using Length = uint32_t;

// The kernel counts the end of what the peer sends, its FIN, as a byte that was received.
bool peer_has_closed(const tcp_info& info) {
  constexpr uint8_t kTimeWait = 6, kCloseWait = 8, kLastAck = 9, kClosing = 11;  // linux/tcp_states
  return info.tcpi_state == kTimeWait || info.tcpi_state == kCloseWait ||
         info.tcpi_state == kLastAck || info.tcpi_state == kClosing;
}

}  // namespace

Result<SocketCounts> socket_counts(int socket) {
  // Acknowledgements arrive while it asks: until two answers agree.
  for (;;) {
    tcp_info before = {}, after = {};
    socklen_t length = sizeof(before);
    int unread = 0, unacknowledged = 0;
    if (::getsockopt(socket, IPPROTO_TCP, TCP_INFO, &before, &length) != 0 ||
        length < offsetof(tcp_info, tcpi_segs_out) || ::ioctl(socket, SIOCINQ, &unread) != 0 ||
        ::ioctl(socket, SIOCOUTQ, &unacknowledged) != 0) {
      return failed(fmt::format("TCP_INFO: {}", std::strerror(errno)));
    }
    length = sizeof(after);
    if (::getsockopt(socket, IPPROTO_TCP, TCP_INFO, &after, &length) != 0) {
      return failed(fmt::format("TCP_INFO: {}", std::strerror(errno)));
    }
    if (before.tcpi_bytes_acked != after.tcpi_bytes_acked ||
        before.tcpi_bytes_received != after.tcpi_bytes_received ||
        before.tcpi_state != after.tcpi_state) {
      continue;
    }
    const uint64_t received = before.tcpi_bytes_received - (peer_has_closed(before) ? 1 : 0);
    return SocketCounts{.taken = received - static_cast<uint64_t>(unread),
                        .given = before.tcpi_bytes_acked + static_cast<uint64_t>(unacknowledged)};
  }
}

struct ConnectionJournal::Header {
  State states[2];
  std::atomic<uint32_t> present{0};
  uint64_t given_before = 0;  // SocketCounts::given when the connection was accepted
};

Result<int> ConnectionJournal::create(int socket) {
  WIDEEP_TRY_ASSIGN(const SocketCounts counts, socket_counts(socket));
  const int fd = ::memfd_create("wideep connection", MFD_CLOEXEC);
  Header header;
  header.given_before = counts.given;
  if (fd < 0 || ::ftruncate(fd, kAllBytes) != 0 ||
      ::pwrite(fd, &header, sizeof(header), 0) != static_cast<ssize_t>(sizeof(header))) {
    const int error = errno;
    if (fd >= 0) ::close(fd);
    return failed(fmt::format("memory of a connection: {}", std::strerror(error)));
  }
  return fd;
}

Result<std::unique_ptr<ConnectionJournal>> ConnectionJournal::open(int fd, int socket) {
  WIDEEP_TRY_ASSIGN(base::SharedBytes memory,
                    base::SharedBytes::adopt("memory of a connection", fd, kAllBytes, false));
  std::unique_ptr<ConnectionJournal> journal(new ConnectionJournal(std::move(memory)));
  if (!journal->is_sound()) return failed("memory of a connection: it is spoiled");
  WIDEEP_TRY_ASSIGN(const SocketCounts counts, socket_counts(socket));
  const State& state = journal->state();
  if (counts.taken > state.taken) journal->received(counts.taken - state.taken);
  return journal;
}

// Whether all offsets and lengths lie within their areas, so that reading them is safe.
bool ConnectionJournal::is_sound() const {
  if (header().present.load() > 1) return false;
  const State& now = state();
  if (now.input_begin > now.input_end || now.input_end > kInputBytes ||
      now.record_bytes > kRecordBytes) {
    return false;
  }
  uint64_t at = 0;
  while (now.record_bytes - at >= sizeof(Length)) {
    Length length = 0;
    std::memcpy(&length, record_area() + at, sizeof(length));
    at += sizeof(length);
    if (length > now.record_bytes - at) return false;
    at += length;
  }
  return at == now.record_bytes;
}

ConnectionJournal::Header& ConnectionJournal::header() const {
  return *reinterpret_cast<Header*>(memory_.data());
}

const ConnectionJournal::State& ConnectionJournal::state() const {
  return header().states[header().present.load(std::memory_order_acquire)];
}

void ConnectionJournal::commit(const State& next) {
  const uint32_t other = 1 - header().present.load(std::memory_order_relaxed);
  header().states[other] = next;
  header().present.store(other, std::memory_order_release);
}

char* ConnectionJournal::input_area() const {
  return reinterpret_cast<char*>(memory_.data() + kHeaderBytes);
}
char* ConnectionJournal::output_area() const { return input_area() + kInputBytes; }
char* ConnectionJournal::record_area() const { return output_area() + kOutputBytes; }

std::span<char> ConnectionJournal::input_room() {
  constexpr size_t kMax = size_t{64} << 10;
  const size_t end = state().input_end;
  return {input_area() + end, std::min(kMax, kInputBytes - end)};
}

void ConnectionJournal::received(size_t count) {
  State next = state();
  next.taken += count;
  next.input_end = std::min<uint64_t>(next.input_end + count, kInputBytes);
  commit(next);
}

std::string_view ConnectionJournal::input() const {
  const State& now = state();
  return {input_area() + now.input_begin, now.input_end - now.input_begin};
}

void ConnectionJournal::end_request(size_t request_bytes, bool closes) {
  State next = state();
  next.closes = closes;
  next.input_begin += request_bytes;
  const uint64_t rest = next.input_end - next.input_begin;
  // The bytes of the next request move to the front, but never over each other: until the commit
  // they count where they are.
  if (rest <= next.input_begin) {
    std::memcpy(input_area(), input_area() + next.input_begin, rest);
    next.input_begin = 0;
    next.input_end = rest;
  }
  const bool frees =
      next.input_end + kMaxKept < state().input_end || state().record_bytes > kMaxKept;
  next.num_calls = 0;
  next.record_bytes = 0;
  next.suspicions = 0;
  next.is_complete = true;
  commit(next);
  if (frees) free_pages();
}

void ConnectionJournal::punch(const char* first, size_t bytes) const {
  const auto* base = reinterpret_cast<const char*>(memory_.data());
  ::fallocate(memory_.fd(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, first - base,
              static_cast<off_t>(bytes));
}

// A long request must not keep its memory for as long as the client stays connected.
void ConnectionJournal::free_pages() const {
  const size_t used = (state().input_end + kPageBytes - 1) / kPageBytes * kPageBytes;
  punch(input_area() + used, kInputBytes - used);
  punch(record_area(), kRecordBytes);
}

// Nor must replies that were sent: whole pages of the ring, from those freed before to those that
// still have unsent bytes.
void ConnectionJournal::sent_all_but(size_t unsent) {
  const uint64_t appended = state().appended;
  const uint64_t sent = (appended - std::min<uint64_t>(unsent, appended)) / kPageBytes * kPageBytes;
  // The pages of older bytes have those of the next lap: of another process, or beyond the ring in
  // one piece.
  const uint64_t end = (appended + kPageBytes - 1) / kPageBytes * kPageBytes;
  freed_ = std::max(freed_, end - std::min<uint64_t>(end, kOutputBytes));
  if (sent < freed_ + kMaxKept) return;
  const size_t at = freed_ % kOutputBytes;
  const size_t bytes = sent - freed_;
  const size_t first = std::min(bytes, kOutputBytes - at);
  punch(output_area() + at, first);
  if (bytes > first) punch(output_area(), bytes - first);
  freed_ = sent;
}

void ConnectionJournal::append(std::string_view bytes, uint64_t num_calls) {
  State next = state();
  if (bytes.size() > kOutputBytes) {
    next.is_complete = false;  // nobody could send the rest
  } else {
    const size_t at = next.appended % kOutputBytes;
    const size_t first = std::min(bytes.size(), kOutputBytes - at);
    std::memcpy(output_area() + at, bytes.data(), first);
    std::memcpy(output_area(), bytes.data() + first, bytes.size() - first);
  }
  next.appended += bytes.size();
  next.num_calls = num_calls;
  commit(next);
}

std::optional<std::string> ConnectionJournal::unsent(int socket) const {
  const Result<SocketCounts> counts = socket_counts(socket);
  if (!counts.ok()) return std::nullopt;
  const uint64_t given = counts->given - header().given_before;
  const uint64_t appended = state().appended;
  if (given > appended || appended - given > kOutputBytes) return std::nullopt;
  std::string bytes(appended - given, '\0');
  for (size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = output_area()[(given + i) % kOutputBytes];
  }
  return bytes;
}

void ConnectionJournal::add_record(std::string_view record) {
  State next = state();
  if (!next.is_complete) return;
  const auto length = static_cast<Length>(record.size());
  if (next.record_bytes + sizeof(length) + record.size() > kRecordBytes) {
    next.is_complete = false;
    return commit(next);
  }
  char* to = record_area() + next.record_bytes;
  std::memcpy(to, &length, sizeof(length));
  std::memcpy(to + sizeof(length), record.data(), record.size());
  next.record_bytes += sizeof(length) + record.size();
  commit(next);
}

void ConnectionJournal::give_up() {
  State next = state();
  next.is_complete = false;
  next.record_bytes = 0;
  commit(next);
  punch(record_area(), kRecordBytes);
}

std::vector<std::string> ConnectionJournal::records() const {
  std::vector<std::string> records;
  for (uint64_t at = 0; at < state().record_bytes;) {
    Length length = 0;
    std::memcpy(&length, record_area() + at, sizeof(length));
    at += sizeof(length);
    records.emplace_back(record_area() + at, length);
    at += length;
  }
  return records;
}

int ConnectionJournal::suspect() {
  State next = state();
  ++next.suspicions;
  commit(next);
  return static_cast<int>(next.suspicions);
}

}  // namespace wideep::server
