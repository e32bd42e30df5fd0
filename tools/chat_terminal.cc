// SPDX-License-Identifier: Apache-2.0
//
// A message is part of the conversation once text has come for it; before, it waits in unanswered_,
// so that a refused request does not leave two messages of the user in a row, which many models do
// not take.
#include "chat_terminal.h"

#include <fmt/format.h>
#include <termios.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <utility>

#include "base/log.h"
#include "base/try.h"
#include "client/terminal_text.h"
#include "formats/files.h"
#include "formats/json_text.h"

namespace wideep::tools {
namespace {

using client::ChatCommand;
using client::terminal_line;
using Clock = client::AnswerView::Clock;

constexpr size_t kMaxReadBytes = 4 << 20;  // of a file that goes with a message

void write_out(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

// What is typed while an answer comes is not shown within it, and is the next line.
class QuietKeys {
 public:
  QuietKeys() {
    if (::tcgetattr(STDIN_FILENO, &before_) != 0) return;
    termios quiet = before_;
    quiet.c_lflag &= ~static_cast<tcflag_t>(ECHO);
    is_set_ = ::tcsetattr(STDIN_FILENO, TCSANOW, &quiet) == 0;
  }
  ~QuietKeys() {
    if (is_set_) ::tcsetattr(STDIN_FILENO, TCSANOW, &before_);
  }
  QuietKeys(const QuietKeys&) = delete;
  QuietKeys& operator=(const QuietKeys&) = delete;

 private:
  termios before_ = {};
  bool is_set_ = false;
};

std::string with_home(const std::string& file) {
  const char* home = std::getenv("HOME");
  return file.starts_with("~/") && home != nullptr ? home + file.substr(1) : file;
}

// What is no file may have no end, or no writer: Ctrl-C, which is taken where the chat waits, could
// not stop its reading.
Status check_file(const std::string& file) {
  std::error_code error;
  const std::filesystem::file_status found = std::filesystem::status(file, error);
  if (!std::filesystem::exists(found) || std::filesystem::is_regular_file(found)) return {};
  return invalid_input(
      fmt::format("{}: expected a file, found {}", file,
                  std::filesystem::is_directory(found) ? "a directory" : "a pipe or a device"));
}

// Messages may tell what a file has.
void complain(const Status& status) { log::error("{}", terminal_line(status.message(), 1000)); }

}  // namespace

Status ChatTerminal::run() {
  note(fmt::format("{}; /help lists commands, Ctrl-D ends", terminal_line(parts_.model)));
  std::string line;
  while (!ends_) {
    const LineEditor::Outcome outcome =
        parts_.editor.read(reader_.is_inside() ? "... " : ">>> ", &line);
    if (outcome == LineEditor::Outcome::kEnd) {
      write_out("\n");
      return {};
    }
    if (outcome == LineEditor::Outcome::kStopped) {
      write_out("\n");
      return interrupted("stopped by a signal");
    }
    if (outcome == LineEditor::Outcome::kInterrupted) {
      interrupt(line);
      continue;
    }
    was_interrupted_ = false;
    if (outcome == LineEditor::Outcome::kPart) {
      reader_.take_part(line);
      continue;
    }
    parts_.editor.remember(line);
    WIDEEP_TRY(take(line));
  }
  return {};
}

void ChatTerminal::interrupt(const std::string& line) {
  write_out("\n");
  const bool had_text = !line.empty() || reader_.is_inside();
  reader_.clear();
  ends_ = was_interrupted_ && !had_text;
  was_interrupted_ = !had_text;
  if (!had_text && !ends_) note("Ctrl-C again, Ctrl-D or /bye ends the chat");
}

// Errors end the chat; others are shown here.
Status ChatTerminal::take(const std::string& line) {
  if (!reader_.is_inside() && client::is_command(line)) {
    const Result<client::CommandLine> command = client::parse_command(line);
    if (!command.ok()) {
      complain(command.status());
      return {};
    }
    return take_command(*command);
  }
  const std::optional<std::string> message = reader_.take(line);
  if (!message || message->find_first_not_of(" \t\n") == message->npos) return {};
  unanswered_.clear();
  conversation_.add_user(*message);
  return answer();
}

Status ChatTerminal::take_command(const client::CommandLine& line) {
  Status status;
  switch (line.command) {
    case ChatCommand::kSystem:
      conversation_.set_system(line.argument);
      note(line.argument.empty() ? "no system prompt" : "the system prompt is set");
      break;
    case ChatCommand::kSet:
      status = set(line.argument);
      break;
    case ChatCommand::kShow:
      show();
      break;
    case ChatCommand::kRegen:
      return regenerate();
    case ChatCommand::kUndo:
      undo();
      break;
    case ChatCommand::kClear:
      conversation_.clear();
      unanswered_.clear();
      note("all messages are forgotten");
      break;
    case ChatCommand::kRead:
      status = read_text(with_home(line.argument));
      break;
    case ChatCommand::kSave:
      status = save(with_home(line.argument));
      break;
    case ChatCommand::kLoad:
      status = load(with_home(line.argument));
      break;
    case ChatCommand::kThink:
      show_thinking();
      break;
    case ChatCommand::kHelp:
      write_out(client::command_help());
      break;
    case ChatCommand::kEnd:
      ends_ = true;
      break;
  }
  if (!status.ok()) complain(status);
  return {};
}

Status ChatTerminal::answer() {
  client::AnswerView view(parts_.style, write_out, Clock::now());
  client::ReplyReader reply;
  int signal = 0;
  Status status;
  {
    const QuietKeys quiet;
    const ChatClient::Sinks sinks{
        .on_piece = [&view](const client::ReplyPiece& piece) { view.take(piece, Clock::now()); },
        .on_wait = [&view] { view.tick(Clock::now()); }};
    status = parts_.client.ask(conversation_.request(parts_.model), sinks, &reply, &signal);
    view.end(Clock::now());
  }
  thinking_ = view.thinking();
  if (const std::string figures = view.figures(reply); !figures.empty()) note(figures);
  if (ChatSignals::ends_chat(signal)) return interrupted("stopped by a signal");
  return end_answer(status, view.text());
}

Status ChatTerminal::end_answer(const Status& status, const std::string& text) {
  if (!text.empty() || status.ok()) {
    conversation_.add_answer(text);
  } else {
    unanswered_ = conversation_.messages().back().text;
    conversation_.undo();
  }
  if (status.ok()) {
    fields_since_answer_.clear();
    return {};
  }
  if (status.code() == StatusCode::kInterrupted) {
    note("stopped; /regen answers again");
    return {};
  }
  if (parts_.check_server) WIDEEP_TRY(parts_.check_server());
  const std::string fields =
      fields_since_answer_.empty()
          ? ""
          : fmt::format("; set since the last answer: {}; /set FIELD alone takes one back",
                        fields_since_answer_);
  log::error("{}{}; /regen asks again", terminal_line(status.message(), 1000), fields);
  return {};
}

Status ChatTerminal::set(const std::string& argument) {
  WIDEEP_TRY(conversation_.set(argument));
  const std::string field = terminal_line(argument.substr(0, argument.find_first_of(" \t=")), 60);
  fields_since_answer_ += (fields_since_answer_.empty() ? "" : ", ") + field;
  note(conversation_.settings().contains(field)
           ? fmt::format("{} = {}; the server checks it with the next message", field,
                         terminal_line(formats::json_text(conversation_.settings()[field])))
           : fmt::format("{} is as the server has it", field));
  return {};
}

Status ChatTerminal::read_text(const std::string& file) {
  WIDEEP_TRY(check_file(file));
  WIDEEP_TRY_ASSIGN(const std::string text, formats::read_file(file));
  if (text.size() > kMaxReadBytes || text.find('\0') != text.npos) {
    return invalid_input(
        fmt::format("{}: expected a text of at most {} MiB, found {}", file, kMaxReadBytes >> 20,
                    text.size() > kMaxReadBytes ? fmt::format("{} MiB", text.size() >> 20)
                                                : std::string("a file with a NUL byte")));
  }
  if (const auto at = client::no_utf8_at(text)) {
    return invalid_input(fmt::format("{}: expected UTF-8, found another byte at {}", file, *at));
  }
  conversation_.attach(std::filesystem::path(file).filename().string(), text);
  note(fmt::format("{} bytes go with the next message", text.size()));
  return {};
}

// A wrong name must not cost a file of another kind.
Status ChatTerminal::save(const std::string& file) const {
  WIDEEP_TRY(check_file(file));
  std::error_code error;
  if (std::filesystem::exists(file, error)) {
    const Result<std::string> before = formats::read_file(file);
    if (!before.ok() || !client::Conversation::loaded(*before, file).ok()) {
      return invalid_input(
          fmt::format("{}: is there and is no chat of /save; give another name", file));
    }
  }
  WIDEEP_TRY(formats::write_file(file, conversation_.saved(parts_.model)));
  note(fmt::format("{}: {} messages", file, conversation_.messages().size()));
  return {};
}

Status ChatTerminal::load(const std::string& file) {
  WIDEEP_TRY(check_file(file));
  WIDEEP_TRY_ASSIGN(const std::string text, formats::read_file(file));
  WIDEEP_TRY_ASSIGN(conversation_, client::Conversation::loaded(text, file));
  unanswered_.clear();
  note(fmt::format("{} messages; /show tells more", conversation_.messages().size()));
  return {};
}

Status ChatTerminal::regenerate() {
  if (!unanswered_.empty()) {
    conversation_.add_user(std::exchange(unanswered_, {}));
  } else if (!conversation_.regenerate()) {
    note("there is no message to answer");
    return {};
  }
  return answer();
}

void ChatTerminal::undo() {
  if (!unanswered_.empty()) {
    unanswered_.clear();
  } else if (!conversation_.undo()) {
    note("there is no message to forget");
    return;
  }
  note(fmt::format("forgotten; {} messages stay", conversation_.messages().size()));
}

void ChatTerminal::show() const {
  const client::HttpAddress& address = parts_.client.address();
  write_out(fmt::format(
      "  model     {}\n  server    http://{}{}\n  system    {}\n  settings  {}\n"
      "  messages  {}\n",
      terminal_line(parts_.model), terminal_line(address.authority()), terminal_line(address.path),
      conversation_.system().empty() ? "none" : terminal_line(conversation_.system()),
      conversation_.settings().empty()
          ? "as the server has them"
          : terminal_line(formats::json_text(conversation_.settings())),
      conversation_.messages().size()));
}

void ChatTerminal::show_thinking() const {
  if (thinking_.empty()) return note("the last answer has no thinking");
  note(client::terminal_text(thinking_));
}

void ChatTerminal::note(const std::string& text) const {
  write_out(client::dim(text, parts_.style.colors) + "\n");
}

}  // namespace wideep::tools
