// SPDX-License-Identifier: Apache-2.0
//
// For the soak of the server: a client that does one thing after the other, chosen at random:
// requests with answers, which must be those of the first time, requests that are refused, and
// connections that end in every way.
#pragma once

#include <chrono>
#include <map>
#include <mutex>
#include <random>
#include <string>
#include <vector>

#include "soak_connection.h"
#include "soak_requests.h"

namespace wideep::tests {

// What all clients have done and found. Thread safe.
class SoakRecord {
 public:
  void count(const std::string& kind);
  // What went wrong; the test fails, and all clients end.
  void fault(const std::string& what);
  bool has_fault() const;
  // The first answer to a request is the one that all others must equal.
  void compare(int request, const std::string& answer, const std::string& how);
  int64_t compared() const;
  std::map<std::string, int64_t> counts() const;

 private:
  mutable std::mutex mutex_;
  std::map<std::string, int64_t> counts_;
  std::map<int, std::string> answers_;
  int64_t compared_ = 0;
  bool has_fault_ = false;
};

struct SoakPorts {
  std::vector<int> servers;
  int router = 0;
};

// Thread safety: one thread.
class SoakClient {
 public:
  SoakClient(const SoakPorts& ports, uint32_t seed, SoakRecord& record)
      : ports_(ports), rng_(seed), record_(record) {}

  void run_until(std::chrono::steady_clock::time_point end);

 private:
  // Well-behaved clients.
  void ask_one();          // a connection of its own
  void ask_by_http_1_0();  // the end of the connection ends the reply
  void ask_and_read_slowly();
  void ask_several();      // one after the other on a connection
  void ask_pipelined();    // all at once, perhaps with one at the end that is no HTTP
  void ask_with_expect();  // waits for "100 Continue"
  void ask_plain();        // what needs no engine
  // Requests that are refused.
  void send_refused();
  void send_huge();
  void send_any_http();
  // Clients that leave.
  void send_byte_by_byte();
  void leave_early();
  void close_one_half();
  void open_many();

  int below(int limit) { return static_cast<int>(rng_() % static_cast<uint32_t>(limit)); }
  bool one_in(int count) { return below(count) == 0; }
  void choose_port();
  void expect_status(const server::Reply& reply, int status, const SoakConnection& connection,
                     const std::string& what);
  void receive_answer(const server::RequestCase& each, SoakConnection& connection,
                      const std::string& what);
  void expect_end(SoakConnection& connection, const std::string& what);

  struct Question {
    int index;
    bool stream;
    AnsweredRequest request;
    std::string text() const;  // of the body
  };
  Question choose_question();
  void check_answer(const Question& question, const server::Reply& reply,
                    const SoakConnection& connection);
  std::string long_request();

  const SoakPorts& ports_;
  std::mt19937 rng_;
  SoakRecord& record_;
  int port_ = 0;
  bool by_router_ = false;
};

}  // namespace wideep::tests
