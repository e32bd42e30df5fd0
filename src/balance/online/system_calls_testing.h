// SPDX-License-Identifier: Apache-2.0
//
// Counts the system calls of the calling thread in a region: waits for mutexes, condition variables
// and futexes all need one. Uses syscall user dispatch (Linux 5.11, x86-64): a call raises SIGSYS,
// whose handler counts the call and makes it.
#pragma once

#include <cstdint>

#if defined(__x86_64__)
#include <sys/prctl.h>
#include <ucontext.h>
#include <unistd.h>
#include <cerrno>
#include <csignal>
#endif

namespace wideep::online {

struct CountedCalls {
  int64_t count = 0;
  int64_t first_number = -1;  // SYS_… of <sys/syscall.h>
};

#if defined(__x86_64__)

namespace system_calls_testing {

constexpr int kSetDispatch = 59;  // PR_SET_SYSCALL_USER_DISPATCH; not in every libc's headers
constexpr char kAllow = 0, kBlock = 1;

inline thread_local volatile char selector = kAllow;
inline thread_local CountedCalls counted;

inline void on_blocked_call(int, siginfo_t* info, void* context) {
  selector = kAllow;
  if (counted.count++ == 0) counted.first_number = info->si_syscall;
  greg_t* registers = static_cast<ucontext_t*>(context)->uc_mcontext.gregs;
  const long result =
      ::syscall(info->si_syscall, registers[REG_RDI], registers[REG_RSI], registers[REG_RDX],
                registers[REG_R10], registers[REG_R8], registers[REG_R9]);
  registers[REG_RAX] = result == -1 ? -errno : result;
  // The selector stays at kAllow until the next count_system_calls: the return from a handler is a
  // system call too.
}

}  // namespace system_calls_testing

// Call once per thread. False if the kernel does not support it.
inline bool can_count_system_calls() {
  struct sigaction action = {};
  action.sa_sigaction = system_calls_testing::on_blocked_call;
  action.sa_flags = SA_SIGINFO;
  ::sigaction(SIGSYS, &action, nullptr);
  return ::prctl(system_calls_testing::kSetDispatch, 1, 0, 0, &system_calls_testing::selector) == 0;
}

// Counts at most the first system call of each run of `work`.
template <typename Work>
void count_system_calls(Work work) {
  system_calls_testing::selector = system_calls_testing::kBlock;
  work();
  system_calls_testing::selector = system_calls_testing::kAllow;
}

inline CountedCalls counted_system_calls() { return system_calls_testing::counted; }

#else

inline bool can_count_system_calls() { return false; }
template <typename Work>
void count_system_calls(Work work) {
  work();
}
inline CountedCalls counted_system_calls() { return {}; }

#endif

}  // namespace wideep::online
