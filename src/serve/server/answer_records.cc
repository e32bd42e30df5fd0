// SPDX-License-Identifier: Apache-2.0
//
// A record is its kind, then fields as WireWriter puts them. WireReader trusts what it reads, so
// records are read by a reader of their own, which knows where each one ends.
#include "server/answer_records.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/printable.h"
#include "base/try.h"
#include "schedule/wire.h"

namespace wideep::server {
namespace {

using engine::FinishReason;

enum class RecordKind : uint8_t { kHead, kToken, kProgress, kEnd };

constexpr size_t kMaxIdBytes = 64;
// The year 9999: beyond, no calendar has a date for a template.
constexpr int64_t kMaxCreated = 253'402'300'799;
constexpr int kMaxInterval = 1 << 20;
constexpr int kMaxDrafts = 1 << 10;
constexpr size_t kMaxLikely = 1 << 10;

Status bad(std::string_view what) {
  return invalid_input(fmt::format("expected {}, found something else", what));
}

// Fields of a record. After the first that is not there, or is not as expected, all are empty.
class RecordReader {
 public:
  explicit RecordReader(std::string_view bytes) : rest_(bytes) {}

  template <typename T>
  T get() {
    T value = {};
    if (rest_.size() < sizeof(T)) {
      is_sound_ = false;
      rest_ = {};
      return value;
    }
    std::memcpy(&value, rest_.data(), sizeof(T));
    rest_.remove_prefix(sizeof(T));
    return value;
  }
  std::string get_text() {
    const auto length = get<uint32_t>();
    if (length > rest_.size()) is_sound_ = false;
    const std::string text(rest_.substr(0, length));
    rest_.remove_prefix(text.size());
    return text;
  }
  template <typename T>
  T get_within(T first, T last) {
    const T value = get<T>();
    if (value >= first && value <= last) return value;
    is_sound_ = false;
    return first;
  }
  // An enumerator, of which `last` is the last.
  template <typename T>
  T get_one_of(T last) {
    return static_cast<T>(
        get_within<std::underlying_type_t<T>>(0, static_cast<std::underlying_type_t<T>>(last)));
  }
  // Any byte may be there, which no bool may be read from.
  bool get_flag() { return get_within<uint8_t>(0, 1) != 0; }
  engine::Sampled get_sampled() {
    engine::Sampled sampled;
    sampled.token = get<int32_t>();
    sampled.log_probability = get<float>();
    if (std::isnan(sampled.log_probability)) is_sound_ = false;
    return sampled;
  }

  bool is_sound() const { return is_sound_; }
  bool is_at_end() const { return rest_.empty(); }

 private:
  std::string_view rest_;
  bool is_sound_ = true;
};

AnswerHead read_head(RecordReader& reader) {
  AnswerHead head;
  head.id = reader.get_text();
  head.created = reader.get_within<int64_t>(0, kMaxCreated);
  head.model = reader.get_text();
  head.seed = reader.get<uint64_t>();
  head.settings.stream_interval = reader.get_within(1, kMaxInterval);
  head.settings.draft_metrics =
      static_cast<DraftMetrics>(reader.get_within(0, static_cast<int>(DraftMetrics::kDetailed)));
  head.settings.max_drafts = reader.get_within(0, kMaxDrafts);
  head.settings.reuses_pages = reader.get_flag();
  head.local.kept = reader.get_text();
  head.local.request_id = reader.get_text();
  head.local.came_ns = reader.get<int64_t>();
  const auto own = traces::parse_traceparent(reader.get_text());
  traces::RequestTrace trace;
  trace.parent_id = reader.get_text();
  trace.state = reader.get_text();
  if (own) {
    trace.own = *own;
    head.local.trace = std::move(trace);
  }
  return head;
}

AnswerToken read_token(RecordReader& reader) {
  AnswerToken read;
  read.index = reader.get<uint32_t>();
  run::Token& token = read.token;
  token.rank = reader.get<int32_t>();
  token.sampled = reader.get_sampled();
  token.finish_reason = reader.get_one_of(FinishReason::kExpertLost);
  token.cached_tokens = reader.get<int32_t>();
  token.step_drafts = reader.get_within<int32_t>(-1, kMaxDrafts);
  const auto count = reader.get_within<uint32_t>(0, kMaxLikely);
  for (uint32_t i = 0; i < count && reader.is_sound(); ++i) {
    token.likely.push_back(reader.get_sampled());
  }
  return read;
}

AnswerProgress read_progress(RecordReader& reader) {
  AnswerProgress progress;
  progress.index = reader.get<uint32_t>();
  progress.processed = reader.get<int32_t>();
  progress.begun_ns = reader.get<int64_t>();
  return progress;
}

// As Replies makes them: those of a server whose serving process was replaced have a dot.
Status check_id(const std::string& id, std::string_view start) {
  const auto is_plain = [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' ||
           c == '_' || c == '.';
  };
  const bool is_one = id.starts_with(start) && id.size() > start.size() &&
                      id.size() <= kMaxIdBytes && std::ranges::all_of(id, is_plain);
  if (is_one) return {};
  return invalid_input(
      fmt::format("the id of the reply: expected {} and at most {} of [A-Za-z0-9._-], found '{}'",
                  start, kMaxIdBytes - start.size(), base::printable(id, 80)));
}

Status check_model(const std::string& model, const AnswerBounds& bounds) {
  const bool is_other = !bounds.other_model.empty() && model == bounds.other_model;
  if (model == bounds.model || is_other) return {};
  return invalid_input(fmt::format("the model: expected '{}', found '{}'",
                                   base::printable(bounds.model, 80), base::printable(model, 80)));
}

// Of one answer, as its tokens come.
class TokenChecker {
 public:
  TokenChecker(const AnswerBounds& bounds, const AnswerBounds::Tokens& answer)
      : bounds_(bounds), answer_(answer) {}

  Status take(const run::Token& token) {
    const auto is_known = [this](const engine::Sampled& each) {
      return each.token >= 0 && each.token < bounds_.vocab_size;
    };
    if (!is_known(token.sampled) || !std::ranges::all_of(token.likely, is_known)) {
      return bad(fmt::format("tokens from 0 to {}", bounds_.vocab_size - 1));
    }
    if (token.likely.size() > static_cast<size_t>(bounds_.max_likely)) {
      return bad(fmt::format("at most {} likely tokens", bounds_.max_likely));
    }
    // A rank that goes on with an answer may have found the tokens before this one, too.
    if (token.cached_tokens < 0 || token.cached_tokens > answer_.prompt + num_) {
      return bad(fmt::format("at most {} cached tokens", answer_.prompt + num_));
    }
    // A step's first token says how many drafts it has verified; each right one brings another.
    if (token.step_drafts >= 0) {
      left_in_step_ = token.step_drafts;
    } else if (left_in_step_-- <= 0) {
      return bad("no more tokens of a step than it has drafts");
    }
    const auto at = static_cast<size_t>(num_);
    if (at < answer_.forced.size() && token.sampled.token != answer_.forced[at]) {
      return bad("the tokens of the prompt, which are scored");
    }
    // Of a request that failed no stream goes on.
    if (token.finish_reason > FinishReason::kLength) return bad("tokens of no failed answer");
    ++num_;
    if (has_ended_) return bad("no tokens after the last one of an answer");
    has_ended_ = token.finish_reason != FinishReason::kNotFinished;
    if (num_ > answer_.max || (num_ == answer_.max && !has_ended_)) {
      return bad(fmt::format("at most {} tokens of an answer", answer_.max));
    }
    return {};
  }

 private:
  const AnswerBounds& bounds_;
  const AnswerBounds::Tokens& answer_;
  int num_ = 0;
  int left_in_step_ = 0;
  bool has_ended_ = false;
};

}  // namespace

std::string record_of(const AnswerHead& head) {
  engine::WireWriter writer;
  writer.put(RecordKind::kHead);
  writer.put_text(WIDEEP_VERSION);
  writer.put_text(head.id);
  writer.put(head.created);
  writer.put_text(head.model);
  writer.put(head.seed);
  writer.put(head.settings.stream_interval);
  writer.put(static_cast<int>(head.settings.draft_metrics));
  writer.put(head.settings.max_drafts);
  writer.put(static_cast<uint8_t>(head.settings.reuses_pages));
  const AnswerHead::Local& local = head.local;
  writer.put_text(local.kept);
  writer.put_text(local.request_id);
  writer.put(local.came_ns);
  writer.put_text(local.trace ? traceparent_of(local.trace->own) : "");
  writer.put_text(local.trace ? local.trace->parent_id : "");
  writer.put_text(local.trace ? local.trace->state : "");
  return writer.take();
}

std::string record_of(size_t index, const run::Token& token) {
  engine::WireWriter writer;
  writer.put(RecordKind::kToken);
  writer.put(static_cast<uint32_t>(index));
  writer.put(int32_t{token.rank});
  const auto put = [&](const engine::Sampled& sampled) {
    writer.put(sampled.token);
    writer.put(sampled.log_probability);
  };
  put(token.sampled);
  writer.put(token.finish_reason);
  writer.put(int32_t{token.cached_tokens});
  writer.put(int32_t{token.step_drafts});
  writer.put(static_cast<uint32_t>(token.likely.size()));
  for (const engine::Sampled& likely : token.likely) put(likely);
  return writer.take();
}

std::string record_of(const AnswerProgress& progress) {
  engine::WireWriter writer;
  writer.put(RecordKind::kProgress);
  writer.put(static_cast<uint32_t>(progress.index));
  writer.put(int32_t{progress.processed});
  writer.put(progress.begun_ns);
  return writer.take();
}

std::string record_of(const AnswerEnd& end) {
  engine::WireWriter writer;
  writer.put(RecordKind::kEnd);
  writer.put(end.ended_at);
  return writer.take();
}

Result<AnswerRecords> AnswerRecords::read(std::span<const std::string> records) {
  AnswerRecords read;
  for (size_t i = 0; i < records.size(); ++i) {
    const std::string where = fmt::format("record {}", i);
    RecordReader reader(records[i]);
    const auto kind = reader.get_one_of(RecordKind::kEnd);
    if (!reader.is_sound() || (kind == RecordKind::kHead) != (i == 0)) {
      return bad("a head, then tokens, progress and the end").at(where);
    }
    if (kind == RecordKind::kHead) {
      if (const std::string version = reader.get_text(); version != WIDEEP_VERSION) {
        return invalid_input(fmt::format("expected records of wideep {}, found those of '{}'",
                                         WIDEEP_VERSION, base::printable(version, 40)))
            .at(where);
      }
      read.head = read_head(reader);
    } else if (kind == RecordKind::kToken) {
      const run::Token& token = read.tokens.emplace_back(read_token(reader)).token;
      // More than the head says where a server that drafts more has gone on.
      int& most = read.head.settings.max_drafts;
      most = std::max(most, token.step_drafts);
    } else if (kind == RecordKind::kProgress) {
      read.told.push_back(read_progress(reader));
    } else {
      read.end = AnswerEnd{.ended_at = reader.get_within<int64_t>(1, kMaxCreated)};
    }
    if (!reader.is_sound() || !reader.is_at_end()) return bad("a whole record").at(where);
  }
  if (records.empty()) return bad("a head");
  return read;
}

void AnswerRecords::leave_machine() {
  head.local = {};
  for (AnswerToken& each : tokens) each.token.rank = -1;
  for (AnswerProgress& each : told) each.begun_ns = 0;
}

Status check(const AnswerRecords& records, const AnswerBounds& bounds) {
  WIDEEP_TRY(check_id(records.head.id, bounds.id_start));
  WIDEEP_TRY(check_model(records.head.model, bounds));
  const size_t num_answers = bounds.answers.size();
  std::vector<TokenChecker> checkers;
  for (const AnswerBounds::Tokens& each : bounds.answers) {
    checkers.emplace_back(bounds, each);
  }
  for (size_t i = 0; i < records.tokens.size(); ++i) {
    const auto& [index, token] = records.tokens[i];
    if (index >= num_answers) return bad(fmt::format("tokens of {} answers", num_answers));
    WIDEEP_TRY(checkers[index].take(token).at(fmt::format("token {} of the records", i)));
  }
  for (const AnswerProgress& each : records.told) {
    if (each.index >= num_answers || each.processed < 0 ||
        each.processed > bounds.answers[each.index].prompt) {
      return bad("the progress of the prompts");
    }
  }
  return {};
}

}  // namespace wideep::server
