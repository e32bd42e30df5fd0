// The heat maps of the report: what each shows, and what it starts with.

const kMaxColumns = 240;  // more iterations than these are averaged in groups

function layerText(run, index) {
  return String(run.layers[index]);
}

// The layer whose load is least even in the first run, by the weight of its tokens.
function mostImbalancedLayer(run) {
  return indexOfMax(run.summary.layers.map((layer) => layer.weighted));
}

function layerOptions(run) {
  const worst = mostImbalancedLayer(run);
  return run.layers.map((layer, i) => ({value: String(i), text: `${layer}${run.layers.length > 1 && i === worst ? " (most imbalanced)" : ""}`}));
}

function layerControl(run, extra = []) {
  return {key: "layer", label: "Layer", options: [...layerOptions(run), ...extra],
          value: String(mostImbalancedLayer(run)), steps: true};
}

// max / mean − 1; 0 when nothing was received.
function imbalanceRatio(received) {
  const total = sum(received);
  return total > 0 ? maxOf(received) * received.length / total - 1 : 0;
}

function hottest(received) {
  const rank = indexOfMax(received);
  return `imbalance ${formatRatio(imbalanceRatio(received))} · most: ${formatCount(received[rank])} on rank ${rank}`;
}

function pairs(value) {
  return `${formatCount(value)} ${Math.round(value) === 1 ? "pair" : "pairs"}`;
}

function pairsAndShare(value, mean) {
  return mean > 0 ? `${pairs(value)}, ${formatRatio(value / mean)} × an even share` : pairs(value);
}

function panelOf(runs, index, stat, map) {
  return {name: runName(runs, index), className: runs.length === 2 ? runClass(index) : "", stat, map};
}

// ---- Layer × rank at one iteration ----

function iterationNumbers(runs) {
  return [...new Set(runs.flatMap((run) => run.iterations.map((each) => each.iteration)))].sort((a, b) => a - b);
}

function findIteration(run, number) {
  return run.iterations.find((each) => each.iteration === number);
}

function batchText(iteration) {
  return `${formatCount(iteration.prompt_tokens)} prompt + ${formatCount(iteration.generated_tokens)} generated tokens`;
}

// The iteration with the most prompt tokens (or, without any, with the most tokens), of those that
// all runs recorded if there are any.
function busiestPrefill(runs) {
  const shared = runs[0].iterations.filter((each) => runs.every((run) => findIteration(run, each.iteration)));
  const from = shared.length ? shared : runs[0].iterations;
  const prompts = from.map((each) => each.prompt_tokens);
  const tokens = maxOf(prompts) > 0 ? prompts : from.map((each) => each.generated_tokens);
  return from[indexOfMax(tokens)].iteration;
}

function iterationControl(runs) {
  const busiest = busiestPrefill(runs);
  const options = iterationNumbers(runs).map((number) => {
    const iteration = runs.map((run) => findIteration(run, number)).find((found) => found);
    return {value: String(number), text: `${number}: ${batchText(iteration)}${number === busiest ? ` (busiest${iteration.prompt_tokens > 0 ? " prefill" : ""})` : ""}`};
  });
  return {key: "iteration", label: "Iteration", options, value: String(busiest), steps: true};
}

function layerRankPanel(runs, index, number) {
  const run = runs[index];
  const iteration = findIteration(run, number);
  if (!iteration) return panelOf(runs, index, `Iteration ${number} was not recorded in ${run.file}.`, null);
  const ratios = iteration.received.map(imbalanceRatio);
  const map = {
    rows: run.layers.length, cols: run.ep_size,
    value: (row, col) => iteration.received[row][col],
    rowLabel: (row) => layerText(run, row), colLabel: String,
    rowTitle: "MoE layer", colTitle: "receiving rank",
    notes: {title: "imbalance", text: (row) => formatRatio(ratios[row])},
    format: formatShort,
  };
  return panelOf(runs, index, `mean imbalance ${formatRatio(sum(ratios) / ratios.length)} · ${batchText(iteration)}`, map);
}

function addLayerRank(runs) {
  const run = runs[0];
  addSection({
    title: "Pairs received by each rank in each layer, one iteration",
    hint: "Read along a row: <b>an even row has one colour.</b> A hot cell is the rank for which all the others wait in that layer; it can be another rank in every layer.",
    controls: [iterationControl(runs)],
    draw: ({iteration}, parts) => drawHeatMaps(parts, {
      shown: runs.map((_, i) => layerRankPanel(runs, i, Number(iteration))),
      unit: "pairs received",
      where: (row, col) => `Layer ${layerText(run, row)}, rank ${col}`,
      exact: (value, row, col, {map}) => {
        const values = Array.from({length: map.cols}, (_, each) => map.value(row, each));
        return pairsAndShare(value, sum(values) / map.cols);
      },
    }),
  });
}

// ---- Receiving rank × iteration ----

// Columns of at most kMaxColumns groups of neighbouring iterations.
function iterationGroups(runs) {
  const numbers = iterationNumbers(runs);
  const size = Math.ceil(numbers.length / kMaxColumns);
  const groups = [];
  for (let i = 0; i < numbers.length; i += size) groups.push(numbers.slice(i, i + size));
  return groups;
}

function groupText(group) {
  return group.length === 1 ? `iteration ${group[0]}` : `iterations ${group[0]} to ${group[group.length - 1]}, mean`;
}

// Mean pairs of each rank over the recorded iterations of each group: [group] of [rank] or null.
function groupLoads(run, groups, layer) {
  return groups.map((group) => {
    const found = group.map((number) => findIteration(run, number)).filter((each) => each);
    if (!found.length) return null;
    return Array.from({length: run.ep_size}, (_, rank) => sum(found.map((each) => each.received[layer][rank])) / found.length);
  });
}

function shareOf(value, mean) {
  return mean > 0 ? value / mean : 0;
}

// Batches of very unequal size would leave the small ones without contrast.
function sharesReadBetter(loads) {
  const totals = loads.filter((each) => each).map(sum).sort((a, b) => a - b);
  return totals[totals.length - 1] > 6 * Math.max(1, totals[Math.floor(totals.length / 2)]);
}

// loads: what the picture starts with, [step] of [rank or expert] or null.
function scaleControl(loads) {
  return {key: "scale", label: "Colour", value: sharesReadBetter(loads) ? "share" : "pairs",
          options: [{value: "share", text: "multiple of even share"}, {value: "pairs", text: "number of pairs"}]};
}

function rankIterationPanel(runs, index, {loads, groups, layer, scale, busiest}) {
  const run = runs[index];
  const means = loads.map((load) => load && sum(load) / run.ep_size);
  const shares = scale === "share";
  const map = {
    rows: run.ep_size, cols: groups.length,
    value: (row, col) => loads[col] && (shares ? shareOf(loads[col][row], means[col]) : loads[col][row]),
    rowLabel: String, colLabel: (col) => String(groups[col][0]),
    rowTitle: "receiving rank", colTitle: "iteration",
    bars: {title: "pairs per iteration, all ranks", values: loads.map((load) => (load ? sum(load) : 0)), max: busiest},
    format: shares ? formatRatio : formatShort,
    pairsAt: (row, col) => loads[col][row], meanAt: (col) => means[col],
  };
  const summary = run.summary.layers[layer];
  return panelOf(runs, index, `imbalance: average ${formatRatio(summary.average)}, weighted by tokens ${formatRatio(summary.weighted)}`, map);
}

function addRankIteration(runs) {
  const run = runs[0];
  const groups = iterationGroups(runs);
  addSection({
    title: "Pairs received by each rank over time, one layer",
    hint: "<b>Look for horizontal stripes:</b> a rank that stays hot from iteration to iteration is what a better placement cures. Single hot cells, most of all in small batches, are chance.",
    controls: [layerControl(run), scaleControl(groupLoads(run, groups, mostImbalancedLayer(run)))],
    draw: ({layer, scale}, parts) => {
      const loads = runs.map((each) => groupLoads(each, groups, Number(layer)));
      const busiest = maxOf(loads.flat().map((load) => (load ? sum(load) : 0)));
      drawHeatMaps(parts, {
        shown: runs.map((_, i) => rankIterationPanel(runs, i, {loads: loads[i], groups, layer: Number(layer), scale, busiest})),
        unit: scale === "share" ? "pairs ÷ mean of the iteration (1 = even)" : "pairs received",
        where: (row, col) => `Rank ${row}, ${groupText(groups[col])}`,
        exact: (value, row, col, {map}) => pairsAndShare(map.pairsAt(row, col), map.meanAt(col)),
      });
    },
  });
}

// ---- Experts over time ----

// [window] of [expert] counts or null; `running`: accumulated from the first window on.
function windowCounts(run, starts, layer, running) {
  let total = new Array(run.num_experts).fill(0);
  return starts.map((start) => {
    const found = run.windows.find((each) => each.start === start);
    if (!found) return null;
    if (!running) return found.experts[layer];
    total = total.map((value, expert) => value + found.experts[layer][expert]);
    return total;
  });
}

function expertPanel(run, {counts, labels, windowTitle, busiest, totals, shares, name, className}) {
  const means = counts.map((row) => row && sum(row) / run.num_experts);
  const map = {
    rows: labels.length, cols: run.num_experts,
    value: (row, col) => counts[row] && (shares ? shareOf(counts[row][col], means[row]) : counts[row][col]),
    pairsAt: (row, col) => counts[row][col], meanAt: (row) => means[row],
    rowLabel: (row) => labels[row], colLabel: String, rowTitle: windowTitle, colTitle: "expert",
    bars: {title: "whole run (dashed: mean)", values: totals, max: busiest, mean: sum(totals) / run.num_experts},
    format: shares ? formatRatio : formatShort,
  };
  const top = indexOfMax(totals);
  const mean = sum(totals) / run.num_experts;
  const stat = mean > 0 ? `most popular: expert ${top}, ${formatCount(totals[top])} pairs, ${formatRatio(totals[top] / mean)} × the mean` : "no pairs";
  return {name, className, stat, map};
}

function sameInBoth(one, other) {
  return JSON.stringify(one) === JSON.stringify(other);
}

// Two runs that count the same share one wide panel: placements move experts, not the choice of them.
function runsToShow(runs, part) {
  const indices = runs.length === 2 && sameInBoth(part(runs[0]), part(runs[1])) ? [0] : runs.map((_, i) => i);
  const name = (i) => (indices.length < runs.length ? `${runName(runs, 0)} and ${runs[1].name}: equal, as they must be` : runName(runs, i));
  return indices.map((i) => ({run: runs[i], name: name(i), className: indices.length === 2 ? runClass(i) : ""}));
}

function windowLabels(starts, size) {
  return starts.map((start) => (size === 1 ? String(start) : `${start}–${start + size - 1}`));
}

function addExperts(runs, windowSize) {
  const starts = startsOf(runs, "windows");
  const labels = windowLabels(starts, windowSize);
  const shown = runsToShow(runs, (run) => run.windows);
  addSection({
    title: "Pairs of each expert over time, one layer",
    hint: "<b>Look for vertical stripes:</b> experts that stay popular are worth a replica. A stripe that begins or ends half-way is a shift of the load, which only a balancer that keeps measuring can follow.",
    controls: [layerControl(runs[0]), {
      key: "sums", label: "Sum", value: "window",
      options: [{value: "window", text: windowSize === 1 ? "of each iteration" : `of each ${windowSize} iterations`},
                {value: "running", text: "since the start"}],
    }, scaleControl(windowCounts(shown[0].run, starts, mostImbalancedLayer(runs[0]), false))],
    draw: ({layer, sums, scale}, parts) => {
      const totals = shown.map(({run}) => windowCounts(run, starts, Number(layer), true).filter((each) => each).pop());
      drawHeatMaps(parts, {
        shown: shown.map(({run, name, className}, i) => expertPanel(run, {
          counts: windowCounts(run, starts, Number(layer), sums === "running"), labels, name, className,
          windowTitle: windowSize === 1 ? "iteration" : "iterations", totals: totals[i], busiest: maxOf(totals.flat()), shares: scale === "share",
        })),
        unit: scale === "share" ? "pairs ÷ mean of the row’s experts (1 = even)"
            : sums === "running" ? "pairs since the start" : windowSize === 1 ? "pairs per iteration" : `pairs per ${windowSize} iterations`,
        where: (row, col) => `Expert ${col}, iteration${windowSize === 1 ? "" : "s"} ${sums === "running" ? `up to ${labels[row].split("–").pop()}` : labels[row]}`,
        exact: (value, row, col, {map}) => pairsAndShare(map.pairsAt(row, col), map.meanAt(row)),
      });
    },
  });
}

// ---- One request ----

function requestTokens(request, topK) {
  return sum(request.counts[0]) / topK;
}

function requestOptions(run) {
  return run.requests.map((request, i) => ({
    value: String(i),
    text: `${i}: ${request.label || "(no text)"} (${formatMany(requestTokens(request, run.top_k), "token")})`,
  }));
}

function requestPanel({run, name, className}, index) {
  const request = run.requests[index];
  if (!request) return {name, className, stat: `${run.file} has no request ${index}.`, map: null};
  const map = {
    rows: run.layers.length, cols: run.num_experts,
    value: (row, col) => request.counts[row][col],
    rowLabel: (row) => layerText(run, row), colLabel: String, rowTitle: "MoE layer", colTitle: "expert",
    notes: {title: "used", text: (row) => `${request.counts[row].filter((count) => count > 0).length} of ${run.num_experts}`},
    format: formatShort,
  };
  return {name, className, stat: `“${request.label}”, ${formatMany(requestTokens(request, run.top_k), "token")}`, map};
}

function addRequest(runs) {
  const run = runs.find((each) => each.requests.length > 0);
  if (!run) return;
  const longest = indexOfMax(run.requests.map((request) => requestTokens(request, run.top_k)));
  const hidden = run.num_requests - run.requests.length;
  const more = hidden > 0 ? ` The selector offers the first ${formatCount(run.requests.length)} of ${formatCount(run.num_requests)} requests.` : "";
  const shown = runsToShow(runs, (each) => each.requests);
  addSection({
    title: "One request alone: pairs of each expert in each layer",
    hint: `<b>Look for a few hot cells in each row:</b> one text leans on few experts, and on other ones in every layer. A batch of similar requests adds up to the hot ranks above.${more}`,
    controls: [{key: "request", label: "Request", options: requestOptions(run), value: String(longest), steps: true}],
    draw: ({request}, parts) => drawHeatMaps(parts, {
      shown: shown.map((each) => requestPanel(each, Number(request))),
      unit: "pairs of this request",
      where: (row, col) => `Layer ${layerText(run, row)}, expert ${col}`,
      exact: (value) => pairs(value),
    }),
  });
}
