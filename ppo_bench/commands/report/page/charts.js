"use strict";
(() => {
  const { figures, colours } = JSON.parse(document.getElementById("data").textContent);
  const DASHES = ["solid", "dash", "dot", "dashdot"];
  const colour = (index) => colours[index % colours.length];
  const faint = (hex, opacity) => hex + Math.round(255 * opacity).toString(16).padStart(2, "0");
  const text = (name) => name.replaceAll("&", "&amp;").replaceAll("<", "&lt;"); // plotly reads markup

  function smoothed(values, width) {
    const reach = (width - 1) / 2;
    return values.map((value, k) => {
      const near = values.slice(Math.max(0, k - reach), k + reach + 1).filter((each) => each !== null);
      return value === null ? null : near.reduce((sum, each) => sum + each, 0) / near.length;
    });
  }

  function lines(chart, width) {
    return chart.series.flatMap((series) => {
      const { x, runs } = series.curve;
      const [mean, low, high] = ["mean", "low", "high"].map((key) => smoothed(series.curve[key], width));
      const paint = colour(series.colour), known = mean.map((_, k) => k).filter((k) => low[k] !== null);
      const shared = { name: text(series.name), legendgroup: series.name, mode: "lines", type: "scatter" };
      const behind = { ...shared, showlegend: false, hoverinfo: "skip" };
      return [
        { ...behind, x: runs.flatMap(() => [...x, null]),
          y: runs.flatMap((run) => [...smoothed(run, width), null]), line: { color: faint(paint, 0.3), width: 0.8 } },
        { ...behind, x: [...known, ...known.toReversed()].map((k) => x[k]),
          y: [...known.map((k) => high[k]), ...known.toReversed().map((k) => low[k])],
          fill: "toself", fillcolor: faint(paint, 0.2), line: { width: 0, color: paint } },
        { ...shared, x, y: mean, line: { color: paint, width: 2.2, dash: DASHES[series.colour % 4] },
          customdata: mean.map((_, k) => (low[k] === null ? "" : ` [${low[k].toPrecision(4)}, ${high[k].toPrecision(4)}]`)),
          hovertemplate: "%{y:.4~g}%{customdata}" },
      ];
    });
  }

  function bars(chart) {
    const paints = chart.rows.map((row) => colour(row.colour)), values = chart.rows.map((row) => row.value[0]);
    const reach = (end) => chart.rows.map((row) => (row.value[end] === null ? 0 : Math.abs(row.value[end] - row.value[0])));
    const interval = { type: "data", symmetric: false, array: reach(2), arrayminus: reach(1), color: "#1b1f24", thickness: 1.6, width: 0 };
    const shown = { x: values, y: values.map((_, k) => k), error_x: interval, marker: { color: paints }, hovertemplate: "%{x:.4~g}<extra></extra>" };
    return [
      chart.from_zero
        ? { ...shown, type: "bar", orientation: "h" }
        : { ...shown, type: "scatter", mode: "markers", marker: { color: paints, symbol: "diamond", size: 10 } },
      { type: "scatter", mode: "markers", hovertemplate: "%{x:.4~g}<extra></extra>", marker: { size: 5, opacity: 0.45, color: "#1b1f24" },
        x: chart.rows.flatMap((row) => row.dots), y: chart.rows.flatMap((row, k) => row.dots.map(() => k)) },
    ];
  }

  function draw(host) {
    const chart = figures[host.dataset.figure][host.dataset.chart], rows = chart.rows ?? [];
    const axis = { gridcolor: "#d0d7de", zeroline: false, automargin: true };
    const of_curves = { height: 330 + 20 * (chart.series ?? []).length, hovermode: "x unified", showlegend: true, legend: { orientation: "h", y: -0.2 } };
    const of_bars = { height: 100 + 28 * rows.length, hovermode: "closest", showlegend: false };
    const ticks = { tickvals: rows.map((_, k) => k), ticktext: rows.map((row) => text(row.name)), range: [rows.length - 0.5, -0.5], showgrid: false };
    const layout = {
      title: { text: text(chart.title), font: { size: 14 }, x: 0, xref: "paper" }, font: { size: 12 },
      margin: { l: 50, r: 16, t: 34, b: 50 }, ...(chart.series ? of_curves : of_bars),
      xaxis: { ...axis, title: { text: text(chart.x_label) }, ...(chart.from_zero ? { rangemode: "tozero" } : {}) },
      yaxis: { ...axis, title: { text: chart.y_label ?? "" }, ...(chart.rows ? ticks : {}) },
      shapes: (chart.marks ?? []).map((mark) => ({ type: "line", x0: mark, x1: mark, yref: "paper", y0: 0, y1: 1, line: { width: 1, dash: "dash" } })),
    };
    const choice = host.closest("section").querySelector("[data-smooth]");
    Plotly.react(host, chart.series ? lines(chart, Number(choice.value)) : bars(chart), layout, { responsive: true, displayModeBar: false });
  }

  // A chart is drawn when it comes into view.
  const hosts = [...document.querySelectorAll(".chart")];
  const seen = new IntersectionObserver((entries) => {
    for (const { target } of entries.filter((entry) => entry.isIntersecting)) {
      seen.unobserve(target);
      draw(target);
    }
  }, { rootMargin: "600px" });
  hosts.forEach((host) => seen.observe(host));
  document.addEventListener("change", ({ target }) => hosts.filter((host) => host.layout && target.closest("section").contains(host)).forEach(draw));
})();
