// SPDX-License-Identifier: Apache-2.0
//
// What a serving process that has died had begun is not begun again by the next one: it may have
// been done, and its name be taken.
#include "server/cache_service.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <thread>
#include <utility>

#include "api/openai_reply.h"
#include "base/printable.h"
#include "base/random_hex.h"
#include "formats/json_parse.h"
#include "formats/json_text.h"
#include "store/directory.h"

namespace wideep::server {
namespace {

using nlohmann::ordered_json;

constexpr size_t kMaxNameBytes = 128;
// Before anything was measured; computing is dear then, so that imported pages stay.
constexpr double kUnmeasuredPageSeconds = 1.0;

// The text of a field that may be missing, which is taken out of the body.
Parsed<std::string> take_name(ordered_json& body) {
  const auto found = body.find("name");
  if (found == body.end() || found->is_null()) {
    body.erase("name");
    return std::string();
  }
  if (!found->is_string() || !is_archive_name(found->get_ref<const std::string&>())) {
    return HttpError{.message = fmt::format(
                         "name: expected 1 to {} of the letters A to Z and a to z, digits, '.', "
                         "'_' and '-', the first no '.'; found {}",
                         kMaxNameBytes, base::printable(formats::json_text(*found), 60)),
                     .param = "name"};
  }
  std::string name = found->get<std::string>();
  body.erase("name");
  return name;
}

HttpError error_of(const Status& status, int status_of_invalid, const char* code) {
  const bool is_invalid = status.code() == StatusCode::kInvalidInput;
  return {.status = is_invalid ? status_of_invalid : 500,
          .message = status.message(),
          .param = is_invalid ? "name" : "",
          .code = is_invalid ? code : ""};
}

}  // namespace

bool is_archive_name(std::string_view name) {
  constexpr std::string_view kAllowed =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
  return !name.empty() && name.size() <= kMaxNameBytes && name[0] != '.' &&
         name.find_first_not_of(kAllowed) == name.npos;
}

Status prepare_export_dir(const std::string& path) {
  std::error_code error;
  const std::filesystem::path parent = std::filesystem::path(path).parent_path();
  if (!parent.empty()) std::filesystem::create_directories(parent, error);
  const bool is_there = ::mkdir(path.c_str(), 0700) == 0 || errno == EEXIST;
  if (is_there && std::filesystem::is_directory(path, error) &&
      ::access(path.c_str(), R_OK | W_OK | X_OK) == 0) {
    return {};
  }
  return invalid_input(fmt::format("{}: expected a directory that can be written: {}", path,
                                   std::strerror(is_there && errno == EEXIST ? ENOTDIR : errno)));
}

Parsed<CachePrompt> CacheService::read_prompt(ordered_json body) const {
  return read_cache_prompt(std::move(body), {.preparation = text_.preparation(),
                                             .responses = text_.responses(),
                                             .model = options_.model});
}

// ---- on the serving thread ----

void CacheService::export_prompt(const std::shared_ptr<Exchange>& exchange) {
  work_on(exchange, [this, seconds = page_seconds()](ordered_json body) {
    return exported(std::move(body), seconds);
  });
}

void CacheService::import_archive(const std::shared_ptr<Exchange>& exchange) {
  work_on(exchange, [this](ordered_json body) { return imported(std::move(body)); });
}

std::optional<HttpError> CacheService::refusal(const Exchange& exchange) const {
  if (options_.export_dir.empty()) {
    return HttpError{.message =
                         "this server has no directory for archives; start it with "
                         "--prompt-cache-export-dir",
                     .code = "no_export_dir"};
  }
  if (open_ == nullptr) {
    return HttpError{.message =
                         "this server keeps prompts nowhere beyond its ranks' caches; start it "
                         "with --prompt-cache-dir, for one",
                     .code = "no_prompt_cache"};
  }
  if (exchange.is_inherited()) {
    return HttpError{.status = 503,
                     .message =
                         "the process that had begun this has died; it may have been done: "
                         "try again, an export with another name",
                     .code = "process_died"};
  }
  if (work_.size() >= kMaxWaiting) {
    return HttpError{
        .status = 429,
        .message = fmt::format("{} exports and imports run or wait, at most {} may; try "
                               "again later",
                               work_.size(), kMaxWaiting),
        .code = "queue_full"};
  }
  return {};
}

// What is evicted first where the archive is imported depends on it, and nothing else.
double CacheService::page_seconds() const {
  const auto computed =
      static_cast<double>(metrics_.computed_prompt_tokens + metrics_.generated_tokens);
  if (computed < 1.0 || metrics_.iteration_seconds <= 0.0) return kUnmeasuredPageSeconds;
  return metrics_.iteration_seconds / computed * static_cast<double>(store::kPageTokens);
}

void CacheService::work_on(const std::shared_ptr<Exchange>& exchange, Make make) {
  if (const auto error = refusal(*exchange)) return replies_.refuse(exchange, *error);
  ExchangeWork::Work work = [this, make = std::move(make),
                             text = std::make_shared<const std::string>(exchange->take_body())] {
    auto body = formats::parse_exact_json(*text, "body");
    Reply made = HttpError{.message = body.ok() ? "expected an object as the body"
                                                : body.status().message()};
    if (body.ok() && body->is_object()) made = make(std::move(*body));
    return [this, made = std::move(made)](const std::shared_ptr<Exchange>& each) {
      if (const auto* error = std::get_if<HttpError>(&made)) return replies_.refuse(each, *error);
      replies_.reply(each, kJson, json_text(std::get<ordered_json>(made)));
    };
  };
  if (!work_.is_connected()) return work_.do_at_once(exchange, work);
  work_.add(exchange, std::move(work));
}

std::string CacheService::path_of_archive(const std::string& name) const {
  return (std::filesystem::path(options_.export_dir) / name).string();
}

// ---- on the thread of the work ----

std::optional<HttpError> CacheService::open_places() {
  if (places_) return {};
  auto opened = open_();
  if (!opened.ok()) return HttpError{.status = 500, .message = opened.status().message()};
  form_ = std::move(opened->form);
  places_.emplace(std::move(opened->places));
  return {};
}

CacheService::Reply CacheService::exported(ordered_json body, double page_seconds) {
  WIDEEP_PARSED(std::string name, take_name(body));
  if (name.empty()) name = "prompt-" + base::random_hex(8);
  WIDEEP_PARSED(const CachePrompt prompt, read_prompt(std::move(body)));
  WIDEEP_REFUSE_IF(open_places());
  const auto done = run::export_prompt(form_,
                                       {.path = path_of_archive(name),
                                        .tokens = prompt.tokens.ids(),
                                        .salt = prompt.salt,
                                        .page_seconds = page_seconds,
                                        .goes_on = [this] { return !ends_; }},
                                       *places_);
  if (!done.ok()) return error_of(done.status(), 409, "archive_exists");
  if (done->pages == 0) {
    return HttpError{.status = 404,
                     .message = fmt::format(
                         "none of the {} full pages of these {} tokens is kept; pages have {} "
                         "tokens, and are kept once they were computed",
                         done->missing, prompt.tokens.size(), store::kPageTokens),
                     .code = "pages_not_found"};
  }
  return ordered_json{{"object", "cache.export"},
                      {"name", name},
                      {"tokens", prompt.tokens.size()},
                      {"pages", done->pages},
                      {"missing_pages", done->missing},
                      {"states", done->states},
                      {"bytes", done->bytes}};
}

CacheService::Reply CacheService::imported(ordered_json body) {
  WIDEEP_PARSED(const std::string name, take_name(body));
  if (name.empty()) return HttpError{.message = "name: expected one, found none", .param = "name"};
  if (!body.empty()) {
    return HttpError{.message = fmt::format("{}: this field is not known",
                                            base::printable(body.begin().key(), 60)),
                     .param = base::printable(body.begin().key(), 60)};
  }
  WIDEEP_REFUSE_IF(open_places());
  const auto done =
      run::import_archive(form_, path_of_archive(name), *places_, [this] { return !ends_; });
  if (!done.ok()) return error_of(done.status(), 404, "archive_not_found");
  // Ranks look so often whether a directory has got more: after the reply they find it.
  if (done->pages + done->states > 0) std::this_thread::sleep_for(store::Directory::kPollInterval);
  const run::SkippedRecords& skipped = done->skipped;
  return ordered_json{{"object", "cache.import"},
                      {"name", name},
                      {"tokens", done->pages * static_cast<int64_t>(store::kPageTokens)},
                      {"pages", done->pages},
                      {"states", done->states},
                      {"bytes", done->bytes},
                      {"skipped",
                       {{"other_class", skipped.other_class},
                        {"wrong", skipped.wrong},
                        {"damaged", skipped.damaged},
                        {"foreign", skipped.foreign},
                        {"refused", skipped.refused}}}};
}

}  // namespace wideep::server
