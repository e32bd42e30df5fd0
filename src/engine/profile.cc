// SPDX-License-Identifier: Apache-2.0
#include "engine/profile.h"

#include <algorithm>

#include "base/try.h"

namespace wideep::engine {

Result<std::vector<IterationRange>> parse_ranges(const std::string& text, const std::string& name) {
  std::vector<IterationRange> ranges;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    WIDEEP_TRY_ASSIGN(const IterationRange range,
                      IterationRange::parse(text.substr(begin, end - begin), name));
    ranges.push_back(range);
    begin = end + 1;
  }
  return ranges;
}

void RankProfiler::start(int64_t iteration) {
  recorder_.iteration = iteration;
  const bool wanted = std::any_of(ranges_.begin(), ranges_.end(), [&](const IterationRange& range) {
    return range.first <= iteration && iteration < range.last;
  });
  base::trace_of_thread = wanted ? &recorder_ : nullptr;
}

}  // namespace wideep::engine
