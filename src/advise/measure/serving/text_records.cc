// SPDX-License-Identifier: Apache-2.0
//
// A file is read whole: data sets of prompts are small beside models.
#include "measure/serving/text_records.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <span>
#include <string_view>
#include <utility>

#include "base/try.h"
#include "formats/files.h"
#include "formats/json_parse.h"
#include "formats/lines.h"

namespace wideep::measure {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using Take = std::function<Result<bool>(const json&)>;

constexpr std::array kReadable = {".jsonl", ".ndjson", ".json", ".csv"};
constexpr std::array kOthers = {".parquet", ".arrow", ".gz", ".zst", ".zip", ".tar", ".xz"};

bool has_extension(const fs::path& path, std::span<const char* const> extensions) {
  return std::find(extensions.begin(), extensions.end(), path.extension().string()) !=
         extensions.end();
}

bool is_of_split(const fs::path& file, const std::string& split) {
  if (file.parent_path().filename() == split) return true;
  const std::string name = file.filename().string();
  if (!name.starts_with(split) || name.size() == split.size()) return false;
  return std::string_view("-_.").find(name[split.size()]) != std::string_view::npos;
}

// "train" of train-00000-of-00002.jsonl, for messages.
std::string split_of(const fs::path& file) {
  const std::string stem = file.stem().string();
  return stem.substr(0, stem.find('-'));
}

// ---- CSV ----

// Splits RFC 4180's records: fields in quotes may have commas, quotes (twice) and ends of lines.
class CsvReader {
 public:
  explicit CsvReader(std::string_view text) : text_(text) {}

  // The next record; its line goes to *line. Nothing: there is none. Errors: a quote without end.
  Result<std::optional<std::vector<std::string>>> next(int* line) {
    while (at_ < text_.size() && (text_[at_] == '\n' || text_[at_] == '\r')) skip_end();
    *line = line_;
    if (at_ >= text_.size()) return std::optional<std::vector<std::string>>();
    std::vector<std::string> fields;
    while (true) {
      WIDEEP_TRY_ASSIGN(std::string one, field());
      fields.push_back(std::move(one));
      if (at_ >= text_.size() || text_[at_] != ',') break;
      ++at_;
    }
    return std::optional(std::move(fields));
  }

 private:
  void skip_end() {
    if (text_[at_++] == '\n') ++line_;
  }

  Result<std::string> field() {
    std::string value;
    if (at_ < text_.size() && text_[at_] == '"') {
      const int begin = line_;
      for (++at_; at_ < text_.size(); ++at_) {
        if (text_[at_] == '"') {
          if (at_ + 1 >= text_.size() || text_[at_ + 1] != '"') {
            ++at_;
            return value;
          }
          ++at_;
        }
        if (text_[at_] == '\n') ++line_;
        value += text_[at_];
      }
      return invalid_input(fmt::format("a quote of line {} has no end", begin));
    }
    const size_t end = std::min(text_.find_first_of(",\r\n", at_), text_.size());
    value = text_.substr(at_, end - at_);
    at_ = end;
    return value;
  }

  std::string_view text_;
  size_t at_ = 0;
  int line_ = 1;
};

Result<bool> each_of_csv(const std::string& file, const std::string& content, const Take& take) {
  CsvReader reader(content);
  int line = 0;
  auto names = reader.next(&line);
  WIDEEP_TRY(names.status().at(file));
  if (!*names) return true;
  while (true) {
    auto record = reader.next(&line);
    WIDEEP_TRY(record.status().at(file));
    if (!*record) return true;
    const std::string where = fmt::format("{}:{}", file, line);
    if ((*record)->size() != (*names)->size()) {
      return invalid_input(fmt::format("{}: expected {} fields as in the first row, found {}",
                                       where, (*names)->size(), (*record)->size()));
    }
    json object = json::object();
    for (size_t i = 0; i < (*names)->size(); ++i) object[(**names)[i]] = (**record)[i];
    const Result<bool> more = take(object);
    if (!more.ok()) return more.status().at(where);
    if (!*more) return false;
  }
}

// ---- JSON ----

Result<bool> each_of_array(const std::string& file, const std::string& content, const Take& take) {
  WIDEEP_TRY_ASSIGN(const json parsed, formats::parse_json(content, file));
  for (size_t i = 0; i < parsed.size(); ++i) {
    const std::string where = fmt::format("{}: record {}", file, i);
    if (!parsed[i].is_object()) return invalid_input(where + ": expected an object");
    const Result<bool> more = take(parsed[i]);
    if (!more.ok()) return more.status().at(where);
    if (!*more) return false;
  }
  return true;
}

Result<bool> each_of_lines(const std::string& file, std::string content, const Take& take) {
  formats::NonBlankLines lines(std::move(content));
  while (const auto line = lines.next()) {
    const std::string where = fmt::format("{}:{}", file, line->number);
    WIDEEP_TRY_ASSIGN(const json parsed, formats::parse_json(line->text, where));
    if (!parsed.is_object()) return invalid_input(where + ": expected an object");
    const Result<bool> more = take(parsed);
    if (!more.ok()) return more.status().at(where);
    if (!*more) return false;
  }
  return true;
}

}  // namespace

Result<std::vector<std::string>> record_files(const RecordSource& source) {
  std::error_code error;
  const fs::path path(source.path);
  if (fs::is_regular_file(path, error)) return std::vector<std::string>{source.path};
  if (!fs::is_directory(path, error)) {
    return invalid_input(fmt::format(
        "{}: expected a file or a folder of data (nothing is downloaded)", source.path));
  }
  const fs::path folder = source.configuration.empty() ? path : path / source.configuration;
  if (!fs::is_directory(folder, error)) {
    return invalid_input(fmt::format("{}: expected a folder {} in it, found none", source.path,
                                     source.configuration));
  }
  std::vector<std::string> files;
  std::set<std::string> splits;
  for (fs::recursive_directory_iterator each(folder, error), end; !error && each != end;
       each.increment(error)) {
    const fs::path& file = each->path();
    if (!has_extension(file, kReadable) && !has_extension(file, kOthers)) continue;
    splits.insert(split_of(file));
    if (!source.split.empty() && is_of_split(file, source.split)) files.push_back(file.string());
  }
  if (error) return invalid_input(fmt::format("{}: {}", folder.string(), error.message()));
  std::sort(files.begin(), files.end());
  if (!files.empty()) return files;
  return invalid_input(
      fmt::format("{}: expected files of the split {}, found those of: {}", folder.string(),
                  source.split.empty() ? "(none given)" : source.split,
                  splits.empty() ? "none" : fmt::format("{}", fmt::join(splits, ", "))));
}

Result<bool> for_each_record(const std::string& file, const Take& take) {
  const fs::path path(file);
  if (has_extension(path, kOthers)) {
    return invalid_input(
        fmt::format("{}: files of the kind {} cannot be read: expected .jsonl, .json or .csv; "
                    "convert it, as with Python's datasets: dataset.to_json(\"data.jsonl\")",
                    file, path.extension().string()));
  }
  WIDEEP_TRY_ASSIGN(std::string content, formats::read_file(file));
  if (path.extension() == ".csv") return each_of_csv(file, content, take);
  const size_t first = content.find_first_not_of(" \t\r\n");
  if (path.extension() == ".json" && first != content.npos && content[first] == '[') {
    return each_of_array(file, content, take);
  }
  return each_of_lines(file, std::move(content), take);
}

}  // namespace wideep::measure
