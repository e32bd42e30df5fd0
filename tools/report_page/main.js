// From the embedded numbers to the page.

function factsText(run) {
  return [run.model, formatMany(run.layers.length, "MoE layer"), `${formatMany(run.num_experts, "expert")} each`,
          `top-${run.top_k}`, formatMany(run.ep_size, "rank"), formatMany(run.num_requests, "request"),
          `${formatMany(run.iterations.length, "iteration")}`].filter((text) => text).join(" · ");
}

function addImbalance(runs) {
  addSection({
    title: "Imbalance of each layer",
    hint: "Each line is a layer. <b>The nearer its mark is to 0, the more evenly the ranks share its work;</b> the critical path beside it is what the slowest rank of each iteration took, added up.",
    controls: [{key: "kind", label: "Ratio", options: imbalanceKinds(runs), value: "average"}],
    draw: ({kind}, parts) => {
      const width = layOutPanels(parts.panels, 1, leastImbalanceWidth(runs));
      parts.panels.innerHTML = imbalanceChartSvg(runs, kind, width);
      parts.legend.innerHTML = runs.length < 2 ? "" : runs.map((_, i) =>
          `<span class="name">${dotHtml(i)}${runName(runs, i)}</span>`).join("&emsp;");
    },
  });
}

function showReport({runs, window: windowSize, sent_window: sentWindow}) {
  document.getElementById("facts").textContent = factsText(runs[0]);
  installPalette();
  addSummary(runs);
  addImbalance(runs);
  addLayerRank(runs);
  addRankIteration(runs);
  addSenderReceiver(runs, sentWindow);
  addSentOverTime(runs, sentWindow);
  addMove(runs);
  addExperts(runs, windowSize);
  addRequest(runs);
  document.getElementById("footer").textContent =
      `Drawn by wideep balance picture from ${runs.map((run) => run.file).join(" and ")}. Ratios are fractions, not per cent.`;
}

showReport(JSON.parse(document.getElementById("data").textContent));
