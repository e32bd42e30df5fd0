// SPDX-License-Identifier: Apache-2.0
//
// A journal that says anything: it is refused, or can be read and written on.
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "http/connection_journal.h"
#include "transport/tcp.h"

namespace {

using namespace wideep;

// A connection, for the kernel's counts.
int connection() {
  const int listener = *transport::listen_on(*transport::resolve("127.0.0.1", 0));
  return *transport::connect_to(transport::local_address(listener), std::chrono::seconds(1));
}

}  // namespace

// data: a word, of which bit 0 says which state counts; then the header's bytes, then records.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const int socket = connection();
  constexpr size_t kHeader = 128, kRecords = 4096 + (size_t{56} << 20);
  if (size < 2) return 0;
  const auto fd = server::ConnectionJournal::create(socket);
  if (!fd.ok()) std::abort();
  const size_t states = std::min(size, kHeader);
  if (::pwrite(*fd, data, states, 0) < 0 ||
      ::pwrite(*fd, data + states, size - states, kRecords) < 0) {
    std::abort();
  }
  const auto journal = server::ConnectionJournal::open(*fd, socket);
  if (!journal.ok()) return 0;
  server::ConnectionJournal& opened = **journal;
  size_t bytes = opened.input().size() + opened.input_room().size();
  for (const char each : opened.input()) bytes += static_cast<size_t>(each);
  for (const std::string& each : opened.records()) bytes += each.size();
  if (const auto unsent = opened.unsent(socket)) bytes += unsent->size();
  opened.add_record("a record");
  opened.append("bytes of a reply", 1);
  opened.sent_all_but(bytes % 100);
  opened.end_request(opened.input().size() / 2, false);
  opened.suspect();
  if (opened.is_complete() && !opened.records().empty()) std::abort();
  return 0;
}
