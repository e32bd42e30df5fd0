// SPDX-License-Identifier: Apache-2.0
//
// wideep route: one endpoint before several servers of the same model.
//
// The router runs in a thread; this one only waits for signals. The first ends it when running
// requests have finished or their time is over, another one at once.
#include <fmt/format.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/log.h"
#include "base/try.h"
#include "commands.h"
#include "http/open_files.h"
#include "http_limit_options.h"
#include "keys.h"
#include "log_options.h"
#include "server/grace.h"
#include "server/router.h"
#include "trace_variables.h"

namespace wideep::tools {
namespace {

using std::chrono::milliseconds;

struct Options {
  server::RouterOptions router;
  std::vector<std::string> replicas;
  LogOptions log;
  std::string options_file;
  std::string key_file;
  int grace_seconds = server::kGraceSeconds;
};

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

Status run(const Options& options) {
  options.log.apply();
  server::RouterOptions router_options = options.router;
  router_options.access_log = options.log.access;
  WIDEEP_TRY_ASSIGN(router_options.traces, read_trace_variables());
  for (const std::string& url : options.replicas) {
    WIDEEP_TRY_ASSIGN(server::ReplicaAddress address, server::parse_replica(url));
    router_options.replicas.push_back(std::move(address));
  }
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
  log::info("routing to {} replicas on http://{}:{}/v1", router_options.replicas.size(),
            options.router.http.host, router->port());
  std::atomic<bool> over = false;
  std::thread thread([&] {
    router->run();
    over = true;
  });
  int signal = 0;
  while (signal == 0) signal = signals.wait(milliseconds(60'000));
  const milliseconds grace = server::grace_after(signal, options.grace_seconds);
  log::info("stopping: running requests have {} s to finish", grace.count() / 1000);
  router->drain();
  const auto end = std::chrono::steady_clock::now() + grace;
  while (!over && std::chrono::steady_clock::now() < end) {
    if (signals.wait(milliseconds(50)) != 0) break;
  }
  router->stop();
  thread.join();
  return {};
}

}  // namespace

void add_route_command(command_line::Command app, Status* status) {
  const command_line::Command command =
      app.add_command("route", "Distribute requests over several servers of the same model");
  auto options = std::make_shared<Options>();
  command
      .add_option("--replica", options->replicas,
                  "Address of a server, http://host:port; repeat for each server")
      .required();
  command.add_option("--host", options->router.http.host, "Address to listen on").show_default();
  command.add_option("--port", options->router.http.port, "Port to listen on; 0: any free port")
      .range(0, 65535)
      .show_default();
  command.add_option("--cors-origin", options->router.http.cors_origins,
                     "Origin whose web pages may use the servers from a browser, as "
                     "https://example.org, or * for all; repeat it for more. Without it, the "
                     "servers decide");
  command.add_choice<server::RoutePolicy>(
      "--policy", options->router.policy,
      "Where a request goes: least-requests (default), to the server with the fewest; prefix, to "
      "the one that has least to compute: servers keep beginnings of prompts",
      {{"least-requests", server::RoutePolicy::kLeastRequests},
       {"prefix", server::RoutePolicy::kPrefix}});
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
  command.on_run([options, status] { *status = run(*options); });
}

}  // namespace wideep::tools
