# SPDX-License-Identifier: Apache-2.0
"""Checks the dashboard in Chromium: without the key, with it, with a wrong one, and while rank 3 of
8 is dead; that of a server that keeps prompts, and shares them; and of one that reads experts from
the disk.

    dashboard.py <directory of locked.html, page.html, tall.html, wrong.html, dead.html, places.html
                  and experts.html>
"""

import re
import sys


def read(name):
    with open(f"{sys.argv[1]}/{name}", encoding="utf-8") as file:
        return file.read()


def check(what, truth):
    if not truth:
        sys.exit(f"not so: {what}")


def text(page, identifier):
    found = re.search(rf'id="{identifier}"[^>]*>(.*?)</(?:p|b|span|footer|h1|h2)>', page, re.S)
    check(f"the page has {identifier}", found)
    shown = re.sub("<[^>]*>", "", found[1])
    return re.sub(r"(?<=\d),(?=\d{3})", "", shown)  # between thousands


def number(page, identifier):
    found = re.match(r"\s*(\d+(?:\.\d+)?)", text(page, identifier))
    check(f"{identifier} is a number, found {text(page, identifier)!r}", found)
    return float(found[1])


locked, page, wrong = read("locked.html"), read("page.html"), read("wrong.html")
page_of_dead = read("dead.html")
check("without the key the page asks for it", 'id="key-form" class="notice">' in locked)
check("and shows nothing", 'id="board" hidden' in locked and text(locked, "facts") == "")
check("a wrong key is an error", "That is not the key" in text(wrong, "key-error"))

check("the model is named", text(page, "facts").startswith("reference on 8 ranks"))
check("the page is live", text(page, "state-text").startswith("live"))
check("tokens are generated", number(page, "generated-rate") > 1)
for name in ("ttft", "itl"):
    check(f"{name} has a median", number(page, f"{name}-p50") > 0 and " " in text(page, f"{name}-p50"))
check("requests run", number(page, "running") + number(page, "waiting") > 0)
check("pages are used", number(page, "cache-pages") > 0)
check("ranks are uneven", number(page, "imbalance") > 0)
check("and were more so", number(page, "imbalance-foot") > 0)
check("experts have moved", re.search(r"[1-9]\d* moves?, .* saved .*, cost ", text(page, "moves-total")))
check("all is counted", re.search(r"[1-9]\d* generated tokens, [1-9]\d* iterations", text(page, "footer")))
check("all ranks are active", number(page, "ranks-active") == 8 and "of 8 wanted" in text(page, "ranks-wanted"))
check("and drawn so", page.count('class="rank active"') == 8 and 'id="degraded" class="worse" hidden' in page)
check("a dead rank is shown", page_of_dead.count('class="rank active"') == 7
      and 'title="rank 3: ' in page_of_dead and number(page_of_dead, "ranks-active") == 7)
check("with the reason", text(page_of_dead, "state-text").startswith("degraded")
      and "rank 3 does not compute" in text(page_of_dead, "degraded"))
check("and how it died", "rank 3 (process " in page_of_dead and "ago</time>" in page_of_dead)
check("a server without places of prompts shows none", 'id="places-card" hidden' in page)
places = read("places.html")
check("one with a host tier shows it", 'id="places-card" hidden' not in places
      and re.search(r'<th scope="row">host</th>.*works</td>', places))
check("and what it has saved", re.search(r"saved .* of computing: \d+ tokens", text(places, "places-saved")))
check("a server that shares no pages shows none", 'id="sharing-card" hidden' in page)
sharing = text(read("places.html"), "sharing-now")
check(f"one that does shows what it does, found {sharing!r}",
      sharing == "role prefill: computes 0 prompts for others, waits for 0 prompts")
check("and what it has taken", '<th scope="row">taken</th><td>0 whole, 0 in part, 0 not</td>' in places)
experts = read("experts.html")
check("a server with all experts in memory shows no places of theirs", 'id="experts-card" hidden' in page
      and 'id="experts-row" hidden' in page)
check("one with a part shows them", 'id="experts-card" hidden' not in experts
      and re.search(r'<th scope="row">rank 1</th><td>[1-9]\d* of 96</td>', experts))
check("and what a token takes", re.search(r"from memory, .*iB from the disk, for which it waits",
                                         text(experts, "experts-now")))
for name in ("experts", "experts-bytes"):
    check(f"the chart {name}-chart", re.search(rf'id="{name}-chart".*?class="line after"', experts, re.S))
check("and nothing is missing there", "NaN" not in re.sub(r"<script>.*?</script>", "", experts, flags=re.S))
check("lines are drawn", page.count('class="line after"') >= 4)
check("the load is drawn", 'id="load-board" hidden' not in page)
for name in ("sent", "experts", "move"):
    drawn = re.search(rf'id="{name}-map" class="map"[^>]*>(.*?)</div>', page, re.S)
    check(f"the picture {name}-map", drawn and drawn[1].startswith("<svg"))
check("the last move has its marks", "switched</text>" in page and "decided</text>" in page)
check("the heat map is drawn", page.count('<path class="d') > 2)
for picture in re.findall(r"<svg\b[^>]*>", page):
    check(f"{picture} has a name", 'role="img"' in picture and re.search(r'aria-label="[^"]', picture))
for reached in ("ranks-news", "rank-states", 'id="heat-map"', 'id="rate-chart"', 'id="sent-map"'):
    tag = re.search(rf"<[^>]*{reached}[^>]*>", page)
    check(f"keys reach {reached}", tag and 'tabindex="0"' in tag[0] and "aria-label=" in tag[0])
tall = re.search(r'id="heat-map"[^>]*><svg width="\d+" height="(\d+)"', read("tall.html"))
check("a tall window does not stretch the heat map", tall and 200 < int(tall[1]) < 620)
check("nothing is loaded from elsewhere", not re.search(r'(?:src|href)="(?!data:)', page))
shown = re.sub(r'<script>.*?</script>|href="data:[^"]*"', "", page, flags=re.S)
check("no number is missing", "NaN" not in shown and "undefined" not in shown)
print("the dashboard shows the server's numbers.")
