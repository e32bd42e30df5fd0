// SPDX-License-Identifier: Apache-2.0
//
// The index is read line by line, and a file of ids when a request first names it. Files are kept
// whole: requests in flight read from many places of them in turn. Every range is checked against
// its file here, so the stream need not check again, and a name from the index must not lead out
// of the directory.
#include "online/request_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <map>
#include <optional>
#include <system_error>
#include <utility>

#include "base/printable.h"
#include "base/try.h"
#include "formats/files.h"
#include "recordings/csv_line.h"

namespace wideep::online {
namespace {

using Fields = std::vector<std::string>;

struct Columns {
  size_t count = 0;
  size_t token_offset = 0;
  size_t num_tokens = 0;
  std::optional<size_t> domain;  // by name of a column domain or dataset
  bool file_per_domain = false;
};

std::optional<size_t> column_of(const Fields& names, std::string_view name) {
  const auto found = std::find(names.begin(), names.end(), name);
  if (found == names.end()) return {};
  return static_cast<size_t>(found - names.begin());
}

Result<Columns> parse_columns(const Fields& names) {
  Columns columns{.count = names.size(), .domain = {}};
  for (const auto& [name, index] : {std::pair("token_offset", &columns.token_offset),
                                    std::pair("n_tokens", &columns.num_tokens)}) {
    const auto found = column_of(names, name);
    if (!found) {
      return invalid_input(fmt::format("expected a column {}, found {}", name,
                                       base::printable(fmt::format("{}", fmt::join(names, ",")))));
    }
    *index = *found;
  }
  columns.domain = column_of(names, "domain");
  columns.file_per_domain = columns.domain.has_value();
  if (!columns.domain) columns.domain = column_of(names, "dataset");
  return columns;
}

Result<int64_t> parse_number(const std::string& field, const char* column, int64_t min) {
  int64_t value = 0;
  const char* end = field.data() + field.size();
  const auto [stop, error] = std::from_chars(field.data(), end, value);
  if (error == std::errc() && stop == end && value >= min) return value;
  return invalid_input(
      fmt::format("column {}: expected a whole number of at least {}, found \"{}\"", column, min,
                  base::printable(field)));
}

Result<std::vector<uint16_t>> read_ids(const std::string& path,
                                       const recordings::TraceShape& shape) {
  std::vector<uint16_t> ids;
  const Result<int64_t> visited =
      recordings::visit_trace(path, shape, [&](const recordings::TokenChoice& choice) {
        ids.insert(ids.end(), choice.experts.begin(), choice.experts.end());
      });
  if (!visited.ok()) return visited.status();
  return ids;
}

// Reads the index line by line, and each file of ids when a request first names it.
class Reader {
 public:
  Reader(const std::string& directory, const recordings::TraceShape& shape)
      : directory_(directory), index_(directory + "/trace_index.csv") {
    trace_.shape = shape;
  }

  Result<RequestTrace> read() {
    WIDEEP_TRY(recordings::check_trace_shape(trace_.shape));
    WIDEEP_TRY_ASSIGN(const std::string text, formats::read_file(index_));
    int line = 0;
    for (size_t begin = 0; begin < text.size();) {
      const size_t end = std::min(text.find('\n', begin), text.size());
      std::string_view content(text.data() + begin, end - begin);
      if (content.ends_with('\r')) content.remove_suffix(1);
      begin = end + 1;
      ++line;
      if (content.empty()) continue;
      WIDEEP_TRY(add_line(content).at(fmt::format("{}: line {}", index_, line)));
    }
    if (trace_.requests.empty()) {
      return invalid_input(fmt::format("{}: expected a line for each request, found none", index_));
    }
    return std::move(trace_);
  }

 private:
  Status add_line(std::string_view content) {
    const std::optional<Fields> fields = recordings::split_csv_line(content);
    if (!fields) return invalid_input("a double quote is not closed");
    if (!columns_) {
      WIDEEP_TRY_ASSIGN(columns_, parse_columns(*fields));
      return {};
    }
    return add_request(*fields);
  }

  Status add_request(const Fields& fields) {
    if (fields.size() != columns_->count) {
      return invalid_input(
          fmt::format("expected {} fields, found {}", columns_->count, fields.size()));
    }
    Request request;
    WIDEEP_TRY_ASSIGN(request.token_offset,
                      parse_number(fields[columns_->token_offset], "token_offset", 0));
    WIDEEP_TRY_ASSIGN(request.num_tokens,
                      parse_number(fields[columns_->num_tokens], "n_tokens", 1));
    const std::string domain = columns_->domain ? fields[*columns_->domain] : "all";
    WIDEEP_TRY_ASSIGN(request.file,
                      file_of(columns_->file_per_domain ? domain + ".ids" : "trace_ids"));
    request.domain = domain_of(domain);
    const int64_t tokens = tokens_of(request.file);
    if (request.num_tokens > tokens || request.token_offset > tokens - request.num_tokens) {
      return invalid_input(fmt::format("{} tokens from {} on, but {} has {} tokens",
                                       request.num_tokens, request.token_offset,
                                       names_[static_cast<size_t>(request.file)], tokens));
    }
    trace_.requests.push_back(request);
    return {};
  }

  int domain_of(const std::string& name) {
    std::vector<std::string>& domains = trace_.domains;
    const auto found = std::find(domains.begin(), domains.end(), name);
    if (found == domains.end()) domains.push_back(name);
    return static_cast<int>(std::find(domains.begin(), domains.end(), name) - domains.begin());
  }

  Result<int> file_of(const std::string& stem) {
    const auto known = file_of_stem_.find(stem);
    if (known != file_of_stem_.end()) return known->second;
    // A name from the index must not lead out of the directory.
    if (stem.find('/') != std::string::npos) {
      return invalid_input(
          fmt::format("column domain: expected the name of a file beside it, "
                      "found \"{}\"",
                      base::printable(stem)));
    }
    std::error_code ignored;
    const std::string wide = directory_ + "/" + stem + ".u16";
    const bool is_wide = std::filesystem::exists(wide, ignored);
    return load(stem, is_wide ? wide : directory_ + "/" + stem + ".u8");
  }

  Result<int> load(const std::string& stem, const std::string& path) {
    WIDEEP_TRY_ASSIGN(std::vector<uint16_t> ids, read_ids(path, trace_.shape));
    const int file = static_cast<int>(trace_.ids.size());
    trace_.ids.push_back(std::move(ids));
    names_.push_back(path);
    return file_of_stem_[stem] = file;
  }

  int64_t tokens_of(int file) const {
    return static_cast<int64_t>(trace_.ids[static_cast<size_t>(file)].size()) /
           (int64_t{trace_.shape.num_layers} * trace_.shape.top_k);
  }

  std::string directory_;
  std::string index_;
  std::optional<Columns> columns_;
  std::map<std::string, int> file_of_stem_;
  std::vector<std::string> names_;  // of the files
  RequestTrace trace_;
};

}  // namespace

int64_t RequestTrace::num_tokens() const {
  int64_t sum = 0;
  for (const Request& request : requests) sum += request.num_tokens;
  return sum;
}

std::span<const uint16_t> RequestTrace::experts(int file, int64_t token, int layer_idx) const {
  const auto top_k = static_cast<size_t>(shape.top_k);
  const size_t row = static_cast<size_t>(token) * static_cast<size_t>(shape.num_layers) +
                     static_cast<size_t>(layer_idx);
  return std::span<const uint16_t>(ids[static_cast<size_t>(file)]).subspan(row * top_k, top_k);
}

Result<DividedTrace> hold_out_requests(RequestTrace trace, double fraction) {
  if (!(fraction > 0.0 && fraction < 1.0)) {
    return invalid_input(
        fmt::format("expected a fraction of the requests between 0 and 1, found {}", fraction));
  }
  std::vector<int> left(trace.domains.size());  // requests of each domain that are earlier
  for (const Request& request : trace.requests) ++left[static_cast<size_t>(request.domain)];
  for (int& count : left) {
    const auto later = static_cast<int>(std::lround(fraction * count));
    if (count > 1) count -= std::clamp(later, 1, count - 1);
  }
  std::vector<Request> earlier, later;
  for (const Request& request : trace.requests) {
    const bool is_earlier = left[static_cast<size_t>(request.domain)]-- > 0;
    (is_earlier ? earlier : later).push_back(request);
  }
  if (later.empty()) {
    return invalid_input(
        "expected a kind of text with at least 2 requests, of which the last are held out, found "
        "none");
  }
  DividedTrace divided{.earlier = trace, .later = std::move(trace)};
  divided.earlier.requests = std::move(earlier);
  divided.later.requests = std::move(later);
  return divided;
}

Result<RequestTrace> read_request_trace(const std::string& directory,
                                        const recordings::TraceShape& shape) {
  return Reader(directory, shape).read();
}

Result<RequestTrace> read_token_trace(const std::string& path, const recordings::TraceShape& shape,
                                      int64_t request_tokens) {
  WIDEEP_TRY(recordings::check_trace_shape(shape));
  RequestTrace trace{.shape = shape, .domains = {"all"}, .requests = {}, .ids = {}};
  WIDEEP_TRY_ASSIGN(std::vector<uint16_t> ids, read_ids(path, shape));
  const auto num_tokens =
      static_cast<int64_t>(ids.size()) / (int64_t{shape.num_layers} * shape.top_k);
  for (int64_t first = 0; first < num_tokens; first += request_tokens) {
    trace.requests.push_back(
        {.token_offset = first, .num_tokens = std::min(request_tokens, num_tokens - first)});
  }
  trace.ids.push_back(std::move(ids));
  return trace;
}

Result<std::vector<int>> find_domains(const RequestTrace& trace,
                                      std::span<const std::string> names) {
  std::vector<int> domains;
  for (const std::string& name : names) {
    const auto found = std::find(trace.domains.begin(), trace.domains.end(), name);
    if (found == trace.domains.end()) {
      return invalid_input(fmt::format("expected domains of the trace ({}), found {}",
                                       fmt::join(trace.domains, ", "), name));
    }
    domains.push_back(static_cast<int>(found - trace.domains.begin()));
  }
  return domains;
}

}  // namespace wideep::online
