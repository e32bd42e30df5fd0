// SPDX-License-Identifier: Apache-2.0
// tools/figures/figure.h: one value as text, JSON and page.
#include "figures/figure.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "base/scratch_directory.h"
#include "figures/figures_page.h"
#include "formats/files.h"
#include "formats/json_text.h"

namespace wideep::tools {

// The real one is in the command; what stands here is filled in the same way.
std::string_view figures_page() {
  return "<h1>@TITLE@</h1><data>@DATA@</data><pre>@SUMMARY@</pre>";
}

namespace {

using nlohmann::ordered_json;
using ::testing::HasSubstr;

Figure example() {
  Figure figure{.name = "example", .title = "Time & ranks", .source = "part 1, figure 99"};
  figure.charts.push_back({.kind = Chart::kLines,
                           .title = "Time",
                           .x_label = "ranks",
                           .y_label = "time, ms",
                           .log_x = true,
                           .series = {{.name = "measured", .x = {2, 4}, .y = {8.5, kNoNumber}},
                                      {.name = "text", .x = {4}, .y = {1}, .published = true}}});
  figure.charts.push_back({.kind = Chart::kBars,
                           .title = "Share",
                           .x_label = "part",
                           .y_label = "%",
                           .categories = {"experts", "exchange"},
                           .series = {{.name = "measured", .y = {70, 30}}}});
  figure.charts.push_back({.kind = Chart::kHeat,
                           .title = "Pairs",
                           .x_label = "rank",
                           .y_label = "layer",
                           .rows = {"1", "2"},
                           .columns = {"0"},
                           .unit = "pairs",
                           .panels = {{.name = "before", .values = {{3}, {kNoNumber}}}}});
  figure.tables.push_back({.title = "Numbers",
                           .columns = {"what", "time, µs"},
                           .rows = {{"a", 0.123456}, {"longer", 1234567}, {"none", nullptr}}});
  figure.notes = {"A <note>."};
  return figure;
}

TEST(Figure, JsonHasAllNumbersAndGapsAreNull) {
  const ordered_json json = figure_json(example());
  EXPECT_EQ(json["source"], "part 1, figure 99");
  const ordered_json& lines = json["charts"][0];
  EXPECT_EQ(lines["kind"], "lines");
  EXPECT_EQ(lines["log_x"], true);
  EXPECT_EQ(lines["series"][0]["x"], ordered_json({2, 4}));
  EXPECT_EQ(lines["series"][0]["y"], ordered_json({8.5, nullptr}));
  EXPECT_EQ(lines["series"][0]["published"], false);
  EXPECT_EQ(lines["series"][1]["published"], true);
  EXPECT_TRUE(lines["series"][0]["x"][0].is_number_integer());
  const ordered_json& bars = json["charts"][1];
  EXPECT_EQ(bars["categories"], ordered_json({"experts", "exchange"}));
  EXPECT_EQ(bars["series"][0]["y"], ordered_json({70, 30}));
  EXPECT_FALSE(bars["series"][0].contains("x"));
  const ordered_json& heat = json["charts"][2];
  EXPECT_EQ(heat["panels"][0]["values"], ordered_json::parse("[[3], [null]]"));
  EXPECT_EQ(heat["rows"], ordered_json({"1", "2"}));
  EXPECT_EQ(json["tables"][0]["rows"][0], ordered_json({"a", 0.123456}));
  EXPECT_EQ(json["notes"][0], "A <note>.");
}

// Texts at the left, numbers at the right with four digits that count, µ one column wide.
TEST(Figure, TextIsATable) {
  EXPECT_EQ(figure_text(example()),
            "Time & ranks (part 1, figure 99)\n\n"
            "Numbers\n"
            "what    time, µs\n"
            "a         0.1235\n"
            "longer   1234567\n"
            "none           -\n\n"
            "A <note>.\n");
}

// A ratio of zeros, say.
TEST(Figure, CellsThatAreNoNumberAreGaps) {
  Figure figure = example();
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  figure.tables[0].rows = {{"a", kNoNumber}, {"b", kInfinity}, {"c", -kInfinity}, {"d", 0.0}};
  EXPECT_THAT(figure_text(figure), HasSubstr("a            -\nb            -\nc            -\n"
                                             "d            0\n"));
  const ordered_json json = ordered_json::parse(formats::json_text(figure_json(figure), 1));
  EXPECT_EQ(json["tables"][0]["rows"][1], ordered_json({"b", nullptr}));
}

TEST(Figure, PageHasTheSameNumbersAndNoForeignTags) {
  const base::ScratchDirectory directory;
  ASSERT_TRUE(write_figure(example(), directory.path()).ok());
  const std::string json = *formats::read_file(directory.file("example.json"));
  EXPECT_EQ(ordered_json::parse(json), figure_json(example()));
  const std::string page = *formats::read_file(directory.file("example.html"));
  EXPECT_THAT(page, HasSubstr("<h1>Time &amp; ranks</h1>"));
  EXPECT_THAT(page, HasSubstr("A &lt;note>."));
  const size_t begin = page.find("<data>") + 6;
  const std::string data = page.substr(begin, page.find("</data>") - begin);
  EXPECT_EQ(data.find('<'), data.npos);
  EXPECT_EQ(ordered_json::parse(data), figure_json(example()));
}

TEST(Figure, DirectoryThatCannotBeMadeIsAnEarlyError) {
  const base::ScratchDirectory directory;
  ASSERT_TRUE(formats::write_file(directory.file("taken"), "").ok());
  const auto prepared = prepare_figure({.directory = directory.file("taken")});
  ASSERT_FALSE(prepared.ok());
  EXPECT_THAT(prepared.status().message(), HasSubstr("taken"));
  // Of what could be made nothing stays if nothing is written.
  const std::string made = directory.file("made");
  {
    ASSERT_TRUE(prepare_figure({.directory = made}).ok());
  }
  EXPECT_FALSE(write_figure(example(), made).ok());
}

// A bug of the caller, found before a page shows half of it.
TEST(FigureDeathTest, SizesMustFit) {
  Figure figure = example();
  figure.charts[0].series[0].x.pop_back();
  EXPECT_DEATH(figure_json(figure), "series.y.size");
}

}  // namespace
}  // namespace wideep::tools
