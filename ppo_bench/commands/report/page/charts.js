"use strict";
(() => {
  const figures = JSON.parse(document.getElementById("data").textContent);
  const DASHES = ["solid", "dash", "dot", "dashdot"];
  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const colour = (index) => css(`--c${index % 7}`);
  const faint = (hex, opacity) => hex + Math.round(255 * opacity).toString(16).padStart(2, "0");
  const text = (name) => name.replaceAll("&", "&amp;").replaceAll("<", "&lt;"); // plotly reads markup
  // Lines of at most 2 * half letters, which end at a space where they can.
  const broken = (name, half) => name.replace(new RegExp(`.{${half}}(\\S{${half}}(?=.)|\\S* )`, "g"), "$&\n");
  const wrapped = (name, half) => text(name.length > 2 * half ? broken(name, half) : name).replaceAll("\n", "<br>");
  const most_lines = (names) => Math.max(...names.map((name) => name.split("<br>").length));

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
      const shared = { name: wrapped(series.name, 22), legendgroup: series.name, mode: "lines", type: "scatter" };
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
    const interval = { type: "data", symmetric: false, array: reach(2), arrayminus: reach(1), color: css("--ink"), thickness: 1.6, width: 0 };
    const names = { text: chart.rows.map((row) => text(row.name)), textposition: "none", hovertemplate: "%{text}: %{x:.4~g}<extra></extra>" };
    const shown = { ...names, x: values, y: values.map((_, k) => k), error_x: interval, marker: { color: paints } };
    return [
      chart.from_zero
        ? { ...shown, type: "bar", orientation: "h" }
        : { ...shown, type: "scatter", mode: "markers", marker: { color: paints, symbol: "diamond", size: 10 } },
      { type: "scatter", mode: "markers", hovertemplate: "%{x:.4~g}<extra></extra>", marker: { size: 5, opacity: 0.45, color: css("--ink") },
        x: chart.rows.flatMap((row) => row.dots), y: chart.rows.flatMap((row, k) => row.dots.map(() => k)) },
    ];
  }

  function draw(host) {
    const chart = figures[host.dataset.figure][host.dataset.chart], rows = chart.rows ?? [];
    const half = Math.floor(host.clientWidth / 26), ink = css("--ink"); // a name takes less than half of the width
    const names = rows.map((row) => wrapped(row.name, half)), label = wrapped(chart.x_label, chart.rows ? half : 22);
    const axis = { gridcolor: css("--line"), zeroline: false, automargin: true, fixedrange: true, ticklabelstandoff: 4 };
    const of_curves = { height: 300 + 30 * (chart.series ?? []).length, hovermode: "x unified", showlegend: true, legend: { orientation: "h", y: -0.25 } };
    const of_bars = { height: 40 + 15 * most_lines([label]) + (13 + 15 * most_lines(names)) * rows.length, hovermode: "closest", showlegend: false };
    const ticks = { tickvals: rows.map((_, k) => k), ticktext: names, range: [rows.length - 0.5, -0.5], showgrid: false };
    const layout = {
      font: { color: ink, size: 12 }, paper_bgcolor: "transparent", plot_bgcolor: "transparent", hoverlabel: { bgcolor: css("--panel") },
      margin: { l: 50, r: 16, t: 8, b: 40 }, ...(chart.series ? of_curves : of_bars),
      xaxis: { ...axis, title: { text: label, standoff: 8 }, ...(chart.from_zero ? { rangemode: "tozero" } : {}) },
      yaxis: { ...axis, title: { text: chart.y_label ?? "" }, ...(chart.rows ? ticks : {}) },
      shapes: (chart.marks ?? []).map((mark) => ({ type: "line", x0: mark, x1: mark, yref: "paper", y0: 0, y1: 1, line: { color: ink, width: 1, dash: "dash" } })),
    };
    const choice = host.closest("section").querySelector("[data-smooth]");
    Plotly.react(host, chart.series ? lines(chart, Number(choice.value)) : bars(chart), layout, { responsive: true, displayModeBar: false });
  }

  // A chart is drawn when it comes into view, and again in the colours of another scheme or of paper.
  const hosts = [...document.querySelectorAll(".chart")];
  const seen = new IntersectionObserver((entries) => {
    for (const { target } of entries.filter((entry) => entry.isIntersecting)) {
      seen.unobserve(target);
      draw(target);
    }
  }, { rootMargin: "600px" });
  hosts.forEach((host) => seen.observe(host));
  ["(prefers-color-scheme: dark)", "print"].forEach((query) => matchMedia(query).addEventListener("change", () => hosts.forEach(draw)));
  document.addEventListener("change", ({ target }) => hosts.filter((host) => host.layout && target.closest("section").contains(host)).forEach(draw));
})();
