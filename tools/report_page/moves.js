// One move of experts: the ranks of its layer before it, while weights are copied, and after it.

const kPhases = ["before", "during", "after"];

function movesOf(runs) {
  return runs.flatMap((run, index) => run.moves.map((move) => ({run, index, move})));
}

function moveText({run, move}) {
  return `layer ${layerText(run, move.layer)}, iteration ${move.switched}: ${formatMany(move.moves, "expert")}`;
}

// Rank × iteration. A line stands before the first iteration that was served while weights were
// copied, and one before the first with the new slots.
function moveLoadPanel({run, move}) {
  const [before, , after] = move.phases;
  const shown = run.iterations.filter(({iteration}) => iteration >= before.first && iteration <= after.last);
  const loads = shown.map(({received}) => received[move.layer]);
  const means = loads.map((load) => sum(load) / run.ep_size);
  const ratios = loads.map(imbalanceRatio);
  const meanRatio = ({first, last}) => {
    const of = ratios.filter((_, i) => shown[i].iteration >= first && shown[i].iteration <= last);
    return of.length ? formatRatio(sum(of) / of.length) : "–";
  };
  const columnOf = (number) => shown.findIndex(({iteration}) => iteration >= number);
  return {
    name: `Layer ${layerText(run, move.layer)}, ${formatMany(move.moves, "expert")} moved`, className: "",
    stat: `mean imbalance: ${kPhases.map((name, i) => `${name} ${meanRatio(move.phases[i])}`).join(", ")}`,
    map: {
      rows: run.ep_size, cols: shown.length,
      value: (row, col) => shareOf(loads[col][row], means[col]),
      pairsAt: (row, col) => loads[col][row], meanAt: (col) => means[col], iterationAt: (col) => shown[col].iteration,
      rowLabel: String, colLabel: (col) => String(shown[col].iteration), rowTitle: "receiving rank", colTitle: "iteration",
      bars: {title: "imbalance ratio of the iteration", values: ratios, max: maxOf(ratios) || 1},
      marks: moveMarks(columnOf(move.decided + 1), columnOf(move.switched)),
      format: formatRatio,
    },
  };
}

function moveMarks(decided, switched) {
  return decided === switched ? [{col: switched, text: "decided and switched"}]
      : [{col: decided, text: "decided"}, {col: switched, text: "switched"}];
}

function phaseImbalance(phase) {
  return phase.iterations > 0 ? imbalanceRatio(columnSums(phase.sent)) : 0;
}

// The first one to show: it has made much better, over many iterations, and took some.
function mostTelling(all) {
  return indexOfMax(all.map(({move: {phases: [before, during, after]}}) =>
      (phaseImbalance(before) - phaseImbalance(after)) * Math.min(before.iterations, after.iterations) * (during.iterations > 0 ? 2 : 1)));
}

function movePhasePanel({run}, phase, name) {
  const total = sum(phase.sent.flat());
  const what = phase.iterations === 0 ? "no iteration" : `${formatMany(phase.iterations, "iteration")}, ${hottest(columnSums(phase.sent))}`;
  if (total === 0) return {name: name[0].toUpperCase() + name.slice(1), className: "", stat: phase.iterations === 0 ? emptyPhaseText(name) : "no pairs", map: null};
  const mean = total / run.ep_size ** 2;
  return {
    name: name[0].toUpperCase() + name.slice(1), className: "", stat: what,
    map: {
      rows: run.ep_size, cols: run.ep_size,
      value: (row, col) => phase.sent[row][col] / mean, pairsAt: (row, col) => phase.sent[row][col],
      rowLabel: String, colLabel: String, rowTitle: "sending rank", colTitle: "receiving rank", format: formatRatio,
    },
  };
}

function emptyPhaseText(name) {
  return name === "during" ? "The copies were ready before the next iteration." : `The layer has no recorded iteration ${name} this move, without another one.`;
}

// Two drawings with a legend each, below the one selector.
function addMove(runs) {
  const all = movesOf(runs);
  if (all.length === 0) return;
  addSection({
    title: "One move of experts: before, during and after",
    hint: "The layer’s ranks, iteration by iteration, and what they sent each other. <b>Between the lines</b> weights are copied while the old slots serve, and no rank waits.",
    controls: [{key: "move", label: "Move", steps: true, value: String(mostTelling(all)),
                options: all.map((each, i) => ({value: String(i), text: `${runs.length > 1 ? `${each.run.name}: ` : ""}${moveText(each)}`}))}],
    draw: ({move}, parts) => drawMove(all[Number(move)], parts),
  });
}

function drawMove(chosen, parts) {
  const loads = document.createElement("div"), sent = document.createElement("div"), legend = document.createElement("div");
  legend.className = "legend";
  parts.panels.className = "";
  parts.panels.replaceChildren(loads, legend, sent);
  drawHeatMaps({legend: parts.legend, panels: loads}, {
    shown: [moveLoadPanel(chosen)],
    unit: "pairs ÷ mean of the iteration (1 = even)",
    where: (row, col) => `Rank ${row}, iteration ${moveLoadPanel(chosen).map.iterationAt(col)}`,
    exact: (value, row, col, {map}) => pairsAndShare(map.pairsAt(row, col), map.meanAt(col)),
  });
  drawHeatMaps({legend, panels: sent}, {
    shown: chosen.move.phases.map((phase, i) => movePhasePanel(chosen, phase, kPhases[i])),
    unit: "pairs sent ÷ mean of all ranks to all ranks (1 = even)",
    where: (row, col) => (row === col ? `Rank ${row} to itself` : `Rank ${row} to rank ${col}`),
    exact: (value, row, col, {map}) => `${pairs(map.pairsAt(row, col))}, ${formatRatio(value)} × an even share`,
  });
}
