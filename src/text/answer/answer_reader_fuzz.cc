// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <random>
#include <string_view>

#include "answer/answer_testing.h"
#include "tokenizer/utf8.h"

// Any text in any format can be read, and gives the same however it is cut; arguments that are not
// JSON already become JSON. The first four bytes choose format, reasoning, how the answer ends, and
// the pieces.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace wideep::answer;
  constexpr size_t kChoices = 4;
  if (size < kChoices) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + kChoices, size - kChoices);
  const auto formats = call_formats();
  const auto thoughts = reasoning_formats();
  AnswerSettings settings =
      settings_of(data[1] % 4 == 0 ? nullptr : &thoughts[data[1] % thoughts.size()],
                  data[0] == 255 ? nullptr : formats[data[0] % formats.size()], some_tools());
  settings.begins_in_reasoning = data[2] % 2 == 1;
  const bool is_cut = data[2] / 2 % 2 == 1;
  std::minstd_rand random(data[3]);
  const ReadAnswer whole = read_answer(settings, text, {}, is_cut);
  if (!(read_answer(settings, text, random_pieces(text.size(), random), is_cut) == whole)) {
    std::abort();
  }
  const CallFormat* format = settings.format.calls;
  const bool makes_json = format != nullptr && format->form != ArgumentsForm::kJson && !is_cut;
  if (makes_json && wideep::tokenizer::is_valid_utf8(text) && !has_json_arguments(whole)) {
    std::abort();
  }
  return 0;
}
