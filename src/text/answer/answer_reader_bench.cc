// SPDX-License-Identifier: Apache-2.0
//
// What reading an answer costs for each token, of four bytes: of every format a call with a long
// text argument, and content without any call.
#include <benchmark/benchmark.h>

#include <string>

#include "answer/answer_testing.h"
#include "answer/written_calls_testing.h"

namespace wideep::answer {
namespace {

constexpr size_t kTokenBytes = 4;
constexpr size_t kTextBytes = 8000;

std::string long_text(std::string_view unit) {
  std::string text;
  while (text.size() < kTextBytes) text += unit;
  return text;
}

void read_in_tokens(benchmark::State& state, const AnswerSettings& settings, std::string_view text,
                    size_t calls) {
  int64_t num_tokens = 0;
  for (auto _ : state) {
    AnswerParts parts(settings.format.holds_space());
    const auto reader = make_answer_reader(settings);
    ReadAnswer answer;
    for (size_t at = 0; at < text.size(); at += kTokenBytes, ++num_tokens) {
      reader->add_text(text.substr(at, kTokenBytes), parts);
      collect(parts, &answer);
    }
    reader->finish(false, parts);
    collect(parts, &answer);
    if (answer.calls.size() != calls) state.SkipWithError("another number of calls");
  }
  state.SetItemsProcessed(num_tokens);
}

const CallFormat& format_of(benchmark::State& state) {
  const CallFormat& format = *call_formats()[static_cast<size_t>(state.range(0))];
  state.SetLabel(std::string(format.name));
  return format;
}

void every_format(benchmark::internal::Benchmark* benchmark) { benchmark->DenseRange(0, 12); }

void Call(benchmark::State& state) {
  const CallFormat& format = format_of(state);
  const auto settings = settings_of(find_reasoning_format("qwen3"), &format, some_tools());
  read_in_tokens(
      state, settings,
      calls_text(format, {{"get_weather", {{"city", long_text("Berlin is a city, <b> it is. ")}}}}),
      1);
}
BENCHMARK(Call)->Apply(every_format);

void Content(benchmark::State& state) {
  const auto settings =
      settings_of(find_reasoning_format("qwen3"), &format_of(state), some_tools());
  read_in_tokens(state, settings, long_text("A < b, and {c} is [d]; the rest follows.\n"), 0);
}
BENCHMARK(Content)->Apply(every_format);

}  // namespace
}  // namespace wideep::answer
