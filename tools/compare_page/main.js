// From the embedded numbers to the page.

function splitOptions(data) {
  return ["equal", "weighted"].filter((split) => data.plans.some((plan) => plan.split === split))
      .map((split) => ({value: split, text: split === "equal" ? "equal: load ÷ replicas" : "weighted: by shares"}));
}

// Which load the ratios are of.
function loadOptions(data) {
  const options = [{value: "planned", text: "planned on"}];
  if (data.num_held_out_iterations) {
    options.push({value: "imbalance_held_out", text: "held out"},
                 {value: "imbalance_held_out_resplit", text: "held out, shares from itself"});
  }
  return options;
}

function chartSeries(data, split, load) {
  const plans = data.plans.filter((plan) => plan.split === split);
  const valueOf = (figures) => load === "planned" ? plannedImbalance(figures, split) : figures[load];
  const series = plans.map((plan) => ({name: plan.planner, values: plan.layers.map(valueOf)}));
  const nowOf = (figures) => load === "planned" ? figures.imbalance_now : figures.imbalance_now_held_out;
  const now = {name: "now", values: plans[0].layers.map(nowOf)};
  return {
    series: [now, ...series],
    bound: load === "planned" ? plans[0].layers.map((figures) => figures.lower_bound) : [],
  };
}

// The same on the held-out load, with which the held-out columns compare.
function heldOutNow(data) {
  const value = data.plans[0].mean.imbalance_now_held_out;
  return value === undefined ? "" : `, held out <b>${formatImbalance(value)}</b>`;
}

function addTable(data) {
  addSection({
    title: "All planners",
    hint: `Imbalance ratios are max ÷ mean − 1 of the tokens that ranks receive, mean over layers; <b>0 is perfect</b>. ` +
        `Now, with experts in order, it is <b>${formatImbalance(data.plans[0].mean.imbalance_now)}</b>${heldOutNow(data)}. No plan that keeps the replicas of an expert on different ranks can be below the bound. ` +
        `Moves are experts that a rank does not hold now; time is for all layers.`,
    controls: [],
    draw: (_, parts) => {
      parts.panels.className = "panels single";
      parts.panels.innerHTML = tableHtml(data);
    },
  });
}

function addLines(data) {
  addSection({
    title: "Imbalance of each layer",
    hint: "Each line is a planner, <b>lower is better</b>; the axis is logarithmic, and what lies below it is drawn on its bottom line.",
    controls: [{key: "split", label: "Split", options: splitOptions(data), value: splitOptions(data)[0].value},
               {key: "load", label: "Load", options: loadOptions(data), value: "planned"}],
    draw: ({split, load}, parts) => {
      const {series, bound} = chartSeries(data, split, load);
      const width = layOutPanels(parts.panels, 1, kLeastChartWidth);
      parts.panels.innerHTML = layerChartSvg(data.layers, series, bound, width);
      parts.legend.innerHTML = series.map((each, i) => keyHtml(i, each.name)).join("") +
          (bound.length ? keyHtml(null, "lower bound") : "");
      linkLayerChart(parts.panels.querySelector("svg"), data.layers, series, bound, width);
    },
  });
}

function rankMap(data, loads) {
  return {
    rows: data.layers.length, cols: data.ep_size,
    value: (row, col) => loads[row][col] / 1000,
    rowLabel: (row) => String(data.layers[row]), colLabel: (col) => String(col),
    rowTitle: "layer", colTitle: "rank", format: (value) => value.toFixed(2),
  };
}

function addRankLoads(data) {
  addSection({
    title: "Load of every rank",
    hint: "Tokens of a rank as a multiple of its layer's mean, on the load planned on, with experts in order and by the plan. <b>Even colour is even load;</b> the darkest (on a dark page the brightest) cell of a row is what the others wait for.",
    controls: [{key: "plan", label: "Plan", value: "0",
                options: data.plans.map((plan, i) => ({value: String(i), text: planName(plan)}))}],
    draw: ({plan}, parts) => {
      const chosen = data.plans[Number(plan)];
      const stat = (value) => `imbalance ratio ${formatImbalance(value)}`;
      drawHeatMaps(parts, {
        shown: [{name: "Now, experts in order", className: "before", stat: stat(chosen.mean.imbalance_now), map: rankMap(data, data.rank_loads_now)},
                {name: `Planned by ${planName(chosen)}`, className: "after", stat: stat(plannedImbalance(chosen.mean, chosen.split)), map: rankMap(data, chosen.rank_loads)}],
        unit: "× mean of the layer",
        where: (row, col) => `layer ${data.layers[row]}, rank ${col}`,
        exact: (value) => `${value.toFixed(3)} × mean`,
      });
    },
  });
}

function showComparison(data) {
  document.getElementById("facts").textContent = `${data.file} · ${data.facts}`;
  installPalette();
  addTable(data);
  addLines(data);
  addRankLoads(data);
  document.getElementById("footer").textContent =
      "Drawn by wideep balance compare. Ratios are fractions, not per cent.";
}

showComparison(JSON.parse(document.getElementById("data").textContent));
