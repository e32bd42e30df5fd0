// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <random>
#include <string>
#include <string_view>

#include "answer/marked_values_testing.h"
#include "answer/value_end.h"
#include "tokenizer/utf8.h"

namespace {

using namespace wideep::answer;

void check_cost(const CallFormat& format, std::string_view text) {
  if (format.form != ArgumentsForm::kTags) return;
  const ToolList tools(some_tools());
  const ValueEnd value_end(format, *tools.find("f"));
  // All marks begin so. Each may be asked for an argument's end, a call's, and twice at the last.
  const auto num_marks = static_cast<size_t>(std::ranges::count(text, '<'));
  for (const Behind behind : {Behind::kMore, Behind::kNothing, Behind::kCut}) {
    const ValueEnd::Found found = value_end.find(text, behind, {.given = {"s"}});
    if (found.num_looked_at > 6 * (num_marks + 1)) std::abort();
  }
}

}  // namespace

// Calls whose arguments hold marks of their format: a streamed reading is the whole one, and no
// text makes a mark be looked at more than a few times. The first bytes choose the format and the
// pieces; of the others each is a mark of the format or a byte of text, and 0 ends a value. (What
// is read of such texts is judged in value_end_test.cc: here most texts can be read in several
// ways, and calls lack marks that models leave out at times.)
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  constexpr size_t kChoices = 2;
  if (size < kChoices || size > 4000) return 0;
  const auto formats = call_formats();
  const CallFormat& format = *formats[data[0] % formats.size()];
  const AnswerSettings settings = settings_of(nullptr, &format, some_tools());
  const std::vector<std::string_view> marks = settings.format.markers();
  constexpr const char* kNames[] = {"s", "n", "new"};
  std::vector<CallToWrite> calls = {{"f", nlohmann::ordered_json::object()}};
  std::string value;
  size_t num_values = 0;
  const auto end_value = [&] {
    if (!wideep::tokenizer::is_valid_utf8(value)) value = "?";
    if (calls.back().arguments.size() == 3)
      calls.push_back({"f", nlohmann::ordered_json::object()});
    const bool is_inside = value.starts_with('{');
    const std::string name = is_inside ? "o" : kNames[num_values++ % 3];
    nlohmann::ordered_json& argument = calls.back().arguments[name];
    argument = value;
    if (is_inside) argument = {{"k", value}};
    // Of any type: "+3" is 3, and would be written so.
    if (name == "new") argument = nlohmann::ordered_json::parse(argument_json(value, kAnyType));
    value.clear();
  };
  for (const uint8_t byte : std::string_view(reinterpret_cast<const char*>(data), size).substr(2)) {
    if (byte == 0) {
      end_value();
    } else if (byte >= 128 && byte - 128u < marks.size()) {
      value += marks[byte - 128u];
    } else {
      value += static_cast<char>(byte);
    }
  }
  end_value();
  const std::string text = calls_text(format, calls);
  check_cost(format, text);
  const ReadAnswer whole = read_answer(settings, text);
  std::minstd_rand random(data[1]);
  if (!(read_answer(settings, text, random_pieces(text.size(), random)) == whole)) std::abort();
  return 0;
}
