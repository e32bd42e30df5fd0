/* SPDX-License-Identifier: Apache-2.0
 *
 * What glibc 2.27 lacks and the portable build's code and static libraries call. Each function is
 * hidden: it serves the program or library that it is linked into and no other. Where the glibc of
 * the machine has the function, that one is called. It is looked up once, when the program or
 * library is loaded: a wait of the engine looks up nothing. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <spawn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define HIDDEN __attribute__((visibility("hidden")))

typedef int CondClockWait(pthread_cond_t*, pthread_mutex_t*, clockid_t, const struct timespec*);
typedef int MutexClockLock(pthread_mutex_t*, clockid_t, const struct timespec*);
typedef int AddChdir(posix_spawn_file_actions_t*, const char*);

static CondClockWait* cond_clock_wait;
static MutexClockLock* mutex_clock_lock;
static AddChdir* add_chdir;

__attribute__((constructor(101))) static void look_up(void) {
  void* libc = dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD);
  void* threads = dlopen("libpthread.so.0", RTLD_LAZY | RTLD_NOLOAD); /* before glibc 2.34 */
  void* places[2] = {libc, threads};
  for (int i = 0; i < 2; ++i) {
    if (places[i] == NULL) continue;
    if (!cond_clock_wait)
      cond_clock_wait = (CondClockWait*)dlsym(places[i], "pthread_cond_clockwait");
    if (!mutex_clock_lock) {
      mutex_clock_lock = (MutexClockLock*)dlsym(places[i], "pthread_mutex_clocklock");
    }
    if (!add_chdir) {
      add_chdir = (AddChdir*)dlsym(places[i], "posix_spawn_file_actions_addchdir_np");
    }
  }
}

/* libstdc++ leaves out atomic operations where this says that there is one thread: never. */
HIDDEN char __libc_single_threaded = 0;

HIDDEN pid_t gettid(void) { return (pid_t)syscall(SYS_gettid); }

/* Weak: libbsd, which libedit brings along, has them, too. */
HIDDEN __attribute__((weak)) void arc4random_buf(void* to, size_t count) {
  char* at = to;
  while (count > 0) {
    const long got = syscall(SYS_getrandom, at, count > 256 ? 256 : count, 0);
    if (got > 0) {
      at += got;
      count -= (size_t)got;
    } else if (errno != EINTR) {
      abort(); /* as glibc's does: there is no random number to return */
    }
  }
}

HIDDEN __attribute__((weak)) uint32_t arc4random(void) {
  uint32_t value;
  arc4random_buf(&value, sizeof value);
  return value;
}

/* The same moment on CLOCK_REALTIME, by which glibc before 2.30 waits. A wait that is under way
 * ends early or late when somebody sets the clock. */
static struct timespec on_real_clock(clockid_t clock, const struct timespec* deadline) {
  const long long second = 1000000000;
  struct timespec from, to;
  clock_gettime(clock, &from);
  clock_gettime(CLOCK_REALTIME, &to);
  const long long left =
      (deadline->tv_sec - from.tv_sec) * second + deadline->tv_nsec - from.tv_nsec;
  const long long end = to.tv_sec * second + to.tv_nsec + left;
  const struct timespec result = {end > 0 ? end / second : 0, end > 0 ? end % second : 0};
  return result;
}

HIDDEN int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex,
                                  clockid_t clock, const struct timespec* deadline) {
  if (cond_clock_wait != NULL) return cond_clock_wait(condition, mutex, clock, deadline);
  const struct timespec end = on_real_clock(clock, deadline);
  return pthread_cond_timedwait(condition, mutex, &end);
}

HIDDEN int pthread_mutex_clocklock(pthread_mutex_t* mutex, clockid_t clock,
                                   const struct timespec* deadline) {
  if (mutex_clock_lock != NULL) return mutex_clock_lock(mutex, clock, deadline);
  const struct timespec end = on_real_clock(clock, deadline);
  return pthread_mutex_timedlock(mutex, &end);
}

HIDDEN int posix_spawn_file_actions_addchdir_np(posix_spawn_file_actions_t* actions,
                                                const char* directory) {
  return add_chdir != NULL ? add_chdir(actions, directory) : ENOSYS;
}
