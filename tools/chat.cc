// SPDX-License-Identifier: Apache-2.0
//
// wideep chat: talks to a model in a terminal, or answers what comes through a pipe.
//
// Without --url it starts `wideep serve` with the same options (chat_engine.h), so it has no engine
// of its own; with it, it talks to any server of OpenAI's API, and options of serve are refused.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/try.h"
#include "chat_client.h"
#include "chat_engine.h"
#include "chat_signals.h"
#include "chat_terminal.h"
#include "client/conversation.h"
#include "client/terminal_text.h"
#include "commands.h"
#include "keys.h"
#include "line_editor.h"
#include "piped_input.h"
#include "serve_options.h"

namespace wideep::tools {
namespace {

using command_line::GivenOption;

struct Options {
  std::shared_ptr<const server::ServeOptions> serve;
  std::vector<GivenOption> given;
  std::string url;
  std::string system;
  std::vector<std::string> fields;  // "FIELD=VALUE"
  bool each_line = false;
};

// What is the chat's own, or means the same with --url. The options of a file are given as such
// (main.cc).
constexpr std::string_view kNotServes[] = {"MODEL",          "--model",        "--api-key",
                                           "--api-key-file", "--options-file", "--url",
                                           "--system",       "--set",          "--each-line"};

bool is_serves(const GivenOption& option) {
  return std::ranges::find(kNotServes, option.name) == std::end(kNotServes);
}

// The key that options say; "": none.
Result<std::string> key_of(const Options& options) {
  const auto file = std::ranges::find(options.given, "--api-key-file", &GivenOption::name);
  const std::string& key = options.serve->service.api_key;
  if (file == options.given.end()) return key;
  if (!key.empty()) return invalid_input("--api-key-file: leave it out where --api-key is given");
  return read_key_file("--api-key-file", file->values.front());
}

std::vector<std::string> serve_arguments(const Options& options) {
  std::vector<std::string> arguments = {"--model", options.serve->run.model_dir};
  bool has_port = false;
  for (const GivenOption& each : options.given) {
    if (!is_serves(each)) continue;
    has_port |= each.name == "--port";
    if (each.values.empty()) arguments.push_back(each.name);
    for (const std::string& value : each.values) {
      // A value may begin with a dash; one that is empty can only be an argument of its own.
      if (value.empty()) arguments.insert(arguments.end(), {each.name, ""});
      if (!value.empty()) arguments.push_back(fmt::format("{}={}", each.name, value));
    }
  }
  if (!has_port) arguments.insert(arguments.end(), {"--port", "0"});
  return arguments;
}

Result<client::HttpAddress> address_of(const Options& options) {
  if (options.url.starts_with("https://")) {
    return invalid_input(fmt::format(
        "--url: {}: https is not built in; start a proxy on this machine that speaks TLS to that "
        "server (caddy, nginx, stunnel) and give its address, as http://127.0.0.1:8080/v1",
        options.url));
  }
  const auto parsed = client::parse_address(options.url);
  if (!parsed.ok()) return parsed.status().at("--url");
  client::HttpAddress address = *parsed;
  if (address.path.empty()) address.path = "/v1";
  WIDEEP_TRY_ASSIGN(address.api_key, key_of(options));
  for (const char* variable : {"WIDEEP_API_KEY", "OPENAI_API_KEY"}) {
    const char* key = std::getenv(variable);
    if (key == nullptr || *key == '\0' || !address.api_key.empty()) continue;
    // A line end would begin another header.
    if (const std::string complaint = complain_of_key(key); !complaint.empty()) {
      return invalid_input(fmt::format("{}: {}", variable, complaint));
    }
    address.api_key = key;
  }
  return address;
}

Result<client::Conversation> new_conversation(const Options& options) {
  client::Conversation conversation;
  conversation.set_system(options.system);
  for (const std::string& field : options.fields) {
    const size_t equals = field.find('=');
    if (equals == field.npos || equals == 0 || equals + 1 == field.size()) {
      return invalid_input(fmt::format("--set: expected FIELD=VALUE, found '{}'", field));
    }
    if (const Status status = conversation.set(field); !status.ok()) return status.at("--set");
  }
  return conversation;
}

Status check(const Options& options) {
  WIDEEP_TRY(new_conversation(options).status());
  if (options.url.empty()) {
    if (!options.serve->run.model_dir.empty()) return {};
    return invalid_input(
        "MODEL is required (a directory or a GGUF file), or --url URL of a server");
  }
  for (const GivenOption& each : options.given) {
    if (is_serves(each)) {
      return invalid_input(
          fmt::format("{}: is for an engine that chat starts; leave out it or --url", each.name));
    }
  }
  return {};
}

// One line that is rewritten while the model loads.
class StartLine {
 public:
  void show(const std::string& last_line) {
    if (!is_terminal_) return;
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(Clock::now() - begin_);
    // In less than 80 columns: a line that goes on in the next row could not be written over.
    const std::string text = fmt::format("starting the engine: {} s  {}", seconds.count(),
                                         client::terminal_line(last_line, 40));
    [[maybe_unused]] const int written = std::fprintf(stderr, "\r%s\x1b[K", text.c_str());
    std::fflush(stderr);
    is_shown_ = true;
  }
  ~StartLine() {
    if (is_shown_) std::fputs("\r\x1b[K", stderr);
  }

 private:
  using Clock = std::chrono::steady_clock;
  const bool is_terminal_ = ::isatty(STDERR_FILENO) != 0;
  const Clock::time_point begin_ = Clock::now();
  bool is_shown_ = false;
};

// Of a pipe: prints the answer and nothing else.
Status answer_plainly(const ChatClient& client, const std::string& model,
                      client::Conversation* conversation) {
  const bool is_terminal = ::isatty(STDOUT_FILENO) != 0;
  std::string text;
  const auto print = [&](const client::ReplyPiece& piece) {
    text += piece.content;
    const std::string shown = is_terminal ? client::terminal_text(piece.content) : piece.content;
    std::fwrite(shown.data(), 1, shown.size(), stdout);
    std::fflush(stdout);
  };
  client::ReplyReader reply;
  int signal = 0;
  const Status status =
      client.ask(conversation->request(model), {.on_piece = print, .on_wait = {}}, &reply, &signal);
  if (!text.ends_with('\n') && !(text.empty() && !status.ok())) std::fputc('\n', stdout);
  std::fflush(stdout);
  WIDEEP_TRY(status);
  if (reply.finish_reason() == "length") log::warn("the answer is cut off at the limit of tokens");
  conversation->add_answer(std::move(text));
  return {};
}

// It would become other text without a word.
Status check_input(std::string_view text) {
  const auto at = client::no_utf8_at(text);
  if (!at) return {};
  return invalid_input(
      fmt::format("standard input: expected UTF-8, found another byte at {}; iconv converts", *at));
}

Status answer_input(const Options& options, const ChatClient& client, const std::string& model,
                    PipedInput input) {
  WIDEEP_TRY_ASSIGN(client::Conversation conversation, new_conversation(options));
  const auto is_blank = [](const std::string& text) {
    return text.find_first_not_of(" \t\r\n") == text.npos;
  };
  while (options.each_line) {
    WIDEEP_TRY_ASSIGN(const std::optional<std::string> line, input.line());
    if (!line) return {};
    if (is_blank(*line)) continue;
    WIDEEP_TRY(check_input(*line));
    conversation.add_user(*line);
    WIDEEP_TRY(answer_plainly(client, model, &conversation));
  }
  WIDEEP_TRY_ASSIGN(std::string text, input.all());
  while (text.ends_with('\n') || text.ends_with('\r')) text.pop_back();
  if (is_blank(text)) return invalid_input("standard input: expected a message, found nothing");
  WIDEEP_TRY(check_input(text));
  conversation.add_user(text);
  return answer_plainly(client, model, &conversation);
}

Status talk(const Options& options, const ChatClient& client, const std::string& model,
            const ChatSignals& signals, ChatEngine* engine) {
  if (::isatty(STDIN_FILENO) == 0 || options.each_line) {
    return answer_input(options, client, model, PipedInput(signals));
  }
  WIDEEP_TRY_ASSIGN(client::Conversation conversation, new_conversation(options));
  const char* no_color = std::getenv("NO_COLOR");
  const bool is_terminal = ::isatty(STDOUT_FILENO) != 0;
  WIDEEP_TRY_ASSIGN(const std::unique_ptr<LineEditor> editor,
                    LineEditor::open(chat_history_file(), signals));
  ChatTerminal terminal(
      {.client = client,
       .editor = *editor,
       .style = {.rewrites = is_terminal,
                 .colors = is_terminal && (no_color == nullptr || *no_color == '\0')},
       .model = model,
       .check_server = [engine] { return engine == nullptr ? Status() : engine->check(); }},
      std::move(conversation));
  return terminal.run();
}

Status run(const Options& options) {
  WIDEEP_TRY(check(options));
  const ChatSignals signals;
  if (!options.url.empty()) {
    WIDEEP_TRY_ASSIGN(client::HttpAddress address, address_of(options));
    const ChatClient client(std::move(address), signals);
    std::string model = options.serve->run.model_dir;
    if (model.empty()) {
      WIDEEP_TRY_ASSIGN(model, client.first_model());
    }
    return talk(options, client, model, signals, nullptr);
  }
  WIDEEP_TRY_ASSIGN(std::string key, key_of(options));
  WIDEEP_TRY_ASSIGN(const std::unique_ptr<ChatEngine> engine,
                    ChatEngine::start(serve_arguments(options), std::move(key), signals));
  auto ready = [&] {
    StartLine line;
    return engine->wait_until_ready([&](const std::string& last) { line.show(last); });
  }();
  WIDEEP_TRY(ready.status());
  const ChatClient client(*std::move(ready), signals);
  WIDEEP_TRY_ASSIGN(const std::string model, client.first_model());
  return talk(options, client, model, signals, engine.get());
}

}  // namespace

void add_chat_command(command_line::Command app, Status* status) {
  const command_line::Command command = app.add_command(
      "chat", "Talk to a model in a terminal, or to any server of OpenAI's API with --url");
  auto options = std::make_shared<Options>();
  command.add_option(
      "--url", options->url,
      "Talk to this server, http://host[:port][/path] (default path: /v1), instead of "
      "starting an engine; MODEL is then its name there (default: the first of "
      "/models), and --api-key or --api-key-file the server's key (also WIDEEP_API_KEY, "
      "OPENAI_API_KEY)");
  command.add_option("--system", options->system, "System prompt: what the model shall be");
  command
      .add_option("--set", options->fields,
                  "FIELD=VALUE: a field of the requests, as temperature=0.5 or max_tokens=200; "
                  "repeat it for more; the server checks them")
      .one_value_each();
  command.add_flag(
      "--each-line", options->each_line,
      "Each line of standard input is a message of one conversation; without it, all of "
      "a pipe is one message");
  // All others are those of serve, for the engine.
  options->serve = add_serve_options(command);
  command.on_run([options, command, status] {
    options->given = command.given();
    *status = run(*options);
  });
}

}  // namespace wideep::tools
