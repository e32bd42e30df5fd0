// SPDX-License-Identifier: Apache-2.0
#include "examples.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <sstream>

namespace wideep::tools {
namespace {

using command_line::CommandFacts;
using command_line::OptionFacts;

constexpr std::array kExamples = std::to_array<Example>({
    {"", "Serve a model on two ranks", "serve models/reference --ranks 2"},
    {"", "Generate a text", "generate models/reference --prompt Once"},
    {"", "Check this machine", "doctor"},
    {"generate", "Continue a text on four ranks",
     "generate models/reference --ranks 4 --prompt Once --max-tokens 32"},
    {"serve", "Serve on port 8000 of this machine", "serve models/reference --port 8000"},
    {"serve", "Serve to other machines, with a name for clients",
     "serve models/reference --ranks 4 --host 0.0.0.0 --served-model-name stories"},
    {"doctor", "Check this machine", "doctor"},
    {"doctor", "Whether a model fits on it with four ranks",
     "doctor --model models/reference --ranks 4"},
    {"quantize", "Write a checkpoint in FP8",
     "quantize --model models/reference --to fp8 --output stories-fp8"},
    {"balance report", "How uneven a recorded load is",
     "balance report --stats expert_statistic --ep-size 8"},
    {"balance plan", "Plan a placement of experts with replicas for 8 ranks",
     "balance plan --stats expert_statistic --ep-size 8 --num-slots 80 --output plan.yaml"},
    {"bench throughput", "Tokens per second of four ranks",
     "bench throughput --model models/reference --dataset requests.jsonl --ranks 4"},
    {"bench serving", "Measure a server that runs",
     "bench serving --base-url http://127.0.0.1:8000 --model reference --num-prompts 100"},
});

bool has_name(const OptionFacts& option, const std::string& name) {
  return std::ranges::find(option.names, name) != option.names.end();
}

// A positional stands for a required option of the same model.
std::string missing_in(const CommandFacts& command, const std::vector<std::string>& given,
                       bool has_model) {
  if (command.needs_command) return "a command is missing";
  for (const OptionFacts& option : command.options) {
    const bool is_given =
        std::ranges::any_of(given, [&](const std::string& name) { return has_name(option, name); });
    const bool by_position = has_model && has_name(option, "--model");
    if (option.is_required && !is_given && !by_position) {
      return fmt::format("{} is required", option.names.front());
    }
  }
  return "";
}

}  // namespace

std::span<const Example> examples() { return kExamples; }

std::vector<std::string> words_of(std::string_view text) {
  std::istringstream stream{std::string(text)};
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

std::string example_complaint(const CommandFacts& program, const Example& example) {
  const CommandFacts* command = &program;
  std::vector<std::string> given;
  size_t positionals = 0;
  const std::vector<std::string> words = words_of(example.arguments);
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (!word.starts_with("-")) {
      if (const CommandFacts* next = find_command(*command, word); next != nullptr) {
        command = next;
      } else if (++positionals > command->positionals.size()) {
        return fmt::format("'{}' is no command and no option", word);
      }
      continue;
    }
    const OptionFacts* option = find_option(*command, word);
    if (option == nullptr) return fmt::format("there is no option {}", word);
    given.push_back(word);
    if (!option->takes_value) continue;
    if (++i == words.size()) return fmt::format("{} has no value", word);
    if (!option->choices.empty() &&
        std::ranges::find(option->choices, words[i]) == option->choices.end()) {
      return fmt::format("{} is no value of {}", words[i], word);
    }
  }
  return missing_in(*command, given, positionals > 0);
}

}  // namespace wideep::tools
