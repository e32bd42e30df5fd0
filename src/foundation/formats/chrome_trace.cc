// SPDX-License-Identifier: Apache-2.0
#include "formats/chrome_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <span>

#include "base/try.h"
#include "formats/files.h"

namespace wideep::formats {
namespace {

using base::TraceEvent;

// Times count from the earliest event, so that the picture begins at 0. Events without an end were
// never written, because their rank died.
int64_t first_start(const base::TraceBuffer& trace) {
  int64_t first = std::numeric_limits<int64_t>::max();
  for (int rank = 0; rank < trace.num_ranks(); ++rank) {
    for (const TraceEvent& event : trace.events(rank)) {
      if (event.end_ns != 0) first = std::min(first, event.start_ns);
    }
  }
  return first;
}

// Metadata events with the name of the rank and of its lanes. Lanes without events are left out;
// viewers show the others in the order of their numbers.
std::string names_of(int rank, std::span<const TraceEvent> events) {
  std::array<bool, static_cast<size_t>(base::Lane::kCount)> used{};
  for (const TraceEvent& event : events) {
    if (event.end_ns != 0) used[static_cast<size_t>(event.lane)] = true;
  }
  std::string text = fmt::format(
      R"({{"ph":"M","name":"process_name","pid":{0},"tid":0,"args":{{"name":"rank {0}"}}}})", rank);
  for (size_t lane = 0; lane < used.size(); ++lane) {
    if (!used[lane]) continue;
    text += fmt::format(
        ",\n"
        R"({{"ph":"M","name":"thread_name","pid":{},"tid":{},"args":{{"name":"{}"}}}})",
        rank, lane, base::lane_name(static_cast<base::Lane>(lane)));
  }
  return text;
}

std::string line_of(int rank, const TraceEvent& event, int64_t first_ns) {
  const auto microseconds = [](int64_t ns) { return static_cast<double>(ns) * 1e-3; };
  std::string details = event.layer < 0 ? "" : fmt::format(R"(,"layer":{})", event.layer);
  if (const char* name = base::detail_name(event.span)) {
    details += fmt::format(R"(,"{}":{})", name, event.detail);
  }
  return fmt::format(
      ",\n"
      R"({{"ph":"X","name":"{}","pid":{},"tid":{},"ts":{:.3f},"dur":{:.3f},)"
      R"("args":{{"iteration":{}{}}}}})",
      base::span_name(event.span), rank, static_cast<int>(event.lane),
      microseconds(event.start_ns - first_ns), microseconds(event.end_ns - event.start_ns),
      event.iteration, details);
}

}  // namespace

Status write_chrome_trace(const std::string& path, const base::TraceBuffer& trace) {
  WIDEEP_TRY_ASSIGN(AtomicFile file, AtomicFile::create(path));
  const int64_t first_ns = first_start(trace);
  uint64_t dropped = 0;
  WIDEEP_TRY(file.append(R"({"displayTimeUnit":"ms","traceEvents":[)"
                         "\n"));
  for (int rank = 0; rank < trace.num_ranks(); ++rank) {
    WIDEEP_TRY(file.append((rank == 0 ? "" : ",\n") + names_of(rank, trace.events(rank))));
    for (const TraceEvent& event : trace.events(rank)) {
      if (event.end_ns != 0) WIDEEP_TRY(file.append(line_of(rank, event, first_ns)));
    }
    dropped += trace.num_dropped(rank);
  }
  WIDEEP_TRY(file.append(fmt::format("],\n\"otherData\":{{\"droppedEvents\":{}}}}}\n", dropped)));
  return file.commit();
}

}  // namespace wideep::formats
