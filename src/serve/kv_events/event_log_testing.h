// SPDX-License-Identifier: Apache-2.0
//
// Changes of pages for the tests of KV events.
#pragma once

#include "schedule/page_changes.h"

namespace wideep::kv_events {

// Page `page` of the sequence `sequence`: its hash is 0x…sequence…page.
inline store::Name test_name(int sequence, int page) {
  store::Name name;
  name.bytes[5] = 0x80;
  name.bytes[6] = static_cast<unsigned char>(sequence);
  name.bytes[7] = static_cast<unsigned char>(page);
  return name;
}

inline engine::PageChange known(int sequence, int page) {
  engine::PageChange change{
      .page = page, .name = test_name(sequence, page), .before = test_name(sequence, page - 1)};
  change.tokens.fill(100 * sequence + page);
  return change;
}

inline engine::PageChange gone(int sequence, int page) {
  return {.is_known = false, .page = page, .name = test_name(sequence, page)};
}

}  // namespace wideep::kv_events
