// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "http/http_request_reader.h"

namespace {

using wideep::server::RequestReader;

// Reads in pieces of `step` bytes up to the end of the request; how far, and how it ended.
std::pair<size_t, int> read(std::string_view bytes, size_t step) {
  RequestReader reader({.max_body_bytes = 1000, .max_header_bytes = 500});
  size_t at = 0;
  while (at < bytes.size() && reader.progress() < RequestReader::kDone) {
    at += reader.read(bytes.substr(at, step));
  }
  const bool refused = reader.progress() == RequestReader::kRefused;
  return {refused ? 0 : at, refused ? reader.error().status : reader.progress()};
}

}  // namespace

// However the bytes are cut into pieces, the result is the same.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  if (read(bytes, 1) != read(bytes, std::max<size_t>(size, 1))) std::abort();
  return 0;
}
