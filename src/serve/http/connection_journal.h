// SPDX-License-Identifier: Apache-2.0
//
// What a connection needs to outlive the process that serves it: the bytes of the request that is
// being answered, the bytes of replies that the socket has not taken yet, and records of how the
// answer came about, from which another process makes the rest of it (docs/faults.md).
//
// The memory is a memfd, which the keeper of the ranks holds together with the socket. Every change
// is complete or has not happened, wherever the process is killed: bytes are written first, into
// room that nobody reads; then one store makes them count.
//
// What the kernel has taken from the socket, and what it has been given, is asked of the kernel
// (TCP_INFO): so not even a byte between a system call and its entry here is lost or sent twice.
//
// Thread safety: one thread of one process at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/shared_bytes.h"
#include "wideep/status.h"

namespace wideep::server {

// Of a TCP connection, since it was accepted.
struct SocketCounts {
  uint64_t taken = 0;  // bytes received and read
  uint64_t given = 0;  // bytes written, whether they have left or not
};
// Errors (failed): not a TCP socket, or an older kernel.
Result<SocketCounts> socket_counts(int socket);

class ConnectionJournal {
 public:
  // The memory for a connection that was just accepted. Returns its descriptor. Errors (failed): as
  // socket_counts; no memory.
  static Result<int> create(int socket);
  // Maps it, and takes over the descriptor. If another process has served the connection before,
  // adds what that had read without an entry. Errors (failed): as socket_counts; it says what no
  // process could have written.
  static Result<std::unique_ptr<ConnectionJournal>> open(int fd, int socket);

  // ---- what the client sends ----

  // Where the next bytes go; empty: the request is longer than any that is allowed.
  std::span<char> input_room();
  void received(size_t count);
  // From the first byte of the request that is being read or answered.
  std::string_view input() const;
  // The reply is complete: the next request begins after so many bytes. closes: there is no next
  // one, and the connection ends when everything is sent.
  void end_request(size_t request_bytes, bool closes);
  bool closes() const { return state().closes != 0; }

  // ---- what it gets ----

  // Before the bytes are written to the socket. num_calls: of the exchange, those whose bytes are
  // in the output now.
  void append(std::string_view bytes, uint64_t num_calls);
  uint64_t num_calls() const { return state().num_calls; }
  // The socket has taken all but the last `unsent` bytes that were appended: gives the memory of
  // the others back, now and then.
  void sent_all_but(size_t unsent);
  // What the socket has not taken of all that was appended. nullopt: it is not here any more.
  std::optional<std::string> unsent(int socket) const;

  // ---- how the answer comes about ----

  void add_record(std::string_view record);
  std::vector<std::string> records() const;
  size_t record_bytes() const { return state().record_bytes; }
  // No other process will go on with the request: its records' memory is given back.
  void give_up();
  // False after a request or its records did not fit: another process could not go on with it.
  bool is_complete() const { return state().is_complete != 0; }
  // Another process has died of itself while it had the request; returns how many so far.
  int suspect();

 private:
  struct State {
    uint64_t input_begin = 0, input_end = 0;  // offsets in the input area
    uint64_t taken = 0;                       // bytes read from the socket since the start
    uint64_t appended = 0;                    // bytes of replies since the start
    uint64_t num_calls = 0;
    uint64_t record_bytes = 0;
    uint32_t suspicions = 0;
    uint8_t closes = 0;  // no bool: another process may have left any byte here
    uint8_t is_complete = 1;
  };
  struct Header;
  explicit ConnectionJournal(base::SharedBytes memory) : memory_(std::move(memory)) {}
  Header& header() const;
  const State& state() const;
  void commit(const State& next);
  char* input_area() const;
  char* output_area() const;
  char* record_area() const;
  bool is_sound() const;
  void free_pages() const;
  void punch(const char* first, size_t bytes) const;

  base::SharedBytes memory_;
  uint64_t freed_ = 0;  // bytes of replies, of those that are sent, whose memory is given back
};

}  // namespace wideep::server
