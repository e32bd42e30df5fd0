// SPDX-License-Identifier: Apache-2.0
//
// From routing logs to the page that draws them (tools/report_page.html): the numbers as JSON, and
// putting them into the page. The drawing itself is the page's script.
//
// Thread safety: pure functions. REQUIRES everywhere: check_routing_log is ok for each log.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "recordings/routing_log.h"
#include "wideep/status.h"

namespace wideep::recordings {

// The request selector of the page offers this many; the page says so when there are more.
inline constexpr size_t kMaxPictureRequests = 200;
// Steps are summed in windows of 1, 2, 5, 10, ... iterations, at most about this many of them.
inline constexpr int kMaxPictureWindows = 32;

struct PictureRun {
  std::string file;  // shown on the page
  RoutingLog log;
};

struct Picture {
  std::string title;  // empty: one made of the model's name
  PictureRun before;  // or the only run
  std::optional<PictureRun> after;
};

// Whether both runs can share axes and colour scales.
// Errors (invalid input): another ep_size, num_experts, top_k or list of layers.
Status check_comparable(const PictureRun& before, const PictureRun& after);

// A short table of the runs, plain text, for terminals and for browsers without scripts.
std::string picture_summary(const Picture& picture);

// The numbers of the page as JSON; no '<' in it, so that it can stand inside <script>.
std::string picture_data(const Picture& picture);

// `page` with the marks @TITLE@, @SUMMARY@ and @DATA@ replaced, the first two as text of HTML.
std::string fill_page(std::string_view page, const Picture& picture);

}  // namespace wideep::recordings
