// From the embedded numbers to the page.

function choices(values) {
  return [...new Set(values)].map((value) => ({value: String(value), text: String(value)}));
}

function addRatios(data) {
  const drafters = choices(data.cells.map((each) => each.drafter));
  addSection({
    title: "Tokens per second, as a multiple of those without drafts",
    hint: "Steps without prompt tokens, median of the rounds. The second turn asks again behind its own answer. " +
        "<b>The answers are the same</b>, token for token.",
    controls: [{key: "drafter", label: "Drafts by", options: drafters, value: drafters[0].value}],
    draw: ({drafter}, parts) => {
      const width = layOutPanels(parts.panels, 1, kLeastChartWidth);
      parts.panels.innerHTML = ratiosSvg(data.cells.filter((each) => each.drafter === drafter), width);
      parts.legend.innerHTML = `<span class="key first"></span>first turn<span class="key second"></span>second turn`;
    },
  });
}

function addCell(data) {
  const drafters = choices(data.cells.map((each) => each.drafter)), batches = choices(data.cells.map((each) => each.batch));
  addSection({
    title: "What was accepted",
    hint: "Left: how many of its drafts a request accepted in a step. Right: the tokens that a step has yielded for each request; " +
        "the fainter, the fewer requests were under way.",
    controls: [{key: "drafter", label: "Drafts by", options: drafters, value: drafters[0].value},
               {key: "batch", label: "Requests", options: batches, value: batches[0].value, steps: true},
               {key: "turn", label: "Turn", options: choices([1, 2]), value: "1"}],
    draw: ({drafter, batch, turn}, parts) => {
      const cell = data.cells.find((each) => each.drafter === drafter && String(each.batch) === batch && String(each.turn) === turn);
      const width = layOutPanels(parts.panels, 2, kLeastChartWidth);
      parts.panels.innerHTML = `<div>${histogramSvg(cell, width)}</div><div>${stepsSvg(cell, width)}</div>`;
      parts.legend.innerHTML = `${(100 * cell.draft_acceptance_rate).toFixed(0)} % of ${formatCount(cell.num_draft_tokens)} draft tokens accepted, ` +
          `${cell.acceptance_length.toFixed(2)} tokens per step with drafts`;
    },
  });
}

const data = JSON.parse(document.getElementById("data").textContent);
document.getElementById("facts").textContent = `${data.model} on ${formatMany(data.ranks, "rank")}, ` +
    `${data.max_tokens} tokens an answer, ${formatMany(data.rounds, "round")}`;
addRatios(data);
addCell(data);
document.getElementById("footer").textContent = "wideep bench speculation. Runs with and without drafts follow each other in turn.";
