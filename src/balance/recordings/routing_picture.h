// SPDX-License-Identifier: Apache-2.0
//
// Turns routing logs into the page that draws them (tools/report_page.html): computes the numbers
// as JSON and inserts them into the page. The page's script draws.
//
// Thread safety: pure functions. REQUIRES everywhere: check_routing_log is ok for each log.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "recordings/routing_log.h"
#include "wideep/status.h"

namespace wideep::recordings {

// The request selector of the page offers at most this many requests and shows a note if there are
// more.
inline constexpr size_t kMaxPictureRequests = 200;
// Iterations are summed in windows of 1, 2, 5, 10, ... iterations, at most about this many windows.
inline constexpr int kMaxPictureWindows = 32;

// Numbers from rank to rank on the page, of one run: fewer and longer windows for them where ranks
// or layers are many.
inline constexpr int64_t kMaxPictureSent = int64_t{1} << 20;
// The selector of moves offers at most this many, those of the most experts; so many iterations are
// shown before and after a move.
inline constexpr size_t kMaxPictureMoves = 100;
inline constexpr int64_t kPictureAroundMove = 20;

struct PictureRun {
  std::string file;  // shown on the page
  std::string name;  // of the run beside another one: "before", "static"
  RoutingLog log;
};

struct Picture {
  std::string title;  // empty: a title with the model's name
  PictureRun before;  // or the only run
  std::optional<PictureRun> after;
};

// Checks that both runs can share axes and colour scales. Errors (invalid input): another ep_size,
// num_experts, top_k or list of layers.
Status check_comparable(const PictureRun& before, const PictureRun& after);

// A short table of the runs, plain text, for terminals and for browsers without scripts.
std::string picture_summary(const Picture& picture);

// The numbers of the page as JSON, without the character '<', so that it is safe inside <script>.
std::string picture_data(const Picture& picture);

// `page` with the marks @TITLE@, @SUMMARY@ and @DATA@ replaced, the first two as text of HTML.
std::string fill_page(std::string_view page, const Picture& picture);

}  // namespace wideep::recordings
