// SPDX-License-Identifier: Apache-2.0
//
// man(7) as mandoc and groff read it. A dash of an option is "\-", since "-" may be printed as a
// hyphen, which cannot be copied into a shell; a line of text must not begin with '.' or '\''. Lines
// are broken at words.
#include "man_pages.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cstring>
#include <ctime>
#include <string_view>

#include "environment.h"
#include "examples.h"

namespace wideep::tools {
namespace {

using command_line::CommandFacts;
using command_line::OptionFacts;

constexpr size_t kMaxColumns = 78;
constexpr size_t kMaxWord = 30;

// Variables of wideep's own; those of TensorRT-LLM are in environment.h.
struct OwnVariable {
  std::string_view name;
  std::string_view effect;
  std::string_view command;  // "": all
};
constexpr std::array kOwnVariables = std::to_array<OwnVariable>({
    {"WIDEEP_ISA",
     "The instruction set of the kernels, instead of the best that the processor has; doctor lists "
     "them.",
     ""},
    {"WIDEEP_API_KEY", "The key that clients must send, as --api-key.", "serve"},
    {"WIDEEP_API_KEY", "The key that is sent to the server; else OPENAI_API_KEY is.",
     "bench serving"},
    {"WIDEEP_REDIS_PASSWORD", "The password of --prompt-cache-redis, if that has none.", "serve"},
    {"WIDEEP_REDIS_PASSWORD", "The password of --prompt-cache-redis, if that has none.",
     "generate"},
});

std::string escaped(std::string_view text) {
  std::string result;
  for (const char each : text) {
    if (each == '\\') {
      result += "\\e";
    } else if (each == '-') {
      result += "\\-";
    } else {
      result += each;
    }
  }
  return result;
}

// The word of a paragraph. A list without spaces may be broken after its commas.
std::string escaped_word(const std::string& word) {
  std::string result = escaped(word);
  if (word.size() <= kMaxWord) return result;
  for (size_t at = result.find(','); at != std::string::npos; at = result.find(',', at + 1)) {
    result.insert(at + 1, "\\:");
  }
  return result;
}

// A paragraph: lines of at most kMaxColumns, none of which is taken for a request.
std::string paragraph(std::string_view text) {
  std::string result;
  size_t column = 0;
  for (const std::string& word : words_of(text)) {
    const std::string shown = escaped_word(word);
    if (column > 0 && column + 1 + shown.size() > kMaxColumns) {
      result += '\n';
      column = 0;
    } else if (column > 0) {
      result += ' ';
      ++column;
    }
    if (column == 0 && (shown[0] == '.' || shown[0] == '\'')) result += "\\&";
    result += shown;
    column += shown.size();
  }
  return result + '\n';
}

std::string bold(std::string_view text) { return "\\fB" + escaped(text) + "\\fR"; }
std::string italic(std::string_view text) { return "\\fI" + escaped(text) + "\\fR"; }

// "wideep-balance-plan"
std::string page_name(const CommandFacts& command) {
  return fmt::format("{}", fmt::join(command.path, "-"));
}

// "balance plan"; "" of the program itself.
std::string command_name(const CommandFacts& command) {
  return fmt::format("{}", fmt::join(command.path.begin() + 1, command.path.end(), " "));
}

std::string names_line(const OptionFacts& option) {
  std::string line;
  for (const std::string& name : option.names) {
    if (!line.empty()) line += ", ";
    line += bold(name);
    if (option.takes_value) line += " " + italic(option.value_name);
  }
  return line;
}

std::string option_text(const OptionFacts& option) {
  std::string text = option.description;
  const auto add = [&](const std::string& sentence) {
    if (!text.empty() && text.back() != '.') text += '.';
    text += (text.empty() ? "" : " ") + sentence;
  };
  if (!option.choices.empty()) add(fmt::format("Values: {}.", fmt::join(option.choices, ", ")));
  if (!option.range.empty()) add(fmt::format("Range: {}.", option.range));
  if (!option.default_text.empty()) add(fmt::format("Default: {}.", option.default_text));
  if (option.is_required) add("Required.");
  if (option.is_repeatable) add("May be given several times.");
  return text;
}

std::string options_section(const CommandFacts& command) {
  std::string result = ".SH OPTIONS\n";
  const auto add = [&](const std::string& names, const OptionFacts& option) {
    const std::string text = option_text(option);
    result += ".TP\n" + names + "\n" + (text.empty() ? "\\&\n" : paragraph(text));
  };
  for (const OptionFacts& each : command.positionals) add(italic(each.names[0]), each);
  for (const OptionFacts& each : command.options) add(names_line(each), each);
  return result;
}

std::string synopsis(const CommandFacts& command) {
  std::string line = bold(fmt::format("{}", fmt::join(command.path, " "))) + "\n";
  bool has_model = false;
  for (const OptionFacts& option : command.positionals) {
    line += italic(option.names[0]) + "\n";
    has_model = has_model || option.kind == command_line::ValueKind::kModel;
  }
  for (const OptionFacts& option : command.options) {
    if (!option.is_required || (has_model && option.names[0] == "--model")) continue;
    line += bold(option.names[0]) + " " + italic(option.value_name) + "\n";
  }
  line += "[" + italic("options") + "]\n";
  if (!command.commands.empty()) {
    line += italic("command") + " [" + italic("arguments") + "]\n";
  }
  return ".SH SYNOPSIS\n" + line;
}

std::string commands_section(const CommandFacts& command) {
  std::string result = ".SH COMMANDS\n";
  for (const CommandFacts& each : command.commands) {
    result += ".TP\n" + bold(each.path.back());
    for (const std::string& alias : each.aliases) result += ", " + bold(alias);
    result += "\n" + paragraph(each.description + ": see " + page_name(each) + "(1).");
  }
  return result;
}

std::string environment_section(const CommandFacts& command) {
  const std::string name = command_name(command);
  std::string result = ".SH ENVIRONMENT\n";
  const auto add = [&](std::string_view variable, std::string_view effect) {
    result += ".TP\n" + bold(variable) + "\n" + paragraph(effect);
  };
  for (const OwnVariable& each : kOwnVariables) {
    if (each.command.empty() || each.command == name) add(each.name, each.effect);
  }
  for (const EnvironmentVariable& each : environment_variables()) {
    const bool is_used = std::ranges::find(each.commands, name) != each.commands.end();
    if (is_used) add(each.name, each.effect);
  }
  return result;
}

constexpr std::string_view kFiles =
    ".SH FILES\n"
    ".TP\n\\fI/dev/shm\\fR\nMemory that ranks share; it is given back when the command ends.\n"
    ".TP\n\\fI/usr/share/wideep/models/reference\\fR\n"
    "A small model for a first try, where the package wideep\\-model\\-reference is installed.\n";

constexpr std::string_view kExitStatus =
    ".SH EXIT STATUS\n"
    ".TP\n\\fB0\\fR\nThe command did what it was asked to.\n"
    ".TP\n\\fB1\\fR\nIt failed; one line says why.\n"
    ".TP\n\\fB2\\fR\nAn option, a file or other input is wrong; one line says what is expected.\n"
    ".TP\n\\fB130\\fR\nThe user ended it (SIGINT, SIGTERM).\n";

std::string examples_section(const CommandFacts& command) {
  std::string result;
  for (const Example& each : examples()) {
    if (each.command != command_name(command)) continue;
    result += result.empty() ? "" : ".PP\n";
    result += paragraph(fmt::format("{}:", each.purpose));
    result += fmt::format(".PP\n.RS 4\n.nf\n{} {}\n.fi\n.RE\n", escaped(command.path[0]),
                          escaped(each.arguments));
  }
  return result.empty() ? "" : ".SH EXAMPLES\n" + result;
}

// The page above, those beside it, and those below.
std::string see_also(const CommandFacts& command, const CommandFacts* parent) {
  std::vector<std::string> pages;
  if (parent != nullptr) {
    pages.push_back(page_name(*parent));
    for (const CommandFacts& each : parent->commands) {
      if (each.path != command.path) pages.push_back(page_name(each));
    }
  }
  for (const CommandFacts& each : command.commands) pages.push_back(page_name(each));
  std::string result = ".SH SEE ALSO\n";
  for (size_t i = 0; i < pages.size(); ++i) {
    result += fmt::format(".BR {} (1){}\n", escaped(pages[i]), i + 1 < pages.size() ? "," : "");
  }
  return result;
}

std::string page_text(const CommandFacts& command, const CommandFacts* parent,
                      const std::string& version, const std::string& date) {
  const std::string name = page_name(command);
  std::string title = name;
  std::ranges::transform(title, title.begin(),
                         [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  // Left-aligned without hyphens: values that are copied stay whole, and long lists fit.
  std::string text =
      ".\\\" -*- coding: utf-8 -*-\n"
      ".\\\" SPDX-License-Identifier: Apache-2.0\n"
      ".\\\" Written by wideep man from the option tables.\n";
  text += fmt::format(".TH {} 1 {} \"wideep {}\" \"User Commands\"\n.ad l\n.nh\n", escaped(title),
                      date, escaped(version));
  text += fmt::format(".SH NAME\n{} \\- {}\n", escaped(name), escaped(command.description));
  text += synopsis(command);
  text += ".SH DESCRIPTION\n" + paragraph(command.description + ".");
  if (!command.aliases.empty()) {
    text += paragraph(fmt::format("Also: {}.", fmt::join(command.aliases, ", ")));
  }
  if (!command.commands.empty()) text += commands_section(command);
  text += options_section(command);
  text += environment_section(command);
  text += kFiles;
  text += kExitStatus;
  text += examples_section(command);
  return text + see_also(command, parent);
}

void add_pages(const CommandFacts& command, const CommandFacts* parent, const std::string& version,
               const std::string& date, std::vector<ManPage>* pages) {
  pages->push_back({page_name(command) + ".1", page_text(command, parent, version, date)});
  for (const CommandFacts& each : command.commands) {
    add_pages(each, &command, version, date, pages);
  }
}

}  // namespace

Result<std::vector<ManPage>> man_pages(const CommandFacts& program, const std::string& version,
                                       const std::string& date) {
  for (const Example& each : examples()) {
    const std::string complaint = example_complaint(program, each);
    if (!complaint.empty()) {
      return failed(fmt::format("example 'wideep {}': {}", each.arguments, complaint));
    }
  }
  std::vector<ManPage> pages;
  add_pages(program, nullptr, version, date, &pages);
  return pages;
}

Result<std::string> man_date(const char* source_date_epoch) {
  std::time_t seconds = std::time(nullptr);
  if (source_date_epoch != nullptr && *source_date_epoch != '\0') {
    const char* end = source_date_epoch + std::strlen(source_date_epoch);
    const auto read = std::from_chars(source_date_epoch, end, seconds);
    constexpr std::time_t kMaxSeconds = 253402300799;  // the year 9999
    if (read.ec != std::errc() || read.ptr != end || seconds < 0 || seconds > kMaxSeconds) {
      return invalid_input(fmt::format(
          "SOURCE_DATE_EPOCH={}: expected seconds since 1970, as git log -1 --format=%ct prints",
          source_date_epoch));
    }
  }
  return fmt::format("{:%Y-%m-%d}", fmt::gmtime(seconds));
}

}  // namespace wideep::tools
