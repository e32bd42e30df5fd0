// SPDX-License-Identifier: Apache-2.0
#include "process_setup.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <initializer_list>

namespace wideep::tools {
namespace {

// The deepest recursions are those of templates and JSON, whose depth is bounded for this much.
constexpr rlim_t kMinStack = rlim_t{1} << 20;
constexpr rlim_t kUsualStack = rlim_t{8} << 20;

// The kernel lets the stack of the main thread grow up to the present limit; threads get what was
// the limit when the process began, unless told otherwise.
Status raise_stack() {
  rlimit limit = {};
  if (::getrlimit(RLIMIT_STACK, &limit) != 0 || limit.rlim_cur >= kMinStack) return {};
  const rlim_t before = limit.rlim_cur;
  limit.rlim_cur = std::min(limit.rlim_max, kUsualStack);
  if (limit.rlim_cur < kMinStack || ::setrlimit(RLIMIT_STACK, &limit) != 0) {
    return failed(fmt::format(
        "ulimit -s: expected at least {} KiB of stack, found {}, of which at most {} may be had",
        kMinStack >> 10, before >> 10, limit.rlim_max >> 10));
  }
  pthread_attr_t attributes;
  ::pthread_attr_init(&attributes);
  ::pthread_attr_setstacksize(&attributes, limit.rlim_cur);
  ::pthread_setattr_default_np(&attributes);
  ::pthread_attr_destroy(&attributes);
  return {};
}

// No more than signals do by default: nothing has to be ended or written.
void end(int signal) { ::_exit(128 + signal); }

// To process 1 of a container the kernel passes no signal from inside it or from its engine that
// has no handler: until the model is loaded, say, SIGTERM would have no effect, and the engine
// would wait for as long as it waits and then kill.
void end_by_signals_as_first_process() {
  if (::getpid() != 1) return;
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction now{};
    if (::sigaction(signal, nullptr, &now) != 0 || now.sa_handler != SIG_DFL) continue;
    now.sa_handler = end;
    ::sigaction(signal, &now, nullptr);
  }
}

}  // namespace

Status prepare_process() {
  // open() takes the lowest number that is free.
  for (int fd = 0; fd <= 2; ++fd) {
    if (::fcntl(fd, F_GETFD) < 0) [[maybe_unused]]
      const int opened = ::open("/dev/null", O_RDWR);
  }
  std::signal(SIGXFSZ, SIG_IGN);
  end_by_signals_as_first_process();
  return raise_stack();
}

}  // namespace wideep::tools
