/* SPDX-License-Identifier: Apache-2.0
 *
 * Functions that glibc 2.27's headers do not declare but the code, or the headers of a libstdc++
 * that was built with a newer glibc, call. compat.c defines them; every file of the portable build
 * includes this first (toolchain.cmake). */
#pragma once
#include <pthread.h>
#include <spawn.h>
#include <sys/types.h>
#include <time.h>

#ifdef __cplusplus
extern "C" {
#endif
int pthread_cond_clockwait(pthread_cond_t*, pthread_mutex_t*, clockid_t, const struct timespec*);
int pthread_mutex_clocklock(pthread_mutex_t*, clockid_t, const struct timespec*);
int posix_spawn_file_actions_addchdir_np(posix_spawn_file_actions_t*, const char*);
pid_t gettid(void);
#ifdef __cplusplus
}
#endif
