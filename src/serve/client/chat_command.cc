// SPDX-License-Identifier: Apache-2.0
#include "client/chat_command.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <vector>

#include "base/spelling.h"
#include "client/terminal_text.h"

namespace wideep::client {
namespace {

enum class Takes : uint8_t { kNothing, kText, kMayText };

struct Row {
  std::string_view name;
  ChatCommand command;
  Takes takes;
  std::string_view form;  // in /help; "": another name of the row above
  std::string_view purpose;
};

constexpr Row kRows[] = {
    {"system", ChatCommand::kSystem, Takes::kMayText, "/system TEXT",
     "what the model shall be; without TEXT: nothing"},
    {"set", ChatCommand::kSet, Takes::kText, "/set FIELD VALUE",
     "a field of requests (temperature, top_p, max_tokens, ...); without VALUE: as the server has "
     "it"},
    {"show", ChatCommand::kShow, Takes::kNothing, "/show", "model, settings and size of the chat"},
    {"regen", ChatCommand::kRegen, Takes::kNothing, "/regen", "answer the last message again"},
    {"undo", ChatCommand::kUndo, Takes::kNothing, "/undo",
     "forget the last message and its answer"},
    {"clear", ChatCommand::kClear, Takes::kNothing, "/clear", "forget all messages"},
    {"read", ChatCommand::kRead, Takes::kText, "/read FILE", "put a text into the next message"},
    {"save", ChatCommand::kSave, Takes::kText, "/save FILE", "write the chat to a file, as JSON"},
    {"load", ChatCommand::kLoad, Takes::kText, "/load FILE", "go on with the chat of a file"},
    {"think", ChatCommand::kThink, Takes::kNothing, "/think",
     "show the thinking of the last answer"},
    {"help", ChatCommand::kHelp, Takes::kNothing, "/help", "these lines"},
    {"?", ChatCommand::kHelp, Takes::kNothing, "", ""},
    {"bye", ChatCommand::kEnd, Takes::kNothing, "/bye", "end (also /exit, /quit, Ctrl-D)"},
    {"exit", ChatCommand::kEnd, Takes::kNothing, "", ""},
    {"quit", ChatCommand::kEnd, Takes::kNothing, "", ""},
};

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kSpaces = " \t\r\n";
  const size_t begin = text.find_first_not_of(kSpaces);
  if (begin == text.npos) return "";
  return text.substr(begin, text.find_last_not_of(kSpaces) - begin + 1);
}

// Splits off the first word.
std::string_view first_word(std::string_view* text) {
  const size_t end = std::min(text->find_first_of(" \t\n"), text->size());
  const std::string_view word = text->substr(0, end);
  *text = trimmed(text->substr(end));
  return word;
}

// Ollama's `/set parameter temperature 0.5`, `/set system TEXT`.
CommandLine with_peers_words(CommandLine line) {
  if (line.command != ChatCommand::kSet) return line;
  std::string_view rest = line.argument;
  const std::string_view word = first_word(&rest);
  if (word == "system") return {ChatCommand::kSystem, std::string(rest)};
  if (word == "parameter") return {ChatCommand::kSet, std::string(rest)};
  return line;
}

}  // namespace

Result<CommandLine> parse_command(std::string_view line) {
  std::string_view rest = trimmed(line);
  if (rest.starts_with('/')) rest.remove_prefix(1);
  const std::string_view name = first_word(&rest);
  const auto row = std::ranges::find(kRows, name, &Row::name);
  if (row == std::end(kRows)) {
    std::vector<std::string> names;
    for (const Row& each : kRows) names.emplace_back(each.name);
    const std::optional<std::string> nearest = base::closest_word(name, names);
    return invalid_input(fmt::format(
        "/{}: unknown command{}; /help lists them; a message that begins with / needs a "
        "space before it",
        terminal_line(name, 40),
        nearest ? fmt::format("; did you mean /{}?", *nearest) : std::string()));
  }
  if (row->takes == Takes::kNothing && !rest.empty()) {
    return invalid_input(
        fmt::format("/{}: takes nothing, found '{}'", name, terminal_line(rest, 60)));
  }
  if (row->takes == Takes::kText && rest.empty()) {
    return invalid_input(fmt::format("expected {}, found /{} alone", row->form, name));
  }
  return with_peers_words({row->command, std::string(rest)});
}

std::string command_help() {
  std::string help;
  for (const Row& row : kRows) {
    if (!row.form.empty()) help += fmt::format("  {:<18}{}\n", row.form, row.purpose);
  }
  help += "A message of several lines: \"\"\" before and after it, or \\ at the ends of lines.\n";
  return help;
}

}  // namespace wideep::client
