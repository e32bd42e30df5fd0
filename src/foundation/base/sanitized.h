// SPDX-License-Identifier: Apache-2.0
//
// Whether this program was built with AddressSanitizer or ThreadSanitizer: some
// tests then do less or are skipped.
#pragma once

#include <cstdlib>

namespace wideep::base {

inline constexpr bool kSanitized =
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    true;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
    true;
#else
    false;
#endif
#else
    false;
#endif

// The same of the command that a test runs (WIDEEP_BINARY), which may be that of another build: its
// runner then sets WIDEEP_SANITIZED.
inline bool is_command_sanitized() {
  return kSanitized || std::getenv("WIDEEP_SANITIZED") != nullptr;
}

}  // namespace wideep::base
