// SPDX-License-Identifier: Apache-2.0
//
// Between two looks at a word that another core changes. Thread safety: yes.
#pragma once

#include <thread>

namespace wideep::base {

inline void spin_pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#else
  std::this_thread::yield();
#endif
}

}  // namespace wideep::base
