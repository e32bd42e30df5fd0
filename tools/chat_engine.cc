// SPDX-License-Identifier: Apache-2.0
//
// The child tells where it serves in the line of its log that users read, too. Between fork and exec
// only what POSIX allows there is called.
#include "chat_engine.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <thread>

#include "base/random_hex.h"
#include "base/try.h"
#include "client/terminal_text.h"

namespace wideep::tools {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kLook{100};         // between two looks at the log
constexpr milliseconds kGrace{5000};       // between SIGTERM and SIGKILL
constexpr size_t kMaxLineBytes = 1 << 16;  // of the log

// "http://host:port" of the line `... serving MODEL on http://host:port/v1 (context ...`. MODEL may
// be any text. "": another line.
std::string url_of(std::string_view line) {
  const size_t begin = line.find("serving ");
  const size_t end = begin == line.npos ? line.npos : line.rfind("/v1 (context ");
  const size_t url = end == line.npos ? line.npos : line.rfind("http://", end);
  if (url == line.npos || url < begin) return "";
  return std::string(line.substr(url, end - url));
}

std::vector<char*> pointers_to(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

// This process's, with the key instead of an own one.
std::vector<std::string> environment_with(const std::string& key) {
  constexpr std::string_view kName = "WIDEEP_API_KEY=";
  std::vector<std::string> variables = {std::string(kName) + key};
  for (char** each = environ; *each != nullptr; ++each) {
    if (!std::string_view(*each).starts_with(kName)) variables.emplace_back(*each);
  }
  return variables;
}

std::string how_ended(int wait_status) {
  if (WIFSIGNALED(wait_status))
    return fmt::format("was killed by signal {}", WTERMSIG(wait_status));
  return fmt::format("has ended with {}", WEXITSTATUS(wait_status));
}

}  // namespace

Result<std::unique_ptr<ChatEngine>> ChatEngine::start(std::vector<std::string> arguments,
                                                      std::string key, const ChatSignals& signals) {
  if (key.empty()) key = base::random_hex(16);
  const char* folder = std::getenv("TMPDIR");
  std::string file = fmt::format("{}/wideep-chat-XXXXXX.log", folder != nullptr ? folder : "/tmp");
  const int log = ::mkostemps(file.data(), 4, O_CLOEXEC | O_APPEND);
  if (log < 0) return failed(fmt::format("{}: cannot be written: {}", file, std::strerror(errno)));
  std::unique_ptr<ChatEngine> engine(new ChatEngine(signals, std::move(key), file));
  const Status status = engine->run(std::move(arguments), log);
  ::close(log);
  WIDEEP_TRY(status);
  return engine;
}

Status ChatEngine::run(std::vector<std::string> arguments, int log) {
  arguments.insert(arguments.begin(), {"wideep", "serve"});
  std::vector<std::string> variables = environment_with(key_);
  const std::vector<char*> argv = pointers_to(arguments), environment = pointers_to(variables);
  const int nothing = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  const pid_t parent = ::getpid();
  const sigset_t mask = signals_.before();
  child_ = ::fork();
  if (child_ < 0) return failed(fmt::format("the engine cannot start: {}", std::strerror(errno)));
  if (child_ != 0) {
    ::close(nothing);
    return {};
  }
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (::getppid() != parent) ::_exit(1);  // it died before prctl took effect
  ::setpgid(0, 0);                        // Ctrl-C of the terminal is the chat's
  ::sigprocmask(SIG_SETMASK, &mask, nullptr);
  ::dup2(nothing, STDIN_FILENO);
  ::dup2(nothing, STDOUT_FILENO);
  ::dup2(log, STDERR_FILENO);
  ::execve("/proc/self/exe", argv.data(), environment.data());
  constexpr std::string_view kFailed = "error: /proc/self/exe: cannot be run\n";
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, kFailed.data(), kFailed.size());
  ::_exit(1);
}

ChatEngine::~ChatEngine() {
  if (child_ > 0) {
    ::kill(child_, SIGTERM);
    const auto end = steady_clock::now() + kGrace;
    while (::waitpid(child_, &wait_status_, WNOHANG) == 0) {
      if (steady_clock::now() >= end) ::kill(child_, SIGKILL);
      std::this_thread::sleep_for(milliseconds(20));
    }
  }
  if (!keeps_log_) ::unlink(log_file_.c_str());
}

Result<client::HttpAddress> ChatEngine::wait_until_ready(
    const std::function<void(const std::string& last_line)>& on_wait) {
  for (;;) {
    const Status running = check();
    if (!served_url_.empty()) break;
    WIDEEP_TRY(running);
    on_wait(last_line_);
    pollfd waits{signals_.fd(), POLLIN, 0};
    ::poll(&waits, 1, static_cast<int>(kLook.count()));
    const int signal = signals_.take();
    if (signal == SIGINT || ChatSignals::ends_chat(signal)) {
      return interrupted("stopped while the model was loading");
    }
  }
  WIDEEP_TRY_ASSIGN(client::HttpAddress address, client::parse_address(served_url_));
  if (address.host == "0.0.0.0") address.host = "127.0.0.1";
  if (address.host == "::") address.host = "::1";
  address.path = "/v1";
  address.api_key = key_;
  return address;
}

Status ChatEngine::check() {
  if (child_ > 0 && ::waitpid(child_, &wait_status_, WNOHANG) == child_) child_ = -1;
  read_log();
  if (child_ > 0) return {};
  // The user's mistake: the line of the command says all that there is to know.
  if (WIFEXITED(wait_status_) && WEXITSTATUS(wait_status_) == 2 && !error_line_.empty()) {
    return invalid_input(client::terminal_line(error_line_, 1000));
  }
  keeps_log_ = true;
  const std::string& line = error_line_.empty() ? last_line_ : error_line_;
  return failed(fmt::format("the engine {}: {}; its log: {}", how_ended(wait_status_),
                            client::terminal_line(line), log_file_));
}

void ChatEngine::read_log() {
  const int file = ::open(log_file_.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return;
  char part[4096];
  for (ssize_t length;
       (length = ::pread(file, part, sizeof(part), static_cast<off_t>(log_read_))) > 0;) {
    log_read_ += static_cast<size_t>(length);
    for (const char byte : std::string_view(part, static_cast<size_t>(length))) {
      if (byte != '\n') {
        if (line_.size() < kMaxLineBytes) line_ += byte;
        continue;
      }
      if (served_url_.empty()) served_url_ = url_of(line_);
      if (const size_t error = line_.find("error: "); error != line_.npos) {
        error_line_ = line_.substr(error + std::strlen("error: "));
      }
      last_line_ = std::move(line_);
      line_.clear();
    }
  }
  ::close(file);
}

}  // namespace wideep::tools
