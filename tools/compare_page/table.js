// The table of all plans: a line for each planner and split, the best number of a column bold.

// 0.000927, and 0 for what only rounding keeps from it
function formatImbalance(value) {
  if (value < 5e-10) return "0";
  return value < 1e-4 ? value.toExponential(1) : value.toFixed(4);
}

function formatRanks(value) {
  return value.toFixed(3);
}

function planName(plan) {
  return `${plan.planner}, ${plan.split} split`;
}

function plannedImbalance(figures, split) {
  return split === "equal" ? figures.imbalance_equal : figures.imbalance_weighted;
}

// {title, text(plan), value(plan)}: value where less is better, so that the best can be marked.
function tableColumns(data) {
  const columns = [
    {title: "planned", value: (plan) => plannedImbalance(plan.mean, plan.split), text: formatImbalance},
    {title: "bound", value: (plan) => plan.mean.lower_bound, text: formatImbalance, plain: true},
  ];
  if (data.num_held_out_iterations) {
    columns.push({title: "held out", value: (plan) => plan.mean.imbalance_held_out, text: formatImbalance},
                 {title: "held out, re-split", value: (plan) => plan.mean.imbalance_held_out_resplit, text: formatImbalance});
  }
  if (data.plans[0].mean.ranks_per_token) {
    columns.push({title: "ranks per token", value: (plan) => plan.mean.ranks_per_token, text: formatRanks},
                 {title: "… by cover", value: (plan) => plan.mean.ranks_per_token_cover, text: formatRanks});
  }
  if (data.plans[0].mean.crossings_per_token) {
    columns.push({title: "nodes crossed to", value: (plan) => plan.mean.crossings_per_token, text: formatRanks});
  }
  if (data.plans[0].mean.crossings_per_token_held_out) {
    columns.push({title: "… held out", value: (plan) => plan.mean.crossings_per_token_held_out, text: formatRanks});
  }
  if (data.plans[0].mean.ranks_per_token_held_out) {
    columns.push({title: "… held out", value: (plan) => plan.mean.ranks_per_token_held_out, text: formatRanks},
                 {title: "… by cover, held out", value: (plan) => plan.mean.ranks_per_token_cover_held_out, text: formatRanks});
  }
  columns.push({title: "moves", value: (plan) => plan.moves, text: formatCount});
  if (data.bytes_per_expert) columns.push({title: "bytes moved", value: (plan) => plan.bytes, text: formatBytes, plain: true});
  columns.push({title: "time", value: (plan) => plan.plan_seconds * 1000, text: formatTime});
  return columns;
}

function tableHtml(data) {
  const columns = tableColumns(data);
  const best = columns.map((column) => Math.min(...data.plans.map(column.value)));
  const isBest = (column, i, plan) => !column.plain && column.text(column.value(plan)) === column.text(best[i]);
  const head = columns.map(({title}) => `<th class="number">${title}</th>`).join("");
  const rows = data.plans.map((plan) => {
    const cells = columns.map((column, i) =>
        `<td class="number${isBest(column, i, plan) ? " best" : ""}">${column.text(column.value(plan))}</td>`);
    return `<tr><td>${escapeText(plan.planner)}</td><td>${plan.split}</td>${cells.join("")}</tr>`;
  });
  return `<div class="scroll" tabindex="0" role="region" aria-label="All planners"><table><thead><tr><th>planner</th><th>split</th>${head}</tr></thead>` +
      `<tbody>${rows.join("")}</tbody></table></div>`;
}
