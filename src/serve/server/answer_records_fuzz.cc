// SPDX-License-Identifier: Apache-2.0
//
// Any records are refused, or are those of such an answer; so is any body with records.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "server/answer_records.h"
#include "server/stream_records.h"

// data: records, each behind a byte with its length; or a body.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace wideep::server;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  (void)split_resumed("2", bytes);
  std::vector<std::string> pieces;
  for (size_t at = 0; at < size;) {
    const size_t length = data[at++];
    pieces.emplace_back(bytes.substr(at, length));
    at += length;
  }
  auto records = AnswerRecords::read(pieces);
  if (!records.ok()) return 0;
  const std::vector<int32_t> forced = {5, 6};
  const AnswerBounds bounds{
      .id_start = "cmpl-",
      .model = "m",
      .other_model = "",
      .vocab_size = 100,
      .answers = {{.forced = {}, .max = 4, .prompt = 8}, {.forced = forced, .max = 6, .prompt = 3}},
      .max_likely = 2};
  if (!check(*records, bounds).ok()) return 0;
  for (const AnswerToken& each : records->tokens) {
    if (each.index >= 2 || each.token.sampled.token >= 100) std::abort();
  }
  if (records->tokens.size() > 10) std::abort();
  records->leave_machine();
  if (!AnswerRecords::read(std::vector{record_of(records->head)}).ok()) std::abort();
  return 0;
}
