// SPDX-License-Identifier: Apache-2.0
//
// What reading an answer costs for each token, of four bytes: of every format a call with a long
// text argument, and content without any call.
#include <benchmark/benchmark.h>

#include <string>

#include "answer/answer_testing.h"

namespace wideep::answer {
namespace {

constexpr size_t kTokenBytes = 4;
constexpr size_t kTextBytes = 8000;

std::string long_text(std::string_view unit) {
  std::string text;
  while (text.size() < kTextBytes) text += unit;
  return text;
}

// A call of get_weather(city=…), as the format writes it.
std::string call_in(const std::string& format, const std::string& city) {
  const std::string object = "{\"city\": \"" + city + "\"}";
  const std::string call = "{\"name\": \"get_weather\", \"arguments\": " + object + "}";
  if (format == "hermes") return "<tool_call>\n" + call + "\n</tool_call>";
  if (format == "granite") return "<|tool_call|>[" + call + "]";
  if (format == "hunyuan_a13b") return "<tool_calls>[" + call + "]</tool_calls>";
  if (format == "llama3_json") return call;
  if (format == "mistral") return "[TOOL_CALLS]get_weather[ARGS]" + object;
  if (format == "deepseek_v3") {
    return "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n```"
           "json\n" +
           object + "\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>";
  }
  if (format == "deepseek_v31") {
    return "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>" + object +
           "<｜tool▁call▁end｜><｜tool▁calls▁end｜>";
  }
  if (format == "deepseek_v32") {
    return "<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"get_weather\">\n<｜DSML｜parameter "
           "name=\"city\" string=\"true\">" +
           city + "</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>";
  }
  if (format == "kimi_k2") {
    return "<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0"
           "<|tool_call_argument_begin|>" +
           object + "<|tool_call_end|><|tool_calls_section_end|>";
  }
  if (format == "glm45") {
    return "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>" + city +
           "</arg_value>\n</tool_call>";
  }
  if (format == "qwen3_coder") {
    return "<tool_call>\n<function=get_weather>\n<parameter=city>\n" + city +
           "\n</parameter>\n</function>\n</tool_call>";
  }
  if (format == "minimax_m2") {
    return "<minimax:tool_call>\n<invoke name=\"get_weather\">\n<parameter name=\"city\">" + city +
           "</parameter>\n</invoke>\n</minimax:tool_call>";
  }
  return "[get_weather(city=\"" + city + "\")]";
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
  read_in_tokens(state, settings,
                 call_in(std::string(format.name), long_text("Berlin is a city, <b> it is. ")), 1);
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
