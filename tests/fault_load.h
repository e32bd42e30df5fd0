// SPDX-License-Identifier: Apache-2.0
//
// For tests of faults: clients that ask a server for answers again and again, and compare each
// with the same answer of an undisturbed server, while processes of the server are killed.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <shared_mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/scratch_directory.h"
#include "command.h"
#include "http/http_client_testing.h"
#include "mixed_requests.h"

namespace wideep::tests {

// The processes of a server, by their names in lists of processes.
std::vector<pid_t> processes_named(const Command& server, const std::string& beginning);
inline std::vector<pid_t> rank_processes(const Command& server) {
  return processes_named(server, "wideep-rank");
}
inline std::vector<pid_t> front_processes(const Command& server) {
  return processes_named(server, "wideep-front");
}

// The lines of a server's log about processes that have died of themselves, not by a SIGKILL.
std::vector<std::string> own_deaths(const std::string& log);

// A reply without what differs between equal requests: id and time.
struct PlainReply {
  int status = 0;
  std::string text;   // all events, or the body
  std::string id;     // of the object that was made; "": it has none
  std::string error;  // of the connection; "": none
  // When the parts of a stream came.
  std::vector<std::chrono::steady_clock::time_point> arrivals;
};
PlainReply ask_plainly(int port, const std::string& path, const nlohmann::json& body);
PlainReply ask_plainly(server::Socket& socket, const std::string& path, const nlohmann::json& body);

class FaultLoad {
 public:
  struct Options {
    int num_requests = 24;  // different ones: streams and whole replies, greedy and sampled
    int num_clients = 8;
    int max_tokens = 48;
    // Instead: of every kind (mixed_requests.h). The server has their template and parser.
    bool mixed = false;
    bool routed_experts = false;  // with mixed: the server returns them
    // With mixed: prompts have 0 to so many words more. A word is some five tokens.
    int more_words = 0;
    int leaves_one_in = 0;  // clients leave one in so many requests before its answer; 0: none
    std::string text = "The quick brown fox jumps over the lazy dog and runs into the wood again";
  };
  explicit FaultLoad(const Options& options);

  // Asks for every answer once, at a server that nothing happens to.
  void learn(int port);
  // Asks until stop().
  void start(int port);
  // From now on nothing is asked; what was asked is answered, but for what the server may not have
  // seen yet.
  void end_is_near();
  void stop();
  // For the report: something is done to the server now.
  void note_fault();

  int64_t num_replies() const { return replies_; }
  std::vector<std::string> problems() const;
  // For each fault during which a stream ran: the longest time in seconds that any stream was
  // silent around it, ascending.
  std::vector<double> gaps() const;

 private:
  using Clock = std::chrono::steady_clock;
  MixedRequest request_of(int request) const;
  void run(int client);
  void ask_and_leave(const MixedRequest& asked, std::chrono::milliseconds after);
  bool connect(std::optional<server::Socket>* socket);
  bool may_be_unseen(Clock::time_point asked);
  void get_stored(int request, const PlainReply& reply);
  void complain(int request, const PlainReply& reply);

  Options options_;
  std::vector<std::string> expected_;  // [num_requests]
  int port_ = 0;
  std::atomic<bool> stops_{false};
  std::shared_mutex connecting_;                  // held by who connects, while
  std::optional<Clock::time_point> end_is_near_;  // there is no end
  std::atomic<int64_t> replies_{0};
  std::vector<std::thread> clients_;
  mutable std::mutex mutex_;  // guards the members below
  std::vector<std::string> problems_;
  std::vector<Clock::time_point> faults_;
  struct Silence {
    Clock::time_point from, to;
  };
  std::vector<Silence> silences_;  // between parts of streams, those of some length
};

// The model of soaks of mixed requests: a small one with an end token, without which no format is
// taken, and draft layers; with WIDEEP_FAULT_MODEL, for figures, that one.
class MixedModel {
 public:
  MixedModel();
  const std::string& path() const { return path_; }
  FaultLoad::Options load(bool routed_experts = false) const;

 private:
  base::ScratchDirectory directory_;
  std::string path_;
  bool for_figures_ = false;
};

// What streams felt, for the report. gaps: of FaultLoad::gaps(), not empty.
std::string gaps_text(const std::vector<double>& gaps);

}  // namespace wideep::tests
