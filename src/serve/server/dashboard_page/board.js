// From the server's data to tiles and charts.

const kRateSeconds = 5;  // that rates are averaged over

function setText(id, text) {
  document.getElementById(id).textContent = text;
}

function sumOfLast(state, count, of) {
  let sum = 0;
  for (let time = state.end - count; time < state.end; ++time) sum += state.seconds.has(time) ? of(state.seconds.get(time)) : 0;
  return sum;
}

function drawTiles(state) {
  const {data, last} = state;
  setText("generated-rate", formatNumber(sumOfLast(state, kRateSeconds, (each) => each.generated_tokens) / kRateSeconds));
  setText("context-rate", formatNumber(sumOfLast(state, kRateSeconds, (each) => each.context_tokens) / kRateSeconds));
  for (const which of ["ttft", "itl"]) {
    for (const quantile of ["p50", "p90", "p99"]) {
      setText(`${which}-${quantile}`, data[which].count > 0 ? formatRoughTime(1000 * data[which][quantile]) : "–");
    }
  }
  // What the server has accepted, and of it what the ranks have no room for yet.
  const waiting = Math.min(state.busy ? last?.waiting ?? 0 : 0, data.answers_running);
  setText("running", formatCount(data.answers_running - waiting));
  setText("waiting", formatCount(waiting));
  const used = state.busy ? last.used_pages : 0;
  setText("cache-share", last?.max_pages ? `${(100 * used / last.max_pages).toFixed(1)} %` : "–");
  setText("cache-pages", last?.max_pages ? `${formatCount(used)} of ${formatCount(last.max_pages)}` : "–");
  drawImbalanceTile(state);
}

// Of the last iterations that had tokens, however long ago.
function drawImbalanceTile({data, recent}) {
  const mean = (of) => recent.reduce((sum, each) => sum + of(each), 0) / recent.length;
  const foot = document.getElementById("imbalance-foot");
  if (!data.has_experts) {
    foot.textContent = "no experts: all layers are dense";
    return;
  }
  if (recent.length === 0) {
    setText("imbalance", "–");
    foot.textContent = "no tokens yet";
    return;
  }
  const now = mean((each) => each.imbalance);
  setText("imbalance", formatRatio(now));
  if (!data.balances_online) {
    foot.textContent = "experts stay where they are";
    return;
  }
  foot.innerHTML = `<b>${formatRatio(mean((each) => each.initial_imbalance ?? each.imbalance))}</b> without moves`;
}

function drawSpeculation(common) {
  drawLines(document.getElementById("acceptance-chart"), {
    ...common, label: "Tokens of a step with drafts", format: formatNumber, least: 2, gaps: true,
    series: [{name: "acceptance length", class: "after", of: (each) => each.drafts > 0 ? 1 + each.accepted_tokens / each.drafts : null}],
  });
  drawLines(document.getElementById("drafts-chart"), {
    ...common, label: "Draft tokens per second", format: formatCount, least: 4,
    series: [{name: "accepted", class: "after", filled: true, of: (each) => each.accepted_tokens},
             {name: "verified", class: "other", of: (each) => each.drafted_tokens}],
  });
}

function drawCharts(state) {
  const {seconds, end, data} = state;
  fitSpan(seconds, end);
  const common = {seconds, end};
  drawLines(document.getElementById("rate-chart"), {
    ...common, label: "Tokens per second", format: formatCount, least: 4,
    series: [{name: "generated", class: "after", filled: true, of: (each) => each.generated_tokens},
             {name: "prompt", class: "other", of: (each) => each.context_tokens}],
  });
  drawLines(document.getElementById("queue-chart"), {
    ...common, label: "Requests running and waiting", format: formatNumber, least: 4, lasts: true,
    series: [{name: "running", class: "after", filled: true, of: (each) => each.running},
             {name: "waiting", class: "before", of: (each) => each.waiting}],
  });
  drawLines(document.getElementById("cache-chart"), {
    ...common, label: "KV cache in use", format: (value) => `${formatNumber(value)} %`, least: 4, lasts: true,
    series: [{name: "in use", class: "after", filled: true,
              of: (each) => each.max_pages ? 100 * each.used_pages / each.max_pages : 0}],
  });
  if (data.speculates) drawSpeculation(common);
  drawRankLoads(document.getElementById("heat-map"), {...common, numRanks: data.num_ranks});
  drawLines(document.getElementById("imbalance-chart"), {
    ...common, label: "Imbalance ratio of ranks", format: formatRatio, least: 0.2, most: 3, gaps: true,
    series: [{name: data.balances_online ? "with moves" : "imbalance ratio", class: "after", of: (each) => data.has_experts && each.iterations > 0 ? each.imbalance : null},
             ...(data.balances_online
                     ? [{name: "without moves", class: "before", of: (each) => each.initial_imbalance}]
                     : [])],
  });
  drawBars(document.getElementById("moves-chart"), {
    ...common, label: "Experts moved per second", format: formatCount, of: (each) => each.moves,
    empty: data.balances_online ? "" : data.has_experts ? "off: start with layer_updates_per_iter above 0" : "the model has no experts",
    tell: (each) => each.moves > 0 ? [`<b>${each.moves}</b> experts moved, ${formatBytes(each.moved_bytes)}`] : [],
  });
}

// 45 s, 12 min, 3 h 5 min
function formatDuration(seconds) {
  const minutes = Math.floor(seconds / 60), hours = Math.floor(minutes / 60);
  if (hours > 0) return `${hours} h ${minutes % 60} min`;
  return minutes > 0 ? `${minutes} min` : `${Math.floor(seconds)} s`;
}

// Of all moves: what they were, and the time on the critical path that they have saved and cost.
function drawBalancer({balancer, rebalances, expert_moves: moves, moved_bytes: bytes}) {
  const parts = [];
  if (rebalances) {
    const cost = balancer.paid_seconds + balancer.lost_seconds;
    parts.push(`${formatMany(moves, "move")}, ${formatBytes(bytes)}`,
               `saved ${formatTime(1e3 * balancer.saved_seconds)}, cost ${formatTime(1e3 * cost)}`);
  }
  if (balancer.state === "resting" || balancer.state === "silent") parts.push(`<b>${balancer.state}</b>`);
  document.getElementById("moves-total").innerHTML = parts.join(" · ");
}

function drawBoard(state) {
  const {data} = state;
  setText("facts", `${data.model} on ${formatMany(data.num_ranks, "rank")} · up ${formatDuration(data.now - data.started)} · version ${data.version}`);
  document.title = `${data.model} · wideep`;
  document.getElementById("drafts-row").hidden = !data.speculates;
  document.getElementById("moves-keys").hidden = !data.balances_online;
  drawBalancer(data);
  drawTiles(state);
  drawRanks(state);
  drawPlaces(state);
  drawPlacesOfExperts(state);
  drawSharing(state);
  drawCharts(state);
  setText("footer", `Since the start ${formatCount(data.prompt_tokens)} prompt tokens, ${formatCount(data.generated_tokens)} ` +
                        `generated tokens, ${formatCount(data.iterations)} iterations. Latencies are the last minute's. ` +
                        "Imbalance ratio: the busiest rank's load over the mean, less 1, mean over layers.");
}
