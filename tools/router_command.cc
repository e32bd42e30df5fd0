// SPDX-License-Identifier: Apache-2.0
#include "router_command.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <memory>
#include <thread>

#include "base/log.h"
#include "base/try.h"
#include "http/open_files.h"
#include "http_limit_options.h"
#include "keys.h"

namespace wideep::tools {
namespace {

using std::chrono::milliseconds;

// SIGINT and SIGTERM, taken with sigtimedwait as in wideep serve: after the first, running requests
// may finish; the second stops at once. Signals are blocked in this thread and in those it starts
// later, so that none is delivered while nobody waits.
class StopSignals {
 public:
  StopSignals() {
    ::sigemptyset(&set_);
    ::sigaddset(&set_, SIGINT);
    ::sigaddset(&set_, SIGTERM);
    ::pthread_sigmask(SIG_BLOCK, &set_, nullptr);
  }
  // Returns the signal, or 0 if none came in time.
  int wait(milliseconds at_most) const {
    const timespec time{at_most.count() / 1000, at_most.count() % 1000 * 1'000'000};
    const int signal = ::sigtimedwait(&set_, nullptr, &time);
    return signal > 0 ? signal : 0;
  }

 private:
  sigset_t set_;
};

// Until a signal, which is drained, or an error of what goes on beside, which is not.
Status wait_for_end(server::Router& router, const StopSignals& signals,
                    const std::atomic<bool>& over, const RouterCommand& options,
                    const BesideRouter& beside) {
  int signal = 0;
  while (signal == 0) {
    signal = signals.wait(milliseconds(1000));
    if (signal == 0 && beside.look) WIDEEP_TRY(beside.look());
  }
  const milliseconds grace = server::grace_after(signal, options.grace_seconds);
  log::info("stopping: running requests have {} s to finish", grace.count() / 1000);
  router.drain();
  const auto end = std::chrono::steady_clock::now() + grace;
  while (!over && std::chrono::steady_clock::now() < end) {
    if (signals.wait(milliseconds(50)) != 0) break;
  }
  return {};
}

}  // namespace

void add_router_options(command_line::Command command, RouterCommand* options) {
  command.add_option("--cors-origin", options->router.http.cors_origins,
                     "Origin whose web pages may use the servers from a browser, as "
                     "https://example.org, or * for all; repeat it for more. Without it, the "
                     "servers decide");
  command.add_option("--replica-key-file", options->key_file,
                     "File with the key with which the router reads the servers' KV events, where "
                     "they want one: their admin key, if they have one");
  add_http_limit_options(command, &options->router.http);
  command
      .add_option("--give-up-after", options->router.give_up_seconds,
                  "Seconds without an answer to a health check after which no request waits for a "
                  "server any longer")
      .range(1, 3600)
      .show_default();
  add_log_options(command, &options->log);
  add_options_file_option(command, &options->options_file);
  add_grace_option(command, &options->grace_seconds);
}

Status run_router(const RouterCommand& options, const BesideRouter& beside) {
  server::RouterOptions router_options = options.router;
  router_options.access_log = options.log.access;
  // Whether clients need a key is the servers' affair, and who may read replies, too, unless the
  // router decides about origins.
  router_options.http.guards_hosts = true;
  router_options.http.guards_origins = !router_options.http.cors_origins.empty();
  if (!options.key_file.empty()) {
    WIDEEP_TRY_ASSIGN(router_options.replica_key,
                      read_key_file("--replica-key-file", options.key_file));
  }
  server::allow_most_open_files();
  const StopSignals signals;  // before a thread starts: threads inherit the blocked signals
  WIDEEP_TRY_ASSIGN(const std::unique_ptr<server::Router> router,
                    server::Router::listen(router_options));
  WIDEEP_TRY(router->start_traces());
  if (beside.begin) WIDEEP_TRY(beside.begin(*router));
  std::atomic<bool> over = false;
  std::thread thread([&] {
    router->run();
    over = true;
  });
  const Status ended = wait_for_end(*router, signals, over, options, beside);
  if (beside.end) beside.end();
  router->stop();
  thread.join();
  return ended;
}

}  // namespace wideep::tools
