# SPDX-License-Identifier: Apache-2.0
"""Checks of cluster/monitoring/ beside what servers really say.

    monitoring.py dashboard <dashboard.json>
    monitoring.py names <dashboard.json> <alerts.yaml> <metrics file...>
    monitoring.py vllm <docs/monitoring.md> <metrics file>
    monitoring.py experts <docs/monitoring.md> <metrics file>
    monitoring.py rules <dashboard.json>     the dashboard's expressions as recording rules
    monitoring.py live <dashboard.json> <Prometheus' URL>

dashboard: what Grafana needs to import it: panels that do not overlap, each with a data source that
is a variable, no variable that is not defined. names: every metric in an expression of either file
is in one of the replies of /metrics. vllm: the names of vLLM in the page are those in the reply.
experts: the same of those of experts in memory.
live: every expression of the dashboard has a value, and no alert rule fails.
"""

import json
import math
import re
import sys
import time
import urllib.parse
import urllib.request

SECONDS = 40  # that a live Prometheus has to get all series
WORDS = {"and", "or", "unless", "offset", "bool", "inf", "nan"}


def fail(*lines):
    for line in lines:
        print("monitoring:", line)
    sys.exit(1)


def metrics_of(expression):
    """The metrics that a PromQL expression asks for."""
    bare = re.sub(r'"(?:[^"\\]|\\.)*"', "", expression)
    bare = re.sub(r"\{[^}]*\}|\[[^]]*\]", " ", bare)
    bare = re.sub(r"\b(by|on|without|ignoring|group_left|group_right)\s*\([^)]*\)", " ", bare)
    names = re.findall(r"(?<![\w:$])([a-zA-Z_:][\w:]*)\s*(?!\s*\()(?![\w:])", bare)
    return {name for name in names if name.lower() not in WORDS}


def read_dashboard(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def expressions(dashboard):
    """Title and expression of every query."""
    for panel in dashboard["panels"]:
        for target in panel.get("targets", []):
            yield panel["title"], target["expr"]
    for each in dashboard["annotations"]["list"]:
        yield each["name"], each["expr"]


def alert_expressions(path):
    """Name and expression of every rule: `expr:` with its value on the line, or folded below it."""
    name, folded, indent = None, None, 0
    with open(path, encoding="utf-8") as file:
        for line in [*file, "end"]:
            depth = len(line) - len(line.lstrip())
            if folded is not None and depth > indent:
                folded.append(line.strip())
                continue
            if folded is not None:
                yield name, " ".join(folded)
                folded = None
            if match := re.match(r"\s*- alert: (\w+)", line):
                name = match[1]
            elif match := re.match(r"(\s*)expr: (.*)", line):
                if match[2] == ">-":
                    folded, indent = [], len(match[1])
                else:
                    yield name, match[2]


def series_of(path):
    """The names of all series of a reply, and of histograms without their endings."""
    names = set()
    with open(path, encoding="utf-8") as file:
        for line in file:
            if match := re.match(r"([a-zA-Z_:][\w:]*)[{ ]", line):
                names.add(match[1])
    return names


def families_of(path):
    with open(path, encoding="utf-8") as file:
        return {line.split()[2] for line in file if line.startswith("# TYPE ")}


def check_dashboard(path):
    dashboard = read_dashboard(path)
    wrong = []
    if not (36 <= dashboard["schemaVersion"] <= 42 and dashboard["uid"] and dashboard["title"]):
        wrong.append("no schemaVersion, uid or title")
    variables = {each["name"] for each in dashboard["templating"]["list"]}
    if variables != {"datasource", "instance"}:
        wrong.append(f"variables {sorted(variables)}, expected datasource and instance")
    used = set(re.findall(r"\$\{?(\w+)", json.dumps(dashboard)))
    if used - variables - {"__rate_interval", "__all"}:
        wrong.append(f"variables that are not defined: {used - variables}")
    ids, places = set(), {}
    for panel in dashboard["panels"]:
        title, place = panel["title"], panel["gridPos"]
        if panel["id"] in ids:
            wrong.append(f"{title}: id {panel['id']} is another panel's")
        ids.add(panel["id"])
        for x in range(place["x"], place["x"] + place["w"]):
            for y in range(place["y"], place["y"] + place["h"]):
                if x >= 24 or (x, y) in places:
                    wrong.append(f"{title}: lies over {places.get((x, y), 'the edge')}")
                places[x, y] = title
        if panel["type"] == "row":
            continue
        sources = [panel["datasource"], *(each["datasource"] for each in panel["targets"])]
        if any(each != {"type": "prometheus", "uid": "${datasource}"} for each in sources):
            wrong.append(f"{title}: a data source that is not ${{datasource}}")
        if len({each["refId"] for each in panel["targets"]}) != len(panel["targets"]):
            wrong.append(f"{title}: two queries with the same refId")
    if wrong:
        fail(*wrong)
    print(f"dashboard: {len(ids)} panels and rows")


def check_names(dashboard, alerts, *replies):
    there = set.union(*map(series_of, replies)) | {"up"}
    asked = [(f"dashboard, {title}", text) for title, text in expressions(read_dashboard(dashboard))]
    asked += [(f"alert {name}", text) for name, text in alert_expressions(alerts)]
    wrong = [f"{where}: no server has {name}"
             for where, text in asked for name in sorted(metrics_of(text) - there)]
    if wrong:
        fail(*wrong)
    names = set.union(*(metrics_of(text) for _, text in asked))
    if len(asked) < 80 or len(names) < 40:
        fail(f"only {len(names)} metrics in {len(asked)} expressions were found")
    print(f"names: {len(names)} metrics in {len(asked)} expressions, all there")


def check_vllm(page, reply):
    with open(page, encoding="utf-8") as file:
        rows = [line for line in file if line.startswith("| `vllm:")]
    named = {name for row in rows for name in re.findall(r"`(vllm:\w+)", row.split("|")[1])}
    there = {name for name in families_of(reply) if name.startswith("vllm:")}
    wrong = [f"{page} names {name}, which is not in /metrics" for name in sorted(named - there)]
    wrong += [f"{page} lacks {name}" for name in sorted(there - named)]
    foreign = {name for name in families_of(reply) if name.startswith("wideep_")}
    if foreign != {"wideep_build_info"}:
        wrong.append(f"--metrics-names vllm: also {sorted(foreign)}")
    if wrong or not named:
        fail(*wrong, f"{len(named)} names in the page")
    print(f"vllm: {len(named)} names")


def check_experts(page, reply):
    with open(page, encoding="utf-8") as file:
        rows = [line for line in file if line.startswith("| `wideep_expert")]
    named = {name for row in rows for name in re.findall(r"`(wideep_\w+)", row.split("|")[1])}
    there = {name for name in families_of(reply)
             if name.startswith("wideep_expert") and name != "wideep_experts_reloaded_total"}
    wrong = [f"{page} names {name}, which is not in /metrics" for name in sorted(named - there)]
    wrong += [f"{page} lacks {name}" for name in sorted(there - named)]
    if wrong or not named:
        fail(*wrong, f"{len(named)} names in the page")
    print(f"experts: {len(named)} names")


def fill(expression, rate_interval):
    return expression.replace("$__rate_interval", rate_interval).replace("$instance", ".*")


def print_rules(dashboard):
    rules = [{"record": f"dashboard:query:{number}", "expr": fill(text, "5m")}
             for number, (_, text) in enumerate(expressions(read_dashboard(dashboard)))]
    print(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))


def ask(url, path, **fields):
    query = urllib.parse.urlencode(fields)
    with urllib.request.urlopen(f"{url}/api/v1/{path}?{query}", timeout=10) as reply:
        return json.load(reply)["data"]


def check_live(dashboard, url):
    # Deaths of ranks, for which nobody dies here.
    open_queries = [each for each in expressions(read_dashboard(dashboard)) if " > 0" not in each[1]]
    count = len(open_queries)
    end = time.monotonic() + SECONDS
    while open_queries and time.monotonic() < end:
        time.sleep(1)
        rest = []
        for title, text in open_queries:
            values = [float(each["value"][1])
                      for each in ask(url, "query", query=fill(text, "10s"))["result"]]
            if all(math.isnan(value) for value in values):
                rest.append((title, text))
        open_queries = rest
    rules = [rule for group in ask(url, "rules")["groups"] for rule in group["rules"]]
    wrong = [f"{title}: no value: {text}" for title, text in open_queries]
    wrong += [f"alert {rule['name']}: {rule.get('lastError')}"
              for rule in rules if rule["health"] == "err"]
    if wrong or not rules:
        fail(*wrong, f"{len(rules)} rules")
    print(f"live: {count} queries have values, {len(rules)} rules run")


if __name__ == "__main__":
    {"dashboard": check_dashboard, "names": check_names, "vllm": check_vllm, "experts": check_experts,
     "rules": print_rules, "live": check_live}[sys.argv[1]](*sys.argv[2:])
