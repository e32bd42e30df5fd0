// SPDX-License-Identifier: Apache-2.0
//
// libedit reads characters through wait_for_character(), which also waits for signals: its own
// reading would miss one that comes just before it begins to wait. The history file is libedit's,
// written anew after every line, as a whole, with what other chats have added to it.
#include "line_editor.h"

#include <fmt/format.h>
#include <histedit.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <clocale>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string_view>
#include <utility>

#include "base/log.h"

namespace wideep::tools {
namespace {

constexpr wchar_t kEscape = 0x1B;
constexpr std::uintmax_t kMaxFileBytes = 32u << 20;  // more than kMaxLines can take

class EditedLines : public LineEditor {
 public:
  EditedLines(std::string file, const ChatSignals& signals)
      : signals_(signals), file_(std::move(file)) {}
  ~EditedLines() override {
    if (editor_ != nullptr) ::el_end(editor_);
    if (history_ != nullptr) ::history_end(history_);
  }

  Status begin();
  Outcome read(const std::string& prompt, std::string* line) override;
  void remember(const std::string& line) override;

 private:
  static EditedLines& of(EditLine* editor);
  static char* prompt_of(EditLine* editor) { return of(editor).prompt_.data(); }
  static int next_character(EditLine* editor, wchar_t* character) {
    return of(editor).wait_for_character(character);
  }

  void tell_terminal(const char* sequence) const {
    if (!is_terminal_) return;
    std::fputs(sequence, stdout);
    std::fflush(stdout);
  }
  void load_history();
  bool save_with(const std::string& line) const;
  int wait_for_character(wchar_t* character);
  bool take_mark_of_paste();
  bool take_pasted(wchar_t* character);
  int read_character(wchar_t* character) const;
  bool take_signal();

  const ChatSignals& signals_;
  std::string file_, prompt_;
  EditLine* editor_ = nullptr;
  History* history_ = nullptr;
  const bool is_terminal_ = ::isatty(STDOUT_FILENO) != 0;
  bool is_pasting_ = false;  // between the marks of a paste
  std::wstring next_;        // characters that come before those of the terminal
  int signal_ = 0;           // that has ended the reading of the line
  std::string interrupted_;  // what was typed before it
};

EditedLines& EditedLines::of(EditLine* editor) {
  void* self = nullptr;
  ::el_get(editor, EL_CLIENTDATA, &self);
  return *static_cast<EditedLines*>(self);
}

Status EditedLines::begin() {
  // Characters of more than a byte, also where the environment says nothing of a language.
  std::setlocale(LC_CTYPE, "");
  if (MB_CUR_MAX == 1) std::setlocale(LC_CTYPE, "C.UTF-8");
  editor_ = ::el_init("wideep", stdin, stdout, stderr);
  history_ = ::history_init();
  if (editor_ == nullptr || history_ == nullptr) return failed("the terminal cannot be used");
  ::el_set(editor_, EL_CLIENTDATA, this);
  ::el_set(editor_, EL_PROMPT, &EditedLines::prompt_of);
  ::el_set(editor_, EL_EDITOR, "emacs");
  ::el_set(editor_, EL_SIGNAL, 0);
  ::el_set(editor_, EL_GETCFN, &EditedLines::next_character);
  constexpr std::pair<const char*, const char*> kKeys[] = {
      {"^R", "em-inc-search-prev"}, {"\\e[3~", "ed-delete-next-char"}, {"\\e[H", "ed-move-to-beg"},
      {"\\e[F", "ed-move-to-end"},  {"\\e[1~", "ed-move-to-beg"},      {"\\e[4~", "ed-move-to-end"},
      {"\\e[1;5C", "em-next-word"}, {"\\e[1;5D", "ed-prev-word"}};
  for (const auto& [key, action] : kKeys) ::el_set(editor_, EL_BIND, key, action, nullptr);
  HistEvent event;
  ::history(history_, &event, H_SETSIZE, kMaxLines);
  ::history(history_, &event, H_SETUNIQUE, 1);
  load_history();
  ::el_set(editor_, EL_HIST, ::history, history_);
  ::el_source(editor_, nullptr);  // ~/.editrc
  return {};
}

// A link is followed, as the renaming of a new file would replace it. One to /dev/null is how users
// say that shells shall keep no lines.
void EditedLines::load_history() {
  std::error_code error;
  if (const auto real = std::filesystem::canonical(file_, error); !error) file_ = real;
  if (std::filesystem::is_character_file(file_, error)) file_.clear();
  error.clear();
  const std::uintmax_t bytes = file_.empty() ? 0 : std::filesystem::file_size(file_, error);
  if (error || bytes == 0) return;
  HistEvent event;
  if (bytes <= kMaxFileBytes && ::history(history_, &event, H_LOAD, file_.c_str()) >= 0) return;
  log::warn("{}: is no history of lines; it stays as it is, and this chat's lines are not kept",
            file_);
  file_.clear();
}

LineEditor::Outcome EditedLines::read(const std::string& prompt, std::string* line) {
  prompt_ = prompt;
  signal_ = 0;
  line->clear();
  ::el_resize(editor_);
  int length = 0;
  errno = 0;
  // libedit takes the terminal over after it has shown the prompt: a key at that moment would be
  // the terminal's own, and Ctrl-D lost.
  ::el_set(editor_, EL_PREP_TERM, 1);
  tell_terminal("\x1b[?2004h");
  const char* typed = ::el_gets(editor_, &length);
  tell_terminal("\x1b[?2004l");
  if (signal_ != 0) {
    *line = interrupted_;
    is_pasting_ = false;
    // What was typed is no part of the next line.
    ::el_reset(editor_);
    return signal_ == SIGINT ? Outcome::kInterrupted : Outcome::kStopped;
  }
  if (typed == nullptr || length <= 0) return Outcome::kEnd;
  line->assign(typed, static_cast<size_t>(length));
  while (line->ends_with('\n') || line->ends_with('\r')) line->pop_back();
  return is_pasting_ ? Outcome::kPart : Outcome::kLine;
}

void EditedLines::remember(const std::string& line) {
  if (line.find_first_not_of(" \t") == line.npos || line.size() > kMaxLineBytes) return;
  HistEvent event;
  ::history(history_, &event, H_ENTER, line.c_str());
  if (file_.empty() || save_with(line)) return;
  log::warn("{}: cannot be written; lines are not kept", file_);
  file_.clear();
}

// Adds the line to the file as it is now: other chats have theirs in it, too.
bool EditedLines::save_with(const std::string& line) const {
  const std::unique_ptr<History, decltype(&::history_end)> all(::history_init(), ::history_end);
  if (all == nullptr) return false;
  HistEvent event;
  ::history(all.get(), &event, H_SETSIZE, kMaxLines);
  ::history(all.get(), &event, H_SETUNIQUE, 1);
  std::error_code error;
  const std::uintmax_t bytes = std::filesystem::file_size(file_, error);
  if (!error && bytes > kMaxFileBytes) return false;
  if (!error && bytes > 0 && ::history(all.get(), &event, H_LOAD, file_.c_str()) < 0) return false;
  ::history(all.get(), &event, H_ENTER, line.c_str());
  const std::string temporary = fmt::format("{}.{}", file_, ::getpid());
  const bool wrote = ::history(all.get(), &event, H_SAVE, temporary.c_str()) >= 0 &&
                     std::rename(temporary.c_str(), file_.c_str()) == 0;
  if (!wrote) std::remove(temporary.c_str());
  return wrote;
}

// Returns 1 with a character, 0 at the end of the input, -1 where a signal ends the line.
int EditedLines::wait_for_character(wchar_t* character) {
  for (;;) {
    if (!next_.empty()) {
      *character = next_.front();
      next_.erase(0, 1);
      return 1;
    }
    pollfd waits[] = {{STDIN_FILENO, POLLIN, 0}, {signals_.fd(), POLLIN, 0}};
    if (::poll(waits, 2, -1) < 0 && errno != EINTR) return 0;
    if (waits[1].revents != 0 && take_signal()) return -1;
    if (waits[0].revents == 0) continue;
    const int count = read_character(character);
    if (count != 1) return count;
    // Ctrl-D that was typed during an answer, or Ctrl-Space: libedit would quote the key after it.
    if (*character == L'\0') continue;
    if (*character == kEscape && take_mark_of_paste()) continue;
    if (!is_pasting_ || take_pasted(character)) return 1;
  }
}

// After an escape: whether what follows makes it the mark of a paste's beginning or end. Else what
// was read of it comes next. An end that is missed would make all keys that follow text.
bool EditedLines::take_mark_of_paste() {
  // A sequence comes at once, keys do not. Behind what is pasted its end comes for certain, over a
  // slow connection in parts.
  const int patience_ms = is_pasting_ ? 2000 : 50;
  constexpr std::wstring_view kBegin = L"[200~", kEnd = L"[201~";
  std::wstring read;
  for (;;) {
    if (read == kBegin || read == kEnd) {
      is_pasting_ = read == kBegin;
      return true;
    }
    pollfd waits{STDIN_FILENO, POLLIN, 0};
    const bool may_be = kBegin.starts_with(read) || kEnd.starts_with(read);
    wchar_t character = 0;
    if (!may_be || ::poll(&waits, 1, patience_ms) != 1 || read_character(&character) != 1) break;
    if (is_pasting_ && character == kEscape) {  // the one before was of the text
      next_ += read;
      read.clear();
      continue;
    }
    read += character;
  }
  next_ += read;
  if (is_pasting_) std::erase_if(next_, [](wchar_t each) { return each < L' '; });
  return false;
}

// False: it is left out. Keys of libedit are not for a text: a tab is quoted, and other control
// characters but line ends mean nothing to a model.
bool EditedLines::take_pasted(wchar_t* character) {
  constexpr wchar_t kQuoteNext = 0x16;  // Ctrl-V
  if (*character == L'\n' || *character == L'\r') return true;
  if (*character == L'\t') {
    next_ = L"\t";
    *character = kQuoteNext;
    return true;
  }
  return *character >= L' ' && *character != 0x7F;
}

// Whether the signal ends the line. After the others the line is drawn again.
bool EditedLines::take_signal() {
  const int signal = signals_.take();
  if (signal == SIGINT || ChatSignals::ends_chat(signal)) {
    const LineInfo* typed = ::el_line(editor_);
    interrupted_.assign(typed->buffer, static_cast<size_t>(typed->lastchar - typed->buffer));
    signal_ = signal;
    return true;
  }
  if (signal == SIGCONT) ::el_set(editor_, EL_PREP_TERM, 1);  // the shell has had the terminal
  if (signal == SIGWINCH) ::el_resize(editor_);
  if (signal != 0) ::el_set(editor_, EL_REFRESH);
  return false;
}

int EditedLines::read_character(wchar_t* character) const {
  const auto next_byte = [](uint8_t* byte) { return ::read(STDIN_FILENO, byte, 1) == 1; };
  uint8_t byte = 0;
  if (!next_byte(&byte)) return 0;
  const int more = byte < 0x80 ? 0 : byte >= 0xF0 ? 3 : byte >= 0xE0 ? 2 : byte >= 0xC2 ? 1 : -1;
  if (more < 0) {
    *character = L'\uFFFD';
    return 1;
  }
  auto code = static_cast<uint32_t>(more == 0 ? byte : byte & (0x3F >> more));
  for (int i = 0; i < more; ++i) {
    if (!next_byte(&byte)) return 0;
    code = code << 6 | (byte & 0x3Fu);
  }
  const bool is_character = code <= 0x10FFFF && (code < 0xD800 || code > 0xDFFF);
  *character = is_character ? static_cast<wchar_t>(code) : L'\uFFFD';
  return 1;
}

}  // namespace

Result<std::unique_ptr<LineEditor>> LineEditor::open(const std::string& history,
                                                     const ChatSignals& signals) {
  auto lines = std::make_unique<EditedLines>(history, signals);
  if (const Status begun = lines->begin(); !begun.ok()) return begun;
  return std::unique_ptr<LineEditor>(std::move(lines));
}

std::string chat_history_file() {
  const char* state = std::getenv("XDG_STATE_HOME");
  const char* home = std::getenv("HOME");
  std::filesystem::path folder;
  if (state != nullptr && *state == '/') {
    folder = state;
  } else if (home != nullptr && *home == '/') {
    folder = std::filesystem::path(home) / ".local" / "state";
  } else {
    return "";
  }
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  folder /= "wideep";
  if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) return "";
  return folder / "chat_history";
}

}  // namespace wideep::tools
