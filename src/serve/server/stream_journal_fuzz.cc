// SPDX-License-Identifier: Apache-2.0
//
// Any stream, in any parts: the same bytes come out, and all of it again brings nothing new.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "server/stream_journal.h"

// data: the size of parts, then the stream.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace wideep::server;
  if (size < 1) return 0;
  const std::string_view stream(reinterpret_cast<const char*>(data + 1), size - 1);
  StreamJournalMemory memory;
  {
    StreamJournal in_parts(memory), whole(memory);
    const std::string expected = whole.take(stream);
    std::string got;
    const size_t part = 1 + data[0] % 16;
    for (size_t at = 0; at < stream.size(); at += part) {
      got += in_parts.take(stream.substr(at, part));
    }
    if (got != expected) std::abort();
    if (in_parts.resumed("{}") != whole.resumed("{}")) std::abort();
    whole.begin_again();
    if (whole.take(stream).size() > expected.size() || whole.differs()) std::abort();
    if (whole.is_behind()) std::abort();
  }
  if (memory.bytes != 0) std::abort();
  return 0;
}
